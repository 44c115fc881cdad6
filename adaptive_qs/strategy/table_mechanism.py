"""Mechanisms that measure the table over all attributes in use, or the queries themselves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.residual import privacy_cost
from adaptive_qs.strategy import optimal
from adaptive_qs.strategy.bounds import (
    DENSE_CELLS,
    SINGLE_CELLS,
    gram_bound,
    known_gram_eigenvalues,
    root_sum,
    svd_bound,
)
from adaptive_qs.strategy.fixed_basis import solve_residual_planner
from adaptive_qs.strategy.fixed_point import symmetric_blocks
from adaptive_qs.strategy.hdmm import (
    MOST_ATTRIBUTES,
    MarginalStrategy,
    UnionStrategy,
    residual_bound,
    select,
)
from adaptive_qs.strategy.hdmm_products import ProductStrategy, product_workload
from adaptive_qs.strategy.integer import integer_queries, on_grid
from adaptive_qs.strategy.mechanism import (
    ArrayCache,
    Mechanism,
    QueryMeasurement,
    StrategyMeasurement,
    block_squares,
    joint_squares,
    largest_bias,
)
from adaptive_qs.strategy.optimal import solve_dense, solve_rows
from adaptive_qs.strategy.residual_mechanism import ResidualMechanism, solve_all
from adaptive_qs.strategy.solution import Factor, IdentityFactor, SolverSettings, Status, Strategy
from adaptive_qs.workload.axes import Circular, Marginal
from adaptive_qs.workload.families import answer_product, count_queries
from adaptive_qs.workload.matrices import MatrixQueries, Queries
from adaptive_qs.workload.residuals import Decomposition
from adaptive_qs.workload.workload import QueryPart, QueryWorkload

# A mechanism that measures one product strategy on the table over all attributes in use.
#
# Identity, a product strategy of HDMM, and the full problem on a small domain are of this kind: the
# estimate of the whole table B⁺z answers every query, with covariance ⊗V_k⁺.

Array = NDArray[np.float64]

CACHE_BYTES = 2**27


@dataclass(frozen=True, eq=False)
class WholeDomainMechanism:
    """One measurement of the table over ``clique``.

    Attributes:
        workload: what is answered.
        clique: all attributes that the workload uses.
        strategy: over the table of ``clique``, normalised; its row space holds all queries.
        lower_bound: on the total error at privacy cost 1.
        status: what the solver could say.
    """

    workload: QueryWorkload
    clique: Clique
    strategy: Strategy
    lower_bound: float
    status: Status
    _cache: ArrayCache = field(default_factory=lambda: ArrayCache(CACHE_BYTES), repr=False)

    @cached_property
    def total_error(self) -> float:
        """Σ weight · variance over all queries at privacy cost 1 (rows²)."""
        return sum(w * self.set_error(part, index) for part, index, w in self.workload.sets())

    @property
    def statuses(self) -> Counter[Status]:
        """Of the only problem."""
        return Counter([self.status])

    @property
    def num_measurements(self) -> int:
        """One."""
        return 1

    def measurement(self, index: int) -> StrategyMeasurement:
        """The only one, with the whole budget."""
        return StrategyMeasurement(self.clique, self.strategy, 1.0)

    def needed(self, part: int, index: int) -> Sequence[int]:
        """The only one."""
        return [0]

    def on_grid(self, grid_bits: int) -> WholeDomainMechanism:
        """The same with an integer strategy, whose errors are those reported.

        Raises:
            ResourceExceeded: the strategy has too many cells to be measured.
        """
        strategy = on_grid(self.strategy, grid_bits)
        return replace(self, strategy=strategy, _cache=ArrayCache(CACHE_BYTES))

    def answers(self, part: int, index: int, kept: Mapping[int, Array]) -> Array:
        """Answers from the estimated table summed over the attributes outside the set, (m,)."""
        inner = set(self.workload.parts[part].cliques[index].tolist())
        outside = tuple(axis for axis, i in enumerate(self.clique) if i not in inner)
        queries = self.workload.parts[part].queries(index)
        return answer_product(queries, kept[0].sum(axis=outside)).reshape(-1)

    def variances(self, part: int, index: int) -> Array:
        """Variance (rows²) of each of those answers at privacy cost 1, shape (m,)."""
        total = np.ones(1)
        for piece in self._pieces(part, index):
            total = np.multiply.outer(total, piece)
        return total.reshape(-1)

    def largest_variance(self) -> tuple[float, bool]:
        """Largest variance of all queries at cost 1; exact, since the factors are not negative."""
        return max(self.largest_of(part, index) for part, index, _ in self.workload.sets()), True

    def set_error(self, part: int, index: int) -> float:
        """Summed variance (rows²) of the answers of one attribute set at privacy cost 1."""
        return float(np.prod([piece.sum() for piece in self._pieces(part, index)]))

    def largest_of(self, part: int, index: int) -> float:
        """Largest variance (rows²) of the answers of one attribute set at privacy cost 1."""
        return float(np.prod([piece.max() for piece in self._pieces(part, index)]))

    def bias_of(self, part: int, index: int) -> float:
        """Largest part of a query of one attribute set that the strategy does not measure."""
        clique = self.workload.parts[part].cliques[index].tolist()
        queries = self.workload.parts[part].queries(index)
        if len(queries[0].shape) > 1:
            axes = tuple(self.clique.index(i) for i in clique)
            return self._bias(queries, axes, self.strategy.factors)
        biases = [0.0]
        for inside, factor in self.strategy.split(self.clique):
            axes = tuple(axis for axis, i in enumerate(inside) if i in clique)
            asked = tuple(queries[clique.index(inside[axis])] for axis in axes)
            biases.append(self._bias(asked, axes, (factor,)))
        return float(np.max(biases))  # of which one that is no number is not lost

    def _bias(
        self, queries: tuple[Queries, ...], axes: tuple[int, ...], factors: tuple[Factor, ...]
    ) -> float:
        key = ("bias", queries, axes, tuple(map(id, factors)))
        found = self._cache.get(key, lambda: np.array([largest_bias(queries, axes, factors)]))
        return float(found[0])

    def _pieces(self, part: int, index: int) -> list[Array]:
        """Arrays over groups of the set's queries whose outer product is their variance."""
        clique = self.workload.parts[part].cliques[index].tolist()
        queries = self.workload.parts[part].queries(index)
        pieces = []
        if len(queries[0].shape) > 1:
            return [self._joint(queries[0], tuple(self.clique.index(i) for i in clique))]
        for inside, factor in self.strategy.split(self.clique):
            axes = tuple(queries[clique.index(i)] if i in clique else None for i in inside)
            pieces.append(self._block(axes, factor))
        return pieces

    def _block(self, queries: tuple[Queries | None, ...], factor: Factor) -> Array:
        return self._cache.get((queries, id(factor)), lambda: block_squares(queries, factor))

    def _joint(self, queries: Queries, axes: tuple[int, ...]) -> Array:
        factors = self.strategy.factors
        return self._cache.get((queries, axes), lambda: joint_squares(queries, axes, factors))


