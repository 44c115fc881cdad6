"""The best strategies of fixed families: eigenvectors, Fourier products, bases of attributes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.bounds import axis_gram, judged, total_variance
from adaptive_qs.strategy.fixed_basis import (
    FourierFactor,
    solve_residual_planner,
    subworkload_spectrum,
)
from adaptive_qs.strategy.optimal import factor_fits, solve_dense
from adaptive_qs.strategy.solution import (
    CenteringFactor,
    DenseFactor,
    Factor,
    Solution,
    SolverSettings,
    Strategy,
)
from adaptive_qs.workload.residuals import CenteredQueries, Decomposition, Subworkload

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

Array = NDArray[np.float64]

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
        costs: A, shape (designs, cells), non-negative: what a unit of weight adds to the privacy
            cost at each cell.
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


Weigh = Callable[[Array, Array, SolverSettings], tuple[Array, int]]
"""From costs and importance of designs to their weights and the number of steps taken."""


def _every_weight(costs: Array, importance: Array, settings: SolverSettings) -> tuple[Array, int]:
    best = best_weights(costs, importance, settings)
    return best.weights, best.iterations


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
    weigh: Weigh | None = None,
) -> Solution:
    """The eigen-design of a subworkload.

    Args:
        subworkload: the queries.
        settings: the gap of the weights within their family, most steps, most memory.
        weigh: finds the weights, for a product on each axis by itself; None for the best.

    Returns:
        Status OPTIMAL where the objective is within the gap of the singular value bound, else
        RESTRICTED.

    Raises:
        ResourceExceeded: the dense matrix is too large.
    """
    settings = settings or SolverSettings()
    axes, terms = len(subworkload.shape), subworkload.terms
    if axes == 0:
        return solve_residual_planner(subworkload)  # the total: nothing to choose
    factors = terms[0].factors
    scale = terms[0].scale
    if len(terms) == 1 and len(factors) == axes:
        designs = [_design_queries(queries, settings, weigh) for queries in factors]
    elif len(terms) == 1:
        designs = [_design_queries(factors[0], settings, weigh)]
    else:
        scale = 1.0
        designs = [_design_sum(subworkload, settings, weigh)]
    strategy = Strategy(tuple(design.factor for design in designs))
    objective = scale * math.prod(design.objective for design in designs)
    steps = sum(design.iterations for design in designs)
    return judged(subworkload, strategy, objective, steps, settings.gap)


@dataclass(frozen=True, eq=False)
class _Design:
    factor: DenseFactor
    objective: float
    iterations: int


def _design_queries(
    queries: CenteredQueries, settings: SolverSettings, weigh: Weigh | None
) -> _Design:
    rows = queries.rows()
    if rows is not None:
        return _design(*_row_eigenvectors(rows), queries.shape, settings, weigh)
    _check_memory(queries.shape, math.prod(queries.shape), settings)
    return _design(*_eigenvectors(queries.gram()), queries.shape, settings, weigh)


def _design_sum(subworkload: Subworkload, settings: SolverSettings, weigh: Weigh | None) -> _Design:
    cells = subworkload.cells
    pieces = [
        math.sqrt(term.scale) * rows
        for term in subworkload.terms
        if len(term.factors) == 1 and (rows := term.factors[0].rows()) is not None
    ]
    if len(pieces) == len(subworkload.terms) and sum(map(len, pieces)) < cells:
        values, vectors = _row_eigenvectors(np.concatenate(pieces))
    else:
        _check_memory(subworkload.shape, cells, settings)
        values, vectors = _eigenvectors(subworkload.gram())
    return _design(values, vectors, subworkload.shape, settings, weigh)


def _check_memory(shape: tuple[int, ...], cells: int, settings: SolverSettings) -> None:
    needed = COPIES * 8 * cells**2
    if needed > settings.max_bytes:
        raise ResourceExceeded(
            f"the eigen-design of a table of {' x '.join(map(str, shape))} cells needs "
            f"{needed / 2**30:.1f} GiB, more than {settings.max_bytes / 2**30:.1f} GiB: "
            "raise the memory limit or choose the mechanism wff or residualplanner"
        )


def _eigenvectors(gram: Array) -> tuple[Array, Array]:
    """Positive eigenvalues, largest first, and their vectors as rows."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > len(values) * np.finfo(np.float64).eps * values[-1]
    return values[kept][::-1], vectors[:, kept].T[::-1]


def _row_eigenvectors(rows: Array) -> tuple[Array, Array]:
    """The same of rowsᵀrows, from the smaller rows·rowsᵀ."""
    values, left = _eigenvectors(rows @ rows.T)
    return values, (left @ rows) / np.sqrt(values)[:, None]


