"""Targets of the fit: projections and denoised columns against dense oracles, and their model."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import brentq, minimize
from scipy.stats import chi2, rankdata

from adaptive_qs import Synthesizer
from adaptive_qs.cliques import count_rows
from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.generate import targets
from adaptive_qs.generate.low_rank import completed_pairs
from adaptive_qs.generate.rows import SynthesisSettings, fit_model
from adaptive_qs.generate.structure import followed
from adaptive_qs.generate.targets import (
    coarser_targets,
    denoise_counts,
    denoise_model,
    effective_codes,
    make_fit_target,
    make_fit_targets,
    make_target,
    positive_shares,
    posterior_means,
    project_distribution,
    project_to_simplex,
    single_targets,
)
from adaptive_qs.residual import ReferenceModel, decompose, uniform_reference, variance_weight

from .helpers import domain_of, residuals_of

SPIKE = np.r_[9000.0, np.zeros(40), np.full(4, 100.0), np.zeros(40), 600.0]
"""A column of mostly zeros, as gains from capital are."""
HOURS = 300 * np.exp(-np.square(np.arange(90.0) - 40) / 200) + np.where(
    np.arange(90) == 40, 5000, 0
)
"""A bell with a spike in it, as working hours are."""
STEPS = np.repeat([0.0, 220.0, 90.0, 0.0], [30, 20, 25, 10])


def noisy(counts, noise_std, seed):
    """Counts with noise that sums to zero, as that of a residual does: their sum is known."""
    noise = np.random.default_rng(seed).normal(scale=noise_std, size=counts.size)
    return counts + noise - noise.mean()


def prefix_error(counts, true):
    return np.abs(np.cumsum(counts - true)).mean()


@pytest.mark.parametrize("seed", range(4))
def test_the_distribution_function_is_the_nearest_one(seed):
    y = noisy(np.array([3.0, 0.0, 5.0, 1.0, 0.0, 1.0]), 4.0, seed)
    found = project_distribution(y, 10.0)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(10)

    def off(x):
        return np.square(np.cumsum(x - y)[:-1]).sum()

    best = minimize(
        off, np.full(6, 10 / 6), bounds=[(0, None)] * 6, method="SLSQP",
        constraints={"type": "eq", "fun": lambda x: x.sum() - 10}, options={"ftol": 1e-12},
    )  # fmt: skip
    assert off(found) == pytest.approx(best.fun, abs=1e-4)


@pytest.mark.parametrize("estimate", [project_distribution, project_to_simplex])
def test_a_distribution_is_left_as_it_is(estimate):
    np.testing.assert_allclose(estimate(SPIKE, SPIKE.sum()), SPIKE, atol=1e-9)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("true", [SPIKE, STEPS, np.array([40.0, 60.0]), np.array([50.0])])
@pytest.mark.parametrize("noise_std", [1e-9, 3.0, 80.0, 1e6])
def test_counts_are_counts_whatever_the_noise(true, noise_std, ordered):
    total = true.sum()
    found = denoise_counts(noisy(true, noise_std, 1), noise_std, total, ordered)
    assert found.shape == true.shape
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total)
    if noise_std < 1:
        np.testing.assert_allclose(found, true, atol=1e-6)


@pytest.mark.parametrize("true", [HOURS, STEPS])
@pytest.mark.parametrize("noise_std", [25.0, 80.0])
def test_ordered_columns_are_nearer_to_the_truth_than_their_projection(true, noise_std):
    """Over twelve noises: in L1 by a tenth at least, and in the prefix sums by a sixth."""
    l1, prefix = np.zeros(2), np.zeros(2)
    for seed in range(12):
        y = noisy(true, noise_std, seed)
        for k, found in enumerate((
            denoise_counts(y, noise_std, true.sum(), True),
            project_to_simplex(y, true.sum()),
        )):  # fmt: skip
            l1[k] += np.abs(found - true).sum()
            prefix[k] += prefix_error(found, true)
    assert l1[0] < 0.9 * l1[1]
    assert prefix[0] < 5 / 6 * prefix[1]


def test_rare_codes_of_an_unordered_column_are_pooled():
    """80 codes of 20 rows each among noise of 25, in no order with 5 large ones."""
    rng = np.random.default_rng(0)
    true = rng.permutation(np.r_[np.full(80, 20.0), 3000, 2000, 1500, 1000, 800])
    off = np.zeros(2)
    for seed in range(12):
        y = noisy(true, 25.0, seed)
        off[0] += np.abs(denoise_counts(y, 25.0, true.sum(), False) - true).sum()
        off[1] += np.abs(project_to_simplex(y, true.sum()) - true).sum()
    assert off[0] < 0.8 * off[1]


def test_unordered_columns_do_not_depend_on_their_order():
    y = noisy(STEPS, 40.0, 3)
    order = np.random.default_rng(1).permutation(y.size)
    found = denoise_counts(y, 40.0, STEPS.sum(), False)
    np.testing.assert_allclose(denoise_counts(y[order], 40.0, STEPS.sum(), False), found[order])


def test_posteriors_are_those_of_a_prior_on_levels(monkeypatch):
    """Two rounds from an even prior, against Bayes' rule cell by cell."""
    monkeypatch.setattr(targets, "ROUNDS", 2)
    y, grid = np.array([-9.0, 4.0, 31.0, 50.0]), np.linspace(0, 100, targets.LEVELS)
    chance = np.exp(-np.square(y[:, None] - grid) / 200)
    first = chance / chance.sum(axis=1, keepdims=True)
    second = chance * first.mean(axis=0)
    second /= second.sum(axis=1, keepdims=True)
    expected = second @ grid
    found = posterior_means(y, 10.0, expected.sum())
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_cells_that_are_surely_empty_take_less_when_counts_are_brought_to_their_total():
    y = np.r_[5000.0, np.zeros(50), 400.0]
    empty, even = (f[1:51].sum() for f in (posterior_means(y, 10.0, 5500.0),
                                           project_to_simplex(y, 5500.0)))  # fmt: skip
    assert empty < even / 2


