"""One row of the tables of He et al. by our own mechanisms, at privacy cost 1: plan and assembly.

ResidualPlanner+ takes "a strategy of the user's choice" for each attribute; the paper does not say
which it used. Here it gets the best of a few: the optimum for contrasts, for prefixes or for ranges
on every attribute, for hybrid queries, and for each attribute's own share of the workload.

HDMM is the best of its operators. Its OPT_M with Gaussian noise has the closed form of McKenna et
al., theorem 12, which is ResidualPlanner: that is how it is computed for many attributes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from statistics import fmean
from typing import Any

import numpy as np

from adaptive_qs.answering.measure import answer_sets, grid_bits
from adaptive_qs.answering.plan import BatchPlan
from adaptive_qs.domain import Domain
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import UNITS_PER_RHO
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import EntropySource, SystemEntropy
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.strategy.choose import MechanismChoice, choose_mechanism
from adaptive_qs.strategy.hdmm import product_workload
from adaptive_qs.strategy.residual_mechanism import smash
from adaptive_qs.strategy.solution import Factor, SolverSettings
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.workload.families import answer_product
from adaptive_qs.workload.file import all_ways_queries
from adaptive_qs.workload.residuals import decompose_workload
from adaptive_qs.workload.workload import QueryWorkload
from scripts.published.laplace import select_gaussian
from scripts.published.planner_plus import Bases, planner_plus
from scripts.published.querysmasher_rows import Row
from scripts.published.subset_bounds import MOST_ATTRIBUTES
from scripts.results import peak_memory_mb

COST = PrivacyTarget.of_answers(cost=1.0)
JOBS = 2
BASES = ("marginal", "prefix", "range", "hybrid")
OWN_BASIS_ATTRIBUTES = 14
"""ResidualPlanner+ with a strategy made for each attribute is tried up to here."""
NUM_ROWS = 10_000
DATA_SEED = 0
CHECKED = 100
"""Attribute sets of each part whose answers are compared with the truth, at most."""


def plan_batch(workload: QueryWorkload, mechanism: str) -> BatchPlan:
    """What a mechanism measures of a workload, and how long that took to find."""
    began = time.perf_counter()
    choice = choose_mechanism(workload, mechanism, jobs=JOBS)
    return BatchPlan(workload, COST, choice, time.perf_counter() - began)


def plan_with_bases(workload: QueryWorkload, bases: Bases | None = None) -> BatchPlan:
    """Plan a workload by ResidualPlanner+, with these strategies of its attributes if given."""
    began = time.perf_counter()
    whole = decompose_workload(workload)
    split, solver = planner_plus(whole, SolverSettings(), bases)
    classes = len(split.subworkloads)
    mechanism = smash(split, solver, JOBS)
    choice = MechanismChoice("residualplanner+", mechanism, len(split.residuals), classes)
    return BatchPlan(workload, COST, choice, time.perf_counter() - began)


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
    plan = plan_batch(workload, "querysmasher")
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
    plans += [plan_batch(row.queries(s), "querysmasher") for s in seeds[1:]]
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
        found.append(plan_with_bases(workload, bases))
    if len(workload.domain) <= OWN_BASIS_ATTRIBUTES:
        found.append(plan_with_bases(workload))
    return min(plan.rmse for plan in found)


def one_way_optimum(size: int, family: str) -> Factor:
    """The optimal strategy for the mean-free part of one attribute's queries."""
    workload = all_ways_queries(Domain.from_sizes({"a": size}), 1, family)
    mechanism = plan_batch(workload, "querysmasher").mechanism
    measured = (mechanism.measurement(k) for k in range(mechanism.num_measurements))
    (factor,) = next(m for m in measured if m.clique == (0,)).strategy.factors
    return factor


def _hdmm(workload: QueryWorkload) -> float:
    products = product_workload(workload)
    found = math.sqrt(select_gaussian(products).strategy.total_error / workload.num_queries)
    if len(products.sizes) > MOST_ATTRIBUTES:  # OPT_M, too, without its 2**d weights
        found = min(found, plan_batch(workload, "residualplanner").rmse)
    return found


METHODS: dict[str, Callable[[QueryWorkload], float]] = {
    "residualplanner+": _planner_plus,
    "hdmm": _hdmm,
    "wff": lambda workload: plan_batch(workload, "wff").rmse,
}
"""Weighted RMSE of the methods compared with, by the name of their column."""


def assemble(workload: QueryWorkload, entropy: EntropySource | None = None) -> dict[str, Any]:
    """Answer a whole workload on a generated table: the assembly phase.

    The answers are streamed and dropped. Those of every few attribute sets are compared with the
    true counts, outside the clock: their mean squared error over the variance they promise is
    near 1.

    Returns:
        Seconds from the plan to the last answer, peak memory of this process, and for the answers
        checked the ratio of squared error to variance, averaged over answers.
    """
    began = time.perf_counter()
    plan = plan_batch(workload, "querysmasher")
    planned = time.perf_counter()
    counter = MarginalCounter(generated_table(workload.domain))
    drawn, drawn_cpu = time.perf_counter(), time.process_time()
    bits = grid_bits(plan.mechanism, COST.units, NUM_ROWS)
    mechanism = plan.mechanism.on_grid(bits)
    budget = Budget(Fraction(COST.units, UNITS_PER_RHO))
    mechanisms = Mechanisms(budget, entropy or SystemEntropy())
    step = [1 + len(part) // CHECKED for part in workload.parts]
    answers, checked, ratios, checking_s, checking_cpu_s = 0, 0, 0.0, 0.0, 0.0
    for found in answer_sets(mechanism, mechanisms.table(counter), mechanisms, COST.units):
        answers += found.estimates.size
        if found.index % step[found.part] == 0:
            pause, pause_cpu = time.perf_counter(), time.process_time()
            true = answer_product(found.queries, counter.count(found.clique)).reshape(-1)
            ratios += float(((found.estimates - true) ** 2 / found.variances).sum())
            checked += true.size
            checking_s += time.perf_counter() - pause
            checking_cpu_s += time.process_time() - pause_cpu
    assert answers == workload.num_queries
    return {
        "plan_seconds": planned - began,
        "assemble_seconds": time.perf_counter() - drawn - checking_s,
        "assemble_cpu_seconds": time.process_time() - drawn_cpu - checking_cpu_s,
        "assemble_peak_memory_mb": peak_memory_mb(),
        "answers": answers,
        "answers_checked": checked,
        "squared_error_over_variance": ratios / checked,
        "rmse_on_grid": float(np.sqrt(mechanism.total_error / workload.num_queries)),
        "rho_left": float((budget.limit - budget.spent).rho),
    }


def generated_table(domain: Domain) -> CodedTable:
    """Rows of independent skewed attributes; the answers' errors do not depend on them."""
    rng = np.random.default_rng(DATA_SEED)
    columns = [rng.binomial(n - 1, rng.uniform(0.2, 0.8), NUM_ROWS) for n in domain.sizes]
    return CodedTable.from_codes(domain, columns)
