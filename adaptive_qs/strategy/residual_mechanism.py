"""Mechanisms that measure residuals separately: QuerySmasher and its special cases."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.machine import StepProgress, ThreadPool, linear_algebra
from adaptive_qs.strategy import bounds as known_bounds
from adaptive_qs.strategy import optimal
from adaptive_qs.strategy.bounds import is_product, solve_fourier
from adaptive_qs.strategy.integer import on_grid
from adaptive_qs.strategy.mechanism import ArrayCache, Mechanism, StrategyMeasurement
from adaptive_qs.strategy.optimal import SolveCache, solve, superadditive_bound
from adaptive_qs.strategy.solution import (
    Array,
    CenteringFactor,
    Factor,
    Solution,
    SolverSettings,
    Status,
    Strategy,
)
from adaptive_qs.workload.families import answer_product, count_queries
from adaptive_qs.workload.matrices import Queries
from adaptive_qs.workload.residuals import Decomposition, Subworkload
from adaptive_qs.workload.workload import QueryWorkload

# A mechanism that measures every residual on its own, whatever solver chose the strategies.
# The noise of residual τ spreads evenly over the axes outside τ, so a product of queries on γ ⊇ τ
# sees it as σ²_τ · diag(Q V⁺_τ Qᵀ) over the axes of τ times the squared means of the others; the
# variances of the residuals in γ add up (He et al., Algorithm 1).

Pieces = list[tuple[tuple[int, ...], Array]]
"""Non-negative arrays over some axes of a query set; their product over all axes is a variance."""

VARIANCE_BYTES = 2**28
"""Most bytes of variances in memory for later sets."""
EXACT_QUERIES = 20_000_000
"""Most variances computed to find the largest; beyond that it is bounded."""


@dataclass(frozen=True, eq=False)
class ResidualMechanism(Mechanism):
    """Independent measurements of residuals that together answer a workload."""

    decomposition: Decomposition  # the residuals, their classes and scales
    solutions: tuple[Solution, ...]  # one for each class, at privacy cost 1
    shares: Array  # shape (residuals,): part of the budget each residual gets; positive, sum 1
    any_bound: float = 0.0  # no matrix mechanism has a smaller total error; 0 where unknown
    _cache: ArrayCache = field(default_factory=lambda: ArrayCache(VARIANCE_BYTES), repr=False)

    @property
    def workload(self) -> QueryWorkload:
        return self.decomposition.workload

    @cached_property
    def errors(self) -> Array:
        """Weighted squared error L_τ of each residual's queries at cost 1, shape (residuals,)."""
        return self._spread([solution.objective for solution in self.solutions])

    @property
    def total_error(self) -> float:
        return float((self.errors / self.shares).sum())

    @property
    def lower_bound(self) -> float:
        """Total error that no mechanism of independent residual measurements beats."""
        bounds = self._spread([solution.lower_bound for solution in self.solutions])
        return max(float(np.sqrt(bounds).sum() ** 2), self.any_bound)

    @property
    def statuses(self) -> Counter[Status]:
        return Counter(solution.status for solution in self.solutions)

    @property
    def num_measurements(self) -> int:
        return len(self.decomposition.residuals)

    def measurement(self, index: int) -> StrategyMeasurement:
        solution = self.solutions[int(self.decomposition.class_of[index])]
        clique = self.decomposition.residuals[index]
        return StrategyMeasurement(clique, solution.strategy, float(self.shares[index]))

    def needed(self, part: int, index: int) -> Sequence[int]:
        inside: list[int] = self.decomposition.inside[part][index].tolist()
        return [residual for residual in inside if residual >= 0]

    def on_grid(self, grid_bits: int) -> ResidualMechanism:
        solutions = []
        for subworkload, solution in zip(self.decomposition.subworkloads, self.solutions):
            strategy = on_grid(solution.strategy, grid_bits, of_residual=True)
            objective = known_bounds.total_variance(subworkload, strategy)
            solutions.append(replace(solution, strategy=strategy, objective=objective))
        return ResidualMechanism(self.decomposition, tuple(solutions), self.shares, self.any_bound)

    def marginal(self, part: int, index: int, kept: Mapping[int, Array]) -> Array:
        """Return the marginal over an attribute set (rows), estimated from the needed residuals."""
        clique = tuple(self.workload.parts[part].cliques[index].tolist())
        shape = self.workload.domain.shape(clique)
        total = np.zeros(shape)
        for residual in self.needed(part, index):
            inner = self.decomposition.residuals[residual]
            sizes = [n if i in inner else 1 for i, n in zip(clique, shape)]
            total += kept[residual].reshape(sizes) * (np.prod(sizes) / np.prod(shape))
        return total

    def answers(self, part: int, index: int, kept: Mapping[int, Array]) -> Array:
        queries = self.workload.parts[part].queries(index)
        return answer_product(queries, self.marginal(part, index, kept)).reshape(-1)

    def variances(self, part: int, index: int) -> Array:
        queries = self.workload.parts[part].queries(index)
        counts = [factor.num_queries for factor in queries]

        def make() -> Array:
            total = np.zeros(counts)
            for kept, strategy, noise_variance in self._inside(part, index):
                product = np.array(noise_variance)
                for axes, piece in self._pieces(queries, kept, strategy):
                    sizes = [m if axis in axes else 1 for axis, m in enumerate(counts)]
                    product = product * piece.reshape(sizes)
                total += product
            return total.reshape(-1)

        return self._cache.get(self._signature(part, index), make)

    def largest_variance(self) -> tuple[float, bool]:
        top, exact, budget = 0.0, True, EXACT_QUERIES
        for number, part in enumerate(self.workload.parts):
            for index in self._distinct_sets(number):
                budget -= count_queries(part.queries(index))
                if budget >= 0:
                    top = max(top, float(self.variances(number, index).max()))
                else:
                    bound = 0.0
                    for kept, strategy, noise_variance in self._inside(number, index):
                        pieces = self._pieces(part.queries(index), kept, strategy, True)
                        bound += noise_variance * math.prod(float(p.max()) for _, p in pieces)
                    exact, top = exact and bound <= top, max(top, bound)
        return top, exact

    def _pieces(
        self,
        queries: Sequence[Queries],
        kept: tuple[int, ...],
        strategy: Strategy,
        by_length: bool = False,
    ) -> Pieces:
        """Return arrays by groups of axes whose product is the variance of a set's queries.

        ``kept`` are the axes of γ that τ has. With ``by_length`` arcs have one number for each
        length, so that families of many millions of queries take no memory.
        """
        if len(queries[0].shape) > 1:
            return [((0,), self._joint(queries[0], kept, strategy))]
        outside = [axis for axis in range(len(queries)) if axis not in kept]
        return [
            *(((axis,), self._mean(queries[axis], by_length)) for axis in outside),
            *(
                (axes, self._block(tuple(queries[axis] for axis in axes), block, by_length))
                for axes, block in strategy.split(kept)
            ),
        ]

    def _mean(self, queries: Queries, by_length: bool) -> Array:
        def make() -> Array:
            lengths = queries.arc_lengths() if by_length else None
            sums = queries.sums() if lengths is None else lengths
            return np.asarray((sums / queries.shape[0]) ** 2, dtype=np.float64)

        return self._cache.get((queries, by_length), make)

    def _block(self, queries: tuple[Queries, ...], block: Factor, by_length: bool) -> Array:
        def make() -> Array:
            if not by_length:
                return block.variances(queries)
            return np.array([block.largest_variance(queries)])

        return self._cache.get((queries, id(block), by_length), make)

    def _joint(self, queries: Queries, kept: tuple[int, ...], strategy: Strategy) -> Array:
        dropped = tuple(1 + axis for axis in range(len(queries.shape)) if axis not in kept)

        def make() -> Array:
            rows = queries.matrix().reshape(-1, *queries.shape).mean(axis=dropped)
            for block in strategy.factors:
                rows = rows.reshape(len(rows), math.prod(block.shape), -1)
                rows = np.einsum("mcr,cb->mrb", rows, block.inverse, optimize=True)
            return (rows.reshape(len(rows), -1) ** 2).sum(axis=1)

        return self._cache.get((queries, kept, tuple(map(id, strategy.factors))), make)

    def _inside(self, part: int, index: int) -> Iterator[tuple[tuple[int, ...], Strategy, float]]:
        """Yield for each residual inside: its axes in the set, strategy and noise variance."""
        clique = tuple(self.workload.parts[part].cliques[index].tolist())
        for residual in self.needed(part, index):
            inner = self.decomposition.residuals[residual]
            kept = tuple(axis for axis, i in enumerate(clique) if i in inner)
            strategy = self.solutions[int(self.decomposition.class_of[residual])].strategy
            yield kept, strategy, 1 / float(self.shares[residual])

    def _find_inside(self, part: int, index: int | slice) -> tuple[Array, Array]:
        """Return class and share of every residual inside, −1 and 0 if there is none."""
        inside = self.decomposition.inside[part][index]
        known = inside >= 0
        classes = np.where(known, self.decomposition.class_of[inside], -1)
        return classes, np.where(known, self.shares[inside], 0.0)

    def _signature(self, part: int, index: int) -> tuple[object, ...]:
        """Return a key that is equal for attribute sets with equal variances."""
        queries = self.workload.parts[part].queries(index)
        return (part, queries, *(array.tobytes() for array in self._find_inside(part, index)))

    def _distinct_sets(self, part: int) -> list[int]:
        """Return one attribute set for each signature, up to rounding of the shares."""
        classes, shares = self._find_inside(part, slice(None))
        noise = np.log(shares, out=np.zeros_like(shares), where=shares > 0).round(10)
        queries = self.workload.parts[part]
        number: dict[object, int] = {}
        if queries.joint is None:
            family = np.zeros(max(queries.axis) + 1, dtype=np.int64)
            for attribute, axis in queries.axis.items():
                family[attribute] = number.setdefault(axis, len(number))
            kinds = family[queries.cliques]
        else:
            kinds = np.array([[number.setdefault(q, len(number))] for q in queries.joint])
        signature = np.hstack([classes, noise, kinds])
        return [int(i) for i in np.unique(signature, axis=0, return_index=True)[1]]

    def _spread(self, values: Sequence[float]) -> Array:
        """Return the value of its class for each residual, scaled."""
        of_class = np.asarray(values, dtype=np.float64)
        return of_class[self.decomposition.class_of] * self.decomposition.scales


