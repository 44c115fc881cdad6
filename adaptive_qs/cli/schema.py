"""`schema init`, `check` and `json-schema`: the public description of a table."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_qs.cli import io
from adaptive_qs.cli.options import (
    TABLE_HELP,
    ForceOptions,
    check_distinct,
    check_file,
)
from adaptive_qs.errors import InputError
from adaptive_qs.pages.words import join_first
from adaptive_qs.run.options import OUTPUT, Option

if TYPE_CHECKING:
    from adaptive_qs.table.columns.base import ColumnBase
    from adaptive_qs.table.schema import Schema

HELP = "Describe a table in public: propose schemas and check them."


@dataclass(kw_only=True)
class InitOptions(ForceOptions):
    """The options of `schema init`."""

    out: Annotated[Path | None, Option("Schema file.", "FILE", OUTPUT, "print")] = None


def init(
    data: Annotated[Path | None, typer.Argument(metavar="[DATA]", help=TABLE_HELP)] = None,
    *,
    options: InitOptions,
) -> None:
    """Propose a schema from the data. The proposal is not private and must be reviewed.

    With --out it also lists the columns and the points to review. Of a set of tables, it proposes
    one table at a time: put these schemas under "tables", and add "keys".
    """
    from adaptive_qs.evaluation.finding import proposed_rules
    from adaptive_qs.table.propose import propose
    from adaptive_qs.table.schema import AS_PROPOSED

    out = options.out
    if data is None:
        raise InputError("No DATA is set. Name a CSV or Parquet file.")
    if out is not None:
        check_distinct([out], [data])
        check_file(out, options.force)
    with io.readable(data) as table:
        proposal = propose(table)
        rules = proposed_rules(table, proposal.schema)
    for reason in proposal.reasons:
        io.warn(f"left out: {reason}")
    for remark in proposal.remarks:
        io.warn(f"check: {remark}")
    io.warn(
        "This schema was taken from the data and is not private. Replace its values and ranges by "
        "public knowledge."
    )
    schema = proposal.schema.with_rules(rules, AS_PROPOSED)
    if out is None:
        io.emit(schema.to_json())
        return
    schema.dump(out, force=True)  # checked before
    following = shlex.join([io.PROGRAM, "schema", "check", str(out)])
    io.note(f"{out} has {len(schema.columns)} columns. Next: {following}")
    emit_checklist(schema.columns, str(out), rules)


def check(
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA", help="Schema or mbi domain file.")],
    data: Annotated[
        Path | None, typer.Argument(metavar="[DATA]", help="A table that should fit the schema.")
    ] = None,
) -> None:
    """Check a schema, and whether a table fits it.

    For a proposed schema it lists what is still to be reviewed. The schema of a set of tables is
    checked without them.
    """
    from adaptive_qs.table.files import is_table_file, is_written_only
    from adaptive_qs.table.tables import TableSet

    if is_table_file(schema):
        if is_written_only(schema):
            raise InputError(
                f"{schema}: is no schema, and no table that can be read: tables in this format are "
                "only written"
            )
        names = ["init", str(schema)] if data is None else ["check", str(data), str(schema)]
        usage = shlex.join([io.PROGRAM, "schema", *names])
        remedy = f"To propose a schema, run {usage}" if data is None else f"Usage: {usage}"
        raise InputError(f"{schema} is a table, not a schema. {remedy}")
    described = TableSet.load(schema)
    if data is not None and described.is_set:
        raise InputError(
            f"{schema} describes a set of tables. Remove DATA; synthesize checks all tables before "
            "it spends anything."
        )
    for name, each in described.tables.items():
        _emit_checked(each, schema, f"{name}: " if described.is_set else "")
    if data is not None:
        from adaptive_qs.learn.gather import gather
        from adaptive_qs.table.encode import read_table

        loaded = described.tables[described.root]
        with io.readable(data) as table:
            if loaded.private_columns:
                gather(table, loaded)
            else:
                read_table(table, loaded)
        io.emit(f"{io.shown(data)}: fits the schema")


def _emit_checked(schema: Schema, path: Path, table: str = "") -> None:
    from adaptive_qs.table.propose import check_schema
    from adaptive_qs.table.schema import left_as_proposed

    for advice in check_schema(schema):
        io.warn(f"{table}{advice}")
    codes = sum(column.size for column in schema.columns)
    io.emit(f"{path} is valid: {table}{len(schema.columns)} columns, {codes:,} codes in total")
    if left := left_as_proposed(schema):
        emit_checklist(left, str(path))


def json_schema(
    kind: Annotated[
        str, typer.Argument(metavar="[schema|tables|workload]", help="Which kind of file.")
    ] = "schema",
) -> None:
    """Print a JSON Schema for editors and validators.

    It describes schema files (of one table, or of a set of tables) or workload files.
    """
    from adaptive_qs.table import schema as of_schema
    from adaptive_qs.table import tables as of_tables
    from adaptive_qs.workload import file as of_workload

    renderers = {
        "schema": of_schema.render, "tables": of_tables.render, "workload": of_workload.render,
    }  # fmt: skip
    if kind not in renderers:
        raise InputError(f"{kind!r} is not a kind of file. Use {', '.join(renderers)}.")
    io.emit(renderers[kind]())


NOT_PRIVATE = "Taken from the data, not private. For the owner only."
"""First line of each list of a proposal."""

MANY = 100
"""Number of values above which the list suggests groups."""


def emit_checklist(columns: Sequence[ColumnBase], path: str, rules: Sequence[str] = ()) -> None:
    """Print the columns and rules that are still as proposed, then what to review."""
    from adaptive_qs.table.columns import COLUMN_TYPES
    from adaptive_qs.table.schema import AS_PROPOSED, TAKEN_FROM_DATA

    kinds = {column.type for column in columns}
    reviews = [column.review for kind, column in COLUMN_TYPES.items() if kind in kinds]
    io.emit(NOT_PRIVATE)
    io.emit_columns(
        ("column", "type", "taken from the rows", "codes"),
        [(c.name, _kind(c), _taken(c), f"{c.size:,}") for c in columns],
    )
    if rules:
        io.emit_columns(
            ("rule", ""), [(rule, "holds in all rows that were read") for rule in rules]
        )
    many = [c.name for c in columns if "groups" in type(c).model_fields and c.size > MANY]
    grouped = (
        f"Do the values of {join_first(many, 3)} belong to larger units, as towns to counties? "
        'Then declare them as "groups".'
    )
    ruled = [("rules", "Must each rule hold for every possible row? Remove the others.")]
    io.emit_rows(
        "Review these points, using public knowledge only:",
        [
            ("column", 'May it be published? If not, add its name to "ignore".'),
            (
                "persons",
                "Can a person have several rows? Then remove the column that identifies the person "
                'and name it as "person".',
            ),
            (
                "computed",
                "Is it computed from other columns (a sum, the month of a date)? Add it to "
                '"ignore".',
            ),
            *dict(row for questions in reviews for row in questions.items()).items(),
            *([("groups", grouped)] if many else ()),
            *(ruled if rules else ()),
            ("missing", "Can cells be empty or contain a marker for unknown values?"),
            ("done", f'Delete "{AS_PROPOSED}" from the description of each reviewed column.'),
            ("all done", f'Delete "{TAKEN_FROM_DATA}" from the description of the schema.'),
            ("next", f"List what is left: {shlex.join([io.PROGRAM, 'schema', 'check', path])}"),
        ],
    )


def _kind(column: ColumnBase) -> str:
    """Return the type, and "ordered" if a schema must declare it."""
    declared = type(column).model_fields.get("ordered")
    said = declared is not None and declared.default is False and column.has_order
    return f"{column.type}, ordered" if said else column.type


def _taken(column: ColumnBase) -> str:
    markers = ", ".join(marker or "empty cell" for marker in column.missing)
    return f"{column.summary}; missing: {markers}" if markers else column.summary


COMMANDS = (init, check, json_schema)
