"""The script's workloads against explicit queries, and a whole run on few cells."""

import csv
import json
from unittest import mock

import cvxpy as cp
import numpy as np
import pytest

from adaptive_qs.strategy.solution import SolverSettings
from scripts.published import eigen_design
from scripts.published.eigen_design import (
    COLUMNS,
    main,
)
from scripts.published.eigen_solver import best_weights, solve_eigen
from scripts.published.eigen_speedups import Principal, Separation
from tests.strategy.problems import ALL, dense_error


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """In this process, which knows its memory as well: a fork for each row takes longer than it."""
    folder = tmp_path_factory.mktemp("results")
    with mock.patch.object(eigen_design, "apart", lambda measured, row, start: measured(row)):
        main(quick=True, folder=folder)
    document = json.loads((folder / "eigen_design.json").read_text())
    assert document["config"]["cells"] == 32
    return list(csv.DictReader((folder / "eigen_design.csv").open(newline="")))


def test_every_row_lies_between_the_bound_and_the_design(rows):
    assert len(rows) > 40
    for row in rows:
        assert tuple(row) == COLUMNS
        bound, certified = float(row["lower_bound"]), float(row["certified"])
        # The certified optimum is known to a relative gap of 1e-3, the design to 1e-4.
        assert bound <= certified * (1 + 1e-9)
        assert certified <= float(row["objective"]) * (1 + 1e-3)
        assert float(row["ours"]) == pytest.approx((bound / float(row["objective"])) ** 0.5)
        assert float(row["peak_memory_mb"]) > 10


def test_the_paper_is_right_about_ranges_and_marginals(rows):
    by_name = {}
    for row in rows:
        if row["published"]:
            by_name.setdefault(row["experiment"], []).append(float(row["ours"]))
    assert min(by_name["all range"]) > 1 / 1.3
    assert min(by_name["2-way marginal"] + by_name["random marginal"]) > 1 - 1e-4
    assert {name for name in by_name if "range marginal" in name} == {
        f"{k}-way range marginal" for k in (1, 2)
    }
    assert by_name["1D range (permuted)"][0] == pytest.approx(by_name["all range"][0], rel=1e-4)


def test_speedups_lose_little_against_all_eigenvectors(rows):
    for name in ("all range", "all marginal"):
        notes = {r["note"]: float(r["ours"]) for r in rows if r["experiment"] == name}
        exact = notes["every eigenvector"]
        assert exact * (1 + 1e-4) > notes["Separation(group_size=8)"] > 0.95 * exact
        assert exact * (1 + 1e-4) > notes["Principal(share=0.25)"] > 0.95 * exact


# Speed-ups of the eigen-design.

FINE = SolverSettings(gap=1e-6, max_iterations=20_000)


# Designs against CVXPY, their certificate and the product rule.


def clarabel(costs, importance):
    """Program 1: minimise Σ importance/u subject to costsᵀu ≤ 1."""
    u = cp.Variable(len(importance), pos=True)
    problem = cp.Problem(cp.Minimize(importance @ cp.inv_pos(u)), [costs.T @ u <= 1])
    problem.solve(solver=cp.CLARABEL)
    return problem.value


@pytest.mark.parametrize("seed", range(6))
def test_weights_equal_clarabel(seed):
    rng = np.random.default_rng(seed)
    designs, cells = rng.integers(1, 12, 2)
    costs = rng.random((designs, cells)) ** 3
    importance = np.exp(rng.normal(scale=2, size=designs))
    best = best_weights(costs, importance, FINE)
    optimum = clarabel(costs, importance)
    # Clarabel stops at a relative gap of 1e-8.
    assert best.lower_bound <= optimum * (1 + 1e-7)
    assert optimum <= best.objective * (1 + 1e-7)
    assert best.objective <= best.lower_bound * (1 + FINE.gap)
    assert (importance / best.weights).sum() == pytest.approx(best.objective, rel=1e-12)
    assert (costs.T @ best.weights).max() == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "weigh", [best_weights, Separation(2), Principal(0.4)], ids=["all", "separation", "principal"]
)
def test_a_design_reports_the_error_of_its_rows(weigh, name):
    solution = solve_eigen(ALL[name], weigh=weigh)
    assert solution.strategy.shape == ALL[name].shape
    assert solution.objective == pytest.approx(dense_error(ALL[name], solution.strategy), rel=1e-8)
    assert solution.objective >= solution.lower_bound
    for factor in solution.strategy.factors:
        assert (factor.matrix**2).sum(axis=0).max() == pytest.approx(1)
