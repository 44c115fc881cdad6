"""The conic reference: semidefinite programming, slow and independent, for small problems.

With G of range U (orthonormal columns), V = U A Uᵀ and X ⪰ A⁻¹ ⇔ [[X, I], [I, A]] ⪰ 0 the problem
is to minimise Σ_g over groups, or the largest, of tr(UᵀG_gU X) subject to diag(U A Uᵀ) ≤ 1.

Lower bounds do not trust the solver: its dual values propose a vector y over the cells and
weights μ over the queries, and s² = (tr (Y^½ G_μ Y^½)^½)² is a bound whatever they are.
"""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.fixed_point import gram_blocks
from adaptive_qs.strategy.solution import DenseFactor, Solution, SolverSettings, Status, Strategy

Array = NDArray[np.float64]

LARGEST_CELLS = 60
"""At 60 cells the cone of 2N × 2N matrices takes Clarabel about a minute, at 30 two seconds."""


def solve_conic(gram: Array, shape: tuple[int, ...], settings: SolverSettings) -> Solution:
    """Minimise the sum of weighted variances tr(G V⁺): the problem of the certified solvers.

    Args:
        gram: G, shape (N, N), positive semidefinite and not zero.
        shape: sizes of the axes, N = Πshape ≤ 60.
        settings: gap asked for.

    Raises:
        ResourceExceeded: more than 60 cells.
    """
    return _solve(np.asarray(gram, dtype=np.float64)[None], shape, settings)


def solve_max_variance(
    rows: Array, weights: Array, shape: tuple[int, ...], settings: SolverSettings
) -> Solution:
    """Minimise the largest weighted variance max_q w_q · q V⁺ qᵀ.

    Args:
        rows: queries, shape (m, N), none zero.
        weights: w, shape (m,), positive.
        shape: sizes of the axes, N = Πshape ≤ 60.
        settings: gap asked for.

    Returns:
        A solution whose objective and lower bound are largest weighted variances (rows²).

    Raises:
        ResourceExceeded: more than 60 cells.
    """
    weighted = np.sqrt(np.asarray(weights, dtype=np.float64))[:, None] * rows
    return _solve(np.einsum("qi,qj->qij", weighted, weighted), shape, settings)


def _solve(groups: Array, shape: tuple[int, ...], settings: SolverSettings) -> Solution:
    """Minimise the largest tr(G_g V⁺) over groups, shape (groups, N, N)."""
    cells = math.prod(shape)
    if groups.shape[1:] != (cells, cells):
        raise ValueError(f"Gram matrices of shape {groups.shape[1:]} over shape {shape}")
    if cells > LARGEST_CELLS:
        raise ResourceExceeded(
            f"the conic solver takes at most {LARGEST_CELLS} cells, not {cells:,}"
        )
    scale = float(np.trace(groups.sum(axis=0)))
    (block,) = gram_blocks([groups.sum(axis=0) / scale])
    assert block is not None
    basis = block.basis
    rank = basis.shape[1]
    inner = np.einsum("ia,gij,jb->gab", basis, groups / scale, basis, optimize=True)
    joint = cp.Variable((2 * rank, 2 * rank), PSD=True)
    x, a = joint[:rank, :rank], joint[rank:, rank:]
    largest = cp.Variable()
    unit = [cp.sum(cp.multiply(basis @ a, basis), axis=1) <= 1]
    error = [cp.vec(x, order="C") @ inner.reshape(len(groups), -1).T <= largest]
    problem = cp.Problem(cp.Minimize(largest), [*unit, *error, joint[:rank, rank:] == np.eye(rank)])
    problem.solve(solver=cp.CLARABEL)
    values, vectors = np.linalg.eigh(np.asarray(a.value))
    matrix = np.sqrt(np.maximum(values, 1e-12 * values[-1]))[:, None] * (basis @ vectors).T
    factor = DenseFactor(matrix, shape)
    objective = float(np.einsum("gij,ji->g", groups, factor.covariance).max())
    bound = _lower_bound(groups, unit[0].dual_value, error[0].dual_value)
    reached = objective <= bound * (1 + settings.gap)
    iterations = int(problem.solver_stats.num_iters or 0)
    status = Status.OPTIMAL if reached else Status.STOPPED
    return Solution(Strategy((factor,)), objective, bound, status, iterations)


def _lower_bound(groups: Array, cell_duals: Array, group_duals: Array) -> float:
    """s² at the normalised dual values: max_g tr(G_g V⁺) ≥ Σ μ_g tr(G_g V⁺) ≥ s²."""
    y = np.maximum(np.asarray(cell_duals).ravel(), 0.0)
    mu = np.maximum(np.asarray(group_duals).ravel(), 0.0)
    y = np.maximum(y / y.sum(), 1e-12)
    gram = np.einsum("g,gij->ij", mu / mu.sum(), groups)
    (block,) = gram_blocks([gram])
    assert block is not None
    return block.evaluate(y / y.sum())[1] ** 2
