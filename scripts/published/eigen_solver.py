"""EigenDesign of Li and Miklau: the best weights of the workload's eigenvectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.bounds import judged, solve_residual_planner
from adaptive_qs.strategy.solution import DenseFactor, Solution, SolverSettings, Strategy
from adaptive_qs.workload.residuals import Subworkload, Term

Array = NDArray[np.float64]

# The best weights for a given set of design queries: Li and Miklau, Program 1.
#
# A strategy weights fixed orthogonal directions, V = Σ_i u_i D_i with D_i ⪰ 0. Its error is
# Σ σ_i/u_i and its privacy cost the largest entry of Aᵀu, row i of A being the diagonal of D_i. For
# y ≥ 0 with Σy = 1 and a = Ay, every feasible u obeys
#
#     (Σ √(σ_i a_i))² ≤ (Σ σ_i/u_i)(Σ u_i a_i) ≤ Σ σ_i/u_i,
#
# so s² with s = Σ√(σ_i a_i) is a lower bound on the family. With u_i = √(σ_i/a_i) and g = Aᵀu,
# u/max g is feasible with objective s·max g, and y·g = s: the relative gap is max g / s − 1. The
# iteration y ← y (g/s)^p, renormalised, is that of the optimal strategy with vectors in place of
# matrices: O(designs × cells) a step.

POWERS = (1.0, 16.0)
"""Least and most power p of a step."""


@dataclass(frozen=True, eq=False)
class DesignWeights:
    """Weights of design queries at privacy cost 1, with what bounds them.

    Attributes:
        weights: u, shape (designs,); the largest entry of Aᵀu is 1.
        objective: Σ σ_i/u_i.
        lower_bound: no weights of the same designs have a smaller objective.
        iterations: steps taken.
    """

    weights: Array
    objective: float
    lower_bound: float
    iterations: int


def best_weights(costs: Array, importance: Array, settings: SolverSettings) -> DesignWeights:
    """Minimise Σ importance/u subject to costsᵀu ≤ 1.

    Args:
        costs: A, shape (designs, cells), non-negative: what a unit of weight costs at each cell.
        importance: σ, shape (designs,), positive.
        settings: the gap to reach and the most steps to take.
    """
    y = np.full(costs.shape[1], 1 / costs.shape[1])
    best_bound, best = 0.0, (np.inf, np.empty(0))
    power, previous = 2.0, 0.0
    iteration = 0
    for iteration in range(settings.max_iterations + 1):  # noqa: B007
        a = costs @ y
        u = np.sqrt(importance / a)
        s = float(np.sqrt(importance * a).sum())
        g = u @ costs
        objective = s * float(g.max())
        best_bound = max(best_bound, s * s)
        if objective < best[0]:
            best = (objective, u / g.max())
        if best[0] <= best_bound * (1 + settings.gap):
            break
        # A longer step while the bound rises, a shorter one once it falls.
        power = min(power * 1.1, POWERS[1]) if s >= previous else max(power / 2, POWERS[0])
        previous = s
        y = y * (g / s) ** power
        y /= y.sum()
    return DesignWeights(best[1], best[0], min(best_bound, best[0]), iteration)


# EigenDesign: weighted eigenvectors of the workload's Gram matrix (Li and Miklau, Program 2).
#
# The eigenvectors Q of G are the design queries; their best weights u minimise Σ σ_i/u_i with every
# diagonal entry of QᵀuQ at most 1 (:func:`best_weights`). Where G has full rank the
# columns that stay below norm 1 are completed by single cells, which costs nothing (steps 4 and 5).
#
# A workload of one product term is designed axis by axis: eigenvectors, best weights and their
# bound all factor, so the product is the design of the whole. Anything else is one dense matrix.

COPIES = 6
"""Matrices of all cells by all cells that the dense design holds at once."""


def solve_eigen(
    subworkload: Subworkload,
    settings: SolverSettings | None = None,
    weigh: Callable[[Array, Array, SolverSettings], DesignWeights] = best_weights,
) -> Solution:
    """The eigen-design of a subworkload; OPTIMAL within the gap of the singular value bound.

    ``weigh`` finds the weights, for a product on each axis by itself. A dense matrix that is too
    large is refused (ResourceExceeded).
    """
    settings = settings or SolverSettings()
    if not subworkload.shape:
        return solve_residual_planner(subworkload)  # the total: nothing to choose
    scale, parts = 1.0, [subworkload]
    if len(subworkload.terms) == 1:
        (term,) = subworkload.terms
        scale = term.scale
        parts = [Subworkload(part.shape, (Term(1.0, (part,)),)) for part in term.factors]
    factors, objective, steps = [], scale, 0
    for part in parts:
        values, vectors = _eigenvectors(part, settings)
        best = weigh(vectors * vectors, values, settings)
        factor, error = _design(values, vectors, best.weights, part.shape)
        factors.append(factor)
        objective, steps = objective * error, steps + best.iterations
    return judged(subworkload, Strategy(tuple(factors)), objective, steps, settings.gap)


def _eigenvectors(subworkload: Subworkload, settings: SolverSettings) -> tuple[Array, Array]:
    """Positive eigenvalues, largest first, and their vectors as rows; of few rows WWᵀ suffices."""
    cells = subworkload.cells
    pieces = [
        math.sqrt(term.scale) * rows
        for term in subworkload.terms
        if len(term.factors) == 1 and (rows := term.factors[0].rows()) is not None
    ]
    if len(pieces) == len(subworkload.terms) and sum(map(len, pieces)) < cells:
        rows = np.concatenate(pieces)
        values, left = _positive(rows @ rows.T)
        return values, (left @ rows) / np.sqrt(values)[:, None]
    needed = COPIES * 8 * cells**2
    if needed > settings.max_bytes:
        raise ResourceExceeded(
            f"the eigen-design of a table of {' x '.join(map(str, subworkload.shape))} cells needs "
            f"{needed / 2**30:.1f} GiB, more than {settings.max_bytes / 2**30:.1f} GiB: "
            "raise the memory limit or choose the mechanism wff or residualplanner"
        )
    return _positive(subworkload.gram())


def _positive(gram: Array) -> tuple[Array, Array]:
    values, vectors = np.linalg.eigh(gram)
    kept = values > len(values) * np.finfo(np.float64).eps * values[-1]
    return values[kept][::-1], vectors[:, kept].T[::-1]


def _design(
    values: Array, vectors: Array, u: Array, shape: tuple[int, ...]
) -> tuple[DenseFactor, float]:
    """The weighted eigenvectors, completed where they are all, and their error."""
    matrix = vectors * np.sqrt(u)[:, None]
    if len(values) < vectors.shape[1]:
        covariance = vectors.T @ (vectors / u[:, None])
        return DenseFactor(matrix, shape, covariance), float((values / u).sum())
    spare = np.maximum(1 - (matrix * matrix).sum(axis=0), 0.0)
    # In the eigenbasis, so that G = Qᵀ diag(σ) Q stays diagonal.
    inverse = np.linalg.inv(np.diag(u) + (vectors * spare) @ vectors.T)
    completed = np.concatenate([matrix, np.diag(np.sqrt(spare))[spare > 0]])
    covariance = vectors.T @ inverse @ vectors
    return DenseFactor(completed, shape, covariance), float(values @ np.diag(inverse))
