"""Select, measure, reconstruct, repeat: AIM+GReM (Fuentes et al., Algorithm 4)."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np

from adaptive_qs.domain import Clique
from adaptive_qs.loop import estimates as estimation
from adaptive_qs.loop.budget import LoopBudget, LoopSettings, RoundBudget, RoundPlan, plan_opening
from adaptive_qs.loop.candidates import (
    Candidates,
    CandidateSet,
    Flags,
    JointPlan,
    look_rho,
    measurable_cliques,
    pairs_to_look_at,
    with_levels,
)
from adaptive_qs.loop.estimates import CELLS_ALONE, Estimates, ImpliedPairs, Strategies
from adaptive_qs.loop.expected import ProjectedEstimates, mean_error, rho_to_fill
from adaptive_qs.loop.planner import Errors
from adaptive_qs.privacy.counts import Measurement, PrivateTable
from adaptive_qs.privacy.events import UNITS_PER_RHO
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.scores import PrivateErrors
from adaptive_qs.residual import ReferenceModel, ResidualEstimate
from adaptive_qs.workload.workload import Workload


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
    halves: Sequence[float] = ()
    """What was measured of the halves of pairs that a copula fills; see `generate/shape.py`."""


OnRound = Callable[[Round, float], None]
"""Called after each round with the round and the part of ρ that is spent."""


def run_loop(
    table: PrivateTable,
    workload: Workload,
    mechanisms: Mechanisms,
    rho: float,
    settings: LoopSettings | None = None,
    workers: int = 1,
    on_round: OnRound = lambda _, spent: None,
    strategies: Strategies = CELLS_ALONE,
) -> LoopResult:
    """Spend ``rho`` on the marginals that most improve the workload (Fuentes et al., Algorithm 4).

    The mechanisms charge the budget that owns the table before anything is drawn, or raise
    BudgetExceeded. ``rho`` (zCDP) is never exceeded. Nothing depends on ``workers``, threads that
    score candidates. ``strategies`` say how single columns are measured, from public quantities.
    """
    budget = LoopBudget(rho, settings or LoopSettings())
    estimates = Estimates.uniform(table.domain, strategies, mechanisms.ledger.unit.replaced)
    # Lines 4-7: the number of rows, then every column; the columns become the reference.
    measure_residuals(table, mechanisms, estimates, budget.for_total(estimates))
    for precisions in budget.for_columns(workload, estimates):
        measure_residuals(table, mechanisms, estimates, precisions)
    estimates = with_columns_as_reference(estimates, budget.settings)
    rounds, halves = list[Round](), list[float]()
    if measurable_cliques(workload):  # together, where choosing would cost more than it gains
        opening = plan_opening(estimates, workload, budget.left, budget.settings)
        measure = partial(measure_marginals, table, mechanisms, estimates)
        for past in measure_together(measure, opening, estimates.cost, budget):
            rounds.append(past)
            on_round(past, budget.spent_share)
        if not opening.all_spent:
            selecting = for_selection(estimates, workload, budget, opened=bool(rounds))
            every = CandidateSet(workload, selecting.model.domain, selecting.cost)
            world = _PrivateWorld(table, mechanisms, selecting, every, budget.settings, workers)
            first = world.measure_halves(every, budget)
            for past in chain(first, choose_rounds(world, every, budget, opening.precisions)):
                rounds.append(past)
                on_round(past, budget.spent_share)
            selecting, halves = selecting.unsmoothed or selecting, world.halves
            estimates = selecting.with_reference(estimates.model.reference)
    return LoopResult(estimates.model, tuple(rounds), budget.initial, strategies, halves)


Precisions = Mapping[Clique, Mapping[Clique, float]]
"""By marginal, new precisions (1 / rows²) of residuals in it."""


class Measured(NamedTuple):
    """Noise variance of each residual (rows²) and L1 change (rows) of a measured marginal."""

    variances: dict[Clique, float]
    moved: float


class World(Protocol):
    """What a loop acts on: private rows, or assumptions about them in a forecast."""

    @property
    def total(self) -> float:
        """About how many rows there are."""

    @property
    def precisions(self) -> Mapping[Clique, float]:
        """Precision held for each residual (1 / rows²)."""

    def rounding(self, residuals: int) -> float:
        """Return the ρ by which the charges of a choice and of residuals may be rounded up."""

    def expect(self, outdated: Flags, ready: Flags) -> Errors:
        """Return the errors expected of those ready; mark what changes with the outdated."""

    def select(self, plan: RoundPlan) -> tuple[int | None, int]:
        """Choose a candidate on offer, or None; return its position, and how many were rescored."""

    def measure(self, precisions: Precisions) -> list[Measured]:
        """Measure residuals of marginals; return noise and change of each marginal."""


def choose_rounds(
    world: World, every: CandidateSet, budget: LoopBudget, opened: Iterable[Clique] = ()
) -> Iterator[Round]:
    """Select, measure and reconstruct (lines 8 to 19), then measure what is known once more.

    Everything that is offered, and at what, is public before the choice. The loop acts on
    ``world``. Candidates that were ``opened`` are measured already.
    """
    most_cells = budget.settings.measured_cells
    candidates = Candidates(every, world.precisions, budget.left, most_cells)
    candidates.limit.take(*opened)
    last = world.rounding(len(every.closure))
    budget.begin_rounds(world.rounding(candidates.most_residuals), last)
    candidates.refresh(world.expect(candidates.outdated, candidates.ready))
    while plan := budget.plan(candidates, world.total):  # line 8
        row, rescored = world.select(plan)  # line 10
        spent = budget.spend(plan, row, candidates)
        if row is None:
            continue
        clique, expected = candidates.cliques[row], float(plan.gains.expected[row])
        precisions = candidates.allocate(clique, spent.measuring)  # line 12
        ((variances, moved),) = world.measure({clique: precisions})  # lines 13 to 17
        candidates.add(precisions)
        budget.anneal(spent, moved, expected, every.weights[row])  # line 19
        yield Round(clique, variances, spent, moved, expected, rescored)
        candidates.refresh(world.expect(candidates.outdated, candidates.ready))
    yield from measure_together(world.measure, budget.closing(candidates), every.cost, budget)


class _PrivateWorld:
    """The rows of a table, and the public estimates of it, to which measurements are added."""

    def __init__(
        self,
        table: PrivateTable,
        mechanisms: Mechanisms,
        estimates: Estimates,
        every: CandidateSet,
        settings: LoopSettings,
        workers: int,
    ) -> None:
        self._table, self._mechanisms = table.at_levels(every.domain), mechanisms
        self._estimates = estimates
        self._errors = PrivateErrors(self._table, every.cliques, every.weights, workers)
        self._projected = ProjectedEstimates(every.domain, every.cliques, workers)
        self._implied = ImpliedPairs(every.domain) if settings.reference == "product" else None
        self._index = every.index
        self.halves: list[float] = []

    @property
    def total(self) -> float:
        return self._estimates.total

    @property
    def precisions(self) -> Mapping[Clique, float]:
        return {tau: each.precision for tau, each in self._estimates.model.estimates.items()}

    def rounding(self, residuals: int) -> float:
        return (residuals + 4) / UNITS_PER_RHO

    def expect(self, outdated: Flags, ready: Flags) -> Errors:
        model = self._estimates.model
        if self._implied is not None:
            outdated |= self._index.containing(self._implied.refresh(model))
        self._errors.outdate(outdated)
        self._projected.refresh(model, outdated & ready)
        return self._projected.curves.at

    def select(self, plan: RoundPlan) -> tuple[int | None, int]:
        """Select a candidate, or None if none seems worth it, by the exponential mechanism.

        Its sensitivity is the largest weight on offer: a row moves the L1 error of a public
        estimate by one at most.
        """
        model, thresholds = self._estimates.model, self._projected.thresholds
        rescored = self._errors.refresh(model, thresholds, plan.offered)
        scores = self._errors.scores(plan.least_error, plan.offered, plan.nothing)
        chosen = self._mechanisms.select(scores, plan.epsilon)
        offered = np.flatnonzero(plan.offered)  # nothing comes after them
        return int(offered[chosen]) if chosen < offered.size else None, rescored

    def measure(self, precisions: Precisions) -> list[Measured]:
        return measure_marginals(self._table, self._mechanisms, self._estimates, precisions)

    def measure_halves(self, every: CandidateSet, budget: LoopBudget) -> Iterator[Round]:
        """Look at the halves of pairs of ordered columns, and yield a round without a clique.

        Where it pays, they are measured again, so that a copula can fill unmeasured pairs.
        """
        pairs = pairs_to_look_at(every.domain, every.cliques)
        rho, cells = look_rho(len(pairs), self.total, budget.left), map(every.domain.size, pairs)
        if not rho or sum(cells) > budget.settings.measured_cells:
            return
        from adaptive_qs.generate.shape import Halves  # few runs need it

        model, domain = self._estimates.model, every.domain
        halves = Halves(model, pairs)
        shares = [model.shares(domain.chain(i)[-1]) for i in range(len(domain))]
        queries = [estimation.halves_query(domain, pair, halves.signs) for pair in pairs]
        held = ResidualEstimate(np.zeros(len(pairs)), 0.0)
        while rho and not self.halves:
            variance = len(pairs) / (2 * rho)
            each = zip(queries, self._table.marginals(pairs))
            noisy = [Measurement(query, one, Fraction(variance)).finely() for query, one in each]
            looked, sums = held.precision > 0, np.ravel(self._mechanisms.measure(noisy))
            held = held.merged(sums, 1 / variance)
            budget.pay(rho, len(pairs))
            spent = RoundBudget(0.0, rho)
            yield Round((), dict.fromkeys(pairs, variance), spent, 0.0, 0.0, 0)
            self.halves = held.values.tolist() if looked else []
            error = mean_error(shares, self.total, pairs, budget.left)
            rho = rho_to_fill(*halves.covariances(held), error, self.total, budget.left)


def measure_residuals(
    table: PrivateTable,
    mechanisms: Mechanisms,
    estimates: Estimates,
    precisions: Mapping[Clique, float],
) -> dict[Clique, float]:
    """Measure residuals in one transaction, and average them in; return their noise variances."""
    variances = {tau: estimates.noise_variance(tau, each) for tau, each in precisions.items()}
    for residual, values in estimates.measured(table, mechanisms, variances).items():
        estimates.add(residual, values, variances[residual])
    return variances


def with_columns_as_reference(estimates: Estimates, settings: LoopSettings) -> Estimates:
    """Return the estimates with the noisy columns as reference, unless it is to stay uniform."""
    if settings.reference != "product":
        return estimates
    return estimates.with_reference(estimation.product_reference(estimates.model))


def for_selection(
    estimates: Estimates, workload: Workload, budget: LoopBudget, opened: bool
) -> Estimates:
    """Return the estimates that candidates are compared with, at the levels on offer.

    If marginals over codes were measured (``opened``), residuals over groups are others.
    """
    model, settings = estimates.model, budget.settings
    if settings.reference != "product":
        return estimates
    if settings.levels == "auto" and not opened:
        candidates = measurable_cliques(workload)
        error = mean_error(model.reference, model.total, candidates, budget.left)
        domain = with_levels(model.domain, model, candidates, error)
        estimates = estimates.with_reference(model.reference, domain)
    return estimates.smoothed() if estimates.smooth_columns else estimates


def measure_marginals(
    table: PrivateTable, mechanisms: Mechanisms, estimates: Estimates, precisions: Precisions
) -> list[Measured]:
    """Measure residuals of marginals in one transaction; return noise and change of each."""
    before = estimates.with_reference(estimates.model.reference).model
    before.fill = estimates.model.fill
    every = {tau: x for inside in precisions.values() for tau, x in inside.items()}
    variances = measure_residuals(table, mechanisms, estimates, every)
    return [
        Measured({tau: variances[tau] for tau in inside},
                 estimates.moved(clique, before.marginal(clique)))
        for clique, inside in precisions.items()
    ]  # fmt: skip


def measure_together(
    measure: Callable[[Precisions], list[Measured]],
    plan: JointPlan,
    cost: Callable[[Clique], float],
    budget: LoopBudget,
) -> Iterator[Round]:
    """Measure the marginals of a plan as :meth:`World.measure`, and yield a round for each.

    These rounds spend nothing on a choice. ``cost`` is p_τ of each residual.
    """
    if not plan.precisions:
        return
    found = measure(plan.precisions)
    for (clique, inside), (variances, moved) in zip(plan.precisions.items(), found):
        spent = math.fsum(cost(tau) * x / 2 for tau, x in inside.items())
        budget.pay(spent, len(inside))
        yield Round(clique, variances, RoundBudget(0.0, spent), moved, plan.expected[clique], 0)