# The Gaussian mechanism: the same noise on every query of the workload, nothing shared.


@dataclass(frozen=True, eq=False)
class DirectMechanism:
    """Every attribute set's queries, measured as they are, with integer coefficients.

    Attributes:
        workload: what is answered.
        lower_bound: no matrix mechanism at privacy cost 1 has a smaller total error.

    Raises:
        WorkloadError: an attribute set's queries are all zero.
        ResourceExceeded: the coefficients of a set are too large to be measured exactly.
    """

    workload: QueryWorkload
    lower_bound: float

    def __post_init__(self) -> None:
        assert self.noise_variance > 0  # every set is found measurable before anything is spent

    @cached_property
    def squared_sensitivities(self) -> tuple[Array, ...]:
        """For each part, shape (sets,): a bound on one row's squared effect on a set's queries."""
        found = []
        for part in self.workload.parts:
            known: dict[object, float] = {}
            values = np.empty(len(part))
            for index in range(len(part)):
                queries = part.queries(index)
                if queries not in known:
                    known[queries] = _squared_sensitivity(queries)
                values[index] = known[queries]
                if not values[index]:
                    names = self.workload.domain.clique_names(tuple(part.cliques[index].tolist()))
                    raise WorkloadError(
                        f"the queries on {', '.join(names)} are all zero: leave them out"
                    )
            found.append(values)
        return tuple(found)

    @cached_property
    def noise_variance(self) -> float:
        """Variance of every answer at privacy cost 1: the sum of all squared sensitivities."""
        return float(sum(values.sum() for values in self.squared_sensitivities))

    @property
    def total_error(self) -> float:
        """Σ weight · variance over all queries at privacy cost 1 (rows²)."""
        return self.noise_variance * sum(
            weight * math.prod(map(_count_asked, self.workload.parts[part].queries(index)))
            for part, index, weight in self.workload.sets()
        )

    @property
    def statuses(self) -> Counter[Status]:
        """There is nothing to solve."""
        return Counter([Status.RESTRICTED])

    @property
    def num_measurements(self) -> int:
        """One for each attribute set of each part."""
        return self.workload.num_sets

    def measurement(self, index: int) -> QueryMeasurement:
        """One attribute set's queries; its share makes the noise equal for all."""
        for part, sensitivities in zip(self.workload.parts, self.squared_sensitivities):
            if index < len(part):
                clique = tuple(part.cliques[index].tolist())
                sensitivity = float(sensitivities[index])
                share = sensitivity / self.noise_variance
                return QueryMeasurement(clique, part.queries(index), sensitivity, share)
            index -= len(part)
        raise IndexError("no such measurement")

    def needed(self, part: int, index: int) -> Sequence[int]:
        """The measurement of the attribute set itself."""
        return [sum(map(len, self.workload.parts[:part])) + index]

    def on_grid(self, grid_bits: int) -> DirectMechanism:
        """Itself: queries have integer coefficients of their own."""
        return self

    def answers(self, part: int, index: int, kept: Mapping[int, Array]) -> Array:
        """The noisy answers as they are, shape (m,); that to a query of zeros is 0."""
        noisy = kept[self.needed(part, index)[0]].reshape(-1)
        return np.where(self._asked(part, index), noisy, 0.0)

    def variances(self, part: int, index: int) -> Array:
        """The same variance (rows²) for every answer at privacy cost 1, shape (m,).

        A query of zeros has none.
        """
        return np.where(self._asked(part, index), self.noise_variance, 0.0)

    def largest_variance(self) -> tuple[float, bool]:
        """The variance of every answer that is not 0 for sure."""
        return self.noise_variance, True

    def _asked(self, part: int, index: int) -> NDArray[np.bool_]:
        """Which queries are not zero, shape (m,)."""
        queries = self.workload.parts[part].queries(index)
        if not any(isinstance(factor, MatrixQueries) for factor in queries):
            return np.ones(count_queries(queries), dtype=np.bool_)
        asked = reduce(np.logical_and.outer, map(_rows_asked, queries))
        return np.asarray(asked, dtype=np.bool_).ravel()


