"""The file of a ledger: SQLite, write-ahead log, every commit synced to the disk.

One writer at a time, in transactions that take the lock before they read (BEGIN IMMEDIATE), so
that no two processes decide on the same state. Entries are only ever appended.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from adaptive_qs.errors import LedgerError
from adaptive_qs.ledger.chain import START, Row, chained, last_sound
from adaptive_qs.ledger.entries import Body, Closed, Opened, Released, Reserved

FORMAT_VERSION = 1
APPLICATION_ID = 0x61715F73
BUSY_SECONDS = 60.0

Kind = Literal["opened", "reserved", "released", "closed"]

_TABLES = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT_VERSION};
CREATE TABLE entries (
    number INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, run INTEGER,
    position INTEGER, body TEXT NOT NULL, hash BLOB NOT NULL
);
CREATE UNIQUE INDEX releases ON entries (run, position) WHERE kind = 'released';
CREATE UNIQUE INDEX reservations ON entries (run) WHERE kind = 'reserved';
CREATE UNIQUE INDEX closings ON entries (run) WHERE kind = 'closed';
CREATE TABLE outputs (
    run INTEGER, position INTEGER, part INTEGER, kind TEXT NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (run, position, part)
);
CREATE TRIGGER no_change BEFORE UPDATE ON entries
    BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END;
CREATE TRIGGER no_removal BEFORE DELETE ON entries
    BEGIN SELECT RAISE(ABORT, 'entries are never removed'); END;
"""


