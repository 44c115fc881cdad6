"""Edges of bins with about equally many rows each, from noisy counts of cells: post-processing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

LEAST_SHARE = 0.25
"""Fewest rows that a bin aims for, as a part of an equal share of all rows."""
HEAVY_DEVIATIONS = 3.0
"""Fewest rows of a heavy cell, in standard deviations of the noise."""
TAIL_SHARE = 0.1
"""Most rows that are cut off a learnt end, as a part of an equal share."""
TAIL_DEVIATIONS = 2.0
"""And in standard deviations of the noise."""


def quantile_edges(
    counts: Floats,
    prefix_std: float,
    most_bins: int,
    cut: tuple[bool, bool],
    fixed: Sequence[int] = (),
) -> Positions:
    """Positions of the ends of the bins among the ends of the cells, ascending.

    The sums of the first cells are made non-negative and monotone (isotonic regression, which
    brings none of them further from the truth than the worst of them was). Heavy cells, with more
    rows than the other bins get, are bins by themselves. The others have their edges next to the
    quantiles of the rows in light cells.

    Args:
        counts: shape (cells,), noisy counts.
        prefix_std: standard deviation of the noise of such a sum.
        most_bins: number of bins at most, two or more.
        cut: whether the lower and the upper end may be cut off where there is hardly a row.
        fixed: positions that are edges in any case, if that leaves two bins for the rows.

    Returns:
        Two or more positions in 0 .. cells, most_bins + 1 at most; the two outermost where there
        are no more rows than noise.
    """
    sums = np.maximum(isotonic_regression(np.cumsum(counts)).x, 0.0)
    if sums[-1] <= prefix_std:
        return np.array([0, counts.size])
    fixed = fixed if most_bins - len(fixed) >= 2 else ()
    most_bins -= len(fixed)
    mass = np.diff(sums, prepend=0.0)
    share = float(sums[-1]) / most_bins
    few = min(TAIL_DEVIATIONS * prefix_std, TAIL_SHARE * share)
    low, high = _ends(mass, few, cut)
    heavy = _heavy_cells(mass, most_bins, HEAVY_DEVIATIONS * prefix_std)
    light = mass.copy()
    light[heavy] = 0.0
    aim = max(LEAST_SHARE * share, prefix_std)
    bins = min(most_bins - 2 * heavy.size, max(1, int(light.sum() / aim)))
    inner = np.concatenate([heavy, heavy + 1, _quantiles(light, bins)])
    return np.unique(np.concatenate([[low, *fixed, high], np.clip(inner, low, high)]))


def _ends(mass: Floats, few: float, cut: tuple[bool, bool]) -> tuple[int, int]:
    """Positions between which all but few rows lie, or the outermost ones."""
    sums = np.concatenate([[0.0], np.cumsum(mass)])
    low = int(np.searchsorted(sums, few, side="right")) - 1 if cut[0] else 0
    high = int(np.searchsorted(sums, sums[-1] - few)) if cut[1] else mass.size
    return low, high


def _heavy_cells(mass: Floats, most_bins: int, least: float) -> Positions:
    """Cells with at least an equal share of what all heavier cells leave; two edges each."""
    heaviest_first = np.argsort(-mass, kind="stable")
    left = float(mass.sum())
    for found, cell in enumerate(heaviest_first.tolist()):
        bins = most_bins - 2 * found
        if bins <= 2 or mass[cell] < max(left / bins, least):
            return heaviest_first[:found]
        left -= float(mass[cell])
    return heaviest_first


def _quantiles(mass: Floats, bins: int) -> Positions:
    """Ends of cells next to the quantiles that make so many bins."""
    sums = np.concatenate([[0.0], np.cumsum(mass)])
    targets = sums[-1] * np.arange(1, bins) / bins
    above = np.searchsorted(sums, targets)
    below = np.searchsorted(sums, targets, side="right") - 1
    return np.where(targets - sums[below] < sums[above] - targets, below, above)
