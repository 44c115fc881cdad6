"""Spellings of values in text, and the order of labels, for drafts of schemas."""

import datetime as dt
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adaptive_qs.table.bins import clear_excess
from adaptive_qs.table.cells import as_seconds, as_text, normalise
from adaptive_qs.table.text import (
    NUMBER,
    PLAIN_TIMES,
    DecimalSign,
    GroupSign,
    Spelling,
    read_moment,
    to_seconds,
)

# Texts that mean numbers, dates, durations or keys, and are not read as such.

FORMATS = (
    *(
        day + time
        for day in (
            *("%d.%m.%Y", "%d.%m.%y", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d"),
            *("%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d/%m/%y", "%m/%d/%y"),
            *("%d %b %Y", "%d-%b-%Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y"),
            "%d-%b-%y",
        )
        for time in ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
    ),
    *("%Y-%m", "%Y/%m", "%m/%Y", "%y%m%d"),
)
"""Formats of dates and times besides ISO 8601 that are recognised, as in strptime."""


def formats_like(text: str) -> list[str]:
    """Return the formats, other than ISO 8601, in which a cell is a date or time."""
    dated = (
        r"(\d{1,4}([./-])\d{1,2}\2\d{2,4}|\d{8}|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4}"
        r"|[A-Za-z]{3,9} \d{1,2},? \d{4})([ T].*)?|\d{4}[-/]\d{2}|\d{1,2}/\d{4}|\d{6}"
        r"|\d{2}:\d{2}(:\d{2}| [AP]M)?"
    )
    if not re.fullmatch(dated, text):
        return []
    ways = (*PLAIN_TIMES, *FORMATS, "%H:%M", "%H:%M:%S", "%I:%M %p")
    return [way for way in ways if read_moment(text, way, wall_clock=True) is not None]


@dataclass
class Span:
    """The range of moments, read in one format."""

    days: bool = True
    """Whether none has a time of day by its own clock."""
    ends: NDArray[np.int64] = field(default_factory=lambda: np.array([[2**62, -(2**62)]] * 2))
    """First and last, in seconds since 1970: by their own clock, and in UTC."""

    week: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 168)))
    """Rows in each hour of the week from Monday on, by their own clock, and in UTC."""
    marks: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 3_600)))
    """Rows on each day of the month by their own clock, and on each second of an hour in UTC."""

    def take(self, seconds: NDArray[np.int64]) -> None:
        """Widen the range to these moments, at least one, shape (2, moments)."""
        self.days &= not bool((seconds[0] % 86_400).any())
        self.ends[:, 0] = np.minimum(self.ends[:, 0], seconds.min(axis=1))
        self.ends[:, 1] = np.maximum(self.ends[:, 1], seconds.max(axis=1))

    def count(self, seconds: NDArray[np.int64], weights: NDArray[np.int64]) -> None:
        """Add the hours of the week of such moments, each with a number of rows."""
        hours = (seconds // 3_600 - 96) % 168  # 1970-01-05 is a Monday
        for counts, own in zip(self.week, hours):
            counts += np.bincount(own, weights, 168)
        days = (seconds[0] // 86_400).astype("M8[D]")
        own = (days - days.astype("M8[M]")).astype(np.int64), seconds[1] % 3_600
        self.marks += [np.bincount(marks, weights, 3_600) for marks in own]

    @property
    def hours(self) -> NDArray[np.float64]:
        """Rows by weekday and hour, shape (7, 24), as a column reads them."""
        return self.week[0 if self.days else 1].reshape(7, 24)

    def frequent(self, step: int) -> bool:
        """Return whether days of the month, or seconds, clearly have a tenth of the rows too many.

        ``step`` is the number of seconds that the format of the moments can tell apart.
        """
        marks = self.marks[0, :31] if self.days else self.marks[1, ::step]
        return bool(clear_excess(marks) > 0.1 * marks.sum())

    @property
    def limits(self) -> tuple[int, int]:
        """First and last as a column reads them: days by their own clock, others in UTC."""
        first, last = self.ends[0 if self.days else 1].tolist()
        return first, last


def read_moments(distinct: pa.Array, way: str | None) -> NDArray[np.int64] | None:
    """Return seconds since 1970, local and UTC, (2, cells); None unless cells have one format."""
    typed = pa.types.is_timestamp(distinct.type)
    if typed and way is not None:
        return None
    if not typed:
        texts = as_text(distinct).to_pylist()
        if way is None and not all(re.match(r"\d{4}-\d{2}-\d{2}", text) for text in texts):
            return None
        if way is not None and any(read_moment(text, way, True) is None for text in texts[:20]):
            return None
    least = 1 if way is None else 1000  # formats write and read years of four digits
    first, last = to_seconds(dt.datetime(least, 1, 1)), to_seconds(dt.datetime.max)
    read = []
    for wall_clock in (True, False):
        seconds, readable = as_seconds(distinct, way, wall_clock)
        if not (readable & (seconds >= first) & (seconds <= last)).all():
            return None
        read.append(seconds)
    return np.stack(read)


def swapped(way: str | None) -> str | None:
    """Return the format with day and month exchanged, if both are in use."""
    if way is None or not {"%d/%m", "%m/%d", "%d-%m", "%m-%d"} & {way[:5]}:
        return None
    return way[3:5] + way[2] + way[:2] + way[5:]


SPACE = "[ \u00a0\u202f]?"
_CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|kr|zł|Kč|Fr\\.?|R\\$"
CURRENCY = f"(?:[$€£¥₹₽₩₺]|{_CODES})"
UNIT = rf"(?! ?[ap]m\b)(?:{SPACE}(?:%|{CURRENCY}|[a-zµμ°²³/·]{{1,10}}[A-Z]?)| [A-Za-z/]{{1,10}})"


def number_spellings(values: Sequence[str], units: bool = False) -> list[Spelling]:
    """Return the forms in which all values are numbers, the simplest for each decimal sign.

    Both signs are returned only if they give different numbers. Internet addresses have no form.
    With ``units`` all values can have one currency or unit before or behind the number.
    """
    if all(re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3}){3}", value) for value in values):
        return []
    around = re.compile(rf"[+-]?({CURRENCY}{SPACE})?[+-]?[0-9][0-9.,'’ \u00a0\u202f]*?({UNIT})?")
    unit = around.fullmatch(values[0]) if values and units else None
    prefix, suffix = unit.groups(default="") if unit else ("", "")
    forms: dict[DecimalSign, tuple[GroupSign | Literal[""], ...]] = {
        ".": ("", ",", " ", "'"),
        ",": ("", ".", " ", "'"),
    }
    found: list[Spelling] = []
    for decimal, groups in forms.items():
        for thousands in groups:
            way = Spelling(decimal, thousands, prefix, suffix)
            if values and not way.plain and all(way.read(value) is not None for value in values):
                found.append(way)
                break
    if len(found) == 2 and all(found[0].read(v) == found[1].read(v) for v in values):
        return found[:1]
    return found


def numbers_spelled(values: Sequence[str]) -> str:
    """Return why values that are all numbers cannot be read as such, and what to do; else ""."""
    if (ways := number_spellings(values, units=True)) and len(ways) == 1:
        return ""
    if ways:
        return (
            "numbers whose commas can mean decimals or thousands: declare the column with "
            '"decimal" or "thousands" ","'
        )
    digits = r"(?:[0-9]+|[1-9][0-9]{0,2}(?:[.,'’ \u00a0\u202f][0-9]{3})+)(?:[.,][0-9]+)?"
    written = re.compile(
        rf"\(?[+\-−]?{SPACE}(?:{CURRENCY}{SPACE})?[+\-−]?{digits}{SPACE}(?:{CURRENCY}|%)?\)?"
    )
    plain = re.compile(r"[0-9]+(\.[0-9]+)?")
    if all(map(plain.fullmatch, values)) or not all(map(written.fullmatch, values)):
        return ""
    return (
        "numbers with signs of a currency, percent signs, brackets or separators in several forms: "
        "write them in one, such as 1234.5"
    )


NO_DURATIONS = "durations, for which there is no type: give them as a number of seconds or hours"


def durations_spelled(values: Sequence[str]) -> str:
    """Return that all values are durations or times of day, and what to do; else ""."""
    time = re.compile(r"[+-]?\d{1,4}:\d{2}(:\d{2}([.,]\d+)?)?( ?[APap]\.?[Mm]\.?)?")
    duration = re.compile(
        r"[+-]?\d+ days?(,? [+-]?\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?)?"
        r"|[+-]?P(?=[0-9T])(\d+([.,]\d+)?[YMWD])*(T(\d+([.,]\d+)?[HMS])+)?"
    )
    if all(map(time.fullmatch, values)):
        return (
            "durations or times of day, for which there is no type: give them as a number of "
            "hours or minutes"
        )
    return NO_DURATIONS * all(time.fullmatch(v) or duration.fullmatch(v) for v in values)


def keys_spelled(values: Sequence[str], all_different: bool) -> str:
    """Return why values (no two rows share one if ``all_different``) look like keys; else ""."""
    long = r"\{?[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\}?|[0-9a-fA-F]{20,}"
    if all(re.fullmatch(long, value) for value in values):
        return "an identifier: UUIDs or other long codes"
    keys = [re.fullmatch(r"([A-Za-z]+[ _\-#/.:]?|#)[0-9]+", value) for value in values]
    if all_different and len(keys) >= 10 and len({key and key[1] for key in keys} - {None}) == 1:
        return "an identifier: every value is different" * all(keys)
    return ""


def mostly_spelled(values: Sequence[str]) -> str:
    """Return that nearly all values are numbers or dates, and what to do; else ""."""
    most = 0.9 * len(values)
    if sum(bool(re.fullmatch(NUMBER, value)) for value in values) >= most:
        return "numbers, except a few cells: correct or clear these to use the column"
    ways = {way for value in values[:: len(values) // 20 + 1] for way in formats_like(value)}
    for way in ways:
        if sum(read_moment(value, way, wall_clock=True) is not None for value in values) >= most:
            return "dates, except a few cells: correct or clear these to use the column"
    some = values[:: len(values) // 20 + 1]
    iso = (re.match("[0-9]{4}-?[0-9]", v) and read_moment(v, None, True) is not None for v in some)
    if len(some) > 4 and all(found or formats_like(value) for found, value in zip(iso, some)):
        return "dates in several formats: write all of them in one"
    return ""


# Columns that identify records, and cells that no type takes.


def split_name(name: str) -> list[str]:
    """Return the words in the name of a column, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)]


def count_coincidences(points: NDArray[np.float64]) -> float:
    """Return the expected number of pairs of rows with one value, for independent values.

    The values are drawn about as densely as these different integers lie.
    """
    length = max(15, math.isqrt(len(points)))
    pairs = 0.0
    for block in np.array_split(points, max(1, len(points) // length)):
        pairs += len(block) * (len(block) - 1) / 2 / (float(block[-1]) - float(block[0]) + 1)
    return pairs


def is_uniform(points: NDArray[np.float64]) -> bool:
    """Return whether different integers lie evenly between the first and the last."""
    rows = len(points)
    shares = (points - points[0]) / (points[-1] - points[0])
    distance = np.abs(shares - (np.arange(rows) + 0.5) / rows).max()
    return bool(distance * math.sqrt(rows) < 1.36)  # which 5 % of uniform samples exceed


def explain_unsupported(kind: pa.DataType) -> str:
    """Return why no column type takes cells of this type, and what to do; empty if one does."""
    is_a = pa.types
    if is_a.is_dictionary(kind):
        return explain_unsupported(kind.value_type)
    if is_a.is_duration(kind) or is_a.is_interval(kind):
        return NO_DURATIONS
    if is_a.is_time(kind):
        return "times of day, for which there is no type: give them as a number of hours or minutes"
    if is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_fixed_size_list(kind):
        return "lists, for which there is no type: give their elements columns of their own"
    if is_a.is_nested(kind):
        return "nested records, for which there is no type: give their fields columns of their own"
    if isinstance(kind, pa.BaseExtensionType) or normalise(pa.nulls(0, kind)) is None:
        what = "bytes, times of day or others" if is_a.is_binary(kind) else f"of the type {kind}"
        return f"{what}, for which there is no column type: convert them to text"
    return ""


# The order of labels that begin by a number: "< 1 year", "18-24", "$20k+", "65 years and over".
# All must name the same unit, and the ranges follow one another.


def in_order_of_numbers(labels: Sequence[str]) -> list[str] | None:
    """Return labels from smallest to largest; None if unclear, as for hours of a clock (am, pm)."""
    ranges = {label: found for label in labels if (found := _range(label))}
    units = {unit for unit, _ in ranges.values()}
    if len(ranges) < len(labels) or len(units) > 1 or units & {"am", "pm"}:
        return None
    ends = {label: found for label, (_, found) in ranges.items()}
    ordered = sorted(labels, key=lambda label: (ends[label], label))
    apart = all(ends[a][1] <= ends[b][1] for a, b in pairwise(ordered))
    return ordered if apart and all(low <= high for low, high in ends.values()) else None


def _range(label: str) -> tuple[str, tuple[float, float]] | None:
    """Return the unit of a label and the ends of its range; None if there is no single unit."""
    amount = r"[$€£]?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)? ?(?:k(?![a-z]))?(?:st|nd|rd|th)?%?"
    word = r"(?!(?:to|and|or|more|over|older|above|under|less|younger|below|up)\b)[a-z]+"
    unit = rf"(?:[ -]?({word}(?: {word})?))?"
    found = re.fullmatch(
        r"(<=?|>=?|under |below |up to |less than |over |above |more than |at least )?\s*"
        rf"({amount}){unit}(?:\s*(?:-|–|to|and)\s*({amount}){unit})?"
        r"\s*(\+|(?:and|or) (?:more|over|older|above|up|under|less|younger|below))?"
        rf"{unit}",
        label.casefold(),
    )
    if found is None:
        return None
    before, first, unit, second, after_second, after, last_unit = found.groups(default="")
    parts = re.compile(r"[$€£]?(?P<digits>[0-9.,]+) ?(?P<k>k(?![a-z]))?.*")
    amounts = [part for text in (first, second) if text and (part := parts.fullmatch(text))]
    units = {_singular(text) for text in (unit, after_second, last_unit) if text}
    if len(units) > 1:
        return None
    numbers = [float(a["digits"].replace(",", "")) * (1e3 if a["k"] else 1) for a in amounts]
    less = ("<", "under", "below", "up to", "less", "younger")
    below = before.strip().startswith(less) or after.endswith(less)
    above = not below and bool(before.strip() or after)
    low, high = -math.inf if below else numbers[0], math.inf if above else numbers[-1]
    return "".join(units), (low, high)


def _singular(unit: str) -> str:
    """Return the unit with its last word in the singular."""
    *first, last = unit.split(" ")
    irregular = {"children": "child", "people": "person", "men": "man", "women": "woman"}
    if last in irregular:
        last = irregular[last]
    elif last.endswith(("sses", "xes", "ches", "shes")):
        last = last.removesuffix("es")
    elif not last.endswith("ss"):
        last = last.removesuffix("s")
    return " ".join([*first, last])


# The order of words: months, weekdays, grades and well-known scales.

_SCALES = (
    "january|jan; february|feb; march|mar; april|apr; may; june|jun; july|jul; august|aug; "
    "september|sep|sept; october|oct; november|nov; december|dec",
    "monday|mon; tuesday|tue|tues; wednesday|wed; thursday|thu|thur|thurs; friday|fri; "
    "saturday|sat; sunday|sun",
    "q1|quarter 1; q2|quarter 2; q3|quarter 3; q4|quarter 4",
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
"""Labels from the lowest to the highest; labels of one step are separated by "|"."""

Key = tuple[float, ...]
Order = Callable[[str], Key | None]
"""A function that returns the position of a label, or None if it does not fit."""


def in_natural_order(labels: Sequence[str]) -> list[str] | None:
    """Return at least two labels in the order that fits all (weeks begin on Monday), or None."""
    if len(labels) < 2:
        return None
    letters = {label[:1] for label in labels}
    orders: list[Order] = [*_WORDS, _month_of_year]
    signed = any(len(label) > 1 for label in labels)  # A, B and C can be kinds of anything
    if "A" in letters and len(letters) > (2 if signed else 4):
        orders.append(_grade)
    if len(labels) > 2:
        orders.append(_order_words("xxs; xs; s; m; l; xl; xxl; xxxl"))
    for order in orders:
        places = {label: place for label in labels if (place := order(label)) is not None}
        if len(places) == len(labels):
            return sorted(labels, key=lambda label: (places[label], label))
    if ordered := in_order_of_numbers(labels):
        return ordered
    ways = number_spellings(labels, units=True)
    if len(ways) != 1:
        return None
    return sorted(labels, key=lambda label: float(ways[0].read(label) or 0))


def _order_words(scale: str) -> Order:
    """Return the order of the words of a scale."""
    steps = [step.strip().split("|") for step in scale.split(";")]
    places: dict[str, Key] = {word: (float(k),) for k, step in enumerate(steps) for word in step}
    return lambda label: places.get(re.sub(r"[_\-.\s]+", " ", label.casefold()).strip())


def _month_of_year(label: str) -> Key | None:
    found = re.fullmatch(r"([A-Za-z]{3,9})\.?[ ,/-]+([0-9]{4})", label)
    month = _WORDS[0](found[1]) if found else None
    return (float(found[2]), *month) if found and month else None


def _grade(label: str) -> Key | None:
    """Return the position of a letter grade, the best first, with signs or digits."""
    found = re.fullmatch(r"([A-G])(?:([+-])|([0-9]))?", label)
    if found is None:
        return None
    letter, sign, digit = found.groups()
    return float(ord(letter)), float({"+": -1, None: 0, "-": 1}[sign]), float(digit or 0)


_WORDS = tuple(map(_order_words, _SCALES))
