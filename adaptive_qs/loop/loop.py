"""Select, measure, reconstruct, repeat: AIM+GReM (Fuentes et al., Algorithm 4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.arguments import one_of
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.generate.targets import positive_shares, single_targets
from adaptive_qs.loop import LEVELS
from adaptive_qs.loop.candidates import ResidualIndex
from adaptive_qs.loop.estimates import ProjectedEstimates, projected_distance
from adaptive_qs.loop.levels import (
    LEAST_ERROR,
    at_levels,
    closure_at_levels,
    mean_error,
    with_levels,
)
from adaptive_qs.loop.measure import (
    CELLS_ALONE,
    ConditionalPlanner,
    Strategies,
    measure_residuals,
    measurement_cost,
)
from adaptive_qs.loop.opening import DEPENDENCE, Opening, plan_opening
from adaptive_qs.loop.pricing import SAFETY, Offer, PriceList, RoundBudget, Schedule
from adaptive_qs.privacy.counts import PrivateTable
from adaptive_qs.privacy.events import UNITS_PER_RHO
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.scores import PrivateErrors
from adaptive_qs.residual import ReferenceModel, uniform_reference
from adaptive_qs.strategy.columns import noise_of
from adaptive_qs.workload.workload import Workload

Array = NDArray[np.float64]

TOTAL_SHARE = 0.01
"""Part of ρ spent on the number of rows before anything else."""


def one_way_precisions(workload: Workload, rho: float) -> Array:
    """Precision (1 / rows²) with which to measure each attribute's marginal for ``rho`` in all.

    A variance σ_i² ∝ (w_i n_i)^(−2/3) minimises the summed L1 error Σ w_i n_i σ_i of noisy
    marginals that cost Σ 1/(2σ_i²), with w_i as for :attr:`Workload.column_weights`.
    """
    weight = (workload.column_weights * workload.domain.sizes) ** (2 / 3)
    return 2 * rho * weight / math.fsum(weight)


def assumed_shares(domain: Domain) -> tuple[Array, ...]:
    """Zipf's law, before anything is counted: codes as frequent as 1, 1/2, 1/3, ..."""
    zipf = (1 / np.arange(1.0, size + 1) for size in domain.sizes)
    return tuple(weights / weights.sum() for weights in zipf)


def initial_share(
    workload: Workload, candidates: Sequence[Clique], rho: float, total: float
) -> float:
    """Part of the budget for the one-way marginals, from public and released quantities alone.

    A combination is off by a/√s + b/√(1 − s) if single columns get the part s of the budget: a and
    b are the mean L1 errors (share of the rows) that the columns of a combination, as the workload
    weighs them, and what it adds to them, would have for all of the budget, divided evenly among
    combinations. That is least
    where s / (1 − s) = (a/b)^(2/3). Only combinations are measured that are left with less than
    ``DEPENDENCE``, so b is at most half of it, the mean if they are left with anything up to it.
    The share is kept between 0.1 and 0.9.

    Args:
        workload: what matters.
        candidates: its marginals.
        rho: of the whole run.
        total: the noisy number of rows.
    """
    several = [clique for clique in candidates if len(clique) > 1]
    if not several:
        return 0.9
    domain = workload.domain
    noise_std = 1 / np.sqrt(one_way_precisions(workload, rho))
    single = math.sqrt(2 / math.pi) * noise_std * np.array(domain.sizes) / max(total, 1.0)
    columns = math.fsum(map(len, several)) / len(several)
    a = columns * float(np.average(single, weights=workload.column_weights))
    b = min(mean_error(assumed_shares(domain), total, several, rho), DEPENDENCE / 2)
    return float(np.clip(a ** (2 / 3) / (a ** (2 / 3) + b ** (2 / 3)), 0.1, 0.9))


def measure_total(
    table: PrivateTable,
    mechanisms: Mechanisms,
    rho: float,
    strategies: Strategies = CELLS_ALONE,
) -> ReferenceModel:
    """Measure the number of rows with ``rho``; the model has a uniform reference, and the noise of
    these strategies."""
    reference = uniform_reference(table.domain)
    model = ReferenceModel(table.domain, reference, column_noise=noise_of(strategies))
    precision = 2 * rho / measurement_cost(table.domain, ())
    _measure(model, table, mechanisms, {(): precision}, strategies)
    return model


