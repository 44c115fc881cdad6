"""A strategy, how hard solvers try for it, and the evidence of how good it is."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.workload.matrices import Queries

# How hard solvers try.

_MEASURED_COPIES = 6
"""Matrices over all its cells that a dense factor needs when it is measured."""


@dataclass(frozen=True)
class SolverSettings:
    """Limits shared by all solvers.

    Attributes:
        gap: stop once objective / lower_bound − 1 is at most this (on the squared error).
        max_iterations: stop there in any case, with the gap reached by then.
        max_bytes: most memory one subworkload may take.
    """

    gap: float = 1e-4
    max_iterations: int = 1_000
    max_bytes: int = 4 * 2**30

    def can_measure(self, cells: int) -> bool:
        """Whether a dense factor over so many cells can be rounded and measured within memory."""
        return _MEASURED_COPIES * 8 * cells**2 <= self.max_bytes


# Strategy matrices as Kronecker products of factors, and what their noise does to a table.
#
# A strategy B = ⊗B_k measures Bx with independent noise of unit variance. Each factor covers one or
# several consecutive axes of the table and has largest column norm 1; so has the product. From the
# measurement the table is estimated as B⁺z, with covariance V⁺ = ⊗V_k⁺, V_k = B_kᵀB_k.

Array = NDArray[np.float64]


def kron(matrices: Iterable[Array], scale: float = 1.0) -> Array:
    """scale · ⊗ matrices; of none the scale, shape (1, 1)."""
    product: Array = np.full((1, 1), scale)
    for matrix in matrices:
        product = np.kron(product, matrix).astype(np.float64, copy=False)
    return product


class Factor(Protocol):
    """One Kronecker factor of a strategy."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes covered."""

    @property
    def matrix(self) -> Array:
        """B_k, shape (rows, Πshape); the largest column norm is 1."""

    @property
    def inverse(self) -> Array:
        """B_k⁺, shape (Πshape, rows)."""

    @property
    def covariance(self) -> Array:
        """V_k⁺ = (B_kᵀB_k)⁺, shape (Πshape, Πshape)."""


