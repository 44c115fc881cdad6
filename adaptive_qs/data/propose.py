"""A first draft of a schema, read off the data: for review by the owner, not private."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.binning import MAX_INTEGERS, NUMERIC_BINS
from adaptive_qs.data.moments import EPOCH, Granularity, period_of
from adaptive_qs.data.profile import Profile
from adaptive_qs.data.quantiles import propose_edges
from adaptive_qs.data.readers import check_separator, open_file
from adaptive_qs.data.redaction import redacted
from adaptive_qs.data.review import TAKEN_FROM_DATA
from adaptive_qs.data.schema import Schema
from adaptive_qs.errors import DataError, SchemaError

MAX_CATEGORIES = 1_000
"""Text columns with more distinct values are left out."""
FEW_INTEGERS = 10
"""Up to this many distinct integers, scattered over a wide range, are taken for labels."""
FEW_NUMBERS = 30
"""Up to this many distinct numbers, each in several rows, are taken for labels."""
ROWS_PER_LABEL = 5
MAX_EXACT = 2**53
"""Integers from here on are taken for identifiers."""
MAX_WITH_DECIMALS = 1e8
"""Numbers below this size are written exactly with up to six decimals."""
MAX_PERIODS = 800
"""Dates and times get the finest period with at most this many codes."""
MAX_HOURS = 1_000
"""The same for times that are all on the hour."""

_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"


@dataclass(frozen=True)
class Proposal:
    """A proposed schema, and why columns of the table are not in it."""

    schema: Schema
    left_out: Mapping[str, str]
    """Reasons by the name of the column."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """One line for every reason, with the columns that it is about."""
        return _grouped(self.left_out)


def propose_schema(path: str | Path) -> Schema:
    """The schema of `propose`, whose description names the columns left out."""
    return propose(path).schema


def propose(path: str | Path) -> Proposal:
    """A schema that fits a CSV or Parquet file, for `schema init`.

    It reveals values and ranges of the data, and says so in its description: replace them by
    public knowledge before use. Columns that look like identifiers or free text are ignored and
    named in the description.

    Raises:
        DataError: the file cannot be read, has no header line, no rows, or no column that can be
            described.
    """
    with open_file(path) as source:
        check_separator(source)
        _check_header(source.label, source.names)
        _check_distinct(source.label, source.names)
        profiles = {name: Profile() for name in source.names}
        for chunk in source.read(source.names):
            for number, (name, values) in enumerate(zip(source.names, chunk.columns), start=1):
                _update(profiles[name], values, f"{path}: column {number}")
    if not any(profile.rows for profile in profiles.values()):
        raise DataError(f"{path}: no rows: give a table with at least one")
    drafts = {n: _draft(profile) if n else "without a name" for n, profile in profiles.items()}
    left_out = {name: draft for name, draft in drafts.items() if isinstance(draft, str)}
    if len(left_out) == len(drafts):
        raise DataError(f"{path}: no column that a schema can describe: write one by hand")
    note = f" Left out: {'; '.join(_grouped(left_out))}." if left_out else ""
    content = {
        "version": 1,
        "description": TAKEN_FROM_DATA + note,
        "columns": [{"name": n, **draft} for n, draft in drafts.items() if isinstance(draft, dict)],
        "ignore": list(left_out),
    }
    return Proposal(_parsed(content, str(path)), left_out)


def _parsed(content: dict[str, Any], label: str) -> Schema:
    """The schema; what may be wrong with it is a cell, and is not quoted."""
    with contextlib.suppress(SchemaError):
        return Schema.parse(content, label)
    raise DataError(f"{label}: a column name or value does not fit a schema: write one by hand")


def _grouped(left_out: Mapping[str, str]) -> tuple[str, ...]:
    names: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        names.setdefault(reason, []).append(repr(name))
    return tuple(f"{', '.join(some)} ({reason})" for reason, some in names.items())


def _check_header(label: str, names: Sequence[str]) -> None:
    """Refuse names that are mostly numbers, unless they count up as those of a wide table do."""
    numbers = [name for name in names if re.fullmatch(_NUMBER, name)]
    if len(numbers) * 2 <= len(names):
        return
    whole = [int(name) for name in numbers if name.isdecimal()]
    counting = len(whole) > 2 and whole == list(range(whole[0], whole[0] + len(numbers)))
    if not counting:
        raise DataError(f"{label}: the first line looks like data: add a header line")


def _check_distinct(label: str, names: Sequence[str]) -> None:
    """Refuse repeated names by number: where the header is missing, they are private cells."""
    seen: dict[str, int] = {}
    for number, name in enumerate(names, start=1):
        if name in seen:
            raise DataError(
                f"{label}: columns {seen[name]} and {number} have the same name: rename or drop "
                "one, or add a header line if there is none"
            )
        seen[name] = number


def _update(profile: Profile, values: Any, where: str) -> None:
    redacted(
        lambda: profile.update(values),
        lambda _: DataError(f"{where} cannot be read: write it as text"),
    )


def _draft(profile: Profile) -> dict[str, Any] | str:
    """The column without its name, or the reason to leave it out."""
    values = profile.values
    if not values:
        return "empty"
    missing = {"missing": profile.markers} if profile.markers else {}
    if profile.truth:
        return {"type": "boolean", **missing}
    draft: dict[str, Any] | str
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
        draft = {"type": "categorical", "values": values}
    if any("\0" in value for value in values):
        draft = "text with NUL characters: remove them"
    return draft if isinstance(draft, str) else {**draft, **missing}


def _integers(profile: Profile) -> dict[str, Any] | str:
    low, high = int(profile.low), int(profile.high)
    width, distinct, rows = high - low + 1, len(profile.points), profile.filled
    if max(abs(low), abs(high)) >= MAX_EXACT:
        return "an identifier: integers of more than 15 digits"
    different = rows >= 50 and distinct >= 0.99 * rows
    if different and (rows >= 1_000 or width <= 1.2 * rows):
        return "an identifier: nearly every integer is different"
    few = FEW_NUMBERS if rows >= ROWS_PER_LABEL * distinct else FEW_INTEGERS
    if distinct <= few and width > 5 * distinct:
        values = profile.points.astype(int).tolist()
        return {"type": "categorical", "values": values, "ordered": True}
    if width <= MAX_INTEGERS:
        return {"type": "integer", "min": low, "max": high}
    edges = propose_edges(_points(profile), profile.weights, 0)
    starts = [int(edge) for edge in edges[:-1]]
    last = int(np.floor(edges[-1]))
    return {"type": "integer", "min": starts[0], "max": last, "bin_starts": starts}


def _numbers(profile: Profile) -> dict[str, Any] | str:
    low, high = profile.low, profile.high
    values, rows = profile.values, profile.filled
    alike = len(values) > len(profile.points)
    if len(values) <= FEW_NUMBERS and rows >= ROWS_PER_LABEL * len(values) and not alike:
        return {"type": "categorical", "values": sorted(values, key=float), "ordered": True}
    step = 10.0**-profile.decimals
    fine = (high - low) / NUMERIC_BINS > 2 * step
    exact = 0 < profile.decimals <= 6 and fine and max(abs(low), abs(high)) < MAX_WITH_DECIMALS
    decimals = profile.decimals if exact else None
    edges = propose_edges(_points(profile), profile.weights, decimals)
    ascending = len(edges) > 1 and all(a < b for a, b in pairwise(edges))
    if not (ascending and edges[0] <= low and high <= edges[-1]):
        return "numbers too large to bin: write the column by hand"
    draft = {"type": "numeric", "edges": edges}
    return draft if decimals is None else {**draft, "decimals": decimals}


def _points(profile: Profile) -> NDArray[np.float64]:
    """The points, whose merging may have moved the first."""
    points = profile.points.copy()
    points[0] = profile.low
    return points


def _moments(profile: Profile) -> dict[str, Any]:
    first, last = (EPOCH + dt.timedelta(seconds=s) for s in (profile.first, profile.last))
    finest: tuple[Granularity, ...] = ("day", "week", "month", "quarter", "year")
    if not profile.days:
        finest = ("hour", *finest)
    for unit in finest:
        most = MAX_HOURS if unit == "hour" and profile.hours else MAX_PERIODS
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
