"""HDMM with Laplace noise, and OPT_M: against explicit matrices, slopes and published errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from adaptive_qs.strategy.hdmm import product_workload
from adaptive_qs.strategy.solution import SolverSettings
from adaptive_qs.workload.axes import Prefix, Range
from scripts.published.laplace import (
    GAUSSIAN,
    LAPLACE,
    default_rows,
    optimize_p_identity,
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
    assert grouped.total_error <= apart.total_error


@pytest.mark.parametrize(
    ("queries", "published"), [(Range(64), 5.55), (Prefix(64), 5.32)], ids=["range", "prefix"]
)
def test_published_errors_are_reached_from_any_seed(queries, published):
    rows = default_rows(queries.size)
    found = optimize_p_identity(queries.gram(), rows, np.random.default_rng(3), restarts=2)
    error = LAPLACE.unit_variance * np.vdot(queries.gram(), found.covariance)
    assert math.sqrt(error / queries.num_queries) < 1.01 * published
    assert (found.weights >= 0).all()
