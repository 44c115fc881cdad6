"""Strategies with integer coefficients, so that measurements can be exact.

A factor B_k becomes M_k = round(2^s B_k); its sensitivity, inverse and covariance are those of M_k,
so nothing that is reported depends on the rounding having been fine enough. Where the rows of B_k
sum to zero along an axis those of M_k do so exactly: the estimate of a residual stays unbiased.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.integers.rounding import (
    MOST_COMPLETED,
    centered,
    round_matrix,
    with_differences,
)
from adaptive_qs.strategy.matrix import CenteringFactor, Factor, IdentityFactor, Strategy

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_BITS, LEAST_BITS = 24, 4
"""Bits of one factor."""
WELL_DETERMINED = 1e-13
"""Smallest squared ratio of the pivots of a Gram matrix that can be inverted."""

_TOO_LARGE = (
    "a measurement over {:,} cells is too large for exact integers: ask for fewer ways or declare "
    "coarser bins"
)


@dataclass(frozen=True, eq=False)
class GridFactor:
    """A factor with integer coefficients, used as M/‖M‖ (largest column norm 1).

    Args:
        integers: M, shape (rows, Πshape).
        balanced: for each axis, whether all rows sum to zero along it.
        shape: sizes of the axes covered.
    """

    integers: Integers
    balanced: tuple[bool, ...]
    shape: tuple[int, ...]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of M and its shape, in hexadecimal digits: what is measured."""
        shape = repr((self.integers.shape, self.shape)).encode()
        return hashlib.sha256(shape + self.integers.astype("<i8").tobytes()).hexdigest()

    @cached_property
    def squared_norm(self) -> int:
        """‖M‖², the largest squared column norm, exactly."""
        rows = self.integers
        if 2 * int(abs(rows).max()).bit_length() + len(rows).bit_length() > 62:
            rows = rows.astype(object)
        return int((rows * rows).sum(axis=0).max())

    @cached_property
    def matrix(self) -> Array:
        """M/‖M‖, shape (rows, Πshape)."""
        return self.integers / math.sqrt(self.squared_norm)

    @cached_property
    def covariance(self) -> Array:
        """V⁺ of M/‖M‖, shape (Πshape, Πshape)."""
        if self.is_full:
            return self._full_covariance()
        return self.inverse @ self.inverse.T

    @cached_property
    def inverse(self) -> Array:
        """(M/‖M‖)⁺, shape (Πshape, rows)."""
        b = self.matrix
        if self.is_full:
            return self.covariance @ b.T
        return np.asarray(cho_solve(cho_factor(b @ b.T), b).T, dtype=np.float64)

    @cached_property
    def is_determined(self) -> bool:
        """Whether the inverse exists with some digits to spare."""
        b = self.matrix
        gram = b.T @ b + self._ignored if self.is_full else b @ b.T
        try:
            pivots = np.diagonal(cho_factor(gram)[0])
        except LinAlgError:
            return False
        return bool((pivots.min() / pivots.max()) ** 2 > WELL_DETERMINED)

    @property
    def is_full(self) -> bool:
        """Whether M has rows enough to determine every table that is balanced as they are."""
        return len(self.integers) >= self.dimension

    @property
    def dimension(self) -> int:
        """Of the space of those tables."""
        return math.prod(n - 1 if zero else n for n, zero in zip(self.shape, self.balanced))

    def _full_covariance(self) -> Array:
        """(V + P)⁻¹ − P with P the projection onto the tables that all rows ignore."""
        ignored = self._ignored
        gram = self.matrix.T @ self.matrix
        inverse = cho_solve(cho_factor(gram + ignored), np.eye(len(ignored)) - ignored)
        return np.asarray((inverse + inverse.T) / 2, dtype=np.float64)

    @property
    def _ignored(self) -> Array:
        """P, shape (Πshape, Πshape)."""
        projection: Array = np.ones((1, 1))
        for n, zero in zip(self.shape, self.balanced):
            axis = np.eye(n) - (1 / n if zero else 0.0)
            projection = np.kron(projection, axis).astype(np.float64, copy=False)
        return np.eye(len(projection)) - projection


