"""Rules between columns, declared or found, and the rows that break them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation.checks import (
    COLUMNS,
    FEW_NAMED,
    Check,
    Column,
    Comparison,
    Facts,
    Finding,
    Table,
    Word,
    named,
    names_of,
    number,
)
from adaptive_qs.evaluation.rows import UnseenPairs, unseen_pairs
from adaptive_qs.evaluation.scale import DEVIATIONS
from adaptive_qs.evaluation.tables import JointCodes, TablePair
from adaptive_qs.pages.words import combination, quoted, share, short
from adaptive_qs.table import conditions
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.conditions import Condition, Values, values_of, written
from adaptive_qs.table.schema import Schema

BROKEN = 0.01
"""Share of synthetic rows, beyond that of the true ones, from which a broken rule is named."""
UNSEEN = 0.05
"""Synthetic rows with two values that no true row has together, beyond those of new true rows."""
IMPOSSIBLE = 0.25
"""Synthetic rows, beyond the true ones, that break a rule or have such a pair of values, from which
a table is suitable for no use of single rows."""
JUDGED = 0.01
"""Share of the synthetic rows that a rule must judge to count for all of them."""
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


# The check of rules.


class RuleFacts(NamedTuple):
    """What is known of rows that break rules, or have pairs of values that no true row has.

    Attributes:
        checks: how often each rule is broken.
        impossible: rows that break some rule that true rows keep; None if there is none.
        unseen: pairs of values that no true row has.
    """

    checks: tuple[RuleCheck, ...]
    impossible: ImpossibleRows | None
    unseen: UnseenPairs | None


class JudgedRows(NamedTuple):
    """Shares of rows that break rules or have unseen pairs beyond true ones, and the standard
    deviation of the second."""

    broken: float
    beyond: float
    deviation: float


class RulesCheck(Check):
    """Whether more rows than among true ones break rules, or have pairs that no true row has."""

    name, title, about = "rules", "Rows that break rules", "rows"
    uses, shown = ("single rows",), "always"
    rules = (
        Word("impossible rows", "poor", lambda rows: rows.broken >= IMPOSSIBLE,
             f"at least {IMPOSSIBLE:.0%} more of the synthetic rows than of the true ones break a "
             "rule that holds in the true table, of all rows or of those that one rule can judge"),
        Word("unseen pairs", "poor",
             lambda rows: rows.beyond >= max(IMPOSSIBLE, DEVIATIONS * rows.deviation),
             "those with two values that occur together in no true row are more than among new "
             f"true rows by {IMPOSSIBLE:.0%} of the rows and by {DEVIATIONS} standard deviations"),
        Word("broken rules", "fair", lambda rows: rows.broken >= BROKEN,
             f"at least {BROKEN:.0%} more of them break such a rule"),
        Word("unseen pairs", "fair",
             lambda rows: rows.beyond >= max(UNSEEN, DEVIATIONS * rows.deviation),
             f"such pairs are more by {UNSEEN:.0%} of the rows"),
        Word("kept", "good"),
    )  # fmt: skip
    definitions = (
        f"Rules are named if at least {BROKEN:.0%} more of the synthetic rows that they can judge "
        "break them. Rows that lack a value neither keep nor break a rule.",
    )

    def measure(self, comparison: Comparison) -> RuleFacts:
        """Measure both tables."""
        from adaptive_qs.evaluation.finding import found_rules  # it imports this module

        joint, declared = comparison.joint, comparison.rules
        checked = list(zip(declared, check_rules(joint, declared, "declared")))
        texts = [rule.text for rule in declared]
        checked += found_rules(comparison.pairs, comparison.schema, texts)
        unseen = unseen_pairs(comparison.pairs)
        checks = tuple(check for _, check in checked)
        return RuleFacts(checks, impossible_rows(joint, checked), unseen)

    def judge(self, facts: RuleFacts, evaluation: Any) -> Finding:
        """Judge what was measured."""
        found = judge_rows(facts, evaluation.comparison.rows)
        grade, word = self.word_for(found)
        broken = broken_rules(facts.checks)
        text = "" if grade == "good" else rows_sentence(facts, found, broken)
        advice: tuple[str, ...] = ()
        if broken:
            names = names_of([rule.rule for rule in broken], "rules")
            advice = (f"Repair or report rows that break {names}.",)
        return Finding(grade, word, text, figures=_rule_figures(facts), advice=advice)

    def as_json(self, facts: RuleFacts) -> Mapping[str, Any]:
        """Return the fields of JSON."""
        return {"rules": facts.checks, "impossible": facts.impossible, "unseen": facts.unseen}


def broken_rules(checks: Sequence[RuleCheck]) -> list[RuleCheck]:
    """Return rules that synthetic rows break clearly more often than true ones, worst first."""
    broken = [r for r in checks if r.broken_synthetic - r.broken_true >= BROKEN]
    return sorted(broken, key=lambda r: -r.broken_synthetic)


def judge_rows(facts: RuleFacts, numbers: tuple[int, int]) -> JudgedRows:
    """Return how many more rows than among true ones break rules, or have unseen pairs.

    Chance moves the difference of two shares of n and m rows by √(p(1 − p)(1/n + 1/m)).
    """
    excess = [
        r.broken_synthetic - r.broken_true
        for r in broken_rules(facts.checks)
        if r.judged_synthetic >= JUDGED
    ]
    if (rows := facts.impossible) is not None:
        excess.append(rows.synthetic - rows.true)
    beyond, deviation = 0.0, 0.0
    if (unseen := facts.unseen) is not None:
        p = (unseen.share + unseen.expected_if_redrawn) / 2
        deviation = math.sqrt(p * (1 - p) * sum(1 / n for n in numbers))
        beyond = unseen.share - unseen.expected_if_redrawn
    return JudgedRows(max(excess, default=0.0), beyond, deviation)


def rows_sentence(facts: RuleFacts, found: JudgedRows, broken: Sequence[RuleCheck]) -> str:
    """Return which rules rows break, and which pairs of values no true row has."""
    parts, rows, unseen = [], facts.impossible, facts.unseen
    if rows is not None and rows.synthetic - rows.true >= BROKEN:
        kept = (
            "the rule that holds"
            if rows.rules == 1
            else f"at least one of {rows.rules} rules that hold"
        )
        parts.append(
            f"{share(rows.synthetic)} of the synthetic rows break {kept} in the true table"
        )
    if broken:
        most = named([_broken(rule) for rule in broken], "rules", FEW_NAMED)
        parts.append(f"Most often broken: {most}")
    if unseen is not None and found.beyond >= max(UNSEEN, DEVIATIONS * found.deviation):
        names = named([combination(pair.attributes) for pair in unseen.worst], "unseen")
        parts.append(
            f"{share(unseen.share)} of the synthetic rows contain a pair of values that occurs in "
            "no true row (expected for new rows of the same population: "
            f"{share(unseen.expected_if_redrawn)}): {names}"
        )
    return f"{'. '.join(parts)}."


def _broken(rule: RuleCheck) -> str:
    of = "" if rule.judged_synthetic >= 1 else " of the rows that have all its values"
    shares = f"{share(rule.broken_synthetic)}{of}; true table {share(rule.broken_true)}"
    return f"{quoted(rule.rule)} ({shares})"


def _rule_figures(facts: RuleFacts) -> tuple[Facts | Table, ...]:
    lines, tables = [], []
    if (rows := facts.impossible) is not None:
        lines.append(("impossible rows",
                      f"{share(rows.synthetic)} of the synthetic rows, {share(rows.true)} of the "
                      f"true rows break a rule that holds in the true table"))  # fmt: skip
    if facts.checks:
        worst = sorted(facts.checks, key=lambda rule: -rule.broken_synthetic)
        shares = (number("broken: true", share), number("synthetic", share),
                  number("if independent", share), number("rows judged", share))  # fmt: skip
        columns = (Column("rule", partial(short, longest=160)), Column("source"), *shares)
        caption = "Rows that break a rule, as shares of those that it can judge, most broken first"
        tables.append(Table(caption, columns, [
            (r.rule, r.source, r.broken_true, r.broken_synthetic, r.expected_if_independent,
             r.judged_synthetic)
            for r in worst
        ], "rules-table", len(worst)))  # fmt: skip
    else:
        lines.append(("rules", "none was declared, and none was found to hold in the true table"))
    if (unseen := facts.unseen) is not None:
        lines.append(("unseen pairs",
                      f"{share(unseen.share)} of the synthetic rows contain a pair of values that "
                      f"occurs in no true row; expected for new rows of the same population: "
                      f"{share(unseen.expected_if_redrawn)}"))  # fmt: skip
        heads = (COLUMNS, number("synthetic rows", share))
        pairs = [(pair.attributes, pair.share) for pair in unseen.worst]
        tables.append(Table("Pairs of columns with most unseen pairs of values", heads, pairs,
                            "unseen"))  # fmt: skip
    return (Facts(tuple(lines)), *(table for table in tables if table.rows))
