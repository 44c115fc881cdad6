"""From a plan and private counts to answers, measured with exact integer noise."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import cast

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import InputError
from adaptive_qs.machine import ThreadPool, linear_algebra
from adaptive_qs.privacy.counts import Measurement, PrivateCounts, PrivateTable
from adaptive_qs.privacy.events import UNITS_PER_RHO, Purpose
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.query import IntegerMap, LinearQuery
from adaptive_qs.strategy.integer import table_estimate
from adaptive_qs.strategy.mechanism import Mechanism, StrategyMeasurement
from adaptive_qs.strategy.solution import Array
from adaptive_qs.workload.matrices import Queries

# Measurements with exact integer noise: the part of `answer` that touches private counts.
#
# A strategy on the grid has integer coefficients M, so Mv is exact for counts v, and one row
# changes it by at most Δ² = ‖M‖² (the largest squared column norm). Mv is released with discrete
# Gaussian noise of variance σ², at ρ = Δ²/(2σ²); σ² is the rational number that makes the cost
# exactly the units given. Answers are multiplied by a power of two first where σ would be small, so
# that the noise is fine compared with the grid (see :mod:`adaptive_qs.run.budget`).
#
# Proof: docs/proofs.md, section 4.


MAX_ROWS = 2**31
"""Most rows of a table that is measured. With so many and ``MAX_COST``, values that are multiplied
for noise of ``FINE_NOISE`` stay below 2⁶¹: no coefficient exceeds Δ = σ√β."""
MOST_NOISE_BITS = 44
"""Bits of the largest standard deviation of the integer noise."""
MOST_GRID_BITS = 40
"""More would change no figure that anybody sees."""


def grid_bits(mechanism: Mechanism, units: int, most_rows: int) -> int:
    """Bits that the coefficients of each strategy may have, from public quantities.

    Sums of coefficients over ``most_rows`` rows stay below 2⁶² and the noise inside its sampler.
    """
    shares = (mechanism.measurement(k).share for k in range(mechanism.num_measurements))
    least = min(shares) * 2 * units / UNITS_PER_RHO
    rows = 61 - max(most_rows, 1).bit_length()
    return min(MOST_GRID_BITS, rows, MOST_NOISE_BITS + math.floor(math.log2(least) / 2))


def measure(
    domain: Domain,
    counts: Sequence[PrivateCounts],
    mechanisms: Mechanisms,
    measurements: Sequence[StrategyMeasurement],
    units: Sequence[int],
) -> list[Array]:
    """Release some measurements of a plan, charged all or none.

    Args:
        domain: the columns.
        counts: of the cells of each measurement, in at most ``MAX_ROWS`` rows.
        mechanisms: charges ``units`` · 2**-60 ρ, then draws.
        measurements: their strategies must be on the grid.
        units: the exact cost of each.

    Returns:
        Noisy answers to each integer strategy, one axis for each of its factors.
    """
    queries = [_query(domain, each) for each in measurements]
    made = map(Measurement.costing, queries, counts, units)
    return mechanisms.measure([each.finely(MAX_ROWS) for each in made])


def _query(domain: Domain, measurement: StrategyMeasurement) -> LinearQuery:
    factors = measurement.strategy.factors
    parts = [factor.digest for factor in factors]
    definition = hashlib.sha256(repr((measurement.clique, parts)).encode()).hexdigest()
    names, maps = domain.clique_names(measurement.clique), cast(Sequence[IntegerMap], factors)
    return LinearQuery(Purpose.STRATEGY, names, maps, definition=definition)


# From a plan and private counts to answers, one attribute set at a time.
#
# Measurements do not depend on each other's outcomes, so each is made when the first attribute set
# needs it, some sets together, and forgotten after the last: memory does not grow with the number
# of answers.

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
    """Answers to consecutive queries on one set of attributes, all unless they are very many.

    Attributes:
        part: the part of the workload.
        index: the attribute set in the part.
        clique: its attributes.
        queries: a product of families, or one joint family; answers are ordered as theirs.
        estimates: shape (m,): unbiased noisy answers (rows).
        variances: shape (m,): their variances (rows²).
        first: position of the first of them among the queries of the set.
    """

    part: int
    index: int
    clique: Clique
    queries: tuple[Queries, ...]
    estimates: Array
    variances: Array
    first: int = 0

    def for_each(self, copies: int) -> SetAnswers:
        """The same answers where so many counted rows stand for one."""
        estimates, variances = self.estimates / copies, self.variances / copies**2
        return replace(self, estimates=estimates, variances=variances)


def answer_sets(
    mechanism: Mechanism, table: PrivateTable, mechanisms: Mechanisms, units: int
) -> Iterator[SetAnswers]:
    """Spend the budget and answer every attribute set of every part, in order.

    The caller's thread measures, in a fixed order; another turns releases into answers meanwhile.

    Args:
        mechanism: the plan; its strategies must be on the grid.
        table: the private rows.
        mechanisms: charges before each draw.
        units: the whole budget in units of 2**-60 ρ; all of it is spent.

    Raises:
        InputError: the budget is too small for so many measurements; nothing is spent.
    """
    costs = divide_units(mechanism, units)
    parts = mechanism.workload.parts
    sets = [(part, index) for part, some in enumerate(parts) for index in range(len(some))]
    uses = Counter(k for part, index in sets for k in mechanism.needed(part, index))
    kept: dict[int, Array] = {}

    def answered(part: int, index: int, fresh: dict[int, Array]) -> Iterator[SetAnswers]:
        """The answers of one set, given the releases that no earlier set needed."""
        for number, noisy in fresh.items():
            kept[number] = table_estimate(mechanism.measurement(number).strategy.factors, noisy)
        clique, queries = tuple(parts[part].cliques[index].tolist()), parts[part].queries(index)
        first = 0
        for estimates, variances in _runs(mechanism, part, index, kept):
            at_cost = variances / (2 * units / UNITS_PER_RHO)
            yield SetAnswers(part, index, clique, queries, estimates, at_cost, first)
            first += len(estimates)
        for number in mechanism.needed(part, index):
            uses[number] -= 1
            if not uses[number]:
                del kept[number]

    pending: deque[tuple[Iterator[SetAnswers], Future[SetAnswers | None]]] = deque()

    def finished(ahead: int) -> Iterator[SetAnswers]:
        """Answers in order, until so few sets are pending; the next run of a set is begun."""
        while len(pending) > ahead:
            run, future = pending.popleft()
            found = future.result()
            if found is not None:
                pending.appendleft((run, pool.submit(next, run, None)))
                yield found

    # Products are small: several threads of the linear algebra would be in each other's way.
    with linear_algebra().limit(limits=1), ThreadPool(1) as pool:
        for group in _groups(mechanism, sets):
            numbers = [number for _, fresh in group for number in fresh]
            measurements = [mechanism.measurement(number) for number in numbers]
            counts = table.marginals([each.clique for each in measurements])
            each_units = [costs[k] for k in numbers]
            noisy = measure(table.domain, counts, mechanisms, measurements, each_units)
            released = dict(zip(numbers, noisy))
            for (part, index), fresh in group:
                needed = {number: released.pop(number) for number in fresh}
                run = answered(part, index, needed)
                pending.append((run, pool.submit(next, run, None)))
                yield from finished(SETS_AHEAD)
        yield from finished(0)


def _runs(
    mechanism: Mechanism, part: int, index: int, kept: dict[int, Array]
) -> Iterator[tuple[Array, Array]]:
    if mechanism.streams(part, index):
        yield from mechanism.answer_runs(part, index, kept)
    else:
        yield mechanism.answers(part, index, kept), mechanism.variances(part, index)


def _groups(
    mechanism: Mechanism, sets: Iterable[tuple[int, int]]
) -> Iterator[list[tuple[tuple[int, int], list[int]]]]:
    """Groups of attribute sets in order, each with the measurements that no earlier one needed."""
    shape = mechanism.workload.domain.shape
    measured: set[int] = set()
    group: list[tuple[tuple[int, int], list[int]]] = []
    count = cells = 0
    for part, index in sets:
        fresh = [k for k in mechanism.needed(part, index) if k not in measured]
        measured.update(fresh)
        cliques = (mechanism.measurement(number).clique for number in fresh)
        size = sum(math.prod(shape(clique)) for clique in cliques)
        if group and (count + len(fresh) > GROUP_MEASUREMENTS or cells + size > GROUP_CELLS):
            yield group
            group, count, cells = [], 0, 0
        group.append(((part, index), fresh))
        count, cells = count + len(fresh), cells + size
    if group:
        yield group


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
