"""Variance of every query under a residual mechanism, in closed form.

The noise of residual τ spreads evenly over the axes outside τ, so a product of queries on γ ⊇ τ
sees it as σ²_τ · diag(Q V⁺_τ Qᵀ) over the axes of τ times the squared means of the others; the
variances of the residuals in γ add up (He et al., Algorithm 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.matrix import Factor, Strategy
from adaptive_qs.strategy.mechanisms.arcs import arc_lengths, arc_variances
from adaptive_qs.strategy.mechanisms.cache import ArrayCache
from adaptive_qs.workload.products import squares_product
from adaptive_qs.workload.queries import Queries

Array = NDArray[np.float64]

Pieces = list[tuple[tuple[int, ...], Array]]
"""Non-negative arrays over some axes of a query set; their product over all axes is a variance."""


class ResidualVariance:
    """Variances of queries under unit noise on one residual's strategy; remembers factors."""

    def __init__(self, max_bytes: int = 2**28) -> None:
        """Remember at most ``max_bytes`` of intermediate arrays."""
        self._cache = ArrayCache(max_bytes)

    def pieces(
        self, queries: Sequence[Queries], kept: tuple[int, ...], strategy: Strategy
    ) -> Pieces:
        """What multiplies to the variance of a product of queries, by groups of its axes.

        Args:
            queries: one family for each axis of γ, or one joint family for all.
            kept: the axes of γ that τ has.
            strategy: of τ, over the kept axes.
        """
        if len(queries[0].shape) > 1:
            return [((0,), self._joint(queries[0], kept, strategy))]
        pieces: Pieces = []
        for axis, factor in enumerate(queries):
            if axis not in kept:
                pieces.append(((axis,), self._mean(factor)))
        start = 0
        for block in strategy.factors:
            axes = kept[start : start + len(block.shape)]
            start += len(block.shape)
            pieces.append((axes, self._block(tuple(queries[axis] for axis in axes), block)))
        return pieces

    def bound(self, queries: Sequence[Queries], kept: tuple[int, ...], strategy: Strategy) -> float:
        """At least the variance of any query; the largest one where one axis decides it.

        Queries are not told apart where their length is all that counts, so that families of many
        millions of queries take no memory.
        """
        if len(queries[0].shape) > 1:
            return float(self._joint(queries[0], kept, strategy).max())
        total, start = 1.0, 0
        for axis, factor in enumerate(queries):
            if axis not in kept:
                lengths = arc_lengths(factor)
                means = factor.sums() if lengths is None else lengths
                total *= float((means / factor.shape[0]).max() ** 2)
        for block in strategy.factors:
            axes = kept[start : start + len(block.shape)]
            start += len(block.shape)
            inner = tuple(queries[axis] for axis in axes)
            lengths = arc_lengths(inner[0]) if len(inner) == 1 else None
            by_length = None if lengths is None else arc_variances(block)
            if lengths is None or by_length is None:
                total *= float(self._block(inner, block).max())
            else:
                total *= float(by_length[lengths].max())
        return total

    def _mean(self, queries: Queries) -> Array:
        return self._cache.get((queries,), lambda: (queries.sums() / queries.shape[0]) ** 2)

    def _block(self, queries: tuple[Queries, ...], block: Factor) -> Array:
        shape = block.shape

        def make() -> Array:
            if len(queries) == 1 and arc_lengths(queries[0]) is not None:
                by_length = arc_variances(block)
                if by_length is not None:
                    return by_length[queries[0].sums().astype(np.int64)]
            return squares_product(queries, block.covariance.reshape(shape + shape))

        return self._cache.get((queries, id(block)), make)

    def _joint(self, queries: Queries, kept: tuple[int, ...], strategy: Strategy) -> Array:
        dropped = tuple(1 + axis for axis in range(len(queries.shape)) if axis not in kept)

        def make() -> Array:
            rows = queries.matrix().reshape(-1, *queries.shape).mean(axis=dropped)
            for block in strategy.factors:
                cells = int(np.prod(block.shape))
                rows = rows.reshape(len(rows), cells, -1)
                rows = np.einsum("mcr,cb->mrb", rows, block.inverse, optimize=True)
            return (rows.reshape(len(rows), -1) ** 2).sum(axis=1)

        return self._cache.get((queries, kept, tuple(map(id, strategy.factors))), make)


def multiply(pieces: Pieces, counts: Sequence[int]) -> Array:
    """The product of pieces over all axes: shape ``counts``."""
    total = np.ones((1,) * len(counts))
    for axes, array in pieces:
        total = total * array.reshape([m if k in axes else 1 for k, m in enumerate(counts)])
    return np.broadcast_to(total, counts)
