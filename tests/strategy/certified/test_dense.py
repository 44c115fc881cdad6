"""Certified strategies: known optima, published figures, symmetry, and what the user may ask."""

import numpy as np
import pytest

from adaptive_qs.strategy.certified.dense import solve_dense
from adaptive_qs.strategy.certified.lowrank import solve_rows
from adaptive_qs.strategy.certified.symmetry import symmetric_blocks
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.strategy.solution import Status

from .oracles import affine, center, centered, prefix, ranges

SETTINGS = SolverSettings()
TIGHT = SolverSettings(gap=1e-8)


def gram_of(rows):
    return rows.T.astype(float) @ rows


def windows(n, width=32):
    cell = np.arange(n)
    return np.array([(cell >= a) & (cell < a + width) for a in range(n - width + 1)])


def test_marginals_have_the_residual_planner_optimum():
    solution = solve_dense(3 * center(7), (7,), TIGHT)
    assert solution.objective == pytest.approx(3 * 36 / 7, rel=1e-8)
    assert solution.lower_bound == pytest.approx(3 * 36 / 7, rel=1e-8)


def test_independent_cells_are_measured_as_they_are():
    # G = diag(g): every V with unit diagonal has tr(G V⁺) ≥ Σ g, and V = I attains it.
    weights = np.array([1.0, 5.0, 0.01, 30.0, 2.0, 2.0])
    solution = solve_dense(np.diag(weights), (2, 3), TIGHT)
    assert solution.objective == pytest.approx(weights.sum(), rel=1e-8)
    assert solution.lower_bound <= weights.sum()


def test_a_good_start_is_used():
    weights = np.array([1.0, 5.0, 0.01, 30.0, 2.0, 2.0])
    solution = solve_dense(np.diag(weights), (6,), TIGHT, start=7 * weights)
    assert solution.iterations == 1
    assert solution.status == Status.OPTIMAL


@pytest.mark.parametrize(
    ("rows", "identity", "published"),
    [
        (ranges(64), 19.82, 9.73),
        (prefix(64), 24.08, 8.87),
        (windows(64), 23.90, 8.74),
        (prefix(256), 47.89, 10.66),
        (windows(256), 23.90, 9.93),
    ],
)
def test_error_is_not_above_the_published_optimum(rows, identity, published):
    """McKenna et al., Table 5, as the ratio to the identity strategy of the same row."""
    gram = gram_of(rows)
    solution = solve_dense(gram, (len(gram),), SETTINGS)
    ratio = np.sqrt(solution.objective / np.trace(gram))
    # Both figures are rounded to 0.005.
    assert ratio <= (published + 0.005) / (identity - 0.005)
    assert solution.gap <= SETTINGS.gap


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e15])
def test_scale_of_the_weights_does_not_matter(scale):
    gram = gram_of(centered(prefix(12), 12))
    solution = solve_dense(scale * gram, (12,), SETTINGS)
    assert solution.objective == pytest.approx(
        scale * solve_dense(gram, (12,), SETTINGS).objective, rel=1e-9
    )


def test_weights_over_many_orders_of_magnitude():
    rng = np.random.default_rng(3)
    rows = 10 ** rng.uniform(-2, 2, (20, 1)) * rng.normal(size=(20, 20))
    solution = solve_dense(gram_of(rows), (20,), SETTINGS)
    matrix = solution.strategy.factors[0].matrix
    errors = rows @ np.linalg.inv(matrix)
    assert solution.status == Status.OPTIMAL
    assert solution.objective == pytest.approx((errors**2).sum(), rel=1e-6)


def test_same_problem_same_bits():
    gram = gram_of(centered(affine(6), 6, 6))
    first, second = (solve_dense(gram, (6, 6), SETTINGS) for _ in range(2))
    assert first.objective == second.objective
    np.testing.assert_array_equal(
        first.strategy.factors[0].matrix, second.strategy.factors[0].matrix
    )


