"""Rounded strategies keep balance and range, and lose next to nothing."""

import math

import numpy as np
import pytest

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.integers.grid import on_grid
from adaptive_qs.strategy.integers.rounding import (
    MOST_COMPLETED,
    centered,
    round_matrix,
    with_differences,
)
from adaptive_qs.strategy.matrix import DenseFactor, Strategy
from adaptive_qs.workload.joint_queries import Affine

RNG = np.random.default_rng(0)


def independent(matrix):
    """As many rows, with the same range."""
    _, singular, right = np.linalg.svd(matrix, full_matrices=False)
    kept = singular > 1e-9 * singular[0]
    return right[kept] * np.sqrt(singular[kept])[:, None]


MATRICES = {
    "full": (centered(np.tril(np.ones((30, 30))), (30,)), (30,)),
    "few": (centered(RNG.normal(size=(3, 30)), (30,)), (30,)),
    "few on a pair": (centered(RNG.normal(size=(4, 63)), (7, 9)), (7, 9)),
    "affine": (independent(centered(Affine(8, 9).matrix(), (8, 9))), (8, 9)),
    "skewed": (centered(np.diag(10.0 ** -np.arange(0, 8, 0.5)), (16,)), (16,)),
    "twice": (centered(np.vstack([np.eye(20)] * 2), (20,)), (20,)),
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
    matrix = centered(RNG.normal(size=(30, cells)), shape)
    if len(shape) == 2:
        matrix = independent(centered(Affine(*shape).matrix(), shape))
    for bits in (24, 38):
        (factor,) = on_grid(Strategy((DenseFactor(matrix, shape),)), bits, of_residual=True).factors
        assert len(factor.integers) == len(matrix)
        # A dozen times √cells: the first cell takes up the roundings of a whole line, and the
        # queries are mixed by the inverse.
        assert kept_queries(matrix, factor) < 12 * math.sqrt(cells) * 2.0**-bits


def test_few_bits_on_many_cells_are_completed_by_differences():
    matrix = centered(RNG.normal(size=(3, 1050)), (30, 35))
    (factor,) = on_grid(Strategy((DenseFactor(matrix, (30, 35)),)), 12, of_residual=True).factors
    assert factor.is_full
    assert kept_queries(matrix, factor) < 1e-6


@pytest.mark.parametrize("balanced", [(True, True), (True, False), (False, False)])
def test_differences_determine_all_that_is_balanced(balanced):
    shape = (6, 5)
    rows = with_differences(np.zeros((1, 30), dtype=np.int64), balanced, shape, 4)
    rank = math.prod(n - 1 if zero else n for n, zero in zip(shape, balanced))
    assert np.linalg.matrix_rank(rows) == rank
    for axis, zero in enumerate(balanced, start=1):
        assert rows.reshape(-1, *shape).sum(axis=axis).any() != zero


def test_balance_is_found_where_it_is():
    half = np.array([[1.0, -1, 0, 2, -2, 0]]) / 3  # sums to zero along the last axis of (2, 3)
    _, balanced = round_matrix(half, (2, 3), 12)
    assert balanced == (False, True)
    with pytest.raises(ResourceExceeded):
        on_grid(Strategy((DenseFactor(half, (2, 3)),)), 3)
