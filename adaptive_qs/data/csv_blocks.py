"""Blocks of whole CSV rows, cut where the parser would cut them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numba import njit

T = TypeVar("T")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_QUOTE, _COMMA, _LF, _CR = b'",\n\r'
_AT_START, _UNQUOTED, _QUOTED, _AFTER_QUOTE = range(4)


class RowTooLong(ValueError):
    """A row does not fit a block."""


def row_blocks(read: Callable[[int], bytes], size: int) -> Iterator[bytes]:
    """The text as blocks of whole rows, of up to twice `size` bytes.

    Args:
        read: gives up to so many bytes; none at the end. The text ends with an end of line.
        size: bytes that are read at once.

    Raises:
        RowTooLong: a row is longer than `size`, and does not end among the bytes read next.
    """
    rest = b""
    while text := read(size):
        text = rest + text
        end = end_of_rows(text)
        block, rest = text[:end], text[end:]
        if block:
            yield block
        if len(rest) > size:
            raise RowTooLong
    if rest:
        yield rest


def one_ahead(items: Iterator[T]) -> Generator[T]:
    """The items, the next one prepared by a thread while the caller is busy with the last.

    The thread has ended when this generator has, at its end, by an error or closed.
    """
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(lambda: next(items, None))
        while (item := coming.result()) is not None:
            coming = pool.submit(lambda: next(items, None))
            yield item


def end_of_rows(text: bytes) -> int:
    """Where the last whole row ends in text that begins with a row.

    Rows end with LF, CR or both, and never inside a quoted cell. A CR at the very end does not
    count: LF may follow.
    """
    if b'"' in text:
        return int(_end_of_rows(np.frombuffer(text, dtype=np.uint8)))
    return 1 + max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1))


def as_continuation(block: bytes) -> bytes:
    """A block that is not the first, whose parser shall not take a cell for a byte order mark."""
    return b"\n" + block if block.startswith(_BYTE_ORDER_MARK) else block


@njit(cache=True, nogil=True)
def _end_of_rows(text):  # type: ignore[no-untyped-def]
    """The same where there are quotation marks: they open a cell only where one begins."""
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
        elif byte == _COMMA:
            state = _AT_START
        else:
            state = _UNQUOTED
    return end
