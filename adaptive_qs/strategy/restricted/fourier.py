"""Weighted Fourier factorisation: the best strategy that is diagonal in the Fourier basis.

He et al., appendix C (Lebeda et al.). With F the unitary Fourier basis of the residual
frequencies, those that are non-zero along every axis, and c_f = (F*GF)_ff, a strategy with
V = F diag(h) F* has the constant diagonal Σh/N and error Σ c_f/h_f. By the Cauchy-Schwarz
inequality h_f = N √c_f / Σ√c is best, with objective (Σ√c)²/N. Where G is itself diagonal in F,
as for circular queries and marginals, that meets the singular value bound: it is the optimum.
"""

from __future__ import annotations

import math
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.bounds import svd_bound
from adaptive_qs.strategy.matrix import Strategy
from adaptive_qs.strategy.objective import is_product
from adaptive_qs.strategy.restricted.fourier_factor import FourierFactor
from adaptive_qs.strategy.restricted.planner import PROVEN, solve_residual_planner
from adaptive_qs.strategy.solution import Solution, Status
from adaptive_qs.strategy.spectra import known_fourier_diagonal
from adaptive_qs.workload.queries import CenteredQueries
from adaptive_qs.workload.subworkload import Subworkload, Term

Array = NDArray[np.float64]

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
    bound = min(svd_bound(subworkload), objective)
    proven = objective <= bound * (1 + PROVEN)
    return Solution(strategy, objective, bound, Status.OPTIMAL if proven else Status.RESTRICTED)


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
