"""The tree of counts against dense least squares."""

import numpy as np
import pytest

from adaptive_qs.adaptive.preprocessing.tree import Tree

SHAPES = [Tree(2, 1), Tree(2, 4), Tree(3, 3), Tree(5, 2), Tree(7, 1)]


def matrix(tree):
    """One row for each node, one column for each leaf."""
    return np.array([tree.counts(leaf) for leaf in np.eye(tree.leaves, dtype=np.int64)]).T


@pytest.mark.parametrize("tree", SHAPES)
def test_one_row_changes_one_count_of_each_level(tree):
    nodes = matrix(tree)
    assert set(np.unique(nodes)) <= {0, 1}
    assert (nodes.sum(axis=0) == tree.height).all()
    assert (np.diff(nodes, axis=1) ** 2).sum() >= 2  # leaves are told apart


@pytest.mark.parametrize("tree", SHAPES)
def test_estimates_are_those_of_least_squares(tree):
    nodes = matrix(tree)
    noisy = np.random.default_rng(1).integers(-1000, 1000, nodes.shape[0])
    expected = np.linalg.lstsq(nodes.astype(float), noisy, rcond=None)[0]
    assert np.allclose(tree.consistent(noisy), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("tree", SHAPES)
def test_variances_of_prefixes_are_those_of_least_squares(tree):
    nodes = matrix(tree)
    covariance = np.linalg.inv(nodes.T @ nodes) * tree.height
    prefixes = np.tril(np.ones((tree.leaves, tree.leaves)))
    expected = np.einsum("ij,jk,ik->i", prefixes, covariance, prefixes)
    assert np.allclose(tree.prefix_variances(tree.leaves), expected, rtol=1e-10)


def test_missing_cells_at_the_end_are_empty():
    tree = Tree(2, 2)
    assert tree.counts(np.array([5, 6, 7])).tolist() == [11, 7, 5, 6, 7, 0]


@pytest.mark.parametrize("cells", [1, 2, 3, 64, 74, 1000, 4096, 7000])
def test_the_best_tree_is_no_worse_than_any(cells):
    best = Tree.best(cells)
    assert best.leaves >= cells
    error = best.prefix_variances(cells).mean()
    for branching in (2, 4, 16, 60):
        for height in range(1, 14):
            tree = Tree(branching, height)
            if cells <= tree.leaves <= 8 * cells:
                assert error <= tree.prefix_variances(cells).mean() * (1 + 1e-12)


def test_the_tree_beats_the_plain_histogram_by_far():
    # A prefix of a plain histogram at rho = 1/2 has a variance of half the cells on average.
    assert Tree.best(4096).prefix_variances(4096).mean() < 4096 / 2 / 40
