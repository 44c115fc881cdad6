"""The main job for callers of Python: fit a private table once, then sample, save and load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import narwhals as nw
import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
import pyarrow as pa
import pyarrow.compute as pc

from adaptive_qs.arguments import Estimator
from adaptive_qs.loop import LEVELS
from adaptive_qs.machine import PhaseClock, PhaseProgress, plan_workers
from adaptive_qs.privacy.budget import warn_all
from adaptive_qs.release.bundle import is_from_interrupted_run
from adaptive_qs.release.drawing import warn_of_contradictions
from adaptive_qs.release.release import check_rows
from adaptive_qs.release.statement import RoundRecord
from adaptive_qs.release.tables import ReleaseSet
from adaptive_qs.run.budget import Session
from adaptive_qs.run.memory import check_sample_rows
from adaptive_qs.run.options import SynthesizeOptions, checked, documented
from adaptive_qs.run.tables import SPENT_IN_VAIN, SetJob, synthesize
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.files import PRIVATE, STAMP_KEY
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.schema_files import resolve_about
from adaptive_qs.table.tables import TableSet

# Sampled tables in the kind of data frame that the caller works with.
#
# A data frame tells how its columns are kept, and some of that pandas infers from the cells: one
# row without a value turns a column of int64 into float64, and one that is no number turns it into
# text. A table that comes back must not tell it on. So the frame says only which *family* of
# containers the caller chose for a column: categories, pandas's nullable types, Arrow's types. All
# else (whether a column holds integers, numbers or text, its categories and their order) comes from
# the schema, which is public; plain types (int64, float64, object, pandas's default text) say
# nothing at all.

Library = Literal["pandas", "polars", "pyarrow", "codes"]
_CATEGORIES, _ARROW = "categories", "arrow"
_INTEGERS = frozenset(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))
_NULLABLE = {"int64": "Int64", "double": "Float64", "bool": "boolean", "string": "string"}
"""Types of pandas with a missing value, by the type of Arrow that a declared column has."""


@dataclass(frozen=True)
class Kind:
    """The kind of table that came.

    Attributes:
        library: whose tables they are.
        containers: by name, of the columns for which one was chosen: categories, Arrow's types, or
            the name of a nullable type of pandas.
    """

    library: Library
    containers: Mapping[str, str] = field(default_factory=dict)


def find_kind(table: Any) -> Kind:
    """Return the kind of a given table; files and everything unknown count as pandas."""
    if isinstance(table, CodedTable):
        return Kind("codes")
    native = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(native, nw.DataFrame):
        return Kind("pandas")
    if native.implementation.is_pyarrow():
        chosen = {f.name: _CATEGORIES for f in table.schema if pa.types.is_dictionary(f.type)}
        return Kind("pyarrow", chosen)
    if native.implementation.is_polars():
        listed = (nw.Enum, nw.Categorical)
        return Kind("polars", {n: _CATEGORIES for n, t in native.schema.items() if t in listed})
    if not isinstance(table, pd.DataFrame):
        return Kind("pandas")
    found = {str(name): _container(dtype) for name, dtype in table.dtypes.items()}
    return Kind("pandas", {name: kept for name, kept in found.items() if kept is not None})


def _container(dtype: Any) -> str | None:
    """Return the container that a type of pandas stands for; None for the plain ones."""
    if isinstance(dtype, pd.CategoricalDtype):
        return _CATEGORIES
    if isinstance(dtype, pd.ArrowDtype):
        return _ARROW
    if isinstance(dtype, pd.StringDtype):  # the default text of pandas has NaN, not NA
        return f"string[{dtype.storage}]" if dtype.na_value is pd.NA else None
    nullable = {*_INTEGERS, "Float32", "Float64", "boolean"}
    return str(dtype.name) if dtype.name in nullable else None


def to_kind(table: pa.Table, kind: Kind, schema: Schema) -> Any:
    """Return the decoded table as that kind of data frame.

    Columns that came as categories have the values that the schema lists as categories, in its
    order, and are ordered where it says so. In pandas, columns that came in a nullable type come
    back in the one of their declared type, with the integer type that came where the declared
    values fit it; plain columns with missing values have the nullable types Int64 and boolean, so
    that integers stay integers; dates are datetime64. A stamp in the table's metadata that says
    that it is not private is copied to ``attrs``.

    Args:
        table: values of the declared types.
        kind: what came.
        schema: of the table.
    """
    categories = {
        column.name: column
        for column in schema.columns
        if column.listed is not None and kind.containers.get(column.name) == _CATEGORIES
    }
    if kind.library == "pyarrow":
        for name, column in categories.items():
            place = table.column_names.index(name)
            table = table.set_column(place, name, _dictionary(table[name], column))
        return table
    if kind.library == "polars":
        frame = nw.from_arrow(table, backend="polars")
        texts = {n: c for n, c in categories.items() if pa.types.is_string(table[n].type)}
        enums = [
            nw.col(n).cast(nw.Enum([str(v) for v in c.listed or ()])) for n, c in texts.items()
        ]
        return frame.with_columns(enums).to_native() if enums else frame.to_native()
    frame = table.to_pandas(date_as_object=False)
    for name, column in zip(table.column_names, table.columns):
        if name in categories:
            frame[name] = _dictionary(column, categories[name]).to_pandas()
        elif dtype := _dtype(kind.containers.get(name), column, schema.by_name[name]):
            frame[name] = _filled(column, dtype)
    stamp = (table.schema.metadata or {}).get(STAMP_KEY, b"").decode()
    if stamp not in ("", PRIVATE):
        frame.attrs[STAMP_KEY.decode()] = stamp
    return frame


def _dtype(kept: str | None, values: pa.ChunkedArray, column: ColumnBase) -> Any:
    """Return the type of pandas for values of a declared type; None for the plain one.

    Numbers are kept in 64 bits: fewer would move some of them out of their bins.
    """
    declared = values.type
    if kept in (None, _CATEGORIES):
        plain = not values.null_count or declared not in (pa.int64(), pa.bool_())
        return None if plain else _NULLABLE[str(declared)]
    if kept == _ARROW:
        return pd.ArrowDtype(declared)
    if kept.startswith("string") and pa.types.is_string(declared):
        return kept
    if kept in _INTEGERS and pa.types.is_integer(declared):
        limits = np.iinfo(kept.lower())
        low, high = column.limits or (-np.inf, np.inf)
        return kept if limits.min <= low and high <= limits.max else "Int64"
    return _NULLABLE.get(str(declared))


def _filled(column: pa.ChunkedArray, dtype: Any) -> Any:
    """Return a column in an extension type of pandas, without a detour over floats."""
    if isinstance(dtype, pd.ArrowDtype):
        return pd.array(column.combine_chunks(), dtype=dtype)
    if pa.types.is_string(column.type):
        return pd.array(column.to_pandas(), dtype=dtype)
    missing = column.is_null().to_numpy()
    array = pd.array(column.fill_null(pa.scalar(0).cast(column.type)).to_numpy(), dtype=dtype)
    array[missing] = pd.NA
    return array


def _dictionary(column: pa.ChunkedArray, listed: ColumnBase) -> pa.DictionaryArray:
    """Values as positions among those that the schema lists; null where missing."""
    values = pa.array(listed.listed)
    codes = pc.index_in(column, value_set=values).combine_chunks()
    return pa.DictionaryArray.from_arrays(codes, values, ordered=listed.has_order)


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
    _kinds: dict[str, Kind] = field(init=False)
    _session: Session | None = field(init=False, default=None)

    def fit(self, table: Any, y: None = None, *, schema: Any = None) -> Self:
        """Spend the budget on a private table, or on a set of tables.

        Args:
            table: a pandas, polars or pyarrow table, the path of a CSV or Parquet file, of a folder
                or a pattern of such files, a relation of DuckDB, or a :class:`CodedTable`. Of a
                set: a mapping of names to such tables, or the path of a folder or database with
                all of them.
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
        options = checked(self, SynthesizeOptions)
        described = TableSet.resolve(schema, table, options.max_memory)
        if options.about is not None:
            described = described.with_about(*resolve_about(options.about))
        tables = {described.root: table}
        if described.is_set:
            from adaptive_qs.table.joined import name_tables  # few runs need it

            tables = name_tables(table, described)
        job = SetJob.of(described, options)
        job.root.warn("the release and all tables sampled from it are", stacklevel=2)
        warn_all((*job.more_doubts, *job.list_dropped()), stacklevel=2)
        if self._session is not None:
            self._session.leave()
        clock = PhaseClock(self.progress)
        with job.session.working(SPENT_IN_VAIN):
            release = synthesize(job, tables, clock)
        self._kinds = {name: find_kind(each) for name, each in tables.items()}
        self._session = job.session
        self.seconds_ = clock.stop()
        self._set_release(release)
        warn_all(release.warnings, stacklevel=2)  # last: a filter may turn it into an exception
        return self

    def sample(
        self,
        num_rows: int | None = None,
        seed: int | None = None,
        where: str | None = None,
        balance: str | None = None,
    ) -> Any:
        """Return a synthetic table of the kind that was fitted; of a set, a dictionary of tables.

        Tables come as pandas frames for files and after `load`. Columns that came as categories, or
        in a nullable type of pandas or Arrow's, come back so, with the values, order and type that
        the schema declares; see :func:`to_kind`. Nothing else is taken from the private table. What
        pandas or the caller inferred before the program saw it, such as the nullable types that
        ``convert_dtypes`` gives, lies outside the promise. Tables of a set have new keys, from 1
        on.

        Args:
            num_rows: rows, of a set rows of the root; None takes their noisy number, or that of
                those that meet the condition.
            seed: the same seed gives the same table on the same kind of machine with the same
                versions of the libraries; None takes one from the operating system.
            where: a condition that all rows meet, such as "sex = F and age >= 65"; see
                :meth:`Release.draw`. Of a set, one that all rows of the root meet.
            balance: a column whose values, bins or periods the rows have in equal numbers.

        Raises:
            InputError: num_rows is not positive, the seed is negative, or the condition or the
                column asks for what there is not.
            ResourceExceeded: the table does not fit ``max_memory``.
            NotFittedError: there is nothing to sample from.
        """
        self.check_fitted()
        workers = plan_workers(self.workers)
        released = self._released
        if num_rows is not None:
            num_rows = check_rows(num_rows)
        check_sample_rows(released, num_rows, self.max_memory)
        found = {}
        for drawn in released.draw(num_rows, seed, workers, self.progress, where, balance):
            warn_all(drawn.warnings, stacklevel=2)
            kind = self._kinds[drawn.name]
            if kind.library == "codes" and drawn.drawing is not None:
                found[drawn.name] = drawn.drawing.coded()
            else:
                made = pa.concat_tables(drawn.pages)
                found[drawn.name] = to_kind(made, kind, drawn.schema)
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
        self.check_fitted()
        own = self.resume and is_from_interrupted_run(path, self.ledger)
        self._released.save(path, force or own)
        if self._session is not None:
            self._session.finish()

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
        released = ReleaseSet.load(path, max_memory)
        manifest, root = released.manifest, released.root
        target = manifest.settings.get("target")
        workload = None if released.schema.is_set else replace(root.workload, target=target)
        loaded = cls(
            rho=manifest.rho,
            delta=manifest.delta,
            workload=workload,
            target=target,
            levels=str(manifest.settings.get("levels", LEVELS[0])),
            max_memory=max_memory,
        )
        loaded._kinds = dict.fromkeys(released.tables, Kind("pandas"))
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
