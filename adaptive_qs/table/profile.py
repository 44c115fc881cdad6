"""What the cells of one column look like, gathered chunk by chunk, and how they are spelled."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from adaptive_qs.table import cells
from adaptive_qs.table.bins import codes_for
from adaptive_qs.table.cells import MixedCells
from adaptive_qs.table.read import Cells
from adaptive_qs.table.text import read_moment, seconds_of

# How text cells are spelled that mean numbers, dates, durations or keys, and are not read as such.
#
# For `propose` only. Every function looks at all values of a column, and finds something only where
# all of them agree.

_SIGNS = "$€£¥₹₽₩₺"
_CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|kr|zł|Kč|Fr\\.?|R\\$"
_SPACE = "[ \u00a0\u202f]"
_MONEY = re.compile(
    rf"(?:[{_SIGNS}]|\b(?:{_CODES}))(?=[0-9.\-+]|{_SPACE}|$)|(?<=[0-9])(?:{_CODES})$"
)
_PERCENT = re.compile(rf"{_SPACE}?%$")
_PLAIN = re.compile(r"[0-9]+(\.[0-9]+)?")
_COMMA = re.compile(r"[0-9]+,[0-9]+")
_GROUPED = re.compile(r"[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]+)?")
_GROUPED_COMMA = re.compile(r"[1-9][0-9]{0,2}(\.[0-9]{3})+(,[0-9]+)?")
_APART = re.compile(rf"[1-9][0-9]{{0,2}}((?:{_SPACE}|['’])[0-9]{{3}})+([.,][0-9]+)?")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_ADDRESS = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){3}")
_UNIT = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)?( ?[a-zµμ°²³/·]{1,10}[A-Z]?| [A-Za-z/]{1,10})")
_DURATION = re.compile(
    r"[+-]?\d+ days?(,? [+-]?\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?)?"
    r"|[+-]?P(?=[0-9T])(\d+([.,]\d+)?[YMWD])*(T(\d+([.,]\d+)?[HMS])+)?"
)
_CLOCK = re.compile(r"[+-]?\d{1,4}:\d{2}(:\d{2}([.,]\d+)?)?( ?[APap]\.?[Mm]\.?)?")
_UUID = re.compile(r"\{?[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\}?|[0-9a-fA-F]{20,}")
_KEY = re.compile(r"([A-Za-z]+[ _\-#/.:]?|#)([0-9]+)")

_DAYS = (
    *("%d.%m.%Y", "%d.%m.%y", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d"),
    *("%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d/%m/%y", "%m/%d/%y"),
    *("%d %b %Y", "%d-%b-%Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%d-%b-%y"),
)
_MONTHS = ("%Y-%m", "%Y/%m", "%m/%Y")
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
FORMATS = (*(day + time for day in _DAYS for time in _TIMES), *_MONTHS)
"""Formats of dates and times, in the letters of strptime, that are recognised beside ISO 8601."""
_DATED = re.compile(
    r"(\d{1,4}([./-])\d{1,2}\2\d{2,4}|\d{8}|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4}"
    r"|[A-Za-z]{3,9} \d{1,2},? \d{4})( .*)?|\d{4}[-/]\d{2}|\d{1,2}/\d{4}"
)

MOSTLY = 0.9
"""The part of the values that must be numbers or dates for the others to be mistakes."""


def formats_like(text: str) -> list[str]:
    """The formats of dates and times, ISO 8601 aside, in which a cell can be read."""
    if not _DATED.fullmatch(text):
        return []
    return [way for way in FORMATS if read_moment(text, way, wall_clock=True) is not None]


def swapped(way: str | None) -> str | None:
    """The format with day and month exchanged, where people write both."""
    if way is None or not {"%d/%m", "%m/%d", "%d-%m", "%m-%d"} & {way[:5]}:
        return None
    return way[3:5] + way[2] + way[:2] + way[5:]


def numbers_spelled(values: Sequence[str]) -> str:
    """What keeps the values, all of them numbers, from being read as such; empty where they are
    none, or where nothing does.

    Returns:
        such as "numbers with a decimal comma", with what to do.
    """
    found: set[str] = set()
    commas: list[str] = []
    for value in values:
        rest = value
        for name, pattern in (("currency signs", _MONEY), ("percent signs", _PERCENT)):
            stripped, count = pattern.subn("", rest)
            rest = stripped.strip()
            found |= {name} if count else set()
        if rest.startswith("(") and rest.endswith(")"):
            found.add("brackets for a minus")
            rest = rest[1:-1]
        rest = _MONEY.sub("", rest.lstrip("+-−")).strip()
        if _PLAIN.fullmatch(rest):
            continue
        kinds = (_COMMA, _GROUPED, _GROUPED_COMMA, _APART)
        if _ADDRESS.fullmatch(rest) or not any(pattern.fullmatch(rest) for pattern in kinds):
            return ""
        commas.append(rest)
    if commas and all(map(_GROUPED.fullmatch, commas)):
        found.add("thousands separators")
    elif commas:
        found |= {"a decimal comma"} if any("," in text for text in commas) else set()
        grouped = any(_GROUPED_COMMA.fullmatch(t) or _APART.fullmatch(t) for t in commas)
        found |= {"thousands separators"} if grouped else set()
    if not found:
        return ""
    mend = "export them with a decimal point" if found == {"a decimal comma"} else "write them as"
    mend += ", such as 1234.5" if found == {"a decimal comma"} else " plain numbers such as 1234.5"
    return f"numbers with {' and '.join(sorted(found))}: {mend}"


def units_spelled(values: Sequence[str]) -> str:
    """That all values are numbers with the same unit, in the singular or plural, and what to do;
    empty where they are not."""
    found = [_UNIT.fullmatch(value) for value in values]
    if not all(found) or len({unit[1].strip().rstrip("s") for unit in found if unit}) > 1:
        return ""
    return "numbers with a unit: write them without, such as 1234.5"


def durations_spelled(values: Sequence[str]) -> str:
    """That all values are durations or times of day, and what to do; empty where they are not."""
    is_clock: Callable[[str], object] = _CLOCK.fullmatch
    if not all(_DURATION.fullmatch(value) or is_clock(value) for value in values):
        return ""
    if not all(map(is_clock, values)):
        return "durations, for which there is no type: give them as a number of seconds or hours"
    return (
        "durations or times of day, for which there is no type: give them as a number of hours or "
        "minutes"
    )


def keys_spelled(values: Sequence[str], all_different: bool) -> str:
    """That the values are keys of records; empty where they do not look like it.

    Args:
        values: distinct, at least two.
        all_different: whether no two rows share one.
    """
    if all(map(_UUID.fullmatch, values)):
        return "an identifier: UUIDs or other long codes"
    if not all_different or len(values) < 10:
        return ""
    keys = [_KEY.fullmatch(value) for value in values]
    if all(keys) and len({key[1] for key in keys if key}) == 1:
        return "an identifier: every value is different"
    return ""


def mostly_spelled(values: Sequence[str]) -> str:
    """That nearly all values are numbers or dates, and what to do about the others; empty where
    they are not."""
    most = MOSTLY * len(values)
    if sum(bool(_NUMBER.fullmatch(value)) for value in values) >= most:
        return "numbers, but for a few cells: correct them, or leave them empty"
    ways = {way for value in values[:: len(values) // 20 + 1] for way in formats_like(value)}
    for way in sorted(ways):
        if sum(read_moment(value, way, wall_clock=True) is not None for value in values) >= most:
            return "dates, but for a few cells: correct them, or leave them empty"
    return ""


# What the cells of one column look like, gathered chunk by chunk.
#
# For `propose` only: a profile is as private as the data.

MARKERS = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None")
INFINITE = tuple(
    f"{sign}{word}"
    for word in ("inf", "Inf", "INF", "infinity", "Infinity", "INFINITY")
    for sign in ("", "-", "+")
)
NUMERIC_MARKERS = (*MARKERS, "N", *INFINITE)
"""Cells that look like missing markers; "N" and infinities only among numbers: beside "Y" it is an
answer."""
MAX_WORDS = 3
"""So many words among many numbers or moments are taken for missing markers."""

_WORD = r"^(#.*|[^0-9]*)$"
"""Cells that are no number, date or time, or the errors of a spreadsheet, such as "#DIV/0!"."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TRUTH = {"true", "false"}
_FIRST, _LAST = seconds_of(dt.datetime.min), seconds_of(dt.datetime.max)
"""Moments that a schema can name, in seconds since 1970."""
_FIRST_FORMATTED = seconds_of(dt.datetime(1000, 1, 1))
"""The first moment whose year is written with the four digits that are read."""
_MAX_DISTINCT = 100_000
_NO_DECIMALS = 99
"""Stands for decimals that cannot be counted."""


