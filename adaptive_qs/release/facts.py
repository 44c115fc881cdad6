"""Facts about a release: what it reveals, on what basis, and what the promise assumes."""

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, FailFast, Field, model_validator

from adaptive_qs.privacy import events as charges
from adaptive_qs.privacy.budget import float_above
from adaptive_qs.privacy.unit import Unit
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.schema import Schema, is_unreviewed

Basis = Literal["declared public", "paid for", "post-processing", "not revealed", "NOT COVERED"]
"""Why a fact may be known: declared before the run; measured with noise and charged; computed from
these two; not revealed; or revealed without a promise."""

Kind = Literal[
    "columns", "values", "heaps", "missing", "other cells", "constant", "ignored",
    "refusals", "settings", "rows", "single columns", "combinations", "selections",
    "answers", "derived", "kept back",
]  # fmt: skip
"""The subject of a fact; a column has at most one fact of each kind."""

Units = Annotated[int, Field(ge=0, le=2**160)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Fact(BaseModel, frozen=True, extra="forbid"):
    """One thing that a reader of the release learns, with its basis and its cost.

    ValueError is raised if the figures contradict the exact ones, or the basis contradicts them.
    """

    kind: Kind
    fact: str
    columns: Annotated[tuple[str, ...], FailFast()] = ()
    """Its columns; none if it is about the whole table or about combinations of columns."""
    basis: Basis
    rho: NonNegative = 0.0
    """The cost in zCDP, rounded up."""
    delta: NonNegative = 0.0
    """The cost in δ, rounded up."""
    rho_units: Units = 0
    """The exact cost in units of 2⁻⁶⁰ ρ."""
    delta_units: Units = 0
    """The exact cost in units of 2⁻¹⁰⁰ δ."""

    @model_validator(mode="after")
    def _check_figures(self) -> Self:
        if (self.rho, self.delta) != (float_above(self.cost.rho), float_above(self.cost.delta)):
            raise ValueError("a fact's figures contradict each other")
        if (self.cost != charges.Cost()) != (self.basis == "paid for"):
            raise ValueError("the basis of a fact contradicts its cost")
        return self

    @property
    def cost(self) -> charges.Cost:
        """The exact cost."""
        return charges.Cost(self.rho_units, self.delta_units)

    @classmethod
    def from_charges(
        cls, kind: Kind, fact: str, events: Iterable[charges.Event], columns: Sequence[str] = ()
    ) -> Self:
        """Return a fact that costs what these charges cost."""
        cost = charges.Cost.of(events)
        return cls(
            kind=kind, fact=fact, columns=tuple(columns), basis="paid for",
            rho=float_above(cost.rho), delta=float_above(cost.delta), rho_units=cost.rho_units,
            delta_units=cost.delta_units,
        )  # fmt: skip


def total_cost(facts: Iterable[Fact]) -> charges.Cost:
    """Return the exact cost of all facts together."""
    return sum((fact.cost for fact in facts), charges.Cost())


_PUBLIC: tuple[tuple[Kind, str], ...] = (
    ("refusals", "that the table has at least one row (otherwise there would be no release)"),
    (
        "refusals",
        "that its rows fit the memory reserved for them, which depends on the machine or on "
        "--max-memory (otherwise there would be no release)",
    ),
    (
        "settings",
        "the workload, the budget and all settings, including limits that depend on the memory of "
        "the machine",
    ),
)
_KEPT_BACK: tuple[str, ...] = (
    "the order of the rows, and which rows are equal",
    "any exact count",
    "the position of a value inside its bin, except for frequent values that are counted",
    "how cells were written, and the contents of unused columns",
    "the name, path, format and size of the private file",
)
TABLES = (
    "the model, and every table sampled from it, for any number of rows and any seed",
    "the rounds: what each measured, how far estimates moved, and when they stopped",
)
ANSWERS = ("every answer with its standard error and interval",)


_HEAPS = "which values and last digits are frequent, and how many rows have them, learnt with noise"
_OF_ONE_COLUMN: tuple[Kind, ...] = ("values", "heaps")
"""Kinds of which each column has a fact of its own."""
_PAID_TEXTS: dict[Kind, str] = {
    "rows": "the number of rows, with noise",
    "selections": "which marginals are measured: {} noisy choices",
    "heaps": _HEAPS,
    "single columns": "how often each of their codes occurs, with noise: {} measurements",
    "combinations": "how often codes of several columns occur together, with noise: {} residuals "
    "of marginals",
    "answers": "{} noisy measurements, from which all answers follow",
}
"""The text of each kind, to be formatted with the number of charges."""
_MECHANISMS = {
    charges.GaussianEvent: "exact discrete Gaussian",
    charges.SelectionEvent: "exponential mechanism",
    charges.PartitionEvent: "partition selection by exact discrete Gaussian",
}


def list_facts(
    events: Iterable[charges.Event], schema: Schema, derived: Iterable[str]
) -> tuple[Fact, ...]:
    """Return every fact of a release; each charge is in exactly one of them.

    ``derived`` is what was computed from released values: ``TABLES`` or ``ANSWERS``. ValueError is
    raised if a charge names a column that the schema does not have.
    """
    paid = list_paid_facts(events, schema)
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


def list_mechanisms(events: Iterable[charges.Event]) -> tuple[str, ...]:
    """Return the names of the mechanisms that were charged, each once."""
    return tuple(dict.fromkeys(_MECHANISMS[type(event)] for event in events))


def list_paid_facts(events: Iterable[charges.Event], schema: Schema) -> list[Fact]:
    """Return one fact for each purpose, in the order of the first charges."""
    names = {*schema.names, schema.person}
    groups: dict[tuple[Kind, str], list[charges.Event]] = {}
    for event in events:
        if not names >= set(event.columns):
            raise ValueError("a charge is about a column that the schema does not have")
        kind = _kind(event)
        about = event.columns[0] if kind in _OF_ONE_COLUMN else ""
        groups.setdefault((kind, about), []).append(event)
    return [_paid_fact(kind, charged, schema) for (kind, _), charged in groups.items()]


_KINDS: dict[charges.Purpose, Kind] = {
    charges.Purpose.ROWS: "rows",
    charges.Purpose.BINS: "values",
    charges.Purpose.VALUES: "values",
    charges.Purpose.HEAPS: "heaps",
    charges.Purpose.SELECTION: "selections",
    charges.Purpose.RESIDUAL: "combinations",
    charges.Purpose.STRATEGY: "answers",
}


def _kind(event: charges.Event) -> Kind:
    single = event.purpose is charges.Purpose.RESIDUAL and len(event.columns) == 1
    return "single columns" if single else _KINDS[event.purpose]


def _paid_fact(kind: Kind, charged: Sequence[charges.Event], schema: Schema) -> Fact:
    columns: tuple[str, ...] = ()
    if kind in (*_OF_ONE_COLUMN, "single columns"):
        columns = tuple(dict.fromkeys(name for event in charged for name in event.columns))
    text = _learnt_text(schema.column(columns[0])) if kind == "values" else _PAID_TEXTS[kind]
    return Fact.from_charges(kind, text.format(f"{len(charged):,}"), charged, columns)


HEADINGS: tuple[tuple[Basis, str], ...] = (
    ("NOT COVERED", "Not covered by the promise: taken from the data"),
    ("paid for", "Learnt with noise and paid for"),
    ("declared public", "Declared public: known without the rows"),
    ("post-processing", "Follows from the above, at no further cost"),
    ("not revealed", "Not revealed"),
)
"""The headings under which people read the facts, by basis."""


def group_facts(facts: Sequence[Fact]) -> list[tuple[str, list[Fact]]]:
    """Return the headings in order, each with its facts, without those that have none."""
    groups = ((title, [f for f in facts if f.basis == basis]) for basis, title in HEADINGS)
    return [(title, found) for title, found in groups if found]


# What a schema reveals: every column once for each kind of fact.

_LEARNT = {
    "min": "the smallest value",
    "max": "the largest value",
    "bins": "where the bins lie",
    "values": "which values there are, except for the catch-all label",
}
_OUTSIDE = {
    "clip": "that a cell outside the bounds counts as the nearest bound",
    "missing": "that an invalid cell counts as missing",
    "refuse": "that every cell is valid (otherwise there would be no release)",
}
_MISSING = (
    "that no cell is missing (otherwise there would be no release)",
    'that cells can be missing, and the markers that mean "no value"',
)
_CATCH_ALL = "the label that replaces every value that is not listed"
_ELSEWHERE = " and under another budget, as the schema states"
_CONSTANT = "that they have only one value, so that nothing is measured about them"


def _declared_facts(schema: Schema, paid: Collection[str], counted: Collection[str]) -> list[Fact]:
    """Return the facts that the schema declares, one for each kind, text and basis.

    If the schema was drafted from the data and not reviewed, they are "NOT COVERED". The columns
    whose values this run learnt (``paid``) or ``counted`` are other facts.
    """
    basis: Basis = "NOT COVERED" if is_unreviewed(schema) else "declared public"
    kinds = get_args(Kind)
    groups: dict[tuple[Kind, str, Basis], list[str]] = {}

    def add(kind: Kind, text: str, why: Basis, *names: str) -> None:
        groups.setdefault((kind, text, why), []).extend(names)

    add("columns", "their names, order, types and descriptions", basis, *schema.names)
    for column in schema.columns:
        bought, learnt = column.name in paid, _learnt(column)
        of_values: Basis = "post-processing" if bought or learnt else basis
        if not bought:
            text = _learnt_text(column) + _ELSEWHERE if learnt else column.disclosed
            add("values", text, of_values, column.name)
        if getattr(column, "counted", None) and column.name not in counted:
            add("heaps", _HEAPS + _ELSEWHERE, "post-processing", column.name)
        add("missing", _MISSING[bool(column.missing)], basis, column.name)
        other = _OUTSIDE[getattr(column, "outside", "refuse")]
        catch_all = column.catch_all_code is not None
        add("other cells", _CATCH_ALL if catch_all else other, basis, column.name)
        if column.size == 1:
            add("constant", _CONSTANT, of_values, column.name)
    if schema.about:
        add("columns", "the description of the data: " + ", ".join(schema.about), basis)
    if schema.person is not None:
        text = (
            "that this column identifies the person of a row, which decides how often the row "
            "counts; its cells are not released"
        )
        add("ignored", text, basis, schema.person)
    if made := [column.name for column in schema.generated]:
        text = "that the table has these columns, and the new cells they get; theirs are not used"
        add("ignored", text, basis, *made)
    if schema.ignore:
        text = "that the table can have these columns; their cells are not used"
        add("ignored", text, basis, *schema.ignore)
    return [
        Fact(kind=kind, fact=fact, columns=tuple(names), basis=why)
        for (kind, fact, why), names in sorted(groups.items(), key=lambda g: kinds.index(g[0][0]))
    ]


def _learnt(column: ColumnBase) -> tuple[str, ...]:
    return getattr(column, "learnt", None) or ()


def _learnt_text(column: ColumnBase) -> str:
    """Return which properties of the values were learnt, and which bounds were declared."""
    learnt = _learnt(column)
    known = [_LEARNT[key] for key in learnt] or ["the values"]
    text = " and ".join(filter(None, (", ".join(known[:-1]), known[-1]))) + ", learnt with noise"
    if "bins" in learnt and (declared := [k for k in ("min", "max") if k not in learnt]):
        text += f" ({' and '.join(_LEARNT[key] for key in declared)} declared public)"
    return text


SAMPLING_SEEDS = (
    "a seed selects one of the tables that the released numbers allow; it costs no privacy, "
    "protects nothing and can be published"
)
_OF_ROWS = (
    "anyone who has this release, every other table made from it, and all rows but one",
    "several rows of one person: for k rows together rho counts k² times",
)
_OF_PERSONS = (
    "anyone who has this release, every other table made from it, and all rows of all persons but "
    "one",
    "several persons together, such as a family: for k of them rho counts k² times",
)
_OF_SETS = (
    "anyone who has this release, every other table made from it, and all rows of all tables but "
    "those of one {noun} and below it",
    "several rows of {root} together, such as two of one person: for k of them rho counts k² times",
)


class ThreatModel(BaseModel, frozen=True, extra="forbid"):
    """What the promise holds against, what it trusts, and what it does not cover."""

    protects_against: tuple[str, ...] = (_OF_ROWS[0], "any amount of computing, now or later")
    trusted: tuple[str, ...] = (
        "that the machine that ran the program, its operating system and its random numbers can "
        "be trusted",
        "that the schema, the workload and the settings may be public. What they show of "
        "the rows, such as limits of an accepted proposal, is not covered",
    )
    excluded: tuple[str, ...] = (
        "running time, memory use, progress and messages of the program, which are for the owner",
        "that a run was refused, for what reason, and how often it was tried",
        _OF_ROWS[1],
        "other releases about the same people: their costs add up, and a ledger keeps the sum",
        "facts about the population, which also apply to people who are not in the table",
    )

    @classmethod
    def for_unit(cls, unit: Unit) -> Self:
        """Return the threat model of a unit of privacy."""
        rows = cls()
        words: tuple[str, ...] = _OF_PERSONS
        if unit.related is not None:
            words = tuple(w.format(noun=unit.noun, root=unit.related.root) for w in _OF_SETS)
        elif unit.person is None:
            return rows
        texts = dict(zip(_OF_ROWS, words))
        against = tuple(texts.get(text, text) for text in rows.protects_against)
        excluded = tuple(texts.get(text, text) for text in rows.excluded)
        return cls(protects_against=against, excluded=excluded)


def build_guarantee(
    rho: float, epsilon: float, delta: float, delta_spent: float, mu: float | None
) -> str:
    """Return the promise in one sentence, the same in every statement, page and manifest.

    The budget ``rho`` (zCDP) implies ε at δ, of which the discovery of values cost ``delta_spent``.
    μ of Gaussian DP is None if (ε, δ) follows from zCDP.
    """
    means = f"({epsilon:.6g}, {delta:g})-differential privacy"
    zcdp = charges.zcdp_name(delta_spent)
    if mu is not None:
        kind = zcdp.replace("zCDP", "mu-Gaussian DP")
        discrete = "up to a share 2^-20 of delta, for delta of at least 1e-300"
        return f"{kind} with mu = {mu:.6g} {discrete}, which is {means}; rho = {rho:.6g} {zcdp}"
    kind = zcdp.replace("zCDP", "rho-zCDP")
    return f"{kind} with rho = {rho:.6g}, which implies {means}"
