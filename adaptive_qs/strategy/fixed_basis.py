"""Strategies that are diagonal in a fixed basis: the Fourier basis, and ResidualPlanner's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import InputError
from adaptive_qs.strategy.bounds import is_product, judged, known_fourier_diagonal, total_variance
from adaptive_qs.strategy.solution import CenteringFactor, DenseFactor, Factor, Solution, Strategy
from adaptive_qs.workload.residuals import CenteredQueries, Subworkload, Term

# A strategy of weighted Fourier queries, as real rows, made only when asked for.

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FourierFactor:
    """V = F diag(h) F* with F the unitary Fourier basis: its diagonal is one everywhere.

    Attributes:
        shape: sizes of the axes covered.
        weights: h, of the same shape: non-negative, equal at f and −f, with sum N = Πshape.
            Frequencies of weight 0 are not measured.
    """

    shape: tuple[int, ...]
    weights: Array

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
        return self._waves * np.sqrt(self._row_weights)[:, None]

    @cached_property
    def inverse(self) -> Array:
        """B⁺ = Bᵀ diag(1/h): the rows are orthogonal, and row f has squared norm h_f."""
        return (self._waves / np.sqrt(self._row_weights)[:, None]).T

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

    @cached_property
    def _frequencies(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """One measured frequency of each pair ±f as a flat index, and whether it is its own."""
        flat = np.arange(self.weights.size)
        f = np.array(np.unravel_index(flat, self.shape))
        sizes = np.array(self.shape)[:, None]
        mirror = np.ravel_multi_index(tuple((-f) % sizes), self.shape)
        kept = (flat <= mirror) & (self.weights.ravel() > 0)
        return flat[kept], (flat == mirror)[kept]

    @cached_property
    def _row_weights(self) -> Array:
        f, own = self._frequencies
        h = self.weights.ravel()
        return np.concatenate([h[f], h[f[~own]]])

    @property
    def _waves(self) -> Array:
        """Orthonormal rows: a cosine for each frequency, then a sine for each true pair."""
        f, own = self._frequencies
        cells = np.indices(self.shape).reshape(len(self.shape), -1)
        waves = np.array(np.unravel_index(f, self.shape))
        # Whole turns are dropped in integers, so that large sizes keep full precision.
        angle = np.zeros((len(f), self.weights.size))
        for wave, cell, size in zip(waves, cells, self.shape):
            angle += (np.outer(wave, cell) % size) * (2 * np.pi / size)
        height = np.where(own, 1.0, math.sqrt(2.0))[:, None] / math.sqrt(self.weights.size)
        return np.concatenate([np.cos(angle) * height, np.sin(angle[~own]) * height[~own]])


# ResidualPlanner and ResidualPlanner+: a fixed basis for each attribute, no solver.
#
# Each residual is measured by ⊗B_i, where B_i spans the mean-free vectors of attribute i. With
# B_i = √(n/(n−1)) Π that is ResidualPlanner, the optimum for marginals; with B_i of the user's
# choice it is ResidualPlanner+ (He et al., section 7).


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
    return judged(subworkload, strategy, total_variance(subworkload, strategy))


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


# Weighted Fourier factorisation: the best strategy that is diagonal in the Fourier basis.
#
# He et al., appendix C (Lebeda et al.). With F the unitary Fourier basis of the residual
# frequencies, those that are non-zero along every axis, and c_f = (F*GF)_ff, a strategy with
# V = F diag(h) F* has the constant diagonal Σh/N and error Σ c_f/h_f. By the Cauchy-Schwarz
# inequality h_f = N √c_f / Σ√c is best, with objective (Σ√c)²/N. Where G is itself diagonal in F,
# as for circular queries and marginals, that meets the singular value bound: it is the optimum.

ROUNDING = 1e-13
"""Coefficients below this share of the largest are zero: the transform rounds there."""
CHUNK_CELLS = 2**22
"""Numbers of queries that are transformed at a time."""


def solve_fourier(subworkload: Subworkload) -> Solution:
    """The optimum of the Fourier family, without a matrix over the cells.

    Returns:
        One Fourier factor for each axis where the workload is one product term, one factor over
        all axes otherwise. Status OPTIMAL where the objective meets the singular value bound,
        else RESTRICTED.
    """
    terms, axes = subworkload.terms, len(subworkload.shape)
    if axes == 0:
        return solve_residual_planner(subworkload)  # the total: nothing to choose
    if len(terms) == 1 and is_product(terms[0], axes):
        spectra = [fourier_spectrum(factor) for factor in terms[0].factors]
        strategy = Strategy(tuple(FourierFactor(c.shape, _best_weights(c)) for c in spectra))
        objective = terms[0].scale * math.prod(_objective(c) for c in spectra)
    else:
        c = subworkload_spectrum(subworkload)
        strategy = Strategy((FourierFactor(c.shape, _best_weights(c)),))
        objective = _objective(c)
    return judged(subworkload, strategy, objective)


def subworkload_spectrum(subworkload: Subworkload) -> Array:
    """c_f of all terms together, of the subworkload's shape."""
    return sum(map(_term_spectrum, subworkload.terms), np.zeros(subworkload.shape))


@lru_cache(maxsize=1_024)
def fourier_spectrum(queries: CenteredQueries) -> Array:
    """c_f, the diagonal of the Gram matrix in the unitary Fourier basis.

    Returns:
        Non-negative and read-only, of the queries' shape; zero at frequencies that are zero along
        some axis.
    """
    c = np.array(_raw_spectrum(queries))
    for axis in range(c.ndim):
        c[(slice(None),) * axis + (0,)] = 0.0
    c = (c + np.roll(np.flip(c), 1, axis=tuple(range(c.ndim)))) / 2  # c_f = c_−f up to rounding
    c[c < ROUNDING * c.max(initial=0.0)] = 0.0
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
    return np.fft.fftn(_wrapped_means(queries.gram(), queries.shape)).real


def _wrapped_means(gram: Array, shape: tuple[int, ...]) -> Array:
    """Mean over cells j of G[j, j + t], indices wrapping along every axis; shape ``shape``."""
    left = right = math.prod(shape)
    means = gram[None]
    for size in shape:
        left, right = left // size, right // size
        blocks = means.reshape(-1, size, left, size, right)
        shifted = np.zeros((blocks.shape[0], size, left, right))
        for j in range(size):
            shifted += np.roll(blocks[:, j], -j, axis=2).transpose(0, 2, 1, 3)
        means = shifted.reshape(-1, left, right) / size
    return means.reshape(shape)


def _term_spectrum(term: Term) -> Array:
    spectra = [fourier_spectrum(factor) for factor in term.factors]
    return term.scale * reduce(np.multiply.outer, spectra)


def _best_weights(c: Array) -> Array:
    roots = np.sqrt(c)
    return roots * (c.size / roots.sum())


def _objective(c: Array) -> float:
    return float(np.sqrt(c).sum()) ** 2 / c.size
