"""Private choice of the next marginal to measure.

Score of candidate γ: w_γ (‖μ_γ − μ̂_γ‖₁ − expected L1 error once measured), Fuentes et al.,
Appendix F.1, both of estimates projected onto the simplex (:mod:`adaptive_qs.loop.estimates`). μ̂_γ
is public, so adding or removing one row moves the score by at most w_γ and the sensitivity is the
largest w_γ on offer. Estimates are rounded to a power-of-two grid and summed in integers, which
makes that bound exact.

Proof: docs/proofs.md, section 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cliques import batches
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.generate.loglinear import over_items
from adaptive_qs.loop.estimates import (
    AXES,
    BATCH_CELLS,
    BATCH_CLIQUES,
    MOST_FORMED,
    Parts,
    ProjectedEstimates,
    formed,
)
from adaptive_qs.machine import njit
from adaptive_qs.privacy.events import Purpose, SelectionEvent
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.residual import ReferenceModel
from adaptive_qs.table.coded import Counter

CELL_BITS = 16
"""Estimates are rounded to 2**-16 rows."""
WEIGHT_BITS = 10
"""Weights are rounded up to 2**-10 of the largest."""
ERROR_LIMIT = 2**51
"""Errors saturate at 2**35 rows, so that weight times error stays below the selection's 2**62.
Saturation moves no score further than the error itself, so the sensitivity still holds."""
CELL_LIMIT = 2.0**40
"""Estimates saturate at this many rows, the most a table may have."""


class Selector:
    """AIM's rule: the largest error that a measurement would take away, by its weight.

    Keeps the private L1 error of every candidate, recomputing those on offer whose estimate changed
    since it was computed.

    Args:
        counter: the private counts.
        candidates: the cliques on offer.
        weights: w_γ > 0 for each of them.
        workers: threads that score candidates; the scores do not depend on it.
    """

    def __init__(
        self,
        counter: Counter,
        candidates: Sequence[Clique],
        weights: Sequence[float],
        workers: int = 1,
    ) -> None:
        self.candidates = tuple(candidates)
        scaled = np.ceil(np.asarray(weights) / max(weights) * 2**WEIGHT_BITS)
        self._weights = scaled.astype(np.int64)
        self._counter = counter
        self._workers = workers
        self._errors = np.zeros(len(self.candidates), dtype=np.int64)
        self._stale = np.ones(len(self.candidates), dtype=np.bool_)
        self._members = Members(counter.domain, self.candidates)
        self._cells = [*map(counter.domain.size, self.candidates)]
        short = [len(clique) <= AXES for clique in self.candidates]
        self._listable_cells = np.where(short, np.array(self._cells, dtype=np.float64), 0.0)

    def refresh(
        self,
        estimates: ProjectedEstimates,
        changed: Iterable[Clique] | None,
        offered: NDArray[np.bool_],
    ) -> int:
        """Rescore those on offer whose estimate depends on a residual changed since their last."""
        self._stale |= self._members.containing([()] if changed is None else changed)
        rows = np.flatnonzero(self._stale & offered)
        self._stale[rows] = False
        listed = self._are_listed(rows, estimates.model.total)
        self._counter.prepare(self.candidates[row] for row in rows[~listed])
        self._rescore(rows[~listed], estimates, grid_l1, BATCH_CELLS)
        self._rescore(rows[listed], estimates, grid_l1_of_occupied, LISTED_CELLS)
        return rows.size

    def _are_listed(self, rows: NDArray[np.int64], total: float) -> NDArray[np.bool_]:
        """Which candidates are compared by their occupied cells; sizes and released rows decide."""
        few = min(max(total / ROWS_LISTED, LEAST_LISTED), MOST_FORMED)
        return self._listable_cells[rows] > few

    def _rescore(
        self, rows: NDArray[np.int64], estimates: ProjectedEstimates, score: Score, most_cells: int
    ) -> None:
        cliques = [self.candidates[row] for row in rows]

        def rescore(run: slice) -> None:
            thresholds = estimates.thresholds[rows[run]]
            self._errors[rows[run]] = score(
                self._counter, estimates.model, cliques[run], thresholds
            )

        sizes = [self._cells[row] for row in rows]
        runs = list(batches(sizes, most_cells, BATCH_CLIQUES))
        over_items(min(self._workers, max(len(runs), 1)), rescore, runs)

    def select(
        self,
        mechanisms: Mechanisms,
        expected_error: NDArray[np.float64],
        epsilon: float,
        offered: NDArray[np.bool_],
    ) -> Clique:
        """Choose a candidate by the exponential mechanism; costs ε²/8."""
        if self._stale[offered].any():
            raise RuntimeError("a candidate on offer was not rescored")
        limited = np.minimum(expected_error, ERROR_LIMIT / 2**CELL_BITS)
        offset = np.rint(limited * 2**CELL_BITS).astype(np.int64)
        scores = self._weights * (self._errors - offset)
        sensitivity = int(self._weights[offered].max()) << CELL_BITS
        event = SelectionEvent(Purpose.SELECTION, (), epsilon)
        row = mechanisms.select(event, scores[offered], sensitivity)
        return self.candidates[np.flatnonzero(offered)[row]]


class Members:
    """Which residuals are in which cliques."""

    def __init__(self, domain: Domain, cliques: Sequence[Clique]) -> None:
        self._size = len(cliques)
        around: list[list[int]] = [[] for _ in range(domain.positions)]
        for row, clique in enumerate(cliques):
            for position in clique:
                for coarser in domain.chain(position):
                    around[coarser].append(row)
        self._around = [np.array(rows, dtype=np.int64) for rows in around]
        self._coarsest = [domain.chain(i)[-1] for i in range(len(domain))]

    def containing(self, residuals: Iterable[Clique]) -> NDArray[np.bool_]:
        """In which cliques one of the residuals is, shape (cliques,)."""
        hit = np.zeros(self._size, dtype=np.bool_)
        for residual in residuals:
            if not residual:
                hit[:] = True
                break
            if len(residual) == 1:  # over codes, and in marginals at every level
                hit[self._around[self._coarsest[residual[0]]]] = True
                continue
            rows, *others = sorted((self._around[i] for i in residual), key=len)
            for other in others:
                rows = np.intersect1d(rows, other, assume_unique=True)
            hit[rows] = True
        return hit


Score = Callable[
    [Counter, ReferenceModel, Sequence[Clique], NDArray[np.float64]], NDArray[np.int64]
]
"""The errors of some cliques, called as :func:`grid_l1`."""
ROWS_LISTED, LEAST_LISTED = 8, 2**10
"""Occupied cells are listed, and kept in place of all, where there is more than one cell for so
many rows, but never in marginals of so few cells."""
LISTED_CELLS = 2**23
"""Most cells, but for one clique, of marginals whose occupied cells are listed at a time."""
_SUMMED = 64
"""Cells whose differences, of at most 2**56 units each, are summed without leaving 63 bits."""


def grid_l1(
    counter: Counter,
    model: ReferenceModel,
    cliques: Sequence[Clique],
    thresholds: NDArray[np.float64],
) -> NDArray[np.int64]:
    """‖μ_γ − μ̂_γ‖₁ of each clique in units of 2**-CELL_BITS rows, μ̂_γ projected and rounded.

    Cliques are not empty. The threshold of each is taken off its estimate before that is clipped
    at zero (rows).
    """
    errors = np.empty(len(cliques), dtype=np.int64)
    counts = [count.reshape(-1) for count in counter.count_all(cliques)]
    flat = counts[0] if len(counts) == 1 else np.concatenate(counts)
    cells, ends = formed(model, cliques)
    _add_distances(cells, flat, ends, thresholds, errors)
    return errors


def grid_l1_of_occupied(
    counter: Counter,
    model: ReferenceModel,
    cliques: Sequence[Clique],
    thresholds: NDArray[np.float64],
) -> NDArray[np.int64]:
    """The same of cliques of one to three attributes, from the cells that have rows.

    An empty cell adds its estimate m, an occupied one |v − m|: in all Σm, which is public and taken
    to be the number of rows, and Σ (|v − m| − m) over the occupied cells.
    """
    errors = np.empty(len(cliques), dtype=np.int64)
    parts = Parts.of(model, cliques)
    total = min(round(max(model.total, 1.0) * 2**CELL_BITS), ERROR_LIMIT)
    for row, (cells, counts) in enumerate(counter.occupied(cliques)):
        more = _occupied_distance(parts, row, cells, counts, thresholds[row])
        errors[row] = min(max(total + more, -ERROR_LIMIT), ERROR_LIMIT)
    return errors


@njit(cache=True, nogil=True)
def _occupied_distance(parts, row, listed, counts, threshold):  # type: ignore[no-untyped-def]
    """Sum |v − m| − m over the listed cells of a clique, in units.

    The cells are positions in the flattened marginal, in any order; ascending ones take least time.
    """
    axes, sizes, begin, starts, steps, values = parts
    at, step = starts[row], steps[row]
    i, j, k = axes[row]
    n_j, n_k = sizes[j], sizes[k]
    third, single, over_ik, over_jk = np.uint64(begin[k]), np.uint64(at[4]), at[5], at[6]
    a = b = q_x = q_y = 0.0
    place = end = total = 0  # of the cells with the last cell's first two codes
    cells = np.empty(listed.size)
    for cell in range(listed.size):
        if not place <= listed[cell] < end:
            both = listed[cell] // n_k
            place, end = both * n_k, (both + 1) * n_k
            x, y = both // n_j, both % n_j
            q_x, q_y = values[begin[i] + x], values[begin[j] + y]
            a = values[at[0]] * q_x * q_y + values[at[1] + step[1] * x] * q_y
            a += values[at[2] + step[2] * y] * q_x
            a += values[at[3] + step[3] * both]
            b = q_x * q_y
            over_ik, over_jk = at[5] + step[5] * x * n_k, at[6] + step[6] * y * n_k
        z = np.uint64(listed[cell] - place)
        estimate = a * values[third + z] + b * values[single + z]
        estimate += values[np.uint64(over_ik) + z] * q_y
        estimate += values[np.uint64(over_jk) + z] * q_x
        estimate += values[np.uint64(at[7] + step[7] * place) + z]
        cells[cell] = estimate - threshold
    for cell in range(listed.size):
        clipped = cells[cell] if cells[cell] > 0.0 else 0.0
        clipped = clipped if clipped < CELL_LIMIT else CELL_LIMIT
        units = np.int64(clipped * 2.0**CELL_BITS + 0.5)
        total += abs((counts[cell] << CELL_BITS) - units) - units
    return total


@njit(cache=True, nogil=True)
def _add_distances(cells, counts, ends, thresholds, errors):  # type: ignore[no-untyped-def]
    """Write the distance of each estimate, which lie one after the other, in units."""
    begin = 0
    for row in range(ends.size):
        tau, total = thresholds[row], 0
        for first in range(begin, ends[row], _SUMMED):
            part = 0
            for j in range(np.uint64(first), np.uint64(min(first + _SUMMED, ends[row]))):
                clipped = cells[j] - tau
                clipped = clipped if clipped > 0.0 else 0.0
                clipped = clipped if clipped < CELL_LIMIT else CELL_LIMIT
                part += abs((counts[j] << CELL_BITS) - np.int64(clipped * 2.0**CELL_BITS + 0.5))
            total = min(total + part, ERROR_LIMIT)
        errors[row] = total
        begin = ends[row]
