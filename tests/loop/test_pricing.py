"""The price of the budget: what candidates are measured with, offered and paid for."""

from __future__ import annotations

import math
from functools import partial
from itertools import combinations, pairwise, product
from types import SimpleNamespace

import numpy as np
import pytest

from adaptive_qs.cliques import downward_closure
from adaptive_qs.loop.budget import (
    MOST_SELECTING,
    SAFETY,
    LoopBudget,
    LoopSettings,
    RoundBudget,
    selection_rho,
)
from adaptive_qs.loop.candidates import FALL, RARELY, UNKNOWN, CellLimit, ErrorTable
from adaptive_qs.loop.estimates import measurement_cost
from adaptive_qs.loop.loop import run_loop
from adaptive_qs.loop.planner import ConditionalPlanner
from adaptive_qs.privacy.accounting import choice_cost
from adaptive_qs.workload.workload import Workload

from .helpers import Recorder, counter_of, domain_of, skewed_rows

DOMAIN = domain_of(3, 4, 2, 30)
CANDIDATES = [c for k in (1, 2) for c in combinations(range(4), k)]
CLOSURE = downward_closure(CANDIDATES)
PLANNER = ConditionalPlanner(
    DOMAIN, CLOSURE, CANDIDATES, [measurement_cost(DOMAIN, tau) for tau in CLOSURE]
)
WEIGHTS = np.linspace(0.25, 1.0, len(CANDIDATES))
CELLS = np.array([DOMAIN.size(c) for c in CANDIDATES])
TOTAL, RHO = 1_000.0, 0.1
EVERY = np.ones(len(CANDIDATES), dtype=bool)
SINGLES = np.array([1.0 if len(tau) < 2 else 0.0 for tau in CLOSURE]) / 9**2


def errors(stds, rows):
    """An error that grows with the noise up to twice the rows."""
    return 2 * TOTAL * (1 - np.exp(-stds * CELLS[rows] / TOTAL))


def price_list(precision=SINGLES, weights=WEIGHTS):
    prices = ErrorTable(PLANNER, weights, RHO)
    prices.refresh(errors, precision, EVERY)
    return prices


class Schedule:
    """A budget and candidates whose errors are given."""

    def __init__(self, prices, share=0.1, rounding=0.0):
        self.budget = LoopBudget(RHO, LoopSettings(selecting_share=share))
        self.budget.begin_rounds(rounding, rounding)
        limit = CellLimit(DOMAIN, CANDIDATES, 10**6)
        self.candidates = SimpleNamespace(
            limit=limit, errors=prices, cliques=CANDIDATES, open=limit.open, weights=WEIGHTS,
            known=limit.open, plan_known=lambda rho: SimpleNamespace(gain=self.gain / 2),
        )  # fmt: skip
        self.gain = 0.0
        self.anneal = partial(self.budget.anneal, RoundBudget(0.0, 1e-4))

    @property
    def left(self):
        return self.budget.left

    def choice(self, total):
        return self.budget.plan(self.candidates, total)

    def take(self, clique, choice):
        return self.budget.spend(choice, CANDIDATES.index(clique), self.candidates)


@pytest.mark.parametrize("price", [1e2, 1e4, 1e5, 1e6])
@pytest.mark.parametrize("most", [RHO, 0.3 * RHO])
def test_the_budget_is_that_of_least_error_and_payment_together(price, most):
    prices = price_list()
    found = prices.gains(price, most, TOTAL)
    for row, weight in enumerate(WEIGHTS):
        budgets = [min(b, most) for b in prices.budgets if b <= most or b == prices.budgets[-1]]
        costs = []
        for budget in budgets:
            (std,) = PLANNER.expected_stds(SINGLES, np.array([2 * budget]), np.array([row]))
            costs.append(weight * errors(std, np.array([row]))[0] + price * budget)
        best = int(np.argmin(costs))
        assert found.budget[row] == budgets[best]
        assert weight * (found.expected + found.paid)[row] == pytest.approx(costs[best])
        (std,) = PLANNER.expected_stds(SINGLES, np.zeros(1), np.array([row]))
        gain = weight * min(errors(std, np.array([row]))[0], UNKNOWN * TOTAL)
        assert found.worth[row] == (costs[best] < gain)
        unknown = len(CANDIDATES[row]) == 2
        loses = unknown and gain <= costs[best] < 2 * TOTAL * weight
        assert found.deficit[row] == pytest.approx(costs[best] - gain if loses else 0.0)


def test_a_lower_price_gives_no_candidate_less_and_makes_no_fewer_worth_it():
    prices = price_list()
    found = [prices.gains(price, RHO, TOTAL) for price in 2.0 ** np.arange(30, 0, -1)]
    for before, after in pairwise(found):
        assert (after.budget >= before.budget).all()
        assert (after.expected <= before.expected).all()
        assert (after.worth | ~before.worth).all()
    assert not found[0].worth.any()
    assert found[-1].worth.all()


