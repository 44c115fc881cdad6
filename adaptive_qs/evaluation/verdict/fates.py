"""What became of the associations of the true table, as far as it can be told from chance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.verdict import thresholds as limit
from adaptive_qs.evaluation.verdict.chance import Chance, Matrix

Mask = NDArray[np.bool_]
MOST_CHANGES = 10
"""Changes that are named."""
LEAST_CHANGE = 0.01
"""Associations that differ by less are not named."""


@dataclass(frozen=True)
class Fate:
    """One association.

    Attributes:
        names: of its columns.
        true: Cramér's V in the true table.
        synthetic: in the synthetic one.
    """

    names: tuple[str, str]
    true: float
    synthetic: float


@dataclass(frozen=True, eq=False)
class Associations:
    """Clear associations of two attributes by their fate; the strongest first.

    Attributes:
        clear: their number in the true table.
        kept: how many of them hardly changed.
        lost: those of which little is left.
        made_up: those that only the synthetic table has.
        rare: pairs that are left out because too few rows of the true table make them.
        told: differences of V, synthetic less true, of shape (columns, columns); 0 where too few
            rows make V in the table in which it is larger.
        changes: the pairs with the largest of them.
        untold: pairs that differ by as much as can be named, but for too few rows.
    """

    clear: int
    kept: int
    lost: tuple[Fate, ...]
    made_up: tuple[Fate, ...]
    rare: int
    told: Matrix
    changes: tuple[Fate, ...]
    untold: int


def associations(evaluation: Evaluation) -> Associations:
    """What became of the clear associations, by Cramér's V.

    An association is clear, lost or made up only where chance does not explain it: V² must exceed
    0, or that of the other table, by ``DEVIATIONS`` standard deviations. It must rest on some rows,
    too: those off the most frequent value of both columns.
    """
    names = evaluation.association.names
    true, made = evaluation.association.cramers_v
    ours, theirs = map(Chance, evaluation.pair.margins)
    spread = np.hypot(ours.deviation(true), theirs.deviation(made))

    def half_gone(more: Matrix, less: Matrix) -> Mask:
        telling = more**2 - less**2 > limit.DEVIATIONS * spread
        return telling & (less < limit.LOST_PART * more)

    def fates(pairs: Mask, by: Matrix) -> tuple[Fate, ...]:
        first, second = np.nonzero(np.triu(pairs, 1))
        order = np.argsort(-by[first, second], kind="stable")
        return tuple(fate(first[k], second[k]) for k in order)

    def fate(i: int, j: int) -> Fate:
        return Fate((names[i], names[j]), float(true[i, j]), float(made[i, j]))

    independent = limit.DEVIATIONS * ours.deviation(np.zeros_like(true))
    strong = np.triu((true >= limit.CLEAR_V) & (true**2 > independent), 1)
    clear = strong & ours.told
    new = (made >= limit.CLEAR_V) & theirs.told & half_gone(made, true)
    is_told = np.where(true >= made, ours.told, theirs.told)
    told = np.where(is_told, made - true, 0.0)
    untold = np.triu(~is_told & (np.abs(made - true) >= LEAST_CHANGE), 1)
    return Associations(
        int(clear.sum()),
        int((np.abs(made - true) <= limit.KEPT_V)[clear].sum()),
        fates(clear & half_gone(true, made), true),
        fates(new, made),
        int((strong & ~clear).sum()),
        told,
        tuple(fate(i, j) for i, j in _largest(told)),
        int(untold.sum()),
    )


def _largest(difference: Matrix) -> list[tuple[int, int]]:
    """The pairs with the largest differences, by size."""
    first, second = np.triu_indices(len(difference), 1)
    sizes = np.abs(difference[first, second])
    order = np.argsort(-sizes, kind="stable")[:MOST_CHANGES]
    return [(int(first[k]), int(second[k])) for k in order if sizes[k] >= LEAST_CHANGE]
