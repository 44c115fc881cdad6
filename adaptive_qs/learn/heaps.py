"""Frequent values of columns in bins, counted with noise: heaps (values) and endings (digits).

Every row has one value, so it is on at most one point and one ending. The rows on points and the
rows on endings are two histograms of squared sensitivity 1 each, released together. Declared heaps
are one histogram. Heaps and endings that are to be found stand out of the noise on all points of
the range and on all remainders. Noise alone rarely (``FALSE``) makes one of many empty cells stand
out, which in a wide bin would move the mean of the column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.learn.gather import Numbers
from adaptive_qs.privacy.counts import Identity, LinearQuery, Measurement, PrivateValues
from adaptive_qs.privacy.events import Cost, Purpose
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.table.columns.binned import MOST_HEAPS, Counted, Ending, RangeColumn, find_kinds

Counts = NDArray[np.int64]

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
    """The public description of what is counted of one column.

    Attributes:
        column: the column, with known bins.
        first: the first point of its range.
        points: how many points, or declared heaps, are counted one by one; 0 for none.
        moduli: the moduli of its endings, each a divisor of the next; empty for none.
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

    def cells(self) -> list[tuple[Callable[[Counts], Counts], int]]:
        """Return for each histogram the cell of a point (below 0: none) and its number of cells."""
        if self.column.private_heaps is None:
            return [(self._find_heaps, self.points)]
        found: list[tuple[Callable[[Counts], Counts], int]] = []
        if self.points:
            found.append((lambda points: points - self.first, self.points))
        if self.moduli:
            period = self.moduli[-1]
            found.append((lambda points: self.column.marks(points) % period, period))
        return found

    def _find_heaps(self, points: Counts) -> Counts:
        """Return the declared heap on which each point is."""
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

    def _select_heaps(self, noisy: NDArray[np.float64], noise_std: float) -> Counts:
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
    """Find endings with more rows than an equal share of the next coarser ending.

    Args:
        noisy: rows on every remainder of the last modulus.
        moduli: each a divisor of the next.
        noise_std: standard deviation of the noise of one count (rows).

    Returns:
        The endings that stand out of the noise, at most ``MOST_ENDINGS``, the finest first.
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
    """Return the columns with the rows on their frequent values, by name.

    Raises:
        BudgetExceeded: the ledger behind ``mechanisms`` holds less.
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
    copies = mechanisms.ledger.unit.copies
    return {
        each.column.name: each.counted(noisy / copies, math.sqrt(made.noise_variance) / copies)
        for each, made, noisy in zip(histograms, measurements, mechanisms.measure(measurements))
    }
