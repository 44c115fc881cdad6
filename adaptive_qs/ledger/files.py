"""The files beside a ledger: its key, its locks, its mark and anchors."""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import re
import secrets
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from adaptive_qs.errors import LedgerError, reason
from adaptive_qs.ledger.entries import RESTORE, START, Row
from adaptive_qs.table.files import (
    OPEN_FILES_MOVE,
    NameTaken,
    create_partial,
    give_name,
    lock,
    remove_stale,
    remove_unlocked,
    sync,
    sync_folder,
    take_lock,
)


def own_files(ledger: Path) -> list[Path]:
    """A ledger and the files beside it that belong to it."""
    return [Path(f"{ledger}{end}") for end in ("", ".key", ".mark", "-wal", "-shm")]


def key_path(ledger: str | Path) -> Path:
    """Where the key of a ledger lies; the same whatever links lead to the ledger."""
    return Path(f"{os.path.realpath(ledger)}.key")


def mark_path(ledger: str | Path) -> Path:
    """Where the mark of a ledger lies; the same whatever links lead to the ledger."""
    return Path(f"{os.path.realpath(ledger)}.mark")


@contextmanager
def owners_file(target: Path) -> Iterator[tuple[int, Path]]:
    """A new file that only its owner can read, to be given the name of the target in the block.

    Yields its handle and its temporary path, of which neither outlives the block.
    """
    handle, temporary = create_partial(target)
    try:
        yield handle, temporary
    finally:
        with suppress(OSError):  # closed before it was renamed
            os.close(handle)
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)


# The private key of a ledger, and what it hides: which table a run read.
#
# A plain hash of a table would let anyone who sees the ledger test guesses of the whole table. So
# the hash is keyed, and the key lies in a file of its own beside the ledger that is never exported.

KEY_BYTES = 32


def keyed_hash(ledger: str | Path, chunks: Iterable[bytes], make: bool = True) -> str:
    """HMAC-SHA256 of some bytes under the ledger's key.

    Args:
        ledger: its path.
        chunks: the bytes.
        make: make a key where there is none; without it nothing hashed before can be recognised.

    Raises:
        LedgerError: the key is missing, or cannot be read or made.
    """
    path = key_path(ledger)
    if not make and not path.exists():
        raise LedgerError(
            f"{path}: the key that recognises tables is missing: restore it, or give the "
            "interrupted run up with adaptive-qs ledger close"
        )
    try:
        remove_stale(path)
        if not path.exists():
            with owners_file(path) as (handle, temporary):
                os.write(handle, f"{secrets.token_hex(KEY_BYTES)}\n".encode())
                sync(handle)
                with suppress(NameTaken):  # another process was faster
                    give_name(temporary, path, replace=False)
        key = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as error:
        why = reason(error, "not a key") if isinstance(error, OSError) else "not a key"
        raise LedgerError(
            f"{path}: the ledger's key cannot be read or made ({why}): mend that, or remove the "
            "file if no interrupted run is to be resumed"
        ) from None
    if len(key) != KEY_BYTES:
        raise LedgerError(f"{path}: is not a ledger's key: restore it")
    digest = hmac.new(key, digestmod=hashlib.sha256)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


# One process at a time works on a run; its lock is gone with the process, however it ends.
#
# This spares the second process the work. That no release is made twice rests on the ledger itself,
# where a run has one release at each position. A fork has the open file too and closes it without
# unlocking, which would take the lock from the process that works on the run.


class RunLock:
    """The lock of one run, held until :meth:`release` or until nothing refers to it any more.

    Attributes:
        held: whether it could be had.
    """

    def __init__(self, ledger: Path, run: int) -> None:
        folder, prefix, suffix = _locks(ledger)
        self._path = folder / f"{prefix}{run}{suffix}"
        self._process = os.getpid()
        try:
            self._handle = take_lock(self._path)
        except OSError as error:
            if error.errno != errno.ENOLCK:
                raise
            raise LedgerError(
                f"{self._path}: files cannot be locked here, so that two processes could work on "
                "one run: keep the ledger on a file system with locks"
            ) from None
        self.held = self._handle is not None
        if self._handle is not None:
            self._closed = weakref.finalize(self, os.close, self._handle)

    @property
    def mine(self) -> bool:
        """Whether this process took the lock, and not the one that it was forked from."""
        return self._process == os.getpid()

    def release(self) -> None:
        """Let go, and remove the file."""
        if self._handle is None:
            return
        if self.mine:
            with suppress(OSError):  # whoever opens the ledger next removes it
                self._path.unlink()
        self._closed()
        self._handle = None


def remove_dead_locks(ledger: Path) -> None:
    """Remove the files of locks whose processes were killed."""
    remove_unlocked(*_locks(ledger))


def _locks(ledger: Path) -> tuple[Path, str, str]:
    """The folder of a ledger's locks, and how their names begin and end."""
    ledger = ledger.resolve()
    return ledger.parent, f".{ledger.name}.run-", ".lock"


# How far a ledger has certainly come, written beside it after every commit.
#
# SQLite takes the first damaged frame of its log for the end of the log, and a lost log for an
# empty one. What is left is a sound chain that ends too early, and releases that were seen would be
# drawn and paid again. So the number and hash of the newest entry are also kept here, before
# anybody sees what that entry released; a ledger that does not reach them is damaged.
#
# Two records take turns, each with a checksum: a crash while one is written leaves the other.
#
# Whoever restores ledger and mark together from one copy turns both back, and neither tells. An
# anchor is a second mark on another volume, or the newest entry as it was printed.

