"""Blocks of attributes under zeros: found, and redrawn with the right distribution."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.generate.blocks import BlockMoves, SharedSteps, find_components
from adaptive_qs.generate.loglinear import LogLinearModel, Target
from adaptive_qs.generate.tree import pair_marginals
from adaptive_qs.generate.zeros import Zero, masks_of

from .helpers import assert_drawn_from, drawn_rows, histogram, margin

SIZES = (3, 3, 4, 3, 4, 2)
DOMAIN = Domain.from_sizes({f"a{i}": n for i, n in enumerate(SIZES)})
OFF = np.arange(3) == 0


def off_together(first, second):
    """The first value of one goes with the first of the other, and no other."""
    n, m = SIZES[first], SIZES[second]
    return Zero((first, second), (np.arange(n) == 0)[:, None] == (np.arange(m) == 0))


SWITCH = (off_together(0, 1), off_together(0, 2), off_together(0, 3))
LESS = Zero((2, 4), np.arange(4)[:, None] <= np.arange(4))
SUM = Zero((1, 2, 4), np.arange(3)[:, None, None] + np.arange(4)[:, None] <= np.arange(4) + 1)
CLIQUES = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 4), (2, 5), (0, 5), (1, 2, 4), (3, 4, 5))


def blocks_of(zeros):
    return [component for component in find_components(zeros) if component.is_block]


def model_of(zeros, workers=1, seed=3):
    rng = np.random.default_rng(seed)
    cliques = [*CLIQUES]
    singles = [rng.dirichlet(np.ones(n)) * 0.8 + 0.2 / n for n in SIZES]
    masks = masks_of(zeros, DOMAIN, cliques)
    model = LogLinearModel(DOMAIN, cliques, singles, workers, masks)
    tables = {c: np.exp(rng.normal(size=DOMAIN.shape(c))) for c in cliques}
    joint = np.zeros(SIZES)
    for cell in product(*map(range, SIZES)):
        joint[cell] = np.prod([s[v] for s, v in zip(singles, cell)])
        joint[cell] *= np.prod([t[tuple(cell[i] for i in c)] for c, t in tables.items()])
        joint[cell] *= all(z.allowed[tuple(cell[i] for i in z.clique)] for z in zeros)
    for clique, table in tables.items():
        model.scale(clique, table)
    joint /= joint.sum()
    targets = [Target(c, 1000 * margin(joint, c), 1.0) for c in cliques]
    pairs = pair_marginals(DOMAIN, targets, [1000 * margin(joint, (i,)) for i in range(6)])
    moves = BlockMoves(model, blocks_of(zeros), pairs, zeros, workers)
    return moves, joint


@pytest.mark.parametrize("zeros", [SWITCH, (*SWITCH, LESS), (*SWITCH, SUM)])
def test_moves_keep_the_distribution(zeros):
    moves, joint = model_of(zeros)
    rows = drawn_rows(joint, 100_000)
    before = rows.copy()
    for key in range(5):
        moves(rows, key, True)
    assert_drawn_from(histogram(rows, DOMAIN), joint)
    off = margin(joint, (0,))[0]
    changed = ((before[:, 0] == 0) != (rows[:, 0] == 0)).mean()
    assert changed > 0.3 * 2 * off * (1 - off)  # nearly as often as rows drawn anew


def test_moves_reach_the_distribution_of_a_block_given_the_rest():
    moves, joint = model_of((*SWITCH, LESS))
    held = {i for block in blocks_of((*SWITCH, LESS)) for i in block.clique}
    assert held == {0, 1, 2, 3, 4}
    value = 1
    given = joint[..., value] / joint[..., value].sum()
    start = np.argwhere(joint[..., value] > 0)[0]
    rows = np.tile(np.array([*start, value], dtype=np.int32), (40_000, 1))
    for key in range(60):
        moves(rows, key, True)
    whole = np.zeros(SIZES)
    whole[..., value] = given
    assert_drawn_from(histogram(rows, DOMAIN), whole)


def test_moves_do_not_depend_on_threads():
    found = []
    for workers in (1, 3):
        moves, joint = model_of((*SWITCH, SUM), workers)
        rows = drawn_rows(joint, 1_001)
        for key in range(3):
            moves(rows, key, True)
        found.append(rows)
    assert (found[0] == found[1]).all()


def test_blocks_are_those_that_single_values_and_pairs_do_not_connect():
    assert blocks_of((LESS,)) == []
    chain = (LESS, Zero((4, 5), np.arange(4)[:, None] >= np.arange(2)))
    assert blocks_of(chain) == []  # single values reach everything
    (block,) = blocks_of(SWITCH)
    assert block.clique == (0, 1, 2, 3)
    assert block.modes.max() == 1
    assert block.repeats() == [4, 4, 4, 4]


def test_what_several_attributes_tell_moves_their_weights_in_part():
    shared = SharedSteps(blocks_of(SWITCH))
    wanted, counted = np.array([200.0, 50.0, 50.0]), np.array([100.0, 150.0, 50.0])
    ratio = np.exp(shared.log_ratio((0,), wanted, counted))
    np.testing.assert_allclose(ratio[0], 2.0**0.25)
    np.testing.assert_allclose(ratio[1] / ratio[2], (50 / 150) / (50 / 50))
    np.testing.assert_allclose(
        np.exp(shared.log_ratio((5,), wanted[:2], counted[:2])), [2.0, 1 / 3]
    )
    both = shared.log_ratio((0, 1), np.diag([200.0, 50, 50]) + 1, np.diag([100.0, 50, 50]) + 1)
    assert 0 < both[0, 0] < np.log(2)
