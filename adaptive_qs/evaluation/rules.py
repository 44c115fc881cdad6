"""Rules between columns, declared or found, and the rows that break them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation.tables import JointCodes, TablePair
from adaptive_qs.table import conditions, grammar
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.conditions import Condition, Values, read_values
from adaptive_qs.table.grammar import written
from adaptive_qs.table.schema import Schema

BROKEN = 0.01
"""Share of synthetic rows, beyond that of the true ones, from which a broken rule is named."""

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

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that it speaks of."""
        return tuple(self.condition.columns())

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
    return read_values(column, codes, pair.amounts[table].get(column.name))


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
    return _rule(text, grammar.parse_rule(text, schema.by_name), schema)


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
