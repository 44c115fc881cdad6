"""This project's mechanisms with their default settings; seeded exact noise, for repetition."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.answering.api import answer
from adaptive_qs.answering.measure import answer_sets
from adaptive_qs.generate.rows import synthesise_rows
from adaptive_qs.loop.loop import LoopSettings, run_loop
from adaptive_qs.privacy.accounting import rho_of
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.residual import ReferenceModel
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.count import MarginalCounter
from adaptive_qs.workload.workload import Workload
from scripts.compare.job import Job
from scripts.compare.outcome import Outcome

GAUSSIAN = (
    "All noise is Gaussian, so epsilon is converted by exact Gaussian DP, which gives 8 to 15 % "
    "more budget than the zCDP of the adaptive mechanisms."
)


def adaptive(job: Job, table: CodedTable) -> Outcome:
    """Adaptive measurement with a product reference, and rows that match: the default."""
    return _adaptive(job, table, "product")


def adaptive_uniform(job: Job, table: CodedTable) -> Outcome:
    """The same with a uniform reference, as Fuentes et al. publish it."""
    return _adaptive(job, table, "uniform")


def independent(job: Job, table: CodedTable) -> Outcome:
    """The whole budget on one-way marginals; every column drawn on its own."""
    workload = job.marginals()
    single = Workload.all_ways(table.domain, 1)
    assert job.epsilon is not None
    assert job.delta is not None
    rho = rho_of(job.epsilon, job.delta)
    start = time.process_time()
    mechanisms = Mechanisms(Budget(rho), InsecureSeed(job.seed))
    settings = LoopSettings(initial_share=1.0)
    loop = run_loop(MarginalCounter(table), single, mechanisms, rho, settings, job.threads)
    fitted = time.process_time()
    num_rows = max(1, round(loop.model.total))
    parts = synthesise_rows(loop.model, [], single.cliques, num_rows, job.seed, workers=job.threads)
    synthetic = CodedTable.from_parts(table.domain, parts, num_rows)
    seconds = {"fit": fitted - start, "sample": time.process_time() - fitted}
    used = {"rho": rho, "rho_spent": float(mechanisms.ledger.spent.rho)}
    return Outcome(synthetic, _marginals(loop.model, workload), seconds, used)


def residualplanner(job: Job, table: CodedTable) -> Outcome:
    """Optimal residual measurements of all marginals at once (He et al.'s rival)."""
    return _planned(job, table, "residualplanner")


def querysmasher(job: Job, table: CodedTable) -> Outcome:
    """He et al.'s mechanism on the same marginals."""
    return _planned(job, table, "querysmasher")


def _adaptive(job: Job, table: CodedTable, reference: str) -> Outcome:
    workload = job.marginals()
    start = time.process_time()
    parameters: dict[str, Any] = {"reference": reference, "workers": job.threads} | job.settings
    synthesizer = Synthesizer(
        epsilon=job.epsilon,
        delta=job.delta,
        workload=workload,
        insecure_seed=job.seed,
        beyond_limits=True,
        **parameters,
    ).fit(table)
    fitted = time.process_time()
    synthetic = synthesizer.sample(seed=job.seed)
    seconds = {"fit": fitted - start, "sample": time.process_time() - fitted}
    used: dict[str, Any] = {
        "reference": synthesizer.reference,
        "rho": synthesizer.rho_,
        "rho_spent": synthesizer.rho_spent_,
        "rounds": len(synthesizer.rounds_),
        "cliques": len({past.clique for past in synthesizer.rounds_}),
    }
    model = synthesizer.release_.model()
    return Outcome(synthetic, _marginals(model, workload), seconds, used)


def _marginals(model: ReferenceModel, workload: Workload) -> Iterator[NDArray[np.float64]]:
    return (model.marginal(clique) for clique in workload.cliques)


def _planned(job: Job, table: CodedTable, mechanism: str) -> Outcome:
    """Plan, check and round as ``answer`` does; read the estimates without their names."""
    workload = job.marginals()
    start = time.process_time()
    parts = {"version": 1, "parts": [{"attributes": job.workload}]}
    prepared = answer(
        table,
        workload=parts,
        epsilon=job.epsilon,
        delta=job.delta,
        mechanism=mechanism,
        jobs=job.threads,
        insecure_seed=job.seed,
        beyond_limits=True,
    )
    mechanisms = Mechanisms(Budget(prepared.target.budget.rho), InsecureSeed(job.seed))
    units = prepared.plan.target.units
    seconds = {"plan": time.process_time() - start}
    used = {
        "mechanism": prepared.plan.choice.name,
        "rho": prepared.target.rho,
        "expected_rmse": prepared.plan.rmse,
    }

    def estimates() -> Iterator[NDArray[np.float64]]:
        counter = MarginalCounter(table)
        sets = answer_sets(prepared.plan.mechanism, counter, mechanisms, units)
        for expected, answered in zip(workload.cliques, sets, strict=True):
            assert answered.clique == expected, "answers come in the workload's order"
            yield answered.estimates

    return Outcome(answers=estimates(), seconds=seconds, settings=used, notes=(GAUSSIAN,))
