"""Mechanisms that measure every residual by itself: QuerySmasher and those that it contains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.machine import StepProgress, linear_algebra
from adaptive_qs.strategy import optimal
from adaptive_qs.strategy.bounds import total_variance
from adaptive_qs.strategy.fixed_basis import (
    FourierFactor,
    solve_fourier,
    solve_residual_planner,
    solve_with_basis,
)
from adaptive_qs.strategy.integer import on_grid
from adaptive_qs.strategy.mechanism import (
    ArrayCache,
    Pieces,
    ResidualVariance,
    StrategyMeasurement,
    multiply,
)
from adaptive_qs.strategy.optimal import SolveCache, solve, superadditive_bound
from adaptive_qs.strategy.restricted import attribute_bases, solve_fourier_product
from adaptive_qs.strategy.solution import (
    CenteringFactor,
    Factor,
    Solution,
    SolverSettings,
    Status,
    Strategy,
)
from adaptive_qs.workload.families import answer_product, count_queries
from adaptive_qs.workload.residuals import Decomposition, Subworkload
from adaptive_qs.workload.workload import QueryWorkload

# A mechanism that measures every residual on its own, whatever solver chose the strategies.

Array = NDArray[np.float64]

VARIANCE_BYTES = 2**28
"""Most memory for variances of attribute sets that may come again."""
EXACT_QUERIES = 20_000_000
"""Variances computed one by one to find the largest; beyond, a bound is given instead."""


@dataclass(frozen=True, eq=False)
class ResidualMechanism:
    """Independent measurements of residuals that together answer a workload.

    Attributes:
        decomposition: the residuals, their classes and scales.
        solutions: one for each class, at privacy cost 1.
        shares: shape (residuals,): part of the budget each residual gets; positive, sum 1.
        any_bound: no matrix mechanism of any kind has a smaller total error; 0 where unknown.
    """

    decomposition: Decomposition
    solutions: tuple[Solution, ...]
    shares: Array
    any_bound: float = 0.0
    _variance: ResidualVariance = field(default_factory=ResidualVariance, repr=False)
    _cache: ArrayCache = field(default_factory=lambda: ArrayCache(VARIANCE_BYTES), repr=False)

    @property
    def workload(self) -> QueryWorkload:
        """What is answered."""
        return self.decomposition.workload

    @cached_property
    def errors(self) -> Array:
        """Shape (residuals,): L_τ, weighted squared error of a residual's queries at cost 1."""
        return self._spread([solution.objective for solution in self.solutions])

    @cached_property
    def lower_bounds(self) -> Array:
        """Shape (residuals,): no strategy in the residual space has a smaller L_τ."""
        return self._spread([solution.lower_bound for solution in self.solutions])

    @property
    def total_error(self) -> float:
        """Σ weight · variance over all queries at privacy cost 1 (rows²)."""
        return float((self.errors / self.shares).sum())

    @property
    def lower_bound(self) -> float:
        """No mechanism of independent residual measurements has a smaller total error."""
        return max(float(np.sqrt(self.lower_bounds).sum() ** 2), self.any_bound)

    @property
    def statuses(self) -> Counter[Status]:
        """How the classes' problems ended."""
        return Counter(solution.status for solution in self.solutions)

    @property
    def num_measurements(self) -> int:
        """One for each residual."""
        return len(self.decomposition.residuals)

    def measurement(self, index: int) -> StrategyMeasurement:
        """The measurement of one residual, on the marginal over its attributes."""
        solution = self.solutions[int(self.decomposition.class_of[index])]
        clique = self.decomposition.residuals[index]
        return StrategyMeasurement(clique, solution.strategy, float(self.shares[index]))

    def needed(self, part: int, index: int) -> Sequence[int]:
        """The residuals inside an attribute set."""
        inside: list[int] = self.decomposition.inside[part][index].tolist()
        return [residual for residual in inside if residual >= 0]

    def on_grid(self, grid_bits: int) -> ResidualMechanism:
        """The same with integer strategies, whose errors are those reported.

        Raises:
            ResourceExceeded: a strategy has too many cells to be measured.
        """
        solutions = []
        for subworkload, solution in zip(self.decomposition.subworkloads, self.solutions):
            strategy = on_grid(solution.strategy, grid_bits, of_residual=True)
            objective = total_variance(subworkload, strategy)
            solutions.append(replace(solution, strategy=strategy, objective=objective))
        return ResidualMechanism(self.decomposition, tuple(solutions), self.shares, self.any_bound)

    def marginal(self, part: int, index: int, kept: Mapping[int, Array]) -> Array:
        """The estimated marginal over an attribute set, as far as the workload needs it (rows)."""
        clique = self._clique(part, index)
        shape = self.workload.domain.shape(clique)
        total = np.zeros(shape)
        for residual in self.needed(part, index):
            inner = self.decomposition.residuals[residual]
            sizes = [n if i in inner else 1 for i, n in zip(clique, shape)]
            total += kept[residual].reshape(sizes) * (np.prod(sizes) / np.prod(shape))
        return total

    def answers(self, part: int, index: int, kept: Mapping[int, Array]) -> Array:
        """Answers to all queries of one attribute set from the estimated residuals, shape (m,)."""
        queries = self.workload.parts[part].queries(index)
        return answer_product(queries, self.marginal(part, index, kept)).reshape(-1)

    def variances(self, part: int, index: int) -> Array:
        """Variance (rows²) of each of those answers at privacy cost 1, shape (m,)."""
        queries = self.workload.parts[part].queries(index)
        counts = [factor.num_queries for factor in queries]

        def make() -> Array:
            total = np.zeros(counts)
            for pieces, noise_variance in self._pieces(part, index):
                total += noise_variance * multiply(pieces, counts)
            return total.reshape(-1)

        return self._cache.get(self._signature(part, index), make)

    def largest_variance(self) -> tuple[float, bool]:
        """Largest variance of all queries at cost 1, and whether it is exact or a bound."""
        top, exact, budget = 0.0, True, EXACT_QUERIES
        for number, part in enumerate(self.workload.parts):
            for index in self._distinct_sets(number):
                budget -= count_queries(part.queries(index))
                if budget >= 0:
                    top = max(top, float(self.variances(number, index).max()))
                else:
                    bound = 0.0
                    for kept, strategy, noise_variance in self._inside(number, index):
                        queries = part.queries(index)
                        bound += noise_variance * self._variance.bound(queries, kept, strategy)
                    exact, top = exact and bound <= top, max(top, bound)
        return top, exact

    def _pieces(self, part: int, index: int) -> list[tuple[Pieces, float]]:
        """For each residual inside: what multiplies to its variance, and its noise variance."""
        queries = self.workload.parts[part].queries(index)
        return [
            (self._variance.pieces(queries, kept, strategy), noise_variance)
            for kept, strategy, noise_variance in self._inside(part, index)
        ]

    def _inside(self, part: int, index: int) -> Iterator[tuple[tuple[int, ...], Strategy, float]]:
        """For each residual inside: its axes of the set, its strategy and its noise variance."""
        clique = self._clique(part, index)
        for residual in self.needed(part, index):
            inner = self.decomposition.residuals[residual]
            kept = tuple(axis for axis, i in enumerate(clique) if i in inner)
            strategy = self.solutions[int(self.decomposition.class_of[residual])].strategy
            yield kept, strategy, 1 / float(self.shares[residual])

    def _signature(self, part: int, index: int) -> tuple[object, ...]:
        """Equal for attribute sets whose variances are equal."""
        inside = self.decomposition.inside[part][index]
        known = inside >= 0
        classes = np.where(known, self.decomposition.class_of[inside], -1)
        shares = np.where(known, self.shares[inside], 0.0)
        return (part, self.workload.parts[part].queries(index), classes.tobytes(), shares.tobytes())

    def _distinct_sets(self, part: int) -> list[int]:
        """One attribute set for each signature, up to rounding of the shares."""
        inside = self.decomposition.inside[part]
        known = inside >= 0
        classes = np.where(known, self.decomposition.class_of[inside], -1)
        noise = np.where(known, np.log(self.shares)[inside], 0.0).round(10)
        queries = self.workload.parts[part]
        if queries.joint is None:
            number: dict[object, int] = {}
            family = np.zeros(max(queries.axis) + 1, dtype=np.int64)
            for attribute, axis in queries.axis.items():
                family[attribute] = number.setdefault(axis, len(number))
            kinds = family[queries.cliques]
        else:
            number = {}
            kinds = np.array([[number.setdefault(q, len(number))] for q in queries.joint])
        signature = np.hstack([classes, noise, kinds])
        return [int(i) for i in np.unique(signature, axis=0, return_index=True)[1]]

    def _clique(self, part: int, index: int) -> Clique:
        return tuple(self.workload.parts[part].cliques[index].tolist())

    def _spread(self, values: Sequence[float]) -> Array:
        """One value for each class, scaled to each residual."""
        of_class = np.asarray(values, dtype=np.float64)
        return of_class[self.decomposition.class_of] * self.decomposition.scales


