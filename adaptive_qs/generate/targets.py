"""The marginals that a fit aims at: released counts without most of their noise."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.generate.walk import smooth_counts
from adaptive_qs.levels import Grouping
from adaptive_qs.residual import ReferenceModel, ResidualEstimate, decompose, variance_weight

Array = NDArray[np.float64]


STEP = 3.0
"""Length of a step towards a trend, compared with those towards cells."""
MOST_STEP = 10.0
"""Largest change of a logarithm in it: ranks of rare codes can be hundreds."""


@dataclass(frozen=True)
class Trend:
    """Spearman's rank correlation of a measured pair, without the bias of a projection.

    Attributes:
        scores: ranks of the codes of each column, with mean 0 and variance 1 over the rows; codes
            off the scale have 0.
        product: sum over the rows of the product of both scores, as measured. It is the
            correlation times the number of rows.
        noise_std: standard deviation of the noise of the product.
    """

    scores: tuple[Array, Array]
    product: float
    noise_std: float

    def scaled(self, factor: float) -> Trend:
        """Return the trend of a table with ``factor`` times as many rows."""
        return Trend(self.scores, self.product * factor, self.noise_std * factor)

    def misfit(self, counts: Array, share: float) -> tuple[float, float]:
        """Return how far the product is above that of ``counts``, in rows and standard deviations.

        ``counts`` have this ``share`` of the rows. The deviation has parts from the noise of the
        measurement and from the chance of drawing rows.
        """
        first, second = self.scores
        off = float(share * self.product - first @ counts @ second)
        return off, off / math.hypot(share * self.noise_std, max(float(counts.sum()), 1.0) ** 0.5)

    def ratio(self, counts: Array, exponent: float, off: float) -> Array:
        """Return factors for the weights of the pair, which bring its product nearer.

        ``off`` comes from :meth:`misfit`, and ``exponent`` is the length of the step.
        """
        steps = np.outer(*self.scores) / max(float(counts.sum()), 1.0)
        return np.exp(np.clip(STEP * exponent * off * steps, -MOST_STEP, MOST_STEP))


@dataclass(frozen=True)
class Target:
    """A marginal to match: non-negative counts that sum to the number of rows, shaped like it.

    ``noise_std`` is the standard deviation of the noise in one cell (rows). ``parts`` are axes of
    marginals that the weights do not follow. ``clear`` is the share, from 0 to 1, of the dependence
    of its attributes that they follow.
    """

    clique: Clique
    counts: Array
    noise_std: float
    trend: Trend | None = None
    parts: tuple[tuple[int, ...], ...] = ()
    clear: float = 1.0

    def scaled(self, factor: float) -> Target:
        """Return the target of a table with ``factor`` times as many rows."""
        trend = self.trend and self.trend.scaled(factor)
        counts, noise_std = self.counts * factor, self.noise_std * factor
        return replace(self, counts=counts, noise_std=noise_std, trend=trend)

    def times(self, ratio: Array, misfit: float) -> Target:
        """Return the target with other shares and as many rows.

        ``misfit`` is by how much a cell may be off, as a part of a cell of mean size.
        """
        counts = self.counts * ratio
        counts *= self.counts.sum() / counts.sum()
        return replace(self, trend=None, counts=counts, noise_std=misfit * float(counts.mean()))


def marginal_std(model: ReferenceModel, clique: Clique, least: int = 0) -> float:
    """Return the standard deviation of the noise in a cell of a marginal (rows).

    It is that of measured residuals of ``least`` attributes or more; an unmeasured one adds none.
    """
    below = (tau for tau in model.domain.below(clique) if len(tau) >= least)
    measured = ((tau, model.precision(tau)) for tau in below)
    return math.sqrt(
        math.fsum(
            variance_weight(model.domain, tau, clique) / precision
            for tau, precision in measured
            if precision > 0
        )
    )


def make_target(
    model: ReferenceModel, clique: Clique, allowed: NDArray[np.bool_] | None = None
) -> Target:
    """Return a marginal of the model, projected onto non-negative tables of the same total.

    The Euclidean projection adds no mass, as clipping at zero would. Only ``allowed`` cells can
    have counts.
    """
    counts, total = model.marginal(clique), max(model.total, 1.0)
    if allowed is None:
        counts = project_to_simplex(counts, total)
    else:
        counts = np.array(counts)
        counts[allowed] = project_to_simplex(counts[allowed], total)
        counts[~allowed] = 0.0
    return Target(clique, counts, marginal_std(model, clique))


def make_fit_target(
    model: ReferenceModel, clique: Clique, allowed: NDArray[np.bool_] | None
) -> Target:
    """Return what :func:`make_target` does, with the trend of a pair if all cells are allowed."""
    target = make_target(model, clique, allowed)
    if allowed is not None:
        return target
    return replace(target, trend=find_trend(model, clique, target.counts, target.noise_std))


def make_fit_targets(
    model: ReferenceModel,
    allowed: Mapping[Clique, NDArray[np.bool_] | None],
    measured: Iterable[Clique],
) -> dict[Clique, Target]:
    """Return the target of each clique, whose cells are all allowed if it maps to None.

    ``clear`` is estimated for the measured cliques with all cells allowed, and 1 for the others
    (docs/proofs.md, section 7).
    """
    targets = {clique: make_fit_target(model, clique, cells) for clique, cells in allowed.items()}
    judged = [clique for clique in measured if allowed[clique] is None]
    odds, share, total = np.zeros(len(judged)), 0.5, max(model.total, 1.0)
    for k, clique in enumerate(judged):
        alone = total * reduce(np.multiply.outer, map(model.shares, clique))
        counts = targets[clique].counts
        change, noise = counts - alone, marginal_std(model, clique, least=2) ** 2
        clear = np.vdot(change, model.marginal(clique) - alone) - noise * np.count_nonzero(counts)
        odds[k] = (max(clear, 0.0) / (max(np.vdot(change, change) - clear, 0.0) + 1e-9)) ** 2
    for _ in range(20):
        parts = share * odds / (share * odds + 1 - share)
        share = (parts.sum() + 1) / (parts.size + 2)
    kept = np.where(parts < 0.99, parts ** max(1 - share / (1 - share), 0), 1.0)
    parted = {c: replace(targets[c], clear=part) for c, part in zip(judged, kept.tolist())}
    return targets | parted


def find_trend(model: ReferenceModel, clique: Clique, counts: Array, std: float) -> Trend | None:
    """Return the trend of a pair of ordered columns, measured at codes; None for other marginals.

    The projected ``counts`` decide the ranks. Cells have noise of standard deviation ``std``.
    """
    domain, scores = model.domain, list[Array]()
    if len(clique) != 2 or clique != domain.columns(clique):
        return None
    attributes = [domain.attributes[i] for i in clique]
    if not all(each.ordered and each.size > 2 for each in attributes):
        return None
    for axis, each in enumerate(attributes):
        scaled = np.arange(each.size) < each.size - each.beyond
        rows = counts.sum(axis=1 - axis) * scaled
        ranks = (np.cumsum(rows) - rows / 2 - rows.sum() / 2) * scaled
        spread = math.sqrt(rows @ ranks**2 / max(counts.sum(), 1e-9))
        if spread < 1e-6:
            return None
        scores.append(ranks / spread)
    first, second = scores
    product = float(first @ model.marginal(clique) @ second)
    return Trend((first, second), product, std * float(np.linalg.norm(np.outer(first, second))))


def project_to_simplex(array: Array, total: float) -> Array:
    """Return the nearest non-negative array with a given sum (Held, Wolfe and Crowder 1974)."""
    largest = array.max()
    flat = np.sort(array, axis=None)[::-1] - largest  # keeps the digits of the differences
    excess = np.cumsum(flat) - total
    rank = np.arange(1, flat.size + 1)
    last = np.flatnonzero(flat * rank > excess)[-1]
    return np.maximum(array - largest - excess[last] / (last + 1), 0.0)


# Single columns are denoised. Many ordered codes lie along a smooth curve, with heaps and gaps
# (`walk.py`); of few the distribution function is projected (isotonic regression), which moves mass
# between neighbours only. Of unordered ones two estimates are averaged: the nearest point of the
# simplex, which takes the same from every cell, and a posterior mean whose prior is learnt from the
# column itself (Robbins 1956). Cells have levels drawn from one unknown distribution (Kiefer and
# Wolfowitz 1956; by expectation-maximisation on a grid, Laird 1978), so that rare codes are pooled.

SMOOTH_CODES = 8
"""Number of codes up to which there is nothing to smooth."""
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
    loose_ends: bool = False,
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
        loose_ends: whether counts at the ends of the scale can differ more from their neighbours.
    """
    if ordered and independent and noisy.size > SMOOTH_CODES:
        means, variances = smooth_counts(noisy, noise_std, total, beyond, loose_ends)
        return _move_to_total(means, variances, noise_std, total)
    projected = (project_distribution if ordered else project_to_simplex)(noisy, total)
    if ordered or not independent:
        return projected
    return 0.5 * (projected + posterior_means(noisy, noise_std, total))


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


