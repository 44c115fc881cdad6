"""The two kinds of noise of McKenna et al.: their sensitivity and how a budget is shared."""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Noise(StrEnum):
    """Noise added to a strategy's answers; McKenna et al., definitions 7 and 8."""

    GAUSSIAN = "gaussian"
    """Sensitivity in L2. Unit privacy: standard deviation = sensitivity, so that β = 2ρ = 1."""
    LAPLACE = "laplace"
    """Sensitivity in L1. Unit privacy: scale = sensitivity, so that ε = 1."""

    @property
    def order(self) -> int:
        """k of the column norm Lk that bounds the sensitivity."""
        return 2 if self is Noise.GAUSSIAN else 1

    @property
    def unit_variance(self) -> float:
        """Variance of the noise on a strategy of sensitivity 1 at unit privacy: 1, or 2 = 2/ε²."""
        return 1.0 if self is Noise.GAUSSIAN else 2.0

    def sensitivity(self, matrix: Array) -> float:
        """Largest column norm of a strategy matrix (rows, cells)."""
        norms: Array = np.linalg.norm(matrix, ord=self.order, axis=0)
        return float(norms.max())

    def shares(self, errors: Array) -> Array:
        """How to divide a sensitivity of 1 among independent measurements with the least error.

        Measurement g has squared error E_g / c_g² where its strategy is scaled by c_g; Σ c_g² = 1
        for Gaussian noise, Σ c_g = 1 for Laplace. McKenna et al., definition 19.

        Args:
            errors: E_g > 0, shape (measurements,).

        Returns:
            c_g, shape (measurements,).
        """
        if self is Noise.GAUSSIAN:
            root = np.sqrt(errors)
            return np.sqrt(root / root.sum())
        root = np.cbrt(errors)
        return root / root.sum()

    def combined(self, errors: Array) -> float:
        """Σ E_g / c_g² with the best shares: (Σ√E_g)², or (Σ∛E_g)³ for Laplace noise."""
        if self is Noise.GAUSSIAN:
            return math.fsum(np.sqrt(errors)) ** 2
        return math.fsum(np.cbrt(errors)) ** 3
