"""A strategy, how hard solvers try for it, and the evidence of how good it is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.workload.families import squares_product
from adaptive_qs.workload.matrices import Queries


@dataclass(frozen=True)
class SolverSettings:
    """Accuracy, iterations and memory at which a solver stops."""

    gap: float = 1e-4  # stop if objective / lower_bound − 1 is at most this (on the squared error)
    max_iterations: int = 1_000  # stop there in any case, with the gap reached by then
    max_bytes: int = 4 * 2**30  # most memory one subworkload may take

    def can_measure(self, cells: int) -> bool:
        """Return whether a dense factor over this many cells fits in memory when measured."""
        # Number of square matrices over its cells that a dense factor needs when it is measured
        copies = 6
        return copies * 8 * cells**2 <= self.max_bytes


# Strategy matrices as Kronecker products of factors, and what their noise does to a table.
# A strategy B = ⊗B_k measures Bx with independent noise of unit variance. Each factor covers one or
# several consecutive axes of the table and has largest column norm 1; so has the product. From the
# measurement the table is estimated as B⁺z, with covariance V⁺ = ⊗V_k⁺, V_k = B_kᵀB_k.

Array = NDArray[np.float64]


def kron(matrices: Iterable[Array], scale: float = 1.0) -> Array:
    """Return scale · ⊗ matrices; without matrices the scale, shape (1, 1)."""
    product: Array = np.full((1, 1), scale)
    for matrix in matrices:
        product = np.kron(product, matrix).astype(np.float64, copy=False)
    return product


class Factor:
    """One Kronecker factor of a strategy, B_k with largest column norm 1.

    Where the coefficients are integers, M stands for the rows as they are measured and Δ for their
    largest column norm, so that B_k = M/Δ.
    """

    is_exact: ClassVar[bool] = False
    """Whether M has integer coefficients by definition, so that nothing is rounded."""
    if TYPE_CHECKING:

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

    @property
    def centering_variance(self) -> float | None:
        """Factor c if V_k⁺ = c Π, which leaves queries of a residual space unchanged; else None."""
        return None

    # Integer coefficients.

    @property
    def digest(self) -> str:
        """Text that identifies M."""
        return repr(self)

    @property
    def squared_norm(self) -> int | float:
        """Δ², the largest squared column norm of M; exact for integers."""
        raise TypeError(_NOT_INTEGERS)

    @property
    def largest(self) -> int:
        """A bound on the coefficients of M and on every step of their application."""
        raise TypeError(_NOT_INTEGERS)

    def answers(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return M times a table, shape (Πshape, k) -> (rows, k); exact below 2⁶²."""
        raise TypeError(_NOT_INTEGERS)

    def estimate(self, answers: Array) -> Array:
        """Return the least-squares table M⁺a of (noisy) answers, shape (rows, ...) -> (n, ...)."""
        raise TypeError(_NOT_INTEGERS)

    @property
    def measured_entries(self) -> int:
        """Entries of the largest matrix that is formed when the factor is measured."""
        return math.prod(self.shape) ** 2

    # Variances under unit noise on the answers of B_k.
    #
    # diag(Q C Qᵀ) from the covariance C = B⁺(B⁺)ᵀ takes few steps for each query and cancels where
    # C is ill-conditioned. No unbiased answer at privacy cost 1 has a variance below the square of
    # its query's largest coefficient, and what cancels is at most that square times the sum of all
    # |C|: this tells before where the steps would lose too many digits. There ‖row · B⁺‖² is taken,
    # which cannot be negative.

    def variances(self, queries: Sequence[Queries | None]) -> Array:
        """Return the variances of a product of queries, one axis for each family that is not None.

        There is one family of one attribute for each axis covered; None sums the axis out.
        """
        of = queries[0] if len(queries) == 1 else None
        by_length = None if of is None else self.arc_variances(of)
        if of is not None and by_length is not None:
            return by_length[of.sums().astype(np.int64)]
        if not may_cancel(magnitude(self.covariance), sum(self.shape)):
            return squares_product(queries, self.covariance.reshape(self.shape * 2))
        outside = tuple(k for k, of in enumerate(queries) if of is None)
        root = self.inverse.reshape(*self.shape, -1).sum(axis=outside)
        return root_squares([of for of in queries if of is not None], root)

    def largest_variance(self, queries: Sequence[Queries]) -> float:
        """Return the largest variance, or a bound on it; of arcs without one for each query."""
        by_length = self.arc_variances(queries[0]) if len(queries) == 1 else None
        lengths = queries[0].arc_lengths()
        if by_length is not None and lengths is not None:
            return float(by_length[lengths].max())
        return float(self.variances(queries).max())

    def arc_variances(self, queries: Queries) -> Array | None:
        """Return variances of arcs of length 0, 1, ... if their places do not matter; else None."""
        return None

    def restored(self, columns: Array) -> Array:
        """Return estimates from exact answers to columns, in floating point."""
        return self.covariance @ (self.matrix.T @ (self.matrix @ columns))

    @property
    def is_finite(self) -> bool:
        """Whether no entry of the covariance is lost."""
        return bool(np.isfinite(self.covariance).all())

    @property
    def spans_residual(self) -> bool:
        """Whether the factor determines every mean-free vector of its single axis."""
        (size,) = self.shape
        return int(np.linalg.matrix_rank(self.matrix)) >= size - 1


