"""What became of the associations of the true table, as far as it can be told from chance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.verdict import thresholds as limit
from adaptive_qs.evaluation.verdict.chance import Chance, Mask, Matrix

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
    """Associations of two attributes by their fate; the strongest first.

    Every clear one is kept, weaker, stronger or lost.

    Attributes:
        clear: their number in the true table.
        kept: how many of them hardly changed.
        weaker: how many are weaker, but not lost.
        stronger: how many are stronger.
        lost: those of which little is left.
        made_up: clear ones that only the synthetic table has.
        weak: their number in the true table.
        weak_lost: those of which little is left.
        weak_made_up: weak ones that only the synthetic table has.
        alone: attributes that are associated with others in the true table alone.
        rare: pairs that are left out because too few rows of the true table make them.
        told: differences of V, synthetic less true, of shape (columns, columns); 0 where too few
            rows make V in the table in which it is larger.
        changes: the pairs with the largest of them.
        untold: pairs that differ by as much as can be named, but for too few rows.
    """

    clear: int
    kept: int
    weaker: int
    stronger: int
    lost: tuple[Fate, ...]
    made_up: tuple[Fate, ...]
    weak: int
    weak_lost: tuple[Fate, ...]
    weak_made_up: tuple[Fate, ...]
    alone: tuple[str, ...]
    rare: int
    told: Matrix
    changes: tuple[Fate, ...]
    untold: int


def associations(evaluation: Evaluation) -> Associations:
    """What became of the associations, by Cramér's V.

    An association is clear, weak, lost or made up only where chance does not explain it: V² must
    exceed 0, or that of the other table, by ``DEVIATIONS`` standard deviations. It must rest on
    some rows, too: those off the most frequent value of both columns. Weak ones must be strong
    enough that their loss could be told.
    """
    names = evaluation.association.names
    true, made = evaluation.association.cramers_v
    ours, theirs = map(Chance, evaluation.pair.margins, evaluation.association.influence)
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

    independent = limit.DEVIATIONS * ours.independent
    strong = np.triu((true >= limit.CLEAR_V) & (true**2 > independent), 1)
    clear = strong & ours.told
    lost, new = half_gone(true, made), half_gone(made, true)
    kept = np.abs(made - true) <= limit.KEPT_V
    present, showing = ours.present(true, theirs), theirs.present(made, ours)
    faint = np.triu(present & (true < limit.CLEAR_V), 1)
    is_told = np.where(true >= made, ours.told, theirs.told)
    told = np.where(is_told, made - true, 0.0)
    untold = np.triu(~is_told & (np.abs(made - true) >= LEAST_CHANGE), 1)
    return Associations(
        clear=int(clear.sum()),
        kept=int((clear & kept).sum()),
        weaker=int((clear & ~kept & ~lost & (made < true)).sum()),
        stronger=int((clear & ~kept & (made > true)).sum()),
        lost=fates(clear & lost, true),
        made_up=fates((made >= limit.CLEAR_V) & theirs.told & new, made),
        weak=int(faint.sum()),
        weak_lost=fates(faint & lost, true),
        weak_made_up=fates(showing & (made < limit.CLEAR_V) & new, made),
        alone=tuple(names[i] for i in _cut_off(present, lost, showing)),
        rare=int((strong & ~clear).sum()),
        told=told,
        changes=tuple(fate(i, j) for i, j in _largest(told)),
        untold=int(untold.sum()),
    )


def _cut_off(present: Mask, lost: Mask, showing: Mask) -> list[int]:
    """Attributes that lost all of their associations, and have no other ones instead."""
    others = ~np.eye(len(present), dtype=np.bool_)
    had, left = present & others, (present & ~lost | showing) & others
    return [int(i) for i in np.flatnonzero(had.any(axis=1) & ~left.any(axis=1))]


def _largest(difference: Matrix) -> list[tuple[int, int]]:
    """The pairs with the largest differences, by size."""
    first, second = np.triu_indices(len(difference), 1)
    sizes = np.abs(difference[first, second])
    order = np.argsort(-sizes, kind="stable")[:MOST_CHANGES]
    return [(int(first[k]), int(second[k])) for k in order if sizes[k] >= LEAST_CHANGE]
