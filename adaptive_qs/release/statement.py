"""The statement of every release: promised, spent and assumed; for programs and for people."""

from __future__ import annotations

import math
import platform
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from fractions import Fraction
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from adaptive_qs.domain import Clique
from adaptive_qs.errors import InputError
from adaptive_qs.privacy.accounting import delta_of, gaussian_delta_of
from adaptive_qs.privacy.budget import Place, float_above, weaknesses
from adaptive_qs.privacy.events import NEIGHBOURS, UNIT, zcdp_name
from adaptive_qs.release.facts import Fact, NonNegative, total_cost
from adaptive_qs.table.files import PRIVATE, Stamp
from adaptive_qs.workload.workload import Workload

if TYPE_CHECKING:
    from adaptive_qs.release.bundle import Bundle


# The versions that decide whether the same release gives the same bytes again.

LIBRARIES = ("numpy", "scipy", "numba", "llvmlite", "pyarrow", "jinja2", "markupsafe")
"""They round, compile, render or write what comes out."""


def package_version() -> str:
    """Version of the installed package."""
    return _version("adaptive-qs")


def versions() -> dict[str, str]:
    """Versions of this package, of Python and of libraries, and the kind of processor."""
    return {
        "adaptive-qs": package_version(),
        "python": platform.python_version(),
        **{name: _version(name) for name in LIBRARIES},
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
        "processor": platform.machine(),
    }


@cache
def _version(name: str) -> str:
    """As first read: its metadata is parsed anew at each look, and what is loaded stays."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "0+unknown"


# The promise that every release comes with, in words: what it holds against, and what not.

SAMPLING_SEEDS = (
    "a seed chooses one of the tables that the released numbers allow: it costs no privacy, "
    "protects nothing and may be published"
)


class ThreatModel(BaseModel):
    """Whom the promise trusts, what it holds against, and what it leaves out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protects_against: tuple[str, ...] = (
        "anybody who has this release, every other table made from it, and all rows but one",
        "any amount of computing, now or later",
    )
    trusted: tuple[str, ...] = (
        "the machine that ran the program, with its operating system and random numbers",
        "whoever wrote the schema, the workload and the settings not to have taken them from "
        "the rows",
    )
    excluded: tuple[str, ...] = (
        "running time, memory use, progress and messages of the program: they are for the owner",
        "that a run was refused, why, and how often it was tried",
        "several rows of one person: for k rows at once rho counts k² times",
        "other releases about the same people: their costs add up, and a ledger keeps the sum",
        "what holds of people in general, and so of one whose row is not in the table",
    )


def guarantee_of(
    rho: float, epsilon: float, delta: float, delta_spent: float, mu: float | None
) -> str:
    """What is promised, in the one sentence that every statement, page and manifest has.

    Args:
        rho: zCDP budget.
        epsilon, delta: that the budget implies.
        delta_spent: the part of δ that discovering values took.
        mu: of Gaussian DP, where the budget is stated by it.
    """
    means = f"({epsilon:.6g}, {delta:g})-differential privacy"
    if mu is not None:
        return f"mu-Gaussian DP with mu = {mu:.6g}, which is {means}; rho = {rho:.6g} zCDP"
    kind = zcdp_name(delta_spent).replace("zCDP", "rho-zCDP")
    return f"{kind} with rho = {rho:.6g}, which implies {means}"


# What every release states, tables and answers alike: promised, spent and assumed.

FORMAT_VERSION = 1
ROUNDING = Fraction(1, 2**30)
"""Relative error allowed to δ for functions that differ between versions of the libraries."""

MOST_LOSS = 1e12
"""Largest budget and ε of a statement: with more there is no noise at all."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Loss = Annotated[float, Field(gt=0, le=MOST_LOSS)]
Hex = Annotated[str, Field(pattern="^[0-9a-f]+$")]


class LedgerEntry(BaseModel):
    """Where a durable ledger keeps the charges."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ledger: Hex
    """Name of the ledger."""
    run: Annotated[int, Field(ge=1)]
    """Number of the run in it."""
    releases: Annotated[int, Field(ge=0)]
    """Transactions of the run."""
    hash: Hex
    """Of what they released and what it cost."""

    @classmethod
    def of(cls, place: Place | None) -> Self | None:
        """The same as the ledger tells it; None where there is no durable one."""
        return None if place is None else cls(**asdict(place))


