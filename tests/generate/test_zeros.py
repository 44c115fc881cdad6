"""Structural zeros: no row lies in one, and what is left has the distribution that it should."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from adaptive_qs.domain import Domain, subsets
from adaptive_qs.errors import InputError
from adaptive_qs.generate.chains import FitSettings
from adaptive_qs.generate.rows import SynthesisSettings, synthesize_rows
from adaptive_qs.generate.targets import Target, make_target
from adaptive_qs.generate.zeros import (
    PairMoves,
    Zero,
    allowed_cells,
    clear_forbidden,
    independent_target,
    settle,
)
from adaptive_qs.residual import ReferenceModel, ResidualEstimate, decompose

from .helpers import assert_depends_on_the_key_only, assert_drawn_from, histogram, random_loglinear

SIZES = {"x": 4, "y": 3, "total": 6, "city": 5, "county": 3}
DOMAIN = Domain.from_sizes(SIZES)
SUM = Zero((0, 1, 2), np.arange(4)[:, None, None] + np.arange(3)[:, None] == np.arange(6))
LESS = Zero((0, 1), np.arange(4)[:, None] >= np.arange(3))
COUNTY = Zero((3, 4), np.array([0, 0, 1, 2, 1])[:, None] == np.arange(3))
NEVER = Zero((3,), np.arange(5) != 4)
ZEROS = (SUM, LESS, COUNTY, NEVER)
CHAINS = SynthesisSettings(fit=FitSettings(40, 12), fit_rows=20_000, exact_cells=0)


def allowed_everywhere(zeros=ZEROS):
    """By definition: one cell after the other."""
    allowed = np.ones(DOMAIN.sizes, dtype=bool)
    for cell in product(*map(range, DOMAIN.sizes)):
        allowed[cell] = all(zero.allowed[tuple(cell[i] for i in zero.clique)] for zero in zeros)
    return allowed


ALLOWED = allowed_everywhere()


def true_counts(rows=20_000, seed=1):
    """A table that keeps all zeros, with x and the city dependent."""
    rng = np.random.default_rng(seed)
    weights = rng.gamma(0.7, size=DOMAIN.sizes) * ALLOWED
    return rows * weights / weights.sum()


def model_of(counts, cliques, noise_std=1.0):
    """Estimates without error of all residuals of some cliques and of single attributes."""
    closure = {()} | {(i,) for i in range(5)} | {t for c in cliques for t in subsets(c)}
    estimates = {}
    for tau in closure:
        beyond = tuple(i for i in range(5) if i not in tau)
        values = decompose(counts.sum(axis=beyond), tau, tau)
        estimates[tau] = ResidualEstimate(values, 1 / noise_std**2)
    shares = [counts.sum(axis=tuple(k for k in range(5) if k != i)) for i in range(5)]
    shares = [np.maximum(s, 0.5) / np.maximum(s, 0.5).sum() for s in shares]
    return ReferenceModel(DOMAIN, tuple(shares), estimates)


MEASURED = [(0, 3), (1, 4)]


def rows_of(settings, zeros=ZEROS, num_rows=20_000):
    model = model_of(true_counts(), MEASURED)
    parts = synthesize_rows(model, MEASURED, MEASURED, num_rows, 3, settings, zeros=zeros)
    return np.concatenate(list(parts))


def shares_of(rows):
    counts = np.zeros(DOMAIN.sizes)
    np.add.at(counts, tuple(rows.T), 1)
    return counts / len(rows)


@pytest.mark.parametrize("settings", [SynthesisSettings(), CHAINS], ids=["exact", "chains"])
def test_no_row_lies_in_a_forbidden_cell_and_marginals_are_those_measured(settings):
    rows = rows_of(settings)
    shares, truth = shares_of(rows), true_counts() / 20_000
    assert shares[~ALLOWED].sum() == 0
    for clique in [(0,), (1,), (2,), (3,), (4,), *MEASURED]:
        beyond = tuple(i for i in range(5) if i not in clique)
        error = np.abs(shares.sum(axis=beyond) - truth.sum(axis=beyond)).sum()
        assert error < 0.02, clique


def test_moves_keep_the_distribution_where_nothing_can_change_alone():
    """x, y and their sum, a city and its county: from anywhere to the exact distribution."""
    cliques = [*MEASURED, *(zero.clique for zero in ZEROS if len(zero.clique) > 1)]
    model, joint = random_loglinear(DOMAIN, cliques, seed=7, spread=0.5, zeros=ZEROS)
    rows = np.zeros((20_000, 5), dtype=np.int32)
    assert ALLOWED[tuple(rows[0])]
    pairs = PairMoves(model, ZEROS, 1)
    for key in range(160):
        pairs(rows, key)  # a part of the rows
        model.sweep(rows, 1_000 + key)
    assert_drawn_from(histogram(rows, DOMAIN), joint)


def test_codes_that_a_table_does_not_list_do_not_hold_the_others():
    """20 cities are the only ones of their counties; 10 more, hardly any row, are of any county."""
    domain = Domain.from_sizes({"city": 30, "county": 20, "x": 3})
    zero = Zero((0, 1), np.vstack([np.eye(20), np.ones((10, 20))]).astype(bool))
    counts = np.zeros(domain.sizes)
    counts[range(20), range(20)] = np.random.default_rng(2).gamma(2.0, 200.0, (20, 3))
    closure = [(), (0,), (1,), (2,), (0, 2), (1, 2)]
    beyond = [tuple(i for i in range(3) if i not in tau) for tau in closure]
    estimates = {tau: ResidualEstimate(decompose(counts.sum(axis=axes), tau, tau), 1.0)
                 for tau, axes in zip(closure, beyond)}  # fmt: skip
    shares = tuple(np.maximum(counts.sum(axis=axes), 0.5) for axes in ((1, 2), (0, 2), (0, 1)))
    model = ReferenceModel(domain, tuple(share / share.sum() for share in shares), estimates)
    parts = synthesize_rows(model, closure[4:], closure[4:], 20_000, 3, CHAINS, zeros=[zero])
    found = np.bincount(np.concatenate([*parts])[:, 0], minlength=30) / 20_000
    assert np.abs(found - counts.sum(axis=(1, 2)) / counts.sum()).sum() < 0.005


def test_rows_under_zeros_depend_on_the_seed_and_not_on_the_workers():
    """Moves of values, branches, pairs, blocks and carried attributes have a part in them."""
    switch = [Zero((0, k), (np.arange(4) == 0)[:, None] == (np.arange(n) == 0))
              for k, n in ((1, 3), (2, 6))]  # fmt: skip
    less = Zero((2, 3), np.arange(6)[:, None] >= np.arange(5))
    zeros, counts = (*switch, less, COUNTY), np.ones(DOMAIN.sizes)

    def made(workers, seed):
        model = model_of(counts, [(0, 3), (1, 4), (2, 3)], noise_std=0.1)
        cliques = [(0, 3), (1, 4), (2, 3)]
        quick = SynthesisSettings(fit=FitSettings(8, 4), fit_rows=1_001, exact_cells=0)
        return np.concatenate(
            [*synthesize_rows(model, cliques, cliques, 1_001, seed, quick, workers, zeros=zeros)]
        )

    assert_depends_on_the_key_only(made)


def test_allowed_cells_of_a_marginal_are_those_that_each_zero_leaves():
    for clique in [(0,), (2,), (0, 2), (3, 4), (0, 1, 2), (1, 3)]:
        found = allowed_cells(ZEROS, DOMAIN, clique)
        beyond = tuple(i for i in range(5) if i not in clique)
        expected = np.logical_and.reduce(
            [
                np.broadcast_to(allowed_everywhere([zero]).any(axis=beyond), DOMAIN.shape(clique))
                for zero in ZEROS
            ]
        )
        assert np.array_equal(np.ones_like(expected) if found is None else found, expected)


def test_targets_lose_what_cannot_be():
    model = model_of(true_counts() + 5.0, [(3, 4)])
    target = make_target(model, (3, 4), COUNTY.allowed)
    assert target.counts[~COUNTY.allowed].sum() == 0
    assert target.counts.sum() == pytest.approx(model.total)
    single = clear_forbidden(Target((3,), np.array([5.0, 1, 1, 1, 2]), 1.0), ZEROS, DOMAIN)
    assert single.counts == pytest.approx(np.array([5, 1, 1, 1, 0]) * 10 / 8)


def test_attributes_under_a_zero_alone_keep_their_margins():
    singles = [np.array([4.0, 3, 2, 1]), np.array([2.0, 5, 3]), None, None, None]
    target = independent_target(LESS, singles)
    assert target.counts[~LESS.allowed].sum() == 0
    assert target.counts.sum(axis=0) == pytest.approx(singles[1])
    assert target.counts.sum() == pytest.approx(10)


def test_rows_settle_in_allowed_cells():
    rng = np.random.default_rng(5)
    rows = np.stack([rng.integers(0, n, 3_000) for n in DOMAIN.sizes], axis=1).astype(np.int32)
    kept = shares_of(rows)[ALLOWED].sum()
    assert 0 < kept < 0.1
    settle(rows, ZEROS, [np.ones(n) for n in DOMAIN.sizes], 1)
    assert shares_of(rows)[ALLOWED].sum() == pytest.approx(1)


def test_zeros_that_leave_nothing_are_said():
    rows = np.zeros((10, 5), dtype=np.int32)
    nothing = [
        Zero((0,), np.arange(4) == 0),
        Zero((0, 1), np.arange(4)[:, None] + np.arange(3) > 3),
    ]
    with pytest.raises(InputError, match="no row was found that meets all rules"):
        settle(rows, nothing, [np.ones(n) for n in DOMAIN.sizes], 1)
