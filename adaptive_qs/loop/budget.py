"""How the loop spends its budget: on columns, on an opening, and on rounds.

Rounds that bring too little lower the price of the budget. All of it follows from released values,
so that it may be fixed before the next choice.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.arguments import check_choice
from adaptive_qs.cliques import Array, downward_closure, maximal_cliques
from adaptive_qs.domain import Clique
from adaptive_qs.loop import LEVELS
from adaptive_qs.loop import candidates as offers
from adaptive_qs.loop.candidates import FALL, MOST_FALLS, Candidates, JointPlan, measurable_cliques
from adaptive_qs.loop.estimates import Estimates
from adaptive_qs.loop.expected import DEPENDENCE, CellSizeHistogram, ErrorCurves, mean_error
from adaptive_qs.loop.planner import ConditionalPlanner, TogetherPlan, initial_share, one_way_plan
from adaptive_qs.privacy.accounting import choice_cost
from adaptive_qs.privacy.events import UNITS_PER_RHO
from adaptive_qs.residual import ReferenceModel
from adaptive_qs.workload.workload import Workload

SAFETY = 1e-6
"""Share of a budget that stays unspent, so that costs that are rounded up, and what exact
accounting adds to the costs of noise, never exceed it."""
TOTAL_SHARE = 0.01
"""Part of ρ spent on the number of rows before anything else."""


FIRST_PART = 0.25
"""Part of the budget of single columns that is spent before it is known how smooth they are."""


MOST_SELECTING = 0.2
"""Largest part of a round for its selection, below the largest that exact accounting grants."""


@dataclass(frozen=True)
class LoopSettings:
    """Public settings that decide how the loop spends its budget.

    Attributes:
        reference: "product" fills unmeasured interactions with independence (while it chooses, as
            :class:`ImpliedPairs` says), "uniform" with zero residuals (AIM+GReM as published).
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
            raise ValueError(f"reference is {self.reference!r}. Use 'product' or 'uniform'.")
        if self.initial_share is not None and not 0 < self.initial_share <= 1:
            raise ValueError(f"initial_share is {self.initial_share!r}. Use a part in (0, 1].")
        if not 0 < self.selecting_share <= MOST_SELECTING:
            most = f"a part in (0, {MOST_SELECTING:g}]"
            raise ValueError(f"selecting_share is {self.selecting_share!r}. Use {most}.")
        check_choice("levels", self.levels, LEVELS)


@dataclass(frozen=True)
class RoundBudget:
    """zCDP of one round: of the exponential mechanism (``selecting``, ε²/8) and of measuring."""

    selecting: float
    measuring: float


def selection_rho(
    price: float, typical: float, left: float, allowance: float, share: float
) -> float:
    """Return ρ of a choice, fixed before it, at a ``price`` λ (weighted rows for a unit of ρ).

    At ε the exponential mechanism misses the best score by about 2/ε (rows times the largest
    weight); so at a price λ it is worth ρ = ε²/8 where √(1/2ρ) + λρ is least. It never takes more
    than its share of what is left, nor than its part of what choices may still take if all later
    rounds are typical ones. So all choices together take no more than the first allowance, but
    where a round that was to take all there is leaves something for others.
    ``typical`` is ρ of a typical measurement on offer, ``left`` is left of the loop, ``allowance``
    of this choice and later ones together.
    """
    worth = (1 / (2 * math.sqrt(2) * price)) ** (2 / 3)
    return min(worth, allowance * min(typical / left, 1.0), left * share)


