"""Tables in chunks: CSV (plain or gzip) and Parquet files, and data frames."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import narwhals as nw
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from adaptive_qs.data.archive import open_archive
from adaptive_qs.data.csv_blocks import RowTooLong, as_continuation, one_ahead, row_blocks
from adaptive_qs.data.kinds import PARQUET_MAGIC
from adaptive_qs.data.objects import MixedCells, frame_cells
from adaptive_qs.data.redaction import redacted
from adaptive_qs.data.textfile import CheckedText, open_text, read_header, unreadable
from adaptive_qs.errors import DataError, InputError

BLOCK_BYTES = 1 << 22
BATCH_ROWS = 1 << 16
FRAME_ROWS = 1 << 20
_OTHER_SEPARATORS = {";": "';'", "\t": "tabs", "|": "'|'"}
_ZIP_MAGIC = b"PK\x03\x04"
_RELEASE_MEMBERS = {"manifest.json", "residuals.npy"}
_OLD_EXCEL_MAGIC = b"\xd0\xcf\x11\xe0"


Cells: TypeAlias = pa.Array | pa.ChunkedArray | MixedCells
"""Some cells of one column: of one type, or each of its own."""


@dataclass(frozen=True)
class Chunk:
    """Some rows of the wanted columns, and how far the reading has come."""

    columns: tuple[Cells, ...]
    done: int
    total: int


@dataclass(frozen=True)
class Source:
    """A table that can be read once, in chunks."""

    label: str
    names: tuple[str, ...]
    read: Callable[[Sequence[str]], Iterator[Chunk]]
    """Chunks of the named columns, in that order."""


@contextmanager
def open_file(path: str | Path) -> Iterator[Source]:
    """A CSV or Parquet file as a source; the format is told by the first bytes.

    Raises:
        DataError: the file is missing, empty, or has no readable column names; also while
            reading, when the file is damaged.
    """
    path = Path(path)
    if os.path.isdir(path):  # never raises, unlike Path.is_dir
        raise DataError(f"{path}: is a folder: give a CSV or Parquet file")
    magic = redacted(lambda: _magic(path), lambda error: unreadable(path, error))
    if not magic:
        raise DataError(f"{path}: is empty: give a CSV file with a header line, or Parquet")
    if magic == _ZIP_MAGIC and _is_release(path):
        raise DataError(
            f"{path}: is a release bundle, not a table: draw one from it by "
            f"{shlex.join(['adaptive-qs', 'sample', str(path), '--out', 'table.csv'])}"
        )
    if magic == _ZIP_MAGIC and path.suffix.lower() == ".zip":
        raise DataError(f"{path}: is a zip archive: unpack it, or compress the CSV file by gzip")
    if magic in (_ZIP_MAGIC, _OLD_EXCEL_MAGIC):
        raise DataError(f"{path}: is an Excel file: export it as CSV or Parquet")
    if magic != PARQUET_MAGIC and path.suffix.lower() not in (".parquet", ".pq"):
        names = read_header(path)
        yield Source(str(path), names, lambda wanted: _read_csv(path, names, wanted))
        return
    file = redacted(lambda: pq.ParquetFile(path), lambda _: _damaged(path))
    with file:
        names = tuple(file.schema_arrow.names)
        yield Source(str(path), names, lambda wanted: _read_parquet(path, file, wanted))


def _is_release(path: Path) -> bool:
    """Whether a zip archive has the members of a release bundle."""
    try:
        with open_archive(path, "release bundle") as archive:
            return set(archive.names) >= _RELEASE_MEMBERS
    except InputError:
        return False


def frame_source(table: Any) -> Source:
    """A pandas, polars or pyarrow table as a source.

    No type is inferred: a column has the type that it came with, and in a column of Python objects
    each cell has its own.

    Raises:
        DataError: it is not such a table.
    """
    frame = redacted(
        lambda: nw.from_native(table, eager_only=True),
        lambda _: DataError(
            "the table is not an eager pandas, polars or pyarrow table with distinct column "
            "names: convert it (collect() a lazy one)"
        ),
    )
    names = tuple(str(name) for name in frame.columns)

    def read(wanted: Sequence[str]) -> Iterator[Chunk]:
        rows = len(frame)
        for start in range(0, rows, FRAME_ROWS):
            part = frame[start : start + FRAME_ROWS]
            columns = tuple(_frame_column(part, names.index(name), name) for name in wanted)
            yield Chunk(columns, start + len(part), rows)

    return Source("table", names, read)


def check_names(source: Source, wanted: Collection[str], ignored: Collection[str]) -> None:
    """Refuse a table whose columns are not those of the schema.

    Names of the data are quoted only once all names of the schema have been found among them:
    the first line of a file without a header is a private row.

    Raises:
        DataError: a name is in the data or the schema only, or occurs twice.
    """
    matching = sum(name in source.names for name in wanted)
    if 2 * matching < len(wanted):
        check_separator(source)
        raise DataError(
            f"{source.label}: has {matching} of the {len(wanted)} columns of the schema: check "
            "that it is the right table, with a header line, and the right schema"
        )
    for name in wanted:
        if name not in source.names:
            check_separator(source)
            raise DataError(
                f"{source.label}: column {name!r} of the schema is missing from the data: add it "
                "(and a header line, if there is none), or remove it from the schema"
            )
    seen: set[str] = set()
    for name in source.names:
        if name in seen:
            raise DataError(f"{source.label}: column {name!r} occurs twice: rename or drop one")
        seen.add(name)
        if name not in wanted and name not in ignored:
            raise DataError(
                f"{source.label}: column {name!r} is not in the schema: declare it, or list it "
                'under "ignore"'
            )


def check_separator(source: Source) -> None:
    """Refuse a table whose only column name holds what looks like a separator.

    Raises:
        DataError: it does.
    """
    for mark, label in _OTHER_SEPARATORS.items():
        if len(source.names) == 1 and mark in source.names[0]:
            raise DataError(f"{source.label}: fields are separated by {label}: save it with commas")


def _read_csv(path: Path, names: tuple[str, ...], wanted: Sequence[str]) -> Iterator[Chunk]:
    total = path.stat().st_size
    with open_text(path) as text:

        def explain(error: Exception) -> DataError:
            return text.fault or _csv_problem(path, error, len(names))

        with closing(one_ahead(_batches(text, names, wanted))) as batches:
            while (batch := redacted(lambda: next(batches, None), explain)) is not None:
                yield Chunk(tuple(batch.columns), min(text.position, total), total)
        if text.fault is not None:
            raise text.fault


def _batches(
    text: CheckedText, names: tuple[str, ...], wanted: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    for number, block in enumerate(row_blocks(text.read, BLOCK_BYTES)):
        if text.fault is None:
            yield from _parsed(block, number == 0, names, wanted).to_batches()


def _parsed(block: bytes, header: bool, names: tuple[str, ...], wanted: Sequence[str]) -> pa.Table:
    """The wanted cells of whole rows, but for those of a header.

    Arrow parses on threads of its own, and some outlive an error. They get a copy in Arrow's
    memory and nothing of Python's: a thread that asks for the interpreter while that shuts down
    aborts the process.
    """
    copy = pa.BufferOutputStream()
    copy.write(block if header else as_continuation(block))
    text_type = pa.dictionary(pa.int32(), pa.string())
    return pacsv.read_csv(
        pa.BufferReader(copy.getvalue()),
        read_options=pacsv.ReadOptions(
            column_names=names, skip_rows_after_names=int(header), block_size=len(block) + 1
        ),
        parse_options=pacsv.ParseOptions(newlines_in_values=True),
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(wanted, text_type),
            include_columns=list(wanted),
            null_values=[],
            strings_can_be_null=False,
        ),
    )


def _read_parquet(path: Path, file: pq.ParquetFile, wanted: Sequence[str]) -> Iterator[Chunk]:
    total, done = file.metadata.num_rows, 0
    batches = redacted(
        lambda: file.iter_batches(batch_size=BATCH_ROWS, columns=list(wanted)),
        lambda _: _damaged(path),
    )
    while (batch := redacted(lambda: next(batches, None), lambda _: _damaged(path))) is not None:
        done += batch.num_rows
        yield Chunk(tuple(batch.column(name) for name in wanted), done, total)


def _frame_column(frame: nw.DataFrame, index: int, name: str) -> Cells:
    return redacted(
        lambda: frame_cells(frame[:, index]),
        lambda _: DataError(f"table: column {name!r} cannot be read: write it as text"),
    )


def _csv_problem(path: Path, error: Exception, width: int) -> DataError:
    if isinstance(error, RowTooLong):
        return DataError(
            f"{path}: a row is longer than {BLOCK_BYTES >> 20} MiB: look for a quotation mark "
            "that is never closed"
        )
    if "Expected" in str(error):
        return DataError(
            f"{path}: a row does not have the {width} cells of the header: complete the file, or "
            "quote the cells that hold commas"
        )
    return DataError(f"{path}: is not well-formed CSV: save it as comma-separated UTF-8 text")


def _damaged(path: Path) -> DataError:
    return DataError(f"{path}: is not a readable Parquet file: copy or write it again")


def _magic(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(PARQUET_MAGIC))
