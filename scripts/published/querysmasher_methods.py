"""One row of the tables of He et al. by our own mechanisms, at privacy cost 1.

ResidualPlanner+ takes "a strategy of the user's choice" for each attribute; the paper does not say
which it used. Here it gets the best of a few: the optimum for contrasts, for prefixes or for ranges
on every attribute, for hybrid queries, and for each attribute's own share of the workload.

HDMM is the best of its operators. Its OPT_M with Gaussian noise has the closed form of McKenna et
al., theorem 12, which is ResidualPlanner: that is how it is computed for many attributes.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from adaptive_qs.answering.plan import BatchPlan
from adaptive_qs.domain import Domain
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.strategy.choose import choose_mechanism
from adaptive_qs.strategy.hdmm import MOST_ATTRIBUTES, product_workload
from adaptive_qs.strategy.residual_mechanism import Bases
from adaptive_qs.strategy.solution import Factor
from adaptive_qs.workload.file import all_ways_queries
from adaptive_qs.workload.residuals import decompose_workload
from adaptive_qs.workload.workload import QueryWorkload
from scripts.published.laplace import select_gaussian
from scripts.published.querysmasher_rows import Row

COST = PrivacyTarget.of_answers(cost=1.0)
JOBS = 2
BASES = ("marginal", "prefix", "range", "hybrid")
OWN_BASIS_ATTRIBUTES = 14
"""ResidualPlanner+ with a strategy made for each attribute is tried up to here."""


def plan_batch(
    workload: QueryWorkload,
    target: PrivacyTarget,
    mechanism: str,
    bases: Bases | None = None,
    jobs: int = 1,
) -> BatchPlan:
    """What a mechanism measures of a workload, and how long that took to find."""
    began = time.perf_counter()
    choice = choose_mechanism(workload, mechanism, None, bases, jobs)
    return BatchPlan(workload, target, choice, time.perf_counter() - began)


def solve_row(row: Row, seeds: Sequence[int]) -> dict[str, Any]:
    """QuerySmasher's numbers for a row, then those of the methods that the paper compares it with.

    Seconds and memory are those of the first QuerySmasher plan in this process.

    Args:
        row: what to solve.
        seeds: of the random queries or weights; errors are means over them, the gap the largest.
    """
    workload = row.queries(seeds[0])
    began = time.perf_counter()
    decompose_workload(workload)
    decompose_s = time.perf_counter() - began
    began = time.perf_counter()
    plan = plan_batch(workload, COST, "querysmasher", jobs=JOBS)
    line: dict[str, Any] = {
        "queries": workload.num_queries,
        "sets": workload.num_sets,
        "subworkloads": plan.choice.subworkloads,
        "distinct_solves": plan.choice.distinct_solves,
        "decompose_seconds": decompose_s,
        "solve_seconds": time.perf_counter() - began,
        "peak_memory_mb": peak_memory_mb(),
    }
    plans = [plan]
    plans += [plan_batch(row.queries(s), COST, "querysmasher", jobs=JOBS) for s in seeds[1:]]
    line["querysmasher"] = fmean(p.rmse for p in plans)
    line["spread"] = max(p.rmse for p in plans) - min(p.rmse for p in plans)
    line["lower_bound"] = fmean(p.lower_bound_rmse for p in plans)
    line["gap"] = max(0.0, *(p.gap for p in plans))
    for name, method in METHODS.items():
        line[name] = line[f"{name}_seconds"] = None
        if row.published.get(name) is not None:
            began = time.perf_counter()
            line[name] = fmean(method(row.queries(s)) for s in seeds)
            line[f"{name}_seconds"] = (time.perf_counter() - began) / len(seeds)
    return line


def peak_memory_mb() -> float:
    """Most memory this process ever held; not that of the process that started it."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _planner_plus(workload: QueryWorkload) -> float:
    found = []
    for family in BASES:
        made: dict[tuple[int, bool], Factor] = {}
        bases = {}
        for position, attribute in enumerate(workload.domain.attributes):
            plain = family == "marginal" or (family == "hybrid" and not attribute.ordered)
            if attribute.size < 2:
                continue
            key = (attribute.size, plain)
            if key not in made:
                asked = "marginal" if plain else "prefix" if family == "hybrid" else family
                made[key] = one_way_optimum(attribute.size, asked)
            bases[position] = made[key]
        found.append(plan_batch(workload, COST, "residualplanner+", bases=bases, jobs=JOBS))
    if len(workload.domain) <= OWN_BASIS_ATTRIBUTES:
        found.append(plan_batch(workload, COST, "residualplanner+", jobs=JOBS))
    return min(plan.rmse for plan in found)


def one_way_optimum(size: int, family: str) -> Factor:
    """The optimal strategy for the mean-free part of one attribute's queries."""
    workload = all_ways_queries(Domain.from_sizes({"a": size}), 1, family)
    mechanism = plan_batch(workload, COST, "querysmasher").mechanism
    measured = (mechanism.measurement(k) for k in range(mechanism.num_measurements))
    (factor,) = next(m for m in measured if m.clique == (0,)).strategy.factors
    return factor


def _fourier(workload: QueryWorkload) -> float:
    return plan_batch(workload, COST, "wff", jobs=JOBS).rmse


def _hdmm(workload: QueryWorkload) -> float:
    products = product_workload(workload)
    found = math.sqrt(select_gaussian(products).strategy.total_error / workload.num_queries)
    if len(products.sizes) > MOST_ATTRIBUTES:  # OPT_M, too, without its 2**d weights
        found = min(found, plan_batch(workload, COST, "residualplanner", jobs=JOBS).rmse)
    return found


METHODS: dict[str, Callable[[QueryWorkload], float]] = {
    "residualplanner+": _planner_plus,
    "hdmm": _hdmm,
    "wff": _fourier,
}
"""Weighted RMSE of the methods compared with, by the name of their column."""