def posterior_means(noisy: Array, noise_std: float, total: float) -> Array:
    """Return the mean counts given the noisy ones, under a prior learnt from these."""
    means, variances = noisy.copy(), np.full(noisy.size, noise_std**2)
    unclear = np.flatnonzero(noisy < CLEAR * noise_std)
    if unclear.size:
        grid = np.linspace(0.0, 1.25 * CLEAR * noise_std, LEVELS)
        bounded = np.maximum(noisy[unclear], -1e6 * noise_std)  # squares do not overflow
        squares = np.square(np.subtract.outer(bounded, grid) / noise_std)
        likelihood = np.exp(-0.5 * (squares - squares.min(axis=1, keepdims=True))) + 1e-30
        chances = np.ones_like(likelihood)
        for _ in range(ROUNDS):
            chances = likelihood * chances.mean(axis=0)
            chances /= chances.sum(axis=1, keepdims=True)
        means[unclear] = chances @ grid
        variances[unclear] = chances @ grid**2 - means[unclear] ** 2
    return _move_to_total(means, variances, noise_std, total)


def _move_to_total(means: Array, variances: Array, noise_std: float, total: float) -> Array:
    """Return max(means + c · variances, 0) with the c for which this sums to the total.

    So each mean moves in proportion to its variance, and cells that are surely empty stay empty.
    """
    variances = np.maximum(variances, 1e-6 * noise_std**2)
    turning = -means / variances  # a cell is positive for c above it
    order = np.argsort(turning, kind="stable")
    slopes, levels = np.cumsum(variances[order]), np.cumsum(means[order])
    shifts = (total - levels) / slopes  # where the cells up to a rank are the positive ones
    rank = np.flatnonzero(shifts > turning[order])[-1]
    return np.maximum(means + shifts[rank] * variances, 0.0)


