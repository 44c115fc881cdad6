"""Every pair of attributes counted once: association, and pairs of values that were never seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.evaluation.tables import JointCodes, in_batches
from adaptive_qs.machine import StepProgress

Matrix = NDArray[np.float64]


class PairSums(NamedTuple):
    """Sums over the occupied cells n_xy of one contingency table.

    Attributes:
        squares: Σ n_xy² / (n_x·n_y), which is χ²/N + 1.
        logs: Σ n_xy·log n_xy.
        occupied: cells that are.
        influence: N times the variance of χ²/N over samples, in the limit of many rows.
    """

    squares: float
    logs: float
    occupied: float
    influence: float


@dataclass(frozen=True, eq=False)
class PairCounts:
    """What was counted of all pairs of attributes, of the true and of the synthetic table.

    Attributes:
        joint: the tables.
        margins, sums: counts of every attribute's codes, and sums of every pair, of both tables.
        unseen: by pair, synthetic rows whose two values never occur together in the true table.
        row_unseen: which synthetic rows have such a pair: shape (synthetic rows,).
        row_unique: which true rows have two values that no other true row has together.
    """

    joint: JointCodes
    margins: tuple[tuple[NDArray[np.int64], ...], tuple[NDArray[np.int64], ...]]
    sums: tuple[dict[Clique, PairSums], dict[Clique, PairSums]]
    unseen: dict[Clique, int]
    row_unseen: NDArray[np.bool_]
    row_unique: NDArray[np.bool_]


def count_pairs(
    joint: JointCodes, workers: int = 1, progress: StepProgress | None = None
) -> PairCounts:
    """Count all pairs of attributes of both tables in one pass over the rows each."""
    split = joint.true_rows
    parts = (joint.codes[:, :split], joint.codes[:, split:])
    margins = tuple(tuple(np.bincount(codes, minlength=1) for codes in part) for part in parts)
    pairs: tuple[Clique, ...] = tuple(combinations(range(len(joint.sizes)), 2))
    row_unseen = np.zeros(joint.rows - split, dtype=np.bool_)
    row_unique = np.zeros(split, dtype=np.bool_)
    marked = (row_unique, np.zeros(0, dtype=np.bool_))  # of the synthetic rows, none

    def count(batch: Sequence[Clique]) -> list[tuple[PairSums, PairSums, int]]:
        scratch = np.zeros((2, 0), dtype=np.int64)
        found = []
        for i, j in batch:
            cells, bound = joint.cells((i, j))
            if bound > scratch.shape[1]:
                scratch = np.zeros((2, bound), dtype=np.int64)
            unseen = _count(cells, split, scratch, row_unseen)
            tables = zip((cells[:split], cells[split:]), parts, margins, scratch, marked)
            true, synthetic = (
                PairSums(*_sum(own, codes[i], codes[j], of[i], of[j], counts, unique))
                for own, codes, of, counts, unique in tables
            )
            found.append((true, synthetic, unseen))
        return found

    true, synthetic, unseen = (
        dict(zip(pairs, column))
        for column in list(zip(*in_batches(count, pairs, workers, progress))) or ((), (), ())
    )
    margins = (margins[0], margins[1])
    return PairCounts(joint, margins, (true, synthetic), unseen, row_unseen, row_unique)


@njit(cache=True, nogil=True)
def _count(cells, true_rows, counts, row_unseen):  # type: ignore[no-untyped-def]
    """Fill both rows of counts; the number of synthetic rows in cells without a true one."""
    for row in range(true_rows):
        counts[0, cells[row]] += 1
    unseen = 0
    for row in range(true_rows, cells.size):
        counts[1, cells[row]] += 1
        if counts[0, cells[row]] == 0:
            unseen += 1
            row_unseen[row - true_rows] = True
    return unseen


@njit(cache=True, nogil=True)
def _sum(cells, first, second, of_first, of_second, counts, unique):  # type: ignore[no-untyped-def]
    """The sums over occupied cells, whose counts are 0 afterwards; marks the only rows in a cell.

    By the delta method a row of cell xy moves χ²/N + 1 = Σ p r, r = p_xy/(p_x p_y), by
    h = 2 r − Σ_y p(y|x) r − Σ_x p(x|y) r, which is 0 on average, and the variance is Σ p h² / N.
    """
    squares, logs, occupied = 0.0, 0.0, 0
    ratio_first, ratio_second = np.zeros(of_first.size), np.zeros(of_second.size)
    found, times = np.empty(cells.size, np.int64), np.empty(cells.size)
    for row in range(cells.size):
        count = counts[cells[row]]
        if count == 0:
            continue
        counts[cells[row]] = 0
        expected = float(of_first[first[row]]) * float(of_second[second[row]])
        square = float(count) * float(count) / expected
        squares += square
        ratio_first[first[row]] += square
        ratio_second[second[row]] += square
        found[occupied], times[occupied] = row, count
        occupied += 1
        if count > 1:
            logs += count * np.log(float(count))
        elif unique.size:
            unique[row] = True
    influence = 0.0
    for k in range(occupied):
        i, j = first[found[k]], second[found[k]]
        ratio = times[k] / (float(of_first[i]) * float(of_second[j]))
        moved = 2 * ratio - ratio_first[i] / of_first[i] - ratio_second[j] / of_second[j]
        influence += times[k] * cells.size * moved * moved
    return squares, logs, occupied, influence


# Entropy of a column, corrected for the number of its rows.


def miller_entropy(counts: NDArray[np.int64]) -> float:
    """The plug-in entropy of counts, in nats, plus (K − 1) / (2N) of K occurring values.

    Miller (1955); without it the entropy of few rows is too small.
    """
    seen = counts[counts > 0]
    rows = int(seen.sum())
    plug_in = np.log(rows) - float((seen * np.log(seen)).sum()) / rows
    return float(plug_in + (len(seen) - 1) / (2 * rows))


# How strongly attributes depend on each other, in both tables.
#
# Cramér's V is bias-corrected (Bergsma 2013, "A bias-correction for Cramér's V and Tschuprow's T",
# J. Korean Stat. Soc. 42): N rows of independent attributes with r and c values have
# χ²/N = (r−1)(c−1)/(N−1) on average, not 0; that is taken off, and r and c are corrected alike.
#
# The plug-in mutual information of N rows has the same fault: it is about (r−1)(c−1)/(2N) too large
# where cells are well filled. So entropies are corrected as Miller (1955) did: (K−1)/(2N) is added
# to the entropy of K occurring values. What is left of the bias is small where N is large beside
# the occupied cells, and upwards where it is not: limitations name pairs with fewer than five rows
# for each occupied cell. It depends on the number of rows, so tables of very different length are
# compared less well.
#
# r, c and K count the values that occur, each table for itself.


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


def mean_and_largest(difference: Matrix) -> tuple[float, float]:
    """Of the absolute differences of two association matrices, over all pairs of attributes."""
    upper = np.abs(difference[np.triu_indices(len(difference), 1)])
    return (float(upper.mean()), float(upper.max())) if upper.size else (0.0, 0.0)


def association_of(counts: PairCounts) -> Association:
    """The association matrices of two tables whose pairs have been counted."""
    rows = (counts.joint.true_rows, counts.joint.rows - counts.joint.true_rows)
    names = counts.joint.pair.domain.names
    matrices = np.empty((3, 2, len(names), len(names)))
    matrices[:] = np.eye(len(names))
    for table, (number, margins, sums) in enumerate(zip(rows, counts.margins, counts.sums)):
        values = [int(np.count_nonzero(margin)) for margin in margins]
        entropies = [miller_entropy(margin) for margin in margins]
        for (i, j), pair in sums.items():
            v = cramers_v(pair, number, values[i], values[j])
            information = _shared(pair, number, entropies[i], entropies[j])
            matrices[:, table, i, j] = matrices[:, table, j, i] = v, information, pair.influence
    return Association(names, *((true, synthetic) for true, synthetic in matrices))


def cramers_v(pair: PairSums, rows: int, r: int, c: int) -> float:
    """Bergsma's Ṽ = √(φ̃² / min(r̃−1, c̃−1)), 0 where an attribute has one value.

    Args:
        rows: N.
        r, c: values of the two attributes that occur.
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


# Pairs of values that the synthetic table has and the true one never shows.

WORST = 20
"""Pairs of attributes that are named."""


@dataclass(frozen=True)
class UnseenPair:
    """The names of two attributes, and the share of the synthetic rows with two values of them that
    no true row has together."""

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
    names, rows = counts.joint.pair.domain.names, len(counts.row_unseen)
    worst = sorted(counts.unseen.items(), key=lambda item: (-item[1], item[0]))[:WORST]
    pairs = tuple(UnseenPair((names[i], names[j]), n / rows) for (i, j), n in worst if n)
    shares = float(counts.row_unseen.mean()), float(counts.row_unique.mean())
    return UnseenPairs(*shares, pairs)
