"""Bins for a proposed range: values that many rows share by themselves, the rest by quantiles.

For `propose` only: the bins are as private as the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.binning import NUMERIC_BINS

ATOM_SHARE = 0.02
"""A value of its own bin is shared by at least this share of the rows."""
MAX_ATOMS = 8
_TAILS = (0.001, 0.01, 0.99, 0.999)

Floats = NDArray[np.float64]


def propose_edges(values: Floats, weights: Floats, decimals: int | None) -> tuple[float, ...]:
    """Ends of at most about 32 bins [edge, next edge), the last one closed, that hold all values.

    A value that many rows share, or that lies far beyond all others in several rows, gets a bin
    that decodes to it alone. The other bins hold about equal shares, with finer ones in the tails,
    and end at round numbers.

    Args:
        values: shape (distinct,), finite and ascending.
        weights: shape (distinct,), rows with each value.
        decimals: decimal places of all values, or None for values off any grid.
    """
    atoms = _atoms(values, weights)
    edges = {float(values[i]) for i in atoms} | {_after(float(values[i]), decimals) for i in atoms}
    spare = NUMERIC_BINS - 2 * len(atoms)
    mass = weights.sum() - weights[atoms].sum()
    bounds = [-1, *atoms, len(values)]
    for before, after in pairwise(bounds):
        part = slice(before + 1, after)
        if not values[part].size:
            continue
        bins = max(1, round(spare * weights[part].sum() / mass))
        floor = _after(float(values[before]), decimals) if before >= 0 else -math.inf
        ceiling = float(values[after]) if after < len(values) else math.inf
        inner = _part_edges(values[part], weights[part], bins, decimals, floor, ceiling)
        edges.update(edge for edge in inner if floor <= edge <= ceiling)
    ends = sorted(edges)
    if len(atoms) and atoms[-1] == len(values) - 1 and decimals is not None:
        ends[-1] = ends[-2] + 0.5 * 10.0**-decimals  # closed: keep the next multiple out
    return tuple(ends)


def _atoms(values: Floats, weights: Floats) -> list[int]:
    """Indices of the values that get a bin of their own, ascending."""
    rows = weights.sum()
    heavy = np.flatnonzero(weights >= max(3, ATOM_SHARE * rows))
    chosen = set(heavy[np.argsort(-weights[heavy], kind="stable")][:MAX_ATOMS].tolist())
    if len(values) > 2:
        extent = float(values[-1]) - float(values[0])
        if weights[-1] >= 3 and values[-1] - values[-2] > extent / 2:
            chosen.add(len(values) - 1)
        if weights[0] >= 3 and values[1] - values[0] > extent / 2:
            chosen.add(0)
    return sorted(chosen)


def _after(value: float, decimals: int | None) -> float:
    """The smallest number above the value, on the grid of these decimals if there is one."""
    if decimals is None:
        return math.nextafter(value, math.inf)
    return round(value + 10.0**-decimals, decimals)


def _part_edges(
    values: Floats,
    weights: Floats,
    bins: int,
    decimals: int | None,
    floor: float,
    ceiling: float,
) -> Iterator[float]:
    """Round edges for the values between two atoms, their own ends included where needed."""
    low, high = float(values[0]), float(values[-1])
    cuts = _quantiles(values, weights, bins)
    first = next((cut for cut in cuts if cut > low), high)
    last = next((cut for cut in reversed(cuts) if cut < high), low)
    bottom = _rounded(low, first - low, decimals, math.floor)
    top = _rounded(high, high - last, decimals, math.ceil)
    if top <= bottom:
        top = bottom + 1.0
    if bottom - floor > (high - low) / bins:
        yield bottom
    for before, cut, after in zip([low, *cuts], cuts, [*cuts[1:], high]):
        edge = _rounded(cut, (after - before) / 2, decimals, round)
        if bottom < edge < top:
            yield edge
    if ceiling - top > (high - low) / bins:
        yield top


def _quantiles(values: Floats, weights: Floats, bins: int) -> list[float]:
    """Distinct quantiles that part the rows into bins, with those of the tails, ascending."""
    shares = np.arange(1, bins) / bins
    rows = weights.sum()
    if bins > 4:
        shares = np.union1d(shares, [share for share in _TAILS if min(share, 1 - share) * rows > 5])
    ranks = np.searchsorted(np.cumsum(weights), shares * rows)
    return sorted(set(values[np.minimum(ranks, len(values) - 1)].tolist()))


def _rounded(value: float, spacing: float, decimals: int | None, rounding: object) -> float:
    """The value to two digits, or as many as it takes to stay within the spacing."""
    assert callable(rounding)
    scale = min(abs(value) or math.inf, max(spacing, 1e-300) * 10)
    if rounding is not round:  # an end of the range
        if 0 < abs(value) < spacing * 1e-6:
            return 0.0 if (rounding is math.floor) == (value > 0) else value
        scale = max(spacing, abs(value) * 1e-12, 1e-290)
    exponent = math.floor(math.log10(scale)) - 1
    if decimals is not None:
        exponent = max(exponent, -decimals)
    if value == float(f"{value:.1e}") and (decimals is None or value == round(value, decimals)):
        return value  # two digits already
    unit = 10.0**exponent
    if not unit:
        return 0.0
    near = round(value / unit)
    count = near if abs(value / unit - near) < 1e-9 * max(1.0, abs(near)) else None
    count = rounding(value / unit) if count is None else count
    result = float(f"{count}e{exponent}")
    if (rounding is math.floor and result > value) or (rounding is math.ceil and result < value):
        return value
    return result
