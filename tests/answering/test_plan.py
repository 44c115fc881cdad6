"""Plans: figures at the target's cost, certificates, and a forecast of the size of a run."""

import math

import pytest

from adaptive_qs.answering.forecast import PROCESS_BYTES, forecast
from adaptive_qs.answering.plan import EPSILONS, plan_batch
from adaptive_qs.answering.resources import BatchLimits
from adaptive_qs.answering.target import BatchTarget
from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.strategy.mechanisms.choice import MECHANISMS
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.workload.building import all_ways_queries

from .batches import WORKLOADS, Scripted, batch, pairs, query_weights, table, unlimited

NAMES = [(asked, name) for asked, name in pairs() if asked in ("several", "range")]


@pytest.mark.parametrize(("asked", "name"), NAMES)
def test_errors_are_per_query_at_the_target(asked, name):
    target = BatchTarget.of(epsilon=1.0, delta=1e-9)
    plan = plan_batch(WORKLOADS[asked], target, name)
    mechanism = plan.mechanism
    assert plan.queries == len(query_weights(WORKLOADS[asked]))
    assert plan.rmse == pytest.approx(
        math.sqrt(mechanism.total_error / target.cost / plan.queries), rel=1e-12
    )
    assert plan.lower_bound_rmse <= plan.rmse * (1 + 1e-9)
    assert plan.gap == pytest.approx(mechanism.total_error / mechanism.lower_bound - 1, abs=1e-9)
    top, exact = plan.max_variance
    assert exact
    assert top >= plan.rmse**2 / max(1, *query_weights(WORKLOADS[asked]))
    assert plan.seconds > 0


def test_error_falls_with_epsilon():
    plan = plan_batch(WORKLOADS["several"], BatchTarget.of(epsilon=2.0, delta=1e-6))
    rows = plan.by_epsilon()
    assert [row[0] for row in rows] == sorted([*EPSILONS, 2.0])
    for (epsilon, cost, rmse), after in zip(rows, [*rows[1:], (math.inf, math.inf, 0.0)]):
        assert cost == BatchTarget.of(epsilon=epsilon, delta=1e-6).cost
        assert rmse == pytest.approx(plan.rmse * math.sqrt(plan.target.cost / cost), rel=1e-12)
        assert after[1] > cost
        assert after[2] < rmse


def test_a_target_on_the_list_is_not_repeated():
    plan = plan_batch(WORKLOADS["several"], BatchTarget.of(epsilon=1.0))
    assert [row[0] for row in plan.by_epsilon()] == list(EPSILONS)


@pytest.mark.parametrize(("asked", "name"), NAMES)
def test_forecasts_count_what_a_run_draws_and_answers(asked, name):
    found = batch(asked, name)
    counter = MarginalCounter(table())
    drawn = sum(found.release(k, counter)[0][1].size for k in found.order)
    told = forecast(found.mechanism)
    # Cells are counted; a certified strategy of an axis has no more rows than cells, a few
    # product strategies of HDMM have more.
    assert drawn <= 2 * told.noise_draws
    sizes = [one.estimates.size for one in found.run(Scripted(unlimited()), counter)]
    assert told.largest_set == max(sizes)
    assert told.memory_bytes > PROCESS_BYTES
    assert told.seconds > 0


def test_progress_is_told_and_settings_are_heard():
    told = []
    plan = plan_batch(
        WORKLOADS["several"],
        BatchTarget.of(cost=1.0),
        "querysmasher",
        SolverSettings(gap=0.5),
        progress=lambda *step: told.append(step),
    )
    assert told[-1] == ("plan", plan.choice.distinct_solves, plan.choice.distinct_solves)
    assert [step[1] for step in told] == list(range(1, len(told) + 1))
    fine = plan_batch(WORKLOADS["several"], BatchTarget.of(cost=1.0), "querysmasher")
    assert fine.gap < 1.01e-4 < plan.gap <= 0.5


def test_unknown_mechanisms_are_refused():
    with pytest.raises(
        InputError, match=f"give one of {', '.join(MECHANISMS)}".replace("+", r"\+")
    ):
        plan_batch(WORKLOADS["several"], BatchTarget.of(cost=1.0), "best")


def test_the_forecast_counts_the_matrices_of_strategies():
    domain = Domain.from_sizes({"a": 10_000})
    plan = plan_batch(all_ways_queries(domain, 1, "prefix"), BatchTarget.of(cost=1.0), "wff")
    assert 8 * 10_000**2 * 8 <= plan.forecast.strategy_bytes < plan.forecast.memory_bytes
    limits = BatchLimits.of(domain, "4GB")
    with pytest.raises(ResourceExceeded, match="residualplanner"):
        limits.check_forecast(plan.forecast)
    plain = plan_batch(plan.workload, plan.target, "residualplanner")
    assert plain.forecast.strategy_bytes == 0
    limits.check_forecast(plain.forecast)
