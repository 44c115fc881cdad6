"""Tables at no cost: `sample RELEASE`, `marginals RELEASE`, and `dummy SCHEMA` from a schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_qs.arguments import natural_number, positive_integer, split_names
from adaptive_qs.cli import io, synthesize
from adaptive_qs.cli import options as shared
from adaptive_qs.cli.outputs import Outputs
from adaptive_qs.cli.synthesize import OUT_HELP, DrawOptions, list_contradictions, table_rows
from adaptive_qs.errors import InputError
from adaptive_qs.machine import plan_workers
from adaptive_qs.pages.words import counted
from adaptive_qs.run.options import OUTPUT, MachineOptions, Option
from adaptive_qs.table.files import FORMATS, PRIVATE, STAMP_KEY, atomic_writer
from adaptive_qs.table.text import Formulas

if TYPE_CHECKING:
    from adaptive_qs.release.drawing import Drawing
    from adaptive_qs.release.release import Marginal, Release
    from adaptive_qs.table.schema import Schema

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
    where, kind = options.where, shared.chosen_formulas(options.formulas, release)
    from adaptive_qs.release.release import check_rows, chosen_seed
    from adaptive_qs.release.tables import ReleaseSet
    from adaptive_qs.run.memory import check_sample_rows

    if (rows := options.rows) is not None:
        check_rows(rows)
    seed, threads = chosen_seed(options.seed), plan_workers(options.workers)
    loaded = ReleaseSet.load(release, options.max_memory)
    outputs = Outputs.of(options.out, loaded.schema)
    shared.check_distinct(outputs.files, [release])
    outputs.check(options.force, options.force, loaded.schema)
    _warn_of_loaded(release, loaded.root)
    check_sample_rows(loaded, rows, options.max_memory, held=False)
    if rows is None and not loaded.root.counted:
        for warning in loaded.warnings:
            io.warn(warning)
    with io.progress_bars() as clock:
        clock.start("fit")
        drawn = loaded.draw(rows, seed, threads, clock, where)
        requested = {"seed": seed, "where": where}
        written = outputs.write(loaded, drawn, requested, kind, options.force, clock)
    for warning in synthesize.warn_of_tables(written):
        io.warn(warning)
    seconds, root = clock.stop(), written[loaded.schema.root]
    content = {**io.pick(root, "rows", "share"), "contradictions": list_contradictions(written)}
    if loaded.schema.is_set:
        content["tables"] = {name: table.json() for name, table in written.items()}
    content |= {**io.taken_json(seconds), "seed_insecure": loaded.insecure}
    lines = table_rows(written)
    if where is not None:
        lines.append(("where", f"{where} ({root.share:.2%} of all rows, by the model)"))
    lines += [
        ("privacy", "no budget spent (sampled from the release)"),
        ("seconds", f"{seconds['total']:.1f}"),
    ]
    io.conclude(options.as_json, content, lines)


def _warn_of_loaded(path: Path, loaded: Release) -> None:
    """Warn of what the promise of a release leaves out."""
    from adaptive_qs.table.schema import UNREVIEWED, is_unreviewed

    if loaded.insecure:
        io.warn(f"{path}: {loaded.manifest.stamp}")
    if is_unreviewed(loaded.schema):
        io.warn(f"{path}: {UNREVIEWED}")


# `marginals RELEASE`: the counts in a release, measured or fitted.

FITTED = "fitted model: closer on average than the measured counts; the error is not known"
MEASURED = "as measured: unbiased, with Gaussian noise"
PARTLY = "partly measured; the rest is filled in under independence, so there is no standard error"


@dataclass(kw_only=True)
class MarginalsOptions(shared.OutputOptions, MachineOptions):
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
    kind = shared.chosen_formulas(options.formulas, release)
    shared.check_distinct(shared.with_sidecar(out), [release])
    shared.check_table(out, options.force)

    from adaptive_qs.release.release import Release, chosen_seed

    seed, threads = chosen_seed(options.seed), plan_workers(options.workers)
    loaded = Release.load(release, options.max_memory)
    _warn_of_loaded(release, loaded)
    known = columns in loaded.workload.domain.names
    named = [columns] if known else split_names(columns) or [columns]
    with io.progress_bars() as clock:
        if options.fitted:
            (found,) = loaded.fitted_marginals([named], seed, threads, clock)
        else:
            (found,) = loaded.marginals([named])
        sampling = {"seed": seed} if options.fitted else {}
        _write_counts(found, out, loaded, kind, sampling, options.force)
    seconds = clock.stop()
    content = {
        "columns": list(found.columns), "cells": found.counts.size,
        **io.pick(found, "basis", "standard_error"), "out": str(out), **io.taken_json(seconds),
        "seed_insecure": loaded.insecure,
    }  # fmt: skip
    words = {"model": FITTED, "measured": MEASURED, "partly measured": PARTLY}[found.basis]
    lines = [
        ("counts", f"{out} ({counted(found.counts.size, 'cell')} of {' x '.join(found.columns)})"),
        ("basis", words),
        ("privacy", "no budget spent (taken from the release)"),
        ("seconds", f"{seconds['total']:.1f}"),
    ]
    if (error := found.standard_error) is not None:
        lines.insert(2, ("error", f"standard error {io.figure(error)} rows in each cell"))
    io.conclude(options.as_json, content, lines)


def _write_counts(
    found: Marginal,
    path: Path,
    release: Release,
    formulas: Formulas,
    sampling: Mapping[str, Any],
    replacing: bool,
) -> None:
    from adaptive_qs.release.bundle import with_manifest
    from adaptive_qs.table.write import table_format, write_batches

    kind = formulas if table_format(path).is_text else "keep"
    stamp = {STAMP_KEY: release.manifest.stamp}
    table = found.table(release.schema, kind).replace_schema_metadata(stamp)
    marginal = {"columns": list(found.columns), "basis": found.basis, **sampling}
    with with_manifest(path, replacing) as write_manifest:

        def state(sha256: str) -> None:
            write_manifest(release.manifest, marginal=marginal, sha256=sha256)

        write_batches(table.to_batches(), table.schema, path, found.columns, state, replacing)


# `dummy SCHEMA`: a table from the public schema and its rules alone, to test programs with.

STATEMENT = (
    "Dummy table: drawn from the public schema and its rules alone. No private row was read and no "
    "budget was spent. Columns are independent but for the rules: nothing in it is a result."
)
MISSING_SHARE = 0.05
"""Share of the cells of a column with missing markers that are missing."""


@dataclass(kw_only=True)
class DummyOptions(shared.OutputOptions):
    """The options of `dummy`."""

    out: Annotated[Path | None, Option(
        "Table with “dummy” in its name.", "FILE", OUTPUT, "SCHEMA.dummy.csv")] = None  # fmt: skip
    rows: Annotated[int, Option("Rows of the table.", "N", OUTPUT)] = 1_000
    seed: Annotated[int, Option("Seed of the rows.", "N", OUTPUT, check=natural_number)] = 0
    unreviewed_schema: Annotated[bool, Option(
        "Accept a schema that is still marked as taken from the data: then the table shows parts "
        "of the data.", "")] = False  # fmt: skip


def dummy(
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA", help="Schema or mbi domain file.")],
    *,
    options: DummyOptions,
) -> None:
    """Make a table from the public schema and its rules alone, to test programs with.

    No private row is read and no budget is spent. Every value is declared and every row meets the
    rules; otherwise columns are independent, and all values of a column equally frequent.
    """
    from adaptive_qs.release.bundle import manifest_path
    from adaptive_qs.release.statement import FORMAT_VERSION
    from adaptive_qs.table.schema import UNREVIEWED, Schema, check_reviewed, is_unreviewed
    from adaptive_qs.table.write import write_table

    rows, out = positive_integer("the number of rows", options.rows), options.out
    out = schema.with_name(f"{schema.stem}.dummy.csv") if out is None else out
    if "dummy" not in out.name.lower():
        raise InputError(f"{out} does not say that it is a dummy. Use a name that contains dummy.")
    shared.check_distinct([out, manifest_path(out)], [schema])
    shared.check_table(out, options.force)
    described = Schema.load(schema)
    check_reviewed(described, options.unreviewed_schema)
    if is_unreviewed(described):
        io.warn(f"{schema}: {UNREVIEWED}")
    described = described.with_columns(c.stand_in() for c in described.columns if c.is_open)
    stated = {
        "format_version": FORMAT_VERSION, "kind": "dummy", "statement": STATEMENT, "rows": rows,
        "seed": options.seed, "schema_fingerprint": described.fingerprint,
    }  # fmt: skip

    def state(sha256: str) -> None:
        with atomic_writer(manifest_path(out), options.force) as file:
            file.write((json.dumps({**stated, "sha256": sha256}, indent=2) + "\n").encode())

    with io.progress_bars() as clock:
        clock.start("draw")
        drawing = draw_dummy(described, rows, options.seed)
        formulas = shared.chosen_formulas(options.formulas, schema)
        write_table(drawing.pages(), out, described, formulas, state, options.force)
    seconds = clock.stop()
    content = {**stated, "out": str(out), **io.taken_json(seconds)}
    size = f"{counted(rows, 'row')}, {counted(len(described.written), 'column')}"
    lines = [("dummy", f"{out} ({size})"), ("what it is", STATEMENT), *io.taken_rows(seconds)]
    io.conclude(options.as_json, content, lines)


def draw_dummy(schema: Schema, rows: int, seed: int) -> Drawing:
    """Return rows of independent columns, under the rules of a schema."""
    import numpy as np

    from adaptive_qs.generate.check import Check, CheckedPages
    from adaptive_qs.generate.rows import synthesize_rows
    from adaptive_qs.generate.zeros import Zero
    from adaptive_qs.release.drawing import Drawing
    from adaptive_qs.residual import ReferenceModel

    domain, reference = schema.domain(), []
    for column in schema.columns:
        shares = np.full(column.size, 1 / column.size)
        if (code := column.missing_code) is not None and column.size > 1:
            shares[:] = (1 - MISSING_SHARE) / (column.size - 1)
            shares[code] = MISSING_SHARE
        reference.append(shares)
    model = ReferenceModel(domain, reference)
    cells = () if schema.ruleset is None else schema.ruleset.cells
    zeros = tuple(Zero(domain.clique(c.names), c.allowed) for c in cells)
    single = tuple((i,) for i in range(len(domain)))
    parts = synthesize_rows(model, (), single, rows, seed, zeros=zeros)
    return Drawing(schema, rows, CheckedPages(parts, Check(model, (), zeros), seed), seed, PRIVATE)
