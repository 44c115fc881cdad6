"""Trees of dependences: their edges, rows drawn from them, and moves of their branches."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_qs.generate.loglinear import LogLinearModel
from adaptive_qs.generate.targets import Target
from adaptive_qs.generate.tree import TreeMoves, dependence_tree, pair_marginals, write_tree

from .helpers import (
    assert_drawn_from,
    domain_of,
    draw_from_tree,
    drawn_rows,
    histogram,
    margin,
    random_loglinear,
)

ROWS = 40_000
DOMAIN = domain_of(3, 2, 4, 2)


def tree_joint(seed=0):
    """p(a) p(c|a) p(b|c) p(d|a): a tree whose edges run against the order of the attributes."""
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.dirichlet(np.full(shape[-1], 0.7), size=shape[:-1])  # noqa: E731
    return np.einsum("a,ac,cb,ad->abcd", draw(3), draw(3, 4), draw(4, 2), draw(3, 2))


def targets_of(joint, cliques, noise_std=1.0):
    return [Target(c, ROWS * margin(joint, c), noise_std) for c in cliques]


def singles_of(joint):
    return [ROWS * margin(joint, (i,)) for i in range(joint.ndim)]


def start(joint, cliques, damping=2.0):
    targets, singles = targets_of(joint, cliques), singles_of(joint)
    tree = dependence_tree(DOMAIN, targets, singles)
    model = LogLinearModel(DOMAIN, cliques, singles, workers=1)
    write_tree(model, tree, damping)
    return model, draw_from_tree(tree, singles, ROWS, np.random.default_rng(1))


def edges(tree):
    return {tuple(sorted((n.parent, n.attribute))) for n in tree if n.parent is not None}


TREE = [(0, 2), (1, 2), (0, 3)]


@pytest.mark.parametrize("cliques", [TREE, [(0, 1, 2), (0, 3)], [*TREE, (1, 3), (2, 3)]], ids=str)
def test_a_tree_structured_table_is_drawn_exactly(cliques):
    joint = tree_joint()
    _, rows = start(joint, cliques)
    assert rows.shape == (ROWS, 4)
    assert rows.dtype == np.int32
    assert_drawn_from(histogram(rows, DOMAIN), joint)


def test_the_weights_hold_the_same_tree():
    """Without damping the model is the tree itself, so a sweep keeps the rows' distribution."""
    joint = tree_joint()
    model, rows = start(joint, TREE, damping=1e-9)
    for key in range(3):
        model.sweep(rows, key)
    assert_drawn_from(histogram(rows, DOMAIN), joint)


def test_without_measured_pairs_attributes_are_drawn_on_their_own():
    joint = tree_joint()
    _, rows = start(joint, [])
    product = np.einsum("a,b,c,d->abcd", *(margin(joint, (i,)) for i in range(4)))
    assert_drawn_from(histogram(rows, DOMAIN), product)


def test_a_value_that_the_pair_never_saw_is_still_drawn_from_somewhere():
    """The parent's value has counts of its own but none in the joint: the child's own share."""
    joint = np.zeros((2, 3))
    joint[0] = [0.2, 0.3, 0.5]
    domain = domain_of(2, 3)
    targets = [Target((0, 1), ROWS * joint, 1.0)]
    singles = [np.array([0.5, 0.5]) * ROWS, joint[0] * ROWS]
    tree = dependence_tree(domain, targets, singles)
    rows = draw_from_tree(tree, singles, ROWS, np.random.default_rng(1))
    assert_drawn_from(histogram(rows, domain), np.tile(joint[0] / 2, (2, 1)))


@pytest.mark.parametrize("seed", range(5))
def test_every_branch_is_contiguous(seed):
    """nodes[k : end] are node k and exactly its descendants; parents come before children."""
    rng = np.random.default_rng(seed)
    domain = domain_of(*[2] * 9)
    pairs = [(i, j) for i in range(9) for j in range(i + 1, 9) if rng.random() < 0.25]
    targets = [Target(p, 100 * rng.dirichlet(np.ones(4)).reshape(2, 2), 1.0) for p in pairs]
    tree = dependence_tree(domain, targets, [np.ones(2)] * 9)
    assert sorted(n.attribute for n in tree) == list(range(9))
    parent = {n.attribute: n.parent for n in tree}

    def descends(attribute, ancestor):
        while attribute is not None and attribute != ancestor:
            attribute = parent[attribute]
        return attribute == ancestor

    for k, node in enumerate(tree):
        branch = {n.attribute for n in tree[k : node.end]}
        assert branch == {a for a in range(9) if descends(a, node.attribute)}


@pytest.mark.parametrize(
    ("pairs", "expected", "roots"),
    [
        ([(i, j) for i in range(4) for j in range(i + 1, 4)], {(0, 2), (1, 2), (0, 3)}, {0}),
        ([(0, 2)], {(0, 2)}, {0, 1, 3}),
    ],
)
def test_the_forest_takes_the_edges_of_the_tree_that_are_measured(pairs, expected, roots):
    joint = tree_joint()
    tree = dependence_tree(DOMAIN, targets_of(joint, pairs), singles_of(joint))
    assert edges(tree) == expected
    assert {n.attribute for n in tree if n.parent is None} == roots


