"""The Python interface to synthetic tables: fit a private table once, then sample, save and load.

What takes long to import is imported when it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from adaptive_qs.arguments import Estimator
from adaptive_qs.loop import LEVELS
from adaptive_qs.machine import PhaseClock, PhaseProgress, plan_workers
from adaptive_qs.run.options import SynthesizeOptions, checked, documented

if TYPE_CHECKING:
    from adaptive_qs.release.statement import RoundRecord
    from adaptive_qs.release.tables import ReleaseSet
    from adaptive_qs.run.states import SpendingRun
    from adaptive_qs.table.write import Library
else:  # annotations are evaluated where options are read
    RoundRecord = ReleaseSet = SpendingRun = Library = Any


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class Synthesizer(Estimator, SynthesizeOptions):
    """Differentially private synthetic tables by adaptive residual measurement.

    Follows scikit-learn: the constructor stores its parameters, :meth:`fit` checks them and spends
    the whole budget, and fitted attributes end in ``_``. Tables sampled afterwards cost nothing.
    The unit of privacy is one row, and neighbouring tables differ by adding or removing one row,
    unless the schema names a ``person`` column or ``neighbours`` says otherwise. Of a set of
    tables, it is one row of the root with all rows below it.

    Args:
        progress: called with a phase, steps done and steps in all; a
            :class:`~adaptive_qs.pages.words.ProgressBar` shows them.

    Attributes:
        release_: everything released, a :class:`Release`, or of a set of tables a
            :class:`~adaptive_qs.release.tables.ReleaseSet`.
        schema_: the schema of the table, or of the set.
        rho_: the zCDP budget.
        rho_spent_: zCDP spent, at most the budget.
        epsilon_, delta_: the (ε, δ) that the budget implies.
        rounds_: what each round of the loop did, table after table.
        seconds_: seconds per phase of :meth:`fit`; empty after :meth:`load`.
    """

    progress: PhaseProgress | None = None
    release_: Any = field(init=False)
    schema_: Any = field(init=False)
    rounds_: tuple[RoundRecord, ...] = field(init=False)
    seconds_: dict[str, float] = field(init=False)
    _released: ReleaseSet = field(init=False)
    _libraries: dict[str, Library] = field(init=False)
    _run: SpendingRun | None = field(init=False, default=None)

    def fit(self, table: Any, y: None = None, *, schema: Any = None) -> Self:
        """Spend the budget on a private table, or on a set of tables.

        Args:
            table: a pandas, polars or pyarrow table, the path of a CSV or Parquet file, of a folder
                or a pattern of such files, or a :class:`CodedTable`. Of a set: a mapping of names
                to such tables, or the path of a folder or database with all of them.
            y: not used; present by convention.
            schema: the public description of the columns: a :class:`Schema` or a
                :class:`~adaptive_qs.table.tables.TableSet`, the path of a schema file, or parsed
                JSON. A coded table needs none.

        Raises:
            InputError: a parameter, the schema, the workload or the table is wrong, the schema is
                unreviewed, or the budget is beyond a limit; nothing has been spent.
            ResourceExceeded: the plan exceeds ``max_memory``; nothing has been spent.
            LedgerError: the ledger cannot be used, or holds no such run to resume.
            BudgetExceeded: the ledger's total does not allow the budget; nothing has been spent.

        Warns:
            UserWarning: there is an ``insecure_seed``, or the schema is unreviewed.
            GuardRailWarning: the budget promises or buys less than may have been meant;
                shown before it is spent, unless only the noisy number of rows shows it.
        """
        from adaptive_qs.privacy.budget import warn_all
        from adaptive_qs.run.tables import check_tables, synthesize
        from adaptive_qs.table.tables import TableSet
        from adaptive_qs.table.write import find_library

        options = checked(self, SynthesizeOptions)
        described = TableSet.resolve(schema, table, options.max_memory)
        tables = {described.root: table}
        if described.is_set:
            from adaptive_qs.table.joined import name_tables

            tables = name_tables(table, described)
        planned, clock = check_tables(described, options), PhaseClock(self.progress)
        planned.warn("the release and all tables sampled from it are", stacklevel=2)
        if self._run is not None:
            self._run.leave()
        run, release = synthesize(planned.read(tables, clock), clock)
        self._libraries = {name: find_library(each) for name, each in tables.items()}
        self._run = run
        self.seconds_ = clock.stop()
        self._set_release(release)
        warn_all(release.warnings, stacklevel=2)  # last: a filter may turn it into an exception
        return self

    def sample(
        self, num_rows: int | None = None, seed: int | None = None, where: str | None = None
    ) -> Any:
        """Return a synthetic table; of a set of tables, a dictionary.

        A table is of the library of the private one, of pandas for files and after `load`. All
        types follow from the schema. Tables of a set have new keys, from 1 on.

        Args:
            num_rows: rows, of a set rows of the root; None takes their noisy number, or that of
                those that meet the condition.
            seed: the same seed gives the same table on the same kind of machine with the same
                versions of the libraries; None takes one from the operating system.
            where: a condition that all rows meet, such as "sex = F and age >= 65"; see
                :meth:`Release.draw`. Of a set, one that all rows of the root meet.

        Raises:
            InputError: num_rows is not positive, the seed is negative, or the condition asks
                for what there is not.
            ResourceExceeded: the table does not fit ``max_memory``.
            NotFittedError: there is nothing to sample from.
        """
        import pyarrow as pa

        from adaptive_qs.privacy.budget import warn_all
        from adaptive_qs.release.drawing import warn_of_contradictions
        from adaptive_qs.release.release import check_rows
        from adaptive_qs.run.memory import check_sample_rows
        from adaptive_qs.table.write import to_frame

        self.check_fitted()
        workers = plan_workers(self.workers)
        released = self._released
        if num_rows is not None:
            num_rows = check_rows(num_rows)
        check_sample_rows(released, num_rows, self.max_memory)
        found = {}
        for drawn in released.draw(num_rows, seed, workers, self.progress, where):
            warn_all(drawn.warnings, stacklevel=2)
            library = self._libraries[drawn.name]
            if library == "codes" and drawn.drawing is not None:
                found[drawn.name] = drawn.drawing.coded()
            else:
                found[drawn.name] = to_frame(pa.concat_tables(drawn.pages), library, drawn.schema)
            what = f"table of {drawn.name}" if released.schema.is_set else "table"
            warn_all(warn_of_contradictions(drawn.contradictions, what), stacklevel=2)
        return found if released.schema.is_set else found[released.schema.root]

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write the release bundle; a ledger then no longer keeps the release.

        Args:
            path: of the bundle.
            force: replace a file that exists; a resumed run replaces what it had written itself.

        Raises:
            InputError: the file exists, or cannot be written.
            NotFittedError: there is nothing to save.
        """
        from adaptive_qs.release.bundle import is_from_interrupted_run

        self.check_fitted()
        own = self.resume and is_from_interrupted_run(path, self.ledger)
        self._released.save(path, force or own)
        if self._run is not None:
            self._run.finish()

    @classmethod
    def load(cls, path: str | Path, max_memory: int | str | None = None) -> Self:
        """Return a fitted synthesizer from a release bundle, of one table or of a set.

        Args:
            path: the bundle.
            max_memory: ceiling of the process's memory in bytes or as "3GB", also for sampling; by
                default three quarters of the machine's.

        Raises:
            InputError: the bundle is missing, damaged, or made by a newer version.
            ResourceExceeded: reading it would take more memory.
        """
        from adaptive_qs.release.tables import ReleaseSet

        released = ReleaseSet.load(path, max_memory)
        manifest, root = released.manifest, released.root
        target = manifest.settings.get("target")
        workload = None if released.schema.is_set else replace(root.workload, target=target)
        loaded = cls(
            rho=manifest.rho, delta=manifest.delta, workload=workload, target=target,
            levels=str(manifest.settings.get("levels", LEVELS[0])), max_memory=max_memory,
        )  # fmt: skip
        loaded._libraries = dict.fromkeys(released.tables, "pandas")
        loaded.seconds_ = {}
        loaded._set_release(released)
        return loaded

    def _set_release(self, released: ReleaseSet) -> None:
        manifest = released.manifest
        self._released = released
        self.release_ = released if released.schema.is_set else released.root
        self.schema_ = released.schema if released.schema.is_set else released.root.schema
        self.rho_, self.rho_spent_ = manifest.rho, released.rho_spent
        self.epsilon_, self.delta_ = manifest.epsilon, manifest.delta
        self.rounds_ = tuple(past for each in released.tables.values() for past in each.rounds)
