"""Blocks of attributes under zeros: found, and redrawn with the right distribution."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.generate.blocks import BlockMoves
from adaptive_qs.generate.linked import linked_rows, select_boxes
from adaptive_qs.generate.rows import Fitted
from adaptive_qs.generate.structure import ModeShares, SharedSteps, find_components
from adaptive_qs.generate.targets import Target
from adaptive_qs.generate.tree import pair_marginals
from adaptive_qs.generate.zeros import Zero

from .helpers import (
    assert_drawn_from,
    chains_from,
    drawn_rows,
    histogram,
    margin,
    random_loglinear,
    residuals_of,
)

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
    model, joint = random_loglinear(DOMAIN, CLIQUES, seed, workers=workers, zeros=zeros)
    targets = [Target(c, 1000 * margin(joint, c), 1.0) for c in CLIQUES]
    pairs = pair_marginals(DOMAIN, targets, [1000 * margin(joint, (i,)) for i in range(6)])
    return BlockMoves(model, blocks_of(zeros), pairs, zeros, workers), joint


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_the_shares_of_modes_are_restored_with_rows_that_were_there():
    zeros = (*SWITCH, LESS)
    _, joint = model_of(zeros)
    rows = drawn_rows(joint, 20_000)
    before, off = {tuple(row) for row in rows.tolist()}, (rows[:, 0] == 0).mean()
    counts = [np.ones(n) for n in SIZES]
    for i in range(3):
        counts[i] = np.where(np.arange(SIZES[i]) == 0, 0.2, 0.8 / (SIZES[i] - 1))
    counts[3] = np.array([0.4, 0.3, 0.3])
    assert abs(off - 0.25) > 0.01
    (block,) = blocks_of(zeros)
    known = [block.modes_of(axis) is not None for axis in range(len(block.clique))]
    assert known == [True, True, True, True, False]  # LESS leaves a4 its values in both modes
    ModeShares([block], counts).restore(rows, np.random.default_rng(1))
    assert abs((rows[:, 0] == 0).sum() - 0.25 * len(rows)) <= 1  # the mean of 0.2 (thrice) and 0.4
    assert {tuple(row) for row in rows.tolist()} <= before
    rows = rows[rows[:, 0] > 0]
    before = rows.copy()
    ModeShares([block], counts).restore(rows, np.random.default_rng(1))
    np.testing.assert_array_equal(rows, before)  # a mode without rows gets none


def test_values_that_zeros_leave_no_row_have_a_mode():
    never = Zero((0, 1), np.repeat([[True], [True], [False]], 3, axis=1))
    (block,) = blocks_of((*SWITCH, never))
    off, on, last = block.modes_of(0)
    assert (off != on, last) == (True, 0)


def test_a_move_redraws_some_rows_and_later_moves_the_others():
    moves, joint = model_of((*SWITCH, LESS))
    moves._trees = moves._trees._replace(parts=np.array([3]))
    rows = drawn_rows(joint, 60_000)
    start = rows.copy()
    group = np.arange(len(rows)) // 32 % 3
    for phase in range(3):
        before = rows.copy()
        moves(rows, 3_000 + phase)
        changed = (rows != before).any(axis=1)
        assert changed[group == phase].mean() > 0.3
        assert not changed[group != phase].any()
    assert (rows != start).any()
    assert_drawn_from(histogram(rows, DOMAIN), joint)


def test_components_with_too_many_patterns_are_redrawn_as_well(monkeypatch):
    monkeypatch.setattr("adaptive_qs.generate.structure.MOST_PATTERNS", 1)
    (block,) = blocks_of((*SWITCH, LESS))
    assert block.patterns is None
    assert block.repeats() == [1] * 5
    test_moves_keep_the_distribution((*SWITCH, LESS))


def test_attributes_that_determine_each_other_share_their_steps():
    both = Zero((0, 1), np.eye(3, dtype=bool))
    (component,) = find_components((both,))
    assert not component.is_block
    shared = SharedSteps([component])
    wanted, counted = np.array([200.0, 50.0, 50.0]), np.array([100.0, 150.0, 50.0])
    np.testing.assert_allclose(
        shared.log_ratio((1,), wanted, counted), np.log(wanted / counted) / 2
    )


@pytest.mark.parametrize("box", [{0: [1.0, 0.0, 0.0]}, {1: [0.0, 1.0, 0.0], 5: [0.2, 1.0]}])
def test_a_condition_has_the_conditional_distribution(box):
    """Of rows on the rare side as well, which moves of one or two attributes do not reach."""
    zeros, rows = (*SWITCH, LESS), 20_000
    moves, joint = model_of(zeros)
    start, rng = drawn_rows(joint, rows), np.random.default_rng(1)
    chains = chains_from(moves._model, joint, CLIQUES, start, rng, blocks=moves)
    means = {c: (margin(joint, c) * rows).astype(np.float32) for c in CLIQUES}
    chances = {i: np.array(chance) for i, chance in box.items()}
    wanted = select_boxes(DOMAIN, Fitted(chains, means, CLIQUES), [chances], rows, zeros)
    taken = joint.copy()
    for i, chance in chances.items():
        taken *= chance.reshape([-1 if k == i else 1 for k in range(6)])
    share = taken.sum()
    assert_drawn_from(histogram(wanted.states.rows, DOMAIN), taken / share)
    # At worst each weight is 0 or 1, in half the rows for what is left of dependence between them.
    error = np.sqrt(2 * share * (1 - share) / rows * len(box))
    assert abs(wanted.share - share) < 5 * error


def test_linked_rows_have_the_conditional_distribution_under_zeros():
    """Columns 2 to 4 state together which side a child is on; columns 0 and 1 are the parent's."""
    domain = Domain.from_sizes({"g": 3, "h": 2, "a": 3, "b": 3, "c": 4, "d": 3})
    off = [Zero((2, k), (np.arange(3) == 0)[:, None] == (np.arange(n) == 0))
           for k, n in ((3, 3), (4, 4))]  # fmt: skip
    cliques = [(0, 2), (1, 3), (0, 4), (2, 3), (3, 4), (2, 4), (4, 5), (1, 5)]
    _, joint = random_loglinear(domain, [(0, 1), *cliques], seed=4, zeros=off)
    count = 20_000
    rows = drawn_rows(joint, count)
    model = residuals_of(rows, domain, cliques)
    given = np.stack([np.arange(count) % 3, np.arange(count) % 2], axis=1).astype(np.int32)
    pages = linked_rows(model, cliques, cliques, given, 1, zeros=off, population=rows[:, :2])
    made = np.concatenate(list(pages))
    np.testing.assert_array_equal(made[:, :2], given)
    known = histogram(given, Domain.from_sizes({"g": 3, "h": 2}))[:, :, None, None, None, None]
    exact = joint / joint.sum(axis=(2, 3, 4, 5), keepdims=True) * known
    found = histogram(made, domain)
    assert not found[exact == 0].any()
    # Cells given the parent's are multinomial; 5 standard deviations of these counts and of those
    # of the rows that the model was fitted to.
    fitted = known * np.sqrt(exact / known / count * 6)
    assert (np.abs(found - exact) <= 5 * np.sqrt(exact) + 5 * fitted + 3).all()
    sides, expected = found[:, :, 0].sum(axis=(2, 3, 4)), exact[:, :, 0].sum(axis=(2, 3, 4))
    spread = np.sqrt(expected * (1 + 6))
    assert (np.abs(sides - expected) <= 5 * spread).all()
