"""One column of a proposed schema, from the profile of its cells.

For `propose` only: the draft is as private as the data.
"""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.binning import bins_for, codes_for, periods_for
from adaptive_qs.data.moments import EPOCH, Granularity, period_of
from adaptive_qs.data.orders import in_natural_order
from adaptive_qs.data.profile import Profile
from adaptive_qs.data.quantiles import propose_edges
from adaptive_qs.data.steps import Grid, grid_of

MAX_CATEGORIES = 1_000
"""Text columns with more distinct values are left out."""
FEW_INTEGERS = 10
"""Up to this many distinct integers, scattered over a wide range, are taken for labels."""
ROWS_PER_LABEL = 5
"""So many rows for each of more distinct integers show that they are labels, too."""
MAX_EXACT = 2**53
"""Integers from here on are taken for identifiers."""
MAX_WITH_DECIMALS = 1e8
"""Numbers below this size are written exactly with up to six decimals."""
Draft = dict[str, Any]


def draft_of(profile: Profile) -> Draft | str:
    """The column without its name, or the reason to leave it out."""
    values = profile.values
    if not values:
        return "empty"
    missing = {"missing": profile.markers} if profile.markers else {}
    if profile.truth:
        return {"type": "boolean", **missing}
    draft: Draft | str
    if profile.integers:
        draft = _integers(profile)
    elif profile.numbers:
        draft = _numbers(profile)
    elif profile.moments:
        draft = _moments(profile)
    elif profile.separated:
        draft = "numbers with thousands separators: write them without"
    elif len(values) >= max(20, 0.95 * profile.filled):
        draft = "an identifier or free text: nearly every value is different"
    elif profile.too_many or len(values) > MAX_CATEGORIES:
        draft = f"free text: more than {MAX_CATEGORIES} values"
    else:
        draft = _labels(values)
    if any("\0" in value for value in values):
        draft = "text with NUL characters: remove them"
    return draft if isinstance(draft, str) else {**draft, **missing}


def _labels(values: list[str]) -> Draft:
    ordered = in_natural_order(values)
    if ordered is None:
        return {"type": "categorical", "values": values}
    return {"type": "categorical", "values": ordered, "ordered": True}


def _integers(profile: Profile) -> Draft | str:
    low, high = int(profile.low), int(profile.high)
    width, distinct, rows = high - low + 1, len(profile.points), profile.filled
    if max(abs(low), abs(high)) >= MAX_EXACT:
        return "an identifier: integers of more than 15 digits"
    different = rows >= 50 and distinct >= 0.99 * rows
    if different and (rows >= 1_000 or width <= 1.2 * rows):
        return "an identifier: nearly every integer is different"
    few = codes_for(rows) if rows >= ROWS_PER_LABEL * distinct else FEW_INTEGERS
    if distinct <= few and width > 5 * distinct:
        values = profile.points.astype(int).tolist()
        return {"type": "categorical", "values": values, "ordered": True}
    if width <= codes_for(rows):
        return {"type": "integer", "min": low, "max": high}
    edges = propose_edges(
        _points(profile), profile.weights, Grid(0), bins_for(rows), codes_for(rows)
    )
    starts = [int(edge) for edge in edges[:-1]]
    last = int(np.floor(edges[-1]))
    return {"type": "integer", "min": starts[0], "max": last, "bin_starts": starts}


def _numbers(profile: Profile) -> Draft | str:
    low, high = profile.low, profile.high
    exact = 0 < profile.decimals <= 6 and max(abs(low), abs(high)) < MAX_WITH_DECIMALS
    grid = Grid(profile.decimals if exact else None)
    if exact and not profile.too_many:  # else some of the numbers are merged with others
        grid = grid_of(_points(profile), profile.decimals)
    most = bins_for(profile.filled), codes_for(profile.filled)
    edges = propose_edges(_points(profile), profile.weights, grid, *most)
    ascending = len(edges) > 1 and all(a < b for a, b in pairwise(edges))
    if not (ascending and -np.inf < edges[0] <= low and high <= edges[-1] < np.inf):
        return "numbers too large to bin: write the column by hand"
    draft: Draft = {"type": "numeric", "edges": edges}
    if grid.decimals is not None:
        draft["decimals"] = grid.decimals
    if grid.multiple > 1:
        draft["step"] = grid.step
    return draft


def _points(profile: Profile) -> NDArray[np.float64]:
    """The points, whose merging may have moved the first."""
    points = profile.points.copy()
    points[0] = profile.low
    return points


def _moments(profile: Profile) -> Draft:
    first, last = (EPOCH + dt.timedelta(seconds=s) for s in profile.span)
    finest: tuple[Granularity, ...] = ("day", "week", "month", "quarter", "year")
    if not profile.days:
        finest = ("hour", *finest)
    most = periods_for(profile.filled)
    for unit in finest:
        if period_of(last, unit) - period_of(first, unit) < most:
            break
    if profile.days:
        bounds = (first.date().isoformat(), last.date().isoformat())
        return {"type": "date", "min": bounds[0], "max": bounds[1], "granularity": unit}
    return {
        "type": "datetime",
        "min": first.isoformat(),
        "max": last.isoformat(),
        "granularity": unit,
    }
