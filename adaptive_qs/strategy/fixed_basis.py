"""The best strategies of fixed families: contrasts, products of bases and Fourier queries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce

import numpy as np

from adaptive_qs.strategy.bounds import (
    judged,
    known_fourier_diagonal,
    total_variance,
)
from adaptive_qs.strategy.solution import (
    Array,
    CenteringFactor,
    Factor,
    Solution,
    SolverSettings,
    Strategy,
    circulant_arcs,
)
from adaptive_qs.workload.matrices import Queries
from adaptive_qs.workload.residuals import CenteredQueries, Subworkload

# ResidualPlanner (Xiao et al. 2023): a fixed basis for each attribute, no solver.
#
# Each residual is measured by ⊗B_i, where B_i spans the mean-free vectors of attribute i. With
# B_i = √(n/(n−1)) Π that is ResidualPlanner, the optimum for marginals.


@dataclass(frozen=True, eq=False)
class FourierFactor(Factor):
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
        return np.maximum(circulant_arcs(self.kernel), 0.0)

    @property
    def spans_residual(self) -> bool:
        """Whether the factor determines every mean-free vector, from its singular values."""
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
    """Return the strategy ⊗B_i; it is OPTIMAL if it meets the singular value bound.

    Each factor spans all mean-free vectors of its axis.
    """
    strategy = Strategy(factors)
    return judged(subworkload, strategy, total_variance(subworkload, strategy))


# Weighted Fourier factorisation: the best strategy that is diagonal in the Fourier basis.
#
# He et al., appendix C (Lebeda et al.). With F the unitary Fourier basis of the residual
# frequencies, those that are non-zero along every axis, and c_f = (F*GF)_ff, a strategy with
# V = F diag(h) F* has the constant diagonal Σh/N and error Σ c_f/h_f. By the Cauchy-Schwarz
# inequality h_f = N √c_f / Σ√c is best, with objective (Σ√c)²/N. Where G is itself diagonal in F,
# as for circular queries and marginals, that meets the singular value bound: it is the optimum.

ROUNDING = 1e-13
"""Share of the largest coefficient below which others are zero, since the transform rounds."""
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
    """Return c_f, the diagonal of the Gram matrix in the unitary Fourier basis.

    Non-negative and read-only; zero at frequencies that are zero along some axis.
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
    means = queries.gram().reshape(queries.shape * 2)
    for size in queries.shape:  # means over cells j of G[j, j + t], wrapping along every axis
        rolled = (np.roll(means[j], -j, axis=len(queries.shape) - 1) for j in range(size))
        means = sum(rolled, np.zeros(means.shape[1:])) / size
    return np.fft.fftn(means).real


def _best_weights(c: Array) -> Array:
    roots = np.sqrt(c)
    return roots * (c.size / roots.sum())


# Weighted Fourier queries on each axis apart: what is left of them where cells are many.
#
# The best Fourier strategy over all axes together is a dense matrix once it is measured. A product
# V = ⊗ F_k diag(h_k) F_k* needs one matrix for each axis. Its error Σ_f c_f / Π_k h_k(f_k) falls
# with every exact step in one h_k, √(Σ_f c_f / Π_{j≠k} h_j) up to a scale; it starts from
# contrasts.

SWEEPS = 100
"""Most passes over the axes."""
SETTLED = 1e-6
"""Relative change of the error in one pass that ends the search."""


def solve_fourier_product(subworkload: Subworkload, settings: SolverSettings) -> Solution:
    """Return one Fourier factor for each axis, contrasts if that would not fit in memory."""
    shape = subworkload.shape
    c = subworkload_spectrum(subworkload)
    weights = [np.where(np.arange(n) > 0, n / (n - 1), 0.0) for n in shape]
    free = [axis for axis, n in enumerate(shape) if settings.can_measure(n)]
    objective, last, sweeps = _error(c, weights), np.inf, 0
    while sweeps < SWEEPS and objective < last * (1 - SETTLED):
        for axis in free:
            weights[axis] = _best_weights(_seen_from(c, weights, axis))
        objective, last, sweeps = _error(c, weights), objective, sweeps + 1
    factors: tuple[Factor, ...] = tuple(
        FourierFactor((n,), h) if axis in free else CenteringFactor(n)
        for axis, (n, h) in enumerate(zip(shape, weights))
    )
    return judged(subworkload, Strategy(factors), objective, sweeps)


def _seen_from(c: Array, weights: list[Array], axis: int) -> Array:
    """Return Σ_f c_f / Π_{j≠axis} h_j over all other axes, shape (n,)."""
    total = np.moveaxis(c, axis, 0)
    for h in reversed(weights[:axis] + weights[axis + 1 :]):
        total = total @ _reciprocal(h)
    return total


def _error(c: Array, weights: list[Array]) -> float:
    return float(reduce(lambda t, h: t @ _reciprocal(h), reversed(weights), c))


def _reciprocal(h: Array) -> Array:
    return np.divide(1.0, h, out=np.zeros_like(h), where=h > 0)
