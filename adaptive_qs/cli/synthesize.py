"""`synthesize DATA`, what it says when it is done, and `sample RELEASE`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_qs.cli import options
from adaptive_qs.cli.files import (
    beside,
    check_distinct,
    check_file,
    check_table,
    companions,
    paid,
    readable,
    write_stamped,
)
from adaptive_qs.cli.ledger import closing_json, closing_lines
from adaptive_qs.cli.output import Row, emit_json, emit_rows, note, progress_bars, warn
from adaptive_qs.errors import InputError
from adaptive_qs.pages.words import counted, first_of
from adaptive_qs.run.request import RunOptions
from adaptive_qs.table.text import check_formulas

if TYPE_CHECKING:
    from adaptive_qs.release.release import Release
    from adaptive_qs.run.job import Job
    from adaptive_qs.run.session import Closing


# What `synthesize` says when it is done, for people and for scripts.


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    Attributes:
        data, schema: the files that went in.
        out, bundle: the files that came out, where asked for.
        release: what was released.
        rows: rows of the synthetic table, or of the one that the release gives by default.
        seconds: per phase.
        closed: the run in its ledger, where there is one.
    """

    data: Path
    schema: Path
    out: Path | None
    bundle: Path | None
    release: Release
    rows: int
    seconds: Mapping[str, float]
    closed: Closing | None

    def json(self) -> dict[str, Any]:
        """The fields that scripts rely on."""
        manifest = self.release.manifest
        return {
            "rows": self.rows,
            "rho": manifest.rho,
            "rho_spent": manifest.rho_spent,
            "epsilon": manifest.epsilon,
            "delta": manifest.delta,
            "unit": manifest.unit,
            "neighbours": manifest.neighbours,
            "rounds": len(self.release.rounds),
            "seconds": {phase: round(spent, 3) for phase, spent in self.seconds.items()},
            "peak_memory_mb": peak_memory_mb(),
            "seed_insecure": self.release.insecure,
            "out": None if self.out is None else str(self.out),
            "release": None if self.bundle is None else str(self.bundle),
            "ledger": closing_json(self.closed),
            "unconnected": list(self.unconnected),
        }

    @property
    def unconnected(self) -> tuple[str, ...]:
        """Columns whose combinations were asked for and none was measured."""
        return self.release.manifest.unconnected

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is poor about the release and its table, told from what was released."""
        doubts = self.release.doubts
        return doubts if self.warning is None else (*doubts, self.warning)

    @property
    def warning(self) -> str | None:
        """That columns are independent of all others; None where none is."""
        if not self.unconnected:
            return None
        from adaptive_qs.loop.forecast import MEND

        verb = "is" if len(self.unconnected) == 1 else "are"
        return f"{self._share_of_columns()} {verb} independent of all others at this budget: {MEND}"

    def lines(self) -> list[Row]:
        """The same for a data steward, with the next command to try."""
        manifest = self.release.manifest
        rows: list[Row] = []
        if self.release.insecure:
            rows.append(("NOT PRIVATE", manifest.stamp.partition(": ")[2]))
        if self.out is not None:
            width = len(self.release.schema.columns)
            size = f"{counted(self.rows, 'row')}, {counted(width, 'column')}"
            rows.append(("table", f"{self.out} ({size})"))
        rows += [
            ("release", str(self.bundle or "not kept (--release FILE would)")),
            ("privacy", f"epsilon {manifest.epsilon:.6g}, delta {manifest.delta:g}"),
            ("budget", f"rho {manifest.rho:.6g} ({manifest.zcdp}), {_share(manifest)} spent"),
            *closing_lines(self.closed),
            ("protects", f"{manifest.unit}; neighbouring tables {manifest.neighbours}"),
            ("measured", _measured(self.release)),
            *self._unconnected_row(),
            ("seconds", ", ".join(f"{phase} {spent:.1f}" for phase, spent in self.seconds.items())),
        ]
        if (peak := peak_memory_mb()) is not None:
            rows.append(("memory", f"{peak:,.0f} MB at most"))
        piped = " < DATA" if "-" in self._next() else ""
        words = shlex.join(["python", "-m", "adaptive_qs", *self._next()])
        return [*rows, ("next", words + piped)]

    def _unconnected_row(self) -> list[Row]:
        if not self.unconnected:
            return []
        shown = f"{first_of(self.unconnected, 6)}: no combination measured"
        return [("unconnected", f"{self._share_of_columns()}: {shown}")]

    def _share_of_columns(self) -> str:
        """Such as "2 of 15 columns"."""
        return f"{len(self.unconnected):,} of {counted(len(self.release.schema.columns), 'column')}"

    def _next(self) -> list[str]:
        if self.out is None:
            return ["sample", str(self.bundle), "--out", "table.csv"]
        learnt = any(getattr(column, "learnt", None) for column in self.release.schema.columns)
        schema = self.bundle if learnt and self.bundle is not None else self.schema
        return ["evaluate", str(self.data), str(self.out), "--schema", str(schema)]


def peak_memory_mb() -> float | None:
    """Largest resident size of this process so far, in MB (2**20 bytes); None if unknown."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


