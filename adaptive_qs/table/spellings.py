"""Spellings of values in text, and the order of labels, for drafts of schemas."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

from adaptive_qs.table.text import (
    NUMBER,
    PLAIN_TIMES,
    DecimalSign,
    GroupSign,
    Spelling,
    read_moment,
)

# Texts that mean numbers, dates, durations or keys, and are not read as such.

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
"""Formats of dates and times besides ISO 8601 that are recognised, as in strptime."""
_DATED = re.compile(
    r"(\d{1,4}([./-])\d{1,2}\2\d{2,4}|\d{8}|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4}"
    r"|[A-Za-z]{3,9} \d{1,2},? \d{4})( .*)?|\d{4}[-/]\d{2}|\d{1,2}/\d{4}"
)


def formats_like(text: str) -> list[str]:
    """Return the formats, other than ISO 8601, in which a cell is a date or time."""
    if not _DATED.fullmatch(text):
        return []
    ways = (*PLAIN_TIMES, *FORMATS)
    return [way for way in ways if read_moment(text, way, wall_clock=True) is not None]


def swapped(way: str | None) -> str | None:
    """Return the format with day and month exchanged, if both are in use."""
    if way is None or not {"%d/%m", "%m/%d", "%d-%m", "%m-%d"} & {way[:5]}:
        return None
    return way[3:5] + way[2] + way[:2] + way[5:]


def number_spellings(values: Sequence[str]) -> list[Spelling]:
    """Return the forms in which all values are numbers, the simplest for each decimal sign.

    Both signs are returned only if they give different numbers. Internet addresses have no form.
    """
    if all(map(_ADDRESS.fullmatch, values)):
        return []
    found: list[Spelling] = []
    for decimal, groups in _FORMS.items():
        for thousands in groups:
            way = Spelling(decimal, thousands)
            if values and all(way.read(value) is not None for value in values):
                found.append(way)
                break
    if len(found) == 2 and all(found[0].read(v) == found[1].read(v) for v in values):
        return found[:1]
    return found


_FORMS: dict[DecimalSign, tuple[GroupSign | Literal[""], ...]] = {
    ".": (",", " ", "'"),
    ",": ("", ".", " ", "'"),
}


def numbers_spelled(values: Sequence[str]) -> str:
    """Return why values that are all numbers cannot be read as such, and what to do; else ""."""
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
    if not found and len(number_spellings(values)) > 1:
        return (
            "numbers whose commas can mean decimals or thousands: declare the column with "
            '"decimal" or "thousands" ","'
        )
    english = all(map(_GROUPED.fullmatch, commas))
    if not english and any("," in text for text in commas):
        found.add("a decimal comma")
    if commas and (
        english or any(_GROUPED_COMMA.fullmatch(t) or _APART.fullmatch(t) for t in commas)
    ):
        found.add("thousands separators")
    if not found:
        return ""
    remedy = "write them as plain numbers"
    if found == {"a decimal comma"}:
        remedy = "export them with a decimal point,"
    return f"numbers with {' and '.join(sorted(found))}: {remedy} such as 1234.5"


def units_spelled(values: Sequence[str]) -> str:
    """Return that all values are numbers with one unit, and what to do; else ""."""
    found = [_UNIT.fullmatch(value) for value in values]
    if not all(found) or len({unit[1].strip().rstrip("s") for unit in found if unit}) > 1:
        return ""
    return "numbers with a unit: write them without, such as 1234.5"


NO_DURATIONS = "durations, for which there is no type: give them as a number of seconds or hours"


def durations_spelled(values: Sequence[str]) -> str:
    """Return that all values are durations or times of day, and what to do; else ""."""
    clock = [bool(_CLOCK.fullmatch(value)) for value in values]
    if not all(time or _DURATION.fullmatch(value) for time, value in zip(clock, values)):
        return ""
    if not all(clock):
        return NO_DURATIONS
    return (
        "durations or times of day, for which there is no type: give them as a number of hours or "
        "minutes"
    )


def keys_spelled(values: Sequence[str], all_different: bool) -> str:
    """Return why at least two values look like keys of records; else "".

    No two rows share a value if they are ``all_different``.
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
    """Return that nearly all values are numbers or dates, and what to do; else ""."""
    most = 0.9 * len(values)
    if sum(bool(re.fullmatch(NUMBER, value)) for value in values) >= most:
        return "numbers, but for a few cells: correct them, or leave them empty"
    ways = {way for value in values[:: len(values) // 20 + 1] for way in formats_like(value)}
    for way in sorted(ways):
        if sum(read_moment(value, way, wall_clock=True) is not None for value in values) >= most:
            return "dates, but for a few cells: correct them, or leave them empty"
    return ""


# The order of labels that begin by a number: "< 1 year", "18-24", "$20k+", "65 years and over".
#
# All must name the same unit, and the ranges follow one another.

_AMOUNT = r"[$€£]?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)? ?(?:[km](?![a-z]))?(?:st|nd|rd|th)?%?"
_NO_UNIT = "to|and|or|more|over|older|above|under|less|younger|below|up"
_UNIT_WORD = rf"(?!(?:{_NO_UNIT})\b)[a-z]+"
_NAMED_UNIT = rf"(?:[ -]({_UNIT_WORD}(?: {_UNIT_WORD})?))?"
_LABEL = re.compile(
    r"(<=?|>=?|under |below |up to |less than |over |above |more than |at least )?\s*"
    rf"({_AMOUNT}){_NAMED_UNIT}(?:\s*(?:-|–|to|and)\s*({_AMOUNT}){_NAMED_UNIT})?"
    r"\s*(\+|(?:and|or) (?:more|over|older|above|up|under|less|younger|below))?"
    rf"{_NAMED_UNIT}"
)
_PARTS = re.compile(r"(?P<currency>[$€£])?(?P<digits>[0-9.,]+) ?(?P<factor>[km](?![a-z]))?.*")
_SUFFIX = re.compile(r"[0-9] ?([kKmM])\b")
_LESS = ("<", "under", "below", "up to", "less", "younger")
_IRREGULAR = {"children": "child", "people": "person", "men": "man", "women": "woman"}


def in_order_of_numbers(labels: Sequence[str]) -> list[str] | None:
    """Return the labels from the smallest to the largest, or None if that is not clear.

    The letter "m" means a million next to a currency sign, and as "M" in a column where other
    labels have a "k"; else it is a unit. Hours of a clock (am, pm) have no order.
    """
    suffixes = {suffix for label in labels for suffix in _SUFFIX.findall(label)}
    millions = bool(suffixes & {"k", "K"}) and "M" in suffixes and "m" not in suffixes
    ranges = {label: found for label in labels if (found := _range(label, millions))}
    units = {unit for unit, _ in ranges.values()}
    if len(ranges) < len(labels) or len(units) > 1 or units & {"am", "pm"}:
        return None
    ends = {label: found for label, (_, found) in ranges.items()}
    ordered = sorted(labels, key=lambda label: (ends[label], label))
    apart = all(ends[a][1] <= ends[b][1] for a, b in pairwise(ordered))
    return ordered if apart and all(low <= high for low, high in ends.values()) else None


def _range(label: str, millions: bool) -> tuple[str, tuple[float, float]] | None:
    """Return the unit of a label and the ends of its range; None if there is no single unit."""
    found = _LABEL.fullmatch(label.casefold())
    if found is None:
        return None
    before, first, unit, second, after_second, after, last_unit = found.groups(default="")
    amounts = [part for text in (first, second) if text and (part := _PARTS.fullmatch(text))]
    units = {_singular(text) for text in (unit, after_second, last_unit) if text}
    factors = [amount["factor"] or "" for amount in amounts]
    if "m" in factors and not (millions or all(amount["currency"] for amount in amounts)):
        factors = [factor.removesuffix("m") for factor in factors]
        units |= {"m", *filter(None, factors)}
    if len(units) > 1:
        return None
    scale = {"": 1.0, "k": 1e3, "m": 1e6}
    numbers = [float(a["digits"].replace(",", "")) * scale[f] for a, f in zip(amounts, factors)]
    below = before.strip().startswith(_LESS) or after.endswith(_LESS)
    above = not below and bool(before.strip() or after)
    low, high = -math.inf if below else numbers[0], math.inf if above else numbers[-1]
    return "".join(units), (low, high)


def _singular(unit: str) -> str:
    """Return the unit with its last word in the singular."""
    *first, last = unit.split(" ")
    if last in _IRREGULAR:
        last = _IRREGULAR[last]
    elif last.endswith(("sses", "xes", "ches", "shes")):
        last = last.removesuffix("es")
    elif not last.endswith("ss"):
        last = last.removesuffix("s")
    return " ".join([*first, last])


# The order of words: months, weekdays, grades and well-known scales.

_CALENDARS = (
    "january february march april may june july august september october november december",
    "monday tuesday wednesday thursday friday saturday sunday",
)
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
"""Labels from the lowest to the highest; labels of one step are separated by "|"."""

Key = tuple[float, ...]
Order = Callable[[str], Key | None]
"""A function that returns the position of a label, or None if it does not fit."""

_GRADE = re.compile(r"([A-G])(?:([+-])|([0-9]))?")
_MONTH_OF_YEAR = re.compile(r"([A-Za-z]{3,9})\.?[ ,/-]+([0-9]{4})")


def in_natural_order(labels: Sequence[str]) -> list[str] | None:
    """Return the labels from first to last, or None if no order fits all of them.

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


def _of_steps(steps: Sequence[Sequence[str]]) -> Order:
    """Return the order of words, some of which share a step."""
    places: dict[str, Key] = {word: (float(k),) for k, step in enumerate(steps) for word in step}
    return lambda label: places.get(re.sub(r"[_\-.\s]+", " ", label.casefold()).strip())


def _month_of_year(label: str) -> Key | None:
    found = _MONTH_OF_YEAR.fullmatch(label)
    month = _WORDS[0](found[1]) if found else None
    return (float(found[2]), *month) if found and month else None


def _grade(label: str) -> Key | None:
    """Return the position of a letter grade, the best first, with signs or digits."""
    found = _GRADE.fullmatch(label)
    if found is None:
        return None
    letter, sign, digit = found.groups()
    return float(ord(letter)), float({"+": -1, None: 0, "-": 1}[sign]), float(digit or 0)


_SHORT = {"september": ("sept",), "tuesday": ("tues",), "thursday": ("thur", "thurs")}
_STEPS: tuple[Sequence[Sequence[str]], ...] = (
    *([(n, n[:3], *_SHORT.get(n, ())) for n in names.split()] for names in _CALENDARS),
    [(f"q{k}", f"quarter {k}") for k in range(1, 5)],
    *([step.strip().split("|") for step in scale.split(";")] for scale in SCALES),
)
_WORDS = tuple(map(_of_steps, _STEPS))
_LETTERS = _of_steps([(size,) for size in ("xxs", "xs", "s", "m", "l", "xl", "xxl", "xxxl")])
