"""The replay audit: both jobs on generated neighbours in every form, with the same noise."""

from __future__ import annotations

import tempfile
import warnings
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from adaptive_qs.answering.api import answer
from adaptive_qs.answering.measure import answer_batches, answer_sets
from adaptive_qs.answering.plan import Batch as Work
from adaptive_qs.answering.plan import answers_limits
from adaptive_qs.arguments import DEFAULT_SHARE, check_choice
from adaptive_qs.audit.tables import (
    FORMS,
    KINDS,
    Pair,
    Rows,
    Types,
    keyed,
    neighbour_pairs,
    no_rows,
    of_unit,
    stand_in,
    write_rows,
)
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.learn.schema import discovery_share, preprocessing_cost
from adaptive_qs.machine import PhaseClock, StepProgress, memory_bytes
from adaptive_qs.privacy.budget import Budget, Ledger
from adaptive_qs.privacy.events import Event, GaussianEvent, PartitionEvent, SelectionEvent
from adaptive_qs.privacy.mechanisms import Counts, Mechanisms, PrimitiveCall, auditing
from adaptive_qs.privacy.noise import EntropySource, InsecureSeed
from adaptive_qs.privacy.unit import DEFAULT_NEIGHBOURS, DEFAULT_WEIGH, ROWS, Unit
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.run.job import Limits, check_learnable
from adaptive_qs.run.tables import QueryStrategies, Tables, measure, tables_limits
from adaptive_qs.strategy.mechanism import Mechanism
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.engines import DEFAULT_ENGINE, ENGINES
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.file import QuerySource, WorkloadFile, other_queries, resolve_queries
from adaptive_qs.workload.workload import Workload

# The two things that spend budget, `Synthesizer.fit` and `answer`, with all that they publish.

MAX_MEMORY = 2**31
"""Where no other ceiling is given; findings should not depend on the machine."""

CONSENT: Mapping[str, Any] = {"unreviewed_schema": True, "beyond_limits": True}

Source = Any
"""A file or a data frame, for `fit` and `answer`; or codes, which are measured as they are where
the schema leaves nothing to be learnt: `fit` and `answer` refuse a table without rows."""


def least_memory(plan: Callable[[int], Any], most: int) -> int:
    """The least ceiling of memory (bytes), up to ``most``, that a plan accepts."""

    def fits(memory: int) -> bool:
        try:
            plan(memory)
        except ResourceExceeded:
            return False
        return True

    return bisect_left(range(1, most), True, key=fits) + 1


