"""The part of a workload that lies in one residual space, as solvers see it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.workload.queries import CenteredQueries

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Term:
    """Weighted queries whose Gram matrix is scale · ⊗ factor.gram().

    Attributes:
        scale: positive.
        factors: cover the axes of the residual in order: one for each axis, or one for them all.
    """

    scale: float
    factors: tuple[CenteredQueries, ...]

    def gram(self) -> Array:
        """Shape (N, N)."""
        gram: Array = np.ones((1, 1))
        for factor in self.factors:
            gram = np.kron(gram, factor.gram()).astype(np.float64, copy=False)
        return self.scale * gram


@dataclass(frozen=True)
class Subworkload:
    """Everything a workload asks of one residual space; hashable, so that it is solved once.

    Attributes:
        shape: sizes of the residual's axes; () is the total.
        terms: the Gram matrix is the sum of theirs; at least one.
    """

    shape: tuple[int, ...]
    terms: tuple[Term, ...]

    @property
    def cells(self) -> int:
        """Number of cells N = Πshape."""
        return math.prod(self.shape)

    def gram(self) -> Array:
        """G = WᵀDW, shape (N, N); () has the 1 × 1 matrix of its scales."""
        return sum((term.gram() for term in self.terms), np.zeros((self.cells, self.cells)))