@dataclass(frozen=True, eq=False)
class DenseFactor:
    """Any matrix, normalised.

    Attributes:
        matrix: B_k up to a scale, shape (rows, Πshape), not zero.
        shape: sizes of the axes covered.
        gram_inverse: V_k⁺ of the *unnormalised* matrix where the solver knows it.
    """

    matrix: Array
    shape: tuple[int, ...]
    gram_inverse: Array | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        matrix = np.asarray(self.matrix, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != math.prod(self.shape):
            raise ValueError(f"a factor of shape {self.shape} has a matrix of {matrix.shape}")
        norm = math.sqrt(float((matrix * matrix).sum(axis=0).max()))
        object.__setattr__(self, "matrix", matrix / norm)
        if self.gram_inverse is not None:
            object.__setattr__(self, "gram_inverse", self.gram_inverse * norm**2)

    @cached_property
    def inverse(self) -> Array:
        """B⁺ by the singular value decomposition, or V⁺Bᵀ where V⁺ is known."""
        if self.gram_inverse is not None:
            return self.gram_inverse @ self.matrix.T
        return np.linalg.pinv(self.matrix).astype(np.float64, copy=False)

    @cached_property
    def covariance(self) -> Array:
        """V⁺ = B⁺(B⁺)ᵀ."""
        if self.gram_inverse is not None:
            return self.gram_inverse
        return self.inverse @ self.inverse.T


@dataclass(frozen=True)
class CenteringFactor:
    """B = √(n/(n−1)) Π, n ≥ 2: the optimum for marginals (ResidualPlanner), without a solver."""

    size: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The single axis."""
        return (self.size,)

    @property
    def matrix(self) -> Array:
        """√(n/(n−1)) (I − 11ᵀ/n)."""
        return self._centering * math.sqrt(self.size / (self.size - 1))

    @property
    def inverse(self) -> Array:
        """√((n−1)/n) (I − 11ᵀ/n)."""
        return self._centering * math.sqrt((self.size - 1) / self.size)

    @property
    def covariance(self) -> Array:
        """((n−1)/n) (I − 11ᵀ/n)."""
        return self._centering * ((self.size - 1) / self.size)

    @property
    def _centering(self) -> Array:
        return np.eye(self.size) - 1 / self.size

    @property
    def largest(self) -> int:
        """Bound on the integers nI − 11ᵀ, as which it is measured."""
        return self.size

    @property
    def squared_norm(self) -> int:
        """Largest squared column norm of those integers."""
        return self.size * (self.size - 1)

    def answers(self, table: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return their exact answers to counts of shape (n, others)."""
        return self.size * table - table.sum(axis=0)


@dataclass(frozen=True)
class IdentityFactor:
    """B = I: every cell on its own."""

    size: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The single axis."""
        return (self.size,)

    @property
    def matrix(self) -> Array:
        """I."""
        return np.eye(self.size)

    inverse = matrix
    covariance = matrix
    largest = squared_norm = 1

    def answers(self, table: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the counts."""
        return table


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
        waves, h = self._waves()
        return waves * np.sqrt(h)[:, None]

    @cached_property
    def inverse(self) -> Array:
        """B⁺ = Bᵀ diag(1/h): the rows are orthogonal, and row f has squared norm h_f."""
        waves, h = self._waves()
        return (waves / np.sqrt(h)[:, None]).T

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

    def _waves(self) -> tuple[Array, Array]:
        """Orthonormal rows with their h: a cosine of each pair ±f, then sines of true pairs."""
        h, cells = self.weights.ravel(), np.indices(self.shape).reshape(len(self.shape), -1)
        mirror = np.ravel_multi_index(tuple(-cells % np.array(self.shape)[:, None]), self.shape)
        (f,) = np.nonzero((np.arange(h.size) <= mirror) & (h > 0))
        own = mirror[f] == f
        # Whole turns are dropped in integers, so that large sizes keep full precision.
        angle = np.zeros((len(f), h.size))
        for cell, size in zip(cells, self.shape):
            angle += (np.outer(cell[f], cell) % size) * (2 * np.pi / size)
        height = np.where(own, 1.0, math.sqrt(2.0))[:, None] / math.sqrt(h.size)
        waves = np.concatenate([np.cos(angle) * height, np.sin(angle[~own]) * height[~own]])
        return waves, np.concatenate([h[f], h[f[~own]]])


class LongFactor(ABC):
    """A factor on one axis of very many cells: no matrix of all cells by all cells is needed.

    All of a :class:`Factor`, and what is asked of it instead of its
    matrices. M stands for the rows as they are measured, and Δ for their largest column norm.
    """

    @property
    @abstractmethod
    def size(self) -> int:
        """Cells, n."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,)."""
        return (self.size,)

    @property
    @abstractmethod
    def is_integral(self) -> bool:
        """Whether it can be measured exactly."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """SHA-256 of all that it is, in hexadecimal digits."""

    @abstractmethod
    def in_integers(self, bits: int) -> LongFactor:
        """The factor with integers whose coefficients have about so many bits.

        Raises:
            ResourceExceeded: too few bits are left for its many cells.
        """

    @property
    @abstractmethod
    def squared_norm(self) -> int | float:
        """Δ², the largest squared column norm of M; exact for integers."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """A bound on the coefficients of M."""

    @abstractmethod
    def answers(self, table: NDArray[Any]) -> NDArray[Any]:
        """M times a table, shape (n, ...) -> (rows, ...); exact for integers below 2⁶²."""

    @abstractmethod
    def estimate(self, answers: Array) -> Array:
        """The least-squares table of (noisy) answers, as far as they tell it.

        Shape (rows, ...) -> (n, ...).
        """

    @abstractmethod
    def restored(self, columns: Array) -> Array:
        """Estimates from exact answers to columns, in floating point: what is left of them."""

    @abstractmethod
    def variances(self, queries: Queries) -> Array:
        """Variance of every query's answer under unit noise on the answers of M/Δ, shape (m,)."""

    @abstractmethod
    def total(self, queries: Queries) -> float:
        """The sum of all variances, without one number for each query where it can be."""

    @abstractmethod
    def largest_variance(self, queries: Queries) -> tuple[float, bool]:
        """The largest variance of all queries, and whether it is exact or a bound."""

    @abstractmethod
    def arc_variances(self, queries: Queries) -> Array | None:
        """Variance of an arc of every length 0, 1, ..., wherever it lies; None if that matters."""

    @abstractmethod
    def spread(self, block: Array) -> Array:
        """V⁺ times columns, shape (n, k)."""

    # As matrices, for what has no other way: a few thousand cells at most.

    @property
    def matrix(self) -> Array:
        """M/Δ, shape (rows, n)."""
        unit = np.eye(self.size, dtype=np.int64 if self.is_integral else np.float64)
        return self.answers(unit) / math.sqrt(self.squared_norm)

    @property
    def inverse(self) -> Array:
        """(M/Δ)⁺ as estimates take it, shape (n, rows)."""
        return self.estimate(np.eye(len(self.matrix))) * math.sqrt(self.squared_norm)

    @property
    def covariance(self) -> Array:
        """V⁺, shape (n, n)."""
        return self.spread(np.eye(self.size))


@dataclass(frozen=True, eq=False)
class Strategy:
    """B = ⊗B_k over the axes of one table; no factors measure the total."""

    factors: tuple[Factor, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of all axes, in order."""
        return tuple(n for factor in self.factors for n in factor.shape)

    def split(self, axes: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Factor]]:
        """Every factor with those of ``axes``, one for each axis of the table, that it covers."""
        start = 0
        for factor in self.factors:
            yield axes[start : start + len(factor.shape)], factor
            start += len(factor.shape)


# What a solver returns: a strategy with the evidence of how good it is.


class Status(StrEnum):
    """How a solution relates to the optimum of its problem."""

    OPTIMAL = "optimal"
    """A closed form, or an iteration that reached the gap asked for."""
    STOPPED = "stopped"
    """The iteration limit came first: the gap is honest, and larger than asked for."""
    RESTRICTED = "restricted"
    """The best of a family of strategies that need not contain the optimum."""


@dataclass(frozen=True)
class Solution:
    """A strategy at privacy cost 1, its error, and a bound that no strategy beats.

    Attributes:
        strategy: normalised: the largest column norm is 1, so noise of variance σ² costs β = 1/σ².
        objective: Σ weight · variance (rows²) over the queries with unit noise variance,
            tr(G V⁺) with V = BᵀB.
        lower_bound: no strategy of the same problem at privacy cost 1 has a smaller objective.
        status: what the solver can say.
        iterations: how many the solver took; 0 for a closed form.
    """

    strategy: Strategy
    objective: float
    lower_bound: float
    status: Status
    iterations: int = 0

    @property
    def gap(self) -> float:
        """Relative gap of the squared error: objective / lower_bound − 1 (0 where both are 0)."""
        return self.objective / self.lower_bound - 1 if self.lower_bound > 0 else 0.0
