"""What a ledger file holds: entries that are only ever appended, and what open runs need.

One writer at a time, in transactions that take the lock before they read (BEGIN IMMEDIATE), so
that no two processes decide on the same state.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Literal

from adaptive_qs.errors import LedgerError
from adaptive_qs.faults import LOGGED, reach
from adaptive_qs.ledger.chain import START, Row, chained
from adaptive_qs.ledger.database import connect, create, explanation, patiently
from adaptive_qs.ledger.entries import Body, Opened
from adaptive_qs.ledger.mark import (
    Anchor,
    Mark,
    advance_mark,
    mark_path,
    read_mark,
    write_mark,
)
from adaptive_qs.ledger.soundness import check_sound

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
