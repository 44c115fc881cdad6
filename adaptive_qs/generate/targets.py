"""The marginals that a fit aims at: released counts without most of their noise."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.generate.walk import smooth_counts
from adaptive_qs.machine import njit
from adaptive_qs.residual import ReferenceModel, ResidualEstimate, decompose, variance_weight

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Target:
    """A marginal to match.

    Attributes:
        clique: γ.
        counts: non-negative counts that sum to the number of rows; shaped like the marginal.
        noise_std: standard deviation of the noise in one cell (rows).
    """

    clique: Clique
    counts: Array
    noise_std: float

    def scaled(self, factor: float) -> Target:
        """Return the target of a table with ``factor`` times as many rows."""
        return Target(self.clique, self.counts * factor, self.noise_std * factor)

    def times(self, ratio: Array) -> Target:
        """Return the target with other shares and as many rows."""
        counts = self.counts * ratio
        return replace(self, counts=counts * (self.counts.sum() / counts.sum()))


def make_target(
    model: ReferenceModel, clique: Clique, allowed: NDArray[np.bool_] | None = None
) -> Target:
    """Project a marginal onto the non-negative tables of the model's total.

    The Euclidean projection adds no mass, as clipping at zero would. The noise is that of the
    measured residuals; an unmeasured one adds none.

    Args:
        model: the noisy estimates.
        clique: γ.
        allowed: cells that can have counts; by default all.
    """
    measured = ((tau, model.precision(tau)) for tau in model.domain.below(clique))
    variance = math.fsum(
        variance_weight(model.domain, tau, clique) / precision
        for tau, precision in measured
        if precision > 0
    )
    counts, total = model.marginal(clique), max(model.total, 1.0)
    if allowed is None:
        counts = project_to_simplex(counts, total)
    else:
        counts = np.array(counts)
        counts[allowed] = project_to_simplex(counts[allowed], total)
        counts[~allowed] = 0.0
    return Target(clique, counts, math.sqrt(variance))


def project_to_simplex(array: Array, total: float) -> Array:
    """Return the nearest non-negative array with a given sum (Held, Wolfe and Crowder 1974)."""
    largest = array.max()
    flat = np.sort(array, axis=None)[::-1] - largest  # keeps the digits of the differences
    excess = np.cumsum(flat) - total
    rank = np.arange(1, flat.size + 1)
    last = np.flatnonzero(flat * rank > excess)[-1]
    return np.maximum(array - largest - excess[last] / (last + 1), 0.0)


# Single columns are denoised: two estimates of their counts are averaged.
#
# The first is a projection of the noisy counts. Where codes are unordered, it is the nearest point
# of the simplex, which takes the same from every cell. Where they are ordered, the distribution
# function is projected instead (isotonic regression), which moves mass between neighbours only. The
# less of the rows is in codes that stand clear of the noise, the more a smooth curve from which
# heaps stand off (`walk.py`) takes its place.
#
# The second is a posterior mean, with a prior learnt from the column itself (Robbins 1956). Cells
# of an unordered column have levels drawn from one unknown distribution (Kiefer and Wolfowitz 1956;
# by expectation-maximisation on a grid, Laird 1978), so that rare codes are pooled. Along an
# ordered column a cell keeps the level of its neighbour except after a jump, whose probability is
# learnt as well (Barry and Hartigan 1992), so that runs of similar cells are pooled.

CLEAR = 8.0
"""Standard deviations of the noise above which a count is left as it is."""
LEVELS = 41
"""Number of levels of the grid, from 0 to 1.25 · ``CLEAR`` standard deviations."""
ROUNDS = 60
"""Rounds of expectation-maximisation."""


def effective_codes(noisy: Array, noise_std: float, total: float, beyond: int = 0) -> float:
    """Return how many codes without order would have as much error as these with smoothed counts.

    Arguments as for :func:`denoise_counts`, of an ordered column with independent noise. Smoothing
    leaves a count the standard deviation of its posterior; none of it counts where codes are clear.
    """
    clear = min(noisy[noisy >= CLEAR * noise_std].sum() / total, 1.0)
    _, variances = smooth_counts(noisy, noise_std, total, beyond)
    left = float(np.sqrt(np.minimum(variances, noise_std**2)).sum()) / noise_std
    return clear * noisy.size + (1 - clear) * max(left, 1.0)


def denoise_counts(
    noisy: Array,
    noise_std: float,
    total: float,
    ordered: bool,
    independent: bool = True,
    beyond: int = 0,
) -> Array:
    """Estimate the non-negative counts of a column's codes from noisy ones.

    Args:
        noisy: an unbiased estimate of each count (rows), shape (codes,).
        noise_std: standard deviation of its noise (rows), positive.
        total: sum of the counts (rows), positive.
        ordered: whether neighbouring codes are similar and prefixes of them matter.
        independent: whether the noise of different cells is independent. The noise of a strategy
            is not: its ranges are precise already, so that they are only projected.
        beyond: number of codes at the end that are off the scale of the others.
    """
    projected = (project_distribution if ordered else project_to_simplex)(noisy, total)
    if not independent:
        return projected
    if ordered:
        clear = min(noisy[noisy >= CLEAR * noise_std].sum() / total, 1.0)
        means, variances = smooth_counts(noisy, noise_std, total, beyond)
        smooth = _move_to_total(means, np.maximum(variances, 1e-6 * noise_std**2), total)
        projected = clear * projected + (1 - clear) * smooth
    return 0.5 * (projected + posterior_means(noisy, noise_std, total, ordered))


def project_distribution(noisy: Array, total: float) -> Array:
    """Return the non-negative counts of a given sum whose cumulative sums are the nearest."""
    sums = np.cumsum(noisy)[:-1]
    if sums.size:
        sums = np.clip(nearest_monotone(sums), 0.0, total)
    return np.diff(sums, prepend=0.0, append=total)


def nearest_monotone(values: Array) -> Array:
    """Return the nearest non-decreasing values, by pooling adjacent violators.

    (Isotonic regression. SciPy has it in a package that takes longer to import than this to run.)
    """
    means: list[float] = []
    sizes: list[int] = []
    left = deque(values.tolist())
    while left:
        total, size = left.popleft(), 1
        mean, first = total, True
        while means and means[-1] >= mean:
            size += sizes[-1]
            total += sizes.pop() * means.pop()
            mean = total / size
            while first and left and mean >= left[0]:
                total, size = total + left.popleft(), size + 1
                mean = total / size
            first = False
        means.append(mean)
        sizes.append(size)
    return np.repeat(means, sizes)


def posterior_means(noisy: Array, noise_std: float, total: float, ordered: bool) -> Array:
    """Return the mean counts given the noisy ones, under a prior learnt from these.

    Each mean moves in proportion to its posterior variance until all sum to the total, so that
    cells that are surely empty stay empty.
    """
    means, variances = noisy.copy(), np.full(noisy.size, noise_std**2)
    unclear = np.flatnonzero(noisy < CLEAR * noise_std)
    if unclear.size:
        grid = np.linspace(0.0, 1.25 * CLEAR * noise_std, LEVELS)
        bounded = np.maximum(noisy[unclear], -1e6 * noise_std)  # squares do not overflow
        likelihood = np.subtract.outer(bounded, grid).astype(np.float32)
        likelihood /= noise_std
        np.square(likelihood, out=likelihood)
        likelihood -= likelihood.min(axis=1, keepdims=True)
        likelihood *= -0.5
        np.exp(likelihood, out=likelihood)
        likelihood += 1e-30
        scratch = np.empty_like(likelihood), np.ones_like(likelihood)
        prior, levels = np.full(LEVELS, 1.0 / LEVELS), np.empty((2, LEVELS))
        found = np.empty((2, unclear.size))
        _smooth(likelihood, grid, ordered, *scratch, prior, *levels, *found)
        means[unclear], variances[unclear] = found
    return _move_to_total(means, np.maximum(variances, 1e-6 * noise_std**2), total)


def _move_to_total(means: Array, variances: Array, total: float) -> Array:
    """Return max(means + c · variances, 0) with the c for which this sums to the total."""
    turning = -means / variances  # a cell is positive for c above it
    order = np.argsort(turning, kind="stable")
    slopes, levels = np.cumsum(variances[order]), np.cumsum(means[order])
    shifts = (total - levels) / slopes  # where the cells up to a rank are the positive ones
    rank = np.flatnonzero(shifts > turning[order])[-1]
    return np.maximum(means + shifts[rank] * variances, 0.0)


@njit(cache=True, nogil=True)
def _smooth(  # type: ignore[no-untyped-def]
    likelihood, grid, ordered, before, after, prior, weights, entered, means, variances
):
    """Write mean and variance of each cell's level given all cells (forward-backward).

    A cell has the level of the one before, or after a jump a new one from the prior; unordered
    cells always jump. Prior and probability of a jump maximise the likelihood.
    ``after`` and ``prior`` start with ones and equal probabilities; the other outputs are empty.
    """
    cells, levels = likelihood.shape
    jump = 0.5 if ordered else 1.0
    for _ in range(ROUNDS):
        for i in range(cells):
            total = 0.0
            for k in range(levels):
                chance = prior[k] if i == 0 else (1 - jump) * before[i - 1, k] + jump * prior[k]
                weights[k] = chance * likelihood[i, k]
                total += weights[k]
            for k in range(levels):
                before[i, k] = weights[k] / total
        jumps = 0.0
        for k in range(levels):
            entered[k] = 0.0
        for i in range(cells - 1, 0, -1):
            new, stay, largest = 0.0, 0.0, 0.0
            for k in range(levels):
                ahead = likelihood[i, k] * after[i, k]
                new += prior[k] * ahead
                stay += (1 - jump) * before[i - 1, k] * ahead
            whole = stay + jump * new
            for k in range(levels):
                ahead = likelihood[i, k] * after[i, k]
                entered[k] += jump * prior[k] * ahead / whole
                weights[k] = (1 - jump) * ahead + jump * new
                largest = max(largest, weights[k])
            jumps += jump * new / whole
            for k in range(levels):
                after[i - 1, k] = weights[k] / largest
        total = 0.0
        for k in range(levels):
            weights[k] = before[0, k] * after[0, k]
            total += weights[k]
        whole = 0.0
        for k in range(levels):
            entered[k] += weights[k] / total
            whole += entered[k]
        for k in range(levels):
            prior[k] = entered[k] / whole
        if ordered:
            jump = (jumps + 1) / (cells + 1)
    for i in range(cells):
        total, mean, square = 0.0, 0.0, 0.0
        for k in range(levels):
            weight = np.float64(before[i, k]) * after[i, k]
            total += weight
            mean += weight * grid[k]
            square += weight * grid[k] ** 2
        means[i] = mean / total
        variances[i] = square / total - means[i] ** 2


def filled_pairs(model: ReferenceModel, measured: Iterable[Clique]) -> dict[Clique, Array]:
    """Return the copula of the pairs that are in no measured clique."""
    held = {pair for c in measured for pair in combinations(model.domain.columns(c), 2)}
    return {pair: ratio for pair, ratio in model.copula.items() if pair not in held}


def single_targets(model: ReferenceModel) -> list[Target]:
    """Return the denoised counts of every column, with the noise of their measurement."""
    return [single_target(model, i) for i in range(len(model.domain))]


def single_target(model: ReferenceModel, attribute: int) -> Target:
    """Return the denoised counts of one column, with the noise of their measurement."""
    projected = make_target(model, (attribute,))
    if not model.precision((attribute,)):
        return projected
    described = model.domain.attributes[attribute]
    counts = denoise_counts(
        model.marginal((attribute,)),
        projected.noise_std,
        max(model.total, 1.0),
        described.ordered,
        attribute not in model.column_noise,
        described.beyond,
    )
    return Target(projected.clique, counts, projected.noise_std)


def positive_shares(singles: Sequence[Target]) -> tuple[Array, ...]:
    """Return a strictly positive distribution of each column, with half a row or more per code."""
    floored = (np.maximum(target.counts, 0.5) for target in singles)
    return tuple(counts / math.fsum(counts) for counts in floored)


def denoise_model(model: ReferenceModel, singles: Sequence[Target]) -> ReferenceModel:
    """Return the model with the residuals of these single columns, and their product as reference.

    Interactions stay as measured.
    """
    estimates = dict(model.estimates)
    for target in singles:
        measured = estimates.get(target.clique)
        if measured is not None:
            residual = decompose(target.counts, target.clique, target.clique)
            estimates[target.clique] = ResidualEstimate(residual, measured.precision)
    return ReferenceModel(model.domain, positive_shares(singles), estimates, model.column_noise)
