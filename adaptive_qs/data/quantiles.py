"""Bins for a proposed range: values that many rows share by themselves, the rest by quantiles.

For `propose` only: the bins are as private as the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.binning import LEAST_PERIODS, bins_for, periods_for
from adaptive_qs.data.cuts import quantile_cuts
from adaptive_qs.data.rounding import round_cut, round_end
from adaptive_qs.data.steps import Grid

PEAK = 3
"""A value is a peak where so many times as many rows share it as share either neighbour."""
PEAK_SHARE = 0.02
"""A peak that gets a bin of its own holds at least this share of the rows, and half as many as the
bins hold in the average."""
END_SHARE = 0.005
"""The first and the last value, where codes that end a scale lie, are peaks from this share on.
Values with as many rows as a bin, and far ones, do not count as ends or neighbours of a peak."""
CROWDED = 2
"""Values have bins of their own as long as others hold no more than so many times the average."""
ROWS_PER_VALUE = 5
"""So many rows for each value, and more, show that there are few values."""

ABSURD = 100
"""A value lies absurdly far from the others where its distance to their median is so many times
their whole range."""
FEW_ABSURD = 2
"""So many rows at most at either end are taken for mistakes; more may be a code."""
ENOUGH = 20
"""The fewest rows among which one value can be absurd."""
YEARS = (1500, 2100)
"""Integers in this range are taken for years."""
YEAR_STEPS = (5, 10, 20, 50, 100)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Part:
    """Distinct values between two that have bins of their own, or beyond the outermost.

    Attributes:
        values, weights: may be empty.
        floor: the end of the bin before; minus infinity where there is none.
        ceiling: the start of the bin after; infinity where there is none.
        narrow: the part of the width of the values that makes a gap beside them a wide one.
    """

    values: Floats
    weights: Floats
    floor: float
    ceiling: float
    narrow: float

    @property
    def mass(self) -> float:
        """Rows."""
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
        """The fewest bins."""
        if self.values.size:
            return 1 + sum(self.gaps)
        return int(-math.inf < self.floor < self.ceiling < math.inf)

    def crowd(self, bins: int) -> float:
        """Rows for each of these bins that are not empty; 0 for a single value."""
        return self.mass / (bins - sum(self.gaps)) if self.values.size > 1 else 0.0


def propose_edges(
    values: Floats, weights: Floats, grid: Grid, bins: int, codes: int
) -> tuple[float, ...]:
    """Ends of bins [edge, next edge), the last one closed, that hold all values.

    A value gets a bin that decodes to it alone where it fills one in the average, where it is a
    peak, or where it lies far beyond all others in several rows; so does every value where they are
    few. The other bins hold about equal shares, with finer ones in long tails, and end at round
    numbers.

    Args:
        values: shape (distinct,), finite and ascending.
        weights: shape (distinct,), rows with each value.
        grid: where all values lie.
        bins: the most, at least 1.
        codes: the most where every value has a bin of its own.
    """
    atoms = list(range(len(values)))
    parts = _between(values, weights, atoms, grid, bins)
    bins_of_few = len(atoms) + sum(part.needed for part in parts)
    if bins_of_few > codes or weights.sum() < ROWS_PER_VALUE * len(values):
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
    """The values without the first and last ones that lie absurdly far from all others.

    Args:
        values: shape (distinct,), ascending.
        weights: shape (distinct,), rows with each value.
    """
    kept = slice(0, len(values))
    if len(values) < 3 or weights.sum() < ENOUGH:
        return kept
    median = float(values[np.searchsorted(np.cumsum(weights), weights.sum() / 2)])
    above = int(np.searchsorted(np.cumsum(weights[::-1]), FEW_ABSURD, side="right"))
    below = int(np.searchsorted(np.cumsum(weights), FEW_ABSURD, side="right"))
    rest = values[below : len(values) - above]
    if len(rest) < 2:
        return kept
    far = ABSURD * (float(rest[-1]) - float(rest[0]))
    near = np.flatnonzero(np.abs(values / 2 - median / 2) <= far / 2)  # halves do not overflow
    return slice(int(near[0]), int(near[-1]) + 1)


def round_starts(values: Floats, weights: Floats, bins: int) -> list[int] | None:
    """First values of bins of the same round width, the first and last ones aside, for integers
    that are spread evenly enough: no value deserves a bin of its own, and no bin is crowded.

    Args:
        values: shape (distinct,), whole and ascending, at least two.
        weights: shape (distinct,), rows with each value.
        bins: the most.

    Returns:
        the starts and, as the last entry, the end of the last bin; None where other bins serve
        better.
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


