"""A planned mechanism: what to measure, how answers follow; and mechanisms for whole tables."""

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from threading import Lock
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy import bounds, optimal
from adaptive_qs.strategy import solution as solutions
from adaptive_qs.strategy.fixed_point import solve_dense, solve_rows, symmetric_blocks
from adaptive_qs.strategy.integer import on_grid
from adaptive_qs.strategy.solution import Array, Factor, SolverSettings, Status, Strategy, kron
from adaptive_qs.workload.axes import Circular, FirstCells, Marginal
from adaptive_qs.workload.families import answer_product
from adaptive_qs.workload.matrices import Queries
from adaptive_qs.workload.residuals import Decomposition
from adaptive_qs.workload.workload import QueryWorkload

# Everything here is public and decided before any count is seen. Variances are at privacy cost
# β = 1; at another cost they are divided by β.


@dataclass(frozen=True, eq=False)
class StrategyMeasurement:
    """Noise on the answers of a strategy; kept is the least-squares table B⁺z."""

    clique: Clique  # the attributes of the table measured
    strategy: Strategy  # B over that table, normalised
    share: float  # part of the budget; noise of variance 1/(β · share) is added to each answer


class Mechanism(Protocol):
    """Measurements whose shares add up to 1, and the answers that follow from them."""

    @property
    def workload(self) -> QueryWorkload:
        """Workload that is answered."""

    @property
    def total_error(self) -> float:
        """Σ weight · variance over all queries at privacy cost 1 (rows²)."""

    @property
    def lower_bound(self) -> float:
        """Total error that no mechanism of the same kind beats."""

    @property
    def statuses(self) -> Counter[Status]:
        """Number of distinct optimisation problems by status."""

    @property
    def num_measurements(self) -> int:
        """Number of measurements."""

    def measurement(self, index: int) -> StrategyMeasurement:
        """Return the measurement with this number."""

    def needed(self, part: int, index: int) -> Sequence[int]:
        """Return the measurements that the answers to one attribute set of a part depend on."""

    def on_grid(self, grid_bits: int) -> Self:
        """Return the mechanism with integer strategies of at most ``grid_bits`` bits together.

        Raise ResourceExceeded if there are too many cells.
        """

    def answers(self, part: int, index: int, kept: Mapping[int, Array]) -> Array:
        """Return the answers (m,) of one attribute set from kept estimates, in product order."""

    def variances(self, part: int, index: int) -> Array:
        """Return the variance (rows²) of each of those answers at privacy cost 1, shape (m,)."""

    def largest_variance(self) -> tuple[float, bool]:
        """Return the largest variance of all queries at cost 1, and whether it is exact."""


