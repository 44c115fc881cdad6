"""Checks of whole rows: how many synthetic rows are rows of the true table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RowChecks:
    """Whole rows, in codes of the schema, in shares of the synthetic rows; owner only.

    Matches are no measure of privacy: a table of few combinations repeats true rows by chance,
    and must.

    Attributes:
        exact_matches: synthetic rows that occur in the true table.
        expected_if_independent: the same for rows whose columns are drawn independently from the
            true columns.
        expected_if_redrawn: the same for one half of the true table in the other half.
        unique_matches: synthetic rows that equal a true row that occurs there once.
        repeated: synthetic rows that occur more than once among them.
        true_repeated: true rows that occur more than once among them, in shares of the true rows.
    """

    exact_matches: float
    expected_if_independent: float
    expected_if_redrawn: float
    unique_matches: float
    repeated: float
    true_repeated: float
