"""Queries with integer coefficients, for mechanisms that measure the queries themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.workload.queries import Queries

Integers = NDArray[np.int64]

GRID_BITS = 30
"""Bits of all coefficients together: answers to 2³¹ rows stay in 64 bits."""
LEAST_BITS = 15
"""Fewest bits of a factor whose coefficients are no integers."""


@dataclass(frozen=True, eq=False)
class IntegerQueries:
    """One factor of a product of queries, times a power of two.

    Attributes:
        answer: exact integer answers to tables (*shape, ...) of integers -> (m, ...).
        squared_norm: largest squared column norm of the integer matrix; 0 if that is zero.
        largest: its largest absolute coefficient.
        scale: what the queries were multiplied with.
    """

    answer: Callable[[Integers], Integers]
    squared_norm: int
    largest: int
    scale: float


def integer_queries(queries: Sequence[Queries]) -> tuple[IntegerQueries, ...]:
    """The factors of a product of queries, each with integer coefficients.

    Coefficients that are no integers are rounded to an even share of ``GRID_BITS`` bits, counted
    from the largest: an answer moves by at most 2^-bits of the largest for every row. Sensitivity
    and variance are those of the rounded ones.

    Raises:
        ResourceExceeded: the coefficients are too large for exact 64-bit answers.
    """
    scales = _scales(queries)
    factors = tuple(map(_integer, queries, scales))
    if math.prod(factor.largest for factor in factors) > 2**GRID_BITS:
        _refuse()
    return factors


def answer_scale(queries: Sequence[Queries]) -> float:
    """What the answers to :func:`integer_queries` are multiples of."""
    return math.prod(_scales(queries))


def _scales(queries: Sequence[Queries]) -> list[float]:
    """A power of two for each factor; 1 for integral ones."""
    largest = [1.0 if _counts(q) else float(abs(q.matrix()).max()) for q in queries]
    rounded = [not q.integral for q in queries]
    if not any(rounded):
        return [1.0] * len(largest)
    left = GRID_BITS - sum(math.log2(max(c, 1.0)) for c, r in zip(largest, rounded) if not r)
    bits = math.floor(left / sum(rounded))
    if bits < LEAST_BITS:
        _refuse()
    return [2.0 ** (bits - math.frexp(c)[1]) if r else 1.0 for c, r in zip(largest, rounded)]


def _refuse() -> NoReturn:
    raise ResourceExceeded(
        "the coefficients of the queries are too large for exact integers: divide the custom "
        "matrices by a common factor, or use another mechanism than gaussian"
    )


def _counts(queries: Queries) -> bool:
    """Whether all coefficients are known to be 0 or 1."""
    return queries.integral and len(queries.shape) == 1 and not hasattr(queries, "coefficients")


def _integer(queries: Queries, scale: float) -> IntegerQueries:
    if _counts(queries):
        squared = round(float(queries.column_norms().max()))

        def count(table: Integers) -> Integers:
            return np.asarray(queries.answer(table), dtype=np.int64)  # type: ignore[arg-type]

        return IntegerQueries(count, squared, 1, 1.0)
    matrix = np.rint(queries.matrix() * scale)
    largest = int(abs(matrix).max())
    if largest > 2**GRID_BITS:
        _refuse()
    rows = matrix.astype(np.int64)
    # Squares below 2⁶⁰: few of them are added in 64 bits, more in Python's integers.
    exact = rows if largest**2 * len(rows) < 2**62 else rows.astype(object)
    squared = int((exact * exact).sum(axis=0).max())
    cells = math.prod(queries.shape)

    def apply(table: Integers) -> Integers:
        flat = table.reshape(cells, -1)
        return (rows @ flat).reshape(-1, *table.shape[len(queries.shape) :])

    return IntegerQueries(apply, squared, largest, scale)
