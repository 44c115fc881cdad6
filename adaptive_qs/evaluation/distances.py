"""Distances between the marginals of two tables, many at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numba import njit

from adaptive_qs.domain import Clique
from adaptive_qs.evaluation.contingency import JointCodes, in_batches
from adaptive_qs.progress import StepProgress


class Distance(NamedTuple):
    """Between the normalised counts of one marginal.

    Attributes:
        l1: Σ|a/N_a − b/N_b| over the cells.
        squares: Σ(a/N_a − b/N_b)² over the cells.
    """

    l1: float
    squares: float


Distances = Mapping[Clique, Distance]


def marginal_distances(
    joint: JointCodes,
    cliques: Iterable[Clique],
    workers: int = 1,
    progress: StepProgress | None = None,
) -> Distances:
    """The distances of these marginals; each is counted once, however often it is named.

    Time is linear in the rows, and each thread holds one marginal of at most
    ``MAX_DENSE_CELLS`` cells. Equal tables have distance 0 exactly.

    Args:
        joint: both tables.
        cliques: the marginals.
        workers: threads.
        progress: called with the marginals done and in all.
    """
    distinct = tuple(dict.fromkeys(cliques))

    def distances(batch: Sequence[Clique]) -> list[Distance]:
        scratch = np.zeros(0, dtype=np.int64)
        found = []
        for clique in batch:
            cells, bound = joint.cells(clique)
            if bound > len(scratch):
                scratch = np.zeros(bound, dtype=np.int64)
            found.append(Distance(*_difference(cells, joint.true_rows, scratch)))
        return found

    return dict(zip(distinct, in_batches(distances, distinct, workers, progress)))


def root_mean_square(distance: Distance, cells: int) -> float:
    """Root mean squared error of the cells of a marginal."""
    return math.sqrt(distance.squares / cells)


@njit(cache=True, nogil=True)
def _difference(cells, true_rows, scratch):  # type: ignore[no-untyped-def]
    """Σ|d| and Σd², with d = a/N_a − b/N_b computed as whole multiples of 1/(N_a·N_b).

    The scratch array is 0 before and after; only occupied cells are touched.
    """
    synthetic_rows = cells.size - true_rows
    for row in range(true_rows):
        scratch[cells[row]] += synthetic_rows
    for row in range(true_rows, cells.size):
        scratch[cells[row]] -= true_rows
    unit = 1.0 / (float(true_rows) * float(synthetic_rows))
    total, squares = 0.0, 0.0
    for row in range(cells.size):
        cell = cells[row]
        if scratch[cell] != 0:
            difference = abs(scratch[cell]) * unit
            total += difference
            squares += difference * difference
            scratch[cell] = 0
    return total, squares
