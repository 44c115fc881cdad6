"""The best strategies of fixed families: contrasts, bases, Fourier queries and eigenvectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.strategy.bounds import (
    judged,
    known_fourier_diagonal,
    path_bound,
    total_variance,
)
from adaptive_qs.strategy.solution import (
    CenteringFactor,
    DenseFactor,
    Factor,
    FourierFactor,
    Solution,
    SolverSettings,
    Strategy,
)
from adaptive_qs.strategy.waves import LARGE_AXIS, Ends, frequencies, make_wave
from adaptive_qs.workload.axes import Circular, Marginal, Prefix, Range
from adaptive_qs.workload.matrices import Queries
from adaptive_qs.workload.residuals import CenteredAxis, CenteredQueries, Subworkload, Term

Array = NDArray[np.float64]

# ResidualPlanner and ResidualPlanner+: a fixed basis for each attribute, no solver.
#
# Each residual is measured by ⊗B_i, where B_i spans the mean-free vectors of attribute i. With
# B_i = √(n/(n−1)) Π that is ResidualPlanner, the optimum for marginals; with B_i of the user's
# choice it is ResidualPlanner+ (He et al., section 7).


def solve_residual_planner(subworkload: Subworkload) -> Solution:
    """The strategy of ResidualPlanner: optimal for marginals, valid for any queries.

    OPTIMAL where it meets the singular value bound, else RESTRICTED, as are the others here.
    """
    factors = tuple(CenteringFactor(size) for size in subworkload.shape)
    return solve_with_basis(subworkload, factors)


def solve_with_basis(subworkload: Subworkload, factors: tuple[Factor, ...]) -> Solution:
    """The strategy ⊗B_i of ResidualPlanner+; OPTIMAL where it meets the singular value bound.

    Each factor, from :func:`strategy_basis` or any solver, spans all mean-free vectors of its axis.
    """
    strategy = Strategy(factors)
    return judged(subworkload, strategy, total_variance(subworkload, strategy))


def strategy_basis(matrix: Array) -> DenseFactor:
    """A basis for one attribute from any strategy on its cells, such as its prefix queries.

    Args:
        matrix: shape (rows, n ≥ 2); without the mean of each row it spans all mean-free vectors.

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

    One Fourier factor for each axis where the workload is one product term, otherwise one over all.
    """
    terms = subworkload.terms
    if not subworkload.shape:
        return solve_residual_planner(subworkload)  # the total: nothing to choose
    if len(terms) == 1:
        scale, spectra = terms[0].scale, [fourier_spectrum(part) for part in terms[0].factors]
    else:
        scale, spectra = 1.0, [subworkload_spectrum(subworkload)]
    strategy = Strategy(tuple(_fourier_factor(_best_weights(c)) for c in spectra))
    objective = scale * math.prod(float(np.sqrt(c).sum()) ** 2 / c.size for c in spectra)
    return judged(subworkload, strategy, objective)


def subworkload_spectrum(subworkload: Subworkload) -> Array:
    """c_f of all terms together, of the subworkload's shape."""
    total = np.zeros(subworkload.shape)
    for term in subworkload.terms:
        total += term.scale * reduce(np.multiply.outer, map(fourier_spectrum, term.factors))
    return total


