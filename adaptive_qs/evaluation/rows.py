"""Rows: copies of true ones, what columns disclose, odd pairs of values, and broken rules."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from adaptive_qs.arguments import shown, split_names
from adaptive_qs.domain import Clique
from adaptive_qs.errors import InputError
from adaptive_qs.evaluation import checks
from adaptive_qs.evaluation.checks import Check, Comparison, Facts, Finding, Table, Word, named
from adaptive_qs.evaluation.finding import found_rules
from adaptive_qs.evaluation.models import Guess, guess_column
from adaptive_qs.evaluation.rules import (
    BROKEN,
    ImpossibleRows,
    RuleCheck,
    check_rules,
    impossible_rows,
)
from adaptive_qs.evaluation.scale import DEVIATIONS
from adaptive_qs.evaluation.tables import ODD, Cells, JointCodes, OddRow
from adaptive_qs.pages.words import combination, count, counted, quoted, share, short

Counts = NDArray[np.int64]
Numbers = NDArray[np.float64]

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


# Copies of true rows.


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
        _chance_between_halves(true[true > 0]),
        float(synthetic[true == 1].sum() / len(second)),
        float(synthetic[synthetic > 1].sum() / len(second)),
        float(true[true > 1].sum() / len(first)),
        np.array_equal(true, synthetic),
    )


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
    return float(((1 - _none(repeats - 1, rows - half, rows - 1)) * repeats).sum() / rows)


def count_combinations(joint: JointCodes, columns: Clique = ()) -> tuple[Cells, Counts, Counts]:
    """Return the combination of each row, and the true and the synthetic rows of each combination.

    No columns are all columns.
    """
    ranks, distinct = joint.ranks(columns or tuple(range(len(joint.pair.domain))))
    parts = np.split(ranks, [joint.true_rows])
    true, made = (np.bincount(part, minlength=distinct) for part in parts)
    return ranks, true, made


def _none(some: Counts, drawn: int, rows: int) -> Numbers:
    """Return the chance that none of some rows is among those drawn: C(R − t, D) / C(R, D)."""
    left, others = rows - drawn + 1, gammaln(rows - some + 1)
    return np.asarray(np.exp(gammaln(left) - gammaln(left - some) + others - gammaln(rows + 1)))


def _one(some: Counts, drawn: int, rows: int) -> Numbers:
    """Return the chance that exactly one of some rows is among those drawn."""
    return some * (drawn / rows) * _none(some - 1, drawn - 1, rows - 1)


class RowsCheck(Check):
    """Whether synthetic rows are copies of true ones; few matches are no measure of privacy."""

    name, title = "rows", "Whole rows"
    rules = (
        Word("the same rows", "poor", lambda rows: rows.same),
        Word("copies", "poor", lambda r: r.unique_matches >= COPY_FACTOR * r.expected + COPIED),
    )

    def measure(self, comparison: Comparison) -> RowChecks:
        """Compare whole rows."""
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


# What columns that somebody knows disclose.

SMALL = 2, 3, 5, 10
"""Numbers of rows k: combinations of fewer are counted."""
_DISTANCE = re.compile("distance|closest|nearest|dcr|nndr", re.IGNORECASE)


def refuse_distance(text: str) -> None:
    """Raise InputError if a text asks for distances to the closest record."""
    if _DISTANCE.search(text):
        raise InputError(
            "Distances to the closest record are not reported: short ones can be chance, and long "
            "ones stop no inference. Name columns that somebody may know with --disclose."
        )


def parse_disclosed(text: str, names: Sequence[str]) -> Clique:
    """Return the positions of the columns that a text such as "age, sex, district" names."""
    found = dict.fromkeys(split_names(text, "age, sex, district"))
    for name in found:
        if name not in names:
            refuse_distance(name)
            raise InputError(f"disclose names {shown(name)}, which is no column. Check the names.")
    return tuple(map(names.index, found))


@dataclass(frozen=True)
class Agreement:
    """Shares of the combinations of one table that another table has.

    ``whole`` is of both tables. ``half`` is expected of a random half of the true rows and at most
    as many synthetic rows, and ``control`` of the same half and as many of the other true rows.
    """

    whole: float
    half: float
    control: float


@dataclass(frozen=True)
class Disclosure:
    """What rows disclose to somebody who knows some columns; owner only.

    Attributes:
        columns: which are known.
        combinations: number of those that occur, in the true and in the synthetic table.
        small: for each k the rows of either table in combinations of fewer than k rows.
        unique: unique synthetic rows whose combination is that of a unique true row.
        true_found, synthetic_found: combinations of one table that occur in the other one.
        guesses: of the other columns, the largest excess first.
    """

    columns: tuple[str, ...]
    combinations: tuple[int, int]
    small: tuple[tuple[int, int, int], ...]
    unique: Agreement
    true_found: Agreement
    synthetic_found: Agreement
    guesses: tuple[Guess, ...]


def find_disclosure(joint: JointCodes, columns: Clique) -> Disclosure:
    """Count the combinations of some columns in both tables, and guess the other columns."""
    cells, true, made = count_combinations(joint, columns)
    n, m, names = int(true.sum()), int(made.sum()), joint.pair.domain.names
    half, other = n // 2, min(n - n // 2, m)
    draws = (true, half, n), (made, other, m), (true, other, n)
    a, b, c = (_one(*draw) for draw in draws)
    both = a * _one(true - 1, other, n - half)
    once = true == 1, made == 1
    unique = Agreement(_part(once[0] & once[1], once[1]), _part(a * b, b), _part(both, c))
    a, b, c = (1 - _none(*draw) for draw in draws)
    both, shared = a + c - (1 - _none(true, half + other, n)), (true > 0) & (made > 0)
    found = Agreement(_part(shared, true > 0), _part(a * b, a), _part(both, a))
    back = Agreement(_part(shared, made > 0), _part(a * b, b), _part(both, c))
    small = ((k, int(true[true < k].sum()), int(made[made < k].sum())) for k in SMALL)
    others = (k for k in range(len(names)) if k not in columns)
    guesses = [guess_column(names[k], cells, joint.codes[k].astype(np.int64), true) for k in others]
    occupied = int(np.count_nonzero(true)), int(np.count_nonzero(made))
    return Disclosure(
        tuple(names[k] for k in columns), occupied, tuple(small), unique, found, back,
        tuple(sorted(guesses, key=lambda g: -g.excess)),
    )  # fmt: skip


def _part(some: NDArray[Any], of: NDArray[Any]) -> float:
    return float(some.sum() / of.sum()) if of.any() else math.nan


class DisclosureCheck(Check):
    """What somebody who knows some columns of a person can learn; it has no grade."""

    name, title, shown, first = "disclosure", "Disclosure", "always", True

    def measure(self, comparison: Comparison) -> Disclosure | None:
        """Count and guess, if columns were named."""
        named = comparison.disclose
        return find_disclosure(comparison.joint, tuple(named)) if named else None

    def judge(self, facts: Disclosure | None, evaluation: Any) -> Finding | None:
        """Say how many rows are unique, and which columns are guessed better than by chance."""
        if facts is None:
            return None
        rows, unique = evaluation.comparison.rows, facts.small[0][1:]
        single = [f"{share(k / n)} of the {of} rows" for k, n, of in
                  zip(unique, rows, ("true", "synthetic"))]  # fmt: skip
        clear = [f"{quoted(g.column)} ({share(g.synthetic)} right, {share(g.control)})"
                 for g in facts.guesses if g.excess > DEVIATIONS * g.deviation]  # fmt: skip
        text = f"{' and '.join(single)} are unique by {combination(facts.columns)}."
        text += " No other column is guessed better from synthetic rows than from other true rows."
        if clear:
            text = text.replace(" No other column is", " Some columns are")
            text = f"{text[:-1]}: {named(clear)}."
        return Finding(*self.word_for(facts), text, figures=_disclosure_figures(facts, rows))


def _disclosure_figures(facts: Disclosure, rows: tuple[int, int]) -> tuple[Facts | Table, ...]:
    kinds, number = [counted(n, "combination") for n in facts.combinations], checks.number
    lines = (
        ("known columns", f"{combination(facts.columns)}: {kinds[0]} in the true table, {kinds[1]} "
         "in the synthetic one. Numbers count by their bins, a missing value as a value"),
        ("unique rows", "are alone with their combination. Whoever knows these columns can single "
         "out a unique true row. A unique synthetic row belongs to nobody"),
        ("combinations", "of both tables do not show that a row was copied. One half of the true "
         "rows shares some with the other (control rows), and synthetic rows should share as many"),
        ("guesses", "that other true rows allow as well reveal what holds for everybody. Only the "
         "excess can come from the row itself. Other attacks can have a larger one"),
        ("privacy", "is not measured here. The promise of the release bounds every attack"),
    )  # fmt: skip
    heads = ("true rows", count), ("share", share), ("synthetic rows", count), ("share", share)
    small = Table(
        "Rows in combinations of fewer than k rows",
        (number("k"), *(number(*head) for head in heads)),
        [(k, true, true / rows[0], made, made / rows[1]) for k, true, made in facts.small],
    )
    kinds = ["whole tables", "half of the rows", "control rows"]
    shared = Table(
        "Combinations in both tables: of all rows; of half of the true rows and as many synthetic "
        "rows; of the two halves of the true rows",
        (checks.Column("share of", partial(short, longest=99)), *(number(h, share) for h in kinds)),
        [("unique synthetic rows with a unique true row's combination", *astuple(facts.unique)),
         ("true combinations that are synthetic ones, too", *astuple(facts.true_found)),
         ("synthetic combinations that are true ones, too", *astuple(facts.synthetic_found))],
    )  # fmt: skip
    kinds = ["synthetic rows", "other true rows", "most frequent value", "excess", "deviation"]
    guessed = Table(
        "True rows whose value is guessed right from the known columns, by what the guess is from",
        (checks.Column("column"), *(number(head, share) for head in kinds)),
        [*map(astuple, facts.guesses)],
    )  # fmt: skip
    return Facts(lines), small, shared, guessed


# The check of rules.


class RuleFacts(NamedTuple):
    """Rows that break rules, or have odd pairs of values.

    Attributes:
        checks: how often each rule is broken.
        impossible: rows that break some rule that true rows keep; None if there is none.
        odd_share: share of synthetic rows with two values that few or no true rows have together.
        odd: the oddest of them, one for each pair of columns.
    """

    checks: tuple[RuleCheck, ...]
    impossible: ImpossibleRows | None
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
        texts = [rule.text for rule in declared]
        checked += found_rules(joint, comparison.schema, texts)
        found = tuple(check for _, check in checked)
        counts = comparison.pairs
        odd = sorted((o for o in counts.odd if o.surprise >= ODD), key=lambda o: -o.surprise)
        share_odd = float(counts.rows_odd.mean())
        return RuleFacts(found, impossible_rows(joint, checked), share_odd, tuple(odd[:MOST_ODD]))

    def judge(self, facts: RuleFacts, evaluation: Any) -> Finding:
        """Name the broken rules and the odd pairs."""
        grade, word = self.word_for(facts)
        broken = broken_rules(facts.checks)
        columns = evaluation.pair.domain.names
        text = "" if grade == "good" else rows_sentence(facts, broken, columns)
        names = checks.format_names([rule.rule for rule in broken])
        advice = (f"Repair or report rows that break {names}.",) if broken else ()
        return Finding(grade, word, text, figures=_figures(facts, evaluation), advice=advice)

    def as_json(self, facts: RuleFacts) -> Mapping[str, Any]:
        """Return the parts of the facts."""
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
