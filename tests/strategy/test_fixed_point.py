"""The conic reference: sums against the certified solver, maxima against another formulation."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.fixed_point import solve_dense
from adaptive_qs.strategy.solution import SolverSettings, Status

from .conic import solve_conic, solve_max_variance
from .oracles import PROBLEMS, centered, prefix, ranges

SETTINGS = SolverSettings()


@pytest.mark.parametrize("name", ["random", "prefix", "affine and prefix", "unequal weights"])
def test_sum_of_variances_agrees_with_the_certified_optimum(name):
    rows, shape = PROBLEMS[name]
    gram = rows.T @ rows
    conic, certified = solve_conic(gram, shape, SETTINGS), solve_dense(gram, shape, SETTINGS)
    assert conic.objective == pytest.approx(certified.objective, rel=1e-3)
    assert conic.lower_bound <= certified.objective
    assert certified.lower_bound <= conic.objective


def minimax(rows, weights):
    """min t with w_q q V⁻¹ qᵀ ≤ t, one cone for each query."""
    v, t = cp.Variable((rows.shape[1],) * 2, PSD=True), cp.Variable()
    errors = [w * cp.matrix_frac(q, v) <= t for q, w in zip(rows, weights)]
    problem = cp.Problem(cp.Minimize(t), [*errors, cp.diag(v) <= 1])
    problem.solve(solver=cp.CLARABEL)
    return float(problem.value)


@pytest.mark.parametrize("seed", range(3))
def test_max_variance_of_random_queries(seed):
    rng = np.random.default_rng(seed)
    rows, weights = rng.normal(size=(9, 5)), rng.uniform(0.2, 3, 9)
    solution = solve_max_variance(rows, weights, (5,), SETTINGS)
    matrix = solution.strategy.factors[0].matrix
    variances = weights * ((rows @ np.linalg.pinv(matrix)) ** 2).sum(axis=1)
    assert (matrix**2).sum(axis=0).max() == pytest.approx(1, abs=1e-12)
    assert solution.objective == pytest.approx(variances.max(), rel=1e-9)
    assert solution.status == Status.OPTIMAL
    # Clarabel's own stopping rule on either side.
    assert solution.objective == pytest.approx(minimax(rows, weights), rel=1e-4)
    assert solution.lower_bound <= minimax(rows, weights) * (1 + 1e-6)


def test_max_variance_in_a_residual_space():
    """Where the largest error counts, it is below the largest of the least total error."""
    rows = centered(ranges(6), 6)
    rows = rows[np.abs(rows).max(axis=1) > 1e-9]
    worst = solve_max_variance(rows, np.ones(len(rows)), (6,), SETTINGS)
    total = solve_dense(rows.T @ rows, (6,), SETTINGS)
    covariance = total.strategy.factors[0].covariance
    assert worst.gap <= SETTINGS.gap
    assert worst.lower_bound < np.einsum("qi,ij,qj->q", rows, covariance, rows).max()
    # The largest of some numbers is at least their mean.
    assert worst.objective >= total.lower_bound / len(rows)
    np.testing.assert_allclose(worst.strategy.factors[0].matrix.sum(axis=1), 0, atol=1e-9)


def test_one_query_is_measured_alone():
    # B = q/max|q|: its variance is max|q|².
    solution = solve_max_variance(np.array([[1.0, -2.0, 0.5]]), np.ones(1), (3,), SETTINGS)
    assert solution.objective == pytest.approx(4, rel=1e-6)


def test_large_problems_are_refused():
    gram = prefix(61).T @ prefix(61)
    with pytest.raises(ResourceExceeded, match="61"):
        solve_conic(gram, (61,), SETTINGS)


def test_a_matrix_of_another_shape():
    with pytest.raises(ValueError, match="over shape"):
        solve_conic(np.eye(3), (4,), SETTINGS)
