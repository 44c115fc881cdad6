"""What a schema tells of a table: every column once for each kind of fact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from adaptive_qs.data.column import ColumnBase
from adaptive_qs.data.ranges import RangeColumn
from adaptive_qs.data.review import is_unreviewed
from adaptive_qs.data.schema import Schema
from adaptive_qs.release.fact import Basis, Fact, Kind

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
