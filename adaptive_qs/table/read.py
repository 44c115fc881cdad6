"""Tables in chunks: CSV (plain or gzip) and Parquet files, and data frames."""

from __future__ import annotations

import contextlib
import csv
import glob
import io
import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import narwhals as nw
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from adaptive_qs.arguments import check_path
from adaptive_qs.errors import DataError, InputError, reason
from adaptive_qs.machine import PROCESS_BYTES, memory_bytes
from adaptive_qs.table.archive import open_archive, rows_at_once
from adaptive_qs.table.cells import MixedCells, frame_cells, redacted, unreadable_column
from adaptive_qs.table.csv_text import (
    COMMA,
    CheckedText,
    RowTooLong,
    end_of_rows,
    one_ahead,
    row_blocks,
)
from adaptive_qs.table.files import (
    BOOK_ENDINGS,
    BOOKS,
    PARQUET_MAGIC,
    TAB_SEPARATED,
    inside,
    is_pattern,
    is_written_only,
)
from adaptive_qs.table.text import ASCII_SPACE

# The bytes of a CSV file.

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HEADER_BYTES = 1 << 13
"""That are read at once while the line with the names of the columns is looked for."""
_URL = re.compile(r"(?i)[a-z][a-z0-9+.-]+:/")
"""What URLs begin with, two slashes or the one that paths make of them; drives have one letter."""


@contextmanager
def open_text(path: Path) -> Iterator[CheckedText]:
    """Open a CSV file, compressed by gzip or not.

    Raises:
        DataError: the file cannot be opened.
    """
    file = redacted(lambda: path.open("rb"), lambda error: unreadable(path, error))
    with file:
        yield CheckedText(path, file)


def find_delimiter(path: str | Path, declared: str | None = None) -> str:
    """What separates the cells of a CSV file: tabs in .tsv, else what is declared, or commas."""
    return "\t" if str(path).lower().endswith(TAB_SEPARATED) else declared or COMMA


def read_header(path: Path, delimiter: str = COMMA) -> tuple[tuple[str, ...], str | None]:
    """The column names in the first line of a CSV file, stripped; and what occurs there more often
    than the delimiter, outside quotation marks, and may separate them instead.

    Raises:
        DataError: the file cannot be read or is empty.
    """
    with open_text(path) as text:
        start = text.read(_HEADER_BYTES)
        while not (whole := end_of_rows(start, delimiter)) and len(start) < BLOCK_BYTES:
            if not (more := text.read(len(start))):
                break
            start += more
        if text.fault is not None:
            raise text.fault
    decoded = start.decode("utf-8-sig", "ignore")
    lines = io.StringIO(decoded, newline="")
    bad = DataError(f"{path}: the header line cannot be read: give UTF-8 text with separators")
    if not whole and len(start) >= BLOCK_BYTES:
        raise bad
    header = redacted(lambda: next(csv.reader(lines, delimiter=delimiter), None), lambda _: bad)
    if header is None:
        raise DataError(f"{path}: is empty: give a CSV file with a header line")
    bare = re.sub('"[^"]*"', "", decoded).lstrip("\r\n").splitlines()[:1]
    likeliest = max(SEPARATORS, key=lambda sign: sum(line.count(sign) for line in bare))
    other = None if bare and bare[0].count(likeliest) <= bare[0].count(delimiter) else likeliest
    return tuple(name.strip(ASCII_SPACE) for name in header), other


def unreadable(path: str | Path, error: Exception) -> DataError:
    """What to say about a file that cannot be opened."""
    if _URL.match(str(path)):
        url = re.sub(":/+", "://", str(path), count=1)
        return DataError(f"{url}: is a URL: download it first, and name the file")
    said = reason(error, "unreadable") if isinstance(error, OSError) else "unreadable"
    return DataError(f"{path}: {said}: check the path")


# Tables of any kind, as chunks of their columns.

_TEXTS = (
    pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
    pa.binary_view(),
)  # fmt: skip

BLOCK_BYTES = 1 << 22
BATCH_ROWS = 1 << 16
FRAME_ROWS = 1 << 18
FRAME = "table"
"""What a data frame is called."""
SEPARATORS = {COMMA: "commas", ";": "';'", "\t": "tabs", "|": "'|'"}
"""What may separate the cells of CSV, in words."""
_ZIP_MAGIC = b"PK\x03\x04"
_SQLITE_MAGIC = b"SQLite format 3\0"
_DUCKDB_MAGIC = b"DUCK"
_DUCKDB_PLACE = 8
"""Where it stands, behind a checksum."""
_RELEASE_MEMBERS = {"manifest.json", "residuals.npy"}
_UNREADABLE_MAGIC = {
    "an archive of xz": b"\xfd7zXZ",
    "an archive of bzip2": b"BZh",
    "an archive of zstd": b"\x28\xb5\x2f\xfd",
    "a Feather or Arrow file": b"ARROW1",
    "an ORC file": b"ORC",
    "a pickle of Python": b"\x80\x04",
}
_OLD_EXCEL_MAGIC = b"\xd0\xcf\x11\xe0"


