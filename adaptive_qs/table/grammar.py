"""The grammar of rules and conditions: from text to conditions on the columns of a schema."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, ClassVar, NoReturn

from lark import Lark, Token, Transformer, UnexpectedInput, v_args
from lark.exceptions import VisitError

from adaptive_qs.arguments import shown
from adaptive_qs.errors import InputError
from adaptive_qs.table import conditions
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.conditions import DAY, Comparison, Condition, Determination, Either, Operand
from adaptive_qs.table.text import read_moment, read_number

GRAMMAR = r"""
?rule: condition
     | condition "->" condition                               -> implication
     | condition "<->" condition                              -> equivalence
     | _NEVER condition                                       -> never
     | _AT_LEAST_ONE name ("," name)*                         -> at_least_one
     | name ("," name)* ("determines"i | "determine"i) name     -> determination
     | name "limits"i name                                      -> limitation

?condition: both ("or"i both)*                                 -> either
?both: single ("and"i single)*                                 -> both
?single: "not"i single                                         -> negation
       | "(" condition ")"
       | sum COMPARISON sum                                   -> comparison
       | name "in"i "(" constant ("," constant)* ")"           -> among
       | name "not"i "in"i "(" constant ("," constant)* ")"     -> not_among
       | name "is"i "missing"i                                  -> missing
       | name "is"i "not"i "missing"i                            -> present

?sum: product | sum SIGN product                              -> operation
?product: operand | product FACTOR operand                    -> operation
?operand: name | literal | text | quantity | "(" sum ")"
?constant: word | literal | text
word: WORD
literal: DATE | NUMBER
quantity: NUMBER UNIT
text: TEXT
name: WORD | TICKED

_NEVER.4: /never\b(?!\s*([=<>!+*\/,-]|(in|is|not\s+in|determines?)\b))/i
_AT_LEAST_ONE.4: /at\s+least\s+one\s+of\b/i
COMPARISON: "<=" | ">=" | "!=" | "==" | "=" | "<" | ">"
SIGN: "+" | "-"
FACTOR: "*" | "/"
DATE.3: /\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2})?)?/
NUMBER.2: /-?\d+(\.\d+)?([eE][+-]?\d+)?/
UNIT: /(year|month|week|day|hour|minute|second)s?\b/i
TEXT: /'[^']*'|"[^"]*"/
TICKED: /`[^`]+`/
WORD: /[^\W\d]\w*([.-]\w+)*/
%ignore /\s+/
"""
"""The grammar of a rule, for Lark; docs/rules.md explains it."""
WORD = r"[^\W\d]\w*([.-]\w+)*"
FORMS = {
    "rule": 'such as "start <= end", "age < 15 -> marital = never" or "city determines county"',
    "condition": 'such as "age >= 65 and city = Bonn"',
}
NAMED_VALUE = "Quote values with ' and columns with `."

# From text, for the columns of a schema.


def written(name: str) -> str:
    """Return the name of a column as a rule has it."""
    return name if re.fullmatch(WORD, name) else f"`{name}`"


Columns = Mapping[str, ColumnBase]
"""The columns of a schema, by name."""


def written_value(label: str, columns: Columns) -> str:
    """Return a label as a rule has it, in quotes if it could be mistaken for something else."""
    if re.fullmatch(r"-?\d+(\.\d+)?", label):
        return label
    keywords = {"and", "or", "not", "in", "is", "missing", "never", "determine", "determines"}
    if re.fullmatch(WORD, label) and label.lower() not in keywords and label not in columns:
        return label
    return f'"{label}"' if "'" in label else f"'{label}'"


@cache
def _parser(start: str) -> Lark:
    return Lark(GRAMMAR, parser="lalr", start=start, maybe_placeholders=False)


def parse_rule(text: str, columns: Columns) -> Condition | Determination:
    """Return the meaning of a rule on the columns of a schema.

    Raise InputError if it is no rule, names an unknown column or value, or compares what cannot be
    compared. The line begins with the rule.
    """
    return _parsed("rule", text, columns)


def parse_condition(text: str, columns: Columns) -> Condition:
    """Return a condition alone, without "->", "never" and the like; raise as :func:`parse_rule`."""
    return _parsed("condition", text, columns)


def _parsed(kind: str, text: str, columns: Columns) -> Any:
    if not isinstance(text, str):
        raise InputError(f"the {kind} is {shown(text)}. Use a text {FORMS[kind]}.")
    if len(text) > 2_000:
        raise InputError(f"the {kind} has more than 2,000 characters: shorten it")
    try:
        return _Bound(columns).transform(_parser(kind).parse(text))
    except UnexpectedInput as error:
        ended = getattr(getattr(error, "token", None), "type", None) == "$END"
        rest = [] if ended else text[error.pos_in_stream or 0 :].split()
        place = f" at {shown(rest[0])}" if rest else ""
        said, form = shown(text, 200), f"Write it {FORMS[kind]}. {NAMED_VALUE}"
        raise InputError(f"Cannot parse the {kind} {said}{place}. {form}") from None
    except VisitError as error:
        raise InputError(f"{kind} {shown(text, 200)}: {error.orig_exc}") from None
    except RecursionError:
        raise InputError(f"the {kind} is nested too deeply. Use fewer parentheses.") from None


