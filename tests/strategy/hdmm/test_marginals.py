"""OPT_M, its closed form and its bound against explicit matrices."""

import math
from functools import reduce

import numpy as np
import pytest
from scipy.optimize import check_grad

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.hdmm.lower_bound import residual_bound, svd_bound
from adaptive_qs.strategy.hdmm.marginals import (
    optimal_residuals,
    residual_traces,
    weighted_marginals,
)
from adaptive_qs.strategy.hdmm.noise import Noise
from adaptive_qs.strategy.hdmm.opt_m import log_error_and_gradient, optimize_marginals
from adaptive_qs.strategy.hdmm.products import with_total
from adaptive_qs.strategy.hdmm.subsets import (
    subset_products,
    subset_sums,
    superset_differences,
    superset_sums,
)

from .helpers import expected_errors, marginal_matrix, marginals, mixed, set_gram

SUBSETS = list(np.ndindex(2, 2, 2))


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


def test_traces_on_residual_spaces_are_those_of_the_projections():
    products = mixed()
    traces = residual_traces(products)
    whole = sum(w * set_gram(products, j) for j, w in enumerate(products.weights))
    for t in SUBSETS:
        projections = [
            np.eye(n) - 1 / n if bit else np.full((n, n), 1 / n) for n, bit in zip((4, 3, 5), t)
        ]
        assert traces[t] == pytest.approx(np.trace(reduce(np.kron, projections) @ whole) / 60)


@pytest.mark.parametrize("noise", Noise)
def test_weighted_marginals_have_the_errors_of_their_explicit_matrix(noise):
    products = mixed()
    theta = np.random.default_rng(2).random((2, 2, 2))
    found = weighted_marginals(products, theta, noise)
    a = explicit((4, 3, 5), found.weights)
    assert noise.sensitivity(a) == pytest.approx(1)
    expected = noise.unit_variance * np.array(expected_errors(products, np.linalg.inv(a.T @ a)))
    np.testing.assert_allclose(found.set_errors, expected, rtol=1e-9)
    assert found.total_error == pytest.approx(products.weights @ expected)


def test_precisions_cost_as_much_as_the_weights_they_come_from():
    products = mixed()
    theta = np.random.default_rng(5).random((2, 2, 2))
    found = weighted_marginals(products, theta, Noise.GAUSSIAN)
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
    assert closed.weights is not None
    again = weighted_marginals(products, closed.weights, Noise.GAUSSIAN)
    assert again.total_error == pytest.approx(closed.total_error, rel=1e-9)
    whole = sum(set_gram(products, j) for j in range(len(products)))
    assert closed.total_error == pytest.approx(svd_bound(whole), rel=1e-9)
    assert optimize_marginals(products, Noise.GAUSSIAN, np.random.default_rng(0)).total_error == (
        closed.total_error
    )


def test_the_residual_form_reaches_the_bound_where_no_weights_are_real():
    products = marginals((3, 4, 5), 2)
    closed = optimal_residuals(products)
    assert closed.weights is None
    whole = sum(set_gram(products, j) for j in range(len(products)))
    assert closed.total_error == pytest.approx(svd_bound(whole), rel=1e-9)
    assert closed.total_error == pytest.approx(residual_bound(products), rel=1e-9)
    # The mechanism as a matrix: precision λ_τ n/n_τ on every residual space.
    gram = np.zeros((60, 60))
    for t in SUBSETS:
        pieces = [
            np.eye(n) - 1 / n if bit else np.full((n, n), 1 / n) for n, bit in zip((3, 4, 5), t)
        ]
        n_t = math.prod(n for n, bit in zip((3, 4, 5), t) if bit)
        gram += closed.precisions[t] / n_t * 60 * reduce(np.kron, pieces)
    np.testing.assert_allclose(gram.diagonal(), 1)
    expected = expected_errors(products, np.linalg.pinv(gram, rcond=1e-12))
    np.testing.assert_allclose(closed.set_errors, expected, rtol=1e-8)
    weights = optimize_marginals(products, Noise.GAUSSIAN, np.random.default_rng(0))
    assert closed.total_error < weights.total_error < 1.05 * closed.total_error


def test_theorem_13_by_its_own_formula():
    sizes = (3, 4, 5)
    products = with_total(marginals(sizes, 1, 2, 3))
    asked = np.ones((2, 2, 2))
    c = subset_products([float(n) for n in sizes], [1.0] * 3)  # n / n_b
    kappa = superset_sums(asked * c)
    squared = superset_differences(np.sqrt(kappa)) / c
    theta = np.sqrt(squared / squared.sum())
    np.testing.assert_allclose(optimal_residuals(products).weights, theta, rtol=1e-9)


def test_the_gaussian_search_is_not_beaten_by_other_weights():
    products = mixed()
    products = products.subset([0, 1])
    found = optimize_marginals(products, Noise.GAUSSIAN, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    for _ in range(200):
        other = np.exp(rng.normal(0, 2, (2, 2, 2)))
        trial = weighted_marginals(products, other, Noise.GAUSSIAN)
        assert trial.total_error >= found.total_error * (1 - 1e-6)


def test_example_15_with_laplace_noise():
    products = marginals((2, 5, 50, 100), 2)
    found = optimize_marginals(products, Noise.LAPLACE, np.random.default_rng(0))
    assert found.total_error / Noise.LAPLACE.unit_variance <= 62_886 * (1 + 1e-4)
    assert found.weights.sum() == pytest.approx(1)


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