def test_heavier_candidates_get_more():
    """Of two alike in all else."""
    weights = np.where(np.arange(len(CANDIDATES)) == CANDIDATES.index((0, 3)), 1.0, 0.05)
    weights[CANDIDATES.index((0, 2))] = 1.0
    light = price_list(weights=np.where(weights == 1.0, 0.05, 1.0)).gains(1e4, RHO, TOTAL)
    heavy = price_list(weights=weights).gains(1e4, RHO, TOTAL)
    row = CANDIDATES.index((0, 3))
    assert heavy.budget[row] > 2 * light.budget[row]


def test_only_stale_candidates_are_priced_again():
    prices, fresh = price_list(), price_list(4 * SINGLES)
    stale = np.array([0 in c for c in CANDIDATES])
    before = prices.gains(1e4, RHO, TOTAL)
    prices.refresh(errors, 4 * SINGLES, stale)
    after, all_new = (p.gains(1e4, RHO, TOTAL) for p in (prices, fresh))
    np.testing.assert_array_equal(after.expected[stale], all_new.expected[stale])
    np.testing.assert_array_equal(after.expected[~stale], before.expected[~stale])


def test_prospects_follow_the_price_and_what_is_left():
    """Whatever was asked before, they are those of a list that is asked for the first time."""
    prices = price_list()
    rng = np.random.default_rng(0)
    precision = SINGLES
    for price, most in product((1e4, 1e4, 1e3), (RHO, RHO, 0.3 * RHO, 1e-6, 2e-6)):
        precision = precision * rng.choice([1, 2], size=precision.size, p=[0.9, 0.1])
        prices.refresh(errors, precision, EVERY)
        fresh = price_list(precision).gains(price, most, TOTAL)
        for _ in range(2):
            found = prices.gains(price, most, TOTAL)
            for name, values in vars(fresh).items():
                np.testing.assert_array_equal(getattr(found, name), values)


def test_a_candidate_that_is_not_worth_it_is_offered_only_where_the_choice_sees_that():
    found = price_list().gains(1e5, RHO, TOTAL)
    doubtful = found.deficit > 0
    assert doubtful.any()
    gap = found.deficit[doubtful].min()
    number = int(doubtful.sum())
    enough = 2 / gap * math.log(RARELY * number)
    np.testing.assert_array_equal(found.offered(1.001 * enough, EVERY), found.worth | doubtful)
    assert not found.offered(0.999 * enough, EVERY)[np.flatnonzero(doubtful)].all()
    np.testing.assert_array_equal(found.offered(1e-12, EVERY), found.worth)
    assert not found.offered(1.001 * enough, ~EVERY).any()
    # They are taken once in RARELY times at the most: exp(ε gap / 2) is RARELY times their number.
    odds = number * math.exp(-1.001 * enough * gap / 2)
    assert odds <= 1 / RARELY


@pytest.mark.parametrize("share", [0.01, 0.1, MOST_SELECTING])
@pytest.mark.parametrize("rounding", [0.0, 1e-7])
@pytest.mark.parametrize("noise", [True, False])
def test_all_is_spent_and_choices_keep_to_their_share(share, rounding, noise):
    prices = price_list()
    schedule = Schedule(prices, share, rounding)
    rng = np.random.default_rng(0)
    precision = SINGLES.copy()
    spent = selecting = 0.0
    for _ in range(10_000):
        if schedule.left <= 1e-6 * RHO + 2 * rounding:
            break
        left = schedule.left
        if not (choice := schedule.choice(TOTAL)):
            break
        assert choice.selecting <= share * left
        clique = CANDIDATES[rng.choice(np.flatnonzero(choice.offered))]
        budget = schedule.take(clique, choice)
        assert budget.measuring > 0
        spent += choice_cost(budget.selecting, left) + budget.measuring + rounding
        selecting += budget.selecting
        for tau, x in PLANNER.allocate(clique, precision, 2 * budget.measuring).items():
            precision[CLOSURE.index(tau)] += x
        prices.refresh(errors, precision, EVERY)
        schedule.anneal(0.0 if noise else 1.0, 0.5, 1.0)
    assert RHO * (1 - 3e-6) - 2 * rounding <= spent <= RHO * (1 + 1e-12)
    assert selecting <= share * RHO


@pytest.mark.parametrize("known", [0.0, 30.0])
def test_a_round_that_gains_less_than_what_is_known_would_lowers_the_price(known):
    """Moved by 5 rows where noise is 3, it found 4 and leaves 2.4: a gain of 1.6 for 0.05 of ρ."""
    schedule = Schedule(price_list())
    schedule.gain = known
    first = schedule.choice(TOTAL).gains
    for moved, rho, falls in ((3.01, 1e-9, False), (3.0, 1e-9, True), (5.0, 0.05, False),
                              (5.0, 0.06, known > 0)):  # fmt: skip
        before = schedule.budget._price
        schedule.budget.anneal(RoundBudget(0.0, rho), moved, 3.0, 1.0)
        plan = schedule.choice(TOTAL)
        assert schedule.budget._price == before / (FALL if falls else 1)
    assert (plan.gains.budget > first.budget).any()


