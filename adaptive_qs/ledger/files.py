"""The files next to a ledger: its key, its locks, its mark and anchors."""

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
from typing import NamedTuple, Self

from adaptive_qs.errors import LedgerError, reason
from adaptive_qs.ledger.entries import RESTORE, START, Row
from adaptive_qs.table import files


def list_own_files(ledger: Path) -> list[Path]:
    """Return the paths of a ledger and of the files that belong to it."""
    return [Path(f"{ledger}{end}") for end in ("", ".key", ".mark", "-wal", "-shm")]


def key_path(ledger: str | Path) -> Path:
    """Return the path of the key of a ledger, independent of links to the ledger."""
    return Path(f"{os.path.realpath(ledger)}.key")


def mark_path(ledger: str | Path) -> Path:
    """Return the path of the mark of a ledger, independent of links to the ledger."""
    return Path(f"{os.path.realpath(ledger)}.mark")


@contextmanager
def create_private_file(target: Path) -> Iterator[tuple[int, Path]]:
    """Yield the handle and the temporary path of a new file that only its owner can read.

    The block renames it to the target. Neither handle nor path outlives the block.
    """
    handle, temporary = files.create_partial(target)
    try:
        yield handle, temporary
    finally:
        with suppress(OSError):  # closed before it was renamed
            os.close(handle)
        temporary.unlink(missing_ok=True)
    files.sync_folder(target.parent)


# The private key of a ledger, which hides the table that a run read.
#
# With a plain hash of a table, anyone who sees the ledger could test guesses of the whole table. So
# the hash is keyed. The key is in a file of its own next to the ledger and is never exported.

KEY_BYTES = 32


def keyed_hash(ledger: str | Path, chunks: Iterable[bytes], make: bool = True) -> str:
    """Return the HMAC-SHA256 of bytes under the ledger's key; LedgerError without a usable key."""
    path = key_path(ledger)
    if not make and not path.exists():
        raise LedgerError(
            f"{path}: the key that recognises tables is missing. Restore it, or close the "
            "interrupted run with adaptive-qs ledger close."
        )
    try:
        files.remove_stale(path)
        if not path.exists():
            with create_private_file(path) as (handle, temporary):
                os.write(handle, f"{secrets.token_hex(KEY_BYTES)}\n".encode())
                files.sync(handle)
                with suppress(files.NameTaken):  # another process was faster
                    files.give_name(temporary, path, replace=False)
        key = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as error:
        why = reason(error, "not a key") if isinstance(error, OSError) else "not a key"
        raise LedgerError(
            f"{path}: the key of the ledger cannot be read or created ({why}). Repair it, or "
            "remove the file if no interrupted run will be resumed."
        ) from None
    if len(key) != KEY_BYTES:
        raise LedgerError(f"{path} is not the key of a ledger. Restore it.")
    digest = hmac.new(key, digestmod=hashlib.sha256)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


# One process at a time works on a run. Its lock ends with the process.
#
# The lock only saves a second process the work: the ledger itself has one release of a run at each
# position. A fork also has the open file, and closes it without unlocking, which would take the
# lock from the process that works on the run.


class RunLock:
    """The lock of one run, if ``held`` until :meth:`release` or until nothing refers to it."""

    def __init__(self, ledger: Path, run: int) -> None:
        folder, prefix, suffix = _locks(ledger)
        self._path = folder / f"{prefix}{run}{suffix}"
        self._process = os.getpid()
        try:
            self._handle = files.take_lock(self._path)
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

    def release(self) -> None:
        """Release the lock and remove its file."""
        if self._handle is None:
            return
        if self._process == os.getpid():  # not a fork of the process that took it
            with suppress(OSError):  # the next process that opens the ledger removes it
                self._path.unlink()
        self._closed()
        self._handle = None


def remove_dead_locks(ledger: Path) -> None:
    """Remove the files of locks whose processes were killed."""
    files.remove_unlocked(*_locks(ledger))