@dataclass(frozen=True)
class RoundPlan:
    """The public parameters of a choice.

    ``gains`` is what measuring each candidate is expected to gain, ``offered`` which of them can be
    chosen, ``selecting`` ρ of the choice, ``declinable`` whether measuring nothing can be chosen.
    """

    gains: offers.Gains
    offered: offers.Flags
    selecting: float
    declinable: bool = True

    @property
    def epsilon(self) -> float:
        """ε of the exponential mechanism."""
        return math.sqrt(8 * self.selecting)

    @property
    def least_error(self) -> Array:
        """L1 error (rows) of each candidate from which on choosing it gains more than it pays."""
        return self.gains.expected + self.gains.paid

    @property
    def nothing(self) -> float:
        """Distance of the score for measuring nothing below 0, in sensitivities; ∞ if not offered.

        A candidate that is worth its price has a score of 0 or more. The exponential mechanism
        chooses a score that is d sensitivities lower exp(εd/2) times less often. So nothing is
        chosen with a probability of at most 1 / RARELY if any candidate is worth its price.
        """
        return 2 / self.epsilon * math.log(offers.RARELY) if self.declinable else math.inf


class LoopBudget:
    """ρ of a loop: what is left, the price of the budget and what selections may still take.

    ``initial`` is ρ of the number of rows and of single columns.
    """

    def __init__(self, rho: float, settings: LoopSettings) -> None:
        self.rho, self.settings = rho, settings
        self.left, self.initial = rho, 0.0
        self._price = self._allowance = self._rounding = self._last_rounding = 0.0
        self._least_weight = self._known = 0.0

    @property
    def spent_share(self) -> float:
        """Part of ρ that was spent."""
        return 1 - max(self.left, 0.0) / self.rho

    def for_total(self, estimates: Estimates) -> dict[Clique, float]:
        """Return the precision with which to measure the number of rows."""
        return {(): 2 * (self.rho * TOTAL_SHARE) / estimates.cost(())}

    def for_columns(
        self, workload: Workload, estimates: Estimates
    ) -> Iterator[dict[Clique, float]]:
        """Yield the precisions with which to measure the columns, and set aside what they cost.

        Columns that can be smooth are measured in two steps. The second one adds what they lack by
        the codes that are effective after the first one.
        """
        candidates, held = measurable_cliques(workload), dict[Clique, float]()
        strategies, replaced = estimates.strategies, estimates.replaced
        for part in (FIRST_PART, 1.0) if estimates.smooth_columns else (1.0,):
            codes = estimates.effective_codes() if held else ()
            share = self.settings.initial_share or initial_share(
                workload, candidates, self.rho, estimates.model.total, codes
            )
            # The ledger rounds every charge up by less than a unit.
            rounding = (1 + bool(held)) * (len(workload.domain) + 2) / UNITS_PER_RHO
            initial = self.rho * (max(share, 2 * TOTAL_SHARE) if candidates else 1.0)
            initial = initial * (1 - SAFETY) - rounding
            columns_rho = initial - self.rho * TOTAL_SHARE
            plan = one_way_plan(workload, part * columns_rho, strategies, replaced, codes)
            if held:
                spare = initial - self.initial
                plan = {tau: max(x - held[tau], 0.0) for tau, x in plan.items()}
                cost = math.fsum(estimates.cost(tau) * x / 2 for tau, x in plan.items())
                if spare <= 0 or cost <= 0:
                    return
                plan = {tau: x * min(spare / cost, 1.0) for tau, x in plan.items() if x > 0}
            held, self.initial = plan, initial - (1 - part) * columns_rho
            self.left = (self.rho - self.initial - rounding) * (1 - SAFETY)
            yield plan

    def pay(self, rho: float, measurements: int) -> None:
        """Subtract the cost of measurements that no selection preceded."""
        self.left -= rho * (1 + SAFETY) + measurements / UNITS_PER_RHO

    def begin_rounds(self, rounding: float, last: float) -> None:
        """Grant all selections their allowance.

        The ledger may round up the charges of a round by ``rounding`` ρ, and the charges of all
        that is measured together at the end by ``last``.
        """
        self._rounding, self._last_rounding = rounding, last
        self._allowance = self.left * self.settings.selecting_share

    def plan(self, candidates: Candidates, total: float) -> RoundPlan | None:
        """Return the next round, at the highest price up to now at which anything is worth it.

        If nothing is worth any price, all that fits is offered with the whole budget. Return None
        once measuring known marginals again pays as much (:meth:`closing`).
        """
        spare, fits = self.left - self._rounding, candidates.open
        if spare <= SAFETY * self.rho + self._rounding or not fits.any():
            return None
        errors, closing = candidates.errors, self._plan_closing(candidates)
        known = 2 * closing.gain if closing else 0.0  # weighted rows for a unit of ρ
        self._known = known
        self._price = max(self._price or errors.opening_price(total), known)
        gains, declinable = errors.gains(self._price, spare, total), True
        for _ in range(MOST_FALLS):
            if self._price < known:
                return None
            fits = candidates.open & (candidates.weights >= self._least_weight)
            if (gains.worth & fits).any():
                break
            self._price /= FALL
            self._least_weight = 0.0
            gains = errors.gains(self._price, spare, total)
        else:
            everything = np.full(fits.size, spare)
            gains = replace(gains, budget=everything, worth=np.ones_like(fits))
            declinable = False
        some = gains.budget[gains.worth & fits]
        typical = float((some * some).sum() / some.sum())  # as a unit of ρ meets them
        share = self.settings.selecting_share
        selecting = selection_rho(self._price, typical, spare, self._allowance, share)
        offered = gains.offered(math.sqrt(8 * selecting), fits)
        return RoundPlan(gains, offered, selecting, declinable)

    def closing(self, candidates: Candidates) -> JointPlan:
        """Plan a joint measurement of all known marginals that spends the rest of the budget.

        It needs no choice, and residuals that marginals share are measured once. Rounds end when
        the last unit of ρ of this plan lowers the error by as much as the price.
        """
        plan = self._plan_closing(candidates)
        return candidates.divide(plan) if plan else JointPlan()

    def _plan_closing(self, candidates: Candidates) -> TogetherPlan | None:
        spare = (self.left - self._last_rounding) / (1 + SAFETY)
        if spare <= SAFETY * self.rho or not candidates.known.any():
            return None
        return candidates.plan_known(spare)

    def spend(self, plan: RoundPlan, row: int | None, candidates: Candidates) -> RoundBudget:
        """Spend on a choice, and on measuring candidate ``row``; None is to measure nothing.

        The measurement gets all of the budget if less than as much would be left for a later round.
        """
        measuring = 0.0
        if row is None:
            self._least_weight = math.inf
        else:
            candidates.limit.take(candidates.cliques[row])
            measuring = float(plan.gains.budget[row])
        cost = choice_cost(plan.selecting, self.left)
        spare = self.left - cost - self._rounding
        spent = RoundBudget(plan.selecting, measuring if 2 * measuring < spare else spare)
        self.left -= (cost + spent.measuring) * (1 + SAFETY) + self._rounding
        self._allowance -= plan.selecting
        if self._allowance <= 0:  # the round was to take all there is, and what was chosen did not
            self._allowance = self.left * self.settings.selecting_share
        return spent

    def anneal(self, spent: RoundBudget, moved: float, expected: float, weight: float) -> None:
        """Lower the price if a round gained less than its ρ would for what is known.

        What it found and noise add by squares, to what the estimate moved. Weighted by their
        precisions, both leave an error of found · expected / moved. The choice takes about the
        worst candidate on offer, so that others of its weight or less would gain no more. Before
        anything else is known, a round that moved by no more than noise lowers the price. This
        stands for Fuentes et al., Algorithm 7, whose pseudo-code compares the estimate with the
        true marginal: with that the rounds would depend on private counts.
        ``moved`` is the L1 distance between the chosen marginal's new and old estimate, and
        ``expected`` the L1 error of the new one (rows).
        """
        found = math.sqrt(max(moved**2 - expected**2, 0.0))
        gained = weight * found * (1 - expected / moved) if found else 0.0
        if gained <= self._known * spent.measuring:
            self._least_weight = FALL * weight


