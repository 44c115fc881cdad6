"""Bounds and bins of integer and numeric columns, learnt with noise."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cliques import Array, Integers
from adaptive_qs.generate.targets import nearest_monotone
from adaptive_qs.learn.gather import Numbers
from adaptive_qs.privacy.counts import Identity, LinearQuery, Measurement, PrivateValues
from adaptive_qs.privacy.events import Cost, Purpose
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.table.columns.binned import NumberColumn

# Bounds of a column are the magnitudes between which its values lie. The public grid holds 0 and
# ±{1, 2, 5}·10^e. Its cells are {0} and, on either side, the intervals between neighbouring
# numbers, each with its outer end; the outermost take everything beyond them. One histogram over
# the cells, of squared sensitivity 1, is measured with noise of standard deviation σ.
#
# The line has three parts: the negative numbers, 0, and the positive ones. In each part the run of
# cells that maximises Σ (noisy count − 1.5 σ) stands out if that sum is above 4 σ. Bounds are the
# outermost ends of the runs that stand out, so that the many empty cells near 0 cost nothing. A
# declared end only limits the grid.
#
# An end of a run lies m empty cells too far out with probability at most Φ(−1.5 √m), in all below
# 0.1, and m cells at an end are lost only if they hold fewer than about 1.5 σ m rows. A run of pure
# noise anywhere on the grid of c cells sums to more than x with probability at most about
# c·exp(−3x/σ), below 0.002 for 4 σ, so a column that spans m cells of a part needs about
# (1.5 m + 4) σ rows there. If nothing stands out the bounds are public: :meth:`Magnitudes.default`.

Number = int | float

PENALTY = 1.5
"""Fewest rows of a cell in the range, in standard deviations of the noise."""
LEAST_SUM = 4.0
"""Sum above which a run of cells stands out, in standard deviations of the noise."""
DEFAULT_REACH = 100
"""Magnitude of the bounds of a column where nothing stands out."""
_DIGITS = (1, 2, 5)


@dataclass(frozen=True)
class Magnitudes:
    """The part of the public grid between the declared ends of a column, −∞ or ∞ if undeclared.

    ``steps`` are the positive numbers of the grid, ascending.
    """

    steps: tuple[Number, ...]
    low: Number
    high: Number

    @classmethod
    def from_column(cls, column: NumberColumn) -> Self:
        """Return the grid for values of a column."""
        if column.whole:
            steps: tuple[Number, ...] = tuple(d * 10**e for e in range(18) for d in _DIGITS)
        else:
            exponents = range(-12, 18)
            if column.places is not None:
                exponents = range(-column.places, 16 - column.places)  # 15 exact digits
            steps = tuple(float(f"{d}e{e}") for e in exponents for d in _DIGITS)
        low = -math.inf if column.min is None else column.min
        return cls(steps, low, math.inf if column.max is None else column.max)

    @property
    def cells(self) -> range:
        """The possible cells of values between the declared ends; 0 is the cell {0}."""
        return range(self._cell(self.low), self._cell(self.high) + 1)

    def find_cells(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return the cell of each value; all lie between the declared ends."""
        steps = np.array(self.steps, dtype=values.dtype)
        places = np.minimum(np.searchsorted(steps, np.abs(values)), len(steps) - 1) + 1
        return np.sign(values).astype(np.int64) * places - self.cells.start

    def bounds(self, noisy: NDArray[Any], noise_variance: Fraction | int) -> tuple[Number, Number]:
        """Return the ends of the cells with more rows than noise, between the declared ends."""
        sigma = math.sqrt(noise_variance)
        gain = np.asarray(noisy - PENALTY * sigma, dtype=np.float64)
        cells = np.array(self.cells)
        ends: list[Number] = []
        for sign in (-1, 0, 1):
            part = np.flatnonzero(np.sign(cells) == sign)
            total, first, last = _best_run(gain[part])
            if total > LEAST_SUM * sigma:
                ends += self._ends(int(cells[part[first]]))
                ends += self._ends(int(cells[part[last]]))
        if not ends:
            return self.default
        return self._between(min(ends)), self._between(max(ends))

    @property
    def default(self) -> tuple[Number, Number]:
        """Public bounds of a column with too few rows: around 0, or next to its declared end."""
        low, high = self._between(-DEFAULT_REACH), self._between(DEFAULT_REACH)
        if low < high:
            return low, high
        reach = min(max(DEFAULT_REACH, abs(low)), self.steps[-1])
        return (low, low + reach) if low > 0 else (high - reach, high)

    def _between(self, value: Number) -> Number:
        return min(max(value, self.low), self.high)

    def _cell(self, value: Number) -> int:
        place = min(int(np.searchsorted(self.steps, abs(value))), len(self.steps) - 1) + 1
        return place * ((value > 0) - (value < 0))

    def _ends(self, cell: int) -> tuple[Number, Number]:
        return self._point(cell - (cell > 0)), self._point(cell + (cell < 0))

    def _point(self, place: int) -> Number:
        step = self.steps[abs(place) - 1] if place else 0
        return step if place > 0 else -step


