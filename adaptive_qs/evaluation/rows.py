"""Whole rows: copies of true ones, odd pairs of values, and rows that break rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from adaptive_qs.domain import Clique
from adaptive_qs.evaluation import checks
from adaptive_qs.evaluation import rules as rule_checks
from adaptive_qs.evaluation.checks import Check, Comparison, Facts, Finding, Table, Word, named
from adaptive_qs.evaluation.finding import found_rules
from adaptive_qs.evaluation.rules import BROKEN, RuleCheck, check_rules, impossible_rows
from adaptive_qs.evaluation.tables import ODD, Cells, Counts, JointCodes, Numbers, OddRow
from adaptive_qs.pages.words import combination, count, quoted, share, short

ODD_SHARE, MOST_ODD = 0.05, 200
"""Share of synthetic rows with an odd pair of values from which these are named, and maximum number
of odd rows that are listed."""
IMPOSSIBLE = 0.25
"""Share of synthetic rows, beyond the true ones, that break a rule or have such a pair of values,
from which a table is suitable for no use of single rows."""
COPY_FACTOR, COPIED = 2, 0.05
"""A fresh row equals a true row that occurs once with probability 2 f₂/N (Good and Turing; f₂ rows
occur twice), and rows that occur just twice bring one half of the true table to f₂/N matches in the
other: hence the factor."""


@dataclass(frozen=True)
class RowChecks:
    """Whole rows, in codes of the schema, in shares of the synthetic rows; owner only.

    Matches are no measure of privacy: a table of few combinations must repeat true rows.

    Attributes:
        exact_matches: synthetic rows that occur in the true table.
        expected_if_independent: the same for rows with the true columns, drawn independently.
        expected_if_redrawn: the same for one half of the true table in the other half, as the
            exact mean over all halves.
        unique_matches: synthetic rows that equal a true row that occurs once.
        repeated: synthetic rows that occur more than once.
        true_repeated: true rows that occur more than once, in shares of the true rows.
        same: whether the synthetic rows are the true rows, each as often, in any order.
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
    ranks, true, synthetic = count_combinations(joint)
    first, second = np.split(ranks, [joint.true_rows])
    first_rows = np.unique(first, return_index=True)[1]
    return RowChecks(
        float(synthetic[true > 0].sum() / len(second)),
        _chance_if_independent(joint.codes[:, : joint.true_rows], first_rows),
        _chance_between_halves(true[true > 0]), float(synthetic[true == 1].sum() / len(second)),
        float(synthetic[synthetic > 1].sum() / len(second)),
        float(true[true > 1].sum() / len(first)), np.array_equal(true, synthetic),
    )  # fmt: skip


def _chance_if_independent(
    codes: NDArray[np.unsignedinteger], first_rows: NDArray[np.intp]
) -> float:
    """Return the chance that independent columns make a true row: Σ over distinct rows of Π."""
    chance = np.ones(len(first_rows))
    for column in codes:
        chance *= (np.bincount(column) / len(column))[column[first_rows]]
    return min(1.0, float(chance.sum()))


def _chance_between_halves(repeats: Counts) -> float:
    """Return the chance that a row in one half of a table has an equal one in the other half.

    ``repeats`` says how often every distinct row occurs.
    """
    rows = int(repeats.sum())
    half = rows // 2
    if not half:
        return 0.0
    return float(((1 - none_drawn(repeats - 1, rows - half, rows - 1)) * repeats).sum() / rows)


def count_combinations(joint: JointCodes, columns: Clique = ()) -> tuple[Cells, Counts, Counts]:
    """Return the combination of each row, and the true and the synthetic rows of each combination.

    No columns are all columns.
    """
    ranks, distinct = joint.ranks(columns or tuple(range(len(joint.pair.domain))))
    parts = np.split(ranks, [joint.true_rows])
    true, made = (np.bincount(part, minlength=distinct) for part in parts)
    return ranks, true, made


def none_drawn(some: Counts, drawn: int, rows: int) -> Numbers:
    """Return the chance that none of some rows is among those drawn: C(R − t, D) / C(R, D)."""
    left = rows - drawn + 1
    some = np.minimum(some, left)
    chance = gammaln(left) - gammaln(left - some) + gammaln(rows - some + 1) - gammaln(rows + 1)
    return np.asarray(np.exp(chance))


