"""CSV and Parquet files as sources: checked text, whole rows, and pages of bounded size."""

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from adaptive_qs.errors import DataError, ResourceExceeded
from adaptive_qs.machine import PROCESS_BYTES, ThreadPool, memory_bytes, njit
from adaptive_qs.table.files import TAB_SEPARATED
from adaptive_qs.table.read import SEPARATORS, Chunk, Reader, RowGroups, Source, unreadable
from adaptive_qs.table.text import ASCII_SPACE, COMMA, Dialect

BLOCK_BYTES = 1 << 22
"""Bytes of a CSV file that are read in one step; a row has at most as many."""
BATCH_ROWS = 1 << 16
"""Rows of a Parquet file that are read in one step, at most."""

# Blocks of whole CSV rows, cut where the parser would cut them.

T = TypeVar("T")


class RowTooLong(ValueError):
    """The error that a row does not fit a block."""


class RaggedRow(ValueError):
    """A row has too few or too many cells; the message is its number."""


def row_blocks(read: Callable[[int], bytes], size: int, delimiter: str = COMMA) -> Iterator[bytes]:
    """Yield the text as blocks of whole rows, of at most twice the `size` that is read in one step.

    The text ends with an end of line. Raises RowTooLong if a row is longer than `size`, and does
    not end among the bytes read next.
    """
    rest = b""
    while text := read(size):
        text = rest + text
        end = end_of_rows(text, delimiter)
        block, rest = text[:end], text[end:]
        if block:
            yield block
        if len(rest) > size:
            raise RowTooLong
    if rest:
        yield rest


def one_ahead(items: Iterator[T]) -> Generator[T]:
    """Yield items while a thread, which ends with this generator, prepares the next one."""
    with ThreadPool(1) as pool:
        coming = pool.submit(lambda: next(items, None))
        while (item := coming.result()) is not None:
            coming = pool.submit(lambda: next(items, None))
            yield item


def end_of_rows(text: bytes, delimiter: str = COMMA) -> int:
    """Return the end of the last whole row in text that begins with a row.

    Rows end with LF, CR or both, and never inside a quoted cell. A CR at the very end does not
    count: LF can follow.
    """
    if b'"' in text:
        return int(_end_of_rows(np.frombuffer(text, dtype=np.uint8), ord(delimiter)))
    return 1 + max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1))


@njit(cache=True, nogil=True)
def _end_of_rows(text, delimiter):  # type: ignore[no-untyped-def]
    """Return the same for text with quotation marks, which open a cell only at its beginning."""
    quote, line_feed, carriage_return = 34, 10, 13
    at_start, unquoted, quoted, after_quote = 0, 1, 2, 3
    end, state = 0, at_start
    for i in range(text.size):
        byte = text[i]
        if state == quoted:
            if byte == quote:
                state = after_quote
        elif byte == quote and state != unquoted:
            state = quoted
        elif byte == line_feed or (byte == carriage_return and i < text.size - 1):
            state = at_start
            end = i + 1
        elif byte == delimiter:
            state = at_start
        else:
            state = unquoted
    return end


# The bytes of a CSV file, decompressed and checked on their way to the parser.


