"""Whether synthetic rows look like copies of true ones."""

from __future__ import annotations

from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.verdict import thresholds as limit
from adaptive_qs.evaluation.verdict.sentence import Sentence
from adaptive_qs.pages.numbers import share


def copies_sentence(evaluation: Evaluation) -> Sentence | None:
    """A warning where rows are the same, or more of them match than chance explains; else None.

    That few rows match is no measure of privacy, and nothing is said then.
    """
    rows = evaluation.rows
    if rows.same:
        text = (
            "All synthetic rows are true rows, each as often as in the true table: this is the "
            "true table itself, as far as the schema tells. Nothing below speaks of a synthetic "
            "table; check which files were given."
        )
        return Sentence("poor", "the same rows", text)
    expected = max(rows.expected_if_independent, rows.expected_if_redrawn)
    if rows.unique_matches < limit.COPY_FACTOR * expected + limit.COPIED:
        return None
    text = (
        f"{share(rows.unique_matches)} of the synthetic rows equal a true row that occurs once; "
        f"independent columns would match {share(rows.expected_if_independent)} of all rows, one "
        f"half of the true table matches {share(rows.expected_if_redrawn)} of the other. Rows may "
        "have been copied: find out how the table was made. (Few matches would prove no privacy.)"
    )
    return Sentence("poor", "copies", text)