# QuerySmasher: one strategy for each residual space, stitched together (He et al., section 6.4).
#
# Residual τ has a strategy of privacy cost 1 and squared error L_τ. Measured with a share s_τ of
# the budget β its error is L_τ/(βs_τ); the total is least for s_τ = √L_τ / Σ√L, namely (Σ√L)²/β.
# The same sum over lower bounds of L_τ bounds every mechanism that treats residual spaces
# separately. ResidualPlanner, ResidualPlanner+ and Weighted Fourier Factorizations differ only in
# the solver.

Solver = Callable[[Subworkload], Solution]


def smash(
    decomposition: Decomposition,
    solver: Solver,
    jobs: int = 1,
    progress: StepProgress | None = None,
) -> ResidualMechanism:
    """Solve every class of subworkloads once and divide the budget optimally.

    Args:
        decomposition: the subworkloads.
        solver: for one of them.
        jobs: threads that solve.
        progress: called with how many classes are solved, and of how many.

    Raises:
        ResourceExceeded: a subworkload is too large for the solver.
    """
    solutions = solve_all(decomposition.subworkloads, solver, jobs, progress)
    objectives = np.array([solution.objective for solution in solutions])
    shares = np.sqrt(objectives[decomposition.class_of] * decomposition.scales)
    return ResidualMechanism(decomposition, solutions, shares / shares.sum())


