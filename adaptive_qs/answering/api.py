"""Batch answering for callers of Python: plan without data, then answer with error bars."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaptive_qs.adaptive.preprocessing.shares import (
    DEFAULT_SHARE,
    discovery_share,
    preprocessing_cost,
)
from adaptive_qs.answering.answers import Answers
from adaptive_qs.answering.job import BatchJob
from adaptive_qs.answering.plan import BatchPlan
from adaptive_qs.answering.planning import DEFAULT_GAP, Planner
from adaptive_qs.answering.resources import BatchLimits
from adaptive_qs.answering.target import BatchTarget
from adaptive_qs.answering.workloads import QuerySource
from adaptive_qs.clock import PhaseClock
from adaptive_qs.data.inputs import resolve_schema
from adaptive_qs.data.review import UNREVIEWED, check_reviewed, is_unreviewed
from adaptive_qs.data.schema import Schema
from adaptive_qs.ledger.session import Session
from adaptive_qs.privacy.entropy import EntropySource, InsecureSeed, SystemEntropy
from adaptive_qs.privacy.guard_rails import (
    GuardRail,
    check_rails,
    checked_public_rows,
    guard_rails,
    refusable,
    warn_all,
)
from adaptive_qs.progress import PhaseProgress


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
    bases: Mapping[str, Any] | None = None,
    learning_share: float = DEFAULT_SHARE,
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
        mechanism: a name of ``adaptive_qs.strategy.mechanisms.choice.MECHANISMS``; "auto" chooses.
        gap: solvers stop where the squared error is proven to be this close to the least.
        jobs: threads that solve, by default one for every core.
        max_memory: ceiling of the process's memory in bytes or as "3GB"; by default three quarters
            of the machine's.
        bases: for residualplanner+ only: by column name a strategy matrix, shape (rows, codes),
            whose rows span all differences of codes; other columns get one chosen for them.
        learning_share: part of the budget for bins and values that the schema leaves to be learnt;
            the plan is then for the rest of it and as many codes as there can be.
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
    public_rows = checked_public_rows(public_rows)
    chosen = any(budget is not None for budget in (epsilon, rho, cost))
    if not chosen:
        cost = 1.0
    described = resolve_schema(schema, max_memory=max_memory)
    target = _target(described, epsilon, delta, rho, cost)
    if chosen:
        warn_all(refusable(_rails(target, public_rows)), stacklevel=2)
    learning = preprocessing_cost(described, target.budget, learning_share)
    domain = described.widest_domain()
    limits = BatchLimits.of(domain, max_memory, jobs)
    planner = Planner.of(workload, mechanism, gap, limits, bases, progress)
    return planner.plan(domain, target.left_of(target.budget - learning))


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
    bases: Mapping[str, Any] | None = None,
    learning_share: float = DEFAULT_SHARE,
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

    The unit of privacy is one row; neighbouring tables differ by adding or removing one. This call
    plans, reads the table and checks everything, but spends nothing, unless the schema leaves bins
    or values to be learnt: reading the result does.

    Args:
        data: a pandas, polars or pyarrow table, the path of a CSV or Parquet file, or a
            :class:`CodedTable`.
        schema: as for :func:`plan`; a coded table needs none.
        workload, epsilon, delta, rho, cost, mechanism, gap, jobs, max_memory, bases, progress: as
            for :func:`plan`, but exactly one of epsilon, rho and cost must be given.
        learning_share: part of the budget for bins and values that the schema leaves to be learnt
            (``private_bins``, ``private_values``), which this call then spends.
        insecure_seed: makes the noise reproducible, for tests: the answers are NOT PRIVATE and
            are stamped so.
        ledger: path of the data set's ledger, which counts the budget over all runs; without one
            it is counted in memory. Answers are kept in the ledger until they are written.
        resume: go on with the interrupted run in the ledger that was asked for the same.
        anchor: how far the ledger must have come: a file on another volume, which is brought
            forward with it, or its newest entry as ``ledger show`` prints it.
        unreviewed_schema: take a schema that still says that it was taken from the data; the
            promise does not cover what it tells, and the privacy statement says so.
        public_rows: as for :func:`plan`. The true number of rows is not looked at for that.
        beyond_limits: consent to an epsilon, a delta or a noise beyond the limits of
            :mod:`adaptive_qs.privacy.guard_rails`, which are refused otherwise.

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
    public_rows = checked_public_rows(public_rows)
    described = resolve_schema(schema, data, max_memory)
    check_reviewed(described, unreviewed_schema)
    target = _target(described, epsilon, delta, rho, cost)
    doubts = check_rails(_rails(target, public_rows), beyond_limits or resume)
    warn_all(doubts, stacklevel=2)
    entropy: EntropySource = SystemEntropy()
    if insecure_seed is not None:
        entropy = InsecureSeed(insecure_seed)
        warnings.warn(
            "insecure_seed: whoever knows the seed can remove the noise: the answers are NOT "
            "PRIVATE",
            stacklevel=2,
        )
    if is_unreviewed(described):
        warnings.warn(UNREVIEWED, stacklevel=2)
    learning = preprocessing_cost(described, target.budget, learning_share)
    session = Session(ledger, resume, target.budget, anchor)
    clock = PhaseClock(progress)
    limits = BatchLimits.of(described.widest_domain(), max_memory, jobs)
    planner = Planner.of(workload, mechanism, gap, limits, bases, clock)
    resumed = ledger if resume else None
    job = BatchJob(
        described, planner, target, learning, session, entropy, insecure_seed, clock, resumed
    )
    return job.answers(data)


def _rails(target: BatchTarget, rows: int | None) -> tuple[GuardRail, ...]:
    """What there is to say about the budget of a batch."""
    std = target.cost**-0.5
    return guard_rails(target.epsilon, target.delta, std, rows, "a count that gets all of it")


def _target(
    schema: Schema,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    cost: float | None,
) -> BatchTarget:
    """The budget; that of zCDP where bins or values are to be learnt as well."""
    share = discovery_share(schema) if schema.private_columns else None
    return BatchTarget.of(epsilon, delta, rho, cost, share)
