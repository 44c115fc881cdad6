"""The file of a ledger: what it holds, how it is kept, and whether it is as it was written."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Literal, TypeVar

from adaptive_qs.errors import LedgerError
from adaptive_qs.ledger.entries import RESTORE, START, Body, Opened, Row, chained, last_sound
from adaptive_qs.ledger.files import Anchor, Mark, advance_mark, mark_path, read_mark, write_mark
from adaptive_qs.machine import LOGGED, reach
from adaptive_qs.table.files import create_partial, sync_folder

# The file of a ledger: SQLite, write-ahead log, every commit synced to the disk.

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


# Whether the file of a ledger is as it was written, and up to which entry.


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


# What a ledger file holds: entries that are only ever appended, and what open runs need.
#
# One writer at a time, in transactions that take the lock before they read (BEGIN IMMEDIATE), so
# that no two processes decide on the same state.

PIECE_BYTES = 2**28
"""Largest piece in which an output is kept; SQLite takes no more than 10^9 bytes at once."""

Kind = Literal["opened", "reserved", "released", "published", "closed", "restored"]


class Store:
    """An open ledger file.

    Args:
        path: the file.
        anchor: tells how far it had come, apart from its mark; None for no anchor.
        restoring: take a copy that does not reach its mark or anchor. The next entry makes both
            begin anew.

    Attributes:
        reached: newest entry that it had come to, as mark and anchor tell; 0 where neither does.

    Raises:
        LedgerError: it is missing, not a ledger, of a newer version, or damaged; the message names
            the last good entry.
    """

    def __init__(
        self, path: str | Path, anchor: Anchor | None = None, restoring: bool = False
    ) -> None:
        self.path = Path(path)
        self._anchor = anchor
        self._restoring = restoring
        if not os.path.isfile(self.path):  # never raises, unlike Path.is_file
            raise LedgerError(
                f"{path}: no such ledger: check the path, or set its total with "
                f"adaptive-qs ledger create --ledger {path}"
            )
        if anchor is not None:
            anchor.check_apart(self.path)
            if restoring:
                anchor.check_replaceable()
        with self._explained():
            self._appended: Mark | None = None
            self._connection = connect(self.path)
            try:
                marks = self._marks()
                self.reached = max((mark.number for _, mark in marks), default=0)
                check_sound(self._connection, self.path, [] if restoring else marks)
            except BaseException:
                self.close()
                raise

    @classmethod
    def create(cls, path: str | Path, opened: Opened, anchor: Anchor | None = None) -> Store:
        """A new ledger that appears whole or not at all, readable by its owner only.

        Raises:
            LedgerError: there is a file already, or none can be written there.
        """
        target = Path(path)
        row = chained(START, 1, _now(), opened.model_dump_json())
        try:
            if not os.path.lexists(target):
                write_mark(mark_path(target), Mark())
                if anchor is not None:
                    anchor.create(Mark())
            create(target, lambda connection: _insert(connection, row))
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
            raise explanation(target, error) from None
        if anchor is not None:
            anchor.write(Mark(row.number, row.hash))
        return cls(target, anchor)

    def close(self) -> None:
        """Close the file."""
        with suppress(sqlite3.Error):
            self._connection.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction: durable and marked when the block ends, undone where it fails.

        Raises:
            LedgerError: the file cannot be locked or written.
        """
        with self._explained():
            patiently(lambda: self._connection.execute("BEGIN IMMEDIATE"))
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
        if self._appended is not None:
            reach(LOGGED)
            self._mark(self._appended)
            self._appended = None

    def catch_up(self) -> None:
        """Bring mark and anchor to the newest entry, before anybody sees what it released.

        A process that was killed between the two left them behind.

        Raises:
            LedgerError: one of them cannot be written.
        """
        last = self.last()
        self._mark(Mark(last.number, last.hash))

    def _marks(self) -> list[tuple[str, Mark]]:
        """What tells how far the ledger had come; when restoring, what still does."""
        sources: dict[str, Callable[[], Mark]] = {"its mark": partial(read_mark, self.path)}
        if self._anchor is not None:
            sources[str(self._anchor)] = self._anchor.read
        found = []
        for source, read in sources.items():
            try:
                found.append((source, read()))
            except LedgerError:
                if not self._restoring:
                    raise
        return found

    def _mark(self, mark: Mark) -> None:
        if not self._restoring:
            advance_mark(mark_path(self.path), mark)
            if self._anchor is not None:
                self._anchor.advance(mark)
            return
        try:
            write_mark(mark_path(self.path), mark)
        except OSError as error:
            reason = (error.strerror or "unknown reason").lower()
            raise LedgerError(f"{mark_path(self.path)}: cannot be written ({reason})") from None
        if self._anchor is not None:
            self._anchor.write(mark)

    def append(self, body: Body) -> Row:
        """Add an entry; inside :meth:`writing`."""
        last = self.last()
        row = chained(last.hash, last.number + 1, _now(), body.model_dump_json())
        _insert(self._connection, row)
        self._appended = Mark(row.number, row.hash)
        return row

    def add_outputs(self, run: int, position: int, stored: list[tuple[str, bytes]]) -> None:
        """Keep the outputs of a release; inside :meth:`writing`."""
        self._connection.executemany(
            "INSERT INTO outputs VALUES (?, ?, ?, ?, ?, ?)",
            (
                (run, position, part, piece, kind, data[start : start + PIECE_BYTES])
                for part, (kind, data) in enumerate(stored)
                for piece, start in enumerate(range(0, max(len(data), 1), PIECE_BYTES))
            ),
        )

    def outputs(self, run: int, position: int) -> list[tuple[str, bytes]]:
        """The outputs of a release, as they were kept."""
        query = (  # the types as they were kept, also where the file is damaged
            "SELECT part, CAST(kind AS TEXT), CAST(data AS BLOB) FROM outputs "
            "WHERE run = ? AND position = ? ORDER BY part, piece"
        )
        with self._explained():
            found = self._connection.execute(query, (run, position))
            parts = [list(pieces) for _, pieces in groupby(found, key=itemgetter(0))]
        return [(pieces[0][1], b"".join(data for _, _, data in pieces)) for pieces in parts]

    def add_input(self, run: int, digest: str, request: Mapping[str, str]) -> None:
        """Keep what a run reads and is asked for; inside :meth:`writing`.

        The keyed hash of the table depends on the private rows, so no entry holds it and no hash
        of entries covers it.
        """
        row = (run, digest, _text(request))
        self._connection.execute("INSERT INTO inputs VALUES (?, ?, ?)", row)

    def asked_for(self, digest: str, request: Mapping[str, str]) -> list[int]:
        """The open runs that read this table and were asked for the same, newest first."""
        query = "SELECT run FROM inputs WHERE digest = ? AND request = ? ORDER BY run DESC"
        with self._explained():
            found = self._connection.execute(query, (digest, _text(request)))
            return [run for (run,) in found]

    def input(self, run: int) -> str | None:
        """The keyed hash of the table that an open run reads."""
        query = "SELECT CAST(digest AS TEXT) FROM inputs WHERE run = ?"
        with self._explained():
            found = self._connection.execute(query, (run,)).fetchone()
        return None if found is None else found[0]

    def forget(self, run: int) -> None:
        """Drop the outputs of a run, and what its table was; inside :meth:`writing`."""
        for table in ("outputs", "inputs"):
            self._connection.execute(f"DELETE FROM {table} WHERE run = ?", (run,))

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

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of the database in one line that says what to do."""
        try:
            yield
        except sqlite3.Error as error:
            raise explanation(self.path, error) from None


def _insert(connection: sqlite3.Connection, row: Row) -> None:
    connection.execute("INSERT INTO entries (number, time, body, hash) VALUES (?, ?, ?, ?)", row)


def _text(request: Mapping[str, str]) -> str:
    return json.dumps(request, sort_keys=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
