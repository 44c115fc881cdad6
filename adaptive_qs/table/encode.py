"""Private rows to compact codes, codes back to values, and a digest of a table."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from zlib import crc32

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adaptive_qs.arguments import shown
from adaptive_qs.errors import DataError, SchemaError
from adaptive_qs.machine import CheckRows, StepProgress, ThreadPool, memory_claims
from adaptive_qs.table import cells
from adaptive_qs.table import read as reading
from adaptive_qs.table.cells import MixedCells, redacted, split_chunks, unreadable_column
from adaptive_qs.table.coded import CodedTable, Codes, code_dtype
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.files import check_name, inside
from adaptive_qs.table.read import Cells, Chunk, Source, check_names, open_source, table_files
from adaptive_qs.table.schema import Schema

if TYPE_CHECKING:
    from adaptive_qs.table.columns.base import Drawer

# The private table as evidence: a ledger finds by a keyed hash whether it has changed.

HASH_STEP = np.uint64(0x9E3779B97F4A7C15)
"""Odd multiplier 2^64 / golden ratio, which combines hashes (Steele, Lea, Flood 2014)."""


def mix_bits(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply the SplitMix64 finaliser, a pseudo-random bijection (Steele, Lea, Flood 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def sum_rows(names: Sequence[str], columns: Sequence[Cells], label: str) -> int:
    """Return the sum of the hashes of some rows, modulo 2⁶⁴ (private).

    It depends neither on the order of the rows nor on that of the columns, so the sums of parts add
    up to that of the table.
    """
    marks = np.full(len(columns[0]), crc32(repr(sorted(names)).encode()), dtype=np.uint64)
    for name, values in sorted(zip(names, columns), key=lambda each: each[0]):
        hashes = [_hash_cells(name, part, label) for part in split_chunks(values)]
        marks = mix_bits(marks * HASH_STEP + np.concatenate([np.zeros(0, np.uint64), *hashes]))
    return int(marks.sum(dtype=np.uint64))


def summed(source: Source, add: Callable[[int], None]) -> Source:
    """Return the same source; it passes the sum of each chunk that is read to ``add``."""

    def read(requested: Sequence[str]) -> Iterator[Chunk]:
        for chunk in source.read(requested):
            add(sum_rows(requested, chunk.columns, chunk.file or source.label))
            yield chunk

    return replace(source, read=read)


def _hash_cells(name: str, values: pa.Array | MixedCells, label: str) -> NDArray[np.uint64]:
    """Return a hash of the text of each cell; 0 if it is missing."""

    def hashed() -> NDArray[np.uint64]:
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]  # slow to import

        parts, rows = distinct_cells(name, values, label)
        texts = pa.concat_arrays([cells.as_text(part) for part in parts])
        found = pd.util.hash_array(
            texts.fill_null("").to_numpy(zero_copy_only=False), categorize=False
        )
        return np.where(texts.is_valid().to_numpy(zero_copy_only=False), found, 0)[rows]

    return redacted(hashed, partial(unreadable_column, label, name))


def coded_bytes(table: CodedTable) -> Iterator[bytes]:
    """Yield the bytes of a coded table."""
    yield repr((table.domain.names, table.domain.sizes)).encode()
    for column in table.columns:
        yield np.ascontiguousarray(column, dtype="<u4").tobytes()


@contextmanager
def unchanged(source: Any) -> Iterator[None]:
    """Raise DataError if the files of a table change while the block works with them."""
    before = _stamps(source)
    yield
    if _stamps(source) != before:
        raise DataError(f"{source}: changed while it was read: repeat the command")


def _stamps(source: Any) -> dict[Path, tuple[int, ...]]:
    stamps: dict[Path, tuple[int, ...]] = {}
    for file in table_files(source) if isinstance(source, str | Path) else ():
        check_name(file)
        try:
            s = os.stat(inside(file)[0])
        except OSError as error:
            raise reading.unreadable(file, error) from None
        stamps[file] = (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
    return stamps


# Private rows to codes: a stream of chunks in, compact arrays out.


def read_table(
    source: Any,
    schema: Schema,
    progress: StepProgress | None = None,
    check_rows: CheckRows | None = None,
) -> CodedTable:
    """Return the codes of a table: a path, a pattern, a data frame, or codes under the same domain.

    A table is read in chunks; memory holds the codes and one chunk. Cells of CSV are text, stripped
    of ASCII white space, and nothing about them is guessed. Columns can come in any order. The
    schema has no open bins or values. ``progress`` counts the bytes of a CSV file and the rows of
    anything else. ``check_rows`` gets the number of rows so far and can raise to end the reading.
    Raise DataError if the table is missing, damaged or empty, or does not fit the schema.
    """
    return read_with_amounts(source, schema, (), progress, check_rows=check_rows)[0]


def _check_coded(
    source: Any, schema: Schema, check_rows: CheckRows | None = None
) -> CodedTable | None:
    """Return a source that is a coded table, checked; None for other sources."""
    if not isinstance(source, CodedTable):
        return None
    if source.domain != schema.domain():
        raise DataError("the coded table has other attributes than the schema: encode it again")
    if source.num_rows == 0:
        raise DataError("the table has no rows. It needs at least one.")
    if check_rows is not None:
        check_rows(source.num_rows)
    return source


def coded_chunks(
    source: Any,
    schema: Schema,
    progress: StepProgress | None = None,
    check_rows: CheckRows | None = None,
    workers: int = 1,
) -> Iterator[tuple[Codes, ...]]:
    """Yield the codes of a table chunk by chunk, an array for each column.

    Arguments and errors are as in :func:`read_table`. Of several bad cells, the reported one is in
    the first chunk that has any, whatever the threads.
    """
    coded = _check_coded(source, schema, check_rows)
    if coded is not None:
        for first in range(0, coded.num_rows, 2**18):
            yield tuple(column[first : first + 2**18] for column in coded.columns)
        return

    def encoded(chunk: Chunk, label: str) -> tuple[Codes, ...]:
        return tuple(
            _joined(encode_chunk(column, values, chunk.file or label), column.size)
            for column, values in zip(schema.columns, chunk.columns)
        )

    workers = min(workers, 4)  # more would wait for the reader, each with a chunk in memory
    with open_source(source, schema.dialect) as opened, ThreadPool(workers) as pool:
        coming: deque[Future[tuple[Codes, ...]]] = deque()
        try:
            for chunk in read_rows(opened, schema, progress, check_rows):
                coming.append(pool.submit(encoded, chunk, opened.label))
                if len(coming) > workers:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        finally:
            for late in coming:
                late.cancel()


Amounts: TypeAlias = Mapping[str, NDArray[np.float64]]
"""The amounts of all rows by column; NaN if a cell has none."""


def read_with_amounts(
    source: Any,
    schema: Schema,
    requested: Collection[str],
    progress: StepProgress | None = None,
    most_rows: float = math.inf,
    check_rows: CheckRows | None = None,
) -> tuple[CodedTable, Amounts]:
    """Return the codes of a table, and the amounts of the cells of some measured columns.

    Both come from one pass, so their rows are the same; a coded table has no amounts. Reading ends
    after ``most_rows``.
    """
    coded = _check_coded(source, schema, check_rows)
    if coded is not None:
        return coded, {}
    codes: list[list[NDArray[Any]]] = [[] for _ in schema.columns]
    amounts: dict[str, list[NDArray[np.float64]]] = {name: [] for name in requested}
    with open_source(source, schema.dialect) as opened:
        for chunk in read_rows(opened, schema, progress, check_rows):
            label = chunk.file or opened.label
            for part, column, values in zip(codes, schema.columns, chunk.columns):
                part.append(found := _joined(encode_chunk(column, values, label), column.size))
                if column.name in amounts:
                    amounts[column.name].append(_amounts(column, values, found, label))
            if most_rows <= sum(map(len, codes[0])):
                break
    columns = []
    for part in codes:
        columns.append(np.concatenate(part))
        part.clear()  # which frees the chunks
    return CodedTable(schema.domain(), tuple(columns)), {
        n: np.concatenate(p) for n, p in amounts.items()
    }


def _amounts(column: ColumnBase, values: Cells, codes: Codes, label: str) -> NDArray[np.float64]:
    """Return amounts of encoded cells; NaN if the code is no value."""
    found = [np.empty(0)]
    for part in split_chunks(values):
        distinct, indices = distinct_cells(column.name, part, label)
        found.append(np.concatenate([column.amounts(each) for each in distinct])[indices])
    return np.where(codes < column.num_values, np.concatenate(found), np.nan)


def _joined(parts: Sequence[Codes], size: int) -> Codes:
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, code_dtype(size)), *parts])


def read_rows(
    source: Source, schema: Schema, progress: StepProgress | None, check_rows: CheckRows | None
) -> Iterator[Chunk]:
    """Yield the cells of a schema's columns, chunk by chunk; arguments as for :func:`read_table`.

    Raise DataError if the table has other columns, or no rows.
    """
    check_names(source, schema.names, schema.set_aside)
    rows = 0
    for chunk in source.read(schema.names):
        rows += len(chunk.columns[0])
        if check_rows is not None:
            check_rows(rows)
        yield chunk
        if progress is not None:
            progress(chunk.done, chunk.total)
    if not rows:
        raise DataError(f"{source.label} has no rows. It needs at least one.")


def encode_chunk(column: ColumnBase, values: Cells, label: str) -> list[NDArray[Any]]:
    """Return the codes of some cells, one array per chunk; raise DataError for a refused cell."""
    found, explain = [], partial(unreadable_column, label, column.name)
    for part in split_chunks(values):
        codes = redacted(partial(_codes, column, part, label), explain)
        if codes.size and codes.min() < 0:
            raise DataError(
                f"{label}: column {column.name!r} {column.explain_refusal(int(codes.min()))}"
            )
        found.append(codes.astype(code_dtype(column.size)))
    return found


def _codes(column: ColumnBase, values: pa.Array | MixedCells, label: str) -> NDArray[np.int64]:
    """Return the code of every cell, computed for distinct cells."""
    parts, indices = distinct_cells(column.name, values, label)
    return np.concatenate([column.encode(part) for part in parts])[indices]


def distinct_cells(
    name: str, values: pa.Array | MixedCells, label: str
) -> tuple[list[pa.Array], NDArray[np.int64]]:
    """Return the distinct cells of a column, normalised, and for each row the index of its cell.

    There is an array for each type of cells; the very last cell is null. Raises DataError if cells
    of this type are not supported.
    """
    mixed = MixedCells.of(values).with_exact_decimals()
    normalised = [cells.normalise(part) for part in mixed.parts or (pa.array([], pa.string()),)]
    parts = [part for part in normalised if part is not None]
    if len(parts) < len(normalised):
        kind = "objects of other types"
        if (found := getattr(values, "type", None)) is not None:
            kind = f"the type {found.value_type if pa.types.is_dictionary(found) else found}"
        raise DataError(
            f"{label}: column {name!r} has {kind}: "
            "convert it to text, numbers, booleans, dates, or dates with times"
        )
    parts[-1] = pa.concat_arrays([parts[-1], pa.nulls(1, parts[-1].type)])
    null = sum(map(len, parts)) - 1
    return parts, np.where(mixed.indices < 0, null, mixed.indices)


def decode(
    table: CodedTable,
    schema: Schema,
    rng: np.random.Generator,
    drawers: Mapping[str, Drawer] | None = None,
    places: Mapping[str, NDArray[np.float64]] | None = None,
) -> pa.Table:
    """Return the table with values for its codes, which meet the rules of the schema.

    Numbers and moments are drawn from their bin or period, uniformly or by the ``drawers`` of their
    columns, column by column; inside a code they ascend with the ``places`` of the rows, and are
    moved to their parts. Missing values are null, unknown values are the catch-all label. Encoding
    the result under the same schema gives the same codes, except for parts that no value of a code
    has. Raise SchemaError if the table has another domain than the schema, or no row meets the
    rules.
    """
    if table.domain != schema.domain():
        raise SchemaError("the codes and the schema have different domains: use the same schema")
    if schema.ruleset is not None:
        from adaptive_qs.table.rule_sampling import drawn_under_rules

        named = dict(zip(schema.names, table.columns))
        drawn, _ = drawn_under_rules(named, schema.ruleset, rng, drawers, places, schema.parts)
        return pa.table(drawn)
    from adaptive_qs.table.bin_density import sort_inside  # who encodes only does not need it

    drawers, places, columns = drawers or {}, places or {}, dict[str, pa.Array]()
    named = dict(zip(schema.names, table.columns))
    for column in schema.own_columns:
        codes = named[column.name]
        drawn = column.decode(codes, rng, drawers.get(column.name))
        drawn = sort_inside(column, codes, drawn, places.get(column.name))
        if parts := schema.parts.get(column.name):
            source: Any = column  # of dates or times
            drawn = source.moved(drawn, codes, {unit: named[part] for unit, part in parts.items()})
        columns[column.name] = drawn
    return pa.table(columns)


# What a caller may give as schema and as private table: paths, frames, parsed JSON, codes.


def resolve_schema(schema: Any, table: Any = None, max_memory: int | str | None = None) -> Schema:
    """Return the schema given as such, as a file or as parsed JSON; a coded table brings its own.

    Raise SchemaError if there is no valid one, ResourceExceeded beyond ``max_memory``.
    """
    match schema:
        case Schema():
            return schema
        case str() | Path():
            return Schema.load(schema, max_memory)
        case Mapping():
            return Schema.parse(schema, claim=memory_claims(max_memory))
        case None if isinstance(table, CodedTable):
            return Schema.parse(dict(zip(table.domain.names, table.domain.sizes)))
        case None:
            raise SchemaError(
                "no schema was given: pass schema=, a Schema or the path of a schema file"
            )
        case _:
            raise SchemaError(
                f"the schema is {shown(schema)}: pass a Schema, the path of a schema file, or "
                "parsed JSON (a table comes before its schema)"
            )
