"""Pairs of neighbouring tables: one of them has a row that the other lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from adaptive_qs.audit.tables import KINDS, Codes, Rows, Verbatim, to_rows
from adaptive_qs.data.categories import CategoricalColumn
from adaptive_qs.data.column import ColumnBase
from adaptive_qs.data.moments import MomentColumn
from adaptive_qs.data.ranges import IntegerColumn, NumericColumn
from adaptive_qs.data.schema import Schema

UNREADABLE = "no such value"
"""A cell that no generated table holds."""


@dataclass(frozen=True)
class Pair:
    """Two tables of text cells that differ by one row.

    Attributes:
        name: what kind of table, and what kind of row.
        here: one table.
        there: the other.
    """

    name: str
    here: Rows
    there: Rows


def neighbour_pairs(schema: Schema, folder: Path, rng: np.random.Generator) -> Iterator[Pair]:
    """Pairs without end: every kind of table with every kind of row, in turn.

    Args:
        schema: what the tables follow, with no bins or values left open; where it takes unknown
            or missing values, rows have some.
        folder: for temporary files of generated rows.
        rng: decides the rows, and which of the two tables comes first.
    """
    sizes = schema.domain().sizes
    rounds = 0
    while True:
        for position, (kind, make) in enumerate(KINDS.items()):
            codes = make(sizes, rng)
            rows = to_rows(codes, schema, folder, rng)
            others = list(_neighbours(codes, rows, schema, folder, rng))
            what, other = others[(rounds + position) % len(others)]
            tables = [rows, other] if rng.integers(2) else [other, rows]
            yield Pair(f"{kind}, {what}", *tables)
        rounds += 1


def _neighbours(
    codes: Codes, rows: Rows, schema: Schema, folder: Path, rng: np.random.Generator
) -> Iterator[tuple[str, Rows]]:
    """Neighbours of a table, by the kind of row that they have more or less."""
    sizes = schema.domain().sizes
    counts = [np.bincount(column, minlength=size) for column, size in zip(codes.T, sizes)]
    wanted = {
        "a typical row more": rng.choice(codes),
        "a row of first codes more": np.zeros_like(codes[0]),
        "the rarest values more": [_rarest(c[c > 0], np.flatnonzero(c), rng) for c in counts],
        "values never seen more": [_rarest(c, np.arange(len(c)), rng) for c in counts],
    }
    added = to_rows(np.array(list(wanted.values())), schema, folder, rng)
    yield from ((what, [*rows, row]) for what, row in zip(wanted, added))
    yield "text among numbers more", [*rows, [Verbatim(cell) for cell in rows[0]]]
    strange = [_of_other_type(column) for column in schema.columns]
    if any(cell is not None for cell in strange):
        yield "values of another type more", [*rows, _replaced(rows[0], strange)]
    outside = [_outside(column) for column in schema.columns]
    if any(cell is not None for cell in outside):
        yield "values outside the schema more", [*rows, _replaced(rows[0], outside)]
    missing = [column.missing[-1] if column.missing else None for column in schema.columns]
    if any(cell is not None for cell in missing):
        yield "missing values more", [*rows, _replaced(rows[0], missing)]
    less = rng.integers(len(rows))
    removed = [*rows[:less], *rows[less + 1 :]]
    yield ("a row less" if removed else "the only row less"), removed


def _rarest(counts: Codes, codes: Codes, rng: np.random.Generator) -> int:
    """One of the least frequent codes."""
    return int(rng.choice(codes[counts == counts.min()]))


def _replaced(row: list[str], cells: list[str | None]) -> list[str]:
    return [old if new is None else new for old, new in zip(row, cells)]


def _outside(column: ColumnBase) -> str | None:
    """A cell outside what the column declares, where the schema says what to do with it."""
    if isinstance(column, CategoricalColumn):
        return None if column.catch_all is None else UNREADABLE
    outside = getattr(column, "outside", "refuse")
    if outside == "missing":
        return UNREADABLE
    if outside == "clip":
        return _beyond(column)
    return None


def _of_other_type(column: ColumnBase) -> str | None:
    """A cell that is a boolean or an integer among texts, where the schema takes any."""
    if not isinstance(column, CategoricalColumn) or column.catch_all is None:
        return None
    return "1" if {"true", "false"} & {str(value) for value in column.values} else "true"


def _beyond(column: ColumnBase) -> str | None:
    """A cell beyond the upper end of a range."""
    if isinstance(column, IntegerColumn):
        return str(column.max + 1)
    if isinstance(column, NumericColumn):
        return repr(abs(column.bin_edges[-1]) * 2 + 1)
    if isinstance(column, MomentColumn):
        last = datetime(9998, 12, 31)
        return last.strftime(column.format) if column.format else last.date().isoformat()
    return None
