"""Integer strategies: exact answers, exact sensitivities, and estimates that follow from them."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
import pytest

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.privacy.counts import LinearQuery
from adaptive_qs.privacy.events import Purpose
from adaptive_qs.strategy.integer import (
    MOST_COMPLETED,
    GridFactor,
    on_grid,
    round_matrix,
    table_estimate,
)
from adaptive_qs.strategy.integer import centered as rounding_centered
from adaptive_qs.strategy.solution import CenteringFactor, DenseFactor, IdentityFactor, Strategy
from adaptive_qs.workload.axes import Affine

RNG = np.random.default_rng(0)


def query(factors):
    """What is measured by a strategy."""
    return LinearQuery(Purpose.STRATEGY, ("a",), factors)


def centered_rows(*shape):
    rows = RNG.normal(size=(math.prod(shape) + 2, *shape))
    for axis in range(1, rows.ndim):
        rows = rows - rows.mean(axis=axis, keepdims=True)
    return rows.reshape(len(rows), -1)


def dense(*shape):
    return DenseFactor(centered_rows(*shape), shape)


STRATEGIES = {
    "total": (Strategy(()), True),
    "centering": (Strategy((CenteringFactor(5), CenteringFactor(3))), True),
    "identity": (Strategy((IdentityFactor(4), IdentityFactor(3))), False),
    "dense": (Strategy((dense(6),)), True),
    "dense pair": (Strategy((dense(4, 3),)), True),
    "mixed": (Strategy((dense(4), CenteringFactor(3), dense(2, 3))), True),
    "few rows": (Strategy((DenseFactor(centered_rows(6)[:2], (6,)), CenteringFactor(3))), True),
    "unbalanced": (
        Strategy((DenseFactor(np.tril(np.ones((5, 5))), (5,)), IdentityFactor(3))),
        False,
    ),
}


def integer_matrix(factors):
    """The whole matrix in Python's integers."""
    rows = []
    for factor in factors:
        if isinstance(factor, CenteringFactor):
            n = factor.size
            rows.append(n * np.eye(n, dtype=int) - np.ones((n, n), dtype=int))
        elif isinstance(factor, GridFactor):
            rows.append(factor.integers)
        else:
            rows.append(np.eye(factor.size, dtype=int))
    return reduce(np.kron, [r.astype(object) for r in rows], np.ones((1, 1), dtype=object))