# To choose pays where few combinations of columns matter, or where noise would bury most of them.
# Where the budget suffices for all, choices cost what they cost, and what several marginals share
# is measured again with each of them. Which it is follows beforehand from the error expected of
# both, if nothing is known but that a combination of k columns differs from what fewer columns
# make it by DEPENDENCE^(k−1) of the rows on average, and anything up to twice that is as likely.
#
# Where noise alone would be more than that, nothing is measured together. Otherwise both errors are
# compared. Measured one by one, a part f of the combinations gets all of the budget. If these are
# the ones that differ most, the others differ by (1 − f) times the average, and are (1 − f) of all.
# So a loop is expected to end with the error
#
#     min over f of  f e(f) + (1 − f) e + (1 − f)² D
#
# where e(f) is the error of a marginal that has its even part of the budget, and e
# that of one that is left as it is. Measured together, all have the error of the joint plan.
#
# Of a workload of triples all pairs may be measured together, with half of the budget, and the
# triples chosen with the other half.

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


def plan_opening(
    estimates: Estimates, workload: Workload, rho: float, settings: LoopSettings
) -> JointPlan:
    """Return what a loop measures together before the first choice; it may be nothing.

    ``rho`` is for this and for all choices. Where marginals over groups of codes pay for pairs,
    nothing is measured together.
    """
    opening = JointPlan()
    if not settings.opening or settings.reference != "product" or rho <= 0:
        return opening
    candidates, model = measurable_cliques(workload), estimates.model
    domain, most = model.domain, max(map(len, candidates), default=0)
    pairs = [clique for clique in candidates if len(clique) <= 2]
    error = mean_error(model.reference, model.total, pairs, rho)
    if settings.levels == "auto" and offers.with_levels(domain, model, pairs, error).groupings:
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
    """Some marginals, a plan that measures all together, and the mean error that it leaves.

    The error (share of the rows) is by the weights of the marginals, if the plan takes all there
    is.
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
        self.error = self._mean(self._planned(1.0).errors)

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
        """Return L1 errors (rows) by the noise (rows) in a cell."""
        scale = TABULATED_ROWS / self._total
        return self._curves.at(stds * scale, rows) / scale

    def _mean(self, errors: Array) -> float:
        """Return the weighted mean of errors (rows), as a share of the rows."""
        return float(np.average(errors, weights=self._weights)) / self._total

    def _planned(self, share: float) -> TogetherPlan:
        """Plan the joint measurement with this share of the budget."""
        rho = share * self._rho - len(self._closure) / UNITS_PER_RHO  # charges are rounded up
        budget = 2 * max(rho, 0.0) / (1 + SAFETY)
        return self._planner.plan_together(self._errors, self._held, budget, self._weights)

    def if_chosen(self, distance: float) -> float:
        """Return the mean error (share of the rows) if a loop measured these one by one.

        ``distance`` is the mean L1 distance (share of the rows) from what is known, noise apart.
        """
        alone = 2 * self._rho / np.maximum(PARTS * len(self._cliques), 1.0)
        every = np.arange(len(self._cliques))
        stds = self._planner.expected_stds(self._held, alone, every)
        measured = np.array([self._mean(errors) for errors in self._errors(stds, every)])
        left = self._mean(self._errors(self._planner.noise_held(self._held), every))
        forecasts = PARTS * measured + (1 - PARTS) * left + (1 - PARTS) ** 2 * distance
        return float(forecasts.min())

    def opening(self, share: float) -> JointPlan:
        """Return their measurements, with a share of the budget."""
        plan = self._planned(share)
        new = dict(zip(self._closure, plan.precisions.tolist()))
        errors = zip(self._cliques, plan.errors.tolist())
        measured = {clique: error for clique, error in errors if new[clique] > 0}
        domain = self._planner.domain
        return JointPlan.of(domain, [*measured], [*measured.values()], new, share == 1)
