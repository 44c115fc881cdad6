"""A planned mechanism: what to measure, how answers follow, and the variance of each."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.strategy.fixed_basis import FourierFactor
from adaptive_qs.strategy.solution import CenteringFactor, Factor, Status, Strategy
from adaptive_qs.workload.axes import Circular, Marginal, Prefix, Range
from adaptive_qs.workload.families import squares_product
from adaptive_qs.workload.matrices import Queries
from adaptive_qs.workload.workload import QueryWorkload

# A planned mechanism: what to measure, and how measurements answer a workload.
#
# Everything here is public and decided before any count is seen. Variances are at privacy cost
# β = 1; at another cost they are divided by β.

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StrategyMeasurement:
    """Noise on the answers of a strategy; kept is the least-squares table B⁺z.

    Attributes:
        clique: the attributes of the table measured.
        strategy: B over that table, normalised.
        share: part of the budget; noise of variance 1/(β · share) is added to each answer.
    """

    clique: Clique
    strategy: Strategy
    share: float


@dataclass(frozen=True, eq=False)
class QueryMeasurement:
    """Noise on the queries themselves; kept are the noisy answers.

    Attributes:
        clique: the attributes of the table measured.
        queries: a product of families, or one joint family.
        squared_sensitivity: a bound on the squared norm of every column of the query matrix.
        share: part of the budget; noise of variance squared_sensitivity/(β · share) is added.
    """

    clique: Clique
    queries: tuple[Queries, ...]
    squared_sensitivity: float
    share: float


Measurement = StrategyMeasurement | QueryMeasurement


class Mechanism(Protocol):
    """Measurements whose shares add up to 1, and the answers that follow from them."""

    @property
    def workload(self) -> QueryWorkload:
        """What is answered."""

    @property
    def total_error(self) -> float:
        """Σ weight · variance over all queries at privacy cost 1 (rows²)."""

    @property
    def lower_bound(self) -> float:
        """No mechanism of the same kind has a smaller total error."""

    @property
    def statuses(self) -> Counter[Status]:
        """How the distinct optimisation problems ended."""

    @property
    def num_measurements(self) -> int:
        """How many measurements there are."""

    def measurement(self, index: int) -> Measurement:
        """One measurement."""

    def needed(self, part: int, index: int) -> Sequence[int]:
        """The measurements that the answers to one attribute set of a part depend on."""

    def on_grid(self, grid_bits: int) -> Mechanism:
        """The same with integer strategies, ready to be measured.

        Args:
            grid_bits: bound on the bits of all coefficients of a strategy together.

        Raises:
            ResourceExceeded: a strategy has too many cells.
        """

    def answers(self, part: int, index: int, kept: Mapping[int, Array]) -> Array:
        """Answers to all queries of one attribute set.

        Args:
            part: the part of the workload.
            index: the attribute set in the part.
            kept: what each needed measurement kept.

        Returns:
            Shape (m,), in the order of the queries' products.
        """

    def variances(self, part: int, index: int) -> Array:
        """Variance (rows²) of each of those answers at privacy cost 1, shape (m,)."""

    def largest_variance(self) -> tuple[float, bool]:
        """Largest variance of all queries at cost 1, and whether it is exact or a bound."""


# A least-recently-used cache of arrays, bounded by their bytes.


class ArrayCache:
    """Arrays by key; the least recently used go when there are too many bytes. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        """Hold at most ``max_bytes`` (a single larger array is made and not held)."""
        self._max_bytes = max_bytes
        self._bytes = 0
        self._arrays: OrderedDict[Hashable, Array] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Array]) -> Array:
        """The array of a key, made where it is not held."""
        with self._lock:
            if key in self._arrays:
                self._arrays.move_to_end(key)
                return self._arrays[key]
        array = make()
        with self._lock:
            if key not in self._arrays and array.nbytes <= self._max_bytes:
                self._arrays[key] = array
                self._bytes += array.nbytes
                while self._bytes > self._max_bytes:
                    self._bytes -= self._arrays.popitem(last=False)[1].nbytes
        return array


