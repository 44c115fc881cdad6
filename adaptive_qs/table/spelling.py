"""How single cells are spelled: white space, booleans, integers, dates and times."""

from __future__ import annotations

import datetime as dt
import re

ASCII_SPACE = " \t\r\n\x0b\x0c"
"""Characters stripped from both ends of every cell and column name before they are read."""

TRUE_WORDS = frozenset({"true", "t", "yes", "y", "1"})
FALSE_WORDS = frozenset({"false", "f", "no", "n", "0"})
"""Cells read as booleans, in any case."""

EPOCH = dt.datetime(1970, 1, 1)


def integer_of(text: str) -> int | None:
    """The integer in a cell such as "39" or "39.0", or None."""
    whole, _, fraction = text.partition(".")
    digits = whole[1:] if whole[:1] in ("+", "-") else whole
    if not (digits.isascii() and digits.isdigit()) or fraction.strip("0"):
        return None
    return int(whole)


def number_of(text: str) -> float | None:
    """The number in a cell, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def seconds_of(moment: dt.date) -> int:
    """Seconds from 1970-01-01T00:00:00 to a date or a naive or aware datetime (as UTC)."""
    if not isinstance(moment, dt.datetime):
        return (moment.toordinal() - EPOCH.toordinal()) * 86_400
    if moment.tzinfo is not None:
        moment = moment.astimezone(dt.UTC).replace(tzinfo=None)
    return (moment - EPOCH) // dt.timedelta(seconds=1)


def read_moment(text: str, date_format: str | None, wall_clock: bool) -> int | None:
    """Seconds since 1970 of a cell in ISO 8601 or in a strptime format, or None.

    Args:
        text: the cell.
        date_format: how it is written, as in strptime; ISO 8601 without it.
        wall_clock: whether to drop its time zone; the moment is brought to UTC otherwise.
    """
    try:
        if date_format is None:
            moment = dt.datetime.fromisoformat(text)
        else:
            moment = dt.datetime.strptime(text, date_format)
        return seconds_of(moment.replace(tzinfo=None) if wall_clock else moment)
    except (ValueError, OverflowError, re.error):  # a format may name a directive twice
        return None
