"""`schema init` and `schema check`: the public description of a table."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_qs.cli import io
from adaptive_qs.cli.options import TABLE_HELP, ForceOptions, check_distinct, check_file
from adaptive_qs.errors import InputError
from adaptive_qs.pages.words import counted
from adaptive_qs.run.options import OUTPUT, Option

if TYPE_CHECKING:
    from adaptive_qs.table.columns.base import ColumnBase
    from adaptive_qs.table.schema import Schema

HELP = "Describe a table in public: propose schemas and check them."


@dataclass(kw_only=True)
class InitOptions(ForceOptions):
    """The options of `schema init`."""

    out: Annotated[Path | None, Option("Schema file.", "FILE", OUTPUT, "print")] = None
    ask: Annotated[bool, Option("Ask the open questions one by one.", "", OUTPUT)] = False
    dictionary: Annotated[Path | None, Option(
        "Data dictionary: JSON, or CSV or Excel with columns name, code and label.", "FILE"
    )] = None  # fmt: skip


@dataclass(kw_only=True)
class CheckOptions:
    """Options of `schema check`."""

    ask: Annotated[bool, Option(
        "Ask the open questions of a proposal, and store the answers in SCHEMA.", ""
    )] = False  # fmt: skip


def init(
    data: Annotated[Path | None, typer.Argument(metavar="[DATA]", help=TABLE_HELP)] = None,
    *,
    options: InitOptions,
) -> None:
    """Propose a schema from the data. The proposal is not private and must be reviewed.

    With --out it also lists the columns and the points to review. Of a set of tables, it proposes
    one table at a time: put these schemas under "tables", and add "keys".
    """
    from adaptive_qs.evaluation.finding import propose_rules
    from adaptive_qs.table.dictionary import read_dictionary
    from adaptive_qs.table.propose import propose

    out = options.out
    if data is None:
        raise InputError("No DATA is set. Name a CSV or Parquet file.")
    if out is not None:
        check_distinct([out], [data])
        check_file(out, options.force)
    elif options.ask:
        raise InputError("--ask needs --out, the schema file that gets the answers.")
    known = None if options.dictionary is None else read_dictionary(options.dictionary)
    schema = propose_rules(data, propose(data, known))
    if out is None:
        io.warn("This schema was taken from the data and is not private. Review it.")
        io.emit(schema.to_json(reasons=True))
        return
    if options.ask:
        schema = ask(schema)
        schema.dump(out, force=True)  # checked before
        most = ["--rows-per-person", "K"] if schema.person else []
        following = _command("plan", "--schema", str(out), *most)
        io.emit(f"{out} has no open question. Next: {following}")
        if most:
            io.emit("  K: the most rows of a person that count, a public number")
        return
    io.warn("This schema was taken from the data and is not private. Answer its open questions.")
    _dump(schema, out, options.force)
    emit_checklist(schema, str(out))


def _dump(schema: Schema, out: Path, force: bool) -> None:
    """Write a proposal, and the table of each rule in a CSV file next to it, to be checked."""
    from adaptive_qs.table.dictionary import write_pairs
    from adaptive_qs.table.files import atomic_writer

    text, ruled = schema.to_json(reasons=True), schema.ruleset
    listed = [rule for rule in ruled.rules if rule.table] if ruled else []
    for number, rule in enumerate(listed, start=1):
        path = out.with_name(f"{out.stem}.table{number}.csv")
        check_file(path, force)
        write_pairs(path, rule.headings, rule.table)
        inside = json.dumps(rule.table, ensure_ascii=False)
        text = text.replace(f'"table": {inside}', f'"table_file": {json.dumps(path.name)}')
        shown = io.printable(rule.text)
        io.emit(f"Check {path}: the values that belong together by the rule {shown}")
    with atomic_writer(out) as file:
        file.write(text.encode())


def _command(*words: str) -> str:
    return shlex.join([io.PROGRAM, *words])


def ask(schema: Schema) -> Schema:
    """Ask every open question in the terminal, and return the schema with the answers."""
    from adaptive_qs.table.review import QUESTIONS, answer, list_questions

    number = 0
    while questions := list_questions(schema):  # an answer can remove what others are about
        number, (topic, lines, proposed) = number + 1, questions[0]
        io.emit(f"\n{number}/{number + len(questions) - 1} {QUESTIONS[topic]}")
        for line in lines:
            io.emit(f"  {io.printable(line)}")
        while True:
            enter = f"Enter: {io.printable(proposed)}" if proposed else "Enter accepts the proposal"
            io.emit(f"  [{enter}]")
            line = sys.stdin.readline() if sys.stdin is not None else ""
            if not line:
                raise InputError("The answers end before the questions. Nothing was stored.")
            text = line.strip() or proposed
            try:
                schema = answer(schema, topic, text)
                break
            except InputError as error:
                io.emit(f"  {io.printable(str(error))}")
    return schema


def check(
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA", help="Schema or mbi domain file.")],
    data: Annotated[
        Path | None, typer.Argument(metavar="[DATA]", help="A table that should fit the schema.")
    ] = None,
    *,
    options: CheckOptions,
) -> None:
    """Check a schema, and whether a table fits it.

    For a proposed schema it lists what is still to be reviewed. The schema of a set of tables is
    checked without the tables.
    """
    from adaptive_qs.table.files import is_table_file
    from adaptive_qs.table.tables import TableSet

    if is_table_file(schema):
        names = ["init", str(schema)] if data is None else ["check", str(data), str(schema)]
        usage = shlex.join([io.PROGRAM, "schema", *names])
        remedy = f"To propose a schema, run {usage}" if data is None else f"Usage: {usage}"
        raise InputError(f"{schema} is a table, not a schema. {remedy}")
    if options.ask:
        from adaptive_qs.table.schema import Schema

        ask(Schema.load(schema)).dump(schema, force=True)
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
        if loaded.private_columns:
            gather(data, loaded)
        else:
            read_table(data, loaded)
        io.emit(f"{data}: fits the schema")


def _emit_checked(schema: Schema, path: Path, table: str = "") -> None:
    from adaptive_qs.table.propose import check_schema
    from adaptive_qs.table.schema import open_topics

    for advice in check_schema(schema):
        io.warn(f"{table}{advice}")
    codes = sum(column.size for column in schema.columns)
    columns = counted(len(schema.own_columns), "column")
    io.emit(f"{path} is valid: {table}{columns}, {codes:,} codes in total")
    if open_topics(schema):
        emit_checklist(schema, str(path))


NOT_PRIVATE = "Taken from the data, not private. For the owner only."
"""First line of each list of a proposal."""


def emit_checklist(schema: Schema, path: str) -> None:
    """Print the columns and rules with open questions, then these questions."""
    from adaptive_qs.table.review import describe_open

    io.emit(NOT_PRIVATE)
    io.emit_columns(
        ("column", "type", "taken from the rows", "codes"),
        [
            (c.name, _kind(c), _taken(c), f"{c.size:,}")
            for c in schema.columns
            if c.open or schema.open
        ],
    )
    if made := [(c.name, c.type, c.shown) for c in schema.generated]:
        io.emit_columns(("not measured", "type", "reason"), made)
    if notes := [(c.name, "; ".join(c.why)) for c in schema.columns if c.why]:
        io.emit_columns(("column", "note"), notes)
    if rules := [(r.rule, "; ".join(r.why)) for r in schema.declared_rules if r.open]:
        io.emit_columns(("rule", ""), rules)
    following = _command("schema", "check", path, "--ask")
    io.emit_rows("Open questions:", [*describe_open(schema), ("answer", following)])


def _kind(column: ColumnBase) -> str:
    """Return the type, and "ordered" if a schema must declare it."""
    declared = type(column).model_fields.get("ordered")
    said = declared is not None and declared.default is False and column.has_order
    return f"{column.type}, ordered" if said else column.type


def _taken(column: ColumnBase) -> str:
    markers = ", ".join(marker or "empty cell" for marker in column.missing)
    return f"{column.summary}; missing: {markers}" if markers else column.summary


COMMANDS = (init, check)
