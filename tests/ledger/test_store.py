"""Files that are no ledgers, other versions, waiting, clocks, permissions."""

import os
import shutil
import sqlite3
import stat
import threading
import time
from contextlib import suppress

import numpy as np
import pytest

from adaptive_qs.errors import LedgerError
from adaptive_qs.ledger import store
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.ledger.entries import Published, find_last_sound
from adaptive_qs.ledger.files import key_path, keyed_hash
from adaptive_qs.privacy.events import Cost

from .helpers import (
    INPUTS,
    REQUEST,
    costing,
    crash,
    execute,
    filled,
    new_book,
    refusal,
    released,
    reserve,
    rows_of,
)


def test_a_missing_ledger_is_not_made(tmp_path):
    assert "no such ledger" in refusal(tmp_path / "ledger")
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_no_ledger_are_refused_and_stay_as_they_are(tmp_path):
    path = tmp_path / "ledger"
    execute(tmp_path / "other", ("CREATE TABLE entries (number)",))
    for content in (b"", b"age,sex\n3,4\n", b"\0" * 5_000, (tmp_path / "other").read_bytes()):
        path.write_bytes(content)
        assert "not a ledger" in refusal(path)
        assert path.read_bytes() == content
    assert "is a folder: name the file of a ledger in it" in refusal(tmp_path)
    assert "no such ledger" in refusal(tmp_path / "none")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (3, "newer version (format 3, this one reads up to 2): upgrade"),
        (1, "earlier version (format 1, this one reads 2): use that version"),
    ],
)
def test_a_ledger_of_another_version_is_refused_and_stays_as_it_is(found, said, tmp_path):
    path = filled(tmp_path / "ledger")
    execute(path, (f"PRAGMA user_version = {found}",))
    content = path.read_bytes()
    assert said in refusal(path)
    assert path.read_bytes() == content


def test_a_total_is_set_once(tmp_path):
    path = tmp_path / "ledger"
    new_book(path, 7).close()
    content = path.read_bytes()
    with pytest.raises(LedgerError, match="set once"):
        new_book(path, 8)
    assert path.read_bytes() == content
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ledger", "ledger.mark"]


def test_every_commit_is_synced_to_a_log_that_is_written_ahead(tmp_path):
    book = new_book(tmp_path / "ledger")
    connection = book._connection
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    book.close()


def test_ledger_key_lock_and_log_are_readable_by_their_owner_only(tmp_path):
    path = tmp_path / "ledger"
    before = os.umask(0)
    try:
        live = reserve(new_book(path), 10)
        keyed_hash(path, [b"table"])
    finally:
        os.umask(before)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    names = [f"ledger{end}" for end in ("", ".key", ".mark", "-wal", "-shm")]
    assert modes == dict.fromkeys([*names, ".ledger.run-1.lock"], 0o600)
    crash(live)


def test_the_order_of_entries_does_not_come_from_a_clock(tmp_path, monkeypatch):
    times = iter(["2030-01-01", "1970-01-01", "2030-01-01", "1969-12-31", ""])
    monkeypatch.setattr(store, "_now", lambda: next(times))
    path = tmp_path / "ledger"
    live = reserve(new_book(path), 50)
    for position in range(2):
        released(live, 5, [position])
    live.finish()
    rows = rows_of(path)
    assert [row.time[:4] for row in rows] == ["2030", "1970", "2030", "1969", ""]
    assert find_last_sound(rows) == (5, True)
    book = LedgerBook(path)
    assert (book.verify(), book.held) == (5, Cost(10))


def test_a_writer_waits_for_another_and_hears_signals_meanwhile(tmp_path):
    path = tmp_path / "ledger"
    book = new_book(path)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    free = threading.Timer(0.4, lambda: other.execute("ROLLBACK"))
    free.start()
    start = time.monotonic()
    crash(reserve(book, 10))
    assert 0.35 < time.monotonic() - start < 30
    free.join()


def test_a_ledger_that_stays_locked_is_refused_in_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.1)
    path = tmp_path / "ledger"
    book = new_book(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="other processes keep the ledger locked"):
        reserve(book, 10)
    other.execute("ROLLBACK")
    assert (book.held, [p.suffix for p in tmp_path.iterdir() if "lock" in p.name]) == (Cost(), [])


