"""Whether the file of a ledger is as it was written, and up to which entry."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from adaptive_qs.errors import LedgerError
from adaptive_qs.ledger.chain import Row, last_sound
from adaptive_qs.ledger.database import error_name
from adaptive_qs.ledger.mark import Mark
from adaptive_qs.ledger.wording import RESTORE


def check_sound(
    connection: sqlite3.Connection, path: Path, marks: Sequence[tuple[str, Mark]]
) -> None:
    """Check the chain of entries, its length, and that the file's tables and indices agree.

    Args:
        connection: to the ledger.
        path: of the ledger.
        marks: entries that the ledger must have, each with what tells so.

    Raises:
        LedgerError: something does not fit; the message names the last good entry.
    """
    connection.execute("BEGIN")  # one state of the file for the whole check
    missing = {mark: source for source, mark in marks if mark.number > 0}
    try:
        number, sound = _last_sound(connection, missing)
    finally:
        connection.execute("ROLLBACK")
    why = ""
    if sound and missing:
        mark, source = max(missing.items())
        why = f"it lacks entry {mark.number:,}, which {source} has seen: "
        if mark.number <= number:
            raise LedgerError(
                f"{path}: is sound and not the ledger that {source} has followed: they went "
                f"different ways before entry {mark.number:,}: {RESTORE}"
            )
    if not sound or missing or number == 0:
        raise LedgerError(
            f"{path}: is damaged after entry {number:,}, the last good one: {why}{RESTORE}"
        )


def _last_sound(connection: sqlite3.Connection, missing: dict[Mark, str]) -> tuple[int, bool]:
    """The last good entry, and whether all are; those that are found are no longer missing."""
    number = 0

    def rows() -> Iterator[Row]:
        nonlocal number
        query = "SELECT number, time, body, hash FROM entries ORDER BY number"
        for row in map(Row._make, connection.execute(query)):
            yield row
            number = row.number
            missing.pop(Mark(row.number, row.hash), None)

    try:
        number, sound = last_sound(rows())
        if sound:
            sound = connection.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok"
    except sqlite3.DatabaseError as error:
        if error_name(error).startswith(("SQLITE_BUSY", "SQLITE_IOERR", "SQLITE_FULL")):
            raise
        return number, False
    return number, sound