def test_residual_strategies_stay_in_their_residual_space():
    gram = gram_of(centered(affine(8), 8, 8))
    matrix = solve_dense(gram, (8, 8), SETTINGS).strategy.factors[0].matrix
    table = matrix.reshape(-1, 8, 8)
    # Rounding of a projection: a few ulps of entries of size at most 1.
    np.testing.assert_allclose(table.sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(table.sum(axis=2), 0, atol=1e-12)


def test_few_queries_over_many_cells():
    """99 queries over 2,500 cells, without a matrix over the cells."""
    rows = affine(50).astype(float).reshape(-1, 50, 50)
    rows = np.einsum("ij,qjk,kl->qil", center(50), rows, center(50), optimize=True)
    rows = rows.reshape(len(rows), -1)
    solution = solve_rows(rows, np.ones(len(rows)), (50, 50), SETTINGS)
    factor = solution.strategy.factors[0]
    assert solution.status == Status.OPTIMAL
    assert factor.matrix.shape == (np.linalg.matrix_rank(rows), 2500)
    errors = rows @ factor.inverse
    assert solution.objective == pytest.approx((errors**2).sum(), rel=1e-9)


def test_a_hidden_order_does_not_matter():
    shuffle = np.random.default_rng(5).permutation(100)
    gram = gram_of(ranges(100))
    hidden = solve_dense(gram[np.ix_(shuffle, shuffle)], (100,), SETTINGS)
    plain = solve_dense(gram, (100,), SETTINGS)
    assert hidden.status == Status.OPTIMAL
    assert hidden.objective == pytest.approx(plain.objective, rel=SETTINGS.gap)


@pytest.mark.parametrize(
    ("rows", "shape", "count"),
    [
        (affine(5), (5, 5), 4),  # swap; both axes reversed (once centered)
        (np.kron(prefix(4), prefix(4)), (4, 4), 4),  # both reversals (once centered)
        (np.kron(prefix(4), ranges(3)), (4, 3), 4),
        (ranges(7), (7,), 2),
        (np.random.default_rng(0).normal(size=(9, 9)), (3, 3), 1),
    ],
)
def test_symmetric_blocks_are_an_exact_change_of_coordinates(rows, shape, count):
    gram = gram_of(centered(rows, *shape))
    blocks = symmetric_blocks(lambda x: gram @ x, shape)
    assert len(blocks.bases) == count
    basis = np.concatenate([q.toarray() for q in blocks.bases], axis=1)
    np.testing.assert_allclose(basis.T @ basis, np.eye(len(gram)), atol=1e-14)
    owner = np.repeat(np.arange(count), [q.shape[1] for q in blocks.bases])
    turned = basis.T @ gram @ basis
    assert np.abs(turned[owner[:, None] != owner]).max(initial=0) < 1e-12 * np.abs(gram).max()
    # A diagonal matrix that is constant on orbits stays diagonal.
    y = np.random.default_rng(1).random(blocks.sizes.size)
    for q, members in zip(blocks.bases, blocks.members):
        np.testing.assert_allclose(
            (q.T @ (y[blocks.orbit][:, None] * q.toarray())), np.diag(y[members]), atol=1e-14
        )
    assert blocks.largest <= -(-len(gram) // count) + sum(shape)


def test_symmetry_that_holds_only_roughly_is_not_used():
    gram = gram_of(ranges(6))
    gram[0, 0] *= 1 + 1e-9
    assert len(symmetric_blocks(lambda x: gram @ x, (6,)).bases) == 1


@pytest.mark.parametrize(
    ("gram", "words"),
    [
        (np.eye(3), "shape"),
        (np.zeros((4, 4)), "zero"),
        (np.full((4, 4), np.nan), "not finite"),
        (np.triu(np.ones((4, 4))), "symmetric"),
    ],
)
def test_gram_matrices_that_are_none(gram, words):
    with pytest.raises(ValueError, match=words):
        solve_dense(gram, (4,), SETTINGS)


@pytest.mark.parametrize(
    ("rows", "weights", "words"),
    [
        (np.ones((2, 3)), np.ones(2), "over shape"),
        (np.ones((2, 4)), np.ones(3), "over shape"),
        (np.ones((2, 4)), np.array([1.0, 0.0]), "positive"),
        (np.full((2, 4), np.inf), np.ones(2), "finite"),
        (np.zeros((2, 4)), np.ones(2), "zero"),
    ],
)
def test_queries_that_are_none(rows, weights, words):
    with pytest.raises(ValueError, match=words):
        solve_rows(rows, weights, (4,), SETTINGS)