def _rows_asked(queries: Queries) -> NDArray[np.bool_]:
    """Which rows have a coefficient that is not zero, shape (m,)."""
    if isinstance(queries, MatrixQueries):
        return np.asarray(queries.coefficients.any(axis=1), dtype=np.bool_)
    return np.ones(queries.num_queries, dtype=np.bool_)


def _count_asked(queries: Queries) -> int:
    known = isinstance(queries, MatrixQueries)
    return int(_rows_asked(queries).sum()) if known else queries.num_queries


def _squared_sensitivity(queries: Sequence[Queries]) -> float:
    return math.prod(f.squared_norm / f.scale**2 for f in integer_queries(queries))


# Several whole-domain mechanisms side by side, each for its own attribute sets (OPT_+).


@dataclass(frozen=True, eq=False)
class GroupedMechanism:
    """Every attribute set is answered by the mechanism of its group.

    Attributes:
        groups: a mechanism for each group, over the attributes that the group uses.
        shares: shape (groups,): part of the budget of each; sum 1.
        group_of: for each part, shape (sets,): the group that answers a set.
        lower_bound: no mechanism at privacy cost 1 has a smaller total error.
    """

    groups: tuple[WholeDomainMechanism, ...]
    shares: Array
    group_of: tuple[NDArray[np.int64], ...]
    lower_bound: float

    @property
    def workload(self) -> QueryWorkload:
        """What is answered."""
        return self.groups[0].workload

    @cached_property
    def total_error(self) -> float:
        """Σ weight · variance over all queries at privacy cost 1 (rows²)."""
        return sum(
            weight * self._of(part, index).set_error(part, index) / self._share(part, index)
            for part, index, weight in self.workload.sets()
        )

    @property
    def statuses(self) -> Counter[Status]:
        """Of the groups' problems."""
        return Counter(group.status for group in self.groups)

    @property
    def num_measurements(self) -> int:
        """One for each group."""
        return len(self.groups)

    def measurement(self, index: int) -> StrategyMeasurement:
        """The measurement of a group."""
        return replace(self.groups[index].measurement(0), share=float(self.shares[index]))

    def needed(self, part: int, index: int) -> Sequence[int]:
        """The measurement of the set's group."""
        return [int(self.group_of[part][index])]

    def on_grid(self, grid_bits: int) -> GroupedMechanism:
        """The same with integer strategies, whose errors are those reported.

        Raises:
            ResourceExceeded: a strategy has too many cells to be measured.
        """
        groups = tuple(group.on_grid(grid_bits) for group in self.groups)
        return GroupedMechanism(groups, self.shares, self.group_of, self.lower_bound)

    def answers(self, part: int, index: int, kept: Mapping[int, Array]) -> Array:
        """Answers from the table of the set's group, shape (m,)."""
        group = int(self.group_of[part][index])
        return self.groups[group].answers(part, index, {0: kept[group]})

    def variances(self, part: int, index: int) -> Array:
        """Variance (rows²) of each of those answers at privacy cost 1, shape (m,)."""
        return self._of(part, index).variances(part, index) / self._share(part, index)

    def largest_variance(self) -> tuple[float, bool]:
        """Largest variance of all queries at cost 1; exact."""
        top = max(
            self._of(part, index).largest_of(part, index) / self._share(part, index)
            for part, index, _ in self.workload.sets()
        )
        return top, True

    def bias_of(self, part: int, index: int) -> float:
        """Largest part of a query of one attribute set that its group does not measure."""
        return self._of(part, index).bias_of(part, index)

    def _of(self, part: int, index: int) -> WholeDomainMechanism:
        return self.groups[int(self.group_of[part][index])]

    def _share(self, part: int, index: int) -> float:
        return float(self.shares[int(self.group_of[part][index])])


