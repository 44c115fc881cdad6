"""Bases of attributes: what one axis is asked, and errors below those published."""

from __future__ import annotations

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.strategy.bounds import axis_gram, total_variance
from adaptive_qs.strategy.fixed_basis import (
    best_weights,
    solve_eigen,
    solve_with_basis,
    strategy_basis,
)
from adaptive_qs.strategy.fixed_point import solve_dense
from adaptive_qs.strategy.residual_mechanism import attribute_bases, attribute_grams
from adaptive_qs.strategy.solution import CenteringFactor, SolverSettings, Status, Strategy
from adaptive_qs.workload.axes import AbsDiff, Affine, Marginal, Prefix, Range
from adaptive_qs.workload.matrices import CustomAxis
from adaptive_qs.workload.residuals import Subworkload, Term, decompose_workload
from adaptive_qs.workload.workload import QueryPart, QueryWorkload
from scripts.published.eigen_speedups import Principal, Separation, solve_eigen_dense

from .problems import ALL, PRODUCTS, all_ways, axis, dense_error, numbers, product

SETTINGS = SolverSettings(gap=1e-4)


def total_error(workload, factors):
    """(Σ√L)² over every residual, each with the bases of its own attributes."""
    split = decompose_workload(workload)
    roots = 0.0
    for residual, number, scale in zip(split.residuals, split.class_of, split.scales):
        basis = tuple(factors[i] for i in residual)
        roots += math.sqrt(scale * solve_with_basis(split.subworkloads[number], basis).objective)
    return roots**2


@pytest.mark.parametrize("name", ALL)
def test_the_error_seen_from_one_axis(name):
    shape = ALL[name].shape
    factors = tuple(strategy_basis(numbers(n + 2, n, seed=n)) for n in shape)
    expected = total_variance(ALL[name], Strategy(factors))
    for k, factor in enumerate(factors):
        seen = axis_gram(ALL[name], k, (*factors[:k], None, *factors[k + 1 :]))
        assert np.trace(seen @ factor.covariance) == pytest.approx(expected, rel=1e-9)


def test_products_get_the_optimum_of_their_own_one_way_queries():
    workload = all_ways([6, 4, 6], (1, Prefix), (2, Prefix))
    factors = attribute_bases(decompose_workload(workload), SETTINGS)
    assert factors[0] is factors[2] is not factors[1]
    for factor, size in zip(factors[:2], (6, 4)):
        gram = axis(Prefix, size).gram()
        optimum = solve_dense(gram, (size,), SETTINGS)
        error = np.trace(gram @ factor.covariance)
        assert error <= optimum.lower_bound * (1 + 2 * SETTINGS.gap)


def test_grams_weigh_every_residual_by_its_root_error():
    workload = all_ways([3, 4], (1, Range), (2, Affine))
    split = decompose_workload(workload)
    expected = np.zeros((4, 4))
    for residual, number, scale in zip(split.residuals, split.class_of, split.scales):
        if 1 in residual:
            one = split.subworkloads[number]
            one = replace(one, terms=tuple(replace(t, scale=t.scale * scale) for t in one.terms))
            contrasts = tuple(CenteringFactor(n) for n in one.shape)
            error = total_variance(one, Strategy(contrasts))
            expected += axis_gram(one, residual.index(1), contrasts) / math.sqrt(error)
    assert_allclose(attribute_grams(split)[1], expected / np.trace(expected), atol=1e-12)


def test_an_attribute_that_nothing_asks_about_gets_contrasts():
    domain = Domain.from_sizes({"a": 3, "b": 5})
    part = QueryPart(np.array([[1]], dtype=np.int32), {1: Prefix(5)}, None, np.ones(1))
    factors = attribute_bases(decompose_workload(QueryWorkload(domain, (part,))), SETTINGS)
    assert factors[0] == CenteringFactor(3)
    assert factors[1].shape == (5,)


def test_a_basis_spans_what_nothing_asks_for():
    queries = CustomAxis([[2.0, -1.0, 0.0, 0.0]])
    domain = Domain.from_sizes({"a": 4})
    part = QueryPart(np.array([[0]], dtype=np.int32), {0: queries}, None, np.ones(1))
    (factor,) = attribute_bases(decompose_workload(QueryWorkload(domain, (part,))), SETTINGS)
    assert np.linalg.matrix_rank(factor.matrix) == 3


