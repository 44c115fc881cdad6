"""Whole rows: copies of true ones, and rules between columns, declared or found."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.limits import BROKEN
from adaptive_qs.evaluation.marginals import PairCounts, count_pairs
from adaptive_qs.evaluation.tables import DAY, JointCodes, TablePair
from adaptive_qs.table import conditions
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.conditions import NEAR, Condition, Values, values_of, written
from adaptive_qs.table.encode import read_with_amounts
from adaptive_qs.table.rules import Ruleset
from adaptive_qs.table.schema import Schema

# Checks of whole rows: how many synthetic rows are rows of the true table.


@dataclass(frozen=True)
class RowChecks:
    """Whole rows, in codes of the schema, in shares of the synthetic rows; owner only.

    Matches are no measure of privacy: a table of few combinations must repeat true rows.

    Attributes:
        exact_matches: synthetic rows that occur in the true table.
        expected_if_independent: the same for rows whose columns are drawn independently from the
            true columns.
        expected_if_redrawn: the same for one half of the true table in the other half, as the
            exact mean over all ways to halve it. A redraw meets twice as many true rows, so it
            would match more often: about as often as ``true_repeated``.
        unique_matches: synthetic rows that equal a true row that occurs there once.
        repeated: synthetic rows that occur more than once among them.
        true_repeated: true rows that occur more than once among them, in shares of the true rows.
        same: whether the synthetic rows are the true rows, each as often, in whatever order.
    """

    exact_matches: float
    expected_if_independent: float
    expected_if_redrawn: float
    unique_matches: float
    repeated: float
    true_repeated: float
    same: bool = False

    @property
    def expected(self) -> float:
        """Matches that chance explains."""
        return max(self.expected_if_independent, self.expected_if_redrawn)


def row_checks(joint: JointCodes) -> RowChecks:
    """Compare whole rows, in memory linear in their number."""
    domain = joint.pair.domain
    ranks, distinct = joint.ranks(tuple(range(len(domain))))
    true = np.bincount(ranks[: joint.true_rows], minlength=distinct)
    synthetic = np.bincount(ranks[joint.true_rows :], minlength=distinct)
    made = len(ranks) - joint.true_rows
    first_rows = np.unique(ranks[: joint.true_rows], return_index=True)[1]
    return RowChecks(
        float(synthetic[true > 0].sum() / made),
        _independent(joint.codes[:, : joint.true_rows], first_rows),
        _halves(true[true > 0]),
        float(synthetic[true == 1].sum() / made),
        float(synthetic[synthetic > 1].sum() / made),
        float(true[true > 1].sum() / joint.true_rows),
        np.array_equal(true, synthetic),
    )


def _independent(codes: NDArray[np.unsignedinteger], first_rows: NDArray[np.intp]) -> float:
    """Chance that independent columns make a true row: Σ over distinct rows of Π of shares."""
    chance = np.ones(len(first_rows))
    for column in codes:
        chance *= (np.bincount(column) / len(column))[column[first_rows]]
    return min(1.0, float(chance.sum()))


def _halves(repeats: NDArray[np.int64]) -> float:
    """Chance that a row in one half of the table has an equal one in the other, over all halvings.

    Of N rows, a half takes H = ⌊N/2⌋. A row in it with m − 1 equals has none in the other half
    with probability Π_{t=0}^{m−2} (H − 1 − t)/(N − 1 − t).

    Args:
        repeats: how often every distinct row occurs.
    """
    rows = int(repeats.sum())
    half = rows // 2
    if not half:
        return 0.0
    times, rows_of = np.unique(repeats, return_counts=True)
    taken = np.arange(min(int(times.max()) - 1, half))  # from half - 1 on, nothing is left
    none = np.cumprod(np.concatenate([[1.0], (half - 1 - taken) / (rows - 1 - taken)]))
    chance = none[np.minimum(times - 1, len(none) - 1)]
    return float(((1 - chance) * times * rows_of).sum() / rows)


# What a rule says of the rows.


class Checked(NamedTuple):
    """What a rule says of the rows of both tables, the true ones first.

    Attributes:
        broken: which rows break it.
        judged: which rows tell whether they do; the others are no evidence for or against it.
        independent: share of the rows that it could judge which would break it if the columns of
            the true table were independent.
    """

    broken: NDArray[np.bool_]
    judged: NDArray[np.bool_]
    independent: float


# Rules by which columns determine another, such as "city determines country".


@dataclass(frozen=True)
class Determination:
    """A functional dependency, as the true table shows it.

    Every combination of the determining values stands for the value that it has in most true rows
    (the first code of several as frequent); where the rule holds, it has no other. A row breaks
    the rule where it has a combination that occurs in the true table and another value than that.
    So the share of broken true rows is the error g3 of Kivinen and Mannila (1995), the rows that
    would have to go. Rows with a combination that no true row has cannot be judged. Missing and
    unknown are values like any other here.

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
        """Such as "city determines country"."""
        verb = "determines" if len(self.lefts) == 1 else "determine"
        *lefts, right = map(written, self.names)
        return f"{', '.join(lefts)} {verb} {right}"

    def check(self, joint: JointCodes) -> Checked:
        """Which rows break it."""
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
        share = np.bincount(values[true], minlength=bound) / joint.true_rows
        independent = 1 - float(share[expected[combinations[true]]].mean())
        return Checked(judged & (expected[combinations] != values), judged, max(0.0, independent))


