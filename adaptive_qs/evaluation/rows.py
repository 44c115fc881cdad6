"""Whole rows: copies of true ones, unseen pairs of values, and rows that break rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

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
    format_names,
    named,
    number,
)
from adaptive_qs.evaluation.finding import found_rules
from adaptive_qs.evaluation.rules import (
    BROKEN,
    ImpossibleRows,
    RuleCheck,
    check_rules,
    impossible_rows,
)
from adaptive_qs.evaluation.scale import DEVIATIONS
from adaptive_qs.evaluation.tables import JointCodes, PairCounts
from adaptive_qs.pages.words import combination, quoted, share, short

UNSEEN = 0.05
"""Synthetic rows with two values that no true row has together, beyond those of new true rows."""
IMPOSSIBLE = 0.25
"""Synthetic rows, beyond the true ones, that break a rule or have such a pair of values, from which
a table is suitable for no use of single rows."""
JUDGED = 0.01
"""Share of the synthetic rows that a rule must judge to count for all of them."""
COPY_FACTOR, COPIED = 2, 0.05
"""A fresh row equals a true row that occurs once with probability 2 f₂/N (Good and Turing; f₂ rows
occur twice), and rows that occur just twice bring one half of the true table to f₂/N matches in the
other: hence the factor."""


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


# Pairs of values that the synthetic table has and the true one never shows.

WORST = 20
"""Pairs of attributes that are named."""


@dataclass(frozen=True)
class UnseenPair:
    """The names of two attributes, and the share of the synthetic rows with two values of them that
    no true row has together."""

    attributes: tuple[str, str]
    share: float


@dataclass(frozen=True)
class UnseenPairs:
    """Combinations of two values that never occur in the true table; owner only.

    Some are impossible and some merely rare: true rows that were left out would have some, too.

    Attributes:
        share: synthetic rows with at least one such pair of values, in any two attributes.
        expected_if_redrawn: the same for true rows, each against all the others (Good and Turing's
            estimate of what was not seen).
        worst: the pairs of attributes with the largest shares above 0, at most ``WORST``.
    """

    share: float
    expected_if_redrawn: float
    worst: tuple[UnseenPair, ...]


def unseen_pairs(counts: PairCounts) -> UnseenPairs:
    """Unseen combinations of two tables whose pairs have been counted."""
    names, rows = counts.joint.pair.domain.names, len(counts.row_unseen)
    worst = sorted(counts.unseen.items(), key=lambda item: (-item[1], item[0]))[:WORST]
    pairs = tuple(UnseenPair((names[i], names[j]), n / rows) for (i, j), n in worst if n)
    shares = float(counts.row_unseen.mean()), float(counts.row_unique.mean())
    return UnseenPairs(*shares, pairs)


# The check of whole rows.


class RowsCheck(Check):
    """Whether synthetic rows are copies of true ones.

    Few matches are no measure of privacy, and nothing is said of them.
    """

    name, title = "rows", "Whole rows"
    rules = (
        Word("the same rows", "poor", lambda rows: rows.same),
        Word("copies", "poor", lambda r: r.unique_matches >= COPY_FACTOR * r.expected + COPIED),
    )  # fmt: skip

    def measure(self, comparison: Comparison) -> RowChecks:
        return row_checks(comparison.joint)

    def judge(self, facts: RowChecks, evaluation: Any) -> Finding:
        grade, word = self.word_for(facts)
        alarm = ""
        notes: tuple[str, ...] = ()
        advice: tuple[str, ...] = ()
        if facts.same:
            alarm = (
                "All synthetic rows are true rows, each as often as in the true table: this is the "
                "true table itself, or a copy. Check which files were given."
            )
            notes = (
                "the synthetic rows are the true rows, each as often: the true table was compared "
                "with itself, or with a copy",
            )
        elif word:
            alarm = (
                f"{share(facts.unique_matches)} of the synthetic rows equal a true row that occurs "
                f"once. Independent columns would match {share(facts.expected_if_independent)} of "
                f"all rows, one half of the true table {share(facts.expected_if_redrawn)} of the "
                "other. Rows can have been copied: find out how the table was made. (Few matches "
                "would prove no privacy.)"
            )
        if alarm:
            advice = ("Find out why so many synthetic rows equal true ones before anything else.",)
        lines = (
            ("exact matches",
             f"{share(facts.exact_matches)} of the synthetic rows also occur in the true table. "
             f"For comparison: {share(facts.expected_if_independent)} with independent columns, "
             f"{share(facts.expected_if_redrawn)} between two halves of the true table"),
            ("unique matches", f"{share(facts.unique_matches)} equal a true row that occurs once"),
            ("repeated", f"{share(facts.repeated)} of the synthetic rows, "
             f"{share(facts.true_repeated)} of the true rows"),
        )  # fmt: skip
        figures = (Facts(lines),)
        return Finding(grade, word, headline=alarm, figures=figures, notes=notes, advice=advice)


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
        Word("impossible rows", "poor", lambda rows: rows.broken >= IMPOSSIBLE),
        Word("unseen pairs", "poor",
             lambda rows: rows.beyond >= max(IMPOSSIBLE, DEVIATIONS * rows.deviation)),
        Word("broken rules", "fair", lambda rows: rows.broken >= BROKEN),
        Word("unseen pairs", "fair",
             lambda rows: rows.beyond >= max(UNSEEN, DEVIATIONS * rows.deviation)),
        Word("kept", "good"),
    )  # fmt: skip

    def measure(self, comparison: Comparison) -> RuleFacts:
        joint, declared = comparison.joint, comparison.rules
        counts = comparison.pairs
        checked = list(zip(declared, check_rules(joint, declared, "declared")))
        texts = [rule.text for rule in declared]
        checked += found_rules(counts, comparison.schema, texts)
        unseen = unseen_pairs(counts)
        checks = tuple(check for _, check in checked)
        return RuleFacts(checks, impossible_rows(joint, checked), unseen)

    def judge(self, facts: RuleFacts, evaluation: Any) -> Finding:
        found = judge_rows(facts, evaluation.comparison.rows)
        grade, word = self.word_for(found)
        broken = broken_rules(facts.checks)
        text = "" if grade == "good" else rows_sentence(facts, found, broken)
        advice: tuple[str, ...] = ()
        if broken:
            names = format_names([rule.rule for rule in broken], "rules")
            advice = (f"Repair or report rows that break {names}.",)
        return Finding(grade, word, text, figures=_rule_figures(facts), advice=advice)

    def as_json(self, facts: RuleFacts) -> Mapping[str, Any]:
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
