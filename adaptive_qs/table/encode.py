"""Cells to codes and back: private rows in, compact arrays out; labels for codes; fingerprints."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, singledispatch
from itertools import pairwise
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from adaptive_qs.arguments import shown
from adaptive_qs.domain import BinLabel
from adaptive_qs.errors import DataError, SchemaError
from adaptive_qs.machine import StepProgress
from adaptive_qs.table import cells
from adaptive_qs.table.cells import MixedCells, frame_cells, redacted
from adaptive_qs.table.coded import CodedTable, code_dtype
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.columns.category import BooleanColumn, CategoricalColumn
from adaptive_qs.table.columns.moment import DateColumn, Granularity, MomentColumn
from adaptive_qs.table.columns.numeric import IntegerColumn, NumericColumn, RangeColumn
from adaptive_qs.table.read import Cells, Source, check_names, frame_source, open_file, unreadable
from adaptive_qs.table.schema import Schema

# The private table as bytes, so that a ledger can tell by a keyed hash whether it has changed.

CHUNK_BYTES = 2**20
SLICE_ROWS = 2**18


def table_bytes(source: Any) -> Iterator[bytes]:
    """The bytes of a file, or the contents of a data frame or coded table.

    Raises:
        DataError: the file cannot be read, or the table is of an unknown kind.
    """
    if isinstance(source, str | Path):
        yield from _file_bytes(Path(source))
    elif isinstance(source, CodedTable):
        yield repr((source.domain.names, source.domain.sizes)).encode()
        for column in source.columns:
            yield np.ascontiguousarray(column, dtype="<u4").tobytes()
    else:
        yield from _frame_bytes(source)


@contextmanager
def unchanged(source: Any) -> Iterator[None]:
    """Make sure that a file stays as it is while the block works with it.

    Raises:
        DataError: it did not.
    """
    if not isinstance(source, str | Path):
        yield
        return
    before = _stamp(source)
    yield
    if _stamp(source) != before:
        raise DataError(f"{source}: changed while it was read: repeat the command")


def _stamp(path: str | Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError as error:
        raise unreadable(path, error) from None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _file_bytes(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise unreadable(path, error) from None


def _frame_bytes(source: Any) -> Iterator[bytes]:
    """Names, types and values; not how the columns are cut into chunks."""
    frame = redacted(lambda: nw.from_native(source, eager_only=True), _unrecognisable)
    for place, name in enumerate(frame.columns):
        yield repr((str(name), len(frame))).encode()
        for start in range(0, len(frame), SLICE_ROWS):
            series = frame[start : start + SLICE_ROWS, place]
            yield from redacted(partial(_cell_bytes, series), _unrecognisable)


def _unrecognisable(_: Exception) -> DataError:
    return DataError("the table cannot be recognised later: write it to a file and name that")


def _cell_bytes(series: Any) -> list[bytes]:
    values = frame_cells(series)
    pieces = []
    if isinstance(values, MixedCells):
        pieces.append(values.indices.tobytes())
        parts = [pa.chunked_array([part]) for part in values.parts]
    else:
        parts = [pa.chunked_array([values]) if isinstance(values, pa.Array) else values]
    for part in parts:
        pieces.append(repr((str(part.type), len(part))).encode())
        pieces.extend(_slice_bytes(part))
    return pieces


def _slice_bytes(column: pa.ChunkedArray) -> Iterator[bytes]:
    """Values as text of their own kind, since what lies under missing ones is arbitrary."""
    yield np.packbits(column.is_null().to_numpy()).tobytes()
    values = column.drop_null().combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    fresh = pa.concat_arrays([values.take(pa.array(np.arange(len(values))))])
    for buffer in fresh.buffers():
        yield b"" if buffer is None else buffer.to_pybytes()


# Calendar periods of arrays of moments: the vectorised side of `moments`.

Seconds = NDArray[np.int64]
_LENGTH = {"minute": 60, "hour": 3_600, "day": 86_400}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def periods_of(seconds: Seconds, granularity: Granularity) -> NDArray[np.int64]:
    """Whole periods from 1970 to each moment, given in seconds since 1970."""
    if granularity in _LENGTH:
        return seconds // _LENGTH[granularity]
    if granularity == "week":
        return (seconds // _LENGTH["day"] + 3) // 7
    months = seconds.astype("M8[s]").astype("M8[M]").astype(np.int64)
    return months // _MONTHS[granularity]


def starts_of(periods: NDArray[np.int64], granularity: Granularity) -> Seconds:
    """First second of each period: the inverse of `periods_of`."""
    if granularity in _LENGTH:
        return periods * _LENGTH[granularity]
    if granularity == "week":
        return (periods * 7 - 3) * _LENGTH["day"]
    months = (periods * _MONTHS[granularity]).astype("M8[M]")
    return months.astype("M8[s]").astype(np.int64)


# Cells to codes and back, one pair of functions for each type of column.
#
# `read_codes` maps distinct cells to codes, with a negative sentinel for the cells that the column
# refuses; `draw_values` maps codes to values of the declared type.

Codes = NDArray[np.int64]

EMPTY, UNREADABLE, OUTSIDE = -1, -2, -3
"""Refused cells: null or "" without a marker; not of the type; not a declared value."""


def read_codes(column: ColumnBase, values: pa.Array) -> Codes:
    """Codes of normalised cells: shape (len(values),), negative where a cell is refused.

    A text that CSV escapes is read in its escaped form, too.
    """
    values = cells.unescaped(values, column.escapes)
    codes = _read(column, values)
    empty = values.is_null().to_numpy(zero_copy_only=False)
    blank = empty | cells.is_marker(values, ("",), numeric=False)
    codes[(codes < 0) & blank] = EMPTY
    unknown = column.missing_code if getattr(column, "outside", "") == "missing" else None
    if unknown is None:
        unknown = column.catch_all_code
    if unknown is not None:
        codes[(codes < 0) & ~empty] = unknown
    if column.missing_code is not None:
        numeric = isinstance(column, IntegerColumn | NumericColumn)
        codes[empty | cells.is_marker(values, column.missing, numeric)] = column.missing_code
    return codes


def draw_values(column: ColumnBase, codes: NDArray[Any], rng: np.random.Generator) -> pa.Array:
    """Values of the declared type, uniform inside bins and periods; null where missing."""
    codes = codes.astype(np.int64)
    missing = np.zeros(codes.shape, dtype=np.bool_)
    if column.missing_code is not None:
        missing = codes == column.missing_code
        codes = np.where(missing, 0, codes)
    return pc.if_else(pa.array(~missing), _draw(column, codes, rng), None)


@singledispatch
def _read(column: ColumnBase, values: pa.Array) -> Codes:
    raise AssertionError(f"no reader for {type(column).__name__}")


@singledispatch
def _draw(column: ColumnBase, codes: Codes, rng: np.random.Generator) -> pa.Array:
    raise AssertionError(f"no drawer for {type(column).__name__}")


@_read.register
def _(column: CategoricalColumn, values: pa.Array) -> Codes:
    labels = pa.array(column.labels)
    if pa.types.is_string(labels.type):
        looked_up, readable = cells.as_text(values), None
        if pa.types.is_boolean(values.type) and "True" in column.labels:
            looked_up = pc.utf8_capitalize(looked_up)  # as Python and pandas write booleans
    else:
        boolean = pa.types.is_boolean(labels.type)
        numbers, readable = (cells.as_booleans if boolean else cells.as_integers)(values)
        looked_up = pa.array(numbers)
        labels = labels.cast(pa.int64())
    codes = pc.index_in(looked_up, value_set=labels).fill_null(OUTSIDE)
    codes = codes.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes if readable is None else np.where(readable, codes, UNREADABLE)


@_draw.register
def _(column: CategoricalColumn, codes: Codes, rng: np.random.Generator) -> pa.Array:
    return pa.array(column.labels).take(pa.array(codes))


@_read.register
def _(column: BooleanColumn, values: pa.Array) -> Codes:
    codes, readable = cells.as_booleans(values)
    return np.where(readable, codes, UNREADABLE)


@_draw.register
def _(column: BooleanColumn, codes: Codes, rng: np.random.Generator) -> pa.Array:
    return pa.array(codes == 1)


@_read.register
def _(column: IntegerColumn, values: pa.Array) -> Codes:
    numbers, readable = cells.as_integers(values)
    inside = np.clip(numbers, column.min, column.max)
    if column.starts is None:
        codes = inside - column.min
    else:
        codes = np.searchsorted(np.array(column.starts), inside, side="right") - 1
    return _refuse(column, codes, readable, inside == numbers)


@_draw.register
def _(column: IntegerColumn, codes: Codes, rng: np.random.Generator) -> pa.Array:
    if column.starts is None:
        return pa.array(codes + column.min)
    starts = np.array(column.starts)
    ends = np.append(starts[1:] - 1, column.max)
    return pa.array(rng.integers(starts[codes], ends[codes], endpoint=True))


@_read.register
def _(column: NumericColumn, values: pa.Array) -> Codes:
    numbers, readable = cells.as_numbers(values)
    edges = np.array(column.bin_edges)
    inside = np.clip(numbers, edges[0], edges[-1])
    codes = np.searchsorted(edges[:-1], inside, side="right") - 1
    return _refuse(column, codes, readable, inside == numbers)


@_draw.register
def _(column: NumericColumn, codes: Codes, rng: np.random.Generator) -> pa.Array:
    if column.grid is not None and column.decimals is not None:
        first, last = np.array(column.grid) // column.units
        steps = rng.integers(first[codes], last[codes], endpoint=True)
        return pa.array(steps * column.units / 10**column.decimals)
    edges = np.array(column.bin_edges)
    low, high = edges[codes], edges[codes + 1]
    share = rng.random(codes.shape)
    return pa.array(np.clip(low * (1 - share) + high * share, low, np.nextafter(high, low)))


@_read.register
def _(column: MomentColumn, values: pa.Array) -> Codes:
    seconds, readable = cells.as_seconds(values, column.format, column.wall_clock)
    first, last = column.span
    inside = np.clip(seconds, first, last)
    codes = periods_of(inside, column.granularity) - column.period(column.min)
    return _refuse(column, codes, readable, inside == seconds)


@_draw.register
def _(column: MomentColumn, codes: Codes, rng: np.random.Generator) -> pa.Array:
    periods = codes + column.period(column.min)
    first, last = column.span
    low = np.maximum(starts_of(periods, column.granularity), first)
    high = np.minimum(starts_of(periods + 1, column.granularity) - 1, last)
    if isinstance(column, DateColumn):
        days = rng.integers(low // 86_400, high // 86_400, endpoint=True)
        return pa.array(days.astype(np.int32), pa.int32()).cast(pa.date32())
    return pa.array(rng.integers(low, high, endpoint=True)).cast(pa.timestamp("s"))


def _refuse(column: RangeColumn, codes: Codes, readable: cells.Mask, inside: cells.Mask) -> Codes:
    if column.outside != "clip":
        codes = np.where(inside, codes, OUTSIDE)
    return np.where(readable, codes, UNREADABLE)


# Private rows to codes: a stream of chunks in, compact arrays out.

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


# Codes back to values of the declared types.


def decode(table: CodedTable, schema: Schema, rng: np.random.Generator) -> pa.Table:
    """The table with the values that its codes stand for.

    Categorical values have the type they were declared with; integers, numbers, dates and times
    are drawn uniformly from their bin or period, never outside the declared bounds; missing
    values are null; unknown values are the catch-all label. Encoding the result under the same
    schema gives the same codes.

    Args:
        table: codes under `schema.domain()`.
        schema: the schema of the codes.
        rng: the randomness of the draws, taken column by column.

    Raises:
        SchemaError: the table has another domain than the schema.
    """
    if table.domain != schema.domain():
        raise SchemaError("the codes and the schema have different domains: use the same schema")
    columns = [
        draw_values(column, codes, rng) for column, codes in zip(schema.columns, table.columns)
    ]
    return pa.table(columns, names=list(schema.names))


# Codes in public words: one label for each code of a column, to name queries with.

MISSING = "(missing)"
"""Label of missing values; in more brackets where that is a declared value."""

_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h", "minute": "m"}


def column_labels(column: ColumnBase) -> tuple[str, ...]:
    """One distinct label for each code of a column.

    A value is named by itself, a calendar period in ISO 8601 (quarters as "2024-Q1"), and a bin by
    its ends, as a :class:`BinLabel`. Unknown and missing values come last, as they do in the codes.
    """
    labels = list(_value_labels(column))
    if column.missing:
        marker = MISSING
        while marker in labels:
            marker = f"({marker})"
        labels.append(marker)
    assert len(labels) == column.size
    return tuple(labels)


@singledispatch
def _value_labels(column: ColumnBase) -> list[str]:
    """Labels of declared values and of the catch-all."""
    raise AssertionError(f"no labels for {type(column).__name__}")


@_value_labels.register
def _(column: CategoricalColumn) -> list[str]:
    if isinstance(column.values[0], bool):
        return [str(value).lower() for value in column.labels]
    return [str(value) for value in column.labels]


@_value_labels.register
def _(column: BooleanColumn) -> list[str]:
    return ["false", "true"]


@_value_labels.register
def _(column: IntegerColumn) -> list[str]:
    if column.starts is None:
        return [str(value) for value in range(column.min, column.max + 1)]
    return [
        str(start) if end == start + 1 else _bin(str(start), str(end - 1))
        for start, end in pairwise((*column.starts, column.max + 1))
    ]


@_value_labels.register
def _(column: NumericColumn) -> list[str]:
    texts = [_shortest(edge) for edge in column.bin_edges]
    bins = [BinLabel(f"[{a}, {b})", a, b, open=True) for a, b in pairwise(texts)]
    bins[-1] = BinLabel(f"[{texts[-2]}, {texts[-1]}]", texts[-2], texts[-1])
    return [*bins]


@_value_labels.register
def _(column: MomentColumn) -> list[str]:
    periods = column.period(column.min) + np.arange(column.num_values)
    if column.granularity == "quarter":
        return [f"{1970 + period // 4}-Q{period % 4 + 1}" for period in periods.tolist()]
    if column.granularity == "week":
        days = starts_of(periods, "week").astype("M8[s]").astype("M8[D]")
        return [_bin(str(day), str(day + np.timedelta64(6, "D"))) for day in days]
    unit = _UNITS[column.granularity]
    moments = periods.astype(f"M8[{unit}]")
    if column.granularity == "hour":
        return [f"{moment}h" for moment in moments]
    return [str(moment) for moment in moments]


def _bin(first: str, last: str) -> BinLabel:
    return BinLabel(f"{first}..{last}", first, last)


def _shortest(number: float) -> str:
    """The shortest text that reads back as the same number, without a needless ".0"."""
    text = repr(number)
    return text.removesuffix(".0")


# What a caller may give as schema and as private table: paths, frames, parsed JSON, codes.


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
