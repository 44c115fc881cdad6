"""A first draft of a schema, read off the data: for review by the owner, not private."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import DataError, SchemaError
from adaptive_qs.table.bins import (
    YEARS,
    Grid,
    bins_for,
    codes_for,
    grid_of,
    periods_for,
    propose_edges,
    round_starts,
    without_absurd,
    year_starts,
)
from adaptive_qs.table.cells import redacted
from adaptive_qs.table.columns.moment import EPOCH, Granularity, period_of, seconds_of
from adaptive_qs.table.profile import (
    Profile,
    Span,
    durations_spelled,
    keys_spelled,
    mostly_spelled,
    numbers_spelled,
    swapped,
    units_spelled,
)
from adaptive_qs.table.read import Source, check_separator, frame_source, open_file
from adaptive_qs.table.schema import AS_PROPOSED, TAKEN_FROM_DATA, Schema

# The order of labels that begin by a number: "< 1 year", "18-24", "$20k+", "65 years and over".
#
# An order is found only where every label fits, all name the same unit, and the ranges follow one
# another.

_AMOUNT = r"[$€£]?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)? ?(?:[km](?![a-z]))?(?:st|nd|rd|th)?%?"
_NO_UNIT = "to|and|or|more|over|older|above|under|less|younger|below|up"
_WORD = rf"(?!(?:{_NO_UNIT})\b)[a-z]+"
_UNIT = rf"(?:[ -]({_WORD}(?: {_WORD})?))?"
_LABEL = re.compile(
    r"(<=?|>=?|under |below |up to |less than |over |above |more than |at least )?\s*"
    rf"({_AMOUNT}){_UNIT}(?:\s*(?:-|–|to|and)\s*({_AMOUNT}){_UNIT})?"
    r"\s*(\+|(?:and|or) (?:more|over|older|above|up|under|less|younger|below))?"
    rf"{_UNIT}"
)
_PARTS = re.compile(r"(?P<currency>[$€£])?(?P<digits>[0-9.,]+) ?(?P<factor>[km](?![a-z]))?.*")
_SUFFIX = re.compile(r"[0-9] ?([kKmM])\b")
_LESS = ("<", "under", "below", "up to", "less", "younger")
_IRREGULAR = {"children": "child", "people": "person", "men": "man", "women": "woman"}
_OF_A_CLOCK = {"am", "pm"}


@dataclass(frozen=True)
class _Amount:
    number: float
    factor: str
    """"k", "m" or none."""
    currency: bool


@dataclass(frozen=True)
class _Range:
    """What a label covers: one or two amounts, and what is said to lie below or above them."""

    amounts: tuple[_Amount, ...]
    units: frozenset[str]
    below: bool
    above: bool

    def ends(self) -> tuple[float, float]:
        """The smallest and the largest number."""
        scale = {"": 1.0, "k": 1e3, "m": 1e6}
        numbers = [amount.number * scale[amount.factor] for amount in self.amounts]
        return -math.inf if self.below else numbers[0], math.inf if self.above else numbers[-1]


def in_order_of_numbers(labels: Sequence[str]) -> list[str] | None:
    """The labels from the smallest to the largest, or None where that is not clear.

    The letter "m" stands for a million beside a currency sign, and as "M" in a column where other
    labels have a "k"; else it is a unit. Hours of a clock (am, pm) have no order.
    """
    suffixes = {suffix for label in labels for suffix in _SUFFIX.findall(label)}
    millions = bool(suffixes & {"k", "K"}) and "M" in suffixes and "m" not in suffixes
    ranges = {label: found for label in labels if (found := _read(label, millions))}
    if len(ranges) < len(labels) or len({found.units for found in ranges.values()}) > 1:
        return None
    if any(found.units & _OF_A_CLOCK for found in ranges.values()):
        return None
    ends = {label: found.ends() for label, found in ranges.items()}
    ordered = sorted(labels, key=lambda label: (ends[label], label))
    apart = all(ends[a][1] <= ends[b][1] for a, b in pairwise(ordered))
    return ordered if apart and all(low <= high for low, high in ends.values()) else None


def _read(label: str, millions: bool) -> _Range | None:
    """The range of a label; None where it has none, or names several units."""
    found = _LABEL.fullmatch(label.casefold())
    if found is None:
        return None
    before, first, unit, second, after_second, after, last_unit = found.groups(default="")
    amounts = tuple(_amount(text) for text in (first, second) if text)
    units = {_singular(text) for text in (unit, after_second, last_unit) if text}
    if any(a.factor == "m" for a in amounts) and not (millions or all(a.currency for a in amounts)):
        amounts = tuple(replace(a, factor=a.factor.removesuffix("m")) for a in amounts)
        units |= {"m", *(a.factor for a in amounts if a.factor)}
    if len(units) > 1:
        return None
    words = before.strip(), after
    below = words[0].startswith(_LESS) or words[1].endswith(_LESS)
    return _Range(amounts, frozenset(units), below, not below and any(words))


def _amount(text: str) -> _Amount:
    found = _PARTS.fullmatch(text)
    assert found is not None
    number = float(found["digits"].replace(",", ""))
    return _Amount(number, found["factor"] or "", bool(found["currency"]))


def _singular(unit: str) -> str:
    """The unit with its last word in the singular."""
    *first, last = unit.split(" ")
    if last in _IRREGULAR:
        last = _IRREGULAR[last]
    elif last.endswith(("sses", "xes", "ches", "shes")):
        last = last.removesuffix("es")
    elif not last.endswith("ss"):
        last = last.removesuffix("s")
    return " ".join([*first, last])


# Natural orders of labels: months, weekdays, well-known scales, and those of numbers.
#
# An order is found only where every label of a column fits it.

_MONTHS = "january february march april may june july august september october november december"
_DAYS = "monday tuesday wednesday thursday friday saturday sunday"

SCALES = (
    "none; very low|lowest; low; medium|mid|moderate|average|normal; high; very high|highest",
    "tiny|extra small; small; medium|mid; large; extra large|huge",
    "short; medium; long",
    "none; mild; moderate; severe; critical|very severe",
    "very poor|very bad; poor|bad; fair|average; good; very good; excellent",
    "strongly disagree; disagree; somewhat disagree|slightly disagree; "
    "neutral|neither agree nor disagree|undecided; somewhat agree|slightly agree; agree; "
    "strongly agree",
    "very dissatisfied; dissatisfied; neutral|neither satisfied nor dissatisfied; satisfied; "
    "very satisfied",
    "very unlikely; unlikely; neutral; likely; very likely",
    "never; rarely|seldom; sometimes|occasionally; often|usually|frequently; always",
    "none|zero; one; two; three; four; five; six; seven; eight; nine; ten",
    "first; second; third; fourth; fifth",
    "beginner; intermediate; advanced; expert",
)
"""Labels from the lowest to the highest; those of one step are parted by "|"."""
LETTER_SIZES = ("xxs", "xs", "s", "m", "l", "xl", "xxl", "xxxl")

Key = tuple[float, ...]
Order = Callable[[str], Key | None]
"""The place of a label, or None where it does not fit."""

_GRADE = re.compile(r"([A-G])(?:([+-])|([0-9]))?")
_MONTH_OF_YEAR = re.compile(r"([A-Za-z]{3,9})\.?[ ,/-]+([0-9]{4})")


def in_natural_order(labels: Sequence[str]) -> list[str] | None:
    """The labels from first to last, or None where no order fits all of them.

    Weeks begin on Monday. A single label has no order.
    """
    if len(labels) < 2:
        return None
    letters = {label[:1] for label in labels}
    orders: list[Order] = [*_WORDS, _month_of_year]
    if "A" in letters and len(letters) > 2:
        orders.append(_grade)
    if len(labels) > 2:
        orders.append(_LETTERS)
    for order in orders:
        places = {label: place for label in labels if (place := order(label)) is not None}
        if len(places) == len(labels):
            return sorted(labels, key=lambda label: (places[label], label))
    return in_order_of_numbers(labels)


def _folded(label: str) -> str:
    return " ".join(re.sub(r"[_\-.\s]+", " ", label.casefold()).split())


def _of_steps(steps: Sequence[Sequence[str]]) -> Order:
    """The order of words, some of which share a step."""
    places: dict[str, Key] = {word: (float(k),) for k, step in enumerate(steps) for word in step}
    return lambda label: places.get(_folded(label))


def _month_of_year(label: str) -> Key | None:
    found = _MONTH_OF_YEAR.fullmatch(label)
    month = _WORDS[0](found[1]) if found else None
    return None if found is None or month is None else (float(found[2]), *month)


def _grade(label: str) -> Key | None:
    """Letter grades, the best first, with signs or digits."""
    found = _GRADE.fullmatch(label)
    if found is None:
        return None
    letter, sign, digit = found.groups()
    return float(ord(letter)), float({"+": -1, None: 0, "-": 1}[sign]), float(digit or 0)


def _calendar(names: str) -> Order:
    return _of_steps([(name, name[:3], *_SHORT.get(name, ())) for name in names.split()])


_SHORT = {"september": ("sept",), "tuesday": ("tues",), "thursday": ("thur", "thurs")}
_WORDS = (
    _calendar(_MONTHS),
    _calendar(_DAYS),
    _of_steps([(f"q{k}", f"quarter {k}") for k in range(1, 5)]),
    *(_of_steps([step.strip().split("|") for step in scale.split(";")]) for scale in SCALES),
)
_LETTERS = _of_steps([(size,) for size in LETTER_SIZES])


# One column of a proposed schema, from the profile of its cells.
#
# For `propose` only: the draft is as private as the data.

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


_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"


@dataclass(frozen=True)
class Proposal:
    """A proposed schema, and why columns of the table are not in it."""

    schema: Schema
    left_out: Mapping[str, str]
    """Reasons by the name of the column."""
    notes: Mapping[str, str]
    """What the owner should know about columns that are in it, by name."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """One line for every reason, with the columns that it is about."""
        return _grouped(self.left_out)

    @property
    def remarks(self) -> tuple[str, ...]:
        """One line for every note, with the columns that it is about."""
        return _grouped(self.notes)


def propose_schema(table: Any) -> Schema:
    """The schema of `propose`, whose description names the columns left out."""
    return propose(table).schema


def propose(table: Any) -> Proposal:
    """A schema that fits a table, for `schema init`.

    It reveals values and ranges of the data, and says so in its description: replace them by
    public knowledge before use. The description of every column says that it is as proposed, for
    the owner to take out column by column. Columns that look like identifiers or free text are
    ignored and named in the description.

    Args:
        table: the path of a CSV or Parquet file, or a pandas, polars or pyarrow table.

    Raises:
        DataError: the table cannot be read, has no header line, no rows, or no column that can be
            described.
    """
    with _opened(table) as source:
        label = source.label
        check_separator(source)
        _check_header(label, source.names)
        _check_distinct(label, source.names)
        profiles = {name: Profile() for name in source.names}
        for chunk in source.read(source.names):
            for number, (name, values) in enumerate(zip(source.names, chunk.columns), start=1):
                _update(profiles[name], values, f"{label}: column {number}")
    if not any(profile.rows for profile in profiles.values()):
        raise DataError(f"{label}: no rows: give a table with at least one")
    drafts = {name: _drafted(name, profile) for name, profile in profiles.items()}
    left_out = {name: draft.note for name, draft in drafts.items() if draft.content is None}
    notes = {name: draft.note for name, draft in drafts.items() if draft.content and draft.note}
    if len(left_out) == len(drafts):
        raise DataError(
            f"{label}: no column that a schema can describe ({_reasons(left_out)}): write one by "
            "hand"
        )
    note = f" Left out: {'; '.join(_grouped(left_out))}." if left_out else ""
    content = {
        "version": 1,
        "description": TAKEN_FROM_DATA + note,
        "columns": [
            {"name": name, "description": AS_PROPOSED, **draft.content}
            for name, draft in drafts.items()
            if draft.content is not None
        ],
        "ignore": list(left_out),
    }
    return Proposal(_parsed(content, label), left_out, notes)


@contextlib.contextmanager
def _opened(table: Any) -> Iterator[Source]:
    if isinstance(table, str | Path):
        with open_file(table) as source:
            yield source
    else:
        yield frame_source(table)


def _drafted(name: str, profile: Profile) -> Draft:
    return draft_of(name, profile) if name else Draft(None, "without a name")


def _reasons(left_out: Mapping[str, str]) -> str:
    """Why columns are left out, without their names: those may be cells of a table without any."""
    return "; ".join(dict.fromkeys(left_out.values()))


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