# What no matrix mechanism can beat on a whole workload, whatever it measures.


def any_mechanism_bound(decomposition: Decomposition, settings: SolverSettings) -> float:
    """No matrix mechanism of privacy cost 1 has a smaller total error, of whatever kind.

    The singular value bound of the whole workload where it is known: marginal and circular queries
    ask as much of every value, so their Gram matrix is the orthogonal sum of the subworkloads'
    ones, and the roots of their bounds add up; on a small domain it is taken from the matrix
    itself. (Of other queries the parts in two residual spaces are correlated, and the sum of roots
    may exceed the optimum.) Otherwise the best of several bounds from below.
    """
    workload = decomposition.workload
    clique = used_attributes(workload)
    if all(map(_is_level, workload.parts)):
        roots = np.sqrt([svd_bound(subworkload) for subworkload in decomposition.subworkloads])
        spread = roots[decomposition.class_of] * np.sqrt(decomposition.scales)
        return float(spread.sum() ** 2)
    if workload.domain.size(clique) <= DENSE_CELLS:
        gram = full_gram(workload, clique)
        return gram_bound(gram)
    return max(_sum_of_sets(workload), _of_products(workload, settings))


def used_attributes(workload: QueryWorkload) -> Clique:
    """The attributes that some query depends on."""
    return tuple(sorted({int(i) for part in workload.parts for i in np.unique(part.cliques)}))


def full_gram(workload: QueryWorkload, clique: Clique) -> Array:
    """Gram matrix of a workload on the cells over ``clique``, shape (N, N)."""
    cells = workload.domain.size(clique)
    total = np.zeros((cells, cells))
    for weight, queries, inner in _sets_on_cells(workload, clique):
        gram: Array = np.ones((1, 1))
        for factor in queries:
            gram = np.kron(gram, factor.gram()).astype(np.float64, copy=False)
        total += weight * gram[np.ix_(inner, inner)]
    return total


def _sets_on_cells(
    workload: QueryWorkload, clique: Clique
) -> Iterator[tuple[float, tuple[Queries, ...], NDArray[np.intp]]]:
    """Weight and queries of every set, and the cell of its table for each one over ``clique``."""
    shape = workload.domain.shape(clique)
    codes = np.indices(shape).reshape(len(shape), -1)
    for number, index, weight in workload.sets():
        part = workload.parts[number]
        axes = [clique.index(i) for i in part.cliques[index].tolist()]
        inner = np.ravel_multi_index(tuple(codes[axes]), [shape[axis] for axis in axes])
        yield weight, part.queries(index), np.asarray(inner)