def solve_all(
    subworkloads: Sequence[Subworkload],
    solver: Solver,
    jobs: int = 1,
    progress: StepProgress | None = None,
) -> tuple[Solution, ...]:
    """The solutions in order; with several threads each linear algebra call keeps to its own."""
    tell = progress or (lambda done, total: None)
    solutions = []
    threads = min(jobs, len(subworkloads))
    limit = None if threads == 1 else 1
    with linear_algebra().limit(limits=limit), ThreadPoolExecutor(threads) as pool:
        for done, solution in enumerate(pool.map(solver, subworkloads), start=1):
            solutions.append(solution)
            tell(done, len(subworkloads))
    return tuple(solutions)


# Solvers beside the optimal one: what is affordable, and bases of attributes.

Bases = Mapping[int, Factor]
"""A strategy for each attribute, spanning every mean-free vector of its axis."""


def best_affordable(
    decomposition: Decomposition,
    settings: SolverSettings,
    jobs: int = 1,
    progress: StepProgress | None = None,
) -> ResidualMechanism:
    """QuerySmasher where the optimum can be found, else the best restricted strategy.

    A subworkload too large for that gets the better of the Fourier strategy and
    of a product of one-way optima; its gap says how far it may be from the optimum.
    """
    cache = SolveCache()

    def solver(subworkload: Subworkload) -> Solution:
        try:
            return solve(subworkload, settings, cache)
        except ResourceExceeded:
            return restricted(subworkload, settings, cache)

    return smash(decomposition, solver, jobs, progress)