# Rules on the values of a row, such as "start <= end".

MOST_TOGETHER = 2**18
"""Combinations of distinct values that are looked at one by one; rows are shuffled where more."""


@dataclass(frozen=True)
class Predicate:
    """What has to hold of the values of a row.

    Values are compared as the cells have them. Where only the bin of a value is known, a row breaks
    the rule if no values of its bins keep it, so that rows within one bin that might keep it count
    as keeping it. Rows of which a missing or unknown value leaves it open cannot be judged.

    Attributes:
        text: as it is written.
        condition: what it says.
        schema: of both tables.
    """

    text: str
    condition: Condition
    schema: Schema

    def check(self, joint: JointCodes) -> Checked:
        """Which rows break it."""
        tables = [self._row(joint.pair, table) for table in (0, 1)]
        found = [self.condition.outcome(row) for row in tables]
        broken = np.concatenate([outcome.broken for outcome in found])
        judged = np.concatenate([outcome.true | outcome.false for outcome in found])
        return Checked(broken, judged, self._independent(tables[0]))

    def _row(self, pair: TablePair, table: int) -> dict[str, Values]:
        names = self.condition.columns()
        return {name: row_values(pair, table, self.schema.column(name)) for name in names}

    def _independent(self, row: dict[str, Values]) -> float:
        """The share of rows that break it, of those that it can judge, in all combinations of the
        values of the columns, or in as many random ones as there are rows."""
        distinct = {name: _distribution(values) for name, values in row.items()}
        together = math.prod(len(weights) for _, weights in distinct.values())
        if together <= MOST_TOGETHER:
            shape = [len(weights) for _, weights in distinct.values()]
            weight, grid = np.ones(shape), {}
            for axis, (name, (values, weights)) in enumerate(distinct.items()):
                along = tuple(-1 if k == axis else 1 for k in range(len(shape)))
                grid[name] = values.reshaped(along)
                weight = weight * weights.reshape(along)
        else:
            rng = np.random.default_rng(0)
            grid = {name: _taken(v, rng.permutation(len(v.low))) for name, v in row.items()}
            weight = np.ones(len(next(iter(row.values())).low))
        outcome = self.condition.outcome(grid)
        judged = float((weight * (outcome.true | outcome.false)).sum())
        return float((weight * outcome.broken).sum()) / judged if judged else 0.0


def _taken(values: Values, rows: NDArray[np.intp]) -> Values:
    return Values(*(array[rows] for array in values))


def _distribution(values: Values) -> tuple[Values, NDArray[np.float64]]:
    """The distinct values of some rows, and the shares of the rows that have them."""
    table = np.stack([array.astype(np.float64) for array in values])
    _, first, counts = np.unique(table, axis=1, return_index=True, return_counts=True)
    return _taken(values, first), counts / len(values.low)


def row_values(pair: TablePair, table: int, column: ColumnBase) -> Values:
    """The values of the rows of one table, as the cells have them where that is known.

    Args:
        table: 0 for the true one, 1 for the synthetic.
        column: one of the schema.
    """
    codes = (pair.true, pair.synthetic)[table].columns[pair.domain.names.index(column.name)]
    return values_of(column, codes, pair.amounts[table].get(column.name))


# Rules between columns: declared by the owner, or found to hold in the true table.

Rule = Predicate | Determination


