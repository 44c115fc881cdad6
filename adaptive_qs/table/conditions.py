"""Conditions on the values of a row: whether they hold, can hold or cannot.

A condition is evaluated on *values*, each given by its least and greatest possible value: equal for
a known value, the ends of the bin if only the code is known. Missing values make it unknown, by the
three-valued logic of Kleene (1938), unless it is about them ("is missing").
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adaptive_qs.table.columns.base import ColumnBase

if TYPE_CHECKING:
    from adaptive_qs.table.columns.base import Drawer

DAY = 86_400
"""Seconds of a day."""
NEAR = 1e-12
"""Relative error of a sum or product that binary rounding can cause."""
Mask = NDArray[np.bool_]


class Values(NamedTuple):
    """Values of one column in some rows or codes; arrays that broadcast.

    Numbers are themselves, moments seconds since 1970, labels their positions in the list.
    """

    low: NDArray[Any]  # least possible value
    high: NDArray[Any]  # greatest possible value
    known: Mask  # whether it can be compared: it is neither missing nor unknown
    named: Mask  # whether it has a label, as the catch-all has
    missing: Mask  # whether there is none

    def reshaped(self, shape: tuple[int, ...]) -> Values:
        """Return the same values along one axis."""
        return Values(*(array.reshape(shape) for array in self))


def read_values(
    column: ColumnBase, codes: NDArray[np.integer], amounts: NDArray[np.float64] | None = None
) -> Values:
    """Return the values that codes stand for, or of cells with given amounts (NaN for none)."""
    codes = codes.astype(np.int64)
    missing = codes == (-1 if column.missing_code is None else column.missing_code)
    other = codes == (-1 if column.catch_all_code is None else column.catch_all_code)
    known = (codes < column.num_values) & ~other
    labelled = column.kind != "numbers"
    if amounts is None:
        low, high = column.ends(np.where(known, codes, 0))
    else:
        known = ~np.isnan(amounts)
        low = np.where(known, amounts, 0.0)
        high = low + (DAY - 1) if column.by_day else low  # compared with times, a day is a span
    if labelled:
        low, high = np.where(other, codes, low), np.where(other, codes, high)
    return Values(low, high, known, known | (other & labelled), missing)


def partition_values(
    column: ColumnBase, limits: Iterable[float]
) -> tuple[Values, NDArray[np.integer]]:
    """Return the values of every code, bins cut at some limits, and the code of each piece.

    Pieces of one code follow each other. A comparison with a limit has one outcome for all values
    of a piece.
    """
    codes = np.arange(column.size)
    values, owner = read_values(column, codes), codes
    for limit in sorted(set(limits)):
        low, high, known, _, _ = values
        cut = known & (low <= limit) & (limit <= high) & (low < high)
        if not cut.any():
            continue
        whole = np.issubdtype(low.dtype, np.integer)
        before = math.ceil(limit) - 1 if whole else np.nextafter(limit, -np.inf)
        after = math.floor(limit) + 1 if whole else np.nextafter(limit, np.inf)
        ends: list[tuple[Any, Any]] = [(low[cut], before), (after, high[cut])]
        if not whole or limit == int(limit):
            ends.append((type(before)(limit), type(before)(limit)))
        parts, owners = [Values(*(array[~cut] for array in values))], [owner[~cut]]
        for first, last in ends:
            piece = Values(*(array[cut] for array in values))
            piece = piece._replace(
                low=np.broadcast_to(first, cut.sum()), high=np.broadcast_to(last, cut.sum())
            )
            real = piece.low <= piece.high
            parts.append(Values(*(array[real] for array in piece)))
            owners.append(owner[cut][real])
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        values = Values(*(np.concatenate(arrays)[order] for arrays in zip(*parts)))
        owner = owner[order]
    return values, owner


@dataclass(frozen=True, eq=False)
class Cases:
    """The values of a column, as a condition distinguishes them."""

    column: ColumnBase
    pieces: Values  # intervals of values that no constant cuts
    code_of: NDArray[np.integer]  # code of each piece, ascending
    share: NDArray[np.float64]  # part of the values of its code in each piece
    case_of: NDArray[np.intp]  # case of each piece

    @classmethod
    def from_limits(cls, column: ColumnBase, limits: Iterable[float]) -> tuple[Cases, Values]:
        """Return what comparisons with constants distinguish, and the values of each case."""
        constants = np.unique(np.array([*limits], dtype=np.float64))
        pieces, code_of = partition_values(column, constants.tolist())
        share = np.ones(len(code_of))
        several = np.bincount(code_of, minlength=column.size)[code_of] > 1
        if several.any():
            share[several] = column.weigh_between(pieces.low[several], pieces.high[several])
            share /= np.bincount(code_of, share, minlength=column.size)[code_of]
        real = share > 0
        pieces, code_of, share = Values(*(a[real] for a in pieces)), code_of[real], share[real]
        sides = [np.sign(pieces.low - limit) * pieces.known for limit in constants]
        signs = np.stack([*sides, *pieces[2:]], axis=1, dtype=np.int8, casting="unsafe")
        _, first, case_of = np.unique(signs, axis=0, return_index=True, return_inverse=True)
        case_of = case_of.reshape(-1)
        least, most = np.full(len(first), np.inf), np.full(len(first), -np.inf)
        np.minimum.at(least, case_of, pieces.low)
        np.maximum.at(most, case_of, pieces.high)
        values = Values(least, most, *(each[first] for each in pieces[2:]))
        return cls(column, pieces, code_of, share, case_of), values

    def chances(self, inside: Mask) -> NDArray[np.float64]:
        """Return the part of the values of each code that belongs to some cases, shape (codes,)."""
        taken = inside[self.case_of]
        size = self.column.size
        return np.bincount(self.code_of[taken], self.share[taken], size).astype(np.float64)

    def narrow(self, inside: Mask, drawer: Drawer | None) -> Drawer | None:
        """Return a drawer of values of some cases only; it leaves codes that no case cuts alone."""
        taken = inside[self.case_of]
        chance = self.chances(inside)
        cut = np.bincount(self.code_of[~taken], minlength=self.column.size) > 0
        cut &= chance > 0
        if not cut.any():
            return drawer
        column, low, high = self.column, self.pieces.low[taken], self.pieces.high[taken]
        starts = np.searchsorted(self.code_of[taken], np.arange(column.size))
        running = np.append(0.0, np.cumsum(self.share[taken]))

        def draw(codes: NDArray[np.int64], rng: np.random.Generator) -> pa.Array:
            values = (drawer or column.draw)(codes, rng)
            rows = np.flatnonzero(cut[codes])
            first = running[starts[codes[rows]]]
            at = first + rng.random(len(rows)) * chance[codes[rows]]
            last = np.searchsorted(self.code_of[taken], codes[rows], side="right") - 1
            piece = np.minimum(np.searchsorted(running, at, side="right") - 1, last)
            drawn = column.draw_between(low[piece], high[piece], rng)
            place = np.arange(len(values))
            place[rows] = len(values) + np.arange(len(rows))
            return pa.concat_arrays([values, drawn]).take(pa.array(place))

        return draw


Row = Mapping[str, Values]
"""The values of every column that a condition names, by name."""


class Outcome(NamedTuple):
    """Possible outcomes of a condition: a mask for each."""

    true: Mask
    false: Mask
    unknown: Mask

    @property
    def broken(self) -> Mask:
        """Where a rule is broken: its condition can neither be true nor unknown."""
        return self.false & ~self.true & ~self.unknown


@dataclass(frozen=True)
class Operand:
    """A column, a constant, or an operation ("+", "-", "*", "/"), with a value in every row."""

    column_name: str | None = None
    constant: float | None = None  # a number, a moment or the position of a label
    sign: str = ""
    operands: tuple[Any, ...] = ()
    unit: int = 1  # seconds in which moments of a column are counted
    whole: bool = True  # whether these are whole, as values are days
    months: int = 0  # calendar months, a constant that is added to a date

    def columns(self) -> Iterator[str]:
        """Yield the columns whose values it takes."""
        if self.column_name is not None:
            yield self.column_name
        for operand in self.operands:
            yield from operand.columns()

    def weight(self, moments: Collection[str]) -> float:
        """Return how far it moves when these columns move by one; NaN if that depends."""
        if not self.operands:
            return float(self.column_name in moments)
        a, b = (operand.weight(moments) for operand in self.operands)
        if any(operand.months for operand in self.operands):
            return math.nan
        if self.sign in "+-":
            return a + b if self.sign == "+" else a - b
        return 0.0 if a == b == 0 else math.nan

    def values(self, row: Row) -> Values:
        """Return its values, by interval arithmetic."""
        if self.column_name is not None:
            found = row[self.column_name]
            if self.unit == 1:
                return found
            divide = np.floor_divide if self.whole else np.true_divide
            return found._replace(
                low=divide(found.low, self.unit), high=divide(found.high, self.unit)
            )
        if not self.operands:
            value, yes = np.asarray(self.constant), np.asarray(True)
            return Values(value, value, yes, yes, ~yes)
        a, b = (operand.values(row) for operand in self.operands)
        if (months := self.operands[1].months) and self.sign in "+-":
            months = months if self.sign == "+" else -months
            return a._replace(low=_add_months(a.low, months), high=_add_months(a.high, months))
        known = a.known & b.known
        if self.sign == "/":
            known = known & ~((b.low == 0) & (b.high == 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = _compute_ends(self.sign, a, b)
        low, high = (np.where(known, end, 0.0) for end in ends)
        return Values(low, high, known, known, a.missing | b.missing)


def _add_months(days: NDArray[Any], months: int) -> NDArray[np.float64]:
    """Return days since 1970 some calendar months later, at most the last day of the month."""
    whole = np.floor(days)
    date = whole.astype(np.int64).astype("datetime64[D]")
    month = date.astype("datetime64[M]")
    later = (month + months).astype("datetime64[D]")
    length = ((month + months + 1).astype("datetime64[D]") - later).astype(np.int64)
    day = np.minimum((date - month.astype("datetime64[D]")).astype(np.int64), length - 1)
    return later.astype(np.int64) + day + (days - whole)


def _compute_ends(sign: str, a: Values, b: Values) -> tuple[Any, Any]:
    if sign == "+":
        return a.low + b.low, a.high + b.high
    if sign == "-":
        return a.low - b.high, a.high - b.low
    act = np.multiply if sign == "*" else np.true_divide
    corners = [act(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    low, high = reduce(np.fmin, corners), reduce(np.fmax, corners)
    around = (b.low <= 0) & (b.high >= 0) & (sign == "/")
    return np.where(around, -np.inf, low), np.where(around, np.inf, high)


class Condition:
    """Something that is true, false or unknown in a row."""

    def columns(self) -> tuple[str, ...]:
        """Return the named columns, each once, in order."""
        return tuple(dict.fromkeys(self.named()))

    def within(self) -> tuple[Condition, ...]:
        """Return its parts."""
        return ()

    def named(self) -> Iterator[str]:
        """Yield every mention of a column."""
        for part in self.within():
            yield from part.named()

    @abstractmethod
    def outcome(self, row: Row) -> Outcome:
        """Return which outcomes are possible."""

    def limits(self) -> Iterator[tuple[str, float]]:
        """Yield columns and the constants they are compared with, in the units of ``Values``."""
        for part in self.within():
            yield from part.limits()

    def is_relative(self, moments: Collection[str]) -> bool:
        """Return whether it depends on these columns only by their differences."""
        return all(part.is_relative(moments) for part in self.within())

    def negated(self) -> Condition:
        """Return a condition that is true where this one is false."""
        return Not(self)

    def equation(self) -> tuple[Operand, Operand] | None:
        """Return a column and the operand that it equals; None if it is no equation."""
        return None


@dataclass(frozen=True)
class Comparison(Condition):
    """Two operands compared by "<", "<=", "=" or "!="."""

    sign: str
    left: Operand
    right: Operand
    slack: float = 0.0  # sides that differ by at most this count as equal
    labels: bool = False  # whether the catch-all counts as a value like others

    def named(self) -> Iterator[str]:
        yield from self.left.columns()
        yield from self.right.columns()

    def equation(self) -> tuple[Operand, Operand] | None:
        """Return the sides, the column first, if one is a column and the other no constant."""
        sides = self.left, self.right
        left, right = sides[::-1] if self.left.operands else sides
        known = left.column_name is not None and right.constant is None
        return (left, right) if known and self.sign == "=" else None

    def is_relative(self, moments: Collection[str]) -> bool:
        return self.left.weight(moments) == self.right.weight(moments)

    def limits(self) -> Iterator[tuple[str, float]]:
        for one, other in ((self.left, self.right), (self.right, self.left)):
            if one.column_name is not None and other.constant is not None:
                yield one.column_name, other.constant * one.unit

    def outcome(self, row: Row) -> Outcome:
        a, b = self.left.values(row), self.right.values(row)
        known = (a.named & b.named) if self.labels else (a.known & b.known)
        near = self.slack
        if self.left.operands or self.right.operands:
            near = near + NEAR * np.maximum(np.abs(a.high), np.abs(b.high))
        if self.sign in ("=", "!="):
            true = (a.low <= b.high + near) & (b.low <= a.high + near)
            false = (a.high - b.low > near) | (b.high - a.low > near)
            if self.sign == "!=":
                true, false = false, true
        elif self.sign == "<=":
            true, false = a.low <= b.high + near, a.high > b.low + near
        else:
            true, false = a.low < b.high - near, a.high >= b.low - near
        return Outcome(known & true, known & false, ~known & (true | True))


@dataclass(frozen=True)
class Missing(Condition):
    """The condition that a column has no value; never unknown."""

    name: str

    def named(self) -> Iterator[str]:
        yield self.name

    def outcome(self, row: Row) -> Outcome:
        missing = row[self.name].missing
        return Outcome(missing, ~missing, np.zeros_like(missing))


@dataclass(frozen=True)
class _Modified(Condition):
    """A condition that changes the outcome of another one."""

    part: Condition

    def within(self) -> tuple[Condition, ...]:
        return (self.part,)


@dataclass(frozen=True)
class Not(_Modified):
    """The negation of a condition; unknown if the condition is."""

    def negated(self) -> Condition:
        return self.part

    def outcome(self, row: Row) -> Outcome:
        true, false, unknown = self.part.outcome(row)
        return Outcome(false, true, unknown)


@dataclass(frozen=True)
class Either(Condition):
    """True if a part is; false if all are."""

    parts: tuple[Condition, ...]

    def within(self) -> tuple[Condition, ...]:
        return self.parts

    def outcome(self, row: Row) -> Outcome:
        """Combine the outcomes of the parts by Kleene's table."""
        first, *others = (part.outcome(row) for part in self.parts)
        for next_one in others:
            unknown = first.unknown & (next_one.unknown | next_one.false)
            first = Outcome(
                first.true | next_one.true,
                first.false & next_one.false,
                unknown | (next_one.unknown & first.false),
            )
        return first