def _locks(ledger: Path) -> tuple[Path, str, str]:
    """Return the folder of a ledger's locks, and the prefix and suffix of their names."""
    ledger = ledger.resolve()
    return ledger.parent, f".{ledger.name}.run-", ".lock"


# The mark: number and hash of the newest entry, written next to a ledger after every commit.
#
# SQLite takes the first damaged frame of its log for the end of the log, and a lost log for an
# empty one: an intact chain that ends too early. So the mark is written before released values are
# seen, and a ledger that does not reach it is damaged. Two records take turns, each with a
# checksum. An anchor is a second mark, where a copy does not restore it together with the ledger.

_RECORD, _SPACING = 8 + 32 + 32, 512
_PRINTED = re.compile("([0-9]{1,18}):([0-9a-f]{64})", re.ASCII)


class Mark(NamedTuple):
    """An entry that a ledger must have: its number, 0 before the first, and its hash."""

    number: int = 0
    hash: bytes = START

    @classmethod
    def of(cls, row: Row) -> Self:
        """Return the mark of an entry."""
        return cls(row.number, row.hash)

    def __str__(self) -> str:
        return f"{self.number}:{self.hash.hex()}"


class MarkFile:
    """The mark next to a ledger; its path is None for an anchor that is a printed entry.

    Every method raises LedgerError if the file is missing, damaged or cannot be written.
    """

    path: Path | None
    _damaged = f": {RESTORE}"

    def __init__(self, ledger: Path) -> None:
        self.path = mark_path(ledger)

    def __str__(self) -> str:
        return "its mark"

    def read(self) -> Mark:
        """Return the newest entry that the ledger must have."""
        assert self.path is not None
        try:
            found = _newest(self.path.read_bytes())
        except OSError as error:
            raise LedgerError(f"{self.path}: {self._unreadable(error)}") from None
        if found is None:
            raise LedgerError(f"{self.path}: is damaged{self._damaged}")
        return found

    def advance(self, mark: Mark) -> None:
        """Write the mark unless the file has a later one; durable on return."""
        if self.path is None:
            return
        with self._writable():
            handle = os.open(self.path, os.O_RDWR | getattr(os, "O_BINARY", 0))
            try:
                with suppress(OSError):  # a file system without locks
                    files.lock(handle, wait=True)  # other processes wait
                newest = _newest(os.read(handle, 2 * _SPACING))
                if newest is None or newest.number < mark.number:
                    os.lseek(handle, _SPACING * (mark.number % 2), os.SEEK_SET)
                    os.write(handle, _packed(mark))
                    files.sync(handle)
            finally:
                os.close(handle)

    def write(self, mark: Mark) -> None:
        """Write the mark, replacing any other."""
        with self._writable():
            self.begin(mark)

    def begin(self, mark: Mark) -> None:
        """Write a new file atomically; raise OSError if it cannot be written."""
        if self.path is not None:
            with create_private_file(self.path) as (handle, temporary):
                os.write(handle, _packed(mark))
                files.sync(handle)
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
    """A mark that is kept apart from the ledger, so that a restored copy does not include it.

    It is a file that :meth:`create` makes, or an entry as it was printed, such as "12:9f86...",
    which the ledger must have and which is not stored.
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
        return self._given if self.path is None else super().read()

    def check_apart(self, ledger: Path) -> None:
        """Raise LedgerError for a file of the ledger, which a copy of it would include."""
        own = list_own_files(Path(os.path.realpath(ledger)))
        if self.path is not None and Path(os.path.realpath(self.path)) in own:
            raise LedgerError(
                f"{self.path}: belongs to the ledger itself and would be turned back with it: "
                "name a file on another volume"
            )

    def create(self, mark: Mark) -> None:
        """Create the file; raise LedgerError if it exists."""
        if self.path is None:
            raise LedgerError("an anchor is to be made: name a file on another volume for it")
        if os.path.lexists(self.path):
            raise LedgerError(f"{self.path} exists already. Use another path for the anchor.")
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