@lru_cache(maxsize=1_024)
def fourier_spectrum(queries: CenteredQueries) -> Array:
    """c_f, the diagonal of the Gram matrix in the unitary Fourier basis, of the queries' shape.

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


LEAST_WEIGHT = 1e-7
"""Smallest share of the largest weight with which a long axis is measured by convolution."""


def _fourier_factor(h: Array) -> Factor:
    """V = F diag(h) F*; of a long axis as a convolution, where all frequencies are measured."""
    if h.ndim == 1 and h.size > LARGE_AXIS and h[1:].min() > LEAST_WEIGHT * h.max():
        return make_wave(Ends.PERIODIC, h.size, np.sqrt(h[1 : h.size // 2 + 1]), balanced=True)
    return FourierFactor(h.shape, h)


# Reflected waves: prefixes and ranges over thousands of values.
#
# Their Gram matrices are diagonal in cosines or sines; V = S G^½ S with a diagonal S that levels
# the privacy cost is within half a percent of the optimum (strategy/waves.py).


def solve_waves(subworkload: Subworkload) -> Solution | None:
    """The strategy of one long axis; None for a short one, or queries without a closed form.

    The best of Fourier weights and, where prefixes are asked for, of cosines; OPTIMAL where it
    meets the lower bound.
    """
    terms, shape = subworkload.terms, subworkload.shape
    parts = [term.factors[0] for term in terms]
    if len(shape) != 1 or shape[0] <= LARGE_AXIS or not all(map(_has_waves, parts)):
        return None
    found = solve_fourier(subworkload)
    asked = [part.queries for part in parts]
    if not any(isinstance(q, Prefix) for q in asked) or any(isinstance(q, Circular) for q in asked):
        return found
    (n,) = shape
    where, _ = frequencies(Ends.NEUMANN, n)
    squares = 4 * np.sin(np.pi * where[1:] / (2 * n)) ** 2
    values = sum(term.scale * _cosine_values(q, squares) for term, q in zip(terms, asked))
    spectrum = np.asarray(values) ** 0.25
    factor = make_wave(Ends.NEUMANN, n, np.concatenate([[MEAN * spectrum[0]], spectrum]), True)
    strategy = Strategy((factor,))
    other = judged(subworkload, strategy, total_variance(subworkload, strategy))
    return min(found, other, key=lambda solution: solution.objective)


MEAN = 0.1
"""Eigenvalue of the mean beside that of the longest wave: it is not measured, but may not be 0."""


def _has_waves(part: CenteredQueries) -> bool:
    known = isinstance(part.queries, Marginal | Prefix | Range | Circular)
    return isinstance(part, CenteredAxis) and known


def _cosine_values(queries: Queries, squares: Array) -> Array:
    """Eigenvalues of the centered Gram for the cosines; of ranges every second is a close one."""
    if isinstance(queries, Marginal):
        return np.ones_like(squares)
    return 1 / squares if isinstance(queries, Prefix) else (queries.size + 1) / squares


def solve_path(queries: Queries) -> tuple[Factor, float, float] | None:
    """For a long axis by itself, with its total: a factor, its error and a lower bound.

    Only for prefixes and ranges.
    """
    n = queries.size
    if n <= LARGE_AXIS or not isinstance(queries, Prefix | Range):
        return None
    ends = Ends.MIXED if isinstance(queries, Prefix) else Ends.DIRICHLET
    where, period = frequencies(ends, n)
    factor = make_wave(ends, n, np.sin(np.pi * where / period) ** -0.5)
    objective = factor.total(queries)
    return factor, objective, min(path_bound(queries), objective)


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
    """One Fourier factor for each axis, contrasts where that would not fit in memory."""
    shape = subworkload.shape
    c = subworkload_spectrum(subworkload)
    weights = [np.where(np.arange(n) > 0, n / (n - 1), 0.0) for n in shape]
    products = all(len(term.factors) == len(shape) for term in subworkload.terms)
    free = [
        axis
        for axis, n in enumerate(shape)
        if settings.can_measure(n) or (products and n > LARGE_AXIS)
    ]
    objective, last, sweeps = _error(c, weights), np.inf, 0
    while sweeps < SWEEPS and objective < last * (1 - SETTLED):
        for axis in free:
            weights[axis] = _best_weights(_seen_from(c, weights, axis))
        objective, last, sweeps = _error(c, weights), objective, sweeps + 1
    factors: tuple[Factor, ...] = tuple(
        _fourier_factor(h) if axis in free else CenteringFactor(n)
        for axis, (n, h) in enumerate(zip(shape, weights))
    )
    return judged(subworkload, Strategy(factors), objective, sweeps)


def _seen_from(c: Array, weights: list[Array], axis: int) -> Array:
    """Σ_f c_f / Π_{j≠axis} h_j over all other axes, shape (n,)."""
    total = np.moveaxis(c, axis, 0)
    for h in reversed(weights[:axis] + weights[axis + 1 :]):
        total = total @ _reciprocal(h)
    return total


def _error(c: Array, weights: list[Array]) -> float:
    return float(reduce(lambda t, h: t @ _reciprocal(h), reversed(weights), c))


def _reciprocal(h: Array) -> Array:
    return np.divide(1.0, h, out=np.zeros_like(h), where=h > 0)


# The best weights for a given set of design queries: Li and Miklau, Program 1.
#
# A strategy weights fixed orthogonal directions, V = Σ_i u_i D_i with D_i ⪰ 0. Its error is
# Σ σ_i/u_i and its privacy cost the largest entry of Aᵀu, row i of A being the diagonal of D_i. For
# y ≥ 0 with Σy = 1 and a = Ay, every feasible u obeys
#
#     (Σ √(σ_i a_i))² ≤ (Σ σ_i/u_i)(Σ u_i a_i) ≤ Σ σ_i/u_i,
#
# so s² with s = Σ√(σ_i a_i) is a lower bound on the family. With u_i = √(σ_i/a_i) and g = Aᵀu,
# u/max g is feasible with objective s·max g, and y·g = s: the relative gap is max g / s − 1. The
# iteration y ← y (g/s)^p, renormalised, is that of the optimal strategy with vectors in place of
# matrices: O(designs × cells) a step.

POWERS = (1.0, 16.0)
"""Least and most power p of a step."""


@dataclass(frozen=True, eq=False)
class DesignWeights:
    """Weights of design queries at privacy cost 1, with what bounds them.

    Attributes:
        weights: u, shape (designs,); the largest entry of Aᵀu is 1.
        objective: Σ σ_i/u_i.
        lower_bound: no weights of the same designs have a smaller objective.
        iterations: steps taken.
    """

    weights: Array
    objective: float
    lower_bound: float
    iterations: int


def best_weights(costs: Array, importance: Array, settings: SolverSettings) -> DesignWeights:
    """Minimise Σ importance/u subject to costsᵀu ≤ 1.

    Args:
        costs: A, shape (designs, cells), non-negative: what a unit of weight costs at each cell.
        importance: σ, shape (designs,), positive.
        settings: the gap to reach and the most steps to take.
    """
    y = np.full(costs.shape[1], 1 / costs.shape[1])
    best_bound, best = 0.0, (np.inf, np.empty(0))
    power, previous = 2.0, 0.0
    iteration = 0
    for iteration in range(settings.max_iterations + 1):  # noqa: B007
        a = costs @ y
        u = np.sqrt(importance / a)
        s = float(np.sqrt(importance * a).sum())
        g = u @ costs
        objective = s * float(g.max())
        best_bound = max(best_bound, s * s)
        if objective < best[0]:
            best = (objective, u / g.max())
        if best[0] <= best_bound * (1 + settings.gap):
            break
        # A longer step while the bound rises, a shorter one once it falls.
        power = min(power * 1.1, POWERS[1]) if s >= previous else max(power / 2, POWERS[0])
        previous = s
        y = y * (g / s) ** power
        y /= y.sum()
    return DesignWeights(best[1], best[0], min(best_bound, best[0]), iteration)


# EigenDesign: weighted eigenvectors of the workload's Gram matrix (Li and Miklau, Program 2).
#
# The eigenvectors Q of G are the design queries; their best weights u minimise Σ σ_i/u_i with every
# diagonal entry of QᵀuQ at most 1 (:func:`best_weights`). Where G has full rank the
# columns that stay below norm 1 are completed by single cells, which costs nothing (steps 4 and 5).
#
# A workload of one product term is designed axis by axis: eigenvectors, best weights and their
# bound all factor, so the product is the design of the whole. Anything else is one dense matrix.

COPIES = 6
"""Matrices of all cells by all cells that the dense design holds at once."""


def solve_eigen(
    subworkload: Subworkload,
    settings: SolverSettings | None = None,
    weigh: Callable[[Array, Array, SolverSettings], DesignWeights] = best_weights,
) -> Solution:
    """The eigen-design of a subworkload; OPTIMAL within the gap of the singular value bound.

    ``weigh`` finds the weights, for a product on each axis by itself. A dense matrix that is too
    large is refused (ResourceExceeded).
    """
    settings = settings or SolverSettings()
    if not subworkload.shape:
        return solve_residual_planner(subworkload)  # the total: nothing to choose
    scale, parts = 1.0, [subworkload]
    if len(subworkload.terms) == 1:
        (term,) = subworkload.terms
        scale = term.scale
        parts = [Subworkload(part.shape, (Term(1.0, (part,)),)) for part in term.factors]
    factors, objective, steps = [], scale, 0
    for part in parts:
        values, vectors = _eigenvectors(part, settings)
        best = weigh(vectors * vectors, values, settings)
        factor, error = _design(values, vectors, best.weights, part.shape)
        factors.append(factor)
        objective, steps = objective * error, steps + best.iterations
    return judged(subworkload, Strategy(tuple(factors)), objective, steps, settings.gap)


def _eigenvectors(subworkload: Subworkload, settings: SolverSettings) -> tuple[Array, Array]:
    """Positive eigenvalues, largest first, and their vectors as rows; of few rows WWᵀ suffices."""
    cells = subworkload.cells
    pieces = [
        math.sqrt(term.scale) * rows
        for term in subworkload.terms
        if len(term.factors) == 1 and (rows := term.factors[0].rows()) is not None
    ]
    if len(pieces) == len(subworkload.terms) and sum(map(len, pieces)) < cells:
        rows = np.concatenate(pieces)
        values, left = _positive(rows @ rows.T)
        return values, (left @ rows) / np.sqrt(values)[:, None]
    needed = COPIES * 8 * cells**2
    if needed > settings.max_bytes:
        raise ResourceExceeded(
            f"the eigen-design of a table of {' x '.join(map(str, subworkload.shape))} cells needs "
            f"{needed / 2**30:.1f} GiB, more than {settings.max_bytes / 2**30:.1f} GiB: "
            "raise the memory limit or choose the mechanism wff or residualplanner"
        )
    return _positive(subworkload.gram())


def _positive(gram: Array) -> tuple[Array, Array]:
    values, vectors = np.linalg.eigh(gram)
    kept = values > len(values) * np.finfo(np.float64).eps * values[-1]
    return values[kept][::-1], vectors[:, kept].T[::-1]


def _design(
    values: Array, vectors: Array, u: Array, shape: tuple[int, ...]
) -> tuple[DenseFactor, float]:
    """The weighted eigenvectors, completed where they are all, and their error."""
    matrix = vectors * np.sqrt(u)[:, None]
    if len(values) < vectors.shape[1]:
        covariance = vectors.T @ (vectors / u[:, None])
        return DenseFactor(matrix, shape, covariance), float((values / u).sum())
    spare = np.maximum(1 - (matrix * matrix).sum(axis=0), 0.0)
    # In the eigenbasis, so that G = Qᵀ diag(σ) Q stays diagonal.
    inverse = np.linalg.inv(np.diag(u) + (vectors * spare) @ vectors.T)
    completed = np.concatenate([matrix, np.diag(np.sqrt(spare))[spare > 0]])
    covariance = vectors.T @ inverse @ vectors
    return DenseFactor(completed, shape, covariance), float(values @ np.diag(inverse))
