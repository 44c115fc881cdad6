"""Private rows to codes: a stream of chunks in, compact arrays out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adaptive_qs.data import cells
from adaptive_qs.data.categories import CategoricalColumn
from adaptive_qs.data.codec import EMPTY, UNREADABLE, read_codes
from adaptive_qs.data.column import ColumnBase
from adaptive_qs.data.objects import MixedCells
from adaptive_qs.data.readers import Cells, Source, check_names, frame_source, open_file
from adaptive_qs.data.redaction import redacted
from adaptive_qs.data.schema import Schema
from adaptive_qs.data.table import CodedTable, code_dtype
from adaptive_qs.errors import DataError
from adaptive_qs.progress import StepProgress

_NONE = pa.array([], pa.string())

CheckRows = Callable[[int], None]
"""Told how many rows have come, before they are encoded; it raises where they are too many."""


def encode_file(
    path: str | Path,
    schema: Schema,
    progress: StepProgress | None = None,
    check_rows: CheckRows | None = None,
) -> CodedTable:
    """The codes of a CSV file (plain or gzip) or a Parquet file.

    The file is read in chunks; memory holds the codes and one chunk. CSV cells are text, stripped
    of ASCII white space at both ends, and nothing about them is guessed. Columns may come in any
    order; those under `ignore` in the schema are skipped. Progress counts the bytes of a CSV file
    and the rows of anything else. Whatever `check_rows` raises ends the
    reading.

    Raises:
        DataError: the file is missing or damaged, has no rows, or does not fit the schema. The
            message names the file, the column and the mend, and no cell.
    """
    with open_file(path) as source:
        return _encode(source, schema, progress, check_rows)


def encode_table(
    table: Any,
    schema: Schema,
    progress: StepProgress | None = None,
    check_rows: CheckRows | None = None,
) -> CodedTable:
    """The codes of a pandas, polars or pyarrow table.

    Raises:
        DataError: the table has no rows or does not fit the schema.
    """
    return _encode(frame_source(table), schema, progress, check_rows)


def _encode(
    source: Source, schema: Schema, progress: StepProgress | None, check_rows: CheckRows | None
) -> CodedTable:
    domain = schema.domain()
    check_names(source, schema.names, schema.ignore)
    parts: list[list[NDArray[Any]]] = [[] for _ in schema.columns]
    rows = 0
    for chunk in source.read(schema.names):
        rows += len(chunk.columns[0])
        if check_rows is not None:
            check_rows(rows)
        for part, column, values in zip(parts, schema.columns, chunk.columns):
            part.extend(encode_chunk(column, values, source.label))
        if progress is not None:
            progress(chunk.done, chunk.total)
    if not rows:
        raise DataError(f"{source.label}: no rows: give a table with at least one")
    return CodedTable(domain, tuple(_joined(part) for part in parts))


def _joined(part: list[NDArray[Any]]) -> NDArray[Any]:
    """The chunks as one array; the chunks are freed."""
    codes = np.concatenate(part)
    part.clear()
    return codes


def encode_chunk(column: ColumnBase, values: Cells, label: str) -> list[NDArray[Any]]:
    """The codes of some cells, in as many arrays as there are chunks.

    Raises:
        DataError: the column refuses a cell; the message names `label`, the column and the mend.
    """
    if isinstance(values, pa.ChunkedArray):
        return [codes for part in values.chunks for codes in encode_chunk(column, part, label)]

    def explain(_: Exception) -> DataError:
        return DataError(f"{label}: column {column.name!r} cannot be read: write it as text")

    codes = redacted(lambda: _codes(column, values, label), explain)
    if codes.size and codes.min() < 0:
        raise DataError(f"{label}: column {column.name!r} {_mend(column, int(codes.min()))}")
    return [codes.astype(code_dtype(column.size))]


def _codes(column: ColumnBase, values: pa.Array | MixedCells, label: str) -> NDArray[np.int64]:
    """Codes of every cell, by way of the distinct ones."""
    parts, indices = distinct_cells(column, values, label)
    return np.concatenate([read_codes(column, part) for part in parts])[indices]


def distinct_cells(
    column: ColumnBase, values: pa.Array | MixedCells, label: str
) -> tuple[list[pa.Array], NDArray[np.int64]]:
    """The distinct cells, normalised, and which of them every row has.

    Returns:
        An array for each type that the cells come in, with null as the very last cell, and for
        each row which cell of all these arrays together it has.

    Raises:
        DataError: cells of this type are not supported.
    """
    mixed = MixedCells.of(values)
    normalised = [cells.normalise(part) for part in mixed.parts or (_NONE,)]
    parts = [part for part in normalised if part is not None]
    if len(parts) < len(normalised):
        raise DataError(
            f"{label}: column {column.name!r} has {_type_of(values)}: "
            "convert it to text, numbers, booleans, dates or times"
        )
    parts[-1] = pa.concat_arrays([parts[-1], pa.nulls(1, parts[-1].type)])
    null = sum(map(len, parts)) - 1
    return parts, np.where(mixed.indices < 0, null, mixed.indices)


def _type_of(values: pa.Array | MixedCells) -> str:
    if isinstance(values, MixedCells):
        return "objects of other types"
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    return f"the type {kind}"


def _mend(column: ColumnBase, refusal: int) -> str:
    if refusal == EMPTY:
        return 'has empty cells: add "" to its missing markers, or fill the cells'
    if isinstance(column, CategoricalColumn):
        return (
            "has a value that is not declared: add it to values, declare it as a missing marker, "
            "or declare a catch_all"
        )
    if refusal == UNREADABLE:
        kind = getattr(column, "type", "")
        return (
            f"has a cell that cannot be read as {kind}: correct it, declare it as a missing "
            'marker, or set outside to "missing"'
        )
    return (
        "has a value outside its declared range: widen the range, or set outside to "
        '"clip" or "missing"'
    )
