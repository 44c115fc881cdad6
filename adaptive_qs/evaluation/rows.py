"""Checks of whole rows: how many synthetic rows are rows of the true table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation.contingency import JointCodes


@dataclass(frozen=True)
class RowChecks:
    """Whole rows, in codes of the schema, in shares of the synthetic rows; owner only.

    Matches are no measure of privacy: a table of few combinations repeats true rows by chance,
    and must.

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
