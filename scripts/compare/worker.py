"""The process of a cell that runs one of this project's mechanisms: ``worker JOB.json``.

They run with their default settings, and with seeded exact noise, so that a cell can be repeated.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.answering.api import answer
from adaptive_qs.answering.measure import answer_sets
from adaptive_qs.generate.rows import synthesize_rows
from adaptive_qs.loop.budget import LoopSettings
from adaptive_qs.loop.loop import run_loop
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.release.statement import versions
from adaptive_qs.residual import ReferenceModel
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.workload.workload import Workload
from scripts.compare.job import Job, write_codes
from scripts.table_kinds import bootstrap, shuffled_columns

GAUSSIAN = (
    "All noise is Gaussian, so epsilon is converted by exact Gaussian DP, which gives 8 to 15 % "
    "more budget than the zCDP of the adaptive mechanisms."
)


@dataclass(frozen=True)
class Outcome:
    """What a mechanism hands back: a table, answers, or both.

    Attributes:
        table: synthetic rows.
        answers: the workload's marginals in its order (rows), made while they are read.
        seconds: of processor time by phase; "sample" is what only the table needed.
        settings: what it was run with.
        notes: what a reader should know.
    """

    table: CodedTable | None = None
    answers: Iterable[NDArray[np.float64]] | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def adaptive(job: Job, table: CodedTable) -> Outcome:
    """Run adaptive measurement, and draw rows that match: the default."""
    workload = job.marginals()
    start = time.process_time()
    parameters: dict[str, Any] = {"workers": job.threads} | job.settings
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
        "reference": synthesizer.release_.manifest.settings["reference"],
        "levels": synthesizer.levels,
        "rho": synthesizer.rho_,
        "rho_spent": synthesizer.rho_spent_,
        "rounds": len(synthesizer.rounds_),
        "cliques": len({past.clique for past in synthesizer.rounds_}),
    }
    model = synthesizer.release_.model()
    return Outcome(synthetic, _marginals(model, workload), seconds, used)


def adaptive_uniform(job: Job, table: CodedTable) -> Outcome:
    """Run adaptive measurement with a uniform reference, as Fuentes et al. publish it."""
    with mock.patch("adaptive_qs.run.tables.LoopSettings", partial(LoopSettings, "uniform")):
        return adaptive(job, table)


def independent(job: Job, table: CodedTable) -> Outcome:
    """The whole budget on one-way marginals; every column drawn independently."""
    single = Workload.all_ways(table.domain, 1)
    rho = PrivacyTarget.of(job.epsilon, job.delta).rho
    start = time.process_time()
    mechanisms = Mechanisms(Budget(rho, filtered=True), InsecureSeed(job.seed))
    settings = LoopSettings(initial_share=1.0)
    loop = run_loop(
        mechanisms.table(MarginalCounter(table)), single, mechanisms, rho, settings, job.threads
    )
    fitted = time.process_time()
    num_rows = max(1, round(loop.model.total))
    parts = synthesize_rows(loop.model, [], single.cliques, num_rows, job.seed, workers=job.threads)
    synthetic = CodedTable.from_parts(table.domain, parts, num_rows)
    seconds = {"fit": fitted - start, "sample": time.process_time() - fitted}
    used = {"rho": rho, "rho_spent": float(mechanisms.ledger.spent.rho)}
    return Outcome(synthetic, _marginals(loop.model, job.marginals()), seconds, used)


def planned(job: Job, table: CodedTable) -> Outcome:
    """Plan, check and round as ``answer`` does; read the estimates without their names."""
    workload = job.marginals()
    start = time.process_time()
    prepared = answer(
        table,
        workload={"version": 1, "parts": [{"attributes": job.workload}]},
        epsilon=job.epsilon,
        delta=job.delta,
        mechanism=job.mechanism,
        workers=job.threads,
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
        sets = answer_sets(
            prepared.plan.mechanism, mechanisms.table(MarginalCounter(table)), mechanisms, units
        )
        for expected, answered in zip(workload.cliques, sets, strict=True):
            assert answered.clique == expected, "answers come in the workload's order"
            yield answered.estimates

    return Outcome(answers=estimates(), seconds=seconds, settings=used, notes=(GAUSSIAN,))


def _marginals(model: ReferenceModel, workload: Workload) -> Iterator[NDArray[np.float64]]:
    return (model.marginal(clique) for clique in workload.cliques)


MECHANISMS: dict[str, Callable[[Job, CodedTable], Outcome]] = {
    "adaptive": adaptive,
    "adaptive-uniform": adaptive_uniform,
    "independent": independent,
    "residualplanner": planned,
    "querysmasher": planned,
    "bootstrap": lambda job, table: Outcome(bootstrap(table, job.seed)),
    "true-independent": lambda job, table: Outcome(shuffled_columns(table, job.seed)),
}
"""The functions behind the names of ``compare.mechanisms``."""


def main(path: str) -> None:
    """Run a job and write its table, answers and report."""
    warnings.filterwarnings("ignore", message="insecure_seed")
    job = Job.load(path)
    outcome = MECHANISMS[job.mechanism](job, job.table())
    seconds = dict(outcome.seconds)
    if outcome.table is not None:
        write_codes(Path(job.out), outcome.table)
    if outcome.answers is not None:
        start = time.process_time()
        with Path(job.answers).open("wb") as file:
            for marginal in outcome.answers:
                file.write(np.ascontiguousarray(marginal, dtype=np.float64).data)
        seconds["answers"] = time.process_time() - start
    report = {
        "versions": versions(),
        "settings": outcome.settings,
        "seconds": seconds,
        "notes": outcome.notes,
    }
    Path(job.report).write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
