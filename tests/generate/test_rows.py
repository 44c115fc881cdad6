"""From residual models to tables, with settings small enough for a test."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_qs import Synthesizer
from adaptive_qs.cliques import count_rows, downward_closure
from adaptive_qs.domain import Domain
from adaptive_qs.evaluation.marginals import workload_error
from adaptive_qs.generate.chains import (
    Chains,
    FitSettings,
    WeightUpdater,
    fit_weights,
    shrink_to_measured,
)
from adaptive_qs.generate.loglinear import LogLinearModel
from adaptive_qs.generate.rows import (
    MarginalTracker,
    Page,
    SynthesisSettings,
    choose_fit_rows,
    draw_pages,
    synthesize_rows,
    watch_list,
)
from adaptive_qs.generate.structure import CoarseDomain, cliques_of_fit, match_parts
from adaptive_qs.generate.targets import Target
from adaptive_qs.generate.tree import TreeMoves, dependence_tree
from adaptive_qs.residual import ReferenceModel, uniform_reference
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload

from .helpers import (
    domain_of,
    drawn_rows,
    histogram,
    margin,
    marginal_of,
    random_loglinear,
    residuals_of,
)

QUICK = SynthesisSettings(
    fit=FitSettings(sweeps=60, averaged=20, step=0.2), fit_rows=3000, refine_passes=2, exact_cells=0
)
EXACT = replace(QUICK, exact_cells=2**20)
DOMAIN = domain_of(3, 4, 1, 2, 5)
PAIRS = [(0, 1), (1, 3), (1, 4), (0, 4)]
WORKLOAD = list(combinations(range(5), 2))


@pytest.fixture(autouse=True)
def small_pages(monkeypatch):
    """Pages of one state of the chains."""
    monkeypatch.setattr("adaptive_qs.generate.rows.PAGE_CODES", 5)


def truth(count=3000, seed=0):
    """A table drawn from a log-linear model."""
    _, joint = random_loglinear(DOMAIN, [(0, 1), (1, 3, 4), (0, 4)], seed=3, spread=1.0)
    return drawn_rows(joint, count, seed)


def synthesize(num_rows, seed=0, workers=1, measured=PAIRS, how=QUICK, **more):
    model = residuals_of(truth(), DOMAIN, measured, 3.0)
    return table_of(model, measured, WORKLOAD, num_rows, seed, how, workers, **more)


def table_of(*arguments, **more):
    return np.concatenate(list(synthesize_rows(*arguments, **more)))


def distance(rows, clique):
    true = truth()
    a, b = (marginal_of(t, DOMAIN, clique) / len(t) for t in (rows, true))
    return np.abs(a - b).sum()


both_ways = pytest.mark.parametrize("how", [QUICK, EXACT], ids=["chains", "exact"])


@both_ways
@pytest.mark.parametrize("num_rows", [1, 2, 500, 2999, 3000, 3001, 9000, 40_000])
@pytest.mark.one_in(3)
def test_any_number_of_rows_has_codes_in_range(num_rows, how):
    rows = synthesize(num_rows, seed=4, how=how)
    assert rows.shape == (num_rows, 5)
    assert rows.dtype == np.int32
    assert ((rows >= 0) & (rows < DOMAIN.sizes)).all()
    if num_rows in (500, 3000, 9000, 40_000):  # the seed decides, not the number of workers
        again = synthesize(num_rows, seed=4, workers=2, how=how)
        np.testing.assert_array_equal(rows, again)
        assert (rows != synthesize(num_rows, seed=5, how=how)).any()


@both_ways
@pytest.mark.parametrize("num_rows", [3000, 9000, 40_000])
def test_measured_marginals_are_met_to_within_their_noise(num_rows, how):
    """Noise of 3 rows in each residual; a cell's is below it, so ‖·‖₁/rows < 3 · cells / 3000."""
    rows = synthesize(num_rows, how=how)
    for clique in PAIRS:
        assert distance(rows, clique) < 3 * DOMAIN.size(clique) / 3000 + 0.02


def test_a_measured_dependence_is_better_met_than_without_measuring_it():
    with_it, without = synthesize(3000), synthesize(3000, measured=[])
    for clique in PAIRS:
        assert distance(with_it, clique) < distance(without, clique) / 2