def restricted(subworkload: Subworkload, settings: SolverSettings, cache: SolveCache) -> Solution:
    """The best of the strategies that are cheap to find and can be measured within memory.

    A Fourier factor over several axes, or over one huge axis, is a dense matrix when it is
    measured: it is taken only where that fits. Products of one-axis factors nearly always do.

    Raises:
        ResourceExceeded: even the queries themselves do not fit.
    """
    optimal.check_queries(subworkload, settings)
    found = [solve_residual_planner(subworkload), solve_fourier_product(subworkload, settings)]
    if optimal.factor_fits(subworkload.cells, settings):
        found.append(solve_fourier(subworkload))
    if not optimal.is_joint(subworkload):
        try:
            factors = tuple(
                _axis_optimum(subworkload, axis, settings, cache)
                for axis in range(len(subworkload.shape))
            )
            found.append(solve_with_basis(subworkload, factors))
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
    """The optimum for the queries of one axis, over all terms of a sum of products.

    Raises:
        ResourceExceeded: the axis is too large for the matrices that its error is found from.
    """
    size = subworkload.shape[axis]
    if not optimal.factor_fits(size, settings):
        return CenteringFactor(size)
    optimal.check_dense((size,), settings)
    terms = tuple(replace(term, factors=(term.factors[axis],)) for term in subworkload.terms)
    (factor,) = solve(Subworkload((size,), terms), settings, cache).strategy.factors
    return factor if _spans(factor) else CenteringFactor(size)


def residual_planner_plus(
    decomposition: Decomposition,
    settings: SolverSettings,
    bases: Bases | None = None,
    jobs: int = 1,
    progress: StepProgress | None = None,
) -> ResidualMechanism:
    """ResidualPlanner+: one strategy for each attribute, combined by products.

    Args:
        decomposition: the subworkloads.
        settings: for the one-way problems.
        bases: strategies of some attributes; the others get one chosen from all that is asked
            of them (:mod:`adaptive_qs.strategy.restricted`).
        jobs: threads that solve.
        progress: called with how many classes are solved, and of how many.

    Raises:
        InputError: a basis for an attribute that there is not, or of another size.
    """
    factors, kind = _chosen_bases(decomposition, settings, bases or {})
    split, members = _split_classes(decomposition, kind)
    chosen = {
        id(subworkload): tuple(factors[i] for i in attributes)
        for subworkload, attributes in zip(split.subworkloads, members)
    }
    return smash(split, lambda s: solve_with_basis(s, chosen[id(s)]), jobs, progress)


def _chosen_bases(
    decomposition: Decomposition, settings: SolverSettings, bases: Bases
) -> tuple[list[Factor], list[int]]:
    """A factor for each attribute, and a number for each that is equal where factors are."""
    sizes = decomposition.workload.domain.sizes
    for attribute, basis in bases.items():
        if not 0 <= attribute < len(sizes) or basis.shape != (sizes[attribute],):
            raise InputError(f"a basis of shape {basis.shape} does not fit attribute {attribute}")
    if len(bases) == len(sizes):
        return [bases[i] for i in range(len(sizes))], _numbers(bases)
    factors, numbers = attribute_bases(decomposition, settings)
    given = _numbers(bases)
    for position, attribute in enumerate(sorted(bases)):
        factors[attribute] = bases[attribute]
        numbers[attribute] = -1 - given[position]
    return factors, numbers


def _numbers(bases: Bases) -> list[int]:
    """For each basis, by attribute, the position of the first that is the same object."""
    first: dict[int, int] = {}
    return [first.setdefault(id(bases[i]), k) for k, i in enumerate(sorted(bases))]


def _spans(factor: Factor) -> bool:
    """Whether a factor determines every mean-free vector of its axis."""
    (size,) = factor.shape
    if isinstance(factor, CenteringFactor):
        return True
    if isinstance(factor, FourierFactor):  # its singular values, without its matrix
        values = np.sqrt(factor.weights)
        return int((values > values.max() * size * np.finfo(float).eps).sum()) >= size - 1
    return int(np.linalg.matrix_rank(factor.matrix)) >= size - 1


def _split_classes(
    decomposition: Decomposition, keys: list[int]
) -> tuple[Decomposition, list[tuple[int, ...]]]:
    """Classes whose residuals also have equal bases, and the attributes of one of each."""
    number: dict[tuple[int, tuple[int, ...]], int] = {}
    members: list[tuple[int, ...]] = []
    subworkloads: list[Subworkload] = []
    class_of = np.empty_like(decomposition.class_of)
    for position, residual in enumerate(decomposition.residuals):
        old = int(decomposition.class_of[position])
        key = (old, tuple(keys[i] for i in residual))
        if key not in number:
            number[key] = len(members)
            members.append(residual)
            subworkloads.append(replace(decomposition.subworkloads[old]))
        class_of[position] = number[key]
    split = replace(decomposition, subworkloads=tuple(subworkloads), class_of=class_of)
    return split, members
