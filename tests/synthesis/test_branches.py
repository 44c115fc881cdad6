"""Branch moves against distributions obtained by enumeration."""

import numpy as np
import pytest

from adaptive_qs.synthesis.branches import BranchMoves
from adaptive_qs.synthesis.loglinear import LogLinearModel
from adaptive_qs.synthesis.targets import Target
from adaptive_qs.synthesis.tree import dependence_tree

from .helpers import assert_drawn_from, domain_of, histogram, random_loglinear

DOMAIN = domain_of(2, 3, 2, 2)
ROWS = 40_000
CLIQUES = {
    "tree": [(0, 1), (1, 2), (1, 3)],
    "cycle": [(0, 1), (1, 2), (2, 3), (0, 3)],
    "triples": [(0, 1, 2), (1, 2, 3)],
    "separate": [(0, 1), (2, 3)],
    "none": [],
}


def moves_of(cliques, spread=1.0, workers=1):
    """A model, its exact joint, and branch moves from the tree of its own pair marginals."""
    model, joint = random_loglinear(DOMAIN, cliques, seed=4, spread=spread, workers=workers)
    margin = lambda c: joint.sum(axis=tuple(i for i in range(4) if i not in c))  # noqa: E731
    targets = [Target(c, ROWS * margin(c), 1.0) for c in cliques]
    singles = [ROWS * margin((i,)) for i in range(4)]
    tree = dependence_tree(DOMAIN, targets, singles)
    return joint, BranchMoves(model, tree, singles, workers)


@pytest.mark.parametrize("name", CLIQUES)
def test_a_move_keeps_the_models_distribution(name):
    """Detailed balance, on a model that the proposing tree does not match."""
    joint, moves = moves_of(CLIQUES[name], spread=1.5)
    cells = np.random.default_rng(0).choice(joint.size, size=ROWS, p=joint.ravel())
    rows = np.stack(np.unravel_index(cells, joint.shape), axis=1).astype(np.int32)
    before = rows.copy()
    for key in range(3):
        moves(rows, key)
    assert (rows != before).any(axis=1).mean() > 0.3
    assert_drawn_from(histogram(rows, DOMAIN), joint)


@pytest.mark.parametrize("name", CLIQUES)
def test_moves_alone_reach_the_models_distribution(name):
    joint, moves = moves_of(CLIQUES[name], spread=0.7)
    rows = np.tile(np.array([1, 2, 1, 0], dtype=np.int32), (ROWS, 1))
    for key in range(300):
        moves(rows, 1000 + key)
    assert_drawn_from(histogram(rows, DOMAIN), joint)


def test_a_move_changes_one_branch_only():
    """Of two separate trees, at most one moves in a row at a time."""
    _, moves = moves_of(CLIQUES["separate"])
    rows = np.tile(np.array([1, 2, 1, 0], dtype=np.int32), (ROWS, 1))
    before = rows.copy()
    moves(rows, 3)
    changed = rows != before
    assert not (changed[:, :2].any(axis=1) & changed[:, 2:].any(axis=1)).any()


def test_moves_depend_on_the_key_and_not_on_the_workers():
    results = []
    for workers, key in [(1, 5), (2, 5), (3, 5), (1, 6)]:
        _, moves = moves_of(CLIQUES["cycle"], workers=workers)
        rows = np.zeros((1001, 4), dtype=np.int32)
        moves(rows, key)
        results.append(rows)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    assert (results[0] != results[3]).any()


def test_moves_reach_what_the_tree_thinks_impossible():
    """The measured pair has empty cells, which the model's weights do not exclude."""
    domain = domain_of(2, 2)
    singles = [np.array([50.0, 50.0])] * 2
    tree = dependence_tree(domain, [Target((0, 1), np.diag([50.0, 50.0]), 1.0)], singles)
    model = LogLinearModel(domain, [(0, 1)], singles, workers=1)
    moves = BranchMoves(model, tree, singles, workers=1)
    rows = np.zeros((4000, 2), dtype=np.int32)
    for key in range(1500):
        moves(rows, key)
    assert_drawn_from(histogram(rows, domain), np.full((2, 2), 0.25))
