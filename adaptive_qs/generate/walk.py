"""Counts along an ordered column: a curve, codes that stand off it, and codes without rows.

The logarithm of the curve is a random walk along the codes. The count of a code is on the curve,
off it by a deviation of any size (a heap, or a gap), or zero. How often codes are which, and how
large deviations are, is learnt from the column (empirical Bayes with a scale mixture of normal
distributions: Stephens 2017, "False discovery rates: a new deal", eq. 2.3 and 2.6). So heaps stay
and the rest is smooth; if nothing is smooth, all codes are off the curve, and are what they are.

For a given variance of a step, rounds of expectation-maximisation alternate between the kinds of
the codes and the most likely curve (Newton, with tridiagonal systems). All counts together are
known: this is one more observation of the curve, a term of rank one. Estimates for several
variances of a step are averaged by their evidence in Laplace's approximation (MacKay 1992,
"Bayesian interpolation", eq. 9; the same for densities: Kitagawa and Gersch 1985).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.machine import njit

Array = NDArray[np.float64]

STRENGTHS = 4.0 ** np.arange(-2, 12)
"""Precisions of a step of the walk: from steps that multiply by about 50 to hardly any."""
ROUNDS = 12
"""Rounds of expectation-maximisation."""
STEPS = 3
"""Newton's steps in a round."""
EMPTY, CURVE = 0.1, 0.6
"""Shares of codes without rows and of codes on the curve at the start."""
TINY = 1e-9
"""Added to the diagonal of a system, which is singular for a curve that nothing determines."""
ROOT, DENSITY = math.sqrt(0.5), 1 / math.sqrt(2 * math.pi)


def smooth_counts(
    noisy: Array, noise_std: float, total: float, beyond: int = 0
) -> tuple[Array, Array]:
    """Return mean and variance of the count of each code (rows; rows²), given noisy ones.

    Args:
        noisy: unbiased estimates (rows), shape (codes,), with independent noise.
        noise_std: its standard deviation (rows), positive.
        total: sum of the counts (rows), positive.
        beyond: number of codes at the end that are off the scale; they are left as they are.
    """
    means, variances = noisy.copy(), np.full(noisy.size, noise_std**2)
    size = noisy.size - beyond
    noisy, total = noisy[:size], max(total - noisy[size:].sum(), min(total, noise_std))
    largest = max(float(np.abs(noisy).max(initial=0.0)) / noise_std, 1.0)
    deviations = noise_std**2 * 4.0 ** np.arange(math.ceil(math.log2(largest)) + 2)
    even = total / size
    start = math.log(min(max(float(np.median(noisy)), even / 100), even))
    spread = noise_std**2 + np.concatenate([[0.0], deviations, [0.0]])
    found = np.empty((len(STRENGTHS), 2, size))
    evidence = np.empty(len(STRENGTHS))
    for k, strength in enumerate(STRENGTHS):
        logs, shares = np.full(size, start), np.full(spread.size, 1 - CURVE - EMPTY)
        shares /= deviations.size
        shares[0], shares[-1] = CURVE, EMPTY
        evidence[k] = _fit(noisy, noise_std, total, strength, spread, shares, logs, found[k])
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    means[:size], variances[:size] = np.tensordot(weights, found, 1)
    variances[:size] += np.tensordot(weights, np.square(found[:, 0] - means[:size]), 1)
    return means, variances


