"""HDMM's operators with either noise, and OPT_M: against explicit matrices and published errors."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.errors import WorkloadError
from adaptive_qs.strategy.bounds import gram_bound
from adaptive_qs.strategy.fixed_point import exchangeable, solve_dense
from adaptive_qs.strategy.hdmm import axis_error, product_workload
from adaptive_qs.strategy.solution import SolverSettings
from adaptive_qs.workload.axes import Circular, Marginal, Prefix, Range
from adaptive_qs.workload.matrices import CustomAxis
from adaptive_qs.workload.workload import QueryPart, QueryWorkload
from scripts.published.laplace import (
    GAUSSIAN,
    LAPLACE,
    default_rows,
    optimize_p_identity,
    select,
    weighted_marginals,
)
from scripts.published.operators import nested, with_zeros
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


# OPT_0 on one attribute.


def solve(gram, noise):
    return operators(noise, 1e-6).axis(gram, SolverSettings(gap=1e-6))


@both
@pytest.mark.parametrize("queries", [Marginal(6), Prefix(6), Range(6), Circular(6)], ids=repr)
def test_a_strategy_has_sensitivity_one_and_its_covariance(queries, noise):
    gram = queries.gram()
    found = solve(gram, noise)
    a = found.matrix
    assert noise.sensitivity(a) == pytest.approx(1, rel=1e-9)
    np.testing.assert_allclose(found.covariance, np.linalg.pinv(a.T @ a), rtol=1e-6, atol=1e-9)
    assert gram_bound(gram) <= axis_error(found, gram) * (1 + 1e-9)
    assert axis_error(found, gram) <= np.trace(gram) * (1 + 1e-9)  # identity


@pytest.mark.parametrize(("a", "b"), [(1.0, 0.0), (2.0, 3.0), (1.0, -0.2), (1.0, 1e6)])
def test_identity_and_total_queries_have_the_certified_optimum_in_closed_form(a, b):
    gram = a * np.eye(5) + b
    found = solve(gram, GAUSSIAN)
    certified = solve_dense(gram, (5,), SolverSettings(gap=1e-6))
    assert exchangeable(gram) == pytest.approx((a, b))
    assert axis_error(found, gram) == pytest.approx(certified.objective, rel=1e-5)
    assert axis_error(found, gram) == pytest.approx(gram_bound(gram), rel=1e-9)


@both
def test_the_total_alone_is_measured_alone(noise):
    found = solve(np.full((7, 7), 3.0), noise)
    np.testing.assert_array_equal(found.matrix, np.ones((1, 7)))
    assert axis_error(found, np.ones((7, 7))) == pytest.approx(1)


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


# OPT_⊗ and OPT_+ against explicit strategies.


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


@both
@pytest.mark.parametrize("weights", [[1e18, 1.0, 1.0], [1.0, 1.0, 1e-18]])
def test_a_set_that_hardly_counts_is_answered_all_the_same(weights, noise):
    families = {0: Prefix, 1: Marginal}
    parts = [([(0,), (1,)], families, None), ([(0, 1)], families, None)]
    products = product_workload(workload((6, 4), parts))
    products = replace(products, weights=np.array(weights))
    found = operators(noise).product(products, restarts=1)
    a = kron(found.parts[0])
    assert np.linalg.matrix_rank(a, tol=1e-9) == 24
    pairs = expected_errors(products, np.linalg.pinv(a.T @ a, rcond=1e-15))[2]
    assert found.set_errors[2] == pytest.approx(pairs, rel=1e-3)


@both
def test_a_union_strategy_has_the_errors_of_its_parts_and_sensitivity_one(noise):
    products = mixed()
    groups = ((0, 3), (1, 2), (4,))
    found = operators(noise).union(products, groups)
    stacked = []
    for sets, part, scale in zip(groups, found.parts, found.scales):
        a = scale * kron(part)
        stacked.append(a)
        expected = expected_errors(products.subset(sets), np.linalg.pinv(a.T @ a))
        np.testing.assert_allclose(found.set_errors[list(sets)], expected, rtol=1e-7)
    assert noise.sensitivity(np.vstack(stacked)) == pytest.approx(1, rel=1e-9)


@both
def test_the_budget_shares_are_the_best(noise):
    errors = np.array([1.0, 10.0, 500.0])
    shares = operators(noise).shares(errors)
    power = {GAUSSIAN: 2, LAPLACE: 3}[noise]
    best = (errors ** (1 / power)).sum() ** power
    assert np.linalg.norm(shares, ord=noise.operators.order) == pytest.approx(1)
    assert (errors / shares**2).sum() == pytest.approx(best)
    for other in np.random.default_rng(1).dirichlet(np.ones(3), 50):
        other = other / np.linalg.norm(other, ord=noise.operators.order)
        assert (errors / other**2).sum() >= best


def test_groups_are_partitions_and_nest():
    products = marginals((3, 4, 2), 1, 2)
    # Sets 3, 4, 5 are the pairs (0,1), (0,2), (1,2); a single goes with its smallest pair.
    assert nested(products) == ((0, 2, 4), (1, 5), (3,))


def test_sets_of_zeros_join_a_group_and_nothing_else_is_refused():
    zero, ranges = CustomAxis(np.zeros((2, 4))), Range(3)
    sets = np.array([[0, 1]], np.int32)
    parts = [QueryPart(sets, {0: axis, 1: ranges}, None, np.ones(1)) for axis in (Prefix(4), zero)]
    domain = Domain.from_sizes({"a": 4, "b": 3})
    products = product_workload(QueryWorkload(domain, tuple(parts)))
    assert with_zeros(products, ((0,), (1,))) == ((0, 1),)
    found = operators(GAUSSIAN).union(products, ((0,), (1,)))
    assert np.isfinite(found.set_errors).all()
    nothing = product_workload(QueryWorkload(domain, (parts[1],)))
    for find in (operators(GAUSSIAN).product, operators(GAUSSIAN).union):
        with pytest.raises(WorkloadError, match="every query of the workload is zero"):
            find(nothing)
