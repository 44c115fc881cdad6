"""Private choice of the next marginal to measure.

Score of candidate γ: w_γ (‖μ_γ − μ̂_γ‖₁ − expected L1 error once measured), Fuentes et al.,
Appendix F.1. μ̂_γ is public, so adding or removing one row moves the score by at most w_γ and the
sensitivity is the largest w_γ on offer. Estimates are rounded to a power-of-two grid and
summed in integers, which makes that bound exact.

Proof: docs/proofs.md, section 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from adaptive_qs.cliques import batches
from adaptive_qs.domain import Clique, Domain, subsets
from adaptive_qs.generate.loglinear import over_items
from adaptive_qs.privacy.events import Purpose, SelectionEvent
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.residual import ReferenceModel
from adaptive_qs.table.coded import MarginalCounter

CELL_BITS = 16
"""Estimates are rounded to 2**-16 rows."""
WEIGHT_BITS = 10
"""Weights are rounded up to 2**-10 of the largest."""
ERROR_LIMIT = 2**51
"""Errors saturate at 2**35 rows, so that weight times error stays below the selection's 2**62.
Saturation moves no score further than the error itself, so the sensitivity still holds."""
CELL_LIMIT = 2.0**40
"""Estimates saturate at this many rows, the most a table may have."""


class SelectionRule(Protocol):
    """Chooses the marginal of each round; made as a :data:`RuleMaker` is called.

    Whatever a rule knows of the private counts leaves it through ``mechanisms`` only, which charges
    before it draws; the loop has set ε²/8 aside for that.
    """

    def refresh(self, model: ReferenceModel, changed: Iterable[Clique] | None = None) -> int:
        """Rescore the candidates in which one of these residuals changed since the last call, all
        where None; how many they are (a public number)."""

    def select(
        self,
        mechanisms: Mechanisms,
        expected_error: NDArray[np.float64],
        epsilon: float,
        offered: NDArray[np.bool_],
    ) -> Clique:
        """One of the candidates on offer, at a cost of at most ε²/8.

        Args:
            mechanisms: charges, then draws.
            expected_error: L1 error (rows) each candidate would have once measured; public.
            epsilon: ε of the exponential mechanism.
            offered: which candidates may be chosen; public.
        """


class Selector:
    """AIM's rule: the largest error that a measurement would take away, by its weight.

    Keeps the private L1 error of every candidate, recomputing those whose estimate changed.

    Args:
        counter: the private counts.
        candidates: the cliques on offer.
        weights: w_γ > 0 for each of them.
        workers: threads that score candidates; the scores do not depend on it.
    """

    def __init__(
        self,
        counter: MarginalCounter,
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
        self._members = Members(counter.domain, self.candidates)

    def refresh(self, model: ReferenceModel, changed: Iterable[Clique] | None = None) -> int:
        """Rescore the candidates whose estimate depends on a changed residual."""
        rows = np.flatnonzero(self._members.containing([()] if changed is None else changed))
        cliques = [self.candidates[row] for row in rows]
        self._counter.prepare(cliques)

        def rescore(run: slice) -> None:
            self._errors[rows[run]] = grid_l1(self._counter, model, cliques[run])

        runs = list(batches(self._counter.domain, cliques, BATCH_CELLS, BATCH_CLIQUES))
        over_items(min(self._workers, max(len(runs), 1)), rescore, runs)
        return rows.size

    def select(
        self,
        mechanisms: Mechanisms,
        expected_error: NDArray[np.float64],
        epsilon: float,
        offered: NDArray[np.bool_],
    ) -> Clique:
        """Choose a candidate by the exponential mechanism; costs ε²/8."""
        limited = np.minimum(expected_error, ERROR_LIMIT / 2**CELL_BITS)
        offset = np.rint(limited * 2**CELL_BITS).astype(np.int64)
        scores = self._weights * (self._errors - offset)
        sensitivity = int(self._weights[offered].max()) << CELL_BITS
        event = SelectionEvent(Purpose.SELECTION, (), epsilon)
        row = mechanisms.select(event, scores[offered], sensitivity)
        return self.candidates[np.flatnonzero(offered)[row]]


class Members:
    """Which attributes are in which cliques."""

    def __init__(self, domain: Domain, cliques: Sequence[Clique]) -> None:
        self._size = len(cliques)
        around: list[list[int]] = [[] for _ in domain.sizes]
        for row, clique in enumerate(cliques):
            for attribute in clique:
                around[attribute].append(row)
        self._around = [np.array(rows, dtype=np.int64) for rows in around]

    def containing(self, residuals: Iterable[Clique]) -> NDArray[np.bool_]:
        """Which cliques contain one of the residuals, shape (cliques,)."""
        hit = np.zeros(self._size, dtype=np.bool_)
        for residual in residuals:
            if not residual:
                hit[:] = True
                break
            rows, *others = sorted((self._around[i] for i in residual), key=len)
            for other in others:
                rows = np.intersect1d(rows, other, assume_unique=True)
            hit[rows] = True
        return hit


RuleMaker = Callable[[MarginalCounter, Sequence[Clique], Sequence[float], int], SelectionRule]
"""What :data:`adaptive_qs.loop.SELECTION_RULES` holds; called as :class:`Selector`."""


# The score of many candidates at a time. Up to three attributes the estimate is formed cell by cell
# from what was measured, by the sums of :meth:`ReferenceModel.marginal`; shorter cliques are taken
# for triples that begin with attributes of one code.

BATCH_CELLS, BATCH_CLIQUES = 2**16, 512
"""Most cells, but for one clique, and most cliques that are scored by one call."""
_AXES = 3
_TILE = 2**11
"""Cells whose estimates are formed before they are compared with counts."""
_SUMMED = 64
"""Cells whose differences, of at most 2**56 units each, are summed without leaving 63 bits."""


def grid_l1(
    counter: MarginalCounter, model: ReferenceModel, cliques: Sequence[Clique]
) -> NDArray[np.int64]:
    """‖μ_γ − μ̂_γ‖₁ of each clique in units of 2**-CELL_BITS rows, μ̂_γ clipped at zero and rounded.

    Cliques are not empty.
    """
    errors = np.empty(len(cliques), dtype=np.int64)
    counts = counter.count_all(cliques)
    short = [row for row, clique in enumerate(cliques) if len(clique) <= _AXES]
    if short:
        some = [counts[row].reshape(-1) for row in short]
        flat = some[0] if len(some) == 1 else np.concatenate(some)
        errors[short] = _grid_l1_of_few(model, [cliques[row] for row in short], flat)
    for row, clique in enumerate(cliques):
        if len(clique) > _AXES:
            fronts, lasts, rest = model.last_axis_form(clique)
            shape = (fronts[0].size, lasts[0].size)
            rest = np.empty((0, 0)) if rest is None else rest.reshape(shape)
            exact = counts[row].reshape(shape)
            errors[row] = _grid_l1_of_form(fronts.reshape(2, -1), lasts, rest, exact)
    return errors


def _grid_l1_of_few(
    model: ReferenceModel, cliques: Sequence[Clique], counts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The errors of cliques of one to three attributes with these counts, one after the other."""
    reference = [*model.reference, np.ones(1)]
    sizes = np.array([q.size for q in reference])
    axes = np.full((len(cliques), _AXES), len(model.reference))
    starts = np.full((len(cliques), 2**_AXES), -1)
    components: list[NDArray[np.float64]] = []
    place: dict[Clique, int] = {}
    end = 0
    for row, clique in enumerate(cliques):
        axes[row, _AXES - len(clique) :] = clique
        for slot, residual in zip(_SLOTS[len(clique)], subsets(clique)):
            start = place.get(residual)
            if start is None:
                found = model.component(residual)
                start = place[residual] = -1 if found is None else end
                if found is not None:
                    components.append(found.reshape(-1))
                    end += found.size
            starts[row, slot] = start
    begin = np.concatenate([[0], np.cumsum(sizes)])
    flat = np.concatenate(components) if components else np.empty(0)
    errors = np.empty(len(cliques), dtype=np.int64)
    _grid_l1(axes, sizes, np.concatenate(reference), begin, flat, starts, counts, errors)
    return errors