@njit(cache=True, nogil=True)
def _fit(  # type: ignore[no-untyped-def]
    noisy, noise_std, total, strength, spread, shares, logs, found
):
    """Write mean and variance of each count for one strength, and return its log-evidence.

    ``spread`` has the variance of a noisy count of each kind around the curve, or around 0 for the
    last kind. ``shares`` of the kinds and ``logs``, the logarithm of the curve, are those at the
    start; both are overwritten.
    """
    codes, kinds = noisy.size, spread.size
    chances = np.zeros((codes, kinds))
    for i in range(codes):
        chances[i, 0] = 1.0
    weights, kept, curve = np.empty(codes), np.empty(codes), np.empty(codes)
    likelihood, rest, slack, log_det = 0.0, 0.0, 0.0, 0.0
    variances = np.empty(codes)
    for _ in range(ROUNDS):
        rest, slack = total, noise_std**2
        for i in range(codes):
            weights[i] = kept[i] = 0.0
            for k in range(kinds - 1):
                weights[i] += chances[i, k] / spread[k]
                kept[i] += chances[i, k] * noise_std**2 / spread[k]
            off = 1 - chances[i, kinds - 1] - kept[i]
            rest -= off * noisy[i]
            slack += off * noise_std**2
        log_det = _climb(noisy, weights, strength, kept, rest, slack, logs, variances)
        for i in range(codes):
            curve[i] = math.exp(logs[i])
        likelihood = _assign(noisy, curve, spread, shares, chances)
    _moments(noisy, curve, spread, noise_std**2, chances, variances, found)
    penalty = 0.0
    for i in range(codes):
        rest -= kept[i] * math.exp(logs[i])
        if i:
            penalty += strength * (logs[i] - logs[i - 1]) ** 2
    penalty += rest**2 / slack + math.log(slack) + log_det - (codes - 1) * math.log(strength)
    return likelihood - 0.5 * penalty


@njit(cache=True, nogil=True)
def _assign(noisy, curve, spread, shares, chances):  # type: ignore[no-untyped-def]
    """Write the chances that each code is of each kind, and update their shares.

    Returns the log-likelihood of the shares before.
    """
    codes, kinds = chances.shape
    heights = np.empty(kinds)
    for k in range(kinds):
        heights[k] = math.log(shares[k]) - 0.5 * math.log(spread[k])
        shares[k] = TINY
    shares[0] += 1.0  # one code on the curve beforehand
    likelihood = 0.0
    for i in range(codes):
        largest, sum_ = -np.inf, 0.0
        for k in range(kinds):
            off = noisy[i] - (curve[i] if k < kinds - 1 else 0.0)
            chances[i, k] = heights[k] - 0.5 * off**2 / spread[k]
            largest = max(largest, chances[i, k])
        for k in range(kinds):
            chances[i, k] = math.exp(chances[i, k] - largest)
            sum_ += chances[i, k]
        for k in range(kinds):
            chances[i, k] /= sum_
            shares[k] += chances[i, k]
        likelihood += largest + math.log(sum_)
    sum_ = 0.0
    for k in range(kinds):
        sum_ += shares[k]
    for k in range(kinds):
        shares[k] /= sum_
    return likelihood


@njit(cache=True, nogil=True)
def _climb(  # type: ignore[no-untyped-def]
    noisy, weights, strength, kept, rest, slack, logs, variances
):
    """Take Newton's steps to the curve that minimises `_objective`.

    Writes the curve and the variances of its logarithm, and returns the log-determinant of the
    (expected) second derivative.
    """
    codes = noisy.size
    diagonal, slope, along = np.empty(codes), np.empty(codes), np.empty(codes)
    lift, moved = np.empty(codes), np.empty(codes)
    now = _objective(noisy, weights, strength, kept, rest, slack, logs)
    for step in range(STEPS + 1):
        sum_ = rest
        for i in range(codes):
            along[i] = kept[i] * math.exp(logs[i])
            sum_ -= along[i]
        for i in range(codes):
            level = math.exp(logs[i])
            slope[i] = weights[i] * level * (level - noisy[i]) - sum_ / slack * along[i]
            diagonal[i] = TINY + weights[i] * level**2
            if step < STEPS:  # the second derivative itself where it is larger
                diagonal[i] += weights[i] * level * max(level - noisy[i], 0.0)
                diagonal[i] += max(-sum_ / slack * along[i], 0.0)
            for j in (i - 1, i + 1):
                if 0 <= j < codes:
                    diagonal[i] += strength
                    slope[i] += strength * (logs[i] - logs[j])
        if step == STEPS:
            break
        _solve(diagonal, strength, slope)
        for i in range(codes):
            lift[i] = along[i]
        _solve(diagonal, strength, lift)
        share, longest = _product(along, slope) / (slack + _product(along, lift)), TINY
        for i in range(codes):
            slope[i] -= share * lift[i]
            longest = max(longest, abs(slope[i]))
        length = min(1.0, 3.0 / longest)
        for _ in range(20):
            for i in range(codes):
                moved[i] = logs[i] - length * slope[i]
            value = _objective(noisy, weights, strength, kept, rest, slack, moved)
            if value <= now:
                for i in range(codes):
                    logs[i] = moved[i]
                now = value
                break
            length /= 2
    for i in range(codes):
        lift[i] = along[i]
    log_det = _solve(diagonal, strength, lift)
    rank_one = slack + _product(along, lift)
    _inverse_diagonal(diagonal, strength, variances)
    for i in range(codes):
        variances[i] -= lift[i] ** 2 / rank_one
    return log_det + math.log(rank_one / slack)


