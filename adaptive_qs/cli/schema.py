"""`schema init`, `check`, `import` and `json-schema`: the public description of a table."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_qs.cli.files import check_distinct, check_file, readable, shown
from adaptive_qs.cli.options import TABLE_HELP, Force
from adaptive_qs.cli.output import Row, counted, emit, emit_columns, emit_rows, note, warn
from adaptive_qs.errors import InputError
from adaptive_qs.pages.words import first_of

if TYPE_CHECKING:
    from adaptive_qs.table.columns.numeric import RangeColumn
    from adaptive_qs.table.schema import AnyColumn, Schema


schema_app = typer.Typer(
    help="Describe a table in public: propose, check and convert schemas.", no_args_is_help=True
)

Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Where to write.  [default: print]"),
]


@schema_app.command("init")
def init(
    data: Annotated[Path, typer.Argument(metavar="DATA", help=TABLE_HELP)],
    out: Out = None,
    force: Force = False,
) -> None:
    """Propose a schema from the data: review it, it is not private.

    With --out it also lists the columns and what there is to review.
    """
    from adaptive_qs.table.propose import propose

    _check_out(out, force, data)
    with readable(data) as table:
        proposal = propose(table)
    for reason in proposal.reasons:
        warn(f"left out: {reason}")
    for remark in proposal.remarks:
        warn(f"check: {remark}")
    warn("taken from the data, not private: replace values and ranges by public knowledge")
    _deliver(proposal.schema, out)
    if out is not None:
        pass

        emit_checklist(proposal.schema.columns, str(out))


@schema_app.command("check")
def check(
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA", help="Schema or mbi domain file.")],
    data: Annotated[
        Path | None, typer.Argument(metavar="[DATA]", help="A table that should fit the schema.")
    ] = None,
) -> None:
    """Check a schema, and whether a table fits it.

    Of a proposed schema it lists what is left to review.
    """
    from adaptive_qs.table.files import is_table_file
    from adaptive_qs.table.schema import Schema, check_schema, left_as_proposed

    if is_table_file(schema):
        names = ["init", str(schema)] if data is None else ["check", str(data), str(schema)]
        mend = shlex.join(["adaptive-qs", "schema", *names])
        proposes = " proposes one" if data is None else ""
        raise InputError(f"{schema}: is a table; the schema comes first: {mend}{proposes}")
    loaded = Schema.load(schema)
    for advice in check_schema(loaded):
        warn(advice)
    codes = sum(column.size for column in loaded.columns)
    emit(f"{schema}: valid, {len(loaded.columns)} columns, {codes:,} codes in all")
    if left := left_as_proposed(loaded):
        pass

        emit_checklist(left, str(schema))
    if data is not None:
        from adaptive_qs.table.encode import encode_file

        with readable(data) as table:
            encode_file(table, loaded)
        emit(f"{shown(data)}: fits the schema")


@schema_app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="Another system's description.")],
    kind: Annotated[
        str, typer.Option("--from", metavar="KIND", help="auto, mbi, sdv, dpmm or dpsynth.")
    ] = "auto",
    out: Out = None,
    force: Force = False,
) -> None:
    """Convert mbi, SDV, dpmm or dpsynth metadata to a schema."""
    from typing import get_args

    from adaptive_qs.table.importers import Kind, import_schema

    if kind not in get_args(Kind):
        raise InputError(f"--from is {kind!r}: give one of {', '.join(get_args(Kind))}")
    _check_out(out, force, source)
    _deliver(import_schema(source, kind), out)  # type: ignore[arg-type]


@schema_app.command("json-schema")
def json_schema(
    kind: Annotated[
        str, typer.Argument(metavar="[schema|workload]", help="Which kind of file.")
    ] = "schema",
) -> None:
    """Print the JSON Schema of schema files or of workload files, for editors and validators."""
    from adaptive_qs.table import schema as of_schema
    from adaptive_qs.workload import file as of_workload

    renderers = {"schema": of_schema.render, "workload": of_workload.render}
    if kind not in renderers:
        raise InputError(f"{kind!r} is no kind of file: give schema or workload")
    emit(renderers[kind]())


def _check_out(out: Path | None, force: bool, source: Path) -> None:
    if out is not None:
        check_distinct([out], [source])
        check_file(out, force)


def _deliver(schema: Schema, out: Path | None) -> None:
    if out is None:
        emit(schema.to_json())
        return
    schema.dump(out, force=True)  # checked by _check_out
    check = shlex.join(["adaptive-qs", "schema", "check", str(out)])
    note(f"{out}: {len(schema.columns)} columns; next: {check}")


# What there is to review in a proposed schema, column by column: for the owner, not private.

NOT_PRIVATE = "taken from the data, not private: for the owner only"
"""Opens every list of what was proposed."""
_WIDTH = 64
"""Characters of a list of values."""
_MANY_ORDERS = 6
_OWN = 3
"""Values with a bin of their own that are named."""
_HEADINGS = ("column", "type", "taken from the rows", "codes")


def emit_checklist(columns: Sequence[AnyColumn], path: str) -> None:
    """Print one line for each column, then what to look at.

    Args:
        columns: those that are left as proposed, at least one.
        path: of the schema file.
    """
    emit(NOT_PRIVATE)
    emit_columns(_HEADINGS, [(c.name, _kind(c), _taken(c), f"{c.size:,}") for c in columns])
    emit_rows(
        "To review, with what is known without the rows:", [*_questions(columns), *_end(path)]
    )


def _questions(columns: Sequence[AnyColumn]) -> list[Row]:
    kinds = {column.type for column in columns}
    rows: list[Row] = [
        ("column", "may it be shared? If not, list its name under ignore"),
        ("computed", "does it follow from others (a sum, the month of a date)? Ignore it, too"),
    ]
    if "categorical" in kinds:
        rows.append(("values", "could others occur? Add them, or a catch_all, for rare ones, too"))
        rows.append(("order", "do the values have one? Is it right?"))
    if kinds - {"categorical", "boolean"}:
        rows.append(("range", 'which ends are public? "outside": "clip" moves what is beyond'))
    if kinds & {"integer", "numeric"}:
        rows.append(("bins", "round or usual limits? A bin each for 0, top codes and the like?"))
    rows.append(("missing", "may cells be empty, or say that a value is not known?"))
    return rows


def _end(path: str) -> list[Row]:
    from adaptive_qs.table.schema import AS_PROPOSED, TAKEN_FROM_DATA

    return [
        ("reviewed", f'take "{AS_PROPOSED}" out of the description of the column'),
        ("all reviewed", f'take "{TAKEN_FROM_DATA}" out of the description of the schema'),
        ("what is left", shlex.join(["adaptive-qs", "schema", "check", path])),
    ]


def _kind(column: AnyColumn) -> str:
    ordered = column.type == "categorical" and column.ordered
    return f"{column.type}, ordered" if ordered else column.type


def _taken(column: AnyColumn) -> str:
    """The values or the range, the bins, and the missing markers of a column."""
    from adaptive_qs.table.columns.category import BooleanColumn, CategoricalColumn
    from adaptive_qs.table.columns.moment import MomentColumn
    from adaptive_qs.table.columns.numeric import IntegerColumn, NumericColumn

    if isinstance(column, CategoricalColumn):
        text = _listed([str(value) for value in column.labels])
    elif isinstance(column, BooleanColumn):
        text = "false, true"
    elif isinstance(column, IntegerColumn):
        text = f"{column.min} to {column.max}{_bins(column)}{_beyond(column)}"
    elif isinstance(column, NumericColumn):
        low, high = column.bin_edges[0], column.bin_edges[-1]
        if column.grid is not None:
            high = column.grid[1][-1] / 10 ** (column.decimals or 0)
        span = _orders_of_magnitude(column.bin_edges)
        text = f"{low:.9g} to {high:.9g}{span}{_bins(column)}{_beyond(column)}"
    elif isinstance(column, MomentColumn):
        text = f"{column.min} to {column.max} by {column.granularity}"
    else:
        text = "bins or values to be learnt"
    markers = ", ".join(marker or "empty cell" for marker in column.missing)
    return f"{text}; missing: {markers}" if markers else text


def _orders_of_magnitude(edges: Sequence[float]) -> str:
    """How far the ends of the bins reach, where that is worth a word."""
    sizes = [abs(edge) for edge in edges if edge]
    orders = math.log10(max(sizes)) - math.log10(min(sizes)) if sizes else 0
    return f", {orders:.0f} orders of magnitude," if orders >= _MANY_ORDERS else ""


def _beyond(column: RangeColumn) -> str:
    return ", clipped beyond" if column.outside == "clip" else ""


def _listed(values: Sequence[str]) -> str:
    """All values, or the first ones and the last."""
    shown = [
        value if len(value) <= _WIDTH // 2 else f"{value[: _WIDTH // 2]}..." for value in values
    ]
    text = ", ".join(shown)
    if len(text) <= _WIDTH:
        return text
    kept = shown[:-1]
    while len(kept) > 1 and len(", ".join([*kept, "...", shown[-1]])) > _WIDTH:
        kept.pop()
    return ", ".join([*kept, "...", shown[-1]])


def _bins(column: AnyColumn) -> str:
    """The number of bins, and which values have one of their own."""
    from adaptive_qs.table.columns.numeric import IntegerColumn, NumericColumn

    own: list[str] = []
    if isinstance(column, IntegerColumn):
        if column.starts is None:
            return ""
        ends = pairwise((*column.starts, column.max + 1))
        own = [str(start) for start, end in ends if end == start + 1]
    elif isinstance(column, NumericColumn) and column.grid is not None:
        unit = 10 ** (column.decimals or 0)
        own = [f"{first / unit:.9g}" for first, last in zip(*column.grid) if first == last]
    words = f" in {counted(column.num_values, 'bin')}"
    if not own:
        return words
    return f"{words}, own {'bin' if len(own) == 1 else 'bins'}: {first_of(own, _OWN)}"
