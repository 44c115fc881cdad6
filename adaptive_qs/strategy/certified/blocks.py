"""The two ways to take the square root of Y^½ G Y^½ on one block of an invariant Gram matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.certified.symmetry import SYMMETRY_TOLERANCE

Array = NDArray[np.float64]

EPSILON = float(np.finfo(np.float64).eps)

PRECISION = 1e-13
"""Relative precision to which a Gram matrix or its rows are taken to be known."""

FEW_ROWS = 0.8
"""Below this rank per coordinate the row form is cheaper: two products replace part of the
eigenproblem, whose constant is about ten times theirs."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What one dual vector says about one block.

    Attributes:
        trace: s = tr M^½.
        certain: a value that s exceeds whatever the rounding errors were.
        diagonal: shape (n,): diag V, V = Y^{-½} M^½ Y^{-½}.
    """

    trace: float
    certain: float
    diagonal: Array


@dataclass(frozen=True, eq=False)
class BlockStrategy:
    """An unnormalised strategy of one block.

    Attributes:
        matrix: B, shape (r, n).
        inverse: B⁺, shape (n, r).
        objective: tr(G V⁺), V = BᵀB, from ``inverse``.
    """

    matrix: Array
    inverse: Array
    objective: float


class Block(Protocol):
    """A Gram matrix G over n coordinates, of rank r ≥ 1."""

    @property
    def basis(self) -> Array:
        """Orthonormal columns that span the range of G, shape (n, r)."""

    def evaluate(self, y: Array) -> Evaluation:
        """Square root at y > 0, shape (n,)."""

    def strategy(self, y: Array) -> BlockStrategy:
        """B = M^¼ Y^{-½} up to a rotation, rows in the range of G."""


@dataclass(frozen=True, eq=False)
class DenseBlock:
    """G itself, with the eigenvectors of its range.

    Attributes:
        gram: shape (n, n).
        values: eigenvalues of G that are not zero, shape (r,).
        basis: their eigenvectors, shape (n, r).
        asymmetry: relative size of what was averaged away to get the block.
    """

    gram: Array
    values: Array
    basis: Array
    asymmetry: float = 0.0

    def evaluate(self, y: Array) -> Evaluation:
        """From the r largest eigenpairs of M, shape (n, n)."""
        values, vectors = self._root(y)
        return Evaluation(
            *_traces(values, y.size, self.asymmetry), (vectors * vectors) @ np.sqrt(values) / y
        )

    def strategy(self, y: Array) -> BlockStrategy:
        """Λ^¼ Uᵀ Y^{-½}, projected onto the range of G to remove rounding."""
        values, vectors = self._root(y)
        rows = (values**0.25 * vectors).T / np.sqrt(y)
        return _with_inverse(rows, self.values, self.basis)

    def _root(self, y: Array) -> tuple[Array, Array]:
        root = np.sqrt(y)
        values, vectors = np.linalg.eigh(root[:, None] * self.gram * root)
        rank = self.values.size
        return _floored(values[-rank:]), vectors[:, -rank:]


@dataclass(frozen=True, eq=False)
class RowBlock:
    """G = FᵀF by few independent rows F = diag(values)^½ basisᵀ: all work is in K = F Y Fᵀ.

    Attributes:
        values: eigenvalues of G that are not zero, shape (r,).
        basis: their eigenvectors, shape (n, r).
        rows: F, shape (r, n).
        asymmetry: relative size of what was averaged away to get the block.
    """

    values: Array
    basis: Array
    rows: Array
    asymmetry: float = 0.0

    def evaluate(self, y: Array) -> Evaluation:
        """V = Fᵀ K^{-½} F, so no division by y."""
        values, turned = self._root(y)
        diagonal = np.einsum("kn,kn,k->n", turned, turned, 1 / np.sqrt(values))
        return Evaluation(*_traces(values, y.size, self.asymmetry), diagonal)

    def strategy(self, y: Array) -> BlockStrategy:
        """K^{-¼} F up to a rotation."""
        values, turned = self._root(y)
        return _with_inverse(turned / values[:, None] ** 0.25, self.values, self.basis)

    def _root(self, y: Array) -> tuple[Array, Array]:
        """Eigenvalues of K and F in the basis of its eigenvectors."""
        values, vectors = np.linalg.eigh((self.rows * y) @ self.rows.T)
        return _floored(values), vectors.T @ self.rows


def _floored(values: Array) -> Array:
    """Positive eigenvalues that rounding may have made zero or negative, made positive again."""
    return np.maximum(values, EPSILON * values[-1])


def gram_blocks(grams: Sequence[Array]) -> list[Block | None]:
    """The cheaper form of each block of one positive semidefinite matrix; None where it is zero.

    What is zero is judged against the largest eigenvalue of all blocks.
    """
    averaged = _asymmetry(len(grams))
    pairs = [np.linalg.eigh(gram) for gram in grams]
    largest = max(float(values[-1]) for values, _ in pairs)
    zero = largest * _rank_tolerance(sum(map(len, grams)))
    blocks: list[Block | None] = []
    for gram, (values, vectors) in zip(grams, pairs):
        values, vectors = values[values > zero], np.ascontiguousarray(vectors[:, values > zero])
        if not values.size:
            blocks.append(None)
        elif values.size <= FEW_ROWS * len(gram):
            blocks.append(RowBlock(values, vectors, np.sqrt(values)[:, None] * vectors.T, averaged))
        else:
            blocks.append(DenseBlock(gram, values, vectors, averaged))
    return blocks


def row_blocks(rows: Sequence[Array]) -> list[Block | None]:
    """The row form of G = rowsᵀrows, dependent rows removed; None for a block that is zero."""
    averaged = _asymmetry(len(rows))
    parts = [np.linalg.svd(block, full_matrices=False)[1:] for block in rows]
    largest = max(float(singular[0]) for singular, _ in parts)
    zero = largest * _rank_tolerance(max(len(rows[0]), sum(part.shape[1] for part in rows)))
    blocks: list[Block | None] = []
    for singular, vectors in parts:
        values, kept = singular[singular > zero], vectors[singular > zero]
        found = RowBlock(values**2, kept.T, values[:, None] * kept, averaged)
        blocks.append(found if values.size else None)
    return blocks


def _asymmetry(blocks: int) -> float:
    """A single block is the whole matrix: nothing was averaged."""
    return SYMMETRY_TOLERANCE if blocks > 1 else 0.0


def _rank_tolerance(size: int) -> float:
    """Relative size below which an eigenvalue or singular value is rounding."""
    return max(8 * EPSILON * size, PRECISION)


def _traces(values: Array, size: int, asymmetry: float) -> tuple[float, float]:
    """Σ√λ, and the same after every λ is lowered by all that rounding may have added to it.

    By Weyl's inequality an eigenvalue moves by at most the norm of the error of its matrix: the
    backward error of the eigensolver and of forming M, and the asymmetry that was averaged away.
    """
    error = (4 * EPSILON * size + asymmetry) * float(values[-1])
    trace = float(np.sqrt(values).sum())
    return trace, float(np.sqrt(np.maximum(values - error, 0.0)).sum())


def _with_inverse(rows: Array, values: Array, basis: Array) -> BlockStrategy:
    """Pseudo-inverse of rows within the range of G, an r × r inverse, and tr(G V⁺) from it."""
    inner = rows @ basis
    inverse = np.linalg.inv(inner)
    objective = float(values @ (inverse * inverse).sum(axis=1))
    return BlockStrategy(inner @ basis.T, basis @ inverse, objective)