Cells: TypeAlias = pa.Array | pa.ChunkedArray | MixedCells
"""Some cells of one column: of one type, or each of its own."""


@dataclass(frozen=True)
class Chunk:
    """Some rows of the wanted columns, and how far the reading has come.

    Where a table has several files, ``file`` is the one that holds the rows.
    """

    columns: tuple[Cells, ...]
    done: int
    total: int
    file: str = ""


@dataclass(frozen=True)
class Piece:
    """Some rows of a file.

    Attributes:
        size: in bytes, of a Parquet file without its compression.
        groups: of a Parquet file, the row groups.
        start: of a CSV file, the first byte.
        blocks: of a CSV file, the lengths of the blocks of whole rows from there on.
    """

    size: int
    groups: tuple[int, ...] = ()
    start: int = 0
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Source:
    """A table that can be read once, in chunks."""

    label: str
    names: tuple[str, ...]
    read: Callable[[Sequence[str]], Iterator[Chunk]]
    """Chunks of the named columns, in that order."""
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The column names of each file, where there are several."""
    cut: Callable[[int], Iterator[Piece | None]] = lambda _: iter([None])
    """Pieces of about so many bytes that together are the file, where such can be read; None is
    all of it."""
    other_delimiter: str | None = None
    """What seems to separate the cells of CSV, where it is not what they were read by."""


@contextmanager
def open_file(
    path: str | Path, piece: Piece | None = None, delimiter: str | None = None
) -> Iterator[Source]:
    """A CSV or Parquet file, or a piece of it, or a table inside a file (FILE::NAME where there
    are several), as a source; its first bytes tell the format, and :func:`find_delimiter` what
    separates the cells of CSV.

    Raises:
        DataError: the file is missing, empty, or has no readable column names; also while
            reading, when the file is damaged.
    """
    path, name = inside(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise DataError(f"{path}: is no regular file: give a file, or - for standard input")

    def start() -> bytes:
        with path.open("rb") as file:
            return file.read(len(_SQLITE_MAGIC))

    first, suffix = redacted(start, lambda error: unreadable(path, error)), path.suffix.lower()
    magic = first[: len(PARQUET_MAGIC)]
    if not magic:
        raise DataError(f"{path}: is empty: give a CSV file with a header line, or Parquet")
    if magic == _ZIP_MAGIC and _is_release(path):
        raise DataError(
            f"{path}: is a release bundle, not a table: draw one from it by "
            f"{shlex.join(['adaptive-qs', 'sample', str(path), '--out', 'table.csv'])}"
        )
    if magic == _ZIP_MAGIC and suffix == ".zip":
        raise DataError(f"{path}: is a zip archive: unpack it, or compress the CSV file by gzip")
    for form, start_of in _UNREADABLE_MAGIC.items():
        if first.startswith(start_of):
            raise DataError(f"{path}: is {form}: save it as CSV or Parquet")
    if magic == _OLD_EXCEL_MAGIC:
        raise DataError(f"{path}: is an Excel file of an old kind: save it as .xlsx, or as CSV")
    if book := _kind_of_book(first):
        with BOOKS[book](path, name) as source:
            yield source
        return
    if name is not None:
        raise DataError(f"{path}: holds no several tables: leave out ::{name}")
    if magic != PARQUET_MAGIC and is_written_only(path):
        raise DataError(f"{path}: tables in this format are only written: give CSV or Parquet")
    if suffix in BOOK_ENDINGS:
        raise DataError(
            f"{path}: is no readable {BOOK_ENDINGS[suffix]}, as its name says: save it again, or "
            "export the table as CSV"
        )
    if magic != PARQUET_MAGIC and suffix not in (".parquet", ".pq"):
        sign = find_delimiter(path, delimiter)
        names, other = read_header(path, sign)
        read = partial(_read_csv, path, names, piece=piece, delimiter=sign)
        cut = partial(_cut_csv, path, len(names), sign)
        yield Source(str(path), names, read, cut=cut, other_delimiter=other)
        return

    with _opened_parquet(path) as file:
        names = tuple(file.schema_arrow.names)
        read = partial(_read_parquet, path, file, piece)
        yield Source(str(path), names, read, cut=partial(_cut_parquet, file))


def _opened_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file, of whose texts equal ones are read as one, which is held once."""

    def opened() -> pq.ParquetFile:
        with pq.ParquetFile(path) as plain:
            listed = [each.name for each in plain.schema_arrow if each.type in _TEXTS]
        return pq.ParquetFile(path, read_dictionary=listed, page_checksum_verification=True)

    return redacted(opened, partial(_damaged_parquet, path))


