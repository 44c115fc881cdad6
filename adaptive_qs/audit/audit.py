"""The replay audit: `synthesize` and `answer` on generated neighbours in every form, same noise."""

import tempfile
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from adaptive_qs.answering.api import answer, check_answers
from adaptive_qs.answering.measure import answer_batches, answer_sets
from adaptive_qs.answering.plan import Batch as Work
from adaptive_qs.arguments import check_choice
from adaptive_qs.audit import tables as neighbours
from adaptive_qs.audit.replay import AuditReport, Check, Run, compare, record
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.machine import PhaseClock, StepProgress, memory_bytes
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.mechanisms import Mechanisms, auditing
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.privacy.unit import ROWS, Unit
from adaptive_qs.run.budget import Limits, PrivacyTarget
from adaptive_qs.run.options import AnswerOptions, SynthesizeOptions
from adaptive_qs.run.states import CheckedRun
from adaptive_qs.run.tables import Tables, check_tables, list_dropped, measure
from adaptive_qs.strategy.mechanism import Mechanism
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.engines import DEFAULT_ENGINE, ENGINES
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.tables import TableSet
from adaptive_qs.workload.file import QuerySource

MAX_MEMORY = 2**31
"""Default memory ceiling of a run, in bytes; findings must not depend on the machine."""
RHOS = (0.02, 5.0)
"""Default budgets (zCDP): with mostly noise and few rounds, and with hardly any noise."""
SAMPLED = 20
"""Rows of the root of a sampled set of tables."""
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


class _Planned:
    """A run that spends a budget on a table, checked without rows."""

    checked: CheckedRun[Any]

    @property
    def target(self) -> PrivacyTarget:
        """The budget."""
        return self.checked.root.target

    @property
    def limits(self) -> Limits:
        """The memory ceilings of the first or only table."""
        return self.checked.root.work.limits

    def at_ceiling(self) -> Self:
        """Return the same run with the smallest memory ceiling that decides what is measured."""
        return self


@dataclass(frozen=True)
class Synthesis(_Planned):
    """A run of `Synthesizer.fit`; it publishes a release bundle and tables sampled from it."""

    schema: TableSet
    options: SynthesizeOptions

    name = "synthesize"

    @classmethod
    def of(
        cls, schema: Schema | TableSet, queries: QuerySource, rho: float, **options: Any
    ) -> Self:
        """Plan a run on the marginals that contain the queries; options are those of the run.

        InputError is raised if the queries do not fit the schema, or the budget is too small to
        learn from; ResourceExceeded if the workload does not fit the memory.
        """
        own = SynthesizeOptions(rho=rho, workload=queries, **_run_options(options))
        described = schema if isinstance(schema, TableSet) else TableSet.of_one(schema)
        planned = cls(described, own)
        planned.checked  # noqa: B018  (raises what is refused)
        return planned

    @cached_property
    def checked(self) -> CheckedRun[Tables]:  # type: ignore[override]
        """The checked run; ResourceExceeded if the whole workload does not fit the memory."""
        checked = check_tables(self.schema, self.options)
        if dropped := list_dropped(checked):
            raise ResourceExceeded(dropped[0])
        return checked

    def at_ceiling(self) -> Self:
        """Return the same run with the smallest memory ceiling that its plan accepts.

        The measured marginals then have together no more cells than the largest of them.
        """

        def planned(memory: int) -> SynthesizeOptions:
            options = replace(self.options, max_memory=memory)
            replace(self, options=options).checked  # noqa: B018  (raises what is refused)
            return options

        least = least_memory(planned, int(self.options.max_memory or MAX_MEMORY))
        return replace(self, options=planned(least))

    def publish(
        self, source: Source, mechanisms: Mechanisms, folder: Path, sampled: bool
    ) -> Mapping[str, bytes]:
        """Spend the budget on a table or a set, and return every byte that leaves, by name.

        Sampled tables, which are slow, are published as well if ``sampled``.
        """
        if isinstance(source, CodedTable):
            root = self.checked.root
            release: Any = measure(
                MarginalCounter(source), root.schema, root.work.workload, root.target, root.work,
                mechanisms, PhaseClock(),
            )  # fmt: skip
        else:
            model = Synthesizer(**vars(self.options))
            with audited_run(mechanisms):
                release = model.fit(source, schema=self.schema).release_
        path = folder / "release.zip"
        release.save(path, force=True)
        artefacts = {"release bundle": path.read_bytes()}
        if sampled and self.schema.is_set:
            drawn = release.sample(SAMPLED, seed=1).items()
            artefacts |= {f"sampled {name}": table_bytes(table) for name, table in drawn}
        elif sampled:
            artefacts["sampled table"] = table_bytes(release.draw(seed=1).table())
        return artefacts


