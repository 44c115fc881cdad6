"""Reading cells: text, typed values and Python objects as integers, numbers, booleans, moments.

Every reader returns a value array and a mask of the cells it could read; it never raises on what a
cell holds, so no cell can end up in a message.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from adaptive_qs.errors import AdaptiveQsError, DataError
from adaptive_qs.table.text import (
    ASCII_SPACE,
    FALSE_WORDS,
    INTEGER,
    INTEGER_WITH_EXPONENT,
    NUMBER,
    TRUE_WORDS,
    Spelling,
    read_integer,
    read_moment,
)

Mask = NDArray[np.bool_]
NULL = pa.nulls(1)[0]
"""A null for compute functions, which import pandas for Python objects."""


def to_arrow(values: Any) -> pa.Array:
    """Return numbers or texts as ``pa.array`` does, without its import of pandas."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "bif":
        bits = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else values
        content = pa.py_buffer(np.ascontiguousarray(bits))
        kind = pa.from_numpy_dtype(values.dtype)
        return pa.Array.from_buffers(kind, len(values), [None, content])
    if isinstance(values, np.ndarray) or not all(isinstance(each, str) for each in values):
        return pa.array(values)
    texts = [text.encode() for text in values]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.StringArray.from_buffers(
        len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts))
    )


def from_arrow(values: pa.Array) -> NDArray[Any]:
    """Return numbers without nulls as ``to_numpy`` does, without its import of pandas."""
    if pa.types.is_boolean(values.type):
        return np.from_dlpack(values.cast(pa.uint8())).view(np.bool_)
    return np.from_dlpack(values)


def normalise(values: pa.Array) -> pa.Array | None:
    """Return cells as string (stripped), int64, uint64, float64, bool or timestamp; else None.

    NaN becomes null. Timestamps keep their time zone.
    """
    kind = values.type
    if pa.types.is_null(kind):
        return values.cast(pa.string())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pc.utf8_trim(values.cast(pa.string()), characters=ASCII_SPACE)
    if pa.types.is_integer(kind):
        return values if kind == pa.uint64() else values.cast(pa.int64())
    if pa.types.is_floating(kind):
        if kind != pa.float64():  # through text, so that float32 0.7 is 0.7 and not 0.699999988
            values = values.cast(pa.float32()).cast(pa.string()).cast(pa.float64())
        return pc.if_else(pc.is_nan(values), pa.scalar(None, pa.float64()), values)
    if pa.types.is_decimal(kind):
        return values.cast(pa.float64())
    if pa.types.is_date(kind):
        return values.cast(pa.timestamp("ms"))
    return values if pa.types.is_timestamp(kind) or pa.types.is_boolean(kind) else None


def as_text(values: pa.Array) -> pa.StringArray:
    """Return normalised cells as text: 39.0 is "39", true is "true", moments are ISO 8601.

    Whole numbers have one form whether they come as integers or as numbers, as long as a double
    holds them exactly. Moments are in UTC, without a time of day at midnight and without zero parts
    of a second.
    """
    if pa.types.is_float64(values.type):
        whole = pc.and_(pc.equal(values, pc.floor(values)), pc.less(pc.abs(values), 2.0**53))
        integers = pc.if_else(whole, values, 0.0).cast(pa.int64())
        return pc.if_else(whole, integers.cast(pa.string()), values.cast(pa.string()))
    if pa.types.is_timestamp(values.type):
        text = values.cast(pa.timestamp(values.type.unit)).cast(pa.string())
        return pc.replace_substring_regex(text, r"(\.0+|( 00:00:00)(\.0+)?)$", "")
    return values.cast(pa.string())