def _damaged_parquet(path: Path, _: Exception) -> DataError:
    return DataError(f"{path}: is not a readable Parquet file: copy or write it again")


def _rows_at_once(path: Path, file: pq.ParquetFile, names: Collection[str], most_bytes: int) -> int:
    """See :func:`rows_at_once`; damage becomes one line."""
    ask = partial(rows_at_once, path, file, names, BATCH_ROWS, most_bytes)
    return redacted(ask, partial(_damaged_parquet, path))


def name_source(source: Any) -> str:
    """Return what messages call a table."""
    return str(source) if isinstance(source, str | Path | Rows) else "table"


def check_held(source: Any, most_bytes: int, names: Collection[str]) -> None:
    """Refuse a table whose file takes more memory than this while these columns of it are read.

    Raises:
        ResourceExceeded: it does.
    """
    if isinstance(source, str | Path):
        path = inside(source)[0]
        if not path.is_file():  # a pipe would be waited for; whoever reads it explains it
            return
        with contextlib.suppress(OSError), path.open("rb") as file:
            magic = file.read(len(_ZIP_MAGIC))
            if magic == _ZIP_MAGIC:
                from adaptive_qs.table.workbook import check_workbook

                check_workbook(path, most_bytes)
            elif magic == PARQUET_MAGIC:
                with contextlib.suppress(DataError), _opened_parquet(path) as parquet:  # as above
                    _rows_at_once(path, parquet, names, most_bytes)


# Tables in several files: all of a folder, or all that a pattern names.

_GZ = ".gz"
_ENDINGS = (".csv", ".csv.gz", *TAB_SEPARATED, ".parquet", ".pq")


def table_files(path: str | Path) -> list[Path]:
    """Return the files of a table: all CSV and Parquet files in a folder or under a pattern such as
    data/*.parquet, sorted by name, without hidden ones; otherwise the path itself.

    Raises:
        DataError: there are none, the folder cannot be listed or has folders in it, or it is no
            path.
    """
    check_path("the table", path, DataError)
    path = Path(path)
    if os.path.isdir(path):  # never raises, unlike Path.is_dir
        found = redacted(lambda: [*path.iterdir()], lambda error: unreadable(path, error))
    elif is_pattern(path):
        found = [Path(name) for name in glob.glob(str(path))]
    else:
        return [path]
    found = [file for file in found if not file.name.startswith(".")]
    if any(map(os.path.isdir, found)):
        raise DataError(
            f"{path}: has folders in it: give a pattern for their files, such as 'DIR/*/*.parquet'"
        )
    files = [file for file in found if file.name.lower().endswith(_ENDINGS)]
    if not files:
        raise DataError(f"{path}: no CSV or Parquet file there: check the folder or the pattern")
    _check_once(path, sorted(files))
    return sorted(files)


def _check_once(path: Path, files: Sequence[Path]) -> None:
    """Refuse a file that is there under two names: each of its rows would count twice.

    So would those of a file that has its compressed form next to it.
    """
    names: dict[tuple[int, int], Path] = {}
    plain = {file.with_name(file.name[: -len(_GZ)]) for file in files if file.suffix.lower() == _GZ}
    for file in files:
        if file in plain:
            raise DataError(f"{path}: has {file.name} and {file.name}{_GZ}: leave one out")
        with contextlib.suppress(OSError):  # whoever reads it explains them
            found = file.stat()
            other = names.setdefault((found.st_dev, found.st_ino), file)
            if other is not file:
                raise DataError(f"{path}: {other.name} and {file.name} are one file: leave one out")