def on_grid(strategy: Strategy, grid_bits: int, of_residual: bool = False) -> Strategy:
    """The strategy with integer coefficients; centering and identity are so already.

    Args:
        strategy: any.
        grid_bits: of the product of the factors' largest coefficients. Answers to a table of r
            rows stay below r · 2**grid_bits.
        of_residual: make all rows sum to zero along every axis, whatever the solver's rounding
            left; a residual must not be mixed with those it contains.

    Raises:
        ResourceExceeded: so many cells that too little would be left of the coefficients.
    """
    kept = [f for f in strategy.factors if isinstance(f, CenteringFactor | IdentityFactor)]
    fixed = sum(math.log2(f.size) for f in kept if isinstance(f, CenteringFactor))
    rounded = len(strategy.factors) - len(kept)
    bits = math.floor((grid_bits - fixed) / max(rounded, 1))
    while True:
        if bits < (LEAST_BITS if rounded else 0):
            raise ResourceExceeded(_TOO_LARGE.format(math.prod(strategy.shape)))
        factors = tuple(
            factor if factor in kept else _rounded(factor, bits, of_residual)
            for factor in strategy.factors
        )
        if sum(math.log2(_largest(factor)) for factor in factors) <= grid_bits:
            return Strategy(factors)
        bits -= 1


def squared_sensitivity(factors: Sequence[Factor]) -> int:
    """Largest squared L2 change of the integer answers of a strategy on the grid by one row.

    The columns of a Kronecker product are products of columns, so their largest norms multiply.
    """
    total = 1
    for factor in factors:
        if isinstance(factor, CenteringFactor):
            total *= factor.size * (factor.size - 1)
        elif isinstance(factor, GridFactor):
            total *= factor.squared_norm
        elif not isinstance(factor, IdentityFactor):
            raise TypeError("only strategies on the grid have integer answers")
    return total


def integer_answers(factors: Sequence[Factor], table: Integers) -> Integers:
    """Exact answers M v of a strategy on the grid to a table of counts.

    Args:
        factors: covering the table's axes in order; of CenteringFactor the integers nI − 11ᵀ.
        table: counts of so few rows that the answers stay below 2⁶².

    Returns:
        One axis for each factor.
    """
    largest = math.prod(_largest(factor) for factor in factors)
    exact_in_float = int(abs(table).sum()) * largest < 2**53
    array = table
    for factor in factors:
        block = array.reshape(math.prod(factor.shape), -1)
        if isinstance(factor, CenteringFactor):
            block = factor.size * block - block.sum(axis=0)
        elif isinstance(factor, GridFactor):
            if exact_in_float:
                block = (factor.integers.astype(np.float64) @ block).astype(np.int64)
            else:
                block = factor.integers @ block
        remaining = array.shape[len(factor.shape) :]
        array = np.moveaxis(block.reshape(-1, *remaining), 0, -1)
    return array


def table_estimate(factors: Sequence[Factor], answers: Array) -> Array:
    """The least-squares table M⁺a of (noisy) integer answers, one axis per attribute."""
    array = answers
    shape: tuple[int, ...] = ()
    for factor in factors:
        shape += factor.shape
        if isinstance(factor, CenteringFactor):
            array = (array - array.mean(axis=0)) / factor.size
        elif isinstance(factor, GridFactor):
            array = np.tensordot(factor.inverse, array, axes=1) / math.sqrt(factor.squared_norm)
        array = np.moveaxis(array, 0, -1)
    return array.reshape(shape)


def _largest(factor: Factor) -> int:
    """A bound on the coefficients and on every step of their application."""
    if isinstance(factor, CenteringFactor):
        return factor.size
    return int(abs(factor.integers).max()) if isinstance(factor, GridFactor) else 1


def _rounded(factor: Factor, bits: int, of_residual: bool) -> GridFactor:
    """The factor in integers that determine what it does."""
    matrix, shape = factor.matrix, factor.shape
    if of_residual:
        matrix = centered(matrix, shape)
    found = GridFactor(*round_matrix(matrix, shape, min(bits, MOST_BITS)), shape)
    incomplete = matrix.shape[1] > MOST_COMPLETED and len(matrix) < found.dimension
    if incomplete and bits >= MOST_BITS:  # what is left of rounding is a bias: the finer the better
        found = GridFactor(*round_matrix(matrix, shape, bits), shape)
    elif not (found.is_full and found.is_determined):
        integers = with_differences(found.integers, found.balanced, shape, min(bits, MOST_BITS))
        found = GridFactor(integers, found.balanced, shape)
    if not found.is_determined:
        raise ResourceExceeded(_TOO_LARGE.format(matrix.shape[1]))
    return found