@both_ways
@pytest.mark.parametrize("measured", [[], [(0,)], [()]])
def test_without_measured_pairs_attributes_match_on_their_own(measured, how):
    rows = synthesize(4000, measured=measured, how=how)
    for i in range(5):
        assert distance(rows, (i,)) < 0.05


@both_ways
@pytest.mark.parametrize("sizes", [(1,), (4,), (1, 1), (1, 3)])
@pytest.mark.parametrize("count", [0, 1, 30])
def test_small_domains_and_tables_work(sizes, count, how):
    domain = domain_of(*sizes)
    table = np.random.default_rng(0).integers(0, sizes, (count, len(sizes))).astype(np.int32)
    everything = tuple(range(len(sizes)))
    model = residuals_of(table, domain, [everything], noise_std=0.5)
    for num_rows in (1, 40):
        rows = table_of(model, [everything], [everything], num_rows, 0, how)
        assert rows.shape == (num_rows, len(sizes))
        assert ((rows >= 0) & (rows < sizes)).all()


@both_ways
def test_a_model_that_lost_every_row_to_noise_still_gives_rows(how):
    model = ReferenceModel(DOMAIN, uniform_reference(DOMAIN))
    model.update((), np.array(-12.0), 0.01)
    rows = table_of(model, [], WORKLOAD, 50, 0, how)
    assert rows.shape == (50, 5)


@both_ways
@pytest.mark.parametrize("noise_std", [0.0, 4.0])
def test_a_functional_dependence_is_reproduced_to_within_the_noise(noise_std, how):
    """b = f(a) over 3000 rows; single-site Gibbs alone would be stuck or break it.

    The projected target may put at most the noise's mass, half of n_a n_b mean absolute errors,
    on forbidden pairs, and the fit's damping leaves the step of a few rows per cell.
    """
    rng = np.random.default_rng(0)
    domain = domain_of(8, 4, 3)
    a = rng.choice(8, 3000, p=np.arange(1, 9) / 36)
    table = np.stack([a, (3 * a + 1) % 4, rng.integers(0, 3, 3000)], axis=1).astype(np.int32)
    cliques = [(0, 1), (1, 2)]
    model = residuals_of(table, domain, cliques, noise_std)
    rows = table_of(model, cliques, [(0, 1), (0, 2), (1, 2)], 3000, 0, how)
    broken = np.mean(rows[:, 1] != (3 * rows[:, 0] + 1) % 4)
    assert broken <= 32 * 0.4 * noise_std / 3000 + 0.01
    shares = np.bincount(rows[:, 0], minlength=8) / 3000
    assert np.abs(shares - np.bincount(a, minlength=8) / 3000).sum() < 0.03 + 8 * noise_std / 3000


def test_further_samples_of_one_release_differ_but_agree_in_distribution():
    first, second = synthesize(3000, seed=1), synthesize(3000, seed=2)
    assert (first != second).any()
    for clique in PAIRS:
        a, b = (marginal_of(t, DOMAIN, clique) / 3000 for t in (first, second))
        # Two independent samples of 3000 rows differ by about 2 sqrt(cells / (π rows)).
        assert np.abs(a - b).sum() < 3 * math.sqrt(DOMAIN.size(clique) / 3000)


def test_progress_tells_every_step_of_each_phase():
    heard = []
    synthesize(40_000, progress=lambda *step: heard.append(step))
    for phase, total in (("fit", QUICK.fit.sweeps), ("draw", 14)):
        steps = [(done, of) for name, done, of in heard if name == phase]
        assert steps == [(k + 1, total) for k in range(total)]


def test_the_exact_fit_tells_steps_up_to_its_end():
    heard = []
    synthesize(3000, how=EXACT, progress=lambda *step: heard.append(step))
    steps = [(done, of) for name, done, of in heard if name == "fit"]
    assert len({of for _, of in steps}) == 1
    assert [done for done, _ in steps[:-1]] == list(range(1, len(steps)))
    assert steps[-1][0] == steps[-1][1]


def test_rows_come_page_by_page():
    model = residuals_of(truth(), DOMAIN, PAIRS, 3.0)
    pages = [len(rows) for rows in synthesize_rows(model, PAIRS, WORKLOAD, 40_000, 0, QUICK)]
    assert (len(pages), sum(pages)) == (14, 40_000)
    assert max(pages) - min(pages) <= 1