@dataclass
class Span:
    """The range of moments, read in one way."""

    days: bool = True
    """Whether none has a time of day by its own clock."""
    ends: NDArray[np.int64] = field(default_factory=lambda: np.array([[2**62, -(2**62)]] * 2))
    """First and last, in seconds since 1970: by their own clock, and in UTC."""

    def take(self, seconds: NDArray[np.int64]) -> None:
        """Widen the range to these moments, at least one, shape (2, moments)."""
        self.days &= not bool((seconds[0] % 86_400).any())
        self.ends[:, 0] = np.minimum(self.ends[:, 0], seconds.min(axis=1))
        self.ends[:, 1] = np.maximum(self.ends[:, 1], seconds.max(axis=1))

    @property
    def first(self) -> int:
        """As a column reads it: whole days by their own clock, anything else in UTC."""
        return int(self.ends[0 if self.days else 1, 0])

    @property
    def last(self) -> int:
        """As a column reads it."""
        return int(self.ends[0 if self.days else 1, 1])


@dataclass
class Profile:
    """Properties shared by all cells seen so far, markers aside."""

    rows: int = 0
    nulls: bool = False
    unsupported: str = ""
    """Why no column type takes cells of this Arrow type; empty where one does."""
    texts: set[str] = field(default_factory=set)
    """Distinct cells as text, markers included, at most about 100,000."""
    marked: set[str] = field(default_factory=set)
    """Those that look like missing markers, all of them."""
    words: set[str] = field(default_factory=set)
    """Cells without a digit, markers aside, at most one more than `MAX_WORDS`."""
    too_many: bool = False
    integers: bool = True
    numbers: bool = True
    """Whether all cells but words are."""
    spans: dict[str | None, Span] | None = None
    """Of all cells but words, by the formats in which all of them are moments; None is ISO 8601."""
    low: float = np.inf
    high: float = -np.inf
    decimals: int = 0
    points: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """Distinct numbers, ascending; beyond about 100,000 neighbours are merged."""
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """Rows with each of the points."""
    filled: int = 0
    """Rows whose cell is no marker."""

    def update(self, values: Cells) -> None:
        """Take in some cells."""
        if isinstance(values, pa.ChunkedArray):
            for part in values.chunks:
                self.update(part)
            return
        self.rows += len(values)
        if isinstance(values, pa.Array):
            self.unsupported = self.unsupported or _unsupported(values.type)
        if self.unsupported:
            return
        mixed = MixedCells.of(values)
        self.nulls |= bool((mixed.indices < 0).any())
        weights = np.bincount(mixed.indices + 1, minlength=1 + sum(map(len, mixed.parts)))[1:]
        ends = np.cumsum([len(part) for part in mixed.parts])[:-1]
        for part, rows in zip(mixed.parts, np.split(weights, ends)):
            self._update_distinct(part, rows)

    def _update_distinct(self, values: pa.Array, weights: NDArray[np.int64]) -> None:
        """Distinct cells of one type, and how many rows have each."""
        distinct = cells.normalise(values)
        if distinct is None:
            self.unsupported = self.unsupported or _unsupported(values.type)
            return
        self.nulls |= distinct.null_count > 0
        texts = cells.as_text(distinct)
        if len(self.texts) < _MAX_DISTINCT:
            self.texts.update(text for text in texts.to_pylist() if text is not None)
        self.too_many |= len(self.texts) >= _MAX_DISTINCT
        marker = cells.is_marker(distinct, NUMERIC_MARKERS, numeric=False)
        self.marked.update(texts.filter(pa.array(marker)).to_pylist())
        filled = ~marker & distinct.is_valid().to_numpy(zero_copy_only=False)
        self.filled += int(weights[filled].sum())
        word = pc.match_substring_regex(texts, _WORD).fill_null(False)
        words = texts.filter(pc.and_(word, pa.array(filled)))
        self.words.update(words[: MAX_WORDS + 1 - len(self.words)].to_pylist())
        kept = filled & ~word.to_numpy(zero_copy_only=False)
        if kept.any():
            distinct = distinct.filter(pa.array(kept))
            self._update_numbers(distinct, weights[kept])
            self._update_moments(distinct)

    def _update_numbers(self, distinct: pa.Array, weights: NDArray[np.int64]) -> None:
        if self.integers:
            self.integers = bool(cells.as_integers(distinct)[1].all())
        if not self.numbers:
            return
        numbers, readable = cells.as_numbers(distinct)
        self.numbers = bool(readable.all())
        if not self.numbers:
            return
        self.low = min(self.low, float(numbers.min()))
        self.high = max(self.high, float(numbers.max()))
        self._merge(numbers, weights)
        if pc.any(pc.match_substring(cells.as_text(distinct), "e-", ignore_case=True)).as_py():
            self.decimals = _NO_DECIMALS
        fractions = pc.extract_regex(cells.as_text(distinct), r"\.(?P<digits>\d+)$")
        lengths = pc.utf8_length(pc.struct_field(fractions, "digits"))
        self.decimals = max(self.decimals, pc.max(lengths).as_py() or 0)

    def _merge(self, numbers: NDArray[np.float64], weights: NDArray[np.int64]) -> None:
        points = np.concatenate([self.points, numbers + 0.0])  # -0.0 becomes 0.0
        self.points, places = np.unique(points, return_inverse=True)
        counts = np.concatenate([self.weights, weights])
        self.weights = np.bincount(places, counts).astype(np.float64)
        while len(self.points) > _MAX_DISTINCT:  # drop every other light point, keep its rows
            light = np.flatnonzero(self.weights <= self.weights.sum() / 1_000)
            low, high = light[: len(light) // 2 * 2].reshape(-1, 2).T
            self.weights[high] += self.weights[low]
            self.points = np.delete(self.points, low)
            self.weights = np.delete(self.weights, low)

    def _update_moments(self, distinct: pa.Array) -> None:
        if self.spans is None:
            first = cells.as_text(distinct)[0].as_py()
            self.spans = {way: Span() for way in (None, *formats_like(first))}
        for way, span in list(self.spans.items()):
            seconds = _moments(distinct, way)
            if seconds is None:
                del self.spans[way]
            else:
                span.take(seconds)

    @property
    def numeric(self) -> bool:
        """Whether the cells are numbers, or so many numbers that the words are none of them."""
        return self.numbers and self.points.size > 0 and self._outweighs_words(self.points.size)

    @property
    def dated(self) -> bool:
        """Whether the cells are moments in some format, with words as in `numeric`."""
        return bool(self.spans) and self._outweighs_words(len(self.texts) - len(self.words))

    def _outweighs_words(self, others: int) -> bool:
        return not self.words or (len(self.words) <= MAX_WORDS and others > codes_for(self.filled))

    @property
    def markers(self) -> tuple[str, ...]:
        """Missing markers among the cells; "" for nulls when there is no other."""
        if not (self.numeric or self.dated):
            found = tuple(marker for marker in MARKERS if marker in self.marked)
        else:
            usual = [marker for marker in NUMERIC_MARKERS if marker in self.marked]
            plain = [marker for marker in usual if marker not in INFINITE]
            infinite = [marker for marker in usual if marker in INFINITE]
            found = (*plain, *sorted(self.words), *infinite)
        return found or (("",) if self.nulls else ())

    @property
    def infinite(self) -> bool:
        """Whether some cells stand for infinity."""
        return not self.marked.isdisjoint(INFINITE)

    @property
    def values(self) -> list[str]:
        """Distinct cells that are no markers, sorted."""
        return sorted(self.texts - set(self.markers))

    @property
    def truth(self) -> bool:
        """Whether the cells are true and false."""
        values = self.values
        return bool(values) and {value.lower() for value in values} <= _TRUTH


def _moments(distinct: pa.Array, way: str | None) -> NDArray[np.int64] | None:
    """Seconds since 1970 of cells read in one way, by their own clock and in UTC, shape (2, cells).

    None where that fails for one of them.
    """
    typed = pa.types.is_timestamp(distinct.type)
    if typed and way is not None:
        return None
    if not typed:
        texts = cells.as_text(distinct).to_pylist()
        if way is None and not all(map(_DATE.match, texts)):
            return None
        if way is not None and any(read_moment(text, way, True) is None for text in texts[:20]):
            return None
    first = _FIRST if way is None else _FIRST_FORMATTED
    read = []
    for wall_clock in (True, False):
        seconds, readable = cells.as_seconds(distinct, way, wall_clock)
        if not (readable & (seconds >= first) & (seconds <= _LAST)).all():
            return None
        read.append(seconds)
    return np.stack(read)


def _unsupported(kind: pa.DataType) -> str:
    """Why no column type takes cells of this type, and what to do; empty where one does."""
    if pa.types.is_dictionary(kind):
        return _unsupported(kind.value_type)
    if pa.types.is_duration(kind) or pa.types.is_interval(kind):
        return "durations, for which there is no type: give them as a number of seconds or hours"
    if pa.types.is_time(kind):
        return "times of day, for which there is no type: give them as a number of hours or minutes"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return "lists, for which there is no type: give their elements columns of their own"
    if pa.types.is_nested(kind):
        return "nested records, for which there is no type: give their fields columns of their own"
    if isinstance(kind, pa.BaseExtensionType) or cells.normalise(pa.nulls(0, kind)) is None:
        return f"of the type {kind}, for which there is no column type: convert them to text"
    return ""
