"""What the fit aims at: single columns without most of their noise, and a model that has them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from adaptive_qs.generate.loglinear import Array, Target, make_target, project_to_simplex
from adaptive_qs.machine import njit
from adaptive_qs.residual import ReferenceModel, ResidualEstimate, decompose

# Two estimates of non-negative counts are averaged; both see released values only.
#
# A projection is bound to the noisy counts. Where codes are unordered, it is the nearest point of
# the simplex, which takes the same from every cell. Where they are ordered, the distribution
# function is projected instead (isotonic regression), which moves mass between neighbours only.
#
# The other is a posterior mean, with a prior learnt from the column itself (Robbins 1956). Cells of
# an unordered column have levels drawn from one unknown distribution (Kiefer and Wolfowitz 1956; by
# expectation-maximisation on a grid, Laird 1978), so that rare codes are pooled. Along an ordered
# column a cell keeps the level of its neighbour but for a jump, whose probability is learnt as well
# (Barry and Hartigan 1992), so that runs of like cells are pooled.


CLEAR = 8.0
"""Standard deviations above which a cell is left as it is: the noise is small beside it."""
LEVELS = 41
"""Levels of the grid, from 0 to somewhat more than ``CLEAR`` standard deviations."""
ROUNDS = 60
"""Rounds of expectation-maximisation: the estimates hardly move after a few dozen."""
FARTHEST = 1e6
"""Standard deviations below 0 that no honest count is, beyond which squares would overflow."""


def denoised_counts(
    noisy: Array, noise_std: float, total: float, ordered: bool, independent: bool = True
) -> Array:
    """Non-negative counts of a column's codes, nearer to the true ones than the noisy ones are.

    Args:
        noisy: an unbiased estimate of each count (rows), shape (codes,).
        noise_std: standard deviation of its noise (rows), positive.
        total: what the counts sum to (rows), positive.
        ordered: whether neighbouring codes are alike, and prefixes of them count.
        independent: whether the noise of one cell says nothing of that of another. That of a
            strategy does: its answers to ranges are precise already, and are kept as they are but
            for the projection.
    """
    projected = (project_distribution if ordered else project_to_simplex)(noisy, total)
    if not independent:
        return projected
    return 0.5 * (projected + posterior_means(noisy, noise_std, total, ordered))


def project_distribution(noisy: Array, total: float) -> Array:
    """The counts whose cumulative sums are nearest to those of the noisy ones, in Euclidean
    distance, among non-negative counts that sum to ``total``, shape (codes,)."""
    sums = np.cumsum(noisy)[:-1]
    if sums.size:
        sums = np.clip(nearest_monotone(sums), 0.0, total)
    return np.diff(sums, prepend=0.0, append=total)


def nearest_monotone(values: Array) -> Array:
    """Find the non-decreasing values nearest in Euclidean distance, by pooling adjacent violators.

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
    """Mean counts given the noisy ones, under a prior learnt from these, shape (codes,).

    They are brought to the total by moving each in proportion to its posterior variance, so that
    cells that are surely empty stay so.
    """
    means, variances = noisy.copy(), np.full(noisy.size, noise_std**2)
    unclear = np.flatnonzero(noisy < CLEAR * noise_std)
    if unclear.size:
        grid = np.linspace(0.0, 1.25 * CLEAR * noise_std, LEVELS)
        bounded = np.maximum(noisy[unclear], -FARTHEST * noise_std)
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
    return _brought_to(means, np.maximum(variances, 1e-6 * noise_std**2), total)


def _brought_to(means: Array, variances: Array, total: float) -> Array:
    """max(means + c · variances, 0) with the c for which this sums to the total."""
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
    """Mean and variance of each cell's level given all cells: forwards and backwards along them.

    A cell has the level of the one before, or after a jump a new one from the prior; unordered
    cells always jump. Prior and probability of a jump are those that make the cells likeliest.
    Arrays from ``before`` on are filled, ``after`` and ``prior`` from ones and equal chances.
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


# The columns and the model that the fit aims at.

LEAST_ROWS = 0.5
"""Rows of a code in the distribution of its column, which is strictly positive."""


def single_targets(model: ReferenceModel) -> list[Target]:
    """The counts of every column, denoised, with the noise that they were measured with."""
    return [single_target(model, i) for i in range(len(model.domain))]


def single_target(model: ReferenceModel, attribute: int) -> Target:
    """The same of one column."""
    projected = make_target(model, (attribute,))
    if not model.precision((attribute,)):
        return projected
    counts = denoised_counts(
        model.marginal((attribute,)),
        projected.noise_std,
        max(model.total, 1.0),
        model.domain.attributes[attribute].ordered,
        independent=attribute not in model.column_noise,
    )
    return Target(projected.clique, counts, projected.noise_std)


def positive_shares(singles: Sequence[Target]) -> tuple[Array, ...]:
    """A strictly positive distribution for each column, of at least half a row for each code."""
    floored = (np.maximum(target.counts, LEAST_ROWS) for target in singles)
    return tuple(counts / math.fsum(counts) for counts in floored)


def denoised_model(model: ReferenceModel, singles: Sequence[Target]) -> ReferenceModel:
    """The model with these single columns: their residuals instead of the measured ones, and their
    product as the reference. Interactions are as measured."""
    estimates = dict(model.estimates)
    for target in singles:
        measured = estimates.get(target.clique)
        if measured is not None:
            residual = decompose(target.counts, target.clique, target.clique)
            estimates[target.clique] = ResidualEstimate(residual, measured.precision)
    return ReferenceModel(model.domain, positive_shares(singles), estimates, model.column_noise)
