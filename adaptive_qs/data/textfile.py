"""The bytes of a CSV file, decompressed and checked on their way to the parser."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from adaptive_qs.data.column import ASCII_SPACE
from adaptive_qs.data.redaction import redacted
from adaptive_qs.errors import DataError

GZIP_MAGIC = b"\x1f\x8b"
_URL = re.compile(r"(?i)[a-z][a-z0-9+.-]+:/")
"""What URLs begin with, two slashes or the one that paths make of them; drives have one letter."""


class CheckedText(io.RawIOBase):
    """A readable stream of UTF-8 text that stops at the first fault and remembers it.

    Faults are bytes that are not UTF-8, NUL bytes, a truncated gzip stream, and a quotation mark
    that is never closed (in well-formed CSV their number is even). A last line without an end
    gets one.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        """Read from `file`, already open on `path`."""
        self._path = path
        self._file = file
        self._source = gzip.GzipFile(fileobj=file) if _is_gzip(file) else file
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._quotes = 0
        self._last = b""
        self.fault: DataError | None = None

    @property
    def position(self) -> int:
        """Bytes of the file on disk that have been read."""
        return self._file.tell()

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        """Fill the buffer with checked bytes; 0 at the end or at a fault."""
        block = self._next_block(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def read(self, size: int | None = -1) -> bytes:
        """Up to `size` checked bytes; none at the end or at a fault."""
        return self._next_block(1 << 20 if size is None or size < 0 else size)

    def _next_block(self, size: int) -> bytes:
        if self.fault is not None:
            return b""
        try:
            block = self._full_block(size)
            at_end = len(block) < size
            self._decoder.decode(block, final=at_end)
        except UnicodeDecodeError:
            return self._stop("is not UTF-8 text: save it as UTF-8")
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return self._stop("is a damaged or truncated gzip file: copy it again")
        except OSError:
            return self._stop("cannot be read: check the disk and the permissions")
        if b"\0" in block:
            return self._stop("has NUL bytes: save it as plain UTF-8 CSV")
        self._quotes += block.count(b'"')
        if at_end and self._quotes % 2:
            return self._stop(
                "has a quotation mark that is never closed: complete the file, or double the "
                "marks inside quoted cells"
            )
        if at_end and (block or self._last)[-1:] not in (b"", b"\n"):
            block += b"\n"
        self._last = block[-1:]
        return block

    def _full_block(self, size: int) -> bytes:
        """`size` bytes of the source, fewer only at its end."""
        block = self._source.read(size)
        while len(block) < size and (more := self._source.read(size - len(block))):
            block += more
        return block

    def _stop(self, problem: str) -> bytes:
        self.fault = DataError(f"{self._path}: {problem}")
        return b""


@contextmanager
def open_text(path: Path) -> Iterator[CheckedText]:
    """Open a CSV file, compressed by gzip or not.

    Raises:
        DataError: the file cannot be opened.
    """
    file = redacted(lambda: path.open("rb"), lambda error: unreadable(path, error))
    with file:
        yield CheckedText(path, file)


def read_header(path: Path) -> tuple[str, ...]:
    """The column names in the first line of a CSV file, stripped.

    Raises:
        DataError: the file cannot be read or is empty.
    """
    with open_text(path) as text:
        lines = io.TextIOWrapper(
            io.BufferedReader(cast(io.RawIOBase, text)), encoding="utf-8-sig", newline=""
        )
        header = redacted(
            lambda: next(csv.reader(lines), None), lambda _: text.fault or _bad_header(path)
        )
        if text.fault is not None:
            raise text.fault
    if header is None:
        raise DataError(f"{path}: is empty: give a CSV file with a header line")
    return tuple(name.strip(ASCII_SPACE) for name in header)


def unreadable(path: str | Path, error: Exception) -> DataError:
    """What to say about a file that cannot be opened."""
    if _URL.match(str(path)):
        url = re.sub(":/+", "://", str(path), count=1)
        return DataError(f"{url}: is a URL: download it first, and name the file")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else "unreadable"
    return DataError(f"{path}: {reason.lower()}: check the path")


def _bad_header(path: Path) -> DataError:
    return DataError(f"{path}: the header line cannot be read: give comma-separated UTF-8 text")


def _is_gzip(file: BinaryIO) -> bool:
    magic = file.read(len(GZIP_MAGIC))
    file.seek(0)
    return magic == GZIP_MAGIC