def as_integers(values: pa.Array) -> tuple[NDArray[np.int64], Mask]:
    """Return cells as integers; "39", 39.0 and "2e+05" are, 39.5 and "1e-3" are not."""
    if pa.types.is_string(values.type):
        plain = pc.match_substring_regex(values, f"^{INTEGER}$")
        digits = pc.replace_substring_regex(values, r"^\+|\.0*$", "")
        found = pc.if_else(plain, digits, NULL).cast(pa.int64())
        if not pc.all(plain, min_count=0).as_py():
            scaled = pc.match_substring_regex(values, f"^{INTEGER_WITH_EXPONENT}$")
            scaled = scaled.fill_null(False)
            integers = map(read_integer, values.filter(scaled).to_pylist())
            found = pc.replace_with_mask(found, scaled, pa.array(integers, pa.int64()))
        return _filled(found, np.int64(0))
    if values.type == pa.uint64():
        values = pc.if_else(pc.less(values, pa.scalar(2**62, pa.uint64())), values, None).cast(
            pa.int64()
        )
    if pa.types.is_int64(values.type):
        return _filled(values, np.int64(0))
    if pa.types.is_float64(values.type):
        numbers, readable = as_numbers(values)
        readable &= (numbers == np.floor(numbers)) & (np.abs(numbers) < 2.0**62)
        return np.where(readable, numbers, 0).astype(np.int64), readable
    return _unreadable(values, np.int64(0))


def as_numbers(values: pa.Array) -> tuple[NDArray[np.float64], Mask]:
    """Return cells as finite real numbers."""
    if pa.types.is_string(values.type):
        readable = pc.match_substring_regex(values, f"^{NUMBER}$")
        digits = pc.utf8_ltrim(values, characters="+")
        values = pc.if_else(readable, digits, NULL).cast(pa.float64())
    elif pa.types.is_integer(values.type):
        values = values.cast(pa.float64(), safe=False)
    if not pa.types.is_float64(values.type):
        return _unreadable(values, np.float64(0))
    numbers, readable = _filled(values, np.float64(0))
    return numbers, readable & np.isfinite(numbers)


def without_dust(numbers: NDArray[np.float64], decimals: int) -> NDArray[np.float64]:
    """Round numbers such as 0.1 + 0.2, which binary rounding alone keeps from these decimals."""
    with np.errstate(over="ignore", invalid="ignore"):
        near = np.rint(numbers * 10.0**decimals) / 10.0**decimals
        most = np.minimum(1e-9 * np.abs(numbers), 1e-3 * 10.0**-decimals)
        return np.where(np.abs(near - numbers) <= most, near, numbers)


def as_booleans(values: pa.Array) -> tuple[NDArray[np.int64], Mask]:
    """Return cells as 0 and 1."""
    if pa.types.is_boolean(values.type):
        return _filled(values.cast(pa.int64()), np.int64(0))
    words = pc.utf8_lower(as_text(values))
    true = _is_in(words, TRUE_WORDS)
    return true.astype(np.int64), true | _is_in(words, FALSE_WORDS)


def as_seconds(
    values: pa.Array, date_format: str | None, wall_clock: bool
) -> tuple[NDArray[np.int64], Mask]:
    """Return cells as whole seconds since 1970; arguments as for :func:`text.read_moment`."""
    if pa.types.is_timestamp(values.type):
        if values.type.tz is not None:
            values = pc.local_timestamp(values) if wall_clock else values
            values = values.cast(pa.timestamp(values.type.unit))
        ticks, readable = _filled(values.cast(pa.int64()), np.int64(0))
        return ticks // {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[values.type.unit], readable
    moments = [
        None if text is None else read_moment(text, date_format, wall_clock)
        for text in as_text(values).to_pylist()
    ]
    return _filled(pa.array(moments, pa.int64()), np.int64(0))


def is_marker(values: pa.Array, markers: tuple[str, ...]) -> Mask:
    """Return which cells are one of the markers, as text."""
    return _is_in(as_text(values), frozenset(markers))


def matches_numbers(values: pa.Array, markers: Iterable[str]) -> Mask:
    """Return which cells are one of the markers that are numbers, in whatever digits."""
    numbers = [float(marker) for marker in markers if re.fullmatch(NUMBER, marker)]
    found, readable = as_numbers(values) if numbers else _unreadable(values, np.float64(0))
    return readable & np.isin(found, numbers)


def numbers_read(values: pa.Array, spelling: Spelling) -> pa.Array:
    """Return cells with numbers in text in Python's form; other texts become null.

    Cells of other types, and the plain form, are not changed.
    """
    if spelling.plain or not pa.types.is_string(values.type):
        return values
    numbers = pc.match_substring_regex(values, f"^(?:{spelling.pattern})$")
    texts = pc.replace_substring(values, spelling.prefix, "", max_replacements=1)
    texts = pc.replace_substring(texts, spelling.suffix, "", max_replacements=1)
    texts = pc.replace_substring_regex(texts, spelling.groups, "") if spelling.groups else texts
    return pc.if_else(numbers, pc.replace_substring(texts, spelling.decimal, "."), NULL)


