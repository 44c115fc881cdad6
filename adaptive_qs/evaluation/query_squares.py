"""Sums of squared answers of queries of any family, without listing the answers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.workload.axis_queries import Circular, Range
from adaptive_qs.workload.queries import Queries

Array = NDArray[np.float64]


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
