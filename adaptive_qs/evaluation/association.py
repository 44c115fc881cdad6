"""How strongly attributes depend on each other, in both tables.

Cramér's V is bias-corrected (Bergsma 2013, "A bias-correction for Cramér's V and Tschuprow's T",
J. Korean Stat. Soc. 42): N rows of independent attributes with r and c values have
χ²/N = (r−1)(c−1)/(N−1) on average, not 0; that is taken off, and r and c are corrected alike.

The plug-in mutual information of N rows has the same fault: it is about (r−1)(c−1)/(2N) too large
where cells are well filled. So entropies are corrected as Miller (1955) did: (K−1)/(2N) is added
to the entropy of K occurring values. What is left of the bias is small where N is large beside the
occupied cells, and upwards where it is not: ``limits`` names pairs with fewer than five rows for
each occupied cell. It depends on the number of rows, so tables of very
different length are compared less well.

r, c and K count the values that occur, each table for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation.entropy import miller_entropy
from adaptive_qs.evaluation.pairs import PairCounts, PairSums

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Association:
    """Association matrices of both tables; owner only.

    Every matrix has shape (attributes, attributes), is symmetric and has entries from 0
    (independent) to 1 (one determines the other); the diagonal is 1. An attribute with a single
    value has 0 beside all others.

    Attributes:
        names: of the attributes.
        cramers_v: of the true and of the synthetic table, bias-corrected.
        mutual_information: normalised by the smaller entropy, of the true and of the synthetic
            table.
        influence: N times the variance of φ² over samples, of the true and of the synthetic table.
    """

    names: tuple[str, ...]
    cramers_v: tuple[Matrix, Matrix]
    mutual_information: tuple[Matrix, Matrix]
    influence: tuple[Matrix, Matrix]

    @property
    def cramers_v_difference(self) -> Matrix:
        """Synthetic less true."""
        return self.cramers_v[1] - self.cramers_v[0]

    @property
    def mutual_information_difference(self) -> Matrix:
        """Synthetic less true."""
        return self.mutual_information[1] - self.mutual_information[0]


def mean_and_largest(difference: Matrix) -> tuple[float, float]:
    """Of the absolute differences of two association matrices, over all pairs of attributes."""
    upper = np.abs(difference[np.triu_indices(len(difference), 1)])
    return (float(upper.mean()), float(upper.max())) if upper.size else (0.0, 0.0)


def association_of(counts: PairCounts) -> Association:
    """The association matrices of two tables whose pairs have been counted."""
    rows = (counts.joint.true_rows, counts.joint.rows - counts.joint.true_rows)
    names = counts.joint.pair.domain.names
    found: dict[str, list[Matrix]] = {"v": [], "information": [], "influence": []}
    for number, margins, sums in zip(rows, counts.margins, counts.sums):
        values = [int(np.count_nonzero(margin)) for margin in margins]
        entropies = [miller_entropy(margin) for margin in margins]
        for matrices in found.values():
            matrices.append(np.eye(len(names)))
        for (i, j), pair in sums.items():
            v = cramers_v(pair, number, values[i], values[j])
            information = _shared(pair, number, entropies[i], entropies[j])
            for matrices, value in zip(found.values(), (v, information, pair.influence)):
                matrices[-1][i, j] = matrices[-1][j, i] = value
    v_true, v_synthetic = found["v"]
    information_true, information_synthetic = found["information"]
    influence_true, influence_synthetic = found["influence"]
    return Association(
        names,
        (v_true, v_synthetic),
        (information_true, information_synthetic),
        (influence_true, influence_synthetic),
    )


def cramers_v(pair: PairSums, rows: int, r: int, c: int) -> float:
    """Bergsma's Ṽ = √(φ̃² / min(r̃−1, c̃−1)), 0 where an attribute has one value.

    Args:
        pair: sums of the contingency table.
        rows: N.
        r: values of the first attribute that occur.
        c: of the second.
    """
    if min(r, c) < 2:
        return 0.0
    phi = max(0.0, pair.squares - 1 - (r - 1) * (c - 1) / (rows - 1))
    least = min(k - 1 - (k - 1) ** 2 / (rows - 1) for k in (r, c))
    return float(min(1.0, np.sqrt(phi / least))) if least > 0 else 0.0


def _shared(pair: PairSums, rows: int, first: float, second: float) -> float:
    """Mutual information over the smaller entropy, from 0 to 1."""
    together = np.log(rows) - pair.logs / rows + (pair.occupied - 1) / (2 * rows)
    least = min(first, second)
    if least <= 0:
        return 0.0
    return float(np.clip((first + second - together) / least, 0.0, 1.0))
