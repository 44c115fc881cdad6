"""Samples of a release: all rows, or rows that meet a condition."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adaptive_qs.arguments import shown
from adaptive_qs.errors import InputError, SchemaError
from adaptive_qs.generate.check import CheckedPages, Gap
from adaptive_qs.generate.shape import Copula
from adaptive_qs.pages.words import counted, join_first
from adaptive_qs.table.cells import normalise
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import decode, read_table
from adaptive_qs.table.files import STAMP_KEY
from adaptive_qs.table.generated import with_generated
from adaptive_qs.table.schema import Schema

if TYPE_CHECKING:
    from adaptive_qs.cliques import Array, Rows
    from adaptive_qs.generate.chains import Chances
    from adaptive_qs.table.columns.base import ColumnBase, Drawer
    from adaptive_qs.table.conditions import Cases, Condition, Mask

DECODED_ROWS, DECODED_TEXT = 2**16, 2**27
"""Rows whose values are in memory at a time while a table is written; fewer where the longest texts
of all columns would be more characters."""
MOST_NAMED = 5
"""Values that a warning names."""


@dataclass(frozen=True)
class Contradiction:
    """A marginal in which a table is further from its release than chance allows.

    Attributes:
        columns: names.
        cell: labels of the worst cell, one for each column.
        measured: its count in the release (rows).
        drawn: its count in the table, scaled to the number of rows of the release (rows).
        standard_errors: distance of the two, in standard errors.
    """

    columns: tuple[str, ...]
    cell: tuple[str, ...]
    measured: float
    drawn: float
    standard_errors: float

    @classmethod
    def from_gap(cls, gap: Gap, pages: CheckedPages, schema: Schema) -> Contradiction:
        """Name the columns and the labels of a cell that was found by the check of pages."""
        domain, labels = pages.check.domain, []
        for position, index in zip(gap.clique, gap.cell):
            column = domain.columns((position,))[0]
            texts = schema.columns[column].labels_of_codes()
            codes = [index]
            if position != column:
                codes = np.flatnonzero(domain.groups(column, position).of == index).tolist()
            labels.append(join_first([texts[code] for code in codes], MOST_NAMED))
        numbers = (round(number, 1) + 0.0 for number in (gap.measured, gap.drawn, gap.errors))
        return cls(domain.clique_names(gap.clique), tuple(labels), *numbers)

    def __str__(self) -> str:
        cell = " and ".join(f"{name} = {label}" for name, label in zip(self.columns, self.cell))
        return (
            f"{cell} has {counted(round(self.drawn), 'row')} where {round(self.measured):,} were "
            f"measured ({self.standard_errors:.1f} standard errors)"
        )


def contradictions(pages: CheckedPages, schema: Schema) -> tuple[Contradiction, ...]:
    """Return what a check found in the pages drawn so far: columns first, the worst first."""
    found = sorted(pages.gaps.values(), key=lambda gap: (len(gap.clique) > 1, -gap.errors))
    return tuple(Contradiction.from_gap(gap, pages, schema) for gap in found)


def warn_of_contradictions(found: Sequence[Contradiction], table: str = "table") -> tuple[str, ...]:
    """Return a warning that names the first cells, or none."""
    if not found:
        return ()
    return (
        f"the {table} contradicts the release by more than chance allows: "
        f"{join_first([*map(str, found)], 3)}: do not use these counts, and draw "
        "it with another seed, or check the rules of the schema",
    )


@dataclass(frozen=True, eq=False)
class SampleRequest:
    """A request for rows that meet a condition.

    Attributes:
        text: the condition as the caller wrote it.
        where: the parsed condition.
        boxes: the boxes of codes in which rows can meet it.
    """

    text: str
    where: Where
    boxes: Sequence[Chances]

    @classmethod
    def of(
        cls, text: str, schema: Schema, ruled: Sequence[tuple[tuple[str, ...], Mask]] = ()
    ) -> SampleRequest:
        """Parse a condition.

        ``ruled`` has sets of columns, each with the cells that the schema's rules allow. Raise
        InputError if the condition is wrong, leaves no row, or has more than ``MOST_BOXES`` parts.
        """
        from adaptive_qs.generate.linked import MOST_BOXES

        where = Where.from_text(text, schema.columns)
        boxes = [box for box in where.boxes if _is_possible(box, ruled, schema)]
        if not boxes:
            raise InputError(
                f"no row can meet the condition {shown(text)} and the rules of the schema: "
                "ask for another one"
            )
        if len(boxes) > MOST_BOXES:
            raise InputError(
                f"the condition has {counted(len(boxes), 'part')}, and {MOST_BOXES} is the most: "
                "ask for a simpler one"
            )
        return cls(text, where, boxes)

    def warnings(self, share: float, total: float) -> tuple[str, ...]:
        """Return a warning if this share of ``total`` rows is less than one row."""
        if share * total >= 1:
            return ()
        return (
            f"{self.text}: less than one row of the {total:,.0f} that the release stands for: the "
            "rest of such rows is what the model supposes, not what was measured",
        )


def _is_possible(
    box: Chances, ruled: Sequence[tuple[tuple[str, ...], Mask]], schema: Schema
) -> bool:
    if not ruled:
        return True
    from adaptive_qs.table.rules import AllowedCells, find_row

    names, sizes = schema.names, schema.domain().sizes
    requested = [((names[i],), chance > 0) for i, chance in box.items()]
    cells = [AllowedCells(columns, allowed, "") for columns, allowed in (*ruled, *requested)]
    return find_row(cells, dict(zip(names, sizes))) is not None


@dataclass(frozen=True, eq=False)
class Drawing:
    """A table that is drawn as it is requested, once.

    Attributes:
        schema: of the table.
        rows: its number of rows.
        parts: the rows, in codes, checked as they are drawn.
        seed: of the values.
        stamp: that the pages carry.
        drawers: by column, how values inside bins are drawn; evenly where there is none.
        where: the condition that the values meet.
        share: of all rows of the model, those that may be drawn; 1 without a condition.
        warnings: what the release says against the table.
        given: number of leading columns of the parts that are not of the table.
        described: of all columns of the parts, where some are not of the table.
    """

    schema: Schema
    rows: int
    parts: CheckedPages
    seed: int
    stamp: str
    drawers: Mapping[str, Drawer] = field(default_factory=dict)
    where: Where | None = None
    share: float = 1.0
    warnings: tuple[str, ...] = ()
    given: int = 0
    described: Schema | None = None

    @property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """Where the rows drawn so far contradict the release; complete once all are drawn."""
        return contradictions(self.parts, self.described or self.schema)

    def coded(self) -> CodedTable:
        """All rows in codes."""
        if self.schema.rules or self.schema.parts:  # which hold between values
            return read_table(self.table(), self.schema)
        return CodedTable.from_parts(self.schema.domain(), self.parts, self.rows)

    def table(self) -> pa.Table:
        """Return all rows with values of the declared types; its metadata carries the stamp."""
        return pa.concat_tables(self.pages())

    def pages(self, keep: Callable[[Rows], None] | None = None) -> Iterator[pa.Table]:
        """Yield the rows with values of the declared types, page by page.

        Then ``keep`` is called with the codes of each page, also of given columns.
        """
        stamp, slices, done = {STAMP_KEY: self.stamp}, count(), 0
        size = _decoded_rows(self.schema)
        purpose = 2 if self.given else 1  # of the random numbers
        for number, page in enumerate(self.parts, 1):
            own = page[:, self.given :]
            copula = Copula.of(own, self.schema.domain() if self.drawers else None)
            written = own.copy() if self.schema.rules else own
            for first in range(0, len(page), size):
                rng = np.random.default_rng((self.seed, purpose, next(slices)))
                rows = slice(first, first + size)
                values = self._values(own[rows], rng, written[rows], copula)
                values = with_generated(values, self.schema.generated, done, (self.seed, done))
                done += len(values)
                yield values.replace_schema_metadata(stamp)
            final = page
            if (written != own).any():
                final = np.concatenate([page[:, : self.given], written], axis=1)
                self.parts.check_written(final, number)
            if keep is not None:
                keep(final)

    def _values(
        self, rows: Rows, rng: np.random.Generator, written: Rows, copula: Copula
    ) -> pa.Table:
        """Return values that meet the condition and the rules; put their codes into ``written``."""
        names = self.schema.names
        scores = copula.places(rows, [*map(names.index, self.drawers)], rng.spawn(1)[0])
        places = {names[i]: score for i, score in scores.items()}
        if self.where is None:
            return self._values_in_box(rows, rng, written, self.drawers, places)
        codes = CodedTable.from_parts(self.schema.domain(), [rows], len(rows))
        boxes = self.where.choose_boxes(codes, rng)
        parts, order = [], []
        for box in np.unique(boxes).tolist():
            chosen = np.flatnonzero(boxes == box)
            drawers = self.where.narrow(box, self.drawers)
            final = written[chosen]
            own = {name: score[chosen] for name, score in places.items()}
            parts.append(self._values_in_box(rows[chosen], rng, final, drawers, own))
            written[chosen] = final
            order.append(chosen)
        if len(parts) == 1:
            return parts[0]
        return pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(order))))

    def _values_in_box(
        self,
        rows: Rows,
        rng: np.random.Generator,
        written: Rows,
        drawers: Mapping[str, Drawer],
        places: Mapping[str, Array],
    ) -> pa.Table:
        codes = CodedTable.from_parts(self.schema.domain(), [rows], len(rows))
        ruleset = self.schema.ruleset
        if ruleset is None and not (self.where and self.schema.parts):
            return decode(codes, self.schema, rng, drawers, places)
        from adaptive_qs.table.rule_sampling import drawn_under_rules
        from adaptive_qs.table.rules import Ruleset

        ruleset = ruleset or Ruleset.of(self.schema.own_columns, [])
        columns = dict(zip(self.schema.names, codes.columns))
        if self.where is not None:
            ruleset = ruleset.along_with(self.where.condition)
        try:
            parts = self.schema.parts
            drawn, final_codes = drawn_under_rules(columns, ruleset, rng, drawers, places, parts)
        except SchemaError:
            if self.where is None:
                raise
            raise InputError(
                "no row was found that meets the condition and the rules of the schema: ask for "
                "another one"
            ) from None
        for place, name in enumerate(self.schema.names):
            written[:, place] = final_codes.get(name, codes.columns[place])
            if part := self.schema.column(name).part_of:  # as it can be read from what is written
                written[:, place] = self.schema.column(name).encode(normalise(drawn[part[0]]))
        return pa.table(drawn)


def _decoded_rows(schema: Schema) -> int:
    """Return how many rows get values at a time."""
    listed: list[Sequence[Any]] = [getattr(c, "values", ()) for c in schema.written.values()]
    longest = sum(max(map(len, map(str, values)), default=0) for values in listed)
    return max(min(DECODED_ROWS, DECODED_TEXT // max(longest, 1)), 1)


# Rows that meet a condition.
# A condition compares columns with constants. Two values of a column that lie on the same side of
# every constant, or that are both missing, make it true together: they are of one *case*. All
# values of a code are of one case, except in a bin that a constant cuts: there, each case has a
# share of the values. A condition is then a table of the cases of its columns, true or not in each
# cell, and the true cells are put together to boxes. In a box the columns are independent.


@dataclass(frozen=True, eq=False)
class Where:
    """The rows of a schema that meet a condition."""

    condition: Condition
    places: tuple[int, ...]  # positions of the columns that it names
    cases: tuple[Cases, ...]  # what it distinguishes of each
    met: Mask  # whether it is true, by the cases of these columns: one axis for each

    @classmethod
    def from_text(cls, text: str, columns: Sequence[ColumnBase]) -> Where:
        """Return the rows for which a condition is true; it is not true if it is unknown.

        Raise InputError if the text is no condition on these columns, compares two of them,
        distinguishes too much, or is true for no row.
        """
        from adaptive_qs.table.conditions import Cases  # few tables need these
        from adaptive_qs.table.grammar import parse_condition

        by_name = {column.name: column for column in columns}
        condition = parse_condition(text, by_name)
        names = condition.columns()
        limits = list(condition.limits())
        found = [
            Cases.from_limits(by_name[name], [limit for n, limit in limits if n == name])
            for name in names
        ]
        shape = [len(values.low) for _, values in found]
        most = 2**20
        if math.prod(shape) > most:
            raise InputError(
                f"condition {shown(text)} distinguishes {math.prod(shape):,} kinds of rows, and "
                f"{most:,} is the most: ask for less at a time"
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
            has = "".join(f"; {name} has {by_name[name].summary}" for name in names)
            raise InputError(f"no row can meet the condition {shown(text)}{has}")
        places = {column.name: place for place, column in enumerate(columns)}
        cases = tuple(cases for cases, _ in found)
        return cls(condition, tuple(places[name] for name in names), cases, true)._simplify()

    def _simplify(self) -> Where:
        """Merge cases that no combination with other columns distinguishes."""
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

    def narrow(self, box: int, drawers: Mapping[str, Drawer]) -> Mapping[str, Drawer]:
        """Return drawers that obey the condition for columns that it cuts in a box."""
        narrowed = dict(drawers)
        for cases, inside in zip(self.cases, self._members[box]):
            name = cases.column.name
            drawer = cases.narrow(inside, drawers.get(name))
            if drawer is not None:
                narrowed[name] = drawer
        return narrowed


def _boxes(met: Mask) -> Iterator[tuple[Mask, ...]]:
    """Yield disjoint boxes that make up the true cells of a table.

    A box is a mask along every axis. Equal slices along the first axis share their boxes.
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