class Statement(BaseModel):
    """The privacy statement that goes with a release.

    Raises:
        ValueError: parts that contradict each other: facts whose exact costs are not what was
            spent, more spent than the budget, a stamp that is not that of the noise, or an (ε, δ)
            that the budget does not imply.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1] = 1
    package_version: str = Field(default_factory=package_version)
    versions: dict[str, str] = Field(default_factory=versions)
    """What the bytes of a release depend on besides its numbers."""
    stamp: Stamp
    unit: str = UNIT
    neighbours: str = NEIGHBOURS
    guarantee: str = ""
    """What is promised, in words that follow from the figures below."""
    rho: Loss
    """zCDP budget."""
    rho_spent: Loss
    """Sum of all charges, rounded up."""
    epsilon: Annotated[float, Field(ge=0, le=2 * MOST_LOSS)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    """(ε, δ)-DP that the budget implies."""
    delta_spent: NonNegative = 0.0
    """The part of δ that discovering unknown values took, rounded up."""
    accountant: Literal["zCDP", "Gaussian DP"]
    """How (ε, δ) follows from the budget."""
    mu: Annotated[float, Field(gt=0, le=2 * MOST_LOSS)] | None = None
    """μ of Gaussian DP, where all noise is Gaussian and none of it depends on earlier outcomes."""
    mechanisms: tuple[str, ...]
    entropy: Literal["operating system CSPRNG", "insecure seed"]
    """Where the noise came from."""
    sampling_seeds: str = SAMPLING_SEEDS
    threat_model: ThreatModel = ThreatModel()
    settings: dict[str, Any]
    """How the budget was to be spent."""
    schema_fingerprint: str
    ledger: LedgerEntry | None = None
    facts: Annotated[tuple[Fact, ...], FailFast()]
    """Everything learnt from the data, and whether it was declared public or paid for."""

    @property
    def insecure(self) -> bool:
        """Whether the noise can be predicted, so that nothing here is private."""
        return self.entropy == "insecure seed"

    @property
    def zcdp(self) -> str:
        """What its kind of zCDP is called."""
        return zcdp_name(self.delta_spent)

    @property
    def drafted(self) -> bool:
        """Whether the promise leaves out what the schema tells, which was taken from the data."""
        return any(fact.basis == "NOT COVERED" for fact in self.facts)

    @property
    def charges_in(self) -> str:
        """The file in which each charge stands."""
        raise NotImplementedError

    def to_json(self) -> str:
        """The statement as JSON text; the same statement gives the same bytes."""
        return self.model_dump_json(indent=2) + "\n"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.insecure == (self.stamp == PRIVATE):
            raise ValueError("the stamp is not that of the noise")
        promised = guarantee_of(self.rho, self.epsilon, self.delta, self.delta_spent, self.mu)
        if self.guarantee not in ("", promised):
            raise ValueError("the guarantee in words is not that of the figures")
        object.__setattr__(self, "guarantee", promised)
        spent = total_cost(self.facts)
        if (self.rho_spent, self.delta_spent) != (float_above(spent.rho), float_above(spent.delta)):
            raise ValueError("the facts do not add up to what was spent")
        if self.rho_spent > self.rho:
            raise ValueError("the charges exceed the budget")
        if (self.mu is None) == (self.accountant == "Gaussian DP"):
            raise ValueError("mu goes with the accountant of Gaussian DP")
        if self.mu is None:
            implied = delta_of(self.rho, max(self.epsilon, 1e-300))
        else:
            if 2 * spent.rho > Fraction(self.mu) ** 2 or spent.delta:
                raise ValueError("mu is not that of the charges")
            implied = gaussian_delta_of(self.mu, self.epsilon)
        if Fraction(implied) + spent.delta > Fraction(self.delta) * (1 + ROUNDING):
            raise ValueError("epsilon and delta are not what the budget implies")
        return self


# The statement of a release of tables, with the public parameters that sampling needs.

Finite = Annotated[float, Field(allow_inf_nan=False)]


class RoundRecord(BaseModel):
    """One round of the loop, in released values only."""

    model_config = ConfigDict(frozen=True)

    clique: Annotated[tuple[str, ...], FailFast()]
    """The attributes of the marginal selected."""
    noise_variances: Annotated[
        tuple[tuple[Annotated[tuple[str, ...], FailFast()], Positive], ...], FailFast()
    ]
    """The residuals measured, by their attributes, and the noise variance of each (rows²)."""
    rho_selecting: Positive
    rho_measuring: Positive
    moved: Finite
    """L1 distance between the marginal's estimates after and before (rows)."""
    expected: Finite
    """L1 error expected of the new estimate (rows)."""
    rescored: Annotated[int, Field(ge=0, le=2**62)]
    """Candidates rescored before the selection."""


