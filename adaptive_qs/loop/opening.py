"""What is measured together before the first choice; public sizes and released values decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cliques import downward_closure
from adaptive_qs.domain import Clique, subsets
from adaptive_qs.generate.loglinear import maximal_cliques
from adaptive_qs.loop.budget import SAFETY, LoopSettings
from adaptive_qs.loop.candidates import measurable_cliques, with_levels
from adaptive_qs.loop.estimates import Estimates
from adaptive_qs.loop.expected import DEPENDENCE, CellSizeHistogram, ErrorCurves, mean_error
from adaptive_qs.loop.planner import ConditionalPlanner
from adaptive_qs.privacy.events import UNITS_PER_RHO
from adaptive_qs.residual import ReferenceModel
from adaptive_qs.workload.workload import Workload

# To choose pays where few combinations of columns matter, or where noise would bury most of them.
# Where the budget suffices for all, choices cost what they cost, and what several marginals share
# is measured again with each of them. Which it is can be told beforehand, by the error expected of
# both, if nothing is known but that a combination of k columns differs from what those of fewer
# make it by DEPENDENCE^(k−1) of the rows on average, and anything up to twice that is as likely.
#
# Where noise alone would be more than that, nothing is measured together. Otherwise both errors are
# compared. Measured one by one, a part f of the combinations gets all of the budget. If these are
# the ones that differ most, the others differ by (1 − f) times the average, and are (1 − f) of all.
# So a loop is expected to end with the error
#
#     min over f of  f e(f) + (1 − f) e + (1 − f)² D
#
# where e(f) is the error of a marginal that has its even part of the budget among so many, and e
# that of one that is left as it is. Measured together, all have the error of the joint plan.
#
# Of a workload of triples all pairs may be measured together, with half of the budget, and the
# triples chosen with the other half.

Array = NDArray[np.float64]

TABULATED_ROWS = 2.0**20
"""Rows for which expected errors are tabulated; with k times as many rows and k times the noise the
error is k times as large."""
PARTS = 0.5 ** (np.arange(25) / 2)
"""Parts of the combinations that a loop may measure."""
SHARE = 0.5
"""Part of the budget for what is measured together, where larger combinations are left to choose
among."""
MOST_TOGETHER = 20_000
"""More combinations are never measured together: to plan it would take longer than to choose."""


@dataclass(frozen=True)
class Opening:
    """Marginals that are measured together.

    Attributes:
        precisions: by marginal, the new precision (1 / rows²) of each residual in it that is in
            none before.
        expected: by marginal, the L1 error (rows) expected of its new estimate.
        all_spent: whether that takes all of the budget.
    """

    precisions: Mapping[Clique, Mapping[Clique, float]] = field(default_factory=dict)
    expected: Mapping[Clique, float] = field(default_factory=dict)
    all_spent: bool = False


def plan_opening(
    estimates: Estimates, workload: Workload, rho: float, settings: LoopSettings
) -> Opening:
    """Return what a loop measures together before the first choice; it may be nothing.

    Args:
        estimates: what was released of single columns.
        workload: what matters.
        rho: for this and for all choices.
        settings: of the loop. Where marginals over groups of codes pay for pairs, nothing is
            measured together.
    """
    opening = Opening()
    if not settings.opening or settings.reference != "product" or rho <= 0:
        return opening
    candidates, model = measurable_cliques(workload), estimates.model
    domain, most = model.domain, max(map(len, candidates), default=0)
    pairs = [clique for clique in candidates if len(clique) <= 2]
    error = mean_error(model.reference, model.total, pairs, rho)
    if settings.levels == "auto" and with_levels(domain, model, pairs, error).groupings:
        return opening
    weight_of = dict(zip(candidates, workload.priorities(candidates).tolist()))
    for order in range(2, most + 1):
        cliques = maximal_cliques(c for c in candidates if 1 < len(c) <= order)
        cells = sum(map(domain.size, cliques))
        if len(cliques) > MOST_TOGETHER or cells > settings.measured_cells:
            break
        weights = np.array([weight_of[clique] for clique in cliques])
        together = _Together(model, cliques, weights, rho, estimates.cost)
        distance = DEPENDENCE ** (order - 1)
        if together.error > min(distance, together.if_chosen(distance)):
            break
        opening = together.opening(1.0 if order == most else SHARE)
    return opening


class _Together:
    """Some marginals, and the plan that measures all of them together.

    Attributes:
        error: mean L1 error (share of the rows) expected of them, by their weights, if this takes
            all there is.
    """

    def __init__(
        self,
        model: ReferenceModel,
        cliques: Sequence[Clique],
        weights: Array,
        rho: float,
        cost: Callable[[Clique], float],
    ) -> None:
        self._cliques, self._weights, self._rho = cliques, weights, rho
        self._columns = [CellSizeHistogram.of(q) for q in model.reference]
        self._total = max(model.total, 1.0)
        self._closure = downward_closure(cliques)
        costs = [cost(residual) for residual in self._closure]
        self._planner = ConditionalPlanner(model.domain, self._closure, cliques, costs)
        self._held = np.array([model.precision(residual) for residual in self._closure])
        self.error = self._mean(self._planned(1.0)[1])

    @cached_property
    def _curves(self) -> ErrorCurves:
        curves = ErrorCurves(len(self._cliques), TABULATED_ROWS)
        for row, clique in enumerate(self._cliques):
            sizes, *others = (self._columns[i] for i in clique)
            for other in others:
                sizes = sizes.times(other)
            curves.take(np.array([row]), sizes.errors(TABULATED_ROWS, curves.stds)[None])
        return curves

    def _errors(self, stds: Array, rows: NDArray[np.int64]) -> Array:
        """L1 errors (rows) by the noise (rows) in a cell."""
        scale = TABULATED_ROWS / self._total
        return self._curves.at(stds * scale, rows) / scale

    def _mean(self, errors: Array) -> float:
        """Weighted mean of errors (rows), as a share of the rows."""
        return float(np.average(errors, weights=self._weights)) / self._total

    def _planned(self, share: float) -> tuple[Array, Array]:
        """New precisions, and the errors (rows) expected, with a share of the budget."""
        rho = share * self._rho - len(self._closure) / UNITS_PER_RHO  # charges are rounded up
        budget = 2 * max(rho, 0.0) / (1 + SAFETY)
        return self._planner.plan_together(self._errors, self._held, budget, self._weights)

    def if_chosen(self, distance: float) -> float:
        """The mean error (share of the rows) if these were measured one by one, as a loop would.

        Args:
            distance: mean L1 distance (share of the rows) from what is known, noise apart.
        """
        alone = 2 * self._rho / np.maximum(PARTS * len(self._cliques), 1.0)
        every = np.arange(len(self._cliques))
        stds = self._planner.expected_stds(self._held, alone, every)
        measured = np.array([self._mean(errors) for errors in self._errors(stds, every)])
        left = self._mean(self._errors(self._planner.noise_held(self._held), every))
        forecasts = PARTS * measured + (1 - PARTS) * left + (1 - PARTS) ** 2 * distance
        return float(forecasts.min())

    def opening(self, share: float) -> Opening:
        """Their measurements, with a share of the budget."""
        new, errors = self._planned(share)
        left = {tau: x for tau, x in zip(self._closure, new.tolist()) if x > 0}
        precisions, expected = {}, {}
        for clique, error in zip(self._cliques, errors.tolist()):
            if clique in left:  # else it was beyond measuring
                inside = (tau for tau in subsets(clique) if tau in left)
                precisions[clique] = {tau: left.pop(tau) for tau in list(inside)}
                expected[clique] = error
        return Opening(precisions, expected, share == 1)
