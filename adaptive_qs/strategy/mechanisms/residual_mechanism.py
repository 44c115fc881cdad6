"""A mechanism that measures every residual on its own, whatever solver chose the strategies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.strategy.integers.grid import on_grid
from adaptive_qs.strategy.matrix import Strategy
from adaptive_qs.strategy.mechanisms.cache import ArrayCache
from adaptive_qs.strategy.mechanisms.mechanism import StrategyMeasurement
from adaptive_qs.strategy.mechanisms.residual_variance import (
    Pieces,
    ResidualVariance,
    multiply,
)
from adaptive_qs.strategy.objective import total_variance
from adaptive_qs.strategy.solution import Solution, Status
from adaptive_qs.workload.decomposition import Decomposition
from adaptive_qs.workload.products import answer_product, count_queries
from adaptive_qs.workload.query_workload import QueryWorkload

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
