"""Columns of Python objects: each cell becomes a typed value by its own type alone.

A column of objects may hold text beside booleans, numbers and dates. No type is inferred for the
column: which cells a row stands beside must not change how that row is read, or one row of another
type would re-code all others, and no noise would hide it.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
import pyarrow as pa
from numpy.typing import NDArray

Objects = NDArray[np.object_]
Parted = Iterator[tuple[NDArray[np.bool_], pa.Array]]
"""Which of the cells, and those cells as an array of one type."""


@dataclass(frozen=True)
class MixedCells:
    """Cells of several types.

    Attributes:
        parts: arrays of one type each; together they hold the distinct cells, in no order that
            means anything.
        indices: shape (rows,), which cell of the joined parts each row has; -1 for none.
    """

    parts: tuple[pa.Array, ...]
    indices: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    @classmethod
    def of(cls, values: pa.Array | MixedCells) -> MixedCells:
        """Cells of one type, or of several, as the latter."""
        if isinstance(values, MixedCells):
            return values
        if not pa.types.is_dictionary(values.type):
            values = values.dictionary_encode()
        indices = values.indices.cast(pa.int64()).fill_null(-1).to_numpy()
        return cls((values.dictionary,), indices)

    def take(self, rows: NDArray[np.int64]) -> MixedCells:
        """The cells at these places; -1 gives none."""
        return MixedCells(self.parts, np.append(self.indices, -1)[rows])


def object_cells(objects: Objects) -> pa.StringArray | MixedCells:
    """Python objects as typed values, each by its own type.

    Text is text, booleans, integers, numbers, dates and times are what they are, whether of
    Python, numpy or pandas; a `Decimal` is the nearest double, and None, NaN, NaT and NA are
    missing. Anything else becomes an array of type binary, which no column takes.

    Args:
        objects: shape (rows,).
    """
    if pd.api.types.infer_dtype(objects, skipna=True) in ("string", "empty"):
        try:  # the same as below, faster, where all cells that there are happen to be text
            return pa.array(objects, pa.string(), from_pandas=True)
        except UnicodeEncodeError:
            pass
    indices = np.full(len(objects), -1)
    filled = np.flatnonzero(~pd.isna(objects))
    types = list(map(type, objects[filled].tolist()))
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(types))}
    kinds = np.fromiter(map(numbers.__getitem__, types), np.int64, len(types))
    parts: list[pa.Array] = []
    for kind, number in numbers.items():
        rows = filled[kinds == number]
        for taken, values in _reader(kind)(objects[rows]):
            if not taken.any():
                continue
            distinct = values.dictionary_encode()
            indices[rows[taken]] = distinct.indices.to_numpy() + sum(map(len, parts))
            parts.append(distinct.dictionary)
    return MixedCells(tuple(parts), indices)


def _reader(kind: type) -> Callable[[Objects], Parted]:
    """What reads cells of a type."""
    for bases, reader in _READERS:
        if issubclass(kind, bases):
            return reader
    return _unreadable


def _all(values: pa.Array) -> Parted:
    yield np.ones(len(values), dtype=np.bool_), values


def _texts(cells: Objects) -> Parted:
    try:
        values = pa.array(cells, pa.string())
    except UnicodeEncodeError:  # half of a surrogate pair: no text, but somebody's cell
        whole = [cell.encode("utf-8", "surrogatepass").decode("utf-8", "replace") for cell in cells]
        values = pa.array(whole, pa.string())
    return _all(values)


def _booleans(cells: Objects) -> Parted:
    return _all(pa.array(cells.astype(np.bool_)))


def _integers(cells: Objects) -> Parted:
    """As 64 bits; as digits where they do not fit."""
    fits = np.array([-(2**63) <= int(cell) < 2**63 for cell in cells])
    yield fits, pa.array(cells[fits].astype(np.int64))
    yield ~fits, pa.array([str(int(cell)) for cell in cells[~fits]], pa.string())


def _short_floats(cells: Objects) -> Parted:
    """Half and single precision, which are read by their shortest text."""
    return _all(pa.array(cells.astype(np.float32)))


def _numbers(cells: Objects) -> Parted:
    return _all(pa.array([float(cell) for cell in cells], pa.float64()))


def _moments(cells: Objects) -> Parted:
    """Times of day by time zone: the wall clock and UTC are both needed later."""
    plain = np.array(
        [c.to_pydatetime(warn=False) if isinstance(c, pd.Timestamp) else c for c in cells],
        dtype=object,
    )
    zones = np.array([_zone(cell) for cell in plain], dtype=object)
    for zone in dict.fromkeys(zones.tolist()):
        taken = zones == zone
        if zone == _NO_NAME:
            yield taken, pa.array([b""] * int(taken.sum()), pa.binary())
        else:
            yield taken, pa.array(plain[taken].tolist(), pa.timestamp("us", zone or None))


def _zone(moment: dt.datetime) -> str:
    """The time zone of a moment as Arrow names it; "" where it has none."""
    offset = moment.utcoffset()
    if offset is None:
        return ""
    name = getattr(moment.tzinfo, "key", None) or getattr(moment.tzinfo, "zone", None)
    if name is not None:
        return str(name)
    minutes, rest = divmod(offset, dt.timedelta(minutes=1))
    if rest:
        return _NO_NAME
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


_NO_NAME = "?"
"""Stands for a time zone that has no name and is no whole number of minutes away from UTC."""


def _dates(cells: Objects) -> Parted:
    return _all(pa.array(cells, pa.date32()))


def _numpy_moments(cells: Objects) -> Parted:
    return _all(pa.array(np.array(cells.tolist(), "datetime64[us]")))


def _unreadable(cells: Objects) -> Parted:
    return _all(pa.array([b""] * len(cells), pa.binary()))


_READERS: tuple[tuple[tuple[type, ...], Callable[[Objects], Parted]], ...] = (
    ((str,), _texts),
    ((bool, np.bool_), _booleans),
    ((np.timedelta64,), _unreadable),  # which numpy counts among the integers
    ((int, np.integer), _integers),
    ((np.float16, np.float32), _short_floats),
    ((float, np.floating, decimal.Decimal), _numbers),
    ((dt.datetime,), _moments),
    ((dt.date,), _dates),
    ((np.datetime64,), _numpy_moments),
)
"""Types and what reads them, the more special ones first."""


def frame_cells(series: Any) -> pa.Array | pa.ChunkedArray | MixedCells:
    """A column of a data frame, each cell by its own type.

    Args:
        series: of narwhals.
    """
    if series.implementation.is_pandas_like():
        column = series.to_pandas()
        if column.dtype == object:
            return object_cells(column.to_numpy())
        if isinstance(column.dtype, pd.CategoricalDtype) and (
            column.dtype.categories.dtype == object
        ):
            codes = column.cat.codes.to_numpy()
            used, places = np.unique(codes[codes >= 0], return_inverse=True)
            rows = np.full(len(codes), -1)
            rows[codes >= 0] = places
            values = object_cells(column.cat.categories.to_numpy()[used])
            return MixedCells.of(values).take(rows)
    elif series.implementation.is_polars() and series.dtype == nw.Object:
        return object_cells(np.array([*series.to_list(), None], dtype=object)[:-1])
    return series.to_arrow()