def test_noise_of_a_light_candidate_leaves_the_price_of_much_heavier_ones():
    """It leaves those on offer that weigh at least FALL times as much, and they cost the same."""
    schedule = Schedule(price_list())
    for _ in range(6):
        schedule.anneal(5.0, 5.0, WEIGHTS[-1])
        before = schedule.choice(TOTAL)  # all are on offer again, at the next price
    price = schedule.budget._price
    schedule.anneal(5.0, 5.0, WEIGHTS[0])
    after = schedule.choice(TOTAL)
    assert schedule.budget._price == price
    np.testing.assert_array_equal(after.gains.budget, before.gains.budget)
    heavy = FALL * WEIGHTS[0] <= WEIGHTS
    assert (before.gains.worth & ~heavy).any()
    np.testing.assert_array_equal(after.offered, before.offered & heavy)
    schedule.anneal(5.0, 5.0, WEIGHTS[-1])
    assert schedule.choice(TOTAL).offered[~heavy].any()
    assert schedule.budget._price == price / FALL


def test_a_choice_of_nothing_lowers_the_price_and_is_rare_if_anything_is_worth_it():
    schedule = Schedule(price_list())
    choice, left = schedule.choice(TOTAL), schedule.left
    price = schedule.budget._price
    odds = math.exp(-choice.epsilon / 2 * choice.nothing)  # to a candidate that is just worth it
    assert odds == pytest.approx(1 / RARELY)
    spent = schedule.budget.spend(choice, None, schedule.candidates)
    assert spent == RoundBudget(choice.selecting, 0.0)
    assert left - schedule.left == pytest.approx(choice_cost(choice.selecting, left), rel=1e-5)
    assert schedule.choice(TOTAL).offered.any()
    assert schedule.budget._price == price / FALL


def test_rounds_end_once_to_know_better_what_is_known_pays_as_much():
    """A gain above the price raises it; only after it fell below the gain there is no round."""
    schedule = Schedule(price_list())
    schedule.choice(TOTAL)
    schedule.gain = 1.5 * schedule.budget._price
    assert schedule.choice(TOTAL).offered.any()
    assert schedule.budget._price == schedule.gain
    schedule.anneal(9.0, 5.0, 1.0)
    assert schedule.choice(TOTAL)
    schedule.anneal(5.0, 5.0, 1.0)
    assert schedule.choice(TOTAL) is None


def test_where_nothing_is_worth_it_the_rest_is_spent_at_once():
    prices = ErrorTable(PLANNER, WEIGHTS, RHO)
    prices.refresh(lambda stds, rows: np.full(stds.shape, 2 * TOTAL), SINGLES, EVERY)
    schedule = Schedule(prices)
    choice = schedule.choice(TOTAL)
    assert choice.offered.all()
    assert choice.epsilon > 0
    budget = schedule.take((2, 3), choice)
    assert choice_cost(budget.selecting, RHO) + budget.measuring == pytest.approx(RHO)
    assert math.isinf(choice.nothing)
    assert abs(schedule.left) <= 2 * SAFETY * RHO


def test_a_choice_costs_what_it_is_worth_within_its_limits():
    """√(1/2ρ) + λρ is least at the ρ that is taken where no limit binds."""
    for price in (1e3, 1e6, 1e9):
        rho = selection_rho(price, 1.0, 1.0, 1e9, 1.0)
        best = min(np.geomspace(1e-9, 1, 20_001), key=lambda r: math.sqrt(1 / (2 * r)) + price * r)
        assert rho == pytest.approx(best, rel=2e-3)
    assert selection_rho(1e-9, 0.2, 1.0, 0.1, 0.5) == pytest.approx(0.02)
    assert selection_rho(1e-9, 2.0, 1.0, 0.4, 0.1) == pytest.approx(0.1)


def test_a_pair_of_great_weight_is_measured_nearly_as_well_as_alone():
    """Workload of weight 100 on one pair of 40 x 30 cells and 1 on others: its share of the budget
    is more than half of what a workload of that pair alone spends on it (mean of three seeds)."""
    domain = domain_of(40, 30, 5, 6, 4)
    counter = counter_of(domain, skewed_rows(domain, 20_000, 0))
    every = dict.fromkeys(combinations(range(5), 2), 1.0)
    workloads = {
        "alone": Workload(domain, {(0, 1): 1.0}),
        "heavy": Workload(domain, {**every, (0, 1): 100.0}),
        "even": Workload(domain, every),
    }

    def spent(workload, seed):
        recorder = Recorder(0.05, seed)
        result = run_loop(recorder.table(counter), workload, recorder, 0.05)
        return sum(r.budget.measuring for r in result.rounds if r.clique == (0, 1))

    means = {
        name: sum(spent(workload, seed) for seed in range(3)) / 3
        for name, workload in workloads.items()
    }
    assert means["heavy"] > 0.5 * means["alone"]
    assert means["heavy"] > 2 * means["even"]
