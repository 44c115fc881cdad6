"""Denoised columns against dense oracles, and against what they are to be better than."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

from adaptive_qs.generate import targets as denoise
from adaptive_qs.generate.targets import (
    denoise_counts,
    posterior_means,
    project_distribution,
    project_to_simplex,
)

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
    """Over twelve noises: in L1 by a tenth at least, and in the prefix sums by a fifth."""
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
    assert prefix[0] < 0.8 * prefix[1]


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


def test_posteriors_are_those_of_all_sequences_of_levels(monkeypatch):
    """One round from the first prior, against a sum over all 3^4 sequences and jumps between."""
    monkeypatch.setattr(denoise, "ROUNDS", 1)
    likelihood = np.random.default_rng(2).uniform(0.1, 1, (4, 3))
    expected = np.zeros((4, 3))
    for levels in product(range(3), repeat=4):
        chance = likelihood[0, levels[0]] / 3
        for i in range(1, 4):
            chance *= (0.5 * (levels[i] == levels[i - 1]) + 0.5 / 3) * likelihood[i, levels[i]]
        for i, level in enumerate(levels):
            expected[i, level] += chance
    expected /= expected.sum(axis=1, keepdims=True)
    grid = np.array([0.0, 1.0, 5.0])
    found, levels = np.empty((2, 4)), np.empty((2, 3))
    ahead, behind = np.empty((4, 3)), np.ones((4, 3))
    smooth = denoise._smooth.py_func
    smooth(likelihood, grid, True, ahead, behind, np.full(3, 1 / 3), *levels, *found)
    means, variances = found
    np.testing.assert_allclose(means, expected @ grid, rtol=1e-6)  # in single precision
    np.testing.assert_allclose(variances, expected @ grid**2 - (expected @ grid) ** 2, rtol=1e-5)


def test_what_is_surely_empty_stays_so_when_counts_are_brought_to_their_total():
    y = np.r_[5000.0, np.zeros(50), 400.0]
    found = posterior_means(y, 10.0, 5500.0, True)
    assert found[1:51].sum() < 20
    assert found[0] + found[-1] == pytest.approx(5500, abs=20)


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
