"""The file of a ledger: SQLite, write-ahead log, every commit synced to the disk."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from adaptive_qs.data.partial import create_partial, sync_folder
from adaptive_qs.errors import LedgerError
from adaptive_qs.ledger.wording import RESTORE

FORMAT_VERSION = 1
APPLICATION_ID = 0x61715F73
BUSY_SECONDS = 60.0
"""How long to wait for other processes that write."""

_FULL_SYNC = ("fullfsync = ON", "checkpoint_fullfsync = ON")
"""Through the cache of the drive, where the system tells the two apart."""
_PATIENCE_SECONDS = 0.02
_TABLES = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT_VERSION};
CREATE TABLE entries (
    number INTEGER PRIMARY KEY, time TEXT NOT NULL, body TEXT NOT NULL, hash BLOB NOT NULL,
    kind TEXT AS (json_extract(body, '$.kind')), run INTEGER AS (json_extract(body, '$.run')),
    position INTEGER AS (json_extract(body, '$.position'))
);
CREATE UNIQUE INDEX releases ON entries (run, position) WHERE kind = 'released';
CREATE UNIQUE INDEX reservations ON entries (run) WHERE kind = 'reserved';
CREATE UNIQUE INDEX closings ON entries (run) WHERE kind = 'closed';
CREATE INDEX publications ON entries (run) WHERE kind = 'published';
CREATE INDEX restorations ON entries (number) WHERE kind = 'restored';
CREATE TABLE outputs (
    run INTEGER, position INTEGER, part INTEGER, piece INTEGER, kind TEXT NOT NULL,
    data BLOB NOT NULL, PRIMARY KEY (run, position, part, piece)
);
CREATE TABLE inputs (run INTEGER PRIMARY KEY, digest TEXT NOT NULL, request TEXT NOT NULL);
CREATE INDEX questions ON inputs (digest, request);
CREATE TRIGGER no_change BEFORE UPDATE ON entries
    BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END;
CREATE TRIGGER no_removal BEFORE DELETE ON entries
    BEGIN SELECT RAISE(ABORT, 'entries are never removed'); END;
"""

Result = TypeVar("Result")


def connect(path: Path) -> sqlite3.Connection:
    """Open a ledger; a file of another kind is refused and left as it is.

    Raises:
        LedgerError: not a ledger, of a newer version, or its tables are not those of a ledger.
        sqlite3.Error: the file cannot be read.
    """
    connection = _opened(path)
    try:
        _check_kind(connection, path)
        patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
        for setting in ("synchronous = FULL", "secure_delete = ON", *_FULL_SYNC):
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


def create(target: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    """A new ledger that appears whole or not at all, readable by its owner only.

    Args:
        target: its path.
        fill: writes the first entry.

    Raises:
        OSError: it cannot be written, or exists.
        sqlite3.Error: it cannot be written.
    """
    handle, temporary = create_partial(target)
    try:
        connection = _opened(temporary)
        try:
            connection.execute("PRAGMA journal_mode = MEMORY")  # no second file to leave behind
            connection.executescript(_TABLES)
            fill(connection)
        finally:
            connection.close()
        target.hardlink_to(temporary)
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)
    sync_folder(target.parent)


def patiently(attempt: Callable[[], Result]) -> Result:
    """Try while other processes write, for so long; signals are heard in between.

    Raises:
        sqlite3.Error: any other than that the file is locked, or that one at the end.
    """
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if not error_name(error).startswith("SQLITE_BUSY") or time.monotonic() > end:
                raise
        time.sleep(random.uniform(0, _PATIENCE_SECONDS))


def error_name(error: sqlite3.Error) -> str:
    """Such as "SQLITE_BUSY"; nothing where the error is not one of the database itself."""
    return getattr(error, "sqlite_errorname", "") or ""


def explanation(path: Path, error: sqlite3.Error) -> LedgerError:
    """An error of the database in one line that says what to do."""
    name = error_name(error)
    for prefix, words in _REASONS.items():
        if name.startswith(prefix):
            return LedgerError(f"{path}: {words}")
    return LedgerError(f"{path}: the ledger cannot be used ({name or 'unknown reason'}): {RESTORE}")


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)


def _check_kind(connection: sqlite3.Connection, path: Path) -> None:
    def pragma(name: str) -> int:
        return patiently(lambda: connection.execute(f"PRAGMA {name}").fetchone()[0])

    if pragma("application_id") != APPLICATION_ID:
        raise LedgerError(f"{path}: is not a ledger: check the path")
    if (found := pragma("user_version")) > FORMAT_VERSION:
        raise LedgerError(
            f"{path}: made by a newer version (format {found}, this one reads up to "
            f"{FORMAT_VERSION}): upgrade adaptive-qs"
        )
    fresh = sqlite3.connect(":memory:")
    fresh.executescript(_TABLES)
    if _definitions(connection) != _definitions(fresh) or found != FORMAT_VERSION:
        raise LedgerError(f"{path}: is damaged before its first entry: {RESTORE}")
    fresh.close()


def _definitions(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master"
    try:
        return sorted(patiently(lambda: connection.execute(query).fetchall()), key=str)
    except UnicodeDecodeError:  # of damaged text, or of the message that quotes it
        return []


_REASONS = {
    "SQLITE_BUSY": "other processes keep the ledger locked: try again when they are done",
    "SQLITE_LOCKED": "other processes keep the ledger locked: try again when they are done",
    "SQLITE_FULL": "no space left for the ledger: free some and try again",
    "SQLITE_READONLY": "the ledger or its folder is read-only: make both writable",
    "SQLITE_CANTOPEN": "the ledger cannot be opened: make it and its folder readable and writable",
    "SQLITE_PERM": "the ledger cannot be opened: make it and its folder readable and writable",
    "SQLITE_NOTADB": "is not a ledger, or is damaged before its first entry: " + RESTORE,
    "SQLITE_CONSTRAINT": "another process continued the same run: leave it to that one",
    "SQLITE_IOERR": "the disk refused to read or write the ledger: mend it and try again",
    "SQLITE_CORRUPT": f"is damaged: {RESTORE}",
}