class Manifest(Statement):
    """The privacy statement and the public parameters of a release."""

    kind: Literal["tables"] = "tables"
    watched_cells: Annotated[int, Field(ge=0, le=2**26)]
    """Most cells of the marginals watched while a table is refined."""
    most_rows: Annotated[int, Field(ge=1, le=2**62)]
    """Most rows of a table whose number of rows is not asked for."""
    alone: tuple[str, ...] | None = None
    """Columns of which no combination was measured, though asked for: in the tables they are
    independent of all others. None in a statement of a version that did not tell them."""

    @property
    def charges_in(self) -> str:
        """A member of the release bundle."""
        return "ledger.json of the release bundle"


def check_version(content: Any) -> None:
    """Refuse a manifest that this version cannot know.

    Raises:
        InputError: it was made by a newer version.
    """
    found = content.get("format_version") if isinstance(content, dict) else None
    if isinstance(found, int) and found > FORMAT_VERSION:
        raise InputError(
            f"made by a newer version (format {found}, this one reads up to {FORMAT_VERSION}): "
            "upgrade adaptive-qs"
        )


# The statement as one page for people; the same statement gives the same text.

NAMED = 12
"""Columns that one line names; the JSON beside it names all."""
TELLING_EPSILON = 20
"""Beyond it e^ε says nothing to anybody."""

_HEADINGS = (
    ("NOT COVERED", "Not covered by the promise: taken from the data"),
    ("declared public", "Declared public: known without the rows"),
    ("post-processing", "Follows from the above, at no further cost"),
    ("not revealed", "Not revealed"),
)


def statement_page(statement: Statement) -> str:
    """The page, as Markdown."""
    return "\n".join(manifest_lines(statement)) + "\n"


def manifest_lines(statement: Statement) -> list[str]:
    """The lines of the page, as Markdown.

    They say what is promised and to whom, what tables know of how columns depend on each other,
    what was paid for what, what counts as public, what the promise rests on, and how to check the
    sums.
    """
    facts = statement.facts
    lines = ["# Privacy statement", ""]
    if statement.insecure:
        lines += [f"**{statement.stamp}.** Nothing below holds for whoever knows the seed.", ""]
    if statement.drafted:
        lines += [
            "**The promise does not cover what the schema tells: it was taken from the data.**",
            "",
        ]
    lines += ["## What is promised", "", *_promise(statement), ""]
    if isinstance(statement, Manifest):
        lines += ["## What the tables know", "", *_dependence(statement), ""]
    lines += ["## What was paid for", "", *_payments(statement), ""]
    for basis, heading in _HEADINGS:
        found = [fact for fact in facts if fact.basis == basis]
        if found:
            lines += [f"## {heading}", "", *(f"- {_about(fact)}" for fact in found), ""]
    lines += ["## What the promise rests on", "", *_threat_model(statement), ""]
    lines += ["## How to check it", "", *_checks(statement), ""]
    return [*lines, "## How it was made", "", *_making(statement)]


def _promise(s: Statement) -> list[str]:
    factor = f" = {math.exp(s.epsilon):.4g}" if s.epsilon <= TELLING_EPSILON else ""
    return [
        "Whatever is concluded from this release would have been concluded without any given row, "
        "and with one more, with almost the same probability: the two differ by at most a factor "
        f"of e^{s.epsilon:.4g}{factor}, and by {s.delta:g} beyond it.",
        "",
        f"- protected: {s.unit}; neighbouring tables: {s.neighbours}",
        f"- guarantee: {s.guarantee}",
        f"- noise: {', '.join(s.mechanisms)}; random bits: {s.entropy}",
        f"- sampling: {s.sampling_seeds}",
        *(f"- **little is promised:** {text}" for text in weaknesses(s.epsilon, s.delta)),
    ]


def _dependence(s: Manifest) -> list[str]:
    lines = [
        "Which combinations of columns were measured is known: page.html of the release bundle "
        "lists them. How columns depend on each other that were not measured together comes from "
        "the model, mostly through columns that were measured with both. Such a relation may be "
        "wrong in either direction: lost, or there in the tables and not in the private one.",
    ]
    if s.alone:
        lines += [
            "",
            "- independent of all other columns in the tables, since no combination with them was "
            f"measured: {_named(s.alone)}",
        ]
    return lines


