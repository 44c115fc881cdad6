"""Every pair of attributes counted once: what association, rules and unseen pairs are told from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.evaluation.contingency import JointCodes, in_batches
from adaptive_qs.progress import StepProgress

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
        margins: counts of every attribute's codes, of both tables.
        sums: of every pair, of both tables.
        unseen: by pair, synthetic rows whose two values never occur together in the true table.
        row_unseen: which synthetic rows have such a pair: shape (synthetic rows,).
        row_alone: which true rows have two values that no other true row has together.
    """

    joint: JointCodes
    margins: tuple[tuple[NDArray[np.int64], ...], tuple[NDArray[np.int64], ...]]
    sums: tuple[dict[Clique, PairSums], dict[Clique, PairSums]]
    unseen: dict[Clique, int]
    row_unseen: NDArray[np.bool_]
    row_alone: NDArray[np.bool_]


def count_pairs(
    joint: JointCodes, workers: int = 1, progress: StepProgress | None = None
) -> PairCounts:
    """Count all pairs of attributes of both tables in one pass over the rows each.

    Args:
        joint: both tables.
        workers: threads; each holds one pair of contingency tables.
        progress: called with the pairs done and in all.
    """
    split = joint.true_rows
    parts = (joint.codes[:, :split], joint.codes[:, split:])
    margins = tuple(tuple(np.bincount(codes, minlength=1) for codes in part) for part in parts)
    pairs: tuple[Clique, ...] = tuple(combinations(range(len(joint.sizes)), 2))
    row_unseen = np.zeros(joint.rows - split, dtype=np.bool_)
    row_alone = np.zeros(split, dtype=np.bool_)
    nobody = np.zeros(0, dtype=np.bool_)

    def count(batch: Sequence[Clique]) -> list[tuple[PairSums, PairSums, int]]:
        scratch = np.zeros((2, 0), dtype=np.int64)
        found = []
        for i, j in batch:
            cells, bound = joint.cells((i, j))
            if bound > scratch.shape[1]:
                scratch = np.zeros((2, bound), dtype=np.int64)
            unseen = _count(cells, split, scratch, row_unseen)
            true, synthetic = (
                PairSums(*_sum(own, codes[i], codes[j], of[i], of[j], counts, alone))
                for own, codes, of, counts, alone in zip(
                    (cells[:split], cells[split:]), parts, margins, scratch, (row_alone, nobody)
                )
            )
            found.append((true, synthetic, unseen))
        return found

    results = in_batches(count, pairs, workers, progress)
    true = {pair: result[0] for pair, result in zip(pairs, results)}
    synthetic = {pair: result[1] for pair, result in zip(pairs, results)}
    unseen = {pair: result[2] for pair, result in zip(pairs, results)}
    return PairCounts(
        joint, (margins[0], margins[1]), (true, synthetic), unseen, row_unseen, row_alone
    )


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
def _sum(cells, first, second, of_first, of_second, counts, alone):  # type: ignore[no-untyped-def]
    """The sums over occupied cells, whose counts are 0 afterwards; marks rows alone in a cell.

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
        elif alone.size:
            alone[row] = True
    influence = 0.0
    for k in range(occupied):
        i, j = first[found[k]], second[found[k]]
        ratio = times[k] / (float(of_first[i]) * float(of_second[j]))
        moved = 2 * ratio - ratio_first[i] / of_first[i] - ratio_second[j] / of_second[j]
        influence += times[k] * cells.size * moved * moved
    return squares, logs, occupied, influence
