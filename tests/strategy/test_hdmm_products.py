"""OPT_0 on one attribute, for either noise."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from scipy.optimize import check_grad

from adaptive_qs.domain import Domain
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.strategy.bounds import gram_bound
from adaptive_qs.strategy.hdmm_products import (
    GAUSSIAN,
    exchangeable,
    optimize_axis,
    product_workload,
    total_strategy,
)
from adaptive_qs.strategy.optimal import solve_dense
from adaptive_qs.strategy.solution import SolverSettings
from adaptive_qs.workload.axes import Affine, Circular, Marginal, Prefix, Range
from adaptive_qs.workload.workload import QueryPart, QueryWorkload
from scripts.published import laplace
from scripts.published.laplace import (
    LAPLACE,
    PIdentity,
    default_rows,
    error_and_gradient,
    optimize_p_identity,
)

from .hdmm_helpers import marginals, mixed, set_gram, workload

SETTINGS = SolverSettings(gap=1e-6)


def solve(gram, noise):
    return optimize_axis(gram, noise, SETTINGS, np.random.default_rng(0), restarts=2)


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("queries", [Marginal(6), Prefix(6), Range(6), Circular(6)], ids=repr)
def test_a_strategy_has_sensitivity_one_and_its_covariance(queries, noise):
    gram = queries.gram()
    found = solve(gram, noise)
    a = found.matrix
    assert noise.sensitivity(a) == pytest.approx(1, rel=1e-9)
    np.testing.assert_allclose(found.covariance, np.linalg.pinv(a.T @ a), rtol=1e-6, atol=1e-9)
    assert gram_bound(gram) <= found.error(gram) * (1 + 1e-9)
    assert found.error(gram) <= np.trace(gram) * (1 + 1e-9)  # identity


@pytest.mark.parametrize(("a", "b"), [(1.0, 0.0), (2.0, 3.0), (1.0, -0.2), (1.0, 1e6)])
def test_identity_and_total_queries_have_the_certified_optimum_in_closed_form(a, b):
    gram = a * np.eye(5) + b
    found = solve(gram, GAUSSIAN)
    certified = solve_dense(gram, (5,), SETTINGS)
    assert exchangeable(gram) == pytest.approx((a, b))
    assert found.error(gram) == pytest.approx(certified.objective, rel=1e-5)
    assert found.error(gram) == pytest.approx(gram_bound(gram), rel=1e-9)


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE])
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
    found = solve(gram, LAPLACE)

    def error(theta):
        a = np.vstack([np.eye(20), np.full((1, 20), theta)]) / (1 + theta)
        return np.trace(gram @ np.linalg.inv(a.T @ a))

    best = min(error(theta) for theta in np.linspace(0, 3, 301))
    assert found.error(gram) <= best * (1 + 1e-6)


def test_a_gaussian_factor_is_the_same_matrix():
    found = solve(Range(6).gram(), GAUSSIAN)
    np.testing.assert_allclose(found.factor.matrix, found.matrix, rtol=1e-9)
    np.testing.assert_allclose(found.factor.covariance, found.covariance, rtol=1e-9)
    total = total_strategy(4).factor
    np.testing.assert_allclose(total.inverse, np.full((4, 1), 0.25))


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
def test_the_gradient_is_the_slope_of_the_error(rows, cells):
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


# Workloads as unions of products.


def test_every_set_has_its_queries_and_the_total_elsewhere():
    products = mixed()
    p, m, t = np.tril(np.ones((4, 4))), np.eye(3), np.ones((1, 5))
    first = np.kron(np.kron(p, m), t)
    np.testing.assert_array_equal(set_gram(products, 0), first.T @ first)
    last = np.kron(np.kron(np.ones((1, 4)), m), t)
    np.testing.assert_array_equal(set_gram(products, 4), last.T @ last)
    assert products.num_queries == (12, 60, 45, 4, 3)
    assert products.weights.tolist() == [1, 2, 0.5, 1, 1]


def test_equal_factors_are_stored_once():
    products = marginals((3, 4, 5, 6), 1, 2, 3)
    assert [len(grams) for grams in products.grams] == [2, 2, 2, 2]
    assert len(products) == 4 + 6 + 4


def test_a_union_that_is_one_product_is_recognised():
    families = {0: Prefix, 1: Marginal, 2: Marginal}
    parts = [([(0, 1, 2)], families, [6.0]), ([(0, 1), (0, 2)], families, [2.0, 3.0])]
    parts.append(([(0,)], families, [1.0]))
    products = product_workload(workload((4, 3, 2), parts))
    whole = reduce(np.kron, products.factorised())
    union = sum(w * set_gram(products, j) for j, w in enumerate(products.weights))
    np.testing.assert_allclose(whole, union, rtol=1e-13)


@pytest.mark.parametrize("sets", [[0, 1, 2], [0, 1, 2, 3, 3], [0, 1, 2, 2]])
def test_other_unions_are_not(sets):
    families = {0: Prefix, 1: Marginal, 2: Marginal}
    parts = [([(0, 1, 2)], families, None), ([(0, 1), (0, 2)], families, None)]
    parts.append(([(0,)], families, None))
    assert product_workload(workload((4, 3, 2), parts)).subset(sets).factorised() is None


@pytest.mark.parametrize(("weight", "recognised"), [(1e-6, True), (1e-15, False)])
def test_a_factor_that_rounding_would_lose_makes_no_product(weight, recognised):
    families = {0: Prefix, 1: Marginal}
    parts = [([(0,)], families, None), ([(0, 1)], families, None)]
    products = product_workload(workload((4, 3), parts))
    products = replace(products, weights=np.array([1.0, weight]))
    assert (products.factorised() is not None) == recognised


def test_weights_that_do_not_factor_are_no_product():
    families = {0: Prefix, 1: Marginal}
    parts = [([(0, 1)], families, [1.0]), ([(0,), (1,)], families, [1.0, 1.0])]
    products = product_workload(workload((4, 3), parts))
    assert products.factorised() is None


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
