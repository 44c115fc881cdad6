"""Conditions on the values of a row: their grammar, and whether they hold, may hold or cannot.

A condition is judged on *values*, each given by the least and the greatest one that it may be.
Missing values make a comparison unknown, by the three-valued logic of Kleene (1938): of a row
without an age, ``age < 15`` and ``not age < 15`` are both unknown; ``age is missing`` never is.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from lark import Lark, Token, Transformer, UnexpectedInput, v_args
from lark.exceptions import VisitError
from numpy.typing import NDArray

from adaptive_qs.arguments import shown
from adaptive_qs.errors import InputError
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.schema import Schema

GRAMMAR = r"""
?condition: both ("or"i both)*                                -> either
?both: single ("and"i single)*                                -> both
?single: "not"i single                                        -> negation
       | "(" condition ")"
       | name COMPARISON constant                             -> comparison
       | name "in"i "(" constant ("," constant)* ")"          -> among
       | name "not"i "in"i "(" constant ("," constant)* ")"   -> not_among
       | name "is"i "missing"i                                -> missing
       | name "is"i "not"i "missing"i                         -> present

constant: WORD | DATE | NUMBER | TEXT
name: WORD | TICKED

COMPARISON: "<=" | ">=" | "!=" | "==" | "=" | "<" | ">"
DATE.3: /\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2})?)?/
NUMBER.2: /-?\d+(\.\d+)?([eE][+-]?\d+)?/
TEXT: /'[^']*'|"[^"]*"/
TICKED: /`[^`]+`/
WORD: /[^\W\d]\w*([.-]\w+)*/
%ignore /\s+/
"""
"""What a condition can say, as Lark reads it; docs/guides/sample.md explains it."""
FORM = 'write such as "sex = F and age >= 65"; quote a value with \' and a column with `'
LONGEST = 2_000
"""Characters of a condition."""
Mask = NDArray[np.bool_]


class Values(NamedTuple):
    """Values of one column; arrays that broadcast.

    Attributes:
        low, high: the least and the greatest value that each may be: numbers as they are, moments
            in seconds since 1970, labels by their places in the list.
        known: whether it has a place among the others: it is neither missing nor unknown.
        named: whether it has a label, as the catch-all has.
        missing: whether there is none.
    """

    low: NDArray[Any]
    high: NDArray[Any]
    known: Mask
    named: Mask
    missing: Mask

    def reshaped(self, shape: tuple[int, ...]) -> Values:
        """The same values along one axis."""
        return Values(*(array.reshape(shape) for array in self))


def values_of(column: ColumnBase, codes: NDArray[np.integer]) -> Values:
    """The values that codes stand for."""
    codes = codes.astype(np.int64)
    missing = codes == (-1 if column.missing_code is None else column.missing_code)
    other = codes == (-1 if column.catch_all_code is None else column.catch_all_code)
    known = (codes < column.num_values) & ~other
    low, high = column.ends(np.where(known, codes, 0))
    if not column.measured:
        low, high = np.where(other, -1 - codes, low), np.where(other, -1 - codes, high)
    return Values(low, high, known, known | (other & ~missing), missing)


Row = Mapping[str, Values]
"""The values of every column that a condition names, by name."""


class Outcome(NamedTuple):
    """What a condition may be: each array says where that is possible."""

    true: Mask
    false: Mask
    unknown: Mask


class Condition:
    """Something that holds in a row, does not, or is not known to."""

    def columns(self) -> tuple[str, ...]:
        """The columns that it names, each once, in its order."""
        return tuple(dict.fromkeys(self.named()))

    def named(self) -> Iterator[str]:
        """Every mention of a column."""
        raise NotImplementedError

    def limits(self) -> Iterator[tuple[str, float]]:
        """Constants that columns are compared with, in the units of ``Values``."""
        yield from ()

    def outcome(self, row: Row) -> Outcome:
        """What it may be."""
        raise NotImplementedError


_TRUE: Mapping[str, Callable[[Values, Any], Any]] = {
    "<": lambda v, limit: v.low < limit,
    "<=": lambda v, limit: v.low <= limit,
    ">": lambda v, limit: v.high > limit,
    ">=": lambda v, limit: v.high >= limit,
    "=": lambda v, limit: (v.low <= limit) & (v.high >= limit),
    "!=": lambda v, limit: (v.low != limit) | (v.high != limit),
}
_CONTRARY = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "!=", "!=": "="}


@dataclass(frozen=True)
class Comparison(Condition):
    """A column compared with a constant, by one of the signs above."""

    name: str
    sign: str
    limit: float

    def named(self) -> Iterator[str]:
        """The column."""
        yield self.name

    def limits(self) -> Iterator[tuple[str, float]]:
        """The constant."""
        yield self.name, self.limit

    def outcome(self, row: Row) -> Outcome:
        """True or false where the value is known; by its label for = and !=."""
        found = row[self.name]
        known = found.named if self.sign in ("=", "!=") else found.known
        true, false = (_TRUE[s](found, self.limit) for s in (self.sign, _CONTRARY[self.sign]))
        return Outcome(known & true, known & false, ~known)


@dataclass(frozen=True)
class Missing(Condition):
    """Whether a column has no value; never unknown."""

    name: str

    def named(self) -> Iterator[str]:
        """The column."""
        yield self.name

    def outcome(self, row: Row) -> Outcome:
        """Whether it has none."""
        missing = row[self.name].missing
        return Outcome(missing, ~missing, np.zeros_like(missing))