_NOT_INTEGERS = "only strategies on the grid have integer answers"
MOST_LOST = 1e-3
"""Largest share of a variance that rounding may lose."""
BLOCK = 2**23
"""Most answers to columns of B⁺ in memory."""


def root_squares(queries: Sequence[Queries], root: Array) -> Array:
    """Return Σ (⊗Q root)² over the last axis of ``root``; the families cover all axes before it."""
    counts = tuple(of.num_queries for of in queries)
    total = np.zeros(counts)
    step = max(1, BLOCK // max(1, math.prod(counts)))
    for first in range(0, root.shape[-1], step):
        answers = np.ascontiguousarray(root[..., first : first + step])
        for of in queries:
            answers = np.moveaxis(of.answer(answers), 0, -1)
        total += (answers**2).sum(axis=0)
    return total


def magnitude(covariance: Array) -> float:
    """Return Σ|C|."""
    return float(np.abs(covariance).sum())


def may_cancel(total: float, cells: int) -> bool:
    """Return whether sums over a covariance may lose more than ``MOST_LOST`` of a variance."""
    steps = 2 * cells + 8
    return not total * steps * float(np.finfo(np.float64).eps) < MOST_LOST


def circulant_arcs(kernel: Array) -> Array:
    """Return the variance of arcs of 0 .. n cells whose covariance is C_ij = kernel_{i−j}.

    An arc of L cells has variance L c₀ + 2 Σ_{k<L} (L − k) c_k wherever it lies.
    """
    length = np.arange(len(kernel) + 1)
    before = np.concatenate([[0.0, 0.0], np.cumsum(kernel[1:])])
    moment = np.concatenate([[0.0, 0.0], np.cumsum(np.arange(1, len(kernel)) * kernel[1:])])
    return np.asarray(length * kernel[0] + 2 * (length * before - moment), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class DenseFactor(Factor):
    """Any matrix, normalised."""

    matrix: Array  # B_k up to a scale, shape (rows, Πshape), not zero
    shape: tuple[int, ...]  # sizes of the axes covered
    gram_inverse: Array | None = field(default=None, repr=False)  # V_k⁺, not normalised, if known

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
        if self.gram_inverse is not None:
            return self.gram_inverse
        return self.inverse @ self.inverse.T

    @property
    def measured_entries(self) -> int:
        cells = math.prod(self.shape)
        return max(len(self.matrix), 0 if self.gram_inverse is None else cells) * cells


@dataclass(frozen=True)
class CenteringFactor(Factor):
    """B = √(n/(n−1)) Π, M = nI − 11ᵀ, n ≥ 2: the optimum for marginals (ResidualPlanner)."""

    size: int
    is_exact = True
    measured_entries = 0
    spans_residual = True

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    @property
    def matrix(self) -> Array:
        return self._centering * math.sqrt(self.size / (self.size - 1))

    @property
    def inverse(self) -> Array:
        return self._centering * math.sqrt((self.size - 1) / self.size)

    @property
    def covariance(self) -> Array:
        return self._centering * ((self.size - 1) / self.size)

    @property
    def centering_variance(self) -> float:
        return (self.size - 1) / self.size

    @property
    def _centering(self) -> Array:
        return np.eye(self.size) - 1 / self.size

    @property
    def squared_norm(self) -> int:
        return self.size * (self.size - 1)

    @property
    def largest(self) -> int:
        return self.size

    def answers(self, table: NDArray[Any]) -> NDArray[Any]:
        return self.size * table - table.sum(axis=0)

    def estimate(self, answers: Array) -> Array:
        return (answers - answers.mean(axis=0)) / self.size

    def arc_variances(self, queries: Queries) -> Array | None:
        """Return (n−1)/n · L(1 − L/n) for arcs of every length L."""
        if queries.arc_lengths() is None:
            return None
        n, length = self.size, np.arange(self.size + 1)
        return np.asarray((n - 1) / n * length * (1 - length / n), dtype=np.float64)


@dataclass(frozen=True)
class IdentityFactor(Factor):
    """B = M = I: every cell on its own."""

    size: int
    is_exact = True
    measured_entries = 0
    squared_norm = 1
    largest = 1
    is_finite = True

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    @property
    def matrix(self) -> Array:
        return np.eye(self.size)

    inverse = matrix
    covariance = matrix

    def answers(self, table: NDArray[Any]) -> NDArray[Any]:
        return table

    def estimate(self, answers: Array) -> Array:
        return answers

    def variances(self, queries: Sequence[Queries | None]) -> Array:
        """Return the number of cells in each query, whose coefficients are 0 or 1."""
        (of,) = queries
        if of is None:
            return np.asarray(float(self.size))
        return of.sums() if of.is_binary else super().variances(queries)

    def restored(self, columns: Array) -> Array:
        return columns


@dataclass(frozen=True, eq=False)
class Strategy:
    """B = ⊗B_k over the axes of one table; no factors measure the total."""

    factors: tuple[Factor, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of all axes, in order."""
        return tuple(n for factor in self.factors for n in factor.shape)

    def split(self, axes: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Factor]]:
        """Yield every factor with the elements of ``axes`` that belong to the axes it covers."""
        start = 0
        for factor in self.factors:
            yield axes[start : start + len(factor.shape)], factor
            start += len(factor.shape)


# What a solver returns: a strategy with the evidence of how good it is.


class Status(StrEnum):
    """How a solution relates to the optimum of its problem."""

    OPTIMAL = "optimal"
    """A closed form, or an iteration that reached the requested gap."""
    STOPPED = "stopped"
    """The iteration limit came first: the gap is true, and larger than requested."""
    RESTRICTED = "restricted"
    """The best of a family of strategies that need not contain the optimum."""


@dataclass(frozen=True)
class Solution:
    """A strategy at privacy cost 1, its error, and a bound that no strategy beats."""

    strategy: Strategy  # of largest column norm 1, so noise of variance σ² costs β = 1/σ²
    objective: float  # tr(G V⁺), V = BᵀB: Σ weight · variance (rows²) at unit noise variance
    lower_bound: float  # no strategy of the same problem at privacy cost 1 has a smaller objective
    status: Status  # what the solver can say
    iterations: int = 0  # how many the solver took; 0 for a closed form

    @property
    def gap(self) -> float:
        """Relative gap of the squared error: objective / lower_bound − 1 (0 where both are 0)."""
        return self.objective / self.lower_bound - 1 if self.lower_bound > 0 else 0.0
