"""A Gaussian copula of ordered columns, from the interactions of their halves."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from adaptive_qs.domain import Clique
from adaptive_qs.residual import ReferenceModel

# The halves of two columns have the joint share p_i p_j + D below both medians: D is a cell of
# their residual less what the product of columns has there. Divided by the standard deviations of
# both, D is the correlation of two binary columns. These correlations are a symmetric matrix whose
# noise has about the same variance s² in each entry. Its d eigenvalues λ become
# sign(λ) √(λ² − 4 s² d)⁺, the best that can be done without knowledge of the eigenvectors (Gavish
# and Donoho 2017), and what these leave of each entry shrinks by its share of signal. The
# correlations of normal scores are those with the same joint shares (tetrachoric, Pearson 1900).

Array = NDArray[np.float64]

GRID = np.tanh(np.linspace(-4.0, 4.0, 401))
"""Correlations at which joint shares are tabulated."""
SURE = 3.0
"""Standard deviations by which the sum of squared correlations exceeds what noise alone makes."""
STRONG = 0.25
"""Least mean squared correlation of halves. Normal scores have correlations of about 0.7 then, and
an L1 distance from independence of 0.5."""
ERROR_OF_STD = 0.8
"""L1 error (share of the rows) of a pair by the noise of the correlation of its halves: π/2 to that
of normal scores, (2/π)√(2/π) from there."""
OTHERWISE = 0.075
"""Assumed mean L1 error of measured pairs."""
MOST_CORRELATED = 0.99
"""Largest correlation of two columns."""
LEAST_EIGENVALUE = 0.01
"""Smallest eigenvalue of the correlations."""
POINTS = 8
"""Points in each code of a column at which the distribution of another is averaged."""


class Halves:
    """What was released about the halves of ordered columns.

    Args:
        model: with two groups, above all other levels, of the columns in ``domain.medians``.

    Attributes:
        columns: attributes with halves.
        on_scale: share of the rows in codes on the scale of each column.
        ends: for each column, the shares of these rows up to the start and end of each code.
        correlations: of the halves as measured, zero if not, shape (columns, columns).
        variances: of their noise; zero if not measured.
    """

    def __init__(self, model: ReferenceModel) -> None:
        domain, medians = model.domain, model.domain.medians
        self.columns, size = [*medians], len(medians)
        self.on_scale, self.ends = np.ones(size), list[Array]()
        self._low, self._cut = np.empty(size), np.empty(size)
        for k, (i, level) in enumerate(medians.items()):
            share, scale = model.reference[i], domain.sizes[i] - domain.attributes[i].beyond
            below = domain.groups(i, level).of == 0
            self.on_scale[k] = share[:scale].sum()
            self.ends.append(np.append(0.0, np.cumsum(share[:scale])) / self.on_scale[k])
            self._low[k] = share[below].sum()
            self._cut[k] = share[:scale][below[:scale]].sum() / self.on_scale[k]
        std = np.sqrt(self._low * (1 - self._low))
        self._unit = np.outer(std, std)
        self.correlations, self.variances = np.zeros((2, size, size))
        total = max(model.total, 1.0)
        for a, b in combinations(range(size), 2):
            found = model.estimates.get((medians[self.columns[a]], medians[self.columns[b]]))
            if found is not None:
                expected = (2 * self._low[a] - 1) * (2 * self._low[b] - 1) / 4
                joint = float(found.values[0, 0]) / total - expected
                variance = 1 / found.precision / (2 * total) ** 2
                for at in ((a, b), (b, a)):
                    self.correlations[at] = joint / self._unit[at]
                    self.variances[at] = variance / self._unit[at] ** 2

    def scores(self) -> Array:
        """Return the correlations of normal scores: positive definite, ones on the diagonal."""
        halves = _without_noise(self.correlations, self.variances)
        found = np.eye(len(halves))
        cuts = ndtri(np.clip(self._cut, 1e-9, 1 - 1e-9))
        for a, b in zip(*np.triu(self.variances).nonzero()):
            density = _density(cuts[a], cuts[b], GRID)
            joint = np.append(0.0, np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(GRID)))
            joint = (joint - joint[GRID.size // 2]) * self.on_scale[a] * self.on_scale[b]
            found[a, b] = np.interp(halves[a, b] * self._unit[a, b], joint, GRID)
        found = np.clip(found + np.triu(found, 1).T, -MOST_CORRELATED, MOST_CORRELATED)
        np.fill_diagonal(found, 1.0)
        values, vectors = np.linalg.eigh(found)
        found = (vectors * np.maximum(values, LEAST_EIGENVALUE)) @ vectors.T
        std = np.sqrt(np.diagonal(found))
        return np.asarray(found / np.outer(std, std))

    def interaction(self, a: int, b: int, correlation: float) -> Array:
        """Return the joint shares of two columns' codes on the scale, less their products.

        Codes off the scale are independent of the other column. Sums over each column are zero.
        """
        first, second = np.diff(self.ends[a]), np.diff(self.ends[b])
        inside = (np.arange(POINTS) + 0.5) / POINTS
        points = ndtri(self.ends[a][:-1, None] + first[:, None] * inside)[..., None]
        up_to = ndtri(np.minimum(self.ends[b], 1.0)) - correlation * points
        shares = np.diff(ndtr(up_to / np.sqrt(1 - correlation**2))).mean(axis=1) * first[:, None]
        for _ in range(3):  # the points leave the columns a little off
            shares *= second / np.maximum(shares.sum(axis=0), 1e-300)
            shares *= (first / np.maximum(shares.sum(axis=1), 1e-300))[:, None]
        return np.asarray((shares - np.outer(first, second)) * self.on_scale[a] * self.on_scale[b])


def _density(x: Array, y: Array, correlation: Array) -> Array:
    """Return the density of two normal scores by their correlation."""
    rest = 1 - correlation**2
    exponent = (x * x - 2 * correlation * x * y + y * y) / (2 * rest)
    return np.asarray(np.exp(-exponent) / (2 * np.pi * np.sqrt(rest)))


def _without_noise(correlations: Array, variances: Array) -> Array:
    """Shrink noisy correlations: their eigenvalues, then what these do not explain."""
    apart, size = variances > 0, len(correlations)
    if not apart.any():
        return correlations
    values, vectors = np.linalg.eigh(correlations)
    edge = 4 * size * variances.sum() / (size * (size - 1))
    kept = np.sign(values) * np.sqrt(np.maximum(values**2 - edge, 0.0))
    common = apart * ((vectors * kept) @ vectors.T)
    rest = correlations - common
    signal = max(float((rest[apart] ** 2 - variances[apart]).mean()), 0.0)
    shrunk = common + rest * signal / np.maximum(signal + variances, 1e-12)
    return np.asarray(np.clip(shrunk, -1.0, 1.0))


def depend_strongly(model: ReferenceModel) -> bool:
    """Return whether the measured halves show columns that depend strongly on each other."""
    halves = Halves(model)
    at = np.triu(halves.variances) > 0
    squares, noise = halves.correlations[at] ** 2, halves.variances[at]
    excess = float((squares / noise).sum()) - squares.size
    sure = excess > SURE * math.sqrt(2 * squares.size)
    return sure and float((squares - noise).mean()) >= STRONG


def more_rho(pairs: int, total: float, left: float) -> float:
    """Return ρ of a precise measurement of the halves of so many pairs.

    With the part s of the budget that is left, pairs that are filled are off by a/√s and others by
    b/√(1 − s), b = ``OTHERWISE``. The sum is least where s / (1 − s) = (a/b)^(2/3).
    """
    error = ERROR_OF_STD * math.sqrt(pairs / (2 * left)) / total
    ratio = (error / OTHERWISE) ** (2 / 3)
    return left * ratio / (1 + ratio)


def fill_pairs(model: ReferenceModel) -> dict[Clique, Array]:
    """Return how pairs of ordered columns depend on each other, if their halves do so strongly.

    Returns:
        By pair of attributes, joint shares of codes less the products of their shares.
    """
    found = dict[Clique, Array]()
    if depend_strongly(model):
        halves = Halves(model)
        scores = halves.scores()
        for a, b in zip(*np.triu(halves.variances).nonzero()):
            pair = halves.columns[a], halves.columns[b]
            inside = halves.interaction(a, b, float(scores[a, b]))
            found[pair] = np.zeros(model.domain.shape(pair))
            found[pair][: inside.shape[0], : inside.shape[1]] = inside
    return found
