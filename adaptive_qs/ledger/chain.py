"""Entries in a row, each with a hash over itself and the hash before it.

Whatever changes in an entry breaks the chain there. Whoever may write the file can also compute
the chain anew, or cut off its end: the hash that a release states of its ledger is what shows it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

START = bytes(32)
"""Stands before the first of anything that is chained."""


class Row(NamedTuple):
    """One entry as it is stored.

    Attributes:
        number: from 1.
        time: UTC, in ISO 8601; tells nothing about the order.
        body: JSON of the entry.
        hash: 32 bytes.
    """

    number: int
    time: str
    body: str
    hash: bytes


def chained(previous: bytes, number: int, time: str, body: str) -> Row:
    """An entry that follows another one.

    Args:
        previous: hash of the entry before, or ``START``.
        number: of the new entry.
        time: UTC, in ISO 8601.
        body: JSON of the entry.
    """
    digest = hashlib.sha256(previous)
    for field in (str(number), time, body):
        data = field.encode()
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return Row(number, time, body, digest.digest())


def last_sound(rows: Iterable[Row]) -> tuple[int, bool]:
    """How far a chain holds.

    Returns:
        The number of the last entry up to which it does, and whether that is all of them.
    """
    previous, number = START, 0
    for row in rows:
        if not _is_text(row) or row != chained(previous, number + 1, row.time, row.body):
            return number, False
        previous, number = row.hash, row.number
    return number, True


def _is_text(row: Row) -> bool:
    """A damaged file may hold values of any type."""
    return isinstance(row.time, str) and isinstance(row.body, str)
