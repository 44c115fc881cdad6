"""Engines of one machine: codes in memory, and on disk if there is no room for them."""

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from adaptive_qs.domain import Domain
from adaptive_qs.errors import AdaptiveQsError, DataError, InputError, ResourceExceeded, reason
from adaptive_qs.machine import StepProgress
from adaptive_qs.table import coded, engines
from adaptive_qs.table.cells import MixedCells, redacted, split_chunks, unreadable_column
from adaptive_qs.table.coded import BlockEngine, CodedTable, Codes, code_dtype
from adaptive_qs.table.encode import coded_chunks, sum_rows, unchanged
from adaptive_qs.table.files import temporary_folder
from adaptive_qs.table.read import Cells, Chunk, Rows, Source, name_source, open_source
from adaptive_qs.table.schema import Schema

SPARE_BYTES = 2**26
"""Free space that stays in the folder for temporary files, in bytes."""
SPOOL_BYTES = 2**24
"""Memory for private rows that are read again, in bytes."""


@contextmanager
def preflight(
    name: str, source: Any, rows: int, domain: Domain, options: engines.EngineOptions
) -> Iterator[engines.EngineOptions]:
    """Yield the options for an engine on a table, after everything that would stop it was checked.

    So it is refused before anything is spent on learning. A cluster stays connected in the context.
    ``domain`` has as many codes as each attribute can get.

    Raises:
        InputError: If the engine cannot be opened, or workers do not see the table.
        ResourceExceeded: If there is no room.
    """
    name = engine_for(name, options)
    if name == "memory" and options.check_held is not None:
        options.check_held(rows)
    if options.scheduler is None:
        _check_disk(name, rows, domain, options)
    if name in engines.CHECKS:
        with engines.CHECKS[name](source, rows, options) as connected:
            yield connected
        return
    one = Schema.parse({"a": 1})
    row = CodedTable.from_codes(one.domain(), [np.zeros(1, dtype=np.uint8)])
    with engines.open_engine(name, row, one, options):
        pass
    yield options


def _check_disk(name: str, rows: int, domain: Domain, options: engines.EngineOptions) -> None:
    row_bytes = sum(code_dtype(size).itemsize for size in domain.sizes)
    if name == "memory" or (
        name == engines.DEFAULT_ENGINE and rows * row_bytes <= options.rows_bytes
    ):
        return
    folder = temporary_folder(options.temp_folder)
    if shutil.disk_usage(folder).free < rows * row_bytes + SPARE_BYTES:
        raise _no_room(folder, _describe_codes(row_bytes), OSError())


def _describe_codes(row_bytes: int) -> str:
    return f"the codes of the table, {row_bytes:,} bytes for each row"


def _no_room(folder: Path | None, what: str, error: OSError) -> ResourceExceeded:
    return ResourceExceeded(
        f"temp-folder {folder}: no room for {what} ({reason(error, 'disk full')}): free some "
        "space, or name another folder with --temp-folder"
    )