@contextmanager
def _open_files(label: str, files: Sequence[Path], delimiter: str | None) -> Iterator[Source]:
    """Several files as one source, one after the other; the columns of all are known at once."""
    columns: dict[str, tuple[str, ...]] = {}
    sizes: list[int] = []
    for file in files:
        with open_file(file, delimiter=delimiter) as part:
            columns[str(file)] = part.names
            other = part.other_delimiter
            sizes.append(redacted(file.stat, partial(unreadable, file)).st_size)

    def read(wanted: Sequence[str]) -> Iterator[Chunk]:
        before = 0
        for file, size in zip(files, sizes):
            with open_file(file, delimiter=delimiter) as part:
                if part.names != columns[str(file)]:
                    raise DataError(f"{file}: changed while it was read: repeat the command")
                for chunk in part.read(wanted):
                    done = before + size * chunk.done // max(chunk.total, 1)
                    yield replace(chunk, done=done, total=sum(sizes), file=str(file))
            before += size

    yield Source(label, columns[str(files[0])], read, columns, other_delimiter=other)


def _kind_of_book(first: bytes) -> str | None:
    """The kind of file that holds tables, by its first bytes; None where it is none."""
    if first.startswith(_ZIP_MAGIC):
        return "Excel"
    if first == _SQLITE_MAGIC:
        return "SQLite"
    return "DuckDB" if first[_DUCKDB_PLACE:].startswith(_DUCKDB_MAGIC) else None


def _is_release(path: Path) -> bool:
    """Whether a zip archive has the members of a release bundle."""
    try:
        with open_archive(path, "release") as archive:
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

    bad = partial(unreadable_column, FRAME)

    def read_cells(part: Any, name: str) -> Cells:
        return frame_cells(part[:, names.index(name)])

    def read(wanted: Sequence[str]) -> Iterator[Chunk]:
        rows = len(frame)
        for start in range(0, rows, FRAME_ROWS):
            part = frame[start : start + FRAME_ROWS]
            columns = tuple(
                redacted(partial(read_cells, part, name), partial(bad, name)) for name in wanted
            )
            yield Chunk(columns, start + len(part), rows)

    return Source(FRAME, names, read)


class Rows:
    """A table that is neither a file nor a data frame."""

    def open(self) -> AbstractContextManager[Source]:
        """Return its rows as a source."""
        raise NotImplementedError


@contextmanager
def open_source(table: Any, delimiter: str | None = None) -> Iterator[Source]:
    """A file, a folder or a pattern of files, or a pandas, polars or pyarrow table, as a source.

    What separates the cells of CSV is as for :func:`find_delimiter`.

    Raises:
        DataError: it is none of these; as for :func:`table_files` and :func:`open_file`.
    """
    opened: AbstractContextManager[Source]
    match table:
        case str() | Path():
            files = table_files(table)
            single = [*files] == [Path(table)]
            opened = (
                open_file(table, delimiter=delimiter)
                if single
                else _open_files(str(table), files, delimiter)
            )
        case Rows():
            opened = table.open()
        case _:
            opened = contextlib.nullcontext(frame_source(table))
    with opened as source:
        yield source


def check_names(source: Source, wanted: Collection[str], ignored: Collection[str]) -> None:
    """Refuse a table whose columns are not those of the schema.

    Names of the data are quoted only once all names of the schema have been found among them:
    the first line of a file without a header is a private row.

    Raises:
        DataError: a name is in the data or the schema only, or occurs twice, in any of its files.
    """
    for file, names in source.files.items():
        check_names(replace(source, label=file, names=names, files={}), wanted, ignored)
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


def check_alike(source: Source) -> None:
    """Refuse files of one table that do not have the same columns, in any order.

    Raises:
        DataError: they do not; names are not quoted, since there may be no header line.
    """
    for file, names in source.files.items():
        if sorted(names) != sorted(source.names):
            raise DataError(
                f"{file}: does not have the columns of {next(iter(source.files))}: give files of "
                "one table"
            )


def check_separator(source: Source) -> None:
    """Refuse a table whose only column name holds what looks like a separator.

    Raises:
        DataError: it does.
    """
    found = source.other_delimiter
    if found is not None and len(source.names) == 1:
        raise DataError(
            f"{source.label}: cells are separated by {SEPARATORS[found]}: "
            f'say "delimiter": {json.dumps(found)} in the schema'
        )


def _read_csv(
    path: Path,
    names: tuple[str, ...],
    wanted: Sequence[str],
    piece: Piece | None = None,
    delimiter: str = COMMA,
) -> Iterator[Chunk]:
    total = path.stat().st_size
    with open_text(path) as text:

        def explain(error: Exception) -> DataError:
            return text.fault or _csv_problem(path, error, len(names))

        with closing(one_ahead(_batches(text, names, wanted, piece, delimiter))) as batches:
            while (batch := redacted(lambda: next(batches, None), explain)) is not None:
                yield Chunk(tuple(batch.columns), min(text.position, total), total)
        if text.fault is not None:
            raise text.fault


