"""Values for codes under rules: drawn inside bins so that every row meets all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adaptive_qs.errors import SchemaError
from adaptive_qs.table.cells import normalise
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.conditions import DAY, NEAR, Values, read_values
from adaptive_qs.table.rules import Computation, Ruleset, components, find_row

if TYPE_CHECKING:
    from adaptive_qs.table.columns.base import Drawer

# A column that an equation computes gets what follows from the others, which has to lie in its bin.
# Most rows keep what is drawn for their codes. Where a rule is broken the values are drawn again,
# which is the distribution inside the bins given the rule. Where the rule leaves so little of a bin
# that this finds nothing, an equation is solved for one of its columns, and at last values at the
# ends of bins and limits, and those of other columns, are tried: some of them meet comparisons and
# sums wherever any do. Codes that no values meet, which rules may leave each by itself and not
# together, are replaced by those of another row.

DRAWS = 30
"""How often values are drawn anew from their bins."""
SOLUTIONS = 30
"""How often equations are solved for another column."""
SEARCHED = 32
"""Rows that are searched for one that meets all rules."""
CORNERS = 200
"""How often ends of bins and the like are tried."""
Indices = NDArray[np.intp]


class _Drawn:
    """The values of one column: what was drawn so far, and which of it each row has."""

    def __init__(
        self,
        column: ColumnBase,
        codes: NDArray[np.integer],
        rng: np.random.Generator,
        drawer: Drawer | None = None,
    ):
        self.column = column
        self._drawer = drawer
        self.codes = codes.astype(np.int64)
        self.loose = False
        if column.measured:
            low, high = self._bins(np.arange(column.num_values))
            self.loose = bool((low < high).any())
        first = column.decode(self.codes, rng, drawer)
        self._pool = [first]
        self._size = len(first)
        self._place = np.arange(len(first))
        self._amounts = self._find_amounts(first)

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
        """Those of some rows of a measured column."""
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

    def redraw(self, rows: Indices, rng: np.random.Generator) -> None:
        self.put(rows, self.column.decode(self.codes[rows], rng, self._drawer))

    @property
    def step(self) -> float:
        """Distance of neighbouring amounts."""
        return (self.column.resolution or 1.0) * (DAY if self.column.by_day else 1)

    def ends(self, rows: Indices) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The least and the greatest amount in the bins of some rows; anything where missing."""
        codes = self.codes[rows]
        low, high = self.column.ends(np.where(codes < self.column.num_values, codes, 0))
        return low.astype(np.float64), high.astype(np.float64)

    def bring(self, rows: Indices, amounts: NDArray[np.float64]) -> None:
        """Give some rows these amounts, but no more than their bins allow; none where NaN."""
        real = ~np.isnan(amounts) & ~np.isnan(self.amounts(rows))
        rows, low, high = rows[real], *(end[real] for end in self.ends(rows))
        if len(rows):
            self.put(rows, self.column.from_amounts(np.clip(amounts[real], low, high)))

    def copy(self, rows: Indices, others: Indices) -> None:
        self._place[rows] = self._place[others]
        self.codes[rows] = self.codes[others]
        if self._amounts is not None:
            self._amounts[rows] = self._amounts[others]

    def array(self) -> pa.Array:
        return pa.concat_arrays(self._pool).take(pa.array(self._place))


def drawn_under_rules(
    codes: Mapping[str, NDArray[np.integer]],
    ruleset: Ruleset,
    rng: np.random.Generator,
    drawers: Mapping[str, Drawer] | None = None,
) -> tuple[dict[str, pa.Array], dict[str, NDArray[np.int64]]]:
    """Return values of all columns of a schema with rules, every row meeting each, and their codes.

    Args:
        codes: of the columns, by name.
        ruleset: the rules.
        rng: draws column by column, then again where rules are broken.
        drawers: by column, how values inside bins are drawn; evenly where there is none.

    Returns:
        Values and codes by column. Codes are others than given in rows that no values bring to
        meet the rules.

    Raises:
        SchemaError: no row was found that meets the rules.
    """
    drawn = {
        name: _Drawn(column, codes[name], rng, (drawers or {}).get(name))
        for name, column in ruleset.columns.items()
    }
    linked = [condition.columns() for _, condition in ruleset.conditions]
    linked += [determination.columns() for _, determination in ruleset.determinations]
    for part in components(linked):
        _Mender({name: drawn[name] for name in drawn if name in part}, ruleset, rng).mend()
    values = {name: each.array() for name, each in drawn.items()}
    return values, {name: each.codes for name, each in drawn.items()}