def measure_one_way(
    table: PrivateTable,
    mechanisms: Mechanisms,
    model: ReferenceModel,
    workload: Workload,
    rho: float,
    strategies: Strategies = CELLS_ALONE,
) -> None:
    """Measure every one-way residual, and the total as part of them, with ``rho`` in all.

    A marginal measured with variance σ_i² gives its residual with variance σ_i² and the total
    with variance n_i σ_i²; the totals are drawn as one measurement (Fuentes et al., Algorithm 6).
    """
    plan = one_way_plan(workload, rho, strategies, mechanisms.ledger.unit.replaced)
    _measure(model, table, mechanisms, plan, strategies)


def one_way_plan(
    workload: Workload,
    rho: float,
    strategies: Strategies = CELLS_ALONE,
    replaced: bool = False,
) -> dict[Clique, float]:
    """Precision (1 / rows²) with which :func:`measure_one_way` measures each residual; costs are
    as for :func:`measurement_cost`.

    A column with a strategy gets the ρ that it would get for its cells.
    """
    domain, precision = workload.domain, one_way_precisions(workload, rho)
    total_precision = math.fsum(x / n for x, n in zip(precision, domain.sizes))
    cost = measurement_cost(domain, ()) * total_precision
    costs = (
        measurement_cost(domain, (i,), replaced=replaced)
        for i, n in enumerate(domain.sizes)
        if n > 1
    )
    several = (x for x, n in zip(precision, domain.sizes) if n > 1)
    cost += math.fsum(p * x for p, x in zip(costs, several))
    unit = 2 * rho / cost
    precisions: dict[Clique, float] = {(): unit * total_precision}
    precisions |= {(i,): unit * float(precision[i]) for i, n in enumerate(domain.sizes) if n > 1}
    for i in strategies:
        by_cells = measurement_cost(domain, (i,), replaced=replaced)
        precisions[i,] *= by_cells / measurement_cost(domain, (i,), strategies, replaced)
    return precisions


def _measure(
    model: ReferenceModel,
    table: PrivateTable,
    mechanisms: Mechanisms,
    precisions: Mapping[Clique, float],
    strategies: Strategies,
) -> dict[Clique, float]:
    """Measure residuals with these precisions, all or none; their noise variances."""
    variances = {residual: 1 / precision for residual, precision in precisions.items()}
    found = measure_residuals(table, mechanisms, variances, strategies)
    for residual, values in found.items():
        model.update(residual, values, precisions[residual])
    return variances


def product_reference(model: ReferenceModel) -> tuple[Array, ...]:
    """A strictly positive distribution per attribute from its noisy one-way marginal.

    The marginal is denoised and floored at half a row: post-processing.
    """
    return positive_shares(single_targets(model))


MOST_UNIFORM = 0.5
"""Part of the uniform reference in what candidates are compared with, without any noise."""


def compared_with(reference: Sequence[Array], error: float) -> tuple[Array, ...]:
    """The reference that unmeasured combinations are filled with while the loop chooses.

    The larger the budget, the more of the uniform one is in it. Combinations that were not measured
    then are further off the truth than independent columns are, so that all of them are measured
    once the budget suffices for all, those of columns that depend weakly after the others.

    Args:
        reference: that of the release.
        error: :func:`~adaptive_qs.loop.levels.mean_error` of the candidates.
    """
    part = MOST_UNIFORM * max(0.0, 1 - error / LEAST_ERROR)
    return tuple((1 - part) * q + part / q.size for q in reference)


MOST_SELECTING = 0.2
"""Largest part of a round for its selection, below the largest that exact accounting grants."""