def test_many_pages_together_are_as_far_off_as_a_page():
    """What a page leaves is wanted of the next: the rows off hardly grow with the table.

    Pages drawn apart from each other would be off by about sqrt(2 · cells · rows / π).
    """
    model = residuals_of(truth(), DOMAIN, PAIRS, 0.0)

    def rows_off(num_rows):
        rows = table_of(model, PAIRS, PAIRS, num_rows, 0, QUICK)
        shares = [marginal_of(truth(), DOMAIN, c) / 3000 for c in PAIRS]
        counts = [marginal_of(rows, DOMAIN, c) for c in PAIRS]
        return sum(np.abs(n - s * num_rows).sum() for n, s in zip(counts, shares))

    apart = sum(math.sqrt(2 * DOMAIN.size(c) * 36_000 / math.pi) for c in PAIRS)
    assert rows_off(36_000) < max(1.5 * rows_off(3000), apart / 20)


class Walk:
    """Chains whose state tells the row and the step; their moves change the step only."""

    def __init__(self, size, values=4):
        self.rng = np.random.default_rng(0)
        self.rows = np.stack([np.arange(size), np.zeros(size)], axis=1).astype(np.int32)
        self._values = values
        self.steps = 0

    def advance(self, times=1):
        return np.concatenate([self._next() for _ in range(times)])

    def _next(self):
        self.rows, self.steps = self.rows.copy(), self.steps + 1
        self.rows[:, 1] = self.rng.integers(0, self._values, len(self.rows))
        return self.rows


def watch_of(size, wanted):
    """Wants these counts of the second attribute in as many rows as there are chains."""
    return MarginalTracker(
        domain_of(size, len(wanted)), [(1,)], [np.array(wanted, dtype=np.float32)]
    )


