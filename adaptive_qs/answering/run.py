"""From a plan and private counts to answers, one attribute set at a time.

Measurements do not depend on each other's outcomes, so each is made when the first attribute set
needs it and forgotten after the last: memory does not grow with the number of answers.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from adaptive_qs.answering.measure import check_noise, estimate, measure
from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.domain import Clique
from adaptive_qs.errors import InputError
from adaptive_qs.privacy.events import UNITS_PER_RHO
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.strategy.mechanisms.mechanism import Mechanism
from adaptive_qs.workload.queries import Queries

Array = NDArray[np.float64]

SETS_AHEAD = 2
"""Attribute sets that are measured before the answers of one are waited for."""
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
    measured: set[int] = set()
    pending: deque[Future[SetAnswers]] = deque()
    # Products are small: several threads of the linear algebra would be in each other's way.
    with ThreadpoolController().limit(limits=1), ThreadPoolExecutor(1) as pool:
        for part, index in answerer.sets:
            fresh = [k for k in mechanism.needed(part, index) if k not in measured]
            measured.update(fresh)
            released = {}
            for number in fresh:
                measurement = mechanism.measurement(number)
                released[number] = measure(counter, mechanisms, measurement, costs[number])
            pending.append(pool.submit(answerer.answer, part, index, released))
            if len(pending) > SETS_AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


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
