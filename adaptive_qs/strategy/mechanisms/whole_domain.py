"""A mechanism that measures one product strategy on the table over all attributes in use.

Identity, a product strategy of HDMM, and the full problem on a small domain are of this kind: the
estimate of the whole table B⁺z answers every query, with covariance ⊗V_k⁺.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.strategy.integers.grid import on_grid
from adaptive_qs.strategy.matrix import Factor, Strategy
from adaptive_qs.strategy.mechanisms.cache import ArrayCache
from adaptive_qs.strategy.mechanisms.mechanism import StrategyMeasurement
from adaptive_qs.strategy.mechanisms.squares import block_squares, joint_squares, largest_bias
from adaptive_qs.strategy.solution import Status
from adaptive_qs.workload.products import answer_product
from adaptive_qs.workload.queries import Queries
from adaptive_qs.workload.query_workload import QueryWorkload

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
        return sum(
            float(weight) * self.set_error(number, index)
            for number, part in enumerate(self.workload.parts)
            for index, weight in enumerate(part.weights)
        )

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
        top = max(
            self.largest_of(number, index)
            for number, part in enumerate(self.workload.parts)
            for index in range(len(part))
        )
        return top, True

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
        biases, start = [0.0], 0
        for factor in self.strategy.factors:
            inside = self.clique[start : start + len(factor.shape)]
            start += len(factor.shape)
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
        start = 0
        if len(queries[0].shape) > 1:
            return [self._joint(queries[0], tuple(self.clique.index(i) for i in clique))]
        for factor in self.strategy.factors:
            inside = self.clique[start : start + len(factor.shape)]
            start += len(factor.shape)
            axes = tuple(queries[clique.index(i)] if i in clique else None for i in inside)
            pieces.append(self._block(axes, factor))
        return pieces

    def _block(self, queries: tuple[Queries | None, ...], factor: Factor) -> Array:
        return self._cache.get((queries, id(factor)), lambda: block_squares(queries, factor))

    def _joint(self, queries: Queries, axes: tuple[int, ...]) -> Array:
        factors = self.strategy.factors
        return self._cache.get((queries, axes), lambda: joint_squares(queries, axes, factors))
