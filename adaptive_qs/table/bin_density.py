"""The density of values inside codes that stand for several, from released numbers only.

A bin of prices from 100 to 500 holds more rows near 100 if the bins below hold more than those
above, and most of them at 120.00, 149.99 and the like. Values are drawn by a density that is made
of the following:

- The noisy counts of the column's codes. Inside a code the logarithm of the density is linear, in a
  coordinate that is linear in the middle of the column and logarithmic far out, so that a tail is a
  power law. Its slope joins the densities of the codes on either side. In the outermost code it
  begins where the tail before it ends, and declines as fast as the rows of the code require.
- The noisy rows on single values (heaps), if they were counted, which are set apart before the
  density is made, and on endings, which divide the values of a code among each other.

Every code keeps its rows: the density only decides where in a code they lie. Which row lies further
up follows from its other columns (``Copula`` in :mod:`adaptive_qs.generate.shape`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adaptive_qs.table.cells import normalise
from adaptive_qs.table.columns.binned import RangeColumn, find_kinds

if TYPE_CHECKING:
    from adaptive_qs.table.columns.base import ColumnBase, Drawer

Array = NDArray[np.float64]
Points = NDArray[np.int64]

LEAST_ROWS = 0.5
"""Least number of rows of a code for its density, which has to be positive."""
SPIKE = 3.0
"""A code of a single value with more than this times the density of both neighbours is skipped."""
NARROW = 1e-4
"""A code with less than this part of the width of either neighbour counts as a single value."""
CELLS_OF_A_CODE = 1 << 12
"""Points of a code up to which each has a probability of its own."""
CELLS = 1 << 16
"""Points of all codes together up to which each has a probability of its own."""
COARSE_CELLS, LEAST_CELLS = 256, 16
"""Number of cells of a code that has more points, and the least if codes are many."""
LEAST_WIDTH = 1e-12
"""Least width of a code, in units: doubles cannot resolve bins of very different sizes."""
TAIL = 2.0
"""Power of the distance by which a tail falls if its decline is unknown (Zipf's law)."""
LIMIT = 700.0
"""Largest exponent of a density that a double holds."""


@dataclass(frozen=True)
class Inside:
    """The distribution of the values of one column inside its codes."""

    column: RangeColumn
    starts: Points  # first point of every cell, ascending, code by code, shape (cells,)
    widths: Points  # number of points of every cell
    ends: Array  # cumulated probabilities: cells of code c lead from c to c + 1
    first: Points  # position of the first cell of every code, and of the end, shape (codes + 1,)
    endings: tuple[tuple[int, int, float], ...]  # remainder, modulus, probability; of wide cells

    def draw(self, codes: Points, rng: np.random.Generator) -> pa.Array:
        """Draw values for codes that have some, shape (rows,)."""
        cells = np.searchsorted(self.ends, codes + rng.random(codes.size), side="right")
        cells = np.clip(cells, self.first[codes], self.first[codes + 1] - 1)
        points = self.starts[cells]
        wide = np.flatnonzero(self.widths[cells] > 1)
        if wide.size:
            points[wide] += (rng.random(wide.size) * self.widths[cells[wide]]).astype(np.int64)
            if self.endings:
                points[wide] = self._ended(points[wide], codes[wide], rng)
        return self.column.values_at(points, rng)

    def _ended(self, points: Points, codes: Points, rng: np.random.Generator) -> Points:
        """Move points to the next one below or above of the same code with a drawn ending."""
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


def build_drawers(
    columns: Sequence[ColumnBase], counts: Callable[[int], Array]
) -> dict[str, Drawer]:
    """Return drawers for the values of columns with bins or periods, by name.

    Args:
        columns: The columns, without open bins.
        counts: Returns the rows of each code of the column at a position, released with noise.
    """
    drawers: dict[str, Drawer] = {}
    for place, column in enumerate(columns):
        if isinstance(column, RangeColumn) and np.diff(column.point_ends(), axis=0).any():
            drawers[column.name] = inside(column, counts(place)[: column.num_values]).draw
    return drawers


def inside(column: RangeColumn, counts: Array) -> Inside:
    """Return the distribution inside the codes of a column with known bins.

    ``counts`` are the rows of each of its values or bins, released with noise, shape (num_values,).
    """
    first, last = column.point_ends()
    heaps = _Heaps.of(column, first, last, counts)
    rest = np.maximum(counts - heaps.of_codes, 0.0)
    shape = _Shape.of(column, first, last, np.maximum(counts - heaps.spikes(column), 0.0))
    most = min(CELLS_OF_A_CODE, max(LEAST_CELLS, CELLS // counts.size))
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
    several = last > first
    shared = density * several[owner]
    factors, endings = _endings(column, starts, widths, shared, heaps, (counts, several))
    density *= factors
    density *= _normal(density, owner, rest)[owner]
    density[place] = heaps.rows
    # A code without any rows is drawn from all the same, since other parts can request rows of it.
    empty = np.bincount(owner, density) <= 0
    density[empty[owner]] = widths[empty[owner]]
    density *= _normal(density, owner, np.ones(counts.size))[owner]
    return Inside(column, starts, widths, np.cumsum(density), ends, endings)


def sort_inside(
    column: ColumnBase, codes: NDArray[Any], values: pa.Array, places: Array | None
) -> pa.Array:
    """Return values exchanged inside codes, to ascend with ``places``; values at NaN stay."""
    rows = np.flatnonzero(~np.isnan(places)) if places is not None else np.zeros(0, np.int64)
    if places is None or not rows.size or (found := normalise(values.take(rows))) is None:
        return values
    source = np.arange(len(values))
    to, drawn = (  # code by code
        rows[np.argsort(codes[rows] + (keys - keys.min()) / (2 * np.ptp(keys) or 1.0))]
        for keys in (places[rows], column.amounts(found))
    )
    source[to] = drawn
    return values.take(pa.array(source))


def _normal(density: Array, owner: Points, totals: Array) -> Array:
    """Return the factors of codes with which their cells have these totals."""
    sums = np.bincount(owner, density, totals.size)
    return np.divide(totals, sums, out=np.zeros(totals.size), where=sums > 0)


@dataclass(frozen=True)
class _Heaps:
    """Rows on single points of codes that have several."""

    points: Points  # of each heap, shape (heaps,), as codes and rows
    codes: Points
    rows: Array
    of_codes: Array  # rows on heaps in every code, no more than the code has

    @classmethod
    def of(cls, column: RangeColumn, first: Points, last: Points, counts: Array) -> _Heaps:
        points = column.heap_points if column.counted else np.zeros(0, np.int64)
        rows = np.array(column.counted.rows if column.counted else (), dtype=np.float64)
        order = np.argsort(points)
        points, rows = points[order], np.maximum(rows[order], 0.0)
        inside = (first[0] <= points) & (points <= last[-1])  # a learnt range may leave some out
        points, rows = points[inside], rows[inside]
        codes = np.searchsorted(first, points, side="right") - 1
        kept = last[codes] > first[codes]
        points, codes, rows = points[kept], codes[kept], rows[kept]
        requested = np.bincount(codes, rows, counts.size).astype(np.float64)
        fits = np.divide(counts, requested, out=np.ones(counts.size), where=requested > counts)
        rows = rows * np.minimum(fits, 1.0)[codes]
        return cls(points, codes, rows, np.minimum(requested, counts))

    def spikes(self, column: RangeColumn) -> Array:
        """Return the rows of every code on heaps that share their ending with no others.

        Heaps on an ending are rounded values: if few others of the kind were found as heaps, the
        density would fall towards them if these were set apart.
        """
        endings = column.counted.endings if column.counted else ()
        alone = find_kinds(column.marks(self.points), endings) == len(endings)
        return np.bincount(self.codes, self.rows * alone, self.of_codes.size).astype(np.float64)


# The density of the rows that are on no heap.


@dataclass(frozen=True)
class _Shape:
    """Densities inside codes, in proportion to exp(slope · y), y = arsinh((x − middle) / unit).

    Middles and units are the median and half the distance of the quartiles of the column; for tails
    the end where they begin and their own scale. All have shape (codes,).
    """

    column: RangeColumn
    first: Points  # first point of every code
    last: Points
    middles: Array
    units: Array
    slopes: Array  # of the logarithm of the density in y

    @classmethod
    def of(cls, column: RangeColumn, first: Points, last: Points, counts: Array) -> _Shape:
        x = np.stack([column.positions(first), column.positions(last + 1)], axis=1)
        several = np.where(last > first, counts, 0.0)
        weights = several if several.sum() > 0 else np.ones(counts.size)
        sums = np.append(0.0, np.cumsum(weights)) / weights.sum()
        low, middle, high = np.interp((0.25, 0.5, 0.75), sums, np.append(x[0, 0], x[:, 1]))
        unit = (high - low) / 2 or 1.0
        widths = np.diff(x)[:, 0]
        nearby = np.pad(widths, 1, constant_values=np.inf)
        narrow = widths < NARROW * np.minimum(nearby[:-2], nearby[2:])
        slopes, scales = _slopes((x - middle) / unit, counts, (last == first) | narrow)
        middles = np.where(scales > 0, x[:, 0], np.where(scales < 0, x[:, 1], middle))
        units = unit * np.where(scales == 0, 1.0, np.abs(scales))
        return cls(column, first, last, middles, units, slopes)

    def cells(self, code: int, most: int, heaps: Points) -> tuple[Points, Array]:
        """Return first points of the cells of a code, and masses in proportion to its density."""
        first, after = int(self.first[code]), int(self.last[code]) + 1
        if after - first <= most:
            starts = np.arange(first, after)
        else:
            ends = self._scaled(np.array([first, after]), code)
            cuts = _even_cuts(ends, min(most, COARSE_CELLS))[1:-1]
            # Inside a code the points lie evenly on the scale of the values.
            shares = (cuts - ends[0]) / max(ends[1] - ends[0], LEAST_WIDTH)
            inner = np.clip(first + np.floor(shares * (after - first)), first, after - 1)
            own = np.minimum(np.append(heaps, heaps + 1), after - 1)
            starts = np.unique(np.concatenate([[first], inner.astype(np.int64), own]))
        cuts = self._scaled(np.append(starts, after), code)
        return starts, _masses(cuts, float(self.slopes[code]))

    def _scaled(self, points: Points, code: int) -> Array:
        return (self.column.positions(points) - self.middles[code]) / self.units[code]


def _even_cuts(ends: Array, cells: int) -> Array:
    """Return ends of cells between two ends, equally wide in y."""
    low, high = np.arcsinh(ends)
    return np.asarray(np.sinh(np.linspace(low, high, cells + 1)))


def _masses(cuts: Array, slope: float) -> Array:
    """Return unnormalised masses of narrow cells, by the density in their middle."""
    y = np.arcsinh((cuts[1:] + cuts[:-1]) / 2)
    return np.diff(cuts) * np.exp(np.maximum(slope * y - max(slope * y[0], slope * y[-1]), -LIMIT))


def _slopes(ends: Array, counts: Array, single: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Return the slope of the log-density in every code, from the densities of its neighbours.

    Codes of a single point that stand out of the density are skipped: the codes on either side of
    them are neighbours.

    Also return the scales of tails (in units, negative to the left; 0 for other codes). The rows of
    an outermost code alone decide its decline if the density next to it does not fall outwards:
    then it falls as the inverse square of the distance. Every code has two ``ends``, minus the
    middle, in units; ``single`` are codes of one point.
    """
    logs = np.log(np.maximum(counts, LEAST_ROWS) / np.maximum(np.diff(ends)[:, 0], LEAST_WIDTH))
    slopes, scales = np.zeros(counts.size), np.zeros(counts.size)
    kept = np.flatnonzero(~_spikes(logs, single))
    ends, logs = ends[kept], logs[kept]
    y = np.arcsinh(ends)
    widths, centres = np.maximum(y[:, 1] - y[:, 0], LEAST_WIDTH), y.mean(axis=1)
    # At an end that two codes share, the logarithms of their densities are joined linearly.
    between = widths[1:] * logs[:-1] + widths[:-1] * logs[1:]
    between /= widths[1:] + widths[:-1]
    for code in np.flatnonzero(~single[kept]):
        left, right = code > 0, code + 1 < kept.size
        if left and right:
            slopes[kept[code]] = (between[code] - between[code - 1]) / widths[code]
        elif left or right:
            step = -1 if left else 1
            outwards = ends[code] if left else -ends[code, ::-1]
            line = slice(code + step, code + 4 * step if code + 4 * step >= 0 else None, step)
            start, fall = _begin_tail(logs[line], centres[line], widths[code + step])
            if fall and start <= logs[code]:  # a tail that falls: the code next to it is too low
                start, fall = float(logs[line].max()), 0.0
            sign = 1.0 if left else -1.0
            if fall:
                slopes[kept[code]] = sign * _decline(outwards, logs[code] - start)
            elif logs[code] < start:
                slopes[kept[code]] = -sign * TAIL
                scales[kept[code]] = sign * _scale(outwards[1] - outwards[0], logs[code] - start)
    return slopes, scales


def _begin_tail(logs: Array, centres: Array, width: float) -> tuple[float, float]:
    """Return the log-density where a tail begins, and its slope if it falls outwards; else 0.

    If the density rises towards the tail, some rows next to it can lie on a single value inside a
    bin, such as an account's zero. So it begins no higher than the codes beyond continue. ``logs``
    and ``centres`` are of up to three codes, the one next to the tail first; ``width`` is its
    width.
    """
    if len(logs) < 2:
        return float(logs[0]), 0.0
    apart = np.maximum(np.abs(np.diff(centres)), LEAST_WIDTH)
    rises = -np.diff(logs) / apart
    if rises[0] < 0:
        return float(logs[0] + rises[0] * width / 2), float(rises[0])
    if len(logs) < 3:
        return float(logs[0]), 0.0
    return float(min(logs[0], logs[1] + max(rises[1], 0.0) * (apart[0] + width / 2))), 0.0


def _spikes(logs: Array, single: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which codes of a single value are skipped where densities are joined.

    These are codes between two codes of several values, and others that stand out of the density on
    both sides. Two of them can be next to each other, so a single value is compared with the lower
    of two neighbours.
    """
    near = np.pad(logs, 1, constant_values=-np.inf)
    far, alike = np.pad(logs, 2, constant_values=np.inf), np.pad(single, 1)
    below = np.where(alike[:-2], np.minimum(near[:-2], far[:-4]), near[:-2])
    above = np.where(alike[2:], np.minimum(near[2:], far[4:]), near[2:])
    spikes = single & (logs > math.log(SPIKE) + np.maximum(below, above))
    spikes[1:-1] |= single[1:-1] & ~single[:-2] & ~single[2:]
    return spikes


def _decline(ends: Array, log_mean: float) -> float:
    """Return the slope of a density that is 1 at the first end and has this mean.

    It is 0 for a mean of 1 and more: the density is not assumed to rise outwards.
    """
    if log_mean >= 0:
        return 0.0
    cuts = _even_cuts(ends, COARSE_CELLS)
    if cuts[-1] - cuts[0] < LEAST_WIDTH:
        return 0.0
    shares = np.diff(cuts) / (cuts[-1] - cuts[0])
    y = np.arcsinh((cuts[1:] + cuts[:-1]) / 2) - np.arcsinh(cuts[0])

    def excess(slope: float) -> float:
        return math.log(float(shares @ np.exp(np.maximum(slope * y, -LIMIT)))) - log_mean

    steepest = -LIMIT / float(y[0])  # begins in the first cell
    return _root(excess, steepest, 0.0) if excess(steepest) < 0 else steepest


def _root(increasing: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function is zero; scipy.optimize takes long to import."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if increasing(middle) < 0 else (low, middle)
    return low


def _scale(width: float, log_mean: float) -> float:
    """Return the unit of a density exp(−TAIL · arsinh(x / unit)) that has this mean on 0 .. width.

    ``log_mean`` is the logarithm of the mean density, less than 0.
    """

    def excess(log: float) -> float:
        y = math.asinh(math.exp(-log))
        # The integral of exp(−2y) over x = sinh(y).
        mass = (-math.expm1(-y) - math.expm1(-3 * y) / 3) / 2
        return math.log(mass) + log - log_mean

    return width * math.exp(_root(excess, log_mean - 2.0, 60.0))  # unit / width


# Endings: which points of a code the rows are on.


def _endings(
    column: RangeColumn,
    starts: Points,
    widths: Points,
    rows: Array,
    heaps: _Heaps,
    codes: tuple[Array, NDArray[np.bool_]],
) -> tuple[Array, tuple[tuple[int, int, float], ...]]:
    """Return factors of the cells of one point, and endings of others with their probabilities.

    ``rows`` are expected on each cell of codes of several points, heaps aside, if endings meant
    nothing; ``codes`` are the rows of every code, and which of them have several points.
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
    known = np.bincount(find_kinds(column.marks(exact), found), rows_there, size)
    kinds = find_kinds(column.marks(starts), found)
    period = math.lcm(*(ending.modulus for ending in found))
    parts = np.bincount(find_kinds(np.arange(period), found), minlength=size) / period
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
