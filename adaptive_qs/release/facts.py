"""Everything that a reader of a release learns of the private table: each fact paid for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from adaptive_qs.privacy.budget import float_above
from adaptive_qs.privacy.events import (
    SEPARATOR,
    Cost,
    Event,
    GaussianEvent,
    PartitionEvent,
    Purpose,
    SelectionEvent,
    measurement_label,
    read_label,
    zcdp_name,
)
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.columns.numeric import RangeColumn
from adaptive_qs.table.schema import Schema, is_unreviewed

# One thing that a reader of a release may learn of the private table, and why that is allowed.

Basis = Literal["declared public", "paid for", "post-processing", "not revealed", "NOT COVERED"]
"""Known before the run; measured with noise and charged; computed from these two; kept back; or
in the release with no promise about it."""

Kind = Literal[
    "columns", "values", "missing", "other cells", "constant", "ignored",
    "refusals", "settings", "rows", "single columns", "combinations", "selections", "answers",
    "derived", "kept back", "other",
]  # fmt: skip
"""What a fact is about; one column has at most one fact of a kind."""

Units = Annotated[int, Field(ge=0, le=2**160)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Fact(BaseModel):
    """Something that a reader of the release learns, and why that is allowed.

    Raises:
        ValueError: figures that contradict the exact ones, or a basis that contradicts them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    fact: str
    columns: Annotated[tuple[str, ...], FailFast()] = ()
    """The columns it is about; none where it is about the whole table or about combinations."""
    basis: Basis
    rho: NonNegative = 0.0
    """What was paid (zCDP), rounded up."""
    delta: NonNegative = 0.0
    """The share of δ that was paid, rounded up."""
    rho_units: Units = 0
    """What was paid, exactly, in units of 2⁻⁶⁰ ρ."""
    delta_units: Units = 0
    """The share of δ, exactly, in units of 2⁻¹⁰⁰."""

    @model_validator(mode="after")
    def _check_figures(self) -> Self:
        if (self.rho, self.delta) != (float_above(self.cost.rho), float_above(self.cost.delta)):
            raise ValueError("a fact's figures contradict each other")
        if (self.cost != Cost()) != (self.basis == "paid for"):
            raise ValueError("a fact is paid for and free at once")
        return self

    @property
    def cost(self) -> Cost:
        """What was paid, exactly."""
        return Cost(self.rho_units, self.delta_units)

    @classmethod
    def paid(
        cls, kind: Kind, fact: str, events: Iterable[Event], columns: Sequence[str] = ()
    ) -> Self:
        """A fact that these charges paid for."""
        cost = Cost.of(events)
        return cls(
            kind=kind,
            fact=fact,
            columns=tuple(columns),
            basis="paid for",
            rho=float_above(cost.rho),
            delta=float_above(cost.delta),
            rho_units=cost.rho_units,
            delta_units=cost.delta_units,
        )


def total_cost(facts: Iterable[Fact]) -> Cost:
    """What all facts cost together, exactly."""
    return sum((fact.cost for fact in facts), Cost())


# What a schema tells of a table: every column once for each kind of fact.

_LEARNT = {
    "min": "the smallest value",
    "max": "the largest value",
    "bins": "where the bins lie",
    "values": "which values there are, but for the catch-all label",
}
_OUTSIDE = {
    "clip": "that a cell outside the bounds counts as the nearest end",
    "missing": "that a cell that does not fit counts as missing",
    "refuse": "that every cell fits: with any other there would be no release",
}
_CATCH_ALL = "the label under which every value that is not listed counts"


