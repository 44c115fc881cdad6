"""Values for codes under rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import copy
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adaptive_qs.errors import SchemaError
from adaptive_qs.table.bin_density import sort_inside
from adaptive_qs.table.cells import normalise
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.columns.part import PARTS, find_parts
from adaptive_qs.table.conditions import DAY, NEAR, Values, read_values
from adaptive_qs.table.rules import Computation, Ruleset, components, find_row

# A column that an equation computes gets what follows from the others, which has to lie in its bin.
# Most rows keep what is drawn for their codes. Where a rule is broken the values are drawn again,
# which is the distribution inside the bins given the rule. Where the rule leaves so little of a bin
# that this finds nothing, an equation is solved for one of its columns, and at last values at the
# ends of bins and limits, and values of other columns, are tried: some of them meet comparisons and
# sums wherever any do. Codes that no values meet, which rules can allow each alone and not
# together, are replaced by codes of another row.

MOST_COPIED = 1024
"""Most copies of rows that are changed at a time where few rows are left."""
Indices = NDArray[np.intp]
Drawer = Callable[[NDArray[Any], np.random.Generator], pa.Array]


class _Drawn:
    """Values drawn for one column, and for each row the index of its value."""

    def __init__(
        self,
        column: ColumnBase,
        codes: NDArray[np.integer],
        rng: np.random.Generator,
        drawer: Drawer | None = None,
        places: NDArray[np.float64] | None = None,
    ):
        self.column = column
        self._drawer = drawer
        self.codes = codes.astype(np.int64)
        self.own_parts: dict[str, NDArray[np.integer]] = {}
        self.parts: dict[str, NDArray[np.integer]] = {}
        self.loose = False
        if column.measured:
            low, high = self._bins(np.arange(column.num_values))
            self.loose = bool((low < high).any())
        first = sort_inside(column, self.codes, column.decode(self.codes, rng, drawer), places)
        self._pool = [first]
        self._size = len(first)
        self._place = np.arange(len(first))
        self._amounts = self._find_amounts(first)
        self.home = np.arange(len(first))  # where each row has its own parts from
        self.number = len(first)

    def _bins(self, codes: NDArray[np.int64]) -> tuple[NDArray, NDArray]:
        low, high = self.column.ends(codes)
        return (low // DAY, high // DAY) if self.column.by_day else (low, high)

    def _find_amounts(self, values: pa.Array) -> NDArray[np.float64] | None:
        if not self.column.measured:
            return None
        if values.null_count == len(values):
            return np.full(len(values), np.nan)
        found = normalise(values)
        assert found is not None
        return self.column.amounts(found)

    def amounts(self, rows: Indices) -> NDArray[np.float64]:
        """Return the amounts of some rows of a measured column."""
        assert self._amounts is not None
        return self._amounts[rows]

    def values(self, rows: Indices) -> Values:
        amounts = None if self._amounts is None else self._amounts[rows]
        return read_values(self.column, self.codes[rows], amounts)

    def put(self, rows: Indices, values: pa.Array) -> None:
        self._place[rows] = self._size + np.arange(len(rows))
        self._pool.append(values)
        self._size += len(values)
        amounts = self._find_amounts(values)
        if self._amounts is not None and amounts is not None:
            self._amounts[rows] = amounts

    def redraw(self, rows: Indices, rng: np.random.Generator, in_parts: bool = False) -> None:
        """Draw new values inside the codes of rows.

        With ``in_parts``, dates and times also get the hours and weekdays of these rows.
        """
        values = self.column.decode(self.codes[rows], rng, self._drawer)
        self.put(rows, self._moved(values, rows) if in_parts else values)

    def move(self, parts: Mapping[str, NDArray[np.integer]]) -> None:
        """Move all values to these hours and weekdays (codes by unit)."""
        self.own_parts = dict(parts)
        self.parts = {unit: codes.copy() for unit, codes in parts.items()}
        rows = np.arange(self._size)
        self.put(rows, self._moved(self._pool[0], rows))

    def _moved(self, values: pa.Array, rows: Indices) -> pa.Array:
        source: Any = self.column  # of dates or times
        parts = {unit: codes[rows] for unit, codes in self.parts.items()}
        return source.moved(values, self.codes[rows], parts) if parts else values

    def exchange(self, rows: Indices, others: Indices, units: Collection[str]) -> None:
        """Set rows to their own hours and weekdays; for ``units``, to the ones of other rows."""
        for unit, own in self.own_parts.items():
            self.parts[unit][rows] = own[others if unit in units else self.home[rows]]

    def is_elsewhere(self, rows: Indices) -> NDArray[np.bool_]:
        """Return which rows have values at other hours or weekdays than theirs."""
        amounts, found = self.amounts(rows), np.zeros(len(rows), dtype=np.bool_)
        for unit, codes in self.parts.items():
            known = ~np.isnan(amounts) & (codes[rows] < len(PARTS[unit]))
            at = np.where(known, amounts, 0).astype(np.int64)
            found |= known & (find_parts(at, unit) != codes[rows])
        return found

    @property
    def step(self) -> float:
        """The distance of neighbouring amounts."""
        return (self.column.resolution or 1.0) * (DAY if self.column.by_day else 1)

    def ends(self, rows: Indices) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the least and the greatest amount in the bins of rows, if not missing."""
        codes = self.codes[rows]
        low, high = self.column.ends(np.where(codes < self.column.num_values, codes, 0))
        return low.astype(np.float64), high.astype(np.float64)

    def bring(self, rows: Indices, amounts: NDArray[np.float64]) -> None:
        """Give rows these amounts, moved into their bins; keep the value if the amount is NaN."""
        real = ~np.isnan(amounts) & ~np.isnan(self.amounts(rows))
        rows, low, high = rows[real], *(end[real] for end in self.ends(rows))
        if len(rows):
            self.put(rows, self.column.from_amounts(np.clip(amounts[real], low, high)))

    def take(self, rows: Indices) -> _Drawn:
        """Return copies of rows, which change alone."""
        found = copy(self)
        found._pool, found._size = [self.array(rows)], len(rows)
        found._place = np.arange(len(rows))
        found.codes, found.home = self.codes[rows], self.home[rows]
        found._amounts = None if self._amounts is None else self._amounts[rows]
        found.parts = {unit: codes[rows] for unit, codes in self.parts.items()}
        return found

    def accept(self, rows: Indices, other: _Drawn, chosen: Indices) -> None:
        """Set rows to rows of changed copies."""
        self.put(rows, other.array(chosen))
        for unit, codes in other.parts.items():
            self.parts[unit][rows] = codes[chosen]

    def copy(self, rows: Indices, others: Indices) -> None:
        self._place[rows] = self._place[others]
        self.codes[rows] = self.codes[others]
        if self._amounts is not None:
            self._amounts[rows] = self._amounts[others]

    def array(self, rows: Indices | slice = slice(None)) -> pa.Array:
        return pa.concat_arrays(self._pool).take(pa.array(self._place[rows]))


