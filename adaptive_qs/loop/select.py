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

from adaptive_qs.domain import Clique, Domain
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

        self._counter.prepare(self.candidates[row] for row in rows)

        def rescore(row: int) -> None:
            self._errors[row] = grid_l1(self._counter, model, self.candidates[row])

        over_items(self._workers, rescore, rows.tolist())
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
    """Which attributes are in which cliques.

    Attributes:
        table: shape (cliques, attributes).
    """

    def __init__(self, domain: Domain, cliques: Sequence[Clique]) -> None:
        self.table = np.zeros((len(cliques), len(domain)), dtype=np.bool_)
        for row, clique in enumerate(cliques):
            self.table[row, list(clique)] = True

    def containing(self, residuals: Iterable[Clique]) -> NDArray[np.bool_]:
        """Which cliques contain one of the residuals, shape (cliques,)."""
        hit = np.zeros(len(self.table), dtype=np.bool_)
        for residual in residuals:
            hit |= self.table[:, list(residual)].all(axis=1)
        return hit


RuleMaker = Callable[[MarginalCounter, Sequence[Clique], Sequence[float], int], SelectionRule]
"""What :data:`adaptive_qs.loop.SELECTION_RULES` holds; called as :class:`Selector`."""


def grid_l1(counter: MarginalCounter, model: ReferenceModel, clique: Clique) -> int:
    """‖μ_γ − μ̂_γ‖₁ in units of 2**-CELL_BITS rows, with μ̂_γ clipped at zero and rounded."""
    fronts, lasts, rest = model.last_axis_form(clique)
    shape = (fronts[0].size, lasts[0].size)
    rest = np.empty((0, 0)) if rest is None else rest.reshape(shape)
    counts = counter.count(clique).reshape(shape)
    return int(_grid_l1(fronts.reshape(2, -1), lasts, rest, counts))


_SUMMED = 64
"""Cells whose differences, of at most 2**56 units each, are summed without leaving 63 bits."""


@njit(cache=True, nogil=True)
def _grid_l1(fronts, lasts, rest, counts):  # type: ignore[no-untyped-def]
    unit = 2.0**CELL_BITS
    size = lasts.shape[1]
    q, single = lasts[0], lasts[1]
    estimates = np.empty(size)
    total = 0
    for i in range(fronts.shape[1]):
        a, b = fronts[0, i], fronts[1, i]
        counted = counts[i]
        for j in range(size):
            estimates[j] = a * q[j] + b * single[j]
        if rest.size > 0:
            others = rest[i]
            for j in range(size):
                estimates[j] += others[j]
        for first in range(0, size, _SUMMED):
            some, those = estimates[first : first + _SUMMED], counted[first : first + _SUMMED]
            part = 0
            for j in range(some.size):
                clipped = some[j] if some[j] > 0.0 else 0.0
                clipped = clipped if clipped < CELL_LIMIT else CELL_LIMIT
                part += abs((those[j] << CELL_BITS) - np.int64(clipped * unit + 0.5))
            total = min(total + part, ERROR_LIMIT)
    return total