class _Refused(Exception):
    """What is wrong with a rule, as a text that follows it."""


@dataclass(frozen=True)
class _Leaf:
    """The name of a column, in backticks or not, or a literal, which can be a number of a unit."""

    text: str
    is_name: bool = False
    is_ticked: bool = False
    unit: str = ""
    operands: ClassVar[tuple[Operand, ...]] = ()


Term = Any
"""A name, a literal, or an operation of them that has no unit yet."""


class _Bound(Transformer[Token, Any]):
    """A transformer of Lark's tree that binds names to the columns of a schema."""

    def __init__(self, columns: Columns) -> None:
        super().__init__()
        self._columns = columns

    # Leaves.

    def name(self, parts: list[Token]) -> _Leaf:
        return _Leaf(str(parts[0]).strip("`"), True, parts[0].type == "TICKED")

    def word(self, parts: list[Token]) -> _Leaf:
        return _Leaf(str(parts[0]))

    literal = word

    def text(self, parts: list[Token]) -> _Leaf:
        return _Leaf(str(parts[0])[1:-1])

    def quantity(self, parts: list[Token]) -> _Leaf:
        return _Leaf(str(parts[0]), unit=str(parts[1]).lower().removesuffix("s"))

    # Conditions.

    def either(self, parts: list[Condition]) -> Condition:
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def both(self, parts: list[Condition]) -> Condition:
        return parts[0] if len(parts) == 1 else conditions.both(tuple(parts))

    @v_args(inline=True)
    def negation(self, part: Condition) -> Condition:
        return part.negated()

    never = negation

    @v_args(inline=True)
    def implication(self, first: Condition, then: Condition) -> Condition:
        return Either((first.negated(), then))

    @v_args(inline=True)
    def equivalence(self, one: Condition, other: Condition) -> Condition:
        return conditions.both((Either((one.negated(), other)), Either((other.negated(), one))))

    @v_args(inline=True)
    def missing(self, name: _Leaf) -> Condition:
        return self._missing(name)

    @v_args(inline=True)
    def present(self, name: _Leaf) -> Condition:
        return conditions.Not(self._missing(name))

    def at_least_one(self, names: list[_Leaf]) -> Condition:
        self._apart(names)
        return Either(tuple(conditions.Not(self._missing(name)) for name in names))

    def determination(self, names: list[_Leaf]) -> Determination:
        self._apart(names)
        *lefts, right = (self._learnt(name).name for name in names)
        return Determination(tuple(lefts), right)

    def limitation(self, names: list[_Leaf]) -> conditions.Limits:
        self._apart(names)
        left, right = map(self._learnt, names)
        if not right.measured:
            raise _Refused(f"{right.name!r} has labels, which are within no limits")
        return conditions.Limits(left.name, right.name)

    def among(self, parts: list[Any]) -> Condition:
        name, *constants = parts
        return self.either([self._compared(name, "=", each) for each in constants])

    def not_among(self, parts: list[Any]) -> Condition:
        return self.among(parts).negated()

    @v_args(inline=True)
    def operation(self, left: Term, sign: Token, right: Term) -> Term:
        if sign == "+" and left.unit in ("year", "month"):  # months are added to what comes first
            left, right = right, left
        return Operand(sign=str(sign), operands=(left, right))

    @v_args(inline=True)
    def comparison(self, left: Term, sign: Token, right: Term) -> Condition:
        written = str(sign).replace("==", "=")
        if written in (">", ">="):
            return self._compared(right, written.replace(">", "<"), left)
        return self._compared(left, written, right)

    # What they mean.

    def _missing(self, name: _Leaf) -> conditions.Missing:
        column = self._learnt(name)
        if column.missing_code is None:
            raise _Refused(f"{column.name!r} is never missing: declare its missing markers")
        return conditions.Missing(column.name)

    def _compared(self, left: Term, sign: str, right: Term) -> Condition:
        named = [self._learnt(n) for n in (*_names(left), *_names(right)) if self._is_column(n)]
        unknown = [n for n in (*_names(left), *_names(right)) if not self._is_column(n)]
        if not named:
            for name in unknown:
                self._column(name)
            raise _Refused("a comparison names no column")
        first, several = named[0], bool(left.operands or right.operands)
        if several:
            return self._computed(left, sign, right, named)
        if left.unit or right.unit:
            raise _Refused(NO_MOMENT)
        if len(named) == 2 and named[0].name == named[1].name:
            raise _Refused(f"{first.name!r} is compared with itself. Use two columns.")
        if any(c.kind is None or c.kind != first.kind for c in named):
            raise _Refused(
                "compares different kinds of values. Use two columns of numbers, of dates or "
                "times, or of the same categories."
            )
        loose = [c.name for c in named if not c.ranked]
        if sign not in ("=", "!=") and loose:
            raise _Refused(f'{loose[0]!r} has no order: declare "ordered": true, or use = or !=')
        unit = DAY if all(c.by_day for c in named) else 1
        a, b = (self._operand(side, first, unit) for side in (left, right))
        return Comparison(sign, a, b, labels=len(named) == 1 and sign in ("=", "!="))

    def _computed(self, left: Term, sign: str, right: Term, named: list[ColumnBase]) -> Condition:
        for column in named:
            if column.kind not in ("numbers", "moments"):
                raise _Refused(
                    f"{column.name!r} cannot be added or multiplied. Use numbers, dates or times."
                )
        if all(column.kind == "numbers" for column in named) and any(map(_has_unit, (left, right))):
            raise _Refused(NO_MOMENT)
        if left.operands and right.operands:
            raise _Refused("computes on both sides: leave one column on the left")
        a, b = (self._operand(side, None, 1) for side in (left, right))
        alone = [self._columns[side.column_name] for side in (a, b) if side.column_name]
        rounded = sign in ("=", "!=") and len(alone) > 0
        slack = alone[0].resolution / 2 if rounded else 0.0
        timed = rounded and alone[0].kind == "moments" and not alone[0].by_day
        return Comparison(sign, a, b, slack=slack / DAY if timed else slack)

    def _operand(self, part: Term, other: ColumnBase | None, unit: int) -> Operand:
        """Return the operand with the columns and constants for which a part stands.

        Constants are compared with the column ``other``, None in a computation. Moments are counted
        in ``unit`` seconds, in a computation in days.
        """
        if part.operands:
            sides = tuple(self._operand(side, other, unit) for side in part.operands)
            return Operand(sign=part.sign, operands=sides)
        if part.is_name and self._is_column(part):
            column = self._column(part)
            timed = other is None and column.kind == "moments"
            return Operand(column.name, unit=DAY if timed else unit, whole=column.by_day)
        if other is not None:
            value = other.read_amount(part.text)
            if value is None or not math.isfinite(value):
                self._no_value(other, part)
            return Operand(constant=value // unit if unit > 1 else value)
        if part.unit:
            months = {"year": 12.0, "month": 1.0}.get(part.unit, 0.0) * float(part.text)
            if months % 1 or abs(months) > MOST_MONTHS:
                raise _Refused(f"{part.text} {part.unit}s are no whole months: write days")
            return Operand(constant=float(part.text) * DAYS[part.unit], months=int(months))
        value, seconds = read_number(part.text), read_moment(part.text, None, True)
        if value is None or not math.isfinite(value):
            if seconds is None:
                self._column(_Leaf(part.text, True))
            value = (seconds or 0) / DAY
        return Operand(constant=value)

    def _no_value(self, column: ColumnBase, part: Term) -> NoReturn:
        if part.text in column.missing:
            raise _Refused(f"{part.text!r} marks missing values: write {column.name} is missing")
        listed = [str(value) for value in column.listed or ()]
        remedy = _suggest(part.text, [*listed, *self._columns])
        remedy = remedy or f" ({column.summary}). Check the spelling. {NAMED_VALUE}"
        said = shown(part.text)
        raise _Refused(f"{said} is neither a column nor a value of {column.name!r}{remedy}")

    def _is_column(self, name: _Leaf) -> bool:
        return name.is_ticked or name.text in self._columns

    def _column(self, name: _Leaf) -> ColumnBase:
        if name.text not in self._columns:
            remedy = _suggest(name.text, self._columns) or ": check the spelling"
            raise _Refused(f"column {shown(name.text)} is not in the schema{remedy}")
        column = self._columns[name.text]
        if column.part_of:
            of, unit = column.part_of
            raise _Refused(f"{shown(name.text)} is the {unit} of {of!r}: name {of!r}")
        return column

    def _learnt(self, name: _Leaf) -> ColumnBase:
        column = self._column(name)
        if column.is_unlearnt:
            raise _Refused(f"{column.name!r} is still to be learnt: declare its bins or values")
        return column

    def _apart(self, names: list[_Leaf]) -> None:
        texts = [name.text for name in names]
        if len(set(texts)) < len(texts):
            raise _Refused("names one column twice. Name each once.")


def _suggest(text: str, known: Iterable[str]) -> str:
    """Return a question that names the likeliest of the known texts; empty if none is alike.

    A text that differs in case only comes before all others.
    """
    folded = {name.casefold(): name for name in reversed([*known])}
    near = folded.get(text.casefold()) or next(iter(get_close_matches(text, known, n=1)), None)
    return "" if near is None else f": did you mean {near!r}?"


MOST_MONTHS = 120_000
"""Months beyond which a date has no calendar."""
NO_MOMENT = "has a unit of time but adds it to no date or time: write a number"
DAYS = {
    "year": 365.2425, "month": 365.2425 / 12, "week": 7.0, "day": 1.0, "hour": 1 / 24,
    "minute": 1 / 1_440, "second": 1 / DAY,
}  # fmt: skip
"""Days of each unit, on average."""


def _has_unit(part: Term) -> bool:
    return any(map(_has_unit, part.operands)) if part.operands else bool(part.unit)


def _names(part: Term) -> Iterator[_Leaf]:
    for operand in part.operands:
        yield from _names(operand)
    if not part.operands and part.is_name:
        yield part
