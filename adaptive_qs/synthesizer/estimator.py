"""The public class: fit a private table once, then sample, save and load for free."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Self

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from adaptive_qs.adaptive.preprocessing.shares import DEFAULT_SHARE
from adaptive_qs.clock import PhaseClock
from adaptive_qs.data.inputs import resolve_schema
from adaptive_qs.data.review import UNREVIEWED, is_unreviewed
from adaptive_qs.data.schema import Schema
from adaptive_qs.ledger.session import Session
from adaptive_qs.machine import plan_workers
from adaptive_qs.privacy.guard_rails import warn_all
from adaptive_qs.progress import PhaseProgress
from adaptive_qs.release.beside import of_interrupted_run
from adaptive_qs.release.manifest import RoundRecord
from adaptive_qs.release.release import Release, check_rows
from adaptive_qs.synthesizer.frames import Kind, kind_of, to_kind
from adaptive_qs.synthesizer.job import Job
from adaptive_qs.synthesizer.pipeline import SPENT_IN_VAIN
from adaptive_qs.synthesizer.resources import check_sample_rows
from adaptive_qs.workload.file import WorkloadSpec


class Synthesizer(BaseEstimator):  # type: ignore[misc]
    """Differentially private synthetic tables by adaptive residual measurement.

    Follows scikit-learn: the constructor stores its parameters, :meth:`fit` checks them, and
    fitted attributes end in ``_``. The whole budget is spent by :meth:`fit`; tables sampled
    afterwards cost nothing. The unit of privacy is one row, neighbours add or remove one row.

    Args:
        epsilon: ε of the (ε, δ) that the whole run implies; give it or ``rho``.
        delta: δ, by default 1e-9.
        rho: the zCDP budget, instead of ``epsilon``.
        workload: which marginals matter: a number of ways, several numbers, a workload file, or
            a :class:`Workload`; by default all 2-way marginals.
        reference: "product" (default) or "uniform", the AIM+GReM of the paper.
        max_memory: ceiling of the process's memory in bytes or as "3GB"; by default three
            quarters of the machine's.
        workers: threads, by default one for every core; the result does not depend on it.
        learning_share: part of the budget for bins and values that the schema leaves to be learnt
            (``private_bins``, ``private_values``); not used by other schemas.
        insecure_seed: makes the noise reproducible, for tests: the release is NOT PRIVATE and is
            stamped so, and so are tables sampled from it that can carry a stamp (pandas in
            ``attrs``, pyarrow in the metadata; polars cannot).
        ledger: path of the data set's ledger, which counts the budget over all runs; without one
            it is counted in memory. A release is kept in the ledger until it is saved.
        resume: go on with the interrupted run in the ledger that was asked for the same.
        anchor: how far the ledger must have come: a file on another volume, which is brought
            forward with it, or its newest entry as ``ledger show`` prints it.
        unreviewed_schema: take a schema that still says that it was taken from the data; the
            promise does not cover what it tells, and the release says so.
        public_rows: about how many rows the tables have, as far as is public; compared with the
            budget before it is spent. The true number is not looked at for that.
        beyond_limits: consent to an epsilon, a delta or a noise beyond the limits of
            :mod:`adaptive_qs.privacy.guard_rails`, which are refused otherwise.
        progress: called with a phase, steps done and steps in all.

    Attributes:
        release_: everything released, a :class:`Release`.
        schema_: the schema of the table.
        rho_: the zCDP budget.
        rho_spent_: zCDP spent, at most the budget.
        epsilon_, delta_: the (ε, δ) that the budget implies.
        rounds_: what each round of the loop did.
        seconds_: seconds per phase of :meth:`fit`; empty after :meth:`load`.
    """

    release_: Release
    seconds_: dict[str, float]
    _kind: Kind
    _session: Session | None = None

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        workload: WorkloadSpec = None,
        reference: str = "product",
        learning_share: float = DEFAULT_SHARE,
        max_memory: int | str | None = None,
        workers: int | None = None,
        insecure_seed: int | None = None,
        ledger: str | Path | None = None,
        resume: bool = False,
        anchor: str | Path | None = None,
        unreviewed_schema: bool = False,
        public_rows: int | None = None,
        beyond_limits: bool = False,
        progress: PhaseProgress | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.rho = rho
        self.workload = workload
        self.reference = reference
        self.learning_share = learning_share
        self.max_memory = max_memory
        self.workers = workers
        self.insecure_seed = insecure_seed
        self.ledger = ledger
        self.resume = resume
        self.anchor = anchor
        self.unreviewed_schema = unreviewed_schema
        self.public_rows = public_rows
        self.beyond_limits = beyond_limits
        self.progress = progress

    def fit(self, table: Any, y: None = None, *, schema: Any = None) -> Self:
        """Spend the budget on a private table.

        Args:
            table: a pandas, polars or pyarrow table, the path of a CSV or Parquet file, or a
                :class:`CodedTable`.
            y: not used; present by convention.
            schema: the public description of the columns: a :class:`Schema`, the path of a
                schema file, or parsed JSON. A coded table needs none.

        Raises:
            InputError: a parameter, the schema, the workload or the table is wrong, the schema is
                unreviewed, or the budget is beyond a limit; nothing has been spent.
            ResourceExceeded: the plan exceeds ``max_memory``; nothing has been spent.
            LedgerError: the ledger cannot be used, or holds no such run to resume.
            BudgetExceeded: the ledger's total does not allow the budget; nothing has been spent.

        Warns:
            UserWarning: there is an ``insecure_seed``, or the schema is unreviewed.
            GuardRailWarning: the budget promises or buys less than may have been meant; told
                before it is spent, but for what only the noisy number of rows shows.
        """
        described = resolve_schema(schema, table, self.max_memory)
        job = Job.of(
            described,
            self.workload,
            epsilon=self.epsilon,
            delta=self.delta,
            rho=self.rho,
            reference=self.reference,
            learning_share=self.learning_share,
            max_memory=self.max_memory,
            workers=self.workers,
            insecure_seed=self.insecure_seed,
            ledger=self.ledger,
            resume=self.resume,
            anchor=self.anchor,
            unreviewed_schema=self.unreviewed_schema,
            public_rows=self.public_rows,
            beyond_limits=self.beyond_limits,
        )
        warn_all(job.doubts, stacklevel=2)
        if self.insecure_seed is not None:
            warnings.warn(
                "insecure_seed: whoever knows the seed can remove the noise: the release and all "
                "tables sampled from it are NOT PRIVATE",
                stacklevel=2,
            )
        if is_unreviewed(described):
            warnings.warn(UNREVIEWED, stacklevel=2)
        if self._session is not None:
            self._session.leave()
        clock = PhaseClock(self.progress)
        with job.session.working(SPENT_IN_VAIN):
            release = job.run(table, clock)
        warn_all(release.doubts, stacklevel=2)
        self._kind = kind_of(table)
        self._session = job.session
        self.seconds_ = clock.stop()
        self._set_release(release)
        return self

    def sample(self, num_rows: int | None = None, seed: int | None = None) -> Any:
        """A synthetic table of the kind that was fitted (pandas for files and after `load`).

        Columns that came as categories come back as categories: the values that the schema lists,
        in its order, ordered where it says so. Columns that came in a nullable type of pandas
        (Int64, boolean, string, ...) or in Arrow's come back in that of their declared type.
        Nothing else is taken from the private table: the categories of its own may be values of
        rows, and whether a plain column is int64, float64 or object is what pandas made of all its
        cells. What pandas or the caller inferred before the program saw the table, such as the
        nullable types that ``convert_dtypes`` gives, lies outside the promise.

        Args:
            num_rows: rows wanted; None takes the noisy number of rows.
            seed: the same seed gives the same table on the same kind of machine with the same
                versions of the libraries; None takes one from the operating system.

        Raises:
            InputError: num_rows is not positive, or the seed is negative.
            ResourceExceeded: the table does not fit ``max_memory``.
            NotFittedError: there is nothing to sample from.
        """
        check_is_fitted(self, "release_")
        workers = plan_workers(self.workers)
        rows = self.release_.num_rows
        if num_rows is not None:
            rows = num_rows = check_rows(num_rows)
        check_sample_rows(rows, len(self.schema_.columns), self.max_memory)
        if self._kind.library == "codes":
            return self.release_.sample(num_rows, seed, workers, self.progress)
        table = self.release_.sample_table(num_rows, seed, workers, self.progress)
        return to_kind(table, self._kind, self.schema_)

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write the release bundle; a ledger then no longer keeps the release.

        Args:
            path: of the bundle.
            force: replace a file that exists; a resumed run replaces what it had written itself.

        Raises:
            InputError: the file exists, or cannot be written.
            NotFittedError: there is nothing to save.
        """
        check_is_fitted(self, "release_")
        mine = self.resume and of_interrupted_run(path, self.ledger)
        self.release_.save(path, force or mine)
        if self._session is not None:
            self._session.finish()

    def __getstate__(self) -> dict[str, Any]:
        """Without the ledger's connection: a copy does not own the run."""
        return {**super().__getstate__(), "_session": None}

    @classmethod
    def load(cls, path: str | Path, max_memory: int | str | None = None) -> Self:
        """A fitted synthesizer from a release bundle.

        Args:
            path: the bundle.
            max_memory: ceiling of the process's memory in bytes or as "3GB", also for sampling; by
                default three quarters of the machine's.

        Raises:
            InputError: the bundle is missing, damaged, or made by a newer version.
            ResourceExceeded: reading it would take more memory.
        """
        release = Release.load(path, max_memory)
        manifest = release.manifest
        loaded = cls(
            rho=manifest.rho,
            delta=manifest.delta,
            workload=release.workload,
            reference=str(manifest.settings.get("reference", "product")),
            max_memory=max_memory,
        )
        loaded._kind = Kind("pandas")
        loaded.seconds_ = {}
        loaded._set_release(release)
        return loaded

    def _set_release(self, release: Release) -> None:
        self.release_ = release
        self.schema_: Schema = release.schema
        self.rho_ = release.manifest.rho
        self.rho_spent_ = release.manifest.rho_spent
        self.epsilon_ = release.manifest.epsilon
        self.delta_ = release.manifest.delta
        self.rounds_: tuple[RoundRecord, ...] = release.rounds
