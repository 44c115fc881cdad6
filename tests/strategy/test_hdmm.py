"""HDMM against explicit matrices: workloads as products, its operators, bounds and zeros."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.strategy.bounds import gram_bound
from adaptive_qs.strategy.choose import choose_mechanism
from adaptive_qs.strategy.fixed_point import exchangeable, solve_dense
from adaptive_qs.strategy.hdmm import (
    axis_error,
    nested,
    product_workload,
    with_zeros,
)
from adaptive_qs.strategy.solution import SolverSettings
from adaptive_qs.workload.axes import Affine, Circular, Marginal, Prefix, Range
from adaptive_qs.workload.families import Random
from adaptive_qs.workload.matrices import CustomAxis
from adaptive_qs.workload.workload import QueryPart, QueryWorkload
from scripts.published.laplace import GAUSSIAN, LAPLACE, select
from scripts.published.subset_bounds import lower_bound

from .hdmm_helpers import expected_errors, marginals, mixed, set_gram, workload
from .variance_oracles import summed_variances

SETTINGS = SolverSettings()

both = pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE], ids=lambda noise: noise.name)


def operators(noise=GAUSSIAN, gap=1e-4, seed=0):
    return noise.operators(SolverSettings(gap=gap), np.random.default_rng(seed))


def whole_gram(products):
    return sum(w * set_gram(products, j) for j, w in enumerate(products.weights))


def kron(factors):
    return reduce(np.kron, [factor.matrix for factor in factors])


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


# Workloads as unions of products.


@pytest.mark.parametrize(
    ("cliques", "weights", "recognised"),
    [
        ([(0, 1, 2), (0, 1), (0, 2), (0,)], [6, 2, 3, 1], True),
        ([(0, 1, 2), (0, 1), (0, 2)], [1] * 3, False),
        ([(0, 1, 2), (0, 1), (0, 2), (0,), (0,)], [1] * 5, False),
        ([(0, 1, 2), (0, 1), (0, 2), (0, 2)], [1] * 4, False),
        ([(0,), (0, 1)], [1, 1e-6], True),
        ([(0,), (0, 1)], [1, 1e-15], False),  # a factor that rounding would lose
        ([(0, 1), (0,), (1,)], [1] * 3, False),
    ],
)
def test_a_union_that_is_one_product_is_recognised(cliques, weights, recognised):
    families = {0: Prefix, 1: Marginal, 2: Marginal}
    parts = [([clique], families, None) for clique in cliques]
    products = product_workload(workload((4, 3, 2), parts))
    products = replace(products, weights=np.array(weights, dtype=float))
    whole = products.factorised()
    assert (whole is not None) == recognised
    if recognised:
        np.testing.assert_allclose(reduce(np.kron, whole), whole_gram(products), rtol=1e-13)


def test_joint_queries_are_refused_with_the_mechanism_to_use():
    domain = Domain.from_sizes({"age": 4, "hours": 4})
    part = QueryPart(np.array([[0, 1]], dtype=np.int32), {}, (Affine(4, 4),), np.ones(1))
    with pytest.raises(WorkloadError, match=r"age, hours.*querysmasher") as caught:
        product_workload(QueryWorkload(domain, (part,)))
    assert "\n" not in str(caught.value)


def test_an_attribute_beyond_the_memory_ceiling_is_refused_by_name():
    one = workload((3, 50), [([(0,), (1,)], {0: Marginal, 1: Prefix}, None)])
    with pytest.raises(ResourceExceeded, match="'a1' has 50 values"):
        product_workload(one, SolverSettings(max_bytes=100_000))


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
def test_the_planned_error_is_that_of_all_answers_and_above_the_bound(case):
    workload = QueryWorkload(DOMAIN, CASES[case])
    mechanism = choose_mechanism(workload, "hdmm").mechanism.on_grid(20)
    assert mechanism.total_error == pytest.approx(summed_variances(mechanism), rel=1e-9)
    assert mechanism.lower_bound <= mechanism.total_error < 2 * mechanism.lower_bound
    for p, i, _ in workload.sets():
        largest = np.prod([abs(q.matrix()).max() for q in workload.parts[p].queries(i)])
        assert (mechanism.variances(p, i).max() > 0) == (largest > 0)


def test_explicit_groups_take_them_in():
    products = product_workload(QueryWorkload(DOMAIN, CASES["zero in pairs"]))
    # Sets 3 and 4, on attributes (0, 1) and (0, 2), ask nothing.
    groups = with_zeros(products, ((0, 1), (2,), (3,), (4, 5)))
    assert groups == ((0, 1, 3, 4), (2,), (5,))
    found = operators().union(products, ((0, 1), (2,), (3,), (4, 5)))
    assert found.groups == groups
    assert np.isfinite(found.set_errors).all()
    assert (found.scales > 0).all()


def test_nothing_but_zeros_is_refused():
    part = QueryPart(SINGLES, dict(enumerate(map(zero_axis, SIZES))), None, np.ones(3))
    products = product_workload(QueryWorkload(DOMAIN, (part,)))
    for find in (operators().product, operators().union):
        with pytest.raises(WorkloadError, match="every query of the workload is zero"):
            find(products)
