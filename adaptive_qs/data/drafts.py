"""One column of a proposed schema, from the profile of its cells.

For `propose` only: the draft is as private as the data.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.binning import bins_for, codes_for, periods_for
from adaptive_qs.data.moments import EPOCH, Granularity, period_of, seconds_of
from adaptive_qs.data.orders import in_natural_order
from adaptive_qs.data.profile import Profile, Span
from adaptive_qs.data.quantiles import (
    YEARS,
    propose_edges,
    round_starts,
    without_absurd,
    year_starts,
)
from adaptive_qs.data.spelling import (
    durations_spelled,
    keys_spelled,
    mostly_spelled,
    numbers_spelled,
    swapped,
    units_spelled,
)
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
WIDE_SPAN = 6
"""From so many orders of magnitude on a range is worth a word."""

_OF_RECORDS = re.compile(
    "id|ids|uid|uuid|guid|key|pk|idx|index|nr|no|number|serial|seqn|ssn|row|rownames|record|unnamed"
)
"""Words in the names of columns that tell records apart."""
_WORDS_OF_NAMES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
UNLIKELY = 7
"""Where so many coincidences are expected, none at all has a chance below 1 in 1,000."""
UNIFORM = 1.36
"""The Kolmogorov-Smirnov distance times the root of the rows that 5 % of uniform samples exceed."""
ROWS_OF_KEYS, ROWS_OF_NAMED_KEYS = 100, 10
"""The fewest rows in which integers that are all different, and could be measurements as well, are
taken for identifiers: where they are evenly spread over their range, and by their name."""

CLIPPED = (
    'a few values lie far from all others: "outside": "clip" moves them to the end of the bins'
)
INFINITE = "some cells are infinite: they count as missing"
WORDS = "the few words among the numbers or dates count as missing: are they?"
SPANNING = "the values span many orders of magnitude: a mistake, or several units?"

Content = dict[str, Any]


@dataclass(frozen=True)
class Draft:
    """What is proposed for one column.

    Attributes:
        content: what the schema says about the column, without its name; None to leave it out.
        note: what the owner should know; the reason where the column is left out.
    """

    content: Content | None
    note: str = ""


def draft_of(name: str, profile: Profile) -> Draft:
    """The column of this name."""
    if profile.unsupported:
        return Draft(None, profile.unsupported)
    values = profile.values
    if not values:
        return Draft(None, "empty")
    if any("\0" in value for value in values):
        return Draft(None, "text with NUL characters: remove them")
    draft = _draft(name, profile, values)
    if draft.content is None:
        return draft
    notes = [draft.note] if draft.note else []
    if profile.numeric or profile.dated:
        notes += [INFINITE] if profile.infinite else []
        notes += [WORDS] if profile.words else []
    missing = {"missing": profile.markers} if profile.markers else {}
    return Draft({**draft.content, **missing}, "; ".join(notes))


def _draft(name: str, profile: Profile, values: list[str]) -> Draft:
    if profile.truth:
        return Draft({"type": "boolean"})
    if profile.numeric:
        if _is_compact_date(profile):
            return _moments(profile)
        return _integers(name, profile) if profile.integers else _numbers(profile)
    return _moments(profile) if profile.dated else _texts(profile, values)


def _texts(profile: Profile, values: list[str]) -> Draft:
    """Labels, or why they are none."""
    labels = _labels(values)
    most = codes_for(profile.filled)
    spelled = numbers_spelled(values)
    if not spelled and (spelled := durations_spelled(values)):
        most = periods_for(profile.filled)
    if spelled:
        note = f"taken as categories, but {spelled}"
        return Draft(labels, note) if len(values) <= most else Draft(None, spelled)
    if len(values) > most:
        spelled = units_spelled(values)
        if not spelled and "ordered" not in labels:
            spelled = mostly_spelled(values)
        if spelled:
            return Draft(None, spelled)
    all_different = not profile.too_many and len(values) == profile.filled > 1
    if key := keys_spelled(values, all_different):
        return Draft(None, key)
    if len(values) >= max(20, 0.95 * profile.filled):
        return Draft(None, "an identifier or free text: nearly every value is different")
    if profile.too_many or len(values) > MAX_CATEGORIES:
        return Draft(None, f"free text: more than {MAX_CATEGORIES} values")
    return Draft(labels)


def _labels(values: list[str]) -> Content:
    ordered = in_natural_order(values)
    if ordered is None:
        return {"type": "categorical", "values": values}
    return {"type": "categorical", "values": ordered, "ordered": True}


def _identifier(name: str, profile: Profile) -> str:
    """Why integers are taken for identifiers; empty where they are not.

    Measurements coincide by chance in as many pairs of rows as is expected where they lie that
    densely; identifiers do not. Where they lie too thinly to tell, those of a small table are
    measurements unless their name says otherwise: identifiers are all different and evenly spread.
    """
    points, rows = profile.points, profile.filled
    equal = rows - len(points)
    if profile.too_many and profile.weights.max() > 1:  # merged: how many coincide is not known
        equal = rows
    expected = _coincidences(points)
    if equal <= 0.01 * rows and expected >= UNLIKELY + 3 * equal:
        return f"an identifier: {'every' if not equal else 'nearly every'} integer is different"
    if equal:
        return ""
    words = (word.lower() for word in _WORDS_OF_NAMES.findall(name))
    if rows >= ROWS_OF_NAMED_KEYS and any(map(_OF_RECORDS.fullmatch, words)):
        return "an identifier by its name, and every integer is different"
    if rows >= ROWS_OF_KEYS and _is_uniform(points):
        return "an identifier: every integer is different; declare it by hand if it is a measure"
    return ""


def _coincidences(points: NDArray[np.float64]) -> float:
    """Pairs of rows expected to share a value, had each value been drawn by itself, about as
    densely as these different integers lie."""
    length = max(15, math.isqrt(len(points)))
    pairs = 0.0
    for block in np.array_split(points, max(1, len(points) // length)):
        pairs += len(block) * (len(block) - 1) / 2 / (float(block[-1]) - float(block[0]) + 1)
    return pairs


def _is_uniform(points: NDArray[np.float64]) -> bool:
    """Whether different integers lie evenly between the first and the last."""
    rows = len(points)
    shares = (points - points[0]) / (points[-1] - points[0])
    distance = np.abs(shares - (np.arange(rows) + 0.5) / rows).max()
    return bool(distance * math.sqrt(rows) < UNIFORM)


def _integers(name: str, profile: Profile) -> Draft:
    rows, distinct = profile.filled, len(profile.points)
    few = codes_for(rows) if rows >= ROWS_PER_LABEL * distinct else FEW_INTEGERS
    exact = max(abs(profile.low), abs(profile.high)) < MAX_EXACT
    if exact and distinct <= few and profile.high - profile.low + 1 > 5 * distinct:
        values = profile.points.astype(int).tolist()
        return Draft({"type": "categorical", "values": values, "ordered": True})
    points, weights, clip, note = _trimmed(profile)
    low, high = int(points[0]), int(points[-1])
    if max(abs(low), abs(high)) >= MAX_EXACT:
        return Draft(None, "an identifier: integers of more than 15 digits")
    years = low >= YEARS[0] and high <= YEARS[1]
    if not years and (reason := _identifier(name, profile)):
        return Draft(None, reason)
    if high - low < codes_for(rows):
        return Draft({"type": "integer", "min": low, "max": high, **clip}, note)
    starts = year_starts(points, weights) or round_starts(points, weights, bins_for(rows))
    if starts is None:
        edges = propose_edges(points, weights, Grid(0), bins_for(rows), codes_for(rows))
        starts = [*(int(edge) for edge in edges[:-1]), int(np.floor(edges[-1])) + 1]
        note = note or _spanning(points)
    content: Content = {"type": "integer", "min": starts[0], "max": starts[-1] - 1}
    if len(starts) - 1 < starts[-1] - starts[0]:
        content["bin_starts"] = starts[:-1]
    return Draft({**content, **clip}, note)


def _numbers(profile: Profile) -> Draft:
    points, weights, clip, note = _trimmed(profile)
    low, high = float(points[0]), float(points[-1])
    whole = bool(clip) and profile.decimals == 0 and not (points % 1).any()
    exact = whole or 0 < profile.decimals <= 6
    exact &= max(abs(low), abs(high)) < MAX_WITH_DECIMALS
    grid = Grid(profile.decimals if exact else None)
    if exact and not profile.too_many:  # else some of the numbers are merged with others
        grid = grid_of(points, profile.decimals)
    most = bins_for(profile.filled), codes_for(profile.filled)
    edges = propose_edges(points, weights, grid, *most)
    ascending = len(edges) > 1 and all(a < b for a, b in pairwise(edges))
    if not (ascending and -np.inf < edges[0] <= low and high <= edges[-1] < np.inf):
        return Draft(None, "numbers too large to bin: write the column by hand")
    content: Content = {"type": "numeric", "edges": edges, **clip}
    if grid.decimals is not None:
        content["decimals"] = grid.decimals
    if grid.multiple > 1:
        content["step"] = grid.step
    return Draft(content, note or _spanning(points))


def _trimmed(
    profile: Profile,
) -> tuple[NDArray[np.float64], NDArray[np.float64], Content, str]:
    """The points and weights but for absurd ones, and what to say in the schema and of it."""
    points, weights = profile.points.copy(), profile.weights
    points[0] = profile.low  # merging may have moved the first
    kept = without_absurd(points, weights)
    clipped = kept.stop - kept.start < len(points)
    clip = {"outside": "clip"} if clipped else {}
    return points[kept], weights[kept], clip, CLIPPED if clipped else ""


def _spanning(points: NDArray[np.float64]) -> str:
    """A note where most numbers differ by many orders of magnitude."""
    sizes = np.abs(points[points != 0])
    if len(sizes) < 2:
        return ""
    first, last = np.log10(np.quantile(sizes, (0.05, 0.95)))
    return SPANNING if last - first >= WIDE_SPAN else ""


_COMPACT = "%Y%m%d"


def _is_compact_date(profile: Profile) -> bool:
    """Whether integers are dates such as 20201231."""
    span = (profile.spans or {}).get(_COMPACT)
    if span is None or not profile.integers or len(profile.points) < 5:
        return False
    ends = (seconds_of(dt.date(1800, 1, 1)), seconds_of(dt.date(2200, 1, 1)))
    return ends[0] <= span.first <= span.last < ends[1]


def _moments(profile: Profile) -> Draft:
    spans = profile.spans or {}
    if _is_compact_date(profile):
        return Draft(_periods(profile, _COMPACT, spans[_COMPACT]))
    way, span = next(iter(spans.items()))
    other = swapped(way)
    if other is not None and other in spans:
        return Draft(
            None,
            f"dates of which nobody can tell day and month: declare a {_kind(span)} with the "
            f'"format" {way} or {other}',
        )
    return Draft(_periods(profile, way, span))


def _kind(span: Span) -> str:
    return "date" if span.days else "datetime"


def _periods(profile: Profile, way: str | None, span: Span) -> Content:
    first, last = (EPOCH + dt.timedelta(seconds=s) for s in (span.first, span.last))
    finest: tuple[Granularity, ...] = ("month", "quarter", "year")
    if way is None or "%d" in way:
        finest = ("day", "week", *finest)
    if not span.days:
        finest = ("hour", *finest)
    most = periods_for(profile.filled)
    for unit in finest:
        if period_of(last, unit) - period_of(first, unit) < most:
            break
    ends = (first.date(), last.date()) if span.days else (first, last)
    content = {
        "type": _kind(span),
        "min": ends[0].isoformat(),
        "max": ends[1].isoformat(),
        "granularity": unit,
    }
    return content if way is None else {**content, "format": way}