def test_a_pair_comes_from_its_least_noisy_target():
    joint = tree_joint()
    (noisy,) = targets_of(joint, [(0, 1, 2)], noise_std=5.0)
    (quiet,) = targets_of(joint, [(0, 2)], noise_std=1.0)
    for order in ([noisy, quiet], [quiet, noisy]):
        pairs = pair_marginals(DOMAIN, order, singles_of(joint))
        assert set(pairs) == {(0, 1), (0, 2), (1, 2)}
        assert pairs[0, 2][0].clique == quiet.clique
        assert pairs[0, 1][0].clique == noisy.clique
        exact = ROWS * margin(joint, (1, 2))
        np.testing.assert_allclose(pairs[1, 2][1], exact, atol=5.0)  # a standard deviation


# Moves against distributions obtained by enumeration.

BRANCHES_DOMAIN = domain_of(2, 3, 2, 2)
CLIQUES = {
    "tree": [(0, 1), (1, 2), (1, 3)],
    "cycle": [(0, 1), (1, 2), (2, 3), (0, 3)],
    "triples": [(0, 1, 2), (1, 2, 3)],
    "separate": [(0, 1), (2, 3)],
    "none": [],
}


def moves_of(cliques, spread=1.0, workers=1):
    """A model, its exact joint, and branch moves from the tree of its own pair marginals."""
    model, joint = random_loglinear(
        BRANCHES_DOMAIN, cliques, seed=4, spread=spread, workers=workers
    )
    targets, singles = targets_of(joint, cliques), singles_of(joint)
    tree = dependence_tree(BRANCHES_DOMAIN, targets, singles)
    return joint, TreeMoves(model, tree, singles, workers)


@pytest.fixture(params=["branches", "wide values"])
def moved_by(request, monkeypatch):
    """One kind of moves; all attributes that others depend on are wide."""
    monkeypatch.setattr("adaptive_qs.generate.loglinear.MOST_SWEPT", 0)
    kinds = {"branches": TreeMoves.__call__, "wide values": TreeMoves.replace_wide}
    return kinds[request.param]


@pytest.mark.parametrize("name", CLIQUES)
def test_a_move_keeps_the_models_distribution(name, moved_by):
    """Detailed balance, on a model that the proposing tree does not match."""
    joint, moves = moves_of(CLIQUES[name], spread=1.5)
    rows = drawn_rows(joint, ROWS)
    before = rows.copy()
    for key in range(3):
        moved_by(moves, rows, key)
    if name != "none" or moved_by is TreeMoves.__call__:  # nothing is wide that stands alone
        assert (rows != before).any(axis=1).mean() > 0.3
    assert_drawn_from(histogram(rows, BRANCHES_DOMAIN), joint)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CLIQUES if name != "none"])
def test_moves_alone_reach_the_models_distribution(name, moved_by):
    """From one cell, in three times or more of the moves after which no test tells them apart."""
    joint, moves = moves_of(CLIQUES[name], spread=0.7)
    rows = np.tile(np.array([1, 2, 1, 0], dtype=np.int32), (ROWS, 1))
    for key in range(300 if moved_by is TreeMoves.__call__ else 60):
        moved_by(moves, rows, 1000 + key)
    assert_drawn_from(histogram(rows, BRANCHES_DOMAIN), joint)


def test_a_move_changes_one_branch_only():
    """Of two separate trees, at most one moves in a row at a time."""
    _, moves = moves_of(CLIQUES["separate"])
    rows = np.tile(np.array([1, 2, 1, 0], dtype=np.int32), (ROWS, 1))
    before = rows.copy()
    moves(rows, 3)
    changed = rows != before
    assert not (changed[:, :2].any(axis=1) & changed[:, 2:].any(axis=1)).any()


def test_wide_attributes_are_left_to_their_own_moves(monkeypatch):
    monkeypatch.setattr("adaptive_qs.generate.loglinear.MOST_SWEPT", 2)
    model, _ = random_loglinear(BRANCHES_DOMAIN, CLIQUES["tree"], seed=4)
    rows = np.tile(np.array([1, 2, 1, 0], dtype=np.int32), (ROWS, 1))
    model.sweep(rows, 3)
    assert (rows[:, 1] == 2).all()
    assert all(len(set(rows[:, i])) == 2 for i in (0, 2, 3))


@pytest.mark.slow
def test_moves_reach_what_the_tree_thinks_impossible(moved_by):
    """The measured pair has empty cells, which the model's weights do not exclude."""
    domain = domain_of(2, 2)
    singles = [np.array([50.0, 50.0])] * 2
    tree = dependence_tree(domain, [Target((0, 1), np.diag([50.0, 50.0]), 1.0)], singles)
    model = LogLinearModel(domain, [(0, 1)], singles, workers=1)
    moves = TreeMoves(model, tree, singles, workers=1)
    rows = np.zeros((4000, 2), dtype=np.int32)
    for key in range(1500):
        moved_by(moves, rows, key)
    assert_drawn_from(histogram(rows, domain), np.full((2, 2), 0.25))
