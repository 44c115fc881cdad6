"""The public grid of round numbers between two bounds, from which the edges of bins are taken."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.adaptive.preprocessing.magnitudes import Number, RangeColumn
from adaptive_qs.data.private import PrivateIntegerColumn

UNIFORM_CELLS = 4096
"""Cells of equal width at most."""
_DIGITS_BELOW = 12
"""Digits between the largest value and the unit of a numeric column without decimals."""
_DECADES = 6
"""Decades below the largest value that such a column resolves to two digits."""

Points = NDArray[np.int64] | NDArray[np.float64]


def grid_points(column: RangeColumn, low: Number, high: Number) -> Points:
    """Ends of the cells [point, next point) that hold low .. high, ascending.

    The points are multiples of a step {1, 2, 5}·10^e that makes at most ``UNIFORM_CELLS`` cells;
    where that is coarser, also the numbers with two digits; and 0 with the unit of the column, so
    that 0 has a cell of its own. The unit is 1 for integers, 10^-decimals for numbers with
    decimals, and twelve digits below the largest magnitude for others. So a range of few integers
    has a cell for each.

    Returns:
        For integers the last point is high + 1. For numbers it is high, in the last cell; where low
        and high are equal it is the next number.
    """
    if isinstance(column, PrivateIntegerColumn):
        start, stop = int(low), int(high) + 1
        inner = _inner(start, stop, 0)
        return np.array([start, *inner, stop], dtype=np.int64)
    if low == high:
        half_unit = 0.0 if column.decimals is None else 0.5 * 10.0**-column.decimals
        return np.array([low, max(low + half_unit, math.nextafter(low, math.inf))])
    top = max(abs(low), abs(high))
    if column.decimals is None:
        exponent = math.floor(math.log10(top)) + 1 - _DIGITS_BELOW
        least = _DIGITS_BELOW - _DECADES - 1
    else:
        exponent, least = -column.decimals, 0
    unit = Fraction(10) ** exponent
    inner = _inner(Fraction(low) / unit, Fraction(high) / unit, least)
    points = (float(point * unit) for point in inner)
    return np.unique([float(low), *(p for p in points if low < p < high), float(high)])


def _inner(start: Fraction | int, stop: Fraction | int, least: int) -> list[int]:
    """Round numbers of units strictly between two ends, ascending.

    Args:
        start: lower end, in units.
        stop: upper end, in units.
        least: exponent of the smallest step of two-digit numbers.
    """
    step = next(s for s in _steps() if (stop - start) / s <= UNIFORM_CELLS)
    first, last = math.floor(start) + 1, math.ceil(stop) - 1
    if step == 1:
        return list(range(first, last + 1))
    points = set(range(-(-first // step) * step, last + 1, step)) | {0, 1}
    exponent = least
    while 10**exponent < step:
        two_digits = range(1 if exponent == least else 10, 100)
        points.update(sign * digits * 10**exponent for digits in two_digits for sign in (-1, 1))
        exponent += 1
    return sorted(point for point in points if first <= point <= last)


def _steps() -> Iterator[int]:
    exponent = 0
    while True:
        yield from (10**exponent, 2 * 10**exponent, 5 * 10**exponent)
        exponent += 1
