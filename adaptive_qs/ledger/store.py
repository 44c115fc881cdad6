"""The file of a ledger: reading, writing, and the check that it is as it was written."""

import json
import os
import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Literal, TypeVar

from adaptive_qs.errors import LedgerError, of_another_version, reason
from adaptive_qs.ledger import entries
from adaptive_qs.ledger.entries import RESTORE
from adaptive_qs.ledger.files import Anchor, Mark, MarkFile, create_private_file
from adaptive_qs.machine import Fault, reach
from adaptive_qs.privacy.events import Cost

FORMAT_VERSION = 2
APPLICATION_ID = 0x61715F73
BUSY_SECONDS = 60.0
"""Maximum time to wait for other processes that write, in seconds."""
PIECE_BYTES = 2**28
"""Largest piece in which an output is stored; the limit of SQLite is 10^9 bytes."""

_FULL_SYNC = ("fullfsync = ON", "checkpoint_fullfsync = ON")
"""Settings that also flush the cache of the drive, on systems that have them."""
_COLUMNS = "SELECT number, time, body, hash FROM entries"
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
Kind = Literal["opened", "reserved", "released", "published", "closed", "restored"]
OfKind = TypeVar("OfKind", bound=entries.Body)


class Store:
    """An open ledger file: entries that are only appended, and the data that open runs need.

    It is an SQLite database with a write-ahead log; every commit is synced to the disk. One process
    writes at a time, in transactions that take the lock before they read (BEGIN IMMEDIATE), so that
    no two processes decide on the same state. All methods raise LedgerError if the file cannot be
    read or written; opening also if it is of a newer version, or damaged (with the last good
    entry).

    With ``restoring``, a copy that does not reach its mark or anchor is opened as well, and the
    next entry writes both anew. With ``reading``, a file that cannot be written is opened as well.

    Attributes:
        reached: Number of the newest entry by mark and anchor; 0 without both.
        unmarked: Whether the mark or the anchor could not be read, when restoring.
    """

    def __init__(
        self,
        path: str | Path,
        anchor: Anchor | None = None,
        restoring: bool = False,
        reading: bool = False,
    ) -> None:
        self.path = Path(path)
        self._restoring = restoring
        self.unmarked = False
        self._cleanup = ExitStack()
        self._appended: Mark | None = None  # in the transaction at hand
        if not os.path.isfile(self.path):  # never raises, unlike Path.is_file
            create = f"set its total with adaptive-qs ledger create --ledger {path}"
            why = f"no such ledger: check the path, or {create}"
            if os.path.isdir(self.path):
                why = "is a folder: name the file of a ledger in it"
            raise LedgerError(f"{path}: {why}")
        self._marks = [MarkFile(self.path)]
        if anchor is not None:
            self._marks.append(anchor)
            anchor.check_apart(self.path)
            if restoring and anchor.path is not None and os.path.lexists(anchor.path):
                anchor.read()  # another file is not replaced
        writable = os.access(self.path, os.W_OK) and os.access(self.path.resolve().parent, os.W_OK)
        with self._explained():
            if reading and not writable:
                self._connection = _connect_to_read(self.path, self._cleanup)
            else:
                self._connection = _connect(self.path)
            try:
                marks = self._read_marks()
                self.reached = max((mark.number for mark in marks), default=0)
                self._check_sound({} if restoring else marks)
            except BaseException:
                self.close()
                raise

    @staticmethod
    def write_new(path: Path, opened: entries.Opened, anchor: Anchor | None) -> None:
        """Create a ledger atomically, readable by its owner only."""
        row = entries.chain_entry(entries.START, 1, _now(), opened.model_dump_json())
        try:
            if not os.path.lexists(path):
                MarkFile(path).begin(Mark())
                if anchor is not None:
                    anchor.create(Mark())
            with create_private_file(path) as (_, temporary):
                with closing(_opened(temporary)) as connection:
                    connection.execute("PRAGMA journal_mode = MEMORY")  # no second file is left
                    connection.executescript(_TABLES)
                    _insert(connection, row)
                path.hardlink_to(temporary)
        except FileExistsError:
            why = f"{path} already exists, and a total is set once. Choose another path."
            if path.is_dir():
                why = f"{path}: is a folder: name a file in it, such as my.ledger"
            raise LedgerError(why) from None
        except OSError as error:
            raise LedgerError(
                f"{path} cannot be written ({reason(error)}). Create its folder, or use another."
            ) from None
        except sqlite3.Error as error:
            raise _explanation(path, error) from None
        if anchor is not None:
            anchor.write(Mark.of(row))

    def close(self) -> None:
        """Close the file."""
        with suppress(sqlite3.Error):
            self._connection.close()
        self._cleanup.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Run a transaction, which is durable and marked at the end and undone if it fails."""
        with self._explained():
            _patiently(lambda: self._connection.execute("BEGIN IMMEDIATE"))
            self._appended = None  # also if an earlier transaction failed after an entry
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
        if self._appended is not None:
            reach(Fault.LOGGED)
            self._mark(self._appended)

    def append(self, body: entries.Body) -> None:
        """Add an entry; inside :meth:`writing`."""
        last = self.last()
        row = entries.chain_entry(last.hash, last.number + 1, _now(), body.model_dump_json())
        _insert(self._connection, row)
        self._appended = Mark.of(row)

    def add_outputs(self, run: int, position: int, stored: list[tuple[str, bytes]]) -> None:
        """Store the outputs of a release; inside :meth:`writing`."""
        self._connection.executemany(
            "INSERT INTO outputs VALUES (?, ?, ?, ?, ?, ?)",
            (
                (run, position, part, piece, kind, data[start : start + PIECE_BYTES])
                for part, (kind, data) in enumerate(stored)
                for piece, start in enumerate(range(0, max(len(data), 1), PIECE_BYTES))
            ),
        )

    def add_input(self, run: int, digest: str, request: Mapping[str, str]) -> None:
        """Store the keyed hash of a table and the request of a run; inside :meth:`writing`.

        The keyed hash depends on private rows, so no entry and no hash of entries covers it.
        """
        row = (run, digest, json.dumps(request, sort_keys=True))
        self._connection.execute("INSERT INTO inputs VALUES (?, ?, ?)", row)

    def end_run(self, run: int, finished: bool) -> None:
        """Close a run, free what it did not spend and delete its outputs; inside :meth:`writing`.

        Does nothing if the run is closed already.
        """
        if any(self.rows("closed", run)):
            return
        spent = sum((body.price for body in self.bodies(entries.Released, run)), Cost())
        held = self.held - self.reservation(run).price + spent
        self.append(entries.Closed(held=held, run=run, price=spent, finished=finished))
        for table in ("outputs", "inputs"):
            self._connection.execute(f"DELETE FROM {table} WHERE run = ?", (run,))

    def rows(
        self, kind: Kind | None = None, run: int | None = None, position: int | None = None
    ) -> Iterator[entries.Row]:
        """Yield the entries in order, all or those of a kind, run and position."""
        # A kind in the text, not as a parameter: the index over entries of a kind needs it.
        conditions = ["TRUE" if kind is None else f"kind = '{kind}'"]
        given = {"run": run, "position": position}
        conditions += [f"{name} = :{name}" for name, value in given.items() if value is not None]
        query = f"{_COLUMNS} WHERE {' AND '.join(conditions)} ORDER BY number"
        with self._explained():
            yield from map(entries.Row._make, self._connection.execute(query, given))

    def bodies(self, kind: type[OfKind], run: int | None = None) -> Iterator[OfKind]:
        """Yield the parsed entries of a kind, of all runs or of one."""
        for row in self.rows(kind.model_fields["kind"].default, run):
            body = entries.parse_body(row.body)
            assert isinstance(body, kind)
            yield body

    def last(self) -> entries.Row:
        """Return the newest entry."""
        with self._explained():
            query = f"{_COLUMNS} ORDER BY number DESC LIMIT 1"
            return entries.Row._make(self._connection.execute(query).fetchone())

    @property
    def held(self) -> Cost:
        """The budget in use: reserved by open runs and spent by closed ones."""
        return entries.parse_body(self.last().body).held

    def newest_run(self) -> int:
        """Return the number of the newest run; 0 if there is none."""
        return self._first_column("SELECT MAX(run) FROM entries WHERE kind = 'reserved'")[0] or 0

    def open_runs(self) -> list[int]:
        """Return the numbers of the open runs, in the order in which they began."""
        return self._first_column(
            "SELECT run FROM entries WHERE kind = 'reserved' AND run NOT IN "
            "(SELECT run FROM entries WHERE kind = 'closed') ORDER BY run"
        )

    def reservation(self, run: int) -> entries.Reserved:
        """Return the entry that reserved the budget of a run, or raise LedgerError."""
        body = next(self.bodies(entries.Reserved, run), None)
        if body is None:
            raise LedgerError(f"{self.path}: has no run {run}: adaptive-qs ledger show lists them")
        return body

    def asked_for(self, digest: str, request: Mapping[str, str]) -> list[int]:
        """Return the open runs with this table and request, newest first."""
        query = "SELECT run FROM inputs WHERE digest = ? AND request = ? ORDER BY run DESC"
        return self._first_column(query, digest, json.dumps(request, sort_keys=True))

    def input(self, run: int) -> str | None:
        """Return the keyed hash of the table that an open run reads."""
        query = "SELECT CAST(digest AS TEXT) FROM inputs WHERE run = ?"
        return next(iter(self._first_column(query, run)), None)

    def outputs(self, run: int, position: int) -> list[tuple[str, bytes]]:
        """Return the outputs of a release, as they were stored."""
        query = (  # of the types that were stored, even if the file is damaged
            "SELECT part, CAST(kind AS TEXT), CAST(data AS BLOB) FROM outputs "
            "WHERE run = ? AND position = ? ORDER BY part, piece"
        )
        with self._explained():
            found = self._connection.execute(query, (run, position))
            parts = [list(pieces) for _, pieces in groupby(found, key=itemgetter(0))]
        return [(pieces[0][1], b"".join(data for _, _, data in pieces)) for pieces in parts]

    def releases(
        self, run: int, position: int | None = None
    ) -> Iterator[tuple[entries.Released, list[tuple[str, bytes]]]]:
        """Yield the releases of an open run with their outputs; LedgerError if hashes differ."""
        for row in self.rows("released", run, position):
            body = entries.parse_body(row.body)
            assert isinstance(body, entries.Released)
            stored = self.outputs(run, body.position)
            if entries.compute_digests(stored) != body.outputs:
                raise LedgerError(
                    f"{self.path}: the answers of entry {row.number:,} are damaged: {RESTORE}"
                )
            yield body, stored

    def _first_column(self, query: str, *given: object) -> list:
        with self._explained():
            return [value for (value, *_) in self._connection.execute(query, given)]

    def _read_marks(self) -> dict[Mark, str]:
        """Return the marks of the ledger and the names of their files."""
        found = {}
        for file in self._marks:
            try:
                found[file.read()] = str(file)
            except LedgerError:
                if not self._restoring:
                    raise
                self.unmarked = True
        return found

    def _mark(self, mark: Mark) -> None:
        for file in self._marks:
            (file.write if self._restoring else file.advance)(mark)

    def _check_sound(self, marks: Mapping[Mark, str]) -> None:
        """Check chain, marks and indices; LedgerError names the last good entry."""
        missing = {mark: source for mark, source in marks.items() if mark.number > 0}
        number, sound = 0, False

        def good_rows() -> Iterator[entries.Row]:
            nonlocal number
            for row in map(
                entries.Row._make, self._connection.execute(f"{_COLUMNS} ORDER BY number")
            ):
                yield row  # the caller requests another one only if it is good
                number = row.number
                missing.pop(Mark.of(row), None)

        self._connection.execute("BEGIN")  # one state of the file for the whole check
        try:
            if entries.find_last_sound(good_rows())[1]:
                sound = self._connection.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok"
        except sqlite3.DatabaseError as error:
            if _name(error).startswith(("SQLITE_BUSY", "SQLITE_IOERR", "SQLITE_FULL")):
                raise
        finally:
            self._connection.execute("ROLLBACK")
        why = ""
        if sound and missing:
            mark, source = max(missing.items())
            why = f"it lacks entry {mark.number:,}, which {source} has seen: "
            if mark.number <= number:
                raise LedgerError(
                    f"{self.path}: is sound and not the ledger that {source} has followed: they "
                    f"went different ways before entry {mark.number:,}: {RESTORE}"
                )
        if not sound or missing or number == 0:
            raise LedgerError(
                f"{self.path}: is damaged after entry {number:,}, the last good one: {why}{RESTORE}"
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _explanation(self.path, error) from None


def _connect(path: Path) -> sqlite3.Connection:
    """Open a ledger; raise LedgerError for a file of another kind, without changing it."""
    connection = _opened(path)
    try:
        _check_kind(connection, path)
        _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
        for setting in ("synchronous = FULL", "secure_delete = ON", *_FULL_SYNC):
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_to_read(path: Path, cleanup: ExitStack) -> sqlite3.Connection:
    """Open a ledger that cannot be written, or a private copy of it until the cleanup.

    SQLite reads a log only if its index exists or can be created next to it.
    """
    real = os.path.realpath(path)
    try:
        place = f"{Path(real).as_uri()}?mode=ro"
        connection = sqlite3.connect(place, uri=True, timeout=0, isolation_level=None)
        cleanup.callback(connection.close)
        _check_kind(connection, path)
        return connection
    except sqlite3.OperationalError:
        try:
            folder = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="adaptive-qs-"))
            copy = Path(folder, "ledger")
            for end in ("", "-wal"):
                if os.path.exists(f"{real}{end}"):
                    shutil.copyfile(f"{real}{end}", f"{copy}{end}")
        except OSError as error:
            raise LedgerError(
                f"{path}: cannot be copied to be read ({reason(error)}): make it readable"
            ) from None
        return _connect(copy)


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)


def _check_kind(connection: sqlite3.Connection, path: Path) -> None:
    def pragma(name: str) -> int:
        return _patiently(lambda: connection.execute(f"PRAGMA {name}").fetchone()[0])

    if pragma("application_id") != APPLICATION_ID:
        raise LedgerError(f"{path}: is not a ledger: check the path")
    found = pragma("user_version")
    if found > 0 and found != FORMAT_VERSION:
        raise LedgerError(f"{path}: {of_another_version(found, FORMAT_VERSION)}")
    with closing(sqlite3.connect(":memory:")) as fresh:
        fresh.executescript(_TABLES)
        if _definitions(connection) != _definitions(fresh) or found != FORMAT_VERSION:
            raise LedgerError(f"{path}: is damaged before its first entry: {RESTORE}")


def _definitions(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master"
    try:
        return sorted(_patiently(lambda: connection.execute(query).fetchall()), key=str)
    except UnicodeDecodeError:  # of damaged text, or of the message that quotes it
        return []


def _insert(connection: sqlite3.Connection, row: entries.Row) -> None:
    connection.execute("INSERT INTO entries (number, time, body, hash) VALUES (?, ?, ?, ?)", row)


def _patiently(attempt: Callable[[], Result]) -> Result:
    """Try again while other processes write, for ``BUSY_SECONDS``, so that signals are handled."""
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if not _name(error).startswith("SQLITE_BUSY") or time.monotonic() > end:
                raise
        time.sleep(random.uniform(0, 0.02))


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "") or ""


def _explanation(path: Path, error: sqlite3.Error) -> LedgerError:
    name = _name(error)
    with suppress(OSError):  # SQLite does not name the reason if the log or its index cannot grow
        if name == "SQLITE_ERROR" and shutil.disk_usage(path.resolve().parent).free < 2**16:
            name = "SQLITE_FULL"
    unknown = f"the ledger cannot be used ({name or 'unknown reason'}): {RESTORE}"
    reasons = (text for prefixes, text in _REASONS.items() if name.startswith(prefixes))
    return LedgerError(f"{path}: {next(reasons, unknown)}")


_REASONS: dict[str | tuple[str, ...], str] = {
    ("SQLITE_BUSY", "SQLITE_LOCKED"): "other processes keep the ledger locked: try again when "
    "they are done",
    "SQLITE_FULL": "no space left for the ledger: free some and try again",
    "SQLITE_READONLY": "the ledger or its folder is read-only: make both writable",
    ("SQLITE_CANTOPEN", "SQLITE_PERM"): "the ledger cannot be opened: make it and its folder "
    "readable and writable",
    "SQLITE_NOTADB": "is not a ledger, or is damaged before its first entry: check the path, or "
    + RESTORE,
    "SQLITE_CONSTRAINT": "another process continued the same run: leave it to that one",
    "SQLITE_IOERR": "the disk refused to read or write the ledger: repair it and try again",
    "SQLITE_CORRUPT": f"is damaged: {RESTORE}",
}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
