"""Weights of eigenvectors in groups, or only of the most important ones.

Li and Miklau, section "Complexity and optimizations". A group's solution, or the sum of all minor
eigenvectors, stands for its members as one design of Program 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import InputError
from adaptive_qs.strategy.solution import Solution, SolverSettings
from adaptive_qs.workload.residuals import Subworkload, Term
from scripts.published.eigen_solver import DesignWeights, best_weights, solve_eigen

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Separation:
    """Weigh groups of consecutive eigenvectors by themselves, then the groups.

    Attributes:
        group_size: eigenvectors in a group; near the cube root of the number of cells is fastest.

    Raises:
        InputError: less than 1.
    """

    group_size: int

    def __post_init__(self) -> None:
        if self.group_size < 1:
            raise InputError(
                f"an eigen-separation group of {self.group_size} was asked for: take 1 or more"
            )

    def __call__(
        self, squares: Array, importance: Array, settings: SolverSettings
    ) -> DesignWeights:
        """The weights, and how they were found."""
        starts = range(0, len(importance), self.group_size)
        groups = [slice(start, start + self.group_size) for start in starts]
        best = [best_weights(squares[group], importance[group], settings) for group in groups]
        costs = np.stack([part.weights @ squares[group] for part, group in zip(best, groups)])
        errors = np.array([part.objective for part in best])
        combined = best_weights(costs, errors, settings)
        weights = [weight * part.weights for weight, part in zip(combined.weights, best)]
        steps = combined.iterations + sum(part.iterations for part in best)
        return replace(combined, weights=np.concatenate(weights), iterations=steps)


@dataclass(frozen=True)
class Principal:
    """Weigh the most important eigenvectors, and all others by one common weight.

    Attributes:
        share: of all eigenvectors, as many as cells, in (0, 1]. Those with eigenvalue zero are
            the least important, so a workload of low rank soon has all of its own.

    Raises:
        InputError: outside that range.
    """

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InputError(
                f"a share of {self.share} of the eigenvectors was asked for: take more than 0 and "
                "at most 1"
            )

    def __call__(
        self, squares: Array, importance: Array, settings: SolverSettings
    ) -> DesignWeights:
        """The weights, and how they were found."""
        count = math.ceil(self.share * squares.shape[1])
        rest = len(importance) - count
        if rest < 2:  # one common weight for one eigenvector, or for none
            return best_weights(squares, importance, settings)
        costs = np.concatenate([squares[:count], squares[count:].sum(axis=0)[None]])
        errors = np.append(importance[:count], importance[count:].sum())
        best = best_weights(costs, errors, settings)
        weights = np.concatenate([best.weights[:count], np.full(rest, best.weights[count])])
        return replace(best, weights=weights)


@dataclass(frozen=True, eq=False)
class _Given:
    """Queries known by their Gram matrix alone; it may hold totals as well as residuals."""

    shape: tuple[int, ...]
    matrix: Array
    queries: None = None
    is_axis: bool = False

    def gram(self) -> Array:
        return self.matrix

    def rows(self) -> None:
        return None


def solve_eigen_dense(
    gram: Array,
    shape: tuple[int, ...],
    settings: SolverSettings | None = None,
    weigh: Callable[[Array, Array, SolverSettings], DesignWeights] | None = None,
) -> Solution:
    """The eigen-design of any positive semidefinite Gram matrix, shape (N, N) with N = Πshape."""
    subworkload = Subworkload(shape, (Term(1.0, (_Given(shape, gram),)),))
    return solve_eigen(subworkload, settings, weigh or best_weights)