def year_starts(values: Floats, weights: Floats) -> list[int] | None:
    """First values of bins of years, of a round number of years each, for integers that are years
    but for few codes, each of which gets a bin of its own; so does a year with a bin's share of the
    rows that stands out.

    Args:
        values: shape (distinct,), whole and ascending.
        weights: shape (distinct,), rows with each value.

    Returns:
        the starts and, as the last entry, the end of the last bin; None where they are no years.
    """
    rows = weights.sum()
    years = (values >= YEARS[0]) & (values <= YEARS[1])
    others = values[~years]
    if years.sum() < 2 or len(others) > FEW_ABSURD or weights[years].sum() < 0.9 * rows:
        return None
    low, high = int(values[years][0]), int(values[years][-1])
    most = max(LEAST_PERIODS, bins_for(int(rows)))
    if high - low < periods_for(int(rows)):
        step = 1
    else:
        step = next(step for step in YEAR_STEPS if high // step - low // step < most)
    starts = {high + 1, low // step * step, *range((low // step + 1) * step, high + 1, step)}
    own = others.tolist()
    if step > 1:
        beside = np.maximum(np.append(weights[1:], 0), np.append(0, weights[:-1]))
        average = rows / (high // step - low // step + 1)
        stands_out = years & (weights >= max(ENOUGH, average)) & (weights >= PEAK * beside)
        own += values[stands_out].tolist()
    return sorted(starts | {int(value) + after for value in own for after in (0, 1)})


def _parted(
    values: Floats, weights: Floats, grid: Grid, bins: int
) -> tuple[list[int], list[_Part]]:
    """As many values with bins of their own as fit (indices, ascending), and what is between."""
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
    """Indices of the values that deserve a bin of their own, those that deserve it most first."""
    average = weights.sum() / bins
    full = np.flatnonzero(weights >= max(3, average))
    far = _far(values, weights)
    rest = np.setdiff1d(np.arange(len(values)), [*full, *far])
    others = np.zeros(len(values))
    others[rest] = weights[rest]
    beside = np.maximum(np.append(others[1:], 0), np.append(0, others[:-1]))
    least = np.full(len(weights), max(PEAK_SHARE * weights.sum(), average / 2))
    least[[*rest[:1], *rest[-1:]]] = END_SHARE * weights.sum()
    peaks = np.flatnonzero((others >= np.maximum(least, 3)) & (others >= PEAK * beside))
    chosen = [*_heaviest(weights, full), *_heaviest(weights, peaks)]
    return [*far, *(i for i in chosen if i not in far)]


def _far(values: Floats, weights: Floats) -> list[int]:
    """Indices of the last and the first value where they lie far beyond all others."""
    far = []
    if len(values) > 2:
        extent = float(values[-1]) - float(values[0])
        if weights[-1] >= 3 and values[-1] - values[-2] > extent / 2:
            far.append(len(values) - 1)
        if weights[0] >= 3 and values[1] - values[0] > extent / 2:
            far.append(0)
    return far


def _heaviest(weights: Floats, indices: NDArray[np.intp]) -> list[int]:
    """These indices, the largest weight first."""
    ordered: list[int] = indices[np.argsort(-weights[indices], kind="stable")].tolist()
    return ordered


def _divided(parts: Sequence[_Part], spare: int) -> list[int]:
    """Bins for each part: what it needs, and the others in proportion to its rows."""
    counts = [part.needed for part in parts]
    several = [k for k, part in enumerate(parts) if part.values.size > 1]
    while several and sum(counts) < spare:
        counts[max(several, key=lambda k: parts[k].mass / counts[k])] += 1
    return counts


def _part_edges(part: _Part, bins: int, grid: Grid) -> Iterator[float]:
    """Round edges for the values of a part, their own ends included where needed."""
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
        edge = grid.from_on(round_cut(cut, ahead / 2 - back / 2, grid.decimals))
        if max(bottom, part.floor) < edge < min(top, part.ceiling):
            yield edge
    if after:
        yield top if high < top < part.ceiling else grid.after(high)
    elif part.ceiling == math.inf:
        yield top
