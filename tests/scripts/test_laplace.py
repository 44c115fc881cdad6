"""HDMM's operators with either noise, and OPT_M: against explicit matrices and published errors."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
import pytest

from adaptive_qs.strategy.bounds import gram_bound
from adaptive_qs.strategy.fixed_point import exchangeable, solve_dense
from adaptive_qs.strategy.hdmm import axis_error, product_workload
from adaptive_qs.strategy.solution import SolverSettings
from adaptive_qs.workload.axes import Prefix, Range
from scripts.published.laplace import (
    GAUSSIAN,
    LAPLACE,
    default_rows,
    optimize_p_identity,
    select,
    weighted_marginals,
)
from scripts.published.subset_bounds import lower_bound

from .hdmm_helpers import (
    expected_errors,
    marginal_matrix,
    marginals,
    mixed,
    set_gram,
    workload,
)

SETTINGS = SolverSettings()


both = pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE], ids=lambda noise: noise.name)


def operators(noise=LAPLACE, gap=1e-4, seed=0):
    return noise.operators(SolverSettings(gap=gap), np.random.default_rng(seed))


def whole_gram(products):
    return sum(w * set_gram(products, j) for j, w in enumerate(products.weights))


def kron(factors):
    return reduce(np.kron, [factor.matrix for factor in factors])


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


@pytest.mark.parametrize(("a", "b"), [(1.0, 0.0), (2.0, 3.0), (1.0, -0.2), (1.0, 1e6)])
def test_identity_and_total_queries_have_the_certified_optimum_in_closed_form(a, b):
    gram = a * np.eye(5) + b
    found = operators(GAUSSIAN, 1e-6).axis(gram, SolverSettings(gap=1e-6))
    certified = solve_dense(gram, (5,), SolverSettings(gap=1e-6))
    assert exchangeable(gram) == pytest.approx((a, b))
    assert axis_error(found, gram) == pytest.approx(certified.objective, rel=1e-5)
    assert axis_error(found, gram) == pytest.approx(gram_bound(gram), rel=1e-9)


# The closed form of marginals, and bounds.


def one_product():
    return product_workload(workload((6, 5), [([(0, 1)], {0: Prefix, 1: Range}, [2.0])]))


@both
@pytest.mark.parametrize("products", [mixed(), marginals((3, 4, 5), 2), one_product()])
def test_the_best_candidate_is_chosen_and_lies_above_the_bound(products, noise):
    found = select(products, noise)
    errors = {name: s.total_error for name, s in found.candidates.items()}
    assert found.strategy.total_error == min(errors.values())
    assert found.lower_bound <= found.strategy.total_error * (1 + 1e-9)
    assert found.lower_bound == pytest.approx(lower_bound(products, SETTINGS))  # twice as much for
    assert LAPLACE.unit_variance == 2 * GAUSSIAN.unit_variance  # Laplace noise at unit privacy
    assert found.gap >= -1e-9
    if noise == GAUSSIAN and len(products) < 5:  # marginals and single products
        assert found.gap < 2e-4  # twice the gap asked of each attribute
    assert ("residuals" in errors) == (noise == GAUSSIAN)
    best = solve_dense(whole_gram(products), products.sizes, SETTINGS)
    assert found.lower_bound <= best.objective * (1 + 1e-9)
    assert found.strategy.total_error >= best.lower_bound * (1 - 1e-9)


# OPT_⊗ against an explicit strategy.


@both
def test_a_product_strategy_has_the_errors_of_its_explicit_matrix(noise):
    products = mixed()
    found = operators(noise).product(products)
    a = kron(found.parts[0])
    expected = np.array(expected_errors(products, np.linalg.inv(a.T @ a)))
    expected *= noise.sensitivity(a) ** 2
    np.testing.assert_allclose(found.set_errors, expected, rtol=1e-7)
    assert found.total_error == pytest.approx(products.weights @ expected, rel=1e-7)
    identity = products.weights @ expected_errors(products, np.eye(60))
    assert found.total_error <= identity * (1 + 1e-12)
