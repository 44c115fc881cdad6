"""Reading cells: Arrow arrays of text or typed values as integers, numbers, booleans, moments.

Every reader returns a value array and a mask of the cells it could read; it never raises on what
a cell holds, so no cell can end up in a message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from adaptive_qs.data.categories import FALSE_WORDS, TRUE_WORDS
from adaptive_qs.data.column import ASCII_SPACE
from adaptive_qs.data.moments import read_moment

Mask = NDArray[np.bool_]

_INTEGER = r"^[+-]?0*[0-9]{1,18}(\.0*)?$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_EXACT_INTEGERS = 2.0**53
_TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def normalise(values: pa.Array) -> pa.Array | None:
    """Cells as string (stripped), int64, uint64, float64, bool or timestamp; None for other types.

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
    if pa.types.is_timestamp(kind):
        return values
    if pa.types.is_boolean(kind):
        return values
    return None


def as_text(values: pa.Array) -> pa.StringArray:
    """Normalised cells as text: 39.0 is "39", true is "true", moments are ISO 8601.

    Whole numbers are written alike whether they come as integers or as numbers, as long as a
    double holds them exactly; moments are in UTC, without a time of day at midnight and without
    parts of a second that are 0.
    """
    if pa.types.is_float64(values.type):
        whole = pc.and_(
            pc.equal(values, pc.floor(values)), pc.less(pc.abs(values), _EXACT_INTEGERS)
        )
        integers = pc.if_else(whole, values, 0.0).cast(pa.int64())
        return pc.if_else(whole, integers.cast(pa.string()), values.cast(pa.string()))
    if pa.types.is_timestamp(values.type):
        text = values.cast(pa.timestamp(values.type.unit)).cast(pa.string())
        return pc.replace_substring_regex(text, r"(\.0+|( 00:00:00)(\.0+)?)$", "")
    return values.cast(pa.string())


def as_integers(values: pa.Array) -> tuple[NDArray[np.int64], Mask]:
    """Cells as integers; "39" and 39.0 are, 39.5 and "1e3" are not."""
    if pa.types.is_string(values.type):
        readable = pc.match_substring_regex(values, _INTEGER)
        digits = pc.replace_substring_regex(values, r"^\+|\.0*$", "")
        return _filled(pc.if_else(readable, digits, None).cast(pa.int64()), np.int64(0))
    if values.type == pa.uint64():
        values = pc.if_else(pc.less(values, 2**62), values, None).cast(pa.int64())
    if pa.types.is_int64(values.type):
        return _filled(values, np.int64(0))
    if pa.types.is_float64(values.type):
        numbers, readable = as_numbers(values)
        readable &= (numbers == np.floor(numbers)) & (np.abs(numbers) < 2.0**62)
        return np.where(readable, numbers, 0).astype(np.int64), readable
    return _unreadable(values, np.int64(0))


def as_numbers(values: pa.Array) -> tuple[NDArray[np.float64], Mask]:
    """Cells as finite real numbers."""
    if pa.types.is_string(values.type):
        readable = pc.match_substring_regex(values, _NUMBER)
        digits = pc.utf8_ltrim(values, characters="+")
        values = pc.if_else(readable, digits, None).cast(pa.float64())
    elif pa.types.is_integer(values.type):
        values = values.cast(pa.float64(), safe=False)
    if not pa.types.is_float64(values.type):
        return _unreadable(values, np.float64(0))
    numbers, readable = _filled(values, np.float64(0))
    return numbers, readable & np.isfinite(numbers)


def as_booleans(values: pa.Array) -> tuple[NDArray[np.int64], Mask]:
    """Cells as 0 and 1."""
    if pa.types.is_boolean(values.type):
        return _filled(values.cast(pa.int64()), np.int64(0))
    words = pc.utf8_lower(as_text(values))
    true = _is_in(words, TRUE_WORDS)
    return true.astype(np.int64), true | _is_in(words, FALSE_WORDS)


def as_seconds(
    values: pa.Array, date_format: str | None, wall_clock: bool
) -> tuple[NDArray[np.int64], Mask]:
    """Cells as whole seconds since 1970.

    Args:
        values: normalised cells.
        date_format: how texts are written, as in strptime; ISO 8601 without it.
        wall_clock: of cells with a time zone, whether to take what the clock there shows; in UTC
            otherwise.
    """
    if pa.types.is_timestamp(values.type):
        if values.type.tz is not None:
            values = pc.local_timestamp(values) if wall_clock else values
            values = values.cast(pa.timestamp(values.type.unit))
        ticks, readable = _filled(values.cast(pa.int64()), np.int64(0))
        return ticks // _TICKS_PER_SECOND[values.type.unit], readable
    moments = [
        None if text is None else read_moment(text, date_format, wall_clock)
        for text in as_text(values).to_pylist()
    ]
    return _filled(pa.array(moments, pa.int64()), np.int64(0))


def is_marker(values: pa.Array, markers: tuple[str, ...], numeric: bool) -> Mask:
    """Which cells are one of the markers, as text or, where asked, as a number."""
    found = _is_in(as_text(values), frozenset(markers))
    numbers = [float(marker) for marker in markers if re.fullmatch(_NUMBER, marker)]
    if numeric and numbers:
        cells, readable = as_numbers(values)
        found |= readable & np.isin(cells, numbers)
    return found


def unescaped(values: pa.Array, escapes: Mapping[str, str]) -> pa.Array:
    """Normalised cells with the texts themselves where CSV has their escaped forms."""
    if not escapes or not pa.types.is_string(values.type):
        return values
    place = pc.index_in(values, value_set=pa.array([*escapes.values()], pa.string()))
    return pc.coalesce(pa.array([*escapes], pa.string()).take(place), values)


def _is_in(texts: pa.StringArray, words: frozenset[str]) -> Mask:
    found = pc.is_in(texts, value_set=pa.array(sorted(words), pa.string()))
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _filled(values: pa.Array, filler: Any) -> tuple[NDArray[Any], Mask]:
    readable = values.is_valid().to_numpy(zero_copy_only=False)
    return values.fill_null(filler.item()).to_numpy(zero_copy_only=False), readable.copy()


def _unreadable(values: pa.Array, filler: Any) -> tuple[NDArray[Any], Mask]:
    return np.full(len(values), filler), np.zeros(len(values), dtype=np.bool_)