# QuerySmasher: one strategy for each residual space, stitched together (He et al., section 6.4).
# Residual τ has a strategy of privacy cost 1 and squared error L_τ. Measured with a share s_τ of
# the budget β its error is L_τ/(βs_τ); the total is least for s_τ = √L_τ / Σ√L, namely (Σ√L)²/β.
# The same sum over lower bounds of L_τ bounds every mechanism that treats residual spaces
# separately. ResidualPlanner and Weighted Fourier Factorizations differ only in the solver.

Solver = Callable[[Subworkload], Solution]


def smash(
    decomposition: Decomposition,
    solver: Solver,
    jobs: int = 1,
    progress: StepProgress | None = None,
) -> ResidualMechanism:
    """Solve every class of subworkloads once and divide the budget optimally.

    Several classes are solved side by side, the largest first; then each linear algebra call keeps
    to its own thread, whatever their number, so that the result does not depend on it. ``progress``
    is called with how many classes of how many are solved. A subworkload too large for the solver
    is refused.
    """
    subworkloads = decomposition.subworkloads
    largest_first = sorted(range(len(subworkloads)), key=lambda k: -subworkloads[k].cells)
    limit = None if len(subworkloads) == 1 else 1
    found: dict[int, Solution] = {}
    with linear_algebra().limit(limits=limit), ThreadPool(min(jobs, len(subworkloads))) as pool:
        solved = pool.map(solver, (subworkloads[k] for k in largest_first))
        for number, solution in zip(largest_first, solved):
            found[number] = solution
            if progress is not None:
                progress(len(found), len(subworkloads))
    solutions = [found[number] for number in range(len(subworkloads))]
    objectives = np.array([solution.objective for solution in solutions])
    shares = np.sqrt(objectives[decomposition.class_of] * decomposition.scales)
    return ResidualMechanism(decomposition, tuple(solutions), shares / shares.sum())


