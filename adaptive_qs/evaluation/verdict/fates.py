"""What became of the associations of the true table, as far as it can be told from chance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.pair import Margins, TablePair
from adaptive_qs.evaluation.verdict import thresholds as limit

Pair = tuple[int, int]
Matrix = NDArray[np.float64]
LEAST_ROWS = 4
"""With fewer the variance of χ² is not defined."""
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
    ours, theirs = map(_Spread, evaluation.pair.margins)
    pairs = list(combinations(range(len(names)), 2))

    def apart(p: Pair, more: float, less: float) -> bool:
        spread = math.hypot(ours.of(p, true[p]), theirs.of(p, made[p]))
        return less < limit.LOST_PART * more and more**2 - less**2 > limit.DEVIATIONS * spread

    def fate(p: Pair) -> Fate:
        return Fate((names[p[0]], names[p[1]]), float(true[p]), float(made[p]))

    strong = [p for p in pairs if true[p] >= limit.CLEAR_V and ours.is_clear(p, true[p])]
    clear = [p for p in strong if ours.is_told(p)]
    lost = [p for p in clear if apart(p, true[p], made[p])]
    new = [
        p
        for p in pairs
        if made[p] >= limit.CLEAR_V and theirs.is_told(p) and apart(p, made[p], true[p])
    ]
    is_told = _told(evaluation.pair, true, made)
    told = np.where(is_told, made - true, 0.0)
    untold = np.triu(~is_told & (np.abs(made - true) >= LEAST_CHANGE), 1)
    return Associations(
        len(clear),
        sum(abs(made[p] - true[p]) <= limit.KEPT_V for p in clear),
        tuple(map(fate, sorted(lost, key=lambda p: -true[p]))),
        tuple(map(fate, sorted(new, key=lambda p: -made[p]))),
        len(strong) - len(clear),
        told,
        tuple(map(fate, _largest(told))),
        int(untold.sum()),
    )


def _told(pair: TablePair, true: Matrix, made: Matrix) -> NDArray[np.bool_]:
    """Which pairs of columns enough rows make in the table in which V is larger; symmetric."""
    ours, theirs = (
        np.array([_is_spread(counts) for counts in margins], bool) for margins in pair.margins
    )
    return np.where(true >= made, np.outer(ours, ours), np.outer(theirs, theirs))


def _largest(difference: Matrix) -> list[Pair]:
    """The pairs with the largest differences, by size."""
    first, second = np.triu_indices(len(difference), 1)
    sizes = np.abs(difference[first, second])
    order = np.argsort(-sizes, kind="stable")[:MOST_CHANGES]
    return [(int(first[k]), int(second[k])) for k in order if sizes[k] >= LEAST_CHANGE]


def _is_spread(counts: NDArray[np.integer]) -> bool:
    """Whether enough rows lie off the most frequent value."""
    rows = int(counts.sum())
    return bool(rows - counts.max() >= max(limit.LEAST_OFF, limit.LEAST_OFF_PART * rows))


def chi_square_variance(first: NDArray[np.integer], second: NDArray[np.integer]) -> float:
    """Variance of χ² over all permutations of one column against the other, exactly.

    Dawson 1954, "A simplified expression for the variance of the χ²-function on a contingency
    table", Biometrika 41. With few rows in a cell it is far from 2 (r − 1)(c − 1).

    Args:
        first: counts of the values of one attribute, all above 0.
        second: of the other; both have the same sum N.
    """
    rows = int(first.sum())
    if rows < LEAST_ROWS:
        return math.inf
    spare, rare = zip(*(_moments(margin, rows) for margin in (first, second)))
    both = 2 * rows / (rows - 3) * (spare[0] - rare[0]) * (spare[1] - rare[1])
    return float(both + rows**2 / (rows - 1) * rare[0] * rare[1])


def _moments(margin: NDArray[np.integer], rows: int) -> tuple[float, float]:
    values = len(margin)
    spare = (rows - values) * (values - 1) / (rows - 1)
    return spare, (rows * float((1 / margin).sum()) - values**2) / (rows - 2)


class _Spread:
    """How far V² of a table's pairs varies by chance, in standard deviations."""

    def __init__(self, margins: Margins) -> None:
        self._rows = max(int(margins[0].sum()), 2)
        self._margins = [counts[counts > 0] for counts in margins]

    def is_told(self, pair: Pair) -> bool:
        """Whether enough rows lie off the most frequent value of both columns."""
        return all(_is_spread(self._margins[i]) for i in pair)

    def is_clear(self, pair: Pair, v: float) -> bool:
        """Whether columns that do not depend on each other would not show this V."""
        return v**2 > limit.DEVIATIONS * self.of(pair, 0.0)

    def of(self, pair: Pair, v: float) -> float:
        """Of V² = φ²/k, k as Bergsma corrects it: that of independent columns and, as for a
        correlation, 4 φ²/N for the strength of the association."""
        first, second = (self._margins[i] for i in pair)
        rows = self._rows
        least = min(n - (n**2 / (rows - 1)) for n in (len(first) - 1, len(second) - 1))
        if least <= 0:
            return math.inf
        variance = max(0.0, chi_square_variance(first, second)) / rows**2
        return math.sqrt(variance + 4 * v**2 * least / rows) / least
