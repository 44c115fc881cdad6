"""Marginals over groups of codes in the fit: tied weights, trees, and the rows that come out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from adaptive_qs.cliques import count_rows, outermost_cliques
from adaptive_qs.domain import Domain
from adaptive_qs.generate.chains import shrink_to_measured, write_tree
from adaptive_qs.generate.loglinear import LogLinearModel
from adaptive_qs.generate.rows import SynthesisSettings, synthesize_rows
from adaptive_qs.generate.structure import CoarseDomain
from adaptive_qs.generate.targets import Target, make_target
from adaptive_qs.generate.tree import dependence_tree, mutual_information
from adaptive_qs.levels import Grouping
from adaptive_qs.residual import ReferenceModel, centered

SIZES = {"a": 6, "b": 4, "c": 3}
HALVES, THIRDS = (0, 0, 0, 1, 1, 1), (0, 0, 1, 1, 2, 2)
DOMAIN = Domain(
    Domain.from_sizes(SIZES).attributes,
    (Grouping(0, (0, 0, 1, 2, 2, 2)), Grouping(0, (0, 0, 0, 1, 1, 1)), Grouping(1, (0, 1, 1, 1))),
)
FINE_A, COARSE_A, COARSE_B = 3, 4, 5


def distribution(seed):
    """A table over all codes that depends on groups only, beside its single columns."""
    rng = np.random.default_rng(seed)
    p = np.einsum("a,b,c->abc", *(rng.dirichlet(3 * np.ones(n)) for n in SIZES.values()))
    tilt = np.array([[3.0, 0.4], [0.3, 2.0]])
    return p * DOMAIN.repeated(tilt, (COARSE_A, COARSE_B), (0, 1))[:, :, None] / 1.0


def with_all(p, rows, cliques):
    """A model with a product reference that knows these marginals without noise."""
    p = p * rows / p.sum()
    singles = [p.sum(axis=tuple(k for k in range(3) if k != i)) for i in range(3)]
    model = ReferenceModel(DOMAIN, [single / rows for single in singles])
    for clique in cliques:
        for tau in DOMAIN.below(clique):
            columns = DOMAIN.columns(tau)
            beyond = tuple(k for k in range(3) if k not in columns)
            counts = DOMAIN.summed(p.sum(axis=beyond), columns, tau)
            model.update(tau, centered(np.asarray(counts), DOMAIN, tau), 1.0)
    return model


def test_what_lies_below_a_wider_clique_is_left_out_and_levels_of_the_same_columns_are_kept():
    asked = [(0, 1), (COARSE_A, COARSE_B), (COARSE_A, COARSE_B, 2), (FINE_A, 1), (0,), (2,)]
    assert outermost_cliques(DOMAIN, [*asked, *asked]) == (
        (COARSE_A, COARSE_B, 2), (0, 1), (FINE_A, 1),
    )  # fmt: skip


def test_weights_of_groups_are_those_of_all_their_codes_and_levels_multiply():
    model = LogLinearModel(
        DOMAIN, [(0, 1), (COARSE_A, COARSE_B)], [np.ones(n) for n in SIZES.values()], 1
    )
    fine, coarse = np.exp(np.random.default_rng(0).normal(size=(6, 4))), np.array([[1, 2], [3, 4]])
    model.scale((COARSE_A, COARSE_B), coarse)
    model.scale_all({(0, 1): fine, (COARSE_A, COARSE_B): 2 * np.ones((2, 2))})
    wanted = 2 * fine * coarse[np.ix_((0, 0, 0, 1, 1, 1), (0, 1, 1, 1))]
    packed = model.factors.packed
    np.testing.assert_allclose(packed[:24].reshape(4, 6), wanted.T, rtol=1e-6)
    np.testing.assert_allclose(packed[24:].reshape(6, 4), wanted, rtol=1e-6)


@pytest.mark.parametrize("noise_std", [0.0, 2.0, 1e9])
def test_groups_move_as_wholes_towards_noisy_groups(noise_std):
    mean = np.arange(24, dtype=np.float32).reshape(6, 4)
    target = Target((COARSE_A, COARSE_B), np.full((2, 2), 70.0), noise_std)
    found = mean.copy()
    shrink_to_measured(DOMAIN, [found], [(0, 1)], [target])
    before, after = (DOMAIN.summed(m, (0, 1), target.clique) for m in (mean, found))
    weights = before / (before + noise_std**2)
    np.testing.assert_allclose(after, before + weights * (70 - before), rtol=1e-5)
    moved = DOMAIN.repeated(after / before, target.clique, (0, 1))
    np.testing.assert_allclose(found, mean * moved, rtol=1e-4, atol=1e-4)


def test_a_tree_divides_groups_among_codes_as_single_columns_are():
    p = distribution(1)
    model = with_all(p, 1000.0, [(COARSE_A, COARSE_B)])
    target = replace(make_target(model, (COARSE_A, COARSE_B)), noise_std=1e-6)
    counts = [p.sum(axis=rest) * 1000 / p.sum() for rest in ((1, 2), (0, 2), (0, 1))]
    tree = dependence_tree(DOMAIN, [target], counts)
    (edge,) = [node for node in tree if node.parent is not None]
    assert (edge.parent, edge.attribute) == (0, 1)
    joint = p.sum(axis=2) * 1000 / p.sum()
    np.testing.assert_allclose(edge.table, joint, rtol=1e-6)
    assert mutual_information(edge.table) == pytest.approx(mutual_information(target.counts))
    fitted = LogLinearModel(DOMAIN, [target.clique], counts, 1)
    write_tree(fitted, tree, 0.0)
    independent = np.outer(joint.sum(axis=1), joint.sum(axis=0)) / 1000
    packed = fitted.factors.packed[24:].reshape(6, 4)
    np.testing.assert_allclose(packed, joint / independent, rtol=1e-5)


def test_codes_that_nothing_tells_apart_are_one_in_the_fit_and_come_back_as_in_their_column():
    """Shares of codes of 20,000 rows, five standard errors of a binomial; one rare code of none."""
    singles = [np.array([5.0, 0.0, 1.0, 2.0, 3.0, 1.0]), np.ones(4), np.ones(3)]
    coarse = CoarseDomain(DOMAIN, [(COARSE_A, COARSE_B), (FINE_A, 2)], singles)
    assert coarse.domain.sizes == (3, 2, 3)
    assert coarse.domain.shape(coarse.clique((COARSE_A, COARSE_B))) == (2, 2)
    assert coarse.clique((FINE_A, 2)) == (0, 2)
    counts = coarse.target(Target((0,), singles[0], 1.0)).counts
    np.testing.assert_array_equal(counts, [5, 1, 6])
    table = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    spread = coarse.marginal_of_codes(table, (0, 1))
    np.testing.assert_allclose(DOMAIN.summed(spread, (0, 1), (FINE_A, COARSE_B)), table, rtol=1e-6)
    np.testing.assert_allclose(spread[3:, 0], 4 * np.array([2, 3, 1]) / 6, rtol=1e-6)
    rows = np.tile([[2, 1, 0], [0, 0, 2]], (10_000, 1)).astype(np.int32)
    codes = coarse.draw_codes(rows, np.random.default_rng(0))
    np.testing.assert_array_equal(codes[:, 2], rows[:, 2])
    for row, shares in ((0, np.array([0, 0, 0, 2, 3, 1]) / 6), (1, np.eye(6)[0])):
        found = np.bincount(codes[row::2, 0], minlength=6) / 10_000
        assert (np.abs(found - shares) <= 5 * np.sqrt(shares * (1 - shares) / 10_000)).all()
    assert set(codes[1::2, 1].tolist()) == {0}
    assert set(codes[0::2, 1].tolist()) == {1, 2, 3}


def test_rows_follow_marginals_over_groups():
    """L1 of a pair that was measured over groups alone: 24 cells of 4,000 rows are sampled to
    within √(24 · 2/π / 4,000) = 0.06 on average; with no pair measured it is 0.5."""
    p, rows = distribution(1), 4000
    model = with_all(p, float(rows), [(COARSE_A, COARSE_B)])
    settings = replace(SynthesisSettings(), fit_rows=rows, exact_cells=0)
    (found,) = synthesize_rows(
        model, [(COARSE_A, COARSE_B)], [(0, 1), (0, 2), (1, 2)], rows, 3, settings
    )
    pair = p.sum(axis=2) / p.sum()
    plain = Domain.from_sizes(SIZES)
    assert np.abs(count_rows(found, plain, (0, 1)) / rows - pair).sum() < 0.06
    independent = np.outer(pair.sum(axis=1), pair.sum(axis=0))
    assert np.abs(independent - pair).sum() > 0.4
