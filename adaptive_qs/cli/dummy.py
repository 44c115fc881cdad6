"""`dummy SCHEMA`: a table from the public schema and its rules alone, to test programs with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_qs.arguments import natural_number, positive_integer
from adaptive_qs.cli import io
from adaptive_qs.cli.options import OutputOptions, check_distinct, check_table, chosen_formulas
from adaptive_qs.errors import InputError
from adaptive_qs.pages.words import counted
from adaptive_qs.run.options import OUTPUT, Option

if TYPE_CHECKING:
    from adaptive_qs.release.drawing import Drawing
    from adaptive_qs.table.schema import Schema

STATEMENT = (
    "Dummy table: drawn from the public schema and its rules alone. No private row was read and no "
    "budget was spent. Columns are independent but for the rules: nothing in it is a result."
)
MISSING_SHARE = 0.05
"""Share of the cells of a column with missing markers that are missing."""


@dataclass(kw_only=True)
class DummyOptions(OutputOptions):
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
    from adaptive_qs.machine import PhaseClock
    from adaptive_qs.release.bundle import manifest_path
    from adaptive_qs.release.statement import FORMAT_VERSION
    from adaptive_qs.table.files import atomic_writer
    from adaptive_qs.table.schema import UNREVIEWED, Schema, check_reviewed, is_unreviewed
    from adaptive_qs.table.write import write_table

    rows, out = positive_integer("the number of rows", options.rows), options.out
    out = schema.with_name(f"{schema.stem}.dummy.csv") if out is None else out
    if "dummy" not in out.name.lower():
        raise InputError(f"{out} does not say what it holds. Use a name with dummy.")
    check_distinct([out, manifest_path(out)], [schema])
    check_table(out, options.force)
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

    with io.progress_bars() as bars:
        clock = PhaseClock(bars)
        clock.start("draw")
        drawing = draw_dummy(described, rows, options.seed)
        formulas = chosen_formulas(options.formulas, schema)
        write_table(drawing.pages(), out, described, formulas, state, options.force)
    seconds = clock.stop()
    if options.as_json:
        io.emit_json({**stated, "out": str(out), **io.taken_json(seconds)})
        return
    size = f"{counted(rows, 'row')}, {counted(len(described.written), 'column')}"
    io.emit_rows("Done.", [("dummy", f"{out} ({size})"), ("what it is", STATEMENT),
                           *io.taken_rows(seconds)])  # fmt: skip


def draw_dummy(schema: Schema, rows: int, seed: int) -> Drawing:
    """Return rows of independent columns, under the rules of a schema."""
    import numpy as np

    from adaptive_qs.generate.check import Check, CheckedPages
    from adaptive_qs.generate.rows import synthesize_rows
    from adaptive_qs.generate.zeros import Zero
    from adaptive_qs.release.drawing import Drawing
    from adaptive_qs.residual import ReferenceModel
    from adaptive_qs.table.files import PRIVATE

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
    checked = CheckedPages(parts, Check(model, (), zeros), seed)
    return Drawing(schema, rows, checked, seed, PRIVATE)