def test_two_that_continue_one_run_cannot_both_commit(tmp_path):
    """Not even where their locks fail them, as on a file system without any."""
    path = tmp_path / "ledger"
    first = reserve(new_book(path), 50)
    first._lock.release()
    second = LedgerBook(path).resume(REQUEST, INPUTS)
    assert list(released(first, 5, [1])) == [1]
    with pytest.raises(LedgerError, match="another process continued the same run"):
        released(second, 5, [2])
    crash(second)
    third = LedgerBook(path).resume(REQUEST, INPUTS)
    assert list(third.release([costing(5)], lambda: pytest.fail("drew"))[0]) == [1]
    crash(first)
    crash(third)


def test_a_run_that_was_closed_meanwhile_commits_nothing(tmp_path):
    path = tmp_path / "ledger"
    live = reserve(new_book(path), 50)
    released(live, 5)
    live._lock.release()
    LedgerBook(path).close_run(1)
    with pytest.raises(LedgerError, match="closed in the meantime"):
        released(live, 5)
    crash(live)
    book = LedgerBook(path)
    assert (book.held, book.verify()) == (Cost(5), 4)


def test_an_entry_that_was_undone_is_not_marked(tmp_path):
    path = tmp_path / "ledger"
    live, digests = reserve(new_book(path), 50), {"page": "0" * 64}
    released(live, 5)
    live.publish(digests)
    with suppress(ZeroDivisionError), live._store.writing():
        live._store.append(Published(held=live._store.held, run=1, digests={"page": "1" * 64}))
        raise ZeroDivisionError
    live.publish(digests)  # a transaction without a new entry
    crash(live)
    assert len(rows_of(path)) == 4


def test_a_run_at_work_can_neither_be_resumed_nor_closed(tmp_path):
    path = tmp_path / "ledger"
    live = reserve(new_book(path), 50)
    released(live, 5)
    for attempt in (lambda b: b.resume(REQUEST, INPUTS), lambda b: b.close_run(1)):
        with pytest.raises(LedgerError, match="a process works on"):
            attempt(LedgerBook(path))
    crash(live)


def test_a_key_that_cannot_be_used_is_refused(tmp_path):
    path = tmp_path / "ledger"
    first = keyed_hash(path, [b"a", b"b"])
    assert first == keyed_hash(path, [b"ab"]) != keyed_hash(path, [b"abc"])
    for content in ("", "zz", "ab" * 31, "\x00"):
        key_path(path).write_text(content)
        with pytest.raises(LedgerError, match="key"):
            keyed_hash(path, [b"ab"])
    key_path(path).unlink()
    assert keyed_hash(path, [b"ab"]) != first
    assert [p.name for p in tmp_path.iterdir()] == ["ledger.key"]


def test_large_outputs_are_kept_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "PIECE_BYTES", 64)
    book = new_book(tmp_path / "ledger")
    run = reserve(book, 100)
    vectors = [np.arange(size, dtype=np.int64) for size in (0, 1, 8, 9, 200)]
    run.release([costing(1)] * len(vectors), lambda: vectors)
    crash(run)
    again = LedgerBook(tmp_path / "ledger").resume(REQUEST, INPUTS)
    kept = again.release([costing(1)] * len(vectors), pytest.fail)
    assert [v.tolist() for v in kept] == [v.tolist() for v in vectors]
    crash(again)


def test_a_ledger_is_made_or_the_disk_is_said_to_be_full(tmp_path, monkeypatch):
    """SQLite gives no reason where the log or its index cannot grow."""

    def fail(*_):
        error = sqlite3.OperationalError("SQL logic error")
        error.sqlite_errorname = "SQLITE_ERROR"
        raise error

    for free, said in ((2**15, "no space left for the ledger"), (2**30, "cannot be used")):
        usage = shutil.disk_usage(tmp_path)._replace(free=free)
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
            patch.setattr(store, "_connect", fail)
            with pytest.raises(LedgerError, match=f"{said}.*The ledger was created"):
                LedgerBook.create(tmp_path / f"l{free}", Cost.within(1), {"rho": 1, "delta": 1e-9})
