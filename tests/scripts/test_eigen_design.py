"""The script's workloads against explicit queries, and a whole run on few cells."""

import csv
import json
from unittest import mock

import cvxpy as cp
import numpy as np
import pytest

from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.strategy.solution import SolverSettings, Status
from adaptive_qs.workload.axes import Marginal, Prefix, Range
from adaptive_qs.workload.residuals import Subworkload, Term
from scripts.published import eigen_design
from scripts.published.eigen_design import (
    COLUMNS,
    main,
    marginals,
    random_ranges,
    range_marginals,
    shuffled,
)
from scripts.published.eigen_solver import best_weights, solve_eigen
from scripts.published.eigen_speedups import Principal, Separation, solve_eigen_dense
from tests.strategy.problems import ALL, PRODUCTS, axis, dense_error, numbers, product

MARGINALS = [
    *(lambda x, v=v: x[0] == v for v in range(3)),
    *(lambda x, a=a, b=b: x[1:] == (a, b) for a in range(2) for b in range(2)),
]
RANGES = [
    lambda x, k=k, a=a, b=b: a <= x[k] <= b
    for k, n in enumerate((3, 4))
    for a in range(n)
    for b in range(a, n)
]


@pytest.mark.parametrize(
    ("shape", "gram", "wanted"),
    [
        ((3, 2, 2), marginals((3, 2, 2), [(0,), (1, 2)]), MARGINALS),
        ((3, 4), range_marginals((3, 4), [(0,), (1,)]), RANGES),
    ],
)
def test_grams_are_those_of_the_queries(shape, gram, wanted):
    """Marginals count each combination of values; ranges sum over the other attributes."""
    rows = np.array([[float(query(cell)) for cell in np.ndindex(*shape)] for query in wanted])
    np.testing.assert_array_equal(gram, rows.T @ rows)


def test_random_ranges_are_boxes():
    """Every range of an attribute is drawn alike: cell counts within five standard errors."""
    gram = random_ranges((4, 3))
    probability = np.kron(
        np.diag(Range(4).gram()) / Range(4).num_queries,
        np.diag(Range(3).gram()) / Range(3).num_queries,
    )
    error = np.sqrt(1000 * probability * (1 - probability))
    assert (np.abs(np.diag(gram) - 1000 * probability) < 5 * error).all()


def test_shuffling_keeps_the_spectrum():
    gram = Range(9).gram()
    assert not np.array_equal(shuffled(gram), gram)
    np.testing.assert_allclose(np.linalg.eigvalsh(shuffled(gram)), np.linalg.eigvalsh(gram))


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


def random_gram(rows, cells):
    matrix = np.random.default_rng(0).normal(size=(rows, cells))
    return matrix.T @ matrix


@pytest.mark.parametrize(
    "speedup", [Separation(100), Separation(1), Principal(1.0), Principal(0.97)], ids=str
)
def test_speedups_that_leave_nothing_out_are_exact(speedup):
    gram = random_gram(30, 20)
    exact = solve_eigen_dense(gram, (20,), FINE).objective
    fast = solve_eigen_dense(gram, (20,), FINE, speedup).objective
    assert fast == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("speedup", [Separation(4), Separation(16), Principal(0.2)], ids=str)
def test_speedups_cost_a_little(speedup):
    gram = Range(64).gram()
    exact = solve_eigen_dense(gram, (64,), FINE).objective
    fast = solve_eigen_dense(gram, (64,), FINE, speedup).objective
    assert exact < fast < 1.2 * exact


@pytest.mark.parametrize(
    ("make", "value"), [(Separation, 0), (Principal, 0.0), (Principal, 1.5), (Principal, np.nan)]
)
def test_speedups_out_of_range_are_refused(make, value):
    with pytest.raises(InputError, match="was asked for"):
        make(value)


