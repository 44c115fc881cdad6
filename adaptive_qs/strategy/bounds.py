"""The error of any strategy on any subworkload, and what no strategy can beat."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.solution import CenteringFactor, Factor, Solution, Status, Strategy
from adaptive_qs.workload.axes import Circular, Marginal, Prefix, Range
from adaptive_qs.workload.matrices import Queries
from adaptive_qs.workload.residuals import CenteredAxis, CenteredQueries, Subworkload, Term

# Closed forms of the spectra of a single attribute's queries: of QᵀQ, and centered of ΠQᵀQΠ.
#
# They make sizes of 10,000 and more cost O(n) where a matrix would take n² numbers.
#
# Marginal: Π itself. Circular: a circulant matrix, diagonal in the Fourier basis. Prefix: with the
# lower triangular Q, QΠQᵀ is the covariance min(a, b) − ab/n of a discrete Brownian bridge, the
# inverse of the second difference with eigenvalues 4 sin²(πk/2n). Range: QᵀQ is n + 1 times the
# inverse of the second difference of size n; its odd eigenvectors sum to zero and stay, its even
# ones become cos(2πk(j − (n+1)/2)/n), the ones that sum to zero. Of prefix queries QᵀQ is the
# inverse of the second difference with one end free.

Array = NDArray[np.float64]


def known_eigenvalues(part: CenteredQueries) -> Array | None:
    """Eigenvalues of the centered Gram without the zero of the constant vector, shape (n − 1,).

    None where there is no closed form.
    """
    if not isinstance(part, CenteredAxis):
        return None
    queries = part.queries
    n = part.shape[0]
    if isinstance(queries, Marginal):
        return np.ones(n - 1)
    if isinstance(queries, Circular):
        return _fourier_of_circular(part)[1:]
    if isinstance(queries, Prefix):
        return _inverse_square_sine(np.arange(1, n) / (2 * n)) / 4
    if isinstance(queries, Range):
        odd = np.arange(1, n // 2 + 1) / (n + 1)
        even = np.arange(1, (n + 1) // 2) / n
        return (n + 1) / 4 * _inverse_square_sine(np.concatenate([odd, even]))
    return None


def known_gram_eigenvalues(queries: Queries) -> Array | None:
    """Eigenvalues of the Gram QᵀQ itself, in any order, shape (n,); None without a closed form."""
    if isinstance(queries, Marginal):
        return np.ones(queries.size)
    if isinstance(queries, Circular):
        return np.maximum(np.fft.fft(queries.circulant()).real, 0.0)
    if isinstance(queries, Prefix):
        n = queries.size
        return _inverse_square_sine(np.arange(1, 2 * n, 2) / (4 * n + 2)) / 4
    if isinstance(queries, Range):
        n = queries.size
        return (n + 1) / 4 * _inverse_square_sine(np.arange(1, n + 1) / (2 * n + 2))
    return None


def known_fourier_diagonal(part: CenteredQueries) -> Array | None:
    """(F*GF)_ff in the unitary Fourier basis, shape (n,), zero at f = 0; or None.

    A run of ℓ cells has |Fourier coefficient|² = sin²(πfℓ/n)/sin²(πf/n); prefix has one of every
    length and range n + 1 − ℓ, and the sums over ℓ close.
    """
    if not isinstance(part, CenteredAxis):
        return None
    queries = part.queries
    n = part.shape[0]
    if isinstance(queries, Circular):
        return _fourier_of_circular(part)
    frequency = np.arange(1, n) / n
    if isinstance(queries, Marginal):
        c = np.ones(n - 1)
    elif isinstance(queries, Prefix):
        c = _inverse_square_sine(frequency) / 2
    elif isinstance(queries, Range):
        c = _inverse_square_sine(frequency) * (n + 2) / 4
    else:
        return None
    return np.concatenate([[0.0], c])


def _inverse_square_sine(turns: Array) -> Array:
    """1/sin²(π · turns)."""
    return 1 / np.sin(np.pi * turns) ** 2


def _fourier_of_circular(part: CenteredAxis) -> Array:
    row = part.circulant()
    assert row is not None
    c = np.fft.fft(row).real
    c[0] = 0.0
    return np.maximum(c, 0.0)


# The error of any strategy on any subworkload, without a matrix larger than one part.
#
# tr(G V⁺) is linear in G, so it is a sum over the terms of G. A product term meets a strategy with
# one factor for each axis as a product of one-axis traces; a joint term is contracted one factor of
# the strategy at a time.


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


# The singular value bound: what no strategy can beat, from the spectrum of the workload alone.
#
# Li and Miklau, Theorem 2, used by McKenna et al. as the SVD bound. For every feasible V, that is
# diag V ≤ 1 on N cells, tr V ≤ N and the Cauchy-Schwarz inequality gives
#
#     (tr G^½)² ≤ tr(G V⁺) · tr V ≤ N tr(G V⁺).

PROVEN = 1e-9
"""Relative distance to the lower bound that rounding explains: the optimum is proven."""
DENSE_CELLS = 2_000
"""Largest matrix whose eigenvalues are taken for a bound on a sum of terms."""
SINGLE_CELLS = 4_096
"""The same for one factor of one term, which is solved once and kept."""


def svd_bound(subworkload: Subworkload) -> float:
    """A lower bound on tr(G V⁺) over every strategy at privacy cost 1 (rows²).

    One product term: (Π_k tr G_k^½)² / N, exact. A sum of terms on at most ``DENSE_CELLS`` cells:
    the same from the eigenvalues of G. Otherwise the sum of the terms' own bounds. That is valid
    because the optimum is superadditive: for any V, tr((G₁ + G₂) V⁺) = tr(G₁ V⁺) + tr(G₂ V⁺), a V
    feasible for G₁ + G₂ is feasible for both (range(G₁ + G₂) holds the range of either, being
    sums of positive semidefinite matrices), so the minimum of the sum is at least the sum of the
    minima.
    """
    if len(subworkload.terms) > 1 and subworkload.cells <= DENSE_CELLS:
        return gram_bound(subworkload.gram())
    return float(sum(_term_bound(term, len(subworkload.shape)) for term in subworkload.terms))


def gram_bound(gram: Array) -> float:
    """(tr G^½)²/N of a Gram matrix (N, N): no strategy at privacy cost 1 has a smaller error."""
    return root_trace(gram) ** 2 / len(gram)


def root_trace(gram: Array) -> float:
    """tr G^½ of a positive semidefinite matrix (N, N)."""
    return root_sum(np.asarray(np.linalg.eigvalsh(gram), dtype=np.float64))


def root_sum(eigenvalues: Array) -> float:
    """Σ√σ without the rounding of zeros: an error ε in σ = 0 would count as √ε."""
    noise = eigenvalues.size * np.finfo(np.float64).eps * float(eigenvalues.max(initial=0.0))
    return float(np.sqrt(eigenvalues[eigenvalues > noise]).sum())


def judged(
    subworkload: Subworkload,
    strategy: Strategy,
    objective: float,
    iterations: int = 0,
    gap: float = PROVEN,
) -> Solution:
    """The best of a family of strategies as a solution.

    Status OPTIMAL where the objective is within the gap of the singular value bound, else
    RESTRICTED.
    """
    bound = min(svd_bound(subworkload), objective)
    status = Status.OPTIMAL if objective <= bound * (1 + gap) else Status.RESTRICTED
    return Solution(strategy, objective, bound, status, iterations)


def _term_bound(term: Term, axes: int) -> float:
    if is_product(term, axes):
        return term.scale * math.prod(_factor_bound(factor) for factor in term.factors)
    (joint,) = term.factors
    return term.scale * _factor_bound(joint)


@lru_cache(maxsize=4_096)
def _factor_bound(queries: CenteredQueries) -> float:
    """(tr G^½)² / N of one factor.

    Past ``SINGLE_CELLS`` cells and rows, and with no known spectrum, (tr G^½)² ≥ tr G is all that
    is used: valid, and weak.
    """
    cells = math.prod(queries.shape)
    known = known_eigenvalues(queries)
    if known is not None:
        return root_sum(known) ** 2 / cells
    rows = queries.rows()
    if rows is not None and len(rows) <= SINGLE_CELLS:
        return root_trace(rows @ rows.T) ** 2 / cells
    if cells <= SINGLE_CELLS:
        return gram_bound(queries.gram())
    return gram_trace(queries) / cells
