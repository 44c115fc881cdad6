"""OPT_0 on one attribute, for either noise."""

import numpy as np
import pytest

from adaptive_qs.strategy.certified.dense import solve_dense
from adaptive_qs.strategy.hdmm.axis import exchangeable, optimize_axis, total_strategy
from adaptive_qs.strategy.hdmm.lower_bound import svd_bound
from adaptive_qs.strategy.hdmm.noise import Noise
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.workload.axis_queries import Circular, Marginal, Prefix, Range

SETTINGS = SolverSettings(gap=1e-6)


def solve(gram, noise):
    return optimize_axis(gram, noise, SETTINGS, np.random.default_rng(0), restarts=2)


@pytest.mark.parametrize("noise", Noise)
@pytest.mark.parametrize("queries", [Marginal(6), Prefix(6), Range(6), Circular(6)], ids=repr)
def test_a_strategy_has_sensitivity_one_and_its_covariance(queries, noise):
    gram = queries.gram()
    found = solve(gram, noise)
    a = found.matrix
    assert noise.sensitivity(a) == pytest.approx(1, rel=1e-9)
    np.testing.assert_allclose(found.covariance, np.linalg.pinv(a.T @ a), rtol=1e-6, atol=1e-9)
    assert svd_bound(gram) <= found.error(gram) * (1 + 1e-9)
    assert found.error(gram) <= np.trace(gram) * (1 + 1e-9)  # identity


@pytest.mark.parametrize(("a", "b"), [(1.0, 0.0), (2.0, 3.0), (1.0, -0.2), (1.0, 1e6)])
def test_identity_and_total_queries_have_the_certified_optimum_in_closed_form(a, b):
    gram = a * np.eye(5) + b
    found = solve(gram, Noise.GAUSSIAN)
    certified = solve_dense(gram, (5,), SETTINGS)
    assert exchangeable(gram) == pytest.approx((a, b))
    assert found.error(gram) == pytest.approx(certified.objective, rel=1e-5)
    assert found.error(gram) == pytest.approx(svd_bound(gram), rel=1e-9)


@pytest.mark.parametrize("noise", Noise)
def test_the_total_alone_is_measured_alone(noise):
    found = solve(np.full((7, 7), 3.0), noise)
    np.testing.assert_array_equal(found.matrix, np.ones((1, 7)))
    assert found.error(np.ones((7, 7))) == pytest.approx(1)


def test_other_queries_are_not_exchangeable():
    assert exchangeable(Prefix(3).gram()) is None
    assert exchangeable(np.diag([1.0, 1.0, 1.001])) is None
    assert exchangeable(np.array([[4.0]])) is not None


def test_laplace_noise_with_identity_and_total_needs_one_row_of_equal_weights():
    gram = np.eye(20) + 1
    found = solve(gram, Noise.LAPLACE)

    def error(theta):
        a = np.vstack([np.eye(20), np.full((1, 20), theta)]) / (1 + theta)
        return np.trace(gram @ np.linalg.inv(a.T @ a))

    best = min(error(theta) for theta in np.linspace(0, 3, 301))
    assert found.error(gram) <= best * (1 + 1e-6)


def test_a_gaussian_factor_is_the_same_matrix():
    found = solve(Range(6).gram(), Noise.GAUSSIAN)
    np.testing.assert_allclose(found.factor.matrix, found.matrix, rtol=1e-9)
    np.testing.assert_allclose(found.factor.covariance, found.covariance, rtol=1e-9)
    total = total_strategy(4).factor
    np.testing.assert_allclose(total.inverse, np.full((4, 1), 0.25))