def test_principal_vectors_of_a_low_rank_are_all_of_it():
    gram = random_gram(3, 20)
    exact = solve_eigen_dense(gram, (20,), FINE).objective
    assert solve_eigen_dense(gram, (20,), FINE, Principal(0.15)).objective == exact
    assert solve_eigen_dense(gram, (20,), FINE, Principal(0.05)).objective > exact


# Designs against CVXPY, their certificate and the product rule.

GAP = 1e-4


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


def test_a_limit_on_steps_leaves_an_honest_gap():
    costs = numbers(8, 20) ** 2
    rough = best_weights(costs, np.arange(1.0, 9.0), SolverSettings(gap=0.0, max_iterations=3))
    fine = best_weights(costs, np.arange(1.0, 9.0), FINE)
    assert rough.iterations == 3
    assert rough.lower_bound < fine.objective < rough.objective


def test_a_product_is_designed_axis_by_axis():
    factored = solve_eigen(PRODUCTS["range x prefix"], FINE)
    dense = solve_eigen_dense(PRODUCTS["range x prefix"].gram(), (4, 3), FINE)
    assert [factor.shape for factor in factored.strategy.factors] == [(4,), (3,)]
    assert factored.objective == pytest.approx(dense.objective, rel=1e-5)
    assert factored.lower_bound == pytest.approx(dense.lower_bound, rel=1e-9)


def test_the_order_of_the_cells_does_not_matter():
    """Li and Miklau, proposition 5."""
    gram = random_gram(12, 7)
    order = np.random.default_rng(1).permutation(7)
    plain = solve_eigen_dense(gram, (7,), FINE).objective
    assert solve_eigen_dense(gram[np.ix_(order, order)], (7,), FINE).objective == pytest.approx(
        plain, rel=1e-4
    )


def test_spare_columns_are_completed_where_the_rank_is_full():
    gram = Prefix(16).gram()
    solution = solve_eigen_dense(gram, (16,), FINE)
    (factor,) = solution.strategy.factors
    np.testing.assert_allclose((factor.matrix**2).sum(axis=0), 1, rtol=1e-9)
    v = factor.matrix.T @ factor.matrix
    assert solution.objective == pytest.approx(np.trace(gram @ np.linalg.inv(v)), rel=1e-9)
    values, vectors = np.linalg.eigh(gram)
    assert solution.objective < 0.95 * best_weights(vectors.T**2, values, FINE).objective


def test_residual_strategies_stay_in_their_space():
    (factor,) = solve_eigen(product(axis(Prefix, 9))).strategy.factors
    np.testing.assert_allclose(factor.matrix.sum(axis=1), 0, atol=1e-12)


@pytest.mark.parametrize("sizes", [(6,), (3, 5)])
def test_marginals_match_the_lower_bound(sizes):
    solution = solve_eigen(product(*(axis(Marginal, n) for n in sizes)))
    assert solution.status is Status.OPTIMAL
    assert solution.gap <= GAP


def test_degenerate_eigenvectors_do_not_spoil_two_way_marginals():
    """Li and Miklau: the error of marginals matches the bound. Each eigenspace has dimension 9."""
    part = np.kron(np.eye(4), np.eye(4)), np.kron(np.eye(4), np.ones((4, 4)))
    solution = solve_eigen_dense(sum(part), (4, 4))
    assert solution.status is Status.OPTIMAL
    assert solution.gap <= GAP


def test_a_dense_design_over_the_memory_limit_is_refused():
    settings = SolverSettings(max_bytes=5_000)
    with pytest.raises(ResourceExceeded, match=r"4 x 3 cells .* wff") as caught:
        solve_eigen(ALL["two products"], settings)
    assert caught.value.exit_code == 4
    assert solve_eigen(ALL["few rows"], settings).objective > 0


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


def test_the_total_has_nothing_to_design():
    solution = solve_eigen(Subworkload((), (Term(2.0, ()), Term(0.5, ()))))
    assert solution.objective == pytest.approx(2.5)
    assert solution.strategy.factors == ()
