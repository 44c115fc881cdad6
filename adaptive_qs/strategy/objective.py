"""The error of any strategy on any subworkload, without a matrix larger than one part.

tr(G V⁺) is linear in G, so it is a sum over the terms of G. A product term meets a strategy with
one factor for each axis as a product of one-axis traces; a joint term is contracted one factor of
the strategy at a time.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.matrix import CenteringFactor, Factor, Strategy
from adaptive_qs.strategy.spectra import known_eigenvalues
from adaptive_qs.workload.queries import CenteredQueries
from adaptive_qs.workload.subworkload import Subworkload, Term

Array = NDArray[np.float64]


def total_variance(subworkload: Subworkload, strategy: Strategy) -> float:
    """tr(G V⁺): Σ weight · variance (rows²) over the queries, with unit noise variance.

    Args:
        subworkload: G.
        strategy: of the same shape, whose range holds that of G; its factors may cover one axis
            or several each, whatever the terms of G do.
    """
    if strategy.shape != subworkload.shape:
        raise ValueError(
            f"a strategy of shape {strategy.shape} cannot answer queries of {subworkload.shape}"
        )
    parts = (t.scale * _term_variance(t.factors, strategy.factors) for t in subworkload.terms)
    return float(sum(parts))


def axis_gram(subworkload: Subworkload, axis: int, factors: tuple[Factor, ...]) -> Array:
    """What one axis is asked once the strategies of all others are fixed.

    Args:
        subworkload: G.
        axis: whose strategy is open.
        factors: one for each axis; the one at ``axis`` is not looked at.

    Returns:
        Shape (n, n): tr(G V⁺) = tr(axis_gram · V_axis⁺) for every V_axis.
    """
    size = subworkload.shape[axis]
    total = np.zeros((size, size))
    for term in subworkload.terms:
        if is_product(term, len(factors)):
            others = [k for k in range(len(factors)) if k != axis]
            kept = math.prod(_block_variance((term.factors[k],), (factors[k],)) for k in others)
            total += term.scale * kept * term.factors[axis].gram()
        else:
            (queries,) = term.factors
            total += term.scale * _joint_axis_gram(queries, axis, factors)
    return (total + total.T) / 2


def is_product(term: Term, axes: int) -> bool:
    """Whether a term has one factor for each axis."""
    return len(term.factors) == axes


def gram_trace(queries: CenteredQueries) -> float:
    """tr of the Gram matrix, from the fewest numbers that give it."""
    known = known_eigenvalues(queries)
    if known is not None:
        return float(known.sum())
    rows = queries.rows()
    if rows is not None:
        return float(np.einsum("qi,qi->", rows, rows))
    return float(np.trace(queries.gram()))


def _term_variance(queries: tuple[CenteredQueries, ...], factors: tuple[Factor, ...]) -> float:
    """Walk both lists from the left and multiply the traces of matching blocks."""
    result = 1.0
    while queries or factors:
        taken, covering = _matching(queries, factors)
        result *= _block_variance(queries[:taken], factors[:covering])
        queries, factors = queries[taken:], factors[covering:]
    return result


def _matching(queries: tuple[CenteredQueries, ...], factors: tuple[Factor, ...]) -> tuple[int, int]:
    """How many of each, from the left, cover the same axes for the first time."""
    taken = covering = 1
    left, right = len(queries[0].shape), len(factors[0].shape)
    while left != right:
        if left < right:
            left += len(queries[taken].shape)
            taken += 1
        else:
            right += len(factors[covering].shape)
            covering += 1
    return taken, covering


def _block_variance(queries: tuple[CenteredQueries, ...], factors: tuple[Factor, ...]) -> float:
    if all(isinstance(factor, CenteringFactor) for factor in factors):
        # The queries lie in the residual space already: Π leaves them alone.
        kept = math.prod((factor.shape[0] - 1) / factor.shape[0] for factor in factors)
        return kept * math.prod(gram_trace(part) for part in queries)
    if len(queries) == 1:
        rows = queries[0].rows()
        if rows is not None:
            return _rows_variance(rows, factors)
        return _contract(queries[0].gram(), [factor.covariance for factor in factors])
    (factor,) = factors
    return _contract(factor.covariance, [part.gram() for part in queries])


def _rows_variance(rows: Array, factors: tuple[Factor, ...]) -> float:
    """Σ_q w_qᵀ(⊗C_k)w_q, applying one C_k at a time to all rows."""
    sizes = [math.prod(factor.shape) for factor in factors]
    moved = rows.reshape(len(rows), *sizes)
    for axis, factor in enumerate(factors, start=1):
        moved = np.moveaxis(np.tensordot(moved, factor.covariance, axes=(axis, 0)), -1, axis)
    return float(np.einsum("qi,qi->", moved.reshape(len(rows), -1), rows))


def _joint_axis_gram(queries: CenteredQueries, axis: int, factors: tuple[Factor, ...]) -> Array:
    shape = queries.shape
    others = [k for k in range(len(shape)) if k != axis]
    rows = queries.rows()
    if rows is not None:
        table = rows.reshape(-1, *shape)
        moved = table
        for k in others:
            applied = np.tensordot(moved, factors[k].covariance, axes=(k + 1, 0))
            moved = np.moveaxis(applied, -1, k + 1)
        left, right = (np.moveaxis(t, axis + 1, 0).reshape(shape[axis], -1) for t in (moved, table))
        return left @ right.T
    order = [axis, *others]
    both = order + [len(shape) + k for k in order]
    matrix = queries.gram().reshape(*shape, *shape).transpose(both)
    matrix = matrix.reshape(math.prod(shape), -1)
    for k in reversed(others):
        shaped = matrix.reshape(-1, shape[k], len(matrix) // shape[k], shape[k])
        matrix = np.einsum("aibj,ij->ab", shaped, factors[k].covariance, optimize=True)
    return matrix


def _contract(matrix: Array, blocks: list[Array]) -> float:
    """tr(matrix · ⊗blocks) for symmetric matrices, removing one block's axes at a time."""
    for block in blocks:
        size = len(block)
        rest = len(matrix) // size
        shaped = matrix.reshape(size, rest, size, rest)
        matrix = np.einsum("iajb,ij->ab", shaped, block, optimize=True)
    return float(matrix[0, 0])
