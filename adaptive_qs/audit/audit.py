"""The replay audit: `synthesize` and `answer` on generated neighbours in every form, same noise."""

from __future__ import annotations

import tempfile
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from adaptive_qs.answering.answers import answer_batches
from adaptive_qs.answering.api import answer
from adaptive_qs.answering.measure import answer_sets
from adaptive_qs.answering.plan import Batch as Work
from adaptive_qs.answering.plan import answers_limits
from adaptive_qs.arguments import DEFAULT_SHARE, check_choice
from adaptive_qs.audit.replay import AuditReport, Check, Run, compare, record
from adaptive_qs.audit.tables import (
    FORMS,
    KINDS,
    Pair,
    Rows,
    Types,
    keyed,
    neighbour_pairs,
    stand_in,
    unit_pair,
    write_rows,
)
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.learn.schema import discovery_share, preprocessing_cost
from adaptive_qs.machine import PhaseClock, StepProgress, memory_bytes
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.mechanisms import Mechanisms, auditing
from adaptive_qs.privacy.noise import InsecureSeed
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

MAX_MEMORY = 2**31
"""Default memory ceiling of a run, in bytes; findings must not depend on the machine."""
RHOS = (0.02, 5.0)
"""Default budgets (zCDP): with mostly noise and few rounds, and with hardly any noise."""
CONSENT: Mapping[str, Any] = {"unreviewed_schema": True, "beyond_limits": True}

Source = Any
"""A file or a data frame; or codes, which are measured as they are if the schema leaves nothing to
be learnt: `fit` and `answer` refuse a table without rows."""


def least_memory(plan: Callable[[int], Any], most: int) -> int:
    """Return the smallest memory ceiling, in bytes up to ``most``, that a plan accepts."""

    def fits(memory: int) -> bool:
        try:
            plan(memory)
        except ResourceExceeded:
            return False
        return True

    return bisect_left(range(1, most), True, key=fits) + 1