class RowsCheck(Check):
    """Whether synthetic rows are copies of true ones; few matches are no measure of privacy."""

    name, title = "rows", "Whole rows"
    rules = (
        Word("the same rows", "poor", lambda rows: rows.same),
        Word("copies", "poor", lambda r: r.unique_matches >= COPY_FACTOR * r.expected + COPIED),
    )

    def measure(self, comparison: Comparison) -> RowChecks:
        return row_checks(comparison.joint)

    def judge(self, facts: RowChecks, evaluation: Any) -> Finding:
        """Raise an alarm if there are more copies than chance explains."""
        grade, word = self.word_for(facts)
        independent = share(facts.expected_if_independent)
        redrawn, unique = share(facts.expected_if_redrawn), share(facts.unique_matches)
        alarm, notes = "", tuple[str, ...]()
        if facts.same:
            alarm = (
                "All synthetic rows are true rows, each as often as in the true table: this is the "
                "true table itself, or a copy. Check the names of the files."
            )
            notes = ("the true table was compared with itself, or with a copy",)
        elif word:
            alarm = (
                f"{unique} of the synthetic rows equal a true row that occurs once. Independent "
                f"columns would match {independent} of all rows, one half of the true table "
                f"{redrawn} of the other. Rows can have been copied: find out how the table was "
                "made. (Few matches would prove no privacy.)"
            )
        step = "Find out why synthetic rows equal true ones before anything else."
        lines = (
            ("exact matches",
             f"{share(facts.exact_matches)} of the synthetic rows also occur in the true table. "
             f"For comparison: {independent} with independent columns, {redrawn} between two "
             "halves of the true table"),
            ("unique matches", f"{unique} equal a true row that occurs once"),
            ("repeated", f"{share(facts.repeated)} of the synthetic rows, "
             f"{share(facts.true_repeated)} of the true rows"),
        )  # fmt: skip
        advice = (step,) * bool(alarm)
        return Finding(
            grade, word, headline=alarm, figures=(Facts(lines),), notes=notes, advice=advice
        )


class RuleFacts(NamedTuple):
    """Rows that break rules, or have odd pairs of values.

    Attributes:
        checks: how often each rule is broken.
        impossible: rows that break some rule that true rows keep; None if there is none.
        odd_share: share of synthetic rows with two values that few or no true rows have together.
        odd: the oddest of them, one for each pair of columns.
    """

    checks: tuple[RuleCheck, ...]
    impossible: rule_checks.ImpossibleRows | None
    odd_share: float
    odd: tuple[OddRow, ...]

    @property
    def broken(self) -> float:
        """The largest share of rows that break rules, beyond that of true rows."""
        excess = [
            r.broken_synthetic - r.broken_true
            for r in broken_rules(self.checks)
            if r.judged_synthetic >= 0.01  # few rows count for none
        ]
        if self.impossible is not None:
            excess.append(self.impossible.synthetic - self.impossible.true)
        return max(excess, default=0.0)


def broken_rules(found: Sequence[RuleCheck]) -> list[RuleCheck]:
    """Return rules that synthetic rows break clearly more often than true ones, worst first."""
    broken = [r for r in found if r.broken_synthetic - r.broken_true >= BROKEN]
    return sorted(broken, key=lambda r: -r.broken_synthetic)


