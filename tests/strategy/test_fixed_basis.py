"""Strategies of fixed families: one contract for all, then optimality and published errors."""

from __future__ import annotations

import math
import tracemalloc

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.strategy.bounds import total_variance
from adaptive_qs.strategy.fixed_basis import (
    best_weights,
    fourier_spectrum,
    solve_eigen,
    solve_fourier,
    solve_fourier_product,
    solve_residual_planner,
    solve_with_basis,
    strategy_basis,
)
from adaptive_qs.strategy.solution import (
    CenteringFactor,
    DenseFactor,
    SolverSettings,
    Status,
    Strategy,
)
from adaptive_qs.workload.axes import Affine, Circular, Marginal, Prefix, Range
from adaptive_qs.workload.residuals import Subworkload, Term
from scripts.published.eigen_speedups import Principal, Separation, solve_eigen_dense

from .problems import ALL, PRODUCTS, axis, dense_error, joint, numbers, product

TOTAL = Subworkload((), (Term(2.0, ()), Term(0.5, ())))


def waves(shape):
    """The unitary Fourier basis as columns."""
    cells = math.prod(shape)
    axes = tuple(range(1, len(shape) + 1))
    transformed = np.fft.fftn(np.eye(cells).reshape(cells, *shape), axes=axes)
    return transformed.reshape(cells, cells) / math.sqrt(cells)


def with_bases(subworkload):
    bases = (strategy_basis(numbers(n + 2, n, seed=n)) for n in subworkload.shape)
    return solve_with_basis(subworkload, tuple(bases))


FAMILIES = {
    "fourier": solve_fourier,
    "fourier product": lambda s: solve_fourier_product(s, SolverSettings()),
    "contrasts": solve_residual_planner,
    "bases": with_bases,
    "eigen": solve_eigen,
    "separation": lambda s: solve_eigen(s, weigh=Separation(2)),
    "principal": lambda s: solve_eigen(s, weigh=Principal(0.4)),
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_solution_reports_the_error_of_its_rows(family, name):
    solution = FAMILIES[family](ALL[name])
    exact = dense_error(ALL[name], solution.strategy)
    rel = 1e-9 if family in ("fourier", "contrasts") else 1e-8
    assert solution.strategy.shape == ALL[name].shape
    assert solution.objective == pytest.approx(exact, rel=rel)
    assert solution.objective >= solution.lower_bound
    if family in ("contrasts", "bases"):
        assert solution.lower_bound < solution.objective
        assert solution.status is Status.RESTRICTED
    if family == "fourier":
        expected = [(n,) for n in ALL[name].shape] if name in PRODUCTS else [ALL[name].shape]
        assert [factor.shape for factor in solution.strategy.factors] == expected
    for factor in solution.strategy.factors:
        b = factor.matrix
        assert (b * b).sum(axis=0).max() == pytest.approx(1)
        np.testing.assert_allclose(b @ factor.inverse @ b, b, atol=1e-12)
        if family == "bases":
            np.testing.assert_allclose(b.sum(axis=1), 0, atol=1e-12)


def test_the_total_has_nothing_to_choose():
    for family in FAMILIES.keys() - {"fourier product"}:
        solution = FAMILIES[family](TOTAL)
        assert solution.objective == pytest.approx(2.5)
        assert solution.status is Status.OPTIMAL
        assert solution.gap <= 1e-9
        assert solution.strategy.factors == ()


# Fourier strategies.


@pytest.mark.parametrize("name", ALL)
def test_the_spectrum_is_the_diagonal_in_the_fourier_basis(name):
    for term in ALL[name].terms:
        for factor in term.factors:
            f = waves(factor.shape)
            expected = np.diag(f.conj().T @ factor.gram() @ f).real.reshape(factor.shape)
            np.testing.assert_allclose(
                fourier_spectrum(factor), expected, rtol=1e-10, atol=1e-12 * expected.max()
            )


@pytest.mark.parametrize("name", ALL)
def test_rows_inverse_and_covariance_belong_together(name):
    for factor in solve_fourier(ALL[name]).strategy.factors:
        b, v = factor.matrix, factor.matrix.T @ factor.matrix
        np.testing.assert_allclose(np.diag(v), 1, rtol=1e-12)
        np.testing.assert_allclose(factor.inverse, np.linalg.pinv(b, rcond=1e-9), atol=1e-10)
        np.testing.assert_allclose(
            factor.covariance, np.linalg.pinv(v, rcond=1e-9, hermitian=True), atol=1e-9
        )
        f = waves(factor.shape)
        np.testing.assert_allclose(
            f.conj().T @ v @ f, np.diag(factor.weights.ravel()), atol=1e-12 * len(v)
        )


@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(ALL)))
@settings(max_examples=30, deadline=None)
def test_no_other_weights_are_better(seed, name):
    subworkload = ALL[name]
    c = np.diag(
        waves(subworkload.shape).conj().T @ subworkload.gram() @ waves(subworkload.shape)
    ).real.reshape(subworkload.shape)
    h = np.where(c > 1e-10, np.exp(np.random.default_rng(seed).normal(size=c.shape)), 0.0)
    h += np.roll(np.flip(h), 1, axis=tuple(range(h.ndim)))
    h *= h.size / h.sum()
    error = (c[h > 0] / h[h > 0]).sum()
    assert solve_fourier(subworkload).objective <= error * (1 + 1e-9)