# Queries that count a stretch of one axis, under noise that does not know one cell from another.
#
# Marginal, prefix, range and circular queries sum the cells of an arc. Where the covariance of the
# cells is circulant, C_ij = c_{i−j}, an arc of L cells has variance L c₀ + 2 Σ_{k<L} (L − k) c_k
# wherever it lies: no matrix over the cells, and no array over the queries, is needed.


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


# Variances of queries under the noise of one factor, with digits to spare.
#
# diag(Q C Qᵀ) from the covariance C = B⁺(B⁺)ᵀ takes few steps for each query and cancels where C is
# ill-conditioned. No unbiased answer at privacy cost 1 has a variance below the square of its
# query's largest coefficient, and what cancels is at most that square times the sum of all |C|:
# this tells before where the steps would lose too many digits. There ‖row · B⁺‖² is taken, which
# cannot be negative.

MOST_LOST = 1e-3
"""Share of a variance that rounding may take at worst; it takes far less."""
BLOCK = 2**23
"""Answers to columns of B⁺ that are held at once."""
PROBES = 3
"""Random tables on which estimates are compared with the truth: a query that a strategy misses
shows on all of them but for a set of tables of measure zero."""


def block_squares(queries: Sequence[Queries | None], factor: Factor) -> Array:
    """Variances of a product of queries on the axes of one factor, one axis for each family.

    Args:
        queries: one family of one attribute for each axis; None sums the axis out.
        factor: the strategy on these axes.
    """
    shape = factor.shape
    if not _cancels(_magnitude(factor.covariance), sum(shape)):
        return squares_product(queries, factor.covariance.reshape(shape + shape))
    outside = tuple(k for k, of in enumerate(queries) if of is None)
    root = _summed(factor.inverse, shape, outside)
    return root_squares([of for of in queries if of is not None], root)


def largest_bias(
    queries: Sequence[Queries], axes: tuple[int, ...], factors: Sequence[Factor]
) -> float:
    """How far exact measurements lead answers astray: max_q ‖q (I − V⁺V)‖ / ‖q‖, up to chance.

    Zero where the strategy supports the queries and its covariance is its own: then V⁺Bᵀ estimates
    them without bias, and q V⁺ qᵀ is the variance of that estimate. A cell that no query asks about
    may have no variance at all.

    Args:
        queries: one family for each of ``axes``, or one joint family.
        axes: ascending axes of the table; the others are summed out.
        factors: the strategy on all axes of the table.
    """
    rng = np.random.Generator(np.random.PCG64(0))  # probes of a public matrix, not privacy noise
    shape = tuple(n for factor in factors for n in factor.shape)
    tables = rng.standard_normal((*shape, PROBES))
    found = tables
    for factor in factors:
        block, matrix = found.reshape(math.prod(factor.shape), -1), factor.matrix
        block = factor.covariance @ (matrix.T @ (matrix @ block))
        block = block.reshape(*factor.shape, *found.shape[len(factor.shape) :])
        order = (*range(len(factor.shape), block.ndim), *range(len(factor.shape)))
        found = block.transpose(order)
    found = np.moveaxis(found, 0, -1)  # the probes, which came first once all axes had moved
    outside = tuple(axis for axis in range(len(shape)) if axis not in axes)
    truth, missed = (_answer_norms(queries, t.sum(axis=outside)) for t in (tables, tables - found))
    asked = truth > 0
    return float((missed[asked] / truth[asked]).max(initial=0.0))


