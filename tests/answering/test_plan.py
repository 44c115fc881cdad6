"""Plans: figures at the target's cost, certificates, and a forecast of the size of a run."""

from __future__ import annotations

import json
import math
import re

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from adaptive_qs.answering.api import answer, plan
from adaptive_qs.answering.plan import (
    DEFAULT_GAP,
    EPSILONS,
    Batch,
    answers_limits,
    check_forecast,
    forecast,
)
from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError, ResourceExceeded, WorkloadError
from adaptive_qs.machine import PROCESS_BYTES
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.strategy import MECHANISMS, optimal
from adaptive_qs.strategy.residual_mechanism import ResidualMechanism
from adaptive_qs.table.coded import MarginalCounter
from adaptive_qs.workload.file import all_ways_queries

from .batches import WORKLOADS, Scripted, batch, pairs, query_weights, table, unlimited

NAMES = [(asked, name) for asked, name in pairs() if asked in ("several", "range")]


def plan_batch(workload, target, mechanism="auto", gap=DEFAULT_GAP, progress=None):
    limits = answers_limits(workload.domain, workers=1)
    return Batch(workload, workload.domain, target, limits, mechanism, gap, progress).plan()


@pytest.mark.parametrize(("asked", "name"), NAMES)
def test_errors_are_per_query_at_the_target(asked, name):
    target = PrivacyTarget.of_answers(epsilon=1.0, delta=1e-9)
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


def test_error_falls_with_epsilon_and_a_target_on_the_list_is_not_repeated():
    plan = plan_batch(WORKLOADS["several"], PrivacyTarget.of_answers(epsilon=1.0))
    assert [row[0] for row in plan.by_epsilon()] == list(EPSILONS)
    plan = plan_batch(WORKLOADS["several"], PrivacyTarget.of_answers(epsilon=2.0, delta=1e-6))
    rows = plan.by_epsilon()
    assert [row[0] for row in rows] == sorted([*EPSILONS, 2.0])
    for (epsilon, cost, rmse), after in zip(rows, [*rows[1:], (math.inf, math.inf, 0.0)]):
        assert cost == PrivacyTarget.of_answers(epsilon=epsilon, delta=1e-6).cost
        assert rmse == pytest.approx(plan.rmse * math.sqrt(plan.target.cost / cost), rel=1e-12)
        assert after[1] > cost
        assert after[2] < rmse


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


def test_progress_settings_and_names_of_mechanisms():
    told, asked = [], (WORKLOADS["several"], PrivacyTarget.of_answers(cost=1.0), "querysmasher")
    plan = plan_batch(*asked, gap=0.5, progress=lambda *step: told.append(step))
    assert told[-1] == ("plan", plan.choice.distinct_solves, plan.choice.distinct_solves)
    assert [step[1] for step in told] == list(range(1, len(told) + 1))
    assert plan_batch(*asked).gap < 1.01e-4 < plan.gap <= 0.5
    with pytest.raises(InputError, match=re.escape(f"Use one of {', '.join(MECHANISMS)}")):
        plan_batch(*asked[:2], "best")


def test_the_forecast_counts_the_matrices_of_strategies():
    domain = Domain.from_sizes({"a": 60, "b": 60})
    sums = all_ways_queries(domain, 2, "affine")
    plan = plan_batch(sums, PrivacyTarget.of_answers(cost=1.0), "wff")
    assert 8 * 3_600**2 * 8 <= plan.forecast.strategy_bytes < plan.forecast.memory_bytes
    limits = answers_limits(domain, "1GB")
    with pytest.raises(ResourceExceeded, match="residualplanner"):
        check_forecast(plan.forecast, limits)
    plain = plan_batch(plan.workload, plan.target, "residualplanner")
    assert plain.forecast.strategy_bytes == 0
    check_forecast(plain.forecast, limits)


# `auto` against the optimum of the whole domain, as a caller of plan and answer sees it.

PERSONS = {"age": 20, "sex": 2}
ADULTS = [[0] * 4 + [1] * 16]
WOMEN = [[0, 1]]
GROWN = [0] * 18 + [1] * 82


def write(folder, *parts):
    """A workload file of (attributes, queries, weight), whose queries may be matrices."""
    content = []
    for attributes, queries, *weight in parts:
        by_name = queries if isinstance(queries, dict) else {None: queries}
        made = {name: save(folder, matrix) for name, matrix in by_name.items()}
        made = made if isinstance(queries, dict) else made[None]
        content.append({"attributes": [attributes], "queries": made})
        content[-1] |= {"weight": weight[0]} if weight else {}
    path = folder / f"{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps({"version": 1, "parts": content}))
    return path


