"""The replay audit: both commands, generated neighbours, the same noise."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from adaptive_qs.answering.workloads import QuerySource
from adaptive_qs.audit.compare import Check, Finding, Tally, compare
from adaptive_qs.audit.jobs import MAX_MEMORY, Batch, Publisher, Synthesis
from adaptive_qs.audit.neighbours import Pair, neighbour_pairs
from adaptive_qs.audit.replay import Job, record, replay
from adaptive_qs.audit.stand_in import stand_in
from adaptive_qs.audit.tables import Rows, no_rows, write_rows
from adaptive_qs.data.schema import Schema
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.entropy import InsecureSeed
from adaptive_qs.progress import StepProgress

RHOS = (0.02, 5.0)
"""Budgets that leave mostly noise, and hardly any: the loop takes few rounds and many."""


@dataclass(frozen=True)
class AuditReport:
    """What an audit did and found; nothing in it is private.

    Attributes:
        pairs: pairs of neighbouring tables.
        runs: runs that were replayed.
        draws: noisy releases and selections that were compared.
        moved: those whose private inputs differed between the neighbours.
        made: comparisons by check.
        findings: comparisons that failed.
    """

    pairs: int
    runs: int
    draws: int
    moved: int
    made: dict[Check, int]
    findings: tuple[Finding, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


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
) -> AuditReport:
    """Replay `synthesize` and `answer` on neighbouring tables; reads no private data.

    A run on one table is recorded. The run on its neighbour gets the recorded noisy outputs, so
    all that may differ are the exact inputs of the draws, and those by no more than was charged.

    Args:
        schema: the tables follow it.
        queries: what is answered; `synthesize` takes the marginals of its attribute sets.
            Where the schema leaves bins or values open, sets of attributes and families.
        pairs: pairs of neighbouring tables.
        seed: decides tables and noise.
        rhos: budgets (zCDP) at which each pair is run.
        progress: told pairs done and in all.
        sample_every: one pair in so many has a sampled table compared too.
        mechanism: of the batch answers.
        max_memory: ceiling of the memory planned for, in bytes or as "3GB".

    Raises:
        InputError: the workload does not fit a budget or the mechanism.
        ResourceExceeded: it does not fit the memory.
    """
    rng = np.random.default_rng(seed)
    publishers: list[tuple[Publisher, float]] = []
    for rho in rhos:
        publishers.append((Synthesis.of(schema, queries, rho, max_memory), rho))
        publishers.append((Batch.of(schema, queries, rho, mechanism, max_memory), rho))
    tally = Tally()
    draws = moved = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for done, pair in enumerate(islice(_pairs(schema, folder, rng), pairs)):
            seen = 0
            for publisher, rho in publishers:
                where = f"{publisher.name} at rho {rho:g}: {pair.name}"
                sampled = (done + 1) % sample_every == 0
                found, differ = _replayed(
                    publisher, pair, schema, folder, int(rng.integers(2**32)), sampled, where, tally
                )  # fmt: skip
                draws += found
                seen += differ
            tally.note(Check.SEEN, seen > 0, pair.name, "all draws")
            moved += seen
            if progress is not None:
                progress(done + 1, pairs)
    runs = pairs * len(publishers)
    return AuditReport(pairs, runs, draws, moved, dict(tally.made), tuple(tally.findings))


def _replayed(
    publisher: Publisher,
    pair: Pair,
    schema: Schema,
    folder: Path,
    seed: int,
    sampled: bool,
    where: str,
    tally: Tally,
) -> tuple[int, int]:
    """Compare one run on both tables; how many draws it made, and how many inputs differed."""

    def job(rows: Rows) -> Job:
        source = write_rows(rows, schema.names, folder) if rows else no_rows(schema)
        return lambda mechanisms: publisher.publish(source, mechanisms, folder, sampled)

    def budget() -> Budget:
        return Budget(publisher.cost.rho, publisher.cost.delta)

    recorded = record(job(pair.here), budget(), InsecureSeed(seed))
    replayed = replay(job(pair.there), budget(), InsecureSeed(seed), recorded)
    return len(recorded.calls), compare(recorded, replayed, where, tally)


def _pairs(schema: Schema, folder: Path, rng: np.random.Generator) -> Iterator[Pair]:
    """Neighbours that the schema can take: where something is to be learnt there must be rows."""
    for pair in neighbour_pairs(stand_in(schema), folder, rng):
        if not schema.private_columns or (pair.here and pair.there):
            yield pair