@pytest.mark.parametrize("rows", [1_000, 2**22 + 1, 2**31 - 1])
@pytest.mark.parametrize("name", STRATEGIES)
def test_answers_are_exact_at_every_size(name, rows):
    """Small products take the floating-point path, large ones 64-bit integers up to 2⁶¹."""
    strategy, of_residual = STRATEGIES[name]
    bits = 61 - rows.bit_length()
    factors = on_grid(strategy, bits, of_residual).factors
    cells = math.prod(strategy.shape)
    spread = RNG.multinomial(rows, np.ones(cells) / cells)
    for table in (spread, np.eye(cells, dtype=np.int64)[cells // 2] * rows):
        found = query(factors).answers(table.reshape(strategy.shape)).ravel()
        assert found.dtype == np.int64
        expected = integer_matrix(factors) @ table.astype(object)
        assert found.tolist() == expected.tolist()
        assert max(map(abs, expected)) < 2**62


@pytest.mark.parametrize("name", STRATEGIES)
def test_sensitivity_is_the_largest_column_and_estimates_are_least_squares(name):
    strategy, of_residual = STRATEGIES[name]
    factors = on_grid(strategy, 30, of_residual).factors
    exact = integer_matrix(factors)
    assert query(factors).squared_sensitivity == (exact * exact).sum(axis=0).max()
    shape = query(factors).answers(np.zeros(strategy.shape, dtype=np.int64)).shape
    answers = RNG.normal(size=shape) * 1e6
    # Completed rows are smaller than the others by 2⁻¹²: their Gram matrix has a condition of 2²⁴.
    expected = np.linalg.pinv(exact.astype(float), rcond=1e-9) @ answers.ravel()
    found = table_estimate(factors, answers)
    assert found.shape == strategy.shape
    np.testing.assert_allclose(np.ravel(found), expected, rtol=0, atol=1e-7 * abs(expected).max())


@pytest.mark.parametrize("name", STRATEGIES)
def test_factors_say_what_their_integers_do(name):
    strategy, of_residual = STRATEGIES[name]
    factors = on_grid(strategy, 40, of_residual).factors
    assert abs(integer_matrix(factors)).max() <= 2**40
    for factor in factors:
        b = factor.matrix
        assert (b * b).sum(axis=0).max() == pytest.approx(1, rel=1e-12)
        inverse = np.linalg.pinv(b, rcond=1e-9)
        np.testing.assert_allclose(factor.inverse, inverse, rtol=0, atol=1e-8 * abs(inverse).max())
        covariance = inverse @ inverse.T
        atol = 1e-7 * abs(covariance).max()
        np.testing.assert_allclose(factor.covariance, covariance, rtol=0, atol=atol)


@pytest.mark.parametrize("bits", [14, 20])
@pytest.mark.parametrize("name", STRATEGIES)
def test_coefficients_stay_within_the_bits(name, bits):
    strategy, of_residual = STRATEGIES[name]
    try:
        factors = on_grid(strategy, bits, of_residual).factors
    except ResourceExceeded:
        assert bits == 14
        return
    assert abs(integer_matrix(factors)).max() <= 2**bits


@pytest.mark.parametrize("noise", [0.0, 1e-12, 1e-8, 1e-6])
@pytest.mark.parametrize("name", ["dense", "dense pair", "mixed", "few rows"])
def test_residuals_ignore_what_smaller_marginals_know(name, noise):
    """Also where a solver left rows that sum to a little: no estimate then holds the total."""
    strategy, _ = STRATEGIES[name]
    factors = tuple(
        DenseFactor(f.matrix + noise, f.shape) if isinstance(f, DenseFactor) else f
        for f in strategy.factors
    )
    matrix = integer_matrix(on_grid(Strategy(factors), 40, of_residual=True).factors)
    cells = matrix.reshape(-1, *strategy.shape)
    for axis in range(1, cells.ndim):
        assert not cells.sum(axis=axis).any()


def test_large_norms_are_exact():
    factor = GridFactor(np.array([[2**31 + 1, 5], [2**31 - 1, 7]]), (False,), (2,))
    assert factor.squared_norm == (2**31 + 1) ** 2 + (2**31 - 1) ** 2


def test_too_many_cells_are_refused():
    strategy = Strategy(tuple(CenteringFactor(100) for _ in range(4)))
    with pytest.raises(ResourceExceeded, match="100,000,000 cells is too large for exact integers"):
        on_grid(strategy, 26)
    assert on_grid(strategy, 27).factors == strategy.factors


# Rounded strategies keep balance and range, and lose next to nothing.


def independent(matrix):
    """As many rows, with the same range."""
    _, singular, right = np.linalg.svd(matrix, full_matrices=False)
    kept = singular > 1e-9 * singular[0]
    return right[kept] * np.sqrt(singular[kept])[:, None]


MATRICES = {
    "full": (rounding_centered(np.tril(np.ones((30, 30))), (30,)), (30,)),
    "few": (rounding_centered(RNG.normal(size=(3, 30)), (30,)), (30,)),
    "few on a pair": (rounding_centered(RNG.normal(size=(4, 63)), (7, 9)), (7, 9)),
    "affine": (independent(rounding_centered(Affine(8, 9).matrix(), (8, 9))), (8, 9)),
    "skewed": (rounding_centered(np.diag(10.0 ** -np.arange(0, 8, 0.5)), (16,)), (16,)),
    "twice": (rounding_centered(np.vstack([np.eye(20)] * 2), (20,)), (20,)),
}


def kept_queries(matrix, factor):
    """How far the least-squares estimate moves the queries of a strategy, of their largest."""
    moved = matrix @ factor.inverse @ factor.matrix - matrix
    return abs(moved).max() / abs(matrix).max()


@pytest.mark.parametrize("bits", [4, 6, 8, 12, 16, 24, 40])
@pytest.mark.parametrize("name", MATRICES)
def test_queries_of_a_strategy_are_determined_at_any_number_of_bits(name, bits):
    matrix, shape = MATRICES[name]
    strategy = Strategy((DenseFactor(matrix, shape),))
    (factor,) = on_grid(strategy, bits, of_residual=True).factors
    # Inverses of condition up to 2²⁴ (completed rows) in double precision.
    assert kept_queries(matrix, factor) < 1e-6


@pytest.mark.parametrize("name", ["full", "few", "few on a pair", "affine", "twice"])
def test_fine_integers_cost_nothing(name):
    matrix, shape = MATRICES[name]
    exact = DenseFactor(matrix, shape)
    (factor,) = on_grid(Strategy((exact,)), 24, of_residual=True).factors
    gram = exact.matrix.T @ exact.matrix
    error = np.trace(gram @ factor.covariance) / np.trace(gram @ exact.covariance)
    assert 1 - 1e-3 < error < 1 + 1e-3


@pytest.mark.parametrize("bits", [6, 10, 20])
@pytest.mark.parametrize("name", ["full", "few", "twice"])
def test_rounding_does_not_raise_the_sensitivity(name, bits):
    matrix, shape = MATRICES[name]
    rounded, _ = round_matrix(DenseFactor(matrix, shape).matrix, shape, bits)
    # Completed rows, of norm 2^(−bits/2) each way, come before the trimming.
    assert int((rounded * rounded).sum(axis=0).max()) <= 4**bits


@pytest.mark.parametrize("shape", [(1050,), (30, 35)])
def test_few_queries_on_many_cells_move_by_the_bound(shape):
    """Beyond MOST_COMPLETED nothing is completed: √cells · 2^-bits of the largest coefficient."""
    cells = math.prod(shape)
    assert cells > MOST_COMPLETED
    matrix = rounding_centered(RNG.normal(size=(30, cells)), shape)
    if len(shape) == 2:
        matrix = independent(rounding_centered(Affine(*shape).matrix(), shape))
    for bits in (24, 38):
        (factor,) = on_grid(Strategy((DenseFactor(matrix, shape),)), bits, of_residual=True).factors
        assert len(factor.integers) == len(matrix)
        # A dozen times √cells: the first cell takes up the roundings of a whole line, and the
        # queries are mixed by the inverse.
        assert kept_queries(matrix, factor) < 12 * math.sqrt(cells) * 2.0**-bits


def test_few_bits_on_many_cells_are_completed_by_differences():
    matrix = rounding_centered(RNG.normal(size=(3, 1050)), (30, 35))
    (factor,) = on_grid(Strategy((DenseFactor(matrix, (30, 35)),)), 12, of_residual=True).factors
    assert factor.is_full
    assert kept_queries(matrix, factor) < 1e-6


def test_balance_is_found_where_it_is():
    half = np.array([[1.0, -1, 0, 2, -2, 0]]) / 3  # sums to zero along the last axis of (2, 3)
    _, balanced = round_matrix(half, (2, 3), 12)
    assert balanced == (False, True)
    with pytest.raises(ResourceExceeded):
        on_grid(Strategy((DenseFactor(half, (2, 3)),)), 3)
