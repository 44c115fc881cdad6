"""The Python functions for batches of answers: plan without data, and answer with error bars."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from adaptive_qs.answering.answers import Answers
from adaptive_qs.answering.plan import Batch, BatchPlan, answers_limits
from adaptive_qs.domain import Domain
from adaptive_qs.machine import PhaseClock, PhaseProgress
from adaptive_qs.privacy.budget import describe_refusals, warn_all
from adaptive_qs.run.budget import Member, PrivacyTarget, resolve_budget
from adaptive_qs.run.options import AnswerOptions, PlanOptions, with_options
from adaptive_qs.run.states import CheckedRun
from adaptive_qs.table.encode import resolve_schema
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.tables import TableSet
from adaptive_qs.workload.file import QuerySource


@with_options(PlanOptions)
def plan(
    schema: Any,
    workload: QuerySource = None,
    *,
    options: PlanOptions,
    progress: PhaseProgress | None = None,
) -> BatchPlan:
    """Plan a batch of answers, which needs no data and spends nothing.

    Without a budget, the plan is for a privacy cost of 1. If the schema leaves bins or values open,
    it is for the budget that learning leaves, and for the largest possible number of codes.

    Args:
        schema: The public description of the columns: a :class:`Schema`, the path of a schema
            file, or parsed JSON.
        workload: The queries: a number of ways, several numbers, a workload file or its parsed
            content, or a :class:`QueryWorkload`; by default all 2-way marginals.
        options: The options, each as a keyword.
        progress: Called with a phase, the steps done and the total of steps.

    Raises:
        InputError: If a parameter, the schema or the workload is invalid.
        ResourceExceeded: If the plan exceeds ``max_memory``.

    Warns:
        GuardRailWarning: If the budget promises or buys little, or would be refused.
    """
    planned, warnings = plan_answers(schema, workload, options, progress)
    warn_all(warnings, stacklevel=3)
    return planned


def plan_answers(
    schema: Any, workload: QuerySource, options: PlanOptions, progress: PhaseProgress | None
) -> tuple[BatchPlan, tuple[str, ...]]:
    """Return what :func:`plan` does, and its warnings."""
    described = resolve_schema(schema, max_memory=options.max_memory).without_heaps()
    given = options if options.budgeted else replace(options, cost=1.0)
    target, learning = resolve_budget(described, given, _budget(given))
    left = target.within(target.budget - learning)
    batch = _batch(workload, options, progress, described.widest_domain(), left)
    warnings = batch.list_warnings(target, options.public_rows)
    return batch.plan(), describe_refusals(warnings) if options.budgeted else ()


@with_options(AnswerOptions)
def answer(
    data: Any, schema: Any = None, workload: QuerySource = None, *, options: AnswerOptions,
    progress: PhaseProgress | None = None,
) -> Answers:  # fmt: skip
    """Answer a workload on a private table, with a standard error for every answer.

    The unit of privacy is one row, and neighbouring tables differ by adding or removing one row,
    unless the schema names a ``person`` column or ``neighbours`` says otherwise. This call plans,
    reads the table and checks everything. Reading the result spends the budget; this call spends a
    part of it only if the schema leaves bins or values to be learnt. The ledger stores the answers
    until they are written.

    Args:
        data: A table of pandas, polars or pyarrow, the path of a CSV or Parquet file, of a folder
            or a pattern of such files, or a :class:`CodedTable`.
        schema: As for :func:`plan`; a coded table needs none.
        workload: As for :func:`plan`.
        options: The options, each as a keyword.
        progress: Called with a phase, the steps done and the total of steps.

    Raises:
        InputError: If a parameter, the schema, the workload or the table is invalid, the schema is
            unreviewed, or the budget is beyond a limit.
        ResourceExceeded: If the plan or the table exceeds ``max_memory``.
        LedgerError: If the ledger cannot be used, or has no such run to resume.
        BudgetExceeded: If the total of the ledger does not allow the budget.

    Warns:
        UserWarning: If there is an ``insecure_seed``, or the schema is unreviewed.
        GuardRailWarning: If the budget promises or buys little.
    """
    described = resolve_schema(schema, data, options.max_memory)
    clock = PhaseClock(progress)
    checked = check_answers(described, workload, options, clock)
    checked.warn("the answers are", stacklevel=3)
    return read_answers(checked, data, clock)


def check_answers(
    schema: Schema, workload: QuerySource, options: AnswerOptions, progress: PhaseProgress | None
) -> CheckedRun[Batch]:
    """Return a run that answers queries, after all checks that need no rows."""
    alone = TableSet.of_one(schema.without_heaps())
    plan_batch = partial(_batch, workload, options, progress)
    member = Member.planned(alone.tables[alone.root], options, _budget(options), plan_batch)
    return CheckedRun.of(alone, options, {alone.root: member})


def _batch(
    workload: QuerySource,
    options: AnswerOptions | PlanOptions,
    progress: PhaseProgress | None,
    domain: Domain,
    left: PrivacyTarget,
) -> Batch:
    limits = answers_limits(domain, options.max_memory, options.workers)
    return Batch(workload, domain, left, limits, options.mechanism, options.gap, progress)


def read_answers(checked: CheckedRun[Batch], source: Any, clock: PhaseClock) -> Answers:
    """Plan, and read the table; raises as :func:`answer` does."""
    clock.start("plan")
    root = checked.root
    planned = root.work.measurable
    if root.schema.private_columns:
        from adaptive_qs.learn.schema import check_learnable

        check_learnable(planned.workload, root.schema)
    return Answers(checked.read({checked.schema.root: source}, clock), planned, clock)


def _budget(options: AnswerOptions | PlanOptions) -> Callable[[Fraction | None], PrivacyTarget]:
    """Return the function that :func:`resolve_budget` calls with the δ of discovery."""
    given = options.epsilon, options.delta, options.rho, options.cost
    return partial(PrivacyTarget.of_answers, *given)