class RulesCheck(Check):
    """Whether more rows than among true ones break rules, or have odd pairs of values."""

    name, title, about = "rules", "Rows that break rules", "rows"
    uses, shown = ("single rows",), "always"
    rules = (
        Word("impossible rows", "poor", lambda rows: rows.broken >= IMPOSSIBLE),
        Word("broken rules", "fair", lambda rows: rows.broken >= BROKEN),
        Word("odd pairs of values", "fair", lambda rows: rows.odd_share >= ODD_SHARE),
        Word("kept", "good"),
    )

    def measure(self, comparison: Comparison) -> RuleFacts:
        """Check declared rules, rules that the true table keeps, and pairs of values."""
        joint, declared = comparison.joint, comparison.rules
        checked = list(zip(declared, check_rules(joint, declared, "declared")))
        checked += found_rules(joint, comparison.schema, [rule.text for rule in declared])
        found = tuple(check for _, check in checked)
        counts = comparison.pairs
        odd = sorted((o for o in counts.odd if o.surprise >= ODD), key=lambda o: -o.surprise)
        share_odd = float(counts.rows_odd.mean())
        return RuleFacts(found, impossible_rows(joint, checked), share_odd, tuple(odd[:MOST_ODD]))

    def judge(self, facts: RuleFacts, evaluation: Any) -> Finding:
        grade, word = self.word_for(facts)
        broken = broken_rules(facts.checks)
        text = "" if grade == "good" else rows_sentence(facts, broken, evaluation.pair.domain.names)
        names = checks.format_names([rule.rule for rule in broken])
        advice = (f"Repair or report rows that break {names}.",) if broken else ()
        return Finding(grade, word, text, figures=_figures(facts, evaluation), advice=advice)

    def as_json(self, facts: RuleFacts) -> Mapping[str, Any]:
        return dict(zip(("rules", "impossible", "odd_share", "odd_rows"), facts))


def rows_sentence(facts: RuleFacts, broken: Sequence[RuleCheck], columns: Sequence[str]) -> str:
    """Return which rules rows break, and which pairs of columns have odd pairs of values."""
    parts, rows = [], facts.impossible
    if rows is not None and rows.synthetic - rows.true >= BROKEN:
        kept = f"at least one of {rows.rules} rules that hold"
        kept = "the rule that holds" if rows.rules == 1 else kept
        parts.append(
            f"{share(rows.synthetic)} of the synthetic rows break {kept} in the true table"
        )
    if broken:
        most = named([_describe_broken(rule) for rule in broken], most=checks.FEW_NAMED)
        parts.append(f"Most often broken: {most}")
    if facts.odd_share >= ODD_SHARE:
        names = named([combination([columns[i] for i in odd.pair]) for odd in facts.odd])
        parts.append(
            f"{share(facts.odd_share)} of the synthetic rows have two values that few or no true "
            f"rows have together: {names}"
        )
    return f"{'. '.join(parts)}."


def _describe_broken(rule: RuleCheck) -> str:
    of = "" if rule.judged_synthetic >= 1 else " of the rows that have all its values"
    shares = f"{share(rule.broken_synthetic)}{of}; true table {share(rule.broken_true)}"
    return f"{quoted(rule.rule)} ({shares})"


def _figures(facts: RuleFacts, evaluation: Any) -> tuple[Facts | Table, ...]:
    lines, tables = [], []
    if (kept := facts.impossible) is not None:
        text = f"{share(kept.synthetic)} of the synthetic, {share(kept.true)} of the true rows "
        lines.append(("impossible rows", f"{text}break a rule that holds in the true table"))
    if facts.checks:
        worst = sorted(facts.checks, key=lambda rule: -rule.broken_synthetic)
        heads = ("broken: true", "synthetic", "if independent", "rows judged")
        columns = (
            checks.Column("rule", partial(short, longest=160)), checks.Column("source"),
            *(checks.number(head, share) for head in heads),
        )  # fmt: skip
        caption = "Rows that break a rule, as shares of those that it can judge, most broken first"
        tables.append(Table(caption, columns, [
            (r.rule, r.source, r.broken_true, r.broken_synthetic, r.expected_if_independent,
             r.judged_synthetic)
            for r in worst
        ], len(worst)))  # fmt: skip
    else:
        lines.append(("rules", "none was declared, and none was found to hold in the true table"))
    lines.append(("odd pairs",
                  f"{share(facts.odd_share)} of the synthetic rows have two values that few or no "
                  "true rows have together"))  # fmt: skip
    odd_columns = (
        checks.number("row", count), checks.Column("odd pair of values"),
        *(checks.number(h, count) for h in ("true rows", "if independent", "synthetic rows")),
    )  # fmt: skip
    describe = partial(evaluation.comparison.describe_row, 1)
    rows = [
        (o.row + 1, describe(o.row, o.pair), o.true, o.expected, o.synthetic) for o in facts.odd
    ]
    caption = "The oddest synthetic rows, one for each pair of columns"
    tables.append(Table(caption, odd_columns, rows, 5))
    return (Facts(tuple(lines)), *(table for table in tables if table.rows))
