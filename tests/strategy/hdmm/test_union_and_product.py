"""OPT_⊗ and OPT_+ against explicit strategies, and the paper's examples 13 and 15."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

from adaptive_qs.strategy.hdmm.groups import merged, nested, singletons
from adaptive_qs.strategy.hdmm.noise import Noise
from adaptive_qs.strategy.hdmm.product import optimize_product
from adaptive_qs.strategy.hdmm.products import product_workload
from adaptive_qs.strategy.hdmm.union import optimize_union
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.workload.axis_queries import Marginal, Prefix

from .helpers import expected_errors, marginals, mixed, workload

SETTINGS = SolverSettings()
EXAMPLE_15 = (2, 5, 50, 100)


def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("noise", Noise)
def test_a_product_strategy_has_the_errors_of_its_explicit_matrix(noise):
    products = mixed()
    found = optimize_product(products, noise, SETTINGS, rng())
    a = reduce(np.kron, [axis.matrix for axis in found.axes])
    expected = np.array(expected_errors(products, np.linalg.inv(a.T @ a)))
    expected *= noise.unit_variance * noise.sensitivity(a) ** 2
    np.testing.assert_allclose(found.set_errors, expected, rtol=1e-7)
    assert found.total_error == pytest.approx(products.weights @ expected, rel=1e-7)
    identity = noise.unit_variance * sum(
        w * e for w, e in zip(products.weights, expected_errors(products, np.eye(60)))
    )
    assert found.total_error <= identity * (1 + 1e-12)


@pytest.mark.parametrize("noise", Noise)
@pytest.mark.parametrize("weights", [[1e18, 1.0, 1.0], [1.0, 1.0, 1e-18]])
def test_a_set_that_hardly_counts_is_answered_all_the_same(weights, noise):
    families = {0: Prefix, 1: Marginal}
    parts = [([(0,), (1,)], families, None), ([(0, 1)], families, None)]
    products = product_workload(workload((6, 4), parts))
    products = replace(products, weights=np.array(weights))
    found = optimize_product(products, noise, SETTINGS, rng(), restarts=1)
    a = reduce(np.kron, [axis.matrix for axis in found.axes])
    assert np.linalg.matrix_rank(a, tol=1e-9) == 24
    pairs = expected_errors(products, np.linalg.pinv(a.T @ a, rcond=1e-15))[2]
    assert found.set_errors[2] == pytest.approx(noise.unit_variance * pairs, rel=1e-3)


def test_no_single_attribute_can_be_improved_afterwards():
    products = mixed()
    found = optimize_product(products, Noise.GAUSSIAN, SolverSettings(gap=1e-5), rng())
    # The whole problem has a local optimum where every block has one, and restarts agree.
    again = optimize_product(
        products, Noise.GAUSSIAN, SolverSettings(gap=1e-5), np.random.default_rng(9), restarts=5
    )
    assert found.total_error == pytest.approx(again.total_error, rel=1e-4)


@pytest.mark.parametrize("noise", Noise)
def test_a_union_strategy_has_the_errors_of_its_parts_and_sensitivity_one(noise):
    products = mixed()
    groups = ((0, 3), (1, 2), (4,))
    found = optimize_union(products, noise, SETTINGS, rng(), groups)
    stacked = []
    for sets, part, scale in zip(groups, found.parts, found.scales):
        a = scale * reduce(np.kron, [axis.matrix for axis in part.axes])
        stacked.append(a)
        expected = expected_errors(products.subset(sets), np.linalg.pinv(a.T @ a))
        expected = noise.unit_variance * np.array(expected)
        np.testing.assert_allclose(found.set_errors[list(sets)], expected, rtol=1e-7)
    assert noise.sensitivity(np.vstack(stacked)) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("noise", Noise)
def test_the_budget_shares_are_the_best(noise):
    errors = np.array([1.0, 10.0, 500.0])
    shares = noise.shares(errors)
    best = noise.combined(errors)
    assert np.linalg.norm(shares, ord=noise.order) == pytest.approx(1)
    assert (errors / shares**2).sum() == pytest.approx(best)
    for other in np.random.default_rng(1).dirichlet(np.ones(3), 50):
        other = other / np.linalg.norm(other, ord=noise.order)
        assert (errors / other**2).sum() >= best


def test_groups_are_partitions_and_nest():
    products = marginals((3, 4, 2), 1, 2)
    assert singletons(products) == ((0,), (1,), (2,), (3,), (4,), (5,))
    # Sets 3, 4, 5 are the pairs (0,1), (0,2), (1,2); a single goes with its smallest pair.
    assert nested(products) == ((0, 2, 4), (1, 5), (3,))
    joined = merged(products, singletons(products), Noise.LAPLACE, SETTINGS, rng())
    assert sorted(j for sets in joined for j in sets) == list(range(6))


def test_sets_that_ask_differently_do_not_nest():
    parts = [
        ([(0, 1)], {0: Prefix, 1: Marginal}, None),
        ([(0,), (1,)], {0: Marginal, 1: Marginal}, None),
    ]
    assert nested(product_workload(workload((3, 4), parts))) == ((0, 2), (1,))


@pytest.mark.parametrize("noise", Noise)
def test_the_default_groups_are_no_worse_than_any_one_choice(noise):
    products = marginals((2, 2, 3, 9), 1, 2)
    best = optimize_union(products, noise, SETTINGS, rng()).total_error
    for groups in (singletons(products), nested(products)):
        one = optimize_union(products, noise, SETTINGS, rng(), groups).total_error
        assert best <= one * (1 + 1e-3)  # another seed of the same local searches


def test_example_13():
    parts = [([(0,), (1,)], {0: Prefix, 1: Prefix}, None)]
    products = product_workload(workload((100, 100), parts))
    unit = Noise.LAPLACE.unit_variance
    whole = optimize_product(products, Noise.LAPLACE, SETTINGS, rng())
    apart = optimize_union(products, Noise.LAPLACE, SETTINGS, rng(), singletons(products))
    assert whole.total_error / unit <= 33_385 * 1.01
    assert apart.total_error / unit <= 14_252 * 1.01


def test_example_15():
    products = marginals(EXAMPLE_15, 2)
    unit = Noise.LAPLACE.unit_variance
    whole = optimize_product(products, Noise.LAPLACE, SETTINGS, rng())
    apart = optimize_union(products, Noise.LAPLACE, SETTINGS, rng(), singletons(products))
    grouped = optimize_union(products, Noise.LAPLACE, SETTINGS, rng())
    assert whole.total_error / unit <= 213_270
    assert apart.total_error / unit == pytest.approx(85_070, rel=1e-4)
    assert grouped.total_error < apart.total_error
