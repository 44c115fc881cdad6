"""`sample RELEASE`, another table, and `marginals RELEASE`, the counts in it: both at no cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_qs.arguments import natural_number
from adaptive_qs.cli import io
from adaptive_qs.cli.options import (
    OutputOptions,
    check_distinct,
    check_table,
    chosen_formulas,
    with_sidecar,
)  # fmt: skip
from adaptive_qs.cli.outputs import Outputs
from adaptive_qs.cli.synthesize import (
    OUT_HELP,
    DrawOptions,
    list_contradictions,
    table_rows,
    warn_of_tables,
)  # fmt: skip
from adaptive_qs.pages.words import counted
from adaptive_qs.run.options import OUTPUT, MachineOptions, Option
from adaptive_qs.table.files import FORMATS
from adaptive_qs.table.text import Formulas

if TYPE_CHECKING:
    from adaptive_qs.release.release import Marginal, Release

ReleaseFile = Annotated[Path, typer.Argument(metavar="RELEASE", help="Release bundle (.zip).")]


@dataclass(kw_only=True)
class SampleOptions(DrawOptions, MachineOptions):
    """The options of `sample`."""

    out: Annotated[Path, Option(OUT_HELP, "FILE", OUTPUT)]
    where: Annotated[str | None, Option(
        'Only rows that meet this condition, such as "sex = F and age >= 65".', "CONDITION"
    )] = None  # fmt: skip


def sample(release: ReleaseFile, *, options: SampleOptions) -> None:
    """Sample another table, or set of tables, from a release, at no cost.

    Sampling spends no budget, because the noise is in the release. With a condition, only rows
    that meet it are drawn. Of a set of tables, conditions select rows of the root, which come with
    all rows below them.
    """
    where, kind = options.where, chosen_formulas(options.formulas, release)
    from adaptive_qs.machine import PhaseClock, plan_workers
    from adaptive_qs.release.release import check_rows, chosen_seed
    from adaptive_qs.release.tables import ReleaseSet
    from adaptive_qs.run.memory import check_sample_rows

    if (rows := options.rows) is not None:
        check_rows(rows)
    seed, threads = chosen_seed(options.seed), plan_workers(options.workers)
    loaded = ReleaseSet.load(release, options.max_memory)
    outputs = Outputs.of(options.out, loaded.schema)
    check_distinct(outputs.files, [release])
    outputs.check(options.force, options.force, loaded.schema)
    _check_loaded(release, loaded.root, options.out, options.as_json)
    check_sample_rows(loaded, rows, options.max_memory, held=False)
    if rows is None and not loaded.root.counted:
        for warning in loaded.warnings:
            io.warn(warning)
    with io.progress_bars() as bars:
        clock = PhaseClock(bars)
        clock.start("fit")
        drawn = loaded.draw(rows, seed, threads, clock, where)
        requested = {"seed": seed, "where": where}
        written = outputs.write(loaded, drawn, requested, kind, options.force, clock)
    for warning in warn_of_tables(written):
        io.warn(warning)
    seconds, root = clock.stop(), written[loaded.schema.root]
    if options.as_json:
        content = {**io.pick(root, "rows", "share"), "contradictions": list_contradictions(written)}
        if loaded.schema.is_set:
            content["tables"] = {name: table.json() for name, table in written.items()}
        content |= io.taken_json(seconds)
        io.emit_json({**content, "seed_insecure": loaded.insecure})
        return
    lines = table_rows(written)
    if where is not None:
        lines.append(("where", f"{where} ({root.share:.2%} of all rows, by the model)"))
    lines += [
        ("privacy", "no budget spent (sampled from the release)"),
        ("seconds", f"{seconds['total']:.1f}"),
    ]
    io.emit_done(lines, options.out)


def _check_loaded(path: Path, loaded: Release, out: Path, as_json: bool) -> None:
    """Warn of what the promise of a release leaves out; refuse an ``out`` that lacks its stamp."""
    from adaptive_qs.table.schema import UNREVIEWED, is_unreviewed

    io.check_standard_output(out, loaded.insecure, as_json)
    if loaded.insecure:
        io.warn(f"{path}: {loaded.manifest.stamp}")
    if is_unreviewed(loaded.schema):
        io.warn(f"{path}: {UNREVIEWED}")


# `marginals RELEASE`: the counts in a release, measured or fitted.

FITTED = "fitted model: closer on average than the measured counts; the error is not known"
MEASURED = "as measured: unbiased, with Gaussian noise"
PARTLY = "partly measured; the rest is filled in under independence, so there is no standard error"


@dataclass(kw_only=True)
class MarginalsOptions(OutputOptions, MachineOptions):
    """The options of `marginals`."""

    columns: Annotated[str, Option("Columns of the marginal, by name.", "A,B")]
    out: Annotated[Path, Option(f"Counts: {FORMATS.listed()}.", "FILE", OUTPUT)]
    fitted: Annotated[bool, Option(
        "Counts of the fitted model, instead of the measured ones: closer on average, without "
        "standard errors.")] = False  # fmt: skip
    seed: Annotated[int, Option(
        "Seed of the model's chains.", "N", OUTPUT, check=natural_number)] = 0  # fmt: skip


def marginals(release: ReleaseFile, *, options: MarginalsOptions) -> None:
    """Write the counts of a marginal from a release, at no cost.

    Writes the measured counts with their standard error, or the counts of the fitted model, which
    are closer on average and have no standard error.
    """
    columns, out = options.columns, options.out
    kind = chosen_formulas(options.formulas, release)
    check_distinct(with_sidecar(out), [release])
    check_table(out, options.force)

    from adaptive_qs.machine import PhaseClock, plan_workers
    from adaptive_qs.release.release import Release, chosen_seed

    seed, threads = chosen_seed(options.seed), plan_workers(options.workers)
    loaded = Release.load(release, options.max_memory)
    _check_loaded(release, loaded, out, options.as_json)
    named = [columns] if columns in loaded.workload.domain.names else columns.split(",")
    with io.progress_bars() as bars:
        clock = PhaseClock(bars)
        if options.fitted:
            (found,) = loaded.fitted_marginals([named], seed, threads, clock)
        else:
            (found,) = loaded.marginals([named])
        sampling = {"seed": seed} if options.fitted else {}
        _write_counts(found, out, loaded, kind, sampling, options.force)
    seconds = clock.stop()
    if options.as_json:
        content = {"columns": list(found.columns), "cells": found.counts.size}
        content |= {**io.pick(found, "basis", "standard_error"), "out": str(out)}
        io.emit_json({**content, **io.taken_json(seconds), "seed_insecure": loaded.insecure})
        return
    words = {"model": FITTED, "measured": MEASURED, "partly measured": PARTLY}[found.basis]
    lines = [
        ("counts", f"{out} ({counted(found.counts.size, 'cell')} of {' x '.join(found.columns)})"),
        ("basis", words),
        ("privacy", "no budget spent (taken from the release)"),
        ("seconds", f"{seconds['total']:.1f}"),
    ]
    if (error := found.standard_error) is not None:
        lines.insert(2, ("error", f"standard error {io.figure(error)} rows in each cell"))
    io.emit_rows("Done.", lines)


def _write_counts(
    found: Marginal, path: Path, release: Release, formulas: Formulas,
    sampling: Mapping[str, Any], replacing: bool,
) -> None:  # fmt: skip
    from adaptive_qs.release.bundle import with_manifest
    from adaptive_qs.table.files import STAMP_KEY, stamped
    from adaptive_qs.table.write import table_format, write_batches

    stamp = release.manifest.stamp
    kind = formulas if table_format(path).is_text else "keep"
    table = found.table(release.schema, kind).replace_schema_metadata({STAMP_KEY: stamp})
    marginal = {"columns": list(found.columns), "basis": found.basis, **sampling}
    with with_manifest(path, replacing) as write_manifest, stamped(path, stamp) as put_stamp:

        def state(sha256: str) -> None:
            write_manifest(release.manifest, marginal=marginal, sha256=sha256)
            put_stamp()

        batches = table.to_batches()
        write_batches(batches, table.schema, path, found.columns, state, replacing)
