"""Batch answering for callers of Python: plan without data, then answer with error bars."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from adaptive_qs.answering.answers import LOST, Answers
from adaptive_qs.answering.plan import (
    DEFAULT_GAP,
    BatchLimits,
    BatchPlan,
    Planner,
    QuerySource,
    check_learnable,
)
from adaptive_qs.learn.schema import (
    DEFAULT_SHARE,
    discovery_share,
    gather_private,
    learn_schema,
    preprocessing_cost,
)
from adaptive_qs.ledger.entries import cost_text
from adaptive_qs.machine import ROWS_SHARE, PhaseClock, PhaseProgress
from adaptive_qs.privacy.budget import (
    GuardRail,
    check_rails,
    checked_public_rows,
    guard_rails,
    refusable,
    warn_all,
)
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.mechanisms import Mechanisms, audited
from adaptive_qs.privacy.noise import EntropySource, InsecureSeed, SystemEntropy
from adaptive_qs.release.statement import package_version
from adaptive_qs.run.budget import BatchTarget
from adaptive_qs.run.session import Session
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.count import counter_of
from adaptive_qs.table.encode import read_table, resolve_schema, table_bytes, unchanged
from adaptive_qs.table.schema import UNREVIEWED, Schema, check_reviewed, is_unreviewed
from adaptive_qs.workload.file import workload_digest

# What a batch is asked to do, in the words by which a ledger recognises it when it is resumed.


def request_of(
    plan: BatchPlan,
    target: BatchTarget,
    schema: Schema,
    gap: float,
    learning: Cost,
    insecure_seed: int | None,
) -> dict[str, str]:
    """Everything public that decides what a batch releases, by the names that its user knows.

    Args:
        plan: for the widest domain of the schema.
        target: the whole budget.
        schema: with or without private columns.
        gap: what solvers were told.
        learning: part of the budget for private columns.
        insecure_seed: of the noise.
    """
    return {
        "command": "answer",
        "version": package_version(),
        "schema": schema.fingerprint,
        "workload": workload_digest(plan.workload),
        "budget": f"{cost_text(target.budget)}, epsilon {target.epsilon!r}, delta {target.delta!r}",
        "learning share": cost_text(learning),
        "mechanism": f"{plan.choice.name}, {plan.mechanism.num_measurements} measurements",
        "gap": repr(gap),
        "noise seed": "none" if insecure_seed is None else str(insecure_seed),
    }


# A batch with everything checked that can be checked before the private table is read.


@dataclass(frozen=True)
class BatchJob:
    """What a batch will do.

    Attributes:
        schema: the public description of the columns.
        planner: what to answer, and how.
        target: the budget of the whole batch.
        learning: the part of it for the bins and values that the schema leaves open.
        session: the budget, in memory or in a ledger.
        entropy: where the noise comes from.
        insecure_seed: of the noise, if it has one.
        clock: told about the phases.
        resumed: ledger of an interrupted run that this one goes on with.
    """

    schema: Schema
    planner: Planner
    target: BatchTarget
    learning: Cost
    session: Session
    entropy: EntropySource
    insecure_seed: int | None
    clock: PhaseClock
    resumed: str | Path | None = None

    @cached_property
    def widest(self) -> BatchPlan:
        """The plan for as many codes as private columns can get.

        Raises:
            InputError, ResourceExceeded: as for :meth:`Planner.measurable`.
        """
        left = self.target.left_of(self.target.budget - self.learning)
        return self.planner.measurable(self.schema.widest_domain(), left)

    def answers(self, source: Any) -> Answers:
        """Read the table; learn what the schema leaves open, which spends a part of the budget.

        Bad cells are refused before anything is reserved.

        Raises:
            InputError: the table does not fit the schema, or changed while it was read.
            ResourceExceeded: it has more rows than were planned for.
            LedgerError: the ledger cannot be used, or holds no such run to resume.
            BudgetExceeded: the ledger's total does not allow the budget.
        """
        self.clock.start("plan")
        schema, planned, begin = self.schema, self.widest, self._begin
        with unchanged(source), self.session.working(LOST):
            self.session.recognise(table_bytes(source))
            if schema.private_columns:
                schema, mechanisms = self._learnt(source)
                ledger = mechanisms.ledger
                left = self.target.left_of(ledger.limit - ledger.spent)
                self.clock.start("plan")
                planned = self.planner.measurable(schema.domain(), left)
                begin = _always(mechanisms)
            table = self._read(source, schema)
        counter = counter_of(table)
        insecure = self.entropy.insecure
        return Answers(
            planned, self.target, schema, counter, self.session, begin, insecure, self.clock,
            self.resumed,
        )  # fmt: skip

    def _begin(self) -> Mechanisms:
        request = request_of(
            self.widest, self.target, self.schema, self.planner.gap, self.learning,
            self.insecure_seed,
        )  # fmt: skip
        budget = self.session.begin(request, self.entropy.insecure)
        return audited(budget) or Mechanisms(budget, self.entropy)

    def _learnt(self, source: Any) -> tuple[Schema, Mechanisms]:
        check_learnable(self.widest.workload, self.schema)
        limits = self.planner.limits
        gathered = gather_private(
            source,
            self.schema,
            self.learning,
            most_bytes=int(ROWS_SHARE * limits.max_memory_bytes),
            progress=self.clock.steps("learn"),
            check_rows=limits.check_rows,
        )
        mechanisms = self._begin()
        return learn_schema(self.schema, gathered, mechanisms, self.learning), mechanisms

    def _read(self, source: Any, schema: Schema) -> CodedTable:
        return read_table(source, schema, self.clock.steps("read"), self.planner.limits.check_rows)


def _always(mechanisms: Mechanisms) -> Callable[[], Mechanisms]:
    return lambda: mechanisms


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
        mechanism: a name of ``adaptive_qs.strategy.choose.MECHANISMS``; "auto" chooses.
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
            :mod:`adaptive_qs.privacy.budget`, which are refused otherwise.

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
