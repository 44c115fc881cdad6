"""`synthesize DATA`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adaptive_qs.cli import options
from adaptive_qs.cli.artefacts import (
    beside,
    check_distinct,
    check_file,
    check_table,
    companions,
    write_stamped,
)
from adaptive_qs.cli.output import emit_json, emit_rows, note, progress_bars, warn
from adaptive_qs.cli.receipt import paid
from adaptive_qs.cli.standard_input import readable
from adaptive_qs.cli.summary import Outcome
from adaptive_qs.data.formulas import check_formulas
from adaptive_qs.errors import InputError

DEMO_OUT = Path("adult_synthetic.csv")


def synthesize(
    data: Annotated[
        Path | None,
        typer.Argument(metavar="DATA", help=f"Private table: {options.TABLE_HELP}"),
    ] = None,
    schema: options.SchemaPath = None,
    workload: options.WorkloadPath = None,
    ways: options.Ways = None,
    reference: options.Reference = "product",
    learning_share: options.LearningShare = 0.1,
    demo: options.Demo = False,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    rho: options.Rho = None,
    insecure_seed: options.InsecureSeed = None,
    ledger: options.Ledger = None,
    resume: options.Resume = False,
    anchor: options.Anchor = None,
    unreviewed_schema: options.UnreviewedSchema = False,
    public_rows: options.PublicRows = None,
    beyond_limits: options.BeyondLimits = False,
    out: options.Out = None,
    release: options.ReleaseOut = None,
    rows: options.Rows = None,
    seed: options.Seed = None,
    formulas: options.FormulasKind = "escape-learnt",
    force: options.Force = False,
    as_json: options.Json = False,
    max_memory: options.MaxMemory = None,
    workers: options.Workers = None,
) -> None:
    """Turn a private table into a synthetic one.

    The unit of privacy is one row: neighbouring tables differ by adding or removing one row.
    Everything is checked before any budget is spent. The release is saved as soon as it is paid
    for, the table when it is fitted.
    """
    replace = force
    if demo:
        if data is not None or schema is not None:
            raise InputError("--demo brings its own data and schema: leave out DATA and --schema")
        data, schema = demo_files()
        replace = replace or out is None
        out = out or DEMO_OUT
        epsilon = 1.0 if epsilon is None and rho is None else epsilon
    if data is None:
        raise InputError("no DATA was given: name a CSV or Parquet file, or try --demo")
    if schema is None:
        raise InputError(
            "no --schema was given: write one, or start from adaptive-qs schema init DATA"
        )
    if out is None and release is None:
        raise InputError("nothing would be written: give --out, --release or both")
    spec = options.workload_spec(workload, ways)
    kind = check_formulas(formulas)
    check_distinct([*beside(out), release], [data, schema, workload, *companions(ledger, anchor)])
    from adaptive_qs.release.beside import of_interrupted_run

    if out is not None:
        check_table(out, replace or (resume and of_interrupted_run(out, ledger, max_memory)))
    if release is not None:
        check_file(release, force or (resume and of_interrupted_run(release, ledger, max_memory)))

    from adaptive_qs.clock import PhaseClock
    from adaptive_qs.data.review import UNREVIEWED, is_unreviewed
    from adaptive_qs.data.schema import Schema
    from adaptive_qs.release.release import check_rows, chosen_seed
    from adaptive_qs.synthesizer.job import Job
    from adaptive_qs.synthesizer.pipeline import SPENT_IN_VAIN

    sampling_seed = chosen_seed(insecure_seed if seed is None else seed)
    described = Schema.load(schema, max_memory)
    job = Job.of(
        described,
        spec,
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        reference=reference,
        learning_share=learning_share,
        max_memory=max_memory,
        workers=workers,
        insecure_seed=insecure_seed,
        ledger=ledger,
        resume=resume,
        anchor=anchor,
        unreviewed_schema=unreviewed_schema,
        public_rows=public_rows,
        beyond_limits=beyond_limits,
    )
    if rows is not None:
        check_rows(rows)
        job.plan.check_rows(rows, "the synthetic table (--rows)")
    for doubt in job.doubts:
        warn(doubt)
    if insecure_seed is not None:
        warn("--insecure-seed: whoever knows the seed can remove the noise; NOT PRIVATE")
    if is_unreviewed(described):
        warn(f"{schema}: {UNREVIEWED}")

    def tell() -> None:
        if public_rows is None and not resume and (told := job.forecast.note()) is not None:
            note(told)

    with readable(data) as table, progress_bars() as bars:
        clock = PhaseClock(bars)
        with job.session.working(SPENT_IN_VAIN):
            released = job.run(table, clock, tell)
            with paid(lambda: job.session.note) as receipt:
                if release is not None:
                    clock.start("write")
                    released.save(release, force=True)  # checked before anything was spent
                    receipt.release = release
                made = released.num_rows
                if out is not None:
                    clock.start("fit")
                    synthetic = released.sample_table(rows, sampling_seed, job.plan.workers, clock)
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


def demo_files() -> tuple[Path, Path]:
    """The shipped table and its schema, relative to the working folder where they lie below it."""
    from adaptive_qs.data.sample import sample_dataset

    sample, here = sample_dataset(), Path.cwd()
    data, schema = (
        path.relative_to(here) if path.is_relative_to(here) else path
        for path in (sample.data, sample.schema)
    )
    return data, schema
