"""The states of a run: checked, read, spending, finished. The budget is opened after all reading.

    checked = check_tables(schema, options)  # nothing is read
    with checked.read(tables, clock) as read:  # nothing is spent
        with read.begin() as run:  # the budget is reserved
            run.learn(clock)  # bins and values that the schema leaves open
            release = ...  # measured through run.mechanisms
            run.publish(release.digests())
            ...  # outputs are written
            run.finish()  # outputs are in place

An error inside a block says what became of the budget.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, cast
from weakref import finalize

from adaptive_qs.errors import AdaptiveQsError, BudgetExceeded, InputError, LedgerError, SpentNote
from adaptive_qs.machine import PROCESS_BYTES, Fault, PhaseClock, reach
from adaptive_qs.privacy.budget import Budget, Ledger, check_process, this_process, warn_all
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.mechanisms import Mechanisms, audited
from adaptive_qs.privacy.noise import EntropySource, InsecureSeed, SystemEntropy
from adaptive_qs.release.statement import package_version
from adaptive_qs.run.budget import Member, W
from adaptive_qs.run.options import RunOptions
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.table.encode import coded_bytes
from adaptive_qs.table.engines import EngineOptions, open_engine, scheduler_warnings
from adaptive_qs.table.engines.local import Spool, engine_for, preflight
from adaptive_qs.table.files import compute_sha256
from adaptive_qs.table.read import check_held
from adaptive_qs.table.schema import UNREVIEWED, Schema, is_unreviewed
from adaptive_qs.table.tables import TableSet

if TYPE_CHECKING:  # most runs use no ledger and no person column
    from adaptive_qs.ledger.book import LedgerBook
    from adaptive_qs.ledger.run import LedgerRun

LOST = SpentNote("part of the budget was spent and nothing was kept: count all of it as spent")
IN_PLACE = SpentNote("the budget is spent, and what it bought is in place")


# Checked: nothing is read.


@dataclass(frozen=True)
class CheckedRun(Generic[W]):
    """A run of which everything is checked that does not depend on rows.

    Attributes:
        members: The tables by name, root first.
        warnings: Warnings about the budget and what it can buy, from public numbers.
        book: The ledger; None keeps the budget in memory.
    """

    schema: TableSet
    options: RunOptions
    members: Mapping[str, Member[W]]
    warnings: tuple[str, ...]
    book: LedgerBook | None

    @classmethod
    def of(cls, schema: TableSet, options: RunOptions, members: Mapping[str, Member[W]]) -> Self:
        """Return a run on planned members, after the last checks without rows.

        Raises:
            InputError: If the budget is beyond a limit, or options do not fit each other.
            LedgerError: If the ledger cannot be used, or has no interrupted run to resume.
            BudgetExceeded: If the ledger does not have the budget.
        """
        if options.ledger is None and options.resume:
            raise InputError("--resume needs --ledger. Name the ledger of the interrupted run.")
        if options.ledger is None and options.anchor is not None:
            raise InputError("--anchor needs --ledger. Name the ledger of the anchor.")
        root, *others = members
        known = members[root].list_warnings(options, options.public_rows)
        for name in others:
            found = members[name].list_warnings(options, None)
            known += tuple(f"{name}: {text}" for text in found if text not in known)
        known += scheduler_warnings(options.scheduler)
        target, book = members[root].target, None
        if options.ledger is not None:
            from adaptive_qs.ledger.book import LedgerBook

            book = LedgerBook(options.ledger, options.anchor)
            try:
                book.check_unit(target.unit)
                if options.resume:
                    book.interrupted()
                else:
                    book.check_remaining(target.budget, target.loss)
            except (BudgetExceeded, LedgerError):
                book.close()
                raise
        return cls(schema, options, members, known, book)

    @property
    def root(self) -> Member[W]:
        """The table of which one row is protected."""
        return next(iter(self.members.values()))

    def warn(self, insecure: str, stacklevel: int) -> None:
        """Show all warnings; ``insecure`` says what is not private with a noise seed."""
        warn_all(self.warnings, stacklevel + 1)
        if self.options.insecure:
            words = "insecure_seed: anyone who knows the seed can remove the noise"
            warnings.warn(f"{words}: {insecure} NOT PRIVATE", stacklevel=stacklevel + 1)
        if is_unreviewed(self.root.schema):
            warnings.warn(UNREVIEWED, stacklevel=stacklevel + 1)

    def request(self) -> dict[str, str]:
        """Return everything public that decides what is released, by the names that users know.

        A ledger recognises the run by it when it is resumed.
        """
        from adaptive_qs.ledger.entries import budget_text, cost_text

        root, seed = self.root, self.options.insecure_seed
        target, unit = root.target, root.target.unit
        fields = {
            "version": package_version(),
            "schema": compute_sha256([root.schema.to_json().encode()]),
            "budget": budget_text(target.budget, target.loss),
            "unit": f"{unit.name}; {unit.relation}",
            "learning share": cost_text(root.learning),
            "noise seed": "none" if seed is None else str(seed),
            **root.work.request_fields(),
        }
        for name, member in list(self.members.items())[1:]:
            own = member.work.request_fields()
            fields |= {f"{name}: {field}": text for field, text in own.items()}
        if self.schema.is_set:
            fields["tables"] = compute_sha256([self.schema.to_json().encode()])
        return fields

    def read(self, tables: Mapping[str, Any], clock: PhaseClock) -> ReadRun[W]:
        """Read the private tables, and refuse every cell that does not fit; spend nothing.

        Raises:
            InputError: If a table does not fit the schema, or changed while it was read.
            ResourceExceeded: If there is no room for the rows.
        """
        run = ReadRun(self)
        try:
            run._read(tables, clock)
        except BaseException:
            run.close()
            raise
        return run


# Read: every cell is coded or spooled, and nothing is spent.


@dataclass
class ReadTable(Generic[W]):
    """A private table whose cells are checked; never shown.

    Attributes:
        schema: Its schema, after learning with everything learnt.
        source: Its rows, which can be read again until they are coded.
        gathered: The values to learn from; None if nothing is left to be learnt.
        counter: Counts the coded rows; None until everything is learnt.
    """

    member: Member[W]
    schema: Schema
    source: Any = field(repr=False)
    how: EngineOptions
    gathered: Any = field(default=None, repr=False)
    counter: Any = field(default=None, repr=False)


class ReadRun(Generic[W]):
    """A run whose tables were read, before its budget is opened.

    It owns the rows: leaving the block, or an error, removes them, and closes a ledger that the run
    did not begin to use.
    """

    def __init__(self, checked: CheckedRun[W]) -> None:
        self.checked = checked
        self.tables: dict[str, ReadTable[W]] = {}
        self._once: list[Any] = []
        self._process = this_process()
        self._opening = threading.Lock()
        self._is_spending = False
        self._spools, self._rows = ExitStack(), ExitStack()
        self._free_rows = finalize(self, self._rows.close)  # also when the run is dropped

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Forget the rows."""
        self._free_rows()
        self._spools.close()
        self._once.clear()
        for table in self.tables.values():
            table.source = table.counter = None
        if self.checked.book is not None and not self._is_spending:
            self.checked.book.close()

    def begin(self) -> SpendingRun[W]:
        """Reserve the budget, or take up the interrupted run.

        Raises:
            BudgetExceeded: If the ledger does not have the budget.
            InputError: If this process was forked from the one that read the tables, or the budget
                was opened before: a copy of the run would spend it again.
            LedgerError: If the ledger cannot be written, or has no such run to resume.
        """
        check_process(self._process)
        if not self._opening.acquire(blocking=False):
            raise InputError(
                "The budget is already open, and copies of a run share it. Begin another run."
            )
        checked, options = self.checked, self.checked.options
        target, book = checked.root.target, checked.book
        how: Any = {"filtered": target.filtered, "unit": target.unit}
        ledger: Ledger
        if book is None:
            ledger = Budget(target.budget.rho, target.budget.delta, **how)
        else:
            from adaptive_qs.ledger.files import keyed_hash

            inputs = keyed_hash(book.path, self._identify(), make=not options.resume)
            if options.resume:
                ledger = book.resume(checked.request(), inputs, **how)
            else:
                request, insecure = checked.request(), options.insecure
                ledger = book.reserve(request, inputs, target.budget, insecure, **how)
        self._is_spending = True
        with SpendingRun(self, ledger) as run:
            run.mechanisms = audited(ledger) or Mechanisms(ledger, choose_entropy(options))
        return run

    def learn(self, mechanisms: Mechanisms, clock: PhaseClock) -> None:
        """Learn what the schemas leave open, and code the tables."""
        for table in self.tables.values():
            if table.gathered is not None:
                from adaptive_qs.learn.schema import learn_schema

                cost = mechanisms.ledger.unit.for_rows(table.member.learning)
                table.schema = learn_schema(table.schema, table.gathered, mechanisms, cost)
                table.gathered = None
                self._code(table, clock)
        self._spools.close()

    def _code(self, table: ReadTable[W], clock: PhaseClock) -> None:
        """Code a table once all its bins and values are known; this can read its source again."""
        name, steps = self.checked.options.engine, clock.steps("read")
        opened = open_engine(name, table.source, table.schema, table.how, steps)
        table.counter = MarginalCounter(self._rows.enter_context(opened))
        table.source = None

    def _read(self, tables: Mapping[str, Any], clock: PhaseClock) -> None:
        checked = self.checked
        if checked.schema.is_set:
            clock.start("read")
        sources = {name: self._read_once(name, table) for name, table in tables.items()}
        if checked.schema.is_set:
            from adaptive_qs.table.joined import join_tables  # few runs need it

            sources = join_tables(sources, checked.schema, checked.root.work.limits.rows_bytes)
        elif checked.root.schema.person is not None:
            name = checked.schema.root
            sources[name] = _bound_rows(sources[name], checked.root, checked.options, clock)
        for name, member in checked.members.items():
            how = member.engine_options(checked.options)
            table = self.tables[name] = ReadTable(member, member.schema, sources[name], how)
            if member.schema.open_columns:
                self._gather(table, clock)
            else:
                self._code(table, clock)
        if all(table.gathered is None for table in self.tables.values()):
            self._spools.close()

    def _read_once(self, name: str, table: Any) -> Any:
        """Return a private table that gives the same rows again, from one reading."""
        checked, schema = self.checked, self.checked.schema.tables[name]
        member, options = checked.members[name], checked.options
        how, learns = member.engine_options(options), bool(member.schema.open_columns)
        limits = member.work.limits
        left = limits.max_memory_bytes - limits.rows_bytes - PROCESS_BYTES
        check_held(table, left, (*schema.names, *schema.set_aside))
        if not isinstance(table, CodedTable):
            keeps = checked.schema.is_set or schema.person is not None
            sums = checked.book is not None
            if learns and not keeps:  # workers read files themselves
                dask = engine_for(options.engine, how) == "dask"
                keeps = not (dask and isinstance(table, str | Path))
                sums |= not keeps
            table = Spool(table, schema, how, keeps, sums)
            self._spools.callback(table.close)
        self._once.append(table)
        return table

    def _gather(self, table: ReadTable[W], clock: PhaseClock) -> None:
        """Gather what is to be learnt from; refuse bad cells, and tables without room."""
        from adaptive_qs.learn.gather import gather

        limits, schema, rows = table.member.work.limits, table.schema, 0

        def check_rows(number: int) -> None:
            nonlocal rows
            rows = number
            limits.check_countable(number)

        steps = clock.steps("learn")
        table.gathered = gather(table.source, schema, limits.rows_bytes, steps, check_rows)
        engine, widest = self.checked.options.engine, schema.widest_domain()
        checks = preflight(engine, table.source, rows, widest, table.how)
        table.how = self._rows.enter_context(checks)

    def _identify(self) -> Iterable[bytes]:
        """Yield the bytes by which a ledger recognises the tables; private."""
        for table in self._once:
            if isinstance(table, CodedTable):
                yield from coded_bytes(table)
            else:
                yield table.digest.encode()
            if self.checked.schema.is_set:
                yield b"\n"


