"""The two things that spend budget, `synthesize` and `answer`, with all that they publish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from adaptive_qs.answering.measure import grid_bits
from adaptive_qs.answering.plan import plan_batch
from adaptive_qs.answering.run import answer_sets
from adaptive_qs.answering.tables import answer_batches
from adaptive_qs.answering.target import BatchTarget
from adaptive_qs.clock import PhaseClock
from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.data.schema import Schema
from adaptive_qs.data.table import CodedTable
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
"""The plan of a run must not depend on the machine."""


class Publisher(Protocol):
    """Something that spends a budget on a table."""

    @property
    def name(self) -> str:
        """What it is called in findings."""

    def publish(
        self, table: CodedTable, mechanisms: Mechanisms, folder: Path, sampled: bool
    ) -> Mapping[str, bytes]:
        """Spend the budget of ``mechanisms`` on a table.

        Args:
            table: the rows.
            mechanisms: all draws pass it.
            folder: for the files.
            sampled: whether to publish a sampled table as well, which is slow.

        Returns:
            Every byte that would leave, by name.
        """


@dataclass(frozen=True)
class Synthesis:
    """The adaptive loop, its release bundle and tables sampled from it."""

    schema: Schema
    workload: Workload
    target: PrivacyTarget
    plan: RunPlan

    name = "synthesize"

    @classmethod
    def of(cls, schema: Schema, workload: Workload, target: PrivacyTarget) -> Synthesis:
        """Plan a run.

        Raises:
            ResourceExceeded: the workload does not fit the memory.
        """
        return cls(schema, workload, target, plan_run(schema.domain(), workload, MAX_MEMORY, 1))

    def publish(
        self, table: CodedTable, mechanisms: Mechanisms, folder: Path, sampled: bool
    ) -> Mapping[str, bytes]:
        """See :class:`Publisher`."""
        release = pipeline.measure(
            table,
            self.schema,
            self.workload,
            RunSettings(self.target),
            self.plan,
            mechanisms,
            PhaseClock(),
        )
        path = folder / "release.zip"
        release.save(path)
        artefacts = {"release bundle": path.read_bytes()}
        if sampled:
            artefacts["sampled table"] = _bytes(release.sample_table(seed=1))
        return artefacts


@dataclass(frozen=True)
class Batch:
    """Answers to queries, with their errors and intervals."""

    schema: Schema
    mechanism: Mechanism
    units: int

    name = "answer"

    @classmethod
    def of(
        cls, schema: Schema, queries: QueryWorkload, target: BatchTarget, mechanism: str = "auto"
    ) -> Batch:
        """Plan a batch.

        Raises:
            InputError: the mechanism is unknown, or cannot answer such queries.
            ResourceExceeded: a strategy takes too much memory.
        """
        settings = replace(SolverSettings(), max_bytes=MAX_MEMORY)
        planned = plan_batch(queries, target, mechanism, settings).mechanism
        bits = grid_bits(planned, target.units, MOST_ROWS)
        return cls(schema, planned.on_grid(bits), target.units)

    def publish(
        self, table: CodedTable, mechanisms: Mechanisms, folder: Path, sampled: bool
    ) -> Mapping[str, bytes]:
        """See :class:`Publisher`; there is nothing to sample."""
        sets = answer_sets(self.mechanism, MarginalCounter(table), mechanisms, self.units)
        return {"answers": _bytes(pa.Table.from_batches(answer_batches(sets, self.schema)))}


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