def joint_squares(queries: Queries, axes: tuple[int, ...], factors: Sequence[Factor]) -> Array:
    """Variances of a joint family, shape (m,).

    Args:
        queries: over ``axes``.
        axes: ascending axes of the table; the others are summed out.
        factors: the strategy on all axes of the table.
    """
    roots, covariances, start = [], [], 0
    for factor in factors:
        shape, degree = factor.shape, len(factor.shape)
        outside = tuple(k for k in range(degree) if start + k not in axes)
        start += degree
        root = _summed(factor.inverse, shape, outside)
        root = root.reshape(-1, root.shape[-1])
        roots.append(root)
        block = factor.covariance.reshape(shape + shape)
        block = block.sum(axis=outside + tuple(k + degree for k in outside))
        covariances.append(block.reshape(len(root), len(root)))
    summing = any(_cancels(_magnitude(of.covariance), sum(of.shape)) for of in factors)
    if not summing and not _cancels(
        math.prod(map(_magnitude, covariances)), math.prod(queries.shape)
    ):
        return queries.squares(_kron(covariances))
    narrow = [np.asarray(np.linalg.qr(root.T, mode="r")).T for root in roots]  # of the same C
    return root_squares([queries], _kron(narrow).reshape(*queries.shape, -1))


def root_squares(queries: Sequence[Queries], root: Array) -> Array:
    """Σ over the last axis of (⊗Q root)², one axis for each family.

    Args:
        queries: families that together cover the axes but the last.
        root: shape (*axes, columns).
    """
    counts = tuple(of.num_queries for of in queries)
    total = np.zeros(counts)
    step = max(1, BLOCK // max(1, math.prod(counts)))
    for first in range(0, root.shape[-1], step):
        answers = np.ascontiguousarray(root[..., first : first + step])
        for of in queries:
            answers = np.moveaxis(of.answer(answers), 0, -1)
        total += (answers**2).sum(axis=0)
    return total


def _answer_norms(queries: Sequence[Queries], tables: Array) -> Array:
    """Root of the summed squares of each query's answers to tables along the last axis."""
    for of in queries:
        tables = np.moveaxis(of.answer(tables), 0, -1)
    return np.asarray(np.linalg.norm(tables, axis=0), dtype=np.float64)


def _summed(inverse: Array, shape: tuple[int, ...], outside: tuple[int, ...]) -> Array:
    """B⁺ with some axes of its tables summed out, shape (*the others, rows)."""
    return inverse.reshape(*shape, -1).sum(axis=outside)


def _magnitude(covariance: Array) -> float:
    return float(np.abs(covariance).sum())


def _cancels(magnitude: float, cells: int) -> bool:
    """Whether sums over a covariance may lose more than ``MOST_LOST`` of a variance."""
    steps = 2 * cells + 8
    return not magnitude * steps * float(np.finfo(np.float64).eps) < MOST_LOST


def _kron(matrices: Sequence[Array]) -> Array:
    product: Array = np.ones((1, 1))
    for matrix in matrices:
        product = np.kron(product, matrix).astype(np.float64, copy=False)
    return product


# Variance of every query under a residual mechanism, in closed form.
#
# The noise of residual τ spreads evenly over the axes outside τ, so a product of queries on γ ⊇ τ
# sees it as σ²_τ · diag(Q V⁺_τ Qᵀ) over the axes of τ times the squared means of the others; the
# variances of the residuals in γ add up (He et al., Algorithm 1).

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
        for axes, block in strategy.split(kept):
            pieces.append((axes, self._block(tuple(queries[axis] for axis in axes), block)))
        return pieces

    def bound(self, queries: Sequence[Queries], kept: tuple[int, ...], strategy: Strategy) -> float:
        """At least the variance of any query; the largest one where one axis decides it.

        Queries are not told apart where their length is all that counts, so that families of many
        millions of queries take no memory.
        """
        if len(queries[0].shape) > 1:
            return float(self._joint(queries[0], kept, strategy).max())
        total = 1.0
        for axis, factor in enumerate(queries):
            if axis not in kept:
                lengths = arc_lengths(factor)
                means = factor.sums() if lengths is None else lengths
                total *= float((means / factor.shape[0]).max() ** 2)
        for axes, block in strategy.split(kept):
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
