"""Batch answering for callers of Python: plan without data, then answer with error bars."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from adaptive_qs.answering.answers import LOST, Answers
from adaptive_qs.answering.plan import (
    DEFAULT_GAP,
    Batch,
    BatchPlan,
    answers_limits,
)
from adaptive_qs.arguments import DEFAULT_SHARE
from adaptive_qs.domain import Domain
from adaptive_qs.machine import PhaseClock, PhaseProgress
from adaptive_qs.privacy.budget import checked_public_rows, refusable, warn_all
from adaptive_qs.privacy.unit import DEFAULT_NEIGHBOURS, DEFAULT_WEIGH
from adaptive_qs.run import RunOptions
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.run.job import Job, Limits, budget_of, check_learnable
from adaptive_qs.table.encode import resolve_schema
from adaptive_qs.table.engines import DEFAULT_ENGINE
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.file import QuerySource

_OTHERS = ("schema", "workload", "mechanism", "gap", "progress")
"""Parameters that are no options of a run."""


def plan(
    schema: Any,
    workload: QuerySource = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    cost: float | None = None,
    mechanism: str = "auto",
    gap: float = DEFAULT_GAP,
    jobs: int | None = None,
    max_memory: int | str | None = None,
    learning_share: float = DEFAULT_SHARE,
    rows_per_person: int | None = None,
    weigh: str = DEFAULT_WEIGH,
    neighbours: str = DEFAULT_NEIGHBOURS,
    public_rows: int | None = None,
    progress: PhaseProgress | None = None,
) -> BatchPlan:
    """What a batch of answers would look like; needs no data and spends nothing.

    Args:
        schema: the public description of the columns: a :class:`Schema`, the path of a schema
            file, or parsed JSON.
        workload: what to answer: a number of ways, several numbers, a workload file or its parsed
            content, or a :class:`QueryWorkload`; by default all 2-way marginals.
        epsilon: ε of the (ε, δ) of the whole batch.
        delta: δ, by default 1e-9.
        rho: the budget in zCDP, instead of ``epsilon``.
        cost: the privacy cost β = 2ρ, instead of ``epsilon``; 1 where none of the three is given.
        mechanism: a name of ``adaptive_qs.strategy.MECHANISMS``; "auto" chooses.
        gap: solvers stop where the squared error is proven to be this close to the least.
        jobs: threads that solve, by default one for every core.
        max_memory: ceiling of the process's memory in bytes or as "3GB"; by default three quarters
            of the machine's.
        learning_share: part of the budget for bins and values that the schema leaves to be learnt;
            the plan is then for the rest of it and as many codes as there can be.
        rows_per_person, weigh, neighbours: as for :class:`~adaptive_qs.Synthesizer`.
        public_rows: about how many rows the table will have, as far as is public; compared with
            the budget.
        progress: called with a phase, steps done and steps in all.

    Raises:
        InputError: a parameter, the schema or the workload is wrong.
        ResourceExceeded: the plan exceeds ``max_memory``.

    Warns:
        GuardRailWarning: the budget promises or buys less than may have been meant, and whether
            it would be refused.
    """
    options = RunOptions.among(locals(), *_OTHERS)
    asked = partial(Batch, workload, mechanism=mechanism, gap=gap, progress=progress)
    planned, doubts = plan_answers(schema, asked, options)
    warn_all(doubts, stacklevel=2)
    return planned


Asked = Callable[[Domain, PrivacyTarget, Limits], Batch]
"""What is asked for, on any domain, budget and limits: all else of a :class:`Batch`."""


def plan_answers(
    schema: Any, asked: Asked, options: RunOptions
) -> tuple[BatchPlan, tuple[str, ...]]:
    """What :func:`plan` gives, and what it warns of."""
    rows = checked_public_rows(options.public_rows)
    described = resolve_schema(schema, max_memory=options.max_memory).without_heaps()
    given = options if options.budgeted else replace(options, cost=1.0)
    target, learning = budget_of(described, given, _budget(given))
    left = target.left_of(target.budget - learning)
    batch = _batch(asked, options, described.widest_domain(), left)
    doubts = refusable(batch.rails(target, rows)) if options.budgeted else ()
    return batch.plan(), doubts


def answer(
    data: Any,
    schema: Any = None,
    workload: QuerySource = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    cost: float | None = None,
    mechanism: str = "auto",
    gap: float = DEFAULT_GAP,
    jobs: int | None = None,
    max_memory: int | str | None = None,
    learning_share: float = DEFAULT_SHARE,
    rows_per_person: int | None = None,
    weigh: str = DEFAULT_WEIGH,
    neighbours: str = DEFAULT_NEIGHBOURS,
    engine: str = DEFAULT_ENGINE,
    temp_folder: str | Path | None = None,
    scheduler: Any = None,
    insecure_seed: int | None = None,
    ledger: str | Path | None = None,
    resume: bool = False,
    anchor: str | Path | None = None,
    unreviewed_schema: bool = False,
    public_rows: int | None = None,
    beyond_limits: bool = False,
    progress: PhaseProgress | None = None,
) -> Answers:
    """Answer a workload on a private table, with a standard error for every answer.

    The unit of privacy is one row; neighbouring tables differ by adding or removing one, unless the
    schema names a ``person`` column or ``neighbours`` are replaced. This call plans, reads the
    table and checks everything, but spends nothing, unless the schema leaves bins or values to be
    learnt: reading the result does.

    Args:
        data: a pandas, polars or pyarrow table, the path of a CSV or Parquet file, of a folder or a
            pattern of such files, a relation of DuckDB, or a :class:`CodedTable`.
        schema: as for :func:`plan`; a coded table needs none.
        workload, epsilon, delta, rho, cost, mechanism, gap, jobs, max_memory, rows_per_person,
            weigh, neighbours, progress: as for :func:`plan`, but exactly one of
            epsilon, rho and cost must be given.
        engine, temp_folder, scheduler, learning_share, ledger, resume, anchor, unreviewed_schema,
            public_rows, beyond_limits: as for :class:`~adaptive_qs.Synthesizer`; what is learnt is
            spent by this call, and answers are kept in the ledger until they are written.
        insecure_seed: makes the noise reproducible, for tests: the answers are NOT PRIVATE and
            are stamped so.

    Raises:
        InputError: a parameter, the schema, the workload or the table is wrong, the schema is
            unreviewed, or the budget is beyond a limit.
        ResourceExceeded: the plan or the table exceeds ``max_memory``.
        LedgerError: the ledger cannot be used, or holds no such run to resume.
        BudgetExceeded: the ledger's total does not allow the budget.

    Warns:
        UserWarning: there is an ``insecure_seed``, or the schema is unreviewed.
        GuardRailWarning: the budget promises or buys less than may have been meant.
    """
    options = RunOptions.among(locals(), "data", *_OTHERS)
    described = resolve_schema(schema, data, max_memory)
    clock = PhaseClock(progress)
    asked = partial(Batch, workload, mechanism=mechanism, gap=gap, progress=clock)
    job = answers_job(described, asked, options)
    job.warn("the answers are", stacklevel=2)
    return answers_of(job, data, clock)


def answers_job(schema: Schema, asked: Asked, options: RunOptions) -> Job[Batch]:
    """A run that answers queries; raises as :meth:`Job.of` does."""
    schema = schema.without_heaps()
    return Job.of(schema, options, _budget(options), partial(_batch, asked, options))


def _batch(asked: Asked, options: RunOptions, domain: Domain, left: PrivacyTarget) -> Batch:
    return asked(domain, left, answers_limits(domain, options.max_memory, options.workers))


def answers_of(job: Job[Batch], source: Any, clock: PhaseClock) -> Answers:
    """Plan, and read the table; raises as :func:`answer` does."""
    clock.start("plan")
    job = job.of_table(source)
    work = job.work
    planned = work.measurable
    learns = bool(job.schema.private_columns)
    with job.session.working(LOST):
        if learns:
            check_learnable(planned.workload, job.schema)
        schema, counter, begin = job.read(source, clock)
        if learns:
            ledger = begin().ledger
            clock.start("plan")
            left = job.target.left_of(ledger.limit - ledger.spent)
            planned = replace(work, domain=schema.domain(), target=left).measurable
    return Answers(job, planned, schema, counter, begin, clock)


def _budget(options: RunOptions) -> Callable[[Fraction | None], PrivacyTarget]:
    """See :func:`budget_of`; it is that of zCDP where bins or values are to be learnt as well."""
    given = options.epsilon, options.delta, options.rho, options.cost
    return partial(PrivacyTarget.of_answers, *given)
