"""Temporary files and locks of processes that were killed are removed; those of others stay."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from adaptive_qs.errors import InputError
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.ledger.files import keyed_hash
from adaptive_qs.privacy.events import Cost
from adaptive_qs.table.files import atomic_writer, check_writable, create_partial, remove_stale

TARGETS = ("o.csv", "x" * 250, "ü" * 120, "a*[b]?.csv", ".hidden", "-")


def left_by_a_dead_writer(target: Path) -> Path:
    handle, path = create_partial(target)
    os.write(handle, b"half")
    os.close(handle)  # as the end of its process does
    return path


def parts(folder):
    return sorted(path for path in folder.iterdir() if path.name.endswith(".part"))


@pytest.mark.parametrize("name", TARGETS)
def test_what_a_dead_writer_left_is_removed_and_what_others_are_writing_stays(tmp_path, name):
    target = tmp_path / name
    left = left_by_a_dead_writer(target)
    assert parts(tmp_path) == [left]
    with atomic_writer(target) as file:
        assert left not in parts(tmp_path)
        file.write(b"whole")
    assert target.read_bytes() == b"whole"
    assert parts(tmp_path) == []
    other = left_by_a_dead_writer(tmp_path / "another")
    with atomic_writer(target) as first, atomic_writer(target) as second:
        first.write(b"1")
        second.write(b"2")
        check_writable(target)
        remove_stale(target)
        assert len(parts(tmp_path)) == 3
    assert target.read_bytes() == b"1"  # the last to end
    assert parts(tmp_path) == [other]


def fail(target, error):
    with atomic_writer(target) as file:
        file.write(b"new")
        raise error


def test_a_failed_writer_leaves_nothing_and_the_old_file(tmp_path):
    target = tmp_path / "o.csv"
    target.write_bytes(b"old")
    with pytest.raises(RuntimeError):
        fail(target, RuntimeError())
    with pytest.raises(InputError, match="Free some space"):
        fail(target, OSError(28, "No space left on device"))
    assert list(tmp_path.iterdir()) == [target]
    assert target.read_bytes() == b"old"


def test_parts_of_keys_and_ledgers_are_removed(tmp_path):
    ledger = tmp_path / "ledger"
    left_by_a_dead_writer(ledger)
    LedgerBook.create(ledger, Cost(9), {"rho": 1.0, "delta": 1e-9}).close()
    keyed_hash(ledger, [])
    left_by_a_dead_writer(tmp_path / "ledger.key")
    keyed_hash(ledger, [])
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["ledger", "ledger.key", "ledger.mark"]


def test_locks_of_the_dead_are_removed_and_those_of_others_stay(tmp_path):
    ledger = tmp_path / "ledger"
    book = LedgerBook.create(ledger, Cost(9), {"rho": 1.0, "delta": 1e-9})
    live = book.reserve({}, "0" * 64, Cost(1))
    dead = tmp_path / ".ledger.run-7.lock"
    dead.touch()
    LedgerBook(ledger).close()
    assert not dead.exists()
    assert (tmp_path / ".ledger.run-1.lock").exists()
    live.leave()
    assert not (tmp_path / ".ledger.run-1.lock").exists()


WRITER = """
import sys
from adaptive_qs.table.files import atomic_writer
with atomic_writer("o.csv") as file:
    file.write(b"half" * 10_000)
    file.flush()
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_process_that_is_killed_while_it_writes(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", WRITER], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout.readline() == b"ready\n"
        check_writable(tmp_path / "o.csv")
        assert len(parts(tmp_path)) == 1  # it lives
        writer.send_signal(signal.SIGKILL)
        assert writer.wait() == -signal.SIGKILL
    check_writable(tmp_path / "o.csv")
    assert list(tmp_path.iterdir()) == []