@pytest.mark.parametrize("num_rows", [1, 60, 99, 100, 101, 130, 250, 1_000])
def test_pages_are_even_and_repeat_no_chain(num_rows, monkeypatch):
    monkeypatch.setattr("adaptive_qs.generate.rows.PAGE_CODES", 200)
    pages = list(draw_pages(Walk(100), watch_of(100, [25, 25, 25, 25]), num_rows, 3, 1))
    assert sum(map(len, pages)) == num_rows
    assert max(map(len, pages)) - min(map(len, pages)) <= 1
    assert len(pages) == -(-num_rows // 100)
    for rows in pages:
        assert len(set(rows[:, 0].tolist())) == len(rows)


@pytest.mark.parametrize("num_rows", [70, 130, 330, 900, 3_000])
def test_tables_of_any_length_have_the_wanted_shares(num_rows, monkeypatch):
    """Chains draw evenly; what is wanted is not even, and every move towards it is proposed."""
    monkeypatch.setattr("adaptive_qs.generate.rows.PAGE_CODES", 200)
    shares = np.array([0.28, 0.26, 0.24, 0.22])
    pages = draw_pages(Walk(100), watch_of(100, 100 * shares), num_rows, 3, 1)
    rows = np.concatenate(list(pages))
    counts = np.bincount(rows[:, 1], minlength=4)
    # A row is moved wherever that lowers the distance, and three in four proposals are moves.
    assert np.abs(counts - num_rows * shares).sum() <= 6


@pytest.mark.parametrize("passes", [0, 1, 3])
def test_every_page_takes_one_step_and_the_last_as_many_more_as_passes(passes, monkeypatch):
    monkeypatch.setattr("adaptive_qs.generate.rows.PAGE_CODES", 100)
    walk = Walk(50)
    list(draw_pages(walk, watch_of(50, [20, 10, 10, 10]), 150, passes, 1))
    assert walk.steps == 3 + passes


def test_few_chains_give_a_page_several_states(monkeypatch):
    monkeypatch.setattr("adaptive_qs.generate.rows.PAGE_CODES", 2 * 250)
    pages = list(draw_pages(Walk(100), watch_of(100, [30, 30, 20, 20]), 900, 3, 1))
    assert [len(rows) for rows in pages] == [300] * 3
    for rows in pages:
        assert set(np.bincount(rows[:, 0])) == {3}
    counts = np.bincount(np.concatenate(pages)[:, 1], minlength=4)
    assert np.abs(counts - [270, 270, 180, 180]).sum() <= 4


def test_more_passes_come_nearer_and_none_change_nothing():
    def off(passes):
        walk = Walk(400, values=40)  # a proposal that helps is rare
        wanted = np.r_[np.full(4, 100.0), np.zeros(36)]
        (rows,) = draw_pages(walk, watch_of(400, wanted), 400, passes, 1)
        return np.abs(np.bincount(rows[:, 1], minlength=40) - wanted).sum()

    assert off(0) > off(1) > off(3) > off(9)
    walk = Walk(400)
    walk.advance()
    state = walk.rows.copy()
    again = Walk(400)
    (rows,) = draw_pages(again, watch_of(400, [400, 0, 0, 0]), 400, 0, 1)
    order = np.argsort(rows[:, 0])
    np.testing.assert_array_equal(rows[order], state)


@pytest.mark.parametrize("noise_std", [0.0, 2.0, 1e9])
def test_means_and_targets_are_weighted_by_their_precisions(noise_std):
    mean = np.array([[40.0, 9.0], [0.0, 1.0]], dtype=np.float32)
    target = Target((0, 2), np.array([[30.0, 12.0], [4.0, 0.0]]), noise_std)
    means = [np.ones(3, dtype=np.float32), mean.copy()]
    domain = domain_of(2, 3, 2, 2)
    shrink_to_measured(domain, means, [(1,), (0, 2)], [target, Target((3,), np.ones(2), 0.0)])
    of_mean, of_target = 1 / np.maximum(mean, 0.5), 1 / max(noise_std, 1e-12) ** 2
    wanted = (of_mean * mean + of_target * target.counts) / (of_mean + of_target)
    np.testing.assert_allclose(means[1], wanted, rtol=1e-5, atol=1e-5)
    assert (means[0] == 1).all()


@pytest.mark.parametrize("noise_std", [0.0, 2.0, 1e9])
def test_watched_marginals_follow_pairs_inside_them_and_then_their_own_targets(noise_std):
    """Cells of one cell of a pair move together, by the pair's weighted mean."""
    domain = domain_of(2, 3, 2)
    mean = np.random.default_rng(0).uniform(1, 9, (2, 3, 2)).astype(np.float32)
    pair = Target((0, 2), np.array([[30.0, 12.0], [4.0, 0.0]]), noise_std)
    before = mean.sum(axis=1)
    weight = before / (before + noise_std**2)
    wanted = mean * ((1 - weight) + weight * pair.counts / before)[:, None]
    found = mean.copy()
    shrink_to_measured(domain, [found], [(0, 1, 2)], [pair])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    both = mean.copy()
    own = Target((0, 1, 2), np.full((2, 3, 2), 5.0), 3.0)
    shrink_to_measured(domain, [both], [(0, 1, 2)], [own, pair])
    shrink_to_measured(domain, [found], [(0, 1, 2)], [own])
    np.testing.assert_array_equal(both, found)


def test_a_combination_gives_way_to_parts_that_weigh_more_where_they_hold_all_its_pairs():
    domain, triple, pairs = domain_of(2, 3, 2, 2), (0, 1, 2), list(combinations(range(3), 2))
    measured = [triple, (0, 1), (2, 3)]
    light = dict.fromkeys(pairs, 1.0) | {triple: 0.1, (2, 3): 1.0}
    cliques, refined = cliques_of_fit(domain, measured, light)
    assert set(cliques) == {*pairs, (2, 3)}
    assert refined == {triple: tuple(pairs)}
    for weights in (light | {triple: 1.0}, {**light, (0, 1): 0.1}, {triple: 0.1}, [triple, *pairs]):
        assert cliques_of_fit(domain, measured, weights) == ((triple, (2, 3)), {})


def test_a_combination_that_gave_way_is_followed_in_what_its_parts_leave_open():
    pairs, triple = [*PAIRS, (3, 4)], (1, 3, 4)
    weights, how = dict.fromkeys(pairs, 1.0) | {triple: 0.1}, replace(QUICK, refine_passes=0)
    rows = [
        table_of(residuals_of(truth(), DOMAIN, measured, 3.0), measured, weights, 40_000, 0, how)
        for measured in (pairs, [*pairs, triple])
    ]
    assert distance(rows[1], triple) < distance(rows[0], triple) / 2
    for pair in pairs:
        assert distance(rows[1], pair) < distance(rows[0], pair) + 0.01
    desired, counted = np.random.default_rng(0).uniform(1, 9, (2, 2, 3, 4))
    moved = match_parts(desired, counted, list(combinations(range(3), 2)))
    for axis in range(3):
        before, after = (abs((one - counted).sum(axis=axis)).max() for one in (desired, moved))
        assert after < before / 20
    change = np.log(moved / desired)  # a sum of functions of two axes has no differences along all
    for axis in range(3):
        change = np.diff(change, axis=axis)
    np.testing.assert_allclose(change, 0.0, atol=1e-12)


@pytest.mark.parametrize("cells", [2**26, 3999, 599, 250, 10])
@pytest.mark.parametrize("counts", [40_000_000, 4000, 2000, 1])
def test_the_watch_list_is_as_much_of_the_workload_as_the_limits_allow(cells, counts):
    domain = domain_of(10, 10, 10, 10)
    workload = list(combinations(range(4), 3))
    pairs = list(combinations(range(4), 2))
    settings = SynthesisSettings(watched_cells=cells, watched_counts=counts)
    watched = watch_list(domain, workload, [(1, 3)], 1000, settings)
    assert len(set(watched)) == len(watched) <= max(counts // 1000, 1)
    assert sum(map(domain.size, watched)) <= cells
    assert set(watched) <= {c for c in downward_closure(workload) if c}
    if cells >= 4000 and counts >= 4000:
        assert set(watched) == set(workload)
    elif cells >= 600 and counts >= 6000:
        assert set(watched) == set(pairs)
    elif cells >= 250:
        assert (1, 3) in watched


@pytest.mark.parametrize("workload", [[(0,)], [(0,), (2,)], [(0, 1), (2,)]])
def test_the_watch_list_never_holds_the_empty_clique(workload):
    assert () not in watch_list(domain_of(3, 3, 3), workload, [], 1000, SynthesisSettings())


def test_wide_attributes_are_fitted_with_fewer_rows():
    settings = SynthesisSettings()
    narrow = Domain.from_sizes({"a": 10, "b": 10})
    wide = Domain.from_sizes({"a": 100_000, "b": 4})
    assert choose_fit_rows(narrow, [(0, 1)], settings) == settings.fit_rows
    rows = choose_fit_rows(wide, [(0, 1)], settings)
    assert settings.least_rows <= rows < settings.fit_rows
    assert rows * 2 * 100_004 * settings.fit.sweeps <= settings.most_steps


FIT_DOMAIN = domain_of(3, 4, 2)
CLIQUES = [(0, 1), (1, 2), (0, 2)]
ROWS = 20_000


def joint():
    return random_loglinear(FIT_DOMAIN, CLIQUES, seed=1, spread=1.0)[1]


def fitted(settings, watched=(), workers=1, noise_std=0.0):
    """A model fitted from independence to the exact marginals of a table without a tree shape."""
    table = ROWS * joint()
    targets = [Target(c, margin(table, c), noise_std) for c in [*CLIQUES, (0,), (1,), (2,)]]
    singles = [t.counts for t in targets[3:]]
    model = LogLinearModel(FIT_DOMAIN, CLIQUES, singles, workers)
    rng = np.random.default_rng(0)
    columns = [rng.choice(s.size, ROWS, p=s / s.sum()) for s in singles]
    rows = np.stack(columns, axis=1).astype(np.int32)
    start = rows.copy()
    tree = dependence_tree(FIT_DOMAIN, targets[:3], singles)
    coarse = CoarseDomain(FIT_DOMAIN, CLIQUES, singles)
    chains = Chains(model, TreeMoves(model, tree, singles, workers), rows, rng, coarse)
    means = fit_weights(chains, targets, watched, settings, workers)
    return start, rows, means


def fit_distance(rows):
    return np.abs(histogram(rows, FIT_DOMAIN) / ROWS - joint()).sum()


@pytest.mark.parametrize("early_rows", [2000, ROWS])
def test_the_chains_reach_the_table_whose_marginals_are_the_targets(early_rows):
    """The joint is log-linear in the targets' cliques, so it is the only maximum of entropy.

    Sampling alone leaves an L1 distance of about sqrt(2 · 24 cells / (π · rows)) = 0.028.
    """
    settings = FitSettings(sweeps=60, averaged=10, early_rows=early_rows)
    start, rows, _ = fitted(settings)
    assert fit_distance(start) > 0.2
    assert fit_distance(rows) < 0.07


def test_the_averaged_marginals_are_closer_than_those_of_the_rows():
    watched = [(0, 1), (0, 1, 2)]
    _, rows, means = fitted(FitSettings(sweeps=200, averaged=30, step=0.3), watched)
    for clique, mean in zip(watched, means):
        wanted = ROWS * margin(joint(), clique)
        assert mean.shape == FIT_DOMAIN.shape(clique)
        assert mean.sum() == pytest.approx(ROWS, rel=1e-5)
        of_rows = np.abs(count_rows(rows, FIT_DOMAIN, clique) - wanted).sum()
        assert np.abs(mean - wanted).sum() < of_rows


@pytest.mark.parametrize("averaged", [1, 3])
@pytest.mark.parametrize("early_rows", [1000, ROWS])
def test_only_sweeps_of_all_rows_are_averaged(averaged, early_rows):
    settings = FitSettings(sweeps=3, averaged=averaged, early_rows=early_rows)
    _, rows, (mean,) = fitted(settings, [(0, 1)])
    assert rows.shape == (ROWS, 3)
    assert mean.sum() == pytest.approx(ROWS, rel=1e-5)


PAIRS_OF_SIX = list(combinations(range(6), 2))


@pytest.mark.parametrize(("step", "shortened"), [(0.1, False), (1.0, True)])
def test_steps_are_shortened_where_targets_that_overlap_overshoot(step, shortened):
    """A step of one brings each pair to its target by itself; five with a common attribute go too
    far together."""
    domain = domain_of(*(2,) * 6)
    table = random_loglinear(domain, PAIRS_OF_SIX, seed=2, spread=0.5)[1]
    targets = [Target(c, ROWS * margin(table, c), 0.0) for c in PAIRS_OF_SIX]
    model = LogLinearModel(domain, PAIRS_OF_SIX, [np.ones(2)] * 6, 1)
    rows = np.random.default_rng(0).integers(2, size=(ROWS, 6)).astype(np.int32)
    follower = WeightUpdater(model, targets, FitSettings(), workers=1)
    for key in range(10):
        model.sweep(rows, key)
        follower.step(rows, step, 1.0)
    assert (follower.pace < 1) == shortened


def test_with_one_averaged_sweep_the_mean_is_the_rows():
    watched = [(0, 1), (0, 1, 2), (2,)]
    _, rows, means = fitted(FitSettings(sweeps=3, averaged=1), watched)
    for clique, mean in zip(watched, means):
        np.testing.assert_array_equal(mean, marginal_of(rows, FIT_DOMAIN, clique))


def test_weights_hardly_follow_differences_below_the_noise():
    still = fitted(FitSettings(sweeps=20, averaged=1), noise_std=1e7)[1]
    moved = fitted(FitSettings(sweeps=20, averaged=1), noise_std=0.0)[1]
    assert fit_distance(still) > 0.2
    assert fit_distance(moved) < fit_distance(still) / 2


@pytest.mark.parametrize(("sweeps", "averaged"), [(5, 6), (5, 0), (0, 0)])
def test_impossible_settings_are_refused(sweeps, averaged):
    with pytest.raises(ValueError, match="averaged"):
        FitSettings(sweeps=sweeps, averaged=averaged)


WATCHED = [(0, 1), (1, 3, 4), (2, 3), (4,)]


def drawn(count, seed, skew=0.5):
    rng = np.random.default_rng(seed)
    columns = [rng.binomial(n - 1, skew, count) for n in DOMAIN.sizes]
    return np.stack(columns, axis=1).astype(np.int32)


def slow_distance(rows, means):
    """The mean over watched cliques of ‖table − wanted‖₁ / rows, counted afresh."""
    gaps = [
        np.abs(marginal_of(rows, DOMAIN, c) - m.astype(float)).sum() for c, m in zip(WATCHED, means)
    ]
    return sum(gaps) / len(rows) / len(WATCHED)


def refine(model, rows, means, passes, rng):
    """Refine rows in place; the distance that was booked."""
    watch = MarginalTracker(DOMAIN, WATCHED, means)
    excess = np.zeros(watch.adjacency.cells, dtype=np.float32)
    proposals = [rows.copy() for _ in range(passes)]
    for proposed in proposals:
        model.sweep(proposed, int(rng.integers(2**63)))
    watch.refine(Page(rows, proposals, 1.0, excess, rng))
    return float(np.abs(excess).sum()) / len(rows) / len(WATCHED)


def wanted(count, seed):
    """Marginals of another table, shrunk towards even ones so that they are no integers."""
    rows = drawn(count, seed, skew=0.3)
    even = [count / DOMAIN.size(c) for c in WATCHED]
    return [
        (0.9 * count_rows(rows, DOMAIN, c) + 0.1 * e).astype(np.float32)
        for c, e in zip(WATCHED, even)
    ]


@settings(max_examples=30)
@given(st.integers(1, 300), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_the_distance_never_grows_and_is_booked_correctly(count, passes, seed):
    model, _ = random_loglinear(DOMAIN, [(0, 1), (1, 3, 4)], seed=0)
    rows, means = drawn(count, seed), wanted(count, seed + 1)
    before = slow_distance(rows, means)
    booked = refine(model, rows, means, passes, np.random.default_rng(seed))
    after = slow_distance(rows, means)
    # float32 errors: at most 300 rows in a cell and five passes of unit steps, 1e-4 in all.
    assert booked == pytest.approx(after, abs=1e-4)
    assert after <= before + 1e-4
    assert ((rows >= 0) & (rows < DOMAIN.sizes)).all()


@pytest.mark.parametrize("seed", range(5))
def test_near_the_optimum_no_move_makes_it_worse(seed):
    """Wanted marginals within half a row of the table's: every move is a loss, some a small one."""
    model, _ = random_loglinear(DOMAIN, [(0, 1), (1, 3, 4)], seed=0)
    rows, rng = drawn(200, seed), np.random.default_rng(seed)
    means = []
    for clique in WATCHED:
        gap = rng.uniform(-0.49, 0.49, DOMAIN.shape(clique))
        means.append((count_rows(rows, DOMAIN, clique) + gap).astype(np.float32))
    before = slow_distance(rows, means)
    refine(model, rows, means, 3, rng)
    assert slow_distance(rows, means) <= before + 1e-6


def test_no_passes_and_a_table_that_matches_change_nothing():
    model, _ = random_loglinear(DOMAIN, [(0, 1)], seed=0)
    rows, means = drawn(50, 0), wanted(50, 1)
    before = rows.copy()
    refine(model, rows, means, 0, np.random.default_rng(0))
    np.testing.assert_array_equal(rows, before)
    rows = drawn(200, 0)
    means = [count_rows(rows, DOMAIN, c) for c in WATCHED]
    assert refine(model, rows, means, 3, np.random.default_rng(0)) == 0
    for clique, mean in zip(WATCHED, means):
        np.testing.assert_array_equal(marginal_of(rows, DOMAIN, clique), mean)


@pytest.mark.slow
def test_pairs_of_tables_with_latent_classes_are_completed(monkeypatch):
    """20 columns depend on one of five classes alone; pairs are nearer than without completion."""
    rng = np.random.default_rng(0)
    kind, answers = rng.integers(0, 5, 8_000), rng.dirichlet(np.ones(3), size=(20, 5))
    cells = {f"c{k}": (rng.random(8_000)[:, None] > own[kind].cumsum(axis=1)).sum(axis=1)
             for k, own in enumerate(answers)}  # fmt: skip
    columns = [{"name": name, "type": "integer", "min": 0, "max": 2} for name in cells]
    schema = Schema.parse({"version": 1, "columns": columns})
    frame = pd.DataFrame(cells).clip(0, 2)
    true, workload = read_table(frame, schema), Workload.all_ways(schema.domain(), 2)
    model = Synthesizer(epsilon=1, delta=1e-6, insecure_seed=1, workers=1).fit(frame, schema=schema)

    def error():
        return workload_error(true, model.release_.draw(seed=1).coded(), workload).mean_l1

    completed = error()
    monkeypatch.setattr("adaptive_qs.generate.low_rank.completed_pairs", lambda *_: ())
    assert completed < 0.9 * error()