@pytest.mark.parametrize("true", [SPIKE, HOURS], ids=["spike", "hours"])
def test_noise_of_a_strategy_is_left_to_the_projection(true):
    """Answers to prefixes with noise that is independent from one to the next: what is found has
    their precision, where means given independent cells would move mass over many of them."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(20):
        sums = np.cumsum(true) + rng.normal(scale=60.0, size=true.size)
        sums[-1] = true.sum()
        cells = np.diff(sums, prepend=0.0)
        counts = denoise_counts(cells, 60.0 * 2**0.5, true.sum(), True, independent=False)
        np.testing.assert_array_equal(counts, project_distribution(cells, true.sum()))
        alike = denoise_counts(cells, 60.0 * 2**0.5, true.sum(), True)
        found.append((prefix_error(counts, true), prefix_error(alike, true)))
    mine, others = np.mean(found, axis=0)
    assert mine < others
    other = denoise_counts(true, 9.0, true.sum() - 50, False, independent=False)
    np.testing.assert_array_equal(other, project_to_simplex(true, true.sum() - 50))


arrays = hnp.arrays(float, hnp.array_shapes(max_dims=3, max_side=5), elements=st.floats(-1e4, 1e4))


def slow_projection(array, total):
    """max(x − t, 0) with t found by bisection; the optimality condition of the projection."""
    low, high = array.min() - total - 1, array.max()
    t = brentq(lambda t: np.maximum(array - t, 0).sum() - total, low, high, xtol=1e-12)
    return np.maximum(array - t, 0)


@given(arrays, st.floats(0.01, 1e5), st.integers(0, 2**32 - 1))
def test_the_projection_equals_bisection_and_no_random_table_is_nearer(array, total, seed):
    found = project_to_simplex(array, total)
    assert found.shape == array.shape
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(total)
    np.testing.assert_allclose(found, slow_projection(array, total), atol=1e-6 * (1 + total))
    nearest, rng = np.linalg.norm(found - array), np.random.default_rng(seed)
    for concentration in (0.1, 1.0, 10.0):
        other = total * rng.dirichlet(np.full(array.size, concentration)).reshape(array.shape)
        assert nearest <= np.linalg.norm(other - array) + 1e-6


@pytest.mark.parametrize("scale", [1e10, 1e16, 1e30])
def test_the_projection_holds_its_total_however_large_the_entries(scale):
    projected = project_to_simplex(scale * np.array([1.0, -1.0, 0.5, 1.0]), 5.0)
    assert projected.min() >= 0
    assert projected.sum() == pytest.approx(5.0)


def test_the_noise_of_a_target_is_that_of_its_measured_residuals():
    """Fuentes et al., Proposition 4.4; an unmeasured residual adds none."""
    domain = domain_of(2, 3, 4)
    model = ReferenceModel(domain, uniform_reference(domain))
    model.update((), np.array(100.0), 0.5)
    for tau, precision in {(0,): 2.0, (1,): 1.0, (0, 1): 0.25, (1, 2): 8.0}.items():
        model.update(tau, np.zeros(domain.shape(tau)), precision)
    for clique in [(0,), (0, 1), (1, 2), (0, 1, 2)]:
        inside = [t for t in model.estimates if set(t) <= set(clique)]
        variance = sum(variance_weight(domain, t, clique) / model.precision(t) for t in inside)
        assert make_target(model, clique).noise_std == pytest.approx(math.sqrt(variance))


@pytest.mark.parametrize("total", [-50.0, 0.0, 0.3, 100.0])
def test_a_target_is_a_table_of_the_models_total_but_at_least_one_row(total):
    domain = domain_of(3, 4)
    model = ReferenceModel(domain, uniform_reference(domain))
    model.update((), np.array(total), 1.0)
    rng = np.random.default_rng(0)
    for tau in [(0,), (1,), (0, 1)]:
        model.update(tau, decompose(rng.normal(scale=30, size=domain.shape(tau)), tau, tau), 1.0)
    for clique in [c for k in (1, 2) for c in combinations(range(2), k)]:
        target = make_target(model, clique)
        assert target.counts.shape == domain.shape(clique)
        assert (target.counts >= 0).all()
        assert target.counts.sum() == pytest.approx(max(total, 1.0))


DOMAIN = Domain((Attribute("gain", 40), Attribute("kind", 6, ordered=False), Attribute("sex", 2)))
PAIRS = [(0, 1), (0, 2), (1, 2)]


def table(rows=6000, seed=0):
    """Gain is zero for nine rows in ten; kind and sex depend on it and on each other."""
    rng = np.random.default_rng(seed)
    gain = np.where(rng.random(rows) < 0.9, 0, rng.integers(5, 12, rows))
    sex = (rng.random(rows) < np.where(gain > 0, 0.8, 0.4)).astype(int)
    kind = np.minimum(rng.geometric(np.where(sex, 0.7, 0.4)) - 1, 5)
    return np.stack([gain, kind, sex], axis=1).astype(np.int32)


@pytest.fixture(scope="module")
def measured():
    model = residuals_of(table(), DOMAIN, PAIRS, noise_std=30.0, seed=2)
    singles = single_targets(model)
    return model, singles, denoise_model(model, singles)


def test_ordered_and_unordered_columns_are_treated_as_such(measured):
    model, singles, _ = measured
    shuffled = Domain(tuple(Attribute(a.name, a.size, ordered=False) for a in DOMAIN.attributes))
    other = single_targets(ReferenceModel(shuffled, model.reference, model.estimates))
    assert (singles[0].counts != other[0].counts).any()
    np.testing.assert_array_equal(singles[1].counts, other[1].counts)


def test_the_denoised_model_has_these_columns_and_the_measured_interactions(measured):
    model, singles, denoised = measured
    for i, target in enumerate(singles):
        found = decompose(denoised.marginal((i,)), (i,), (i,))
        np.testing.assert_allclose(found, decompose(target.counts, (i,), (i,)), atol=1e-9)
    for pair in PAIRS:
        before, after = (decompose(m.marginal(pair), pair, pair) for m in (model, denoised))
        np.testing.assert_allclose(before, after, atol=1e-9)
        assert denoised.precision(pair) == model.precision(pair)


def test_columns_without_a_measurement_are_those_of_the_reference():
    model = ReferenceModel(DOMAIN, uniform_reference(DOMAIN))
    model.update((), np.array(100.0), 1.0)
    singles = single_targets(model)
    for target, share in zip(singles, positive_shares(singles)):
        np.testing.assert_allclose(target.counts, 100 / target.counts.size)
        np.testing.assert_allclose(share, 1 / target.counts.size)
    assert denoise_model(model, singles).estimates.keys() == {()}


def test_smooth_counts_are_worth_few_codes_and_clear_ones_all():
    """A line needs two numbers. Counts that stand clear of the noise are what they are."""
    rng = np.random.default_rng(3)
    codes, std = np.arange(64.0), 30.0
    for true, least, most in (
        (100 + codes, 2, 24),  # below 8 standard deviations, where counts are clear
        (rng.permutation(64) * 1000.0 + 200, 63.9, 64),
        (np.where(codes % 8, 0, 5000.0), 40, 64),
    ):
        noisy = true + rng.normal(0, std, 64)
        assert least <= effective_codes(noisy, std, true.sum()) <= most


def test_coarser_targets_are_sums_of_what_was_measured():
    """Over groups that reach into the tail, and with the noise of as many cells."""
    rng = np.random.default_rng(8)
    domain = Domain((Attribute("a", 40), Attribute("b", 5, ordered=False), Attribute("c", 3)))
    tail = np.minimum(rng.geometric(0.2, 9_000) - 1, 39)
    rows = np.stack([tail, (tail + rng.integers(0, 2, 9_000)) % 5, tail % 3], axis=1)
    pairs = [(0, 1), (1, 2)]
    model = residuals_of(rows.astype(np.int32), domain, pairs, noise_std=3.0)
    leveled, found = coarser_targets(model, pairs, single_targets(model))
    ((clique, target),) = found.items()  # the other pair has few codes
    assert leveled.columns(clique) == (0, 1)
    groups = np.array(leveled.groupings[0].groups)
    sizes = np.bincount(groups)
    assert sizes.size <= targets.COARSE
    assert (np.diff(groups) >= 0).all()
    fine = model.marginal((0, 1))
    summed = np.array([fine[groups == group].sum(axis=0) for group in range(sizes.size)])
    np.testing.assert_allclose(target.counts, project_to_simplex(summed, model.total), atol=1e-6)
    assert (tail >= 40 - sizes[-1]).mean() < 0.05
    noise_std = make_target(model, (0, 1)).noise_std * math.sqrt(40 / sizes.size)
    assert target.noise_std == pytest.approx(noise_std)


def _pairs_with_noise(true, rows=20_000, std=60.0):
    """A model of 24 columns with three codes, in which two of three pairs were measured."""
    rng, size = np.random.default_rng(3), 24
    domain = Domain.from_sizes({f"c{i}": 3 for i in range(size)})
    model = ReferenceModel(domain, [true(i, i).sum(axis=0) for i in range(size)])
    model.update((), np.array(float(rows)), 1.0)
    pairs = [pair for pair in combinations(range(size), 2) if sum(pair) % 3]
    for a, b in pairs:
        noisy = rows * true(a, b) + std * rng.standard_normal((3, 3))
        model.update((a, b), decompose(noisy, (a, b), (a, b)), std**-2)
    return model, pairs


def test_pairs_with_classes_in_common_are_completed_and_those_of_a_chain_are_not():
    """With four classes, pairs are Σ_c π_c a_c b_cᵀ; in a chain, powers of one matrix."""
    rng, rows = np.random.default_rng(0), 20_000
    answers, classes = rng.dirichlet(np.ones(3), size=(24, 4)), np.array([0.4, 0.3, 0.2, 0.1])

    def latent(a, b):
        return np.einsum("c,ci,cj->ij", classes, answers[a], answers[b])

    def follows(a, b):
        step = np.full((3, 3), 0.1) + 0.7 * np.eye(3)
        return np.linalg.matrix_power(step, abs(b - a)) / 3

    model, pairs = _pairs_with_noise(latent)
    found = {t.clique: t for t in completed_pairs(model, pairs, [tuple(range(24))])}
    assert [*found] == [*combinations(range(24), 2)]
    some = [t.clique for t in completed_pairs(model, pairs, [(0, 2, 5), (2, 5), (7,)])]
    assert some == [(0, 2), (0, 5), (2, 5)]
    off = {c: np.abs(t.counts / rows - latent(*c)).sum() for c, t in found.items()}
    noisy = [np.abs(make_target(model, c).counts / rows - latent(*c)).sum() for c in pairs]
    alone = {c: np.abs(np.outer(*(model.reference[i] for i in c)) - latent(*c)).sum() for c in off}
    unmeasured = off.keys() - set(pairs)
    assert np.mean([off[c] for c in pairs]) < 0.9 * np.mean(noisy)
    # A pair that was not measured is about as near as a measurement would be.
    assert sum(off[c] for c in unmeasured) < 0.25 * sum(alone[c] for c in unmeasured)
    assert np.mean([off[c] for c in unmeasured]) < 1.2 * np.mean(noisy)
    assert all(t.counts.min() >= 0 and t.noise_std == 0 for t in found.values())
    assert not [*completed_pairs(*_pairs_with_noise(follows), [(0, 1)])]
    assert not [*completed_pairs(model, pairs[:20], [(0, 1)])]  # too few numbers for any rank


def test_the_trend_of_a_pair_is_spearmans_correlation_as_measured():
    """Ranks of codes with ties and missing ones off the scale; factors tilt towards the trend."""
    rng = np.random.default_rng(3)
    domain = Domain((Attribute("a", 12), Attribute("b", 9, beyond=1), Attribute("c", 4, False)))
    first = rng.binomial(11, 0.4, 20_000)
    second = np.minimum((first + rng.integers(0, 5, 20_000)) // 2, 7)
    second[rng.random(20_000) < 0.1] = 8  # missing
    rows = np.stack([first, second, first % 4], axis=1).astype(np.int32)
    model = residuals_of(rows, domain, [(0, 1), (0, 2)], noise_std=1e-6)
    assert make_fit_target(model, (0, 2), None).trend is None  # no order
    trend = make_fit_target(model, (0, 1), None).trend
    known = second < 8
    ranks = np.where(known, rankdata(np.where(known, second, 99)) - known.sum() / 2 - 0.5, 0.0)
    others = rankdata(first) - first.size / 2 - 0.5
    spearman = others @ ranks / math.sqrt((others @ others) * (ranks @ ranks))
    assert trend.product == pytest.approx(20_000 * spearman, rel=1e-6)
    true = model.marginal((0, 1))
    assert trend.misfit(true, 1.0) == pytest.approx((0.0, 0.0), abs=1e-6)
    apart = np.outer(true.sum(axis=1), true.sum(axis=0)) / true.sum()
    off, errors = trend.misfit(apart / 2, 0.5)
    assert off == pytest.approx(trend.product / 2)
    assert errors == pytest.approx(off / 100, rel=1e-3)
    factors = trend.ratio(apart / 2, 0.1, off)
    assert factors[0, 0] > 1 > factors[0, 7]
    assert (factors[:, 8] == 1).all()


def test_steps_towards_many_trends_do_not_oscillate(monkeypatch):
    """Ten times as long as they are, with all pairs of dependent columns measured."""
    monkeypatch.setattr(targets, "STEP", 30.0)
    rng = np.random.default_rng(0)
    values = np.cumsum(0.4 * rng.standard_normal((4_000, 8)), axis=1)
    values += 2 * rng.standard_normal((4_000, 1))
    cuts = np.quantile(values, np.arange(1, 8) / 8, axis=0).T
    columns = [np.searchsorted(cut, column) for cut, column in zip(cuts, values.T)]
    domain = Domain(tuple(Attribute(f"c{i}", 8) for i in range(8)))
    pairs, rows = list(combinations(range(8), 2)), np.stack(columns, axis=1).astype(np.int32)
    model = residuals_of(rows, domain, pairs, noise_std=20.0)
    settings = SynthesisSettings(fit_rows=4_000)
    fitted = fit_model(model, pairs, pairs, 4_000, 2, settings)
    true = {pair: count_rows(np.asfortranarray(rows), domain, pair) / 4_000 for pair in pairs}
    off = [np.abs(fitted.marginal(pair) - shares).sum() for pair, shares in true.items()]
    assert np.mean(off) < 0.11  # 0.145 with steps of constant length, 0.097 with short ones


def test_no_step_towards_a_trend_overflows():
    rare = np.array([1e5, 0.0, 300.0])
    scores = (np.cumsum(rare) - rare / 2 - rare.sum() / 2) / 50
    trend = targets.Trend((scores, scores), 1e5, 1.0)
    ratios = trend.ratio(np.outer(rare, rare) / rare.sum(), 1.0, 1e5)
    assert np.isfinite(ratios).all()
    assert ratios.max() <= np.exp(targets.MOST_STEP)


def _clear_of(strengths, noise_std, seed=0, sizes=(6, 5)):
    """Clear parts of pairs whose first two codes attract each other by these parts of the rows."""
    rng, total = np.random.default_rng(seed), 10_000.0
    domain = domain_of(*sizes * len(strengths))
    found = ReferenceModel(domain, uniform_reference(domain))
    found.update((), np.array(total), 1.0)
    cliques = [(2 * k, 2 * k + 1) for k in range(len(strengths))]
    for clique, strength in zip(cliques, strengths):
        table = np.full(sizes, (1 - strength) * total / math.prod(sizes))
        table[np.arange(2), np.arange(2)] += strength * total / 2
        table += rng.normal(scale=noise_std, size=sizes)
        found.update(clique, decompose(table, clique, clique), noise_std**-2)
    targets = make_fit_targets(found, dict.fromkeys(cliques), cliques)
    return targets, [targets[clique].clear for clique in cliques]


@pytest.mark.parametrize("seed", range(3))
def test_dependences_that_are_noise_are_not_followed_and_clear_ones_are(seed):
    targets, parts = _clear_of([0.5, 0, 0, 0, 0], 100.0, seed)
    assert parts[0] == 1
    assert max(parts[1:]) < 0.2
    raw = targets[2, 3].counts
    unclear = followed(targets[2, 3], raw, np.ones_like(raw))
    alone = np.outer(unclear.sum(axis=1), unclear.sum(axis=0)) / unclear.sum()
    off = [np.abs(each - alone).sum() for each in (unclear, raw)]
    assert off[0] == pytest.approx(parts[1] * off[1], abs=1e-6)
    assert unclear.sum(axis=0) == pytest.approx(raw.sum(axis=0))
    raw[0] = 0.0  # a code without rows
    assert followed(targets[2, 3], raw, np.ones_like(raw))[0].tolist() == [0.0] * raw.shape[1]


def test_targets_that_nothing_measured_are_followed():
    domain = domain_of(3, 3)
    model = ReferenceModel(domain, uniform_reference(domain))
    assert make_fit_targets(model, {(0, 1): None}, ())[0, 1].clear == 1


@pytest.mark.slow
def test_small_budgets_for_persons_invent_no_association():
    """Independent columns stay so, as near as columns that are shuffled, with six rows a person."""
    sizes = {"branch": 25, "age": 64, "meal": 4, "room": 8, "hour": 24, "card": 2}
    described = [{"name": name, "type": "integer", "min": 0, "max": n - 1, "ordered": n > 20}
                 for name, n in sizes.items()]  # fmt: skip
    schema = {"version": 1, "person": "guest", "columns": described}
    pairs, off = list(combinations(range(len(sizes)), 2)), []

    def shares(codes, pair):
        shape = tuple(list(sizes.values())[i] for i in pair)
        cells = np.ravel_multi_index([codes[:, i] for i in pair], shape)
        return np.bincount(cells, minlength=math.prod(shape)).reshape(shape) / len(codes)

    for seed in range(3):
        rng, rows = np.random.default_rng(seed), 15_000
        codes = np.stack([rng.integers(0, n, rows) * rng.integers(1, 3, rows) // 2
                          for n in sizes.values()], axis=1)  # fmt: skip
        table = pd.DataFrame(codes, columns=[*sizes]).assign(guest=rng.integers(0, rows // 6, rows))
        found = Synthesizer(epsilon=1, rows_per_person=6, insecure_seed=seed, workers=1)
        release = found.fit(table, schema=schema).release_
        drawn = np.stack(release.sample(seed=seed).columns, axis=1).astype(int)
        shuffled = rng.permuted(drawn, axis=0)
        columns, model = len(drawn), release.model()
        held = {model.domain.columns(tau) for tau in model.estimates if len(tau) == 2}
        for pair in pairs:
            true, made, apart = (shares(each, pair) for each in (codes, drawn, shuffled))
            off.append([np.abs(each - true).sum() for each in (made, apart)])
            alone = np.outer(made.sum(axis=1), made.sum(axis=0))
            squares = columns * ((made - alone) ** 2 / np.maximum(alone, 1e-12)).sum()
            free = math.prod(n - 1 for n in made.shape)
            if pair in held:  # chance exceeds it once in a thousand pairs
                assert squares < 2 * chi2.isf(1e-3, free)
    made, apart = np.mean(off, axis=0)
    assert made <= apart
