"""Two related tables under one budget, which protects a parent with all children."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

from adaptive_qs.arguments import as_number, shown
from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError
from adaptive_qs.machine import PhaseClock, memory_bytes
from adaptive_qs.privacy.budget import Part
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.unit import DEFAULT_WEIGH, Unit
from adaptive_qs.release.related import RelatedRelease
from adaptive_qs.release.release import Release
from adaptive_qs.run.budget import MIN_COST, Session
from adaptive_qs.run.job import Job
from adaptive_qs.run.options import SynthesizeOptions
from adaptive_qs.run.tables import Tables, measure, tables_job
from adaptive_qs.table.files import compute_sha256
from adaptive_qs.table.related import Family, FamilyRows, RelatedSchema
from adaptive_qs.workload.file import WorkloadSpec, resolve_workload
from adaptive_qs.workload.workload import MOST_LISTED, Workload

DEFAULT_PARENTS_SHARE = 0.25
"""Part of the budget for the parents' table. With as many children as count, M, noise in a count of
children is M times that of a count of parents at the same budget."""
ONE_TABLE = Fraction(4, 5)
"""Of the memory, what each table is planned for. Both keep their rows at the same time, each a
quarter of it, and the loop, which needs the rest, runs for one after the other."""


@dataclass(frozen=True)
class RelatedJob:
    """A run with everything checked that can be checked before the private tables are read.

    Attributes:
        schema: the public description of both tables.
        parents: measures parents with the number of their children; its session is that of all.
        children: measures children behind the columns of their parents.
        share: part of the budget for the parents.
    """

    schema: RelatedSchema
    parents: Job[Tables]
    children: Job[Tables]
    share: float

    @classmethod
    def of(
        cls,
        schema: RelatedSchema,
        options: SynthesizeOptions,
        parents_share: Any = DEFAULT_PARENTS_SHARE,
    ) -> Self:
        """Check the parameters.

        Args:
            schema: of both tables.
            options: as their user gave them. The marginals of the workload are over the columns of
                both tables and the number of children; those without a column of children are
                measured in the parents' table, the others in the children's.
            parents_share: part of the budget for the parents.

        Raises:
            InputError, ResourceExceeded, LedgerError, BudgetExceeded: as for :meth:`Job.of`.
        """
        share = as_number(parents_share)
        if share is None or not 0 < share < 1:
            raise InputError(
                f"parents-share is {shown(parents_share)}: give a part of the budget between 0 "
                "and 1"
            )
        if options.rows_per_person is not None:
            raise InputError(
                'rows-per-person was given for related tables, whose schema has "most_children": '
                "leave it out"
            )
        if options.weigh != DEFAULT_WEIGH:
            raise InputError("weigh was given for related tables, which count rows: leave it out")
        if options.target is not None:
            raise InputError("target was given for related tables: leave it out")
        of_parents, of_children = _marginals(schema, options.workload)
        most_bytes = int(memory_bytes(options.max_memory) * ONE_TABLE)
        options = replace(options, max_memory=most_bytes)
        unit = Unit.of(schema.key, 1, options.neighbours)
        # Only the parents' job opens the ledger: the budget is one.
        alone = replace(
            options, workload=of_children, ledger=None, anchor=None, resume=False, public_rows=None
        )
        children = tables_job(
            schema.joined, alone,
            replace(unit, related="children", rows=schema.most_children), 1 - share,
        )  # fmt: skip
        parents = tables_job(
            schema.counted,
            replace(options, workload=of_parents),
            replace(unit, related="parents"),
            share,
        )
        for table, job, part in (("parents", parents, share), ("children", children, 1 - share)):
            left = part * float(job.target.unit.for_rows(job.target.budget).rho)
            if left < MIN_COST / 2:
                raise InputError(
                    f"parents-share is {share!r}: that leaves rho {left:.3g} for a row of "
                    f"{table}, which is nothing but noise: raise the budget, or share it otherwise"
                )
        beside = {
            "command": "synthesize --related",
            "related schema": compute_sha256([schema.model_dump_json().encode()]),
            "parents share": repr(share),
            **{f"children's {name}": text for name, text in children.work.request_fields().items()},
        }
        children = replace(children, session=parents.session)
        return cls(schema, replace(parents, beside=beside), children, share)

    @property
    def session(self) -> Session:
        """The budget of both tables."""
        return self.parents.session

    @property
    def doubts(self) -> tuple[str, ...]:
        """What there is to say about the budget and what it can buy, from public numbers."""
        return tuple(dict.fromkeys((*self.parents.doubts, *self.children.doubts)))


def _marginals(schema: RelatedSchema, spec: WorkloadSpec) -> tuple[Workload, Workload]:
    domain, width = schema.joined.widest_domain(), len(schema.counted.columns)
    asked = resolve_workload(spec, domain, MOST_LISTED)
    sides: tuple[dict[Any, float], dict[Any, float]] = {}, {}
    for clique, weight in asked.weights.items():
        sides[clique[-1] >= width][clique] = weight
    for table, weights in zip(("parents", "children"), sides):
        if not weights:
            raise InputError(f"the workload asks for no marginal of {table}: add one")
    first, second = sides
    of_parents = Domain(domain.attributes[:width])
    return Workload(of_parents, first), replace(asked, weights=second)


def synthesize_related(
    job: RelatedJob, parents: Any, children: Any, clock: PhaseClock
) -> RelatedRelease:
    """Spend the budget on both private tables, inside ``session.working``.

    Raises:
        InputError: a table does not fit the schema, or their keys do not fit each other.
        ResourceExceeded, LedgerError, BudgetExceeded: as for :meth:`Job.read`.
    """
    clock.start("read")
    job = replace(
        job, parents=job.parents.of_table(parents), children=job.children.of_table(children)
    )
    schemas, most_bytes = job.schema.by_table.values(), job.parents.work.limits.rows_bytes
    sums = job.parents.options.ledger is not None
    with ExitStack() as opened:
        with ExitStack() as spooled:
            once = [
                spooled.enter_context(job.children.read_once(table, schema, sums))
                for table, schema in zip((parents, children), schemas)
            ]
            both = [table for table, _ in once]
            family = Family.of(both[0], both[1], job.schema, most_bytes)

            def digest() -> Iterable[bytes]:
                return [part for _, each in once for part in (*each(), b"\n")]

            _, of_parents, begin = job.parents.read(FamilyRows(family, "parents"), clock, digest)
            opened.enter_context(closing(of_parents))
            _, of_children, _ = job.children.read(FamilyRows(family, "children"), clock, digest)
            opened.enter_context(closing(of_children))
        mechanisms = begin()
        whole = mechanisms.ledger
        part = Cost(math.floor(whole.left.rho_units * Fraction(job.share)))
        releases: list[Release] = []
        for table, counter in ((job.parents, of_parents), (job.children, of_children)):
            limit = whole.left if releases else part
            with mechanisms.spending(Part(whole, limit, table.target.unit)):
                workload = table.work.workload
                releases.append(
                    measure(
                        counter, table.schema, workload, table.target, table.work, mechanisms,
                        clock,
                    )
                )  # fmt: skip
    # What was measured of parents stands in the ledger where all of it does.
    place = {"ledger": releases[1].manifest.ledger}
    first = replace(releases[0], manifest=releases[0].manifest.model_copy(update=place))
    release = RelatedRelease(job.schema, first, releases[1])
    job.session.publish(release.digests())
    return release
