"""What is measured together before the first choice: its plan, when it is made, and its records."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, takewhile

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from adaptive_qs.cliques import downward_closure
from adaptive_qs.domain import subsets
from adaptive_qs.loop.budget import LoopSettings
from adaptive_qs.loop.estimates import measurement_cost
from adaptive_qs.loop.forecast import LoopForecast
from adaptive_qs.loop.loop import run_loop
from adaptive_qs.loop.planner import ConditionalPlanner
from adaptive_qs.privacy.events import SelectionEvent
from adaptive_qs.residual import variance_weight
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.workload.workload import Workload

from ..audit import recompute
from .helpers import Recorder, counter_of, domain_of, skewed_rows
from .test_loop import assert_replays

BINARY = domain_of(2, 2, 2, 2, 2)
MIXED = domain_of(2, 3, 5, 9)
ROWS = skewed_rows(BINARY, 2_000, 0)
PAIRS = list(combinations(range(5), 2))


STEPS = (0.99, 1.01)


def planner_of(domain, cliques):
    closure = downward_closure(cliques)
    costs = [measurement_cost(domain, residual) for residual in closure]
    return closure, np.array(costs), ConditionalPlanner(domain, closure, cliques, costs)


def error_like(power, most):
    """Errors that grow as a power of the noise up to the most that a marginal may be off by."""
    return lambda stds, rows: most * (1 - np.exp(-(np.minimum(stds, 1e9) ** power) / most))


@pytest.mark.parametrize(("power", "most"), [(1.0, 50.0), (1.0, 1e6), (0.5, 1e6)])
@pytest.mark.parametrize("held", [0.0, 0.4])
def test_no_search_finds_a_joint_plan_that_is_better(power, most, held):
    cliques = list(combinations(range(4), 2))
    closure, costs, planner = planner_of(MIXED, cliques)
    priorities, budget = np.array([1.0, 2.0, 1.0, 0.5, 1.0, 3.0]), 3.0
    precision = np.where([len(tau) < 2 for tau in closure], held, 0.0)
    inside = np.array(
        [
            [variance_weight(MIXED, tau, clique) if set(tau) <= set(clique) else 0.0
             for tau in closure]
            for clique in cliques
        ]
    )  # fmt: skip
    errors = error_like(power, most)

    def objective(logs):
        """By an unconstrained form: parts of the budget are a softmax."""
        parts = np.exp(logs - logs.max())
        new = budget * parts / parts.sum() / costs
        return float(priorities @ errors(np.sqrt(inside @ (1 / (precision + new))), None))

    new, expected, gain = planner.plan_together(errors, precision, budget, priorities)
    assert costs @ new == pytest.approx(budget)
    np.testing.assert_allclose(expected, errors(np.sqrt(inside @ (1 / (precision + new))), None))
    rng = np.random.default_rng(0)
    starts = rng.normal(size=(3, len(closure)))
    best = min(minimize(objective, start, method="L-BFGS-B").fun for start in starts)
    assert priorities @ expected <= best * (1 + 2e-3)  # the tolerance of a plan is 1e-3
    # Slopes are taken over tenths of variances.
    less, more = (errors(np.sqrt(inside @ (1 / (precision + part * new))), None) for part in STEPS)
    assert gain == pytest.approx(priorities @ (less - more) / (0.02 * budget), rel=0.05)


def test_pairs_that_are_alike_get_the_noise_of_residual_planner():
    """Of all pairs of like columns each residual of one size costs ∝ √(v p), Xiao et al. 2023."""
    closure, costs, planner = planner_of(BINARY, PAIRS)
    new, _, _ = planner.plan_together(
        error_like(1.0, 1e9), np.zeros(len(closure)), 2.0, np.ones(len(PAIRS))
    )
    weight = np.array([sum(variance_weight(BINARY, tau, c) for c in PAIRS if set(tau) <= set(c))
                       for tau in closure])  # fmt: skip
    np.testing.assert_allclose(
        costs * new, 2 * np.sqrt(weight * costs) / np.sqrt(weight * costs).sum()
    )


def loop(rho, workload=None, rows=ROWS, domain=BINARY, **settings):
    mechanisms = Recorder(rho, filtered=True)
    workload = workload or Workload.all_ways(domain, 2)
    result = run_loop(
        mechanisms.table(counter_of(domain, rows)),
        workload,
        mechanisms,
        rho,
        LoopSettings(**settings),
    )
    return result, mechanisms.budget.events


def opened(result):
    """What was measured before the first choice: marginals that were not measured before."""
    known = takewhile(lambda past: not past.budget.selecting, result.rounds)
    return [*dict.fromkeys(past.clique for past in known if len(past.clique) > 1)]


def closed(result):
    """The rounds after the last choice."""
    chosen = [k for k, past in enumerate(result.rounds) if past.budget.selecting]
    return result.rounds[chosen[-1] + 1 :]


def test_all_pairs_are_measured_at_once_where_the_budget_suffices_for_all():
    result, events = loop(0.1)
    assert sorted(opened(result)) == PAIRS
    assert len(result.rounds) == len(PAIRS)
    assert not any(isinstance(event, SelectionEvent) for event in events)
    assert sum(event.rho for event in events) == pytest.approx(Fraction(1, 10), rel=1e-5)
    measured = [tau for past in result.rounds for tau in past.measured]
    assert len(set(measured)) == len(measured)
    assert any(past.moved > past.expected for past in result.rounds)
    for past in result.rounds:
        assert past.budget.measuring > 0
        for tau, variance in past.measured.items():
            assert set(tau) <= set(past.clique)
            assert len(tau) < 2 or result.model.precision(tau) == pytest.approx(1 / variance)


def test_measuring_together_leaves_less_noise_than_choosing_and_ends_a_loop_that_chooses():
    together, _ = loop(0.1)
    chosen, events = loop(0.1, opening=False)
    assert not opened(chosen)
    last = max(k for k, event in enumerate(events) if isinstance(event, SelectionEvent))
    (end,) = [k for k, past in enumerate(chosen.rounds) if past == closed(chosen)[0]]
    before = {past.clique for past in chosen.rounds[:end]}
    assert {past.clique for past in closed(chosen)} <= before | {(i,) for i in range(5)}
    charged = [tau for past in chosen.rounds[end - 1 :] for tau in past.measured]
    assert len(charged) == len(events) - last - 1

    def noise(result):
        variances = [
            sum(variance_weight(BINARY, tau, pair) / result.model.precision(tau)
                for tau in subsets(pair))
            for pair in PAIRS
        ]  # fmt: skip
        return np.sqrt(variances).mean()

    assert noise(together) < noise(chosen) < 1.1 * noise(together)


def test_nothing_is_measured_together_where_choosing_is_expected_to_be_better():
    assert not opened(loop(1e-4)[0])  # noise would bury most pairs
    assert not opened(loop(0.1, reference="uniform")[0])  # the rounds as published
    assert not opened(loop(0.1, Workload.all_ways(BINARY, 1))[0])
    assert not opened(loop(0.1, rows=ROWS[:20])[0])
    assert not opened(loop(0.1, measured_cells=39)[0])  # ten pairs have forty cells


def test_pairs_at_levels_are_chosen():
    large = domain_of(40, 50, 30, 20)
    rows = skewed_rows(large, 3_000, 1)
    assert opened(loop(1e6, rows=rows, domain=large)[0])
    result, _ = loop(0.05, rows=rows, domain=large)
    assert result.model.domain.groupings
    assert not opened(result)


def test_triples_are_chosen_after_all_pairs_or_measured_with_them():
    triples = Workload.all_ways(BINARY, 3)
    result, events = loop(0.02, triples)
    assert sorted(opened(result)) == PAIRS
    spent = sum(past.budget.measuring for past in result.rounds[: len(PAIRS)])
    assert spent == pytest.approx((0.02 - result.initial_rho) / 2, rel=1e-3)
    assert any(isinstance(event, SelectionEvent) for event in events)
    assert any(len(past.clique) == 3 for past in result.rounds)
    result, _ = loop(20.0, triples)
    assert sorted(opened(result)) == list(combinations(range(5), 3))
    assert len(result.rounds) == 10


@pytest.mark.parametrize("ways", [2, 3])
def test_neighbours_replay(ways):
    result = assert_replays(ROWS, ROWS[1:], Workload.all_ways(BINARY, ways), 0.05, None)
    assert opened(result)


def test_a_column_is_connected_by_what_is_measured_together():
    """With fewer rows, the rounds that stand for the table's leave some columns unconnected."""
    forecast = LoopForecast(Workload.all_ways(BINARY, 2), 0.1)
    assert opened(loop(0.1)[0])
    assert forecast.columns(2_000) == ()
    assert forecast.columns(10) == BINARY.names


def test_fit_measures_together_and_its_release_says_what_was_paid(tmp_path):
    frame = pd.DataFrame(ROWS, columns=list(BINARY.names))
    schema = dict(zip(BINARY.names, BINARY.sizes))
    model = Synthesizer(rho=0.02, workload=3, insecure_seed=0)
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        model.fit(frame, schema=schema)
    together = [*takewhile(lambda past: not past.rho_selecting, model.rounds_)]
    assert len(together) == len(PAIRS) < len(model.rounds_)
    model.save(tmp_path / "r.zip")
    assert recompute.problems(tmp_path / "r.zip") == []
    again = Synthesizer.load(tmp_path / "r.zip")
    assert again.rounds_ == model.rounds_
    made = again.sample(seed=1)
    for a, b in combinations(BINARY.names, 2):
        true, drawn = (pd.crosstab(t[a], t[b], normalize=True) for t in (frame, made))
        assert np.abs(true - drawn).to_numpy().sum() < 0.1
