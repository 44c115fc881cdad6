"""The two things that spend budget, `synthesize` and `answer`, with all that they publish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from adaptive_qs.adaptive.preprocessing.resolve import resolve_private
from adaptive_qs.adaptive.preprocessing.shares import discovery_share, preprocessing_cost
from adaptive_qs.answering.measure import grid_bits
from adaptive_qs.answering.plan import plan_batch
from adaptive_qs.answering.run import answer_sets
from adaptive_qs.answering.tables import answer_batches
from adaptive_qs.answering.target import BatchTarget
from adaptive_qs.answering.workloads import QuerySource, check_learnable, resolve_queries
from adaptive_qs.clock import PhaseClock
from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.data.encode import encode_file
from adaptive_qs.data.schema import Schema
from adaptive_qs.data.table import CodedTable
from adaptive_qs.machine import memory_bytes
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.strategy.mechanisms.mechanism import Mechanism
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.synthesizer import pipeline
from adaptive_qs.synthesizer.pipeline import RunSettings
from adaptive_qs.synthesizer.resources import RunPlan, plan_run
from adaptive_qs.synthesizer.target import PrivacyTarget
from adaptive_qs.workload.query_workload import QueryWorkload
from adaptive_qs.workload.workload import Workload

MOST_ROWS = 2**16
"""Rows that answers are planned for; generated tables have fewer."""
MAX_MEMORY = 2**31
"""Where no other ceiling is given; findings should not depend on the machine."""

Source = Path | CodedTable
"""A CSV file, or codes where the schema leaves nothing to be learnt."""


class Publisher(Protocol):
    """Something that spends a budget on a table."""

    @property
    def name(self) -> str:
        """What it is called in findings."""

    @property
    def cost(self) -> Cost:
        """The budget."""

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


@dataclass(frozen=True)
class Synthesis:
    """The adaptive loop, its release bundle and a table sampled from it."""

    schema: Schema
    queries: QuerySource
    target: PrivacyTarget
    plan: RunPlan

    name = "synthesize"

    @classmethod
    def of(
        cls,
        schema: Schema,
        queries: QuerySource,
        rho: float,
        max_memory: int | str = MAX_MEMORY,
    ) -> Synthesis:
        """Plan a run on the marginals that the queries ask about.

        Raises:
            InputError: the queries do not fit the schema, or the budget what is to be learnt.
            ResourceExceeded: the workload does not fit the memory.
        """
        target = PrivacyTarget.of(rho=rho, discovery_share=discovery_share(schema))
        preprocessing_cost(schema, target.cost)
        domain = schema.widest_domain()
        marginals = marginals_of(resolve_queries(queries, domain))
        return cls(schema, queries, target, plan_run(domain, marginals, max_memory, 1))

    @property
    def cost(self) -> Cost:
        """The budget."""
        return self.target.cost

    def publish(
        self, source: Source, mechanisms: Mechanisms, folder: Path, sampled: bool
    ) -> Mapping[str, bytes]:
        """See :class:`Publisher`."""
        schema, table = _read(source, self.schema, mechanisms, self.cost)
        release = pipeline.measure(
            table,
            schema,
            marginals_of(resolve_queries(self.queries, schema.domain())),
            RunSettings(self.target),
            self.plan,
            mechanisms,
            PhaseClock(),
        )
        path = folder / "release.zip"
        release.save(path, force=True)
        artefacts = {"release bundle": path.read_bytes()}
        if sampled:
            artefacts["sampled table"] = _bytes(release.sample_table(seed=1))
        return artefacts


@dataclass(frozen=True)
class Batch:
    """Answers to queries, with their errors and intervals."""

    schema: Schema
    queries: QuerySource
    target: BatchTarget
    choice: str
    max_bytes: int
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
    ) -> Batch:
        """Plan a batch by the mechanism that is chosen.

        Raises:
            InputError: the mechanism is unknown, cannot answer such queries, or they do not fit
                the schema.
            ResourceExceeded: a strategy takes too much memory.
        """
        learns = bool(schema.private_columns)
        share = discovery_share(schema) if learns else None
        target = BatchTarget.of(rho=rho, discovery_share=share)
        check_learnable(resolve_queries(queries, schema.widest_domain()), schema)
        batch = cls(schema, queries, target, choice, memory_bytes(max_memory), None)
        return batch if learns else replace(batch, planned=batch.mechanism(schema, target))

    @property
    def cost(self) -> Cost:
        """The budget."""
        return self.target.budget

    def mechanism(self, schema: Schema, target: BatchTarget) -> Mechanism:
        """What is measured, with integer strategies."""
        settings = replace(SolverSettings(), max_bytes=self.max_bytes)
        queries = resolve_queries(self.queries, schema.domain())
        planned = plan_batch(queries, target, self.choice, settings).mechanism
        return planned.on_grid(grid_bits(planned, target.units, MOST_ROWS))

    def publish(
        self, source: Source, mechanisms: Mechanisms, folder: Path, sampled: bool
    ) -> Mapping[str, bytes]:
        """See :class:`Publisher`; there is nothing to sample."""
        schema, table = _read(source, self.schema, mechanisms, self.cost)
        ledger = mechanisms.ledger
        target = self.target.left_of(ledger.limit - ledger.spent)
        mechanism = self.planned or self.mechanism(schema, target)
        sets = answer_sets(mechanism, MarginalCounter(table), mechanisms, target.units)
        return {"answers": _bytes(pa.Table.from_batches(answer_batches(sets, schema)))}


def marginals_of(queries: QueryWorkload) -> Workload:
    """The attribute sets of a workload of queries as marginals, each with its largest weight."""
    weights: dict[tuple[int, ...], float] = {}
    for part in queries.parts:
        for clique, weight in zip(part.cliques.tolist(), part.weights.tolist()):
            key = tuple(clique)
            weights[key] = max(weight, weights.get(key, 0.0))
    return Workload(queries.domain, weights)


def _read(
    source: Source, schema: Schema, mechanisms: Mechanisms, budget: Cost
) -> tuple[Schema, CodedTable]:
    """The schema with whatever it leaves open learnt from the rows, and their codes."""
    if isinstance(source, CodedTable):
        return schema, source
    learning = preprocessing_cost(schema, budget)
    schema = resolve_private(source, schema, mechanisms, learning)
    return schema, encode_file(source, schema)


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