def check_values(ruleset: Ruleset) -> None:
    """Refuse rules that leave cells, but in these no values, as far as a search finds any.

    Otherwise that would be noticed once a budget is spent, and no table could be drawn.

    Raises:
        SchemaError: none were found that meet one of them, or several together.
    """
    rng = np.random.default_rng(0)
    linked = [condition.columns() for _, condition in ruleset.conditions]
    for part in components(linked):
        stated = [
            text for text, condition in ruleset.conditions if part >= set(condition.columns())
        ]
        names = [name for name in ruleset.columns if name in part]
        if not stated:
            continue
        codes = {name: rng.integers(0, ruleset.columns[name].size, SEARCHED) for name in names}
        drawn = {name: _Drawn(ruleset.columns[name], codes[name], rng) for name in names}
        if not any(each.loose for each in drawn.values()):
            continue
        if not _Mender(drawn, ruleset, rng).can_mend(np.arange(SEARCHED)):
            if len(stated) == 1:
                raise SchemaError(f"rule {stated[0]!r}: no row was found that meets it: correct it")
            several = " and ".join(map(repr, stated))
            raise SchemaError(f"no row was found that meets the rules {several}: take one out")


class _Mender:
    """Brings rows to meet the rules on some columns, on which no other rule depends.

    Args:
        drawn: the columns.
        ruleset: the rules.
        rng: randomness.
    """

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
        self._limits = sorted({limit for c in self._stated for _, limit in c.limits()})

    def mend(self) -> None:
        rows = next(iter(self._drawn.values())).codes
        every = np.arange(len(rows))
        left = self._mended(every)
        if not len(left):
            return
        kept = np.setdiff1d(every, left)
        if not len(kept):
            left = self._started_over(every)
            if len(left):
                raise SchemaError("no row was found that meets all rules: take one out")
            return
        others = self._rng.choice(kept, len(left))
        for drawn in self._drawn.values():
            drawn.copy(left, others)

    def _mended(self, rows: Indices, one: bool = False) -> Indices:
        """Change rows as long as they break a rule, or until ``one`` does not; those that do."""
        enough = len(rows) - 1 if one else 0
        stages: tuple[tuple[Callable[[Indices], None], int, bool], ...] = (
            (self._draw, DRAWS, True),
            (self._solve, SOLUTIONS, True),
            (self._corner, CORNERS, True),
            (self._corner, CORNERS, False),
        )
        for change, times, inside in stages:
            if len(rows) > enough:
                rows = self._broken(rows, inside)
            for _ in range(times):
                if not (len(rows) > enough and self._loose):
                    break
                change(rows)
                rows = self._broken(rows, inside)
        return rows

    def _started_over(self, rows: Indices) -> Indices:
        """Give all rows codes that meet every rule by itself, and mend them."""
        cells = self._ruleset.cells
        sizes = {name: column.size for name, column in self._ruleset.columns.items()}
        found = find_row(cells, sizes) or {}
        for name, drawn in self._drawn.items():
            drawn.codes[:] = found.get(name, 0)
            drawn.redraw(rows, self._rng)
        return self._mended(rows)

    def can_mend(self, rows: Indices) -> bool:
        return len(self._mended(rows, one=True)) < len(rows) or not len(self._started_over(rows))

    def _row(self, rows: Indices) -> dict[str, Values]:
        return {name: drawn.values(rows) for name, drawn in self._drawn.items()}

    def _broken(self, rows: Indices, inside: bool) -> Indices:
        """The rows that break a rule once all that follows from others is computed.

        Args:
            rows: that are looked at.
            inside: whether what is computed has to lie in the bin of its code, or anywhere in the
                range of its column.
        """
        found = np.zeros(len(rows), dtype=np.bool_)
        for computation in self._computed:
            found |= self._compute(computation, rows, inside)
        row = self._row(rows)
        for condition in self._stated:
            found |= condition.outcome(row).broken
        return rows[found]

    def _compute(self, computation: Computation, rows: Indices, inside: bool) -> NDArray[np.bool_]:
        """Give rows what follows for one column; which of them cannot have it."""
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

    def _draw(self, rows: Indices) -> None:
        for name in self._loose:
            self._drawn[name].redraw(rows, self._rng)

    def _solve(self, rows: Indices) -> None:
        """Draw anew, what is computed too, and bring one of its columns to what that takes."""
        self._draw(rows)
        for computation in self._computed:
            sources = [name for name in computation.source.columns() if name in self._loose]
            if not sources:
                continue
            drawn = self._drawn[computation.column.name]
            drawn.redraw(rows, self._rng)
            wanted = drawn.amounts(rows)
            solved = self._drawn[str(self._rng.choice(sources))]
            row = self._row(rows)
            ends, reached = solved.ends(rows), []
            for end in ends:
                alone = row[solved.column.name]._replace(low=end, high=end)
                reached.append(computation.amounts({**row, solved.column.name: alone}))
            slope = (reached[1] - reached[0]) / np.maximum(ends[1] - ends[0], NEAR)
            flat = ~(np.abs(slope) > 0)
            step = (wanted - reached[0]) / np.where(flat, 1.0, slope)
            solved.bring(rows, np.where(flat, np.nan, ends[0] + step))

    def _corner(self, rows: Indices) -> None:
        """Bring one loose column after the other to an end, a limit, or the value of another."""
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
