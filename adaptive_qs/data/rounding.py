"""Round numbers for the ends of proposed bins."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

_NEARER = 4
"""An end of the range moves outwards by less than this part of its bin."""
_FINEST = 1e-15
"""Numbers are rounded to a unit of at least this part of them, which keeps their digits apart."""
_LEAST, _MOST = 1e-290, sys.float_info.max
"""Limits of the units, within the doubles."""


def round_cut(value: float, spacing: float, decimals: int | None) -> float:
    """A cut between bins to two digits, or as many as it takes to stay within the spacing.

    Args:
        value: finite.
        spacing: how far it may move; infinity where it exceeds the doubles.
        decimals: decimal places of all values, or None for values off any grid.
    """
    if value == float(f"{value:.1e}") and (decimals is None or value == round(value, decimals)):
        return value  # two digits already
    scale = min(abs(value) or _MOST, max(spacing, abs(value) * _FINEST, _LEAST) * 10)
    exponent = math.floor(math.log10(scale)) - 1
    return _multiple(value, 1, exponent if decimals is None else max(exponent, -decimals), round)


def round_end(value: float, spacing: float, decimals: int | None, upwards: bool) -> float:
    """An end of the range moved outwards to a round number, by at most half its bin.

    A power of ten stays (1 may stand for "at least one"), a number nearer to 0 than half its bin
    becomes 0, and others move to a multiple of 1, 2 or 5 times a power of ten.

    Args:
        value: finite, the smallest or largest value.
        spacing: width of its bin; infinity where it exceeds the doubles.
        decimals: decimal places of all values, or None for values off any grid.
        upwards: whether it is the largest.
    """
    if value and f"{abs(value):.15e}".startswith("1.000000000000000"):
        return value
    outwards = value < 0 if upwards else value > 0
    if outwards and abs(value) <= spacing / 2:
        return 0.0
    most = max(min(spacing, _MOST) / _NEARER, abs(value) * _FINEST, _LEAST)
    exponent = math.floor(math.log10(most))
    factor = max(f for f in (1, 2, 5) if f == 1 or f * 10.0**exponent <= most)
    if decimals is not None and exponent < -decimals:
        factor, exponent = 1, -decimals
    rounded = _multiple(value, factor, exponent, math.ceil if upwards else math.floor)
    return (max if upwards else min)(rounded, value)


def _multiple(value: float, factor: int, exponent: int, rounding: Callable[[float], int]) -> float:
    """The value to a multiple of factor · 10^exponent; one that is there already stays."""
    unit = factor * 10.0**exponent
    if not unit:
        return 0.0
    near = round(value / unit)
    close = abs(value / unit - near) < 1e-9 * max(1.0, abs(near))
    return float(f"{factor * (near if close else rounding(value / unit))}e{exponent}")
