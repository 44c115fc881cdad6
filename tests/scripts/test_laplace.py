"""HDMM with Laplace noise, and OPT_M: against explicit matrices, slopes and published errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import check_grad

from adaptive_qs.strategy.hdmm import product_workload, subset_products
from adaptive_qs.strategy.solution import SolverSettings
from adaptive_qs.workload.axes import Prefix, Range
from scripts.published import laplace
from scripts.published.hdmm_tables import with_total
from scripts.published.laplace import (
    GAUSSIAN,
    LAPLACE,
    PIdentity,
    default_rows,
    error_and_gradient,
    log_error_and_gradient,
    optimal_residuals,
    optimize_p_identity,
    real_weights,
    residual_traces,
    superset_differences,
    superset_sums,
    weighted_marginals,
)
from tests.strategy.hdmm_helpers import (
    expected_errors,
    marginal_matrix,
    marginals,
    mixed,
    workload,
)

SETTINGS = SolverSettings()


def operators():
    return LAPLACE.operators(SETTINGS, np.random.default_rng(0))


def explicit(sizes, weights):
    """M(θ): all weighted marginals, stacked."""
    return np.vstack([weights[b] * marginal_matrix(sizes, b) for b in np.ndindex(*weights.shape)])


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE])
def test_weighted_marginals_have_the_errors_of_their_explicit_matrix(noise):
    products = mixed()
    theta = np.random.default_rng(2).random((2, 2, 2))
    found = weighted_marginals(products, theta, noise)
    a = explicit((4, 3, 5), found.weights)
    assert noise.sensitivity(a) == pytest.approx(1)
    expected = np.array(expected_errors(products, np.linalg.inv(a.T @ a)))
    np.testing.assert_allclose(found.set_errors, expected, rtol=1e-9)
    assert found.total_error == pytest.approx(products.weights @ expected)


@pytest.mark.parametrize("order", [1.0, 1.5, 2.0])
def test_the_gradient_is_the_slope_of_the_log_error(order):
    traces = residual_traces(mixed())
    cells = subset_products([1.0] * 3, [4.0, 3.0, 5.0])

    def value(x):
        return log_error_and_gradient(x.reshape(2, 2, 2), traces, cells, order)[0]

    def slope(x):
        return log_error_and_gradient(x.reshape(2, 2, 2), traces, cells, order)[1].ravel()

    point = np.random.default_rng(3).normal(size=8)
    # Forward differences with h = 1.5e-8: rounding 1e-15/h and curvature h/2, on values near 1.
    assert check_grad(value, slope, point) < 1e-5
    assert np.abs(slope(point)).max() > 0.01


def test_theorem_13_by_its_own_formula():
    sizes = (3, 4, 5)
    products = with_total(marginals(sizes, 1, 2, 3))
    asked = np.ones((2, 2, 2))
    c = subset_products([float(n) for n in sizes], [1.0] * 3)  # n / n_b
    kappa = superset_sums(asked * c)
    squared = superset_differences(np.sqrt(kappa)) / c
    theta = np.sqrt(squared / squared.sum())
    np.testing.assert_allclose(real_weights(optimal_residuals(products)), theta, rtol=1e-9)


def test_example_15_with_laplace_noise():
    products = marginals((2, 5, 50, 100), 2)
    found = laplace.optimize_marginals(products, np.random.default_rng(0))
    assert found.total_error <= 62_886 * (1 + 1e-4)
    assert found.weights.sum() == pytest.approx(1)


def test_example_13():
    parts = [([(0,), (1,)], {0: Prefix, 1: Prefix}, None)]
    products = product_workload(workload((100, 100), parts))
    whole = operators().product(products)
    apart = operators().union(products, tuple((j,) for j in range(len(products))))
    assert whole.total_error <= 33_385 * 1.01
    assert apart.total_error <= 14_252 * 1.01


def test_example_15():
    products = marginals((2, 5, 50, 100), 2)
    whole = operators().product(products)
    apart = operators().union(products, tuple((j,) for j in range(len(products))))
    grouped = operators().union(products)
    assert whole.total_error <= 213_270
    assert apart.total_error == pytest.approx(85_070, rel=1e-4)
    assert grouped.total_error < apart.total_error


# OPT_0 for Laplace noise against dense inverses, finite differences and published errors.


@pytest.mark.parametrize(("rows", "cells"), [(1, 1), (1, 6), (3, 6), (7, 5)])
def test_the_woodbury_error_is_the_trace_of_the_dense_inverse(rows, cells):
    rng = np.random.default_rng(rows)
    strategy = PIdentity(rng.random((rows, cells)) * rng.integers(0, 2, (rows, cells)))
    queries = rng.normal(size=(9, cells))
    a = strategy.matrix
    inverse = np.linalg.inv(a.T @ a)
    assert a.shape == (cells + rows, cells)
    np.testing.assert_allclose(np.abs(a).sum(axis=0), 1, rtol=1e-14)
    np.testing.assert_allclose(strategy.covariance, inverse, rtol=1e-9, atol=1e-9)
    error, _ = error_and_gradient(strategy.weights, queries.T @ queries)
    assert error == pytest.approx(np.trace(queries.T @ queries @ inverse), rel=1e-12)


@pytest.mark.parametrize(
    ("queries", "published"), [(Range(64), 5.55), (Prefix(64), 5.32)], ids=["range", "prefix"]
)
def test_published_errors_are_reached_from_any_seed(queries, published):
    rows = default_rows(queries.size)
    found = optimize_p_identity(queries.gram(), rows, np.random.default_rng(3), restarts=2)
    error = LAPLACE.unit_variance * np.vdot(queries.gram(), found.covariance)
    assert math.sqrt(error / queries.num_queries) < 1.01 * published
    assert (found.weights >= 0).all()
