"""Other bases than the one in use: contrasts of ResidualPlanner, any matrix of ResidualPlanner+."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ContrastBasis:
    """Differences against the first cell: ``sub`` and ``center`` of Fuentes et al., Table 1."""

    size: int

    @property
    def rank(self) -> int:
        """One less than the number of cells."""
        return self.size - 1

    def analyse(self, array: Array, axis: int) -> Array:
        """v[1:] − v[0] along the axis."""
        first, rest = np.split(array, [1], axis=axis)
        return rest - first

    def synthesise(self, array: Array, axis: int) -> Array:
        """[0, v] minus its mean along the axis."""
        pad = [(0, 0)] * array.ndim
        pad[axis] = (1, 0)
        padded = np.pad(array, pad)
        return padded - padded.mean(axis=axis, keepdims=True)


@dataclass(frozen=True)
class StrategyBasis:
    """Any strategy matrix whose rows sum to zero, with its pseudo-inverse.

    Args:
        matrix: B_i, shape (rank, size), rows orthogonal to the ones vector and, together,
            spanning every mean-free vector.

    Raises:
        ValueError: a row does not sum to zero, or the rows span too little.
    """

    matrix: Array
    _inverse: Array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        matrix = np.asarray(self.matrix, dtype=np.float64)
        if matrix.ndim != 2 or not np.allclose(matrix.sum(axis=1), 0.0):
            raise ValueError("a strategy basis needs a matrix whose rows each sum to zero")
        if np.linalg.matrix_rank(matrix) != matrix.shape[1] - 1:
            raise ValueError("a strategy basis needs rows that span every mean-free vector")
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "_inverse", np.linalg.pinv(matrix))

    @property
    def size(self) -> int:
        """Number of columns of the matrix."""
        return int(self.matrix.shape[1])

    @property
    def rank(self) -> int:
        """Number of rows of the matrix."""
        return int(self.matrix.shape[0])

    def analyse(self, array: Array, axis: int) -> Array:
        """B v along the axis."""
        return _along(self.matrix, array, axis)

    def synthesise(self, array: Array, axis: int) -> Array:
        """B⁺ v along the axis."""
        return _along(self._inverse, array, axis)


def _along(matrix: Array, array: Array, axis: int) -> Array:
    return np.moveaxis(np.tensordot(matrix, array, axes=(1, axis)), 0, axis)
