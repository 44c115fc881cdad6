"""The order of columns: weights spread to codes, rows sorted inside codes, pairs from halves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.random import Generator
from numpy.typing import NDArray

from adaptive_qs.cliques import Array, Rows
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.generate.targets import Target
from adaptive_qs.levels import Groups
from adaptive_qs.residual import ReferenceModel, ResidualEstimate

# A marginal over groups says nothing of the codes inside. If their weights are equal, a code is
# independent of the other columns given its group, and the dependence that neighbouring groups show
# is lost inside. So the logarithm of the weights is interpolated: linearly along the normal scores
# of the column, beyond the outermost groups as well. A Gaussian copula has such weights exactly.
#
# Columns with jumps or heaps are not smooth. The released marginals decide: groups are merged in
# pairs, the pairs are divided along the order or as the single column is, and both are compared
# with the marginal. Only where the order is nearer, clearly above the noise, it is followed, in the
# proportion that comes nearest.

Shapes = Mapping[int, Array]
"""By level, the part that each group has in the logarithm of a code's weight: (codes, groups)."""
LEAST_CODES = 4
"""Smallest number of codes of a group, on average, inside which the order is followed."""
CLEAR = 3.0
"""Standard deviations of the noise by which the order has to be nearer."""
MOST_SHAPED = 256
"""Largest number of codes of a column that is shaped: a sweep takes a step for each."""
DAMPING = 8.0
"""Standard deviations of the noise that are added to both sides of a ratio of counts."""


def find_shapes(
    domain: Domain, targets: Sequence[Target], singles: Sequence[Target], flat: Collection[int] = ()
) -> dict[int, Array]:
    """Return how the weights of each level spread, for the levels at which the order helps.

    Args:
        domain: the attributes.
        targets: measured marginals of several attributes, at their levels.
        singles: counts of each attribute's codes.
        flat: attributes that are not shaped.
    """
    used, found = {i for target in targets for i in target.clique}, {}
    for level in sorted(i for i in used if i >= len(domain)):
        (i,) = domain.columns((level,))
        described, groups = domain.attributes[i], domain.groups(i, level)
        unfit = described.size < LEAST_CODES * groups.sizes.size or described.size > MOST_SHAPED
        if i in flat or not described.ordered or unfit:
            continue
        shape = interpolate(singles[i].counts, groups.of, described.beyond)
        if shape is not None:
            scaled = groups.of[: described.size - described.beyond].max() + 1
            over = [(t, t.clique.index(level)) for t in targets if level in t.clique]
            trust = find_trust(over, int(scaled))[groups.of, None]
            if trust.any():
                found[level] = trust * shape + (1 - trust) * np.eye(groups.sizes.size)[groups.of]
    return found


def interpolate(counts: Array, groups: NDArray[np.intp], beyond: int) -> Array | None:
    """Return the shares of the groups in each code by interpolation along normal scores.

    Args:
        counts: of the codes, shape (codes,).
        groups: the group of each code.
        beyond: number of codes at the end that are off the scale; they follow their group.

    Returns:
        Shape (codes, groups), rows that sum to 1; None if fewer than two groups are on the scale,
        or they are not in order.
    """
    scale = counts.size - beyond
    inside = groups[:scale]
    if not scale or (np.diff(inside) < 0).any() or inside[0] == inside[-1]:
        return None
    shares = np.maximum(counts[:scale], 0.5)
    shares = shares / shares.sum()
    scores = scipy.special.ndtri(np.cumsum(shares) - shares / 2)
    knots = np.bincount(inside, shares * scores) / np.bincount(inside, shares)
    right = np.clip(np.searchsorted(knots, scores), 1, knots.size - 1)
    part = (scores - knots[right - 1]) / (knots[right] - knots[right - 1])
    found = np.eye(groups.max() + 1)[groups]
    found[:scale] = 0.0
    found[np.arange(scale), right - 1] = 1 - part
    found[np.arange(scale), right] = part
    return found