class ArrayCache:
    """Arrays by key; the least recently used go when there are too many bytes. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        """Hold at most ``max_bytes`` (a single larger array is made and not held)."""
        self._max_bytes = max_bytes
        self._bytes = 0
        self._arrays: OrderedDict[Hashable, Array] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Array]) -> Array:
        """Return the array of a key; make it if it is not held."""
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


def largest_bias(
    queries: Sequence[Queries], axes: tuple[int, ...], factors: Sequence[Factor]
) -> float:
    """Return max_q ‖q (I − V⁺V)‖ / ‖q‖, the bias of exact measurements, estimated on random tables.

    Zero where the strategy supports the queries and its covariance is its own: then V⁺Bᵀ estimates
    them without bias, and q V⁺ qᵀ is the variance of that estimate. A cell without a query
    may have no variance at all. For the arguments see :func:`joint_squares`.
    """
    rng = np.random.Generator(np.random.PCG64(0))  # probes of a public matrix, not privacy noise
    shape = tuple(n for factor in factors for n in factor.shape)
    # Number of random tables on which estimates are compared with the truth. A query that a
    # strategy misses shows on each of them with probability 1.
    probes = 3
    tables = rng.standard_normal((*shape, probes))
    found = tables
    for factor in factors:
        block = factor.restored(found.reshape(math.prod(factor.shape), -1))
        block = block.reshape(*factor.shape, *found.shape[len(factor.shape) :])
        order = (*range(len(factor.shape), block.ndim), *range(len(factor.shape)))
        found = block.transpose(order)
    found = np.moveaxis(found, 0, -1)  # the probes, which came first once all axes had moved
    outside = tuple(axis for axis in range(len(shape)) if axis not in axes)
    truth, missed = (_answer_norms(queries, t.sum(axis=outside)) for t in (tables, tables - found))
    seen = truth > 0
    return float((missed[seen] / truth[seen]).max(initial=0.0))


def joint_squares(queries: Queries, axes: tuple[int, ...], factors: Sequence[Factor]) -> Array:
    """Return variances of queries over ascending ``axes`` of a table, the others summed out, (m,).

    The factors are the strategy on all axes of the table.
    """
    roots, covariances, start = [], [], 0
    for factor in factors:
        shape, degree = factor.shape, len(factor.shape)
        outside = tuple(k for k in range(degree) if start + k not in axes)
        start += degree
        root = factor.inverse.reshape(*shape, -1).sum(axis=outside)
        root = root.reshape(-1, root.shape[-1])
        roots.append(root)
        block = factor.covariance.reshape(shape + shape)
        block = block.sum(axis=outside + tuple(k + degree for k in outside))
        covariances.append(block.reshape(len(root), len(root)))
    summing = any(
        solutions.may_cancel(solutions.magnitude(of.covariance), sum(of.shape)) for of in factors
    )
    if not summing and not solutions.may_cancel(
        math.prod(map(solutions.magnitude, covariances)), math.prod(queries.shape)
    ):
        return queries.squares(kron(covariances))
    narrow = [np.asarray(np.linalg.qr(root.T, mode="r")).T for root in roots]  # of the same C
    return solutions.root_squares([queries], kron(narrow).reshape(*queries.shape, -1))


def _answer_norms(queries: Sequence[Queries], tables: Array) -> Array:
    """Return the norm of each query's answers to tables along the last axis."""
    for of in queries:
        tables = np.moveaxis(of.answer(tables), 0, -1)
    return np.asarray(np.linalg.norm(tables, axis=0), dtype=np.float64)


# Identity, a product strategy, and the full problem on a small domain are measured on one table.
# Its estimate B⁺z answers every query, with covariance ⊗V_k⁺.

CACHE_BYTES = 2**27
"""Most bytes of variances in memory for later sets."""


