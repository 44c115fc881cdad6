"""Disclosure facts: everything that a reader of a release learns of the private table, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from adaptive_qs.privacy.budget import float_above
from adaptive_qs.privacy.events import (
    Cost,
    Event,
    GaussianEvent,
    PartitionEvent,
    Purpose,
    SelectionEvent,
)
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.schema import Schema, is_unreviewed

Basis = Literal["declared public", "paid for", "post-processing", "not revealed", "NOT COVERED"]
"""Known before the run; measured with noise and charged; computed from these two; kept back; or
in the release with no promise about it."""

Kind = Literal[
    "columns", "values", "heaps", "missing", "other cells", "constant", "ignored",
    "refusals", "settings", "rows", "single columns", "combinations", "selections",
    "answers", "derived", "kept back",
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


# What a release discloses, fact by fact.

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
    "the order of the rows, and which of them are equal",
    "any exact count",
    "where in its bin a value lies, but for frequent values that are counted: values are drawn by "
    "what is released of their column",
    "how cells were written, and what is in columns that are not used",
    "the name, place, format and size of the private file",
)
TABLES = (
    "the model, and every table sampled from it with whatever number of rows and seed",
    "how the rounds went: what each measured, how far estimates moved, and when they stopped",
)
ANSWERS = ("every answer with its standard error and interval",)


_HEAPS = "which values and last digits are frequent, and how many rows have them, learnt with noise"
_OF_ONE_COLUMN: tuple[Kind, ...] = ("values", "heaps")
"""Kinds of facts that are paid for column by column."""
_SAYS: dict[Kind, str] = {
    "rows": "the number of rows, with noise",
    "selections": "which marginals are measured: {} noisy choices",
    "heaps": _HEAPS,
    "single columns": "how often each of their codes occurs, with noise: {} measurements",
    "combinations": "how often codes of several columns occur together, with noise: {} residuals "
    "of marginals",
    "answers": "{} noisy measurements, from which all answers follow",
}
"""What was paid for, with the number of its charges."""
_MECHANISMS = {
    GaussianEvent: "exact discrete Gaussian",
    SelectionEvent: "exponential mechanism",
    PartitionEvent: "partition selection by exact discrete Gaussian",
}


def list_facts(events: Iterable[Event], schema: Schema, derived: Iterable[str]) -> tuple[Fact, ...]:
    """Every fact in a release with these charges.

    Each charge is in exactly one fact, so that the exact costs of all facts add up to the cost of
    all events.

    Args:
        events: every charge.
        schema: as released.
        derived: what was computed from released values: ``TABLES`` or ``ANSWERS``.

    Raises:
        ValueError: a charge is about a column that the schema does not have.
    """
    paid = paid_facts(events, schema)
    learnt, counted = (
        {name for fact in paid if fact.kind == kind for name in fact.columns}
        for kind in _OF_ONE_COLUMN
    )
    return (
        *_declared_facts(schema, learnt, counted),
        *(Fact(kind=kind, fact=fact, basis="declared public") for kind, fact in _PUBLIC),
        *paid,
        *(Fact(kind="derived", fact=fact, basis="post-processing") for fact in derived),
        *(Fact(kind="kept back", fact=fact, basis="not revealed") for fact in _KEPT_BACK),
    )


def list_mechanisms(events: Iterable[Event]) -> tuple[str, ...]:
    """The kinds of randomness behind these charges, each once."""
    return tuple(dict.fromkeys(_MECHANISMS[type(event)] for event in events))


# What was paid for: one fact for every purpose, in the order in which they were first charged.


def paid_facts(events: Iterable[Event], schema: Schema) -> list[Fact]:
    """The facts that these charges paid for; each charge is in exactly one of them."""
    names = {*schema.names, schema.person}
    groups: dict[tuple[Kind, str], list[Event]] = {}
    for event in events:
        if not names >= set(event.columns):
            raise ValueError("a charge is about a column that the schema does not have")
        kind = _kind(event)
        about = event.columns[0] if kind in _OF_ONE_COLUMN else ""
        groups.setdefault((kind, about), []).append(event)
    return [_paid_fact(kind, charged, schema) for (kind, _), charged in groups.items()]


_KINDS: dict[Purpose, Kind] = {
    Purpose.ROWS: "rows",
    Purpose.BINS: "values",
    Purpose.VALUES: "values",
    Purpose.HEAPS: "heaps",
    Purpose.SELECTION: "selections",
    Purpose.RESIDUAL: "combinations",
    Purpose.STRATEGY: "answers",
}


def _kind(event: Event) -> Kind:
    single = event.purpose is Purpose.RESIDUAL and len(event.columns) == 1
    return "single columns" if single else _KINDS[event.purpose]


def _paid_fact(kind: Kind, charged: Sequence[Event], schema: Schema) -> Fact:
    columns: tuple[str, ...] = ()
    if kind in (*_OF_ONE_COLUMN, "single columns"):
        columns = tuple(dict.fromkeys(name for event in charged for name in event.columns))
    learnt = kind == "values"
    text = _learnt_text(schema.column(columns[0])) if learnt else _SAYS[kind]
    return Fact.paid(kind, text.format(f"{len(charged):,}"), charged, columns)


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
_MISSING = (
    "that no cell is missing: with one there would be no release",
    'that cells may be missing, and the markers that mean "no value"',
)
_ORDER = {kind: place for place, kind in enumerate(get_args(Kind))}
_CATCH_ALL = "the label under which every value that is not listed counts"
_CONSTANT = "that they hold one value only, so that nothing is measured about them"


def _declared_facts(schema: Schema, paid: Collection[str], counted: Collection[str]) -> list[Fact]:
    """The facts about columns that the schema declares, one for every kind, text and basis.

    A schema that says of itself that it was taken from the data declares nothing: its facts are
    "NOT COVERED". Values that this run ``paid`` for are left out here, and so are frequent ones
    that it ``counted``.
    """
    basis: Basis = "NOT COVERED" if is_unreviewed(schema) else "declared public"
    groups: dict[tuple[Kind, str, Basis], list[str]] = {}

    def add(kind: Kind, text: str, why: Basis, *names: str) -> None:
        groups.setdefault((kind, text, why), []).extend(names)

    add("columns", "their names, order, types and descriptions", basis, *schema.names)
    for column in schema.columns:
        bought, text = column.name in paid, column.disclosed
        of_values: Basis = "post-processing" if bought or _learnt(column) else basis
        if _learnt(column):
            text = f"{_learnt_text(column)} and under a budget that is not this one"
        if not bought:
            add("values", text, of_values, column.name)
        if getattr(column, "counted", None) and column.name not in counted:
            text = f"{_HEAPS} and under a budget that is not this one"
            add("heaps", text, "post-processing", column.name)
        add("missing", _MISSING[bool(column.missing)], basis, column.name)
        other = _OUTSIDE[getattr(column, "outside", "refuse")]
        catch_all = column.catch_all_code is not None
        add("other cells", _CATCH_ALL if catch_all else other, basis, column.name)
        if column.size == 1:
            add("constant", _CONSTANT, of_values, column.name)
    if schema.about:
        add("columns", "what the page says of the data: " + ", ".join(schema.about), basis)
    if schema.person is not None:
        text = (
            "that this column tells whose a row is, which decides how often it counts; its cells "
            "are not released"
        )
        add("ignored", text, basis, schema.person)
    if schema.ignore:
        text = "that the table may have these columns; their cells are not used"
        add("ignored", text, basis, *schema.ignore)
    return [
        Fact(kind=kind, fact=fact, columns=tuple(names), basis=why)
        for (kind, fact, why), names in sorted(groups.items(), key=lambda g: _ORDER[g[0][0]])
    ]


def _learnt(column: ColumnBase) -> tuple[str, ...]:
    return getattr(column, "learnt", None) or ()


def _learnt_text(column: ColumnBase) -> str:
    """What about a column's values was learnt, as the schema notes it, and what was declared."""
    learnt = _learnt(column)
    known = [_LEARNT[key] for key in learnt] or ["the values"]
    text = " and ".join(filter(None, (", ".join(known[:-1]), known[-1]))) + ", learnt with noise"
    if "bins" in learnt and (declared := [k for k in ("min", "max") if k not in learnt]):
        text += f" ({' and '.join(_LEARNT[key] for key in declared)} declared public)"
    return text
