"""Weights of eigenvectors: all at once, in groups, or only of the most important ones.

Li and Miklau, section "Complexity and optimizations". Each is the problem of
module ``design`` with other designs: a group's solution, or the sum of all minor
eigenvectors, stands for its members as one design.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import InputError
from adaptive_qs.strategy.restricted.design import best_weights
from adaptive_qs.strategy.settings import SolverSettings

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


def eigen_weights(
    squares: Array,
    importance: Array,
    settings: SolverSettings,
    speedup: Separation | Principal | None,
) -> tuple[Array, int]:
    """Weights of eigenvectors and the number of steps taken.

    Args:
        squares: shape (designs, cells): entries of the eigenvectors, squared.
        importance: σ, shape (designs,), positive and falling.
        settings: for each problem solved.
        speedup: None weighs every eigenvector.
    """
    if speedup is None:
        best = best_weights(squares, importance, settings)
        return best.weights, best.iterations
    if isinstance(speedup, Separation):
        return _separated(squares, importance, settings, speedup.group_size)
    return _principal(squares, importance, settings, math.ceil(speedup.share * squares.shape[1]))


def _separated(
    squares: Array, importance: Array, settings: SolverSettings, group_size: int
) -> tuple[Array, int]:
    starts = range(0, len(importance), group_size)
    groups = [slice(start, start + group_size) for start in starts]
    best = [best_weights(squares[group], importance[group], settings) for group in groups]
    costs = np.stack([part.weights @ squares[group] for part, group in zip(best, groups)])
    errors = np.array([part.objective for part in best])
    combined = best_weights(costs, errors, settings)
    weights = [weight * part.weights for weight, part in zip(combined.weights, best)]
    return np.concatenate(weights), combined.iterations + sum(part.iterations for part in best)


def _principal(
    squares: Array, importance: Array, settings: SolverSettings, count: int
) -> tuple[Array, int]:
    rest = len(importance) - count
    if rest < 2:  # one common weight for one eigenvector, or for none
        best = best_weights(squares, importance, settings)
        return best.weights, best.iterations
    costs = np.concatenate([squares[:count], squares[count:].sum(axis=0)[None]])
    errors = np.append(importance[:count], importance[count:].sum())
    best = best_weights(costs, errors, settings)
    weights = np.concatenate([best.weights[:count], np.full(rest, best.weights[count])])
    return weights, best.iterations
