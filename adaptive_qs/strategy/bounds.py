"""What no strategy can beat, and the best strategies of fixed families, which can meet it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import accumulate

import numpy as np

from adaptive_qs.strategy import solution
from adaptive_qs.strategy.solution import Array, CenteringFactor, Factor, Solution, Status, Strategy
from adaptive_qs.workload.axes import Circular, FirstCells, Marginal, Prefix, Range
from adaptive_qs.workload.matrices import Queries
from adaptive_qs.workload.residuals import CenteredQueries, Subworkload, Term

# Closed forms of the spectra of a single attribute's queries: of QᵀQ, and centered of ΠQᵀQΠ.
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
    """Return the centered Gram's n − 1 eigenvalues besides the constant vector's 0, or None."""
    match part.queries:
        case FirstCells(size, queries=Circular() as circle):
            # What centering changes is the mean over the circle, by its part off 1/√n.
            found = _circle(circle.size)
            found[0] *= 1 - circle.size / size
            return np.concatenate([found[1:], found[:1], np.zeros(size - circle.size)])[: size - 1]
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
    return None if known is None or len(part.queries.shape) > 1 else known(part.shape[0])


# The error of any strategy on any subworkload, without a matrix larger than one part.
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
    """Return (tr G^½)²/N of one factor; the weaker tr G/N if its spectrum is out of reach."""
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


# ResidualPlanner (Xiao et al. 2023): a fixed basis for each attribute, no solver.
# Each residual is measured by ⊗B_i, where B_i spans the mean-free vectors of attribute i. With
# B_i = √(n/(n−1)) Π that is ResidualPlanner, the optimum for marginals.


@dataclass(frozen=True, eq=False)
class FourierFactor(Factor):
    """V = F diag(h) F* with F the unitary Fourier basis: its diagonal is one everywhere."""

    shape: tuple[int, ...]  # sizes of the axes covered
    weights: Array  # h, of this shape: ≥ 0 (0 is not measured), equal at f and −f, sum N = Πshape

    def __post_init__(self) -> None:
        h = np.asarray(self.weights, dtype=np.float64)
        mirrored = np.roll(np.flip(h), 1, axis=tuple(range(h.ndim)))
        if h.shape != self.shape or not (h >= 0).all() or not np.allclose(h, mirrored):
            raise ValueError(f"a factor of shape {self.shape} has Fourier weights that do not fit")
        if not math.isclose(float(h.sum()), h.size, rel_tol=1e-9):
            raise ValueError(f"Fourier weights over {h.size} cells have sum {h.sum()}")

    @cached_property
    def matrix(self) -> Array:
        """√(2h_f/N) cos and sin of each pair ±f; √(h_f/N) cos where f = −f. Shape (rows, N)."""
        waves, h = self._waves()
        return waves * np.sqrt(h)[:, None]

    @cached_property
    def inverse(self) -> Array:
        """B⁺ = Bᵀ diag(1/h): the rows are orthogonal, and row f has squared norm h_f."""
        waves, h = self._waves()
        return (waves / np.sqrt(h)[:, None]).T

    @cached_property
    def covariance(self) -> Array:
        """V⁺, block circulant: entry (j, k) depends on j − k alone."""
        kernel = self.kernel
        cells = np.indices(self.shape).reshape(len(self.shape), -1)
        differences = (cells[:, :, None] - cells[:, None, :]) % np.array(self.shape)[:, None, None]
        return kernel[tuple(differences)]

    @cached_property
    def kernel(self) -> Array:
        """V⁺ by difference of cells, of the factor's shape: its first row."""
        h = self.weights
        reciprocal = np.divide(1.0, h, out=np.zeros(self.shape), where=h > 0)
        return np.asarray(np.fft.ifftn(reciprocal).real, dtype=np.float64)

    def arc_variances(self, queries: Queries) -> Array | None:
        """Return the variances of arcs over all cells, whose covariance is circulant."""
        if len(self.shape) != 1 or queries.arc_lengths() is None or queries.is_partial:
            return None
        return np.maximum(solution.circulant_arcs(self.kernel), 0.0)

    @property
    def spans_residual(self) -> bool:
        values = np.sqrt(self.weights)
        measured = values > values.max() * values.size * np.finfo(float).eps
        return int(measured.sum()) >= values.size - 1

    def _waves(self) -> tuple[Array, Array]:
        """Return orthonormal rows and their h: a cosine of each pair ±f, then sines of pairs."""
        h, cells = self.weights.ravel(), np.indices(self.shape).reshape(len(self.shape), -1)
        mirror = np.ravel_multi_index(tuple(-cells % np.array(self.shape)[:, None]), self.shape)
        (f,) = np.nonzero((np.arange(h.size) <= mirror) & (h > 0))
        own = mirror[f] == f
        # Whole turns are dropped in integers, so that large sizes keep full precision.
        angle = np.zeros((len(f), h.size))
        for cell, size in zip(cells, self.shape):
            angle += (np.outer(cell[f], cell) % size) * (2 * np.pi / size)
        height = np.where(own, 1.0, math.sqrt(2.0))[:, None] / math.sqrt(h.size)
        waves = np.concatenate([np.cos(angle) * height, np.sin(angle[~own]) * height[~own]])
        return waves, np.concatenate([h[f], h[f[~own]]])