def _share(manifest: Any) -> str:
    share = manifest.rho_spent / manifest.rho
    return "all" if share > 1 - 1e-6 else f"{share:.2%}"


def _measured(release: Release) -> str:
    """How much of the workload was measured as a whole, by the rule of the release's page."""
    from adaptive_qs.residual import is_measured

    domain = release.workload.domain
    inside = sum(is_measured(release.estimates, c, domain) for c in release.workload.cliques)
    whole = counted(len(release.workload), "marginal")
    return f"{inside:,} of {whole}, in {counted(len(release.rounds), 'round')}"


# `synthesize DATA`: the main job.

DEMO_OUT = Path("adult_synthetic.csv")


@options.takes_run(options.OF_TABLES)
def synthesize(
    data: Annotated[
        Path | None,
        typer.Argument(metavar="DATA", help=f"Private table: {options.TABLE_HELP}"),
    ] = None,
    *,
    schema: options.SchemaPath = None,
    workload: options.WorkloadPath = None,
    ways: options.Ways = None,
    reference: options.Reference = "product",
    demo: options.Demo = False,
    run: RunOptions,
    out: options.Out = None,
    release: options.ReleaseOut = None,
    rows: options.Rows = None,
    seed: options.Seed = None,
    formulas: options.FormulasKind = "escape-learnt",
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Turn a private table into a synthetic one.

    The unit of privacy is one row: neighbouring tables differ by adding or removing one row.
    Everything is checked before any budget is spent. The release is saved as soon as it is paid
    for, the table when it is fitted.
    """
    data, schema = private_inputs(data, schema, demo)
    replacing = force or (demo and out is None)
    if demo:
        out = out or DEMO_OUT
        run = run if run.budgeted else replace(run, epsilon=1.0)
    if out is None and release is None:
        raise InputError("nothing would be written: give --out, --release or both")
    spec = options.workload_spec(workload, ways)
    kind = check_formulas(formulas)
    check_distinct(
        [*beside(out), release], [data, schema, workload, *companions(run.ledger, run.anchor)]
    )
    from adaptive_qs.release.bundle import of_interrupted_run

    def mine(path: Path) -> bool:
        return run.resume and of_interrupted_run(path, run.ledger, run.max_memory)

    if out is not None:
        check_table(out, replacing or mine(out))
    if release is not None:
        check_file(release, force or mine(release))

    from adaptive_qs.machine import PhaseClock
    from adaptive_qs.release.release import check_rows, chosen_seed
    from adaptive_qs.run.tables import SPENT_IN_VAIN, tables_job
    from adaptive_qs.run.tables import synthesize as spend
    from adaptive_qs.table.schema import Schema

    sampling_seed = chosen_seed(run.insecure_seed if seed is None else seed)
    job = tables_job(Schema.load(schema, run.max_memory), spec, reference, run)
    limits, forecast = job.work.limits, job.work.forecast
    if rows is not None:
        check_rows(rows)
        limits.check_rows(rows, "the synthetic table (--rows)")
    warn_of(job, schema)

    def tell() -> None:
        if run.public_rows is None and not run.resume and (told := forecast.note()) is not None:
            note(told)

    job = replace(job, before=tell)
    with readable(data) as table, progress_bars() as bars:
        clock = PhaseClock(bars)
        with job.session.working(SPENT_IN_VAIN):
            released = spend(job, table, clock)
            with paid(lambda: job.session.note) as receipt:
                if release is not None:
                    clock.start("write")
                    released.save(release, force=True)  # checked before anything was spent
                    receipt.release = release
                made = released.num_rows
                if out is not None:
                    clock.start("fit")
                    synthetic = released.sample_table(rows, sampling_seed, limits.workers, clock)
                    made = synthetic.num_rows
                    clock.start("write")
                    write_stamped(synthetic, out, released, sampling_seed, kind)
                    receipt.table = out
                job.session.finish()
    outcome = Outcome(data, schema, out, release, released, made, clock.stop(), job.session.closed)
    for warning in outcome.warnings:
        warn(warning)
    if as_json:
        emit_json(outcome.json())
    else:
        emit_rows("Done.", outcome.lines())


def private_inputs(data: Path | None, schema: Path | None, demo: bool) -> tuple[Path, Path]:
    """The private table and its schema, as given or as shipped.

    Raises:
        InputError: one of them is missing, or given beside ``--demo``.
    """
    if demo:
        if data is not None or schema is not None:
            raise InputError("--demo brings its own data and schema: leave out DATA and --schema")
        return demo_files()
    if data is None:
        raise InputError("no DATA was given: name a CSV or Parquet file, or try --demo")
    if schema is None:
        raise InputError(
            "no --schema was given: write one, or start from adaptive-qs schema init DATA"
        )
    return data, schema


def warn_of(job: Job[Any], schema: Path) -> None:
    """Say on stderr what there is to say about a run before anything is spent."""
    from adaptive_qs.table.schema import UNREVIEWED, is_unreviewed

    for doubt in job.doubts:
        warn(doubt)
    if job.options.insecure:
        warn("--insecure-seed: whoever knows the seed can remove the noise; NOT PRIVATE")
    if is_unreviewed(job.schema):
        warn(f"{schema}: {UNREVIEWED}")


def demo_files() -> tuple[Path, Path]:
    """The shipped table and its schema, relative to the working folder where they lie below it."""
    from adaptive_qs.table.files import sample_dataset

    sample, here = sample_dataset(), Path.cwd()
    data, schema = (
        path.relative_to(here) if path.is_relative_to(here) else path
        for path in (sample.data, sample.schema)
    )
    return data, schema


# `sample RELEASE`: another table, free of charge.


def sample(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="Release bundle (.zip).")],
    out: options.RequiredOut,
    rows: options.Rows = None,
    seed: options.Seed = None,
    formulas: options.FormulasKind = "escape-learnt",
    force: options.Force = False,
    as_json: options.Json = False,
    max_memory: options.MaxMemory = None,
    workers: options.Workers = None,
) -> None:
    """Sample another table from a release, at no cost.

    The noise was drawn when the release was made: sampling spends no budget.
    """
    kind = check_formulas(formulas)
    check_distinct(beside(out), [release])
    check_table(out, force)

    from adaptive_qs.machine import PhaseClock, plan_workers
    from adaptive_qs.release.release import Release, check_rows, chosen_seed
    from adaptive_qs.run.tables import check_sample_rows
    from adaptive_qs.table.schema import UNREVIEWED, is_unreviewed

    if rows is not None:
        check_rows(rows)
    seed = chosen_seed(seed)
    threads = plan_workers(workers)
    loaded = Release.load(release, max_memory)
    count = loaded.num_rows if rows is None else rows
    check_sample_rows(count, len(loaded.schema.columns), max_memory)
    if loaded.insecure:
        warn(f"{release}: {loaded.manifest.stamp}")
    if is_unreviewed(loaded.schema):
        warn(f"{release}: {UNREVIEWED}")
    if rows is None and not loaded.counted:
        for doubt in loaded.doubts:
            warn(doubt)
    with progress_bars() as bars:
        clock = PhaseClock(bars)
        clock.start("fit")
        table = loaded.sample_table(rows, seed, threads, clock)
        clock.start("write")
        write_stamped(table, out, loaded, seed, kind)
    seconds = {phase: round(spent, 3) for phase, spent in clock.stop().items()}
    if as_json:
        content = {
            "rows": count,
            "seconds": seconds,
            "peak_memory_mb": peak_memory_mb(),
            "seed_insecure": loaded.insecure,
        }
        emit_json(content)
        return
    lines = [
        ("table", f"{out} ({count:,} rows, {table.num_columns} columns)"),
        ("privacy", "no budget spent: everything comes from the release"),
        ("seconds", f"{seconds['total']:.1f}"),
    ]
    emit_rows("Done.", lines)
