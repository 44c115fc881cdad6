"""Counts along an ordered column: a curve, codes that stand off it, and codes without rows.

The logarithm of the curve is a random walk along the codes. The count of a code is on the curve,
off it by a deviation of any size (a heap, or a gap), or zero. How often codes are which, and how
large deviations are, is learnt from the column (empirical Bayes with a scale mixture of normal
distributions: Stephens 2017, "False discovery rates: a new deal", eq. 2.3 and 2.6). So heaps stay
and the rest is smooth; if nothing is smooth, all codes are off the curve, and are what they are.

For a given variance of a step, rounds of expectation-maximisation alternate between the kinds of
the codes and the most likely curve (Newton, with tridiagonal systems). All counts together are
known: this is one more observation of the curve, a term of rank one. Estimates for several
variances of a step, each with tied and with loose ends, are averaged by their evidence in Laplace's
approximation (MacKay 1992, "Bayesian interpolation", eq. 9; the same for densities: Kitagawa and
Gersch 1985).
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dptsv, dpttrf
from scipy.special import ndtr

Array = NDArray[np.float64]

STRENGTHS: Array = np.exp2(2.0 * np.arange(-2, 12))
"""Precisions of a step of the walk: from steps that multiply by about 50 to hardly any."""
ENDS, LOOSE = 2, 2.0
"""Number of steps at either end that can have a precision of their own, and this precision. Codes
at the ends hold tails, or what is beyond a limit: neighbouring codes do not say how many rows."""
ROUNDS = 12
"""Rounds of expectation-maximisation."""
STEPS = 3
"""Newton's steps in a round."""
EMPTY, CURVE = 0.1, 0.6
"""Shares of codes without rows and of codes on the curve at the start."""
TINY, SURE = 1e-9, 1e-12
"""Added to the diagonal of a system, which is singular for a curve that nothing determines: as it
is, and times the largest precision of a step, so that rounding leaves it positive."""
MOST_AT_ONCE = 2**16
"""Most codes, times strengths, that are fitted together."""
DENSITY = 1 / math.sqrt(2 * math.pi)