@dataclass(frozen=True)
class RuleCheck:
    """How often a rule is broken, in shares of the rows that it can judge; owner only.

    Attributes:
        rule: as text, such as "start <= end" or "city determines country".
        source: whether the owner declared it or it was found to hold in the true table.
        broken_true: rows of the true table that break it; 0 where it can judge none.
        broken_synthetic: rows of the synthetic table that break it, likewise.
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
    """How often both tables break each rule; see the rules for what that means."""
    return tuple(_shares(joint, rule, source) for rule in rules)


def _shares(joint: JointCodes, rule: Rule, source: Literal["declared", "found"]) -> RuleCheck:
    found = rule.check(joint)
    tables = (slice(None, joint.true_rows), slice(joint.true_rows, None))
    judged = [float(found.judged[rows].mean()) for rows in tables]
    true, made = (
        float(found.broken[rows].sum() / max(1, found.judged[rows].sum())) for rows in tables
    )
    return RuleCheck(rule.text, source, true, made, found.independent, judged[0], judged[1])


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
    """Rows that break at least one of these rules; None where the true table keeps none."""
    kept = [rule for rule, check in rules if check.judged_true and check.broken_true < BROKEN]
    if not kept:
        return None
    broken = np.zeros(joint.rows, dtype=np.bool_)
    for rule in kept:
        broken |= rule.check(joint).broken
    shares = broken[: joint.true_rows].mean(), broken[joint.true_rows :].mean()
    return ImpossibleRows(len(kept), float(shares[0]), float(shares[1]))


def parse_rule(text: str, schema: Schema) -> Rule:
    """A rule from its text, in the grammar of those that a schema declares.

    Raises:
        InputError: it is no rule on the columns of the schema.
    """
    return _rule(text, conditions.parse_rule(text, schema.by_name), schema)


def declared_rules(schema: Schema) -> list[Rule]:
    """The rules that a schema declares."""
    if schema.ruleset is None:
        return []
    return [_rule(rule.text, rule.meaning, schema) for rule in schema.ruleset.rules]


def _rule(text: str, meaning: Condition | conditions.Determination, schema: Schema) -> Rule:
    if isinstance(meaning, Condition):
        return Predicate(" ".join(text.split()), meaning, schema)
    places = [schema.names.index(name) for name in meaning.columns()]
    return Determination(tuple(places[:-1]), places[-1], meaning.columns())


# Rules that hold in every true row, and would not if the columns were independent.

MOST_FOUND = 20
"""Rules that are reported, the least likely to hold by chance first."""
MOST_TRIED = 3 * MOST_FOUND
"""Dependencies and comparisons, each, that are looked at closely."""
LEAST_BROKEN = 0.01
"""Part of the rows that would break a rule worth telling if the columns were independent."""
LEAST_CHANCES = 25.0
"""True rows that would break it. With so many expected, none breaks it with probability about
e^−25 ≈ 1e-11, so that none of 1e6 candidates is expected to hold by chance."""
GLANCE = 2_000
"""Rows that rule most comparisons out."""


def found_rules(
    counts: PairCounts, schema: Schema, declared: Collection[str] = ()
) -> tuple[tuple[Rule, RuleCheck], ...]:
    """Dependencies between two columns, and comparisons of two columns on the same scale.

    Args:
        counts: of all pairs of columns.
        schema: of both tables.
        declared: texts of rules that need not be found.
    """
    joint = counts.joint
    rules: list[Rule] = [*_dependencies(counts), *_orders(joint, schema)]
    rules = [rule for rule in rules if rule.text not in declared]
    found = zip(rules, check_rules(joint, rules, "found"))
    telling = [each for each in found if each[1].expected_if_independent >= LEAST_BROKEN]
    return tuple(sorted(telling, key=lambda c: -c[1].expected_if_independent)[:MOST_FOUND])


LOOKED_AT = 100_000
"""Rows in which rules are looked for that a schema could declare."""
MOST_NUMBERS = 40
"""Columns of numbers or dates among which equations are looked for."""


def proposed_rules(table: Any, schema: Schema) -> tuple[str, ...]:
    """Rules that a table keeps and that would not hold by chance, for its owner to review.

    They are as private as the table. Each can be declared beside those before it.

    Args:
        table: as :func:`~adaptive_qs.table.encode.read_table` takes it; its first rows count.
        schema: of it.
    """
    wanted = [column.name for column in schema.columns if column.measured]
    coded, amounts = read_with_amounts(table, schema, wanted, most_rows=LOOKED_AT)
    pair = TablePair(coded, coded, (amounts, amounts))
    found = [*_equations(pair, schema)]
    equal = {frozenset(text.split(" = ")) for text in found}
    for rule, _ in found_rules(count_pairs(JointCodes(pair)), schema):
        if not isinstance(rule, Determination):
            found.append(rule.text)
            equal |= {frozenset(rule.text.split(" = "))}
        elif frozenset(map(written, rule.names)) not in equal:
            found.append(rule.text)
    kept: list[str] = []
    for text in dict.fromkeys(found):
        with contextlib.suppress(InputError):
            Ruleset.of(schema.columns, [(each, ()) for each in (*kept, text)])
            kept.append(text)
    return tuple(kept[:MOST_FOUND])


def _equations(pair: TablePair, schema: Schema) -> Iterator[str]:
    """Sums and products of two columns that a third one is in all rows that have all of them."""
    measured = [c for c in schema.columns if pair.amounts_of(c, 0) is not None]
    values: dict[str, NDArray[np.float64]] = {}
    for column in measured[:MOST_NUMBERS]:
        amounts = pair.amounts_of(column, 0)
        assert amounts is not None
        if column.kind == "numbers" or column.by_day:
            values[column.name] = amounts // DAY if column.by_day else amounts
    days = {column.name for column in measured if column.by_day}
    for total in (name for name in values if name not in days):
        near = schema.column(total).resolution / 2
        for first, second in combinations((name for name in values if name != total), 2):
            ways = [("+", first, second), ("*", first, second)]
            if {first, second} & days:
                if not {first, second} <= days:
                    continue
                ways = [("-", first, second), ("-", second, first)]
            for sign, left, right in ways:
                if _is_equation(values[total], _SIGNS[sign], values[left], values[right], near):
                    yield f"{written(total)} = {written(left)} {sign} {written(right)}"


_SIGNS: dict[str, Any] = {"+": np.add, "*": np.multiply, "-": np.subtract}


def _is_equation(total: Any, act: Any, left: Any, right: Any, near: float) -> bool:
    """Whether all rows keep it, and enough would not if one of the columns said nothing."""
    for rows in (slice(GLANCE // 10), slice(None)):
        found = act(left[rows], right[rows])
        known = ~np.isnan(found) & ~np.isnan(total[rows])
        off = np.abs(total[rows] - found) > near + NEAR * np.abs(found)
        if not known.any() or (off & known).any():
            return False
    told = [np.count_nonzero(known & (side != total)) for side in (left, right)]
    varied = [np.count_nonzero(known & (side != side[known][0])) for side in (left, right)]
    return bool(min(*told, *varied) >= LEAST_CHANCES)


def _dependencies(counts: PairCounts) -> list[Determination]:
    """Pairs with as many occupied cells as the determining column has values.

    The first row of every determining value cannot break the rule; of the others, the part
    1 − Σ p_c² would, if the columns were independent. A column in which nearly every value is
    unique thus determines nothing that is worth telling.
    """
    rows, names = counts.joint.true_rows, counts.joint.pair.domain.names
    values = [np.count_nonzero(margin) for margin in counts.margins[0]]
    spread = [1 - float(np.square(margin / rows).sum()) for margin in counts.margins[0]]
    found = []
    for pair, sums in counts.sums[0].items():
        for left, right in (pair, pair[::-1]):
            chances = (rows - values[left]) * spread[right]
            if sums.occupied == values[left] and chances >= LEAST_CHANCES:
                found.append((chances, left, right))
    best = sorted(found, key=lambda entry: -entry[0])[:MOST_TRIED]
    return [Determination((i,), j, (names[i], names[j])) for _, i, j in best]


def _orders(joint: JointCodes, schema: Schema) -> list[Predicate]:
    """Comparisons that hold, of each two columns the strictest one."""
    if joint.true_rows < LEAST_CHANCES:
        return []
    scales: dict[Hashable, list[int]] = defaultdict(list)
    for i, column in enumerate(schema.columns):
        if (scale := column.scale) is not None:
            scales[scale].append(i)
    pairs = (pair for members in scales.values() for pair in combinations(members, 2))
    found = [found for pair in pairs if (found := _strictest(joint, schema, *pair)) is not None]
    return [rule for _, rule in sorted(found, key=lambda entry: -entry[0])[:MOST_TRIED]]


def _strictest(joint: JointCodes, schema: Schema, i: int, j: int) -> tuple[float, Predicate] | None:
    """On one scale, codes are ordered as values are, and only missing ones come after them.

    A glance at the first rows rules most pairs out.
    """
    columns = schema.columns[i], schema.columns[j]
    for rows in (slice(GLANCE), slice(None)):
        x, y = (joint.pair.true.columns[k][rows] for k in (i, j))
        known = (x < columns[0].num_values) & (y < columns[1].num_values)
        above, below = bool((known & (x > y)).any()), bool((known & (x < y)).any())
        if above and below:
            return None
    loose, strict = (">=", ">") if above else ("<=", "<")
    equal = bool((known & (x == y)).any())
    operators = [strict, loose] if not equal else [loose] if above or below else ["="]
    for operator in operators:
        rule = parse_rule(
            f"{written(columns[0].name)} {operator} {written(columns[1].name)}", schema
        )
        assert isinstance(rule, Predicate)
        found = _shares(joint, rule, "found")
        chances = found.expected_if_independent * found.judged_true * joint.true_rows
        expected = found.expected_if_independent
        if not found.broken_true and expected >= LEAST_BROKEN and chances >= LEAST_CHANCES:
            return expected, rule
    return None
