"""From a plan and private counts to answers, one attribute set at a time.

Measurements do not depend on each other's outcomes, so each is made when the first attribute set
needs it, some sets together, and forgotten after the last: memory does not grow with the number of
answers.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.answering.measure import check_noise, estimate, measure
from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.domain import Clique
from adaptive_qs.errors import InputError
from adaptive_qs.machine import linear_algebra
from adaptive_qs.privacy.events import UNITS_PER_RHO
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.strategy.mechanisms.mechanism import Mechanism
from adaptive_qs.workload.queries import Queries

Array = NDArray[np.float64]

SETS_AHEAD = 2
"""Attribute sets that are measured before the answers of one are waited for."""
GROUP_MEASUREMENTS = 256
"""Most measurements that are released together, where one attribute set does not need more."""
GROUP_CELLS = 2**18
"""Most cells of the tables that they measure, likewise."""
LEAST_UNITS = 2**12
"""Fewest units of a measurement: rounding them changes its variance by less than 0.03 %."""


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

    The caller's thread measures, in a fixed order; another turns releases into answers meanwhile.

    Args:
        mechanism: the plan; its strategies must be on the grid.
        counter: the private counts.
        mechanisms: charges before each draw.
        units: the whole budget in units of 2**-60 ρ; all of it is spent.

    Raises:
        InputError: the budget is too small for so many measurements; nothing is spent.
        ResourceExceeded: the noise on some queries is too large; nothing is spent.

    Yields:
        The answers of one attribute set.
    """
    costs = divide_units(mechanism, units)
    check_noise(mechanism, units)
    answerer = _Answerer(mechanism, 2 * units / UNITS_PER_RHO)
    pending: deque[Future[SetAnswers]] = deque()
    # Products are small: several threads of the linear algebra would be in each other's way.
    with linear_algebra().limit(limits=1), ThreadPoolExecutor(1) as pool:
        for group in _groups(mechanism, answerer.sets):
            numbers = [number for _, fresh in group for number in fresh]
            measurements = [mechanism.measurement(number) for number in numbers]
            noisy = measure(counter, mechanisms, measurements, [costs[k] for k in numbers])
            released = dict(zip(numbers, noisy))
            for (part, index), fresh in group:
                needed = {number: released.pop(number) for number in fresh}
                pending.append(pool.submit(answerer.answer, part, index, needed))
                if len(pending) > SETS_AHEAD:
                    yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _groups(
    mechanism: Mechanism, sets: Iterable[tuple[int, int]]
) -> Iterator[list[tuple[tuple[int, int], list[int]]]]:
    """Attribute sets in order, each with the measurements that no earlier one needed.

    The measurements of a group are released together; together they stay small.
    """
    measured: set[int] = set()
    group: list[tuple[tuple[int, int], list[int]]] = []
    count = cells = 0
    for part, index in sets:
        fresh = [k for k in mechanism.needed(part, index) if k not in measured]
        measured.update(fresh)
        size = sum(_cells(mechanism, number) for number in fresh)
        if group and (count + len(fresh) > GROUP_MEASUREMENTS or cells + size > GROUP_CELLS):
            yield group
            group, count, cells = [], 0, 0
        group.append(((part, index), fresh))
        count, cells = count + len(fresh), cells + size
    if group:
        yield group


def _cells(mechanism: Mechanism, number: int) -> int:
    return math.prod(mechanism.workload.domain.shape(mechanism.measurement(number).clique))


class _Answerer:
    """Turns releases into answers, one attribute set after the other."""

    def __init__(self, mechanism: Mechanism, cost: float) -> None:
        self._mechanism = mechanism
        self._cost = cost
        self._parts = mechanism.workload.parts
        self.sets = [(p, i) for p, part in enumerate(self._parts) for i in range(len(part))]
        self._uses = Counter(k for part, index in self.sets for k in mechanism.needed(part, index))
        self._kept: dict[int, Array] = {}

    def answer(self, part: int, index: int, released: dict[int, Array]) -> SetAnswers:
        """The answers of one set, given the releases that no earlier set needed."""
        for number, noisy in released.items():
            self._kept[number] = estimate(self._mechanism.measurement(number), noisy)
        estimates = self._mechanism.answers(part, index, self._kept)
        variances = self._mechanism.variances(part, index) / self._cost
        for number in self._mechanism.needed(part, index):
            self._uses[number] -= 1
            if not self._uses[number]:
                del self._kept[number]
        clique = tuple(self._parts[part].cliques[index].tolist())
        return SetAnswers(
            part, index, clique, self._parts[part].queries(index), estimates, variances
        )


def divide_units(mechanism: Mechanism, units: int) -> list[int]:
    """Whole units for each measurement by its share; they add up to ``units``.

    Raises:
        InputError: the budget is so small that whole units are not the shares that were planned.
    """
    count = mechanism.num_measurements
    shares = [mechanism.measurement(number).share for number in range(count)]
    if min(shares) * units < LEAST_UNITS:
        raise InputError(
            f"the privacy budget is too small for {count:,} measurements, of which one has "
            f"{min(shares):.1g} of it: raise the budget or ask for less"
        )
    costs = [int(share * units) for share in shares]
    largest = max(range(count), key=costs.__getitem__)
    costs[largest] += units - sum(costs)
    return costs
