"""Bins of proposed schemas: a bin for each value that many rows share, the rest by quantiles.

Everything except the limits is for `propose` only, and as private as the data. ``values`` are the
distinct numbers of a column, finite and ascending, and ``weights`` the rows with each: shape
(distinct,).
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray


def round_cut(value: float, spacing: float, decimals: int | None) -> float:
    """Return a cut between bins to two digits, or as many as it takes to stay within the spacing.

    ``spacing`` is how far it can move, ``decimals`` the places of all values, None off any grid.
    """
    if value == float(f"{value:.1e}") and (decimals is None or value == round(value, decimals)):
        return value  # two digits already
    scale = min(abs(value) or sys.float_info.max, max(spacing, abs(value) * 1e-15, 1e-290) * 10)
    exponent = math.floor(math.log10(scale)) - 1
    return _multiple(value, 1, exponent if decimals is None else max(exponent, -decimals), round)


def round_end(value: float, spacing: float, decimals: int | None, upwards: bool) -> float:
    """Return the smallest or, upwards, the largest value, moved outwards by at most half its bin.

    A power of ten stays (1 can mean "at least one"), a number nearer to 0 than half its bin becomes
    0, and others move to a multiple of 1, 2 or 5 times a power of ten. Arguments as for
    :func:`round_cut`.
    """
    if value and f"{abs(value):.15e}".startswith("1.000000000000000"):
        return value
    if (value < 0 if upwards else value > 0) and abs(value) <= spacing / 2:
        return 0.0
    # An end moves by less than a quarter of its bin.
    most = max(min(spacing, sys.float_info.max) / 4, abs(value) * 1e-15, 1e-290)
    exponent = math.floor(math.log10(most))
    factor = max(f for f in (1, 2, 5) if f == 1 or f * 10.0**exponent <= most)
    if decimals is not None and exponent < -decimals:
        factor, exponent = 1, -decimals
    rounded = _multiple(value, factor, exponent, math.ceil if upwards else math.floor)
    return (max if upwards else min)(rounded, value)


def _multiple(value: float, factor: int, exponent: int, rounding: Callable[[float], int]) -> float:
    """Round the value to a multiple of factor · 10^exponent."""
    unit = factor * 10.0**exponent
    if not unit:
        return 0.0
    near = round(value / unit)
    close = abs(value / unit - near) < 1e-9 * max(1.0, abs(near))
    return float(f"{factor * (near if close else rounding(value / unit))}e{exponent}")


Floats = NDArray[np.float64]


def quantile_cuts(values: Floats, weights: Floats, bins: int) -> list[float]:
    """Return distinct quantiles, ascending, that divide the rows into at most ``bins`` bins.

    At most a quarter of them go into long tails, the others hold about equal shares.
    """
    rows = weights.sum()
    running = np.cumsum(weights)

    def at(shares: Sequence[float]) -> list[float]:
        ranks = np.searchsorted(running, np.asarray(shares) * rows)
        return sorted(set(values[np.minimum(ranks, len(values) - 1)].tolist()))

    def is_long(upper: bool) -> bool:
        """Return whether an end bin is over three times as wide as the next."""
        cuts = at([k / bins for k in range(1, bins)])
        if len(cuts) < 2:
            return False
        if upper:
            return float(values[-1]) - cuts[-1] > 3 * (cuts[-1] - cuts[-2])
        return cuts[0] - float(values[0]) > 3 * (cuts[1] - cuts[0])

    # The noise on 50 rows, so far out, would move the mean by more than a bin of them improves it.
    filled = (share for share in (0.99, 0.01, 0.999, 0.001) if min(share, 1 - share) * rows > 50)
    tails = [share for share in filled if is_long(share > 0.5)][: bins // 4]
    return at([*(k / (bins - len(tails)) for k in range(1, bins - len(tails))), *tails])


# The grid on which the numbers of a column lie: multiples of 0.01, of 0.05, of 0.5.


@dataclass(frozen=True)
class Grid:
    """Multiples of a step, or all doubles."""

    decimals: int | None  # decimal places of all numbers, or None for all doubles
    multiple: int = 1  # the step in units of 10^-decimals

    @property
    def step(self) -> float:
        """The smallest distance of two numbers."""
        return 0.0 if self.decimals is None else self.multiple / 10**self.decimals

    def after(self, value: float) -> float:
        """Return the smallest number above the value."""
        if self.decimals is None:
            return math.nextafter(value, math.inf)
        return self._round(value, ROUND_FLOOR, 1)

    def from_on(self, value: float) -> float:
        """Return the smallest number that is no less than the value."""
        return self._round(value, ROUND_CEILING, 0)

    def _round(self, value: float, rounding: str, add: int) -> float:
        """Round the value to the grid, and add a number of steps."""
        if self.decimals is None:
            return value
        units = Decimal(repr(float(value))).scaleb(self.decimals)
        steps = int((units / self.multiple).to_integral_value(rounding)) + add
        return float(steps * self.multiple / 10**self.decimals)


def find_grid(values: NDArray[np.float64], decimals: int) -> Grid:
    """Return the widest grid for all values with a usual step, such as 0.05, 0.125 or 0.2.

    The distinct values (n,) have ``decimals`` places and are below 2^53 in units of the last.
    """
    units = np.rint(values * 10**decimals).astype(np.int64)
    common = int(np.gcd.reduce(units))
    if len(values) < 2 or common < 2:
        return Grid(decimals)
    digits = len(str(common))
    usual = (m * 10**k for k in range(digits) for m in (1, 2, 5, 25, 125))
    multiple = max(step for step in usual if common % step == 0)
    while decimals and multiple % 10 == 0:
        multiple, decimals = multiple // 10, decimals - 1
    return Grid(decimals, multiple)


def bins_for(rows: int) -> int:
    """Return the most bins to propose for numbers of ``rows`` rows: √rows, 8 to 64.

    A bin has √rows rows, which stand out of noise of as many. Finer bins than noise allows cost
    little, since counts are smoothed along the order and pairs are measured over groups of codes;
    coarse ones hide how columns depend on each other. Triples of 64 bins fit into memory.
    """
    return max(8, min(64, round(rows**0.5)))


def codes_for(rows: int) -> int:
    """Return how many labels a column may have to be proposed: 3 · rows^¼, from 12 to 48.

    A histogram over two columns is nearest to the truth with a number of codes per column that
    grows as the fourth root of the rows (Scott 1992, Multivariate Density Estimation, section 3.4).
    """
    return max(8, min(32, round(2 * rows**0.25))) * 3 // 2


def periods_for(rows: int) -> int:
    """Return the most days, weeks, months or the like to propose for ``rows`` dates or times.

    Granularities differ by about a factor of four, so twice `bins_for` gives about as many codes as
    columns of numbers have.
    """
    return max(24, 2 * bins_for(rows))


def hours_for(rows: int) -> int:
    """Return the most hours to propose: with 150 rows each, a day keeps its course."""
    return max(periods_for(rows), min(1_000, rows // 150))


ROUNDING = 0.25
"""Part of a bin by which its ends are rounded at most; further, counts would not be smooth."""
PEAK = 3
"""A value is a peak if it has this many times the rows of either neighbour."""
CROWDED = 2
"""Values have bins of their own while no other bin has more than this many times the average."""
MOST_BINS = 256
"""Largest number of bins, frequent values and empty bins between them included."""
HEAPS = 50
"""Number of frequent values that a proposed schema requests."""
YEARS = (1500, 2100)
"""Range of integers that can be years."""


@dataclass(frozen=True)
class _Part:
    """Distinct values between two that have bins of their own, or beyond the outermost."""

    values: Floats
    weights: Floats
    floor: float  # end of the bin before, infinite if there is none
    ceiling: float  # start of the bin after, infinite if there is none
    narrow: float  # a gap next to the values is wide from this many times their width on

    @property
    def mass(self) -> float:
        """Number of rows."""
        return float(self.weights.sum())

    @property
    def gaps(self) -> tuple[bool, bool]:
        """Whether an empty bin is needed before and after the values."""
        low, high = float(self.values[0]), float(self.values[-1])
        least = (high - low) * self.narrow
        before = math.isfinite(self.floor) and low - self.floor > least
        after = math.isfinite(self.ceiling) and self.ceiling - high > least
        return before, after

    @property
    def needed(self) -> int:
        if self.values.size:
            return 1 + sum(self.gaps)
        return int(-math.inf < self.floor < self.ceiling < math.inf)

    def crowd(self, bins: int) -> float:
        """Return the rows for each of these bins that are not empty; 0 for a single value."""
        return self.mass / (bins - sum(self.gaps)) if self.values.size > 1 else 0.0


def propose_edges(
    values: Floats, weights: Floats, grid: Grid, bins: int, codes: int
) -> tuple[float, ...]:
    """Return ends of bins [edge, next edge), the last one closed, that hold all values.

    A value gets a bin of its own if it fills one on average, is a peak, or lies far beyond all
    others in several rows; so does every value if they are at most ``codes``. The other bins hold
    about equal shares, with finer ones in long tails, and end at round numbers. ``bins`` is at
    least 1.
    """
    atoms = list(range(len(values)))
    parts = _between(values, weights, atoms, grid, bins)
    bins_of_few = len(atoms) + sum(part.needed for part in parts)
    if bins_of_few > codes or weights.sum() < 5 * len(values):  # they are not few
        atoms, parts = _parted(values, weights, grid, bins)
    edges = {float(values[i]) for i in atoms} | {grid.after(float(values[i])) for i in atoms}
    for part, count in zip(parts, _divided(parts, bins - len(atoms))):
        if part.values.size:
            edges.update(_part_edges(part, count - sum(part.gaps), grid))
    ends = sorted(edges)
    if grid.decimals is not None and ends[-2:] == [values[-1], grid.after(float(values[-1]))]:
        ends[-1] = ends[-2] + 0.5 * 10.0**-grid.decimals  # closed: keep the next multiple out
    return tuple(ends)


def without_absurd(values: Floats, weights: Floats) -> slice:
    """Return the values without the first and last ones that lie absurdly far from all others.

    Their distance to the median is over 100 times the range of the others. At most two rows at
    either end can be mistakes; more can be a code.
    """
    kept = slice(0, len(values))
    if len(values) < 3 or weights.sum() < 20:
        return kept
    median = float(values[np.searchsorted(np.cumsum(weights), weights.sum() / 2)])
    above = int(np.searchsorted(np.cumsum(weights[::-1]), 2, side="right"))
    below = int(np.searchsorted(np.cumsum(weights), 2, side="right"))
    rest = values[below : len(values) - above]
    if len(rest) < 2:
        return kept
    far = 100 * (float(rest[-1]) - float(rest[0]))
    near = np.flatnonzero(np.abs(values / 2 - median / 2) <= far / 2)  # halves do not overflow
    return slice(int(near[0]), int(near[-1]) + 1)


def round_starts(values: Floats, weights: Floats, bins: int) -> list[int] | None:
    """Return first values and the end of bins of one round width, for evenly spread integers.

    The first and the last bin can have another width. No value deserves a bin of its own, and no
    bin is crowded. The result is None if other bins are better.
    """
    low, high = int(values[0]), int(values[-1])
    steps = (factor * 10**k for k in range(19) for factor in (1, 2, 5))
    step = next(step for step in steps if high // step - low // step < bins)
    if _atoms(values, weights, bins):
        return None
    bottom = int(round_end(low, step, 0, upwards=False))
    top = int(round_end(high, step, 0, upwards=True))
    first = (bottom // step + 1) * step
    starts = [bottom, *range(first if 4 * (first - bottom) >= step else first + step, top, step)]
    held = np.bincount(np.searchsorted(starts, values, side="right") - 1, weights)
    if len(starts) > bins or held.max() > CROWDED * weights.sum() / bins:
        return None
    return [*starts, top + 1]


def common_step(values: Floats, weights: Floats) -> int:
    """Return the largest usual number of which nearly all integers of many rows are multiples."""
    least = 0.995 * weights.sum()
    steps = sorted(m * 10**k for k in range(9) for m in (1, 2, 5))
    found = 1
    for step in steps:
        held = weights[values % step == 0].sum() >= least
        found = step if held and found < step <= values[-1] - values[0] else found
    return found if len(values) > 10 else 1


def clear_excess(counts: Floats) -> float:
    """Return how many rows clearly frequent cells have beyond the mean along the last axis.

    They have half again as many rows as the mean, and five standard deviations of chance more.
    """
    even = counts.mean(axis=-1, keepdims=True)
    often = counts > np.maximum(1.5 * even, even + 5 * np.sqrt(np.maximum(even, 1.0)))
    return float((counts - even)[often].sum())


def private_heaps(
    values: Floats, weights: Floats, edges: Sequence[float], grid: Grid
) -> dict[str, Any]:
    """Return the keys by which the frequent values of a column are learnt; none without them.

    They are worth it if a tenth of the rows of bins with several values are on peaks, or on clearly
    frequent last digits. ``edges`` are of the bins, ascending.
    """
    bins = np.searchsorted(np.asarray(edges[:-1]), values, side="right")
    several = np.bincount(bins)[bins] > 1
    least = max(3, 0.001 * weights.sum())
    peaks = several & (weights >= least) & (weights >= PEAK * _max_neighbours(weights))
    digits = (np.rint(values[several] / grid.step) % 100).astype(np.int64)
    tens = np.bincount(digits, weights[several], 100).reshape(10, 10).astype(np.float64)
    rows = max(weights[peaks].sum(), clear_excess(tens))
    enough = rows >= max(0.1 * weights[several].sum(), 0.02 * weights.sum(), 1.0)
    return {"private_heaps": HEAPS} if enough else {}


def with_frequent(
    values: Floats, weights: Floats, edges: Sequence[float], grid: Grid, least: float = 0.0
) -> list[float]:
    """Return the edges with bins of their own for frequent values inside bins.

    Such a value has `PEAK` times the rows of an average other point of its bin, and a quarter of
    the √rows of a bin; half of them where there are more bins with rows than `bins_for` proposes,
    which are √rows at most. All have more than the ``least`` number of rows, and more than chance
    gives. The most frequent ones go first. All bins are `MOST_BINS` at most.
    """
    share, ends = weights.sum() ** 0.5, np.asarray(edges, dtype=np.float64)
    usual = bins_for(int(weights.sum()))
    owner = np.clip(np.searchsorted(ends, values, side="right") - 1, 0, len(ends) - 2)
    others = np.bincount(owner, weights)[owner] - weights
    points = np.full(len(ends), np.inf)
    if grid.step:  # of the values that occur: limits are round
        points = np.diff(np.clip(ends, values[0], values[-1] + grid.step)) / grid.step
    points = np.rint(points)
    often = (weights >= max(3.0, share / 4)) & (weights > least) & (points[owner] > 1)
    usually = others / np.maximum(points[owner] - 1, 1)
    rare = np.log(100 * len(values))  # Bernstein's bound for Poisson counts: 1 in 100 by chance
    often &= weights >= usually + np.maximum(
        (PEAK - 1) * usually, rare / 3 + np.sqrt(rare**2 / 9 + 2 * rare * usually)
    )
    heaviest = np.flatnonzero(often)[np.argsort(-weights[often], kind="stable")][:MOST_BINS]
    starts = values[heaviest]
    stops = [min(grid.after(value), edges[-1]) for value in starts.tolist()]
    for count in range(heaviest.size, 0, -1):
        found = np.unique([*edges, *starts[:count], *stops[:count]])
        filled = np.diff(np.searchsorted(values, found)) > 0
        filled[-1] |= values[-1] == found[-1]
        needed = filled[1:] | filled[:-1]  # an edge between two empty bins is not
        most = share if weights[heaviest[count - 1]] >= share / 2 else usual
        if filled.sum() <= most and needed.sum() < MOST_BINS:
            return found[np.concatenate([[True], needed, [True]])].tolist()
    return [*edges]


def year_starts(values: Floats, weights: Floats) -> list[int] | None:
    """Return first years of bins of round numbers of years, and their end; None without years."""
    low, high, rows = int(values[0]), int(values[-1]), int(weights.sum())
    if len(values) < 2 or low < YEARS[0] or high > YEARS[1]:
        return None
    if high - low < periods_for(rows):
        return list(range(low, high + 2))
    most = max(24, bins_for(rows))
    step = next(step for step in (5, 10, 20, 50, 100) if high // step - low // step < most)
    starts = range((low // step + 1) * step, high + 1, step)
    return [low // step * step, *starts, high + 1]


def _parted(
    values: Floats, weights: Floats, grid: Grid, bins: int
) -> tuple[list[int], list[_Part]]:
    """Return the values with bins of their own (indices, ascending), and what lies between them."""
    deserving = _atoms(values, weights, bins)
    most = CROWDED * weights.sum() / bins
    while True:
        atoms = sorted(deserving)
        parts = _between(values, weights, atoms, grid, bins)
        spare = bins - len(atoms)
        fits = sum(part.needed for part in parts) <= spare
        counts = _divided(parts, spare)
        if not atoms or (fits and all(p.crowd(n) <= most for p, n in zip(parts, counts))):
            return atoms, parts
        deserving.pop()


def _between(
    values: Floats, weights: Floats, atoms: Sequence[int], grid: Grid, bins: int
) -> list[_Part]:
    return [
        _Part(
            values[before + 1 : after],
            weights[before + 1 : after],
            grid.after(float(values[before])) if before >= 0 else -math.inf,
            float(values[after]) if after < len(values) else math.inf,
            1 / bins,
        )
        for before, after in pairwise([-1, *atoms, len(values)])
    ]


def _atoms(values: Floats, weights: Floats, bins: int) -> list[int]:
    """Return the indices of values that deserve a bin each, by how much they deserve it.

    These are values far beyond all others, values with as many rows as a bin, and peaks; each kind
    by its rows.
    """
    far = []
    if len(values) > 2:
        extent = float(values[-1]) - float(values[0])
        if weights[-1] >= 3 and values[-1] - values[-2] > extent / 2:
            far.append(len(values) - 1)
        if weights[0] >= 3 and values[1] - values[0] > extent / 2:
            far.append(0)
    average = weights.sum() / bins
    full = np.flatnonzero(weights >= max(3, average))
    rest = np.setdiff1d(np.arange(len(values)), [*full, *far])
    others = np.zeros(len(values))
    others[rest] = weights[rest]
    least = np.full(len(weights), max(0.02 * weights.sum(), average / 2))
    least[[*rest[:1], *rest[-1:]]] = 0.005 * weights.sum()  # where codes that end a scale lie
    neighbours = _max_neighbours(others)
    peaks = np.flatnonzero((others >= np.maximum(least, 3)) & (others >= PEAK * neighbours))
    heaviest = (some[np.argsort(-weights[some], kind="stable")].tolist() for some in (full, peaks))
    return [*far, *(i for i in chain(*heaviest) if i not in far)]


def _max_neighbours(weights: Floats) -> Floats:
    """Return the rows with the neighbour of each value that has more of them."""
    return np.maximum(np.append(weights[1:], 0), np.append(0, weights[:-1]))


def _divided(parts: Sequence[_Part], spare: int) -> list[int]:
    """Return the bins for each part: what it needs, and the others in proportion to its rows."""
    counts = [part.needed for part in parts]
    several = [k for k, part in enumerate(parts) if part.values.size > 1]
    while several and sum(counts) < spare:
        counts[max(several, key=lambda k: parts[k].mass / counts[k])] += 1
    return counts


def _part_edges(part: _Part, bins: int, grid: Grid) -> Iterator[float]:
    """Yield round edges for the values of a part, their own ends included if needed."""
    low, high = float(part.values[0]), float(part.values[-1])
    if low == high:
        yield from (low, grid.after(high))
        return
    cuts = quantile_cuts(part.values, part.weights, bins)
    first = next((cut for cut in cuts if cut > low), high)
    last = next((cut for cut in reversed(cuts) if cut < high), low)
    bottom = grid.from_on(round_end(low, first - low, grid.decimals, upwards=False))
    top = grid.from_on(round_end(high, high - last, grid.decimals, upwards=True))
    before, after = part.gaps
    if before or part.floor == -math.inf:
        yield bottom if bottom > part.floor else low
    for back, cut, ahead in zip([low, *cuts], cuts, [*cuts[1:], high]):
        edge = grid.from_on(round_cut(cut, ROUNDING * (ahead / 2 - back / 2), grid.decimals))
        if max(bottom, part.floor) < edge < min(top, part.ceiling):
            yield edge
    if after:
        yield top if high < top < part.ceiling else grid.after(high)
    elif part.ceiling == math.inf:
        yield top
