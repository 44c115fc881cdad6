"""Weighted Fourier strategies: algebra, optimality in their family, published errors."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_qs.errors import InputError
from adaptive_qs.strategy.bounds import total_variance
from adaptive_qs.strategy.fixed_basis import (
    fourier_spectrum,
    solve_fourier,
    solve_residual_planner,
    solve_with_basis,
    strategy_basis,
)
from adaptive_qs.strategy.solution import (
    CenteringFactor,
    DenseFactor,
    FourierFactor,
    Status,
    Strategy,
)
from adaptive_qs.workload.axes import AbsDiff, Affine, Circular, Marginal, Prefix, Range
from adaptive_qs.workload.residuals import Subworkload, Term, decompose_workload

from .problems import ALL, PRODUCTS, all_ways, axis, dense_error, joint, numbers, product


def waves(shape):
    """The unitary Fourier basis as columns."""
    cells = math.prod(shape)
    transformed = np.fft.fftn(
        np.eye(cells).reshape(cells, *shape), axes=tuple(range(1, len(shape) + 1))
    )
    return transformed.reshape(cells, cells) / math.sqrt(cells)


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
def test_the_solution_reports_the_error_of_its_rows(name):
    solution = solve_fourier(ALL[name])
    assert solution.objective == pytest.approx(dense_error(ALL[name], solution.strategy), rel=1e-9)
    assert solution.objective >= solution.lower_bound
    expected = [(n,) for n in ALL[name].shape] if name in PRODUCTS else [ALL[name].shape]
    assert [factor.shape for factor in solution.strategy.factors] == expected


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
        Subworkload((), (Term(2.0, ()),)),
    ],
    ids=["circular", "circular 2-way", "with marginal", "total"],
)
def test_circular_queries_are_solved_to_the_optimum(subworkload):
    solution = solve_fourier(subworkload)
    assert solution.status is Status.OPTIMAL
    assert solution.gap <= 1e-9


def test_prefix_queries_are_not():
    solution = solve_fourier(product(axis(Prefix, 8)))
    assert solution.status is Status.RESTRICTED
    assert solution.gap > 0.01


@pytest.mark.parametrize("family", [Circular, Range, Prefix])
def test_ten_thousand_values_need_no_square_matrix(family):
    tracemalloc.start()
    solution = solve_fourier(product(axis(family, 10_000)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6  # a square matrix would take 8e8 bytes
    assert 1 <= solution.objective / solution.lower_bound < 2


@pytest.mark.parametrize(
    ("queries", "published"),
    [
        ([(1, Marginal), (2, Marginal)], 23.48),
        ([(1, Prefix), (2, Prefix)], 39.70),
        ([(1, Range), (2, Range)], 41.36),
        ([(1, Circular), (2, Circular)], 39.77),
        ([(1, Prefix), (2, Affine)], 45.23),
        ([(1, Prefix), (2, AbsDiff)], 64.11),
    ],
    ids=["marginal", "prefix", "range", "circular", "affine", "absdiff"],
)
def test_published_errors(queries, published):
    """He et al., table 4, ten values, 40 attributes, column WFF."""
    workload = all_ways([10] * 40, *queries)
    split = decompose_workload(workload)
    objectives = np.array([solve_fourier(one).objective for one in split.subworkloads])
    total = np.sqrt(objectives[split.class_of] * split.scales).sum() ** 2
    assert math.sqrt(total / workload.num_queries) == pytest.approx(published, abs=0.005)


@pytest.mark.parametrize(
    "weights",
    [np.ones(3), np.array([0.0, 4.0, 0.0, 0.0]), np.ones(4) / 2, np.array([6.0, -1, 0, -1])],
    ids=["shape", "one-sided", "sum", "negative"],
)
def test_weights_that_make_no_real_strategy_are_refused(weights):
    with pytest.raises(ValueError, match="Fourier weights"):
        FourierFactor((4,), weights)


# Fixed bases: the error equals its definition, and bad bases are refused.


def bases(shape):
    return tuple(strategy_basis(numbers(n + 2, n, seed=n)) for n in shape)


@pytest.mark.parametrize("name", ALL)
def test_residual_planner_reports_its_error(name):
    solution = solve_residual_planner(ALL[name])
    assert solution.objective == pytest.approx(dense_error(ALL[name], solution.strategy), rel=1e-9)
    assert solution.lower_bound < solution.objective
    assert solution.status is Status.RESTRICTED


@pytest.mark.parametrize("name", ALL)
def test_a_user_basis_reports_its_error(name):
    subworkload = ALL[name]
    solution = solve_with_basis(subworkload, bases(subworkload.shape))
    assert solution.objective == pytest.approx(
        dense_error(subworkload, solution.strategy), rel=1e-8
    )
    assert solution.objective > solution.lower_bound
    for factor in solution.strategy.factors:
        np.testing.assert_allclose(factor.matrix.sum(axis=1), 0, atol=1e-12)
        assert (factor.matrix**2).sum(axis=0).max() == pytest.approx(1)


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


def test_the_total_has_nothing_to_choose():
    solution = solve_residual_planner(Subworkload((), (Term(2.0, ()), Term(0.5, ()))))
    assert solution.objective == pytest.approx(2.5)
    assert solution.status is Status.OPTIMAL
    assert solution.strategy.factors == ()


def test_ten_thousand_values_need_no_square_matrix_of_planner():
    subworkload = product(axis(Range, 10_000), axis(Prefix, 10_000), axis(Marginal, 10_000))
    tracemalloc.start()
    solution = solve_residual_planner(subworkload)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6  # a square matrix would take 8e8 bytes
    assert solution.objective > solution.lower_bound > 0


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
