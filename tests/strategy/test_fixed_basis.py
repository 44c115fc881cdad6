"""Strategies of fixed families: one contract for all, then optimality and published errors."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from adaptive_qs.strategy.bounds import (
    solve_fourier,
    solve_residual_planner,
    solve_with_basis,
    total_variance,
)
from adaptive_qs.strategy.solution import CenteringFactor, DenseFactor, Status, Strategy
from adaptive_qs.workload.axes import Circular, Marginal, Prefix, Range
from adaptive_qs.workload.residuals import Subworkload, Term

from .problems import ALL, PRODUCTS, axis, dense_error, numbers, product, random_basis

TOTAL = Subworkload((), (Term(2.0, ()), Term(0.5, ())))


def waves(shape):
    """The unitary Fourier basis as columns."""
    cells = math.prod(shape)
    axes = tuple(range(1, len(shape) + 1))
    transformed = np.fft.fftn(np.eye(cells).reshape(cells, *shape), axes=axes)
    return transformed.reshape(cells, cells) / math.sqrt(cells)


def with_bases(subworkload):
    return solve_with_basis(subworkload, tuple(map(random_basis, subworkload.shape)))


FAMILIES = {"fourier": solve_fourier, "contrasts": solve_residual_planner, "bases": with_bases}


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
    for solve in FAMILIES.values():
        solution = solve(TOTAL)
        assert solution.objective == pytest.approx(2.5)
        assert solution.status is Status.OPTIMAL
        assert solution.gap <= 1e-9
        assert solution.strategy.factors == ()


# Fourier strategies.


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


# Fixed bases: the error equals its definition.


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
