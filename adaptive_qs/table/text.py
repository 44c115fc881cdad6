"""Cells of text: how numbers, dates and keys are spelled, and what a spreadsheet would run."""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Literal, cast, get_args

from adaptive_qs.arguments import check_choice

# Text that a spreadsheet program would run as a formula: how CSV writes it, and reads it back.
#
# A program that opens CSV as a sheet runs a cell that begins with =, +, - or @ (also in the wide
# forms of East Asian scripts), after white space and quotation marks. Where a cell begins depends
# on the separator that the program takes, which need not be the comma. So an apostrophe is put
# before each such beginning, at the start of a text and behind every character that could separate
# cells: programs then show the text. Texts that are nothing but numbers stay as they are.

Formulas = Literal["escape-learnt", "escape", "keep"]
"""Texts that get apostrophes in CSV: those learnt from the rows, declared ones as well, or none."""

COMMA = ","
"""What separates the cells of CSV by default."""
MARK = "'"
_SEPARATORS = frozenset(",;|\t\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
_SKIPPED = frozenset("'\"`´‘’‚‛“”„‟′″\u115f\u1160\u3164\uffa0")
"""Besides white space, what can stand before the sign of a formula."""
_UNSHOWN = ("Cc", "Cf")
"""Controls, and what only steers the writing: a program may show none of them."""
_SIGNS = frozenset("=+-@")
NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
"""A number as cells have it, for regular expressions."""
MOST_DIGITS = 18
"""Digits of the largest integers that are read."""
INTEGER = rf"[+-]?0*[0-9]{{1,{MOST_DIGITS}}}(\.0*)?"
INTEGER_WITH_EXPONENT = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?0*[0-9]{1,3}"
"""Integers without an exponent, and numbers that are integers if their exponent makes them so."""
_NUMBERS = re.compile(rf"{NUMBER}([,;] ?{NUMBER})*")
_LONGEST_NUMBERS = 100


def check_formulas(kind: str) -> Formulas:
    """Return the kind of escaping of that name.

    Raises:
        InputError: there is none.
    """
    return cast(Formulas, check_choice("formulas", kind, get_args(Formulas)))


def escaped(text: str) -> str:
    """Return the text with an apostrophe wherever a cell could begin that a program would run."""
    parts, done = [], 0
    begin: int | None = 0
    for at, character in enumerate(text):
        if character in _SEPARATORS:
            begin = at + 1
        elif (
            begin is None
            or character in _SKIPPED
            or character.isspace()
            or unicodedata.category(character) in _UNSHOWN
        ):
            continue
        else:
            sign = unicodedata.normalize("NFKC", character)[:1] in _SIGNS
            if sign and not _is_harmless(text, at):
                parts += [text[done:begin], MARK]
                done = begin
            begin = None
    return "".join([*parts, text[done:]])


def escapes(texts: Sequence[str]) -> dict[str, str]:
    """Return what is written in place of each text that a program would run.

    What is written is itself none of the texts, and no two are written alike. So a reader that
    knows the texts can read them back.
    """
    taken, written = set(texts), {}
    for text in texts:
        safe = escaped(text)
        if safe == text:
            continue
        while safe in taken:
            safe = MARK + safe
        taken.add(safe)
        written[text] = safe
    return written


def _is_harmless(text: str, at: int) -> bool:
    """Whether a text is numbers from here to its end, or this single sign."""
    if len(text) - at > _LONGEST_NUMBERS:
        return False
    return at + 1 == len(text) or _NUMBERS.fullmatch(text, at) is not None


# How single cells are spelled: white space, booleans, integers, dates and times.

ASCII_SPACE = " \t\r\n\x0b\x0c"
"""Characters stripped from both ends of every cell and column name before they are read."""

TRUE_WORDS = frozenset({"true", "t", "yes", "y", "1"})
FALSE_WORDS = frozenset({"false", "f", "no", "n", "0"})
"""Cells read as booleans, in any case."""

EPOCH = dt.datetime(1970, 1, 1)
_MINUTE = r"\d{4}-\d\d-\d\d \d\d:\d\d"
PLAIN_TIMES = {
    "%Y-%m-%d %H:%M": re.compile(_MINUTE, re.ASCII),
    "%Y-%m-%d %H:%M:%S": re.compile(rf"{_MINUTE}:\d\d", re.ASCII),
}
"""Formats of times with a blank, and their cells, which are ISO 8601, too, and faster read so."""


def read_integer(text: str) -> int | None:
    """Return the integer that a cell such as "39", "39.0" or "2e+05" holds, or None."""
    if re.fullmatch(INTEGER, text):
        return int(text.partition(".")[0])
    if re.fullmatch(INTEGER_WITH_EXPONENT, text) is None:
        return None
    number = Decimal(text)
    if (number and number.adjusted() >= MOST_DIGITS) or number != number.to_integral_value():
        return None
    return int(number)


def read_number(text: str) -> float | None:
    """Return the number in a cell, or None."""
    try:
        return float(text)
    except ValueError:
        return None


DecimalSign = Literal[".", ","]
GroupSign = Literal[",", ".", " ", "'"]
_GROUP_SIGNS = {"": "", ",": ",", ".": r"\.", " ": "[ \u00a0\u202f]", "'": "['’]"}
"""What may part groups of digits, as regular expressions: the sign, and what looks alike."""


@dataclass(frozen=True)
class Spelling:
    """How numbers are written in text: each cell is read so, or is no number.

    Attributes:
        decimal: the sign before the decimals.
        thousands: what parts groups of three digits where a cell has them; "" where none may.
    """

    decimal: DecimalSign = "."
    thousands: GroupSign | Literal[""] = ""

    @property
    def plain(self) -> bool:
        """Whether numbers are written as the program writes them by default."""
        return self == Spelling()

    @property
    def fields(self) -> dict[str, str]:
        """What a column of a schema says of it, defaults aside."""
        decimal = {} if self.decimal == "." else {"decimal": self.decimal}
        return decimal | ({"thousands": self.thousands} if self.thousands else {})

    @property
    def groups(self) -> str:
        """A regular expression for what parts groups of digits."""
        return _GROUP_SIGNS[self.thousands]

    @cached_property
    def pattern(self) -> str:
        """A regular expression for the numbers, for Python and for Arrow."""
        sign = re.escape(self.decimal)
        grouped = f"[1-9][0-9]{{0,2}}(?:{self.groups}[0-9]{{3}})+" if self.groups else "[0-9]+"
        number = f"(?:{grouped}|[0-9]+)(?:{sign}[0-9]*)?|{sign}[0-9]+"
        return f"[+-]?(?:{number})(?:[eE][+-]?[0-9]+)?"

    def read(self, text: str) -> str | None:
        """Return a number as Python reads it; None where the text is none that is written so."""
        if self.plain:
            return text
        if re.fullmatch(self.pattern, text) is None:
            return None
        return re.sub(self.groups or r"(?!)", "", text).replace(self.decimal, ".")

    def write(self, number: str) -> str:
        """Return a number that Python or Arrow wrote, in this form."""
        sign, digits, rest = _PARTS_OF_NUMBER.fullmatch(number).groups(default="")  # type: ignore[union-attr]
        grouped = f"{int(digits):,}".replace(",", self.thousands)
        return f"{sign}{grouped}{rest.replace('.', self.decimal)}"


_PARTS_OF_NUMBER = re.compile(r"([+-]?)([0-9]+)(\.?[0-9]*(?:[eE].*)?)")


def to_seconds(moment: dt.date) -> int:
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
        plain = date_format and PLAIN_TIMES.get(date_format)
        if date_format is None or (plain and plain.fullmatch(text)):
            moment = dt.datetime.fromisoformat(text)
        else:
            moment = dt.datetime.strptime(text, date_format)
        return to_seconds(moment.replace(tzinfo=None) if wall_clock else moment)
    except (ValueError, OverflowError, re.error):  # a format may name a directive twice
        return None
