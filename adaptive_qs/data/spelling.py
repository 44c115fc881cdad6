"""How text cells are spelled that mean numbers, dates, durations or keys, and are not read as such.

For `propose` only. Every function looks at all values of a column, and finds something only where
all of them agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from adaptive_qs.data.moments import read_moment

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