# Solvers for subworkloads whose optimum is too large to find.


def affordable_solver(settings: SolverSettings) -> Solver:
    """Return a solver for the optimum if it can be found, else for the best restricted strategy.

    A subworkload too large for that gets the better of the Fourier strategy and of a product of
    one-way optima; its gap says how far it may be from the optimum.
    """
    cache = SolveCache()

    def solver(subworkload: Subworkload) -> Solution:
        try:
            return solve(subworkload, settings, cache)
        except ResourceExceeded:
            return restricted(subworkload, settings, cache)

    return solver


def restricted(subworkload: Subworkload, settings: SolverSettings, cache: SolveCache) -> Solution:
    """Return the best of the strategies that are cheap to find and fit in memory when measured.

    A Fourier factor over several axes, or over one huge axis, is a dense matrix when it is
    measured: it is taken only where that fits. Queries that do not fit are refused
    (ResourceExceeded).
    """
    optimal.check_queries(subworkload, settings)
    found = [known_bounds.solve_residual_planner(subworkload)]
    if settings.can_measure(subworkload.cells):
        found.append(solve_fourier(subworkload))
    if all(is_product(term, len(subworkload.shape)) for term in subworkload.terms):
        try:
            factors = tuple(
                _axis_optimum(subworkload, axis, settings, cache)
                for axis in range(len(subworkload.shape))
            )
            found.append(known_bounds.solve_with_basis(subworkload, factors))
        except ResourceExceeded:
            pass
    best = min(found, key=lambda solution: solution.objective)
    bounds = [solution.lower_bound for solution in found]
    return replace(
        best, lower_bound=max(superadditive_bound(subworkload, settings, cache), *bounds)
    )


def _axis_optimum(
    subworkload: Subworkload, axis: int, settings: SolverSettings, cache: SolveCache
) -> Factor:
    size = subworkload.shape[axis]
    if not settings.can_measure(size):
        return CenteringFactor(size)
    terms = tuple(replace(term, factors=(term.factors[axis],)) for term in subworkload.terms)
    (factor,) = solve(Subworkload((size,), terms), settings, cache).strategy.factors
    return factor if factor.spans_residual else CenteringFactor(size)