def save(folder, matrix):
    if isinstance(matrix, str):
        return matrix
    name = f"{len(list(folder.iterdir()))}.npy"
    np.save(folder / name, np.asarray(matrix))
    return {"family": "custom", "matrix": name}


def least_error(queries):
    """min tr(W V⁺ Wᵀ) over V ⪰ 0 with diag V ≤ 1, by semidefinite programming (rows²)."""
    m, n = queries.shape
    joint = cp.Variable((m + n, m + n), PSD=True)
    problem = cp.Problem(
        cp.Minimize(cp.trace(joint[:m, :m])),
        [joint[:m, m:] == queries, cp.diag(joint[m:, m:]) <= 1],
    )
    return float(problem.solve(solver=cp.CLARABEL))


def both(age, sex):
    """A matrix over the cells of age x sex: those where both hold."""
    return np.multiply.outer(age, sex).reshape(1, -1)


PREDICATES = {
    "80 of 100 codes": ({"a": 100}, [(["a"], [[1] * 80 + [0] * 20])], 1.0),
    "three nested": (
        {"a": 100}, [(["a"], [[1] * k + [0] * (100 - k) for k in (20, 50, 80)])], 1.2393,
    ),
    "adults, adult women": (
        PERSONS, [(["age"], ADULTS), (["age", "sex"], {"age": ADULTS, "sex": WOMEN})], 1.1441,
    ),
    "adults, adult women by cells": (
        PERSONS, [(["age"], ADULTS), (["age", "sex"], both(ADULTS[0], WOMEN[0]))], 1.1441,
    ),
    "in 600 cells": (
        {"age": 100, "group": 6},
        [(["age"], [GROWN]), (["age", "group"], both(GROWN, [1] + [0] * 5))],
        1.1441,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PREDICATES)
def test_predicates_of_an_analyst_get_the_optimum(case, tmp_path):
    sizes, parts, rmse = PREDICATES[case]
    found = plan(sizes, write(tmp_path, *parts), cost=1)
    assert found.rmse == pytest.approx(rmse, rel=1e-4)
    assert found.gap < 1e-4
    assert found.mechanism.lower_bound <= found.mechanism.total_error


def test_answers_about_some_codes_have_the_planned_error_and_no_bias(tmp_path):
    """Codes that nobody asks about have no say, neither in the plan nor in what is measured."""
    _, parts, rmse = PREDICATES["three nested"]
    path = write(tmp_path, *parts)
    schema = {"version": 1, "columns": [{"name": "a", "type": "integer", "min": 0, "max": 99}]}
    codes = pd.DataFrame({"a": np.arange(100).repeat(30)})
    found = answer_seeded(codes, schema, path, cost=1)
    assert math.sqrt((found.standard_error**2).mean()) == pytest.approx(rmse, rel=1e-3)
    exact = answer_seeded(codes, schema, path, cost=1e6)
    assert np.abs(exact.estimate - [600, 1500, 2400]).max() < 0.01


def answer_seeded(data, schema, path, **options):
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        return answer(
            data, schema, path, insecure_seed=1, beyond_limits=True, **options
        ).to_pandas()


COEFFICIENTS = st.sampled_from([0.0, 0.0, 1.0, 1.0, -1.0, 2.0])


@st.composite
def questions(draw):
    """Sizes, and matrices over a, b or both; zeros, duplicates and dependent rows included."""
    sizes = {"a": draw(st.integers(1, 4)), "b": draw(st.integers(1, 3))}
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        names = draw(st.sampled_from([["a"], ["b"], ["a", "b"]]))
        cells = math.prod(sizes[name] for name in names)
        shape = st.tuples(st.integers(1, 4), st.just(cells))
        matrix = draw(hnp.arrays(float, shape, elements=COEFFICIENTS))
        if draw(st.booleans()):
            matrix[:, draw(st.integers(0, cells - 1))] = 0
        if draw(st.booleans()):
            matrix = np.vstack([matrix, matrix[:1]])
        parts.append((names, matrix, draw(st.sampled_from([1.0, 1.0, 0.01, 100.0]))))
    return sizes, parts


def over_all_cells(sizes, parts):
    """All queries times the roots of their weights over the cells of a x b."""
    rows = []
    for names, matrix, weight in parts:
        table = np.asarray(matrix).reshape(-1, *(sizes[n] if n in names else 1 for n in "ab"))
        whole = np.broadcast_to(table, (len(table), sizes["a"], sizes["b"]))
        rows.append(math.sqrt(weight) * whole.reshape(len(table), -1))
    return np.concatenate(rows)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(questions())
@example(({"a": 4, "b": 2}, [(["a"], [[1, 1, 0, 0]] * 3, 1.0)]))
@example(({"a": 4, "b": 1}, [(["a"], [[0, 0, 0, 0], [1, 0, 0, 0]], 1.0)]))
@example(({"a": 3, "b": 2}, [(["a"], np.eye(3), 1.0), (["a", "b"], np.eye(6)[1:], 1e-6)]))
def test_auto_is_the_optimum_of_the_whole_domain(tmp_path_factory, asked):
    sizes, parts = asked
    rows = over_all_cells(sizes, parts)
    path = write(tmp_path_factory.mktemp("workload"), *parts)
    if not rows.any():
        with pytest.raises(WorkloadError, match="every query is zero"):
            plan(sizes, path)
        return
    scale = np.linalg.norm(rows)
    least = scale**2 * least_error(rows[rows.any(axis=1)] / scale)
    found = plan(sizes, path, cost=1)
    error = found.rmse**2 * found.queries
    assert error == pytest.approx(least, rel=3e-4)
    assert found.gap <= 1.01e-4
    if not isinstance(found.mechanism, ResidualMechanism):
        assert found.mechanism.lower_bound <= least * (1 + 1e-5)


def test_the_better_certificate_is_kept():
    """The full problem is no better here than a product, but proves that nothing is."""
    ranges = {"version": 1, "parts": [{"ways": [1, 2], "queries": "range"}]}
    found = plan({"a": 1, "b": 4}, ranges, cost=1)
    assert found.mechanism.total_error == pytest.approx(35.2074, rel=1e-5)
    assert found.mechanism.lower_bound > 35.207
    assert set(map(str, found.mechanism.statuses)) == {"optimal"}


def test_bounds_of_split_mechanisms_do_not_bind_others():
    """What residual spaces measured separately cannot reach, a strategy for all of them can."""
    ranges = {"version": 1, "parts": [{"ways": [2], "queries": "range"}]}
    split = plan({"a": 5, "b": 6}, ranges, mechanism="querysmasher", cost=1)
    best = plan({"a": 5, "b": 6}, ranges, cost=1)
    assert best.mechanism.total_error < split.mechanism.lower_bound
    assert best.mechanism.lower_bound <= best.mechanism.total_error


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_row_of_zeros_is_answered_with_zero(mechanism, tmp_path):
    path = write(tmp_path, (["a"], [[1, 1, 0], [0, 0, 0], [0, 1, 2]]))
    schema = {"version": 1, "columns": [{"name": "a", "type": "integer", "min": 0, "max": 2}]}
    data = pd.DataFrame({"a": [0, 1, 1, 2]})
    found = answer_seeded(data, schema, path, cost=1, mechanism=mechanism)
    assert found.loc[1, ["estimate", "standard_error", "lower", "upper"]].tolist() == [0] * 4
    assert (found.standard_error[[0, 2]] > 0).all()
    planned = plan(schema, path, cost=1, mechanism=mechanism)
    assert planned.queries == 3
    assert planned.rmse == pytest.approx(math.sqrt((found.standard_error**2).mean()), rel=1e-3)


def test_weights_may_differ_by_a_factor_of_1e9_and_no_more(tmp_path):
    shown, other = (["a"], "prefix", 1e-3), (["a"], "marginal", 1e6)
    found = plan({"a": 5}, write(tmp_path, shown, other), cost=1)
    assert found.gap < 1e-4
    with pytest.raises(WorkloadError) as refused:
        plan({"a": 5}, write(tmp_path, (["a"], "prefix", 9e-4), other))
    assert "from 0.0009 to 1e+06, more than a factor of 1e+09 apart" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_whole_table_is_tried_as_far_as_the_work_allows(monkeypatch):
    """Ranges are symmetric: two eigenproblems of half the size, which are a quarter of the work."""
    assert optimal.LARGE_AXIS**3 <= optimal.TRIED_WORK
    monkeypatch.setattr("adaptive_qs.strategy.choose.LARGE_AXIS", 1)
    monkeypatch.setattr(optimal, "TRIED_WORK", 40**3)
    for family, cells, tried in (
        ("prefix", 40, True),
        ("prefix", 41, False),
        ("range", 60, True),
        ("range", 66, False),
    ):
        queries = {"version": 1, "parts": [{"ways": [1], "queries": family}]}
        found = plan({"a": cells}, queries, cost=1)
        assert isinstance(found.mechanism, ResidualMechanism) != tried, (family, cells)
