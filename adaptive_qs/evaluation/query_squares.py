"""Sums of squared answers of queries of any family, without listing the answers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.workload.axis_queries import Circular, Range
from adaptive_qs.workload.queries import Queries

Array = NDArray[np.float64]
MOST_GRAM, MOST_STEPS = 2_048, 2**28
"""Rows of a Gram matrix, and multiplications, beyond which the variance of squares is bounded."""


def squared_error(queries: tuple[Queries, ...], difference: Array) -> float:
    """Σ (Qd)² for a product of queries.

    Args:
        queries: one for each axis of the difference, or one for them all.
        difference: d, over the cells of a set of attributes.
    """
    for factor in queries:
        difference = np.moveaxis(_same_length(factor, difference), 0, -1)
    return float((difference**2).sum())


def _same_length(queries: Queries, table: Array) -> Array:
    """Values along the first axis whose squares have the sum of those of the answers.

    Ranges and arcs are n² and more. With the sums P_0 .. P_n of the first cells, the squares of
    P_b − P_a over all a < b add up to (n + 1) Σ (P − mean P)². The Gram matrix of arcs is
    circulant, so its square root is applied by Fourier transforms.
    """
    trailing = (1,) * (table.ndim - 1)
    if isinstance(queries, Range):
        sums = np.concatenate([np.zeros((1, *table.shape[1:])), np.cumsum(table, axis=0)])
        ranges: Array = math.sqrt(len(sums)) * (sums - sums.mean(axis=0))
        return ranges
    if isinstance(queries, Circular):
        spectrum = np.sqrt(np.maximum(np.fft.rfft(queries.circulant()).real, 0.0))
        transformed = np.fft.rfft(table, axis=0) * spectrum.reshape(-1, *trailing)
        arcs: Array = np.fft.irfft(transformed, queries.size, axis=0)
        return arcs
    return queries.answer(table)


def length_of(queries: Queries) -> int:
    """Length of the first axis that :func:`_same_length` gives."""
    if isinstance(queries, Range):
        return queries.size + 1
    return queries.size if isinstance(queries, Circular) else queries.num_queries


def row_squares(queries: tuple[Queries, ...], shares: Array) -> float:
    """Σ_x p_x Σ_q Q[q, x]²: what one row of a table with these shares adds to the squares, on
    average.

    Args:
        queries: as for :func:`squared_error`.
        shares: p, over the cells of a set of attributes.
    """
    for factor in queries:
        norms = factor.column_norms().reshape(factor.shape)
        shares = np.tensordot(norms, shares, axes=norms.ndim)
    return float(shares)


def deviation_of_squares(queries: tuple[Queries, ...], shares: Array) -> float:
    """Standard deviation of Σ (Qd)², where d is normal with the covariance Σ of one sampled row.

    It is √(2 tr(GΣGΣ)) with G = QᵀQ and Σ = diag(p) − ppᵀ, and the trace is
    pᵀ(G∘G)p − 2 Σ_x p_x (Gp)_x² + (pᵀGp)². Where G is large it is bounded by √2 tr(GΣ), which it is
    where a single direction makes all of the error.

    Args:
        queries: as for :func:`squared_error`.
        shares: p, over the cells of a set of attributes.
    """
    rows = [math.prod(factor.shape) for factor in queries]
    if max(rows) > MOST_GRAM or shares.size * sum(rows) > MOST_STEPS:
        trace = row_squares(queries, shares) - squared_error(queries, shares)
        return math.sqrt(2) * max(0.0, trace)
    grams = [factor.gram() for factor in queries]
    p = shares.reshape(rows)
    once, twice = _applied(grams, p), _applied([gram**2 for gram in grams], p)
    trace = (p * twice).sum() - 2 * (p * once**2).sum() + (p * once).sum() ** 2
    return math.sqrt(2 * max(0.0, float(trace)))


def _applied(matrices: Sequence[Array], table: Array) -> Array:
    """A Kronecker product of square matrices times a table with an axis for each of them."""
    for axis, matrix in enumerate(matrices):
        table = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
    return table
