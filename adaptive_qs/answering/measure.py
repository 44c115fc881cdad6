"""From a plan and private counts to batches of answers, measured with exact integer noise."""

import hashlib
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import ndtri

from adaptive_qs.arguments import as_number, shown
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import InputError
from adaptive_qs.machine import ThreadPool, linear_algebra
from adaptive_qs.privacy.counts import (
    IntegerMap,
    LinearQuery,
    Measurement,
    PrivateCounts,
    PrivateTable,
)
from adaptive_qs.privacy.events import UNITS_PER_RHO, Purpose
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.strategy.integer import table_estimate
from adaptive_qs.strategy.mechanism import Mechanism, StrategyMeasurement
from adaptive_qs.strategy.solution import Array
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.text import Formulas
from adaptive_qs.table.write import escaped_names, find_escapes
from adaptive_qs.workload.matrices import Queries

# Measurements with exact integer noise: the part of `answer` that touches private counts.
#
# A strategy on the grid has integer coefficients M, and Mv is released with discrete Gaussian noise
# of the rational variance that costs exactly the units given. Proof: docs/proofs.md, section 4.


MAX_ROWS = 2**31
"""Largest number of rows of a table that is measured. With it and ``MAX_COST``, values that are
multiplied for noise of ``FINE_NOISE`` stay below 2⁶¹: no coefficient exceeds Δ = σ√β."""
MOST_NOISE_BITS = 44
"""Number of bits of the largest standard deviation of the integer noise."""
MOST_GRID_BITS = 40
"""Maximum number of bits of coefficients; more would change no figure that is shown."""


