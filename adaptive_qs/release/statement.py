"""The statement of every release: promised, spent and assumed; for programs and for people."""

from __future__ import annotations

import math
import platform
import re
import zlib
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from adaptive_qs.errors import BudgetExceeded, InputError, of_another_version
from adaptive_qs.machine import find_version
from adaptive_qs.pages.words import at_resolution
from adaptive_qs.privacy.accounting import (
    DISCRETE_SHARE,
    compute_delta,
    compute_gaussian_delta,
    left_after,
)
from adaptive_qs.privacy.budget import Place, float_above, weaknesses
from adaptive_qs.privacy.events import Cost, Event, zcdp_name
from adaptive_qs.privacy.unit import ROWS, Unit
from adaptive_qs.release.facts import Fact, NonNegative, list_facts, list_mechanisms, total_cost
from adaptive_qs.table.files import PRIVATE, Stamp
from adaptive_qs.table.schema import Schema

MANIFEST = "manifest.json"
"""The statement, among the members of a bundle and what a ledger records as handed over."""

# The versions that decide whether the same release gives the same bytes again.

LIBRARIES = ("numpy", "scipy", "numba", "llvmlite", "pyarrow", "jinja2", "markupsafe")
"""They round, compile, render or write what comes out."""


def package_version() -> str:
    """Version of the installed package."""
    return find_version("adaptive-qs")


def versions() -> dict[str, str]:
    """Versions of this package, of Python and of libraries, and the kind of processor."""
    return {
        "adaptive-qs": package_version(),
        "python": platform.python_version(),
        **{name: find_version(name) for name in LIBRARIES},
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
        "processor": platform.machine(),
    }


# The promise that every release comes with, in words: what it holds against, and what not.

SAMPLING_SEEDS = (
    "a seed chooses one of the tables that the released numbers allow: it costs no privacy, "
    "protects nothing and may be published"
)


_OF_ROWS = (
    "anyone who has this release, every other table made from it, and all rows but one",
    "several rows of one person: for k rows at once rho counts k² times",
)
_OF_PERSONS = (
    "anyone who has this release, every other table made from it, and all rows of all persons but "
    "one",
    "several persons at once, such as a family: for k of them rho counts k² times",
)
_OF_SETS = (
    "anyone who has this release, every other table made from it, and all rows of all tables but "
    "those of one {noun} and below it",
    "several rows of {root} at once, such as two of one person: for k of them rho counts k² times",
)


_OF_QUERIES = (
    "rows of the tables that the query reads: one of them can change many rows of its result, and "
    "the unit is a row of that"
)


class ThreatModel(BaseModel):
    """Whom the promise trusts, what it holds against, and what it leaves out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protects_against: tuple[str, ...] = (
        _OF_ROWS[0],
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
        _OF_ROWS[1],
        "other releases about the same people: their costs add up, and a ledger keeps the sum",
        "what holds of people in general, and so of one whose row is not in the table",
    )

    @classmethod
    def of(cls, unit: Unit) -> Self:
        """The same, for a unit that need not be a row."""
        rows = cls()
        if unit.query is not None:
            rows = cls(excluded=(*rows.excluded, _OF_QUERIES))
        words: tuple[str, ...] = _OF_PERSONS
        if unit.related is not None:
            words = tuple(w.format(noun=unit.noun, root=unit.related.root) for w in _OF_SETS)
        elif unit.person is None:
            return rows
        changed = dict(zip(_OF_ROWS, words))
        return cls(
            protects_against=tuple(changed.get(text, text) for text in rows.protects_against),
            excluded=tuple(changed.get(text, text) for text in rows.excluded),
        )


DISCRETE = " up to a share 2^-20 of delta, for delta of at least 1e-300"
"""What discrete noise leaves of Gaussian DP; earlier versions did not say it."""


def build_guarantee(
    rho: float, epsilon: float, delta: float, delta_spent: float, mu: float | None
) -> str:
    """What is promised, in the one sentence that every statement, page and manifest has.

    ρ, the (ε, δ) that it implies, the part of δ that discovering values took, and μ where the
    budget is stated by it.
    """
    means = f"({epsilon:.6g}, {delta:g})-differential privacy"
    zcdp = zcdp_name(delta_spent)
    if mu is not None:
        kind = zcdp.replace("zCDP", "mu-Gaussian DP")
        return f"{kind} with mu = {mu:.6g}{DISCRETE}, which is {means}; rho = {rho:.6g} {zcdp}"
    kind = zcdp.replace("zCDP", "rho-zCDP")
    return f"{kind} with rho = {rho:.6g}, which implies {means}"


# What every release states, tables and answers alike: promised, spent and assumed.

FORMAT_VERSION = 3
ROUNDING = Fraction(1, 2**30)
"""Relative error allowed to δ for functions that differ between versions of the libraries."""

MOST_LOSS = 1e12
"""Largest budget and ε of a statement: with more there is no noise at all."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Loss = Annotated[float, Field(gt=0, le=MOST_LOSS)]


