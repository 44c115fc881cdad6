"""A Gaussian copula of ordered columns, from how their halves depend on each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from adaptive_qs.domain import Clique
from adaptive_qs.residual import ReferenceModel, ResidualEstimate

# A row counts 1 for two columns if it is in equal halves of both, else −1. Their sum, divided by
# the rows, less what independent columns have, is the covariance c of two signs: four times the
# joint share of two halves less the product of their shares, and |c| is the L1 distance of the
# halves from independence. The correlation of normal scores is the one with the same joint share
# (tetrachoric, Pearson 1900).

Array = NDArray[np.float64]

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
            self._cuts[i] = float(ndtri(np.clip(cut, 1e-9, 1 - 1e-9)))

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
        points = ndtri(self._ends[i][:-1, None] + first[:, None] * inside)[..., None]
        up_to = ndtri(self._ends[j]) - correlation * points
        shares = np.diff(ndtr(up_to / np.sqrt(1 - correlation**2))).mean(axis=1)
        for _ in range(3):  # the points leave the columns a little off
            shares *= second / np.maximum(first @ shares, 1e-300)
            shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)
        found = np.ones((self.signs[i].size, self.signs[j].size))
        found[: first.size, : second.size] = shares / second
        return found