def find_trust(over: Sequence[tuple[Target, int]], scaled: int) -> Array:
    """Return for each group how far its codes follow the order, from 0 to 1.

    Args:
        over: marginals over the groups, and the axis of these in each.
        scaled: number of groups with codes on the scale; the others come after them.
    """
    number = over[0][0].counts.shape[over[0][1]]
    pairs = np.minimum(np.arange(number) // 2, max(scaled // 2 - 1, 0))
    pairs[scaled:] = pairs[scaled - 1] + 1 + np.arange(number - scaled)
    merged = Groups(pairs)
    gain, change, noise = np.zeros((3, merged.sizes.size))
    for target, axis in over:
        table = np.moveaxis(target.counts, axis, 0).reshape(number, -1)
        own, others = table.sum(axis=1), table.sum(axis=0)
        shape = interpolate(own, pairs, number - scaled)
        if shape is None:
            break
        damping = 2.0 + DAMPING * target.noise_std
        product = np.outer(own, others) / max(float(own.sum()), 1e-9)
        sums = merged.sums(table, 0)
        logs = np.log((sums + damping) / (merged.sums(product, 0) + damping))
        flat = merged.repeated(sums / np.maximum(merged.sums(own, 0), 1e-9)[:, None], 0)
        flat = flat * own[:, None]
        shaped = flat * np.exp(np.clip(shape @ logs - logs[pairs], -12, 12))
        for _ in range(10):
            shaped *= merged.repeated(sums / np.maximum(merged.sums(shaped, 0), 1e-9), 0)
            shaped *= (own / np.maximum(shaped.sum(axis=1), 1e-9))[:, None]
        weighted = (shaped - flat) / (product + damping)
        gain += np.bincount(pairs, (weighted * (table - flat)).sum(axis=1))
        change += np.bincount(pairs, (weighted * (shaped - flat)).sum(axis=1))
        noise += np.bincount(pairs, (weighted**2 * (target.noise_std**2 + flat)).sum(axis=1))
    part = np.clip(gain / np.maximum(change, 1e-9), 0.0, 1.0)
    return np.where(gain > CLEAR * np.sqrt(noise), part, 0.0)[pairs]


def spread(
    weights: NDArray[np.floating], clique: Clique, domain: Domain, shapes: Shapes
) -> NDArray[np.floating]:
    """Return positive weights over groups as weights over codes."""
    columns = domain.columns(clique)
    if shapes.keys().isdisjoint(clique):
        return domain.repeated(weights, clique, columns)
    logs = np.log(weights)
    for axis, (level, code) in enumerate(zip(clique, columns)):
        if level in shapes:
            shape = shapes[level].astype(logs.dtype)
            logs = np.moveaxis(np.tensordot(shape, logs, (1, axis)), 0, axis)
        elif level != code:
            logs = domain.groups(code, level).repeated(logs, axis)
    return np.exp(np.clip(logs, -MOST_LOG, MOST_LOG))


MOST_LOG = 13.8
"""Largest logarithm of a spread weight."""


def drifts(
    ratio: Array, counts: Array, clique: Clique, domain: Domain, shapes: Shapes
) -> list[tuple[int, Array]]:
    """Return by how much a step of weights moves each code more than if it were flat.

    Args:
        ratio: by which the weights of a clique are multiplied.
        counts: rows in the cells of its codes.
        clique: at its levels.
        domain: the attributes.
        shapes: how weights spread.

    Returns:
        Attributes with the factor of each code.
    """
    if shapes.keys().isdisjoint(clique):
        return []
    columns, found = domain.columns(clique), []
    flat = counts * domain.repeated(ratio, clique, columns)
    shaped = counts * spread(ratio, clique, domain, shapes)
    for axis, i in enumerate(columns):
        rest = tuple(k for k in range(len(columns)) if k != axis)
        found.append((i, (shaped.sum(axis=rest) + 2.0) / (flat.sum(axis=rest) + 2.0)))
    return found


def finest_groups(domain: Domain, shapes: Shapes) -> dict[int, Groups]:
    """Return the groups of the finest level of each shaped attribute."""
    levels = {domain.columns((level,))[0]: level for level in sorted(shapes, reverse=True)}
    return {i: domain.groups(i, level) for i, level in levels.items()}


def hold_singles(
    means: Sequence[NDArray[np.float32]],
    cliques: Sequence[Clique],
    singles: Sequence[Target],
    shaped: Collection[int],
) -> None:
    """Scale marginals to the single columns of their shaped attributes, in place."""
    for mean, clique in zip(means, cliques):
        held = [(axis, i) for axis, i in enumerate(clique) if i in shaped]
        if held:
            np.maximum(mean, 1e-6, out=mean)
        for axis, i in held * (5 if len(held) > 1 else 1):
            rest = tuple(k for k in range(mean.ndim) if k != axis)
            mean *= np.expand_dims(singles[i].counts, rest) / mean.sum(axis=rest, keepdims=True)
            np.maximum(mean, 1e-6, out=mean)


def shape_pair(
    table: Array,
    noise_std: float,
    levels: Clique,
    singles: Sequence[Array],
    domain: Domain,
    shapes: Shapes,
) -> Array:
    """Estimate a pair at its codes from counts of groups of codes, and return the counts.

    Inside groups of ordered attributes (``shapes``) the estimate continues the dependence between
    neighbouring groups. Inside others, codes have the proportions of ``singles``, the counts of
    each attribute. ``levels`` are those of the groups in ``table``, and the noise in its cells
    has standard deviation ``noise_std`` (rows).
    """
    columns = domain.columns(levels)
    flat = domain.repeated(table, levels, columns)
    for axis, (code, level) in enumerate(zip(columns, levels)):
        single = np.maximum(singles[code], 1e-9)
        whole = domain.repeated(domain.summed(single, (code,), (level,)), (level,), (code,))
        flat = flat * np.expand_dims(single / whole, 1 - axis)
    if shapes.keys().isdisjoint(levels):
        return flat
    damping = 2.0 + DAMPING * noise_std
    product = np.outer(table.sum(axis=1), table.sum(axis=0)) / max(float(table.sum()), 1e-9)
    found = np.outer(flat.sum(axis=1), flat.sum(axis=0))
    found *= spread((table + damping) / (product + damping), levels, domain, shapes)
    for _ in range(10):
        sums = np.maximum(domain.summed(found, columns, levels), 1e-9)
        found *= domain.repeated(table / sums, levels, columns)
        for axis in range(2):
            sums = np.maximum(found.sum(axis=axis, keepdims=True), 1e-9)
            found *= flat.sum(axis=axis, keepdims=True) / sums
    return found


# A measured pair is nearer to the truth if only clear deviations of its cells from what coarser
# tables and single columns say are believed. How large deviations are, and how many cells are
# empty, follows from the table (empirical Bayes with a scale mixture: Stephens 2017).

SCALES = np.append(0.0, np.exp2(np.arange(-4.0, 6.0)))[:, None, None]
"""Standard deviations of a cell's count, as parts of what is expected; 0 for empty cells."""
LEAST_ROWS, LEAST_PART = 2.0, 0.02
"""A cell keeps this many rows, or this part of the expected count if that is less."""


def estimate_pair(
    tables: Sequence[tuple[Clique, Array, float]],
    singles: Sequence[Array],
    domain: Domain,
    shapes: Shapes,
    allowed: NDArray[np.bool_] | float = 1.0,
) -> Array:
    """Return the counts of a pair over codes that all its measured tables suggest.

    Tables are levels of both attributes, counts and the standard deviation of their noise. It is
    raked to ``singles``, the counts of each attribute. Only ``allowed`` cells have counts.
    """
    pair = domain.columns(tables[0][0])
    own = [np.maximum(singles[i], 1e-9) for i in pair]
    found = np.outer(*own) / own[0].sum() * allowed
    for levels, counts, noise_std in sorted(tables, key=lambda table: table[1].size):
        known = np.maximum(domain.summed(found, pair, levels), 1e-9)
        likely = likely_counts(counts, known, noise_std)
        likely = np.maximum(likely, np.minimum(LEAST_ROWS, LEAST_PART * known))
        for _ in range(6):
            ratio = likely / np.maximum(domain.summed(found, pair, levels), 1e-9)
            found *= spread(np.clip(ratio, 1e-3, 1e3), levels, domain, shapes)
            for axis in range(2):
                sums = np.maximum(found.sum(1 - axis, keepdims=True), 1e-9)
                found *= np.expand_dims(own[axis], 1 - axis) / sums
    return found


def likely_counts(counts: Array, known: Array, noise_std: float) -> Array:
    """Return the mean of each cell's count given a noisy one and what was ``known`` before."""
    centre = np.where(SCALES > 0, known, 0.0)
    prior = np.where(SCALES > 0, np.square(SCALES * known) + known, 1.0)
    variance = prior + noise_std**2
    logs = -0.5 * (np.log(variance) + np.square(counts - centre) / variance)
    chances = likelihood = scipy.special.softmax(logs, axis=0)
    for _ in range(20):
        chances = likelihood * chances.mean(axis=(1, 2), keepdims=True)
        chances /= chances.sum(axis=0)
    return np.asarray((chances * (centre + prior / variance * (counts - centre))).sum(axis=0))


# Inside a code that stands for several values, the other columns say where a row lies: a Gaussian
# copula, with the correlations that the codes have, conditioned on the codes of the row. It only
# says which row lies further up, so that the values of each code stay as they are.

MOST_PARTNERS = 8
"""Columns from which the place of a row inside a code of another column follows."""
MOST_CORRELATION = 0.98
"""Largest correlation of the copula, which codes alone do not tell from 1."""
MOST, WIDE = 8.0, 0.2
"""Largest normal score, and distance of scores in a code from which on its rows have places."""


@dataclass(frozen=True, eq=False)
class Copula:
    """A Gaussian copula of ordered columns in codes.

    Attributes:
        ends: by column, normal scores of the ends of its codes on the scale, shape (codes + 1,).
        partners: by column, other columns, the coefficients of their scores, and the standard
            deviation of its score given theirs.
        loadings: by column, the correlation of its scores with their strongest factor.
    """

    ends: Mapping[int, Array]
    partners: Mapping[int, tuple[list[int], Array, float]]
    loadings: Mapping[int, float]

    @classmethod
    def of(cls, rows: Rows, domain: Domain | None) -> Copula:
        """Return the copula of the ordered attributes of rows; without a domain one of none."""
        attributes = enumerate(domain.attributes if domain else ())
        scales = {i: each.size - each.beyond for i, each in attributes if each.ordered}
        names, partners, (ends, correlations) = [*scales], {}, _correlate(rows, scales)
        for k, (i, own) in enumerate(zip(names, correlations)):
            near = np.argsort(-np.abs(own), kind="stable")[: MOST_PARTNERS + 1]
            if (near := near[(near != k) & (own[near] != 0)]).size:
                values, vectors = np.linalg.eigh(correlations[np.ix_(near, near)])
                inverse = vectors / np.maximum(values, 1 - MOST_CORRELATION)
                coefficients = inverse @ (vectors.T @ own[near])
                left = max(1 - float(coefficients @ own[near]), 1 - MOST_CORRELATION**2)
                partners[i] = [names[m] for m in near], coefficients, left**0.5
        values, vectors = np.linalg.eigh(correlations)
        factor = (vectors[:, -1:] * np.sqrt(values[-1:])).clip(-0.99, 0.99).sum(axis=1)
        return cls(ends, partners, dict(zip(names, factor)))

    def places(self, rows: Rows, columns: Sequence[int], rng: Generator) -> dict[int, Array]:
        """Draw normal scores of rows given their codes, by one Gibbs sweep.

        It begins with scores that follow one factor. Scores in codes narrower than ``WIDE`` are
        NaN: they hardly follow from the other columns.
        """
        codes = {i: np.minimum(rows[:, i], self.ends[i].size - 1) for i in self.partners}
        flags = {i: np.append(np.diff(self.ends[i]) > WIDE, False) for i in codes}
        if not (wide := {i: flags[i][codes[i]] for i in columns if i in codes}):
            return {}
        ndtr, ndtri = scipy.special.ndtr, scipy.special.ndtri
        some = np.flatnonzero(np.any([*wide.values()], axis=0))
        low, high, scores, factor = {}, {}, {}, rng.standard_normal(some.size)
        for i in codes:
            lows, highs = np.append(self.ends[i][:-1], -MOST), np.append(self.ends[i][1:], MOST)
            own, loading = codes[i][some], self.loadings[i]
            low[i], high[i], least = lows[own], highs[own], ndtr(lows)
            score = loading * factor + np.sqrt(1 - loading**2) * rng.standard_normal(some.size)
            part = least[own] + scipy.special.expit(1.702 * score) * (ndtr(highs) - least)[own]
            scores[i] = np.clip(ndtri(part), low[i], high[i])
        for i, (others, coefficients, std) in self.partners.items():
            mean = sum(coefficients[m] * scores[k] for m, k in enumerate(others))
            first, last = (low[i] - mean) / std, (high[i] - mean) / std
            upper = first > 0  # the lower tail has the finer probabilities
            first, last = np.where(upper, -last, first), np.where(upper, -first, last)
            least, most = ndtr(first), ndtr(last)
            drawn = np.clip(ndtri(least + rng.random(some.size) * (most - least)), first, last)
            scores[i] = mean + std * np.where(upper, -drawn, drawn)
        for i in wide:
            drawn, scores[i] = scores[i], np.full(len(rows), np.nan)
            scores[i][some] = np.where(wide[i][some], drawn, np.nan)
        return {i: scores[i] for i in wide}


def _correlate(rows: Rows, scales: Mapping[int, int]) -> tuple[dict[int, Array], Array]:
    """Return normal scores of the ends of codes, and correlations of scores that codes hide."""
    ends, scores = {}, np.zeros((len(scales), len(rows)), dtype=np.float32)
    for score, (i, size) in zip(scores, scales.items()):
        counts = np.bincount(rows[:, i], minlength=size + 1)[:size]
        shares = counts / max(counts.sum(), 1)
        ends[i] = scipy.special.ndtri(np.append(0.0, np.cumsum(shares)).clip(0.0, 1.0))
        ends[i] = np.append(ends[i][:-1], MOST).clip(-MOST, MOST)
        density = np.exp(-(ends[i] ** 2) / 2) / np.sqrt(2 * np.pi)
        means = np.where(counts > 0, -np.diff(density) / np.maximum(shares, 1e-12), 0.0)
        # A mean score in each code varies less than the scores, and covaries less by as much.
        means /= max(float(shares @ means**2), 1e-9)
        score[:] = np.append(means, 0.0)[np.minimum(rows[:, i], size)]
    found = (scores @ scores.T / max(len(rows), 1)).astype(np.float64)
    found.clip(-MOST_CORRELATION, MOST_CORRELATION, out=found)
    found[found**2 * len(rows) < CLEAR**2] = 0.0
    np.fill_diagonal(found, 1.0)
    return ends, found


# Pairs of which nothing is measured but how their halves depend on each other.
#
# A row counts 1 for two columns if it is in equal halves of both, else −1. Their sum, divided by
# the rows, less what independent columns have, is the covariance c of two signs: four times the
# joint share of two halves less the product of their shares, and |c| is the L1 distance of the
# halves from independence. The correlation of normal scores is the one with the same joint share
# (tetrachoric, Pearson 1900).

GRID = np.tanh(np.linspace(-4.0, 4.0, 401))
"""Correlations at which joint shares are tabulated."""
LEAST_EIGENVALUE = 0.01
"""Smallest eigenvalue of the correlations."""
POINTS = 8
"""Points in each code of a column at which the distribution of another is averaged."""


class Halves:
    """Two halves of each column of some pairs, cut next to the median of its released shares."""

    def __init__(self, model: ReferenceModel, pairs: Sequence[Clique]) -> None:
        self._pairs, self._total = pairs, max(model.total, 1.0)
        self.signs = dict[int, NDArray[np.int64]]()
        self._means, self._cuts, self._on_scale = (dict[int, float]() for _ in range(3))
        self._ends = dict[int, Array]()
        for i in sorted({i for pair in pairs for i in pair}):
            share = model.reference[i]
            first = int(np.argmin(np.abs(np.cumsum(share)[:-1] - 0.5))) + 1
            self.signs[i] = np.repeat([1, -1], [first, share.size - first])
            self._means[i] = float(share @ self.signs[i])
            scale = share[: share.size - model.domain.attributes[i].beyond]
            self._on_scale[i] = float(scale.sum())
            self._ends[i] = np.minimum(np.cumsum(np.append(0.0, scale)) / scale.sum(), 1.0)
            cut = self._ends[i][min(first, scale.size)]
            self._cuts[i] = float(scipy.special.ndtri(np.clip(cut, 1e-9, 1 - 1e-9)))

    def covariances(self, held: ResidualEstimate) -> tuple[Array, float]:
        """Return the covariances of signs, zero unless measured, and the variance of their noise.

        ``held`` has, by pair, the noisy sum of the products of signs over the rows.
        """
        found, place = np.zeros((len(self.signs),) * 2), {i: k for k, i in enumerate(self.signs)}
        for (i, j), value in zip(self._pairs, held.values.tolist()):
            a, b = place[i], place[j]
            found[[a, b], [b, a]] = value / self._total - self._means[i] * self._means[j]
        return found, 1 / (held.precision * self._total**2)

    def ratios(self, held: ResidualEstimate) -> dict[Clique, Array]:
        """Return each pair's joint shares over products of single ones; 1 for codes off scale."""
        noisy, variance = self.covariances(held)
        squares = max(float((noisy**2).sum()) / (2 * len(self._pairs)), 1e-12)
        shrunk = noisy * max(1 - variance / squares, 0.0)
        place, scores = {i: k for k, i in enumerate(self.signs)}, np.eye(len(noisy))
        for i, j in self._pairs:
            a, b = place[i], place[j]
            rest, x, y = 1 - GRID**2, self._cuts[i], self._cuts[j]
            density = np.exp(-(x * x - 2 * GRID * x * y + y * y) / (2 * rest)) / np.sqrt(rest)
            joint = np.append(0.0, np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(GRID)))
            joint = (joint - joint[GRID.size // 2]) / (2 * np.pi)
            share = shrunk[a, b] / (4 * self._on_scale[i] * self._on_scale[j])
            scores[[a, b], [b, a]] = np.interp(share, joint, GRID)
        values, vectors = np.linalg.eigh(scores)
        scores = (vectors * np.maximum(values, LEAST_EIGENVALUE)) @ vectors.T
        std = np.sqrt(np.diagonal(scores))
        scores /= np.outer(std, std)
        return {(i, j): self._ratio(i, j, scores[place[i], place[j]]) for i, j in self._pairs}

    def _ratio(self, i: int, j: int, correlation: float) -> Array:
        first, second = np.diff(self._ends[i]), np.diff(self._ends[j])
        inside = (np.arange(POINTS) + 0.5) / POINTS
        points = scipy.special.ndtri(self._ends[i][:-1, None] + first[:, None] * inside)[..., None]
        up_to = scipy.special.ndtri(self._ends[j]) - correlation * points
        shares = np.diff(scipy.special.ndtr(up_to / np.sqrt(1 - correlation**2))).mean(axis=1)
        for _ in range(3):  # the points leave the columns a little off
            shares *= second / np.maximum(first @ shares, 1e-300)
            shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)
        found = np.ones((self.signs[i].size, self.signs[j].size))
        found[: first.size, : second.size] = shares / second
        return found
