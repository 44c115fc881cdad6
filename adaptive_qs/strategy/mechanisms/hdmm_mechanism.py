"""HDMM's strategies as mechanisms that can be measured and answered from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from adaptive_qs.domain import Clique
from adaptive_qs.residual.variance import privacy_cost
from adaptive_qs.strategy.hdmm.marginals import MarginalStrategy
from adaptive_qs.strategy.hdmm.product import ProductStrategy
from adaptive_qs.strategy.hdmm.products import product_workload
from adaptive_qs.strategy.hdmm.select import select
from adaptive_qs.strategy.hdmm.union import UnionStrategy
from adaptive_qs.strategy.matrix import Strategy
from adaptive_qs.strategy.mechanisms.grouped import GroupedMechanism
from adaptive_qs.strategy.mechanisms.mechanism import Mechanism
from adaptive_qs.strategy.mechanisms.residual_mechanism import ResidualMechanism
from adaptive_qs.strategy.mechanisms.smasher import solve_all
from adaptive_qs.strategy.mechanisms.whole_bound import any_mechanism_bound
from adaptive_qs.strategy.mechanisms.whole_domain import WholeDomainMechanism
from adaptive_qs.strategy.restricted.planner import solve_residual_planner
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.strategy.solution import Status
from adaptive_qs.workload.decomposition import Decomposition
from adaptive_qs.workload.query_workload import QueryWorkload


def hdmm(decomposition: Decomposition, settings: SolverSettings) -> Mechanism:
    """OPT_HDMM: the best of a product, a union of products and weighted marginals.

    Raises:
        WorkloadError: queries on several attributes that are no products.
    """
    workload = decomposition.workload
    selection = select(product_workload(workload, settings), settings=settings)
    strategy = selection.strategy
    bound = max(selection.lower_bound, any_mechanism_bound(decomposition, settings))
    if isinstance(strategy, MarginalStrategy):
        return _of_marginals(decomposition, strategy, bound)
    if isinstance(strategy, UnionStrategy):
        return of_union(workload, strategy, bound)
    return _of_product(workload, strategy, range(workload.num_sets), bound, settings.gap)


def _of_marginals(
    decomposition: Decomposition, strategy: MarginalStrategy, bound: float
) -> ResidualMechanism:
    """Weighted marginals are residuals of certain precisions, at the same cost.

    Those of residuals that no query needs are left out, which only saves budget.
    """
    domain = decomposition.workload.domain
    solutions = solve_all(decomposition.subworkloads, solve_residual_planner)
    shares = np.array([
        privacy_cost(domain, residual)
        * float(strategy.precisions[tuple(int(i in residual) for i in range(len(domain)))])
        for residual in decomposition.residuals
    ])  # fmt: skip
    return ResidualMechanism(decomposition, solutions, shares / shares.sum(), bound)


def of_union(workload: QueryWorkload, strategy: UnionStrategy, bound: float) -> GroupedMechanism:
    """OPT_+: one product strategy for each group of sets; ``bound`` is for all of them."""
    make = partial(_of_product, workload, bound=bound)
    groups = tuple(make(part, group) for part, group in zip(strategy.parts, strategy.groups))
    number = np.empty(workload.num_sets, dtype=np.int64)
    for position, group in enumerate(strategy.groups):
        number[list(group)] = position
    ends = np.cumsum([len(part) for part in workload.parts])
    shares = np.asarray(strategy.scales, dtype=np.float64) ** 2
    return GroupedMechanism(
        groups, shares / shares.sum(), tuple(np.split(number, ends[:-1])), bound
    )


def _of_product(
    workload: QueryWorkload,
    strategy: ProductStrategy,
    sets: Sequence[int],
    bound: float,
    gap: float | None = None,
) -> WholeDomainMechanism:
    """A product strategy on the attributes that some of the sets use.

    Args:
        workload: what is answered.
        strategy: over all attributes of the domain.
        sets: what the strategy answers; all of them where a gap is given.
        bound: on the total error of the whole workload.
        gap: within which of the bound the strategy counts as optimal; None for never.
    """
    clique = _used(workload, sets)
    factors = tuple(strategy.strategy.factors[i] for i in clique)
    made = WholeDomainMechanism(workload, clique, Strategy(factors), bound, Status.RESTRICTED)
    if gap is not None and made.total_error <= bound * (1 + gap):
        return replace(made, status=Status.OPTIMAL)
    return made


def _used(workload: QueryWorkload, sets: Sequence[int]) -> Clique:
    used: set[int] = set()
    start = 0
    wanted = np.asarray(list(sets))
    for part in workload.parts:
        inside = wanted[(wanted >= start) & (wanted < start + len(part))] - start
        used.update(np.unique(part.cliques[inside]).tolist())
        start += len(part)
    return tuple(sorted(used))
