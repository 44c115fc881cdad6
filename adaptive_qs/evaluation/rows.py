"""Whole rows: copies of true ones, and pairs of values that no true row has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation.associations import PairCounts
from adaptive_qs.evaluation.checks import (
    Check,
    Column,
    Comparison,
    Drawn,
    Facts,
    Finding,
    Table,
    Word,
)
from adaptive_qs.evaluation.tables import JointCodes, TablePair
from adaptive_qs.pages.words import counted, share, short
from adaptive_qs.table.columns.base import ColumnBase

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
        Word("the same rows", "poor", lambda rows: rows.same, "they are those of the true table"),
        Word("copies", "poor", lambda r: r.unique_matches >= COPY_FACTOR * r.expected + COPIED,
             "the share of synthetic rows that equal a true row which occurs once exceeds "
             f"{COPY_FACTOR} times what is expected by {COPIED:.0%} of the rows"),
    )  # fmt: skip

    def measure(self, comparison: Comparison) -> RowChecks:
        """Measure both tables."""
        return row_checks(comparison.joint)

    def judge(self, facts: RowChecks, evaluation: Any) -> Finding:
        """Judge what was measured."""
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
        samples = Drawn("Random rows of both tables. Rows on the same line are not related",
                        partial(sample_rows, evaluation.comparison))  # fmt: skip
        figures = (Facts(lines), samples)
        return Finding(grade, word, headline=alarm, figures=figures, notes=notes, advice=advice)


ROWS_SAMPLED, COLUMNS_SAMPLED = 8, 12


def sample_rows(comparison: Comparison) -> list[tuple[str, str, Table]]:
    """Return random rows of both tables: values if the cells are known, else labels of codes."""
    pair, columns = comparison.pair, comparison.schema.columns[:COLUMNS_SAMPLED]
    hidden, tables = len(comparison.schema.columns) - len(columns), []
    for table, (name, coded) in enumerate((("True", pair.true), ("Synthetic", pair.synthetic))):
        rng = np.random.default_rng(0)
        amount = min(ROWS_SAMPLED, coded.num_rows)
        rows = np.sort(rng.choice(coded.num_rows, amount, replace=False))
        texts = [_texts(pair, table, place, column, rows) for place, column in enumerate(columns)]
        caption = f"{name} rows" + (f"; {counted(hidden, 'column')} not shown" if hidden else "")
        heads = tuple(
            Column(short(column.name, 40), partial(short, longest=40)) for column in columns
        )
        tables.append(("", "", Table(caption, heads, list(zip(*texts)), printed=0)))
    return tables


def _texts(
    pair: TablePair, table: int, place: int, column: ColumnBase, rows: NDArray[np.int64]
) -> list[str]:
    coded = (pair.true, pair.synthetic)[table]
    labels = column.labels_of_codes()
    texts = [labels[code] for code in coded.columns[place][rows]]
    if (amounts := pair.amounts[table].get(column.name)) is None:
        return texts
    known = amounts[rows]
    return [t if np.isnan(v) else column.amount_text(v, whole=True) for t, v in zip(texts, known)]
