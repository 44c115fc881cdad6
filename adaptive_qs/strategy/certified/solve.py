"""The automatic choice of a solver for one subworkload."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.certified import limits
from adaptive_qs.strategy.certified.dense import solve_dense
from adaptive_qs.strategy.certified.kronecker import Piece, assemble, factorise, interleaved_cells
from adaptive_qs.strategy.certified.lowrank import solve_rows
from adaptive_qs.strategy.certified.solve_cache import SolveCache
from adaptive_qs.strategy.certified.symmetry import symmetric_blocks
from adaptive_qs.strategy.matrix import CenteringFactor, Strategy
from adaptive_qs.strategy.restricted.fourier import solve_fourier
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.strategy.solution import Solution, Status
from adaptive_qs.strategy.spectra import known_fourier_diagonal
from adaptive_qs.workload.axis_queries import Marginal
from adaptive_qs.workload.centered import CenteredAxis
from adaptive_qs.workload.queries import CenteredQueries
from adaptive_qs.workload.subworkload import Subworkload, Term

Array = NDArray[np.float64]

_AXIS_SHARE = 8
"""One-dimensional solves are cheap and shared: each may use up this fraction of the gap."""


def solve(
    subworkload: Subworkload,
    settings: SolverSettings | None = None,
    cache: SolveCache | None = None,
) -> Solution:
    """Optimal strategy for the queries in one residual space, by the cheapest exact way.

    The total has nothing to choose; a product is solved factor by factor, each in closed form
    (marginal queries, circular queries) or by a one-dimensional solve that is done once; what is
    no product is solved from its queries where they are few, else from its Gram matrix.

    Args:
        subworkload: what to answer.
        settings: gap, iteration limit and memory ceiling.
        cache: of solutions, shared by the subworkloads of a plan.

    Returns:
        OPTIMAL within the gap asked for; STOPPED with a larger gap at the iteration limit.

    Raises:
        ResourceExceeded: too large for memory or time; nothing has been computed.
    """
    settings = settings or SolverSettings()
    cache = SolveCache() if cache is None else cache
    if not subworkload.shape:
        total = sum(term.scale for term in subworkload.terms)
        return Solution(Strategy(()), total, total, Status.OPTIMAL)
    scale, pieces = factorise(subworkload)
    limits.check_interleaved(interleaved_cells(pieces), subworkload, settings)
    found = [_solve_piece(piece, goal, cache) for piece, goal in _with_gaps(pieces, settings)]
    objective = scale * math.prod(solution.objective for solution in found)
    bound = scale * math.prod(solution.lower_bound for solution in found)
    reached = objective <= bound * (1 + settings.gap)
    return Solution(
        assemble([(p.axes, solution.strategy) for p, solution in zip(pieces, found)]),
        objective,
        bound,
        Status.OPTIMAL if reached else Status.STOPPED,
        sum(solution.iterations for solution in found),
    )


def _with_gaps(
    pieces: Sequence[Piece], settings: SolverSettings
) -> list[tuple[Piece, SolverSettings]]:
    """Gaps whose product stays within the one asked for: Π(1 + g_k) ≤ exp(Σ g_k) = 1 + gap."""
    whole = math.log1p(settings.gap)
    single = whole / max(_AXIS_SHARE, 2 * len(pieces))
    rest = whole - single * sum(len(piece.axes) == 1 for piece in pieces)
    return [(p, replace(settings, gap=single if len(p.axes) == 1 else rest)) for p in pieces]


def _solve_piece(piece: Piece, settings: SolverSettings, cache: SolveCache) -> Solution:
    key = (piece.subworkload.shape, piece.key, settings)
    return cache.get(key, lambda: _solve_whole(piece.subworkload, settings))


def _solve_whole(subworkload: Subworkload, settings: SolverSettings) -> Solution:
    """A subworkload that is no product of others."""
    if all(_is_marginal(term) for term in subworkload.terms):
        return _solve_marginal(subworkload)
    if all(_is_circulant(term) for term in subworkload.terms):
        return solve_fourier(subworkload)
    waves = _solve_waves(subworkload, settings)
    if waves is not None:
        return waves
    cells = subworkload.cells
    rows = _few_rows(subworkload, settings)
    if rows is not None and (2 * len(rows) <= cells or cells > limits.DENSE_CELLS):
        return solve_rows(rows, np.ones(len(rows)), subworkload.shape, settings)
    limits.check_dense(subworkload.shape, settings, limits.is_joint(subworkload))
    gram = subworkload.gram()
    if cells > limits.DENSE_CELLS:
        blocks = symmetric_blocks(lambda x: gram @ x, subworkload.shape)
        limits.check_blocks(blocks, subworkload, settings)
    return solve_dense(gram, subworkload.shape, settings)


def _is_marginal(term: Term) -> bool:
    return len(term.factors) == 1 and (
        isinstance(term.factors[0], CenteredAxis)
        and isinstance(term.factors[0].queries, Marginal)
        and term.factors[0].shape[0] > 1
    )


def _is_circulant(term: Term) -> bool:
    circulant = getattr(term.factors[0], "circulant", None)
    return len(term.factors) == 1 and circulant is not None and circulant() is not None


def _solve_marginal(subworkload: Subworkload) -> Solution:
    """tr(Π V⁺) = (n−1)²/n with B = √(n/(n−1)) Π: ResidualPlanner, which is optimal here."""
    (size,) = subworkload.shape
    objective = sum(term.scale for term in subworkload.terms) * (size - 1) ** 2 / size
    return Solution(Strategy((CenteringFactor(size),)), objective, objective, Status.OPTIMAL)


def _solve_waves(subworkload: Subworkload, settings: SolverSettings) -> Solution | None:
    """The Fourier strategy of one family with closed forms, where it is within the gap.

    It is so for ranges over thousands of values: a range far from both ends is an arc of a circle.
    """
    (term, *others) = subworkload.terms
    if others or len(term.factors) != 1 or known_fourier_diagonal(term.factors[0]) is None:
        return None
    found = solve_fourier(subworkload)
    reached = found.objective <= found.lower_bound * (1 + settings.gap)
    if not (reached and limits.factor_fits(subworkload.cells, settings)):
        return None
    return replace(found, status=Status.OPTIMAL)


def _few_rows(subworkload: Subworkload, settings: SolverSettings) -> Array | None:
    """All queries, scaled, where they are fewer than the cells and not too many to work with."""
    cells = subworkload.cells
    blocks, count = [], 0
    # Terms of one axis each are small: look at them before a joint term makes its queries.
    for term in sorted(subworkload.terms, key=lambda term: -len(term.factors)):
        known = [_num_queries(factor) for factor in term.factors]
        if not limits.few_rows(count + math.prod(known), cells, settings):
            return None
        factors = [factor.rows() for factor in term.factors]
        present = [rows for rows in factors if rows is not None]
        count += math.prod(map(len, present))
        if len(present) < len(factors) or not limits.few_rows(count, cells, settings):
            return None
        blocks.append((math.sqrt(term.scale), present))
    rows = []
    for scale, present in blocks:
        product: Array = np.full((1, 1), scale)
        for factor in present:
            product = np.kron(product, factor).astype(np.float64, copy=False)
        rows.append(product)
    return np.concatenate(rows)


def _num_queries(part: CenteredQueries) -> int:
    """Rows that a part would make, as far as it says so beforehand; 1 otherwise."""
    return int(getattr(getattr(part, "queries", None), "num_queries", 1))
