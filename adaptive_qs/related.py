"""Two related tables for callers of Python: fit private parents and children once, then sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from adaptive_qs.arguments import Estimator
from adaptive_qs.machine import PhaseClock, PhaseProgress, plan_workers
from adaptive_qs.privacy.budget import warn_all
from adaptive_qs.release.drawing import warn_of_contradictions
from adaptive_qs.release.related import RelatedRelease
from adaptive_qs.release.release import check_rows
from adaptive_qs.run.budget import Session
from adaptive_qs.run.options import SynthesizeOptions, checked, documented
from adaptive_qs.run.related import DEFAULT_PARENTS_SHARE, RelatedJob, synthesize_related
from adaptive_qs.run.tables import SPENT_IN_VAIN, check_sample_rows
from adaptive_qs.synthesizer import Kind, find_kind, to_kind
from adaptive_qs.table.related import RelatedSchema
from adaptive_qs.table.schema_files import resolve_about


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class RelatedSynthesizer(Estimator, SynthesizeOptions):
    """Differentially private synthetic tables of parents (households, customers) and their children
    (persons, orders).

    One budget protects a parent with all its children; neighbours add or remove one of these. Both
    tables have new keys, so that every child belongs to one parent. Otherwise as
    :class:`~adaptive_qs.synthesizer.Synthesizer`. A ledger is created with ``--person KEY
    --related``. The marginals of the workload are over the columns of both tables and the number of
    children; those without a column of children are measured in the parents' table, the others in
    the children's. ``public_rows`` are parents. ``rows_per_person``, ``weigh`` and ``target`` are
    refused.

    Args:
        parents_share: part of the budget for the parents' table.
        progress: called with a phase, steps done and steps in all.

    Attributes:
        release_: everything released, a :class:`~adaptive_qs.release.related.RelatedRelease`.
        schema_: the schema of both tables.
        seconds_: seconds per phase of :meth:`fit`; empty after :meth:`load`.
    """

    parents_share: float = DEFAULT_PARENTS_SHARE
    progress: PhaseProgress | None = None
    release_: RelatedRelease = field(init=False)
    schema_: RelatedSchema = field(init=False)
    seconds_: dict[str, float] = field(init=False)
    _kinds: tuple[Kind, Kind] = field(init=False)
    _session: Session | None = field(init=False, default=None)

    def fit(self, parents: Any, children: Any, *, schema: Any) -> Self:
        """Spend the budget on two private tables.

        Args:
            parents: A pandas, polars or pyarrow table, or the path of a CSV or Parquet file, of a
                folder or a pattern of such files.
            children: The same of the children.
            schema: of both: a :class:`~adaptive_qs.table.related.RelatedSchema`, the path of a
                schema file, or parsed JSON.

        Raises:
            InputError: a parameter, the schema, the workload or a table is wrong, or the keys of
                the tables do not fit each other; nothing has been spent.
            ResourceExceeded: the plan exceeds ``max_memory``; nothing has been spent.
            LedgerError: the ledger cannot be used, or holds no such run to resume.
            BudgetExceeded: the ledger's total does not allow the budget; nothing has been spent.

        Warns:
            UserWarning: there is an ``insecure_seed``, or a schema is unreviewed.
            GuardRailWarning: the budget promises or buys less than may have been meant.
        """
        described = RelatedSchema.of(schema)
        options = checked(self, SynthesizeOptions)
        if options.about is not None:
            described = described.with_about(*resolve_about(options.about))
        job = RelatedJob.of(described, options, self.parents_share)
        job.parents.warn("the release and all tables sampled from it are", stacklevel=2)
        if self._session is not None:
            self._session.leave()
        clock = PhaseClock(self.progress)
        with job.session.working(SPENT_IN_VAIN):
            release = synthesize_related(job, parents, children, clock)
        self._kinds = find_kind(parents), find_kind(children)
        self._session = job.session
        self.seconds_ = clock.stop()
        self.release_, self.schema_ = release, release.schema
        warn_all(release.doubts, stacklevel=2)
        return self

    def sample(
        self,
        num_parents: int | None = None,
        seed: int | None = None,
        where: str | None = None,
        balance: str | None = None,
    ) -> tuple[Any, Any]:
        """Synthetic parents and their children, each of the kind that was fitted.

        Args:
            num_parents: rows of parents; None takes their noisy number, or that of those that meet
                the condition.
            seed: the same seed gives the same tables on the same kind of machine with the same
                versions of the libraries; None takes one from the operating system.
            where: a condition that all parents meet, such as "region = North and children >= 2".
            balance: a column whose values the parents have in equal numbers.

        Raises:
            InputError: a number is out of range, or the condition or the column asks for what there
                is not.
            ResourceExceeded: the tables do not fit ``max_memory``.
            NotFittedError: there is nothing to sample from.
        """
        self.check_fitted()
        check_sample_pair(self.release_, num_parents, self.max_memory)
        pair, found = self.release_.draw(
            num_parents, seed, plan_workers(self.workers), self.progress, where, balance
        )
        for name, each in found.items():
            warn_all(warn_of_contradictions(each, f"table of {name}"), stacklevel=2)
        parents, children = pair
        rows = len(parents)
        return (
            self._of_kind(parents, self._kinds[0], "parents", rows),
            self._of_kind(children, self._kinds[1], "children", rows),
        )

    def _of_kind(self, table: pa.Table, kind: Kind, name: str, rows: int) -> Any:
        return to_kind(table, kind, self.schema_.written(name, rows))

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write the release bundle; a ledger then no longer keeps the release.

        Raises:
            InputError: the file exists, or cannot be written.
            NotFittedError: there is nothing to save.
        """
        self.check_fitted()
        self.release_.save(path, force)
        if self._session is not None:
            self._session.finish()

    @classmethod
    def load(cls, path: str | Path, max_memory: int | str | None = None) -> Self:
        """A fitted synthesizer from a release bundle of related tables.

        Raises:
            InputError: the bundle is missing, damaged, of one table, or made by a newer version.
            ResourceExceeded: reading it would take more memory.
        """
        release = RelatedRelease.load(path, max_memory)
        manifest = release.manifest
        loaded = cls(rho=manifest.rho, delta=manifest.delta, max_memory=max_memory)
        loaded._kinds = Kind("pandas"), Kind("pandas")
        loaded.seconds_ = {}
        loaded.release_, loaded.schema_ = release, release.schema
        return loaded


def check_sample_pair(
    release: RelatedRelease, num_parents: int | None, max_memory: int | str | None
) -> None:
    """Refuse synthetic tables that do not fit the memory, as far as the release tells.

    Raises:
        InputError: the number of parents is no positive integer.
        ResourceExceeded: they do not fit.
    """
    parents = release.parents.num_rows if num_parents is None else check_rows(num_parents)
    children = round(release.children.num_rows * parents / release.parents.num_rows)
    for rows, table in ((parents, release.parents), (children, release.children)):
        check_sample_rows(max(rows, 1), len(table.schema.columns), max_memory)
