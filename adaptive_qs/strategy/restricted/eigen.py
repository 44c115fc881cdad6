"""EigenDesign: weighted eigenvectors of the workload's Gram matrix (Li and Miklau, Program 2).

The eigenvectors Q of G are the design queries; their best weights u minimise Σ σ_i/u_i with every
diagonal entry of QᵀuQ at most 1 (module ``design``). Where G has full rank the
columns that stay below norm 1 are completed by single cells, which costs nothing (steps 4 and 5).

A workload of one product term is designed axis by axis: eigenvectors, best weights and their
bound all factor, so the product is the design of the whole. Anything else is one dense matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.bounds import root_trace, svd_bound
from adaptive_qs.strategy.matrix import DenseFactor, Strategy
from adaptive_qs.strategy.restricted.eigen_speedups import Principal, Separation, eigen_weights
from adaptive_qs.strategy.restricted.planner import solve_residual_planner
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.strategy.solution import Solution, Status
from adaptive_qs.workload.queries import CenteredQueries
from adaptive_qs.workload.subworkload import Subworkload

Array = NDArray[np.float64]

COPIES = 6
"""Matrices of all cells by all cells that the dense design holds at once."""


def solve_eigen(
    subworkload: Subworkload,
    settings: SolverSettings | None = None,
    speedup: Separation | Principal | None = None,
) -> Solution:
    """The eigen-design of a subworkload.

    Args:
        subworkload: the queries.
        settings: the gap of the weights within their family, most steps, most memory.
        speedup: approximate the best weights; for a product, on each axis by itself.

    Returns:
        Status OPTIMAL where the objective is within the gap of the singular value bound, else
        RESTRICTED.

    Raises:
        ResourceExceeded: the dense matrix is too large.
    """
    settings = settings or SolverSettings()
    axes, terms = len(subworkload.shape), subworkload.terms
    if axes == 0:
        return solve_residual_planner(subworkload)  # the total: nothing to choose
    factors = terms[0].factors
    scale = terms[0].scale
    if len(terms) == 1 and len(factors) == axes:
        designs = [_design_queries(queries, settings, speedup) for queries in factors]
    elif len(terms) == 1:
        designs = [_design_queries(factors[0], settings, speedup)]
    else:
        scale = 1.0
        designs = [_design_sum(subworkload, settings, speedup)]
    strategy = Strategy(tuple(design.factor for design in designs))
    objective = scale * math.prod(design.objective for design in designs)
    steps = sum(design.iterations for design in designs)
    return _solution(strategy, objective, svd_bound(subworkload), settings, steps)


def solve_eigen_dense(
    gram: Array,
    shape: tuple[int, ...],
    settings: SolverSettings | None = None,
    speedup: Separation | Principal | None = None,
) -> Solution:
    """The eigen-design of any positive semidefinite Gram matrix.

    Args:
        gram: G, shape (N, N) with N = Πshape; it may hold totals as well as residuals.
        shape: sizes of the axes covered.
        settings: see :func:`solve_eigen`.
        speedup: see :func:`solve_eigen`.

    Raises:
        ResourceExceeded: the dense matrix is too large.
    """
    settings = settings or SolverSettings()
    _check_memory(shape, len(gram), settings)
    design = _design(*_eigenvectors(gram), shape, settings, speedup)
    bound = root_trace(gram) ** 2 / len(gram)
    strategy = Strategy((design.factor,))
    return _solution(strategy, design.objective, bound, settings, design.iterations)


@dataclass(frozen=True, eq=False)
class _Design:
    factor: DenseFactor
    objective: float
    iterations: int


def _solution(
    strategy: Strategy, objective: float, bound: float, settings: SolverSettings, iterations: int
) -> Solution:
    proven = objective <= bound * (1 + settings.gap)
    status = Status.OPTIMAL if proven else Status.RESTRICTED
    return Solution(strategy, objective, min(bound, objective), status, iterations)


def _design_queries(
    queries: CenteredQueries, settings: SolverSettings, speedup: Separation | Principal | None
) -> _Design:
    rows = queries.rows()
    if rows is not None:
        return _design(*_row_eigenvectors(rows), queries.shape, settings, speedup)
    _check_memory(queries.shape, math.prod(queries.shape), settings)
    return _design(*_eigenvectors(queries.gram()), queries.shape, settings, speedup)


def _design_sum(
    subworkload: Subworkload, settings: SolverSettings, speedup: Separation | Principal | None
) -> _Design:
    cells = subworkload.cells
    pieces = [
        math.sqrt(term.scale) * rows
        for term in subworkload.terms
        if len(term.factors) == 1 and (rows := term.factors[0].rows()) is not None
    ]
    if len(pieces) == len(subworkload.terms) and sum(map(len, pieces)) < cells:
        values, vectors = _row_eigenvectors(np.concatenate(pieces))
    else:
        _check_memory(subworkload.shape, cells, settings)
        values, vectors = _eigenvectors(subworkload.gram())
    return _design(values, vectors, subworkload.shape, settings, speedup)


def _check_memory(shape: tuple[int, ...], cells: int, settings: SolverSettings) -> None:
    needed = COPIES * 8 * cells**2
    if needed > settings.max_bytes:
        raise ResourceExceeded(
            f"the eigen-design of a table of {' x '.join(map(str, shape))} cells needs "
            f"{needed / 2**30:.1f} GiB, more than {settings.max_bytes / 2**30:.1f} GiB: "
            "raise the memory limit or choose the mechanism wff or residualplanner"
        )


def _eigenvectors(gram: Array) -> tuple[Array, Array]:
    """Positive eigenvalues, largest first, and their vectors as rows."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > len(values) * np.finfo(np.float64).eps * values[-1]
    return values[kept][::-1], vectors[:, kept].T[::-1]


def _row_eigenvectors(rows: Array) -> tuple[Array, Array]:
    """The same of rowsᵀrows, from the smaller rows·rowsᵀ."""
    values, left = _eigenvectors(rows @ rows.T)
    return values, (left @ rows) / np.sqrt(values)[:, None]


def _design(
    values: Array,
    vectors: Array,
    shape: tuple[int, ...],
    settings: SolverSettings,
    speedup: Separation | Principal | None,
) -> _Design:
    u, iterations = eigen_weights(vectors * vectors, values, settings, speedup)
    matrix = vectors * np.sqrt(u)[:, None]
    if len(values) < vectors.shape[1]:
        covariance = vectors.T @ (vectors / u[:, None])
        return _Design(
            DenseFactor(matrix, shape, covariance), float((values / u).sum()), iterations
        )
    spare = np.maximum(1 - (matrix * matrix).sum(axis=0), 0.0)
    # In the eigenbasis, so that G = Qᵀ diag(σ) Q stays diagonal.
    inverse = np.linalg.inv(np.diag(u) + (vectors * spare) @ vectors.T)
    objective = float(values @ np.diag(inverse))
    completed = np.concatenate([matrix, np.diag(np.sqrt(spare))[spare > 0]])
    covariance = vectors.T @ inverse @ vectors
    return _Design(DenseFactor(completed, shape, covariance), objective, iterations)