def _best_run(gain: NDArray[np.float64]) -> tuple[float, int, int]:
    """Return the largest sum of neighbouring gains, and the first and last position."""
    best, total, first = (-math.inf, 0, 0), 0.0, 0
    for position, value in enumerate(gain.tolist()):
        if total <= 0:
            total, first = 0.0, position
        total += value
        best = max(best, (total, first, position), key=lambda run: run[0])
    return best


UNIFORM_CELLS = 4096
"""Largest number of cells of equal width."""
_DIGITS_BELOW = 12
"""Digits between the largest value and the unit of a numeric column without decimals."""
_DECADES = 6
"""Decades below the largest value that such a column resolves to two digits."""

Points = NDArray[np.int64] | NDArray[np.float64]


def grid_points(column: NumberColumn, low: Number, high: Number) -> Points:
    """Return the ends of the cells [point, next point) that hold low .. high, ascending.

    The points are multiples of a step {1, 2, 5}·10^e that makes at most ``UNIFORM_CELLS`` cells; if
    that is coarser, also the numbers with two digits; and 0 with the unit of the column, so that 0
    has a cell of its own. The unit is 1 for integers, 10^-decimals for numbers with decimals, and
    twelve digits below the largest magnitude for others. So a range of few integers has a cell for
    each. For integers the last point is high + 1. For numbers it is high, in the last cell; if low
    and high are equal it is a unit more, half a unit for numbers with decimals.
    """
    if column.whole:
        start, stop = int(low), int(high) + 1
        inner = _inner(start, stop, 0)
        return np.array([start, *inner, stop], dtype=np.int64)
    unit = Fraction(10) ** _unit_exponent(column, low, high)
    if low == high:
        width = float(unit) if column.places is None else 0.5 * float(unit)
        return np.array([low, max(low + width, math.nextafter(low, math.inf))], dtype=np.float64)
    least = _DIGITS_BELOW - _DECADES - 1 if column.places is None else 0
    inner = _inner(Fraction(low) / unit, Fraction(high) / unit, least)
    # A quotient of integers is rounded once, as a fraction is, and has no common factor to find.
    points = [point * unit.numerator / unit.denominator for point in inner]
    return np.unique([float(low), *(p for p in points if low < p < high), float(high)])


def declared_points(column: NumberColumn, low: Number, high: Number) -> Points:
    """Return the grid of low .. high, and the cells between it and the declared ends.

    On either side that is one cell, or a cell for 0 with one cell on either side of it.
    """
    points = grid_points(column, low, high)
    whole = column.whole
    first = points[0] if column.min is None else column.min
    last = points[-1] if column.max is None else column.max + whole
    unit = 1 if whole else 10.0 ** _unit_exponent(column, low, high)
    zero = np.array([0, unit], dtype=points.dtype)
    zero = zero[(zero < points[0]) | (zero > points[-1])]
    inner = np.concatenate([points, zero])
    ends = np.array([first, last], dtype=points.dtype)
    return np.unique(np.concatenate([ends, inner[(first < inner) & (inner < last)]]))