@dataclass(frozen=True)
class Synthesis:
    """`Synthesizer.fit` of the marginals that matter, over as many codes as there can be, with the
    budget and the ceilings (``plan``) that it makes: its bundle and a table sampled from it."""

    schema: Schema
    marginals: Workload
    target: PrivacyTarget
    plan: Limits
    engine: str = DEFAULT_ENGINE
    scheduler: Any = None
    asked: QuerySource = None
    """The workload where it asks for more than the cells of marginals."""

    name = "synthesize"

    @classmethod
    def of(
        cls,
        schema: Schema,
        queries: QuerySource,
        rho: float,
        max_memory: int | str = MAX_MEMORY,
        unit: Unit = ROWS,
    ) -> Self:
        """Plan a run on the marginals that the queries ask about.

        Raises:
            InputError: the queries do not fit the schema, or the budget what is to be learnt.
            ResourceExceeded: the workload does not fit the memory.
        """
        learnt = len(schema.open_columns)
        target = PrivacyTarget.of(
            rho=rho,
            discovery_share=discovery_share(schema),
            column_share=DEFAULT_SHARE / learnt if learnt else 0.0,
        ).protecting(unit)
        preprocessing_cost(schema, target.budget)
        domain = schema.widest_domain()
        marginals = resolve_queries(queries, domain).marginals()
        limits = tables_limits(domain, marginals, max_memory, 1)
        asked = None if other_queries(queries) is None else queries
        return cls(schema, marginals, target, limits, asked=asked)

    def at_ceiling(self) -> Self:
        """The same with the least memory that it can be planned for.

        Then the cells of all measured marginals together may be no more than those of the largest.
        """

        def planned(memory: int) -> Limits:
            return tables_limits(self.schema.widest_domain(), self.marginals, memory, 1)

        return replace(self, plan=planned(least_memory(planned, self.plan.max_memory_bytes)))

    def publish(
        self, source: Source, mechanisms: Mechanisms, folder: Path, sampled: bool
    ) -> Mapping[str, bytes]:
        """Spend the budget on a table.

        Args:
            source: the rows.
            mechanisms: all draws pass it.
            folder: for the files.
            sampled: whether to publish a sampled table as well, which is slow.

        Returns:
            Every byte that would leave, by name.
        """
        marginals, target, plan = self.marginals, self.target, self.plan
        if isinstance(source, CodedTable):
            served = QueryStrategies.of(self.asked, marginals.domain)
            rho = target.within(target.budget).rho
            work = Tables(marginals, plan, rho, served=served)
            clock, counter = PhaseClock(), MarginalCounter(source)
            release = measure(counter, self.schema, marginals, target, work, mechanisms, clock)
        else:
            workload: Any = marginals if self.asked is None else self.asked
            if self.asked is None and self.schema.open_columns:  # whose sizes are to be learnt
                workload = folder / "workload.json"
                workload.write_text(WorkloadFile.of(marginals).model_dump_json(exclude_none=True))
            model = Synthesizer(
                rho=target.rho,
                workload=workload,
                max_memory=plan.max_memory_bytes,
                workers=plan.workers,
                engine=self.engine,
                scheduler=self.scheduler,
                **_counting(target.unit),
                **CONSENT,
            )
            with made_up(mechanisms):
                release = model.fit(source, schema=self.schema).release_
        path = folder / "release.zip"
        release.save(path, force=True)
        artefacts = {"release bundle": path.read_bytes()}
        if sampled:
            artefacts["sampled table"] = table_bytes(release.draw(seed=1).table())
        return artefacts


@dataclass(frozen=True)
class Batch:
    """`answer`: answers to queries, with their errors and intervals, and their statement.

    Attributes:
        schema: the public description of the columns.
        queries: what is answered.
        target: the budget.
        choice: name of the mechanism.
        limits: ceilings, as `answer` makes them.
        planned: what is measured, with integer strategies; None where codes are to be learnt.
        engine: what counts.
        scheduler: where it finds its workers.
    """

    schema: Schema
    queries: QuerySource
    target: PrivacyTarget
    choice: str
    limits: Limits
    planned: Mechanism | None
    engine: str = DEFAULT_ENGINE
    scheduler: Any = None

    name = "answer"

    @classmethod
    def of(
        cls,
        schema: Schema,
        queries: QuerySource,
        rho: float,
        choice: str = "auto",
        max_memory: int | str = MAX_MEMORY,
        unit: Unit = ROWS,
    ) -> Self:
        """Plan a batch by the mechanism that is chosen.

        Raises:
            InputError: the mechanism is unknown, cannot answer such queries, or they do not fit
                the schema.
            ResourceExceeded: a strategy takes too much memory.
        """
        schema = schema.without_heaps()
        learns = bool(schema.private_columns)
        share = discovery_share(schema) if learns else None
        target = PrivacyTarget.of_answers(rho=rho, discovery_share=share).protecting(unit)
        widest = schema.widest_domain()
        resolved = resolve_queries(queries, widest)
        check_learnable(resolved, schema)
        limits = answers_limits(widest, memory_bytes(max_memory), 1)
        if learns:
            return cls(schema, queries, target, choice, limits, None)
        left = target.within(target.budget)
        planned = Work(resolved, widest, left, limits, choice).measurable.mechanism
        return cls(schema, resolved, target, choice, limits, planned)

    def publish(
        self, source: Source, mechanisms: Mechanisms, folder: Path, sampled: bool
    ) -> Mapping[str, bytes]:
        """See :meth:`Synthesis.publish`; there is nothing to sample."""
        if isinstance(source, CodedTable):
            assert self.planned is not None, "codes leave nothing to be learnt"
            units = self.target.within(self.target.budget).units
            sets = answer_sets(
                self.planned, mechanisms.table(MarginalCounter(source)), mechanisms, units
            )
            return {
                "answers": table_bytes(pa.Table.from_batches(answer_batches(sets, self.schema)))
            }
        with made_up(mechanisms):
            answers = answer(
                source,
                self.schema,
                self.queries,
                rho=self.target.rho,
                mechanism=self.choice,
                workers=self.limits.workers,
                max_memory=self.limits.max_memory_bytes,
                engine=self.engine,
                scheduler=self.scheduler,
                **_counting(self.target.unit),
                **CONSENT,
            )
            table = answers.to_arrow()
        statement = answers.statement().model_dump_json().encode()
        return {"answers": table_bytes(table), "statement of the answers": statement}


