"""ResidualPlanner and ResidualPlanner+: a fixed basis for each attribute, no solver.

Each residual is measured by ⊗B_i, where B_i spans the mean-free vectors of attribute i. With
B_i = √(n/(n−1)) Π that is ResidualPlanner, the optimum for marginals; with B_i of the user's
choice it is ResidualPlanner+ (He et al., section 7).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import InputError
from adaptive_qs.strategy.bounds import svd_bound
from adaptive_qs.strategy.matrix import CenteringFactor, DenseFactor, Factor, Strategy
from adaptive_qs.strategy.objective import total_variance
from adaptive_qs.strategy.solution import Solution, Status
from adaptive_qs.workload.subworkload import Subworkload

Array = NDArray[np.float64]

PROVEN = 1e-9
"""Relative distance to the lower bound that rounding explains: the optimum is proven."""


def solve_residual_planner(subworkload: Subworkload) -> Solution:
    """The strategy of ResidualPlanner: optimal for marginals, valid for any queries.

    Returns:
        Status OPTIMAL where the objective meets the singular value bound, else RESTRICTED.
    """
    factors = tuple(CenteringFactor(size) for size in subworkload.shape)
    return solve_with_basis(subworkload, factors)


def solve_with_basis(subworkload: Subworkload, factors: tuple[Factor, ...]) -> Solution:
    """The strategy ⊗B_i of ResidualPlanner+.

    Args:
        subworkload: the queries.
        factors: one for each axis, from :func:`strategy_basis` or any solver; each spans all
            mean-free vectors of its axis.

    Returns:
        Status OPTIMAL where the objective meets the singular value bound, else RESTRICTED.
    """
    strategy = Strategy(factors)
    objective = total_variance(subworkload, strategy)
    bound = min(svd_bound(subworkload), objective)
    proven = objective <= bound * (1 + PROVEN)
    return Solution(strategy, objective, bound, Status.OPTIMAL if proven else Status.RESTRICTED)


def strategy_basis(matrix: Array) -> DenseFactor:
    """A basis for one attribute from any strategy on its cells.

    Args:
        matrix: shape (rows, n ≥ 2), such as the prefix queries of an attribute. The mean of each
            row is removed; what is left must span all mean-free vectors.

    Raises:
        InputError: not a finite matrix over two cells or more, or too few directions.
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] < 2 or not np.isfinite(matrix).all():
        raise InputError(
            f"a strategy basis of shape {matrix.shape} was given: it needs finite numbers in "
            "one column for each value of an attribute, two or more"
        )
    size = matrix.shape[1]
    centered = matrix - matrix.mean(axis=1, keepdims=True)
    _, singular, right = np.linalg.svd(centered, full_matrices=False)
    noise = max(matrix.shape) * np.finfo(np.float64).eps * np.linalg.norm(matrix)
    rank = int((singular > noise).sum())
    if rank < size - 1:
        raise InputError(
            f"a strategy basis over {size} values spans {rank} of the {size - 1} directions that "
            "sum to zero: add rows until no difference of two values is left out"
        )
    scaled = right[:rank] / singular[:rank, None]
    return DenseFactor(centered, (size,), gram_inverse=scaled.T @ scaled)
