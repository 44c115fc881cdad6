"""Rows that meet a condition: which codes they can have, and values inside bins that it cuts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adaptive_qs.arguments import shown
from adaptive_qs.errors import InputError
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.conditions import Condition, Values, partition_values
from adaptive_qs.table.grammar import parse_condition
from adaptive_qs.table.schema import Schema

if TYPE_CHECKING:
    from adaptive_qs.table.columns.base import Drawer

# A condition compares columns with constants. Two values of a column that lie on the same side of
# every constant, or that are both missing, make it true together: they are of one *case*. All
# values of a code are of one case, except in a bin that a constant cuts: there, each case has a
# share of the values. A condition is then a table of the cases of its columns, true or not in each
# cell, and the true cells are put together to boxes. In a box the columns are independent.

MOST_CASES = 2**20
"""Cells of the table of a condition."""

Mask = NDArray[np.bool_]
Chances = Mapping[int, NDArray[np.float64]]
"""By the place of a column, the chance that a value of each of its codes is taken: shape (codes,).
Columns that are absent are taken with every value."""


@dataclass(frozen=True, eq=False)
class Cases:
    """The values of a column, as a condition tells them apart.

    Attributes:
        column: as declared.
        pieces: intervals of values that no constant cuts.
        code_of: the code of each piece, ascending.
        share: the part of the values of its code in each piece.
        case_of: the case of each piece.
    """

    column: ColumnBase
    pieces: Values
    code_of: NDArray[np.integer]
    share: NDArray[np.float64]
    case_of: NDArray[np.intp]

    @classmethod
    def from_limits(cls, column: ColumnBase, limits: Iterable[float]) -> tuple[Cases, Values]:
        """Return what comparisons with constants tell apart, and the values of each case."""
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
        """Return the part of the values of each code that is of some cases: shape (codes,)."""
        taken = inside[self.case_of]
        size = self.column.size
        return np.bincount(self.code_of[taken], self.share[taken], size).astype(np.float64)

    def narrow(self, inside: Mask, drawer: Drawer | None) -> Drawer | None:
        """Return what draws values of some cases only, and of other codes as a drawer does."""
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
    def from_text(cls, text: str, schema: Schema) -> Where:
        """Return the rows of which a condition is true, not those of which it is unknown.

        Args:
            text: the condition.
            schema: all of whose columns are declared or learnt.

        Raises:
            InputError: the text is no condition on these columns, compares two of them, tells
                apart too much, or is true of no row.
        """
        condition = parse_condition(text, {column.name: column for column in schema.columns})
        names = condition.columns()
        limits = list(condition.limits())
        found = [
            Cases.from_limits(schema.column(name), [limit for n, limit in limits if n == name])
            for name in names
        ]
        shape = [len(values.low) for _, values in found]
        if math.prod(shape) > MOST_CASES:
            raise InputError(
                f"condition {shown(text)} tells apart {math.prod(shape):,} kinds of rows, and "
                f"{MOST_CASES:,} is the most: ask for less at a time"
            )
        row = {
            name: values.reshaped(tuple(-1 if k == axis else 1 for k in range(len(shape))))
            for axis, (name, (_, values)) in enumerate(zip(names, found))
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
        cases = tuple(cases for cases, _ in found)
        return cls(condition, tuple(places[name] for name in names), cases, true)._simplify()

    def _simplify(self) -> Where:
        """Return the same with cases put together that no combination with others tells apart."""
        met, cases = self.met, []
        for axis, each in enumerate(self.cases):
            slices = np.moveaxis(met, axis, 0)
            _, first, case_of = np.unique(
                slices.reshape(len(slices), -1), axis=0, return_index=True, return_inverse=True
            )
            cases.append(replace(each, case_of=case_of.reshape(-1)[each.case_of]))
            met = np.take(met, first, axis=axis)
        return replace(self, cases=tuple(cases), met=met)

    @cached_property
    def _members(self) -> list[tuple[Mask, ...]]:
        return list(_boxes(self.met))

    @cached_property
    def boxes(self) -> tuple[Chances, ...]:
        """Disjoint boxes of codes that make up the rows."""
        return tuple(
            {
                place: cases.chances(inside)
                for place, cases, inside in zip(self.places, self.cases, members)
                if not inside.all()
            }
            for members in self._members
        )

    def choose_boxes(self, codes: CodedTable, rng: np.random.Generator) -> NDArray[np.intp]:
        """Draw a box for each row, given its codes and that it meets the condition."""
        if len(self.boxes) == 1:
            return np.zeros(codes.num_rows, dtype=np.intp)
        weights = np.ones((len(self.boxes), codes.num_rows))
        for weight, box in zip(weights, self.boxes):
            for place, chance in box.items():
                weight *= chance[codes.columns[place]]
        running = np.cumsum(weights, axis=0)
        if not running[-1].all():
            raise RuntimeError("a row has codes that cannot meet its condition")
        at = rng.random(codes.num_rows) * running[-1]
        return np.minimum((running <= at).sum(axis=0), len(weights) - 1)

    def narrow(
        self, box: int, schema: Schema, drawers: Mapping[str, Drawer]
    ) -> Mapping[str, Drawer]:
        """Return the drawers with others for columns that the condition cuts in a box."""
        narrowed = dict(drawers)
        for place, cases, inside in zip(self.places, self.cases, self._members[box]):
            name = schema.names[place]
            drawer = cases.narrow(inside, drawers.get(name))
            if drawer is not None:
                narrowed[name] = drawer
        return narrowed


def _boxes(met: Mask) -> Iterator[tuple[Mask, ...]]:
    """Yield disjoint boxes that make up the true cells of a table.

    A box is the places that it takes along every axis. Places along the first axis that look alike
    share their boxes.
    """
    if not met.any():
        return
    if met.all():
        yield tuple(np.ones(n, dtype=np.bool_) for n in met.shape)
        return
    alike, which = np.unique(met.reshape(len(met), -1), axis=0, return_inverse=True)
    for number, cells in enumerate(alike):
        for rest in _boxes(cells.reshape(met.shape[1:])):
            yield (which.reshape(-1) == number, *rest)