class Store:
    """An open ledger file.

    Args:
        path: the file.

    Raises:
        LedgerError: it is missing, not a ledger, of a newer version, or damaged; the message names
            the last good entry.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not os.path.isfile(self.path):  # never raises, unlike Path.is_file
            raise LedgerError(
                f"{path}: no such ledger: check the path, or set its total with "
                f"adaptive-qs ledger create --ledger {path}"
            )
        with self._explained():
            self._connection = _connect(self.path)
            self._check()

    @classmethod
    def create(cls, path: str | Path, opened: Opened) -> Store:
        """A new ledger that appears whole or not at all, readable by its owner only.

        Raises:
            LedgerError: there is a file already, or none can be written there.
        """
        target = Path(path)
        try:
            handle, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=target.parent)
            os.close(handle)
            temporary = Path(name)
            try:
                connection = _connect(temporary)
                connection.executescript(_TABLES)
                row = chained(START, 1, _now(), opened.model_dump_json())
                _insert(connection, row, opened)
                connection.close()  # the last connection folds the log into the file
                os.link(temporary, target)
            finally:
                for suffix in ("", "-wal", "-shm"):
                    Path(name + suffix).unlink(missing_ok=True)
        except FileExistsError:
            raise LedgerError(
                f"{path}: exists already, and a total is set once: give another path"
            ) from None
        except OSError as error:
            reason = (error.strerror or "unknown reason").lower()
            raise LedgerError(
                f"{path}: cannot be written ({reason}): give a path in a writable folder"
            ) from None
        except sqlite3.Error as error:
            raise _explanation(target, error) from None
        return cls(target)

    def close(self) -> None:
        """Close the file."""
        with suppress(sqlite3.Error):
            self._connection.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction: durable when the block ends, undone where it fails.

        Raises:
            LedgerError: the file cannot be locked or written.
        """
        with self._explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def append(self, body: Body) -> Row:
        """Add an entry; inside :meth:`writing`."""
        last = self.last()
        row = chained(last.hash, last.number + 1, _now(), body.model_dump_json())
        _insert(self._connection, row, body)
        return row

    def add_outputs(self, run: int, position: int, stored: list[tuple[str, bytes]]) -> None:
        """Keep the outputs of a release; inside :meth:`writing`."""
        self._connection.executemany(
            "INSERT INTO outputs VALUES (?, ?, ?, ?, ?)",
            [(run, position, part, kind, data) for part, (kind, data) in enumerate(stored)],
        )

    def outputs(self, run: int, position: int) -> list[tuple[str, bytes]]:
        """The outputs of a release, as they were kept."""
        query = "SELECT kind, data FROM outputs WHERE run = ? AND position = ? ORDER BY part"
        with self._explained():
            return list(self._connection.execute(query, (run, position)))

    def drop_outputs(self, run: int) -> None:
        """Forget the outputs of a run; inside :meth:`writing`."""
        self._connection.execute("DELETE FROM outputs WHERE run = ?", (run,))

    def rows(
        self, kind: Kind | None = None, run: int | None = None, position: int | None = None
    ) -> Iterator[Row]:
        """Entries in order, all or those of a kind, run and position."""
        given = {
            name: value
            for name, value in (("run", run), ("position", position))
            if value is not None
        }
        # A kind in the text, not as a parameter: the index over entries of a kind needs it.
        conditions = [
            "TRUE" if kind is None else f"kind = '{kind}'",
            *(f"{n} = :{n}" for n in given),
        ]
        where = " AND ".join(conditions)
        query = f"SELECT number, time, body, hash FROM entries WHERE {where} ORDER BY number"
        with self._explained():
            yield from map(Row._make, self._connection.execute(query, given))

    def last(self) -> Row:
        """The newest entry."""
        query = "SELECT number, time, body, hash FROM entries ORDER BY number DESC LIMIT 1"
        with self._explained():
            return Row._make(self._connection.execute(query).fetchone())

    def newest_run(self) -> int:
        """The number of the newest run, 0 where there is none."""
        query = "SELECT MAX(run) FROM entries WHERE kind = 'reserved'"
        with self._explained():
            return self._connection.execute(query).fetchone()[0] or 0

    def open_runs(self) -> list[int]:
        """Numbers of the runs that were not closed, in the order in which they began."""
        query = (
            "SELECT run FROM entries WHERE kind = 'reserved' AND run NOT IN "
            "(SELECT run FROM entries WHERE kind = 'closed') ORDER BY run"
        )
        with self._explained():
            return [run for (run,) in self._connection.execute(query)]

    def _check(self) -> None:
        pragma = self._connection.execute
        if pragma("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise LedgerError(f"{self.path}: is not a ledger: check the path")
        if (found := pragma("PRAGMA user_version").fetchone()[0]) > FORMAT_VERSION:
            raise LedgerError(
                f"{self.path}: made by a newer version (format {found}, this one reads up to "
                f"{FORMAT_VERSION}): upgrade adaptive-qs"
            )
        self._connection.execute("BEGIN")  # one state of the file for the whole check
        try:
            number, sound = self._last_sound()
        finally:
            self._connection.execute("ROLLBACK")
        if not sound or number == 0:
            raise LedgerError(
                f"{self.path}: is damaged after entry {number:,}, the last good one: restore a "
                "copy, and count as spent whatever was released since it was made"
            )

    def _last_sound(self) -> tuple[int, bool]:
        number = 0

        def rows() -> Iterator[Row]:
            nonlocal number
            for row in self.rows():
                yield row
                number = row.number

        try:
            if not (sound := last_sound(rows()))[1]:
                return sound
            whole = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
        except (sqlite3.Error, LedgerError, TypeError):
            return number, False
        return sound[0], whole

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of the database in one line that says what to do."""
        try:
            yield
        except sqlite3.Error as error:
            raise _explanation(self.path, error) from None


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _insert(connection: sqlite3.Connection, row: Row, body: Body) -> None:
    run = body.run if isinstance(body, Reserved | Released | Closed) else None
    position = body.position if isinstance(body, Released) else None
    connection.execute(
        "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)",
        (row.number, row.time, body.kind, run, position, row.body, row.hash),
    )


def _explanation(path: Path, error: sqlite3.Error) -> LedgerError:
    name = getattr(error, "sqlite_errorname", "") or ""
    for prefix, words in _REASONS.items():
        if name.startswith(prefix):
            return LedgerError(f"{path}: {words}")
    return LedgerError(
        f"{path}: the ledger cannot be used ({name or 'unknown reason'}): restore a copy"
    )


_REASONS = {
    "SQLITE_BUSY": "other processes keep the ledger locked: try again when they are done",
    "SQLITE_LOCKED": "other processes keep the ledger locked: try again when they are done",
    "SQLITE_FULL": "no space left for the ledger: free some and try again",
    "SQLITE_READONLY": "the ledger or its folder is read-only: make both writable",
    "SQLITE_CANTOPEN": "the ledger cannot be opened: make it and its folder readable and writable",
    "SQLITE_PERM": "the ledger cannot be opened: make it and its folder readable and writable",
    "SQLITE_NOTADB": "is not a ledger, or is damaged from its first entry on: restore a copy",
    "SQLITE_CONSTRAINT": "another process continued the same run: leave it to that one",
    "SQLITE_IOERR": "the disk refused to read or write the ledger: mend it and try again",
    "SQLITE_CORRUPT": "is damaged: adaptive-qs ledger verify names the last good entry",
}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
