"""The replay audit of two related tables: neighbours that differ by a parent with all children."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from adaptive_qs.arguments import check_choice
from adaptive_qs.audit.audit import (
    CONSENT,
    MAX_MEMORY,
    RHOS,
    AuditReport,
    least_memory,
    made_up,
    replay_all,
    table_bytes,
)
from adaptive_qs.audit.tables import FORMS, NEW, Pair, Rows, Types, apart, keyed, neighbour_pairs
from adaptive_qs.machine import StepProgress, memory_bytes
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.unit import DEFAULT_NEIGHBOURS, Unit
from adaptive_qs.related import RelatedSynthesizer
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.run.options import SynthesizeOptions
from adaptive_qs.run.related import RelatedJob
from adaptive_qs.table.engines import DEFAULT_ENGINE, ENGINES
from adaptive_qs.table.related import RelatedSchema
from adaptive_qs.workload.file import WorkloadSpec

SAMPLED = 20
"""Parents of a sampled pair of tables that is compared."""


@dataclass(frozen=True)
class RelatedSynthesis:
    """`RelatedSynthesizer.fit`: its bundle, and a pair of tables sampled from it.

    Attributes:
        schema: of both tables.
        workload: the marginals that matter.
        target: the budget of both.
        max_memory: ceiling, in bytes.
        engine: what counts.
    """

    schema: RelatedSchema
    workload: WorkloadSpec
    target: PrivacyTarget
    max_memory: int = MAX_MEMORY
    engine: str = DEFAULT_ENGINE

    name = "synthesize"

    def planned(self, max_memory: int) -> RelatedJob:
        """The run with another ceiling of memory; raises as :meth:`RelatedJob.of` does."""
        options = SynthesizeOptions(
            workload=self.workload, rho=self.target.rho, max_memory=max_memory,
            neighbours=self.target.unit.neighbours, workers=1, engine=self.engine, **CONSENT,
        )  # fmt: skip
        return RelatedJob.of(self.schema, options)

    def at_ceiling(self) -> Self:
        """The same with the least memory that it can be planned for."""
        return replace(self, max_memory=least_memory(self.planned, self.max_memory))

    def publish(
        self, source: tuple[Any, Any], mechanisms: Mechanisms, folder: Path, sampled: bool
    ) -> Mapping[str, bytes]:
        """Spend the budget on two tables; as :class:`~adaptive_qs.audit.audit.Synthesis` does."""
        model = RelatedSynthesizer(
            rho=self.target.rho, workload=self.workload, max_memory=self.max_memory, workers=1,
            engine=self.engine, neighbours=self.target.unit.neighbours, **CONSENT,
        )  # fmt: skip
        with made_up(mechanisms):
            release = model.fit(*source, schema=self.schema).release_
        path = folder / "release.zip"
        release.save(path, force=True)
        artefacts = {"release bundle": path.read_bytes()}
        if sampled:
            pair = release.sample(SAMPLED, seed=1)
            artefacts |= {f"sampled {n}": table_bytes(t) for n, t in pair._asdict().items()}
        return artefacts


class FamilyPair(NamedTuple):
    """Two pairs of tables that differ by a family; the last cell of every row is the key."""

    name: str
    parents: Pair
    children: Pair


def family_pairs(
    schema: RelatedSchema, unit: Unit, folder: Path, rng: np.random.Generator
) -> Iterator[FamilyPair]:
    """Pairs without end: one table of parents has a parent more, or another one, and so its
    children.

    Parents have from no child to many more than count; so has the one that differs. What is odd
    about that parent or a child of it (the rarest values, missing ones, some outside the schema)
    changes from pair to pair.

    Args:
        schema: of both tables.
        unit: a family, added or replaced.
        folder: for temporary files.
        rng: decides everything.
    """
    most = schema.most_children
    of_parents = neighbour_pairs(schema.parents, folder, rng)
    of_children = islice(neighbour_pairs(schema.children, folder, rng), 3, None)  # other kinds
    for one, other in zip(of_parents, of_children):
        (parents, _, parent), (children, _, child) = map(apart, (one, other))
        if not parents or not children:
            continue  # tables without rows are refused
        holders = rng.integers(1 + len(parents) // (2 * most), size=len(children)).tolist()
        own = [child] * int(rng.integers(most + 3))
        tables = [([], []), ([parent], own)]
        if unit.neighbours != DEFAULT_NEIGHBOURS:
            tables[0] = ([parents[0]], [children[0]] * int(rng.integers(most + 3)))
        if rng.integers(2):
            tables.reverse()
        numbered = [[*row, f"{k}"] for k, row in enumerate(parents)]
        theirs = [[*row, f"{k}"] for row, k in zip(children, holders)]
        orders = rng.permutation(len(parents) + 1), rng.permutation(len(children) + most + 2)
        sides = [
            (_mixed(numbered, mine, orders[0]), _mixed(theirs, born, orders[1]))
            for mine, born in tables
        ]
        name = f"parents: {one.name}; children: {other.name}, for {len(own)} of {most}"
        first, second = zip(*sides)
        yield FamilyPair(name, Pair(name, *first), Pair(name, *second))


def _mixed(rows: Rows, own: Rows, order: Any) -> Rows:
    """Rows of all families in an order that tells nothing of the one that differs."""
    every = [*rows, *([*row, NEW] for row in own)]
    return [every[k] for k in order.tolist() if k < len(every)]


def audit_related(
    schema: RelatedSchema,
    workload: WorkloadSpec,
    pairs: int = 20,
    seed: int = 0,
    rhos: Sequence[float] = RHOS,
    progress: StepProgress | None = None,
    sample_every: int = 10,
    max_memory: int | str = MAX_MEMORY,
    engine: str = DEFAULT_ENGINE,
    neighbours: str = DEFAULT_NEIGHBOURS,
) -> AuditReport:
    """Replay `RelatedSynthesizer.fit` on neighbouring tables; reads no private data.

    As :func:`~adaptive_qs.audit.audit.audit`, with neighbours that differ by a parent with all
    children.

    Args:
        schema: of both tables.
        workload: the marginals that matter, over the columns of both.
        pairs, seed, rhos, progress, sample_every, max_memory, engine, neighbours: as there.

    Raises:
        InputError: the workload does not fit a budget, or there is no such engine.
        ResourceExceeded: it does not fit the memory.
    """
    rng = np.random.default_rng(seed)
    check_choice("engine", engine, ENGINES)
    unit = Unit(schema.key, 1, Unit.of(schema.key, 1, neighbours).neighbours, "parents")
    most = memory_bytes(max_memory)
    roomy = []
    for rho in rhos:
        target = PrivacyTarget.of(rho=rho).protecting(unit)
        roomy.append((RelatedSynthesis(schema, workload, target, most, engine), rho))
        roomy[-1][0].planned(most)
    tight = [(publisher.at_ceiling(), rho) for publisher, rho in roomy]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for table in schema.keys:
            (folder / table).mkdir()
        differing = family_pairs(schema, unit, folder, rng)

        def in_form(pair: FamilyPair, form: str) -> list[Callable[[], Any]]:
            sides: list[list[Callable[[], Any]]] = []
            for (table, own), rows in zip(schema.by_table.items(), pair[1:]):
                types = Types(keyed(own, schema.keys[table], rows), rows.here, rows.there)
                put = folder / table
                sides.append([partial(FORMS[form], r, types, put) for r in (rows.here, rows.there)])
            return [partial(_both, *makers) for makers in zip(*sides)]

        return replay_all(
            islice(differing, pairs), in_form, roomy, tight, folder, rng, pairs, unit,
            sample_every, progress,
        )  # fmt: skip


def _both(*makers: Callable[[], Any]) -> tuple[Any, ...]:
    return tuple(make() for make in makers)
