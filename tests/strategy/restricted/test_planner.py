"""Fixed bases: the error equals its definition, and bad bases are refused."""

import tracemalloc

import numpy as np
import pytest

from adaptive_qs.errors import InputError
from adaptive_qs.strategy.matrix import CenteringFactor, DenseFactor, Strategy
from adaptive_qs.strategy.objective import total_variance
from adaptive_qs.strategy.restricted.planner import (
    solve_residual_planner,
    solve_with_basis,
    strategy_basis,
)
from adaptive_qs.strategy.solution import Status
from adaptive_qs.workload.axis_queries import Marginal, Prefix, Range
from adaptive_qs.workload.joint_queries import Affine
from adaptive_qs.workload.subworkload import Subworkload, Term

from ..problems import ALL, axis, dense_error, joint, numbers, product


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


def test_ten_thousand_values_need_no_square_matrix():
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
