"""`synthesize DATA`, and what it says when it is done."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from adaptive_qs.cli import io, related_tables
from adaptive_qs.cli.options import (
    OutputOptions,
    PrivateTable,
    QueryOptions,
    SchemaOptions,
    check_distinct,
    check_release,
    check_table,
    chosen_formulas,
    companions,
    locate_file,
    private_inputs,
    resumes,
    timed,
    with_sidecar,
    workload_spec,
    write_stamped,
)
from adaptive_qs.errors import InputError
from adaptive_qs.pages.words import counted
from adaptive_qs.run.options import OUTPUT, Option, SynthesizeOptions
from adaptive_qs.table.files import FORMATS

if TYPE_CHECKING:
    from adaptive_qs.domain import Clique
    from adaptive_qs.release.drawing import Contradiction
    from adaptive_qs.release.release import Release
    from adaptive_qs.run.budget import FinishedRun
    from adaptive_qs.run.job import Job
    from adaptive_qs.run.tables import Tables
    from adaptive_qs.table.sql import Query

# What `synthesize` says when it is done, for people and for scripts.


class TargetCoverage(NamedTuple):
    """How many of the requested marginals that contain the target column were measured."""

    column: str
    measured: int
    combinations: int

    def __str__(self) -> str:
        some = counted(self.combinations, "combination")
        return f"{self.column}: {self.measured:,} of {some} with it measured"


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    Attributes:
        data, schema: the files that went in.
        out, bundle: the files that were written, or None.
        release: what was released.
        rows: rows of the synthetic table, or of the one that the release gives by default.
        seconds: per phase.
        closed: the run in its ledger, where there is one.
        contradictions: cells in which the table is further from the release than chance allows.
    """

    data: Path | Query
    schema: Path
    out: Path | None
    bundle: Path | None
    release: Release
    rows: int
    seconds: Mapping[str, float]
    closed: FinishedRun | None
    contradictions: tuple[Contradiction, ...] = ()

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
            **io.taken_json(self.seconds),
            "seed_insecure": self.release.insecure,
            "out": None if self.out is None else str(self.out),
            "release": None if self.bundle is None else str(self.bundle),
            "ledger": io.closed_json(self.closed),
            "unconnected": list(self.unconnected),
            "left_out": manifest.settings.get("left_out"),
            "contradictions": [asdict(each) for each in self.contradictions],
            "target": None if (served := self.served) is None else served._asdict(),
        }

    @property
    def unconnected(self) -> tuple[str, ...]:
        """Columns without any measured combination."""
        return self.release.manifest.unconnected

    @property
    def served(self) -> TargetCoverage | None:
        """How much of what models need was measured; None where no target was named."""
        target, workload = self.release.manifest.settings.get("target"), self.release.workload
        if target is None:
            return None
        (attribute,) = workload.domain.clique([target])
        wide = [c for c in workload.cliques if attribute in c and len(c) > 1]
        return TargetCoverage(target, len(self._list_measured(wide)), len(wide))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings that follow from released values."""
        from adaptive_qs.release.drawing import warn_of_contradictions

        unconnected = io.unconnected_warnings(self.release)
        return (
            *self.release.doubts, *unconnected, *warn_of_contradictions(self.contradictions),
        )  # fmt: skip

    def lines(self) -> list[io.Row]:
        """The same for a data steward, with the next command to try."""
        manifest = self.release.manifest
        rows: list[io.Row] = []
        if self.release.insecure:
            rows.append(("NOT PRIVATE", manifest.stamp.partition(": ")[2]))
        if self.out is not None:
            width = len(self.release.schema.columns)
            size = f"{counted(self.rows, 'row')}, {counted(width, 'column')}"
            rows.append(("table", f"{io.shown_output(self.out)} ({size})"))
        share = manifest.spent_share(self.release.events)
        spent = "fully" if share > 1 - 1e-5 else f"{share:.2%}"
        rows += [
            ("release", str(self.bundle or "not saved (use --release FILE)")),
            ("privacy", f"epsilon {manifest.epsilon:.6g}, delta {manifest.delta:g}"),
            ("budget", f"rho {manifest.rho:.6g} ({manifest.zcdp}), {spent} spent"),
            *io.closed_rows(self.closed),
            ("protects", f"{manifest.unit}; neighbouring tables {manifest.neighbours}"),
            ("measured", self._measured()),
        ]
        if (served := self.served) is not None:
            rows.append(("target", str(served)))
        rows += io.unconnected_rows(self.release)
        rows += io.taken_rows(self.seconds)
        if following := self._next():
            piped = " < DATA" if "-" in following else ""
            rows.append(("next", shlex.join([io.PROGRAM, *following]) + piped))
        return rows

    def _measured(self) -> str:
        cliques = self.release.workload.cliques
        inside = len(self._list_measured(cliques))
        whole = counted(len(cliques), "marginal")
        taken = {past.clique for past in self.release.rounds if len(past.clique) > 1}
        names = (
            self.release.domain.clique_names(clique) for clique in self._list_measured(cliques)
        )
        coarse = len(taken - set(names)) if self.release.domain.groupings else 0
        grouped = f" at full resolution, {coarse:,} with grouped codes" if coarse else ""
        rounds = counted(len(self.release.rounds), "round")
        return f"{inside:,} of {whole}{grouped}; {rounds}"

    def _list_measured(self, cliques: Sequence[Clique]) -> list[Clique]:
        from adaptive_qs.residual import is_measured

        release = self.release
        return [c for c in cliques if is_measured(release.estimates, c, release.domain)]

    def _next(self) -> list[str]:
        """The next command to try; none where nothing written can be read."""
        from adaptive_qs.table.files import is_written_only

        readable = self.out not in (None, io.STANDARD) and not is_written_only(self.out)
        if not readable:
            return [] if self.bundle is None else ["sample", str(self.bundle), "--out", "table.csv"]
        columns = self.release.schema.columns
        learnt = any(getattr(c, key, None) for c in columns for key in ("learnt", "counted"))
        schema = self.bundle if learnt and self.bundle is not None else self.schema
        tables = [str(self.data), str(self.out)]
        if not isinstance(self.data, Path):
            tables = [str(self.out), "--sql", self.data.sql, "--database", str(self.data.database)]
        return ["evaluate", *tables, "--schema", str(schema)]


# `synthesize DATA`: the main job.

DEMO_OUT = Path("adult_synthetic.csv")
LONG_PASS = 1.0
"""Processor seconds of a scoring pass from which on it is forecast before the run."""


@dataclass(kw_only=True)
class DrawOptions(OutputOptions):
    """How a table is drawn from a release."""

    rows: Annotated[int | None, Option(
        "Rows of the synthetic table.", "N", OUTPUT,
        "the noisy number of private rows, or of those that meet the condition"
    )] = None  # fmt: skip
    seed: Annotated[int | None, Option(
        "Seed of the sampling. The same release and seed give the same table on the same kind of "
        "machine with the same versions.", "N", OUTPUT, "from the operating system"
    )] = None  # fmt: skip
    related_out: Annotated[Path | None, Option(
        "Synthetic table of the children of two related tables.", "FILE", OUTPUT
    )] = None  # fmt: skip


OUT_HELP = f"Synthetic table: {FORMATS.listed()}; - for CSV on standard output."


@dataclass(kw_only=True)
class Options(DrawOptions, SynthesizeOptions, QueryOptions, SchemaOptions):
    """The options of `synthesize`."""

    ways: Annotated[str | None, Option(
        "All sets of K columns, such as 2 or 1,2.", "K", default="2")] = None  # fmt: skip
    demo: Annotated[bool, Option(
        f"Run on the shipped sample (UCI Adult) with epsilon 1. Writes or replaces ./{DEMO_OUT} "
        "unless --out is set.")] = False  # fmt: skip
    related: related_tables.Children = None
    parents_share: related_tables.ParentsShare = None
    out: Annotated[Path | None, Option(OUT_HELP, "FILE", OUTPUT)] = None
    release: Annotated[Path | None, Option(
        "Release (.zip). More tables can be sampled from it at no cost.", "FILE", OUTPUT
    )] = None  # fmt: skip


def synthesize(data: PrivateTable = None, *, options: Options) -> None:
    """Turn a private table into a synthetic one.

    Protects one row: neighbouring tables differ by adding or removing one row. If the schema names
    a person column, protects all rows of a person (--rows-per-person). Everything is checked before
    any budget is spent. The release is saved when all measurements are done; the table is saved
    after fitting.
    """
    if options.related is not None or related_tables.describes_both(data, options.schema):
        related_tables.synthesize(data, options)
        return
    related_tables.refuse(
        "was given without --related, the table of children",
        related_out=options.related_out, parents_share=options.parents_share,
    )  # fmt: skip
    source, schema, options, replacing = private_inputs(data, options, DEMO_OUT)
    replacing, renewing = _check_outputs(source, schema, options, replacing)
    kind = chosen_formulas(options.formulas, schema)

    from adaptive_qs.machine import PhaseClock
    from adaptive_qs.release.release import chosen_seed
    from adaptive_qs.run.tables import SPENT_IN_VAIN
    from adaptive_qs.run.tables import synthesize as spend

    seed = chosen_seed(options.insecure_seed if options.seed is None else options.seed)
    job, out, release = _check_job(schema, options), options.out, options.release
    with io.readable(source) as table, io.progress_bars() as bars:
        clock = PhaseClock(bars)
        with job.session.working(SPENT_IN_VAIN):
            released = spend(job, table, clock)
            with io.receipt(lambda: job.session.note) as written:
                if release is not None:
                    clock.start("write")
                    released.save(release, renewing)
                    written["release"] = release
                rows = released.num_rows
                contradictions: tuple[Contradiction, ...] = ()
                if out is not None:
                    rows = options.rows or rows
                    drawing = released.draw(rows, seed, job.work.limits.workers, clock)
                    write_stamped(
                        timed(drawing.pages(), clock), rows, out, released, seed, kind, replacing,
                        contradictions=lambda: drawing.contradictions,
                    )  # fmt: skip
                    contradictions = drawing.contradictions
                    if out != io.STANDARD:
                        written["table"] = out
                job.session.finish()
    closed = job.session.closed
    outcome = Outcome(
        source, schema, out, release, released, rows, clock.stop(), closed, contradictions
    )
    for warning in outcome.warnings:
        io.warn(warning)
    if options.as_json:
        io.emit_json(outcome.json())
    else:
        io.emit_done(outcome.lines(), out)


def _check_outputs(
    source: Path | Query, schema: Path, options: Options, replacing: bool
) -> tuple[bool, bool]:
    """Refuse outputs that cannot or may not be written; return whether the table and the release
    replace files."""
    out, release = options.out, options.release
    if out is None and release is None:
        raise InputError("No output file is set. Use --out, --release or both.")
    io.check_standard_output(out, options.insecure, options.as_json)
    inputs = [locate_file(source), schema, options.workload, options.about]
    check_distinct([*with_sidecar(out), release], [*inputs, *companions(options)])
    renewing = release is not None and (options.force or resumes(release, options))
    if out is not None:
        replacing = replacing or resumes(out, options)
        check_table(out, replacing)
    if release is not None:
        check_release(release, renewing)
    return replacing, renewing


def _check_job(schema: Path, options: Options) -> Job[Tables]:
    from adaptive_qs.release.release import check_rows
    from adaptive_qs.run.tables import check_sample_rows, tables_job
    from adaptive_qs.table.schema import Schema
    from adaptive_qs.table.schema_files import resolve_about
    from adaptive_qs.table.write import check_format

    described = Schema.load(schema, options.max_memory)
    if options.about is not None:
        described = described.with_about(*resolve_about(options.about))
    spec = workload_spec(options.workload, options.ways)
    job = tables_job(described, replace(options, workload=spec))
    if options.out is not None and options.out != io.STANDARD:
        check_format(options.out, job.schema.names)
    if options.rows is not None:
        check_rows(options.rows)
        check_sample_rows(options.rows, len(job.schema.columns), options.max_memory, held=False)
    io.show_warnings(job, schema)
    if job.work.left_out is not None:
        io.warn(str(job.work.left_out))
    return replace(job, before=partial(_note_forecasts, job.work, options))


def _note_forecasts(work: Tables, options: Options) -> None:
    scoring = work.scoring(options.counted_rows)
    if scoring.seconds >= LONG_PASS or work.left_out is not None:
        io.note(str(scoring))
    if options.public_rows is None and not options.resume and (text := work.forecast.note()):
        io.note(text)