@dataclass(frozen=True)
class LoopSettings:
    """How the loop spends its budget; all of it is public.

    Attributes:
        reference: "product" fills unmeasured interactions with independence (while it chooses, as
            :func:`compared_with` says), "uniform" with zero residuals (AIM+GReM as published).
        initial_share: part of ρ for one-way marginals; None chooses it from public quantities.
        selecting_share: part of the loop's ρ, and of what is left of it at any time, that may be
            spent on a selection.
        measured_cells: most cells over codes of all measured cliques together; candidates that
            would exceed it are not offered.
        levels: "auto" offers marginals over groups of codes too, where that may pay, "off" never.
        opening: whether marginals are measured together before the first choice, where that pays
            (with the product reference).
    """

    reference: Literal["product", "uniform"] = "product"
    initial_share: float | None = None
    selecting_share: float = 0.1
    measured_cells: int = 2**28
    levels: str = LEVELS[0]
    opening: bool = True

    def __post_init__(self) -> None:
        if self.reference not in ("product", "uniform"):
            raise ValueError(f"reference is {self.reference!r}: give 'product' or 'uniform'")
        if self.initial_share is not None and not 0 < self.initial_share <= 1:
            raise ValueError(f"initial_share is {self.initial_share!r}: give a part in (0, 1]")
        if not 0 < self.selecting_share <= MOST_SELECTING:
            most = f"a part in (0, {MOST_SELECTING:g}]"
            raise ValueError(f"selecting_share is {self.selecting_share!r}: give {most}")
        one_of("levels", self.levels, LEVELS)


