"""A lower bound for a sum of queries from the optima of its terms."""

from __future__ import annotations

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.bounds import svd_bound
from adaptive_qs.strategy.certified.solve import solve
from adaptive_qs.strategy.certified.solve_cache import SolveCache
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.workload.subworkload import Subworkload


def superadditive_bound(
    subworkload: Subworkload,
    settings: SolverSettings | None = None,
    cache: SolveCache | None = None,
) -> float:
    """No strategy at privacy cost 1 has a smaller tr(G V⁺) (rows²).

    The optimum is superadditive: a V feasible for G₁ + G₂ is feasible for either, since its range
    holds theirs, so the least sum is at least the sum of the least. This bounds what is too large
    to solve as a whole, such as the sum of a product and of few joint queries.

    Args:
        subworkload: G.
        settings: of the solves of single terms; a term that is refused has its singular value
            bound instead.
        cache: of solutions.
    """
    cache = SolveCache() if cache is None else cache
    total = 0.0
    for term in subworkload.terms:
        alone = Subworkload(subworkload.shape, (term,))
        try:
            total += solve(alone, settings, cache).lower_bound
        except ResourceExceeded:
            total += svd_bound(alone)
    return total