def declared_facts(schema: Schema, learnt: Iterable[str]) -> list[Fact]:
    """The facts about columns that the schema declares.

    A schema that says of itself that it was taken from the data declares nothing: its facts are
    "NOT COVERED".

    Args:
        schema: as released.
        learnt: columns whose values this run paid for; their values are left out here.
    """
    drafted = is_unreviewed(schema)
    basis: Basis = "NOT COVERED" if drafted else "declared public"
    names, columns, paid = schema.names, schema.columns, set(learnt)
    known = [c for c in columns if c.name not in paid and not _learnt(c)]
    elsewhere = [c for c in columns if c.name not in paid and _learnt(c)]
    constant = [c for c in columns if c.size == 1]
    single = "that they hold one value only, so that nothing is measured about them"
    facts = [
        Fact(
            kind="columns",
            fact="their names, order, types and descriptions",
            columns=names,
            basis=basis,
        ),
        *_by_text("values", known, _values, basis),
        *_by_text(
            "values",
            elsewhere,
            lambda c: f"{learnt_text(c)} and under a budget that is not this one",
            "post-processing",
        ),
        *_by_text("missing", columns, _missing, basis),
        *_by_text("other cells", columns, _other_cells, basis),
        *_by_text("constant", [c for c in constant if c in known], lambda _: single, basis),
        *_by_text(
            "constant", [c for c in constant if c not in known], lambda _: single, "post-processing"
        ),
    ]
    if schema.ignore:
        facts.append(
            Fact(
                kind="ignored",
                fact="that the table may have these columns; their cells are not used",
                columns=schema.ignore,
                basis=basis,
            )
        )
    return facts


def learnt_text(column: ColumnBase) -> str:
    """What about a column's values was learnt, as the schema notes it, and what was declared."""
    learnt = _learnt(column)
    text = _listed([_LEARNT[key] for key in learnt]) or "the values"
    text += ", learnt with noise"
    if "bins" in learnt and (declared := [k for k in ("min", "max") if k not in learnt]):
        text += f" ({' and '.join(_LEARNT[key] for key in declared)} declared public)"
    return text


def _listed(parts: Sequence[str]) -> str:
    """Such as "a, b and c"."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def _learnt(column: ColumnBase) -> tuple[str, ...]:
    """What was learnt of the column's values from private rows, with noise."""
    return getattr(column, "learnt", None) or ()


def _by_text(
    kind: Kind, columns: Iterable[ColumnBase], text: Callable[[ColumnBase], str], basis: Basis
) -> list[Fact]:
    """One fact for every text, about all columns that have it."""
    groups: dict[str, list[str]] = {}
    for column in columns:
        groups.setdefault(text(column), []).append(column.name)
    return [
        Fact(kind=kind, fact=fact, columns=tuple(names), basis=basis)
        for fact, names in groups.items()
    ]


def _values(column: ColumnBase) -> str:
    ranged = isinstance(column, RangeColumn)
    return "their bounds and bins" if ranged else "the categories that they may have"


def _missing(column: ColumnBase) -> str:
    if column.missing:
        return 'that cells may be missing, and the markers that mean "no value"'
    return "that no cell is missing: with one there would be no release"


def _other_cells(column: ColumnBase) -> str:
    if column.catch_all_code is not None:
        return _CATCH_ALL
    return _OUTSIDE[getattr(column, "outside", "refuse")]


# What was paid for: every charge in exactly one fact, whatever its label.

_MECHANISMS = {
    GaussianEvent: "exact discrete Gaussian",
    SelectionEvent: "exponential mechanism",
    PartitionEvent: "partition selection by exact discrete Gaussian",
}
_SINGLE = "single"


def paid_facts(events: Iterable[Event], schema: Schema) -> list[Fact]:
    """The facts that these charges paid for, in the order in which they were first charged.

    Their exact costs add up to the cost of all events. A charge whose label says nothing known is
    a fact of its own, under that label.

    Args:
        events: every charge.
        schema: as released.
    """
    single = _single_labels(schema.names)
    groups: dict[tuple[Purpose, str], list[Event]] = {}
    for event in events:
        groups.setdefault(_group(event.label, single, schema.names), []).append(event)
    return [_fact(*group, charged, single, schema) for group, charged in groups.items()]


def learnt_columns(events: Iterable[Event], names: Sequence[str]) -> tuple[str, ...]:
    """The columns whose bins or categories these charges paid for."""
    readings = [read_label(event.label) for event in events]
    paid = {r.subject for r in readings if r.purpose in (Purpose.BINS, Purpose.VALUES)}
    return tuple(name for name in names if name in paid)


def mechanisms_of(events: Iterable[Event]) -> tuple[str, ...]:
    """The kinds of randomness behind these charges, each once."""
    return tuple(dict.fromkeys(_MECHANISMS[type(event)] for event in events))