Publisher = Synthesis | Batch
"""Something that spends a budget on a table."""


def _counting(unit: Unit) -> dict[str, Any]:
    """The unit as options of a run, of a schema that names the person column."""
    counting = {"rows_per_person": unit.asked, "weigh": unit.weigh}
    return {**counting, "neighbours": unit.neighbours}


@contextmanager
def made_up(mechanisms: Mechanisms) -> Iterator[None]:
    """Runs on rows that are made up, whose owner need not be warned of anything."""
    with auditing(mechanisms), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def table_bytes(table: pa.Table) -> bytes:
    """All of a table, with the types of its columns."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


# The replay audit: `fit` and `answer` on generated neighbours in every form, the same noise.

Job = Callable[[Mechanisms], Mapping[str, bytes]]
"""Code under audit: it draws from the mechanisms only, and returns all that it would publish."""


class Diverged(Exception):
    """A replayed run asked for something else, ``event``, than the recorded one."""

    def __init__(self, event: Event) -> None:
        super().__init__("the run on the neighbour took another course")
        self.event = event


class Recorder(Mechanisms):
    """Charges and draws as usual, and keeps every call.

    Attributes:
        calls: one for each draw, in order, with its private inputs.
    """

    def __init__(self, ledger: Ledger, entropy: EntropySource) -> None:
        """Record what is drawn from ``entropy`` after a charge to ``ledger``."""
        self.calls: list[PrimitiveCall] = []
        super().__init__(ledger, entropy, self.calls.append)


class Replayer(Recorder):
    """Charges as usual, but hands out what another run drew, as long as it asks for the same.

    Every draw raises :class:`Diverged` where its event is not the recorded one.
    """

    def __init__(
        self, ledger: Ledger, entropy: EntropySource, recorded: Sequence[PrimitiveCall]
    ) -> None:
        """Replay ``recorded``; of ``entropy`` only counts whether it is insecure."""
        super().__init__(ledger, entropy)
        self._recorded = iter(recorded)

    def _next_output(self, event: Event, *private: object) -> Any:
        call = next(self._recorded, None)
        if call is None or call.event != event:
            raise Diverged(event)
        return call.output

    _draw_counts = _draw_selection = _draw_values = _next_output  # type: ignore[assignment]


@dataclass(frozen=True)
class Run:
    """What one run did, private inputs included: every draw, every event in the ledger, and what it
    would publish, by name. A replay may have stopped at an event (its label) where it left the
    recorded course, or at an error (its type)."""

    calls: tuple[PrimitiveCall, ...]
    charged: tuple[Event, ...]
    artefacts: Mapping[str, bytes]
    stopped_at: str | None = None
    failure: str | None = None


def record(job: Job, ledger: Ledger, entropy: EntropySource, known: Run | None = None) -> Run:
    """Run a job and keep all that it drew.

    Args:
        job: the code.
        ledger: an unspent one.
        entropy: what is drawn from.
        known: a run of the job on a neighbouring table, whose outputs are handed out again; then
            nothing is drawn, and an error is a finding.
    """
    if known is None:
        mechanisms = Recorder(ledger, entropy)
    else:
        mechanisms = Replayer(ledger, entropy, known.calls)
    stopped_at = failure = None
    artefacts: Mapping[str, bytes] = {}
    try:
        artefacts = job(mechanisms)
    except Diverged as error:
        stopped_at = error.event.label
    except Exception as error:
        if known is None:
            raise
        failure = type(error).__name__
    return Run(tuple(mechanisms.calls), tuple(ledger.events), artefacts, stopped_at, failure)


class Check(StrEnum):
    """What is compared."""

    COURSE = "the same draws in the same order, with the same parameters"
    CHARGED = "every draw charged"
    COUNTS = "counts differ by at most the sensitivity charged"
    SCORES = "scores differ by at most the sensitivity declared"
    OUTPUTS = "outputs equal to the last byte"
    SEEN = "the row that differs is seen"


class Finding(NamedTuple):
    """A check that failed, in which run and about which event or artefact; no private value."""

    check: Check
    where: str
    label: str


@dataclass
class AuditReport:
    """What an audit did and found; nothing in it is private.

    Attributes:
        pairs: pairs of neighbouring tables.
        runs: runs that were replayed.
        draws: noisy releases and selections that were compared.
        moved: those whose private inputs differed between the neighbours.
        made: comparisons by check.
        findings: comparisons that failed, in order.
    """

    pairs: int = 0
    runs: int = 0
    draws: int = 0
    moved: int = 0
    made: Counter[Check] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def note(self, check: Check, passed: bool, where: str, label: str) -> None:
        """Count a check; keep it where it failed."""
        self.made[check] += 1
        if not passed:
            self.findings.append(Finding(check, where, label))


def compare(recorded: Run, replayed: Run, where: str, report: AuditReport) -> None:
    """Compare a run with its replay on a neighbour; ``where`` names the two in findings.

    The report receives the checks, and how many draws there were and had inputs that differed.
    """
    finished = replayed.stopped_at is None and replayed.failure is None
    for run in (recorded, replayed):
        drawn = tuple(call.event for call in run.calls)
        # An event at which a replay stops is charged and not drawn.
        same = drawn == run.charged[: len(drawn)]
        complete = len(drawn) == len(run.charged) or (run is replayed and not finished)
        report.note(Check.CHARGED, same and complete, where, _first_difference(run))
    report.draws += len(recorded.calls)
    for one, other in zip(recorded.calls, replayed.calls):
        report.note(Check.COURSE, _same_request(one, other), where, other.event.label)
        report.moved += not (
            np.array_equal(one.inputs, other.inputs) and one.values == other.values
        )
        _compare_inputs(one, other, where, report)
    if not finished:
        stop = replayed.stopped_at
        label = f"stopped by {replayed.failure}" if stop is None else stop
        report.note(Check.COURSE, False, where, label)
        return
    as_long = len(recorded.calls) == len(replayed.calls)
    report.note(Check.COURSE, as_long, where, "number of draws")
    for name in sorted({*recorded.artefacts, *replayed.artefacts}):
        equal = recorded.artefacts.get(name) == replayed.artefacts.get(name)
        report.note(Check.OUTPUTS, equal, where, name)


def squared_distance(one: Counts, other: Counts) -> int:
    """Squared L2 distance of two integer arrays of one shape, exactly."""
    difference = one.ravel() - other.ravel()  # both below 2**62
    if difference.size and int(abs(difference).max()) ** 2 * difference.size >= 2**62:
        difference = difference.astype(object)
    return int((difference * difference).sum())


def _compare_inputs(
    one: PrimitiveCall, other: PrimitiveCall, where: str, report: AuditReport
) -> None:
    label = one.event.label
    if isinstance(one.event, PartitionEvent):
        here, there = (dict(zip(c.values, c.inputs.tolist())) for c in (one, other))
        changes = [here.get(v, 0) - there.get(v, 0) for v in {**here, **there}]
        report.note(Check.COUNTS, sum(map(abs, changes)) <= one.event.rows, where, label)
    elif one.inputs.shape != other.inputs.shape:
        return
    elif isinstance(one.event, GaussianEvent):
        distance = squared_distance(one.inputs, other.inputs)
        report.note(Check.COUNTS, distance <= one.event.squared_sensitivity, where, label)
    elif isinstance(one.event, SelectionEvent) and one.score_sensitivity is not None:
        changes = [a - b for a, b in zip(one.inputs.tolist(), other.inputs.tolist())]
        largest = max(map(abs, changes), default=0)
        report.note(Check.SCORES, largest <= one.score_sensitivity, where, label)
    else:
        report.note(Check.COUNTS, False, where, f"{label}: no rule for {type(one.event).__name__}")


def _same_request(one: PrimitiveCall, other: PrimitiveCall) -> bool:
    """Whether all but the private inputs is the same; which values occur is one of them."""
    shapes = one.inputs.shape == other.inputs.shape or isinstance(one.event, PartitionEvent)
    return (
        one.event == other.event
        and one.score_sensitivity == other.score_sensitivity
        and shapes
        and np.array_equal(one.output, other.output)
    )


def _first_difference(run: Run) -> str:
    """Label of the first draw that was not charged, or of the first charge without a draw."""
    for call, event in zip(run.calls, run.charged):
        if call.event != event:
            return call.event.label
    longer = [*(c.event for c in run.calls[len(run.charged) :]), *run.charged[len(run.calls) :]]
    return longer[0].label if longer else "all draws"


RHOS = (0.02, 5.0)
"""Budgets that leave mostly noise, and hardly any: the loop takes few rounds and many."""


def audit(
    schema: Schema,
    queries: QuerySource,
    pairs: int = 20,
    seed: int = 0,
    rhos: Sequence[float] = RHOS,
    progress: StepProgress | None = None,
    sample_every: int = 10,
    mechanism: str = "auto",
    max_memory: int | str = MAX_MEMORY,
    engine: str = DEFAULT_ENGINE,
    scheduler: Any = None,
    rows_per_person: int | None = None,
    weigh: str = DEFAULT_WEIGH,
    neighbours: str = DEFAULT_NEIGHBOURS,
) -> AuditReport:
    """Replay `Synthesizer.fit` and `answer` on neighbouring tables; reads no private data.

    A run on one table is recorded. The run on its neighbour gets the recorded noisy outputs, so
    all that may differ are the exact inputs of the draws, and those by no more than was charged.
    The tables come in turn as CSV files, plain and compressed, as Parquet, and as data frames of
    every kind. Every second table is synthesized with the least memory that it can be planned for,
    where the ceilings decide what is measured.

    Args:
        schema: the tables follow it.
        queries: what is answered, and what tables are to serve. Where the schema leaves bins or
            values open, sets of attributes and families.
        pairs: pairs of neighbouring tables.
        seed: decides tables and noise.
        rhos: budgets (zCDP) at which each pair is run.
        progress: called with the pairs done and in all.
        sample_every: one pair in so many has a sampled table compared too.
        mechanism: of the batch answers.
        max_memory: ceiling of the memory planned for, in bytes or as "3GB".
        engine: what counts, a name of ``adaptive_qs.table.engines.ENGINES``.
        scheduler: where it finds its workers, for engines that have such.
        rows_per_person, weigh, neighbours: as for :class:`~adaptive_qs.Synthesizer`; where the
            schema names a person column, tables differ by a person with all rows.

    Raises:
        InputError: the workload does not fit a budget or the mechanism, or there is no such
            engine.
        ResourceExceeded: it does not fit the memory.
    """
    rng = np.random.default_rng(seed)
    check_choice("engine", engine, ENGINES)
    unit = Unit.of(schema.person, rows_per_person, neighbours, weigh)
    roomy: list[tuple[Publisher, float]] = []
    tight: list[tuple[Publisher, float]] = []
    for rho in rhos:
        counting = {"engine": engine, "scheduler": scheduler}
        synthesis = replace(Synthesis.of(schema, queries, rho, max_memory, unit), **counting)
        batch = replace(Batch.of(schema, queries, rho, mechanism, max_memory, unit), **counting)
        roomy += [(synthesis, rho), (batch, rho)]
        tight += [(synthesis.at_ceiling(), rho), (batch, rho)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Where something is to be learnt, or rows to be told apart, there must be some.
        differing = neighbour_pairs(stand_in(schema), folder, rng)
        if unit != ROWS:
            differing = (of_unit(pair, unit, rng) for pair in differing)
        raw = schema.open_columns or schema.person
        usable = (pair for pair in differing if not raw or (pair.here and pair.there))
        in_form = partial(_in_form, schema=schema, folder=folder)
        return replay_all(
            islice(usable, pairs), in_form, roomy, tight, folder, rng, pairs, unit, sample_every,
            progress,
        )  # fmt: skip


def replay_all(
    differing: Iterable[Any],
    in_form: Callable[[Any, str], Sequence[Callable[[], Source]]],
    roomy: Sequence[tuple[Any, float]],
    tight: Sequence[tuple[Any, float]],
    folder: Path,
    rng: np.random.Generator,
    pairs: int,
    unit: Unit,
    sample_every: int,
    progress: StepProgress | None,
) -> AuditReport:
    """Compare every run on the two tables of each pair, which come in every form in turn.

    Args:
        differing: the pairs, each with a name.
        in_form: makers of the two tables of a pair, in a form.
        roomy, tight: what spends a budget (rho), for every other pair.
        folder: for temporary files.
        rng: decides the noise.
        pairs: their number.
        unit: by which they differ.
        sample_every, progress: as for :func:`audit`.
    """
    report = AuditReport(pairs=pairs, runs=pairs * len(roomy))
    for done, pair in enumerate(differing):
        seen = report.moved
        # Not in step with the kinds of tables and rows: each comes in every form, in time.
        form = list(FORMS)[(3 * done + done // len(KINDS)) % len(FORMS)]
        tables = in_form(pair, form)
        for publisher, rho in tight if done % 2 else roomy:
            where = f"{publisher.name} at rho {rho:g}: {pair.name}, as {form}"
            sampled = (done + 1) % sample_every == 0
            seed = int(rng.integers(2**32))
            _replay_on(publisher, tables, folder, seed, sampled, where, report)
        if unit.neighbours == DEFAULT_NEIGHBOURS:  # one row may be as good as another
            report.note(Check.SEEN, report.moved > seen, pair.name, "all draws")
        if progress is not None:
            progress(done + 1, pairs)
    return report


def _in_form(pair: Pair, form: str, schema: Schema, folder: Path) -> list[Callable[[], Source]]:
    """Makers of the two tables; of their codes, where one of them has no rows."""
    tables = (pair.here, pair.there)
    if all(tables):
        types = Types(keyed(schema, schema.person, pair), *tables)
        return [partial(FORMS[form], rows, types, folder) for rows in tables]
    return [partial(_codes, rows, schema, folder) for rows in tables]


def _codes(rows: Rows, schema: Schema, folder: Path) -> CodedTable:
    if not rows:
        return no_rows(schema)
    path = write_rows(rows, schema.names, folder, delimiter=schema.delimiter)
    return read_table(path, schema)


def _replay_on(
    publisher: Any,
    tables: Sequence[Callable[[], Source]],
    folder: Path,
    seed: int,
    sampled: bool,
    where: str,
    report: AuditReport,
) -> None:
    runs: list[Run] = []
    for make in tables:  # one after the other: their files have the same name
        job = partial(publisher.publish, make(), folder=folder, sampled=sampled)
        cost, entropy = publisher.target.budget, InsecureSeed(seed)
        target = publisher.target
        budget = Budget(cost.rho, cost.delta, target.filtered, target.unit)
        runs.append(record(job, budget, entropy, *runs))
    compare(runs[0], runs[1], where, report)