@pytest.mark.parametrize(
    ("queries", "published", "at_least"),
    [
        ([(1, Marginal), (2, Marginal)], 23.48, 23.47),
        ([(1, Prefix), (2, Prefix)], 36.23, 33.69),
        ([(1, Range), (2, Range)], 48.95, 41.07),
        ([(1, Prefix), (2, Affine)], 62.48, 50.0),
        ([(1, Prefix), (2, AbsDiff)], 85.99, 70.0),
    ],
    ids=["marginal", "prefix", "range", "affine", "absdiff"],
)
def test_errors_are_not_above_those_published(queries, published, at_least):
    """He et al., table 4, ten values, 40 attributes, column RP+ (its bases are not published).

    The least value is the certified optimum of products, or for joint queries a little below ours.
    """
    workload = all_ways([10] * 40, *queries)
    factors = attribute_bases(decompose_workload(workload), SETTINGS)
    error = math.sqrt(total_error_by_class(workload, factors[0]) / workload.num_queries)
    assert at_least < error <= published + 0.005


def total_error_by_class(workload, factor):
    """The same where all attributes share one basis."""
    split = decompose_workload(workload)
    solved = [solve_with_basis(s, (factor,) * len(s.shape)).objective for s in split.subworkloads]
    return np.sqrt(np.array(solved)[split.class_of] * split.scales).sum() ** 2


def test_mixed_workloads_gain_over_contrasts():
    workload = all_ways([7, 5, 6], (1, Range), (2, AbsDiff), (3, Prefix))
    factors = attribute_bases(decompose_workload(workload), SETTINGS)
    contrasts = [CenteringFactor(n) for n in (7, 5, 6)]
    assert total_error(workload, factors) < 0.95 * total_error(workload, contrasts)


# Eigen-designs against CVXPY, their certificate, their speed-ups and the product rule.

GAP = 1e-4
FINE = SolverSettings(gap=1e-6, max_iterations=20_000)


def random_gram(rows, cells, seed=0):
    matrix = numbers(rows, cells, seed)
    return matrix.T @ matrix


def clarabel(costs, importance):
    """Program 1: minimise Σ importance/u subject to costsᵀu ≤ 1."""
    u = cp.Variable(len(importance), pos=True)
    problem = cp.Problem(cp.Minimize(importance @ cp.inv_pos(u)), [costs.T @ u <= 1])
    problem.solve(solver=cp.CLARABEL)
    return problem.value


@pytest.mark.parametrize("seed", range(6))
def test_weights_equal_clarabel(seed):
    rng = np.random.default_rng(seed)
    designs, cells = rng.integers(1, 12, 2)
    costs = rng.random((designs, cells)) ** 3
    importance = np.exp(rng.normal(scale=2, size=designs))
    best = best_weights(costs, importance, FINE)
    optimum = clarabel(costs, importance)
    # Clarabel stops at a relative gap of 1e-8.
    assert best.lower_bound <= optimum * (1 + 1e-7)
    assert optimum <= best.objective * (1 + 1e-7)
    assert best.objective <= best.lower_bound * (1 + FINE.gap)
    assert (importance / best.weights).sum() == pytest.approx(best.objective, rel=1e-12)
    assert (costs.T @ best.weights).max() == pytest.approx(1, rel=1e-12)


def test_a_limit_on_steps_leaves_an_honest_gap():
    costs = numbers(8, 20) ** 2
    rough = best_weights(costs, np.arange(1.0, 9.0), SolverSettings(gap=0.0, max_iterations=3))
    fine = best_weights(costs, np.arange(1.0, 9.0), FINE)
    assert rough.iterations == 3
    assert rough.lower_bound < fine.objective < rough.objective


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("speedup", [best_weights, Separation(2), Principal(0.4)], ids=str)
def test_the_solution_reports_the_error_of_its_rows(name, speedup):
    solution = solve_eigen(ALL[name], weigh=speedup)
    assert solution.objective == pytest.approx(dense_error(ALL[name], solution.strategy), rel=1e-8)
    assert solution.objective >= solution.lower_bound
    for factor in solution.strategy.factors:
        assert (factor.matrix**2).sum(axis=0).max() == pytest.approx(1)
        again = factor.matrix @ factor.inverse @ factor.matrix
        np.testing.assert_allclose(again, factor.matrix, atol=1e-12)