def _single_labels(names: Sequence[str]) -> dict[str, str]:
    """Labels of the residuals of one column, with their column.

    Columns whose name may as well be that of a combination are left out.
    """
    known = [name for name in names if SEPARATOR not in name]
    return {measurement_label(Purpose.RESIDUAL, (name,)): name for name in known}


def _group(label: str, single: dict[str, str], names: Sequence[str]) -> tuple[Purpose, str]:
    """The fact that a charge belongs to: its purpose, and what tells it from others of it."""
    purpose, subject = read_label(label)
    match purpose:
        case Purpose.RESIDUAL:
            return purpose, _SINGLE if label in single else ""
        case Purpose.STRATEGY | Purpose.QUERIES:
            return Purpose.QUERIES, ""
        case Purpose.BINS | Purpose.VALUES if subject in names:
            return Purpose.VALUES, subject
        case Purpose.ROWS | Purpose.SELECTION:
            return purpose, ""
    return Purpose.OTHER, label


def _fact(
    purpose: Purpose, subject: str, charged: list[Event], single: dict[str, str], schema: Schema
) -> Fact:
    count = f"{len(charged):,}"
    match purpose:
        case Purpose.ROWS:
            return Fact.paid("rows", "the number of rows, with noise", charged)
        case Purpose.VALUES:
            return Fact.paid("values", learnt_text(schema.column(subject)), charged, [subject])
        case Purpose.SELECTION:
            text = f"which marginals are measured: {count} noisy choices"
            return Fact.paid("selections", text, charged)
        case Purpose.RESIDUAL if subject == _SINGLE:
            columns = dict.fromkeys(single[event.label] for event in charged)
            text = f"how often each of their codes occurs, with noise: {count} measurements"
            return Fact.paid("single columns", text, charged, tuple(columns))
        case Purpose.RESIDUAL:
            text = f"how often codes of several columns occur together, with noise: {count} "
            return Fact.paid("combinations", text + "residuals of marginals", charged)
        case Purpose.QUERIES:
            text = f"{count} noisy measurements, from which all answers follow"
            return Fact.paid("answers", text, charged)
    return Fact.paid("other", f'what was charged as "{subject}"', charged)


# Everything that a reader of a release learns of the private table, fact by fact.

_PUBLIC: tuple[tuple[Kind, str], ...] = (
    ("refusals", "that the table has rows at all: without any there would be no release"),
    (
        "refusals",
        "that its rows fit the memory set aside for them, which depends on the machine or the "
        "ceiling asked for: with more of them there would be no release",
    ),
    (
        "settings",
        "the workload, the budget and every setting, among them limits taken from the memory of "
        "the machine",
    ),
)
_KEPT_BACK: tuple[str, ...] = (
    "the order of the rows, and which of them are alike",
    "any exact count",
    "where in its bin a value lies: values are drawn evenly inside",
    "how cells were written, and what is in columns that are not used",
    "the name, place, format and size of the private file",
)
TABLES = (
    "the model, and every table sampled from it with whatever number of rows and seed",
    "how the rounds went: what each measured, how far estimates moved, and when it was over",
)
ANSWERS = ("every answer with its standard error and interval",)


def facts_of(events: Iterable[Event], schema: Schema, derived: Iterable[str]) -> tuple[Fact, ...]:
    """Every fact in a release with these charges.

    What was paid is in exactly one fact, so that the exact costs of all facts add up to the cost
    of all events.

    Args:
        events: every charge.
        schema: as released.
        derived: what was computed from released values: ``TABLES`` or ``ANSWERS``.
    """
    charged = tuple(events)
    return (
        *declared_facts(schema, learnt_columns(charged, schema.names)),
        *(_free(kind, fact, "declared public") for kind, fact in _PUBLIC),
        *paid_facts(charged, schema),
        *(_free("derived", fact, "post-processing") for fact in derived),
        *(_free("kept back", fact, "not revealed") for fact in _KEPT_BACK),
    )


def _free(kind: Kind, fact: str, basis: Basis) -> Fact:
    return Fact(kind=kind, fact=fact, basis=basis)


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
