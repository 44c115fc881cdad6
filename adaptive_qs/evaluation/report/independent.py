"""How far a table of independent columns would be from the true table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr


def independent_l1(
    counts: NDArray[np.integer], singles: Sequence[NDArray[np.float64]], rows: int
) -> float:
    """Expected L1 distance of a table with the true single columns, drawn independently.

    Its cells are binomial numbers Y of m rows with the product q of the single shares. With
    ν = ⌊x⌋, E|Y − x| = mq − x + 2 (x P(Y ≤ ν) − mq P(Y' ≤ ν − 1)), Y' of m − 1 rows; a cell
    without a true row adds its q.

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
    up_to = _at_most(whole, rows, q)
    below_one_less = _at_most(whole - 1, rows - 1, q)
    mean = rows * q
    apart = mean - wanted + 2 * (wanted * up_to - mean * below_one_less)
    return float(np.maximum(apart, 0).sum() / rows + max(0.0, 1 - q.sum()))


def _at_most(k: NDArray[np.float64], rows: int, q: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(Y ≤ k) of binomial numbers, for any whole k."""
    chance = bdtr(np.clip(k, 0, rows), rows, q)
    return np.where(k < 0, 0.0, chance)