@dataclass(frozen=True, eq=False)
class TableMechanism:
    """A mechanism that answers every attribute set from one measured table."""

    workload: QueryWorkload
    clique: Clique  # the attributes of the table, at least those that some query depends on
    strategy: Strategy  # what is measured; its row space holds all queries
    lower_bound: float  # no mechanism at privacy cost 1 has a smaller total error
    status: Status = Status.RESTRICTED  # what the solver could say
    _cache: ArrayCache = field(default_factory=lambda: ArrayCache(CACHE_BYTES), repr=False)

    @cached_property
    def total_error(self) -> float:
        """Σ weight · variance over all queries at privacy cost 1 (rows²)."""
        return sum(
            weight * math.prod(float(piece.sum()) for piece in self._pieces(part, index))
            for part, index, weight in self.workload.sets()
        )

    @property
    def statuses(self) -> Counter[Status]:
        """The status, once."""
        return Counter([self.status])

    @property
    def num_measurements(self) -> int:
        """One."""
        return 1

    def measurement(self, index: int) -> StrategyMeasurement:
        """Return the measurement."""
        return StrategyMeasurement(self.clique, self.strategy, 1.0)

    def needed(self, part: int, index: int) -> Sequence[int]:
        """Return the measurement."""
        return [0]

    def on_grid(self, grid_bits: int) -> Self:
        """Return the mechanism with an integer strategy, whose errors are reported."""
        strategy = on_grid(self.strategy, grid_bits)
        return replace(self, strategy=strategy, _cache=ArrayCache(CACHE_BYTES))

    def answers(self, part: int, index: int, kept: Mapping[int, Array]) -> Array:
        """Return answers from the estimated table, summed over attributes outside the set, (m,)."""
        queries = self.workload.parts[part].queries(index)
        return answer_product(queries, self._marginal(part, index, kept)).reshape(-1)

    def variances(self, part: int, index: int) -> Array:
        """Return the variance (rows²) of each of those answers at privacy cost 1, shape (m,)."""
        return reduce(np.multiply.outer, self._pieces(part, index)).reshape(-1)

    def largest_variance(self) -> tuple[float, bool]:
        """Return the largest variance at cost 1; exact, as factors are not negative."""
        products = (
            math.prod(float(piece.max()) for piece in self._pieces(part, index))
            for part, index, _ in self.workload.sets()
        )
        return max(products, default=0.0), True

    def compute_bias(self, part: int, index: int) -> float:
        """Return the largest part of a query of one attribute set that is not measured."""

        def bias(
            requested: tuple[Queries, ...], axes: Clique, factors: tuple[Factor, ...]
        ) -> float:
            key = ("bias", requested, axes, tuple(map(id, factors)))
            make = partial(largest_bias, requested, axes, factors)
            return float(self._cache.get(key, lambda: np.array([make()]))[0])

        clique, queries = self._set(part, index)
        if len(queries[0].shape) > 1:
            axes = tuple(self.clique.index(i) for i in clique)
            return bias(queries, axes, self.strategy.factors)
        biases = [0.0]
        for inside, factor in self.strategy.split(self.clique):
            axes = tuple(axis for axis, i in enumerate(inside) if i in clique)
            requested = tuple(queries[clique.index(inside[axis])] for axis in axes)
            biases.append(bias(requested, axes, (factor,)))
        return float(np.max(biases))  # of which one that is no number is not lost

    def _set(self, part: int, index: int) -> tuple[list[int], tuple[Queries, ...]]:
        queries = self.workload.parts[part]
        return queries.cliques[index].tolist(), queries.queries(index)

    def _marginal(self, part: int, index: int, kept: Mapping[int, Array]) -> Array:
        clique, _ = self._set(part, index)
        outside = tuple(axis for axis, i in enumerate(self.clique) if i not in clique)
        return kept[0].sum(axis=outside)

    def _pieces(self, part: int, index: int) -> list[Array]:
        """Return arrays over groups of the set's queries whose outer product is their variance."""
        clique, queries = self._set(part, index)
        if len(queries[0].shape) == 1:
            return [self._block(*of) for of in self._blocks(part, index)]
        factors, axes = self.strategy.factors, tuple(self.clique.index(i) for i in clique)
        key = (queries, axes, tuple(map(id, factors)))
        return [self._cache.get(key, lambda: joint_squares(queries[0], axes, factors))]

    def _blocks(self, part: int, index: int) -> Iterator[tuple[tuple[Queries | None, ...], Factor]]:
        """Yield every factor with the queries on its axes, None for an axis outside the set."""
        clique, queries = self._set(part, index)
        for inside, factor in self.strategy.split(self.clique):
            yield tuple(queries[clique.index(i)] if i in clique else None for i in inside), factor

    def _block(self, queries: tuple[Queries | None, ...], factor: Factor) -> Array:
        return self._cache.get((queries, id(factor)), partial(factor.variances, queries))


def any_mechanism_bound(decomposition: Decomposition) -> float:
    """Return a lower bound on the total error of any matrix mechanism of privacy cost 1.

    The singular value bound of the whole workload where it is known: marginal and circular queries
    ask as much of every value, so their Gram matrix is the orthogonal sum of the subworkloads'
    ones, and the roots of their bounds add up (of other queries the parts in two residual spaces
    are correlated); on a small domain from the matrix itself. Else the sum of the sets' bounds.
    """
    workload = decomposition.workload
    clique = used_attributes(workload)
    if all(
        part.joint is None and all(type(q) in {Marginal, Circular} for q in part.axis.values())
        for part in workload.parts
    ):
        roots = np.sqrt(
            [bounds.svd_bound(subworkload) for subworkload in decomposition.subworkloads]
        )
        spread = roots[decomposition.class_of] * np.sqrt(decomposition.scales)
        return float(spread.sum() ** 2)
    if workload.domain.size(clique) <= bounds.DENSE_CELLS:
        return bounds.gram_bound(full_gram(workload, clique))
    sets = [(w, workload.parts[part].queries(index)) for part, index, w in workload.sets()]
    known = {queries: _family_bound(queries) for queries in {q for _, of in sets for q in of}}
    return sum(weight * math.prod(known[queries] for queries in of) for weight, of in sets)


