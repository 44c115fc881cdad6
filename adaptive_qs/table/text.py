"""Cells of text: how numbers, dates and keys are spelled, and what a spreadsheet would run."""

import codecs
import datetime as dt
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Literal, NamedTuple, cast, get_args

from adaptive_qs.arguments import check_choice

# Text that a spreadsheet program would run as a formula: how CSV writes it, and reads it back.
# A program that opens CSV as a sheet runs a cell that begins with =, +, - or @ (also in the wide
# forms of East Asian scripts), after white space and quotation marks. Where a cell begins depends
# on the separator that the program takes, which need not be the comma. So an apostrophe is put
# before each such beginning, at the start of a text and behind every character that could separate
# cells: programs then show the text. Texts that are nothing but numbers stay as they are.

Formulas = Literal["escape-learnt", "escape", "keep"]
"""Texts that get apostrophes in CSV: texts learnt from the rows, declared ones as well, or none."""

COMMA = ","
"""What separates the cells of CSV by default."""
NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
"""A number as cells have it, for regular expressions."""
INTEGER = r"[+-]?0*[0-9]{1,18}(\.0*)?"
INTEGER_WITH_EXPONENT = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?0*[0-9]{1,3}"
"""Patterns of integers without an exponent, and of numbers that an exponent can make integers."""


class Dialect(NamedTuple):
    """The form of CSV: what separates cells (commas if None), and the encoding (UTF-8 if None)."""

    delimiter: str | None = None
    encoding: str | None = None
    located: bool = False  # messages name rows, which count private ones: for the owner alone
    copies: tuple[tuple[str, str], ...] = ()  # names under which columns are read once more


def check_encoding(name: str) -> str:
    """Check that no row in this encoding can change how other rows are read; return its name.

    Raise ValueError if it is unknown, or has shifts or escapes.
    """
    try:
        codecs.getincrementaldecoder(name)
        "".encode(name)
        if re.match(r"iso2022|hz|utf-7|punycode|idna|.*escape", codecs.lookup(name).name):
            raise LookupError
    except LookupError:
        raise ValueError(
            f"encoding {name[:40]!r} is unknown or has shifts: use one such as cp1252 or utf_16"
        ) from None
    return name


def check_formulas(kind: str) -> Formulas:
    """Return the kind of escaping of that name; raise InputError if there is none."""
    return cast(Formulas, check_choice("formulas", kind, get_args(Formulas)))


def escaped(text: str) -> str:
    """Return the text with an apostrophe wherever a cell could begin that a program would run."""
    separators, quotes = ",;|\t\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", "'\"`´‘’‚‛“”„‟′″"
    unseen = "\u115f\u1160\u3164\uffa0"
    parts, done = [], 0
    begin: int | None = 0
    for at, character in enumerate(text):
        if character in separators:
            begin = at + 1
        elif (
            begin is None
            or character in quotes + unseen
            or character.isspace()
            or unicodedata.category(character) in ("Cc", "Cf")  # controls and formatting
        ):
            continue
        else:
            sign = unicodedata.normalize("NFKC", character)[:1] in {*"=+-@"}
            if sign and not _is_harmless(text, at):
                parts += [text[done:begin], "'"]
                done = begin
            begin = None
    return "".join([*parts, text[done:]])


def escapes(texts: Sequence[str]) -> dict[str, str]:
    """Return the escaped form of each text that a program would run.

    No escaped form is itself one of the texts, and no two are equal. So a reader that knows the
    texts can read them back.
    """
    taken, written = set(texts), {}
    for text in texts:
        safe = escaped(text)
        if safe == text:
            continue
        while safe in taken:
            safe = f"'{safe}"
        taken.add(safe)
        written[text] = safe
    return written


def _is_harmless(text: str, at: int) -> bool:
    """Return whether a text is numbers from here to its end, or this single sign."""
    if len(text) - at > 100:
        return False
    numbers = re.compile(rf"{NUMBER}([,;] ?{NUMBER})*")
    return at + 1 == len(text) or numbers.fullmatch(text, at) is not None


# How single cells are spelled: white space, booleans, integers, dates and times.

ASCII_SPACE = " \t\r\n\x0b\x0c"
"""Characters stripped from both ends of every cell and column name before they are read."""

TRUE_WORDS = frozenset({"true", "t", "yes", "y", "1"})
FALSE_WORDS = frozenset({"false", "f", "no", "n", "0"})
"""Cells read as booleans, in any case."""

EPOCH = dt.datetime(1970, 1, 1)
PLAIN_TIMES = {
    "%Y-%m-%d %H:%M": re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d", re.ASCII),
    "%Y-%m-%d %H:%M:%S": re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", re.ASCII),
    "%Y-%m-%dT%H:%M": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d", re.ASCII),
    "%Y-%m-%dT%H:%M:%SZ": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII),
}
"""Formats of times, and patterns of cells that are read faster as ISO 8601."""


