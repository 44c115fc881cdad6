"""Memory, time and output of an `answer` run, from public quantities."""

from __future__ import annotations

import math
from dataclasses import dataclass

from adaptive_qs.machine import PROCESS_BYTES
from adaptive_qs.strategy.integers.grid import GridFactor
from adaptive_qs.strategy.matrix import CenteringFactor, DenseFactor, Factor, IdentityFactor
from adaptive_qs.strategy.mechanisms.mechanism import Mechanism, StrategyMeasurement
from adaptive_qs.workload.products import count_queries

TABLE_BYTES = 96 * 2**20
"""Batches of answers in words on their way to a file, whatever their number."""
HELD_MATRICES, PASSING_MATRICES = 3, 5
"""Arrays of a strategy's size that stay (integers, inverse, covariance), and those of the largest
strategy that pass while it is made integral."""
CELL_BYTES = 48
"""Counts, integer answers, noise, noisy answers and estimate of one cell of a measurement."""
KEPT_BYTES = 8
"""One cell of a measurement that is kept until the last attribute set has used it."""
ANSWER_BYTES = 64
"""Estimate, variance, interval and text of one answer of the attribute set at work."""
NOISE_PER_SECOND = 6e6
"""Exact draws on one core."""
ANSWERS_PER_SECOND = 6e6
"""Answers with their variance, on one core, without writing them."""
MATRIX_PRODUCTS = 6
"""Products of square matrices, or what costs as much, to make a strategy integral, to find its
covariance and its inverse."""
PRODUCT_RATE = 3e10
"""Multiply-adds of them in a second, on one core."""


@dataclass(frozen=True)
class Forecast:
    """What a run will take; times are estimates for one core.

    Attributes:
        memory_bytes: peak of the process without the private table.
        strategy_bytes: of that, what the matrices of strategies take.
        seconds: measuring and answering, without reading the table and writing the answers.
        noise_draws: integer noise values.
        largest_set: queries of the largest attribute set.
    """

    memory_bytes: int
    strategy_bytes: int
    seconds: float
    noise_draws: int
    largest_set: int


def forecast(mechanism: Mechanism) -> Forecast:
    """Add up the measurements and answers of a plan."""
    draws, largest, kept = 0, 0, 0
    strategies: dict[int, int] = {}
    deepest = max((part.degree for part in mechanism.workload.parts), default=0)
    for number in range(mechanism.num_measurements):
        measurement = mechanism.measurement(number)
        if isinstance(measurement, StrategyMeasurement):
            cells = math.prod(measurement.strategy.shape)
            for factor in measurement.strategy.factors:
                strategies[id(factor)] = _entries(factor)
        else:
            cells = count_queries(measurement.queries)
        draws += cells
        largest = max(largest, cells)
        if len(measurement.clique) < deepest:
            kept += cells
    answers = largest_set = 0
    for part in mechanism.workload.parts:
        answers += part.num_queries
        for queries in {part.queries(index) for index in range(len(part))}:
            largest_set = max(largest_set, count_queries(queries))
    memory = PROCESS_BYTES + TABLE_BYTES + kept * KEPT_BYTES
    memory += largest * CELL_BYTES + largest_set * ANSWER_BYTES
    matrices = 8 * HELD_MATRICES * sum(strategies.values())
    matrices += 8 * PASSING_MATRICES * max(strategies.values(), default=0)
    memory += matrices
    seconds = draws / NOISE_PER_SECOND + answers / ANSWERS_PER_SECOND
    seconds += sum(n**1.5 for n in strategies.values()) * MATRIX_PRODUCTS / PRODUCT_RATE
    return Forecast(memory, matrices, seconds, draws, largest_set)


def _entries(factor: Factor) -> int:
    """Entries of the largest matrix that a factor needs when it is measured."""
    if isinstance(factor, CenteringFactor | IdentityFactor):
        return 0
    cells = math.prod(factor.shape)
    if isinstance(factor, GridFactor):
        return max(len(factor.integers), cells if factor.is_full else 0) * cells
    if isinstance(factor, DenseFactor):
        return max(len(factor.matrix), 0 if factor.gram_inverse is None else cells) * cells
    return cells**2