def _unit_exponent(column: NumberColumn, low: Number, high: Number) -> int:
    if column.places is not None:
        return -column.places
    top = max(abs(low), abs(high)) or 1.0
    return math.floor(math.log10(top)) + 1 - _DIGITS_BELOW


def _inner(start: Fraction | int, stop: Fraction | int, least: int) -> list[int]:
    """Return round numbers of units strictly between two ends (in units), ascending.

    ``least`` is the exponent of the smallest step of two-digit numbers.
    """
    steps = (digit * 10**exponent for exponent in count() for digit in _DIGITS)
    step = next(step for step in steps if (stop - start) / step <= UNIFORM_CELLS)
    first, last = math.floor(start) + 1, math.ceil(stop) - 1
    if step == 1:
        return list(range(first, last + 1))
    points = set(range(-(-first // step) * step, last + 1, step)) | {0, 1}
    exponent = least
    while 10**exponent < step:
        two_digits = range(1 if exponent == least else 10, 100)
        points.update(sign * digits * 10**exponent for digits in two_digits for sign in (-1, 1))
        exponent += 1
    return sorted(point for point in points if first <= point <= last)


LEAST_SHARE = 0.25
"""Fewest rows of a bin, as a part of an equal share of all rows."""
HEAVY_DEVIATIONS = 3.0
"""Fewest rows of a heavy cell, in standard deviations of the noise."""


def quantile_edges(
    counts: Array,
    prefix_std: float,
    most_bins: int,
    cut: tuple[bool, bool],
    fixed: Sequence[int] = (),
) -> Integers:
    """Return the positions of the ends of the bins among the ends of the cells, ascending.

    The sums of the first cells are made non-negative and monotone (isotonic regression, which
    brings none of them further from the truth than the worst of them was). Heavy cells, with more
    rows than the other bins get, are bins of their own. The others have their edges next to the
    quantiles of the rows in light cells.

    Counts and their sums (``prefix_std``) are noisy. ``cut`` says whether the lower and the upper
    end can be cut off where there are hardly any rows. Positions in ``fixed`` are edges in any
    case, if that leaves two bins for the rows. There are two or more edges in 0 .. cells, at most
    most_bins + 1; the two outermost if there are no more rows than noise.
    """
    sums = np.maximum(nearest_monotone(np.cumsum(counts)), 0.0)
    if sums[-1] <= prefix_std:
        return np.array([0, counts.size])
    fixed = fixed if most_bins - len(fixed) >= 2 else ()
    most_bins -= len(fixed)
    mass = np.diff(sums, prepend=0.0)
    share = float(sums[-1]) / most_bins
    few = min(2.0 * prefix_std, 0.1 * share)  # rows that are cut off an end
    low, high = _ends(mass, few, cut)
    heavy = _heavy_cells(mass, most_bins, HEAVY_DEVIATIONS * prefix_std)
    light = mass.copy()
    light[heavy] = 0.0
    aim = max(LEAST_SHARE * share, prefix_std)
    bins = min(most_bins - 2 * heavy.size, max(1, int(light.sum() / aim)))
    inner = np.concatenate([heavy, heavy + 1, _quantiles(light, bins)])
    return np.unique(np.concatenate([[low, *fixed, high], np.clip(inner, low, high)]))


def _ends(mass: Array, few: float, cut: tuple[bool, bool]) -> tuple[int, int]:
    """Return the positions between which all but few rows lie, or the outermost ones."""
    sums = np.concatenate([[0.0], np.cumsum(mass)])
    low = int(np.searchsorted(sums, few, side="right")) - 1 if cut[0] else 0
    high = int(np.searchsorted(sums, sums[-1] - few)) if cut[1] else mass.size
    return low, high


def _heavy_cells(mass: Array, most_bins: int, least: float) -> Integers:
    """Return the cells with an equal share of what heavier cells leave; each has two edges."""
    heaviest_first = np.argsort(-mass, kind="stable")
    left = float(mass.sum())
    for found, cell in enumerate(heaviest_first.tolist()):
        bins = most_bins - 2 * found
        if bins <= 2 or mass[cell] < max(left / bins, least):
            return heaviest_first[:found]
        left -= float(mass[cell])
    return heaviest_first


def _quantiles(mass: Array, bins: int) -> Integers:
    """Return the ends of cells next to the quantiles that make this number of bins."""
    sums = np.concatenate([[0.0], np.cumsum(mass)])
    targets = sums[-1] * np.arange(1, bins) / bins
    above = np.searchsorted(sums, targets)
    below = np.searchsorted(sums, targets, side="right") - 1
    return np.where(targets - sums[below] < sums[above] - targets, below, above)


# A tree of counts over the cells of a grid is noisy first, then consistent by least squares. A tree
# of branching b and height h has levels 1 .. h, level h being b^h cells. A row is in one node of
# each level, so the squared sensitivity of all counts together is h, and at zCDP ρ every count has
# noise of variance h/(2ρ). With A the matrix of all nodes, least squares estimates a sum p over
# cells with variance p (AᵀA)⁻¹ pᵀ · h/(2ρ). The eigenspaces of AᵀA are the functions constant on
# the blocks of level j with sum zero on those of level j−1, with eigenvalue
# (b^(h−j+1) − 1)/(b − 1), and the constants, with that of j = 1. This gives the variance of every
# prefix in closed form, by which the branching is chosen. (Hay, Rastogi, Miklau, Suciu 2010;
# Qardaji, Yang, Li 2013.)


@dataclass(frozen=True)
class Tree:
    """The counts of all nodes of a tree over cells, as a linear map; public.

    A node has ``branching`` (b) children. The ``height`` h is the number of levels below the root,
    which is not measured. Leaves after the ``size`` cells are empty.
    """

    branching: int
    height: int
    size: int
    largest = 1

    @classmethod
    def best(cls, size: int) -> Self:
        """Return the tree over these cells whose prefixes have the least mean variance.

        A level more than the cells need can pay: it measures all of them together.
        """
        trees = [
            cls(branching, height, size)
            for branching in range(2, 65)
            for least in [next(h for h in range(1, 65) if branching**h >= size)]
            for height in (least, least + 1)
            if branching**height <= 8 * size
        ]
        return min(trees, key=lambda tree: float(tree.prefix_variances().mean()))

    @property
    def leaves(self) -> int:
        """Number of nodes of the last level."""
        return self.branching**self.height

    @property
    def shape(self) -> tuple[int, ...]:
        """The one axis."""
        return (self.size,)

    @property
    def squared_norm(self) -> int:
        """One for each level."""
        return self.height

    def answers(self, table: Integers) -> Integers:
        """Return the counts of all nodes, level by level from the top: shape (nodes, 1)."""
        leaves = np.zeros(self.leaves, dtype=np.int64)
        leaves[: self.size] = table.reshape(-1)
        levels = range(1, self.height + 1)
        nodes = [leaves.reshape(self.branching**level, -1).sum(axis=1) for level in levels]
        return np.concatenate(nodes).reshape(-1, 1)

    def consistent(self, noisy: NDArray[Any]) -> Array:
        """Return the least-squares estimates of the cells from noisy counts of all nodes."""
        b, h = self.branching, self.height
        levels: list[Array] = []
        start = 0
        for level in range(1, h + 1):
            levels.append(noisy[start : start + b**level].astype(np.float64))
            start += b**level
        for level in range(h - 1, 0, -1):  # from what lies below
            size = b ** (h - level + 1)
            own = (size - size // b) / (size - 1)
            below = levels[level].reshape(-1, b).sum(axis=1)
            levels[level - 1] = own * levels[level - 1] + (1 - own) * below
        for level in range(1, h):  # from what lies above
            children = levels[level].reshape(-1, b)
            gap = levels[level - 1] - children.sum(axis=1)
            levels[level] = (children + gap[:, None] / b).ravel()
        return levels[-1][: self.size]

    def prefix_variances(self) -> Array:
        """Return the variances of the estimated sums of the first 1 .. size cells, for ρ = 1/2."""
        b, h = self.branching, self.height
        length = np.arange(1, self.size + 1, dtype=np.float64)
        before = length**2 / b**h
        total = before * (b - 1) / (b**h - 1)
        for level in range(1, h + 1):
            block = float(b ** (h - level))
            full = np.floor(length / block)
            energy = block * (full + (length / block - full) ** 2)
            total += (energy - before) * (b - 1) / (b ** (h - level + 1) - 1)
            before = energy
        return h * total


# A column's part of ρ goes to one histogram of magnitudes if an end is not declared (squared
# sensitivity 1), and to one tree of counts over the grid between the bounds (squared sensitivity
# its height). A row adds one to one cell of the histogram and to one node of each level, or nothing
# if its value is missing, or is outside the found bounds and counts as missing. Grid, tree and
# noise follow from the schema and from bounds already released; the edges follow from the noisy
# counts.

BOUNDS_SHARE = Fraction(1, 4)
"""Part of a column's ρ for the bounds, where an end is not declared."""


def learn_ranges(
    columns: list[NumberColumn],
    numbers: Mapping[str, Numbers],
    mechanisms: Mechanisms,
    costs: Mapping[str, Cost],
) -> dict[str, NumberColumn]:
    """Return columns by name with learnt bins; BudgetExceeded if the ledger has too little."""
    values = {name: PrivateValues(numbers[name], mechanisms.ledger) for name in numbers}
    bounds = {column.name: column.span for column in columns}
    units = {column.name: costs[column.name].rho_units for column in columns}
    magnitudes = {
        c.name: Magnitudes.from_column(c) for c in columns if c.min is None or c.max is None
    }
    measurements = []
    for name, found in magnitudes.items():
        share = math.floor(units[name] * BOUNDS_SHARE)
        units[name] -= share
        counts = values[name].histograms((found.find_cells, len(found.cells)))
        query = LinearQuery(Purpose.BINS, (name,), (Identity(len(found.cells)),))
        measurements.append(Measurement.costing(query, counts, share))
    for each, noisy in zip(measurements, mechanisms.measure(measurements)):
        (name,) = each.query.columns
        bounds[name] = magnitudes[name].bounds(noisy, each.noise_variance)
    grids = [_Grid.from_bounds(column, *bounds[column.name]) for column in columns]
    measurements = [
        Measurement.costing(
            LinearQuery(Purpose.BINS, (grid.column.name,), (grid.tree,)),
            values[grid.column.name].histograms((grid.find_cells, grid.tree.size)),
            units[grid.column.name],
        )
        for grid in grids
    ]
    trees = zip(grids, measurements, mechanisms.measure(measurements))
    return {
        grid.column.name: grid.binned(noisy, each.noise_variance) for grid, each, noisy in trees
    }


@dataclass(frozen=True)
class _Grid:
    """The public cells between the ends of a column, and the tree over them.

    Attributes:
        points: ends of the cells.
        fixed: positions of points that are edges in any case: a found bound that is farther from
            the declared end than from the other bound.
    """

    column: NumberColumn
    points: Numbers
    tree: Tree
    fixed: tuple[int, ...]

    @classmethod
    def from_bounds(cls, column: NumberColumn, low: Number, high: Number) -> Self:
        points = declared_points(column, low, high)
        past = high + column.whole
        far = [low] if low - points[0] > past - low else []
        far += [past] if points[-1] - past > past - low else []
        fixed = tuple(np.searchsorted(points, far).tolist())
        return cls(column, points, Tree.best(points.size - 1), fixed)

    def find_cells(self, values: Numbers) -> Integers:
        """Return the cell of each value; −1 where it counts as missing."""
        first, last = self.points[0], self.points[-1] - int(self.column.whole)
        cells = np.searchsorted(self.points[:-1], np.clip(values, first, last), side="right") - 1
        if self.column.outside == "missing":
            cells[(values < first) | (last < values)] = -1
        return cells

    def binned(self, noisy: Array, noise_variance: Fraction | int) -> NumberColumn:
        column = self.column
        unit = self.tree.prefix_variances().mean() / self.tree.height
        edges = quantile_edges(
            self.tree.consistent(noisy), math.sqrt(unit * noise_variance), column.num_values,
            (column.min is None, column.max is None), self.fixed,
        )  # fmt: skip
        return column.resolved(self.points[edges].tolist())