@dataclass(frozen=True)
class Batch(_Planned):
    """A run of `answer`; it publishes answers with errors and intervals, and the statement."""

    schema: Schema
    queries: QuerySource
    options: AnswerOptions

    name = "answer"

    @classmethod
    def of(
        cls, schema: Schema, queries: QuerySource, rho: float, choice: str = "auto", **options: Any
    ) -> Self:
        """Plan a batch with the chosen mechanism; options are those of the run.

        InputError is raised if the mechanism is unknown, cannot answer such queries, or they do not
        fit the schema; ResourceExceeded if a strategy takes too much memory.
        """
        own = AnswerOptions(rho=rho, mechanism=choice, **_run_options(options))
        batch = cls(schema, queries, own)
        batch.planned  # noqa: B018  (raises what is refused)
        return batch

    @cached_property
    def checked(self) -> CheckedRun[Work]:  # type: ignore[override]
        """The checked run."""
        return check_answers(self.schema, self.queries, self.options, None)

    @property
    def planned(self) -> Mechanism:
        """The mechanism with integer strategies, for the largest possible number of codes."""
        return self.checked.root.work.measurable.mechanism

    def publish(
        self, source: Source, mechanisms: Mechanisms, folder: Path, sampled: bool
    ) -> Mapping[str, bytes]:
        """Spend the budget as :meth:`Synthesis.publish` does; there is nothing to sample."""
        if isinstance(source, CodedTable):
            units = self.checked.root.work.target.units
            sets = answer_sets(
                self.planned, mechanisms.table(MarginalCounter(source)), mechanisms, units
            )
            return {
                "answers": table_bytes(pa.Table.from_batches(answer_batches(sets, self.schema)))
            }
        with audited_run(mechanisms):
            answers = answer(source, self.schema, self.queries, **vars(self.options))
            table = answers.to_arrow()
        statement = answers.statement().model_dump_json().encode()
        return {"answers": table_bytes(table), "statement of the answers": statement}


Publisher = Synthesis | Batch
"""A run that spends a budget on a table."""


