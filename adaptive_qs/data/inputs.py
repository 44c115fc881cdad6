"""What a caller may give as schema and as private table: paths, frames, parsed JSON, codes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaptive_qs.arguments import shown
from adaptive_qs.data.encode import CheckRows, encode_file, encode_table
from adaptive_qs.data.schema import Schema
from adaptive_qs.data.table import CodedTable
from adaptive_qs.errors import DataError, SchemaError
from adaptive_qs.progress import StepProgress


def resolve_schema(schema: Any, table: Any = None, max_memory: int | str | None = None) -> Schema:
    """The schema given as such, as a file or as parsed JSON; a coded table brings its own.

    Args:
        schema: what was given.
        table: the table, if there is one.
        max_memory: ceiling of the process's memory while a release bundle is read.

    Raises:
        SchemaError: there is none, or it is not valid.
    """
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, str | Path):
        return Schema.load(schema, max_memory)
    if isinstance(schema, Mapping):
        return Schema.parse(schema)
    if schema is not None:
        raise SchemaError(
            f"the schema is {shown(schema)}: pass a Schema, the path of a schema file, or parsed "
            "JSON (a table comes before its schema)"
        )
    if isinstance(table, CodedTable):
        domain = table.domain
        return Schema.parse(dict(zip(domain.names, domain.sizes)))
    raise SchemaError("no schema was given: pass schema=, a Schema or the path of a schema file")


def read_table(
    source: Any,
    schema: Schema,
    progress: StepProgress | None = None,
    check_rows: CheckRows | None = None,
) -> CodedTable:
    """The codes of a file, a data frame or a table already coded.

    Raises:
        DataError: it does not fit the schema. Whatever ``check_rows`` raises ends the reading.
    """
    if isinstance(source, CodedTable):
        if source.domain != schema.domain():
            raise DataError("the coded table has other attributes than the schema: encode it again")
        if source.num_rows == 0:
            raise DataError("table: no rows: give a table with at least one")
        if check_rows is not None:
            check_rows(source.num_rows)
        return source
    if isinstance(source, str | Path):
        return encode_file(source, schema, progress, check_rows)
    return encode_table(source, schema, progress, check_rows)
