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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.learn.gather import Numbers
from adaptive_qs.privacy.events import UNITS_PER_RHO, Cost, GaussianEvent, Purpose
from adaptive_qs.privacy.mechanisms import CountsRequest, Mechanisms
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

    @property
    def squared_sensitivity(self) -> int:
        """One for each histogram."""
        return bool(self.points) + bool(self.moduli or self.column.patterns)

    def counts(self, points: Counts) -> Counts:
        """Exact counts of the private points, one histogram after the other."""
        column = self.column
        if column.private_heaps is not None:
            found = [np.bincount(points - self.first, minlength=self.points)] * bool(self.points)
            marks = column.marks(points)
            found += [np.bincount(marks % m, minlength=m) for m in self.moduli[-1:]]
            return np.concatenate(found)
        heaps = column.heap_points
        order = np.argsort(heaps)
        place = np.searchsorted(heaps, points, sorter=order)
        on_heap = points == np.append(heaps[order], self.first - 1)[place]
        rows = np.zeros(heaps.size, np.int64)
        rows[order] = np.bincount(place[on_heap], minlength=heaps.size)
        kinds = find_kinds(column.marks(points), column.patterns)
        return np.concatenate([rows, np.bincount(kinds, minlength=len(column.patterns) + 1)[:-1]])

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
    requests = []
    for each in histograms:
        name = each.column.name
        variance = Fraction(each.squared_sensitivity * UNITS_PER_RHO, 2 * costs[name].rho_units)
        event = GaussianEvent(Purpose.HEAPS, (name,), each.squared_sensitivity, variance)
        counts = each.counts(each.column.to_points(numbers[name]))
        requests.append(CountsRequest(event, counts))
    released = mechanisms.release_together(requests) if requests else []
    copies = mechanisms.ledger.unit.copies
    return {
        each.column.name: each.counted(
            noisy / copies, math.sqrt(request.event.noise_variance) / copies
        )
        for each, request, noisy in zip(histograms, requests, released)
    }