COARSE = 8
"""Number of groups of ordered codes in coarser targets."""


def coarser_targets(
    model: ReferenceModel, cliques: Iterable[Clique], singles: Sequence[Target]
) -> tuple[Domain, dict[Clique, Target]]:
    """Return targets of pairs over groups of ordered codes, and the domain with these groups.

    A cell of few rows says little alone; a group of them can be clear. Attributes without levels
    get groups of equal sums of √counts, which tails are a part of (Dalenius and Hodges 1959).
    """
    domain, pairs = model.domain, [clique for clique in cliques if len(clique) == 2]
    groupings, level = [*domain.groupings], {i: domain.chain(i)[-1] for i in range(len(domain))}
    for i in sorted({i for pair in pairs for i in domain.columns(pair)}):
        if level[i] == i and domain.attributes[i].ordered and domain.sizes[i] > COARSE:
            roots = np.sqrt(singles[i].counts)
            places = (np.cumsum(roots) - roots / 2) / roots.sum()
            groups = np.unique((COARSE * places).astype(np.int64), return_inverse=True)[1]
            level[i] = len(domain) + len(groupings)
            groupings.append(Grouping(i, tuple(groups.tolist())))
    leveled, found = Domain(domain.attributes, tuple(groupings)), dict[Clique, Target]()
    for pair in pairs:
        coarse = tuple(level[i] for i in domain.columns(pair))
        if coarse != pair and not leveled.is_below(pair, coarse):
            fine, noise_std = model.marginal(pair), marginal_std(model, pair)
            counts = leveled.summed(fine, pair, coarse)
            noise_std *= math.sqrt(fine.size / counts.size)
            counts = project_to_simplex(counts, max(model.total, 1.0))
            found[coarse] = Target(coarse, counts, noise_std)
    return leveled, found


def filled_pairs(model: ReferenceModel, measured: Iterable[Clique]) -> dict[Clique, Array]:
    """Return the copula of the pairs that are in no measured clique."""
    held = {pair for c in measured for pair in combinations(model.domain.columns(c), 2)}
    return {pair: ratio for pair, ratio in model.copula.items() if pair not in held}


def find_misfit(
    model: ReferenceModel, copula: Mapping[Clique, Array], measured: Sequence[Target]
) -> float:
    """Return by how much cells of measured pairs are off from a copula, without noise.

    It is the root mean square over all cells, as a part of a cell of mean size; 0 if no pair tells.
    """
    squares = cells = 0.0
    for target in measured:
        if (columns := model.domain.columns(target.clique)) in copula:
            shares = np.outer(*(model.reference[i] for i in columns)) * copula[columns]
            counts = model.domain.summed(shares, columns, target.clique)
            counts *= max(model.total, 1.0) / counts.sum()
            off = (model.marginal(target.clique) - counts) ** 2 - target.noise_std**2
            squares += float(off.sum() / counts.mean() ** 2)
            cells += counts.size
    return math.sqrt(max(squares / max(cells, 1.0), 0.0))


def single_targets(model: ReferenceModel, loose_ends: bool = True) -> list[Target]:
    """Return the denoised counts of every column; see :func:`single_target`."""
    return [single_target(model, i, loose_ends) for i in range(len(model.domain))]


def single_target(model: ReferenceModel, attribute: int, loose_ends: bool = True) -> Target:
    """Return the target of a column: its denoised counts, and the noise of the measured ones.

    The loop smooths columns without ``loose_ends``, because less noisy columns choose better.
    """
    projected = make_target(model, (attribute,))
    if not model.precision((attribute,)):
        return projected
    described, noise_std = model.domain.attributes[attribute], projected.noise_std
    by_cells, noisy = attribute not in model.column_noise, model.marginal((attribute,)).tobytes()
    how = noise_std, max(model.total, 1.0), described.ordered, by_cells, described.beyond
    return Target(projected.clique, _denoised(noisy, *how, loose_ends), noise_std)


@lru_cache(maxsize=2**8)
def _denoised(noisy: bytes, *how: Any) -> Array:
    """Return :func:`denoise_counts` of an array's bytes, computed once; it is read only."""
    counts = denoise_counts(np.frombuffer(noisy), *how)
    counts.setflags(write=False)
    return counts


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
