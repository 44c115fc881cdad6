"""Rules between columns, declared or found, and the rows that break them."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.tables import JointCodes, TablePair, ranked
from adaptive_qs.table import conditions, grammar
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.conditions import NEAR, Condition, Values, read_values
from adaptive_qs.table.grammar import written
from adaptive_qs.table.rules import Ruleset
from adaptive_qs.table.schema import Schema

BROKEN = 0.01
"""Share of synthetic rows, beyond that of the true ones, from which a broken rule is named."""


Table = tuple[tuple[str, ...], ...]
"""Values of a rule that belong together."""


class Checked(NamedTuple):
    """The rows of both tables under a rule, the true ones first.

    Attributes:
        broken: which rows break it.
        judged: which rows can be judged.
        independent: share of the judged rows that would break it if the columns of the true table
            were independent.
    """

    broken: NDArray[np.bool_]
    judged: NDArray[np.bool_]
    independent: float


@dataclass(frozen=True)
class Determination:
    """A functional dependency, such as "city determines country", as the true table shows it.

    Every combination of the determining values stands for the value that it has in most true rows
    (the first code of several as frequent). A row with such a combination breaks the rule if it
    has another value. So the share of broken true rows is the error g3 of Kivinen and Mannila
    (1995). Rows with a combination that no true row has cannot be judged. Missing and unknown are
    values like any other.

    Attributes:
        lefts: positions of the determining columns.
        right: position of the determined one.
        names: of all of them, the determined one last.
    """

    lefts: tuple[int, ...]
    right: int
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """The rule as it is written, such as "city determines country"."""
        verb = "determines" if len(self.lefts) == 1 else "determine"
        *lefts, right = map(written, self.names)
        return f"{', '.join(lefts)} {verb} {right}"

    def check(self, joint: JointCodes) -> Checked:
        """Find the rows that break it."""
        combinations, _ = joint.ranks(self.lefts)
        values, bound = joint.ranks((self.right,))
        true = slice(None, joint.true_rows)
        cells, counts = np.unique(combinations[true] * bound + values[true], return_counts=True)
        of_cell, value = np.divmod(cells, bound)
        order = np.lexsort((value, -counts, of_cell))
        seen, first = np.unique(of_cell[order], return_index=True)
        expected = np.full(int(combinations.max()) + 1, -1, dtype=np.int64)
        expected[seen] = value[order][first]
        judged = expected[combinations] >= 0
        broken = judged & (expected[combinations] != values)
        share = np.bincount(values[true], minlength=bound) / joint.true_rows
        independent = 1 - float(share[expected[combinations[true]]].mean())
        return Checked(broken, judged, max(0.0, independent))

    def list_values(self, joint: JointCodes, schema: Schema) -> Table:
        """Return the values that belong together in the true rows, in the order of the codes."""
        places = *self.lefts, self.right
        columns = [schema.columns[place] for place in places]
        cells = np.unique(np.stack([joint.pair.true.columns[k] for k in places]), axis=1).T
        labels = [column.labels_of_codes() for column in columns]
        values = [c.num_values - (c.catch_all_code == c.num_values - 1) for c in columns]
        missing = [column.missing_code or -1 for column in columns]
        listed = cells[((cells < values) | (cells == missing)).all(axis=1)].tolist()
        return tuple(tuple(names[code] for names, code in zip(labels, row)) for row in listed)


GLANCE = 2_000
"""Number of rows that are compared first, to exclude most comparisons."""


def rows_determined(left: NDArray[np.integer], right: NDArray[np.integer]) -> float:
    """Return how many rows would break a dependency if the columns were independent; 0 if one does.

    The first row of every determining value cannot break it; of the others, the part 1 − Σ p_c²
    would. So a column in which nearly every value is unique determines nothing.
    """
    for rows in (slice(GLANCE), slice(None)):
        stands_for = np.zeros(int(left.max()) + 1, dtype=np.int64)
        stands_for[left[rows]] = right[rows]
        if (stands_for[left[rows]] != right[rows]).any():
            return 0.0
    spread = 1 - float(np.square(np.bincount(right) / len(right)).sum())
    return (len(left) - np.count_nonzero(np.bincount(left))) * spread


MOST_TOGETHER, MOST_MIXED = 2**18, 100_000
"""Maximum number of combinations of distinct values that are tried; more are sampled. Maximum
number of rows from which they are."""


@dataclass(frozen=True)
class Predicate:
    """A condition on the values of a row, such as "start <= end".

    Values are compared as the cells have them. If only the bin of a value is known, a row breaks
    the rule if no values of its bins keep it. Rows in which a missing or unknown value leaves the
    condition open cannot be judged.

    Attributes:
        text: as it is written.
        condition: what has to hold.
        schema: of both tables.
        table: of a rule by which a category limits a number.
    """

    text: str
    condition: Condition
    schema: Schema
    table: Table = ()

    def list_values(self, joint: JointCodes, schema: Schema) -> Table:
        """Return its table."""
        return self.table

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the condition."""
        return tuple(self.condition.columns())

    def check(self, joint: JointCodes) -> Checked:
        """Find the rows that break it."""
        tables = [
            {name: row_values(joint.pair, table, self.schema.column(name)) for name in self.names}
            for table in (0, 1)
        ]
        found = [self.condition.outcome(row) for row in tables]
        broken = np.concatenate([outcome.broken for outcome in found])
        judged = np.concatenate([outcome.true | outcome.false for outcome in found])
        first = {name: _take(values, slice(MOST_MIXED)) for name, values in tables[0].items()}
        return Checked(broken, judged, self._independent(first))

    def _independent(self, row: dict[str, Values]) -> float:
        """Return the share of judged rows that break it if the columns are independent.

        All combinations of the values are tried, or as many random ones as there are rows.
        """
        distinct = {name: _distribution(values) for name, values in row.items()}
        shape = [len(weights) for _, weights in distinct.values()]
        if math.prod(shape) <= MOST_TOGETHER:
            weight, grid = np.ones(shape), {}
            for axis, (name, (values, weights)) in enumerate(distinct.items()):
                along = tuple(-1 if k == axis else 1 for k in range(len(shape)))
                grid[name] = values.reshaped(along)
                weight = weight * weights.reshape(along)
        else:
            rng = np.random.default_rng(0)
            grid = {name: _take(v, rng.permutation(len(v.low))) for name, v in row.items()}
            weight = np.ones(len(next(iter(row.values())).low))
        outcome = self.condition.outcome(grid)
        judged = float((weight * (outcome.true | outcome.false)).sum())
        return float((weight * outcome.broken).sum()) / judged if judged else 0.0