def _bound_rows(source: Any, member: Member[Any], options: RunOptions, clock: PhaseClock) -> Any:
    """Return a source with at most K rows of each person."""
    from adaptive_qs.table.persons import ContributionBound

    rows, most_bytes = member.target.unit.rows, member.work.limits.rows_bytes
    steps = clock.steps("persons")
    return ContributionBound.from_source(source, member.schema, rows, most_bytes, steps)


# Spending: every release is charged first. Finished: the outputs are in place.


@dataclass(frozen=True)
class FinishedRun:
    """A finished run, and what its ledger has left.

    Attributes:
        left: The budget that is left for other runs.
        head: Number and hash of the newest entry of the ledger.
    """

    path: Path
    run: int
    left: Cost
    head: str


class SpendingRun(Generic[W]):
    """A run whose budget is open.

    An error that leaves the block gets a note on what became of the budget. A run on a ledger that
    released something can then be resumed; otherwise its budget is freed. The tables are by name,
    root first.
    """

    mechanisms: Mechanisms

    def __init__(self, read: ReadRun[W], ledger: Ledger) -> None:
        self.checked, self.tables = read.checked, read.tables
        self._read, self._ledger = read, ledger
        self._run = None if self.checked.book is None else cast("LedgerRun", ledger)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        noted = any(isinstance(n, SpentNote) for n in getattr(error, "__notes__", ()))
        if not isinstance(error, GeneratorExit) and not noted and self._has_charged():
            delivered = self._run is not None and self._run.finished
            error.add_note(IN_PLACE if delivered else self.note or LOST)
        self.leave()

    @property
    def note(self) -> SpentNote | None:
        """The note that a ledger keeps what was released; None if it does not."""
        return self._run.note() if self._run and not self._run.finished else None

    def _has_charged(self) -> bool:
        if self._run is None:
            return self.checked.book is None and bool(self._ledger.events)
        try:
            return self._run.finished or self._run.charged
        except AdaptiveQsError:
            return True  # the ledger cannot be read at present

    def learn(self, clock: PhaseClock) -> None:
        """Learn the bins and values that the schemas leave open, and code the tables."""
        self._read.learn(self.mechanisms, clock)

    def publish(self, digests: Mapping[str, str]) -> None:
        """Record in a ledger the SHA-256 of each part of the output before it is delivered."""
        if self._run is not None:
            self._run.publish(digests)

    def finish(self) -> FinishedRun | None:
        """Close the run, whose outputs are in place; return None without a ledger."""
        if self._run is None or (book := self.checked.book) is None:
            return None
        from adaptive_qs.ledger.entries import parse_body
        from adaptive_qs.ledger.files import Mark

        reach(Fault.DELIVERED)
        number, last = self._run.number, self._run.finish()
        left = book.left_beside(parse_body(last.body).held, self.checked.root.target.budget)
        self._run = None
        return FinishedRun(book.path, number, left, str(Mark(last.number, last.hash)))

    def leave(self) -> None:
        """End work on an unfinished run; it can be resumed if it released anything."""
        if self._run is not None:
            with suppress(AdaptiveQsError):  # the budget stays reserved then
                self._run.leave()
            self._run = None
        if self.checked.book is not None:
            self.checked.book.close()


def choose_entropy(options: RunOptions) -> EntropySource:
    """Return the source of the noise; InputError if the seed is not a non-negative integer."""
    seed = options.insecure_seed
    return SystemEntropy() if seed is None else InsecureSeed(seed)