def smooth_counts(
    noisy: Array, noise_std: float, total: float, beyond: int = 0, loose_ends: bool = False
) -> tuple[Array, Array]:
    """Return mean and variance of the count of each code (rows; rows²), given noisy ones.

    The noisy counts are unbiased, with independent noise of this positive standard deviation
    (rows). The total (rows) is positive. The last ``beyond`` codes are off the scale and left as
    they are. With ``loose_ends``, counts at the ends can differ more from their neighbours than
    other counts do.
    """
    means, variances = noisy.copy(), np.full(noisy.size, noise_std**2)
    size = noisy.size - beyond
    noisy, total = noisy[:size], max(total - noisy[size:].sum(), min(total, noise_std))
    largest = max(float(np.abs(noisy).max(initial=0.0)) / noise_std, 1.0)
    deviations = noise_std**2 * 4.0 ** np.arange(math.ceil(math.log2(largest)) + 2)
    even = total / size
    start = math.log(min(max(float(np.median(noisy)), even / 100), even))
    spread = noise_std**2 + np.concatenate([[0.0], deviations, [0.0]])
    shares = np.full(spread.size, (1 - CURVE - EMPTY) / deviations.size)
    shares[0], shares[-1] = CURVE, EMPTY
    at_once = max(MOST_AT_ONCE // size, 1)
    tied = np.repeat(STRENGTHS[:, None], size - 1, axis=1)
    loose = tied[STRENGTHS > LOOSE]
    loose[:, :ENDS] = loose[:, -ENDS:] = LOOSE
    every = np.concatenate([tied, loose]) if loose_ends else tied
    parts = [every[k : k + at_once] for k in range(0, len(every), at_once)]
    fits = [_fit(noisy, noise_std**2, total, part, spread, shares, start) for part in parts]
    evidence, found = map(np.concatenate, zip(*fits))
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    means[:size], variances[:size] = np.tensordot(weights, found, 1)
    variances[:size] += np.tensordot(weights, np.square(found[:, 0] - means[:size]), 1)
    return means, variances


# Arrays below have an axis of walks, one of kinds if they differ, and one of codes. The strengths
# (precisions of the steps) have one of walks and one of steps.


def _fit(
    noisy: Array,
    noise: float,
    total: float,
    strengths: Array,
    spread: Array,
    shares: Array,
    start: float,
) -> tuple[Array, Array]:
    """Return the log-evidence of each walk, and mean and variance of each count for it.

    ``spread`` has the variance of a noisy count of each kind around the curve, or around 0 for the
    last kind. ``shares`` of the kinds and ``start``, the logarithm of the curve, are those at the
    start.
    """
    logs = np.full((len(strengths), noisy.size), start)
    chances = np.zeros((len(strengths), spread.size, noisy.size))
    chances[:, 0] = 1.0
    shares = np.tile(shares, (len(strengths), 1))
    for _ in range(ROUNDS):
        weights = np.einsum("sku,k->su", chances[:, :-1], 1 / spread[:-1])
        kept = noise * weights
        off = 1 - chances[:, -1] - kept
        rest, slack = total - (off * noisy).sum(axis=1), noise * (1 + off.sum(axis=1))
        fit = _Fit(noisy, strengths, weights, kept, rest, slack)
        logs, variances, log_det = _climb(fit, logs)
        curve = np.exp(logs)
        likelihood, chances, shares = _assign(noisy, curve, spread, shares)
    penalty = (strengths * np.square(np.diff(logs))).sum(axis=1) + log_det + np.log(slack)
    penalty += np.square(rest - (kept * curve).sum(axis=1)) / slack
    penalty -= np.log(strengths).sum(axis=1)
    return likelihood - 0.5 * penalty, _moments(noisy, curve, spread, noise, chances, variances)


def _assign(noisy: Array, curve: Array, spread: Array, shares: Array) -> tuple[Array, Array, Array]:
    """Return the log-likelihood, the chances that each code is of each kind, and new shares."""
    heights = np.log(shares) - 0.5 * np.log(spread)
    chances = np.repeat((noisy - curve)[:, None], spread.size, axis=1)
    chances[:, -1] = noisy
    np.square(chances, out=chances)
    chances *= -0.5 / spread[:, None]
    chances += heights[:, :, None]
    largest = chances.max(axis=1, keepdims=True)
    np.exp(np.subtract(chances, largest, out=chances), out=chances)
    sums = chances.sum(axis=1, keepdims=True)
    chances /= sums
    shares = TINY + chances.sum(axis=2)
    shares[:, 0] += 1.0  # one code on the curve beforehand
    likelihood = (largest + np.log(sums)).sum(axis=(1, 2))
    return likelihood, chances, shares / shares.sum(axis=1, keepdims=True)


class _Fit(NamedTuple):
    """Data of one least-squares fit of curves.

    The curve λ minimises Σ w (noisy − λ)² + Σ strengths (steps of log λ)² + (rest − Σ kept λ)² /
    slack, where w are the ``weights``.
    """

    noisy: Array
    strengths: Array
    weights: Array
    kept: Array
    rest: Array
    slack: Array

    def penalty(self, logs: Array) -> Array:
        """Return the objective at the logarithms of the curves."""
        level = np.exp(logs)
        sums = (self.weights * np.square(self.noisy - level)).sum(axis=1)
        sums += (self.strengths * np.square(np.diff(logs))).sum(axis=1)
        return sums + np.square(self.rest - (self.kept * level).sum(axis=1)) / self.slack


def _climb(fit: _Fit, logs: Array) -> tuple[Array, Array, Array]:
    """Take Newton's steps to the curve.

    Returns its logarithm, its variances, and the log-determinant of the (expected) second
    derivative.
    """
    noisy, strengths, weights, kept, rest, slack = fit
    coupled = np.zeros_like(logs)  # all systems are solved as one
    coupled[:, :-1] = -strengths
    couplings = coupled.ravel()
    least = TINY + SURE * strengths.max(axis=1, keepdims=True, initial=0.0)
    now = fit.penalty(logs)
    for step in range(STEPS + 1):
        level = np.exp(logs)
        along = kept * level
        pull = ((rest - along.sum(axis=1)) / slack)[:, None] * along
        above = level - noisy
        slope = weights * level * above - pull
        diagonal = least + weights * np.square(level)
        if step < STEPS:  # the second derivative itself where it is larger
            diagonal += weights * level * np.maximum(above, 0.0) + np.maximum(-pull, 0.0)
        steps = strengths * np.diff(logs)
        diagonal[:, 1:] += strengths
        diagonal[:, :-1] += strengths
        slope[:, 1:] += steps
        slope[:, :-1] -= steps
        right = np.stack([slope.ravel(), along.ravel()], axis=1)
        pivots, _, solved, _ = dptsv(diagonal.ravel(), couplings[:-1], right)
        change, lift = solved.T.reshape(2, *slope.shape)
        rank_one = slack + (along * lift).sum(axis=1)
        if step == STEPS:
            break
        change -= ((along * change).sum(axis=1) / rank_one)[:, None] * lift
        length = np.minimum(1.0, 3.0 / np.maximum(np.abs(change).max(axis=1), TINY))
        pending = np.full(length.size, True)
        for _ in range(20):
            moved = logs - length[:, None] * change
            value = fit.penalty(moved)
            better = pending & (value <= now)
            logs, now = np.where(better[:, None], moved, logs), np.where(better, value, now)
            pending &= ~better
            if not pending.any():
                break
            length /= 2
    # Pivots of both directions give the diagonal of the inverse.
    back = dpttrf(diagonal.ravel()[::-1], couplings[-2::-1])[0][::-1]
    ahead, behind = pivots.reshape(logs.shape), back.reshape(logs.shape)
    variances = 1 / (ahead + behind - diagonal) - np.square(lift) / rank_one[:, None]
    return logs, variances, np.log(ahead).sum(axis=1) + np.log(rank_one / slack)


def _moments(
    noisy: Array, curve: Array, spread: Array, noise: float, chances: Array, variances: Array
) -> Array:
    """Return mean and variance of each count, over its kinds; counts are not negative."""
    mean = chances[:, 0] * curve
    known = np.square(curve) + np.minimum(np.square(curve) * variances, noise)
    square = chances[:, 0] * known
    for k in range(1, spread.size - 1):
        trust = 1 - noise / spread[k]
        std = math.sqrt(trust * noise)
        z = np.maximum((curve + trust * (noisy - curve)) / std, -5.0)
        lifted = z + DENSITY * np.exp(-0.5 * np.square(z)) / ndtr(z)
        mean += chances[:, k] * std * lifted
        square += chances[:, k] * std**2 * (1 + z * lifted)
    return np.stack([mean, np.maximum(square - np.square(mean), 0.0)], axis=1)
