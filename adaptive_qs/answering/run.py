"""From a plan and private counts to answers, one attribute set at a time.

Measurements do not depend on each other's outcomes, so each is made when the first attribute set
needs it and forgotten after the last: memory does not grow with the number of answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.answering.measure import measure
from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.domain import Clique
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.strategy.mechanism import Mechanism
from adaptive_qs.workload.queries import Queries

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SetAnswers:
    """Answers to all queries on one set of attributes.

    Attributes:
        part: the part of the workload.
        index: the attribute set in the part.
        clique: its attributes.
        queries: a product of families, or one joint family; answers are ordered as theirs.
        estimates: shape (m,): unbiased noisy answers (rows).
        variances: shape (m,): their variances (rows²).
    """

    part: int
    index: int
    clique: Clique
    queries: tuple[Queries, ...]
    estimates: Array
    variances: Array


def answer_sets(
    mechanism: Mechanism, counter: MarginalCounter, mechanisms: Mechanisms, units: int
) -> Iterator[SetAnswers]:
    """Spend the budget and answer every attribute set of every part, in order.

    Args:
        mechanism: the plan; its strategies must be on the grid.
        counter: the private counts.
        mechanisms: charges before each draw.
        units: the whole budget in units of 2**-60 ρ; all of it is spent.

    Yields:
        The answers of one attribute set.
    """
    costs = divide_units(mechanism, units)
    cost_per_unit = 2 * units / 2.0**60
    parts = mechanism.workload.parts
    pairs = [(part, index) for part in range(len(parts)) for index in range(len(parts[part]))]
    uses = Counter(m for part, index in pairs for m in mechanism.needed(part, index))
    kept: dict[int, Array] = {}
    for part, index in pairs:
        needed = mechanism.needed(part, index)
        for number in needed:
            if number not in kept:
                measurement = mechanism.measurement(number)
                kept[number] = measure(counter, mechanisms, measurement, costs[number])
        estimates = mechanism.answers(part, index, kept)
        variances = mechanism.variances(part, index) / cost_per_unit
        for number in needed:
            uses[number] -= 1
            if not uses[number]:
                del kept[number]
        clique = tuple(parts[part].cliques[index].tolist())
        yield SetAnswers(part, index, clique, parts[part].queries(index), estimates, variances)


def divide_units(mechanism: Mechanism, units: int) -> list[int]:
    """Whole units for each measurement by its share, at least one; they add up to ``units``.

    Raises:
        InputError: the budget is too small to give every measurement a unit.
    """
    count = mechanism.num_measurements
    shares = [mechanism.measurement(number).share for number in range(count)]
    costs = [max(1, int(share * units)) for share in shares]
    largest = max(range(count), key=costs.__getitem__)
    costs[largest] += units - sum(costs)
    assert costs[largest] > 0
    return costs