def _run_options(options: Mapping[str, Any]) -> dict[str, Any]:
    memory = memory_bytes(options.get("max_memory", MAX_MEMORY))
    return {**CONSENT, "workers": 1, **options, "max_memory": memory}


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
    schema: Schema | TableSet,
    queries: QuerySource,
    pairs: int = 20,
    seed: int = 0,
    rhos: Sequence[float] = RHOS,
    progress: StepProgress | None = None,
    sample_every: int = 10,
    mechanism: str = "auto",
    **options: Any,
) -> AuditReport:
    """Replay `Synthesizer.fit` and `answer` on neighbouring tables; read no private data.

    A run on one table is recorded. The run on its neighbour gets the recorded noisy outputs, so
    only the exact inputs of the draws may differ, by no more than was charged. The tables come in
    every form in turn. Every second pair is synthesized with the smallest memory ceiling that the
    plan accepts. Neighbouring sets of tables are only synthesized.

    Args:
        schema: of one table or of a set; the tables follow it.
        queries: what is answered, and what tables are to serve.
        pairs: number of pairs of neighbouring tables.
        seed: decides tables and noise.
        rhos: budgets (zCDP) at which each pair is run.
        progress: called with the pairs done and in all.
        sample_every: every such pair has sampled tables compared too.
        mechanism: answers the queries.
        options: of both runs, as for :class:`~adaptive_qs.Synthesizer`.

    Raises:
        InputError: the workload or an option does not fit, or a budget is too small.
        ResourceExceeded: the plan does not fit the memory.
    """
    rng = np.random.default_rng(seed)
    described = schema if isinstance(schema, TableSet) else TableSet.of_one(schema)
    roomy = [each for rho in rhos for each in _plan(described, queries, rho, mechanism, options)]
    tight = [publisher.at_ceiling() for publisher in roomy]
    report = AuditReport(pairs=pairs, runs=pairs * len(roomy))
    with tempfile.TemporaryDirectory() as name:
        differing = _differing(described, roomy[0].target.unit, Path(name), rng)
        for done, (what, tables) in enumerate(islice(differing, pairs)):
            # Not in step with the kinds of tables and rows: each comes in every form, in time.
            form = list(neighbours.FORMS)[
                (3 * done + done // len(neighbours.KINDS)) % len(neighbours.FORMS)
            ]
            sources, seen = _in_form(tables, form, described, Path(name)), report.moved
            for publisher in tight if done % 2 else roomy:
                where = f"{publisher.name} at rho {publisher.target.rho:g}: {what}, as {form}"
                sampled, noise = (done + 1) % sample_every == 0, int(rng.integers(2**32))
                recorded, replayed = _run_both(publisher, sources, Path(name), noise, sampled)
                compare(recorded, replayed, where, report)
            if not roomy[0].target.unit.replaced:  # a replaced row may equal the other one
                report.note(Check.SEEN, report.moved > seen, what, "all draws")
            if progress is not None:
                progress(done + 1, pairs)
    return report


def _plan(
    schema: TableSet, queries: QuerySource, rho: float, mechanism: str, options: Mapping[str, Any]
) -> list[Publisher]:
    check_choice("engine", options.get("engine", DEFAULT_ENGINE), ENGINES)
    synthesis = Synthesis.of(schema, queries, rho, **options)
    if schema.is_set:  # `answer` refuses a set
        return [synthesis]
    return [synthesis, Batch.of(schema.tables[schema.root], queries, rho, mechanism, **options)]


def _differing(
    schema: TableSet, unit: Unit, folder: Path, rng: np.random.Generator
) -> Iterator[tuple[str, dict[str, neighbours.Pair]]]:
    """Yield a name and the tables that differ by a unit; with rows if they are read as tables."""
    if schema.is_set:
        yield from neighbours.set_pairs(schema, unit.replaced, folder, rng)
    alone = schema.tables[schema.root]
    pairs = neighbours.neighbour_pairs(neighbours.stand_in(alone), folder, rng)
    if unit != ROWS:
        pairs = (neighbours.unit_pair(pair, unit, rng) for pair in pairs)
    for pair in pairs:
        if (pair.here and pair.there) or not (alone.open_columns or alone.person):
            yield pair.name, {schema.root: pair}


def _in_form(
    pairs: Mapping[str, neighbours.Pair], form: str, schema: TableSet, folder: Path
) -> list[Callable[[], Source]]:
    """Return makers of the two sources, each of all tables."""
    made = {name: _tables_in_form(pair, form, schema, name, folder) for name, pair in pairs.items()}
    if not schema.is_set:
        return made[schema.root]
    return [
        partial(_make_set, {name: each[side] for name, each in made.items()}) for side in (0, 1)
    ]


def _make_set(makers: Mapping[str, Callable[[], Source]]) -> Source:
    return {name: make() for name, make in makers.items()}


def _tables_in_form(
    pair: neighbours.Pair, form: str, schema: TableSet, name: str, folder: Path
) -> list[Callable[[], Source]]:
    """Return makers of two tables; of their codes, if one of them has no rows."""
    own, tables = schema.tables[name], (pair.here, pair.there)
    if not all(tables):
        return [partial(_codes, rows, own, folder) for rows in tables]
    keys = schema.key_columns(name) if schema.is_set else [own.person] if own.person else []
    types, place = neighbours.Types(neighbours.keyed(own, keys, pair), *tables), folder / name
    place.mkdir(mode=0o700, exist_ok=True)
    return [partial(neighbours.FORMS[form], rows, types, place) for rows in tables]


def _codes(rows: neighbours.Rows, schema: Schema, folder: Path) -> CodedTable:
    if not rows:  # which no file can hold
        domain = schema.domain()
        return CodedTable.from_codes(domain, np.zeros((len(domain), 0), dtype=np.int64))
    names = [column.name for column in schema.own_columns]
    path = neighbours.write_rows(rows, names, folder, delimiter=schema.delimiter)
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
