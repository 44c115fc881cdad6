"""Pairs of values that the synthetic table has and the true one never shows."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_qs.evaluation.pairs import PairCounts

WORST = 20
"""Pairs of attributes that are named."""


@dataclass(frozen=True)
class UnseenPair:
    """Two attributes.

    Attributes:
        attributes: their names.
        share: of the synthetic rows, with two values of them that no true row has together.
    """

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
    names = counts.joint.pair.domain.names
    rows = len(counts.row_unseen)
    worst = sorted(counts.unseen.items(), key=lambda item: (-item[1], item[0]))[:WORST]
    return UnseenPairs(
        float(counts.row_unseen.mean()),
        float(counts.row_alone.mean()),
        tuple(UnseenPair((names[i], names[j]), n / rows) for (i, j), n in worst if n),
    )
