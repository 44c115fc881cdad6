"""How far chance alone takes the Cramér's V of two columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation.pair import Margins
from adaptive_qs.evaluation.verdict import thresholds as limit

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]
LEAST_ROWS = 4
"""With fewer the variance of χ² is not defined."""


class Chance:
    """What can be told of associations in one table; matrices are of shape (columns, columns).

    Attributes:
        told: pairs of which enough rows lie off the most frequent value of both columns.
    """

    def __init__(self, margins: Margins, influence: Matrix) -> None:
        self._influence = influence  # of independent columns: 4 (r − 1)(c − 1)/N on average
        occupied = [counts[counts > 0] for counts in margins]
        values = np.array([len(counts) for counts in occupied], dtype=np.float64)
        spread = np.array([_is_spread(counts) for counts in occupied], dtype=np.bool_)
        self.told = np.outer(spread, spread)
        self._rows = rows = max(int(margins[0].sum()), 2)
        self._freedom = np.outer(values - 1, values - 1)
        corrected = values - 1 - (values - 1) ** 2 / (rows - 1)
        self._least = np.minimum.outer(corrected, corrected)
        self._variance = np.maximum(chi_square_variance(occupied), 0.0) / rows**2

    def deviation(self, v: Matrix) -> Matrix:
        """Standard deviations of V² = φ²/k, k as Bergsma corrects it.

        The variance is that of independent columns and that which the strength of the association
        has: what was found by the delta method, and as for a correlation 4 φ²/N at least. A few
        rows in a cell that hardly should be occupied make it many times as large.

        Args:
            v: Cramér's V of every pair.
        """
        return self._deviation(v, self._influence)

    @property
    def independent(self) -> Matrix:
        """The same where columns are independent."""
        nothing = np.zeros_like(self._influence)
        return self._deviation(nothing, nothing)

    def _deviation(self, v: Matrix, influence: Matrix) -> Matrix:
        defined = self._least > 0
        least = np.where(defined, self._least, 1.0)
        more = influence - 4 * self._freedom / self._rows
        strength = np.maximum(more, 4 * v**2 * least) / self._rows
        deviation = np.sqrt(self._variance + strength) / least
        return np.where(defined, deviation, np.inf)

    def effect(self, v: Matrix) -> Matrix:
        """Cohen's w: V √k, the distance from independence whatever the number of values.

        Cohen 1988, "Statistical Power Analysis for the Behavioral Sciences", chapter 7.

        Args:
            v: Cramér's V of every pair.
        """
        return np.asarray(v * np.sqrt(np.maximum(self._least, 0.0)))

    def present(self, v: Matrix, other: Chance) -> Mask:
        """Pairs that are associated, and so strongly that another table could not lose it unseen.

        Args:
            v: Cramér's V of every pair.
            other: what can be told in the other table.
        """
        unseen = np.hypot(self.deviation(v), other.independent)
        found = self.told & (self.effect(v) >= limit.LEAST_EFFECT)
        return np.asarray(found & (v**2 > limit.DEVIATIONS * unseen))


def chi_square_variance(margins: Sequence[NDArray[np.integer]]) -> Matrix:
    """Variance of χ² over all permutations of one column against another, exactly.

    Dawson 1954, "A simplified expression for the variance of the χ²-function on a contingency
    table", Biometrika 41. With few rows in a cell it is far from 2 (r − 1)(c − 1).

    Args:
        margins: counts of the values of every column, all above 0, of one sum N.

    Returns:
        Of each two columns, of shape (columns, columns); infinite where N is below ``LEAST_ROWS``.
    """
    rows = int(margins[0].sum())
    if rows < LEAST_ROWS:
        return np.full((len(margins), len(margins)), np.inf)
    values = np.array([len(counts) for counts in margins], dtype=np.float64)
    inverse = np.array([float((1 / counts).sum()) for counts in margins])
    spare = (rows - values) * (values - 1) / (rows - 1)
    rare = (rows * inverse - values**2) / (rows - 2)
    both = 2 * rows / (rows - 3) * np.outer(spare - rare, spare - rare)
    return np.asarray(both + rows**2 / (rows - 1) * np.outer(rare, rare))


def _is_spread(counts: NDArray[np.integer]) -> bool:
    """Whether enough rows lie off the most frequent value."""
    rows = int(counts.sum())
    return bool(rows - counts.max() >= max(limit.LEAST_OFF, limit.LEAST_OFF_PART * rows))