@pytest.mark.parametrize(
    "subworkload",
    [
        product(axis(Circular, 7), scale=0.2),
        product(axis(Circular, 5), axis(Circular, 6)),
        product(axis(Marginal, 5), axis(Circular, 4)),
    ],
    ids=["circular", "circular 2-way", "with marginal"],
)
def test_circular_queries_are_solved_to_the_optimum(subworkload):
    solution = solve_fourier(subworkload)
    assert solution.status is Status.OPTIMAL
    assert solution.gap <= 1e-9


def test_prefix_queries_are_not():
    solution = solve_fourier(product(axis(Prefix, 8)))
    assert solution.status is Status.RESTRICTED
    assert solution.gap > 0.01


@pytest.mark.parametrize(
    ("solve", "subworkload"),
    [
        *((solve_fourier, product(axis(family, 10_000))) for family in (Circular, Range, Prefix)),
        (solve_residual_planner, product(*(axis(f, 10_000) for f in (Range, Prefix, Marginal)))),
    ],
    ids=["circular", "range", "prefix", "contrasts"],
)
def test_ten_thousand_values_need_no_square_matrix(solve, subworkload):
    tracemalloc.start()
    solution = solve(subworkload)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e7  # a square matrix would take 8e8 bytes
    if solve is solve_fourier:
        assert 1 <= solution.objective / solution.lower_bound < 2
    else:
        assert solution.objective > solution.lower_bound > 0


@pytest.mark.parametrize("name", ALL)
def test_products_of_fourier_strategies_lie_between_the_best_and_contrasts(name):
    found = solve_fourier_product(ALL[name], SolverSettings())
    assert solve_fourier(ALL[name]).objective * (1 - 1e-9) <= found.objective
    assert found.objective <= solve_residual_planner(ALL[name]).objective * (1 + 1e-9)


def test_a_single_product_of_fourier_strategies_is_exact():
    single, level = (product(axis(f, 5), axis(g, 4)) for f, g in ((Prefix, Range), (Circular,) * 2))
    found = solve_fourier_product(single, SolverSettings())
    assert found.objective == pytest.approx(solve_fourier(single).objective, rel=1e-9)
    assert solve_fourier_product(level, SolverSettings()).status is Status.OPTIMAL


# Fixed bases: the error equals its definition, and bad bases are refused.


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("split", [1, 2])
def test_the_error_of_factors_over_several_axes(name, split):
    """Factors of any grouping of the axes meet terms of any grouping."""
    shape = ALL[name].shape
    groups = [group for group in (shape[:split], shape[split:]) if group]
    factors = []
    for group in groups:
        cells = int(np.prod(group))
        factors.append(DenseFactor(numbers(cells + 1, cells, seed=cells), group))
    strategy = Strategy(tuple(factors))
    assert total_variance(ALL[name], strategy) == pytest.approx(
        dense_error(ALL[name], strategy), rel=1e-8
    )


def test_the_error_needs_a_strategy_of_the_same_shape():
    with pytest.raises(ValueError, match=r"shape \(4,\) cannot answer queries of \(3,\)"):
        total_variance(product(axis(Prefix, 3)), Strategy((CenteringFactor(4),)))


@pytest.mark.parametrize("sizes", [(5,), (2, 7), (3, 4, 2)])
def test_marginals_are_solved_to_the_optimum(sizes):
    solution = solve_residual_planner(product(*(axis(Marginal, n) for n in sizes), scale=3.0))
    assert solution.status is Status.OPTIMAL
    assert solution.gap <= 1e-9
    assert solution.objective == pytest.approx(3 * np.prod([(n - 1) ** 2 / n for n in sizes]))


def test_the_identity_as_a_basis_is_residual_planner():
    subworkload = joint(Affine(4, 3))
    basis = solve_with_basis(subworkload, (strategy_basis(np.eye(4)), strategy_basis(np.eye(3))))
    expected = solve_residual_planner(subworkload).objective
    assert basis.objective == pytest.approx(expected, rel=1e-12)


def test_the_scale_and_row_means_of_a_basis_do_not_matter():
    matrix = numbers(6, 4)
    factor = strategy_basis(matrix)
    other = strategy_basis(-7 * (matrix + numbers(6, 1, seed=1)))
    np.testing.assert_allclose(other.covariance, factor.covariance, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        factor.covariance, np.linalg.pinv(factor.matrix.T @ factor.matrix, rcond=1e-12), atol=1e-12
    )


@pytest.mark.parametrize(
    ("matrix", "complaint"),
    [
        (np.eye(4)[:2], "spans 2 of the 3 directions"),
        (np.ones((3, 2)), "spans 0 of the 1 directions"),
        ([[1.0, np.nan]], "finite"),
        (np.ones((2, 1)), "two or more"),
        (np.ones(3), "two or more"),
    ],
)
def test_a_basis_that_misses_directions_is_refused(matrix, complaint):
    with pytest.raises(InputError, match=complaint) as caught:
        strategy_basis(matrix)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


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


def test_a_dense_design_over_the_memory_limit_is_refused():
    settings = SolverSettings(max_bytes=5_000)
    with pytest.raises(ResourceExceeded, match=r"4 x 3 cells .* wff") as caught:
        solve_eigen(ALL["two products"], settings)
    assert caught.value.exit_code == 4
    assert solve_eigen(ALL["few rows"], settings).objective > 0
