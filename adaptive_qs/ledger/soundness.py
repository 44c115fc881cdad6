"""Whether the file of a ledger is as it was written, and up to which entry."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from adaptive_qs.errors import LedgerError
from adaptive_qs.ledger.chain import Row, last_sound
from adaptive_qs.ledger.database import error_name


def check_sound(connection: sqlite3.Connection, path: Path) -> None:
    """Check the chain of entries, and that the file's tables and indices agree.

    Raises:
        LedgerError: something does not fit; the message names the last good entry.
    """
    connection.execute("BEGIN")  # one state of the file for the whole check
    try:
        number, sound = _last_sound(connection)
    finally:
        connection.execute("ROLLBACK")
    if not sound or number == 0:
        raise LedgerError(
            f"{path}: is damaged after entry {number:,}, the last good one: restore a copy, and "
            "count as spent whatever was released since it was made"
        )


def _last_sound(connection: sqlite3.Connection) -> tuple[int, bool]:
    number = 0

    def rows() -> Iterator[Row]:
        nonlocal number
        query = "SELECT number, time, body, hash FROM entries ORDER BY number"
        for row in map(Row._make, connection.execute(query)):
            yield row
            number = row.number

    try:
        number, sound = last_sound(rows())
        if sound:
            sound = connection.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok"
    except sqlite3.DatabaseError as error:
        if error_name(error).startswith(("SQLITE_BUSY", "SQLITE_IOERR", "SQLITE_FULL")):
            raise
        return number, False
    return number, sound
