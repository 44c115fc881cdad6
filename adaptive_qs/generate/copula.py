"""A Gaussian copula of ordered columns, from the interactions of their halves."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from adaptive_qs.domain import Clique
from adaptive_qs.residual import ReferenceModel

# The halves of two columns have the joint share p_i p_j + D below both medians: D is a cell of
# their residual less what the product of columns has there. Divided by the standard deviations of
# both, D is the correlation of two binary columns, all of which have about the same noise. The
# correlation of normal scores is the one with the same joint share (tetrachoric, Pearson 1900).

Array = NDArray[np.float64]

GRID = np.tanh(np.linspace(-4.0, 4.0, 401))
"""Correlations at which joint shares are tabulated."""
LEAST_EIGENVALUE = 0.01
"""Smallest eigenvalue of the correlations."""
POINTS = 8
"""Points in each code of a column at which the distribution of another is averaged."""


class Halves:
    """What was released about the halves of ordered columns.

    Attributes:
        columns: attributes with halves.
        correlations: of the halves as measured, zero if not, shape (columns, columns).
        variances: of their noise, zero if not measured.
        pairs: indices of columns whose halves were measured together.
    """

    def __init__(self, model: ReferenceModel) -> None:
        domain, self.columns = model.domain, [*model.domain.medians]
        levels = [*domain.medians.values()]
        shares = [model.reference[i] for i in self.columns]
        scales = [domain.sizes[i] - domain.attributes[i].beyond for i in self.columns]
        self._on_scale = [share[:size].sum() for share, size in zip(shares, scales)]
        self._ends = [
            np.cumsum(np.append(0.0, q[:n])) / q[:n].sum() for q, n in zip(shares, scales)
        ]
        self._low = np.array([model.shares(level)[0] for level in levels])
        std = np.sqrt(self._low * (1 - self._low))
        self._unit, total = np.outer(std, std), max(model.total, 1.0)
        self.correlations, self.variances = np.zeros((2, len(levels), len(levels)))
        self.pairs = list[tuple[int, int]]()
        for a, b in np.argwhere(np.triu(self._unit, 1)).tolist():
            found = model.estimates.get((levels[a], levels[b]))
            if found is not None:
                expected = (2 * self._low[a] - 1) * (2 * self._low[b] - 1) / 4
                joint = float(found.values[0, 0]) / total - expected
                self.correlations[[a, b], [b, a]] = joint / self._unit[a, b]
                std_of_noise = self._unit[a, b] * 2 * total
                self.variances[[a, b], [b, a]] = 1 / found.precision / std_of_noise**2
                self.pairs.append((a, b))

    def signal(self) -> tuple[float, float]:
        """Return the mean squared correlation, and the deviation that noise alone gives it.

        Pairs count by what is known of their squares.
        """
        squares = np.array([self.correlations[pair] ** 2 for pair in self.pairs])
        noise = np.array([self.variances[pair] for pair in self.pairs])
        mean = float(np.average(squares - noise, weights=noise**-2))
        return mean, math.sqrt(2 / math.fsum(noise**-2))

    def scores(self) -> Array:
        """Return the correlations of normal scores: positive definite, ones on the diagonal."""
        signal = max(self.signal()[0], 0.0)
        shrunk = self.correlations * signal / np.maximum(signal + self.variances, 1e-12)
        found, cuts = (
            np.eye(len(self.columns)),
            ndtri(np.clip(self._low / self._on_scale, 1e-9, 1 - 1e-9)),
        )
        for a, b in self.pairs:
            rest, x, y = 1 - GRID**2, cuts[a], cuts[b]
            density = np.exp(-(x * x - 2 * GRID * x * y + y * y) / (2 * rest)) / np.sqrt(rest)
            joint = np.append(0.0, np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(GRID)))
            joint = (joint - joint[GRID.size // 2]) / (2 * np.pi)
            share = shrunk[a, b] * self._unit[a, b] / (self._on_scale[a] * self._on_scale[b])
            found[[a, b], [b, a]] = np.interp(share, joint, GRID)
        values, vectors = np.linalg.eigh(found)
        found = (vectors * np.maximum(values, LEAST_EIGENVALUE)) @ vectors.T
        std = np.sqrt(np.diagonal(found))
        return np.asarray(found / np.outer(std, std))

    def interaction(self, a: int, b: int, correlation: float) -> Array:
        """Return the joint shares of two columns' codes on the scale, less their products.

        Codes off the scale are independent of the other column. Sums over each column are zero.
        """
        first, second = np.diff(self._ends[a]), np.diff(self._ends[b])
        inside = (np.arange(POINTS) + 0.5) / POINTS
        points = ndtri(self._ends[a][:-1, None] + first[:, None] * inside)[..., None]
        up_to = ndtri(np.minimum(self._ends[b], 1.0)) - correlation * points
        shares = np.diff(ndtr(up_to / np.sqrt(1 - correlation**2))).mean(axis=1) * first[:, None]
        for _ in range(3):  # the points leave the columns a little off
            shares *= second / np.maximum(shares.sum(axis=0), 1e-300)
            shares *= (first / np.maximum(shares.sum(axis=1), 1e-300))[:, None]
        return np.asarray(
            (shares - np.outer(first, second)) * self._on_scale[a] * self._on_scale[b]
        )


def fill_pairs(model: ReferenceModel) -> dict[Clique, Array]:
    """Return how pairs of ordered columns depend on each other, if halves were measured.

    Returns:
        By pair of attributes, joint shares of codes less the products of their shares.
    """
    halves, found = Halves(model), dict[Clique, Array]()
    scores = halves.scores()
    for a, b in halves.pairs:
        pair = halves.columns[a], halves.columns[b]
        inside = halves.interaction(a, b, float(scores[a, b]))
        found[pair] = np.zeros(model.domain.shape(pair))
        found[pair][: inside.shape[0], : inside.shape[1]] = inside
    return found