def _take(values: Values, rows: NDArray[np.intp] | slice) -> Values:
    return Values(*(array[rows] for array in values))


def _distribution(values: Values) -> tuple[Values, NDArray[np.float64]]:
    (low, _), (high, bound) = ranked(values.low), ranked(values.high)
    flags = values.known + 2 * values.named + 4 * values.missing
    cells = (low * bound + high) * 8 + flags
    _, first, counts = np.unique(cells, return_index=True, return_counts=True)
    return _take(values, first), counts / len(values.low)


def row_values(
    pair: TablePair, table: int, column: ColumnBase, rows: slice = slice(None)
) -> Values:
    """Return the values of rows of one table (0 true, 1 synthetic), of the cells if known."""
    codes = (pair.true, pair.synthetic)[table].columns[pair.domain.names.index(column.name)]
    amounts = pair.amounts[table].get(column.name)
    return read_values(column, codes[rows], None if amounts is None else amounts[rows])


Rule = Predicate | Determination


@dataclass(frozen=True)
class RuleCheck:
    """How often a rule is broken, in shares of the rows that it can judge; owner only.

    Attributes:
        rule: as text, such as "start <= end" or "city determines country".
        source: whether the owner declared it or it was found to hold in the true table.
        broken_true, broken_synthetic: rows that break it; 0 if it can judge none.
        expected_if_independent: rows that would break it if the columns were independent.
        judged_true, judged_synthetic: share of all rows that it can judge; the others lack a value,
            or have one that no true row has.
    """

    rule: str
    source: Literal["declared", "found"]
    broken_true: float
    broken_synthetic: float
    expected_if_independent: float
    judged_true: float = 1.0
    judged_synthetic: float = 1.0


def check_rules(
    joint: JointCodes, rules: Iterable[Rule], source: Literal["declared", "found"]
) -> tuple[RuleCheck, ...]:
    """Count how often both tables break each rule."""
    tables = (slice(None, joint.true_rows), slice(joint.true_rows, None))
    checks = []
    for rule in rules:
        found = rule.check(joint)
        judged = (float(found.judged[rows].mean()) for rows in tables)
        broken, made = (
            float(found.broken[rows].sum() / max(1, found.judged[rows].sum())) for rows in tables
        )
        checks.append(RuleCheck(rule.text, source, broken, made, found.independent, *judged))
    return tuple(checks)


@dataclass(frozen=True)
class ImpossibleRows:
    """Rows that break some rule which (nearly) all true rows keep; owner only.

    Attributes:
        rules: number of these rules.
        true, synthetic: shares of all rows of the tables.
    """

    rules: int
    true: float
    synthetic: float


def impossible_rows(
    joint: JointCodes, rules: Sequence[tuple[Rule, RuleCheck]]
) -> ImpossibleRows | None:
    """Count rows that break some rule that the true table keeps; None without such a rule."""
    kept = [rule for rule, check in rules if check.judged_true and check.broken_true < BROKEN]
    if not kept:
        return None
    broken = np.zeros(joint.rows, dtype=np.bool_)
    for rule in kept:
        broken |= rule.check(joint).broken
    shares = broken[: joint.true_rows].mean(), broken[joint.true_rows :].mean()
    return ImpossibleRows(len(kept), float(shares[0]), float(shares[1]))


