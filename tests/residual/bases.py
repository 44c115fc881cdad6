"""Transforms between marginals and residuals with any basis for each attribute.

A basis pairs an analysis B_i (rows orthogonal to the ones vector) with a synthesis that undoes
it on mean-free vectors: synthesis(analysis(v)) = v − mean(v). ResidualPlanner is the contrast
basis; ResidualPlanner+ is any strategy matrix. The program centers, and its own transform stands
here for that basis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.residual import model

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


def smear(array: Array, axis: int, size: int) -> Array:
    """Spread a singleton axis evenly over ``size`` cells: (..., 1, ...) -> (..., size, ...)."""
    return np.repeat(array / size, size, axis=axis)


def decompose(marginal: Array, clique: Clique, residual: Clique, bases: Sequence[Basis]) -> Array:
    """The residual over ``residual`` of a marginal over ``clique`` (Fuentes et al., Algorithm 1).

    Args:
        marginal: counts, one axis per attribute of ``clique``.
        clique: γ, the attributes of the marginal's axes.
        residual: τ ⊆ γ.
        bases: one basis per attribute of ``clique``, in its order.

    Returns:
        An array with one axis per attribute of ``residual``, each of its basis's rank.
    """
    if all(isinstance(basis, CenteredBasis) for basis in bases):
        return model.decompose(marginal, clique, residual)
    array = np.asarray(marginal, dtype=np.float64)
    for axis in range(len(clique) - 1, -1, -1):
        if clique[axis] in residual:
            array = bases[axis].analyse(array, axis)
        else:
            array = array.sum(axis=axis)
    return array


def reconstruct(values: Array, residual: Clique, clique: Clique, bases: Sequence[Basis]) -> Array:
    """The part of a marginal that a residual explains (Fuentes et al., Algorithm 2).

    The pseudo-inverse of :func:`decompose`; the parts of all τ ⊆ γ add up to the marginal.

    Args:
        values: the residual, one axis per attribute of ``residual``.
        residual: τ ⊆ γ.
        clique: γ.
        bases: one basis per attribute of ``clique``, in its order.

    Returns:
        An array shaped like the marginal over ``clique``.
    """
    array = np.asarray(values, dtype=np.float64)
    for axis, attribute in enumerate(clique):
        if attribute in residual:
            array = bases[axis].synthesise(array, axis)
        else:
            array = smear(np.expand_dims(array, axis), axis, bases[axis].size)
    return array
