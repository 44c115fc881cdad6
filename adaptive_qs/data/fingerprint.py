"""The private table as bytes, so that a ledger can tell by a keyed hash whether it has changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from adaptive_qs.data.objects import MixedCells, frame_cells
from adaptive_qs.data.redaction import redacted
from adaptive_qs.data.table import CodedTable
from adaptive_qs.data.textfile import unreadable
from adaptive_qs.errors import DataError

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
