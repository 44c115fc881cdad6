"""Whole rows: copies of true ones, and rules between columns, declared or found."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.limits import BROKEN
from adaptive_qs.evaluation.marginals import PairCounts
from adaptive_qs.evaluation.tables import DAY, JointCodes, TablePair
from adaptive_qs.table.columns.base import ColumnBase
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
        return f"{', '.join(self.names[:-1])} {verb} {self.names[-1]}"

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


# Rules that compare two columns, such as "start <= end".

OPERATORS = ("<=", ">=", "==", "!=", "<", ">")
_SWAPPED = {">": "<", ">=": "<="}


class Values(NamedTuple):
    """The smallest and the largest value that rows may have, and how much each row counts: not at
    all where its value is missing or unknown."""

    low: NDArray[Any]
    high: NDArray[Any]
    weight: NDArray[Any]


def values_of(column: ColumnBase, codes: NDArray[np.integer], by_day: bool) -> Values:
    """The values that codes stand for.

    Numbers are themselves, dates and times seconds since 1970 (days where asked for), and labels
    and booleans their place in the list.
    """
    known = codes < column.num_values
    if column.catch_all_code is not None:
        known &= codes != column.catch_all_code
    low, high = column.ends(np.where(known, codes, 0).astype(np.int64))
    if by_day:
        low, high = low // DAY, high // DAY
    return Values(low, high, known.astype(np.float64))


@dataclass(frozen=True)
class Comparison:
    """A comparison of two columns of the same kind.

    Values are compared as the cells have them. Where only the bin of a value is known, a row breaks
    the rule if no two values of its two bins keep it, so that rows within one bin that might keep
    it count as keeping it. Rows with a missing or unknown value cannot be judged.

    Attributes:
        left, right: positions of the columns.
        operator: one of ``OPERATORS``.
        columns: how the two are declared.
    """

    left: int
    right: int
    operator: str
    columns: tuple[ColumnBase, ColumnBase]

    @property
    def text(self) -> str:
        """Such as "start <= end"."""
        return f"{self.columns[0].name} {self.operator} {self.columns[1].name}"

    def check(self, joint: JointCodes) -> Checked:
        """Which rows break it."""
        sides = list(zip((self.left, self.right), self.columns))
        operator = _SWAPPED.get(self.operator, self.operator)
        if operator != self.operator:
            sides.reverse()
        days = all(column.by_day for column in self.columns)
        tables = [
            [row_values(joint.pair, table, i, column, days) for i, column in sides]
            for table in (0, 1)
        ]
        broken = [_broken(operator, rows, _exceeding) > 0 for rows in tables]
        judged = [rows[0].weight * rows[1].weight > 0 for rows in tables]
        alone = [_distribution(values) for values in tables[0]]
        known = math.prod(float(values.weight.sum()) for values in alone)
        independent = _broken(operator, alone, _chance) / known if known else 0.0
        return Checked(np.concatenate(broken), np.concatenate(judged), independent)


def row_values(pair: TablePair, table: int, place: int, column: ColumnBase, by_day: bool) -> Values:
    """The values of the rows of one table, as the cells have them where that is known.

    Args:
        table: 0 for the true one, 1 for the synthetic.
        place: of the column.
        by_day: whether moments are days.
    """
    amounts = pair.amounts[table].get(column.name)
    if amounts is None:
        codes = (pair.true, pair.synthetic)[table].columns[place]
        return values_of(column, codes, by_day)
    known = ~np.isnan(amounts)
    low = np.where(known, amounts, 0.0)
    if by_day:
        low //= DAY
    whole_day = column.by_day and not by_day  # beside times, a day is a span
    return Values(low, low + (DAY - 1) if whole_day else low, known.astype(np.float64))


def _distribution(values: Values) -> Values:
    """The distinct values of some rows, their weights the shares of the rows; bins do not overlap,
    so that the smallest value tells the largest."""
    low, first, place = np.unique(values.low, return_index=True, return_inverse=True)
    weight = np.bincount(place, values.weight, len(low)) / len(values.weight)
    return Values(low, values.high[first], weight)


def _broken(operator: str, values: Sequence[Values], exceeds: Callable[..., Any]) -> Any:
    """Where, or how probably, two values break "<", "<=", "==" or "!=".

    Args:
        operator: of the rule.
        values: the two.
        exceeds: of x, its weights, y, its weights and a side, says so of x > y for the side "left"
            and of x >= y for the side "right".
    """
    a, b = values
    if operator in ("<", "<="):
        side = "right" if operator == "<" else "left"
        return exceeds(a.low, a.weight, b.high, b.weight, side)
    if operator == "==":
        above = exceeds(a.low, a.weight, b.high, b.weight, "left")
        return above + exceeds(b.low, b.weight, a.high, a.weight, "left")
    of_a, of_b = a.weight * (a.low == a.high), b.weight * (b.low == b.high)
    up_to, below = (exceeds(a.low, of_a, b.low, of_b, side) for side in ("right", "left"))
    return up_to - below


def _exceeding(x: NDArray, of_x: NDArray, y: NDArray, of_y: NDArray, side: Any) -> NDArray:
    """Row by row."""
    return of_x * of_y * (x > y if side == "left" else x >= y)


def _chance(x: NDArray, of_x: NDArray, y: NDArray, of_y: NDArray, side: Any) -> float:
    """Of independent draws."""
    order = np.argsort(y, kind="stable")
    below = np.concatenate([[0.0], np.cumsum(of_y[order])])
    return float((of_x * below[np.searchsorted(y[order], x, side)]).sum())


# Rules between columns: declared by the owner, or found to hold in the true table.

Rule = Comparison | Determination
VERBS = (" determines ", " determine ")
FORM = 'write "start <= end" (or <, ==, !=, >=, >) or "city determines country"'


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
    """A rule from its text: "start <= end", or "a, b determine c".

    Raises:
        InputError: it is no rule, can be read in several ways, names a column that is not in the
            schema, or compares columns whose values cannot be compared.
    """
    written = list(_readings(text, schema))
    readings = {r for r in written if all(name in schema.names for name in (*r[0], r[2]))}
    if len(readings) > 1:
        raise InputError(f"rule {text!r} can be read in several ways: rename a column")
    if not readings:
        unknown = (n for left, _, right in written for n in (*left, right) if n not in schema.names)
        if (name := next(unknown, None)) is None:
            raise InputError(f"rule {text!r} is no rule: {FORM}")
        raise InputError(f"rule {text!r}: column {name!r} is not in the schema: check the spelling")
    left, operator, right = readings.pop()
    if right in left:
        raise InputError(f"rule {text!r} names one column twice: give two columns")
    places = [schema.names.index(name) for name in (*left, right)]
    if operator == VERBS[0]:
        return Determination(tuple(places[:-1]), places[-1], (*left, right))
    columns = (schema.column(left[0]), schema.column(right))
    if columns[0].kind is None or columns[0].kind != columns[1].kind:
        raise InputError(
            f"rule {text!r} compares different kinds of values: give two columns of numbers, of "
            "dates or times, or of the same categories"
        )
    if operator not in ("==", "!=") and (loose := [c.name for c in columns if not c.ranked]):
        advice = 'declare "ordered": true, or use == or !='
        raise InputError(f"rule {text!r}: {loose[0]!r} has no order: {advice}")
    return Comparison(places[0], places[1], operator, columns)


Reading = tuple[tuple[str, ...], str, str]


def _readings(text: str, schema: Schema) -> Iterator[Reading]:
    """Every way to split the text at a verb or an operator; names may hold either, and commas."""
    for separator in (*VERBS, *OPERATORS):
        parts = text.split(separator)
        for k in range(1, len(parts)):
            left, right = (separator.join(side).strip() for side in (parts[:k], parts[k:]))
            if separator in OPERATORS:
                yield (left,), separator, right
            elif left in schema.names:
                yield (left,), VERBS[0], right
            else:
                names = dict.fromkeys(name.strip() for name in left.split(","))
                yield tuple(names), VERBS[0], right


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


def _orders(joint: JointCodes, schema: Schema) -> list[Comparison]:
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


def _strictest(
    joint: JointCodes, schema: Schema, i: int, j: int
) -> tuple[float, Comparison] | None:
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
    operators = [strict, loose] if not equal else [loose] if above or below else ["=="]
    for operator in operators:
        rule = Comparison(i, j, operator, columns)
        found = _shares(joint, rule, "found")
        chances = found.expected_if_independent * found.judged_true * joint.true_rows
        expected = found.expected_if_independent
        if not found.broken_true and expected >= LEAST_BROKEN and chances >= LEAST_CHANCES:
            return expected, rule
    return None
