"""How far a table of independent columns would be from the true table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, gammaln, xlog1py, xlogy


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
    there = (1 - q) * _chance(whole, rows - 1, q)
    apart = mean - wanted + 2 * ((wanted - mean) * up_to + mean * there)
    return float(np.maximum(apart, 0).sum() / rows + max(0.0, 1 - q.sum()))


def _chance(k: NDArray[np.float64], rows: int, q: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(Y = k) of binomial numbers; 0 for more than the rows."""
    k, beyond = np.minimum(k, rows), k > rows
    ways = gammaln(rows + 1) - gammaln(k + 1) - gammaln(rows - k + 1)
    chance: NDArray[np.float64] = np.exp(ways + xlogy(k, q) + xlog1py(rows - k, -q))
    return np.where(beyond, 0.0, chance)
