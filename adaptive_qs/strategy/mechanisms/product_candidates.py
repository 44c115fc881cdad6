"""Product strategies of HDMM that the automatic choice compares with the split by residuals.

A split pays for measuring residual spaces apart. On a table over all attributes in use that is
small enough to be measured, OPT_⊗ of McKenna et al. can be several percent better, and OPT_+ where
few sets share little. Both are tried only where they are quick to find.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from adaptive_qs.domain import Clique
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.machine import linear_algebra
from adaptive_qs.strategy.certified.dense import solve_dense
from adaptive_qs.strategy.certified.limits import check_dense
from adaptive_qs.strategy.hdmm.axis import exchangeable, optimize_axis
from adaptive_qs.strategy.hdmm.groups import Groups, merged, nested
from adaptive_qs.strategy.hdmm.noise import Noise
from adaptive_qs.strategy.hdmm.product import optimize_product
from adaptive_qs.strategy.hdmm.products import ProductWorkload, product_workload
from adaptive_qs.strategy.hdmm.union import optimize_union
from adaptive_qs.strategy.matrix import Array, Factor, Strategy
from adaptive_qs.strategy.mechanisms.grouped import GroupedMechanism
from adaptive_qs.strategy.mechanisms.hdmm_mechanism import of_union
from adaptive_qs.strategy.mechanisms.whole_bound import narrowed, used_attributes
from adaptive_qs.strategy.mechanisms.whole_domain import WholeDomainMechanism
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.strategy.solution import Status
from adaptive_qs.workload.query_workload import QueryWorkload

MOST_CELLS = 10_000_000
"""Largest table that a candidate measures."""
CELL_BYTES = 64
"""Memory of one cell of it, from counting to the estimate."""
MOST_SETS = 256
"""Most attribute sets for which candidates are tried."""
MOST_GROUPED = 40
"""Most attribute sets that are put into groups."""
CERTIFIED_AXIS = 1_536
"""Largest attribute of a single product, whose eigenproblem is just within ``TRIED_WORK``."""
SEARCHED_AXIS = 256
"""Largest attribute where strategies are searched for: one solve for each attribute and sweep."""

Candidate = WholeDomainMechanism | GroupedMechanism


def has_candidates(workload: QueryWorkload, settings: SolverSettings) -> bool:
    """Whether there are products to try: few sets, no joint queries, a table that fits."""
    if workload.num_sets > MOST_SETS or any(part.joint is not None for part in workload.parts):
        return False
    return workload.domain.size(used_attributes(workload)) <= _most_cells(settings)


def product_candidates(
    workload: QueryWorkload, bound: float, settings: SolverSettings
) -> Iterator[Candidate]:
    """OPT_⊗, certified axis by axis where the workload is one product; else OPT_⊗ and OPT_+.

    Args:
        workload: one that has candidates.
        bound: no matrix mechanism has a smaller total error.
        settings: gap, iterations and memory.
    """
    clique = used_attributes(workload)
    if max(workload.domain.shape(clique)) > CERTIFIED_AXIS:
        return
    asked = narrowed(workload, clique)
    try:
        products = product_workload(asked, settings)
        whole = products.factorised()
        if whole is not None:
            yield _certified(workload, clique, whole, bound, settings)
            return
    except ResourceExceeded:
        return
    if max(products.sizes) > SEARCHED_AXIS:
        return
    noise, rng = Noise.GAUSSIAN, np.random.default_rng(0)
    with linear_algebra().limit(limits=1):  # many small solves
        found = optimize_product(products, noise, settings, rng, restarts=1)
    yield WholeDomainMechanism(workload, clique, found.strategy, bound, Status.RESTRICTED)
    if 1 < len(products) <= MOST_GROUPED:
        with linear_algebra().limit(limits=1):
            unions = [
                optimize_union(products, noise, settings, rng, groups)
                for groups in _groupings(products, settings, rng)
            ]
        for union in unions:
            made = of_union(asked, union, bound)
            yield replace(made, groups=tuple(_widened(g, workload, clique) for g in made.groups))


def _certified(
    workload: QueryWorkload,
    clique: Clique,
    grams: tuple[Array, ...],
    bound: float,
    settings: SolverSettings,
) -> WholeDomainMechanism:
    """The optimum for ⊗G_i is the product of the optima; so is the bound."""
    factors: list[Factor] = []
    single = replace(settings, gap=math.expm1(math.log1p(settings.gap) / len(grams)))
    objective = certified = 1.0
    for gram in grams:
        if exchangeable(gram) is not None:
            axis = optimize_axis(gram, Noise.GAUSSIAN, single, np.random.default_rng(0))
            factors.append(axis.factor)
            objective, certified = objective * axis.error(gram), certified * axis.error(gram)
        else:
            check_dense(gram.shape[:1], single)
            solution = solve_dense(gram, gram.shape[:1], single)
            factors.extend(solution.strategy.factors)
            objective, certified = objective * solution.objective, certified * solution.lower_bound
    best = max(bound, certified)
    status = Status.OPTIMAL if objective <= best * (1 + settings.gap) else Status.STOPPED
    return WholeDomainMechanism(workload, clique, Strategy(tuple(factors)), best, status)


def _groupings(
    products: ProductWorkload, settings: SolverSettings, rng: np.random.Generator
) -> list[Groups]:
    """Groups of several sets each, which a split by residuals does not have; none of zeros."""
    asked, number = products.only_asked(), products.asked.tolist()
    start = nested(asked)
    choices = {start, merged(asked, start, Noise.GAUSSIAN, settings, rng)}
    return sorted(
        tuple(tuple(number[j] for j in sets) for sets in groups)
        for groups in choices
        if len(groups) > 1
    )


def _widened(
    group: WholeDomainMechanism, workload: QueryWorkload, clique: Clique
) -> WholeDomainMechanism:
    """A mechanism of the narrowed workload as one of the workload itself."""
    return replace(group, workload=workload, clique=tuple(clique[i] for i in group.clique))


def _most_cells(settings: SolverSettings) -> int:
    return min(MOST_CELLS, settings.max_bytes // CELL_BYTES)
