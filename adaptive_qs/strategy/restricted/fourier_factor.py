"""A strategy of weighted Fourier queries, as real rows, made only when asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FourierFactor:
    """V = F diag(h) F* with F the unitary Fourier basis: its diagonal is one everywhere.

    Attributes:
        shape: sizes of the axes covered.
        weights: h, of the same shape: non-negative, equal at f and −f, with sum N = Πshape.
            Frequencies of weight 0 are not measured.
    """

    shape: tuple[int, ...]
    weights: Array

    def __post_init__(self) -> None:
        h = np.asarray(self.weights, dtype=np.float64)
        mirrored = np.roll(np.flip(h), 1, axis=tuple(range(h.ndim)))
        if h.shape != self.shape or not (h >= 0).all() or not np.allclose(h, mirrored):
            raise ValueError(f"a factor of shape {self.shape} has Fourier weights that do not fit")
        if not math.isclose(float(h.sum()), h.size, rel_tol=1e-9):
            raise ValueError(f"Fourier weights over {h.size} cells have sum {h.sum()}")

    @cached_property
    def matrix(self) -> Array:
        """√(2h_f/N) cos and sin of each pair ±f; √(h_f/N) cos where f = −f. Shape (rows, N)."""
        return self._waves * np.sqrt(self._row_weights)[:, None]

    @cached_property
    def inverse(self) -> Array:
        """B⁺ = Bᵀ diag(1/h): the rows are orthogonal, and row f has squared norm h_f."""
        return (self._waves / np.sqrt(self._row_weights)[:, None]).T

    @cached_property
    def covariance(self) -> Array:
        """V⁺, block circulant: entry (j, k) depends on j − k alone."""
        kernel = self.kernel
        cells = np.indices(self.shape).reshape(len(self.shape), -1)
        differences = (cells[:, :, None] - cells[:, None, :]) % np.array(self.shape)[:, None, None]
        return kernel[tuple(differences)]

    @cached_property
    def kernel(self) -> Array:
        """V⁺ by difference of cells, of the factor's shape: its first row."""
        h = self.weights
        reciprocal = np.divide(1.0, h, out=np.zeros(self.shape), where=h > 0)
        return np.asarray(np.fft.ifftn(reciprocal).real, dtype=np.float64)

    @cached_property
    def _frequencies(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """One measured frequency of each pair ±f as a flat index, and whether it is its own."""
        flat = np.arange(self.weights.size)
        f = np.array(np.unravel_index(flat, self.shape))
        sizes = np.array(self.shape)[:, None]
        mirror = np.ravel_multi_index(tuple((-f) % sizes), self.shape)
        kept = (flat <= mirror) & (self.weights.ravel() > 0)
        return flat[kept], (flat == mirror)[kept]

    @cached_property
    def _row_weights(self) -> Array:
        f, own = self._frequencies
        h = self.weights.ravel()
        return np.concatenate([h[f], h[f[~own]]])

    @property
    def _waves(self) -> Array:
        """Orthonormal rows: a cosine for each frequency, then a sine for each true pair."""
        f, own = self._frequencies
        cells = np.indices(self.shape).reshape(len(self.shape), -1)
        waves = np.array(np.unravel_index(f, self.shape))
        # Whole turns are dropped in integers, so that large sizes keep full precision.
        angle = np.zeros((len(f), self.weights.size))
        for wave, cell, size in zip(waves, cells, self.shape):
            angle += (np.outer(wave, cell) % size) * (2 * np.pi / size)
        height = np.where(own, 1.0, math.sqrt(2.0))[:, None] / math.sqrt(self.weights.size)
        return np.concatenate([np.cos(angle) * height, np.sin(angle[~own]) * height[~own]])
