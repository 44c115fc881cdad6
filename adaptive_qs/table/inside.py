"""How values lie inside codes that stand for several, from released numbers only.

A bin of prices from 100 to 500 holds more rows near 100 if the bins below hold more than those
above, and most of them at 120.00, 149.99 and the like. Values are drawn by a density that is made
of what a release tells:

- the noisy counts of the column's codes. Inside a code the density is exponential, in a coordinate
  that is linear in the middle of the column and logarithmic far out, so that a tail is a power law.
  Its slope joins the densities of the codes on either side; in the outermost code the density
  begins where the tail before it ends, and declines as fast as the rows of the code require.
- where they were counted, the noisy rows on single values (heaps), which are set apart before the
  density is made, and on endings, which part the values of a code among each other.

Every code keeps its rows: only where in a code they lie is decided here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.table.columns.spread import SpreadColumn, kinds_of

if TYPE_CHECKING:
    import pyarrow as pa

    from adaptive_qs.table.columns.base import ColumnBase, Drawer

Array = NDArray[np.float64]
Points = NDArray[np.int64]

LEAST_ROWS = 0.5
"""Rows of a code from which its density is taken, so that it is positive."""
SPIKE = 3.0
"""A code of a single point with so many times the density of both neighbours is none of theirs."""
CELLS_OF_A_CODE = 1 << 12
"""Points of a code up to which each has a probability of its own."""
CELLS = 1 << 16
"""The same for all codes together; longer codes have cells of several points."""
COARSE_CELLS = 256
"""Cells of a code that has more points."""
LIMIT = 700.0
"""Largest exponent of a density that a double holds."""


@dataclass(frozen=True)
class Inside:
    """What the values of one column are drawn from.

    Attributes:
        column: whose points they are.
        starts: first point of every cell, ascending, code by code, shape (cells,).
        widths: points of every cell.
        ends: cumulated probabilities: those of the cells of code c lead from c to c + 1.
        first: position of the first cell of every code, and of the end, shape (codes + 1,).
        endings: remainder, modulus and probability of each ending in cells of several points.
    """

    column: SpreadColumn
    starts: Points
    widths: Points
    ends: Array
    first: Points
    endings: tuple[tuple[int, int, float], ...]

    def draw(self, codes: Points, rng: np.random.Generator) -> pa.Array:
        """Values for codes that mean some, shape (rows,)."""
        cells = np.searchsorted(self.ends, codes + rng.random(codes.size), side="right")
        cells = np.clip(cells, self.first[codes], self.first[codes + 1] - 1)
        points = self.starts[cells]
        wide = np.flatnonzero(self.widths[cells] > 1)
        if wide.size:
            within = (rng.random(wide.size) * self.widths[cells[wide]]).astype(np.int64)
            points[wide] += within
            if self.endings:
                points[wide] = self._ended(points[wide], codes[wide], rng)
        return self.column.values_at(points, rng)

    def _ended(self, points: Points, codes: Points, rng: np.random.Generator) -> Points:
        """Points moved to the next one below or above of the same code with an ending."""
        remainders, moduli, shares = (np.array(part) for part in zip(*self.endings))
        chosen = np.searchsorted(np.cumsum(shares), rng.random(points.size), side="right")
        some = np.flatnonzero(chosen < shares.size)
        remainder, modulus = remainders[chosen[some]], moduli[chosen[some]]
        first = self.starts[self.first[codes[some]]]
        after = self.starts[self.first[codes[some] + 1] - 1]
        last = after + self.widths[self.first[codes[some] + 1] - 1] - 1
        moved = points[some] - (self.column.marks(points[some]) - remainder) % modulus
        moved += np.where(moved < first, modulus, 0)
        moved = np.where((first <= moved) & (moved <= last), moved, points[some])
        ended = self.column.marks(moved) % modulus == remainder  # months differ in length
        points[some] = np.where(ended, moved, points[some])
        return points


def drawers_of(columns: Sequence[ColumnBase], counts: Sequence[Array]) -> dict[str, Drawer]:
    """What draws the values of columns with bins or periods, by name.

    Args:
        columns: with no bins left open.
        counts: rows with each code of every column, released with noise.
    """
    spread = ((c, rows) for c, rows in zip(columns, counts) if isinstance(c, SpreadColumn))
    found = {column.name: inside(column, rows[: column.num_values]) for column, rows in spread}
    return {name: each.draw for name, each in found.items() if each is not None}


def inside(column: SpreadColumn, counts: Array) -> Inside | None:
    """What values are drawn from; None where every code is one value.

    Args:
        column: with bins that are known.
        counts: rows of each of its values or bins, released with noise, shape (num_values,).
    """
    first, last = column.point_ends()
    if not (last > first).any() or not counts.sum() > 0:
        return None
    heaps = _Heaps.of(column, first, last, counts)
    rest = np.maximum(counts - heaps.of_codes, 0.0)
    shape = _Shape.of(column, first, last, rest)
    most = min(CELLS_OF_A_CODE, max(COARSE_CELLS, CELLS // counts.size))
    parts = [
        shape.cells(code, most, heaps.points[heaps.codes == code]) for code in range(counts.size)
    ]
    starts = np.concatenate([starts for starts, _ in parts])
    density = np.concatenate([mass for _, mass in parts])
    sizes = np.array([len(starts) for starts, _ in parts])
    owner = np.repeat(np.arange(counts.size), sizes)
    ends = np.append(0, np.cumsum(sizes))
    widths = np.diff(starts, append=last[-1] + 1)
    widths[ends[1:] - 1] = last + 1 - starts[ends[1:] - 1]
    place = np.searchsorted(starts, heaps.points)
    density[place] = 0.0
    density *= _normal(density, owner, rest)[owner]
    factors, endings = _endings(column, starts, widths, density, heaps, (counts, last > first))
    density *= factors
    density *= _normal(density, owner, rest)[owner]
    density[place] = heaps.rows
    # A code without any rows is drawn from all the same, where rows are asked for by other ways.
    empty = np.bincount(owner, density) <= 0
    density[empty[owner]] = widths[empty[owner]]
    density *= _normal(density, owner, np.ones(counts.size))[owner]
    return Inside(column, starts, widths, np.cumsum(density), ends, endings)


def _normal(density: Array, owner: Points, totals: Array) -> Array:
    """By what the cells of every code are multiplied to have these totals."""
    sums = np.bincount(owner, density, totals.size)
    return np.divide(totals, sums, out=np.zeros(totals.size), where=sums > 0)


@dataclass(frozen=True)
class _Heaps:
    """Rows on single points of codes that have several.

    Attributes:
        points, codes, rows: of each, shape (heaps,).
        of_codes: rows on heaps in every code, no more than the code has.
    """

    points: Points
    codes: Points
    rows: Array
    of_codes: Array

    @classmethod
    def of(cls, column: SpreadColumn, first: Points, last: Points, counts: Array) -> _Heaps:
        points = column.heap_points if column.counted else np.zeros(0, np.int64)
        rows = np.array(column.counted.rows if column.counted else (), dtype=np.float64)
        order = np.argsort(points)
        points, rows = points[order], np.maximum(rows[order], 0.0)
        codes = np.searchsorted(first, points, side="right") - 1
        kept = last[codes] > first[codes]
        points, codes, rows = points[kept], codes[kept], rows[kept]
        asked = np.bincount(codes, rows, counts.size).astype(np.float64)
        fits = np.divide(counts, asked, out=np.ones(counts.size), where=asked > counts)
        rows = rows * np.minimum(fits, 1.0)[codes]
        return cls(points, codes, rows, np.minimum(asked, counts))


# The density of the rows that are on no heap.


@dataclass(frozen=True)
class _Shape:
    """Densities inside codes: exponential in y = arsinh((x − middle) / unit).

    Attributes:
        first, last: points of every code.
        middle, unit: median and half the distance of the quartiles.
        y: ends of every code, shape (codes, 2).
        slopes: of the logarithm of the density in y, shape (codes,).
    """

    column: SpreadColumn
    first: Points
    last: Points
    middle: float
    unit: float
    y: Array
    slopes: Array

    @classmethod
    def of(cls, column: SpreadColumn, first: Points, last: Points, counts: Array) -> _Shape:
        x = np.stack([column.positions(first), column.positions(last + 1)], axis=1)
        several = np.where(last > first, counts, 0.0)
        weights = several if several.sum() > 0 else np.ones(counts.size)
        sums = np.append(0.0, np.cumsum(weights)) / weights.sum()
        low, middle, high = np.interp((0.25, 0.5, 0.75), sums, np.append(x[0, 0], x[:, 1]))
        unit = (high - low) / 2 or 1.0
        y = np.arcsinh((x - middle) / unit)
        return cls(column, first, last, middle, unit, y, _slopes(y, counts, last == first))

    def cells(self, code: int, most: int, heaps: Points) -> tuple[Points, Array]:
        """First points of the cells of a code, and masses in proportion to its density."""
        first, after = int(self.first[code]), int(self.last[code]) + 1
        low, high = self.y[code]
        if after - first <= most:
            starts = np.arange(first, after)
        else:
            x = self.middle + self.unit * np.sinh(np.linspace(low, high, COARSE_CELLS + 1)[1:-1])
            cuts = np.clip(np.floor(x), first, after - 1).astype(np.int64)
            own = np.minimum(np.append(heaps, heaps + 1), after - 1)
            starts = np.unique(np.concatenate([[first], cuts, own]))
        x = self.column.positions(np.append(starts, after))
        y = np.arcsinh((x - self.middle) / self.unit)
        slope = float(self.slopes[code])
        if abs(slope) * (high - low) < 1e-9:
            return starts, np.diff(y)
        top = high if slope > 0 else low
        return starts, np.abs(np.diff(np.exp(np.maximum(slope * (y - top), -LIMIT))))


def _slopes(y: Array, counts: Array, single: NDArray[np.bool_]) -> Array:
    """The slope of the log-density in every code, from those of its neighbours."""
    widths, centres = y[:, 1] - y[:, 0], y.mean(axis=1)
    logs = np.log(np.maximum(counts, LEAST_ROWS) / widths)
    padded = np.pad(logs, 1, constant_values=-np.inf)
    spikes = single & (logs > math.log(SPIKE) + np.maximum(padded[:-2], padded[2:]))
    smooth = np.pad(~spikes, 1)  # those beyond the ends are none
    slopes = np.zeros(counts.size)
    # At an end that two codes share, the logarithms of their densities are joined linearly.
    between = widths[1:] * logs[:-1] + widths[:-1] * logs[1:]
    between /= widths[1:] + widths[:-1]
    for code in np.flatnonzero(~single):
        left, right = smooth[code], smooth[code + 2]
        if left and right:
            slopes[code] = (between[code] - between[code - 1]) / widths[code]
        elif left or right:
            beside, beyond = (code - 1, code - 2) if left else (code + 1, code + 2)
            start = logs[beside]
            if 0 <= beyond < counts.size and smooth[beyond + 1]:
                fall = (logs[beside] - logs[beyond]) / abs(centres[beside] - centres[beyond])
                start += min(fall, 0.0) * widths[beside] / 2
            decline = _decline(math.exp(logs[code] - start)) / widths[code]
            slopes[code] = -decline if left else decline
    return slopes


def _decline(mean: float) -> float:
    """The k for which (1 − exp(−k)) / k, the mean of exp(−k t) over 0 ≤ t ≤ 1, is this; 0 from 1
    on: a density that begins at one end and has this mean does not rise towards the other."""
    if mean >= 1:
        return 0.0
    k = max(2 * (1 - mean), 1 / mean - 1)
    for _ in range(60):  # Newton's method on a convex decreasing function, from below its root
        value = -math.expm1(-k) / k
        slope = (math.exp(-k) - value) / k
        step = (mean - value) / slope
        k = max(k + step, 1e-9)
        if abs(step) < 1e-12 * k:
            break
    return min(k, LIMIT)


# Endings: which points of a code the rows are on.


def _endings(
    column: SpreadColumn,
    starts: Points,
    widths: Points,
    rows: Array,
    heaps: _Heaps,
    codes: tuple[Array, NDArray[np.bool_]],
) -> tuple[Array, tuple[tuple[int, int, float], ...]]:
    """Factors of the cells of one point, and the endings of others with their probabilities.

    Args:
        column: with the noisy rows on endings.
        starts, widths: of all cells.
        rows: expected on each of them, heaps aside, if endings meant nothing.
        heaps: rows on them are among those counted on endings.
        codes: rows of every code, and which of them have several points; so are the others'.
    """
    factors = np.ones(rows.size)
    found = column.counted.endings if column.counted else ()
    if not found:
        return factors, ()
    counts, several = codes

    size = len(found) + 1
    single, wide = column.point_ends()[0][~several], widths > 1
    exact = np.concatenate([single, heaps.points])
    rows_there = np.concatenate([counts[~several], heaps.rows])
    known = np.bincount(kinds_of(column.marks(exact), found), rows_there, size)
    kinds = kinds_of(column.marks(starts), found)
    period = math.lcm(*(ending.modulus for ending in found))
    parts = np.bincount(kinds_of(np.arange(period), found), minlength=size) / period
    expected = np.bincount(kinds[~wide], rows[~wide], size) + rows[wide].sum() * parts
    there = np.array([ending.rows for ending in found]) - known[:-1]
    there = np.append(np.maximum(there, 0.0), 0.0)
    there[-1] = max(expected.sum() - there.sum(), 0.0)
    ratios = np.divide(there, expected, out=np.ones(size), where=expected > 0)
    factors[~wide] = ratios[kinds[~wide]]
    shares = ratios * parts
    shares /= shares.sum() or 1.0
    triples = zip(found, shares[:-1].tolist())
    return factors, tuple((each.remainder, each.modulus, share) for each, share in triples)