def _design(
    values: Array,
    vectors: Array,
    shape: tuple[int, ...],
    settings: SolverSettings,
    weigh: Weigh | None,
) -> _Design:
    u, iterations = (weigh or _every_weight)(vectors * vectors, values, settings)
    matrix = vectors * np.sqrt(u)[:, None]
    if len(values) < vectors.shape[1]:
        covariance = vectors.T @ (vectors / u[:, None])
        return _Design(
            DenseFactor(matrix, shape, covariance), float((values / u).sum()), iterations
        )
    spare = np.maximum(1 - (matrix * matrix).sum(axis=0), 0.0)
    # In the eigenbasis, so that G = Qᵀ diag(σ) Q stays diagonal.
    inverse = np.linalg.inv(np.diag(u) + (vectors * spare) @ vectors.T)
    objective = float(values @ np.diag(inverse))
    completed = np.concatenate([matrix, np.diag(np.sqrt(spare))[spare > 0]])
    covariance = vectors.T @ inverse @ vectors
    return _Design(DenseFactor(completed, shape, covariance), objective, iterations)


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
    """One Fourier factor for each axis, contrasts where that would not fit in memory.

    Args:
        subworkload: over one axis or more.
        settings: memory ceiling.

    Returns:
        Status OPTIMAL where the objective meets the singular value bound, else RESTRICTED.
    """
    shape = subworkload.shape
    c = subworkload_spectrum(subworkload)
    weights = [np.where(np.arange(n) > 0, n / (n - 1), 0.0) for n in shape]
    free = [axis for axis, n in enumerate(shape) if factor_fits(n, settings)]
    objective, last, sweeps = _error(c, weights), np.inf, 0
    while sweeps < SWEEPS and objective < last * (1 - SETTLED):
        for axis in free:
            roots = np.sqrt(_seen_from(c, weights, axis))
            weights[axis] = roots * (roots.size / roots.sum())
        objective, last, sweeps = _error(c, weights), objective, sweeps + 1
    factors: tuple[Factor, ...] = tuple(
        FourierFactor((n,), h) if axis in free else CenteringFactor(n)
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


# A basis for each attribute of ResidualPlanner+, chosen from all that is asked of the attribute.
#
# The total error at a fixed privacy cost is (Σ_τ √L_τ)², and to first order around contrasts
#
#     Σ_τ √L_τ ≈ ½ Σ_τ (L_τ/√L_τ⁰ + √L_τ⁰),
#
# an upper bound, as the root is concave, where L_τ⁰ is the error with contrasts. Seen from one
# attribute, with contrasts on all others, L_τ = tr(G_τi V_i⁺): the best basis of attribute i solves
# the one-axis problem for Σ_τ∋i G_τi/√L_τ⁰. Queries of one attribute and products of them give
# back the optimum of their own one-way problem; joint queries, whose one-way parts say little about
# their two-way parts, get a basis for what they ask.

Indices = NDArray[np.int64]

DIGITS = 9
"""Gram matrices that agree to so many digits are solved once."""
FLOOR = 1e-9
"""Share of the mean eigenvalue for directions that nothing asks for: a basis spans them all."""


def attribute_bases(
    decomposition: Decomposition, settings: SolverSettings
) -> tuple[list[Factor], list[int]]:
    """A basis for every attribute of the domain.

    Args:
        decomposition: the subworkloads.
        settings: for the one-axis problems.

    Returns:
        One factor for each attribute, contrasts where nothing is asked of it, and a number for
        each that is equal where the factors are the same.
    """
    grams = attribute_grams(decomposition)
    found: dict[tuple[int, bytes], int] = {}
    factors: list[Factor] = []
    numbers: list[int] = []
    for attribute, size in enumerate(decomposition.workload.domain.sizes):
        gram = grams.get(attribute)
        key = (size, b"" if gram is None else np.round(gram, DIGITS).tobytes())
        if key not in found:
            found[key] = attribute
            factors.append(CenteringFactor(size) if gram is None else _basis(gram, settings))
        else:
            factors.append(factors[found[key]])
        numbers.append(found[key])
    return factors, numbers


def attribute_grams(decomposition: Decomposition) -> dict[int, Array]:
    """Σ_τ∋i G_τi/√L_τ⁰ for each attribute i that a residual holds, with trace 1; shape (n, n)."""
    grams: dict[int, Array] = {}
    classes = decomposition.class_of
    roots = np.sqrt(decomposition.scales)
    start = 0
    for degree, group in groupby(decomposition.residuals, key=len):
        attributes = np.array(list(group), dtype=np.int64)
        rows = slice(start, start + len(attributes))
        start += len(attributes)
        for axis in range(degree):
            pairs = np.stack([classes[rows], attributes[:, axis]], axis=1)
            distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
            weights = np.bincount(inverse.reshape(-1), roots[rows])
            shared: tuple[int, Array] | None = None  # of the class at hand: pairs are in order
            for (number, attribute), weight in zip(distinct.tolist(), weights):
                if shared is None or shared[0] != number:
                    shared = (number, _class_gram(decomposition.subworkloads[number], axis))
                grams[attribute] = grams.get(attribute, 0.0) + weight * shared[1]
    return {attribute: gram / np.trace(gram) for attribute, gram in grams.items()}


def _class_gram(subworkload: Subworkload, axis: int) -> Array:
    contrasts = tuple(CenteringFactor(size) for size in subworkload.shape)
    error = total_variance(subworkload, Strategy(contrasts))
    return axis_gram(subworkload, axis, contrasts) / np.sqrt(error)


def _basis(gram: Array, settings: SolverSettings) -> Factor:
    """The optimum, kept from losing directions that nothing asks for."""
    size = len(gram)
    rank = int(np.linalg.matrix_rank(gram, tol=FLOOR / size, hermitian=True))
    if rank < size - 1:
        gram = gram + (FLOOR * np.trace(gram) / size) * (np.eye(size) - 1 / size)
    (factor,) = solve_dense(gram, (size,), settings).strategy.factors
    assert isinstance(factor, DenseFactor)
    return factor