def narrowed(workload: QueryWorkload, clique: Clique) -> QueryWorkload:
    """The same queries on a domain of the attributes in use only."""
    domain = workload.domain
    names = domain.clique_names(clique)
    position = np.zeros(len(domain), dtype=np.int32)
    position[list(clique)] = np.arange(len(clique))
    parts = tuple(
        QueryPart(
            position[part.cliques],
            {int(position[i]): q for i, q in part.axis.items() if i in clique},
            None,
            part.weights,
        )
        for part in workload.parts
    )
    return QueryWorkload(Domain.from_sizes(dict(zip(names, domain.shape(clique)))), parts)


def _is_level(part: QueryPart) -> bool:
    return part.joint is None and all(
        isinstance(q, Marginal | Circular) for q in part.axis.values()
    )


def _sum_of_sets(workload: QueryWorkload) -> float:
    """The least error of all queries is at least the sum of the least errors of each set."""
    known: dict[Queries, float] = {}

    def bound(queries: Queries) -> float:
        if queries not in known:
            known[queries] = _family_bound(queries)
        return known[queries]

    return sum(
        weight * math.prod(map(bound, workload.parts[part].queries(index)))
        for part, index, weight in workload.sets()
    )


def _family_bound(queries: Queries) -> float:
    """(tr √G)²/N; of many cells without a closed form tr G/N, which is less."""
    cells = math.prod(queries.shape)
    known = known_gram_eigenvalues(queries)
    if known is not None:
        return root_sum(known) ** 2 / cells
    if cells <= SINGLE_CELLS:
        return gram_bound(queries.gram())
    return float(queries.column_norms().sum()) / cells


def _of_products(workload: QueryWorkload, settings: SolverSettings) -> float:
    """A bound that joins sets, for products of queries on single attributes; 0 where unknown.

    One set alone has nothing to join; attributes of more than ``SINGLE_CELLS`` values are not
    taken on, since each of their factors is an eigenproblem of their size.
    """
    products = all(part.joint is None for part in workload.parts)
    clique = used_attributes(workload)
    largest = max(workload.domain.shape(clique))
    too_large = largest > SINGLE_CELLS or len(clique) > MOST_ATTRIBUTES
    if not products or too_large or workload.num_sets == 1:
        return 0.0
    try:
        return residual_bound(product_workload(narrowed(workload, clique), settings))
    except ResourceExceeded:
        return 0.0


# Mechanisms on the table over all attributes in use: identity, and the full problem solved.
#
# Splitting a workload by residual spaces costs a few percent where one attribute, or a small
# domain, is all there is; there the full problem can be solved as it is (OPT_0 of McKenna et al.).


def may_be_solved(workload: QueryWorkload, settings: SolverSettings) -> bool:
    """Whether the full problem may be within memory and time, as far as sizes tell."""
    cells = workload.domain.size(used_attributes(workload))
    if cells > optimal.DENSE_CELLS or not optimal.dense_fits(cells, settings):
        return False
    return _has_few_queries(workload, cells) or (
        workload.num_sets * cells**2 <= optimal.TRIED_WORK // optimal.GATHERED_COST
    )


def identity(decomposition: Decomposition, settings: SolverSettings) -> WholeDomainMechanism:
    """Noise on every cell of the table over all attributes in use."""
    workload = decomposition.workload
    clique = used_attributes(workload)
    strategy = Strategy(tuple(IdentityFactor(n) for n in workload.domain.shape(clique)))
    bound = any_mechanism_bound(decomposition, settings)
    return WholeDomainMechanism(workload, clique, strategy, bound, Status.RESTRICTED)


def solve_full(workload: QueryWorkload, settings: SolverSettings) -> WholeDomainMechanism:
    """The optimum on the cells of all attributes in use, among all matrix mechanisms.

    Args:
        workload: one that :func:`may_be_solved`.
        settings: gap and iterations.

    Raises:
        ResourceExceeded: its eigenproblems are too large to be solved beside the split one.
    """
    clique = used_attributes(workload)
    shape = workload.domain.shape(clique)
    if _has_few_queries(workload, math.prod(shape)):
        rows = _weighted_rows(workload, clique)
        solution = solve_rows(rows, np.ones(len(rows)), shape, settings)
    else:
        gram = full_gram(workload, clique)
        blocks = symmetric_blocks(lambda x: gram @ x, shape)
        if optimal.eigen_work(blocks) > optimal.TRIED_WORK:
            raise ResourceExceeded(
                f"the table has {len(gram):,} cells: that is too many to be solved as a whole"
            )
        solution = solve_dense(gram, shape, settings)
    return WholeDomainMechanism(
        workload, clique, solution.strategy, solution.lower_bound, solution.status
    )