def read_integer(text: str) -> int | None:
    """Return the integer that a cell such as "39", "39.0" or "2e+05" holds, or None."""
    if re.fullmatch(INTEGER, text):
        return int(text.partition(".")[0])
    if re.fullmatch(INTEGER_WITH_EXPONENT, text) is None:
        return None
    number = Decimal(text)
    if (number and number.adjusted() >= 18) or number != number.to_integral_value():
        return None
    return int(number)


def with_exponents(texts: Sequence[str]) -> list[str]:
    """Return integers with an exponent, as 1e+05, where that is shorter than all their digits.

    If it is shorter for none, the last of those that it makes least longer has an exponent, so that
    programs that guess types see the same type whether or not such a number occurs.
    """
    written = []
    for text in texts:
        digits = text.lstrip("-")
        shortest = re.sub(r"(?<=^.)(?=.)", ".", digits.rstrip("0") or "0")
        written.append(f"{'-' * (text != digits)}{shortest}e+{len(digits) - 1:02}")
    longer = [len(other) - len(text) for text, other in zip(texts, written)]
    last = max(range(len(texts)), key=lambda place: (-longer[place], place), default=0)
    return [
        other if more < 0 or (place == last and longer[last] >= 0) else text
        for place, (text, other, more) in enumerate(zip(texts, written, longer))
    ]


def read_number(text: str) -> float | None:
    """Return the number in a cell, or None."""
    try:
        return float(text)
    except ValueError:
        return None


DecimalSign = Literal[".", ","]
GroupSign = Literal[",", ".", " ", "'"]


@dataclass(frozen=True)
class Spelling:
    """The form of numbers in text: signs of decimals and groups, and what stands around them."""

    decimal: DecimalSign = "."
    thousands: GroupSign | Literal[""] = ""  # a cell may do without the groups
    prefix: str = ""  # every cell has it, behind or before a sign
    suffix: str = ""

    @property
    def plain(self) -> bool:
        """Whether numbers are written as the program writes them by default."""
        return self == Spelling()

    @property
    def fields(self) -> dict[str, str]:
        """The keys of a column of a schema that state it, defaults aside."""
        default = Spelling.__dataclass_fields__
        return {k: getattr(self, k) for k, f in default.items() if getattr(self, k) != f.default}

    @property
    def groups(self) -> str:
        """A regular expression for what separates groups of digits: the sign, and similar ones."""
        return {"": "", ",": ",", ".": r"\.", " ": "[ \u00a0\u202f]", "'": "['’]"}[self.thousands]

    @cached_property
    def pattern(self) -> str:
        """A regular expression for the numbers, for Python and for Arrow."""
        sign = re.escape(self.decimal)
        grouped = f"[1-9][0-9]{{0,2}}(?:{self.groups}[0-9]{{3}})+" if self.groups else "[0-9]+"
        number = f"(?:{grouped}|[0-9]+)(?:{sign}[0-9]*)?|{sign}[0-9]+"
        before = re.escape(self.prefix)
        sign = f"(?:[+-]?{before}|{before}[+-])" if before else "[+-]?"
        exponent = "" if self.suffix else "(?:[eE][+-]?[0-9]+)?"
        return f"{sign}(?:{number}){exponent}{re.escape(self.suffix)}"

    def read(self, text: str) -> str | None:
        """Return a number in Python's form; None if the text is no number in this form."""
        if self.plain:
            return text
        if re.fullmatch(self.pattern, text) is None:
            return None
        text = text.replace(self.prefix, "", 1).removesuffix(self.suffix)
        return re.sub(self.groups or r"(?!)", "", text).replace(self.decimal, ".")

    def write(self, number: str) -> str:
        """Return a number that Python or Arrow wrote in this form."""
        parts = re.fullmatch(r"([+-]?)([0-9]+)(\.?[0-9]*(?:[eE].*)?)", number)
        sign, digits, rest = parts.groups(default="")  # type: ignore[union-attr]
        grouped = f"{int(digits):,}".replace(",", self.thousands)
        return f"{sign}{self.prefix}{grouped}{rest.replace('.', self.decimal)}{self.suffix}"


def to_seconds(moment: dt.date) -> int:
    """Return seconds from 1970-01-01T00:00:00 to a date or a naive or aware datetime (as UTC)."""
    if not isinstance(moment, dt.datetime):
        return (moment.toordinal() - EPOCH.toordinal()) * 86_400
    if moment.tzinfo is not None:
        moment = moment.astimezone(dt.UTC).replace(tzinfo=None)
    return (moment - EPOCH) // dt.timedelta(seconds=1)


def read_moment(text: str, date_format: str | None, wall_clock: bool) -> int | None:
    """Return the seconds since 1970 of a cell, or None if it is no moment.

    The format is as in strptime; ISO 8601 without it. A time zone is dropped with ``wall_clock``,
    and otherwise the moment is converted to UTC.
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