def numbers_written(values: pa.Array, spelling: Spelling) -> pa.Array:
    """Return numbers in text in this form."""
    if spelling.plain:
        return values
    distinct = values.dictionary_encode()
    texts = [
        text if text is None else spelling.write(text) for text in distinct.dictionary.to_pylist()
    ]
    return pa.array(texts, pa.string()).take(distinct.indices)


def unescaped(values: pa.Array, escapes: Mapping[str, str]) -> pa.Array:
    """Return normalised cells, escaped texts of CSV in their original form."""
    if not escapes or not pa.types.is_string(values.type):
        return values
    place = pc.index_in(values, value_set=pa.array([*escapes.values()], pa.string()))
    return pc.coalesce(pa.array([*escapes], pa.string()).take(place), values)


def _is_in(texts: pa.StringArray, words: frozenset[str]) -> Mask:
    return from_arrow(pc.is_in(texts, value_set=to_arrow(sorted(words))))


def _filled(values: pa.Array, filler: Any) -> tuple[NDArray[Any], Mask]:
    readable = from_arrow(values.is_valid())
    (missing,) = to_arrow(filler.reshape(1))
    return from_arrow(values.fill_null(missing)), readable.copy()


def _unreadable(values: pa.Array, filler: Any) -> tuple[NDArray[Any], Mask]:
    return np.full(len(values), filler), np.zeros(len(values), dtype=np.bool_)


def take_cells(values: Any, rows: NDArray[np.int64]) -> Any:
    """Return the cells of a column, of one type or several, in some rows."""
    return values.take(rows if isinstance(values, MixedCells) else pa.array(rows))


def split_chunks(values: pa.Array | pa.ChunkedArray | MixedCells) -> list[Any]:
    """Return the chunks of a column, or the column itself if it has none."""
    return values.chunks if isinstance(values, pa.ChunkedArray) else [values]


# Identifiers of persons and keys: compared exactly, so each cell has exactly one text, or none.

_DIGITS = {pa.float64(): 15, pa.float32(): 7, pa.float16(): 3}
"""Digits of whole numbers that a floating-point type never confuses."""


def as_identifiers(values: pa.Array) -> tuple[pa.StringArray, str]:
    """Return cells of one type as identifiers, null for missing ones, and a problem or "".

    The identifier of a text is the text itself, that of a whole number its digits, that of a date
    ISO 8601. So equal values have one identifier in every container, and others have another. A
    cell is refused if its type does not distinguish it, or another container writes it otherwise.
    """
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        texts = values.cast(pa.string())
        texts.validate(full=True)
        pattern = (
            rf"^[{ASCII_SPACE}]|[{ASCII_SPACE}]$|\x{{FFFD}}"
            r"|^[+-]?[0-9]*\.0+$|^[+-]?[0-9]*\.?[0-9]+[eE]\+[0-9]+$"
        )
        vague = texts.filter(pc.match_substring_regex(texts, pattern))
        blank = pc.equal(pc.utf8_trim(vague, characters=ASCII_SPACE), "")
        problem = "" if pc.all(blank, min_count=0).as_py() else (
            "texts with white space at an end, characters that could not be decoded (U+FFFD), or "
            "numbers written as floating-point ones (such as 5.0 or 1e+15)"
        )  # fmt: skip
        return pc.replace_substring_regex(texts, rf"^[{ASCII_SPACE}]+$", ""), problem
    if pa.types.is_null(kind) or pa.types.is_integer(kind) or pa.types.is_date32(kind):
        return values.cast(pa.string()), ""
    if pa.types.is_floating(kind):
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
        missing = np.isnan(numbers)
        exact = (numbers == np.floor(numbers)) & (np.abs(numbers) < 10.0 ** _DIGITS[kind])
        exact &= (numbers != 0) | ~np.signbit(numbers)
        found = pa.array(np.where(exact, numbers, 0).astype(np.int64), mask=missing)
        problem = f"floating-point numbers that are not whole, or have over {_DIGITS[kind]} digits"
        return found.cast(pa.string()), "" if (exact | missing).all() else problem
    if pa.types.is_decimal(kind):
        plain = [None if each is None else f"{each:f}" for each in values.to_pylist()]
        halves = [("", "", "") if each is None else each.partition(".") for each in plain]
        found = pa.array([each and half[0] for each, half in zip(plain, halves)], pa.string())
        return found, "decimals that are not whole" if any(h[2].strip("0") for h in halves) else ""
    return pa.nulls(len(values), pa.string()), (
        f"cells of another type than text, whole numbers and dates ({kind})"
    )


