"""Select, measure, reconstruct, repeat: AIM+GReM (Fuentes et al., Algorithm 4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.arguments import one_of
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.generate.loglinear import make_target
from adaptive_qs.loop import DEFAULT_RULE, SELECTION_RULES
from adaptive_qs.loop.measure import ConditionalPlanner, measure_residuals, measurement_cost
from adaptive_qs.loop.select import Members, RuleMaker
from adaptive_qs.privacy.events import UNITS_PER_RHO
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.residual import ReferenceModel, uniform_reference
from adaptive_qs.table.coded import MarginalCounter
from adaptive_qs.workload.workload import Workload

# How much of the budget each round spends (Fuentes et al., Algorithm 7, on estimates).
#
# The pseudo-code of the paper writes the true marginal in its test; with it the schedule would
# depend on private counts. Here the new estimate is compared with the old one, both released.


@dataclass(frozen=True)
class RoundBudget:
    """zCDP of one round.

    Attributes:
        selecting: ρ of the exponential mechanism, ε²/8.
        measuring: ρ of the measurements.
    """

    selecting: float
    measuring: float

    @property
    def total(self) -> float:
        """ρ of the whole round."""
        return self.selecting + self.measuring

    @property
    def epsilon(self) -> float:
        """ε of the exponential mechanism."""
        return math.sqrt(8 * self.selecting)

    @classmethod
    def split(cls, rho: float, selecting_share: float) -> RoundBudget:
        """A round of ``rho`` of which ``selecting_share`` goes to the selection."""
        return cls(rho * selecting_share, rho * (1 - selecting_share))

    def after(self, moved: float, expected: float) -> RoundBudget:
        """The next round's budget, four times as large where this one brought only noise.

        Args:
            moved: L1 distance between the chosen marginal's new and old estimate (rows).
            expected: L1 error expected of the new estimate (rows).
        """
        if moved > expected:
            return self
        return replace(self, selecting=4 * self.selecting, measuring=4 * self.measuring)

    def fitted(self, remaining: float, selecting_share: float) -> RoundBudget:
        """This round, or all that remains where two more such rounds would not fit."""
        if remaining > 2 * self.total:
            return self
        return RoundBudget.split(remaining, selecting_share)


Array = NDArray[np.float64]

TOTAL_SHARE = 0.01
"""Part of ρ spent on the number of rows before anything else."""


def one_way_precisions(domain: Domain, rho: float) -> Array:
    """Precision (1 / rows²) with which to measure each attribute's marginal for ``rho`` in all.

    A variance σ_i² ∝ n_i^(−2/3) minimises the summed L1 error Σ n_i σ_i of noisy marginals that
    cost Σ 1/(2σ_i²).
    """
    weight = np.array([float(n) ** (2 / 3) for n in domain.sizes])
    return 2 * rho * weight / math.fsum(weight)


def initial_share(domain: Domain, rho: float, total: float) -> float:
    """Part of the budget for the one-way marginals, from released quantities alone.

    With E the summed L1 error (share of the rows) that the one-way marginals would have if they
    got everything, the share is E^0.4 / 2, kept between 0.1 and 0.9: where one-way marginals are
    noisy already, interactions are out of reach. The rule was fitted to the tables and budgets
    of ``results/initial_share.csv``; errors are flat around it. ``rho`` is of the whole run,
    ``total`` the noisy number of rows.
    """
    noise_std = 1 / np.sqrt(one_way_precisions(domain, rho))
    error = math.sqrt(2 / math.pi) * float(noise_std @ np.array(domain.sizes)) / max(total, 1.0)
    return float(np.clip(0.5 * error**0.4, 0.1, 0.9))


def measure_total(counter: MarginalCounter, mechanisms: Mechanisms, rho: float) -> ReferenceModel:
    """Measure the number of rows with ``rho``; the model has a uniform reference."""
    model = ReferenceModel(counter.domain, uniform_reference(counter.domain))
    precision = 2 * rho / measurement_cost(counter.domain, ())
    _measure(model, counter, mechanisms, {(): precision})
    return model


def measure_one_way(
    counter: MarginalCounter, mechanisms: Mechanisms, model: ReferenceModel, rho: float
) -> None:
    """Measure every one-way residual, and the total as part of them, with ``rho`` in all.

    A marginal measured with variance σ_i² gives its residual with variance σ_i² and the total
    with variance n_i σ_i²; the totals are drawn as one measurement (Fuentes et al., Algorithm 6).
    """
    _measure(model, counter, mechanisms, one_way_plan(counter.domain, rho))


def one_way_plan(domain: Domain, rho: float) -> dict[Clique, float]:
    """Precision (1 / rows²) with which :func:`measure_one_way` measures each residual."""
    precision = one_way_precisions(domain, rho)
    total_precision = math.fsum(x / n for x, n in zip(precision, domain.sizes))
    cost = measurement_cost(domain, ()) * total_precision
    cost += math.fsum(measurement_cost(domain, (i,)) * x for i, x in enumerate(precision))
    unit = 2 * rho / cost
    precisions: dict[Clique, float] = {(): unit * total_precision}
    precisions |= {(i,): unit * float(precision[i]) for i, n in enumerate(domain.sizes) if n > 1}
    return precisions


def _measure(
    model: ReferenceModel,
    counter: MarginalCounter,
    mechanisms: Mechanisms,
    precisions: Mapping[Clique, float],
) -> dict[Clique, float]:
    """Measure residuals with these precisions, all or none; their noise variances."""
    variances = {residual: 1 / precision for residual, precision in precisions.items()}
    for residual, values in measure_residuals(counter, mechanisms, variances).items():
        model.update(residual, values, precisions[residual])
    return variances


def product_reference(model: ReferenceModel) -> tuple[Array, ...]:
    """A strictly positive distribution per attribute from its noisy one-way marginal.

    The marginal is projected to the simplex and floored at half a row: post-processing.
    """
    singles = (make_target(model, (i,)).counts for i in range(len(model.domain)))
    floored = (np.maximum(counts, 0.5) for counts in singles)
    return tuple(counts / math.fsum(counts) for counts in floored)


SAFETY = 1e-9
"""Part of a budget left unspent so that rounding costs up never exceeds it."""


@dataclass(frozen=True)
class LoopSettings:
    """How the loop spends its budget; all of it is public.

    Attributes:
        reference: "product" fills unmeasured interactions with independence, "uniform" with
            zero residuals (AIM+GReM as published).
        initial_share: part of ρ for one-way marginals; None chooses it from public quantities.
        selecting_share: part of each round's ρ spent on the selection.
        measured_cells: most cells of all measured cliques together; candidates that would
            exceed it are not offered.
        rule: how the next marginal is chosen, a name of
            :data:`adaptive_qs.loop.SELECTION_RULES`.
    """

    reference: Literal["product", "uniform"] = "product"
    initial_share: float | None = None
    selecting_share: float = 0.1
    measured_cells: int = 2**28
    rule: str = DEFAULT_RULE

    def __post_init__(self) -> None:
        if self.reference not in ("product", "uniform"):
            raise ValueError(f"reference is {self.reference!r}: give 'product' or 'uniform'")
        if self.initial_share is not None and not 0 < self.initial_share <= 1:
            raise ValueError(f"initial_share is {self.initial_share!r}: give a part in (0, 1]")
        if not 0 < self.selecting_share < 1:
            raise ValueError(f"selecting_share is {self.selecting_share!r}: give a part in (0, 1)")
        one_of("rule", self.rule, SELECTION_RULES)


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
    make: RuleMaker = SELECTION_RULES[settings.rule]
    rule = make(counter, candidates, weights, workers)
    left = (rho - initial_rho - initial_rounding) * (1 - SAFETY)
    rounding = (2 ** max(map(len, candidates)) + 1) / UNITS_PER_RHO
    budget = RoundBudget.split(left / len(closure), settings.selecting_share)
    position = {residual: k for k, residual in enumerate(closure)}
    precision = np.array([model.precision(residual) for residual in closure])
    offer = Offer(domain, candidates, settings.measured_cells)
    members = Members(domain, candidates)
    stale, expected, planned = np.ones(len(candidates), dtype=bool), np.zeros(len(candidates)), 0.0
    changed: dict[Clique, float] | None = None
    while left > SAFETY * rho + 2 * rounding and offer.open.any():
        budget = budget.fitted(left - rounding, settings.selecting_share)
        rescored = rule.refresh(model, changed)
        stale |= budget.measuring != planned
        planned = budget.measuring
        fresh = planner.expected_errors(precision, 2 * planned, stale)
        expected = np.where(stale, fresh, expected)
        clique = rule.select(mechanisms, expected, budget.epsilon, offer.open)
        offer.take(clique)
        changed = planner.allocate(clique, precision, 2 * budget.measuring)
        stale = members.containing(changed)
        before = model.marginal(clique)
        variances = _measure(model, counter, mechanisms, changed)
        for residual in changed:
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

    It depends on sizes and on what was chosen before, both released. ``row`` is the position of
    each candidate; ``open`` says which of them fit, or were measured already.
    """

    def __init__(self, domain: Domain, candidates: Sequence[Clique], most_cells: int) -> None:
        self.row = {clique: k for k, clique in enumerate(candidates)}
        self._cells = np.array([min(domain.size(c), 2**62) for c in candidates], dtype=np.int64)
        self._left = most_cells
        self._taken = np.zeros(len(candidates), dtype=bool)
        self.open = self._cells <= most_cells

    def take(self, clique: Clique) -> None:
        """Account for a candidate that is measured now."""
        row = self.row[clique]
        if not self._taken[row]:
            self._taken[row] = True
            self._left -= int(self._cells[row])
            self.open = self._taken | (self._cells <= self._left)


def measurable_cliques(workload: Workload) -> tuple[Clique, ...]:
    """Candidates: subsets of workload cliques in which every attribute has several values."""
    sizes = workload.domain.sizes
    return tuple(c for c in workload.closure if c and all(sizes[i] > 1 for i in c))


def _clipped_distance(a: Array, b: Array) -> float:
    return float(np.abs(np.maximum(a, 0.0) - np.maximum(b, 0.0)).sum())
