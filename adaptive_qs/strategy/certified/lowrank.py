"""Optimal strategies for fewer queries than cells: all work is in matrices of their number."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.certified.blocks import row_blocks
from adaptive_qs.strategy.certified.dense import solve_blocks
from adaptive_qs.strategy.certified.symmetry import symmetric_blocks
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.strategy.solution import Solution

Array = NDArray[np.float64]


def solve_rows(
    rows: Array, weights: Array, shape: tuple[int, ...], settings: SolverSettings
) -> Solution:
    """Optimal strategy for the queries W with weights D, without forming G = WᵀDW.

    With K = F Y Fᵀ, F independent rows with FᵀF = G, the candidate is V_y = Fᵀ K^{-½} F and the
    strategy K^{-¼} F: time and memory grow with m²N.

    Args:
        rows: W, shape (m, N); may be dependent.
        weights: diagonal of D, shape (m,), positive.
        shape: sizes of the axes, N = Πshape.
        settings: gap asked for and iteration limit.

    Returns:
        One dense factor with as many rows as W has rank.

    Raises:
        ValueError: another shape, weights that are not positive, or rows that are all zero.
    """
    rows = np.asarray(rows, dtype=np.float64)
    weights = np.asarray(weights, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != math.prod(shape) or weights.shape != rows.shape[:1]:
        raise ValueError(f"{rows.shape} queries with {weights.shape} weights over shape {shape}")
    if not (np.isfinite(rows).all() and (weights > 0).all() and np.isfinite(weights).all()):
        raise ValueError("queries must be finite and their weights positive and finite")
    if not rows.any():
        raise ValueError("the queries are all zero: no strategy can be fitted to them")
    weighted = np.sqrt(weights)[:, None] * rows
    symmetry = symmetric_blocks(lambda x: weighted.T @ (weighted @ x), shape)
    blocks = row_blocks([(basis.T @ weighted.T).T for basis in symmetry.bases])
    return solve_blocks(blocks, symmetry, shape, settings, None)