@dataclass(frozen=True)
class Not(Condition):
    """The contrary; unknown where that is."""

    part: Condition

    def named(self) -> Iterator[str]:
        """Those of the part."""
        yield from self.part.named()

    def limits(self) -> Iterator[tuple[str, float]]:
        """Those of the part."""
        yield from self.part.limits()

    def outcome(self, row: Row) -> Outcome:
        """True where the part is false."""
        true, false, unknown = self.part.outcome(row)
        return Outcome(false, true, unknown)


@dataclass(frozen=True)
class Either(Condition):
    """True where a part is; false where all are."""

    parts: tuple[Condition, ...]

    def named(self) -> Iterator[str]:
        """Those of all parts."""
        for part in self.parts:
            yield from part.named()

    def limits(self) -> Iterator[tuple[str, float]]:
        """Those of all parts."""
        for part in self.parts:
            yield from part.limits()

    def outcome(self, row: Row) -> Outcome:
        """By Kleene's table, for all that the parts may be."""
        true, false, unknown = self.parts[0].outcome(row)
        for part in self.parts[1:]:
            other = part.outcome(row)
            unknown = (unknown & (other.unknown | other.false)) | (other.unknown & false)
            true, false = true | other.true, false & other.false
        return Outcome(true, false, unknown)


def both(parts: tuple[Condition, ...]) -> Condition:
    """True where all parts are."""
    return Not(Either(tuple(Not(part) for part in parts)))


# From text, for the columns of a schema.


@cache
def _parser() -> Lark:
    return Lark(GRAMMAR, parser="lalr", start="condition", maybe_placeholders=False)


def parse_condition(text: str, schema: Schema) -> Condition:
    """What a condition says of the columns of a schema.

    Raises:
        InputError: it is no condition, names a column or a value that there is not, or compares
            what cannot be compared: one line that begins with it.
    """
    if not isinstance(text, str):
        raise InputError(f"the condition is {shown(text)}: give a text, {FORM}")
    if len(text) > LONGEST:
        raise InputError(f"the condition has more than {LONGEST:,} characters: shorten it")
    try:
        return _Bound(schema).transform(_parser().parse(text))
    except UnexpectedInput as error:
        at = len(text) if error.pos_in_stream is None else error.pos_in_stream
        rest = text[at:].split() if at >= 0 else []
        place = f" from {rest[0]!r} on" if rest else ""
        raise InputError(f"condition {text!r} is no condition{place}: {FORM}") from None
    except VisitError as error:
        raise InputError(f"condition {text!r}: {error.orig_exc}") from None
    except RecursionError:
        raise InputError("the condition has too many parts in each other: make it flat") from None


class _Refused(Exception):
    """What is wrong with a condition, in words that follow it."""


class _Bound(Transformer[Token, Any]):
    """The tree that Lark makes, from its leaves up, with the columns of a schema in it."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self._schema = schema

    @v_args(inline=True)
    def name(self, token: Token) -> ColumnBase:
        name = str(token).strip("`")
        if name not in self._schema.names:
            near = get_close_matches(name, self._schema.names, n=1)
            mend = f"did you mean {near[0]!r}?" if near else "check the spelling"
            raise _Refused(f"column {name!r} is not in the schema: {mend}")
        return self._schema.column(name)

    @v_args(inline=True)
    def constant(self, token: Token) -> str:
        return str(token)[1:-1] if token.type == "TEXT" else str(token)

    def either(self, parts: list[Condition]) -> Condition:
        return Either(tuple(parts))

    def both(self, parts: list[Condition]) -> Condition:
        return both(tuple(parts))

    @v_args(inline=True)
    def negation(self, part: Condition) -> Condition:
        return Not(part)

    @v_args(inline=True)
    def missing(self, column: ColumnBase) -> Condition:
        if column.missing_code is None:
            raise _Refused(f"{column.name!r} is never missing: it declares no missing markers")
        return Missing(column.name)

    @v_args(inline=True)
    def present(self, column: ColumnBase) -> Condition:
        return Not(self.missing(column))

    def among(self, parts: list[Any]) -> Condition:
        column, *constants = parts
        return Either(tuple(_compared(column, "=", each) for each in constants))

    def not_among(self, parts: list[Any]) -> Condition:
        return Not(self.among(parts))

    @v_args(inline=True)
    def comparison(self, column: ColumnBase, sign: Token, constant: str) -> Condition:
        return _compared(column, str(sign).replace("==", "="), constant)


def _compared(column: ColumnBase, sign: str, text: str) -> Condition:
    if sign not in ("=", "!=") and not (column.measured or column.ranked):
        raise _Refused(f'{column.name!r} has no order: declare "ordered": true, or use = or !=')
    if text in column.missing:
        raise _Refused(f"{text!r} marks missing values: write {column.name} is missing")
    place = _amount(column, text) if column.measured else _place(column, text)
    if place is None:
        raise _Refused(
            f"{shown(text)} is no value of column {column.name!r}, which has {column.summary}"
        )
    return Comparison(column.name, sign, place)


def _amount(column: ColumnBase, text: str) -> float | None:
    """A number as Python writes it, or a moment as the column's cells are written or in ISO 8601;
    None where the text is neither."""
    amount = column.amounts(pa.array([text]))[0]
    if np.isnan(amount):
        with suppress(ValueError):
            amount = column.amounts(pa.array([dt.datetime.fromisoformat(text)]))[0]
    return None if np.isnan(amount) else float(amount)


def _place(column: ColumnBase, text: str) -> float | None:
    """Where a listed value stands among the ends of codes; None where it is none."""
    code = int(column.read(pa.array([text]))[0]) if column.declares(text) else -1
    if code < 0:
        return None
    return float(values_of(column, np.array([code])).low[0])
