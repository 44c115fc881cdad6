"""Values for codes under rules: drawn inside bins so that every row meets all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adaptive_qs.errors import SchemaError
from adaptive_qs.table.cells import normalise
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.conditions import Condition, Values, values_of
from adaptive_qs.table.rules import Ruleset, components, find_row

# Most rows keep what is drawn for their codes. Where a rule is broken the values are drawn again,
# which is the distribution inside the bins given the rule. Where the rule leaves so little of a bin
# that this finds nothing, values at the ends of bins and limits, and those of other columns, are
# tried: some of them meet comparisons and sums wherever any do. Codes that no values meet, which
# rules may leave each by itself and not together, are replaced by those of another row.

DRAWS = 30
"""How often values are drawn anew from their bins."""
CORNERS = 300
"""How often ends of bins and the like are tried."""
Indices = NDArray[np.intp]


class _Drawn:
    """The values of one column: what was drawn so far, and which of it each row has."""

    def __init__(self, column: ColumnBase, codes: NDArray[np.integer], rng: np.random.Generator):
        self.column = column
        self.codes = codes.astype(np.int64)
        self.loose = False
        if column.measured:
            low, high = self._bins(np.arange(column.num_values))
            self.loose = bool((low < high).any())
        first = column.decode(self.codes, rng)
        self._pool = [first]
        self._size = len(first)
        self._place = np.arange(len(first))
        self._amounts = self._amounts_of(first)

    def _bins(self, codes: NDArray[np.int64]) -> tuple[NDArray, NDArray]:
        low, high = self.column.ends(codes)
        return (low // 86_400, high // 86_400) if self.column.by_day else (low, high)

    def _amounts_of(self, values: pa.Array) -> NDArray[np.float64] | None:
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
        """Those of some rows."""
        amounts = None if self._amounts is None else self._amounts[rows]
        return values_of(self.column, self.codes[rows], amounts)

    def put(self, rows: Indices, values: pa.Array) -> None:
        """Give some rows other values."""
        self._place[rows] = self._size + np.arange(len(rows))
        self._pool.append(values)
        self._size += len(values)
        amounts = self._amounts_of(values)
        if self._amounts is not None and amounts is not None:
            self._amounts[rows] = amounts

    def redraw(self, rows: Indices, rng: np.random.Generator) -> None:
        """Draw the values of some rows anew, inside their bins."""
        self.put(rows, self.column.decode(self.codes[rows], rng))

    def corner(
        self, rows: Indices, near: Sequence[NDArray[np.float64]], rng: np.random.Generator
    ) -> None:
        """Give some rows an end of their bin, a value inside, or one of others, brought to it.

        Args:
            rows: which ones.
            near: amounts of other columns in these rows, and limits.
            rng: chooses.
        """
        assert self._amounts is not None
        known = ~np.isnan(self._amounts[rows])
        rows, near = rows[known], [amounts[known] for amounts in near]
        if not len(rows):
            return
        low, high = (end.astype(np.float64) for end in self.column.ends(self.codes[rows]))
        self.redraw(rows, rng)
        choices = np.stack([low, high, self._amounts[rows], *near])
        chosen = choices[rng.integers(len(choices), size=len(rows)), np.arange(len(rows))]
        chosen = np.clip(np.where(np.isnan(chosen), low, chosen), low, high)
        self.put(rows, self.column.of_amounts(chosen))

    def copy(self, rows: Indices, others: Indices) -> None:
        """Give some rows the values of others."""
        self._place[rows] = self._place[others]
        self.codes[rows] = self.codes[others]
        if self._amounts is not None:
            self._amounts[rows] = self._amounts[others]

    def array(self) -> pa.Array:
        """The values of all rows."""
        return pa.concat_arrays(self._pool).take(pa.array(self._place))


def drawn_under_rules(
    codes: Mapping[str, NDArray[np.integer]], ruleset: Ruleset, rng: np.random.Generator
) -> dict[str, pa.Array]:
    """Values of all columns of a schema with rules, every row meeting each.

    Args:
        codes: of the columns that are not computed, by name.
        ruleset: the rules.
        rng: draws column by column, then again where rules are broken.

    Raises:
        SchemaError: no row was found that meets the rules.
    """
    drawn = {name: _Drawn(ruleset.columns[name], codes[name], rng) for name in ruleset.modelled}
    named = [ruleset.sources(condition.columns()) for _, condition in ruleset.conditions]
    determined = [rule.meaning.columns() for rule in ruleset.determinations]
    for part in components([*named, *determined]):
        stated = [c for (_, c), names in zip(ruleset.conditions, named) if part & set(names)]
        _mend(drawn, sorted(part), stated, ruleset, rng)
    rows = np.arange(len(next(iter(drawn.values())).codes))
    row = {name: each.values(rows) for name, each in drawn.items()}
    arrays = {name: each.array() for name, each in drawn.items()}
    for name, computation in ruleset.computed.items():
        arrays[name] = computation.column.of_amounts(computation.amounts(row))
        row[name] = computed_values(computation.column, arrays[name])
    return {name: arrays[name] for name in ruleset.columns}


def computed_values(column: ColumnBase, values: pa.Array) -> Values:
    """The values of a computed column, as its cells have them."""
    missing = np.asarray(values.is_null())
    found = normalise(values)
    amounts = (
        np.full(len(values), np.nan)
        if found is None or missing.all()
        else np.where(missing, np.nan, column.amounts(found))
    )
    codes = np.where(missing, column.size - 1, 0)
    return values_of(column, codes, amounts)._replace(missing=missing)


def _mend(
    drawn: dict[str, _Drawn],
    names: Sequence[str],
    stated: Sequence[Condition],
    ruleset: Ruleset,
    rng: np.random.Generator,
) -> None:
    """Bring all rows to meet some conditions, which speak of these columns and no others."""
    loose = [name for name in names if drawn[name].loose]
    limits = {limit for condition in stated for _, limit in condition.limits()}

    def broken(rows: Indices) -> Indices:
        row = {name: drawn[name].values(rows) for name in names}
        for name, computation in ruleset.computed.items():
            if set(ruleset.sources([name])) <= set(names):
                amounts = computation.column.of_amounts(computation.amounts(row))
                row[name] = computed_values(computation.column, amounts)
        found = np.zeros(len(rows), dtype=np.bool_)
        for condition in stated:
            found |= condition.outcome(row).broken
        return rows[found]

    def at_corners(rows: Indices) -> None:
        for name in rng.permutation(loose).tolist():
            others = [drawn[n].amounts(rows) for n in loose if n != name]
            steps = drawn[name].column.resolution or 1.0
            near = [np.full(len(rows), limit + d) for limit in limits for d in (-steps, 0, steps)]
            drawn[name].corner(rows, [*others, *near], rng)

    def anew(rows: Indices) -> None:
        for name in loose:
            drawn[name].redraw(rows, rng)

    every = np.arange(len(drawn[names[0]].codes))
    left = broken(every)
    tries: list[tuple[Callable[[Indices], None], int]] = [(anew, DRAWS), (at_corners, CORNERS)]
    for change, times in tries:
        for _ in range(times):
            if not (len(left) and loose):
                break
            change(left)
            left = broken(left)
    if not len(left):
        return
    kept = np.setdiff1d(every, left)
    if len(kept):
        others = rng.choice(kept, len(left))
        for name in names:
            drawn[name].copy(left, others)
        return
    _start_over(drawn, names, ruleset)
    anew(every)
    for _ in range(CORNERS):
        every = broken(every)
        if not len(every):
            return
        at_corners(every)
    raise SchemaError("no row was found that meets all rules: take one out")


def _start_over(drawn: dict[str, _Drawn], names: Sequence[str], ruleset: Ruleset) -> None:
    """Give all rows codes that meet every rule by itself."""
    sizes = {name: ruleset.columns[name].size for name in ruleset.modelled}
    found = find_row(ruleset.cells, sizes) or {}
    for name in names:
        drawn[name].codes[:] = found.get(name, 0)