class CheckedText:
    """The UTF-8 text of a file, which ends at the first fault and remembers it.

    Faults are bytes that are not UTF-8, NUL bytes, a truncated gzip stream, and a quotation mark
    that is never closed (in well-formed CSV their number is even). A last line without an end gets
    one.
    """

    def __init__(self, path: Path, file: BinaryIO, dialect: Dialect) -> None:
        self.path, self._file, self._dialect = path, file, dialect
        zipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        self._source = gzip.GzipFile(fileobj=file) if zipped else file
        self._decoder = codecs.getincrementaldecoder(dialect.encoding or "utf-8")()
        self._lines = 1
        self._quotes = 0
        self._last = b""
        self.fault: DataError | None = None

    @property
    def position(self) -> int:
        """Number of bytes of the file on disk that have been read."""
        return self._file.tell()

    def read(self, size: int) -> bytes:
        """Return up to `size` checked bytes; none at the end or at a fault."""
        try:
            block, problem = (b"", "") if self.fault is not None else self._checked(size)
        except UnicodeError as error:
            problem = (
                f"is not {self._dialect.encoding or 'UTF-8'} text{self._place(error)}: save it as "
                'UTF-8, or state its "encoding" in the schema'
            )
        except (EOFError, zlib.error, gzip.BadGzipFile):
            problem = "is a damaged or truncated gzip file: copy it again"
        except OSError:
            problem = "cannot be read: check the disk and the permissions"
        if problem:
            self.fault = DataError(f"{self.path}: {problem}")
            return b""
        return block

    def _checked(self, size: int) -> tuple[bytes, str]:
        """Return `size` bytes of the source, fewer only at its end, and what is wrong with them."""
        block = self._source.read(size)
        while len(block) < size and (more := self._source.read(size - len(block))):
            block += more
        at_end = len(block) < size
        text = self._decoder.decode(block, final=at_end)
        block = block if self._dialect.encoding is None else text.encode()
        self._lines += block.count(b"\n")
        if b"\0" in block:
            return b"", "has NUL bytes: save it as plain UTF-8 CSV"
        self._quotes += block.count(b'"')
        if at_end and self._quotes % 2:
            return b"", (
                "has a quotation mark that is never closed: complete the file, or double the "
                "marks inside quoted cells"
            )
        if at_end and (block or self._last)[-1:] not in (b"", b"\n"):
            block += b"\n"
        self._last = block[-1:]
        return block, ""

    def _place(self, error: UnicodeError) -> str:
        """Return the line of the bytes that are no text, if messages may name it."""
        before = error.object[: error.start] if isinstance(error, UnicodeDecodeError) else b""
        line = self._lines + before.count(b"\n")
        return f" in line {line:,}" if self._dialect.located else ""


@contextmanager
def open_csv(path: Path, dialect: Dialect | None = None) -> Iterator[Source]:
    """Yield a CSV file, compressed by gzip or not, as a source.

    Cells are separated by tabs in .tsv files, otherwise as the ``dialect`` says.
    """
    dialect = dialect or Dialect()
    sign = "\t" if str(path).lower().endswith(TAB_SEPARATED) else dialect.delimiter or COMMA
    with path.open("rb") as file:
        text = CheckedText(path, file, dialect)
        names, other = _read_header(text, sign)

    def explain(error: Exception) -> DataError:
        return text.fault or _explain_csv(path, error, len(names), dialect.located)

    def read(requested: Sequence[str]) -> Iterator[Chunk]:
        nonlocal text
        total = path.stat().st_size
        with path.open("rb") as file:
            text = CheckedText(path, file, dialect)
            parsed = _parse_blocks(text, names, requested, sign)
            with closing(one_ahead(parsed)) as batches:
                for batch in batches:
                    yield Chunk(tuple(batch.columns), min(text.position, total), total)
            if text.fault is not None:
                raise text.fault

    yield Source(str(path), names, read, other_delimiter=other, explain=explain)


def _read_header(text: CheckedText, delimiter: str) -> tuple[tuple[str, ...], str | None]:
    """Return the names in the first line, and a likelier delimiter if the line suggests one.

    That delimiter occurs more often than the given one outside quotation marks.
    """
    start = text.read(1 << 13)
    while not (whole := end_of_rows(start, delimiter)) and len(start) < BLOCK_BYTES:
        if not (more := text.read(len(start))):
            break
        start += more
    if text.fault is not None:
        raise text.fault
    decoded = start.decode("utf-8-sig", "ignore")
    header = None
    if whole or len(start) < BLOCK_BYTES:
        header = next(csv.reader(io.StringIO(decoded, newline=""), delimiter=delimiter), None)
        if header is None:
            raise DataError(f"{text.path} is empty. Use a CSV file with a header line.")
    if header is None:
        raise _explain_header(text.path)
    bare = re.sub('"[^"]*"', "", decoded).lstrip("\r\n").splitlines()[:1]
    likeliest = max(SEPARATORS, key=lambda sign: sum(line.count(sign) for line in bare))
    other = None if bare and bare[0].count(likeliest) <= bare[0].count(delimiter) else likeliest
    return tuple(name.strip(ASCII_SPACE) for name in header), other