@dataclass(frozen=True)
class Synthesis:
    """A run of `Synthesizer.fit`; it publishes a release bundle and a table sampled from it.

    Attributes:
        schema: the public description of the columns.
        marginals: the marginals that matter, over as many codes as columns can have.
        target: the budget.
        plan: the memory ceilings.
        engine: the counting engine.
        scheduler: the address of the engine's workers.
        queries: the workload, if it has queries other than the cells of marginals.
    """

    schema: Schema
    marginals: Workload
    target: PrivacyTarget
    plan: Limits
    engine: str = DEFAULT_ENGINE
    scheduler: Any = None
    queries: QuerySource = None

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
        """Plan a run on the marginals that contain the queries.

        Raises:
            InputError: the queries do not fit the schema, or the budget is too small to learn from.
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
        return cls(
            schema, marginals, target, limits,
            queries=None if other_queries(queries) is None else queries,
        )  # fmt: skip

    def at_ceiling(self) -> Self:
        """Return the same run with the smallest memory ceiling that its plan accepts.

        The measured marginals then have together no more cells than the largest of them.
        """

        def planned(memory: int) -> Limits:
            return tables_limits(self.schema.widest_domain(), self.marginals, memory, 1)

        return replace(self, plan=planned(least_memory(planned, self.plan.max_memory_bytes)))

    def publish(
        self, source: Source, mechanisms: Mechanisms, folder: Path, sampled: bool
    ) -> Mapping[str, bytes]:
        """Spend the budget on a table and return every byte that leaves, by name.

        Args:
            source: the rows.
            mechanisms: all draws pass it.
            folder: for the files.
            sampled: whether to publish a sampled table as well, which is slow.
        """
        marginals, target, plan = self.marginals, self.target, self.plan
        if isinstance(source, CodedTable):
            served = QueryStrategies.of(self.queries, marginals.domain)
            rho = target.within(target.budget).rho
            work = Tables(marginals, plan, rho, served=served)
            clock, counter = PhaseClock(), MarginalCounter(source)
            release = measure(counter, self.schema, marginals, target, work, mechanisms, clock)
        else:
            workload: Any = marginals if self.queries is None else self.queries
            if self.queries is None and self.schema.open_columns:  # whose sizes are to be learnt
                workload = folder / "workload.json"
                workload.write_text(WorkloadFile.of(marginals).model_dump_json(exclude_none=True))
            model = Synthesizer(
                rho=target.rho,
                workload=workload,
                max_memory=plan.max_memory_bytes,
                workers=plan.workers,
                engine=self.engine,
                scheduler=self.scheduler,
                **_unit_options(target.unit),
                **CONSENT,
            )
            with audited_run(mechanisms):
                release = model.fit(source, schema=self.schema).release_
        path = folder / "release.zip"
        release.save(path, force=True)
        artefacts = {"release bundle": path.read_bytes()}
        if sampled:
            artefacts["sampled table"] = table_bytes(release.draw(seed=1).table())
        return artefacts


@dataclass(frozen=True)
class Batch:
    """A run of `answer`; it publishes answers with their errors and intervals, and the statement.

    Attributes:
        schema: the public description of the columns.
        queries: the workload.
        target: the budget.
        choice: name of the mechanism.
        limits: the memory ceilings.
        planned: the mechanism with integer strategies; None if codes are to be learnt.
        engine: the counting engine.
        scheduler: the address of the engine's workers.
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
        """Plan a batch with the chosen mechanism.

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

    def at_ceiling(self) -> Self:
        """Return the same batch, which does not depend on the memory ceiling."""
        return self

    def publish(
        self, source: Source, mechanisms: Mechanisms, folder: Path, sampled: bool
    ) -> Mapping[str, bytes]:
        """Spend the budget as :meth:`Synthesis.publish` does; there is nothing to sample."""
        if isinstance(source, CodedTable):
            assert self.planned is not None, "codes leave nothing to be learnt"
            units = self.target.within(self.target.budget).units
            sets = answer_sets(
                self.planned, mechanisms.table(MarginalCounter(source)), mechanisms, units
            )
            return {
                "answers": table_bytes(pa.Table.from_batches(answer_batches(sets, self.schema)))
            }
        with audited_run(mechanisms):
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
                **_unit_options(self.target.unit),
                **CONSENT,
            )
            table = answers.to_arrow()
        statement = answers.statement().model_dump_json().encode()
        return {"answers": table_bytes(table), "statement of the answers": statement}


Publisher = Synthesis | Batch
"""A run that spends a budget on a table."""


def _unit_options(unit: Unit) -> dict[str, Any]:
    """Return the options of a run that protects this unit."""
    return {"rows_per_person": unit.asked, "weigh": unit.weigh, "neighbours": unit.neighbours}


@contextmanager
def audited_run(mechanisms: Mechanisms) -> Iterator[None]:
    """Use these mechanisms for all runs inside, on generated rows: without warnings."""
    with auditing(mechanisms), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def table_bytes(table: pa.Table) -> bytes:
    """Serialise a table with the types of its columns."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


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
    """Replay `Synthesizer.fit` and `answer` on neighbouring tables; read no private data.

    A run on one table is recorded. The run on its neighbour gets the recorded noisy outputs, so
    only the exact inputs of the draws may differ, by no more than was charged. The tables come in
    every form in turn. Every second pair is synthesized with the smallest memory ceiling that the
    plan accepts, where the ceilings decide what is measured.

    Args:
        schema: the tables follow it.
        queries: what is answered, and what tables are to serve; sets of attributes and families if
            the schema leaves bins or values open.
        pairs: number of pairs of neighbouring tables.
        seed: decides tables and noise.
        rhos: budgets (zCDP) at which each pair is run.
        progress: called with the pairs done and in all.
        sample_every: every such pair has a sampled table compared too.
        mechanism: the mechanism that answers.
        max_memory: memory ceiling of a run, in bytes or as "3GB".
        engine: the counting engine, a name of ``adaptive_qs.table.engines.ENGINES``.
        scheduler: the address of the engine's workers.
        rows_per_person: as for :class:`~adaptive_qs.Synthesizer`; if the schema names a person
            column, tables differ by a person with all rows.
        weigh: likewise.
        neighbours: likewise.

    Raises:
        InputError: the workload does not fit a budget or the mechanism, or the engine is unknown.
        ResourceExceeded: the plan does not fit the memory.
    """
    rng = np.random.default_rng(seed)
    check_choice("engine", engine, ENGINES)
    unit = Unit.of(schema.person, rows_per_person, neighbours, weigh)
    roomy: list[Publisher] = []
    for rho in rhos:
        planned = (
            Synthesis.of(schema, queries, rho, max_memory, unit),
            Batch.of(schema, queries, rho, mechanism, max_memory, unit),
        )
        roomy += [replace(each, engine=engine, scheduler=scheduler) for each in planned]
    tight = [publisher.at_ceiling() for publisher in roomy]
    report = AuditReport(pairs=pairs, runs=pairs * len(roomy))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        differing = islice(_differing(schema, unit, folder, rng), pairs)
        for done, pair in enumerate(differing):
            # Not in step with the kinds of tables and rows: each comes in every form, in time.
            form = list(FORMS)[(3 * done + done // len(KINDS)) % len(FORMS)]
            sources, seen = _in_form(pair, form, schema, folder), report.moved
            sampled = (done + 1) % sample_every == 0
            for publisher in tight if done % 2 else roomy:
                where = f"{publisher.name} at rho {publisher.target.rho:g}: {pair.name}, as {form}"
                runs = _run_both(publisher, sources, folder, int(rng.integers(2**32)), sampled)
                compare(*runs, where, report)
            if unit.neighbours == DEFAULT_NEIGHBOURS:  # a replaced row may equal the other one
                report.note(Check.SEEN, report.moved > seen, pair.name, "all draws")
            if progress is not None:
                progress(done + 1, pairs)
    return report


def _differing(
    schema: Schema, unit: Unit, folder: Path, rng: np.random.Generator
) -> Iterator[Pair]:
    """Yield tables that differ by a unit; both have rows if the run has to read them as tables."""
    pairs = neighbour_pairs(stand_in(schema), folder, rng)
    if unit != ROWS:
        pairs = (unit_pair(pair, unit, rng) for pair in pairs)
    raw = schema.open_columns or schema.person
    return (pair for pair in pairs if not raw or (pair.here and pair.there))


def _in_form(pair: Pair, form: str, schema: Schema, folder: Path) -> list[Callable[[], Source]]:
    """Return makers of the two tables; of their codes, if one of them has no rows."""
    tables = (pair.here, pair.there)
    if all(tables):
        types = Types(keyed(schema, [schema.person] if schema.person else [], pair), *tables)
        return [partial(FORMS[form], rows, types, folder) for rows in tables]
    return [partial(_codes, rows, schema, folder) for rows in tables]


def _codes(rows: Rows, schema: Schema, folder: Path) -> CodedTable:
    if not rows:  # which no file can hold
        domain = schema.domain()
        return CodedTable.from_codes(domain, np.zeros((len(domain), 0), dtype=np.int64))
    path = write_rows(rows, schema.names, folder, delimiter=schema.delimiter)
    return read_table(path, schema)


def _run_both(
    publisher: Publisher,
    sources: Sequence[Callable[[], Source]],
    folder: Path,
    seed: int,
    sampled: bool,
) -> list[Run]:
    """Record a run on the first table, and replay it on the second."""
    runs: list[Run] = []
    for make in sources:  # one after the other: their files have the same name
        job = partial(publisher.publish, make(), folder=folder, sampled=sampled)
        target = publisher.target
        budget = Budget(target.budget.rho, target.budget.delta, target.filtered, target.unit)
        runs.append(record(job, budget, InsecureSeed(seed), *runs))
    return runs
