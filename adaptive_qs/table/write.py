"""Decoded tables as CSV or Parquet, at once or batch by batch."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from adaptive_qs.errors import InputError
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.columns.moment import MomentColumn
from adaptive_qs.table.files import atomic_writer, check_writable, sealed_digest
from adaptive_qs.table.formulas import Formulas
from adaptive_qs.table.schema import Schema, discovered_values

# Decoded tables as CSV or Parquet files that appear whole or not at all.

_ROWS = 1 << 16
_SUFFIXES = {".csv": "csv", ".csv.gz": "csv.gz", ".parquet": "parquet", ".pq": "parquet"}


def table_format(path: str | Path) -> str:
    """ "csv", "csv.gz" or "parquet", told by the suffix.

    Raises:
        InputError: another suffix.
    """
    name = Path(path).name.lower()
    for suffix, kind in _SUFFIXES.items():
        if name.endswith(suffix):
            return kind
    raise InputError(f"{path}: unknown table format: end the name in {', '.join(_SUFFIXES)}")


def check_table_path(path: str | Path) -> None:
    """Make sure, before any work is done, that `write_table` can write `path`.

    Raises:
        InputError: the suffix is unknown or the file cannot be written.
    """
    table_format(path)
    check_writable(path)


def write_table(
    table: pa.Table,
    path: str | Path,
    schema: Schema,
    formulas: Formulas = "escape-learnt",
    sealed: Callable[[str], None] | None = None,
) -> None:
    """Write a decoded table as CSV or Parquet, by the suffix of the path.

    In CSV a missing value is the first missing marker of its column, moments are written in the
    column's format, and texts that a spreadsheet program would run are escaped as asked for:
    reading the file under the schema gives the texts back. In Parquet a missing value is null and
    every text is as it is. The same table gives the same bytes.

    Args:
        table: with values of the declared types.
        path: of the file.
        schema: of the table.
        sealed: told the SHA-256 of the whole file before it has its name.

    Raises:
        InputError: the suffix is unknown or the file cannot be written.
        SchemaError: the table has a column that the schema lacks.
    """
    kind = table_format(path)
    columns = [schema.column(name) for name in table.column_names]
    replaced = [escapes_of(column, schema, formulas) for column in columns]
    with atomic_writer(path) as file:
        if kind == "parquet":
            pq.write_table(table, file)
        elif kind == "csv":
            _write_csv(table, columns, replaced, file)
        else:
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as compressed:
                _write_csv(table, columns, replaced, compressed)
        if sealed is not None:
            sealed(sealed_digest(file))


def escapes_of(column: ColumnBase, schema: Schema, formulas: Formulas) -> Mapping[str, str]:
    """The texts of a column that CSV escapes, and what it has in their place."""
    if formulas == "keep" or not column.escapes:
        return {}
    if formulas == "escape":
        return column.escapes
    found = discovered_values(schema, column)
    return {text: written for text, written in column.escapes.items() if text in found}


def _write_csv(
    table: pa.Table,
    columns: Sequence[ColumnBase],
    replaced: Sequence[Mapping[str, str]],
    file: BinaryIO | gzip.GzipFile,
) -> None:
    header = [_quoted(pa.array([name]), len(columns) == 1) for name in table.column_names]
    file.write(_lines(header))
    for batch in table.to_batches(max_chunksize=_ROWS):
        cells = [_texts(*parts) for parts in zip(columns, batch.columns, replaced)]
        file.write(_lines([_quoted(texts, len(cells) == 1) for texts in cells]))


def _lines(columns: list[pa.Array]) -> bytes:
    """Rows of cells, joined by commas and closed by line feeds, as UTF-8."""
    rows = pc.binary_join_element_wise(*columns, ",")
    whole = pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows)
    return (pc.binary_join(whole, "\n")[0].as_py() + "\n").encode()


def _texts(column: ColumnBase, values: pa.Array, replaced: Mapping[str, str]) -> pa.Array:
    if isinstance(column, MomentColumn) and column.format is not None:
        distinct = values.dictionary_encode()
        texts = [
            None if moment is None else moment.strftime(column.format)
            for moment in distinct.dictionary.to_pylist()
        ]
        texts = pa.array(texts, pa.string()).take(distinct.indices)
    elif pa.types.is_timestamp(values.type):
        texts = pc.strftime(values, "%Y-%m-%dT%H:%M:%S")
    else:
        texts = values.cast(pa.string())
    texts = texts.fill_null(column.missing[0]) if column.missing else texts
    if not replaced:
        return texts
    place = pc.index_in(texts, value_set=pa.array([*replaced], pa.string()))
    return pc.coalesce(pa.array([*replaced.values()], pa.string()).take(place), texts)


def _quoted(texts: pa.Array, alone: bool) -> pa.Array:
    """Cells with the quotation marks that CSV needs; an empty line would be no row at all."""
    special = pc.match_substring_regex(texts, r'[",\r\n]')
    if alone:
        special = pc.or_(special, pc.equal(texts, ""))
    escaped = pc.replace_substring(texts, '"', '""')
    return pc.if_else(special, pc.binary_join_element_wise('"', escaped, '"', ""), texts)


# Tables written batch by batch, as Parquet or CSV: memory does not grow with their length.


def write_batches(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    path: str | Path,
    dictionaries: tuple[str, ...] = (),
    sealed: Callable[[str], None] | None = None,
) -> int:
    """Write batches as they come; the file appears once the last one is written.

    Args:
        batches: of the schema.
        schema: columns and metadata; CSV keeps no metadata.
        path: its suffix tells the format.
        dictionaries: columns that repeat few values, for Parquet to encode.
        sealed: told the SHA-256 of the whole file before it has its name.

    Returns:
        Number of rows.

    Raises:
        InputError: the suffix is unknown or the file cannot be written. Whatever the batches
            raise leaves no file.
    """
    kind = table_format(path)
    rows = 0
    with atomic_writer(path) as file:
        with ExitStack() as stack:
            writer: Any
            if kind == "parquet":
                writer = pq.ParquetWriter(
                    file, schema, use_dictionary=list(dictionaries), write_statistics=False
                )
            else:
                target: Any = file
                if kind == "csv.gz":
                    target = gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0)
                    stack.enter_context(target)
                schema = plain_schema(schema)
                writer = pacsv.CSVWriter(target, schema)
            with writer:
                for batch in batches:
                    writer.write_batch(batch if kind == "parquet" else batch.cast(schema))
                    rows += batch.num_rows
        if sealed is not None:
            sealed(sealed_digest(file))
    return rows


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with dictionaries replaced by their values, without metadata."""
    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in schema
    ]
    return pa.schema(fields)
