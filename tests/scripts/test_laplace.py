"""HDMM with Laplace noise, and OPT_M: against explicit matrices, slopes and published errors."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
import pytest
from scipy.optimize import check_grad

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.bounds import gram_bound
from adaptive_qs.strategy.hdmm import axis_error, product_workload, residual_bound, subset_products
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
    optimize_gaussian_marginals,
    optimize_p_identity,
    real_weights,
    residual_traces,
    select,
    subset_sums,
    superset_differences,
    superset_sums,
    weighted_marginals,
)
from tests.strategy.hdmm_helpers import (
    expected_errors,
    marginal_matrix,
    marginals,
    mixed,
    set_gram,
    workload,
)

SETTINGS = SolverSettings()
SUBSETS = list(np.ndindex(2, 2, 2))


def operators():
    return LAPLACE.operators(SETTINGS, np.random.default_rng(0))


def costs(sizes):
    """p_τ = Π (n_i − 1)/n_i."""
    return subset_products([1.0] * len(sizes), [(n - 1) / n for n in sizes])


def explicit(sizes, weights):
    """M(θ): all weighted marginals, stacked."""
    return np.vstack([weights[b] * marginal_matrix(sizes, b) for b in np.ndindex(*weights.shape)])


def test_sums_over_subsets_are_the_plain_ones():
    values = np.random.default_rng(0).normal(size=(2, 2, 2))
    above, below = superset_sums(values), subset_sums(values)
    for t in SUBSETS:
        contains = [b for b in SUBSETS if all(x <= y for x, y in zip(t, b))]
        within = [b for b in SUBSETS if all(x >= y for x, y in zip(t, b))]
        assert above[t] == pytest.approx(sum(values[b] for b in contains))
        assert below[t] == pytest.approx(sum(values[b] for b in within))
    np.testing.assert_allclose(superset_differences(above), values, atol=1e-14)
    assert subset_products([2.0, 3.0], [5.0, 7.0]).tolist() == [[6, 14], [15, 35]]


def projection(sizes, subset):
    """Onto a residual space."""
    pairs = zip(sizes, subset)
    pieces = [np.eye(n) - 1 / n if bit else np.full((n, n), 1 / n) for n, bit in pairs]
    return reduce(np.kron, pieces)


def test_traces_on_residual_spaces_are_those_of_the_projections():
    products = mixed()
    traces = residual_traces(products)
    whole = sum(w * set_gram(products, j) for j, w in enumerate(products.weights))
    for t in SUBSETS:
        assert traces[t] == pytest.approx(np.trace(projection((4, 3, 5), t) @ whole) / 60)


def test_the_residual_form_reaches_the_bound_where_no_weights_are_real():
    products = marginals((3, 4, 5), 2)
    closed = optimal_residuals(products)
    whole = sum(w * set_gram(products, j) for j, w in enumerate(products.weights))
    assert closed.total_error == pytest.approx(gram_bound(whole), rel=1e-9)
    assert closed.total_error == pytest.approx(residual_bound(products), rel=1e-9)
    # The mechanism as a matrix: precision λ_τ n/n_τ on every residual space.
    gram = np.zeros((60, 60))
    for t in SUBSETS:
        n_t = math.prod(n for n, bit in zip((3, 4, 5), t) if bit)
        gram += closed.precisions[t] / n_t * 60 * projection((3, 4, 5), t)
    np.testing.assert_allclose(gram.diagonal(), 1)
    expected = expected_errors(products, np.linalg.pinv(gram, rcond=1e-12))
    np.testing.assert_allclose(closed.set_errors, expected, rtol=1e-8)


def test_many_attributes_are_quick_and_too_many_refused():
    products = marginals((10,) * 14, 3)
    # A residual of degree k lies in C(14−k, 3−k) marginals: u = C · 0.9ᵏ · 0.1³⁻ᵏ, m = 9ᵏ.
    roots = [
        math.comb(14, k) * math.sqrt(math.comb(14 - k, 3 - k) * 0.9**k * 0.1 ** (3 - k) * 9**k)
        for k in range(4)
    ]
    assert optimal_residuals(products).total_error == pytest.approx(sum(roots) ** 2)
    with pytest.raises(ResourceExceeded, match=r"2\^21.*residualplanner"):
        residual_traces(marginals((2,) * 21, 1))


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


def test_precisions_cost_as_much_as_the_weights_they_come_from():
    products = mixed()
    theta = np.random.default_rng(5).random((2, 2, 2))
    found = weighted_marginals(products, theta, GAUSSIAN)
    cost = (costs((4, 3, 5)) * found.precisions).sum()
    assert cost == pytest.approx((found.weights**2).sum()) == pytest.approx(1)


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


def test_the_closed_form_is_the_numerical_optimum_where_it_is_real():
    products = with_total(marginals((3, 4, 5), 1, 2, 3))
    closed = optimal_residuals(products)
    again = weighted_marginals(products, real_weights(closed), GAUSSIAN)
    assert again.total_error == pytest.approx(closed.total_error, rel=1e-9)
    whole = sum(set_gram(products, j) for j in range(len(products)))
    assert closed.total_error == pytest.approx(gram_bound(whole), rel=1e-9)
    assert optimize_gaussian_marginals(products).total_error == closed.total_error


def test_weights_that_are_not_real_cost_more_than_residuals():
    products = marginals((3, 4, 5), 2)
    closed = optimal_residuals(products)
    assert real_weights(closed) is None
    weights = optimize_gaussian_marginals(products)
    assert closed.total_error < weights.total_error < 1.05 * closed.total_error


def test_theorem_13_by_its_own_formula():
    sizes = (3, 4, 5)
    products = with_total(marginals(sizes, 1, 2, 3))
    asked = np.ones((2, 2, 2))
    c = subset_products([float(n) for n in sizes], [1.0] * 3)  # n / n_b
    kappa = superset_sums(asked * c)
    squared = superset_differences(np.sqrt(kappa)) / c
    theta = np.sqrt(squared / squared.sum())
    np.testing.assert_allclose(real_weights(optimal_residuals(products)), theta, rtol=1e-9)


def test_the_gaussian_search_is_not_beaten_by_other_weights():
    products = mixed()
    products = products.subset([0, 1])
    found = optimize_gaussian_marginals(products)
    rng = np.random.default_rng(1)
    for _ in range(200):
        other = np.exp(rng.normal(0, 2, (2, 2, 2)))
        trial = weighted_marginals(products, other, GAUSSIAN)
        assert trial.total_error >= found.total_error * (1 - 1e-6)


def test_example_15_with_laplace_noise():
    products = marginals((2, 5, 50, 100), 2)
    found = laplace.optimize_marginals(products, np.random.default_rng(0))
    assert found.total_error <= 62_886 * (1 + 1e-4)
    assert found.weights.sum() == pytest.approx(1)


def test_the_same_seed_gives_the_same_strategy():
    first, second = (select(mixed(), LAPLACE, seed=4) for _ in range(2))
    assert first.strategy.total_error == second.strategy.total_error
    np.testing.assert_array_equal(first.strategy.set_errors, second.strategy.set_errors)


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


def test_laplace_noise_with_identity_and_total_needs_one_row_of_equal_weights():
    gram = np.eye(20) + 1
    found = operators().axis(gram, SETTINGS)

    def error(theta):
        a = np.vstack([np.eye(20), np.full((1, 20), theta)]) / (1 + theta)
        return np.trace(gram @ np.linalg.inv(a.T @ a))

    best = min(error(theta) for theta in np.linspace(0, 3, 301))
    assert axis_error(found, gram) <= best * (1 + 1e-6)


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


@pytest.mark.parametrize(("rows", "cells"), [(1, 4), (3, 8)])
def test_the_gradient_of_p_identity_is_the_slope_of_its_error(rows, cells):
    gram = Prefix(cells).gram()

    def error(flat):
        return error_and_gradient(flat.reshape(rows, cells), gram)[0]

    def gradient(flat):
        return error_and_gradient(flat.reshape(rows, cells), gram)[1].ravel()

    point = np.random.default_rng(0).random(rows * cells)
    # Forward differences of step h err by about h |f''| / 2 per entry; h = 1.5e-8, f'' < 1e3.
    assert check_grad(error, gradient, point) < 1e-3
    assert np.abs(gradient(point)).max() > 0.1


@pytest.mark.parametrize(
    ("queries", "published"), [(Range(64), 5.55), (Prefix(64), 5.32)], ids=["range", "prefix"]
)
def test_published_errors_are_reached_from_any_seed(queries, published):
    rows = default_rows(queries.size)
    found = optimize_p_identity(queries.gram(), rows, np.random.default_rng(3), restarts=2)
    error = LAPLACE.unit_variance * np.vdot(queries.gram(), found.covariance)
    assert math.sqrt(error / queries.num_queries) < 1.01 * published
    assert (found.weights >= 0).all()


def test_a_search_from_a_good_start_does_not_end_above_it():
    gram = Range(20).gram()
    good = optimize_p_identity(gram, 2, np.random.default_rng(0), restarts=3)
    poor = optimize_p_identity(gram, 2, np.random.default_rng(1), 1, 1, start=good.weights)
    assert np.vdot(gram, poor.covariance) <= np.vdot(gram, good.covariance) * (1 + 1e-12)


def test_a_coarse_start_saves_iterations(monkeypatch):
    monkeypatch.setattr(laplace, "COARSE_FROM", 400)
    gram, rows = Prefix(403).gram(), default_rows(403)
    coarse, _ = laplace.first_weights(gram, rows, np.random.default_rng(0), 300)
    plain = laplace.windows(rows, 403, np.random.default_rng(0))
    assert coarse.shape == plain.shape
    assert coarse.min() >= 0
    errors = [
        np.vdot(gram, optimize_p_identity(gram, rows, None, 0, 20, start).covariance)
        for start in (coarse, plain)
    ]
    assert errors[0] < 0.95 * errors[1]


def test_more_rows_than_cells_and_a_single_cell_work():
    found = optimize_p_identity(np.array([[3.0]]), 2, np.random.default_rng(0))
    # One cell: everything measures it; A has L1 norm 1 and L2 norm ≤ 1, best where one row has all.
    assert 1 <= found.covariance[0, 0] < 1.01