@dataclass(frozen=True)
class Surely(_Modified):
    """A condition that is true if its part is, and false if that is unknown.

    Rules allow rows whose condition is unknown; a requested condition does not.
    """

    def outcome(self, row: Row) -> Outcome:
        """Return the outcomes of the part, unknown ones as false."""
        true, false, unknown = self.part.outcome(row)
        return Outcome(true, false | unknown, np.zeros_like(unknown))


@dataclass(frozen=True, eq=False)
class Limits(Condition):
    """The condition that a value is within the limits of its category.

    It is unknown for categories that are not listed: ``keys`` are their amounts, ascending, with
    the least and greatest values ``low`` and ``high``, all of shape (listed,).
    """

    left: str
    right: str
    keys: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    low: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    high: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def named(self) -> Iterator[str]:
        yield from (self.left, self.right)

    def is_relative(self, moments: Collection[str]) -> bool:
        return self.right not in moments

    def outcome(self, row: Row) -> Outcome:
        a, b = row[self.left], row[self.right]
        place = np.minimum(np.searchsorted(self.keys, a.low), len(self.keys) - 1)
        known = a.named & b.known & (a.low == a.high) & (self.keys[place] == a.low)
        low, high = self.low[place], self.high[place]
        low, high = low - NEAR * np.abs(low), high + NEAR * np.abs(high)
        true, false = (b.low <= high) & (b.high >= low), (b.low < low) | (b.high > high)
        return Outcome(known & true, known & false, ~known & (true | True))


def both(parts: tuple[Condition, ...]) -> Condition:
    """Return a condition that is true where all parts are."""
    return Not(Either(tuple(part.negated() for part in parts)))


@dataclass(frozen=True)
class Determination:
    """A rule that some columns determine the value of another."""

    lefts: tuple[str, ...]  # the determining columns
    right: str  # the determined one

    def columns(self) -> tuple[str, ...]:
        """Return all columns, the determined one last."""
        return (*self.lefts, self.right)