_SLOTS = {
    degree: [sum(1 << (_AXES - degree + i) for i in axes) for axes in subsets(tuple(range(degree)))]
    for degree in range(1, _AXES + 1)
}
"""By number of attributes: the place of each subset among those of three, by which ones it has."""


@njit(cache=True, nogil=True)
def _grid_l1(axes, sizes, q, begin, components, starts, counts, errors):  # type: ignore[no-untyped-def]
    first = 0
    for row in range(axes.shape[0]):
        i, j, k = axes[row, 0], axes[row, 1], axes[row, 2]
        n_i, n_j, n_k = sizes[i], sizes[j], sizes[k]
        q_i, q_j = q[begin[i] : begin[i] + n_i], q[begin[j] : begin[j] + n_j]
        q_k = q[begin[k] : begin[k] + n_k]
        at = starts[row]
        single = components[at[4] : at[4] + n_k] if at[4] >= 0 else np.zeros(n_k)
        has_rest = at[5] >= 0 or at[6] >= 0 or at[7] >= 0
        tile = max(1, min(n_j, _TILE // n_k))
        estimates = np.empty(tile * n_k)
        total = 0
        for x in range(n_i):
            alone = components[at[0]] * q_i[x] if at[0] >= 0 else 0.0
            if at[1] >= 0:
                alone += components[at[1] + x]
            for begun in range(0, n_j, tile):
                end = min(begun + tile, n_j)
                for y in range(begun, end):
                    within = components[at[2] + y] * q_i[x] if at[2] >= 0 else 0.0
                    if at[3] >= 0:
                        within += components[at[3] + x * n_j + y]
                    a, b = alone * q_j[y] + within, q_i[x] * q_j[y]
                    cells = estimates[(y - begun) * n_k : (y - begun + 1) * n_k]
                    for z in range(n_k):
                        cells[z] = a * q_k[z] + b * single[z]
                    if has_rest:
                        _add_rest(cells, components, at, x, y, (x * n_j + y) * n_k, q_i[x], q_j[y])
                size = (end - begun) * n_k
                total = _add_distance(estimates[:size], counts[first : first + size], total)
                first += size
        errors[row] = total


@njit(cache=True, nogil=True)
def _add_rest(cells, components, at, x, y, place, q_i, q_j):  # type: ignore[no-untyped-def]
    n_k = cells.size
    for z in range(n_k):
        rest = components[at[6] + y * n_k + z] * q_i if at[6] >= 0 else 0.0
        if at[7] >= 0:
            rest += components[at[7] + place + z]
        if at[5] >= 0:
            rest = components[at[5] + x * n_k + z] * q_j + rest
        cells[z] += rest


@njit(cache=True, nogil=True)
def _grid_l1_of_form(fronts, lasts, rest, counts):  # type: ignore[no-untyped-def]
    size = lasts.shape[1]
    q, single = lasts[0], lasts[1]
    estimates = np.empty(size)
    total = 0
    for i in range(fronts.shape[1]):
        a, b = fronts[0, i], fronts[1, i]
        for j in range(size):
            estimates[j] = a * q[j] + b * single[j]
        if rest.size > 0:
            others = rest[i]
            for j in range(size):
                estimates[j] += others[j]
        total = _add_distance(estimates, counts[i], total)
    return total


@njit(cache=True, nogil=True)
def _add_distance(estimates, counts, total):  # type: ignore[no-untyped-def]
    whole = estimates.size // _SUMMED * _SUMMED
    for first in range(0, whole, _SUMMED):
        part = 0
        for j in range(_SUMMED):  # of constant length, which compiles to vectors
            part += _distance(estimates[first + j], counts[first + j])
        total = min(total + part, ERROR_LIMIT)
    part = 0
    for j in range(whole, estimates.size):
        part += _distance(estimates[j], counts[j])
    return min(total + part, ERROR_LIMIT)


@njit(cache=True, nogil=True)
def _distance(estimate, count):  # type: ignore[no-untyped-def]
    clipped = estimate if estimate > 0.0 else 0.0
    clipped = clipped if clipped < CELL_LIMIT else CELL_LIMIT
    return abs((count << CELL_BITS) - np.int64(clipped * 2.0**CELL_BITS + 0.5))
