"""The error of any strategy on any subworkload, and what no strategy can beat."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np

from adaptive_qs.strategy.solution import Array, Factor, Solution, Status, Strategy
from adaptive_qs.workload.axes import Circular, FirstCells, Marginal, Prefix, Range
from adaptive_qs.workload.matrices import Queries
from adaptive_qs.workload.residuals import CenteredQueries, Subworkload, Term

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


def _inverse_square_sine(turns: Array) -> Array:
    return 1 / np.sin(np.pi * turns) ** 2


def _range_centered(n: int) -> Array:
    odd = np.arange(1, n // 2 + 1) / (n + 1)
    even = np.arange(1, (n + 1) // 2) / n
    return (n + 1) / 4 * _inverse_square_sine(np.concatenate([odd, even]))


def _circle(n: int) -> Array:
    return np.maximum(np.fft.fft(Circular(n).circulant()).real, 0.0)


def _circle_centered(n: int) -> Array:
    row = Circular(n).circulant()
    return np.maximum(np.fft.fft(row - row.mean()).real[1:], 0.0)


_Forms = Mapping[type, Callable[[int], Array]]

_GRAM: _Forms = {
    Marginal: lambda n: np.ones(n),
    Prefix: lambda n: _inverse_square_sine(np.arange(1, 2 * n, 2) / (4 * n + 2)) / 4,
    Range: lambda n: (n + 1) / 4 * _inverse_square_sine(np.arange(1, n + 1) / (2 * n + 2)),
    Circular: _circle,
}
_CENTERED: _Forms = {
    Marginal: lambda n: np.ones(n - 1),
    Prefix: lambda n: _inverse_square_sine(np.arange(1, n) / (2 * n)) / 4,
    Range: _range_centered,
    Circular: _circle_centered,
}
_FOURIER: _Forms = {
    Marginal: lambda n: np.ones(n - 1),
    Prefix: lambda n: _inverse_square_sine(np.arange(1, n) / n) / 2,
    Range: lambda n: _inverse_square_sine(np.arange(1, n) / n) * (n + 2) / 4,
    Circular: _circle_centered,
}


def known_gram_eigenvalues(queries: Queries) -> Array | None:
    """Return the eigenvalues of QᵀQ, in any order, shape (n,); None without a closed form."""
    known = _GRAM.get(type(queries))
    return None if known is None else known(queries.shape[0])


def known_eigenvalues(part: CenteredQueries) -> Array | None:
    """Return the eigenvalues of the centered Gram without the zero of the constant vector.

    Shape (n − 1,), in any order. None without a closed form.
    """
    match part.queries:
        case FirstCells(size, queries=Circular() as circle):
            # What centering changes is the mean over the circle, by its part off 1/√n.
            found = _circle(circle.size)
            found[0] *= 1 - circle.size / size
            others = np.zeros(size - circle.size)
            return np.concatenate([found[1:], found[:1], others])[: size - 1]
    return _known(part, _CENTERED)


def known_fourier_diagonal(part: CenteredQueries) -> Array | None:
    """Return (F*GF)_ff in the unitary Fourier basis, shape (n,), zero at f = 0; or None.

    A run of ℓ cells has |Fourier coefficient|² = sin²(πfℓ/n)/sin²(πf/n); prefix has one of every
    length and range n + 1 − ℓ, and the sums over ℓ close.
    """
    found = _known(part, _FOURIER)
    return None if found is None else np.concatenate([[0.0], found])


def _known(part: CenteredQueries, forms: _Forms) -> Array | None:
    known = forms.get(type(part.queries))
    return None if known is None or not part.is_axis else known(part.shape[0])


# The error of any strategy on any subworkload, without a matrix larger than one part.
#
# tr(G V⁺) is linear in G, so it is a sum over the terms of G. A product term meets a strategy with
# one factor for each axis as a product of one-axis traces; a joint term is contracted one factor of
# the strategy at a time.


def total_variance(subworkload: Subworkload, strategy: Strategy) -> float:
    """Return tr(G V⁺): Σ weight · variance (rows²) over the queries at unit noise variance.

    The strategy is of the same shape, and its range holds that of G; its factors may cover one axis
    or several each, whatever the terms of G do.
    """
    if strategy.shape != subworkload.shape:
        raise ValueError(
            f"a strategy of shape {strategy.shape} cannot answer queries of {subworkload.shape}"
        )
    parts = (t.scale * _term_variance(t.factors, strategy.factors) for t in subworkload.terms)
    return float(sum(parts))


def is_product(term: Term, axes: int) -> bool:
    """Return whether a term has one factor for each axis."""
    return len(term.factors) == axes


def gram_trace(queries: CenteredQueries) -> float:
    """Return the trace of the Gram matrix, from the fewest numbers that give it."""
    known = known_eigenvalues(queries)
    if known is not None:
        return float(known.sum())
    rows = queries.rows()
    if rows is not None:
        return float(np.einsum("qi,qi->", rows, rows))
    return float(np.trace(queries.gram()))


def _term_variance(queries: tuple[CenteredQueries, ...], factors: tuple[Factor, ...]) -> float:
    """Multiply the traces of the smallest blocks of both that cover the same axes."""
    left = list(accumulate(len(part.shape) for part in queries))
    right = list(accumulate(len(factor.shape) for factor in factors))
    result, first, start = 1.0, 0, 0
    for end in sorted(set(left) & set(right)):
        last, stop = left.index(end) + 1, right.index(end) + 1
        result *= _block_variance(queries[first:last], factors[start:stop])
        first, start = last, stop
    return result


def _block_variance(queries: tuple[CenteredQueries, ...], factors: tuple[Factor, ...]) -> float:
    kept = [f.centering_variance for f in factors if f.centering_variance is not None]
    if len(kept) == len(factors):  # the queries lie in the residual space: Π leaves them alone
        return math.prod(kept) * math.prod(gram_trace(part) for part in queries)
    if len(queries) == 1:
        rows, covariances = queries[0].rows(), [factor.covariance for factor in factors]
        if rows is None:
            return _contract(queries[0].gram(), covariances).item()
        table = rows.reshape(len(rows), *map(len, covariances))
        return float(np.vdot(_applied(table, dict(enumerate(covariances))), table))
    (factor,) = factors
    return _contract(factor.covariance, [part.gram() for part in queries]).item()


def _applied(table: Array, matrices: Mapping[int, Array]) -> Array:
    """Apply symmetric matrices along some axes of rows (m, *shape), one at a time."""
    for axis, matrix in matrices.items():
        table = np.moveaxis(np.tensordot(table, matrix, axes=(axis + 1, 0)), -1, axis + 1)
    return table


def _contract(matrix: Array, blocks: Sequence[Array]) -> Array:
    """Return the partial trace of matrix · ⊗blocks ⊗ I for symmetric matrices."""
    for block in blocks:
        size = len(block)
        rest = len(matrix) // size
        shaped = matrix.reshape(size, rest, size, rest)
        matrix = np.einsum("iajb,ij->ab", shaped, block, optimize=True)
    return matrix


# The singular value bound: what no strategy can beat, from the spectrum of the workload alone.
#
# Li and Miklau, Theorem 2, used by McKenna et al. as the SVD bound. For every feasible V, that is
# diag V ≤ 1 on N cells, tr V ≤ N and the Cauchy-Schwarz inequality gives
#
#     (tr G^½)² ≤ tr(G V⁺) · tr V ≤ N tr(G V⁺).

PROVEN = 1e-9
"""Relative distance to the lower bound that rounding explains, so that the optimum is proven."""
DENSE_CELLS = 2_000
"""Most cells of a matrix whose eigenvalues are computed to bound a sum of terms."""
SINGLE_CELLS = 4_096
"""Most cells of one factor of one term whose eigenvalues are computed, once."""


def svd_bound(subworkload: Subworkload) -> float:
    """Return a lower bound on tr(G V⁺) over every strategy at privacy cost 1 (rows²).

    One product term: (Π_k tr G_k^½)² / N, exact. A sum of terms on at most ``DENSE_CELLS`` cells:
    the same from the eigenvalues of G. Otherwise the sum of the terms' own bounds, since the
    optimum is superadditive: tr((G₁ + G₂) V⁺) = tr(G₁ V⁺) + tr(G₂ V⁺), and a V feasible for
    G₁ + G₂ is feasible for both, whose ranges lie in that of the sum.
    """
    if len(subworkload.terms) > 1 and subworkload.cells <= DENSE_CELLS:
        return gram_bound(subworkload.gram())
    return sum(t.scale * math.prod(map(_factor_bound, t.factors)) for t in subworkload.terms)


def gram_bound(gram: Array, cells: int | None = None) -> float:
    """Return (tr G^½)²/N of a Gram matrix (N, N), the least error at privacy cost 1.

    The matrix can also be WWᵀ of queries over ``cells`` cells: its root has the same trace.
    """
    return root_sum(np.asarray(np.linalg.eigvalsh(gram), dtype=np.float64)) ** 2 / (
        cells or len(gram)
    )


def root_sum(eigenvalues: Array) -> float:
    """Return Σ√σ without the rounding of zeros: an error ε in σ = 0 would count as √ε."""
    noise = eigenvalues.size * np.finfo(np.float64).eps * float(eigenvalues.max(initial=0.0))
    return float(np.sqrt(eigenvalues[eigenvalues > noise]).sum())


def judged(
    subworkload: Subworkload,
    strategy: Strategy,
    objective: float,
    iterations: int = 0,
    gap: float = PROVEN,
) -> Solution:
    """Return a solution, OPTIMAL within the gap of the singular value bound, or RESTRICTED."""
    bound = min(svd_bound(subworkload), objective)
    status = Status.OPTIMAL if objective <= bound * (1 + gap) else Status.RESTRICTED
    return Solution(strategy, objective, bound, status, iterations)


@lru_cache(maxsize=4_096)
def _factor_bound(queries: CenteredQueries) -> float:
    """Return (tr G^½)² / N of one factor.

    Past ``SINGLE_CELLS`` cells and rows, and with no known spectrum, (tr G^½)² ≥ tr G is all that
    is used: valid, and weak.
    """
    cells = math.prod(queries.shape)
    known = known_eigenvalues(queries)
    if known is not None:
        return root_sum(known) ** 2 / cells
    rows = queries.rows()
    if rows is not None and len(rows) <= SINGLE_CELLS:
        return gram_bound(rows @ rows.T, cells)
    if cells <= SINGLE_CELLS:
        return gram_bound(queries.gram())
    return gram_trace(queries) / cells
