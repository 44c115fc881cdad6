"""A smooth curve of an ordered column against dense algebra, integrals and known curves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import norm

from adaptive_qs.generate import walk
from adaptive_qs.generate.walk import smooth_counts

CODES = 7


def steps(codes, strength):
    """The matrix of strength · Σ (x_i − x_{i−1})²."""
    change = np.diff(np.eye(codes), axis=0)
    return strength * change.T @ change


def noisy(counts, noise_std, seed):
    """Counts with noise that sums to zero, as that of a residual does: their sum is known."""
    noise = np.random.default_rng(seed).normal(scale=noise_std, size=counts.size)
    return counts + noise - noise.mean()


def test_the_curves_are_the_most_likely_ones():
    """With what is known of the sum, and with variances and determinant of the dense matrix."""
    rng = np.random.default_rng(1)
    counts, weights = rng.uniform(5, 60, CODES), rng.uniform(0.01, 0.1, (2, CODES))
    kept, rest, doubt = rng.uniform(0.2, 1, (2, CODES)), np.array([150.0, 170.0]), np.full(2, 20.0)
    strengths, logs = np.array([5.0, 0.5]), np.full((2, CODES), 3.0)
    each = np.repeat(strengths[:, None], CODES - 1, axis=1)
    fit = walk._Fit(counts, each, weights, kept, rest, doubt)
    for _ in range(20):
        logs, variances, log_det = walk._climb(fit, logs)
    for k, strength in enumerate(strengths):

        def off(logs, k=k, strength=strength):
            return (
                weights[k] @ (counts - np.exp(logs)) ** 2
                + logs @ steps(CODES, strength) @ logs
                + (rest[k] - kept[k] @ np.exp(logs)) ** 2 / doubt[k]
            )

        best = minimize(off, np.full(CODES, 3.0), options={"gtol": 1e-9})
        np.testing.assert_allclose(logs[k], best.x, atol=1e-4)
        along = kept[k] * np.exp(logs[k])
        precision = np.diag(weights[k] * np.exp(2 * logs[k])) + steps(CODES, strength)
        whole = precision + np.outer(along, along) / doubt[k]
        np.testing.assert_allclose(variances[k], np.diag(np.linalg.inv(whole)), rtol=1e-5)
        assert log_det[k] == pytest.approx(np.linalg.slogdet(whole)[1], rel=1e-6)


def kinds(level):
    """Density of a noisy count of each kind: on the curve, off it by 30 or 90, empty."""
    spread = np.array([4.0, 4.0 + 30.0**2, 4.0 + 90.0**2, 4.0])
    shares = np.array([0.5, 0.2, 0.1, 0.2])
    return spread, shares, lambda y: shares * norm.pdf(y, [level] * 3 + [0], np.sqrt(spread))


@pytest.mark.parametrize("count", [-1.0, 12.0, 21.0, 150.0])
def test_chances_of_kinds_are_those_of_bayes(count):
    spread, shares, density = kinds(20.0)
    expected = density(count)
    curve = np.array([[20.0]])
    likelihood, chances, new = walk._assign(np.array([count]), curve, spread, shares[None])
    np.testing.assert_allclose(chances[0, :, 0], expected / expected.sum())
    assert likelihood[0] == pytest.approx(np.log(expected.sum() * np.sqrt(2 * np.pi)))
    np.testing.assert_allclose(new[0], (chances[0, :, 0] + [1, 0, 0, 0]) / 2, atol=1e-8)


@pytest.mark.parametrize("count", [-1.0, 12.0, 30.0, 150.0])
def test_moments_are_integrals_over_counts_that_are_not_negative(count):
    spread, _, density = kinds(20.0)
    chances = density(count) / density(count).sum()
    args = spread, 4.0, chances[None, :, None], np.array([[0.01]])
    found = walk._moments(np.array([count]), np.array([[20.0]]), *args)[0]
    mean, square = chances[0] * 20.0, chances[0] * (400.0 + 4.0)
    for k in (1, 2):
        prior = np.sqrt(spread[k] - 4)

        def posterior(c, prior=prior):
            return norm.pdf(c, 20, prior) * norm.pdf(count, c, 2)

        span = max(count, 0) - 20, max(count, 0) + 20
        whole, first, second = (
            quad(lambda c, p=p: c**p * posterior(c), max(span[0], 0), span[1])[0] for p in range(3)
        )
        mean += chances[k] * first / whole
        square += chances[k] * second / whole
    assert found[0, 0] == pytest.approx(mean, rel=1e-4)
    assert found[1, 0] == pytest.approx(square - mean**2, rel=1e-3)


BELL = norm.pdf(np.linspace(-2.5, 2.5, 256))
HEAPS = np.isin(np.arange(256), [40, 128, 200])


def off(found, true, groups=1):
    return np.abs((found - true).reshape(-1, groups).sum(axis=1)).sum() / true.sum()


def test_finer_codes_of_nearly_equal_shares_cost_little():
    """Over 16 groups: raw, four times the noise of as many codes; smooth, less than these raw."""
    shares = 1 + 0.2 * np.sin(np.linspace(0, 5, 256))
    errors, raw = np.zeros(2), np.zeros(2)
    for seed in range(6):
        for k, codes in enumerate((16, 256)):
            true = 20_000 * shares.reshape(codes, -1).sum(axis=1) / shares.sum()
            y = noisy(true, 200.0, seed)
            errors[k] += off(smooth_counts(y, 200.0, true.sum())[0], true, codes // 16)
            raw[k] += off(y, true, codes // 16)
    assert raw[1] > 3 * raw[0]
    assert errors[1] < raw[0]
    assert errors[0] < 0.6 * raw[0]


def test_heaps_stay_and_the_rest_is_smooth():
    true = 40_000 * BELL / BELL.sum() + 3_000 * HEAPS
    for seed in range(4):
        y = noisy(true, 60.0, seed)
        means, variances = smooth_counts(y, 60.0, true.sum())
        np.testing.assert_allclose(means[HEAPS], true[HEAPS], atol=4 * 60)
        rest = np.abs(means - true)[~HEAPS].mean()
        assert rest < 0.4 * np.abs(y - true)[~HEAPS].mean()
        assert (variances[HEAPS] > 4 * np.median(variances)).all()


def test_codes_beyond_the_scale_take_no_part():
    true = 20_000 * BELL / BELL.sum()
    y = noisy(np.append(true, 9000.0), 60.0, 1)
    means, variances = smooth_counts(y, 60.0, true.sum() + 9000, 1)
    assert means[-1] == y[-1]
    assert variances[-1] == 60.0**2
    alone, _ = smooth_counts(y[:-1], 60.0, true.sum() + 9000 - y[-1])
    np.testing.assert_allclose(means[:-1], alone)


def test_codes_without_order_are_left_as_they_are():
    """Each far from its neighbours: the noise of a clear count is not spread over others."""
    true = np.random.default_rng(5).permutation(np.r_[np.zeros(20), np.geomspace(200, 20_000, 30)])
    y = noisy(true, 20.0, 2)
    means, _ = smooth_counts(y, 20.0, true.sum())
    np.testing.assert_allclose(means[true > 0], y[true > 0], atol=30)
    assert means[true == 0].sum() < 200


def test_ends_of_another_size_are_kept_if_they_can_lie_apart():
    """Bins of equal shares with half as many rows in those at the ends."""
    true, off = np.r_[55.0, 30, np.full(40, 85), 30, 55], np.zeros(2)
    for seed in range(20):
        for loose in (False, True):
            means, _ = smooth_counts(noisy(true, 20.0, seed), 20.0, true.sum(), 0, loose)
            off[int(loose)] += np.abs(means - true).sum()
    assert off[1] < 0.75 * off[0]


@pytest.mark.parametrize("codes", [1, 2, 3])
@pytest.mark.parametrize("noise_std", [1e-9, 1.0, 1e9])
def test_columns_of_few_codes_have_counts(codes, noise_std):
    true = np.arange(1.0, codes + 1)
    means, variances = smooth_counts(noisy(true, noise_std, 1), noise_std, true.sum())
    assert np.isfinite([means, variances]).all()
    assert (means >= 0).all()
    assert (variances >= 0).all()