def drawn_under_rules(
    codes: Mapping[str, NDArray[np.integer]],
    ruleset: Ruleset,
    rng: np.random.Generator,
    drawers: Mapping[str, Drawer] | None = None,
    places: Mapping[str, NDArray[np.float64]] | None = None,
    parts: Mapping[str, Mapping[str, str]] | None = None,
) -> tuple[dict[str, pa.Array], dict[str, NDArray[np.int64]]]:
    """Draw values of all columns such that every row meets all rules; return values and codes.

    ``rng`` draws column by column, with the drawer of the column if there is one, and sorts by the
    ``places`` inside codes and moves them to their ``parts``, then again for rows that break rules.
    A row gets other codes if no values for its own meet the rules. Raises SchemaError if no row
    was found that meets the rules.
    """
    drawn = {
        name: _Drawn(column, codes[name], rng, (drawers or {}).get(name), (places or {}).get(name))
        for name, column in ruleset.columns.items()
    }
    for name, own in (parts or {}).items():
        drawn[name].move({unit: codes[part] for unit, part in own.items()})
    linked = [condition.columns() for _, condition in ruleset.conditions]
    linked += [determination.columns() for _, determination in ruleset.determinations]
    for part in components(linked):
        _Repair({name: drawn[name] for name in drawn if name in part}, ruleset, rng).repair()
    values = {name: each.array() for name, each in drawn.items()}
    return values, {name: each.codes for name, each in drawn.items()}


def check_values(ruleset: Ruleset) -> None:
    """Raise SchemaError if a search finds no values that meet the rules.

    Otherwise it would be noticed after a budget is spent, and no table could be drawn.
    """
    rng, rows = np.random.default_rng(0), 32
    linked = [condition.columns() for _, condition in ruleset.conditions]
    for part in components(linked):
        stated = [
            text for text, condition in ruleset.conditions if part >= set(condition.columns())
        ]
        names = [name for name in ruleset.columns if name in part]
        if not stated:
            continue
        codes = {name: rng.integers(0, ruleset.columns[name].size, rows) for name in names}
        drawn = {name: _Drawn(ruleset.columns[name], codes[name], rng) for name in names}
        if not any(each.loose for each in drawn.values()):
            continue
        if not _Repair(drawn, ruleset, rng).can_repair(np.arange(rows)):
            if len(stated) == 1:
                raise SchemaError(f"rule {stated[0]!r}: no row was found that meets it: correct it")
            several = " and ".join(map(repr, stated))
            raise SchemaError(f"no row was found that meets the rules {several}: remove one")


