"""A log-linear model p ∝ Π_i u_i(x_i) Π_γ w_γ(x_γ), and its Gibbs sampler.

Factors are kept as multiplicative weights, so a conditional is a product of short rows of
memory: no exponentials in the inner loop. One sweep redraws every attribute of every row from
its conditional; rows are independent given the weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.synthesis.adjacency import build_adjacency
from adaptive_qs.synthesis.parallel import over_rows
from adaptive_qs.synthesis.randomness import uniform
from adaptive_qs.synthesis.tables import Rows

Array = NDArray[np.float64]

WEIGHT_LIMIT = 1e6
"""Weights stay within [1/limit, limit]; sixteen of them multiply without overflow."""


class LogLinearModel:
    """Weights on single attributes and on cliques, initially the product of ``singles``.

    Args:
        domain: the attributes.
        cliques: cliques of two or more attributes that carry a weight table.
        singles: one non-negative array per attribute: its distribution without interactions.
        workers: threads that sweep; the result does not depend on it.

    Attributes:
        sizes, singles, single_start: n_i, the weights of single attributes one after the other,
            and where each begins.
        packed: every clique's weights, once per axis with that axis last.
        adjacency: where the weights around each attribute lie in ``packed``.
    """

    def __init__(
        self, domain: Domain, cliques: Sequence[Clique], singles: Sequence[Array], workers: int
    ) -> None:
        self.domain = domain
        self.cliques = tuple(cliques)
        self._workers = workers
        self.sizes = np.array(domain.sizes)
        self.single_start = np.cumsum([0, *domain.sizes])
        self.singles = np.concatenate([np.maximum(s / s.sum(), 1e-9) for s in singles])
        self._cumulative = np.concatenate(
            [np.cumsum(part) for part in np.split(self.singles, self.single_start[1:-1])]
        )
        self._weights = {c: np.ones(domain.shape(c), dtype=np.float32) for c in self.cliques}
        self.adjacency = build_adjacency(domain, self.cliques, copy_per_axis=True)
        self.packed = np.ones(self.adjacency.cells, dtype=np.float32)
        self._position = dict(zip(self.cliques, self.adjacency.position))

    def scale(self, clique: Clique, ratio: NDArray[np.floating]) -> None:
        """Multiply the weights of a clique, or of a single attribute, by ``ratio`` (in place).

        Threads may scale different cliques at the same time.
        """
        if len(clique) == 1:
            span = slice(self.single_start[clique[0]], self.single_start[clique[0] + 1])
            self.singles[span] = np.clip(self.singles[span] * ratio, 1e-12, 1e12)
            self._cumulative[span] = np.cumsum(self.singles[span])
            return
        weights = self._weights[clique]
        weights *= ratio
        np.clip(weights, 1 / WEIGHT_LIMIT, WEIGHT_LIMIT, out=weights)
        position = self._position[clique]
        for axis in range(len(clique)):
            moved = weights.transpose(*(k for k in range(weights.ndim) if k != axis), axis)
            self.packed[position : position + weights.size].reshape(moved.shape)[...] = moved
            position += weights.size

    def sweep(self, rows: Rows, key: int) -> None:
        """Redraw every attribute of every row in place, in an order drawn from ``key``."""
        order = np.random.default_rng(key).permutation(len(self.domain))
        a = self.adjacency

        def block(start: int, stop: int) -> None:
            _sweep_rows(
                rows, start, stop, order, self.sizes, self.singles, self._cumulative,
                self.single_start, self.packed, a.start, a.offset, a.other, a.stride,
                np.uint64(key),
            )  # fmt: skip

        over_rows(self._workers, len(rows), block)


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz", "arcp"})
def _sweep_rows(  # type: ignore[no-untyped-def]
    rows, begin, end, order, sizes, singles, cumulative, single_start, packed, start, offset, other,
    stride, key,
):  # fmt: skip
    p = np.empty(sizes.max())
    for r in range(begin, end):
        for step in range(order.size):
            i = order[step]
            n = sizes[i]
            base = single_start[i]
            u = uniform(key, r, step)
            if start[i] == start[i + 1]:  # nothing depends on i: invert its distribution
                span = cumulative[base : base + n]
                rows[r, i] = min(np.searchsorted(span, u * span[n - 1], side="right"), n - 1)
                continue
            for v in range(n):
                p[v] = singles[base + v]
            for e in range(start[i], start[i + 1]):
                cell = offset[e]
                for k in range(other.shape[1]):
                    cell += rows[r, other[e, k]] * stride[e, k]
                for v in range(n):
                    p[v] *= packed[cell + v]
                if (e - start[i]) % 16 == 15:
                    largest = 0.0
                    for v in range(n):
                        largest = max(largest, p[v])
                    for v in range(n):
                        p[v] /= largest
            total = 0.0
            for v in range(n):
                total += p[v]
            left = u * total
            choice = 0
            for v in range(n):
                if p[v] > 0.0:
                    choice = v
                    left -= p[v]
                    if left < 0.0:
                        break
            rows[r, i] = choice
