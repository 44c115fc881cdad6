"""The statement of a release: what is promised, what was spent, and what the promise assumes."""

import math
import platform
import zlib
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from adaptive_qs.errors import BudgetExceeded, InputError, of_another_version
from adaptive_qs.machine import find_version
from adaptive_qs.pages.words import at_resolution
from adaptive_qs.privacy import accounting
from adaptive_qs.privacy.accounting import DISCRETE_SHARE, compute_delta, compute_gaussian_delta
from adaptive_qs.privacy.budget import LedgerPosition, PrivacyLoss, float_above
from adaptive_qs.privacy.events import Cost, Event, zcdp_name
from adaptive_qs.privacy.unit import ROWS, Unit
from adaptive_qs.release import facts as fact_rows
from adaptive_qs.release.facts import Fact, NonNegative, ThreatModel, list_facts, list_mechanisms
from adaptive_qs.table.files import PRIVATE, Stamp
from adaptive_qs.table.schema import Schema

MANIFEST = "manifest.json"
"""The name of the statement in a bundle, and of its digest in a ledger."""
LIBRARIES = ("numpy", "scipy", "numba", "llvmlite", "pyarrow", "jinja2", "markupsafe")
"""Libraries that round, compile, render or write, so that the bytes of a release depend on them."""


def package_version() -> str:
    """Return the version of the installed package."""
    return find_version("adaptive-qs")


def versions() -> dict[str, str]:
    """Return the versions of everything on which the bytes of a release depend."""
    return {
        "adaptive-qs": package_version(),
        "python": platform.python_version(),
        **{name: find_version(name) for name in LIBRARIES},
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
        "processor": platform.machine(),
    }


# What every release states, of tables and of answers.