def _explain_header(path: Path, error: Exception | None = None) -> DataError:
    if isinstance(error, OSError):
        return unreadable(path, error)
    return DataError(f"{path}: the header line cannot be read. Use UTF-8 text with separators.")


def _parse_blocks(
    text: CheckedText, names: tuple[str, ...], requested: Sequence[str], delimiter: str
) -> Iterator[pa.RecordBatch]:
    rows = 0  # before the block, that of the header included
    for block in row_blocks(text.read, BLOCK_BYTES, delimiter):
        if text.fault is not None:
            return
        try:
            table = _parse(block, rows == 0, names, requested, delimiter)
        except pa.ArrowInvalid:
            lines = io.StringIO(block.decode(errors="replace"), newline="")
            parsed = enumerate(csv.reader(lines, delimiter=delimiter), start=rows + 1)
            for ragged in (k for k, row in parsed if row and len(row) != len(names)):
                raise RaggedRow(ragged) from None
            raise
        rows += table.num_rows + (rows == 0)
        yield from table.to_batches()


def _parse(
    block: bytes, header: bool, names: tuple[str, ...], requested: Sequence[str], delimiter: str
) -> pa.Table:
    """Return the requested cells of whole rows, without those of a header.

    Arrow parses on threads of its own, and some outlive an error. They get a copy in Arrow's memory
    and nothing of Python's: a thread that asks for the interpreter while that shuts down aborts the
    process.
    """
    copy = pa.BufferOutputStream()
    if not header and block.startswith(codecs.BOM_UTF8):  # which here is part of a cell
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
            column_types=dict.fromkeys(requested, text_type),
            include_columns=list(requested),
            null_values=[],
            strings_can_be_null=False,
        ),
    )


def _explain_csv(path: Path, error: Exception, width: int, located: bool) -> DataError:
    if isinstance(error, RowTooLong):
        return DataError(
            f"{path}: a row is longer than {BLOCK_BYTES >> 20} MiB: look for a quotation mark "
            "that is never closed"
        )
    if isinstance(error, RaggedRow) or "Expected" in str(error):
        place = f"row {error} of the file" if located and isinstance(error, RaggedRow) else "a row"
        return DataError(
            f"{path}: {place} does not have the {width} cells of the header: complete the file, or "
            "quote the cells that hold separators"
        )
    return DataError(f"{path}: is not well-formed CSV: save it as UTF-8 text with separators")


@contextmanager
def open_parquet(path: Path, groups: RowGroups = None) -> Iterator[Source]:
    """Yield a Parquet file, or some of its row groups, as a source."""
    file = _open_parquet(path)
    names = tuple(file.schema_arrow.names)

    def read(requested: Sequence[str]) -> Iterator[Chunk]:
        total, done = file.metadata.num_rows, 0
        types = {name: file.schema_arrow.field(name).type for name in requested}
        nested = {name: kind for name, kind in types.items() if pa.types.is_nested(kind)}
        flat = [name for name in requested if name not in nested]  # no column takes a nested cell
        most_bytes = memory_bytes(None) - PROCESS_BYTES
        chosen = [*range(file.num_row_groups)] if groups is None else [*groups]
        rows = _rows_at_once(path, file, flat, most_bytes, chosen)
        for batch in file.iter_batches(batch_size=rows, columns=flat, row_groups=chosen):
            done += batch.num_rows
            cells = (
                pa.nulls(batch.num_rows, nested[name]) if name in nested else batch.column(name)
                for name in requested
            )
            yield Chunk(tuple(cells), done, total)

    with file:
        yield Source(str(path), names, read, cut=partial(_cut_parquet, file))


