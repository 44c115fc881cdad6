"""Attributes that others determine: found, and changed together with them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.generate.chains import write_tree
from adaptive_qs.generate.loglinear import LogLinearModel
from adaptive_qs.generate.structure import carried_zeros, find_carried
from adaptive_qs.generate.targets import Target
from adaptive_qs.generate.tree import dependence_tree, fill_from_tree, pair_marginals
from adaptive_qs.generate.zeros import Zero

from .helpers import assert_drawn_from, chains_from, drawn_rows, histogram, margin, random_loglinear

SIZES = (6, 3, 2, 3, 3)
DOMAIN = Domain.from_sizes({f"a{i}": n for i, n in enumerate(SIZES)})
GROUP, HALF = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1])
ZEROS = (
    Zero((0, 1), GROUP[:, None] == np.arange(3)),  # a0 determines a1, which determines a2
    Zero((1, 2), HALF[:, None] == np.arange(2)),
    Zero((3, 4), np.arange(3)[:, None] == np.array([2, 0, 1])),  # each determines the other
    Zero((2, 3), np.array([[True, True, False], [True, True, True]])),
)
CLIQUES = ((0, 1), (0, 3), (1, 3), (1, 4), (2, 3), (2, 4))


def model_and_joint():
    """A model with random weights, of carried attributes as well, and its distribution."""
    cliques = (*CLIQUES, (1,), (3,), (4,))
    carried = find_carried(DOMAIN, CLIQUES, ZEROS)
    return random_loglinear(DOMAIN, cliques, 5, zeros=ZEROS, carried=carried)


def chains_of(model, joint, num_rows):
    rows = np.tile(np.argwhere(joint > 0)[0].astype(np.int32), (num_rows, 1))
    return chains_from(model, joint, CLIQUES, rows, np.random.default_rng(1))


def test_determined_attributes_are_carried_by_one_that_nothing_determines():
    carried = find_carried(DOMAIN, CLIQUES, ZEROS)
    assert {i: root for i, (root, _) in carried.values.items()} == {1: 0, 2: 0, 4: 3}
    np.testing.assert_array_equal(carried.values[2][1], HALF[GROUP])
    (left,) = carried_zeros(ZEROS, carried)
    assert left.clique == (0, 3)
    np.testing.assert_array_equal(left.allowed, ZEROS[3].allowed[HALF[GROUP]])


@pytest.mark.parametrize("order", [(2, 1, 0, 3), (1, 0, 3, 2)])
def test_the_order_of_rules_does_not_matter(order):
    found = find_carried(DOMAIN, CLIQUES, [ZEROS[k] for k in order])
    assert {i: root for i, (root, _) in found.values.items()} == {1: 0, 2: 0, 4: 3}
    np.testing.assert_array_equal(found.values[2][1], HALF[GROUP])


def test_given_attributes_and_large_tables_are_not_carried(monkeypatch):
    assert set(find_carried(DOMAIN, CLIQUES, ZEROS, given=(1,)).values) == {2, 4}
    monkeypatch.setattr("adaptive_qs.generate.structure.MOST_CARRIED", 10)
    assert not find_carried(DOMAIN, CLIQUES, ZEROS).values


def test_moves_reach_the_distribution_from_one_cell():
    model, joint = model_and_joint()
    chains = chains_of(model, joint, 40_000)
    for _ in range(25):
        chains.move()
    assert_drawn_from(histogram(chains.rows, DOMAIN), joint)


def test_a_sweep_changes_groups_as_often_as_rows_drawn_anew():
    """Given the rest, the new group does not depend on the old one, though a code determines it."""
    model, joint = model_and_joint()
    rows = drawn_rows(joint, 40_000)
    before = rows[:, 1].copy()
    model.sweep(rows, 1)
    model.carried.fill(rows)
    pair = margin(joint, (1, 3))
    anew = 1 - (pair**2 / pair.sum(axis=0)).sum()
    spread = (anew * (1 - anew) / len(rows)) ** 0.5
    assert abs((before != rows[:, 1]).mean() - anew) < 5 * spread


def test_a_condition_on_a_carried_attribute():
    model, joint = model_and_joint()
    chains = chains_of(model, joint, 40_000)
    for _ in range(25):
        chains.move()
    chances = {1: np.array([0.0, 1.0, 0.5]), 4: np.array([1.0, 1.0, 0.0])}
    found, share = chains.within(chances, 20_000)
    taken = joint * chances[1][:, None, None, None] * chances[4]
    assert share == pytest.approx(taken.sum(), rel=0.05)
    for _ in range(25):
        found.move()
    assert_drawn_from(histogram(found.rows, DOMAIN), taken / taken.sum())


def test_rows_of_the_tree_have_pairs_that_only_carried_attributes_measured():
    """Pairs of a0 and a3 come from those of a1 and a4, and the weights of these hold them."""
    rng = np.random.default_rng(2)
    shares, dependence = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(3), size=3)
    carried = find_carried(DOMAIN, CLIQUES, ZEROS[:3])
    pair = shares[:, None] * dependence[GROUP][:, [1, 2, 0]]  # a4 is 1, 2, 0 where a3 is 0, 1, 2
    joint = np.zeros(SIZES)
    for first, third in product(range(6), range(3)):
        cell = first, GROUP[first], HALF[GROUP[first]], third, (third + 1) % 3
        joint[cell] = pair[first, third]
    singles = [1000 * margin(joint, (i,)) for i in range(len(SIZES))]
    targets = [Target((1, 4), 1000 * margin(joint, (1, 4)), 1e-6)]
    found = pair_marginals(DOMAIN, targets, singles, carried)
    np.testing.assert_allclose(found[0, 3][1], 1000 * pair)
    tree = dependence_tree(DOMAIN, targets, singles, (), carried)
    assert sorted(node.attribute for node in tree) == [0, 3]
    rows = np.zeros((40_000, len(SIZES)), dtype=np.int32)
    fill_from_tree(rows, tree, singles, np.random.default_rng(1))
    assert_drawn_from(np.bincount(rows[:, [0, 3]] @ [3, 1], minlength=18), pair)
    model = LogLinearModel(DOMAIN, [(1, 4)], singles, 1, {}, (), carried)
    write_tree(model, tree, 1e-9)
    carried.fill(rows)
    model.sweep(rows, 3)
    model.carried.fill(rows)
    assert_drawn_from(histogram(rows, DOMAIN), joint)
