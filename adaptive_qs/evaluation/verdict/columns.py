"""Which single columns are off."""

from __future__ import annotations

import math
from collections.abc import Sequence

from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.ordered import OrderedError
from adaptive_qs.evaluation.verdict import thresholds as limit
from adaptive_qs.evaluation.verdict.column_pairs import ColumnPair
from adaptive_qs.evaluation.verdict.sentence import Sentence, named
from adaptive_qs.pages.names import quoted
from adaptive_qs.pages.numbers import share, signed


def lost_columns(columns: Sequence[ColumnPair]) -> list[ColumnPair]:
    """Single columns that are far off, the worst first."""
    return [c for c in columns if c.variation - c.fresh >= max(limit.LOST_COLUMN, c.doubt)]


def moved_means(evaluation: Evaluation) -> list[OrderedError]:
    """Ordered columns whose mean moved far, the furthest first."""
    rows = evaluation.pair.true.num_rows, evaluation.pair.synthetic.num_rows
    least = max(limit.LARGE_SHIFT, 3 * math.sqrt(sum(1 / max(n, 1) for n in rows)))
    moved = [o for o in evaluation.ordered if abs(o.mean_shift) >= least]
    return sorted(moved, key=lambda o: -abs(o.mean_shift))


def columns_sentence(evaluation: Evaluation, columns: Sequence[ColumnPair]) -> Sentence:
    """Which single columns are off, and by what that is told.

    Args:
        evaluation: of the tables.
        columns: of both, the largest error first.
    """
    off, moved = lost_columns(columns), moved_means(evaluation)
    links: tuple[tuple[str, str], ...] = ()
    parts = []
    if off:
        names, links = named(
            [
                f"{quoted(c.name)} ({share(c.variation, 2)}, a fresh sample {share(c.fresh, 2)})"
                for c in off
            ],
            "all-columns",
        )
        parts.append(
            f"Single columns with at least {share(limit.LOST_COLUMN, 1)} of the rows more in "
            f"another cell than a fresh sample: {names}."
        )
        largest = columns[0]
        if largest not in off:
            parts.append(
                f"The largest error is that of {quoted(largest.name)}, "
                f"{share(largest.variation, 2)}, but it would be {share(largest.fresh, 2)} in a "
                "fresh sample."
            )
    else:
        parts.append("No single column is far off.")
    if moved:
        names, more = named(
            [f"{quoted(o.attribute)} ({signed(o.mean_shift, 1)})" for o in moved], "ordered"
        )
        links += more
        parts.append(f"Means that moved, in standard deviations: {names}.")
    text = " ".join(parts)
    if off:
        return Sentence("poor", "some off", text, links)
    if moved:
        return Sentence("fair", "moved means", text, links)
    return Sentence("good", "kept", text)