_RECORD, _SPACING = 8 + 32 + 32, 512
_PRINTED = re.compile("([0-9]{1,18}):([0-9a-f]{64})", re.ASCII)


class Mark(NamedTuple):
    """An entry that a ledger has for certain.

    Attributes:
        number: of the entry; 0 before the first.
        hash: of the entry.
    """

    number: int = 0
    hash: bytes = START

    @classmethod
    def of(cls, row: Row) -> Mark:
        """This entry."""
        return cls(row.number, row.hash)

    def __str__(self) -> str:
        return f"{self.number}:{self.hash.hex()}"


class MarkFile:
    """The mark beside a ledger.

    Args:
        ledger: its path.

    Attributes:
        path: of the file; None for an anchor that is the printed entry itself.

    Raises:
        LedgerError: from every method, where the file is missing, damaged or cannot be written.
    """

    path: Path | None
    _damaged = f": {RESTORE}"

    def __init__(self, ledger: Path) -> None:
        self.path = mark_path(ledger)

    def __str__(self) -> str:
        return "its mark"

    def read(self) -> Mark:
        """The newest entry that the ledger must have."""
        assert self.path is not None
        try:
            found = _newest(self.path.read_bytes())
        except OSError as error:
            raise LedgerError(f"{self.path}: {self._unreadable(error)}") from None
        if found is None:
            raise LedgerError(f"{self.path}: is damaged{self._damaged}")
        return found

    def advance(self, mark: Mark) -> None:
        """Make sure that the file is at least this far; durable on return."""
        if self.path is None:
            return
        with self._writable():
            handle = os.open(self.path, os.O_RDWR | getattr(os, "O_BINARY", 0))
            try:
                with suppress(OSError):  # a file system without locks
                    lock(handle, wait=True)  # other processes wait
                newest = _newest(os.read(handle, 2 * _SPACING))
                if newest is None or newest.number < mark.number:
                    os.lseek(handle, _SPACING * (mark.number % 2), os.SEEK_SET)
                    os.write(handle, _packed(mark))
                    sync(handle)
            finally:
                os.close(handle)

    def write(self, mark: Mark) -> None:
        """Make the file say this, whatever it said before."""
        with self._writable():
            self.begin(mark)

    def begin(self, mark: Mark) -> None:
        """Write the file anew, whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        if self.path is not None:
            with owners_file(self.path) as (handle, temporary):
                os.write(handle, _packed(mark))
                sync(handle)
                if not OPEN_FILES_MOVE:
                    os.close(handle)
                temporary.replace(self.path)

    def _unreadable(self, error: OSError) -> str:
        return f"{reason(error, 'unreadable')}: it belongs to the ledger: {RESTORE}"

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LedgerError(
                f"{self.path}: cannot be written ({reason(error)}): make it writable"
            ) from None


class Anchor(MarkFile):
    """How far a ledger has come, kept where a restored copy of it does not reach.

    Args:
        given: the file, which :meth:`create` makes; or the newest entry as it was printed, such as
            "12:9f86...", which the ledger must have and which is kept nowhere.
    """

    _damaged = (
        ", or no anchor: check the path; if it was the anchor, remove it, and adaptive-qs ledger "
        "restore makes it anew"
    )

    def __init__(self, given: str | Path) -> None:
        printed = _PRINTED.fullmatch(str(given).strip())
        self.path = None if printed else Path(given)
        self._given = Mark(int(printed[1]), bytes.fromhex(printed[2])) if printed else Mark()

    def __str__(self) -> str:
        return "the anchor" if self.path is None else f"the anchor {self.path}"

    def read(self) -> Mark:
        """See :meth:`MarkFile.read`."""
        return self._given if self.path is None else super().read()

    def check_apart(self, ledger: Path) -> None:
        """Refuse a file that belongs to the ledger, with which it would be turned back."""
        own = own_files(Path(os.path.realpath(ledger)))
        if self.path is not None and Path(os.path.realpath(self.path)) in own:
            raise LedgerError(
                f"{self.path}: belongs to the ledger itself and would be turned back with it: "
                "name a file on another volume"
            )

    def check_replaceable(self) -> None:
        """Refuse a file that is there and no anchor: nothing else may be replaced by one."""
        if self.path is not None and os.path.lexists(self.path):
            self.read()

    def create(self, mark: Mark) -> None:
        """Make the file, where there is none."""
        if self.path is None:
            raise LedgerError("an anchor is to be made: name a file on another volume for it")
        if os.path.lexists(self.path):
            raise LedgerError(f"{self.path} already exists. Choose another path for the anchor.")
        self.write(mark)

    def _unreadable(self, error: OSError) -> str:
        if isinstance(error, FileNotFoundError):
            return (
                "no such anchor: mount the volume that it is on, or make one with adaptive-qs "
                "ledger anchor"
            )
        return f"{reason(error, 'unreadable')}: make the anchor readable"


def _packed(mark: Mark) -> bytes:
    content = mark.number.to_bytes(8, "big") + mark.hash
    return content + hashlib.sha256(content).digest()


def _newest(data: bytes) -> Mark | None:
    found = []
    for start in (0, _SPACING):
        record = data[start : start + _RECORD]
        mark = Mark(int.from_bytes(record[:8], "big"), record[8:40])
        if len(record) == _RECORD and record == _packed(mark):
            found.append(mark)
    return max(found, default=None)
