"""Quantiles that part a range into bins, for `propose` only: they are as private as the data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_TAILS = (0.99, 0.01, 0.999, 0.001)
"""Further cuts, in this order, where an end bin is long."""
_LONG = 3
"""An end bin is long if it is so many times as wide as the next."""
_FEW = 5
"""Rows that a bin of a tail must exceed."""

Floats = NDArray[np.float64]


def quantile_cuts(values: Floats, weights: Floats, bins: int) -> list[float]:
    """Distinct quantiles that part the rows into at most so many bins, ascending.

    Up to a quarter of them go into long tails, the others hold about equal shares.

    Args:
        values: shape (distinct,), ascending.
        weights: shape (distinct,), rows with each value.
        bins: at least 1.
    """
    rows = weights.sum()
    running = np.cumsum(weights)

    def at(shares: Sequence[float]) -> list[float]:
        ranks = np.searchsorted(running, np.asarray(shares) * rows)
        return sorted(set(values[np.minimum(ranks, len(values) - 1)].tolist()))

    even = [k / bins for k in range(1, bins)]
    tails = [
        share
        for share in _TAILS
        if min(share, 1 - share) * rows > _FEW and _is_long(values, at(even), upper=share > 0.5)
    ][: bins // 4]
    even = [k / (bins - len(tails)) for k in range(1, bins - len(tails))]
    return at([*even, *tails])


def _is_long(values: Floats, cuts: Sequence[float], upper: bool) -> bool:
    """Whether the bin at this end is much wider than its neighbour."""
    if len(cuts) < 2:
        return False
    if upper:
        return float(values[-1]) - cuts[-1] > _LONG * (cuts[-1] - cuts[-2])
    return cuts[0] - float(values[0]) > _LONG * (cuts[1] - cuts[0])
