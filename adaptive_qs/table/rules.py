"""The rules of a schema: the cells that they allow, and whether rows can meet them.

A rule states what holds in every row. For the codes of its columns that is a set of cells: those in
which some values of the codes do not break it. An equation such as ``total = a + b`` also computes
the values of its column inside its bins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import InputError
from adaptive_qs.table import conditions
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.columns.part import PartColumn, Tie
from adaptive_qs.table.conditions import DAY, Condition, Determination, Limits, Mask, Operand, Row
from adaptive_qs.table.grammar import Columns, parse_rule

MOST_COLUMNS = 4
"""Most columns that one rule can name, computed ones replaced by their sources."""
MOST_CELLS = 2**22
"""Most cells of all these columns together; all combinations of hours and weekdays have twice as
many."""
MOST_TRIED = 10_000
"""Most partial rows that are tried to find out whether the rules allow any row."""


class AllowedCells(NamedTuple):
    """The cells of some columns, in the order of the schema, that a rule allows."""

    names: tuple[str, ...]
    allowed: Mask  # one axis for each column
    text: str  # the rule

    def over(self, names: Sequence[str]) -> Mask:
        """Return which cells of some of the columns are part of an allowed one."""
        beyond = tuple(k for k, name in enumerate(self.names) if name not in names)
        return np.asarray(self.allowed.any(axis=beyond))


@dataclass(frozen=True)
class Computation:
    """A column that is computed from others if all of these are known."""

    column: ColumnBase
    source: Operand
    unit: int  # amount of the column in one of the computation: seconds of a day, or 1

    def amounts(self, row: Row) -> NDArray[np.float64]:
        """Return the computed amounts of rows, before rounding; NaN if an operand is unknown."""
        found = self.source.values(row)
        return np.where(found.known, found.low * float(self.unit), np.nan)


@dataclass(frozen=True)
class Rule:
    """One rule of a schema: its text and meaning."""

    text: str
    meaning: Condition | Determination
    table: tuple[tuple[str, ...], ...] = ()  # of a determination or limits, in its order

    @property
    def headings(self) -> tuple[str, ...]:
        """What the columns of its table are."""
        *lefts, right = self.meaning.columns()
        ends = (f"{right} from", f"{right} to") if isinstance(self.meaning, Limits) else (right,)
        return (*lefts, *ends)

    def with_limits(self, columns: Columns) -> Rule:
        """Return the rule with the limits of its table; raise InputError if these are none."""
        if not (isinstance(self.meaning, Limits) and self.table):
            return self
        left, right = self.meaning.columns()
        found: dict[float, tuple[float, float]] = {}
        for row in self.table:
            read = [columns[name].read_amount(v) for name, v in zip((left, right, right), row)]
            known = [amount for amount in read if amount is not None and math.isfinite(amount)]
            if not 3 == len(row) == len(known) or known[0] in found or known[1] > known[2]:
                raise InputError(
                    f"rule {self.text!r}: its table has {', '.join(row)}. A row needs a value of "
                    f"{left!r}, named once, and the least and the greatest of {right!r}."
                )
            found[known[0]] = known[1], known[2]
        keys, ends = np.array(sorted(found)), np.array([found[key] for key in sorted(found)])
        return replace(self, meaning=Limits(left, right, keys, ends[:, 0], ends[:, 1]))


@dataclass(frozen=True, eq=False)
class Ruleset:
    """All rules of a schema."""

    columns: Columns  # without hours and weekdays
    rules: tuple[Rule, ...]
    every: Columns  # with them, in the order of the schema

    @classmethod
    def of(
        cls, columns: Iterable[ColumnBase], declared: Iterable[tuple[str, Sequence[Sequence[str]]]]
    ) -> Ruleset:
        """Return the rules with these texts and tables on the columns of a schema.

        Raise InputError if one is no rule, is too large, contradicts another, or allows no row.
        """
        named = {column.name: column for column in columns}
        rules = [
            Rule(text, parse_rule(text, named), tuple(map(tuple, table))).with_limits(named)
            for text, table in declared
        ]
        own = {name: column for name, column in named.items() if not column.part_of}
        ruleset = cls(own, tuple(rules), named)
        ruleset._check()
        return ruleset

    def along_with(self, condition: Condition) -> Ruleset:
        """Return the rules and, unchecked, a condition that has to be true, not only unbroken."""
        added = Rule("the condition", conditions.Surely(condition))
        return replace(self, rules=(*self.rules, added))

    @cached_property
    def conditions(self) -> tuple[tuple[str, Condition], ...]:
        """Each rule that is a condition, with its text."""
        rules = self.rules
        return tuple((r.text, r.meaning) for r in rules if isinstance(r.meaning, Condition))

    @cached_property
    def determinations(self) -> tuple[tuple[Rule, Determination], ...]:
        """Each rule by which columns determine another."""
        rules = self.rules
        return tuple((r, r.meaning) for r in rules if isinstance(r.meaning, Determination))

    @cached_property
    def groups(self) -> Mapping[str, tuple[tuple[int, ...], ...]]:
        """The groups of codes, by column, that follow from declared tables.

        Each table by which one column determines another gives one grouping, by the determined
        value. Codes that no table lists are one group, missing values another.
        """
        found: dict[str, tuple[tuple[int, ...], ...]] = {}
        for rule, meaning in self.determinations:
            left, *others = meaning.columns()
            if len(others) > 1:
                continue
            column = self.columns[left]
            names: dict[str, int] = {}
            group = [0] * column.size
            if column.missing_code is not None:
                group[column.missing_code] = -1
            codes = self._codes(left, [value for value, _ in rule.table])
            for code, (_, stands_for) in zip(codes, rule.table):
                group[code or 0] = 1 + names.setdefault(stands_for, len(names))
            group = [1 + len(names) if each < 0 else each for each in group]
            found[left] = (*found.get(left, ()), tuple(group))
        return found

    @cached_property
    def computed(self) -> Mapping[str, Computation]:
        """Columns that equations compute, each after the columns that it needs.

        The first equation of a column computes it. Equations that would close a circle are
        conditions.
        """
        found: dict[str, Computation] = {}

        def needed(name: str) -> set[str]:
            sources = found[name].source.columns() if name in found else ()
            return {name}.union(*map(needed, sources))

        for _, condition in self.conditions:
            computation = _computation(condition, self.columns)
            if computation is None or computation.column.name in found:
                continue
            name = computation.column.name
            if not any(name in needed(source) for source in computation.source.columns()):
                found[name] = computation
        return dict(_in_turn(found))

    # The cells that rules leave.

    @cached_property
    def cells(self) -> tuple[AllowedCells, ...]:
        """The cells of every rule that forbids any."""
        found = [self.compute_cells(condition, text) for text, condition in self.conditions]
        found += [self._listed(rule, said) for rule, said in self.determinations]
        return tuple(cells for cells in found if not cells.allowed.all())

    def compute_cells(self, condition: Condition, text: str) -> AllowedCells:
        """Return the cells in which a condition can be unbroken."""
        names = tuple(name for name in self.columns if name in condition.columns())
        limits: dict[str, set[float]] = {name: set() for name in names}
        for name, limit in condition.limits():
            limits.get(name, set()).add(limit)
        row, starts = {}, []
        for axis, name in enumerate(names):
            values, owner = conditions.partition_values(self.columns[name], limits[name])
            shape = tuple(-1 if k == axis else 1 for k in range(len(names)))
            row[name] = values.reshaped(shape)
            starts.append(np.searchsorted(owner, np.arange(self.columns[name].size)))
        outcome = condition.outcome(row)
        sizes = [row[name].low.size for name in names]
        allowed = np.array(np.broadcast_to(outcome.true | outcome.unknown, sizes))
        for axis, first in enumerate(starts):
            allowed = np.logical_or.reduceat(allowed, first, axis=axis)
        return AllowedCells(names, allowed, text)

    def _listed(self, rule: Rule, meaning: Determination) -> AllowedCells:
        """Return the cells of a determination with a declared table; the rest is free."""
        names = meaning.columns()
        allowed = np.ones([self.columns[name].size for name in names], dtype=np.bool_)
        missing = self.columns[names[-1]].missing_code
        for values in rule.table:
            if len(values) != len(names):
                raise InputError(
                    f"rule {rule.text!r}: its table has a row of {len(values)} values for "
                    f"{len(names)} columns. Write one value for each column."
                )
        listed = [self._codes(n, values) for n, values in zip(names, zip(*rule.table))]
        for values, codes in zip(rule.table, zip(*listed)):
            for value, code, name in zip(values, codes, names):
                if code is None:
                    raise InputError(
                        f"rule {rule.text!r}: {value!r} in its table is no value of {name!r}: "
                        "check the spelling"
                    )
            one = np.arange(allowed.shape[-1]) == codes[-1]
            before = allowed[codes[:-1]]
            if not before[codes[-1]]:
                raise InputError(
                    f"rule {rule.text!r}: its table has two values for {values[:-1]}: keep one"
                )
            allowed[codes[:-1]] = one | (np.arange(len(one)) == missing)
        return self._in_order(names, allowed, rule.text)

    def _in_order(self, names: Sequence[str], allowed: Mask, text: str) -> AllowedCells:
        order = sorted(range(len(names)), key=lambda k: list(self.every).index(names[k]))
        return AllowedCells(tuple(names[k] for k in order), np.transpose(allowed, order), text)

    def _codes(self, name: str, texts: Iterable[str]) -> list[int | None]:
        """Return the codes of single values, or of "(missing)"; None for other texts."""
        column = self.columns[name]
        found = conditions.read_values(column, np.arange(column.size))
        single = found.named & (found.low == found.high)
        places: dict[float | None, int]
        places = {float(found.low[code]): int(code) for code in np.flatnonzero(single)}
        missing = column.missing_code
        markers = {*column.missing, column.labels_of_codes()[missing]} if missing else ()
        return [missing if t in markers else places.get(column.read_amount(t)) for t in texts]

    @cached_property
    def ties(self) -> tuple[AllowedCells, ...]:
        """The possible cells of hours and weekdays with other columns.

        They are missing where their column is. Rules on the time between two dates or times leave
        some of them in the periods of these.
        """
        parts = [part for part in self.every.values() if isinstance(part, PartColumn)]
        found = []
        for part in (part for part in parts if part.missing):
            missing = (np.arange(c.size) == c.missing_code for c in (self.columns[part.of], part))
            found.append(self._in_order((part.of, part.name), np.equal.outer(*missing), part.name))
        moments = {name for name, column in self.columns.items() if column.kind == "moments"}
        relative = [c for _, c in self.conditions if c.is_relative(moments)]
        room = MOST_CELLS
        for names in {frozenset(c.columns()): c.columns() for c in relative}.values():
            own = {name: [p for p in parts if p.of == name] for name in names if name in moments}
            if len(own) == 2 and any(own.values()):
                every = conditions.both(tuple(c for c in relative if {*c.columns()} <= {*names}))
                cells = [*Tie(self.every, every, own, room).cells()]
                found += [self._in_order(*each, "") for each in cells if not each[1].all()]
                room -= sum(allowed.size for _, allowed in cells) // 2
        return tuple(found)

    # Whether rows can meet them.

    def _check(self) -> None:
        for rule in self.rules:
            listed = isinstance(rule.meaning, Determination | Limits)
            if rule.table and not listed:
                raise InputError(
                    f"rule {rule.text!r} has a table but determines nothing: remove it"
                )
            if listed and not rule.table:
                raise InputError(
                    f"rule {rule.text!r} has no table, so rows could break it: list the values "
                    'that belong together as its "table"'
                )
        for rule, determination in self.determinations:
            _check_determined(rule, self.columns[determination.right])
        for text, condition in self.conditions:
            self._check_size(text, condition.columns())
        for rule, said in self.determinations:
            self._check_size(rule.text, said.columns())
        for cells in self.cells:
            if not cells.allowed.any():
                raise InputError(f"rule {cells.text!r}: no row can meet it: correct it")
        for k, cells in enumerate(self.cells):
            if possible_codes(self.cells[: k + 1], self._sizes) is None:
                self._contradicts(self.cells[: k + 1], cells)
        if find_row(self.cells, self._sizes) is None:
            texts = " and ".join(dict.fromkeys(repr(cells.text) for cells in self.cells))
            raise InputError(f"the rules {texts} leave no row: remove one")

    def _contradicts(self, several: Sequence[AllowedCells], last: AllowedCells) -> None:
        for other in several[:-1]:
            if possible_codes([other, last], self._sizes) is None:
                raise InputError(
                    f"rule {last.text!r} contradicts {other.text!r}: no row can meet both"
                )
        texts = " and ".join(dict.fromkeys(repr(cells.text) for cells in several))
        raise InputError(f"the rules {texts} leave no row: remove one")

    @cached_property
    def _sizes(self) -> dict[str, int]:
        return {name: self.columns[name].size for cells in self.cells for name in cells.names}

    def _check_size(self, text: str, names: Iterable[str]) -> None:
        several = set(names)
        if len(several) > MOST_COLUMNS:
            raise InputError(
                f"rule {text!r} names {len(several)} columns, more than {MOST_COLUMNS}. Split it."
            )
        cells = math.prod(self.columns[name].size for name in several)
        if cells > MOST_CELLS:
            raise InputError(
                f"rule {text!r}: its columns have {cells:,} cells together, more than "
                f"{MOST_CELLS:,}. Declare wider bins."
            )

    def never(self) -> dict[str, list[str]]:
        """Return the labels, by column, that no row can have."""
        possible = possible_codes(self.cells, self._sizes) or {}
        found = {}
        for name, codes in possible.items():
            labels = self.columns[name].labels_of_codes() if not codes.all() else ()
            if labels:
                found[name] = [labels[k] for k in np.flatnonzero(~codes)]
        return found


def _check_determined(rule: Rule, column: ColumnBase) -> None:
    """Refuse a rule that determines a column whose codes have several values."""
    low, high = column.ends(np.arange(column.num_values))
    days = DAY if column.by_day else 1
    if not (low // days == high // days).all():
        raise InputError(
            f"rule {rule.text!r}: {column.name!r} is determined but has bins. Declare each of its "
            "values."
        )


def _computation(meaning: Condition, columns: Columns) -> Computation | None:
    equation = meaning.equation()
    if equation is None:
        return None
    left, right = equation
    name = str(left.column_name)
    if not columns[name].measured or name in right.columns():
        return None
    return Computation(columns[name], right, left.unit)


def _in_turn(found: Mapping[str, Computation]) -> Iterator[tuple[str, Computation]]:
    """Yield each computation after those that it needs; there are no circles."""
    left = dict(found)
    while left:
        ready = [n for n, c in left.items() if not any(s in left for s in c.source.columns())]
        for name in ready:
            yield name, left.pop(name)


def possible_codes(
    several: Sequence[AllowedCells], sizes: Mapping[str, int]
) -> dict[str, Mask] | None:
    """Return the codes that are consistent with each of several rules; None if a column has none.

    A code goes when all cells with it have a code that went (arc consistency, Mackworth 1977).
    """
    left: dict[str, Mask] = {
        name: np.ones(sizes[name], dtype=np.bool_) for cells in several for name in cells.names
    }
    waiting = list(several)
    while waiting:
        cells = waiting.pop()
        allowed = cells.allowed
        for axis, name in enumerate(cells.names):
            shape = [-1 if k == axis else 1 for k in range(allowed.ndim)]
            allowed = allowed & left[name].reshape(shape)
        for axis, name in enumerate(cells.names):
            rest = tuple(k for k in range(allowed.ndim) if k != axis)
            kept = np.asarray(allowed.any(axis=rest))
            if not kept.any():
                return None
            if (kept != left[name]).any():
                left[name] = kept
                waiting += [c for c in several if c is not cells and name in c.names]
    return left


def find_row(several: Sequence[AllowedCells], sizes: Mapping[str, int]) -> dict[str, int] | None:
    """Return codes of the columns that meet all rules, or None if there are none.

    If ``MOST_TRIED`` partial rows do not decide it, return the first codes that arc consistency
    leaves.
    """
    possible = possible_codes(several, sizes)
    if possible is None:
        return None
    order = sorted(possible, key=lambda name: int(possible[name].sum()))
    tries = islice(iter(int, 1), MOST_TRIED)

    def extended(row: dict[str, int]) -> dict[str, int] | None:
        if len(row) == len(order):
            return row
        name = order[len(row)]
        for code in np.flatnonzero(possible[name]).tolist():
            if next(tries, None) is None:
                return {n: int(np.flatnonzero(possible[n])[0]) for n in order}
            wider = {**row, name: code}
            if all(_fits(cells, wider) for cells in several if name in cells.names):
                found = extended(wider)
                if found is not None:
                    return found
        return None

    return extended({})


def _fits(cells: AllowedCells, row: Mapping[str, int]) -> bool:
    """Return whether a partial row is part of an allowed cell."""
    place = tuple(row.get(name, slice(None)) for name in cells.names)
    return bool(np.any(cells.allowed[place]))


def components(several: Iterable[Sequence[str]]) -> list[frozenset[str]]:
    """Return the sets of columns that are linked by some of them."""
    found: list[frozenset[str]] = []
    for names in several:
        touched = [part for part in found if part & set(names)]
        found = [part for part in found if part not in touched]
        found.append(frozenset(names).union(*touched))
    return found
