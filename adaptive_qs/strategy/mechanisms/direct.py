"""The Gaussian mechanism: the same noise on every query of the workload, nothing shared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import WorkloadError
from adaptive_qs.strategy.integers.integer_queries import integer_queries
from adaptive_qs.strategy.mechanisms.mechanism import QueryMeasurement
from adaptive_qs.strategy.solution import Status
from adaptive_qs.workload.matrix_queries import MatrixQueries
from adaptive_qs.workload.products import count_queries
from adaptive_qs.workload.queries import Queries
from adaptive_qs.workload.query_workload import QueryWorkload

Array = NDArray[np.float64]


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
            float(weight) * math.prod(map(_count_asked, part.queries(index)))
            for part in self.workload.parts
            for index, weight in enumerate(part.weights)
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
