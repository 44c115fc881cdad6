"""A log-linear model p ∝ Π_i u_i(x_i) Π_γ w_γ(x_γ), its targets, and its Gibbs sampler."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain, subsets
from adaptive_qs.residual import ReferenceModel, variance_weight

# What a table should match: non-negative marginals with the noise they carry.

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Target:
    """A marginal to match.

    Attributes:
        clique: γ.
        counts: non-negative, sums to the number of rows; shaped like the marginal (rows).
        noise_std: standard deviation of the noise in one cell (rows).
    """

    clique: Clique
    counts: Array
    noise_std: float

    def scaled(self, factor: float) -> Target:
        """The same target for a table with ``factor`` times as many rows."""
        return Target(self.clique, self.counts * factor, self.noise_std * factor)


def make_target(model: ReferenceModel, clique: Clique) -> Target:
    """The model's marginal projected onto non-negative tables with the model's total.

    The Euclidean projection (rather than clipping) removes the mass that clipping at zero would
    add. The noise is that of the measured residuals; an unmeasured one adds none.
    """
    total = max(model.total, 1.0)
    domain = model.domain
    precisions = {residual: model.precision(residual) for residual in subsets(clique)}
    variance = math.fsum(
        variance_weight(domain, residual, clique) / precision
        for residual, precision in precisions.items()
        if precision > 0
    )
    counts = project_to_simplex(model.marginal(clique), total)
    return Target(clique, counts, math.sqrt(variance))


def maximal_cliques(cliques: Iterable[Clique]) -> tuple[Clique, ...]:
    """The cliques that lie in no other, largest first."""
    covered: set[Clique] = set()
    kept: list[Clique] = []
    for clique in sorted(set(cliques), key=lambda c: (-len(c), c)):
        if clique not in covered:
            kept.append(clique)
            covered.update(subsets(clique))
    return tuple(kept)


def project_to_simplex(array: Array, total: float) -> Array:
    """The nearest array, in Euclidean distance, that is non-negative and sums to ``total``.

    Sort-and-threshold (Held, Wolfe and Crowder 1974).
    """
    largest = array.max()
    flat = np.sort(array, axis=None)[::-1] - largest  # keeps the digits of the differences
    excess = np.cumsum(flat) - total
    rank = np.arange(1, flat.size + 1)
    last = np.flatnonzero(flat * rank > excess)[-1]
    return np.maximum(array - largest - excess[last] / (last + 1), 0.0)


# Marginals of coded rows: integer matrices of shape (rows, attributes).

Rows = NDArray[np.int32]
"""Coded rows, shape (rows, attributes)."""


def count_rows(rows: Rows, domain: Domain, clique: Clique) -> NDArray[np.float64]:
    """The marginal of rows over a non-empty clique, shaped like it (rows)."""
    out = np.zeros(domain.shape(clique), dtype=np.float64)
    add_counts(out, rows, domain, clique)
    return out


def add_counts(out: NDArray[np.floating], rows: Rows, domain: Domain, clique: Clique) -> None:
    """Add the marginal of rows over a clique to ``out``, a contiguous array shaped like it.

    In 32-bit floats a cell stops counting at 2**24.
    """
    _add_counts(rows, np.array(clique), np.array(domain.shape(clique)), out.reshape(-1))


@njit(cache=True, nogil=True)
def _add_counts(rows, clique, shape, out):  # type: ignore[no-untyped-def]
    for r in range(rows.shape[0]):
        cell = 0
        for axis in range(clique.size):
            cell = cell * shape[axis] + rows[r, clique[axis]]
        out[cell] += 1


# Which cells of which clique tables a change of one attribute touches, as flat arrays.
#
# Compiled kernels walk this structure: for attribute i, entries ``start[i] : start[i+1]``; for
# entry e, the table segment begins at ``offset[e] + Σ_k row[other[e, k]] · stride[e, k]`` and
# value v of attribute i lies ``v · own_stride[e]`` further on.

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Adjacency:
    """Flat description of the clique tables around each attribute.

    Attributes:
        start: (attributes + 1,) first entry of each attribute.
        offset: (entries,) where the entry's table begins in the flat buffer.
        other: (entries, m) the clique's other attributes, padded with 0.
        stride: (entries, m) their strides, padded with 0.
        own_stride: (entries,) stride of the attribute itself.
        position: for each clique, where its table begins; with one copy per axis, the first.
        cells: length of the flat buffer.
    """

    start: Integers
    offset: Integers
    other: Integers
    stride: Integers
    own_stride: Integers
    position: tuple[int, ...]
    cells: int


def build_adjacency(domain: Domain, cliques: Sequence[Clique], copy_per_axis: bool) -> Adjacency:
    """Lay out the tables of ``cliques`` one after the other in a flat buffer.

    Args:
        domain: the attributes.
        cliques: the tables.
        copy_per_axis: store each table once per attribute, with that attribute's axis moved to
            the end (so that a kernel reads all its values from consecutive memory), instead of
            once in its natural order.
    """
    entries: list[list[tuple[int, list[int], list[int], int]]] = [[] for _ in domain.sizes]
    position, cells = [], 0
    width = max((len(c) - 1 for c in cliques), default=0)
    for clique in cliques:
        position.append(cells)
        shape = domain.shape(clique)
        for axis, attribute in enumerate(clique):
            others = [i for i in clique if i != attribute]
            if copy_per_axis:
                moved = [*others, attribute]
                strides = _strides([domain.sizes[i] for i in moved])
                entries[attribute].append((cells, others, strides[:-1], 1))
                cells += domain.size(clique)
            else:
                strides = _strides(shape)
                rest = [s for k, s in enumerate(strides) if k != axis]
                entries[attribute].append((cells, others, rest, strides[axis]))
        if not copy_per_axis:
            cells += domain.size(clique)
    flat = [entry for per_attribute in entries for entry in per_attribute]
    other = np.zeros((len(flat), width), dtype=np.int64)
    stride = np.zeros((len(flat), width), dtype=np.int64)
    for row, (_, attributes, strides, _) in enumerate(flat):
        other[row, : len(attributes)] = attributes
        stride[row, : len(strides)] = strides
    return Adjacency(
        start=np.cumsum([0, *(len(e) for e in entries)]),
        offset=np.array([e[0] for e in flat], dtype=np.int64),
        other=other,
        stride=stride,
        own_stride=np.array([e[3] for e in flat], dtype=np.int64),
        position=tuple(position),
        cells=cells,
    )


def _strides(shape: Sequence[int]) -> list[int]:
    strides = [1]
    for n in reversed(shape[1:]):
        strides.append(strides[-1] * n)
    return strides[::-1]


# Counter-based random numbers for compiled kernels: the same for any order of execution.


@njit(cache=True, nogil=True, inline="always")
def uniform(key, row, step):  # type: ignore[no-untyped-def]
    """Uniform in [0, 1) as a function of (key, row, step): splitmix64 of their combination."""
    z = key + np.uint64(row) * np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(step + 1) * np.uint64(0xD1B54A32D192ED03)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) / 9007199254740992.0


# Row- and task-parallel execution of compiled kernels that release the interpreter lock.
#
# Results never depend on the number of workers: kernels draw from counter-based random numbers
# keyed by row, and tasks write to disjoint memory.


def over_rows(workers: int, num_rows: int, kernel: Callable[[int, int], None]) -> None:
    """Call ``kernel(start, stop)`` on contiguous blocks that cover 0 .. num_rows."""
    bounds = [num_rows * k // workers for k in range(workers + 1)]
    _run(workers, [partial(kernel, start, stop) for start, stop in pairwise(bounds)])


def over_items(workers: int, task: Callable[[Any], None], items: Sequence[Any]) -> None:
    """Call ``task(item)`` for every item; the items are dealt out to the threads in turn."""

    def share(first: int) -> None:
        for item in items[first::workers]:
            task(item)

    _run(workers, [partial(share, first) for first in range(workers)])


def _run(workers: int, jobs: Sequence[Callable[[], None]]) -> None:
    if workers == 1:
        for job in jobs:
            job()
        return
    with ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(job) for job in jobs]:
            future.result()


# A log-linear model p ∝ Π_i u_i(x_i) Π_γ w_γ(x_γ), and its Gibbs sampler.
#
# Factors are kept as multiplicative weights, so a conditional is a product of short rows of
# memory: no exponentials in the inner loop. One sweep redraws every attribute of every row from
# its conditional; rows are independent given the weights.

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