def test_a_product_is_designed_axis_by_axis():
    factored = solve_eigen(PRODUCTS["range x prefix"], FINE)
    dense = solve_eigen_dense(PRODUCTS["range x prefix"].gram(), (4, 3), FINE)
    assert [factor.shape for factor in factored.strategy.factors] == [(4,), (3,)]
    assert factored.objective == pytest.approx(dense.objective, rel=1e-5)
    assert factored.lower_bound == pytest.approx(dense.lower_bound, rel=1e-9)


def test_the_order_of_the_cells_does_not_matter():
    """Li and Miklau, proposition 5."""
    gram = random_gram(12, 7)
    order = np.random.default_rng(1).permutation(7)
    plain = solve_eigen_dense(gram, (7,), FINE).objective
    assert solve_eigen_dense(gram[np.ix_(order, order)], (7,), FINE).objective == pytest.approx(
        plain, rel=1e-4
    )


def test_spare_columns_are_completed_where_the_rank_is_full():
    gram = Prefix(16).gram()
    solution = solve_eigen_dense(gram, (16,), FINE)
    (factor,) = solution.strategy.factors
    np.testing.assert_allclose((factor.matrix**2).sum(axis=0), 1, rtol=1e-9)
    v = factor.matrix.T @ factor.matrix
    assert solution.objective == pytest.approx(np.trace(gram @ np.linalg.inv(v)), rel=1e-9)
    values, vectors = np.linalg.eigh(gram)
    assert solution.objective < 0.95 * best_weights(vectors.T**2, values, FINE).objective


def test_residual_strategies_stay_in_their_space():
    (factor,) = solve_eigen(product(axis(Prefix, 9))).strategy.factors
    np.testing.assert_allclose(factor.matrix.sum(axis=1), 0, atol=1e-12)


@pytest.mark.parametrize("sizes", [(6,), (3, 5)])
def test_marginals_match_the_lower_bound(sizes):
    solution = solve_eigen(product(*(axis(Marginal, n) for n in sizes)))
    assert solution.status is Status.OPTIMAL
    assert solution.gap <= GAP


def test_degenerate_eigenvectors_do_not_spoil_two_way_marginals():
    """Li and Miklau: the error of marginals matches the bound. Each eigenspace has dimension 9."""
    part = np.kron(np.eye(4), np.eye(4)), np.kron(np.eye(4), np.ones((4, 4)))
    solution = solve_eigen_dense(sum(part), (4, 4))
    assert solution.status is Status.OPTIMAL
    assert solution.gap <= GAP


@pytest.mark.parametrize(
    "speedup", [Separation(100), Separation(1), Principal(1.0), Principal(0.97)], ids=str
)
def test_speedups_that_leave_nothing_out_are_exact(speedup):
    gram = random_gram(30, 20)
    exact = solve_eigen_dense(gram, (20,), FINE).objective
    fast = solve_eigen_dense(gram, (20,), FINE, speedup).objective
    assert fast == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("speedup", [Separation(4), Separation(16), Principal(0.2)], ids=str)
def test_speedups_cost_a_little(speedup):
    gram = Range(64).gram()
    exact = solve_eigen_dense(gram, (64,), FINE).objective
    fast = solve_eigen_dense(gram, (64,), FINE, speedup).objective
    assert exact < fast < 1.2 * exact


def test_the_total_has_nothing_to_choose():
    assert solve_eigen(Subworkload((), (Term(4.0, ()),))).objective == 4.0


@pytest.mark.parametrize(
    ("make", "value"), [(Separation, 0), (Principal, 0.0), (Principal, 1.5), (Principal, np.nan)]
)
def test_speedups_out_of_range_are_refused(make, value):
    with pytest.raises(InputError, match="was asked for"):
        make(value)


def test_a_dense_design_over_the_memory_limit_is_refused():
    settings = SolverSettings(max_bytes=5_000)
    with pytest.raises(ResourceExceeded, match=r"4 x 3 cells .* wff") as caught:
        solve_eigen(ALL["two products"], settings)
    assert caught.value.exit_code == 4
    assert solve_eigen(ALL["few rows"], settings).objective > 0


def test_principal_vectors_of_a_low_rank_are_all_of_it():
    gram = random_gram(3, 20)
    exact = solve_eigen_dense(gram, (20,), FINE).objective
    assert solve_eigen_dense(gram, (20,), FINE, Principal(0.15)).objective == exact
    assert solve_eigen_dense(gram, (20,), FINE, Principal(0.05)).objective > exact
