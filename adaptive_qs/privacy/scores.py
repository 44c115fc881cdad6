"""The scores of candidates: errors of public estimates, compared with the private rows.

Score of candidate γ: w_γ (‖μ_γ − μ̂_γ‖₁ − expected L1 error once measured), Fuentes et al.,
Appendix F.1, both of estimates projected onto the simplex. μ̂_γ is public, so adding or removing
one row changes the score by at most w_γ, and the sensitivity is the largest w_γ of the candidates.
Estimates are rounded to a power-of-two grid and summed in integers, which makes that bound exact.

Proof: docs/proofs.md, section 1.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cliques import (
    AXES,
    BATCH_CELLS,
    BATCH_CLIQUES,
    MOST_FORMED,
    Array,
    Parts,
    batches,
    form_cells,
)
from adaptive_qs.domain import Clique
from adaptive_qs.machine import njit, over_items
from adaptive_qs.privacy.counts import Closed, Counter, PrivateScores, PrivateTable, open_private
from adaptive_qs.residual import ReferenceModel

Flags = NDArray[np.bool_]

CELL_BITS = 16
"""Number of binary digits to which estimates are rounded (rows)."""
ERROR_LIMIT = 2**51
"""Largest error (2**35 rows), so that weight times error stays below the limit of a selection.
Saturation changes no score more than the error changes, so the sensitivity still holds."""
CELL_LIMIT = 2.0**40
"""Largest estimate of a cell (rows): the largest number of rows of a table."""


class PrivateErrors(Closed):
    """L1 errors of the public estimates of candidates, kept until an estimate changes."""

    __slots__ = ("_cells", "_cliques", "_listable_cells", "_stale", "_weights", "_workers")

    def __init__(
        self, table: PrivateTable, cliques: Sequence[Clique], weights: Array, workers: int = 1
    ) -> None:
        counter, errors = open_private(table, table.owner), np.zeros(len(cliques), dtype=np.int64)
        super().__init__((counter, errors), table.owner)
        # Number of binary digits to which weights are rounded up, relative to the largest
        weight_bits = 10
        scaled = np.ceil(weights / weights.max() * 2**weight_bits)
        self._cliques = cliques
        self._weights = scaled.astype(np.int64)
        self._workers = workers
        self._stale = np.ones(len(cliques), dtype=np.bool_)
        self._cells = [*map(table.domain.size, cliques)]
        short = [len(clique) <= AXES for clique in cliques]
        self._listable_cells = np.where(short, np.array(self._cells, dtype=np.float64), 0.0)

    def outdate(self, changed: Flags) -> None:
        """Mark the errors of candidates to be computed again."""
        self._stale |= changed

    def refresh(self, model: ReferenceModel, thresholds: Array, offered: Flags) -> int:
        """Compare the changed estimates of candidates with the rows; return how many were compared.

        Args:
            model: The public estimates.
            thresholds: Threshold of the projection of each candidate (rows).
            offered: True for candidates that can be selected.
        """
        rows = np.flatnonzero(self._stale & offered)
        self._stale[rows] = False
        few = min(max(model.total / ROWS_LISTED, LEAST_LISTED), MOST_FORMED)
        listed = self._listable_cells[rows] > few
        counter, errors = open_private(self, self.owner)
        counter.prepare(self._cliques[row] for row in rows[~listed])
        for some, compare, most_cells in (
            (rows[~listed], grid_l1, BATCH_CELLS),
            (rows[listed], grid_l1_of_occupied, LISTED_CELLS),
        ):
            cliques = [self._cliques[row] for row in some]

            def renew(run: slice, some=some, compare=compare, cliques=cliques) -> None:  # type: ignore[no-untyped-def]
                errors[some[run]] = compare(counter, model, cliques[run], thresholds[some[run]])

            runs = list(batches([self._cells[row] for row in some], most_cells, BATCH_CLIQUES))
            over_items(min(self._workers, max(len(runs), 1)), renew, runs)
        return rows.size

    def scores(
        self, expected_errors: Array, offered: Flags, nothing: float = math.inf
    ) -> PrivateScores:
        """Return the scores w_γ (error − expected error) of the candidates that can be selected.

        Their sensitivity is the largest w_γ of them, since a row changes an error by at most one.
        If ``nothing`` is finite, a last score stands for measuring nothing: it is public, and so
        many sensitivities below 0.
        """
        if self._stale[offered].any():
            raise RuntimeError("a candidate on offer was not compared")
        _, errors = open_private(self, self.owner)
        limited = np.minimum(expected_errors, ERROR_LIMIT / 2**CELL_BITS)
        scores = self._weights * (errors - np.rint(limited * 2**CELL_BITS).astype(np.int64))
        sensitivity, scores = int(self._weights[offered].max()) << CELL_BITS, scores[offered]
        if nothing < math.inf:
            below = min(nothing, ERROR_LIMIT / 2**CELL_BITS)
            scores = np.append(scores, -round(below * sensitivity))
        return PrivateScores(scores, self.owner, sensitivity)


ROWS_LISTED, LEAST_LISTED = 8, 2**10
"""Occupied cells are listed in marginals with more than one cell per ``ROWS_LISTED`` rows and more
than ``LEAST_LISTED`` cells."""
LISTED_CELLS = 2**23
"""Maximum number of cells of marginals whose occupied cells are listed at a time."""
_SUMMED = 64
"""Number of cells whose differences, of at most 2**56 units each, have a sum below 2**63."""


def grid_l1(
    counter: Counter,
    model: ReferenceModel,
    cliques: Sequence[Clique],
    thresholds: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Return ‖μ_γ − μ̂_γ‖₁ of each clique in units of 2**-CELL_BITS rows.

    μ̂_γ is the estimate minus the threshold (rows), clipped at zero and rounded. No clique is empty.
    """
    errors = np.empty(len(cliques), dtype=np.int64)
    counts = [count.reshape(-1) for count in counter.count_all(cliques)]
    flat = counts[0] if len(counts) == 1 else np.concatenate(counts)
    cells, ends = form_cells(model, cliques)
    _add_distances(cells, flat, ends, thresholds, errors)
    return errors


def grid_l1_of_occupied(
    counter: Counter,
    model: ReferenceModel,
    cliques: Sequence[Clique],
    thresholds: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Return the same for cliques of one to three attributes, from the cells that have rows.

    An empty cell adds its estimate m, an occupied one |v − m|. The sum is Σm, which is public and
    replaced by the number of rows, plus Σ (|v − m| − m) over the occupied cells.
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
    """Return the sum of |v − m| − m over the listed cells of a clique, in units.

    The cells are positions in the flattened marginal, in any order; ascending is fastest.
    """
    axes, sizes, begin, starts, steps, values = parts
    at, step = starts[row], steps[row]
    i, j, k = axes[row]
    n_j, n_k = sizes[j], sizes[k]
    third, single, over_ik, over_jk = np.uint64(begin[k]), np.uint64(at[4]), at[5], at[6]
    a = b = q_x = q_y = 0.0
    place = end = total = 0  # of the cells with the last cell's first two codes
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
        estimate -= threshold
        clipped = estimate if estimate > 0.0 else 0.0
        clipped = clipped if clipped < CELL_LIMIT else CELL_LIMIT
        units = np.int64(clipped * 2.0**CELL_BITS + 0.5)
        total += abs((counts[cell] << CELL_BITS) - units) - units
    return total


@njit(cache=True, nogil=True)
def _add_distances(cells, counts, ends, thresholds, errors):  # type: ignore[no-untyped-def]
    """Write the distance of each of the consecutive estimates to ``errors``, in units."""
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
