"""From a schema with private columns to one that can be coded, and the cost of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.arguments import DEFAULT_SHARE, learning_share
from adaptive_qs.errors import InputError, WorkloadError
from adaptive_qs.privacy.counts import (
    Identity,
    LinearQuery,
    Measurement,
    PrivateTexts,
    PrivateValues,
)
from adaptive_qs.privacy.events import UNITS_PER_RHO, Cost, PartitionEvent, Purpose
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.selection import least_threshold
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.columns.binned import MOST_HEAPS, Counted, Ending, RangeColumn, find_kinds
from adaptive_qs.table.columns.category import CategoricalColumn
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.matrices import Custom
from adaptive_qs.workload.workload import QueryWorkload

if TYPE_CHECKING:  # a schema that leaves nothing open does not read the modules of learning
    from adaptive_qs.learn.gather import Counts, Gathered, Numbers

HEAPS_SHARE = Fraction(1, 100)
"""Largest part of ρ for the frequent values of a column, if nothing else is learnt."""
BINS_WEIGHT = 4
"""Ratio of the parts of ρ for bins or values and for the frequent values of a column."""


def discovery_share(schema: Schema) -> Fraction:
    """Return the part of δ for discovering values; ε hardly depends on the other half."""
    return Fraction(any(c.discovers for c in schema.columns), 2)


def preprocessing_cost(schema: Schema, budget: Cost, share: float = DEFAULT_SHARE) -> Cost:
    """Return the largest cost of learning the open columns of a schema.

    The budget is of the whole run: ρ, computed from ε with the rest of δ, and the part of δ for
    discovery. The share is of ρ. InputError is raised if it is not between 0 and 1, or if values
    are to be discovered with a δ of 0.
    """
    part = Fraction(learning_share(share))
    if not schema.open_columns:
        return Cost()
    if not schema.private_columns:
        part = min(part, HEAPS_SHARE * len(schema.open_columns))
    cost = Cost(int(budget.rho_units * part), budget.delta_units)
    column_costs(schema, cost)
    return cost


@dataclass(frozen=True)
class ColumnCosts:
    """The costs of open columns, by name: of their bins or values, and of their frequent values."""

    values: dict[str, Cost]
    heaps: dict[str, Cost]


def column_costs(schema: Schema, cost: Cost) -> ColumnCosts:
    """Divide the cost of learning among the open columns; InputError if a share is empty.

    Bins and values have equal shares of ρ, ``BINS_WEIGHT`` times those of frequent values. Columns
    with private values have equal shares of δ.
    """
    columns = [c for c in schema.columns if c.is_unlearnt]
    heaped = [c.name for c in schema.columns if c.counts_heaps]
    discovered = [c.name for c in columns if c.discovers]
    weight = BINS_WEIGHT if heaped else 1
    shares = weight * len(columns) + len(heaped)
    if shares and cost.rho_units < 8 * shares:
        number = len(schema.open_columns)
        raise InputError(
            f"rho {float(cost.rho):.3g} is too little to learn {number} columns. Raise it."
        )
    if discovered and cost.delta_units < len(discovered):
        raise InputError(
            f"learning the values of {discovered[0]!r} needs a share of delta. Use a delta above "
            "0, or declare the values."
        )
    unit = cost.rho_units // shares if shares else 0
    each = cost.delta_units // len(discovered) if discovered else 0
    return ColumnCosts(
        {c.name: Cost(weight * unit, each if c.discovers else 0) for c in columns},
        {name: Cost(unit) for name in heaped},
    )


def check_learnable(workload: QueryWorkload, schema: Schema) -> None:
    """Raise WorkloadError if a custom matrix covers a column whose codes are still to be learnt."""
    names = workload.domain.names
    learnt = {names.index(name) for name in schema.private_columns}
    for part in workload.parts:
        for index, clique in enumerate(part.cliques.tolist()):
            if learnt.intersection(clique) and any(
                isinstance(queries, Custom) for queries in part.queries(index)
            ):
                named = " x ".join(names[i] for i in clique)
                raise WorkloadError(
                    f"a custom matrix covers {named}, of which bins or values are still to be "
                    "learnt: declare them"
                )


def learn_schema(schema: Schema, gathered: Gathered, mechanisms: Mechanisms, cost: Cost) -> Schema:
    """Return the schema with learnt bins, values and frequent values; a closed one as it is.

    The result depends on the schema, the cost and the outputs of the mechanisms only: a resumed run
    gets the same schema.

    Raises:
        InputError: the cost is too small to divide; nothing is charged.
        BudgetExceeded: the ledger behind ``mechanisms`` holds less than ``cost``.
    """
    if not schema.open_columns:
        return schema
    from adaptive_qs.learn.ranges import learn_ranges

    costs = column_costs(schema, cost)
    ranges: Any = [c for c in schema.columns if c.is_unlearnt and not c.discovers]
    texts: Any = [c for c in schema.columns if c.discovers]
    learnt: dict[str, ColumnBase] = {
        **learn_ranges(ranges, gathered.numbers, mechanisms, costs.values),
        **{
            c.name: _learn_values(c, *gathered.texts[c.name], mechanisms, costs.values[c.name])
            for c in texts
        },
    }
    known = {c.name: learnt.get(c.name, c) for c in schema.columns}
    heaped: Any = [c for c in known.values() if c.counts_heaps]
    known.update(learn_heaps(heaped, gathered.numbers, mechanisms, costs.heaps))
    return schema.with_columns(known.values())


def _learn_values(
    column: CategoricalColumn, texts: list[str], counts: Counts, mechanisms: Mechanisms, cost: Cost
) -> CategoricalColumn:
    """Return the column with its discovered values; see :mod:`adaptive_qs.privacy.selection`."""
    variance = Fraction(UNITS_PER_RHO, 2 * cost.rho_units)
    least = least_threshold(variance, cost.delta)
    event = PartitionEvent(Purpose.VALUES, (column.name,), variance, least, cost.delta)
    private = PrivateTexts(texts, counts, mechanisms.ledger)
    return column.resolved(mechanisms.discover_values(event, private, column.num_values))


# Frequent values of columns in bins, counted with noise: heaps (values) and endings (digits).
#
# Every row has one value, so it is on at most one point and one ending. The rows on points and the
# rows on endings are two histograms of squared sensitivity 1 each, released together. Declared
# heaps are one histogram. Heaps and endings that are to be found stand out of the noise on all
# points of the range and on all remainders. Noise alone rarely (``FALSE``) makes one of many empty
# cells stand out, which in a wide bin would move the mean of the column.

Points = NDArray[np.int64]

MOST_POINTS = 1 << 20
"""Largest number of points of a range whose rows are counted one by one."""
PERIODS = 2
"""Smallest number of periods of an ending that the range of its column contains."""
MOST_ENDINGS = 100
"""Largest number of endings of a column."""
FALSE = 0.01
"""Probability that noise alone makes a frequent value of a column, or an ending of one modulus."""


@dataclass(frozen=True)
class _Histograms:
    """The public description of what is counted of one column with known bins.

    The first ``points`` values of its range, or as many declared heaps, are counted one by one. The
    ``moduli`` belong to its endings, each a divisor of the next.
    """

    column: RangeColumn
    first: int
    points: int
    moduli: tuple[int, ...]

    @classmethod
    def from_column(cls, column: RangeColumn) -> _Histograms:
        first, last = (ends[place] for ends, place in zip(column.point_ends(), (0, -1)))
        if column.private_heaps is None:
            return cls(column, int(first), len(column.heaps), ())
        points = int(last - first) + 1
        moduli = tuple(m for m in column.periods if PERIODS * m <= points)
        return cls(column, int(first), points if points <= MOST_POINTS else 0, moduli)

    def cells(self) -> list[tuple[Callable[[Points], Points], int]]:
        """Return for each histogram the cell of a point (below 0: none) and its number of cells."""
        if self.column.private_heaps is None:
            return [(self._find_heaps, self.points)]
        found: list[tuple[Callable[[Points], Points], int]] = []
        if self.points:
            found.append((lambda points: points - self.first, self.points))
        if self.moduli:
            period = self.moduli[-1]
            found.append((lambda points: self.column.marks(points) % period, period))
        return found

    def _find_heaps(self, points: Points) -> Points:
        """Return the index of the declared heap at each point; -1 if there is none."""
        heaps = self.column.heap_points
        order = np.argsort(heaps)
        place = np.searchsorted(heaps, points, sorter=order)
        on_heap = points == np.append(heaps[order], self.first - 1)[place]
        return np.where(on_heap, np.append(order, -1)[place], -1)

    def counted(self, noisy: NDArray[np.float64], noise_std: float) -> RangeColumn:
        """Return the column with its frequent values, from noisy counts (published rows)."""
        column, update = self.column, {}
        heaps = np.arange(self.points)
        endings: tuple[Ending, ...] = ()
        if column.private_heaps is not None:
            heaps = self._select_heaps(noisy[: self.points], noise_std)
            update["heaps"] = column.heaps_at(heaps + self.first)
            endings = find_endings(noisy[self.points :], self.moduli, noise_std)
        counted = Counted(rows=tuple(map(round, noisy[heaps].tolist())), endings=endings)
        return column.model_copy(update={**update, "counted": counted})

    def _select_heaps(self, noisy: NDArray[np.float64], noise_std: float) -> Points:
        """Return the points that stand out and share their code with others, ascending."""
        first, last = self.column.point_ends()
        alone = first[first == last] - self.first
        chosen = noisy > threshold(noisy.size, noise_std)
        chosen[alone[alone < noisy.size]] = False
        found = np.flatnonzero(chosen)
        most = self.column.private_heaps or MOST_HEAPS
        return np.sort(found[np.argsort(-noisy[found], kind="stable")[:most]])


def threshold(cells: int, noise_std: float) -> float:
    """Return what the largest noise of some cells exceeds with probability ``FALSE`` at most.

    Gaussian noise exceeds t standard deviations with probability exp(−t²/2)/2 at most.
    """
    return noise_std * math.sqrt(2 * math.log(max(cells, 1) / (2 * FALSE)))


def find_endings(
    noisy: NDArray[Any], moduli: tuple[int, ...], noise_std: float
) -> tuple[Ending, ...]:
    """Return endings with more rows than an equal share of the next coarser one, the finest first.

    They stand out of the noise, whose standard deviation is that of one count (rows), and are at
    most ``MOST_ENDINGS``. ``noisy`` are rows on every remainder of the last modulus. Each modulus
    is a divisor of the next.
    """
    if not moduli:
        return ()
    period = moduli[-1]
    marks = np.arange(period)
    found: list[tuple[float, Ending]] = []
    for modulus in moduli:
        endings = [ending for _, ending in reversed(found)]  # the finest first
        kinds = find_kinds(marks, endings)
        rows, sizes = np.bincount(kinds, noisy), np.bincount(kinds)
        rates = np.divide(rows, sizes, out=np.zeros(rows.size), where=sizes > 0)
        excess = (noisy - rates[kinds]).reshape(-1, modulus).sum(axis=0)
        least = threshold(modulus, noise_std * math.sqrt(period / modulus))
        chosen = np.flatnonzero(excess > least)
        found += [(float(excess[k]), Ending(remainder=k, modulus=modulus)) for k in chosen.tolist()]
    strongest = sorted(found, key=lambda each: -each[0])[:MOST_ENDINGS]
    endings = sorted((each[1] for each in strongest), key=lambda e: (-e.modulus, e.remainder))
    rows = np.bincount(find_kinds(marks, endings), noisy, len(endings) + 1)
    return tuple(e.model_copy(update={"rows": round(n)}) for e, n in zip(endings, rows.tolist()))


def learn_heaps(
    columns: Sequence[RangeColumn],
    numbers: Mapping[str, Numbers],
    mechanisms: Mechanisms,
    costs: Mapping[str, Cost],
) -> dict[str, RangeColumn]:
    """Measure how many rows have frequent values, and return the columns with these, by name.

    BudgetExceeded is raised if the ledger behind ``mechanisms`` has less than the costs.
    """
    histograms = [_Histograms.from_column(column) for column in columns]
    measurements = []
    for each in histograms:
        name, cells = each.column.name, each.cells()
        points = PrivateValues(each.column.to_points(numbers[name]), mechanisms.ledger)
        counts = Identity(sum(size for _, size in cells), len(cells))
        query = LinearQuery(Purpose.HEAPS, (name,), (counts,))
        units = costs[name].rho_units
        measurements.append(Measurement.costing(query, points.histograms(*cells), units))
    return {
        each.column.name: each.counted(noisy, math.sqrt(made.noise_variance))
        for each, made, noisy in zip(histograms, measurements, mechanisms.measure(measurements))
    }