@njit(cache=True, nogil=True)
def _product(left, right):  # type: ignore[no-untyped-def]
    """Return the inner product of two vectors."""
    sum_ = 0.0
    for i in range(left.size):
        sum_ += left[i] * right[i]
    return sum_


@njit(cache=True, nogil=True)
def _objective(noisy, weights, strength, kept, rest, slack, logs):  # type: ignore[no-untyped-def]
    """Return Σ w (noisy − λ)² + strength Σ (steps of log λ)² + (rest − Σ kept λ)² / slack."""
    sum_ = 0.0
    for i in range(noisy.size):
        level = math.exp(logs[i])
        rest -= kept[i] * level
        sum_ += weights[i] * (noisy[i] - level) ** 2
        if i:
            sum_ += strength * (logs[i] - logs[i - 1]) ** 2
    return sum_ + rest**2 / slack


@njit(cache=True, nogil=True)
def _solve(diagonal, strength, right):  # type: ignore[no-untyped-def]
    """Solve the system with this diagonal and −strength next to it, in place.

    Returns the log-determinant.
    """
    codes = diagonal.size
    pivots, log_det = np.empty(codes), math.log(diagonal[0])
    pivots[0] = diagonal[0]
    for i in range(1, codes):
        factor = strength / pivots[i - 1]
        pivots[i] = diagonal[i] - factor * strength
        log_det += math.log(pivots[i])
        right[i] += factor * right[i - 1]
    right[codes - 1] /= pivots[codes - 1]
    for i in range(codes - 2, -1, -1):
        right[i] = (right[i] + strength * right[i + 1]) / pivots[i]
    return log_det


@njit(cache=True, nogil=True)
def _inverse_diagonal(diagonal, strength, found):  # type: ignore[no-untyped-def]
    """Write the diagonal of the inverse of the same matrix, from pivots of both directions."""
    codes = diagonal.size
    up = np.empty(codes)
    up[codes - 1] = down = diagonal[codes - 1]
    for i in range(codes - 2, -1, -1):
        up[i] = diagonal[i] - strength**2 / up[i + 1]
    for i in range(codes):
        down = diagonal[i] - (strength**2 / down if i else 0.0)
        found[i] = 1 / (down + up[i] - diagonal[i])


@njit(cache=True, nogil=True)
def _moments(noisy, curve, spread, noise, chances, variances, found):  # type: ignore[no-untyped-def]
    """Write mean and variance of each count, over its kinds; counts are not negative."""
    codes, kinds = chances.shape
    for i in range(codes):
        level = curve[i]
        mean = chances[i, 0] * level
        square = chances[i, 0] * (level**2 + min(level**2 * variances[i], noise))
        for k in range(1, kinds - 1):
            trust = 1 - noise / spread[k]
            centre, std = level + trust * (noisy[i] - level), math.sqrt(trust * noise)
            z = max(centre / std, -5.0)
            lift = DENSITY * math.exp(-0.5 * z * z) / (0.5 * math.erfc(-z * ROOT))
            mean += chances[i, k] * std * (z + lift)
            square += chances[i, k] * std**2 * (1 + z * (z + lift))
        found[0, i] = mean
        found[1, i] = max(square - mean**2, 0.0)