def parse_rule(text: str, schema: Schema) -> Rule:
    """Parse a rule, as a schema declares it; InputError if it is none on the schema's columns."""
    meaning = grammar.parse_rule(text, schema.by_name)
    if isinstance(meaning, conditions.Limits):
        raise InputError(f"rule {text!r} needs its table: declare it in the schema")
    return _build_rule(text, meaning, schema)


LEAST_OUTSIDE, MOST_ALONE, GRID = 0.5, 0.01, 20
"""Least share of independent rows that are outside of limits by a category, and greatest share of
rows that are outside of the limits without them; least number of steps, powers of ten to which
limits are rounded, along the range of a number."""


def limits_by(
    key: ColumnBase, number: ColumnBase, codes: NDArray[Any], amounts: Any, schema: Schema
) -> tuple[float, Predicate] | None:
    """Return the limits of a number inside each value of a category: extremes, rounded outwards.

    Also return the share of independent rows that are outside; None if the limits tell too little.
    """
    power = np.floor(np.log10(max(np.ptp(amounts), 1e-300) / GRID))
    digits = -int(max(power, np.ceil(np.log10(number.resolution or 1.0))))
    steps = amounts * 10.0**digits
    ordered, every = steps[np.lexsort((steps, codes))], np.sort(steps)
    values, counts = np.unique(codes, return_counts=True)
    last, more = np.cumsum(counts) - 1, (counts > 1).astype(np.int64)
    first = last - counts + 1
    low, high = np.floor(ordered[first]), np.ceil(ordered[last])
    inside = np.searchsorted(every, high, "right") - np.searchsorted(every, low)
    outside = 1 - float(counts @ inside) / len(steps) ** 2
    alone = (
        (np.floor(ordered[first + more]) > low) | (more == 0),
        np.ceil(ordered[last - more]) < high,
    )
    if outside < LEAST_OUTSIDE or np.sum(alone) > MOST_ALONE * len(steps):
        return None
    labels = np.array(key.labels_of_codes(), dtype=object)[values]
    ends = ([f"{k / 10.0**digits:.{max(digits, 0)}f}" for k in each] for each in (low, high))
    text, table = f"{written(key.name)} limits {written(number.name)}", tuple(zip(labels, *ends))
    with suppress(InputError):  # of too many cells
        ((_, condition),) = Ruleset.of(schema.columns, [(text, table)]).conditions
        return outside, Predicate(text, condition, schema, table)
    return None


def declared_rules(schema: Schema) -> list[Rule]:
    """Return the rules that a schema declares."""
    declared = () if schema.ruleset is None else schema.ruleset.rules
    return [_build_rule(rule.text, rule.meaning, schema) for rule in declared]


def _build_rule(text: str, meaning: Condition | conditions.Determination, schema: Schema) -> Rule:
    if isinstance(meaning, Condition):
        return Predicate(" ".join(text.split()), meaning, schema)
    positions = [schema.names.index(name) for name in meaning.columns()]
    return Determination(tuple(positions[:-1]), positions[-1], meaning.columns())


def equivalent_texts(rule: Rule) -> set[str]:
    """Return the texts of declared rules that make a rule superfluous."""
    if isinstance(rule, Determination):
        return {rule.text}
    sides = [*map(written, rule.names)]
    signs = ("<", "<=", "=", ">=", ">")
    pairs = permutations(sides, 2)
    compared = {f"{a} {sign} {b}" for a, b in pairs for sign in signs}
    return {rule.text} | (compared if rule.text in compared else set())


def is_equation(total: Any, act: Any, left: Any, right: Any, near: float, least: float) -> bool:
    """Return whether all rows keep it, and ``least`` would not if a column had no effect."""
    for rows in (slice(GLANCE // 10), slice(None)):
        found = act(left[rows], right[rows])
        known = ~np.isnan(found) & ~np.isnan(total[rows])
        off = np.abs(total[rows] - found) > near + NEAR * np.abs(found)
        if not known.any() or (off & known).any():
            return False
    differing = [np.count_nonzero(known & (side != total)) for side in (left, right)]
    varied = [np.count_nonzero(known & (side != side[known][0])) for side in (left, right)]
    return bool(min(*differing, *varied) >= least)


def sums_of_three(
    total: NDArray[np.float64], parts: dict[str, NDArray[np.float64]], near: float, least: float
) -> Iterator[tuple[str, str, str]]:
    """Yield three columns whose sum all rows have, and each of which has an effect."""
    names, glance = [*parts], GLANCE // 100
    first = np.array([values[:glance] for values in parts.values()])
    for i, j in combinations(range(len(names) - 1), 2):
        rest = total[:glance] - first[i] - first[j]
        for k in j + 1 + np.flatnonzero(~(np.abs(first[j + 1 :] - rest) > near + NEAR).any(axis=1)):
            several = names[i], names[j], names[k]
            if all(
                is_equation(total, np.add, parts[a] + parts[b], parts[c], near, least)
                for a, b, c in (several, several[::-1], (names[k], names[i], names[j]))
            ):
                yield several