class Spool(Rows):
    """A private table that is read from its source once; its rows can be read again from the spool.

    A source can give other rows each time (a query with a sample, a file that is rewritten). A run
    sees the rows of one reading: those that were checked and counted are those that are measured.
    Rows are kept if it ``keeps`` them, in memory and then in a file without a name; ``sums`` allows
    ``digest``. The table is not coded; the schema names the delimiter and the ignored columns.
    """

    def __init__(
        self, table: Any, schema: Schema, options: engines.EngineOptions, keeps: bool, sums: bool
    ) -> None:
        self.table = table
        self.keeps, self.sums = keeps, sums
        self._schema = schema
        self._folder = temporary_folder(options.temp_folder) if keeps else None
        self._file: Any = None
        if keeps:
            where = str(self._folder)
            self._file = tempfile.SpooledTemporaryFile(SPOOL_BYTES, dir=where)  # noqa: SIM115
        self._kept: list[_Kept] = []
        self._source: Source | None = None  # once all of it is kept
        self._begun = False
        self._sum: int | None = None

    def __str__(self) -> str:
        return name_source(self.table)

    @property
    def digest(self) -> str:
        """A digest that identifies these rows in any order; private."""
        return str(self._sum)

    def note_sum(self, found: int) -> None:
        """Note the sum of all rows; raise DataError if another reading had another one."""
        if self._sum not in (None, found):
            raise DataError(f"{self}: changed while it was read: repeat the command")
        self._sum = found

    def close(self) -> None:
        """Free memory and disk."""
        self._kept.clear()
        if self._file is not None:
            self._file.close()

    @contextmanager
    def open(self) -> Iterator[Source]:
        """Return the rows as a source, whose first reading is the only one of the table."""
        if self._source is not None:
            yield replace(self._source, read=self._read_again)
            return
        with unchanged(self.table), open_source(self.table, self._schema.dialect) as source:
            yield replace(source, read=partial(self._read, source))

    def _read(self, source: Source, requested: Sequence[str]) -> Iterator[Chunk]:
        if self._begun:
            raise AdaptiveQsError(f"{self}: would be read again: this is a bug, please report it")
        self._begun, names, total = True, tuple(requested), 0
        if self.keeps:
            names = tuple(name for name in source.names if name not in self._schema.unread)
        for chunk in source.read(names):
            label = chunk.file or source.label
            if self.keeps:  # what is passed on is what is kept, which cannot change
                chunk = replace(chunk, columns=self._keep(chunk, names, label))
            if self.sums:
                total += sum_rows(names, chunk.columns, label)
            yield _select(chunk, names, requested)
        if self.sums:
            self.note_sum(total % 2**64)
        if self.keeps:
            self._source = replace(source, names=names)

    def _keep(self, chunk: Chunk, names: Sequence[str], label: str) -> tuple[Cells, ...]:
        """Store a chunk, and return its cells as they are read back."""
        arrays: list[pa.Array] = []
        kinds = []
        bad = partial(unreadable_column, label)
        for name, values in zip(names, chunk.columns):
            found = redacted(partial(_to_arrays, values), partial(bad, name))
            arrays += found
            kinds.append((type(values), len(found)))
        stored = redacted(partial(_to_buffer, arrays), partial(bad, ", ".join(names)))
        before = self._kept[-1].end if self._kept else 0
        kept = _Kept(before, before + stored.size, kinds, replace(chunk, columns=()))
        self._kept.append(kept)
        if kept.end > SPOOL_BYTES:
            _write_all(self._file, stored, self._folder, "the rows of the table")
        else:
            self._file.write(stored)
        return kept.cells(stored)

    def _read_again(self, requested: Sequence[str]) -> Iterator[Chunk]:
        assert self._source is not None, "the first reading is over"
        for kept in self._kept:
            stored = bytearray(kept.end - kept.start)
            _read_all(self._file, kept.start, stored, self._folder)
            chunk = replace(kept.chunk, columns=kept.cells(pa.py_buffer(stored)))
            yield _select(chunk, self._source.names, requested)


def find_path(source: Any) -> str | Path | None:
    """Return the files that workers can read, or None if this process reads the table."""
    if isinstance(source, Spool) and not source.keeps:
        source = source.table
    return source if isinstance(source, str | Path) else None


def _select(chunk: Chunk, names: Sequence[str], requested: Sequence[str]) -> Chunk:
    return replace(chunk, columns=tuple(chunk.columns[names.index(name)] for name in requested))


@dataclass(frozen=True)
class _Kept:
    """The place of a chunk in a spool, and kind of cells and number of arrays of each column."""

    start: int
    end: int
    kinds: Sequence[tuple[type, int]]
    chunk: Chunk

    def cells(self, stored: pa.Buffer) -> tuple[Cells, ...]:
        (row,) = pa.ipc.open_stream(stored)
        arrays = iter([column.values for column in row.columns])
        columns: list[Cells] = []
        for kind, number in self.kinds:
            first, *others = [next(arrays) for _ in range(number)]
            if issubclass(kind, MixedCells):
                columns.append(MixedCells(tuple(others), first.to_numpy().astype(np.int64)))
            else:
                whole = issubclass(kind, pa.ChunkedArray)
                columns.append(pa.chunked_array([first, *others]) if whole else first)
        return tuple(columns)


