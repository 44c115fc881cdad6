"""How far a ledger has certainly come, written beside it after every commit.

SQLite takes the first damaged frame of its log for the end of the log, and a lost log for an empty
one. What is left is a sound chain that ends too early, and releases that were seen would be drawn
and paid again. So the number and hash of the newest entry are also kept here, before anybody sees
what that entry released; a ledger that does not reach them is damaged.

Two records take turns, each with a checksum: a crash while one is written leaves the other.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from adaptive_qs.data.partial import create_partial, sync_folder
from adaptive_qs.errors import LedgerError
from adaptive_qs.ledger.chain import START
from adaptive_qs.ledger.locks import locked

_RECORD, _SPACING = 8 + 32 + 32, 512


class Mark(NamedTuple):
    """An entry that a ledger has for certain.

    Attributes:
        number: of the entry; 0 before the first.
        hash: of the entry.
    """

    number: int = 0
    hash: bytes = START


def mark_path(ledger: Path) -> Path:
    """Where the mark of a ledger lies; the same whatever links lead to the ledger."""
    return Path(f"{os.path.realpath(ledger)}.mark")


def create_mark(ledger: Path) -> None:
    """Begin the mark of a new ledger, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    handle, temporary = create_partial(mark_path(ledger))
    try:
        os.pwrite(handle, _packed(Mark()), 0)
        os.fsync(handle)
        temporary.replace(mark_path(ledger))
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)
    sync_folder(mark_path(ledger).parent)


def read_mark(ledger: Path) -> Mark:
    """The newest entry that the ledger must have.

    Raises:
        LedgerError: the mark is missing or damaged.
    """
    path = mark_path(ledger)
    try:
        found = _newest(path.read_bytes())
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        raise LedgerError(f"{path}: {reason}: it belongs to the ledger, restore it") from None
    if found is None:
        raise LedgerError(f"{path}: is damaged: restore a copy of the ledger and its mark")
    return found


def advance_mark(ledger: Path, mark: Mark) -> None:
    """Make sure that the mark is at least this far; durable on return.

    Raises:
        LedgerError: it cannot be written.
    """
    path = mark_path(ledger)
    try:
        with locked(path) as handle:
            newest = _newest(os.pread(handle, 2 * _SPACING, 0))
            if newest is None or newest.number < mark.number:
                os.pwrite(handle, _packed(mark), _SPACING * (mark.number % 2))
                os.fsync(handle)
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise LedgerError(f"{path}: cannot be written ({reason}): make it writable") from None


def _packed(mark: Mark) -> bytes:
    content = mark.number.to_bytes(8, "big") + mark.hash
    return content + hashlib.sha256(content).digest()


def _newest(data: bytes) -> Mark | None:
    """The newer of the records that are whole."""
    found = []
    for start in (0, _SPACING):
        record = data[start : start + _RECORD]
        mark = Mark(int.from_bytes(record[:8], "big"), record[8:40])
        if len(record) == _RECORD and record == _packed(mark):
            found.append(mark)
    return max(found, default=None)
