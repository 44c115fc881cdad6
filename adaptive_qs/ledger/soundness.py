"""Whether the file of a ledger is as it was written, and up to which entry."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from adaptive_qs.errors import LedgerError
from adaptive_qs.ledger.chain import Row, last_sound
from adaptive_qs.ledger.database import error_name
from adaptive_qs.ledger.mark import Mark


def check_sound(connection: sqlite3.Connection, path: Path, mark: Mark) -> None:
    """Check the chain of entries, its length, and that the file's tables and indices agree.

    Args:
        connection: to the ledger.
        path: of the ledger.
        mark: an entry that was read before, and that the ledger must have.

    Raises:
        LedgerError: something does not fit; the message names the last good entry.
    """
    connection.execute("BEGIN")  # one state of the file for the whole check
    try:
        number, sound = _last_sound(connection, mark)
    finally:
        connection.execute("ROLLBACK")
    if not sound or number == 0:
        raise LedgerError(
            f"{path}: is damaged after entry {number:,}, the last good one: restore a copy, and "
            "count as spent whatever was released since it was made"
        )


def _last_sound(connection: sqlite3.Connection, mark: Mark) -> tuple[int, bool]:
    number, reached = 0, mark.number == 0

    def rows() -> Iterator[Row]:
        nonlocal number, reached
        query = "SELECT number, time, body, hash FROM entries ORDER BY number"
        for row in map(Row._make, connection.execute(query)):
            yield row
            number = row.number
            reached |= mark == (row.number, row.hash)

    try:
        number, sound = last_sound(rows())
        if sound and reached:
            sound = connection.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok"
    except sqlite3.DatabaseError as error:
        if error_name(error).startswith(("SQLITE_BUSY", "SQLITE_IOERR", "SQLITE_FULL")):
            raise
        return number, False
    return number, sound and reached