def _open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file; equal texts of a column are held once."""
    texts = [pa.string(), pa.large_string(), pa.string_view()]
    texts += [pa.binary(), pa.large_binary(), pa.binary_view()]
    with pq.ParquetFile(path) as plain:
        listed = [each.name for each in plain.schema_arrow if each.type in texts]
    return pq.ParquetFile(path, read_dictionary=listed, page_checksum_verification=True)


def check_parquet(path: Path, names: Collection[str], most_bytes: int) -> None:
    """Raise ResourceExceeded if these columns need more memory than this while they are read."""
    with _open_parquet(path) as file:
        _rows_at_once(path, file, names, most_bytes, range(file.num_row_groups))


def _rows_at_once(
    path: Path, file: pq.ParquetFile, names: Collection[str], most_bytes: int, chosen: Sequence[int]
) -> int:
    """Return how many rows of some columns to read in one step, at most ``BATCH_ROWS``.

    Raise ResourceExceeded if one of the chosen row groups needs more memory than this.
    """
    groups = [file.metadata.row_group(k) for k in chosen]
    cell, sizes = 0, [np.zeros(len(groups), np.int64)]
    with path.open("rb") as raw:
        for place in range(file.metadata.num_columns):
            column = file.schema.column(place)
            if column.path in names:
                unpacked = [_unpacked_bytes(raw, group.column(place)) for group in groups]
                sizes.append(np.array(unpacked, np.int64))
                cell += 16 + column.length
    rows = max(1, min(BATCH_ROWS, 2**26 // max(cell, 1)))
    held = int((np.sum(sizes, axis=0) + 2 * np.max(sizes, axis=0)).max(initial=0))
    if held + rows * cell > most_bytes:
        raise ResourceExceeded(
            f"{path}: its row groups need more memory than the {max(most_bytes, 0) >> 20:,} MB "
            "there are for them: raise --max-memory, or write it again with smaller row groups"
        )
    return rows


def _unpacked_bytes(raw: BinaryIO, chunk: pq.ColumnChunkMetaData) -> int:
    """Return the size of an unpacked column chunk in bytes, from the headers of its pages.

    The metadata of a hostile file can state a smaller one. Raise ValueError if a page has a
    negative size, or texts as differences: each of these can be as long as a page, and Arrow does
    not read them with a dictionary either.
    """
    place = min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)))
    end, total = place + chunk.total_compressed_size, 0
    while place < end:
        raw.seek(place)
        header, length = _thrift_fields(raw.read(2**16), 0)
        delta_byte_array = header.get(5, {}).get(2), header.get(8, {}).get(4)
        if min(header[2], header[3]) < 0 or (
            7 in delta_byte_array and chunk.physical_type == "BYTE_ARRAY"
        ):
            raise ValueError("a page has a negative size, or texts as differences")
        total += header[2]
        place += length + header[3]
    return max(total, chunk.total_uncompressed_size)


def _thrift_fields(data: bytes, place: int) -> tuple[dict[int, Any], int]:
    """Parse a structure of Thrift's compact protocol; return integers, structures, and its end."""
    fields: dict[int, Any] = {}
    number = 0
    while byte := data[place]:
        kind, step, place = byte & 15, byte >> 4, place + 1
        if not step:
            long_step, place = _thrift_integer(data, place)
            number, step = 0, long_step >> 1
        number += step
        if kind == 12:  # a structure
            fields[number], place = _thrift_fields(data, place)
        elif kind in (4, 5, 6):  # integers of 16, 32 and 64 bits
            value, place = _thrift_integer(data, place)
            if kind == 5:
                fields[number] = (value & 0xFFFFFFFF) >> 1 ^ -(value & 1)
        elif kind == 8:  # a text
            length, place = _thrift_integer(data, place)
            place += length
        elif kind not in (1, 2):  # booleans
            raise ValueError("a header has fields of unknown types")
    return fields, place + 1


def _thrift_integer(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while data[place] > 127:
        value, shift, place = value | (data[place] & 127) << shift, shift + 7, place + 1
    return value | data[place] << shift, place + 1


def _cut_parquet(file: pq.ParquetFile, most_bytes: int) -> Iterator[RowGroups]:
    groups: tuple[int, ...] = ()
    size = 0
    for number in range(file.metadata.num_row_groups):
        more = file.metadata.row_group(number).total_byte_size
        if groups and size + more > most_bytes:
            yield groups
            groups, size = (), 0
        groups, size = (*groups, number), size + more
    yield groups


CSV_READER = Reader(open_csv, _explain_header)
PARQUET_READER = Reader(
    open_parquet,
    lambda path, _: DataError(f"{path}: is not a readable Parquet file: copy or write it again"),
    check_parquet,
)
