"""The values behind the codes of a column, so that two columns can be compared."""

from __future__ import annotations

from collections.abc import Hashable
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.categories import BooleanColumn, CategoricalColumn
from adaptive_qs.data.column import ColumnBase
from adaptive_qs.data.moments import DateColumn, MomentColumn
from adaptive_qs.data.periods import starts_of
from adaptive_qs.data.ranges import IntegerColumn, NumericColumn

DAY = 86_400


class Values(NamedTuple):
    """What is known of the values of some rows.

    Attributes:
        low: the smallest that each may have.
        high: the largest.
        known: False where the value is missing or unknown.
    """

    low: NDArray[Any]
    high: NDArray[Any]
    known: NDArray[np.bool_]


def kind_of(column: ColumnBase) -> Hashable:
    """Columns of the same kind hold values that can be compared; None where none can."""
    if isinstance(column, IntegerColumn | NumericColumn) or _lists_integers(column):
        return "numbers"
    if isinstance(column, MomentColumn):
        return "moments"
    if isinstance(column, CategoricalColumn):
        return column.values
    return "booleans" if isinstance(column, BooleanColumn) else None


def scale_of(column: ColumnBase) -> Hashable:
    """Columns on the same scale give the same value the same code; None where there is no order."""
    match column:
        case IntegerColumn():
            return "integer", column.min, column.max, column.starts
        case NumericColumn():
            return "numeric", column.bin_edges
        case MomentColumn():
            return "moment", column.min, column.max, column.granularity
        case CategoricalColumn(ordered=True):
            return "categorical", column.values
    return None


def has_order(column: ColumnBase) -> bool:
    """Whether one value of the column can be smaller than another."""
    ordered: bool = getattr(column, "ordered", False)
    return ordered or _lists_integers(column)


def values_of(column: ColumnBase, codes: NDArray[np.integer], by_day: bool = False) -> Values:
    """The values that codes stand for.

    Numbers are themselves, dates and times seconds since 1970, and labels and booleans their place
    in the list.

    Args:
        column: as declared.
        codes: of some rows.
        by_day: tell dates in whole days.
    """
    known = codes < column.num_values
    if column.catch_all_code is not None:
        known &= codes != column.catch_all_code
    inside = np.where(known, codes, 0).astype(np.int64)
    low, high = _ends(column, inside)
    if by_day:
        low, high = low // DAY, high // DAY
    return Values(low, high, known)


def by_day(first: ColumnBase, second: ColumnBase) -> bool:
    """Whether both hold whole days, so that one day is a value and no span of time."""
    return isinstance(first, DateColumn) and isinstance(second, DateColumn)


def _lists_integers(column: ColumnBase) -> bool:
    return isinstance(column, CategoricalColumn) and type(column.values[0]) is int


@singledispatch
def _ends(column: ColumnBase, codes: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Smallest and largest value of every code; by default its place."""
    return codes, codes


@_ends.register
def _(column: CategoricalColumn, codes: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    if not _lists_integers(column):
        return codes, codes
    values = np.array(column.values, dtype=np.int64)[codes]
    return values, values


@_ends.register
def _(column: IntegerColumn, codes: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    if column.starts is None:
        return codes + column.min, codes + column.min
    starts = np.array(column.starts, dtype=np.int64)
    return starts[codes], np.append(starts[1:] - 1, column.max)[codes]


@_ends.register
def _(column: NumericColumn, codes: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    edges = np.array(column.bin_edges)
    if column.grid is not None and column.decimals is not None:
        first, last = np.array(column.grid)
        return first[codes] / 10**column.decimals, last[codes] / 10**column.decimals
    return edges[codes], np.append(np.nextafter(edges[1:-1], -np.inf), edges[-1])[codes]


@_ends.register
def _(column: MomentColumn, codes: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    periods = codes + column.period(column.min)
    first, last = column.span
    low = np.maximum(starts_of(periods, column.granularity), first)
    return low, np.minimum(starts_of(periods + 1, column.granularity) - 1, last)
