"""The text of CSV files: decompressed, checked, and cut into whole rows."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np

from adaptive_qs.errors import DataError
from adaptive_qs.machine import ThreadPool, njit

# Blocks of whole CSV rows, cut where the parser would cut them.

T = TypeVar("T")

COMMA = ","
_QUOTE, _LF, _CR = b'"\n\r'
_AT_START, _UNQUOTED, _QUOTED, _AFTER_QUOTE = range(4)


class RowTooLong(ValueError):
    """A row does not fit a block."""


def row_blocks(read: Callable[[int], bytes], size: int, delimiter: str = COMMA) -> Iterator[bytes]:
    """Yield the text as blocks of whole rows, of up to twice the `size` that is read in one step.

    The text ends with an end of line. `read` returns at most the requested bytes, none at the end.

    Raises:
        RowTooLong: a row is longer than `size`, and does not end among the bytes read next.
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
    """Yield the items while a thread prepares the next one.

    The thread has ended when this generator has, at its end, by an error or closed.
    """
    with ThreadPool(1) as pool:
        coming = pool.submit(lambda: next(items, None))
        while (item := coming.result()) is not None:
            coming = pool.submit(lambda: next(items, None))
            yield item


def end_of_rows(text: bytes, delimiter: str = COMMA) -> int:
    """Where the last whole row ends in text that begins with a row.

    Rows end with LF, CR or both, and never inside a quoted cell. A CR at the very end does not
    count: LF may follow.
    """
    if b'"' in text:
        return int(_end_of_rows(np.frombuffer(text, dtype=np.uint8), ord(delimiter)))
    return 1 + max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1))


@njit(cache=True, nogil=True)
def _end_of_rows(text, delimiter):  # type: ignore[no-untyped-def]
    """Return the same for text with quotation marks, which open a cell only where one begins."""
    end = 0
    state = _AT_START
    for i in range(text.size):
        byte = text[i]
        if state == _QUOTED:
            if byte == _QUOTE:
                state = _AFTER_QUOTE
        elif byte == _QUOTE and state != _UNQUOTED:
            state = _QUOTED
        elif byte == _LF or (byte == _CR and i < text.size - 1):
            state = _AT_START
            end = i + 1
        elif byte == delimiter:
            state = _AT_START
        else:
            state = _UNQUOTED
    return end


# The bytes of a CSV file, decompressed and checked on their way to the parser.

GZIP_MAGIC = b"\x1f\x8b"


class CheckedText:
    """The UTF-8 text of a file open on a path, which ends at the first fault and remembers it.

    Faults are bytes that are not UTF-8, NUL bytes, a truncated gzip stream, and a quotation mark
    that is never closed (in well-formed CSV their number is even). A last line without an end
    gets one.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        zipped = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        file.seek(0)
        self.zipped = zipped
        self._source = gzip.GzipFile(fileobj=file) if zipped else file
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._quotes = 0
        self._last = b""
        self.fault: DataError | None = None

    @property
    def position(self) -> int:
        """Bytes of the file on disk that have been read."""
        return self._file.tell()

    def read(self, size: int) -> bytes:
        """Up to `size` checked bytes; none at the end or at a fault."""
        try:
            block, problem = (b"", "") if self.fault is not None else self._checked(size)
        except UnicodeDecodeError:
            problem = "is not UTF-8 text: save it as UTF-8"
        except (EOFError, zlib.error, gzip.BadGzipFile):
            problem = "is a damaged or truncated gzip file: copy it again"
        except OSError:
            problem = "cannot be read: check the disk and the permissions"
        if problem:
            self.fault = DataError(f"{self._path}: {problem}")
            return b""
        return block

    def blocks(self, start: int, sizes: Sequence[int]) -> Iterator[bytes]:
        """Blocks of whole rows, from a byte of the file on, that were found and checked before."""
        self._file.seek(start)
        for size in sizes:
            block = self._file.read(size)
            yield block if len(block) == size else block + b"\n"

    def _checked(self, size: int) -> tuple[bytes, str]:
        """`size` bytes of the source, fewer only at its end, and what is wrong with them."""
        block = self._source.read(size)
        while len(block) < size and (more := self._source.read(size - len(block))):
            block += more
        at_end = len(block) < size
        self._decoder.decode(block, final=at_end)
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
