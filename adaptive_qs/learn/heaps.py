"""Rows on the frequent values of columns in bins, counted with noise: heaps and endings.

Every row has one value, and so is on one point and on one ending at most. The rows on points and
those on endings are two histograms of squared sensitivity 1 each, released together. Where heaps
are declared, their rows and those on declared endings are all that is counted; where they are to be
found, the rows on all points of the range and on all remainders, and those that stand out of the
noise are kept: hardly ever (``FALSE``) does one of many empty cells stand out, which in a wide bin
would move the mean of the column. What is found follows from the noisy counts alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.learn.gather import Numbers
from adaptive_qs.privacy.counts import Measurement, PrivateValues
from adaptive_qs.privacy.events import Cost, Purpose
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.query import Identity, LinearQuery
from adaptive_qs.table.columns.binned import MOST_HEAPS, Counted, Ending, RangeColumn, find_kinds

Counts = NDArray[np.int64]

MOST_POINTS = 1 << 20
"""Points of a column, at most, on which the rows are counted each."""
PERIODS = 2
"""So many periods of an ending, or more, lie in the range of a column."""
MOST_ENDINGS = 100
"""Endings of a column, at most, that are kept."""
FALSE = 0.01
"""Chance that noise alone makes a frequent value of a column, or an ending of one modulus."""


@dataclass(frozen=True)
class _Histograms:
    """What is counted of a column, public.

    Attributes:
        column: with bins that are known.
        first: the first point.
        points: points of its range whose rows are counted each; 0 where none are.
        moduli: of the endings, each a divisor of the next; none where none are counted.
    """

    column: RangeColumn
    first: int
    points: int
    moduli: tuple[int, ...]

    @classmethod
    def of(cls, column: RangeColumn) -> _Histograms:
        first, last = (ends[place] for ends, place in zip(column.point_ends(), (0, -1)))
        points = int(last - first) + 1
        moduli = tuple(m for m in column.periods if PERIODS * m <= points)
        counted = points if points <= MOST_POINTS else 0
        if column.private_heaps is None:
            counted, moduli = len(column.heaps), ()
        return cls(column, int(first), counted, moduli)

    def cells(self) -> list[tuple[Callable[[Counts], Counts], int]]:
        """Return for each histogram the cell of a point (below 0: none) and its number of cells."""
        column = self.column
        found: list[tuple[Callable[[Counts], Counts], int]] = []
        if column.private_heaps is not None:
            if self.points:
                found.append((lambda points: points - self.first, self.points))
            if self.moduli:
                period = self.moduli[-1]
                found.append((lambda points: column.marks(points) % period, period))
            return found
        if self.points:
            found.append((self._heap_of, self.points))
        if number := len(column.patterns):
            found.append((self._pattern_of, number))
        return found

    def _heap_of(self, points: Counts) -> Counts:
        heaps = self.column.heap_points
        order = np.argsort(heaps)
        place = np.searchsorted(heaps, points, sorter=order)
        on_heap = points == np.append(heaps[order], self.first - 1)[place]
        return np.where(on_heap, np.append(order, -1)[place], -1)

    def _pattern_of(self, points: Counts) -> Counts:
        kinds = find_kinds(self.column.marks(points), self.column.patterns)
        return np.where(kinds < len(self.column.patterns), kinds, -1)

    def counted(self, noisy: NDArray[np.float64], noise_std: float) -> RangeColumn:
        """The column with what the noisy counts say (rows of what is published)."""
        column = self.column
        if column.private_heaps is None:
            rows, endings = noisy[: self.points], noisy[self.points :]
            counted = Counted(
                rows=tuple(map(round, rows.tolist())), endings=_with_rows(column.patterns, endings)
            )
            return column.model_copy(update={"counted": counted})
        heaps = self._found(noisy[: self.points], noise_std)
        counted = Counted(
            rows=tuple(map(round, noisy[heaps].tolist())),
            endings=found_endings(noisy[self.points :], self.moduli, noise_std),
        )
        values = column.heaps_at(heaps + self.first)
        return column.model_copy(update={"heaps": values, "counted": counted})

    def _found(self, noisy: NDArray[np.float64], noise_std: float) -> Counts:
        """Positions of the points that stand out and share their code with others, ascending."""
        first, last = self.column.point_ends()
        alone = first[first == last] - self.first
        chosen = noisy > stands_out(noisy.size, noise_std)
        chosen[alone[alone < noisy.size]] = False
        found = np.flatnonzero(chosen)
        most = self.column.private_heaps or MOST_HEAPS
        return np.sort(found[np.argsort(-noisy[found], kind="stable")[:most]])


def stands_out(cells: int, noise_std: float) -> float:
    """What the largest of so many draws of Gaussian noise exceeds with a chance of ``FALSE`` at
    most: each exceeds t standard deviations with one of exp(−t²/2)/2 at most."""
    return noise_std * math.sqrt(2 * math.log(max(cells, 1) / (2 * FALSE)))


def found_endings(
    noisy: NDArray[Any], moduli: tuple[int, ...], noise_std: float
) -> tuple[Ending, ...]:
    """Endings that more rows have than equal shares of what is known of coarser ones.

    Args:
        noisy: rows on every remainder of the last modulus.
        moduli: each a divisor of the next.
        noise_std: of a count.

    Returns:
        those that stand out of the noise, at most ``MOST_ENDINGS``, the finest first.
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
        least = stands_out(modulus, noise_std * math.sqrt(period / modulus))
        chosen = np.flatnonzero(excess > least)
        found += [(float(excess[k]), Ending(remainder=k, modulus=modulus)) for k in chosen.tolist()]
    strongest = sorted(found, key=lambda each: -each[0])[:MOST_ENDINGS]
    endings = sorted((each[1] for each in strongest), key=lambda e: (-e.modulus, e.remainder))
    rows = np.bincount(find_kinds(marks, endings), noisy, len(endings) + 1)
    return _with_rows(endings, rows)


def _with_rows(endings: Sequence[Ending], rows: NDArray[Any]) -> tuple[Ending, ...]:
    return tuple(
        ending.model_copy(update={"rows": round(number)})
        for ending, number in zip(endings, rows.tolist())
    )


def learn_heaps(
    columns: list[RangeColumn],
    numbers: Mapping[str, Numbers],
    mechanisms: Mechanisms,
    costs: Mapping[str, Cost],
) -> dict[str, RangeColumn]:
    """Columns with the rows on their frequent values, by name.

    Args:
        columns: with bins that are known, and heaps that are to be counted.
        numbers: the private values of each, missing ones left out.
        mechanisms: charges ``costs``, then draws.
        costs: what each column may cost.

    Raises:
        BudgetExceeded: the ledger behind ``mechanisms`` holds less.
    """
    histograms = [_Histograms.of(column) for column in columns]
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