Change = Callable[["_Repair", Indices], Any]


class _Repair:
    """Changes rows until they meet the rules on some columns, on which no other rule depends."""

    def __init__(
        self, drawn: Mapping[str, _Drawn], ruleset: Ruleset, rng: np.random.Generator
    ) -> None:
        self._drawn = drawn
        self._ruleset = ruleset
        self._rng = rng
        self._stated = [c for _, c in ruleset.conditions if set(c.columns()) <= set(drawn)]
        self._computed = [c for name, c in ruleset.computed.items() if name in drawn]
        computed = {computation.column.name for computation in self._computed}
        self._loose = [name for name in drawn if drawn[name].loose and name not in computed]
        self._parts = [(name, unit) for name in self._loose for unit in drawn[name].parts]
        self._placed = [name for name in self._loose if drawn[name].parts]
        self._limits = sorted({limit for c in self._stated for _, limit in c.limits()})

    def repair(self) -> None:
        rows = next(iter(self._drawn.values())).codes
        every = np.arange(len(rows))
        left = self._repaired(every)
        if not len(left):
            return
        kept = np.setdiff1d(every, left)
        if not len(kept):
            left = self._start_over(every)
            if len(left):
                raise SchemaError("no row was found that meets all rules: remove one")
            return
        others = self._rng.choice(kept, len(left))
        for drawn in self._drawn.values():
            drawn.copy(left, others)

    def _repaired(self, rows: Indices, one: bool = False) -> Indices:
        """Change rows until they meet the rules, or ``one`` does; return those that do not."""
        enough = len(rows) - 1 if one else 0
        most = len(self._parts)
        exchanges = [partial(_Repair._exchange, most=each) for each in (0, 1, most) if most]
        stages: tuple[tuple[Change, int, bool], ...] = (
            *((change, 30, True) for change in exchanges),
            (_Repair._draw, 30, True),
            (_Repair._solve, 30, True),
            (_Repair._corner, 200, True),
            (_Repair._corner, 200, False),
        )
        for change, times, inside in stages:
            broken = partial(_Repair._broken, inside=inside, in_parts=change in exchanges)
            if len(rows) > enough:
                rows = broken(self, rows)
            left = times
            while left > 0 and len(rows) > enough and self._loose:
                copies = int(np.clip(MOST_COPIED // len(rows), 1, times // 8))
                rows = self._attempt(change, broken, rows, copies)
                left -= copies
        return rows

    def _attempt(self, change: Change, broken: Change, rows: Indices, copies: int) -> Indices:
        """Change copies of each row, take the first that is not broken; return the other rows.

        These become their last copies.
        """
        every = np.tile(rows, copies)
        drawn = {name: drawn.take(every) for name, drawn in self._drawn.items()}
        trial, places = _Repair(drawn, self._ruleset, self._rng), np.arange(len(every))
        change(trial, places)
        met = np.setdiff1d(places, broken(trial, places))
        fixed, first = np.unique(met % len(rows), return_index=True)
        chosen = places[-len(rows) :]  # changes that lead nowhere yet are where the next ones begin
        chosen[fixed] = met[first]
        for name, own in self._drawn.items():
            own.accept(rows, drawn[name], chosen)
        return np.delete(rows, fixed)

    def _start_over(self, rows: Indices) -> Indices:
        """Give all rows codes that meet every rule alone, and repair them."""
        cells = self._ruleset.cells
        sizes = {name: column.size for name, column in self._ruleset.columns.items()}
        found = find_row(cells, sizes) or {}
        for name, drawn in self._drawn.items():
            drawn.codes[:] = found.get(name, 0)
            drawn.redraw(rows, self._rng)
        return self._repaired(rows)

    def can_repair(self, rows: Indices) -> bool:
        """Return whether a row meets the rules, with codes that meet each alone or its own."""
        codes = {name: drawn.codes.copy() for name, drawn in self._drawn.items()}
        if len(self._broken(rows, True)) < len(rows) or not len(self._start_over(rows)):
            return True
        for name, drawn in self._drawn.items():
            drawn.codes[:] = codes[name]
            drawn.redraw(rows, self._rng)
        return len(self._repaired(rows, one=True)) < len(rows)

    def _row(self, rows: Indices) -> dict[str, Values]:
        return {name: drawn.values(rows) for name, drawn in self._drawn.items()}

    def _broken(self, rows: Indices, inside: bool, in_parts: bool = False) -> Indices:
        """Compute what follows from other columns, and return the rows that break a rule.

        Computed values have to lie ``inside`` the bin of their code, or in the range of the column.
        With ``in_parts``, moments also have to have their hours and weekdays.
        """
        found = np.zeros(len(rows), dtype=np.bool_)
        for name in self._placed if in_parts else ():
            found |= self._drawn[name].is_elsewhere(rows)
        for computation in self._computed:
            found |= self._compute(computation, rows, inside)
        row = self._row(rows)
        for condition in self._stated:
            found |= condition.outcome(row).broken
        return rows[found]

    def _compute(self, computation: Computation, rows: Indices, inside: bool) -> NDArray[np.bool_]:
        """Give rows what follows for one column; return which of them cannot have it."""
        column = computation.column
        drawn = self._drawn[column.name]
        known = drawn.values(rows).known
        amounts = np.where(known, computation.amounts(self._row(rows)), np.nan)
        known = ~np.isnan(amounts)
        values = column.from_amounts(amounts[known])
        drawn.put(rows[known], values)
        codes = drawn.codes[rows[known]]
        low, high = column.ends(codes if inside else np.array([0, column.num_values - 1]))
        if not inside:
            low, high = low[:1], high[1:]
        amounts = drawn.amounts(rows[known])
        near = NEAR * np.abs(amounts)
        outside = np.zeros(len(rows), dtype=np.bool_)
        outside[known] = (amounts < low - near) | (amounts > high + near)
        return outside

    def _draw(self, rows: Indices, in_parts: bool = False) -> None:
        for name in self._loose:
            self._drawn[name].redraw(rows, self._rng, in_parts)

    def _exchange(self, rows: Indices, most: int) -> None:
        """Take ``most`` parts, chosen at random, from other rows and the rest back, and solve."""
        parts = self._rng.permutation(len(self._parts))[:most].tolist()
        for name in self._placed:
            others = self._rng.integers(self._drawn[name].number, size=len(rows))
            units = [self._parts[place][1] for place in parts if self._parts[place][0] == name]
            self._drawn[name].exchange(rows, others, units)
        self._solve(rows, in_parts=True)

    def _solve(self, rows: Indices, in_parts: bool = False) -> None:
        """Draw anew, computed columns too, and solve each equation for one of its columns."""
        self._draw(rows, in_parts)
        for computation in self._computed:
            sources = [name for name in computation.source.columns() if name in self._loose]
            if not sources:
                continue
            drawn = self._drawn[computation.column.name]
            drawn.redraw(rows, self._rng)
            requested = drawn.amounts(rows)
            solved = self._drawn[str(self._rng.choice(sources))]
            row = self._row(rows)
            ends, reached = solved.ends(rows), []
            for end in ends:
                alone = row[solved.column.name]._replace(low=end, high=end)
                reached.append(computation.amounts({**row, solved.column.name: alone}))
            slope = (reached[1] - reached[0]) / np.maximum(ends[1] - ends[0], NEAR)
            flat = ~(np.abs(slope) > 0)
            step = (requested - reached[0]) / np.where(flat, 1.0, slope)
            solved.bring(rows, np.where(flat, np.nan, ends[0] + step))

    def _corner(self, rows: Indices) -> None:
        """Move one loose column after the other to an end, a limit, or the value of another."""
        for name in self._rng.permutation(self._loose).tolist():
            drawn = self._drawn[name]
            step = drawn.step
            choices = [*drawn.ends(rows)]
            choices += [self._drawn[n].amounts(rows) for n in self._loose if n != name]
            choices += [self._drawn[c.column.name].amounts(rows) for c in self._computed]
            choices += [c + d for c in choices[2:] for d in (-step, step)]
            choices += [np.full(len(rows), x + d) for x in self._limits for d in (-step, 0, step)]
            which = self._rng.integers(len(choices), size=len(rows))
            chosen = np.stack(choices)[which, np.arange(len(rows))]
            drawn.redraw(rows, self._rng)
            drawn.bring(rows, np.where(self._rng.random(len(rows)) < 0.25, np.nan, chosen))
