"""Tables written batch by batch, as Parquet or CSV: memory does not grow with their length."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from adaptive_qs.data.files import atomic_writer, sealed_digest
from adaptive_qs.data.writers import table_format


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
