"""Queries that count a stretch of one axis, under noise that does not know one cell from another.

Marginal, prefix, range and circular queries sum the cells of an arc. Where the covariance of the
cells is circulant, C_ij = c_{i−j}, an arc of L cells has variance L c₀ + 2 Σ_{k<L} (L − k) c_k
wherever it lies: no matrix over the cells, and no array over the queries, is needed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.matrix import CenteringFactor, Factor
from adaptive_qs.strategy.restricted.fourier_factor import FourierFactor
from adaptive_qs.workload.axis_queries import Circular, Marginal, Prefix, Range
from adaptive_qs.workload.queries import Queries

Array = NDArray[np.float64]


def arc_lengths(queries: Queries) -> NDArray[np.int64] | None:
    """The lengths that occur, where every query counts one arc; None for other families."""
    if isinstance(queries, Marginal):
        return np.ones(1, dtype=np.int64)
    if isinstance(queries, Prefix | Range | Circular):
        return np.arange(1, queries.size + 1)
    return None


def arc_variances(factor: Factor) -> Array | None:
    """Variance of an arc of every length 0 .. n, shape (n + 1,); None for another covariance."""
    if len(factor.shape) != 1:
        return None
    (n,) = factor.shape
    length = np.arange(n + 1)
    if isinstance(factor, CenteringFactor):
        return np.asarray((n - 1) / n * length * (1 - length / n), dtype=np.float64)
    if not isinstance(factor, FourierFactor):
        return None
    c = factor.kernel
    before = np.concatenate([[0.0, 0.0], np.cumsum(c[1:])])
    moment = np.concatenate([[0.0, 0.0], np.cumsum(np.arange(1, n) * c[1:])])
    return np.maximum(length * c[0] + 2 * (length * before - moment), 0.0)
