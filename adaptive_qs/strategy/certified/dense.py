"""Optimal strategies with certificates for any Gram matrix that fits in memory.

He et al., equation 4: minimise tr(G V⁺) over V ⪰ 0 with diag V ≤ 1 and range(V) ⊇ range(G).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.certified.blocks import Block, gram_blocks
from adaptive_qs.strategy.certified.fixed_point import Outcome, maximise_dual
from adaptive_qs.strategy.certified.symmetry import SymmetricBlocks, symmetric_blocks
from adaptive_qs.strategy.matrix import DenseFactor, Strategy
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.strategy.solution import Solution, Status

Array = NDArray[np.float64]


def solve_dense(
    gram: Array, shape: tuple[int, ...], settings: SolverSettings, start: Array | None = None
) -> Solution:
    """Optimal strategy for queries with Gram matrix G.

    Args:
        gram: G = WᵀDW, shape (N, N), symmetric positive semidefinite, of any rank from 1 to N.
        shape: sizes of the axes, N = Πshape; symmetries under their reversal and exchange are
            found and used.
        settings: gap asked for and iteration limit.
        start: dual vector y > 0, shape (N,), up to a scale; uniform by default.

    Returns:
        One dense factor. OPTIMAL within the gap, else STOPPED with the gap reached.

    Raises:
        ValueError: a matrix of another shape, not finite, not symmetric, or zero.
    """
    gram = np.asarray(gram, dtype=np.float64)
    cells = math.prod(shape)
    if gram.shape != (cells, cells):
        raise ValueError(f"a Gram matrix over shape {shape} has shape {gram.shape}")
    scale = float(np.abs(gram).max())
    if not math.isfinite(scale) or scale == 0:
        raise ValueError("the Gram matrix is zero or not finite: no strategy can be fitted to it")
    if not np.allclose(gram, gram.T, rtol=0, atol=1e-10 * scale):
        raise ValueError("the Gram matrix is not symmetric")
    symmetry = symmetric_blocks(lambda x: gram @ x, shape)
    blocks = [_symmetrised(basis.T @ (basis.T @ gram).T) for basis in symmetry.bases]
    return solve_blocks(gram_blocks(blocks), symmetry, shape, settings, start)


def solve_blocks(
    blocks: Sequence[Block | None],
    symmetry: SymmetricBlocks,
    shape: tuple[int, ...],
    settings: SolverSettings,
    start: Array | None,
) -> Solution:
    """Optimal strategy for a Gram matrix given by its blocks, None for a block that is zero."""
    outcome = _optimise(blocks, symmetry, settings, start)
    found, bases = [], []
    for block, orbits, basis in zip(blocks, symmetry.members, symmetry.bases):
        if block is not None:
            found.append(block.strategy(outcome.y[orbits]))
            bases.append(basis)
    matrix = np.concatenate([(q @ part.matrix.T).T for q, part in zip(bases, found)])
    inverse = None
    if 2 * len(matrix) >= matrix.shape[1]:  # a smaller matrix has its inverse on demand
        spread = np.concatenate([q @ part.inverse for q, part in zip(bases, found)], axis=1)
        inverse = spread @ spread.T
    sensitivity = float((matrix * matrix).sum(axis=0).max())
    objective = sensitivity * sum(part.objective for part in found)
    reached = objective <= outcome.lower_bound * (1 + settings.gap)
    return Solution(
        Strategy((DenseFactor(matrix, shape, inverse),)),
        objective,
        outcome.lower_bound,
        Status.OPTIMAL if reached else Status.STOPPED,
        outcome.iterations,
    )


def _optimise(
    blocks: Sequence[Block | None],
    symmetry: SymmetricBlocks,
    settings: SolverSettings,
    start: Array | None,
) -> Outcome:
    """The iteration over the blocks that are not zero, from a start over the cells."""
    pairs = [(block, m) for block, m in zip(blocks, symmetry.members) if block is not None]
    if start is not None:
        start = np.bincount(symmetry.orbit, start) / symmetry.sizes
    return maximise_dual(
        [block for block, _ in pairs], [m for _, m in pairs], symmetry.sizes, settings, start
    )


def _symmetrised(matrix: Array) -> Array:
    return (matrix + matrix.T) / 2
