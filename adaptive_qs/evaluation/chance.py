"""How far a fresh sample and independent columns would be from the true table, by chance alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, comb, gammaln, xlog1py, xlogy

from adaptive_qs.evaluation.limits import FEW

Numbers = NDArray[np.float64]

EXACT = 128
"""Cells with more rows are thinned in the mean only: the error is below 1/(8·128) of their part."""
WELL_FILLED = 1 - 2 / math.pi
"""Variance of the absolute value of a normal deviate."""


def fresh_sample_l1(counts: NDArray[np.integer], rows: int) -> float:
    """Expected L1 distance between the true table and another sample of its population.

    What was never seen cannot be counted, so the true table is split instead. The mean distance of
    two disjoint parts, over all ways to draw them, is an unbiased estimate for two samples of the
    parts' sizes, rare and unseen values included; it is computed exactly for parts in the ratio of
    the tables (halves where the synthetic table is longer) that take all rows, a half and a
    quarter. On from there the distance falls by (1/n + 1/m)^s, 0 ≤ s ≤ 1/2: s is 0 where every
    cell holds a row at most, 1/2 where all are well filled, and is extrapolated from the three.

    Args:
        counts: rows of every cell of the true table.
        rows: of the other sample.

    Returns:
        The distance of shares, from 0 to 2.
    """
    occupied = np.asarray(counts).ravel()
    cells, times = np.unique(occupied[occupied > 0], return_counts=True)
    true_rows = int(cells @ times)
    if true_rows < 2:
        return 2.0 if rows else 0.0
    part = max(0.5, true_rows / (true_rows + rows))
    # fixed sizes of the parts instead of binomial ones: (N − c)/(N − 1) of the variance
    weights = times * np.sqrt((true_rows - cells) / (true_rows - 1))
    full, half, quarter = (
        float(weights @ _apart(cells, keep, part)) / (part * (1 - part) * true_rows * keep)
        for keep in (1.0, 0.5, 0.25)
    )
    if full <= 0 or half <= 0 or quarter <= 0:
        return 0.0
    last, before = math.log2(half / full), math.log2(quarter / half)
    slope = min(0.5, max(0.0, last + max(0.0, last - before)))
    nearer = (1 / true_rows + 1 / rows) * true_rows * part * (1 - part)
    return min(2.0, full * nearer**slope)


def chance_l1(true_rows: int, rows: int, sparse: float, deviations: float = 3) -> float:
    """How much further than expected a fresh sample may be by chance.

    The difference of the shares of a cell has variance p (1/n + 1/m) at most. Its absolute value
    has 1 − 2/π of that where the cell is well filled, and up to all of it where it holds few rows;
    different cells vary against each other rather than together.

    Args:
        true_rows: n.
        rows: m.
        sparse: share of the rows in cells with few of them.
        deviations: standard deviations that it may be.
    """
    part = WELL_FILLED + (1 - WELL_FILLED) * sparse
    return deviations * math.sqrt(part * (1 / true_rows + 1 / rows))


def _apart(cells: NDArray[np.integer], keep: float, part: float) -> Numbers:
    """Mean of |X − c·part| for X of the c rows of a cell that fall into the part, by cell.

    Every row of the table is kept with probability ``keep`` beforehand.
    """
    if keep == 1:
        return _deviation(cells, part)
    small = cells[cells <= EXACT]
    thinned = _thinning(keep)[small] @ _deviation(np.arange(EXACT + 1), part)
    mean = cells[cells > EXACT] * keep
    both = _deviation(np.floor(mean), part) + _deviation(np.ceil(mean), part)
    return np.concatenate([thinned, both / 2])


@cache
def _thinning(keep: float) -> Numbers:
    """P(k of n rows are kept), shape (n, k), for n and k up to ``EXACT``."""
    number, kept = np.ogrid[: EXACT + 1, : EXACT + 1]
    chances: Numbers = comb(number, kept) * keep**kept * (1 - keep) ** np.abs(number - kept)
    return chances


def _deviation(number: NDArray, part: float) -> Numbers:
    """Mean absolute deviation of a binomial number: 2 ν C(n, ν) p^ν (1 − p)^(n−ν+1), ν = ⌊np⌋ + 1.

    De Moivre's formula; Diaconis and Zabell 1991, "Closed form summation for classical
    distributions", Statistical Science 6.
    """
    n = np.asarray(number, dtype=np.float64)
    v = np.minimum(np.floor(n * part) + 1, n)
    ways = gammaln(n + 1) - gammaln(v + 1) - gammaln(n - v + 1)
    mean: Numbers = 2 * v * np.exp(ways + v * math.log(part) + (n - v + 1) * math.log1p(-part))
    return mean


def sparse_share(counts: NDArray[np.integer]) -> float:
    """Share of the rows in cells with fewer than ``FEW`` of them."""
    return float(counts[counts < FEW].sum() / counts.sum())


def independent_l1(
    counts: NDArray[np.integer], singles: Sequence[NDArray[np.float64]], rows: int
) -> float:
    """Expected L1 distance of a table with the true single columns, drawn independently.

    Its cells are binomial numbers Y of m rows with the product q of the single shares. With
    ν = ⌊x⌋, E|Y − x| = mq − x + 2 (x P(Y ≤ ν) − mq P(Y' ≤ ν − 1)), Y' of m − 1 rows, where
    P(Y' ≤ ν − 1) = P(Y ≤ ν) − (1 − q) P(Y' = ν); a cell without a true row adds its q.

    Args:
        counts: of the true table, one axis for each column.
        singles: shares of the codes of every column.
        rows: m, of the table of independent columns.
    """
    true_rows = int(counts.sum())
    codes = np.nonzero(counts)
    q = np.ones(len(codes[0]))
    for share, code in zip(singles, codes, strict=True):
        q = q * share[code]
    wanted = counts[codes] * (rows / true_rows)
    whole = np.floor(wanted)
    mean = rows * q
    up_to = bdtr(np.minimum(whole, rows), rows, q)
    k, last = np.minimum(whole, rows - 1), rows - 1
    ways = gammaln(last + 1) - gammaln(k + 1) - gammaln(last - k + 1)
    equal = np.exp(ways + xlogy(k, q) + xlog1py(last - k, -q))
    there = (1 - q) * np.where(whole > last, 0.0, equal)
    apart = mean - wanted + 2 * ((wanted - mean) * up_to + mean * there)
    return float(np.maximum(apart, 0).sum() / rows + max(0.0, 1 - q.sum()))
