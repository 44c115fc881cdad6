"""Rows that meet a condition: which codes they can have, and values inside bins that it cuts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adaptive_qs.arguments import shown
from adaptive_qs.errors import InputError
from adaptive_qs.table.cells import normalise
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.conditions import Condition, Values, parse_condition, values_of
from adaptive_qs.table.schema import Schema

# A condition compares columns with constants. So of two values of a column that lie on the same
# side of every constant, or are missing both, it says the same: they are of one *case*. All values
# of a code are of one case, but in a bin that a constant cuts through; there, values are drawn to
# see how many are of which. A condition is then a table of the cases of its columns, true or not in
# each cell, and the true cells are put together to boxes.

MOST_CASES = 2**20
"""Cells of the table of a condition."""
DRAWS, MOST_DRAWS = 2**16, 2**22
"""Values that are drawn of a bin that is cut, and of all such bins of a column together."""
ROUNDS = 8
"""How often values are drawn anew before those drawn at first are used again."""

Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]
Chances = Mapping[int, NDArray[np.float64]]
"""By the place of a column, the chance with which a value of each of its codes is taken: shape
(codes,). Columns that are left out are taken with every value."""

_KNOWN, _OTHER, _MISSING = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Cases:
    """The values of a column, as a condition tells them apart.

    Attributes:
        column: as declared.
        limits: constants that it is compared with.
        signs: of each side of these that values lie on: shape (sides, limits + 1); see ``_signs``.
        case_of: the case of each of these.
        chances: with which chance a value of each code is of each case: shape (cases, codes).
        drawn: values of bins that are cut, and the case of each, by code.
    """

    column: ColumnBase
    limits: NDArray[np.float64]
    signs: NDArray[np.int8]
    case_of: NDArray[np.intp]
    chances: NDArray[np.float64]
    drawn: Mapping[int, tuple[pa.Array, NDArray[np.intp]]]

    @cached_property
    def cut(self) -> Mask:
        """Which codes have values of several cases."""
        return (self.chances > 0).sum(axis=0) > 1

    def merged(self, case_of: NDArray[np.intp]) -> Cases:
        """With cases put together.

        Args:
            case_of: the new case of each.
        """
        chances = np.zeros((case_of.max() + 1, self.chances.shape[1]))
        np.add.at(chances, case_of, self.chances)
        drawn = {code: (values, case_of[cases]) for code, (values, cases) in self.drawn.items()}
        return Cases(
            self.column, self.limits, self.signs, case_of[self.case_of], chances, drawn
        )  # fmt: skip

    def values(self, code: int, case: int, count: int, rng: np.random.Generator) -> pa.Array:
        """So many values of a code that are of a case: anew, as far as ``ROUNDS`` go."""
        made: list[pa.Array] = []
        wanted = count
        for _ in range(ROUNDS):
            values = self.column.decode(np.full(max(2 * wanted, 256), code), rng)
            made.append(values.filter(pa.array(self._cases_of(values) == case)))
            wanted -= len(made[-1])
            if wanted <= 0:
                return pa.concat_arrays(made).slice(0, count)
        values, cases = self.drawn[code]
        kept = values.filter(pa.array(cases == case))
        again = kept.take(pa.array(rng.integers(len(kept), size=wanted)))
        return pa.concat_arrays([*made, again])

    def _cases_of(self, values: pa.Array) -> NDArray[np.intp]:
        """The case of values of bins; -1 where none was met before."""
        places = self.column.amounts(normalise(values))
        return np.append(self.case_of, -1)[_matched(self.signs, _signs(places, self.limits))]


def _signs(places: NDArray, limits: NDArray[np.float64], kinds: NDArray | int = _KNOWN) -> NDArray:
    """On which side of every limit values lie (-1, 0 or 1), and whether they are known (0), not a
    listed value (1) or missing (2): shape (values, limits + 1)."""
    signs = np.empty((len(places), len(limits) + 1), dtype=np.int8)
    signs[:, :-1] = np.sign(np.subtract.outer(places, limits))
    signs[:, -1] = kinds
    signs[signs[:, -1] == _MISSING, :-1] = 0
    return signs


def _matched(known: NDArray[np.int8], signs: NDArray[np.int8]) -> NDArray[np.intp]:
    """Which of the rows known each row equals; -1 for none."""
    number = {row.tobytes(): k for k, row in enumerate(known)}
    distinct, which = np.unique(signs, axis=0, return_inverse=True)
    found = np.array([number.get(row.tobytes(), -1) for row in distinct], dtype=np.intp)
    return found[which.reshape(-1)]


def cases_of(
    column: ColumnBase, limits: Sequence[float], rng: np.random.Generator
) -> tuple[Cases, Values]:
    """What comparisons with these constants tell apart, and which values each case has.

    Args:
        column: as declared.
        limits: the constants.
        rng: draws values of bins that are cut.
    """
    constants = np.unique(np.array(limits, dtype=np.float64))
    codes = np.arange(column.size)
    values = values_of(column, codes)
    kinds = np.select([values.missing, ~values.known], [_MISSING, _OTHER], _KNOWN)
    low, high = (_signs(ends, constants, kinds) for ends in (values.low, values.high))
    cut = np.flatnonzero((low != high).any(axis=1))
    draws = int(np.clip(MOST_DRAWS // max(len(cut), 1), 256, DRAWS))
    drawn = {int(code): column.decode(np.full(draws, code), rng) for code in cut}
    places = {code: column.amounts(normalise(made)) for code, made in drawn.items()}
    sides = {code: _signs(at, constants) for code, at in places.items()}
    whole = np.setdiff1d(codes, cut)
    signs = np.unique(np.concatenate([low[whole], *sides.values()]), axis=0)
    chances = np.zeros((len(signs), column.size))
    chances[_matched(signs, low[whole]), whole] = 1
    pools = {code: (made, _matched(signs, sides[code])) for code, made in drawn.items()}
    least, most = np.full(len(signs), np.inf), np.full(len(signs), -np.inf)
    np.minimum.at(least, _matched(signs, low[whole]), values.low[whole])
    np.maximum.at(most, _matched(signs, low[whole]), values.high[whole])
    for code, (_, side) in pools.items():
        chances[:, code] = np.bincount(side, minlength=len(signs)) / draws
        np.minimum.at(least, side, places[code])
        np.maximum.at(most, side, places[code])
    kind, named = signs[:, -1], np.ones(len(signs), dtype=np.bool_)
    named[_matched(signs, low[whole])] = values.named[whole]
    found = Cases(column, constants, signs, np.arange(len(signs)), chances, pools)
    return found, Values(least, most, kind == _KNOWN, named, kind == _MISSING)


@dataclass(frozen=True, eq=False)
class Where:
    """The rows of a schema that meet a condition.

    Attributes:
        condition: what it says.
        places: of the columns that it names.
        cases: what it tells apart of each.
        met: whether it is true, by the cases of these columns: one axis for each.
    """

    condition: Condition
    places: tuple[int, ...]
    cases: tuple[Cases, ...]
    met: Mask

    @classmethod
    def of(cls, text: str, schema: Schema, seed: int = 0) -> Where:
        """The rows that meet a condition: those of which it is true, not those where it is unknown.

        Args:
            text: the condition.
            schema: all of whose columns are declared or learnt.
            seed: of values of bins that the condition cuts through.

        Raises:
            InputError: the text is no condition on these columns, compares two of them, tells
                apart too much, or is true of no row.
        """
        condition = parse_condition(text, {column.name: column for column in schema.columns})
        names = condition.columns()
        rng = np.random.default_rng((seed, 2))
        limits = list(condition.limits())
        told = [
            cases_of(schema.column(name), [limit for n, limit in limits if n == name], rng)
            for name in names
        ]
        shape = [len(cases.chances) for cases, _ in told]
        if math.prod(shape) > MOST_CASES:
            raise InputError(
                f"condition {shown(text)} tells apart {math.prod(shape):,} kinds of rows, and "
                f"{MOST_CASES:,} is the most: ask for less at a time"
            )
        row = {
            name: values.reshaped(_along(axis, len(shape)))
            for axis, (name, (_, values)) in enumerate(zip(names, told))
        }
        true, false, unknown = (np.broadcast_to(may, shape) for may in condition.outcome(row))
        if (true.astype(np.int8) + false + unknown != 1).any():
            raise InputError(
                f"condition {shown(text)} compares columns with each other: compare each with "
                "values"
            )
        if not true.any():
            has = "".join(f"; {name} has {schema.column(name).summary}" for name in names)
            raise InputError(f"no row can meet the condition {shown(text)}{has}")
        places = {name: place for place, name in enumerate(schema.names)}
        cases = tuple(cases for cases, _ in told)
        found = cls(condition, tuple(places[name] for name in names), cases, true)
        return found._simplified()

    def _simplified(self) -> Where:
        """With cases put together that no combination with others tells apart."""
        met, cases = self.met, []
        for axis, each in enumerate(self.cases):
            slices = np.moveaxis(met, axis, 0)
            _, first, case_of = np.unique(
                slices.reshape(len(slices), -1), axis=0, return_index=True, return_inverse=True
            )
            cases.append(each.merged(case_of.reshape(-1)))
            met = np.take(met, first, axis=axis)
        return replace(self, cases=tuple(cases), met=met)

    @cached_property
    def boxes(self) -> tuple[Chances, ...]:
        """Boxes of codes that make up the rows; none of these is in two of them."""
        return tuple(
            {
                place: cases.chances[inside].sum(axis=0)
                for place, cases, inside in zip(self.places, self.cases, members)
                if not inside.all()
            }
            for members in _boxes(self.met)
        )

    def corrected(self, table: pa.Table, codes: CodedTable, rng: np.random.Generator) -> pa.Table:
        """Decoded rows, with other values in those bins that the condition cuts through.

        These are drawn again, those of a row together: from their distribution in their bins, given
        that the condition is true.

        Args:
            table: the rows, decoded.
            codes: the same rows, whose codes can meet the condition.
            rng: of the draws.
        """
        if not any(cases.cut.any() for cases in self.cases):
            return table
        found = np.stack([codes.columns[place] for place in self.places], axis=1).astype(np.int64)
        cut = np.stack([cases.cut[c] for cases, c in zip(self.cases, found.T)], axis=1)
        rows = np.flatnonzero(cut.any(axis=1))
        chosen = self._drawn_cases(found[rows], cut[rows], rng)
        for axis, (place, cases) in enumerate(zip(self.places, self.cases)):
            again = cut[rows, axis]
            if again.any():
                values = _values(cases, found[rows[again], axis], chosen[again, axis], rng)
                indices = np.arange(len(table))
                indices[rows[again]] = len(table) + np.arange(len(values))
                column = table.column(place).combine_chunks()
                both = pa.concat_arrays([column, values])
                table = table.set_column(place, table.field(place), both.take(pa.array(indices)))
        return table

    def _drawn_cases(self, codes: Codes, cut: Mask, rng: np.random.Generator) -> NDArray[np.intp]:
        """A case for each of these codes, drawn for each row given that the condition is true.

        Codes of one case are alike, so that few combinations are left.
        """
        whole = np.stack([c.chances.argmax(axis=0)[k] for c, k in zip(self.cases, codes.T)], axis=1)
        alike, which = np.unique(np.where(cut, codes, -1 - whole), axis=0, return_inverse=True)
        chosen = np.empty(codes.shape, dtype=np.intp)
        for number in range(len(alike)):
            rows = np.flatnonzero(which.reshape(-1) == number)
            weights = self.met.astype(np.float64)
            for axis, cases in enumerate(self.cases):
                chances = cases.chances[:, codes[rows[0], axis]]
                weights = weights * chances.reshape(_along(axis, len(self.cases)))
            if not weights.any():
                raise RuntimeError("a row has codes that cannot meet its condition")
            cells = rng.choice(weights.size, size=len(rows), p=weights.ravel() / weights.sum())
            chosen[rows] = np.stack(np.unravel_index(cells, weights.shape), axis=1)
        return chosen


def _along(axis: int, axes: int) -> tuple[int, ...]:
    """The shape of an array along one of some axes."""
    return tuple(-1 if other == axis else 1 for other in range(axes))


def _values(
    cases: Cases, codes: Codes, wanted: NDArray[np.intp], rng: np.random.Generator
) -> pa.Array:
    """A value for each code, of the case wanted with it."""
    pairs, which = np.unique(np.stack([codes, wanted], axis=1), axis=0, return_inverse=True)
    order = np.argsort(which.reshape(-1), kind="stable")
    made = [
        cases.values(int(code), int(case), int(count), rng)
        for (code, case), count in zip(pairs, np.bincount(which.reshape(-1)))
    ]
    return pa.concat_arrays(made).take(pa.array(np.argsort(order)))


def _boxes(met: Mask) -> Iterator[tuple[Mask, ...]]:
    """Disjoint boxes that make up the true cells of a table: which places along every axis each
    takes. Places along the first axis that look alike share their boxes."""
    if not met.any():
        return
    if met.all():
        yield tuple(np.ones(n, dtype=np.bool_) for n in met.shape)
        return
    alike, which = np.unique(met.reshape(len(met), -1), axis=0, return_inverse=True)
    for number, cells in enumerate(alike):
        for rest in _boxes(cells.reshape(met.shape[1:])):
            yield (which.reshape(-1) == number, *rest)
