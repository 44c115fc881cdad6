"""Queries with integer coefficients, for mechanisms that measure the queries themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.workload.queries import Queries

Integers = NDArray[np.int64]

GRID_BITS = 30
"""Bits of all coefficients together: answers to 2³¹ rows stay in 64 bits."""
QUERY_BITS = 20
"""Bits after the point that are kept of a coefficient that is no integer."""


@dataclass(frozen=True, eq=False)
class IntegerQueries:
    """One factor of a product of queries, times a power of two.

    Attributes:
        answer: exact integer answers to tables (*shape, ...) of integers -> (m, ...).
        squared_norm: largest squared column norm of the integer matrix.
        largest: a bound on its coefficients' sum over a cell's worth of rows.
        scale: what the queries were multiplied with.
    """

    answer: Callable[[Integers], Integers]
    squared_norm: int
    largest: int
    scale: int


def integer_queries(queries: Sequence[Queries]) -> tuple[IntegerQueries, ...]:
    """The factors of a product of queries, each with integer coefficients.

    Coefficients that are no integers are rounded to ``QUERY_BITS`` bits after the point; the
    sensitivity is that of the rounded ones.

    Raises:
        ResourceExceeded: the coefficients are too large for exact 64-bit answers.
    """
    factors = tuple(map(_integer, queries))
    if math.prod(factor.largest for factor in factors) > 2**GRID_BITS:
        raise ResourceExceeded(
            "the coefficients of the queries are too large for exact integers: divide the custom "
            "matrices by a common factor, or use another mechanism than gaussian"
        )
    return factors


def _integer(queries: Queries) -> IntegerQueries:
    if queries.integral and len(queries.shape) == 1 and not hasattr(queries, "coefficients"):
        squared = round(float(queries.column_norms().max()))

        def count(table: Integers) -> Integers:
            return np.asarray(queries.answer(table), dtype=np.int64)  # type: ignore[arg-type]

        return IntegerQueries(count, squared, 1, 1)
    scale = 1 if queries.integral else 2**QUERY_BITS
    matrix = np.rint(queries.matrix() * scale)
    largest = int(abs(matrix).max())
    if largest > 2**GRID_BITS:
        return IntegerQueries(lambda table: table, 0, largest, scale)
    rows = matrix.astype(np.int64)
    norms = (matrix.astype(object) ** 2).sum(axis=0)
    cells = math.prod(queries.shape)

    def apply(table: Integers) -> Integers:
        flat = table.reshape(cells, -1)
        return (rows @ flat).reshape(-1, *table.shape[len(queries.shape) :])

    return IntegerQueries(apply, int(max(norms)), max(largest, 1), scale)
