"""Per-attribute bases: what a residual keeps along one axis once the mean is removed.

A basis pairs an analysis B_i (rows orthogonal to the ones vector) with a synthesis that undoes
it on mean-free vectors: synthesis(analysis(v)) = v − mean(v).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Basis(Protocol):
    """Analysis and synthesis along one axis of an array."""

    @property
    def size(self) -> int:
        """Number of cells n_i along the marginal's axis."""

    @property
    def rank(self) -> int:
        """Number of cells along the residual's axis."""

    def analyse(self, array: Array, axis: int) -> Array:
        """(..., size, ...) -> (..., rank, ...)."""

    def synthesise(self, array: Array, axis: int) -> Array:
        """(..., rank, ...) -> (..., size, ...), mean-free along the axis."""


@dataclass(frozen=True)
class CenteredBasis:
    """The mean-free vector itself: Π_i = I − 11ᵀ/n_i."""

    size: int

    @property
    def rank(self) -> int:
        """The number of cells (one of them redundant)."""
        return self.size

    def analyse(self, array: Array, axis: int) -> Array:
        """V minus its mean along the axis."""
        return array - array.mean(axis=axis, keepdims=True)

    def synthesise(self, array: Array, axis: int) -> Array:
        """V minus its mean along the axis (a projection is its own pseudo-inverse)."""
        return self.analyse(array, axis)
