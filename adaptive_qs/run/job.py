"""A run of either job, step by step: everything is checked before any budget is spent."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from adaptive_qs.arguments import RELATION
from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError, ResourceExceeded, WorkloadError
from adaptive_qs.machine import PROCESS_BYTES, ROWS_SHARE, PhaseClock, memory_bytes
from adaptive_qs.privacy.budget import BudgetWarning, check_budget_warnings, warn_all
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.mechanisms import Mechanisms, audited
from adaptive_qs.privacy.noise import EntropySource, InsecureSeed, SystemEntropy
from adaptive_qs.privacy.unit import DEFAULT_WEIGH, Unit
from adaptive_qs.release.statement import package_version
from adaptive_qs.run.budget import PrivacyTarget, Session
from adaptive_qs.run.options import BudgetOptions, RunOptions
from adaptive_qs.table.coded import MAX_ROWS, CodedTable, MarginalCounter
from adaptive_qs.table.encode import coded_bytes
from adaptive_qs.table.engines import (
    SCHEDULED,
    EngineOptions,
    open_engine,
    scheduler_warnings,
)
from adaptive_qs.table.engines.local import Spool, engine_for, preflight
from adaptive_qs.table.files import compute_sha256
from adaptive_qs.table.read import check_held
from adaptive_qs.table.schema import UNREVIEWED, Schema, check_reviewed, is_unreviewed
from adaptive_qs.workload.matrices import Custom
from adaptive_qs.workload.workload import QueryWorkload

if TYPE_CHECKING:  # a run that protects rows does not read the module of persons
    from adaptive_qs.table.persons import ContributionBound

# Threads and memory, decided from public quantities before anything is read.
#
# The number of private rows must not steer what is measured. So a fixed part of the memory is set
# aside for rows: the plan uses the number of rows that fit there, and a table that has more is
# refused before any budget is spent.


PLAIN = (str, Path, CodedTable)
"""Types of tables that are no rows of a query."""


@dataclass(frozen=True)
class Limits:
    """Ceilings that keep a run inside its memory; public.

    Attributes:
        max_memory_bytes: the ceiling of the whole process.
        workers: threads.
        most_rows: most rows of the private table and of a synthetic one.
        countable_rows: most rows whatever the memory.
        measured_cells: most cells of all measured cliques of the loop together.
        watched_cells: most cells of the marginals watched while a table is refined.
        kept_cells: most cells of counted marginals that are kept.
        scoring_workers: threads that score candidates.
    """

    max_memory_bytes: int
    workers: int
    most_rows: int
    countable_rows: int = MAX_ROWS
    measured_cells: int = 0
    watched_cells: int = 0
    kept_cells: int = 0
    scoring_workers: int = 1

    @classmethod
    def of(
        cls,
        domain: Domain,
        max_memory: int | str | None,
        workers: int,
        value_bytes: int,
        countable_rows: int = MAX_ROWS,
    ) -> Self:
        """Divide the memory between rows, of ``value_bytes`` for each attribute, and the rest.

        Raises:
            InputError: a ceiling that is not positive.
        """
        ceiling = memory_bytes(max_memory)
        fitting = int(ROWS_SHARE * ceiling) // (len(domain) * value_bytes)
        return cls(ceiling, workers, min(max(fitting, 1), countable_rows), countable_rows)

    @property
    def rows_bytes(self) -> int:
        """What is set aside for rows."""
        return int(ROWS_SHARE * self.max_memory_bytes)

    @property
    def opened_bytes(self) -> int:
        """What a file may take while its rows are read: nothing else is held then."""
        return self.max_memory_bytes - self.rows_bytes - PROCESS_BYTES

    @property
    def solver_bytes(self) -> int:
        """Most memory that one problem may take while others are solved at the same time."""
        return max(0, self.max_memory_bytes - PROCESS_BYTES) // self.workers

    def check_countable(self, num_rows: int, what: str = "the table") -> None:
        """Refuse a table with more rows than any engine counts; ``what`` is it, for the message.

        Raises:
            ResourceExceeded: There are too many; the message does not contain their number.
        """
        if num_rows > self.countable_rows:
            raise ResourceExceeded(
                f"{what} has more than {self.countable_rows:,} rows, the most that can be "
                "measured: give a part of it"
            )

    def check_rows(self, num_rows: int, what: str = "the table") -> None:
        """Refuse a table whose rows do not fit the memory set aside for them either.

        Raises:
            ResourceExceeded: as for :meth:`check_countable`.
        """
        self.check_countable(num_rows, what)
        if num_rows > self.most_rows:
            raise ResourceExceeded(
                f"{what} has more rows than the {self.most_rows:,} that fit a quarter of "
                f"{self.max_memory_bytes / 2**20:,.0f} MB: raise --max-memory, or use --engine auto"
            )


# The steps of a run.

OpenBudget = Callable[[], Mechanisms]
"""Reserves the budget; what is returned charges, then draws."""
Digest = Callable[[], Iterable[bytes]]
"""Returns what tells a private table from others, once that has been read."""


class Work(Protocol):
    """What a run measures, planned for as many codes as private columns can get.

    It is all in which synthetic tables and answers differ.
    """

    @property
    def limits(self) -> Limits:
        """Ceilings of memory and threads."""

    def list_warnings(self, target: PrivacyTarget, rows: int | None) -> tuple[BudgetWarning, ...]:
        """Return warnings about the budget, given the public row count if there is one."""

    def warnings(self, rows: int) -> tuple[str, ...]:
        """Return warnings about the accuracy for a table of about ``rows`` rows."""

    def request_fields(self) -> dict[str, str]:
        """Return what is measured and how, by which a ledger recognises the run."""


W = TypeVar("W", bound=Work)


@dataclass(frozen=True)
class Job(Generic[W]):
    """A run with everything checked that can be checked before the private table is read.

    Attributes:
        schema: the public description of the columns.
        options: as its user gave them.
        target: the budget.
        learning: the part of it for the bins and values that the schema leaves open.
        work: what is measured.
        warnings: warnings about the budget and what it can buy, from public numbers, and about a
            scheduler without TLS.
        session: the budget, in memory or in a ledger.
        before: called after the last check and before the first charge.
        more_fields: what else the run measures, of another table, in public words by which a ledger
            recognises it.
    """

    schema: Schema
    options: RunOptions
    target: PrivacyTarget
    learning: Cost
    work: W
    warnings: tuple[str, ...]
    session: Session
    before: Callable[[], None] | None = None
    more_fields: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        schema: Schema,
        options: RunOptions,
        budget: Callable[[Fraction | None], PrivacyTarget],
        plan: Callable[[Domain, PrivacyTarget], W],
        unit: Unit | None = None,
    ) -> Self:
        """Check the parameters.

        Args:
            schema: As for :func:`resolve_budget`.
            options: Likewise.
            budget: Likewise.
            unit: Likewise.
            plan: The work on a domain, with what learning leaves of the budget.

        Raises:
            InputError: a parameter or the workload is wrong, the schema is unreviewed, or the
                budget is beyond a limit of :mod:`adaptive_qs.privacy.budget`.
            ResourceExceeded: the plan exceeds the memory.
            LedgerError: the ledger cannot be used.
            BudgetExceeded: the ledger's total does not allow the budget.
        """
        check_reviewed(schema, options.unreviewed_schema)
        if options.scheduler is not None and options.engine not in SCHEDULED:
            raise InputError(
                f"--scheduler needs --engine dask; the engine is {options.engine}. Change the "
                "engine or remove --scheduler."
            )
        rows = options.public_rows
        target, learning = resolve_budget(schema, options, budget, unit)
        work = plan(schema.widest_domain(), target.within(target.budget - learning))
        found = work.list_warnings(target, rows)
        warnings = check_budget_warnings(found, options.beyond_limits or options.resume)
        warnings += scheduler_warnings(options.scheduler)
        if rows is not None and not options.resume:
            warnings += work.warnings(rows)
        session = Session(
            options.ledger,
            options.resume,
            target.budget,
            options.anchor,
            target.filtered,
            target.unit,
            (target.epsilon, target.delta),
        )
        return cls(schema, options, target, learning, work, warnings, session)

    def warn(self, insecure: str, stacklevel: int) -> None:
        """Show all warnings; ``insecure`` says what is not private with a noise seed."""
        warn_all(self.warnings, stacklevel + 1)
        if self.options.insecure:
            words = "insecure_seed: anyone who knows the seed can remove the noise"
            warnings.warn(f"{words}: {insecure} NOT PRIVATE", stacklevel=stacklevel + 1)
        if is_unreviewed(self.schema):
            warnings.warn(UNREVIEWED, stacklevel=stacklevel + 1)

    def read(
        self, source: Any, clock: PhaseClock, digest: Digest | None = None
    ) -> tuple[Schema, MarginalCounter, OpenBudget]:
        """Return the schema, what counts the table (close it), and how spending begins.

        Call it inside ``session.working``. What the schema leaves open is learnt, which begins to
        spend. Bad cells are refused before anything is reserved.

        Args:
            source: the private table.
            clock: reports the steps.
            digest: Returns by what a ledger recognises the tables of a set, whose rows are bounded
                already; without it, the source is read once, and its rows are bounded.

        Raises:
            InputError: the table does not fit the schema, or changed while it was read.
            ResourceExceeded: the engine has no room for its rows.
            LedgerError: the ledger cannot be written, or holds no such run to resume.
            BudgetExceeded: the ledger's total does not allow the budget.
        """
        schema, name, how = self.schema, self.options.engine, self._engine_options
        with ExitStack() as opened, ExitStack() as spooled:
            if digest is None:
                sums = self.options.ledger is not None
                keeps = schema.person is not None
                source, digest = spooled.enter_context(self.read_once(source, schema, sums, keeps))
                if schema.person is not None:
                    source = self._few_rows(source, clock)
            begin: OpenBudget = partial(self._begin, digest)
            if schema.open_columns:
                from adaptive_qs.learn.schema import learn_schema

                gathered, rows = self._gathered(source, clock)
                widest = schema.widest_domain()
                how = opened.enter_context(preflight(name, source, rows, widest, how))
                mechanisms = begin()
                learning = mechanisms.ledger.unit.for_rows(self.learning)
                schema = learn_schema(schema, gathered, mechanisms, learning)
                begin = _begun(mechanisms)
            steps = clock.steps("read")
            engine = opened.enter_context(open_engine(name, source, schema, how, steps))
            counter = MarginalCounter(engine)
            closing_engine = opened.pop_all()
        counter.owns(closing_engine.close)
        return schema, counter, begin

    def of_tables(self, *tables: Any) -> Self:
        """Return the run on these tables: its unit names the query, if a query makes rows of one.

        Of several queries it states none.
        """
        made = [table for table in tables if not isinstance(table, PLAIN)]
        if not made:
            return self
        from adaptive_qs.table.sql import digest_query

        found = {digest_query(table) for table in made} - {None}
        if not found:
            return self
        query = found.pop() if len(found) == 1 else RELATION
        target = replace(self.target, unit=replace(self.target.unit, query=query))
        return replace(self, target=target)

    @contextmanager
    def read_once(
        self, table: Any, schema: Schema, sums: bool, keeps: bool
    ) -> Iterator[tuple[Any, Digest]]:
        """Yield a private table that gives the same rows again, and by what a ledger knows it.

        Args:
            table: any.
            schema: of its files.
            sums: whether there is a ledger.
            keeps: whether rows are read again before they are coded.

        Raises:
            ResourceExceeded: its file takes too much memory while it is open.
        """
        how, learns = self._engine_options, bool(self.schema.open_columns)
        if not isinstance(table, PLAIN):
            from adaptive_qs.table.sql import as_source

            table = as_source(table, how)
        check_held(table, self.work.limits.opened_bytes, (*schema.names, *schema.set_aside))
        if isinstance(table, CodedTable):
            yield table, partial(coded_bytes, table)
            return
        by_workers = (
            isinstance(table, str | Path)
            and not keeps
            and engine_for(self.options.engine, how) == "dask"
        )
        keeps = keeps or (learns and not by_workers)
        sums = sums or (learns and by_workers)
        with closing(Spool(table, schema, how, keeps, sums)) as spool:
            yield spool, lambda: [spool.digest.encode()]

    def _few_rows(self, source: Any, clock: PhaseClock) -> ContributionBound:
        from adaptive_qs.table.persons import ContributionBound, count_persons

        unit, schema, most_bytes = self.target.unit, self.schema, self.work.limits.rows_bytes
        steps, alike = clock.steps("persons"), unit.weigh != DEFAULT_WEIGH
        counted = count_persons(source, schema, most_bytes, steps)
        if alike:  # refuse rows that cannot be held before they are repeated
            how, rows = self._engine_options, counted.num_rows * unit.rows
            held = how.check_held if self.options.engine == "memory" else None
            for check in filter(None, (how.check_rows, held)):
                check(rows)
        return ContributionBound.from_source(
            source, schema, unit.rows, most_bytes, steps, alike, counted
        )

    def _gathered(self, source: Any, clock: PhaseClock) -> tuple[Any, int]:
        """Return what is to be learnt from, and the number of rows; refuse bad cells."""
        from adaptive_qs.learn.schema import gather_private

        limits, schema, steps, rows = self.work.limits, self.schema, clock.steps("learn"), 0

        def check_rows(number: int) -> None:
            nonlocal rows
            rows = number
            limits.check_countable(number)

        gathered = gather_private(
            source, schema, self.learning,
            most_bytes=limits.rows_bytes, progress=steps, check_rows=check_rows,
        )  # fmt: skip
        return gathered, rows

    @property
    def _engine_options(self) -> EngineOptions:
        limits, options, unit = self.work.limits, self.options, self.target.unit
        what = "the table"
        if unit.weigh != DEFAULT_WEIGH:
            what = f"the table, with {unit.rows:,} rows for each person,"
        return EngineOptions(
            workers=limits.workers,
            rows_bytes=limits.rows_bytes,
            check_rows=partial(limits.check_countable, what=what),
            check_held=partial(limits.check_rows, what=what),
            temp_folder=options.temp_folder,
            scheduler=options.scheduler,
        )

    def request(self) -> dict[str, str]:
        """Everything public that decides what is released, by the names that its user knows.

        A ledger recognises the run by these words when it is resumed.
        """
        from adaptive_qs.ledger.entries import budget_text, cost_text

        target, seed = self.target, self.options.insecure_seed
        return {
            "version": package_version(),
            "schema": compute_sha256([self.schema.to_json().encode()]),
            "budget": budget_text(target.budget, target.epsilon, target.delta),
            "unit": f"{target.unit.name}; {target.unit.relation}",
            "learning share": cost_text(self.learning),
            "noise seed": "none" if seed is None else str(seed),
            **self.work.request_fields(),
            **self.more_fields,
        }

    def _begin(self, digest: Digest) -> Mechanisms:
        self.session.recognise(digest())
        budget = self.session.begin(self.request, self.options.insecure, self.target.unit)
        mechanisms = audited(budget) or Mechanisms(budget, choose_entropy(self.options))
        if self.before is not None:
            self.before()
        return mechanisms


def resolve_budget(
    schema: Schema,
    options: BudgetOptions,
    budget: Callable[[Fraction | None], PrivacyTarget],
    unit: Unit | None = None,
) -> tuple[PrivacyTarget, Cost]:
    """Return the budget of a run and the cost of learning.

    Args:
        schema: The schema of the run.
        options: The options of the run.
        budget: Returns the budget, given the part of δ for discovering values; None if nothing is
            learnt.
        unit: whom it protects; by default what the schema and the options name.

    Raises:
        InputError: the budget is out of range, or too small to learn from, or a person column and
            the number of rows that count do not go together.
    """
    unit = unit or Unit.of(
        schema.person, options.rows_per_person, options.neighbours, options.weigh
    )
    if not schema.open_columns:
        return budget(None).protecting(unit), Cost()
    from adaptive_qs.learn.schema import column_costs, discovery_share, preprocessing_cost

    target = budget(discovery_share(schema)).protecting(unit)
    learning = preprocessing_cost(schema, target.budget, options.learning_share)
    column_costs(schema, unit.for_rows(learning))
    return target, learning


def check_learnable(workload: QueryWorkload, schema: Schema) -> None:
    """Refuse queries that depend on how many codes a column will have once it is learnt.

    Raises:
        WorkloadError: a custom matrix covers such a column; nothing has been spent.
    """
    names = workload.domain.names
    learnt = {names.index(name) for name in schema.private_columns}
    for part in workload.parts:
        for index, clique in enumerate(part.cliques.tolist()):
            if learnt.intersection(clique) and any(
                isinstance(queries, Custom) for queries in part.queries(index)
            ):
                named = " x ".join(names[i] for i in clique)
                raise WorkloadError(
                    f"a custom matrix covers {named}, of which bins or values are still to be "
                    "learnt: declare them"
                )


def _begun(mechanisms: Mechanisms) -> OpenBudget:
    return lambda: mechanisms


def choose_entropy(options: RunOptions) -> EntropySource:
    """Where the noise of a run comes from.

    Raises:
        InputError: its seed is not a non-negative integer.
    """
    seed = options.insecure_seed
    return SystemEntropy() if seed is None else InsecureSeed(seed)