# Columns of Python objects: each cell becomes a typed value by its own type alone.
# A column of objects can hold text, booleans, numbers and dates. No type is inferred for the
# column: the other cells of a column must not change how a row is read, or one row of
# another type would re-code all others, and no noise would hide it.

Objects = NDArray[np.object_]
Parted = Iterator[tuple[NDArray[np.bool_], pa.Array]]
"""Yields which of the cells have one type, and these cells as an array."""


@dataclass(frozen=True)
class MixedCells:
    """Cells of several types."""

    parts: tuple[pa.Array, ...]  # one type each; together the distinct cells, in any order
    indices: NDArray[np.int64]  # cell of the joined parts of each row, -1 for none, shape (rows,)

    def __len__(self) -> int:
        return len(self.indices)

    @classmethod
    def of(cls, values: pa.Array | MixedCells) -> MixedCells:
        """Return cells of one type, or of several, as the latter."""
        if isinstance(values, MixedCells):
            return values
        if not pa.types.is_dictionary(values.type):
            values = values.dictionary_encode()
        indices, _ = _filled(values.indices.cast(pa.int64()), np.int64(-1))
        return cls((values.dictionary,), indices)

    @classmethod
    def join(cls, columns: Iterable[pa.Array | pa.ChunkedArray | MixedCells]) -> MixedCells:
        """Return the cells of some columns, one after the other."""
        parts: list[pa.Array] = []
        indices, before = [np.zeros(0, np.int64)], 0
        for part in (part for column in columns for part in split_chunks(column)):
            cells = cls.of(part)
            indices.append(np.where(cells.indices < 0, -1, cells.indices + before))
            parts += cells.parts
            before += sum(map(len, cells.parts))
        return cls(tuple(parts), np.concatenate(indices))

    def with_exact_decimals(self) -> MixedCells:
        """Return the same, decimals as cells of several types; see :func:`object_cells`."""
        if len(self.parts) != 1 or not pa.types.is_decimal(self.parts[0].type):
            return self
        distinct = np.array([*self.parts[0].to_pylist(), None], dtype=object)[:-1]
        return MixedCells.of(object_cells(distinct)).take(self.indices)

    def take(self, rows: NDArray[np.int64]) -> MixedCells:
        """Return the cells at these positions; -1 gives none."""
        return MixedCells(self.parts, np.append(self.indices, -1)[rows])


def object_cells(objects: Objects) -> pa.StringArray | MixedCells:
    """Return Python objects as typed values, each by its own type.

    Text, booleans, integers, numbers, dates and times keep their kind, whether of Python, numpy or
    pandas. A `Decimal` is the nearest double, or its digits if it is whole and too large for one.
    None, NaN, NaT and NA are missing. Anything else becomes binary, which no column takes.
    """
    import pandas as pd  # type: ignore[import-untyped,unused-ignore]  # slow to import

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
        reader = next(reader for types, reader in _READERS if issubclass(kind, types))
        for taken, values in reader(objects[rows]):
            if not taken.any():
                continue
            distinct = values.dictionary_encode()
            indices[rows[taken]] = distinct.indices.to_numpy() + sum(map(len, parts))
            parts.append(distinct.dictionary)
    return MixedCells(tuple(parts), indices)


def _all(values: pa.Array) -> Parted:
    yield np.ones(len(values), dtype=np.bool_), values


def _unreadable_objects(cells: Objects) -> Parted:
    return _all(pa.array([b""] * len(cells), pa.binary()))


def _texts(cells: Objects) -> Parted:
    try:
        return _all(pa.array(cells, pa.string()))
    except UnicodeEncodeError:  # half of a surrogate pair: no text, but a private cell
        whole = [cell.encode("utf-8", "surrogatepass").decode("utf-8", "replace") for cell in cells]
        return _all(pa.array(whole, pa.string()))


