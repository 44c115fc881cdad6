"""Answers in Python: planned without data, or a stream that is read once, with a statement."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pyarrow as pa
from pydantic import BaseModel, FailFast, Field, model_validator

from adaptive_qs.answering import measure
from adaptive_qs.answering.measure import COLUMNS, REPEATING, answer_batches, answer_sets
from adaptive_qs.answering.plan import Batch, BatchPlan, answers_limits
from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.machine import PROCESS_BYTES, ROWS_SHARE, Fault, PhaseClock, PhaseProgress, reach
from adaptive_qs.privacy import budget as budgets
from adaptive_qs.privacy.budget import Hex, LedgerPosition, float_above
from adaptive_qs.privacy.events import Cost, Event, GaussianEvent, Purpose
from adaptive_qs.release import bundle
from adaptive_qs.release.bundle import ANSWERS_MEMBER, digest_of_statement, is_from_interrupted_run
from adaptive_qs.release.facts import ANSWERS, NonNegative, total_cost
from adaptive_qs.release.statement import MANIFEST, Loss, Statement, derive_fields
from adaptive_qs.run.budget import Member, PrivacyTarget, resolve_budget
from adaptive_qs.run.options import AnswerOptions, PlanOptions, with_options
from adaptive_qs.run.states import CheckedRun, FinishedRun, ReadRun, SpendingRun
from adaptive_qs.table import files
from adaptive_qs.table.encode import resolve_schema
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.tables import TableSet
from adaptive_qs.table.text import Formulas, check_formulas
from adaptive_qs.table.write import check_table_path, table_format, write_batches
from adaptive_qs.workload.file import QuerySource, workload_digest


class Charges(BaseModel, frozen=True, extra="forbid"):
    """Charges with equal purpose and parameters, and the columns of the first of them."""

    times: Annotated[int, Field(ge=1, le=2**62)]
    charge: Annotated[Event, Field(discriminator="mechanism")]

    @property
    def cost(self) -> Cost:
        """The cost of all of them."""
        one = Cost.of([self.charge])
        return Cost(self.times * one.rho_units, self.times * one.delta_units)


class AnswersManifest(Statement):
    """The privacy statement of a batch of answers; its charges add up to its facts."""

    kind: Literal["answers"] = "answers"
    mechanism: str
    """The name of the mechanism, as `plan` gives it."""
    workload: Hex
    """SHA-256 of the workload."""
    queries: Annotated[int, Field(ge=1)]
    cost: Loss
    """The budget as privacy cost β = 2ρ of He et al."""
    expected_rmse: NonNegative
    """Expected RMSE, planned without data (rows)."""
    lower_bound_rmse: NonNegative
    """Lower bound of the RMSE of any mechanism of the same kind (rows)."""
    charges: Annotated[tuple[Charges, ...], FailFast()]
    """All charges, those with equal parameters together."""

    @model_validator(mode="after")
    def _check_charges(self) -> Self:
        if sum((some.cost for some in self.charges), Cost()) != total_cost(self.facts):
            raise ValueError("the charges do not add up to the facts")
        events = [some.charge for some in self.charges]
        if self.mu is not None and not all(
            isinstance(each, GaussianEvent) and each.purpose is Purpose.STRATEGY for each in events
        ):
            raise ValueError("mu is not that of the charges")
        return self


def state_answers(
    plan: BatchPlan,
    target: PrivacyTarget,
    schema: Schema,
    events: Sequence[Event],
    stamp: files.Stamp,
    confidence: float,
    ledger: LedgerPosition | None = None,
) -> AnswersManifest:
    """Return the statement of a finished batch.

    (ε, δ) follows from Gaussian DP, or from zCDP if bins or values were learnt. ValueError is
    raised if the charges exceed the target, or do not imply its (ε, δ).
    """
    return AnswersManifest(
        **derive_fields(events, schema, ANSWERS, stamp, target.unit, target.loss),
        settings={"confidence": confidence}, ledger=ledger, mechanism=plan.choice.name,
        workload=workload_digest(plan.workload), queries=plan.queries, cost=target.cost,
        expected_rmse=plan.rmse, lower_bound_rmse=plan.lower_bound_rmse,
        charges=group_charges(events),
    )  # fmt: skip


def group_charges(events: Iterable[Event]) -> tuple[Charges, ...]:
    """Count charges of the same parameters; kinds are in the order of their first charge."""
    groups: dict[tuple[Any, ...], list[Event]] = {}
    for event in events:
        kind = (type(event), *(vars(event) | {"columns": ()}).values())
        groups.setdefault(kind, []).append(event)
    return tuple(Charges(times=len(group), charge=group[0]) for group in groups.values())


# The stream of answers, which can be read once, since reading it spends the budget.

FILE_BYTES = {False: 40, True: 120}
"""Size of one answer in a compressed file and in a text file."""
HELD_BYTES = 90
"""Size of one answer in memory, with its text."""


def check_room(queries: int, path: str | Path) -> None:
    """Raise ResourceExceeded if the disk has no room for a file of answers."""
    plain = table_format(path).is_text and not str(path).endswith(".gz")
    needed = queries * FILE_BYTES[plain]
    try:
        free = shutil.disk_usage(Path(path).resolve().parent).free
    except OSError:
        return  # opening the file fails with the reason
    if needed > free:
        raise ResourceExceeded(
            f"{path}: {queries:,} answers take about {needed / 2**30:,.1f} GiB and the disk has "
            f"{free / 2**30:,.1f} GiB left: {FEWER_ANSWERS}"
        )


FEWER_ANSWERS = (
    "ask for prefixes instead of ranges, coarser bins or fewer attributes together, or write "
    ".parquet elsewhere"
)


class Answers:
    """Answers to a workload, which are computed while they are read.

    One pass over the batches, by iteration, :meth:`to_arrow`, :meth:`to_pandas` or :meth:`write`,
    spends the budget, measurement by measurement. There is no second pass. Before it everything is
    checked and nothing is spent.

    Rows are ordered by part of the workload, attribute set and query. The columns are attributes,
    query, estimate (rows, unbiased), standard_error, lower and upper.

    Attributes:
        plan: The mechanism, on integers, with its expected errors.
        target: The budget of the whole run; that of the plan excludes learning.
        insecure: Whether the noise comes from a seed, so that the answers are not private.
        closed: The run in its ledger once the answers are delivered; None without a ledger.
        stamp: The same as text.
        seconds: Seconds per phase, after the last answer.
    """

    def __init__(self, read: ReadRun[Batch], plan: BatchPlan, clock: PhaseClock) -> None:
        checked = read.checked
        self.plan = plan
        self.target = checked.root.target
        self.insecure = checked.options.insecure
        self.seconds: dict[str, float] = {}
        self.stamp: files.Stamp = files.NOT_PRIVATE if self.insecure else files.PRIVATE
        self.closed: FinishedRun | None = None
        self._read, self._clock = read, clock
        self._run: SpendingRun[Batch] | None = None
        self._is_unread = True
        if checked.root.schema.private_columns:
            self._begin()

    def _begin(self) -> SpendingRun[Batch]:
        """Open the budget. If the schema leaves codes open, learn them and plan again."""
        root, run = self._read.checked.root, self._read.begin()
        self._run = run
        with run:
            run.learn(self._clock)
            if root.schema.private_columns:
                self._clock.start("plan")
                left = root.target.within(run.mechanisms.ledger.limit - run.mechanisms.ledger.spent)
                self.plan = replace(root.work, domain=self._schema.domain(), target=left).measurable
        return run

    @property
    def _schema(self) -> Schema:
        (table,) = self._read.tables.values()
        return table.schema

    @property
    def ledger(self) -> tuple[Event, ...]:
        """All charges so far, in order."""
        return () if self._run is None else self._run.mechanisms.ledger.events

    @property
    def rho_spent(self) -> float:
        """The zCDP cost so far."""
        return 0.0 if self._run is None else float_above(self._run.mechanisms.ledger.spent.rho)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the batches; the metadata says whether the answers are private."""
        return COLUMNS.with_metadata({files.STAMP_KEY: self.stamp})

    def __len__(self) -> int:
        return self.plan.queries

    def __repr__(self) -> str:
        read = "reading them spends the budget, once" if self._is_unread else "read"
        stamp = ", NOT PRIVATE" if self.insecure else ""
        return (
            f"<Answers to {self.plan.queries:,} queries by {self.plan.choice.name}, "
            f"epsilon {self.target.epsilon:g}, delta {self.target.delta:g}, expected RMSE "
            f"{self.plan.rmse:.4g} rows{stamp}: {read}>"
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches()

    def batches(self, confidence: float = 0.95, formulas: str = "keep") -> Iterator[pa.RecordBatch]:
        """Return Arrow record batches whose size does not grow with the workload.

        Args:
            confidence: The probability with which each interval contains the true answer.
            formulas: Which values in the texts of queries are escaped for spreadsheet programs.

        Raises:
            InputError: If a parameter is out of range, or the answers were read before.
        """
        measure.interval_factor(confidence)
        kind = check_formulas(formulas)
        if not self._is_unread:
            raise InputError(
                "the answers were read before and reading them spends the budget: keep the file "
                "or table that they went to"
            )
        self._is_unread = False
        return self._stream(confidence, kind)

    def to_arrow(self, confidence: float = 0.95) -> pa.Table:
        """Return all answers as a pyarrow table.

        Raise ResourceExceeded if they exceed the maximum memory; nothing is spent.
        """
        with self._delivering():
            return self._table(confidence)

    def to_pandas(self, confidence: float = 0.95) -> Any:
        """Return all answers as a pandas data frame, whose ``attrs`` say if it is not private."""
        with self._delivering():
            frame = self._table(confidence).to_pandas()
            if self.stamp != files.PRIVATE:
                frame.attrs[files.STAMP_KEY.decode()] = self.stamp
            return frame

    def _table(self, confidence: float) -> pa.Table:
        limits, needed = self._read.checked.root.work.limits, self.plan.queries * HELD_BYTES
        most_bytes = int(limits.max_memory_bytes * (1 - ROWS_SHARE)) - PROCESS_BYTES
        if needed > most_bytes:
            raise ResourceExceeded(
                f"{self.plan.queries:,} answers take about {needed / 2**20:,.0f} MB in memory, "
                f"above the {most_bytes / 2**20:,.0f} MB of --max-memory that are left: "
                "write them to a file or read them in batches"
            )
        table = pa.Table.from_batches(list(self.batches(confidence)), self.arrow_schema)
        return table.unify_dictionaries()

    @contextmanager
    def _delivering(self) -> Iterator[None]:
        """Close the run at the end of the block; an error ends it in the state that it reached."""
        with ExitStack() as stack:
            stack.push(lambda *error: None if self._run is None else self._run.__exit__(*error))
            yield
            self.close()

    def write(
        self,
        path: str | Path,
        confidence: float = 0.95,
        formulas: str = "escape-learnt",
        force: bool = False,
    ) -> int:
        """Write all answers as .parquet, .csv or .csv.gz, with bounded memory.

        The file appears with the last answer, after its privacy statement (see ``manifest_path``).

        Args:
            path: The path of the file; its suffix is the format.
            confidence: As for :meth:`batches`.
            formulas: Which values that a spreadsheet program would run as formulas are escaped in
                CSV: "escape-learnt" those that were learnt, "escape" all and the names of columns,
                "keep" none.
            force: Replace existing files; a resumed run also replaces its own.

        Returns:
            The number of answers.

        Raises:
            InputError: If a file exists, cannot be written or has another suffix, before anything
                is spent; or as for :meth:`batches`.
            ResourceExceeded: If the disk has no room for the answers; nothing is spent.
        """
        check_table_path(path)
        kind = check_formulas(formulas)
        if not table_format(path).is_text:
            kind = "keep"
        options = self._read.checked.options
        replacing = force or (options.resume and is_from_interrupted_run(path, options.ledger))
        for file in (path, bundle.manifest_path(path)):
            files.check_new(file, replacing)
        check_room(self.plan.queries, path)
        with self._delivering(), bundle.with_manifest(path, replacing) as write_manifest:
            batches = self.batches(confidence, kind)

            def sealed(sha256: str) -> None:
                statement = self.statement(confidence)
                if self._run is not None:
                    digest = digest_of_statement(statement)
                    self._run.publish({MANIFEST: digest, ANSWERS_MEMBER: sha256})
                write_manifest(statement, sha256=sha256)

            return write_batches(batches, self.arrow_schema, path, REPEATING, sealed, replacing)

    def statement(self, confidence: float = 0.95) -> AnswersManifest:
        """Return the privacy statement; raise InputError before all answers are read."""
        if self._run is None or not self.seconds:
            raise InputError("the answers were not read to their end: read them first")
        place = self._run.mechanisms.ledger.place
        return state_answers(
            self.plan, self.target, self._schema, self.ledger, self.stamp, confidence, place
        )

    def close(self) -> None:
        """Confirm that the answers were delivered. A ledger then deletes its copy of them.

        Call it after an iteration; ``write``, ``to_arrow`` and ``to_pandas`` call it themselves.
        """
        if self._run is not None:
            self.closed = self._run.finish() or self.closed

    def _stream(self, confidence: float, formulas: Formulas) -> Iterator[pa.RecordBatch]:
        report, done = self._clock.steps("answer"), 0
        report(0, self.plan.queries)
        with self._read, self._run or self._begin() as run:
            (table,), plan, mechanisms = run.tables.values(), self.plan, run.mechanisms
            private = mechanisms.table(table.counter)
            sets = answer_sets(plan.mechanism, private, mechanisms, plan.target.units)
            for batch in answer_batches(sets, table.schema, confidence, formulas):
                done += batch.num_rows
                report(done, plan.queries)
                yield batch.replace_schema_metadata({files.STAMP_KEY: self.stamp})
            reach(Fault.MEASURED)
            self.seconds = self._clock.stop()


# Plans and answers as functions.


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
    budgets.warn_all(warnings, stacklevel=3)
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
    return batch.plan(), budgets.describe_refusals(warnings) if options.budgeted else ()


@with_options(AnswerOptions)
def answer(
    data: Any,
    schema: Any = None,
    workload: QuerySource = None,
    *,
    options: AnswerOptions,
    progress: PhaseProgress | None = None,
) -> Answers:
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