FORMAT_VERSION = 3
ROUNDING = Fraction(1, 2**30)
"""Relative error of δ that is allowed, since library functions differ between versions."""
MOST_LOSS = 1e12
"""Largest budget and ε of a statement; with more there is no noise."""
LARGEST_EXPLAINED_EPSILON = 20
"""Largest ε for which pages show e^ε."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Loss = Annotated[float, Field(gt=0, le=MOST_LOSS)]


class Statement(BaseModel):
    """The privacy statement that goes with a release.

    Raises:
        ValueError: If parts contradict each other: facts that do not add up to the cost, a cost
            above the budget, a stamp that is not that of the noise, or an (ε, δ) that the budget
            does not imply.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[3] = 3
    package_version: str = Field(default_factory=package_version)
    versions: dict[str, str] = Field(default_factory=versions)
    """Everything on which the bytes of the release depend besides its numbers."""
    stamp: Stamp
    protects: Unit = ROWS
    unit: str = ""
    neighbours: str = ""
    """The unit and the neighbouring tables as text, which follows from ``protects``."""
    guarantee: str = ""
    """The promise in one sentence, which follows from the figures."""
    rho: Loss
    """The budget in zCDP."""
    rho_spent: Loss
    """The sum of all charges, rounded up."""
    epsilon: Annotated[float, Field(ge=0, le=2 * MOST_LOSS)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    """The (ε, δ) that the budget implies."""
    delta_spent: NonNegative = 0.0
    """The part of δ that the discovery of values cost, rounded up."""
    accountant: Literal["zCDP", "Gaussian DP"]
    """The notion from which (ε, δ) follows."""
    mu: Annotated[float, Field(gt=0, le=2 * MOST_LOSS)] | None = None
    """μ, if (ε, δ) follows from Gaussian DP."""
    mechanisms: tuple[str, ...]
    entropy: Literal["operating system CSPRNG", "insecure seed"]
    """The source of the noise."""
    sampling_seeds: str = fact_rows.SAMPLING_SEEDS
    threat_model: ThreatModel = ThreatModel()
    settings: dict[str, Any]
    """The settings of the run."""
    schema_fingerprint: str
    ledger: LedgerPosition | None = None
    """The position in the ledger that keeps the charges, if there is one."""
    facts: Annotated[tuple[Fact, ...], FailFast()]
    """Everything that the release reveals, with its basis."""

    @property
    def insecure(self) -> bool:
        """Whether the noise can be predicted, so that nothing is private."""
        return self.entropy == "insecure seed"

    @property
    def zcdp(self) -> str:
        """The name of its kind of zCDP."""
        return zcdp_name(self.delta_spent)

    @property
    def drafted(self) -> bool:
        """Whether the schema was taken from the data, so that the promise does not cover it."""
        return any(fact.basis == "NOT COVERED" for fact in self.facts)

    @property
    def explained_factor(self) -> float | None:
        """The factor e^ε; None above ``LARGEST_EXPLAINED_EPSILON``."""
        return math.exp(self.epsilon) if self.epsilon <= LARGEST_EXPLAINED_EPSILON else None

    @property
    def conclusion(self) -> str:
        """The meaning of the promise, in two sentences."""
        advantage = accounting.bound_advantage(self.rho, self.mu, self.delta_spent)
        guess = self.protects.describe_guess(advantage)
        change = "Replacing" if self.protects.replaced else "Adding or removing"
        factor = f" = {self.explained_factor:.4g}" if self.explained_factor else ""
        return (
            f"{change} any single {self.protects.noun} changes the probability of every outcome by "
            f"at most a factor of e^{self.epsilon:.4g}{factor}, plus {self.delta:g}. "
            f"{guess[0].upper()}{guess[1:]}."
        )

    @property
    def promise(self) -> tuple[tuple[str, str], ...]:
        """The promise, as pairs of a label and a text."""
        noise = f"{', '.join(self.mechanisms)}; random bits: {self.entropy}"
        return (
            ("protected", f"{self.unit}; neighbouring tables: {self.neighbours}"),
            ("guarantee", self.guarantee),
            ("noise", noise),
            ("sampling", self.sampling_seeds),
        )

    @property
    def assumptions(self) -> tuple[tuple[str, str], ...]:
        """The threat model, as pairs of a label and a text."""
        model = self.threat_model
        return (
            *(("holds against", text) for text in model.protects_against),
            *(("assumes", text) for text in model.trusted),
            *(("does not cover", text) for text in model.excluded),
        )

    @property
    def provenance(self) -> tuple[tuple[str, str], ...]:
        """Versions, settings, schema and ledger, as pairs of a label and a text."""
        parts = {"versions": self.versions, "settings": self.settings}
        lines = [(k, ", ".join(f"{name} {of}" for name, of in v.items())) for k, v in parts.items()]
        lines.append(("schema", f"SHA-256 {self.schema_fingerprint}"))
        if (place := self.ledger) is not None:
            text = (
                f"{place.ledger} keeps the charges as the {place.releases} releases of run "
                f"{place.run}, with hash {place.hash}; adaptive-qs ledger verify --release compares"
            )
            lines.append(("ledger", text))
        return tuple(lines)

    def to_json(self) -> str:
        """Return the statement as JSON; equal statements give equal bytes."""
        return self.model_dump_json(indent=2) + "\n"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.insecure == (self.stamp == PRIVATE):
            raise ValueError("the stamp is not that of the noise")
        promised = fact_rows.build_guarantee(
            self.rho, self.epsilon, self.delta, self.delta_spent, self.mu
        )
        if self.guarantee not in ("", promised):
            raise ValueError("the text of the guarantee is not that of the figures")
        object.__setattr__(self, "guarantee", self.guarantee or promised)
        described = {"unit": self.protects.name, "neighbours": self.protects.relation}
        for name, text in described.items():
            if getattr(self, name) not in ("", text):
                raise ValueError("the text of the unit is not that of the unit")
            object.__setattr__(self, name, text)
        spent = fact_rows.total_cost(self.facts)
        if (self.rho_spent, self.delta_spent) != (float_above(spent.rho), float_above(spent.delta)):
            raise ValueError("the facts do not add up to what was spent")
        if self.rho_spent > self.rho:
            raise ValueError("the charges exceed the budget")
        if (self.mu is None) == (self.accountant == "Gaussian DP"):
            raise ValueError("mu goes with the accountant of Gaussian DP")
        if self.mu is None:
            implied = compute_delta(self.rho, max(self.epsilon, 1e-300))
        else:
            if 2 * spent.rho > Fraction(self.mu) ** 2:
                raise ValueError("mu is not that of the charges")
            implied = compute_gaussian_delta(self.mu, self.epsilon) * (1 + DISCRETE_SHARE)
        if Fraction(implied) + spent.delta > Fraction(self.delta) * (1 + ROUNDING):
            raise ValueError("epsilon and delta are not what the budget implies")
        return self


def derive_fields(
    events: Sequence[Event],
    schema: Schema,
    derived: Iterable[str],
    stamp: Stamp,
    unit: Unit,
    loss: PrivacyLoss,
) -> dict[str, Any]:
    """Return the fields of a statement that follow from the budget, the charges and the schema."""
    cost = Cost.of(events)
    return {
        **loss._asdict(),
        "accountant": "zCDP" if loss.mu is None else "Gaussian DP",
        "stamp": stamp,
        "protects": unit,
        "threat_model": ThreatModel.for_unit(unit),
        "entropy": "operating system CSPRNG" if stamp == PRIVATE else "insecure seed",
        "rho_spent": float_above(cost.rho),
        "delta_spent": float_above(cost.delta),
        "mechanisms": list_mechanisms(events),
        "schema_fingerprint": schema.fingerprint,
        "facts": list_facts(events, schema, derived),
    }


def check_version(content: Any, path: str | Path) -> None:
    """Raise InputError if a statement was made by a version with another format."""
    found = content.get("format_version") if isinstance(content, dict) else None
    if isinstance(found, int) and found != FORMAT_VERSION:
        raise InputError(f"{path}: {of_another_version(found, FORMAT_VERSION)}")


# The statement of a release of tables, with the public parameters that sampling needs.

Finite = Annotated[float, Field(allow_inf_nan=False)]
Names = Annotated[tuple[str, ...], FailFast()]
Sizes = Annotated[tuple[Annotated[int, Field(ge=1, le=2**62)], ...], FailFast()]


class RoundRecord(BaseModel, frozen=True):
    """One round of the loop, in released values only."""

    clique: Names
    """The attributes of the marginal that was measured."""
    groups: Sizes
    """The number of codes, or of groups of codes, of each attribute."""
    noise_variances: Annotated[tuple[tuple[Names, Sizes, Positive], ...], FailFast()]
    """The attributes, groups and noise variance (rows²) of each measured residual."""
    rho_selecting: NonNegative
    """The cost of the choice; 0 for a marginal that was measured together with others."""
    rho_measuring: Positive
    moved: Finite
    """L1 distance between the estimates of the marginal after and before (rows)."""
    expected: Finite
    """Expected L1 error of the new estimate (rows)."""
    rescored: Annotated[int, Field(ge=0, le=2**62)]
    """Number of candidates that were scored anew before the choice."""

    @property
    def learnt(self) -> bool:
        """Whether the estimate moved further than noise alone moves it."""
        return self.moved > self.expected


class Resolution(BaseModel, frozen=True, extra="forbid"):
    """A combination of columns that was measured, and its resolution."""

    columns: Names
    groups: Sizes
    """The number of codes, or of groups of codes, of each column."""
    codes: Sizes
    """The number of codes of each column; equal to ``groups`` at full resolution."""

    def __str__(self) -> str:
        return at_resolution(self.columns, self.groups, self.codes)


class Manifest(Statement):
    """The privacy statement and the public parameters of a release of tables."""

    kind: Literal["tables"] = "tables"
    watched_cells: Annotated[int, Field(ge=0, le=2**26)]
    """Maximum number of cells of the marginals that are watched while a table is refined."""
    most_rows: Annotated[int, Field(ge=1, le=2**62)]
    """Maximum number of rows of a table if no number is requested."""
    unconnected: tuple[str, ...] = ()
    """Columns of which no requested combination was measured: independent in the tables."""
    resolutions: Annotated[tuple[Resolution, ...], FailFast()] = ()
    """The combinations of columns that rounds measured, at every resolution."""

    def spent_share(self, events: Sequence[Event]) -> float:
        """Return the share of the budget that the accountant counts for charges in this order.

        The share is infinite if the charges exceed the budget.
        """
        if self.mu is None:
            return self.rho_spent / self.rho
        limit = Cost.within(Fraction(self.mu) ** 2 / 2).rho_units
        try:
            return 1 - accounting.left_after(limit, events) / limit
        except BudgetExceeded:
            return math.inf
