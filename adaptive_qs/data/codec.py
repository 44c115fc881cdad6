"""Cells to codes and back, one pair of functions for each type of column.

`read_codes` maps distinct cells to codes, with a negative sentinel for the cells that the column
refuses; `draw_values` maps codes to values of the declared type.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from adaptive_qs.data import cells
from adaptive_qs.data.categories import BooleanColumn, CategoricalColumn
from adaptive_qs.data.column import ColumnBase
from adaptive_qs.data.moments import DateColumn, MomentColumn
from adaptive_qs.data.periods import periods_of, starts_of
from adaptive_qs.data.ranges import IntegerColumn, NumericColumn, RangeColumn

Codes = NDArray[np.int64]

EMPTY, UNREADABLE, OUTSIDE = -1, -2, -3
"""Refused cells: null or "" without a marker; not of the type; not a declared value."""


def read_codes(column: ColumnBase, values: pa.Array) -> Codes:
    """Codes of normalised cells: shape (len(values),), negative where a cell is refused.

    A text that CSV escapes is read in its escaped form, too.
    """
    values = cells.unescaped(values, column.escapes)
    codes = _read(column, values)
    empty = values.is_null().to_numpy(zero_copy_only=False)
    blank = empty | cells.is_marker(values, ("",), numeric=False)
    codes[(codes < 0) & blank] = EMPTY
    unknown = column.missing_code if getattr(column, "outside", "") == "missing" else None
    if unknown is None:
        unknown = column.catch_all_code
    if unknown is not None:
        codes[(codes < 0) & ~empty] = unknown
    if column.missing_code is not None:
        numeric = isinstance(column, IntegerColumn | NumericColumn)
        codes[empty | cells.is_marker(values, column.missing, numeric)] = column.missing_code
    return codes


def draw_values(column: ColumnBase, codes: NDArray[Any], rng: np.random.Generator) -> pa.Array:
    """Values of the declared type, uniform inside bins and periods; null where missing."""
    codes = codes.astype(np.int64)
    missing = np.zeros(codes.shape, dtype=np.bool_)
    if column.missing_code is not None:
        missing = codes == column.missing_code
        codes = np.where(missing, 0, codes)
    return pc.if_else(pa.array(~missing), _draw(column, codes, rng), None)


@singledispatch
def _read(column: ColumnBase, values: pa.Array) -> Codes:
    raise AssertionError(f"no reader for {type(column).__name__}")


@singledispatch
def _draw(column: ColumnBase, codes: Codes, rng: np.random.Generator) -> pa.Array:
    raise AssertionError(f"no drawer for {type(column).__name__}")


@_read.register
def _(column: CategoricalColumn, values: pa.Array) -> Codes:
    labels = pa.array(column.labels)
    if pa.types.is_string(labels.type):
        looked_up, readable = cells.as_text(values), None
        if pa.types.is_boolean(values.type) and "True" in column.labels:
            looked_up = pc.utf8_capitalize(looked_up)  # as Python and pandas write booleans
    else:
        boolean = pa.types.is_boolean(labels.type)
        numbers, readable = (cells.as_booleans if boolean else cells.as_integers)(values)
        looked_up = pa.array(numbers)
        labels = labels.cast(pa.int64())
    codes = pc.index_in(looked_up, value_set=labels).fill_null(OUTSIDE)
    codes = codes.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes if readable is None else np.where(readable, codes, UNREADABLE)


@_draw.register
def _(column: CategoricalColumn, codes: Codes, rng: np.random.Generator) -> pa.Array:
    return pa.array(column.labels).take(pa.array(codes))


@_read.register
def _(column: BooleanColumn, values: pa.Array) -> Codes:
    codes, readable = cells.as_booleans(values)
    return np.where(readable, codes, UNREADABLE)


@_draw.register
def _(column: BooleanColumn, codes: Codes, rng: np.random.Generator) -> pa.Array:
    return pa.array(codes == 1)


@_read.register
def _(column: IntegerColumn, values: pa.Array) -> Codes:
    numbers, readable = cells.as_integers(values)
    inside = np.clip(numbers, column.min, column.max)
    if column.starts is None:
        codes = inside - column.min
    else:
        codes = np.searchsorted(np.array(column.starts), inside, side="right") - 1
    return _refuse(column, codes, readable, inside == numbers)


@_draw.register
def _(column: IntegerColumn, codes: Codes, rng: np.random.Generator) -> pa.Array:
    if column.starts is None:
        return pa.array(codes + column.min)
    starts = np.array(column.starts)
    ends = np.append(starts[1:] - 1, column.max)
    return pa.array(rng.integers(starts[codes], ends[codes], endpoint=True))


@_read.register
def _(column: NumericColumn, values: pa.Array) -> Codes:
    numbers, readable = cells.as_numbers(values)
    edges = np.array(column.bin_edges)
    inside = np.clip(numbers, edges[0], edges[-1])
    codes = np.searchsorted(edges[:-1], inside, side="right") - 1
    return _refuse(column, codes, readable, inside == numbers)


@_draw.register
def _(column: NumericColumn, codes: Codes, rng: np.random.Generator) -> pa.Array:
    if column.grid is not None and column.decimals is not None:
        first, last = np.array(column.grid) // column.units
        steps = rng.integers(first[codes], last[codes], endpoint=True)
        return pa.array(steps * column.units / 10**column.decimals)
    edges = np.array(column.bin_edges)
    low, high = edges[codes], edges[codes + 1]
    share = rng.random(codes.shape)
    return pa.array(np.clip(low * (1 - share) + high * share, low, np.nextafter(high, low)))


@_read.register
def _(column: MomentColumn, values: pa.Array) -> Codes:
    seconds, readable = cells.as_seconds(values, column.format, column.wall_clock)
    first, last = column.span
    inside = np.clip(seconds, first, last)
    codes = periods_of(inside, column.granularity) - column.period(column.min)
    return _refuse(column, codes, readable, inside == seconds)


@_draw.register
def _(column: MomentColumn, codes: Codes, rng: np.random.Generator) -> pa.Array:
    periods = codes + column.period(column.min)
    first, last = column.span
    low = np.maximum(starts_of(periods, column.granularity), first)
    high = np.minimum(starts_of(periods + 1, column.granularity) - 1, last)
    if isinstance(column, DateColumn):
        days = rng.integers(low // 86_400, high // 86_400, endpoint=True)
        return pa.array(days.astype(np.int32), pa.int32()).cast(pa.date32())
    return pa.array(rng.integers(low, high, endpoint=True)).cast(pa.timestamp("s"))


def _refuse(column: RangeColumn, codes: Codes, readable: cells.Mask, inside: cells.Mask) -> Codes:
    if column.outside != "clip":
        codes = np.where(inside, codes, OUTSIDE)
    return np.where(readable, codes, UNREADABLE)
