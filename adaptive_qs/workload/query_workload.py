"""A workload of weighted counting queries, by sets of attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Domain
from adaptive_qs.errors import WorkloadError
from adaptive_qs.workload.matrix_queries import MatrixQueries
from adaptive_qs.workload.queries import AxisQueries, Queries
from adaptive_qs.workload.workload import LEAST_WEIGHT, MOST_WEIGHT

Array = NDArray[np.float64]
CliqueArray = NDArray[np.int32]

WEIGHT_RANGE = 1e9
"""Largest ratio of two weights: far beyond it solvers would take the lesser for rounding errors."""


@dataclass(frozen=True, eq=False)
class QueryPart:
    """Sets of equally many attributes and what is asked of each.

    Attributes:
        cliques: shape (sets, k): attribute positions, ascending along each row.
        axis: the queries on each attribute, which a set combines by their product; empty where
            ``joint`` is given.
        joint: for each set, queries on all its attributes at once; None for products.
        weights: shape (sets,): how much the squared error of each query of a set counts, from
            ``LEAST_WEIGHT`` to ``MOST_WEIGHT``.

    Raises:
        WorkloadError: no sets, or a weight out of its range.
    """

    cliques: CliqueArray
    axis: Mapping[int, AxisQueries]
    joint: tuple[Queries, ...] | None
    weights: Array

    def __post_init__(self) -> None:
        if not self.cliques.size:
            raise WorkloadError("the workload has a part without attributes: name some")
        bad = ~((self.weights >= LEAST_WEIGHT) & (self.weights <= MOST_WEIGHT))  # NaN as well
        if bad.any():
            raise WorkloadError(
                f"the workload has weight {float(self.weights[bad][0])!r}: give a number from "
                f"{LEAST_WEIGHT:g} to {MOST_WEIGHT:g}"
            )

    def __len__(self) -> int:
        return len(self.cliques)

    @property
    def degree(self) -> int:
        """Attributes in each set, k."""
        return int(self.cliques.shape[1])

    def queries(self, index: int) -> tuple[Queries, ...]:
        """The factors of one set's queries: one for each attribute, or one for them all."""
        if self.joint is not None:
            return (self.joint[index],)
        return tuple(self.axis[int(i)] for i in self.cliques[index])

    @property
    def is_zero(self) -> bool:
        """Whether every coefficient of every query is zero."""
        known: dict[Queries, bool] = {}

        def is_zero(queries: Queries) -> bool:
            if not isinstance(queries, MatrixQueries):
                return False
            if queries not in known:
                known[queries] = not queries.coefficients.any()
            return known[queries]

        return all(any(map(is_zero, self.queries(index))) for index in range(len(self)))

    @cached_property
    def num_queries(self) -> int:
        """Queries of all sets together (exact)."""
        if self.joint is not None:
            return sum(queries.num_queries for queries in self.joint)
        counts = np.empty(max(self.axis) + 1, dtype=object)
        for attribute, queries in self.axis.items():
            counts[attribute] = queries.num_queries
        return int(sum(math.prod(row) for row in counts[self.cliques].tolist()))


@dataclass(frozen=True, eq=False)
class QueryWorkload:
    """Queries to answer, in parts.

    Attributes:
        domain: the attributes the parts refer to.
        parts: at least one.

    Raises:
        WorkloadError: no parts, or weights too far apart.
    """

    domain: Domain
    parts: tuple[QueryPart, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise WorkloadError("the workload is empty: name at least one set of attributes")
        largest = max(float(part.weights.max()) for part in self.parts)
        least = min(float(part.weights.min()) for part in self.parts)
        if least * WEIGHT_RANGE < largest:
            raise WorkloadError(
                f"the workload's weights reach from {least:g} to {largest:g}, more than a factor "
                f"of {WEIGHT_RANGE:g} apart: raise the smaller, or leave out what matters so little"
            )

    @property
    def num_queries(self) -> int:
        """Queries of all parts together (exact)."""
        return sum(part.num_queries for part in self.parts)

    @property
    def num_sets(self) -> int:
        """Attribute sets of all parts together."""
        return sum(map(len, self.parts))
