"""Engines of one machine: codes in memory, and on disk where there is no room for them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from adaptive_qs.domain import Domain
from adaptive_qs.errors import AdaptiveQsError, InputError, ResourceExceeded, reason
from adaptive_qs.machine import CheckRows, StepProgress
from adaptive_qs.table.coded import CodedTable, code_dtype
from adaptive_qs.table.encode import coded_chunks
from adaptive_qs.table.engines import (
    DEFAULT_ENGINE,
    CountingEngine,
    EngineOptions,
    blocks,
    open_engine,
)
from adaptive_qs.table.engines.blocks import BlockEngine, Codes
from adaptive_qs.table.files import temporary_folder
from adaptive_qs.table.schema import Schema

SPARE_BYTES = 2**26
"""Of the folder for temporary files, left free."""


@contextmanager
def made_ready(
    name: str, source: Any, rows: int, domain: Domain, options: EngineOptions
) -> Iterator[EngineOptions]:
    """What an engine is to be told, where its table was read before: what would stop it on that
    table is refused before anything is spent on learning how the cells are to be coded.

    A cluster stays connected until the context is left, so that it is started once.

    Args:
        name: of the engine.
        source: the table.
        rows: of the table.
        domain: the attributes with as many codes as they can get.
        options: of the engine.

    Raises:
        InputError: there is no folder for temporary files, the engine cannot be opened, or workers
            do not see the table.
        ResourceExceeded: there is no room.
    """
    name = _resolve_name(name, options)
    if name == "memory" and options.check_held is not None:
        options.check_held(rows)
    if options.scheduler is None:
        _check_disk(name, rows, domain, options)
    if name == "dask":
        from adaptive_qs.table.engines.dask import check_cluster

        with check_cluster(source, rows, options) as connected:
            yield connected
        return
    one = Schema.parse({"a": 1})
    row = CodedTable.from_codes(one.domain(), [np.zeros(1, dtype=np.uint8)])
    with open_engine(name, row, one, options):
        pass
    yield options


def _check_disk(name: str, rows: int, domain: Domain, options: EngineOptions) -> None:
    """Refuse codes that stay on this machine and find no room there."""
    row_bytes = sum(code_dtype(size).itemsize for size in domain.sizes)
    if name == "memory" or (name == DEFAULT_ENGINE and rows * row_bytes <= options.rows_bytes):
        return
    folder = temporary_folder(options.temp_folder)
    if shutil.disk_usage(folder).free < rows * row_bytes + SPARE_BYTES:
        raise _no_room(folder, row_bytes, OSError())


def _no_room(folder: Path | None, row_bytes: int, error: OSError) -> ResourceExceeded:
    return ResourceExceeded(
        f"temp-folder {folder}: no room for the codes of the table, {row_bytes:,} bytes for each "
        f"row ({reason(error, 'disk full')}): free some space, or name another folder with "
        "--temp-folder"
    )


class StoredBlocks:
    """Coded rows in blocks: the first in memory, all of them on disk once there are too many.

    A block is one run of bytes that holds the codes of each attribute one after the other, the
    widest type first. The file has no name from the beginning, so that nothing is left of it
    however the process ends.

    Args:
        domain: the attributes.
        most_bytes: of codes in memory.
        folder: for the file; None where rows that do not fit are an error of the caller.
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
        """Of all rows; see :class:`Blocks`."""
        return -(-self.num_rows // blocks.BLOCK_ROWS)

    def fill(self, chunks: Iterable[Sequence[Codes]]) -> None:
        """Take the rows of a table.

        Raises:
            InputError: the folder cannot be written.
            ResourceExceeded: it has no room left.
        """
        for chunk in chunks:
            for part, codes in zip(self._pending, chunk):
                part.append(codes)
            self._waiting += len(chunk[0])
            while self._waiting >= blocks.BLOCK_ROWS:
                self._store(blocks.BLOCK_ROWS)
        if self._waiting:
            self._store(self._waiting)

    def close(self) -> None:
        """Free memory and disk."""
        self._held.clear()
        if self._file is not None:
            self._file.close()

    def read(self, number: int, wanted: Sequence[int]) -> list[Codes]:
        """See :class:`Blocks`."""
        rows = min(blocks.BLOCK_ROWS, self.num_rows - number * blocks.BLOCK_ROWS)
        if self._file is None:
            block = self._held[number]
            return [self._codes(block, rows, i, rows * self._place[i]) for i in wanted]
        first = number * blocks.BLOCK_ROWS * self.row_bytes
        return [self._from_disk(first, rows, i) for i in wanted]

    def _codes(self, block: bytearray, rows: int, attribute: int, place: int) -> Codes:
        return np.frombuffer(block, self._types[attribute], rows, place)

    def _from_disk(self, first: int, rows: int, attribute: int) -> Codes:
        room = bytearray(rows * self._types[attribute].itemsize)
        view = memoryview(room)
        try:
            with self._reading:
                self._file.seek(first + rows * self._place[attribute])
                while view and (got := self._file.readinto(view)):
                    view = view[got:]
            if view:
                raise OSError
        except OSError as error:
            raise AdaptiveQsError(
                f"temporary codes cannot be read back ({reason(error, 'cut short')}): check the "
                f"disk of {self._folder}"
            ) from None
        return self._codes(room, rows, attribute, 0)

    def _store(self, rows: int) -> None:
        """Take so many of the rows that wait as the next block."""
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
        """From now on to disk, together with what lies in memory."""
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
        view, error = memoryview(block), OSError()
        try:
            while view and shutil.disk_usage(self._folder or ".").free > SPARE_BYTES:
                view = view[self._file.write(view) :]
        except OSError as caught:
            error = caught
        if view:
            raise _no_room(self._folder, self.row_bytes, error)


@contextmanager
def _open(
    source: Any,
    schema: Schema,
    options: EngineOptions,
    progress: StepProgress | None,
    most_bytes: float,
    check_rows: CheckRows | None,
) -> Iterator[CountingEngine]:
    domain = schema.domain()
    folder = None if most_bytes == np.inf else temporary_folder(options.temp_folder)
    stored = StoredBlocks(domain, most_bytes, folder)
    try:
        stored.fill(coded_chunks(source, schema, progress, check_rows, options.workers))
        yield BlockEngine(domain, stored, options.workers)
    finally:
        stored.close()


def open_memory(
    source: Any, schema: Schema, options: EngineOptions, progress: StepProgress | None
) -> Any:
    """Codes in memory, where rows that do not fit are refused; see :class:`EngineOpener`."""
    return _open(source, schema, options, progress, np.inf, options.check_held)


def open_stream(
    source: Any, schema: Schema, options: EngineOptions, progress: StepProgress | None
) -> Any:
    """Codes on disk; see :class:`EngineOpener`."""
    return _open(source, schema, options, progress, 0, options.check_rows)


def open_auto(
    source: Any, schema: Schema, options: EngineOptions, progress: StepProgress | None
) -> Any:
    """Codes in memory as long as they fit what is set aside for rows, and then on disk.

    Where a scheduler is given, its workers count.
    """
    name = _resolve_name(DEFAULT_ENGINE, options)
    if name != DEFAULT_ENGINE:
        return open_engine(name, source, schema, options, progress)
    return _open(source, schema, options, progress, options.rows_bytes, options.check_rows)


def _resolve_name(name: str, options: EngineOptions) -> str:
    """Return "dask" for the default engine if a scheduler is given."""
    if name == DEFAULT_ENGINE and options.scheduler is not None:
        return "dask"
    return name