def _integers(cells: Objects) -> Parted:
    """Yield integers of 64 bits, and others as digits."""
    fits = np.array([-(2**63) <= int(cell) < 2**63 for cell in cells])
    yield fits, pa.array(cells[fits].astype(np.int64))
    yield ~fits, pa.array([str(int(cell)) for cell in cells[~fits]], pa.string())


def _decimals(cells: Objects) -> Parted:
    """Yield decimals as doubles, and whole numbers that a double may not hold as digits.

    From 10^40 on, no whole number is an identifier, and a double is exact enough.
    """
    large = np.array([
        cell.is_finite()
        and 10 ** _DIGITS[pa.float64()] <= abs(cell) < 10**40
        and cell == cell.to_integral_value()
        for cell in cells
    ])  # fmt: skip
    yield ~large, pa.array([_nearest(cell) for cell in cells[~large]], pa.float64())
    yield large, pa.array([f"{cell:f}".partition(".")[0] for cell in cells[large]], pa.string())


def _nearest(cell: Any) -> float:
    """Return the nearest double, which is whole only if the cell is."""
    number = float(cell)
    if number.is_integer() and number != cell:
        return math.nextafter(number, math.inf if cell > number else -math.inf)
    return number


def _moments(cells: Objects) -> Parted:
    """Yield times of day by time zone: the wall clock and UTC are both needed later."""
    plain = np.array(
        [c.to_pydatetime(warn=False) if hasattr(c, "to_pydatetime") else c for c in cells],
        dtype=object,
    )
    zones = np.array([_zone(cell) for cell in plain], dtype=object)
    for zone in dict.fromkeys(zones.tolist()):
        taken = zones == zone
        if zone == "?":
            yield taken, pa.array([b""] * int(taken.sum()), pa.binary())
        else:
            yield taken, pa.array(plain[taken].tolist(), pa.timestamp("us", zone or None))


def _zone(moment: dt.datetime) -> str:
    """Return the time zone of a moment as Arrow names it; "" without one, "?" without a name."""
    offset = moment.utcoffset()
    if offset is None:
        return ""
    name = getattr(moment.tzinfo, "key", None) or getattr(moment.tzinfo, "zone", None)
    if name is not None:
        return str(name)
    minutes, rest = divmod(offset, dt.timedelta(minutes=1))
    sign = "-" if minutes < 0 else "+"
    return "?" if rest else f"{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


_READERS: tuple[tuple[Any, Callable[[Objects], Parted]], ...] = (
    (str, _texts),
    ((bool, np.bool_), lambda cells: _all(pa.array(cells.astype(np.bool_)))),
    (np.timedelta64, _unreadable_objects),  # which numpy counts among the integers
    ((int, np.integer), _integers),
    # Half and single precision are read by their shortest text.
    ((np.float16, np.float32), lambda cells: _all(pa.array(cells.astype(np.float32)))),
    (
        (float, np.floating),
        lambda cells: _all(pa.array([_nearest(cell) for cell in cells], pa.float64())),
    ),
    (decimal.Decimal, _decimals),
    (dt.datetime, _moments),
    (dt.date, lambda cells: _all(pa.array(cells, pa.date32()))),
    (np.datetime64, lambda cells: _all(pa.array(np.array(cells.tolist(), "datetime64[us]")))),
    (object, _unreadable_objects),
)
"""Types and their readers, the more special ones first."""


def unreadable_column(label: str, name: str, _: Exception) -> DataError:
    """Return the error that a library cannot read the cells of a column."""
    return DataError(f"{label}: column {name!r} cannot be read: write it as text")


# Errors from libraries that read private cells, replaced by ones that quote none of them.

T = TypeVar("T")


def redacted(action: Callable[[], T], explain: Callable[[Exception], AdaptiveQsError]) -> T:
    """Return the result of `action`, or raise the error that `explain` makes of its exception.

    Arrow and pandas quote cells in their messages. The new error is raised after the old one has
    been dropped, so that not even its `__context__` leads back to a cell. `explain` must not copy
    the message. Errors of this package pass unchanged.
    """
    try:
        return action()
    except AdaptiveQsError:
        raise
    except MemoryError:
        refusal: Exception = MemoryError("no memory is left to read the table")
    except Exception as error:  # noqa: BLE001  (nothing that may quote a cell gets through)
        refusal = explain(error)
    raise refusal