class Statement(BaseModel):
    """The privacy statement that goes with a release.

    Raises:
        ValueError: parts that contradict each other: facts whose exact costs are not what was
            spent, more spent than the budget, a stamp that is not that of the noise, or an (ε, δ)
            that the budget does not imply.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[3] = 3
    package_version: str = Field(default_factory=package_version)
    versions: dict[str, str] = Field(default_factory=versions)
    """What the bytes of a release depend on besides its numbers."""
    stamp: Stamp
    protects: Unit = ROWS
    unit: str = ""
    neighbours: str = ""
    """What is protected, and which tables are neighbours, in words that follow from it."""
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
    """μ of Gaussian DP, where (ε, δ) follows from it."""
    mechanisms: tuple[str, ...]
    entropy: Literal["operating system CSPRNG", "insecure seed"]
    """Where the noise came from."""
    sampling_seeds: str = SAMPLING_SEEDS
    threat_model: ThreatModel = ThreatModel()
    settings: dict[str, Any]
    """How the budget was to be spent."""
    schema_fingerprint: str
    ledger: Place | None = None
    """Where a durable ledger keeps the charges."""
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
        """Whether the promise leaves out what the schema reveals, which was taken from the data."""
        return any(fact.basis == "NOT COVERED" for fact in self.facts)

    @property
    def factor(self) -> float | None:
        """e^ε; None where it says nothing to anybody."""
        return math.exp(self.epsilon) if self.epsilon <= TELLING_EPSILON else None

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
        promised = build_guarantee(self.rho, self.epsilon, self.delta, self.delta_spent, self.mu)
        if self.guarantee not in ("", promised, promised.replace(DISCRETE, "")):
            raise ValueError("the guarantee in words is not that of the figures")
        object.__setattr__(self, "guarantee", self.guarantee or promised)
        told = {"unit": self.protects.name, "neighbours": self.protects.relation}
        for name, words in told.items():
            if getattr(self, name) not in ("", words):
                raise ValueError("what is protected, in words, is not what is stated")
            object.__setattr__(self, name, words)
        spent = total_cost(self.facts)
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


def stated(
    events: Sequence[Event], schema: Schema, derived: Iterable[str], stamp: Stamp, unit: Unit
) -> dict[str, Any]:
    """The fields of a statement that follow from the charges, the schema, the kind of noise and
    whom the charges protect.

    ``derived`` is what was computed from released values, as for :func:`list_facts`.
    """
    cost = Cost.of(events)
    return {
        "stamp": stamp,
        "protects": unit,
        "threat_model": ThreatModel.of(unit),
        "entropy": "operating system CSPRNG" if stamp == PRIVATE else "insecure seed",
        "rho_spent": float_above(cost.rho),
        "delta_spent": float_above(cost.delta),
        "mechanisms": list_mechanisms(events),
        "schema_fingerprint": schema.fingerprint,
        "facts": list_facts(events, schema, derived),
    }


def check_version(content: Any, path: str | Path) -> None:
    """Refuse a statement in JSON that this version cannot know.

    Raises:
        InputError: it was made by a newer version, or by an earlier one.
    """
    found = content.get("format_version") if isinstance(content, dict) else None
    if isinstance(found, int) and found != FORMAT_VERSION:
        raise InputError(f"{path}: {of_another_version(found, FORMAT_VERSION)}")


# The statement of a release of tables, with the public parameters that sampling needs.

Finite = Annotated[float, Field(allow_inf_nan=False)]


Names = Annotated[tuple[str, ...], FailFast()]
Sizes = Annotated[tuple[Annotated[int, Field(ge=1, le=2**62)], ...], FailFast()]


class RoundRecord(BaseModel):
    """One round of the loop, in released values only."""

    model_config = ConfigDict(frozen=True)

    clique: Names
    """The attributes of the marginal that was measured."""
    groups: Sizes
    """How many codes, or groups of them, each attribute has at the level of the marginal."""
    noise_variances: Annotated[tuple[tuple[Names, Sizes, Positive], ...], FailFast()]
    """The residuals measured, by their attributes and groups, and the noise variance of each
    (rows²)."""
    rho_selecting: NonNegative
    """0 where the marginal was measured together with others before the first choice."""
    rho_measuring: Positive
    moved: Finite
    """L1 distance between the marginal's estimates after and before (rows)."""
    expected: Finite
    """L1 error expected of the new estimate (rows)."""
    rescored: Annotated[int, Field(ge=0, le=2**62)]
    """Candidates rescored before the selection."""

    @property
    def learnt(self) -> bool:
        """Whether the estimate moved further than noise alone moves it."""
        return self.moved > self.expected


