"""Select, measure, reconstruct, repeat: AIM+GReM (Fuentes et al., Algorithm 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.adaptive.annealing import RoundBudget
from adaptive_qs.adaptive.initial import (
    TOTAL_SHARE,
    initial_share,
    measure_one_way,
    measure_total,
    product_reference,
)
from adaptive_qs.adaptive.measure import measure_residuals, measurement_cost
from adaptive_qs.adaptive.select import Selector
from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.privacy.events import UNITS_PER_RHO
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.residual.model import ReferenceModel
from adaptive_qs.strategy.conditional import ConditionalPlanner
from adaptive_qs.workload.workload import Workload

SAFETY = 1e-9
"""Part of a budget left unspent so that rounding costs up never exceeds it."""


@dataclass(frozen=True)
class LoopSettings:
    """How the loop spends its budget; everything here is public.

    Attributes:
        reference: "product" fills unmeasured interactions with independence, "uniform" with
            zero residuals (AIM+GReM as published).
        initial_share: part of ρ for one-way marginals; None chooses it from public quantities.
        selecting_share: part of each round's ρ spent on the selection.
        measured_cells: most cells of all measured cliques together; candidates that would
            exceed it are not offered.
    """

    reference: Literal["product", "uniform"] = "product"
    initial_share: float | None = None
    selecting_share: float = 0.1
    measured_cells: int = 2**28

    def __post_init__(self) -> None:
        if self.reference not in ("product", "uniform"):
            raise ValueError(f"reference is {self.reference!r}: give 'product' or 'uniform'")
        if self.initial_share is not None and not 0 < self.initial_share <= 1:
            raise ValueError(f"initial_share is {self.initial_share!r}: give a part in (0, 1]")
        if not 0 < self.selecting_share < 1:
            raise ValueError(f"selecting_share is {self.selecting_share!r}: give a part in (0, 1)")


@dataclass(frozen=True)
class Round:
    """What one round did; released values only.

    Attributes:
        clique: the marginal selected.
        measured: the residuals measured and the noise variance of each (rows²).
        budget: ρ spent.
        moved: L1 distance between the marginal's new and old estimate (rows).
        expected: L1 error expected of the new estimate (rows).
        rescored: candidates whose score was recomputed before the selection.
    """

    clique: Clique
    measured: dict[Clique, float]
    budget: RoundBudget
    moved: float
    expected: float
    rescored: int


@dataclass(frozen=True)
class LoopResult:
    """The released outcome: estimates of every marginal and how they came about."""

    model: ReferenceModel
    rounds: tuple[Round, ...]
    initial_rho: float


def run_loop(
    counter: MarginalCounter,
    workload: Workload,
    mechanisms: Mechanisms,
    rho: float,
    settings: LoopSettings | None = None,
    workers: int = 1,
    on_round: Callable[[Round, float], None] | None = None,
) -> LoopResult:
    """Spend ``rho`` on the marginals that most improve the workload.

    Args:
        counter: the private counts.
        workload: what matters.
        mechanisms: every private value passes through it, charged before it is drawn.
        rho: zCDP to spend; never exceeded.
        settings: see there.
        workers: threads that score candidates; the result does not depend on it.
        on_round: called after each round with the round and the part of ``rho`` spent.

    Raises:
        BudgetExceeded: the ledger behind ``mechanisms`` holds less than ``rho``.
    """
    settings = settings or LoopSettings()
    domain = counter.domain
    candidates = measurable_cliques(workload)
    model = measure_total(counter, mechanisms, rho * TOTAL_SHARE)
    share = settings.initial_share or initial_share(domain, rho, model.total)
    # The ledger rounds every charge up by less than a unit.
    initial_rounding = (len(domain) + 2) / UNITS_PER_RHO
    initial_rho = rho * (max(share, 2 * TOTAL_SHARE) if candidates else 1.0) * (1 - SAFETY)
    initial_rho -= initial_rounding
    measure_one_way(counter, mechanisms, model, initial_rho - rho * TOTAL_SHARE)
    if settings.reference == "product":
        model = ReferenceModel(domain, product_reference(model), model.estimates)
    rounds: list[Round] = []
    if not candidates:
        return LoopResult(model, (), initial_rho)

    closure = workload.closure
    costs = [measurement_cost(domain, residual) for residual in closure]
    planner = ConditionalPlanner(domain, closure, candidates, costs)
    weights = [workload.relevance(c) for c in candidates]
    selector = Selector(counter, candidates, weights, workers)
    left = (rho - initial_rho - initial_rounding) * (1 - SAFETY)
    rounding = (2 ** max(map(len, candidates)) + 1) / UNITS_PER_RHO
    budget = RoundBudget.split(left / len(closure), settings.selecting_share)
    position = {residual: k for k, residual in enumerate(closure)}
    precision = np.array([model.precision(residual) for residual in closure])
    offer = Offer(domain, candidates, settings.measured_cells)
    changed: dict[Clique, float] | None = None
    while left > SAFETY * rho + 2 * rounding and offer.open.any():
        budget = budget.fitted(left - rounding, settings.selecting_share)
        rescored = selector.refresh(model, changed)
        expected = planner.expected_errors(precision, 2 * budget.measuring)
        clique = selector.select(mechanisms, expected, budget.epsilon, offer.open)
        offer.take(clique)
        changed = planner.allocate(clique, precision, 2 * budget.measuring)
        before = model.marginal(clique)
        variances = {residual: 1 / x for residual, x in changed.items()}
        for residual, values in measure_residuals(counter, mechanisms, variances).items():
            model.update(residual, values, changed[residual])
            precision[position[residual]] = model.precision(residual)
        moved = _clipped_distance(model.marginal(clique), before)
        target = float(expected[offer.row[clique]])
        rounds.append(Round(clique, variances, budget, moved, target, rescored))
        left -= budget.total * (1 + SAFETY) + rounding
        budget = budget.after(moved, target)
        if on_round:
            on_round(rounds[-1], 1 - max(left, 0.0) / rho)
    return LoopResult(model, tuple(rounds), initial_rho)


class Offer:
    """Which candidates may be chosen, given a ceiling on the cells of all measured cliques.

    It depends on sizes and on what was chosen before, both released.

    Attributes:
        row: position of each candidate.
        open: whether each candidate fits, or was measured already.
    """

    def __init__(self, domain: Domain, candidates: Sequence[Clique], most_cells: int) -> None:
        self.row = {clique: k for k, clique in enumerate(candidates)}
        self._cells = np.array([domain.size(clique) for clique in candidates], dtype=object)
        self._left = most_cells
        self._taken = np.zeros(len(candidates), dtype=bool)
        self.open = (self._cells <= most_cells).astype(bool)

    def take(self, clique: Clique) -> None:
        """Account for a candidate that is measured now."""
        row = self.row[clique]
        if not self._taken[row]:
            self._taken[row] = True
            self._left -= self._cells[row]
            self.open = self._taken | (self._cells <= self._left).astype(bool)


def measurable_cliques(workload: Workload) -> tuple[Clique, ...]:
    """Candidates: subsets of workload cliques in which every attribute has several values."""
    sizes = workload.domain.sizes
    return tuple(c for c in workload.closure if c and all(sizes[i] > 1 for i in c))


def _clipped_distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float(np.abs(np.maximum(a, 0.0) - np.maximum(b, 0.0)).sum())
