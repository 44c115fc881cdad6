"""The two things that spend budget, `Synthesizer.fit` and `answer`, with all that they publish."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from adaptive_qs.answering.api import answer
from adaptive_qs.answering.measure import answer_sets
from adaptive_qs.answering.plan import Batch as Work
from adaptive_qs.answering.plan import (
    QuerySource,
    answers_limits,
    check_learnable,
    resolve_queries,
)
from adaptive_qs.answering.table import answer_batches
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.learn.schema import discovery_share, preprocessing_cost
from adaptive_qs.machine import PhaseClock, memory_bytes
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.mechanisms import Mechanisms, auditing
from adaptive_qs.release.release import Release
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.run.limits import Limits
from adaptive_qs.run.tables import Tables, measure, tables_limits
from adaptive_qs.strategy.mechanism import Mechanism
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.count import counter_of
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.file import WorkloadFile, WorkloadSpec
from adaptive_qs.workload.workload import QueryWorkload, Workload

MAX_MEMORY = 2**31
"""Where no other ceiling is given; findings should not depend on the machine."""

_CONSENT: Mapping[str, Any] = {"unreviewed_schema": True, "beyond_limits": True}

Source = Any
"""A file or a data frame, for `fit` and `answer`; or codes, which are measured as they are where
the schema leaves nothing to be learnt: `fit` and `answer` refuse a table without rows."""


@dataclass(frozen=True)
class Synthesis:
    """`Synthesizer.fit`, its release bundle and a table sampled from it.

    Attributes:
        schema: the public description of the columns.
        marginals: which matter, over as many codes as there can be.
        target: the budget.
        plan: ceilings, as `fit` makes them.
    """

    schema: Schema
    marginals: Workload
    target: PrivacyTarget
    plan: Limits

    name = "synthesize"

    @classmethod
    def of(
        cls,
        schema: Schema,
        queries: QuerySource,
        rho: float,
        max_memory: int | str = MAX_MEMORY,
    ) -> Self:
        """Plan a run on the marginals that the queries ask about.

        Raises:
            InputError: the queries do not fit the schema, or the budget what is to be learnt.
            ResourceExceeded: the workload does not fit the memory.
        """
        target = PrivacyTarget.of(rho=rho, discovery_share=discovery_share(schema))
        preprocessing_cost(schema, target.budget)
        domain = schema.widest_domain()
        marginals = marginals_of(resolve_queries(queries, domain))
        return cls(schema, marginals, target, tables_limits(domain, marginals, max_memory, 1))

    def at_ceiling(self) -> Self:
        """The same with the least memory that it can be planned for.

        Then the cells of all measured marginals together may be no more than those of the largest.
        """
        low, high = 0, self.plan.max_memory_bytes
        while high - low > 1:
            middle = (low + high) // 2
            try:
                self._planned(middle)
                high = middle
            except ResourceExceeded:
                low = middle
        return replace(self, plan=self._planned(high))

    @property
    def cost(self) -> Cost:
        """The budget."""
        return self.target.budget

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
        release = self._release(source, mechanisms, folder)
        path = folder / "release.zip"
        release.save(path, force=True)
        artefacts = {"release bundle": path.read_bytes()}
        if sampled:
            artefacts["sampled table"] = _bytes(release.sample_table(seed=1))
        return artefacts

    def _release(self, source: Source, mechanisms: Mechanisms, folder: Path) -> Release:
        plan = self.plan
        if isinstance(source, CodedTable):
            marginals, target = self.marginals, self.target
            work = Tables(marginals, marginals, "product", plan, target.rho)
            clock = PhaseClock()
            return measure(source, self.schema, marginals, target, work, mechanisms, clock)
        model = Synthesizer(
            rho=self.target.rho,
            workload=self._workload(folder),
            max_memory=plan.max_memory_bytes,
            workers=plan.workers,
            **_CONSENT,
        )
        with _made_up(mechanisms):
            return model.fit(source, schema=self.schema).release_

    def _planned(self, max_memory: int) -> Limits:
        return tables_limits(self.schema.widest_domain(), self.marginals, max_memory, 1)

    def _workload(self, folder: Path) -> WorkloadSpec:
        """The marginals, as a file where their sizes are still to be learnt."""
        if not self.schema.private_columns:
            return self.marginals
        path = folder / "workload.json"
        path.write_text(WorkloadFile.of(self.marginals).model_dump_json(exclude_none=True))
        return path


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
    """

    schema: Schema
    queries: QuerySource
    target: PrivacyTarget
    choice: str
    limits: Limits
    planned: Mechanism | None

    name = "answer"

    @classmethod
    def of(
        cls,
        schema: Schema,
        queries: QuerySource,
        rho: float,
        choice: str = "auto",
        max_memory: int | str = MAX_MEMORY,
    ) -> Self:
        """Plan a batch by the mechanism that is chosen.

        Raises:
            InputError: the mechanism is unknown, cannot answer such queries, or they do not fit
                the schema.
            ResourceExceeded: a strategy takes too much memory.
        """
        learns = bool(schema.private_columns)
        share = discovery_share(schema) if learns else None
        target = PrivacyTarget.of_answers(rho=rho, discovery_share=share)
        widest = schema.widest_domain()
        check_learnable(resolve_queries(queries, widest), schema)
        limits = answers_limits(widest, memory_bytes(max_memory), 1)
        if learns:
            return cls(schema, queries, target, choice, limits, None)
        resolved = resolve_queries(queries, widest)
        planned = Work(resolved, widest, target, limits, choice).measurable.mechanism
        return cls(schema, resolved, target, choice, limits, planned)

    @property
    def cost(self) -> Cost:
        """The budget."""
        return self.target.budget

    def publish(
        self, source: Source, mechanisms: Mechanisms, folder: Path, sampled: bool
    ) -> Mapping[str, bytes]:
        """See :meth:`Synthesis.publish`; there is nothing to sample."""
        if isinstance(source, CodedTable):
            assert self.planned is not None, "codes leave nothing to be learnt"
            sets = answer_sets(self.planned, counter_of(source), mechanisms, self.target.units)
            return {"answers": _bytes(pa.Table.from_batches(answer_batches(sets, self.schema)))}
        with _made_up(mechanisms):
            answers = answer(
                source,
                self.schema,
                self.queries,
                rho=self.target.rho,
                mechanism=self.choice,
                jobs=self.limits.workers,
                max_memory=self.limits.max_memory_bytes,
                **_CONSENT,
            )
            table = answers.to_arrow()
        statement = answers.statement().model_dump_json().encode()
        return {"answers": _bytes(table), "statement of the answers": statement}


Publisher = Synthesis | Batch
"""Something that spends a budget on a table."""


@contextmanager
def _made_up(mechanisms: Mechanisms) -> Iterator[None]:
    """Runs on rows that are made up, whose owner need not be warned of anything."""
    with auditing(mechanisms), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def marginals_of(queries: QueryWorkload) -> Workload:
    """The attribute sets of a workload of queries as marginals, each with its largest weight."""
    weights: dict[tuple[int, ...], float] = {}
    for part in queries.parts:
        for clique, weight in zip(part.cliques.tolist(), part.weights.tolist()):
            key = tuple(clique)
            weights[key] = max(weight, weights.get(key, 0.0))
    return Workload(queries.domain, weights)


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