def _has_few_queries(workload: QueryWorkload, cells: int) -> bool:
    count = workload.num_queries
    return 2 * count <= cells and count**2 * cells <= optimal.TRIED_WORK


def _weighted_rows(workload: QueryWorkload, clique: Clique) -> Array:
    """All queries on the cells over ``clique`` times the roots of their weights, shape (m, N)."""
    rows = []
    for weight, queries, inner in _sets_on_cells(workload, clique):
        matrix: Array = np.full((1, 1), math.sqrt(weight))
        for factor in queries:
            matrix = np.kron(matrix, factor.matrix()).astype(np.float64, copy=False)
        rows.append(matrix[:, inner])
    return np.concatenate(rows)


# HDMM's strategies as mechanisms that can be measured and answered from.


def hdmm(decomposition: Decomposition, settings: SolverSettings) -> Mechanism:
    """OPT_HDMM: the best of a product, a union of products and weighted marginals.

    Raises:
        WorkloadError: queries on several attributes that are no products.
    """
    workload = decomposition.workload
    selection = select(product_workload(workload, settings), settings=settings)
    strategy = selection.strategy
    bound = max(selection.lower_bound, any_mechanism_bound(decomposition, settings))
    if isinstance(strategy, MarginalStrategy):
        return _of_marginals(decomposition, strategy, bound)
    if isinstance(strategy, UnionStrategy):
        return of_union(workload, strategy, bound)
    return _of_product(workload, strategy, range(workload.num_sets), bound, settings.gap)


def _of_marginals(
    decomposition: Decomposition, strategy: MarginalStrategy, bound: float
) -> ResidualMechanism:
    """Weighted marginals are residuals of certain precisions, at the same cost.

    Those of residuals that no query needs are left out, which only saves budget.
    """
    domain = decomposition.workload.domain
    solutions = solve_all(decomposition.subworkloads, solve_residual_planner)
    shares = np.array([
        privacy_cost(domain, residual)
        * float(strategy.precisions[tuple(int(i in residual) for i in range(len(domain)))])
        for residual in decomposition.residuals
    ])  # fmt: skip
    return ResidualMechanism(decomposition, solutions, shares / shares.sum(), bound)


def of_union(workload: QueryWorkload, strategy: UnionStrategy, bound: float) -> GroupedMechanism:
    """OPT_+: one product strategy for each group of sets; ``bound`` is for all of them."""
    make = partial(_of_product, workload, bound=bound)
    groups = tuple(make(part, group) for part, group in zip(strategy.parts, strategy.groups))
    number = np.empty(workload.num_sets, dtype=np.int64)
    for position, group in enumerate(strategy.groups):
        number[list(group)] = position
    ends = np.cumsum([len(part) for part in workload.parts])
    shares = np.asarray(strategy.scales, dtype=np.float64) ** 2
    return GroupedMechanism(
        groups, shares / shares.sum(), tuple(np.split(number, ends[:-1])), bound
    )


def _of_product(
    workload: QueryWorkload,
    strategy: ProductStrategy,
    sets: Sequence[int],
    bound: float,
    gap: float | None = None,
) -> WholeDomainMechanism:
    """A product strategy on the attributes that some of the sets use.

    Args:
        workload: what is answered.
        strategy: over all attributes of the domain.
        sets: what the strategy answers; all of them where a gap is given.
        bound: on the total error of the whole workload.
        gap: within which of the bound the strategy counts as optimal; None for never.
    """
    clique = _used(workload, sets)
    factors = tuple(strategy.strategy.factors[i] for i in clique)
    made = WholeDomainMechanism(workload, clique, Strategy(factors), bound, Status.RESTRICTED)
    if gap is not None and made.total_error <= bound * (1 + gap):
        return replace(made, status=Status.OPTIMAL)
    return made


def _used(workload: QueryWorkload, sets: Sequence[int]) -> Clique:
    used: set[int] = set()
    start = 0
    wanted = np.asarray(list(sets))
    for part in workload.parts:
        inside = wanted[(wanted >= start) & (wanted < start + len(part))] - start
        used.update(np.unique(part.cliques[inside]).tolist())
        start += len(part)
    return tuple(sorted(used))