def used_attributes(workload: QueryWorkload) -> Clique:
    """Return the attributes that some query depends on."""
    return tuple(sorted({int(i) for part in workload.parts for i in np.unique(part.cliques)}))


def full_gram(workload: QueryWorkload, clique: Clique) -> Array:
    """Return the Gram matrix of a workload on the cells over ``clique``, shape (N, N)."""
    cells = workload.domain.size(clique)
    total = np.zeros((cells, cells))
    for weight, queries, inner in _sets_on_cells(workload, clique):
        total += weight * kron([factor.gram() for factor in queries])[np.ix_(inner, inner)]
    return total


def _sets_on_cells(
    workload: QueryWorkload, clique: Clique
) -> Iterator[tuple[float, tuple[Queries, ...], NDArray[np.intp]]]:
    """Yield weight and queries of every set, and its table's cell for each one over ``clique``."""
    shape = workload.domain.shape(clique)
    codes = np.indices(shape).reshape(len(shape), -1)
    for number, index, weight in workload.sets():
        part = workload.parts[number]
        axes = [clique.index(i) for i in part.cliques[index].tolist()]
        inner = np.ravel_multi_index(tuple(codes[axes]), [shape[axis] for axis in axes])
        yield weight, part.queries(index), np.asarray(inner)


def _family_bound(queries: Queries) -> float:
    """Return (tr √G)²/N; for many cells without a closed form tr G/N, which is less."""
    match queries:
        case FirstCells(_, inner):  # the other cells may be left out of a strategy
            return _family_bound(inner)
    cells = math.prod(queries.shape)
    known = bounds.known_gram_eigenvalues(queries)
    if known is not None:
        return bounds.root_sum(known) ** 2 / cells
    if cells <= bounds.SINGLE_CELLS:
        return bounds.gram_bound(queries.gram())
    return float(queries.column_norms().sum()) / cells


# The full problem solved on the table over all attributes in use.
# Splitting a workload by residual spaces costs a few percent where one attribute, or a small
# domain, is all there is; there the full problem can be solved as it is (OPT_0 of McKenna et al.).


def may_be_solved(workload: QueryWorkload, settings: SolverSettings) -> bool:
    """Return whether the full problem may be within memory and time, judged by sizes."""
    cells = workload.domain.size(used_attributes(workload))
    memory = optimal.DENSE_COPIES * 8 * cells**2
    if cells > optimal.DENSE_CELLS or memory > settings.max_bytes:
        return False
    return _has_few_queries(workload, cells) or (
        workload.num_sets * cells**2 <= optimal.TRIED_WORK // optimal.GATHERED_COST
    )


def solve_full(workload: QueryWorkload, settings: SolverSettings) -> TableMechanism:
    """Return the optimum on the cells of all attributes in use, if it is not too much to try."""
    clique = used_attributes(workload)
    shape = workload.domain.shape(clique)
    if _has_few_queries(workload, math.prod(shape)):
        rows = [
            kron([factor.matrix() for factor in queries], math.sqrt(weight))[:, inner]
            for weight, queries, inner in _sets_on_cells(workload, clique)
        ]
        solution = solve_rows(np.concatenate(rows), shape, settings)
    else:
        gram = full_gram(workload, clique)
        blocks = symmetric_blocks(lambda x: gram @ x, shape)
        if blocks.work > optimal.TRIED_WORK:
            raise ResourceExceeded(
                f"the table has {len(gram):,} cells: that is too many to be solved as a whole"
            )
        solution = solve_dense(gram, shape, settings)
    return TableMechanism(
        workload, clique, solution.strategy, solution.lower_bound, solution.status
    )


def _has_few_queries(workload: QueryWorkload, cells: int) -> bool:
    count = workload.num_queries
    return 2 * count <= cells and count**2 * cells <= optimal.TRIED_WORK
