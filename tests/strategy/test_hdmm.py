"""OPT_M, its closed form and its bound against explicit matrices."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from scipy.optimize import check_grad

from adaptive_qs.domain import Domain
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.strategy.bounds import gram_bound
from adaptive_qs.strategy.choose import choose_mechanism
from adaptive_qs.strategy.hdmm import (
    log_error_and_gradient,
    lower_bound,
    merged,
    nested,
    optimal_residuals,
    optimize_marginals,
    optimize_union,
    residual_bound,
    residual_traces,
    singletons,
    subset_products,
    subset_sums,
    superset_differences,
    superset_sums,
    weighted_marginals,
    with_zeros,
)
from adaptive_qs.strategy.hdmm_products import (
    GAUSSIAN,
    optimize_product,
    product_workload,
    with_total,
)
from adaptive_qs.strategy.optimal import solve_dense
from adaptive_qs.strategy.solution import SolverSettings
from adaptive_qs.workload.axes import Marginal, Prefix, Random, Range
from adaptive_qs.workload.matrices import CustomAxis
from adaptive_qs.workload.workload import QueryPart, QueryWorkload
from scripts.published import laplace
from scripts.published.laplace import LAPLACE, select

from .hdmm_helpers import expected_errors, marginal_matrix, marginals, mixed, set_gram, workload

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


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE])
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
    assert closed.weights is not None
    again = weighted_marginals(products, closed.weights, GAUSSIAN)
    assert again.total_error == pytest.approx(closed.total_error, rel=1e-9)
    whole = sum(set_gram(products, j) for j in range(len(products)))
    assert closed.total_error == pytest.approx(gram_bound(whole), rel=1e-9)
    assert optimize_marginals(products).total_error == (closed.total_error)


def test_the_residual_form_reaches_the_bound_where_no_weights_are_real():
    products = marginals((3, 4, 5), 2)
    closed = optimal_residuals(products)
    assert closed.weights is None
    whole = sum(set_gram(products, j) for j in range(len(products)))
    assert closed.total_error == pytest.approx(gram_bound(whole), rel=1e-9)
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
    weights = optimize_marginals(products)
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
    found = optimize_marginals(products)
    rng = np.random.default_rng(1)
    for _ in range(200):
        other = np.exp(rng.normal(0, 2, (2, 2, 2)))
        trial = weighted_marginals(products, other, GAUSSIAN)
        assert trial.total_error >= found.total_error * (1 - 1e-6)


def test_example_15_with_laplace_noise():
    products = marginals((2, 5, 50, 100), 2)
    found = laplace.optimize_marginals(products, np.random.default_rng(0))
    assert found.total_error / LAPLACE.unit_variance <= 62_886 * (1 + 1e-4)
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


# OPT_HDMM and the bounds below it.

SETTINGS = SolverSettings()


def whole_gram(products):
    return sum(w * set_gram(products, j) for j, w in enumerate(products.weights))


def one_product():
    return product_workload(workload((6, 5), [([(0, 1)], {0: Prefix, 1: Range}, [2.0])]))


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("products", [mixed(), marginals((3, 4, 5), 2), one_product()])
def test_the_best_candidate_is_chosen_and_lies_above_the_bound(products, noise):
    found = select(products, noise)
    errors = {name: s.total_error for name, s in found.candidates.items()}
    assert found.strategy.total_error == min(errors.values())
    assert found.lower_bound <= found.strategy.total_error * (1 + 1e-9)
    assert found.gap >= -1e-9
    assert ("residuals" in errors) == (noise == GAUSSIAN)
    best = solve_dense(whole_gram(products), products.sizes, SETTINGS)
    assert found.lower_bound <= noise.unit_variance * best.objective * (1 + 1e-9)
    assert found.strategy.total_error >= noise.unit_variance * best.lower_bound * (1 - 1e-9)


@pytest.mark.parametrize("products", [marginals((3, 4, 5), 2), one_product()])
def test_marginals_and_single_products_are_solved_to_their_bound(products):
    assert select(products, GAUSSIAN).gap < 2e-4  # twice the gap asked of each attribute


def test_the_bound_of_a_union_is_at_least_that_of_its_largest_set():
    products = mixed()
    whole = lower_bound(products, GAUSSIAN, SETTINGS)
    for j in range(len(products)):
        assert whole > lower_bound(products.subset([j]), GAUSSIAN, SETTINGS)


@pytest.mark.parametrize("seed", range(5))
def test_the_residual_bound_is_below_the_svd_bound_and_close(seed):
    rng = np.random.default_rng(seed)
    products = mixed()
    products = replace(products, weights=rng.lognormal(0, 2, len(products)))
    exact = gram_bound(whole_gram(products))
    assert 0.8 * exact < residual_bound(products) <= exact * (1 + 1e-9)


def test_laplace_bounds_are_gaussian_bounds_with_twice_the_variance():
    products = one_product()
    gaussian, laplace = (lower_bound(products, noise, SETTINGS) for noise in (GAUSSIAN, LAPLACE))
    assert laplace == pytest.approx(2 * gaussian)


def test_the_same_seed_gives_the_same_strategy():
    first, second = (select(mixed(), LAPLACE, seed=4) for _ in range(2))
    assert first.strategy.total_error == second.strategy.total_error
    np.testing.assert_array_equal(first.strategy.set_errors, second.strategy.set_errors)


# OPT_⊗ and OPT_+ against explicit strategies, and the paper's examples 13 and 15.

EXAMPLE_15 = (2, 5, 50, 100)


def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE])
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


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE])
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
    found = optimize_product(products, GAUSSIAN, SolverSettings(gap=1e-5), rng())
    # The whole problem has a local optimum where every block has one, and restarts agree.
    again = optimize_product(
        products, GAUSSIAN, SolverSettings(gap=1e-5), np.random.default_rng(9), restarts=5
    )
    assert found.total_error == pytest.approx(again.total_error, rel=1e-4)


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE])
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


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE])
def test_the_budget_shares_are_the_best(noise):
    errors = np.array([1.0, 10.0, 500.0])
    shares = noise.shares(errors)
    best = noise.roots(errors).sum() ** {GAUSSIAN: 2, LAPLACE: 3}[noise]
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
    joined = merged(products, singletons(products), LAPLACE, SETTINGS, rng())
    assert sorted(j for sets in joined for j in sets) == list(range(6))


def test_sets_that_ask_differently_do_not_nest():
    parts = [
        ([(0, 1)], {0: Prefix, 1: Marginal}, None),
        ([(0,), (1,)], {0: Marginal, 1: Marginal}, None),
    ]
    assert nested(product_workload(workload((3, 4), parts))) == ((0, 2), (1,))


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE])
def test_the_default_groups_are_no_worse_than_any_one_choice(noise):
    products = marginals((2, 2, 3, 9), 1, 2)
    best = optimize_union(products, noise, SETTINGS, rng()).total_error
    for groups in (singletons(products), nested(products)):
        one = optimize_union(products, noise, SETTINGS, rng(), groups).total_error
        assert best <= one * (1 + 1e-3)  # another seed of the same local searches


def test_example_13():
    parts = [([(0,), (1,)], {0: Prefix, 1: Prefix}, None)]
    products = product_workload(workload((100, 100), parts))
    unit = LAPLACE.unit_variance
    whole = optimize_product(products, LAPLACE, SETTINGS, rng())
    apart = optimize_union(products, LAPLACE, SETTINGS, rng(), singletons(products))
    assert whole.total_error / unit <= 33_385 * 1.01
    assert apart.total_error / unit <= 14_252 * 1.01


def test_example_15():
    products = marginals(EXAMPLE_15, 2)
    unit = LAPLACE.unit_variance
    whole = optimize_product(products, LAPLACE, SETTINGS, rng())
    apart = optimize_union(products, LAPLACE, SETTINGS, rng(), singletons(products))
    grouped = optimize_union(products, LAPLACE, SETTINGS, rng())
    assert whole.total_error / unit <= 213_270
    assert apart.total_error / unit == pytest.approx(85_070, rel=1e-4)
    assert grouped.total_error < apart.total_error


# Attribute sets whose queries are all zero: they cost nothing and disturb nobody.

SIZES = (4, 3, 5)
DOMAIN = Domain.from_sizes({f"a{i}": n for i, n in enumerate(SIZES)})
PAIRS = np.array([[0, 1], [0, 2], [1, 2]], np.int32)
SINGLES = np.array([[0], [1], [2]], np.int32)
RANGES = QueryPart(PAIRS, {i: Range(n) for i, n in enumerate(SIZES)}, None, np.ones(3))


def zero_axis(n):
    return CustomAxis(np.zeros((2, n)))


def parts_with_zeros():
    rare = {i: Random((n,), 0.01, 2, 1) for i, n in enumerate(SIZES)}
    assert sum(q.matrix().any() for q in rare.values()) < 3
    mixed = {0: zero_axis(4), 1: Range(3), 2: Range(5)}
    return {
        "rare": (QueryPart(SINGLES, rare, None, np.ones(3)), RANGES),
        "zero in pairs": (RANGES, QueryPart(PAIRS, mixed, None, np.array([1e6, 1.0, 2.0]))),
        "an attribute of zeros": (
            QueryPart(PAIRS[1:], {0: zero_axis(4), 1: Range(3), 2: Range(5)}, None, np.ones(2)),
        ),
    }


CASES = parts_with_zeros()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE])
def test_operators_leave_them_out(case, noise):
    products = product_workload(QueryWorkload(DOMAIN, CASES[case]))
    asked, settings = products.only_asked(), SolverSettings()
    assert 0 < len(asked) < len(products)
    void = np.setdiff1d(np.arange(len(products)), products.asked)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for find in (
            lambda w, rng: optimize_product(w, noise, settings, rng),
            lambda w, rng: optimize_union(w, noise, settings, rng),
            lambda w, rng: (
                optimize_marginals(w)
                if noise == GAUSSIAN
                else laplace.optimize_marginals(w, rng, moves=5)
            ),
        ):
            found = find(products, np.random.default_rng(0))
            alone = find(asked, np.random.default_rng(0))
            assert found.workload is products
            assert not found.set_errors[void].any()
            np.testing.assert_allclose(found.set_errors[products.asked], alone.set_errors, 1e-9)
        bound = lower_bound(products, noise, settings)
        assert bound == pytest.approx(lower_bound(asked, noise, settings), rel=1e-12)
        found = select(products, noise)
        assert 0 < bound <= found.strategy.total_error * (1 + 1e-9)


@pytest.mark.parametrize("case", CASES)
def test_the_planned_error_is_that_of_all_answers_and_above_the_bound(case):
    workload = QueryWorkload(DOMAIN, CASES[case])
    mechanism = choose_mechanism(workload, "hdmm").mechanism.on_grid(20)
    total = sum(
        weight * mechanism.variances(p, i).sum()
        for p, part in enumerate(workload.parts)
        for i, weight in enumerate(part.weights)
    )
    assert mechanism.total_error == pytest.approx(total, rel=1e-9)
    assert mechanism.lower_bound <= mechanism.total_error < 2 * mechanism.lower_bound
    for p, part in enumerate(workload.parts):
        for i in range(len(part)):
            largest = np.prod([abs(q.matrix()).max() for q in part.queries(i)])
            assert (mechanism.variances(p, i).max() > 0) == (largest > 0)


def test_explicit_groups_take_them_in():
    products = product_workload(QueryWorkload(DOMAIN, CASES["zero in pairs"]))
    # Sets 3 and 4, on attributes (0, 1) and (0, 2), ask nothing.
    groups = with_zeros(products, ((0, 1), (2,), (3,), (4, 5)))
    assert groups == ((0, 1, 3, 4), (2,), (5,))
    settings, rng = SolverSettings(), np.random.default_rng(0)
    found = optimize_union(products, GAUSSIAN, settings, rng, ((0, 1), (2,), (3,), (4, 5)))
    assert found.groups == groups
    assert np.isfinite(found.set_errors).all()
    assert (found.scales > 0).all()


def test_nothing_but_zeros_is_refused():
    products = product_workload(
        QueryWorkload(DOMAIN, (QueryPart(SINGLES, dict(enumerate(map(zero_axis, SIZES))), None,
                                         np.ones(3)),))
    )  # fmt: skip
    for find in (optimize_product, optimize_union):
        with pytest.raises(WorkloadError, match="every query of the workload is zero"):
            find(products, GAUSSIAN, SolverSettings(), np.random.default_rng(0))