def _batches(
    text: CheckedText,
    names: tuple[str, ...],
    wanted: Sequence[str],
    piece: Piece | None,
    delimiter: str,
) -> Iterator[pa.RecordBatch]:
    blocks = (
        row_blocks(text.read, BLOCK_BYTES, delimiter)
        if piece is None
        else text.blocks(piece.start, piece.blocks)
    )
    for number, block in enumerate(blocks):
        if text.fault is None:
            header = number == 0 and (piece is None or piece.start == 0)
            yield from _parsed(block, header, names, wanted, delimiter).to_batches()


def _cut_csv(path: Path, width: int, delimiter: str, most_bytes: int) -> Iterator[Piece | None]:
    """Pieces of the blocks in which the whole file is read, so that cells are parsed as there.

    Where a row ends depends on all quotation marks before it: so the file is read, and checked
    as text, from its beginning.
    """
    with open_text(path) as text:
        if text.zipped:
            yield None
            return
        blocks = row_blocks(text.read, BLOCK_BYTES, delimiter)
        start = 0
        sizes: list[int] = []
        while block := redacted(
            lambda: next(blocks, b""), partial(_csv_problem, path, width=width)
        ):
            if sizes and sum(sizes) + len(block) > most_bytes:
                yield Piece(sum(sizes), start=start, blocks=tuple(sizes))
                start, sizes = start + sum(sizes), []
            sizes.append(len(block))
        if text.fault is not None:
            raise text.fault
        yield Piece(sum(sizes), start=start, blocks=tuple(sizes))


def _parsed(
    block: bytes, header: bool, names: tuple[str, ...], wanted: Sequence[str], delimiter: str
) -> pa.Table:
    """The wanted cells of whole rows, but for those of a header.

    Arrow parses on threads of its own, and some outlive an error. They get a copy in Arrow's
    memory and nothing of Python's: a thread that asks for the interpreter while that shuts down
    aborts the process.
    """
    copy = pa.BufferOutputStream()
    if not header and block.startswith(_BYTE_ORDER_MARK):  # which here is part of a cell
        copy.write(b"\n")
    copy.write(block)
    text_type = pa.dictionary(pa.int32(), pa.string())
    return pacsv.read_csv(
        pa.BufferReader(copy.getvalue()),
        read_options=pacsv.ReadOptions(
            column_names=names, skip_rows_after_names=int(header), block_size=len(block) + 1
        ),
        parse_options=pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(wanted, text_type),
            include_columns=list(wanted),
            null_values=[],
            strings_can_be_null=False,
        ),
    )


def _read_parquet(
    path: Path,
    file: pq.ParquetFile,
    piece: Piece | None,
    wanted: Sequence[str],
) -> Iterator[Chunk]:
    total, done = file.metadata.num_rows, 0
    groups = None if piece is None else list(piece.groups)
    types = {name: file.schema_arrow.field(name).type for name in wanted}
    nested = {name: kind for name, kind in types.items() if pa.types.is_nested(kind)}
    flat = [name for name in wanted if name not in nested]  # nobody takes a nested cell
    damaged = partial(_damaged_parquet, path)
    rows = _rows_at_once(path, file, flat, memory_bytes(None) - PROCESS_BYTES)
    ask = partial(file.iter_batches, batch_size=rows, columns=flat, row_groups=groups)
    batches = redacted(ask, damaged)
    while (batch := redacted(lambda: next(batches, None), damaged)) is not None:
        done += batch.num_rows
        cells = (
            pa.nulls(batch.num_rows, nested[name]) if name in nested else batch.column(name)
            for name in wanted
        )  # fmt: skip
        yield Chunk(tuple(cells), done, total)


def _cut_parquet(file: pq.ParquetFile, most_bytes: int) -> Iterator[Piece | None]:
    groups: list[int] = []
    size = 0
    for number in range(file.metadata.num_row_groups):
        more = file.metadata.row_group(number).total_byte_size
        if groups and size + more > most_bytes:
            yield Piece(size, groups=tuple(groups))
            groups, size = [], 0
        groups.append(number)
        size += more
    yield Piece(size, groups=tuple(groups))


def _csv_problem(path: Path, error: Exception, width: int) -> DataError:
    if isinstance(error, RowTooLong):
        return DataError(
            f"{path}: a row is longer than {BLOCK_BYTES >> 20} MiB: look for a quotation mark "
            "that is never closed"
        )
    if "Expected" in str(error):
        return DataError(
            f"{path}: a row does not have the {width} cells of the header: complete the file, or "
            "quote the cells that hold separators"
        )
    return DataError(f"{path}: is not well-formed CSV: save it as UTF-8 text with separators")