class Resolution(BaseModel):
    """A combination of columns that was measured, and how finely."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: Names
    groups: Sizes
    """Codes of each column, or groups of codes that were not told apart."""
    codes: Sizes
    """All codes of each column: as many as groups where they were told apart."""

    def __str__(self) -> str:
        return at_resolution(self.columns, self.groups, self.codes)


class Manifest(Statement):
    """The privacy statement and the public parameters of a release."""

    kind: Literal["tables"] = "tables"
    watched_cells: Annotated[int, Field(ge=0, le=2**26)]
    """Most cells of the marginals watched while a table is refined."""
    most_rows: Annotated[int, Field(ge=1, le=2**62)]
    """Most rows of a table whose number of rows is not asked for."""
    unconnected: tuple[str, ...] = ()
    """Columns of which no combination was measured, though asked for: in the tables they are
    independent of all others."""
    resolutions: Annotated[tuple[Resolution, ...], FailFast()] = ()
    """The combinations of columns that rounds measured, each at every level chosen for it."""

    @property
    def over_groups(self) -> tuple[str, ...]:
        """The combinations whose codes were never all told apart, each as finely as it was
        measured: "age in 8 groups × city"."""
        finest: dict[tuple[str, ...], Resolution] = {}
        for found in sorted(self.resolutions, key=lambda one: math.prod(one.groups)):
            finest[found.columns] = found
        return tuple(str(one) for one in finest.values() if one.groups != one.codes)

    @property
    def charges_in(self) -> str:
        """A member of the release bundle."""
        return "ledger.json of the release bundle"

    def taken(self, events: Sequence[Event]) -> float:
        """The part of the budget that charges in this order take, as its accountant counts them;
        infinite where they exceed it."""
        if self.mu is None:
            return self.rho_spent / self.rho
        limit = Cost.within(Fraction(self.mu) ** 2 / 2).rho_units
        try:
            return 1 - left_after(limit, events) / limit
        except BudgetExceeded:
            return math.inf


# The statement as one page for people; the same statement gives the same text.

NAMED = 12
"""Columns that one line names; the JSON beside it names all."""
TELLING_EPSILON = 20
"""Beyond it e^ε says nothing to anybody."""

HEADINGS = (
    ("NOT COVERED", "Not covered by the promise: taken from the data"),
    ("paid for", "Learnt with noise and paid for"),
    ("declared public", "Declared public: known without the rows"),
    ("post-processing", "Follows from the above, at no further cost"),
    ("not revealed", "Not revealed"),
)
"""Of the disclosure facts, by their basis."""


def statement_page(statement: Statement) -> str:
    """The page, as Markdown.

    It says what is promised and to whom, which associations of columns tables show,
    what was paid for what, what counts as public, what the promise rests on, and how to check the
    sums.
    """
    return _template().render(
        s=statement,
        weaknesses=weaknesses(statement.epsilon, statement.delta, statement.protects),
        headings=HEADINGS,
    )


@cache
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # answers never render

    environment = Environment(
        loader=PackageLoader("adaptive_qs.release"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "about": lambda fact: ": ".join(filter(None, (_named(fact.columns), _plain(fact.fact)))),
        "named": _named,
        "listed": _listed,
        "pairs": _pairs,
        "plain": _plain,
    }
    return environment.get_template("statement.md")


def _pairs(content: dict[str, Any]) -> str:
    return ", ".join(f"{_plain(key)} {_plain(str(value))}" for key, value in content.items())


def _named(columns: Sequence[str]) -> str:
    return _listed(columns) + (" columns" if len(columns) > NAMED else "")


def _listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - NAMED:,} more" if len(items) > NAMED else ""
    return ", ".join(map(_plain, items[:NAMED])) + more


def _plain(text: str) -> str:
    """The text on one line, with nothing in it that Markdown would take for its own."""
    shown = text if text.isprintable() else text.encode("unicode_escape").decode()
    return re.sub(r"([\\`*_|<>\[\]#])", r"\\\1", shown)
