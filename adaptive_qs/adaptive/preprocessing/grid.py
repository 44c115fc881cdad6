"""The public grid of round numbers between two bounds, from which the edges of bins are taken."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.adaptive.preprocessing.magnitudes import Number, RangeColumn
from adaptive_qs.data.private import PrivateIntegerColumn, PrivateNumericColumn

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
        and high are equal it is a unit more, half a unit for numbers with decimals.
    """
    if isinstance(column, PrivateIntegerColumn):
        start, stop = int(low), int(high) + 1
        inner = _inner(start, stop, 0)
        return np.array([start, *inner, stop], dtype=np.int64)
    exponent = _unit_exponent(column, low, high)
    unit = Fraction(10) ** exponent
    if low == high:
        width = float(unit) if column.decimals is None else 0.5 * float(unit)
        return np.array([low, max(low + width, math.nextafter(low, math.inf))], dtype=np.float64)
    least = _DIGITS_BELOW - _DECADES - 1 if column.decimals is None else 0
    inner = _inner(Fraction(low) / unit, Fraction(high) / unit, least)
    # A quotient of integers is rounded once, as a fraction is, and has no common factor to find.
    points = [point * unit.numerator / unit.denominator for point in inner]
    return np.unique([float(low), *(p for p in points if low < p < high), float(high)])


def declared_points(column: RangeColumn, low: Number, high: Number) -> Points:
    """The grid of low .. high, and the ends of the cells between it and the declared ends.

    On either side that is one cell, or one for 0 with one on either side of it.

    Args:
        column: with or without declared ends.
        low: at least the declared smallest value.
        high: at most the declared largest value.
    """
    points = grid_points(column, low, high)
    whole = isinstance(column, PrivateIntegerColumn)
    first = points[0] if column.min is None else column.min
    last = points[-1] if column.max is None else column.max + whole
    unit = 1 if whole else 10.0 ** _unit_exponent(column, low, high)
    zero = np.array([0, unit], dtype=points.dtype)
    zero = zero[(zero < points[0]) | (zero > points[-1])]
    inner = np.concatenate([points, zero])
    ends = np.array([first, last], dtype=points.dtype)
    return np.unique(np.concatenate([ends, inner[(first < inner) & (inner < last)]]))


def _unit_exponent(column: RangeColumn, low: Number, high: Number) -> int:
    """Decimal exponent of the unit of a numeric column."""
    if isinstance(column, PrivateNumericColumn) and column.decimals is not None:
        return -column.decimals
    top = max(abs(low), abs(high)) or 1.0
    return math.floor(math.log10(top)) + 1 - _DIGITS_BELOW


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