def _to_arrays(values: Cells) -> list[pa.Array]:
    if isinstance(values, MixedCells):
        least = np.min_scalar_type(-int(values.indices.max(initial=0)) - 1)
        return [pa.array(values.indices.astype(least)), *map(_narrow, values.parts)]
    return [_narrow(part) for part in split_chunks(values)] or [pa.array([], values.type)]


def _narrow(values: pa.Array) -> pa.Array:
    """Return the same cells with the smallest indices and no unused dictionary entries."""
    if not pa.types.is_dictionary(values.type):
        return values
    if len(values.dictionary) > len(values):
        values = values.dictionary_decode().dictionary_encode()
    least = pa.from_numpy_dtype(np.min_scalar_type(len(values.dictionary)))
    return pa.DictionaryArray.from_arrays(values.indices.cast(least), values.dictionary)


def _to_buffer(arrays: Sequence[pa.Array]) -> pa.Buffer:
    """Return arrays of any lengths as an Arrow stream with one row, in which each is a list."""
    ends = [pa.array([0, len(array)], pa.int64()) for array in arrays]
    lists = [pa.LargeListArray.from_arrays(*each) for each in zip(ends, arrays)]
    row = pa.RecordBatch.from_arrays(lists, names=[*map(str, range(len(lists)))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as stream:
        stream.write_batch(row)
    return sink.getvalue()


# Temporary files, of rows and of codes.


def _read_all(file: Any, first: int, room: bytearray, folder: Path | None) -> None:
    """Fill ``room`` from a temporary file; raise AdaptiveQsError if the bytes are gone."""
    view = memoryview(room)
    try:
        file.seek(first)
        while view and (got := file.readinto(view)):
            view = view[got:]
        if view:
            raise OSError
    except OSError as error:
        raise AdaptiveQsError(
            f"temporary codes cannot be read back ({reason(error, 'cut short')}): check the disk "
            f"of {folder}"
        ) from None


def _write_all(file: Any, content: Any, folder: Path | None, what: str) -> None:
    """Append to a temporary file; raise ResourceExceeded if there is no room for ``what``."""
    view, error = memoryview(content), OSError()
    try:
        while view and shutil.disk_usage(folder or ".").free > SPARE_BYTES:
            view = view[file.write(view) :]
    except OSError as caught:
        error = caught
    if view:
        raise _no_room(folder, what, error)


class StoredBlocks(coded.Blocks):
    """Coded rows in blocks: the first in memory, all of them on disk once there are too many.

    A block is one run of bytes that holds the codes of each attribute one after the other, the
    widest type first. The file has no name from the beginning, so nothing is left of it however the
    process ends. Without a folder, the caller refuses rows that do not fit ``most_bytes``.
    """

    def __init__(self, domain: Domain, most_bytes: float, folder: Path | None) -> None:
        self._types = [code_dtype(size) for size in domain.sizes]
        widths = [dtype.itemsize for dtype in self._types]
        order = sorted(range(len(domain)), key=lambda i: -widths[i])
        self.row_bytes = sum(widths)
        before = np.cumsum([0, *(widths[i] for i in order)]).tolist()
        self._place = dict(zip(order, before))
        """Bytes of a row before each attribute."""
        self._most_bytes = most_bytes
        self._folder = folder
        self._held: list[bytearray] = []
        self._file: Any = None
        self._reading = Lock()
        self._pending: list[list[Codes]] = [[] for _ in widths]
        self._waiting = 0
        self.num_rows = 0

    @property
    def num_blocks(self) -> int:
        return -(-self.num_rows // coded.BLOCK_ROWS)

    def fill(self, chunks: Iterable[Sequence[Codes]]) -> None:
        """Take the rows of a table; raise ResourceExceeded if the folder has no room left."""
        for chunk in chunks:
            for part, codes in zip(self._pending, chunk):
                part.append(codes)
            self._waiting += len(chunk[0])
            while self._waiting >= coded.BLOCK_ROWS:
                self._store(coded.BLOCK_ROWS)
        if self._waiting:
            self._store(self._waiting)

    def close(self) -> None:
        """Free memory and disk."""
        self._held.clear()
        if self._file is not None:
            self._file.close()

    def read(self, number: int, requested: Sequence[int]) -> list[Codes]:
        rows = min(coded.BLOCK_ROWS, self.num_rows - number * coded.BLOCK_ROWS)
        if self._file is None:
            block = self._held[number]
            return [self._codes(block, rows, i, rows * self._place[i]) for i in requested]
        first = number * coded.BLOCK_ROWS * self.row_bytes
        return [self._from_disk(first, rows, i) for i in requested]

    def _codes(self, block: bytearray, rows: int, attribute: int, place: int) -> Codes:
        return np.frombuffer(block, self._types[attribute], rows, place)

    def _from_disk(self, first: int, rows: int, attribute: int) -> Codes:
        room = bytearray(rows * self._types[attribute].itemsize)
        with self._reading:
            _read_all(self._file, first + rows * self._place[attribute], room, self._folder)
        return self._codes(room, rows, attribute, 0)

    def _store(self, rows: int) -> None:
        block = bytearray(rows * self.row_bytes)
        for i, parts in enumerate(self._pending):
            room, filled = self._codes(block, rows, i, rows * self._place[i]), 0
            while filled < rows:
                taken = parts[0][: rows - filled]
                room[filled : filled + len(taken)] = taken
                filled += len(taken)
                parts[0] = parts[0][len(taken) :]
                if not parts[0].size:
                    del parts[0]
        self._waiting -= rows
        self.num_rows += rows
        if self._file is None and self.num_rows * self.row_bytes > self._most_bytes:
            self._spill()
        if self._file is None:
            self._held.append(block)
        else:
            self._write(block)

    def _spill(self) -> None:
        try:
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
        except OSError as error:
            raise InputError(
                f"temp-folder {self._folder}: cannot be written ({reason(error)}): name another one"
            ) from None
        for number, block in enumerate(self._held):
            self._write(block)
            self._held[number] = bytearray()
        self._held.clear()

    def _write(self, block: bytearray) -> None:
        _write_all(self._file, block, self._folder, _describe_codes(self.row_bytes))


@contextmanager
def _open(
    source: Any,
    schema: Schema,
    options: engines.EngineOptions,
    progress: StepProgress | None,
    name: str = engines.DEFAULT_ENGINE,
) -> Iterator[engines.CountingEngine]:
    """Open an engine: "memory" refuses rows that do not fit, "stream" puts all on disk."""
    most_bytes = {"memory": np.inf, "stream": 0}.get(name, options.rows_bytes)
    check_rows = options.check_held if name == "memory" else options.check_rows
    folder = None if name == "memory" else temporary_folder(options.temp_folder)
    domain = schema.domain()
    stored = StoredBlocks(domain, most_bytes, folder)
    try:
        stored.fill(coded_chunks(source, schema, progress, check_rows, options.workers))
        yield BlockEngine(domain, stored, options.workers)
    finally:
        stored.close()


open_memory, open_stream = partial(_open, name="memory"), partial(_open, name="stream")


def open_auto(
    source: Any, schema: Schema, options: engines.EngineOptions, progress: StepProgress | None
) -> Any:
    """Open an engine with codes in memory while they fit, then on disk; Dask with a scheduler."""
    name = engine_for(engines.DEFAULT_ENGINE, options)
    if name != engines.DEFAULT_ENGINE:
        return engines.open_engine(name, source, schema, options, progress)
    return _open(source, schema, options, progress)


def engine_for(name: str, options: engines.EngineOptions) -> str:
    """Return "dask" for the default engine if a scheduler is given."""
    if name == engines.DEFAULT_ENGINE and options.scheduler is not None:
        return "dask"
    return name