def grid_bits(mechanism: Mechanism, units: int, most_rows: int) -> int:
    """Return the number of bits of the coefficients of each strategy, from public quantities.

    Sums of coefficients over ``most_rows`` rows stay below 2⁶², and the noise within the limits of
    its sampler.
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
    """Release noisy answers to integer strategies, one axis per factor; all are charged or none."""
    made = map(Measurement.costing, [_query(domain, each) for each in measurements], counts, units)
    return mechanisms.measure([each.finely(MAX_ROWS) for each in made])


def _query(domain: Domain, measurement: StrategyMeasurement) -> LinearQuery:
    factors = measurement.strategy.factors
    parts = [factor.digest for factor in factors]
    definition = hashlib.sha256(repr((measurement.clique, parts)).encode()).hexdigest()
    names, maps = domain.clique_names(measurement.clique), cast(Sequence[IntegerMap], factors)
    return LinearQuery(Purpose.STRATEGY, names, maps, definition=definition)


# From a plan and private counts to answers, one attribute set at a time.
#
# Measurements do not depend on each other's outcomes. Each is made when the first attribute set
# needs it, several sets together, and deleted after the last one. So memory does not grow with the
# number of answers.

SETS_AHEAD = 2
"""Number of attribute sets that are measured ahead of the one whose answers are computed."""
GROUP_MEASUREMENTS = 256
"""Maximum number of measurements that are released together, unless one set needs more."""
GROUP_CELLS = 2**18
"""Maximum number of cells of the tables that they measure, unless one set needs more."""
LEAST_UNITS = 2**12
"""Smallest cost of a measurement in units: rounding changes its variance by less than 0.03 %."""


@dataclass(frozen=True, eq=False)
class SetAnswers:
    """Answers to the queries on one set of attributes of a part of the workload.

    Attributes:
        index: The position of the set in the part.
        queries: A product of families, or one joint family, in the order of the answers.
        estimates: Unbiased noisy answers (rows), of shape (m,).
        variances: Their variances (rows²), of shape (m,).
    """

    part: int
    index: int
    clique: Clique
    queries: tuple[Queries, ...]
    estimates: Array
    variances: Array


def answer_sets(
    mechanism: Mechanism, table: PrivateTable, mechanisms: Mechanisms, units: int
) -> Iterator[SetAnswers]:
    """Spend all ``units`` and yield the answers of every attribute set of every part, in order.

    The strategies must be on the grid. The caller's thread measures; another computes answers.
    InputError is raised, and nothing spent, if the budget is too small for the measurements.
    """
    costs = divide_units(mechanism, units)
    parts = mechanism.workload.parts
    sets = [(part, index) for part, some in enumerate(parts) for index in range(len(some))]
    uses = Counter(k for part, index in sets for k in mechanism.needed(part, index))
    kept: dict[int, Array] = {}

    def answered(part: int, index: int, fresh: dict[int, Array]) -> SetAnswers:
        """Return the answers of one set, given the releases that no earlier set needed."""
        for number, noisy in fresh.items():
            kept[number] = table_estimate(mechanism.measurement(number).strategy.factors, noisy)
        clique, queries = tuple(parts[part].cliques[index].tolist()), parts[part].queries(index)
        estimates = mechanism.answers(part, index, kept)
        at_cost = mechanism.variances(part, index) / (2 * units / UNITS_PER_RHO)
        for number in mechanism.needed(part, index):
            uses[number] -= 1
            if not uses[number]:
                del kept[number]
        return SetAnswers(part, index, clique, queries, estimates, at_cost)

    pending: deque[Future[SetAnswers]] = deque()

    # Products are small: several threads of the linear algebra would only slow each other down.
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
                pending.append(pool.submit(answered, part, index, needed))
                if len(pending) > SETS_AHEAD:
                    yield pending.popleft().result()
        for future in pending:
            yield future.result()


def _groups(
    mechanism: Mechanism, sets: Iterable[tuple[int, int]]
) -> Iterator[list[tuple[tuple[int, int], list[int]]]]:
    """Yield groups of attribute sets in order, each with the measurements that it needs first."""
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
    """Divide units among measurements by their shares; InputError below ``LEAST_UNITS``."""
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


# Queries as text, in Arrow arrays: products of kept texts are built without Python.

Texts = Callable[[int, int], pa.Array]
"""A function that returns the texts of queries from one position to another, in order."""

KEPT_TEXTS = 2**20
"""Maximum number of texts of single families that are kept for the next attribute sets."""


class QueryTexts:
    """The texts of queries."""

    def __init__(self, schema: Schema, formulas: Formulas = "keep") -> None:
        self._schema = schema
        self._formulas = formulas
        self._names = escaped_names(schema.names, formulas)
        self._codes: dict[int, tuple[str, ...]] = {}
        self._kept: dict[tuple[Clique, Queries], pa.Array] = {}

    def attributes(self, clique: Clique) -> str:
        """Return the set of attributes as text, such as "age x sex"."""
        return " x ".join(self._names[attribute] for attribute in clique)

    def queries(self, clique: Clique, queries: tuple[Queries, ...]) -> Texts:
        """Return the texts of queries, such as "age <= 39 and sex = Female"."""
        joint = len(queries) != len(clique)
        axes = [clique] if joint else [(attribute,) for attribute in clique]
        if not joint and all(one.num_queries <= KEPT_TEXTS for one in queries):
            return _joined([self._of_axis(axis, one) for axis, one in zip(axes, queries)])
        texts = _made_anew([partial(self._labels, axis, one) for axis, one in zip(axes, queries)])
        return lambda start, stop: pa.array(
            islice(texts, stop - start), pa.string(), size=stop - start
        )

    def _of_axis(self, axis: Clique, queries: Queries) -> pa.Array:
        if (axis, queries) not in self._kept:
            if sum(map(len, self._kept.values())) + queries.num_queries > KEPT_TEXTS:
                self._kept.clear()
            labels = self._labels(axis, queries)
            self._kept[axis, queries] = pa.array(labels, pa.string(), size=queries.num_queries)
        return self._kept[axis, queries]

    def _labels(self, clique: Clique, queries: Queries) -> Iterator[str]:
        names = tuple(self._names[attribute] for attribute in clique)
        return queries.labels(names, tuple(map(self._values, clique)))

    def _values(self, attribute: int) -> tuple[str, ...]:
        if attribute not in self._codes:
            column = self._schema.columns[attribute]
            replaced = find_escapes(column, self._schema, self._formulas)
            self._codes[attribute] = tuple(replaced.get(x, x) for x in column.labels_of_codes())
        return self._codes[attribute]


def _made_anew(axes: Sequence[Callable[[], Iterator[str]]]) -> Iterator[str]:
    """Yield the products of texts that are too many to be kept."""
    for text in axes[0]():
        if len(axes) == 1:
            yield text
        else:
            yield from (f"{text} and {others}" for others in _made_anew(axes[1:]))


def _joined(factors: list[pa.Array]) -> Texts:
    shape = tuple(map(len, factors))

    def text(start: int, stop: int) -> pa.Array:
        positions = np.unravel_index(np.arange(start, stop), shape)
        parts = [factor.take(pa.array(of)) for factor, of in zip(factors, positions)]
        return pc.binary_join_element_wise(*parts, " and ")

    return text


# Answers as Arrow record batches, ordered by part of the workload, attribute set and query.

BATCH_ROWS = 2**16
"""Number of rows of a batch: small attribute sets are joined, large ones divided."""

COLUMNS = pa.schema(
    [
        ("attributes", pa.dictionary(pa.int32(), pa.string())),
        ("query", pa.string()),
        ("estimate", pa.float64()),
        ("standard_error", pa.float64()),
        ("lower", pa.float64()),
        ("upper", pa.float64()),
    ]
)
"""The columns of a batch; estimates, errors and bounds are in rows."""
REPEATING = ("attributes", "standard_error")
"""Columns with few distinct values."""
_Part = tuple[str, pa.Array, Array, Array]
"""Name, texts, estimates and variances of answers of one attribute set."""


def answer_batches(
    sets: Iterable[SetAnswers],
    schema: Schema,
    confidence: float = 0.95,
    formulas: Formulas = "keep",
) -> Iterator[pa.RecordBatch]:
    """Yield batches of at most ``BATCH_ROWS`` answers, with the memory of one batch.

    InputError is raised if the confidence is not between 0 and 1, or an answer has no finite
    variance since its strategy is too ill-conditioned.
    """
    half_width = interval_factor(confidence)
    texts = QueryTexts(schema, formulas)
    gathered: list[_Part] = []
    rows = 0
    for answers in sets:
        name = texts.attributes(answers.clique)
        _check_finite(name, answers)
        words = texts.queries(answers.clique, answers.queries)
        start, total = 0, len(answers.estimates)
        while start < total:
            stop = min(total, start + BATCH_ROWS - rows)
            estimates, variances = answers.estimates[start:stop], answers.variances[start:stop]
            gathered.append((name, words(start, stop), estimates, variances))
            rows += stop - start
            start = stop
            if rows == BATCH_ROWS:
                yield _batch(gathered, half_width)
                gathered, rows = [], 0
    if gathered:
        yield _batch(gathered, half_width)


def _batch(gathered: list[_Part], half_width: float) -> pa.RecordBatch:
    names, texts, estimates, variances = zip(*gathered)
    answers = np.concatenate(estimates)
    errors = np.sqrt(np.concatenate(variances))
    margin = half_width * errors
    place = {name: position for position, name in enumerate(dict.fromkeys(names))}
    lengths = [len(part) for part in estimates]
    codes = np.repeat([place[name] for name in names], lengths).astype(np.int32)
    columns = [
        pa.DictionaryArray.from_arrays(codes, pa.array(place, pa.string())),
        pa.concat_arrays(texts),
        *map(pa.array, (answers, errors, answers - margin, answers + margin)),
    ]
    return pa.record_batch(columns, schema=COLUMNS)


def interval_factor(confidence: Any) -> float:
    """Return half the width of a normal interval in standard errors; InputError outside (0, 1)."""
    chance = as_number(confidence)
    if chance is None or not 0 < chance < 1:
        raise InputError(
            f"confidence is {shown(confidence)}. Use a number between 0 and 1, as 0.95."
        )
    return float(ndtri((1 + chance) / 2))


def _check_finite(name: str, answers: SetAnswers) -> None:
    """Raise InputError if answers are not finite, since they would be written as NaN."""
    variances = answers.variances
    sound = np.isfinite(answers.estimates).all() and np.isfinite(variances).all()
    if not (sound and (variances >= 0).all()):
        raise InputError(
            f"the answers on {name} have no finite variance: its queries are too nearly dependent "
            "for this mechanism, or too different in size: scale them alike or use mechanism "
            "identity"
        )