@dataclass(frozen=True)
class Round:
    """What one round did; released values only.

    Attributes:
        clique: the marginal selected, at its levels; or measured together with others before the
            first choice, where nothing was spent on selecting it.
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
    strategies: Strategies


def run_loop(
    table: PrivateTable,
    workload: Workload,
    mechanisms: Mechanisms,
    rho: float,
    settings: LoopSettings | None = None,
    workers: int = 1,
    on_round: Callable[[Round, float], None] | None = None,
    strategies: Strategies = CELLS_ALONE,
) -> LoopResult:
    """Spend ``rho`` on the marginals that most improve the workload.

    Args:
        table: the private rows.
        workload: what matters.
        mechanisms: every private value passes through it, charged before it is drawn.
        rho: zCDP to spend; never exceeded.
        settings: see there.
        workers: threads that score candidates; the result does not depend on it.
        on_round: called after each round with the round and the part of ``rho`` spent.
        strategies: how single columns are measured, from public quantities.

    Raises:
        BudgetExceeded: the ledger behind ``mechanisms`` holds less than ``rho``.
    """
    settings = settings or LoopSettings()
    domain, replaced = table.domain, mechanisms.ledger.unit.replaced
    candidates = measurable_cliques(workload)
    model = measure_total(table, mechanisms, rho * TOTAL_SHARE, strategies)
    share = settings.initial_share or initial_share(workload, candidates, rho, model.total)
    # The ledger rounds every charge up by less than a unit.
    initial_rounding = (len(domain) + 2) / UNITS_PER_RHO
    initial_rho = rho * (max(share, 2 * TOTAL_SHARE) if candidates else 1.0) * (1 - SAFETY)
    initial_rho -= initial_rounding
    columns_rho = initial_rho - rho * TOTAL_SHARE
    measure_one_way(table, mechanisms, model, workload, columns_rho, strategies)
    if settings.reference == "product":
        model = ReferenceModel(
            domain, product_reference(model), model.estimates, model.column_noise
        )
    reference = model.reference
    rounds: list[Round] = []
    if not candidates:
        return LoopResult(model, (), initial_rho, strategies)

    left = (rho - initial_rho - initial_rounding) * (1 - SAFETY)
    if settings.reference == "product":
        cost = partial(measurement_cost, domain, strategies=strategies, replaced=replaced)
        opening = planned_opening(model, workload, left, settings, cost)
        for past in _measure_together(model, table, mechanisms, opening, strategies):
            left -= past.budget.total * (1 + SAFETY) + len(past.measured) / UNITS_PER_RHO
            rounds.append(past)
            if on_round:
                on_round(past, 1 - max(left, 0.0) / rho)
        if opening.all_spent:
            return LoopResult(model, tuple(rounds), initial_rho, strategies)
        error = mean_error(model.reference, model.total, candidates, left)
        if settings.levels == "auto" and not rounds:  # their residuals are others than over codes
            domain = with_levels(domain, model, candidates, error)
        candidates = at_levels(domain, candidates)
        compared = compared_with(model.reference, error)
        model = ReferenceModel(domain, compared, model.estimates, model.column_noise)
    counted = table.at_levels(domain)
    closure = closure_at_levels(domain, workload.closure)
    costs = [measurement_cost(domain, residual, strategies, replaced) for residual in closure]
    planner = ConditionalPlanner(domain, closure, candidates, costs)
    priorities = workload.priorities([domain.columns(clique) for clique in candidates])
    errors = PrivateErrors(counted, candidates, priorities, workers)
    rounding = (planner.most_residuals + 4) / UNITS_PER_RHO
    offer = Offer(domain, candidates, settings.measured_cells)
    for past in rounds:
        offer.take(past.clique)
    prices = PriceList(planner, priorities / priorities.max(), left)
    schedule = Schedule(offer, prices, left, settings.selecting_share, rounding)
    position = {residual: k for k, residual in enumerate(closure)}
    precision = np.array([model.precision(residual) for residual in closure])
    members = ResidualIndex(domain, candidates)
    estimates = ProjectedEstimates(domain, candidates, workers)
    stale = np.ones(len(candidates), dtype=bool)
    # Everything that is offered, and at what, is public before the choice. A round that brought
    # only noise lowers the price of the budget (in the place of Fuentes et al., Algorithm 7, whose
    # pseudo-code compares the estimate with the true marginal: with that the schedule would depend
    # on private counts).
    while schedule.left > SAFETY * rho + 2 * rounding and offer.open.any():
        estimates.refresh(model, stale)
        prices.refresh(estimates.curves.at, precision, stale)
        choice = schedule.choice(max(model.total, 1.0))
        rescored = errors.refresh(model, estimates.thresholds, choice.offered)
        scores = errors.scores(choice.least_error, choice.offered)
        row = mechanisms.select(scores, choice.epsilon)
        clique = candidates[np.flatnonzero(choice.offered)[row]]
        budget = schedule.take(clique, choice)
        changed = planner.allocate(clique, precision, 2 * budget.measuring)
        stale = members.containing(changed)
        errors.outdate(stale)
        before = model.marginal(clique)
        variances = _measure(model, counted, mechanisms, changed, strategies)
        for residual in changed:
            precision[position[residual]] = model.precision(residual)
        moved = projected_distance(model.marginal(clique), before, model.total)
        expected = float(choice.prospects.expected[offer.row[clique]])
        schedule.judge(moved, expected)
        rounds.append(Round(clique, variances, budget, moved, expected, rescored))
        if on_round:
            on_round(rounds[-1], 1 - max(schedule.left, 0.0) / rho)
    model = ReferenceModel(domain, reference, model.estimates, model.column_noise)
    return LoopResult(model, tuple(rounds), initial_rho, strategies)


def planned_opening(
    model: ReferenceModel,
    workload: Workload,
    rho: float,
    settings: LoopSettings,
    cost: Callable[[Clique], float],
) -> Opening:
    """What a loop measures together before the first choice, of what was released of columns."""
    if not settings.opening or settings.reference != "product" or rho <= 0:
        return Opening()
    candidates = measurable_cliques(workload)
    priorities = workload.priorities(candidates)
    most_cells = settings.measured_cells
    leveled = settings.levels == "auto"
    return plan_opening(model, candidates, priorities, rho, most_cells, cost, leveled)


def _measure_together(
    model: ReferenceModel,
    table: PrivateTable,
    mechanisms: Mechanisms,
    opening: Opening,
    strategies: Strategies,
) -> list[Round]:
    """Measure all marginals of an opening, as so many rounds without a choice."""
    if not opening.precisions:
        return []
    held = dict(model.estimates)
    before = ReferenceModel(model.domain, model.reference, held, model.column_noise)
    precisions = {tau: x for inside in opening.precisions.values() for tau, x in inside.items()}
    variances = _measure(model, table, mechanisms, precisions, strategies)
    replaced = mechanisms.ledger.unit.replaced
    cost = partial(measurement_cost, model.domain, strategies=strategies, replaced=replaced)
    rounds = []
    for clique, inside in opening.precisions.items():
        spent = math.fsum(cost(tau) * x / 2 for tau, x in inside.items())
        moved = projected_distance(model.marginal(clique), before.marginal(clique), model.total)
        measured, expected = {tau: variances[tau] for tau in inside}, opening.expected[clique]
        rounds.append(Round(clique, measured, RoundBudget(0.0, spent), moved, expected, 0))
    return rounds


def measurable_cliques(workload: Workload) -> tuple[Clique, ...]:
    """Candidates: subsets of workload cliques in which every attribute has several values."""
    sizes = workload.domain.sizes
    return tuple(c for c in workload.closure if c and all(sizes[i] > 1 for i in c))