def solve_residual_planner(subworkload: Subworkload) -> Solution:
    """Return the strategy of ResidualPlanner: optimal for marginals, valid for any queries.

    OPTIMAL where it meets the singular value bound, else RESTRICTED, as are the others here.
    """
    factors = tuple(CenteringFactor(size) for size in subworkload.shape)
    return solve_with_basis(subworkload, factors)


def solve_with_basis(subworkload: Subworkload, factors: tuple[Factor, ...]) -> Solution:
    """Return ⊗B_i, each spanning its mean-free vectors; OPTIMAL at the singular value bound."""
    strategy = Strategy(factors)
    return judged(subworkload, strategy, total_variance(subworkload, strategy))


# Weighted Fourier factorisation: the best strategy that is diagonal in the Fourier basis.
# He et al., appendix C (Lebeda et al.). With F the unitary Fourier basis of the residual
# frequencies, those that are non-zero along every axis, and c_f = (F*GF)_ff, a strategy with
# V = F diag(h) F* has the constant diagonal Σh/N and error Σ c_f/h_f. By the Cauchy-Schwarz
# inequality h_f = N √c_f / Σ√c is best, with objective (Σ√c)²/N. Where G is itself diagonal in F,
# as for circular queries and marginals, that meets the singular value bound: it is the optimum.

CHUNK_CELLS = 2**22
"""Coefficients of queries that are transformed at a time."""


def solve_fourier(subworkload: Subworkload) -> Solution:
    """Return the optimum of the Fourier family, without a matrix over the cells.

    One Fourier factor for each axis where the workload is one product term, otherwise one over all.
    """
    terms = subworkload.terms
    if not subworkload.shape:
        return solve_residual_planner(subworkload)  # the total: nothing to choose
    if len(terms) == 1:
        scale, spectra = terms[0].scale, [fourier_spectrum(part) for part in terms[0].factors]
    else:
        scale, spectra = 1.0, [subworkload_spectrum(subworkload)]
    strategy = Strategy(tuple(FourierFactor(c.shape, _best_weights(c)) for c in spectra))
    objective = scale * math.prod(float(np.sqrt(c).sum()) ** 2 / c.size for c in spectra)
    return judged(subworkload, strategy, objective)


def subworkload_spectrum(subworkload: Subworkload) -> Array:
    """Return c_f of all terms together, of the subworkload's shape."""
    total = np.zeros(subworkload.shape)
    for term in subworkload.terms:
        total += term.scale * reduce(np.multiply.outer, map(fourier_spectrum, term.factors))
    return total


@lru_cache(maxsize=1_024)
def fourier_spectrum(queries: CenteredQueries) -> Array:
    """Return c_f ≥ 0 (read-only), the Gram's diagonal in the Fourier basis; 0 off the residual."""
    c = np.array(_raw_spectrum(queries))
    for axis in range(c.ndim):
        c[(slice(None),) * axis + (0,)] = 0.0
    c = (c + np.roll(np.flip(c), 1, axis=tuple(range(c.ndim)))) / 2  # c_f = c_−f up to rounding
    # Share of the largest coefficient below which others are zero, since the transform rounds
    rounding = 1e-13
    c[c < rounding * c.max(initial=0.0)] = 0.0
    c.setflags(write=False)
    return c


def _raw_spectrum(queries: CenteredQueries) -> Array:
    known = known_fourier_diagonal(queries)
    if known is not None:
        return known
    rows = queries.rows()
    if rows is not None:
        axes = tuple(range(1, len(queries.shape) + 1))
        step = max(1, CHUNK_CELLS // rows.shape[1])
        total = np.zeros(queries.shape)
        for start in range(0, len(rows), step):
            waves = np.fft.fftn(rows[start : start + step].reshape(-1, *queries.shape), axes=axes)
            total += (waves.real**2 + waves.imag**2).sum(axis=0)
        return total / math.prod(queries.shape)
    means = queries.gram().reshape(queries.shape * 2)
    for size in queries.shape:  # means over cells j of G[j, j + t], wrapping along every axis
        rolled = (np.roll(means[j], -j, axis=len(queries.shape) - 1) for j in range(size))
        means = sum(rolled, np.zeros(means.shape[1:])) / size
    return np.fft.fftn(means).real


def _best_weights(c: Array) -> Array:
    roots = np.sqrt(c)
    return roots * (c.size / roots.sum())
