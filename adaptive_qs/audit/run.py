"""The replay audit: `fit` and `answer`, generated neighbours in every form, the same noise."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from adaptive_qs.answering.workloads import QuerySource
from adaptive_qs.audit.compare import Check, Finding, Tally, compare
from adaptive_qs.audit.jobs import MAX_MEMORY, Batch, Publisher, Source, Synthesis
from adaptive_qs.audit.neighbours import Pair, neighbour_pairs
from adaptive_qs.audit.replay import Job, record, replay
from adaptive_qs.audit.stand_in import stand_in
from adaptive_qs.audit.tables import FORMS, KINDS, Rows, Types, no_rows, write_rows
from adaptive_qs.data.encode import encode_file
from adaptive_qs.data.schema import Schema
from adaptive_qs.data.table import CodedTable
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
    """Replay `Synthesizer.fit` and `answer` on neighbouring tables; reads no private data.

    A run on one table is recorded. The run on its neighbour gets the recorded noisy outputs, so
    all that may differ are the exact inputs of the draws, and those by no more than was charged.
    The tables come in turn as CSV files, plain and compressed, as Parquet, and as data frames of
    every kind. Every second table is synthesized with the least memory that it can be planned for,
    where the ceilings decide what is measured.

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
    roomy: list[tuple[Publisher, float]] = []
    tight: list[tuple[Publisher, float]] = []
    for rho in rhos:
        synthesis = Synthesis.of(schema, queries, rho, max_memory)
        batch = Batch.of(schema, queries, rho, mechanism, max_memory)
        roomy += [(synthesis, rho), (batch, rho)]
        tight += [(synthesis.at_ceiling(), rho), (batch, rho)]
    tally = Tally()
    draws = moved = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for done, pair in enumerate(islice(_pairs(schema, folder, rng), pairs)):
            seen = 0
            # Not in step with the kinds of tables and rows: each comes in every form, in time.
            form = list(FORMS)[(3 * done + done // len(KINDS)) % len(FORMS)]
            tables = _in_form(pair, form, schema, folder)
            for publisher, rho in tight if done % 2 else roomy:
                where = f"{publisher.name} at rho {rho:g}: {pair.name}, as {form}"
                sampled = (done + 1) % sample_every == 0
                found, differ = _replayed(
                    publisher, tables, folder, int(rng.integers(2**32)), sampled, where, tally
                )
                draws += found
                seen += differ
            tally.note(Check.SEEN, seen > 0, pair.name, "all draws")
            moved += seen
            if progress is not None:
                progress(done + 1, pairs)
    runs = pairs * len(roomy)
    return AuditReport(pairs, runs, draws, moved, dict(tally.made), tuple(tally.findings))


def _in_form(
    pair: Pair, form: str, schema: Schema, folder: Path
) -> tuple[Callable[[], Source], Callable[[], Source]]:
    """Makers of the two tables; of their codes, where one of them has no rows."""
    if not (pair.here and pair.there):
        return (
            partial(_codes, pair.here, schema, folder),
            partial(_codes, pair.there, schema, folder),
        )
    types, make = Types(schema, pair.here, pair.there), FORMS[form]
    return partial(make, pair.here, types, folder), partial(make, pair.there, types, folder)


def _codes(rows: Rows, schema: Schema, folder: Path) -> CodedTable:
    return encode_file(write_rows(rows, schema.names, folder), schema) if rows else no_rows(schema)


def _replayed(
    publisher: Publisher,
    tables: tuple[Callable[[], Source], Callable[[], Source]],
    folder: Path,
    seed: int,
    sampled: bool,
    where: str,
    tally: Tally,
) -> tuple[int, int]:
    """Compare one run on both tables; how many draws it made, and how many inputs differed."""

    def job(make: Callable[[], Source]) -> Job:
        source = make()
        return lambda mechanisms: publisher.publish(source, mechanisms, folder, sampled)

    def budget() -> Budget:
        return Budget(publisher.cost.rho, publisher.cost.delta)

    here, there = tables
    recorded = record(job(here), budget(), InsecureSeed(seed))
    replayed = replay(job(there), budget(), InsecureSeed(seed), recorded)
    return len(recorded.calls), compare(recorded, replayed, where, tally)


def _pairs(schema: Schema, folder: Path, rng: np.random.Generator) -> Iterator[Pair]:
    """Neighbours that the schema can take: where something is to be learnt there must be rows."""
    for pair in neighbour_pairs(stand_in(schema), folder, rng):
        if not schema.private_columns or (pair.here and pair.there):
            yield pair