def _payments(s: Statement) -> list[str]:
    with_delta = s.delta_spent > 0
    delta = ["delta"] if with_delta else []
    rows = [
        [
            _about(fact), f"{fact.rho:.6g}", f"{fact.rho / s.rho_spent:.2%}",
            *([f"{fact.delta:.3g}"] if with_delta else []),
        ]
        for fact in s.facts
        if fact.basis == "paid for"
    ]  # fmt: skip
    total = ["all", f"{s.rho_spent:.6g}", "100.00%"]
    total += [f"{s.delta_spent:.3g}"] if with_delta else []
    return [
        *_table(["learnt from the rows, with noise", "rho", "share", *delta], [*rows, total]),
        "",
        f"The budget was rho = {s.rho:.6g}; it was never exceeded.",
    ]


def _threat_model(s: Statement) -> list[str]:
    model = s.threat_model
    return [
        *(f"- holds against: {text}" for text in model.protects_against),
        *(f"- trusts: {text}" for text in model.trusted),
        *(f"- leaves out: {text}" for text in model.excluded),
    ]


def _checks(s: Statement) -> list[str]:
    lines = [
        f"Every charge stands in {s.charges_in}, exactly. Discrete Gaussian noise costs "
        "rho = squared_sensitivity / (2 noise_variance), a choice by the exponential mechanism "
        "epsilon² / 8, discovering values 1 / (2 noise_variance) and its delta. Rounded up to "
        "units of 2^-60 rho and 2^-100 delta one by one, the charges add up to the rho_units and "
        "delta_units of the facts in the manifest, and these to no more than the budget.",
    ]
    if s.ledger is not None:
        place = s.ledger
        lines.append(
            f"The owner's ledger {place.ledger} keeps them as the {place.releases} releases of run "
            f"{place.run}, with hash {place.hash}: `adaptive-qs ledger verify --release` compares."
        )
    return lines


def _making(s: Statement) -> list[str]:
    return [
        f"- versions: {_pairs(s.versions)}",
        f"- settings: {_pairs(s.settings)}",
        f"- schema: SHA-256 {s.schema_fingerprint}",
    ]


def _pairs(content: dict[str, Any]) -> str:
    return ", ".join(f"{_plain(key)} {_plain(str(value))}" for key, value in content.items())


def _about(fact: Fact) -> str:
    names = _named(fact.columns)
    return f"{names}: {_plain(fact.fact)}" if names else _plain(fact.fact)


def _named(columns: Sequence[str]) -> str:
    names = ", ".join(map(_plain, columns[:NAMED]))
    if len(columns) > NAMED:
        names += f" and {len(columns) - NAMED:,} more columns"
    return names


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    rule = ["---", *("---:" for _ in header[1:])]
    return [f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)]


def _plain(text: str) -> str:
    """The text on one line, with nothing in it that Markdown would take for its own."""
    shown = text if text.isprintable() else text.encode("unicode_escape").decode()
    return re.sub(r"([\\`*_|<>\[\]#])", r"\\\1", shown)


# Columns of which a release knows nothing beside their own counts, though more was asked for.


def alone_columns(bundle: Bundle) -> tuple[str, ...]:
    """The columns of :func:`alone_among` for the marginals that a release measured.

    Every bundle has them in its manifest, checked or filled in where it is made.
    """
    return bundle.manifest.alone or ()


def alone_among(workload: Workload, measured: Iterable[Clique]) -> tuple[str, ...]:
    """Columns whose combinations were asked for and none was measured, in the schema's order.

    In a table that is sampled from the release they are independent of all others. Columns of one
    code are neither alone nor company, since nothing can depend on them; nor is a column alone of
    which the workload asks for no combination, as in one of single columns only.

    Args:
        workload: what was asked for.
        measured: the residuals that were measured.
    """
    domain = workload.domain
    several = {i for i, size in enumerate(domain.sizes) if size > 1}
    asked = {i for clique in workload.cliques for i in _joined(clique, several)}
    known = {i for clique in measured for i in _joined(clique, several)}
    return tuple(domain.names[i] for i in sorted(asked - known))


def _joined(clique: tuple[int, ...], several: set[int]) -> set[int]:
    """The columns of a set that can depend on each other: none, or at least two."""
    joined = several.intersection(clique)
    return joined if len(joined) > 1 else set()
