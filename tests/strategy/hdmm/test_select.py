"""OPT_HDMM and the bounds below it."""

from dataclasses import replace

import numpy as np
import pytest

from adaptive_qs.strategy.certified.dense import solve_dense
from adaptive_qs.strategy.hdmm.lower_bound import lower_bound, residual_bound, svd_bound
from adaptive_qs.strategy.hdmm.noise import Noise
from adaptive_qs.strategy.hdmm.products import product_workload
from adaptive_qs.strategy.hdmm.select import select
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.workload.axis_queries import Prefix, Range

from .helpers import marginals, mixed, set_gram, workload

SETTINGS = SolverSettings()


def whole_gram(products):
    return sum(w * set_gram(products, j) for j, w in enumerate(products.weights))


def one_product():
    return product_workload(workload((6, 5), [([(0, 1)], {0: Prefix, 1: Range}, [2.0])]))


@pytest.mark.parametrize("noise", Noise)
@pytest.mark.parametrize("products", [mixed(), marginals((3, 4, 5), 2), one_product()])
def test_the_best_candidate_is_chosen_and_lies_above_the_bound(products, noise):
    found = select(products, noise)
    errors = {name: s.total_error for name, s in found.candidates.items()}
    assert found.strategy.total_error == min(errors.values())
    assert found.lower_bound <= found.strategy.total_error * (1 + 1e-9)
    assert found.gap >= -1e-9
    assert ("residuals" in errors) == (noise is Noise.GAUSSIAN)
    best = solve_dense(whole_gram(products), products.sizes, SETTINGS)
    assert found.lower_bound <= noise.unit_variance * best.objective * (1 + 1e-9)
    assert found.strategy.total_error >= noise.unit_variance * best.lower_bound * (1 - 1e-9)


@pytest.mark.parametrize("products", [marginals((3, 4, 5), 2), one_product()])
def test_marginals_and_single_products_are_solved_to_their_bound(products):
    assert select(products, Noise.GAUSSIAN).gap < 2e-4  # twice the gap asked of each attribute


def test_the_bound_of_a_union_is_at_least_that_of_its_largest_set():
    products = mixed()
    whole = lower_bound(products, Noise.GAUSSIAN, SETTINGS)
    for j in range(len(products)):
        assert whole > lower_bound(products.subset([j]), Noise.GAUSSIAN, SETTINGS)


@pytest.mark.parametrize("seed", range(5))
def test_the_residual_bound_is_below_the_svd_bound_and_close(seed):
    rng = np.random.default_rng(seed)
    products = mixed()
    products = replace(products, weights=rng.lognormal(0, 2, len(products)))
    exact = svd_bound(whole_gram(products))
    assert 0.8 * exact < residual_bound(products) <= exact * (1 + 1e-9)


def test_laplace_bounds_are_gaussian_bounds_with_twice_the_variance():
    products = one_product()
    gaussian, laplace = (lower_bound(products, noise, SETTINGS) for noise in Noise)
    assert laplace == pytest.approx(2 * gaussian)


def test_the_same_seed_gives_the_same_strategy():
    first, second = (select(mixed(), Noise.LAPLACE, seed=4) for _ in range(2))
    assert first.strategy.total_error == second.strategy.total_error
    np.testing.assert_array_equal(first.strategy.set_errors, second.strategy.set_errors)
