"""The assembly phase of He et al.: measure a table, reconstruct every answer and its variance.

The answers are streamed and dropped. Those of every so manieth attribute set are compared with the
true counts, outside the clock: their mean squared error over the variance they promise is near 1.
"""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

import numpy as np

from adaptive_qs.answering.measure import answer_sets, grid_bits
from adaptive_qs.domain import Domain
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import UNITS_PER_RHO
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import EntropySource, SystemEntropy
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.workload.families import answer_product
from adaptive_qs.workload.workload import QueryWorkload
from scripts.published.querysmasher_methods import COST, JOBS, peak_memory_mb, plan_batch

NUM_ROWS = 10_000
DATA_SEED = 0
CHECKED = 100
"""Attribute sets of each part that are compared with the truth, at most."""


def assemble(workload: QueryWorkload, entropy: EntropySource | None = None) -> dict[str, Any]:
    """Answer a whole workload on a generated table.

    Returns:
        Seconds from the plan to the last answer, peak memory of this process, and for the answers
        checked the ratio of squared error to variance, averaged over answers.
    """
    began = time.perf_counter()
    plan = plan_batch(workload, COST, "querysmasher", jobs=JOBS)
    planned = time.perf_counter()
    counter = MarginalCounter(generated_table(workload.domain))
    drawn, drawn_cpu = time.perf_counter(), time.process_time()
    bits = grid_bits(plan.mechanism, COST.units, NUM_ROWS)
    mechanism = plan.mechanism.on_grid(bits)
    budget = Budget(Fraction(COST.units, UNITS_PER_RHO))
    mechanisms = Mechanisms(budget, entropy or SystemEntropy())
    step = [1 + len(part) // CHECKED for part in workload.parts]
    answers, checked, ratios, checking_s, checking_cpu_s = 0, 0, 0.0, 0.0, 0.0
    for found in answer_sets(mechanism, counter, mechanisms, COST.units):
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
