"""The files beside a ledger: its key, its locks, its mark and anchors."""

from __future__ import annotations

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

from adaptive_qs.errors import LedgerError
from adaptive_qs.ledger.entries import RESTORE, START
from adaptive_qs.table.files import create_partial, remove_stale, remove_unlocked, sync_folder

# The private key of a ledger, and what it hides: which table a run read.
#
# A plain hash of a table would let anyone who sees the ledger test guesses of the whole table. So
# the hash is keyed, and the key lies in a file of its own beside the ledger that is never exported.

KEY_BYTES = 32


def key_path(ledger: str | Path) -> Path:
    """Where the key of a ledger lies; the same whatever links lead to the ledger."""
    return Path(f"{os.path.realpath(ledger)}.key")


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
    digest = hmac.new(_key(path), digestmod=hashlib.sha256)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _key(path: Path) -> bytes:
    try:
        remove_stale(path)
        if not path.exists():
            _make(path)
        key = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a key"
        raise LedgerError(
            f"{path}: the ledger's key cannot be read or made ({reason.lower()}): mend that, or "
            "remove the file if no interrupted run is to be resumed"
        ) from None
    if len(key) != KEY_BYTES:
        raise LedgerError(f"{path}: is not a ledger's key: restore it")
    return key


def _make(path: Path) -> None:
    """Write a new key, readable by its owner only, whole or not at all."""
    handle, temporary = create_partial(path)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(KEY_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
            os.link(temporary, path)
    except FileExistsError:
        pass  # another process was faster
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


# One process at a time works on a run; its lock is gone with the process, however it ends.
#
# This spares the second process the work. That no release is made twice rests on the ledger itself,
# where a run has one release at each position.

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]


_SUFFIX = ".lock"


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """An existing file, open for reading and writing, for which other processes wait.

    Raises:
        OSError: it cannot be opened.
    """
    handle = os.open(path, os.O_RDWR)
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


class RunLock:
    """The lock of one run, held until :meth:`release` or until nothing refers to it any more.

    Attributes:
        held: whether it could be had.

    Raises:
        OSError: the file of the lock cannot be opened.
    """

    def __init__(self, ledger: Path, run: int) -> None:
        """Try to take the lock."""
        ledger = ledger.resolve()
        self._path = ledger.with_name(f"{_prefix(ledger)}{run}{_SUFFIX}")
        self._process = os.getpid()
        self._handle = self._taken()
        self.held = self._handle is not None
        if self._handle is not None:
            self._closed = weakref.finalize(self, os.close, self._handle)

    def release(self) -> None:
        """Let go, and remove the file."""
        if self._handle is None:
            return
        if self.mine:
            with suppress(OSError):  # whoever opens the ledger next removes it
                self._path.unlink()
        self._closed()
        self._handle = None

    @property
    def mine(self) -> bool:
        """Whether this process took the lock, and not the one that it was forked from."""
        return self._process == os.getpid()

    def _taken(self) -> int | None:
        """A handle that holds the lock, if nobody else has it."""
        while True:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            if fcntl is None:
                return handle
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(handle)
                return None
            if self._names(handle):
                return handle
            os.close(handle)  # the file of a lock that was let go of just now

    def _names(self, handle: int) -> bool:
        """Whether the path still names the file of this handle."""
        try:
            return os.path.samestat(os.fstat(handle), os.stat(self._path))
        except FileNotFoundError:
            return False


def remove_dead_locks(ledger: Path) -> None:
    """Remove the files of locks whose processes were killed."""
    ledger = ledger.resolve()
    remove_unlocked(ledger.parent, _prefix(ledger), _SUFFIX)


def _prefix(ledger: Path) -> str:
    return f".{ledger.name}.run-"


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


class Mark(NamedTuple):
    """An entry that a ledger has for certain.

    Attributes:
        number: of the entry; 0 before the first.
        hash: of the entry.
    """

    number: int = 0
    hash: bytes = START

    def __str__(self) -> str:
        return f"{self.number}:{self.hash.hex()}"


def own_files(ledger: Path) -> list[Path]:
    """A ledger and the files beside it that belong to it."""
    return [Path(f"{ledger}{end}") for end in ("", ".key", ".mark", "-wal", "-shm")]


def mark_path(ledger: Path) -> Path:
    """Where the mark of a ledger lies; the same whatever links lead to the ledger."""
    return Path(f"{os.path.realpath(ledger)}.mark")


def write_mark(path: Path, mark: Mark) -> None:
    """Begin a mark anew, whole or not at all.

    Args:
        path: of the mark.
        mark: what it says from now on.

    Raises:
        OSError: it cannot be written.
    """
    handle, temporary = create_partial(path)
    try:
        os.pwrite(handle, _packed(mark), 0)
        os.fsync(handle)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)
    sync_folder(path.parent)


def read_mark(ledger: Path) -> Mark:
    """The newest entry that the ledger must have.

    Raises:
        LedgerError: the mark is missing or damaged.
    """
    path = mark_path(ledger)
    try:
        found = _newest(path.read_bytes())
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        raise LedgerError(f"{path}: {reason}: it belongs to the ledger: {RESTORE}") from None
    if found is None:
        raise LedgerError(f"{path}: is damaged: {RESTORE}")
    return found


def advance_mark(path: Path, mark: Mark) -> None:
    """Make sure that a mark is at least this far; durable on return.

    Raises:
        LedgerError: it cannot be written.
    """
    try:
        with locked(path) as handle:
            newest = _newest(os.pread(handle, 2 * _SPACING, 0))
            if newest is None or newest.number < mark.number:
                os.pwrite(handle, _packed(mark), _SPACING * (mark.number % 2))
                os.fsync(handle)
    except OSError as error:
        raise _unwritable(path, error) from None


class Anchor:
    """How far a ledger has come, kept where a restored copy of it does not reach.

    Args:
        given: the file, which :meth:`create` makes; or the newest entry as it was printed, such as
            "12:9f86...", which the ledger must have and which is kept nowhere.
    """

    def __init__(self, given: str | Path) -> None:
        printed = _PRINTED.fullmatch(str(given).strip())
        self._path = None if printed else Path(given)
        self._given = Mark(int(printed[1]), bytes.fromhex(printed[2])) if printed else Mark()

    def __str__(self) -> str:
        return "the anchor" if self._path is None else f"the anchor {self._path}"

    @property
    def path(self) -> Path | None:
        """The file; None where the entry itself was given."""
        return self._path

    def check_apart(self, ledger: Path) -> None:
        """Refuse a file that belongs to the ledger, with which it would be turned back.

        Raises:
            LedgerError: it is one.
        """
        if self._path is None:
            return
        if Path(os.path.realpath(self._path)) in own_files(Path(os.path.realpath(ledger))):
            raise LedgerError(
                f"{self._path}: belongs to the ledger itself and would be turned back with it: "
                "name a file on another volume"
            )

    def read(self) -> Mark:
        """The newest entry that the ledger must have.

        Raises:
            LedgerError: the file is missing or damaged.
        """
        if self._path is None:
            return self._given
        try:
            found = _newest(self._path.read_bytes())
        except FileNotFoundError:
            raise LedgerError(
                f"{self._path}: no such anchor: mount the volume that it is on, or make one with "
                "adaptive-qs ledger anchor"
            ) from None
        except OSError as error:
            reason = (error.strerror or "unreadable").lower()
            raise LedgerError(f"{self._path}: {reason}: make the anchor readable") from None
        if found is None:
            raise LedgerError(
                f"{self._path}: is damaged, or no anchor: check the path; if it was the anchor, "
                "remove it, and adaptive-qs ledger restore makes it anew"
            )
        return found

    def check_replaceable(self) -> None:
        """Refuse a file that is there and no anchor: nothing else may be replaced by one.

        Raises:
            LedgerError: it is such a file.
        """
        if self._path is not None and os.path.lexists(self._path):
            self.read()

    def advance(self, mark: Mark) -> None:
        """Make sure that the file is at least this far; durable on return.

        Raises:
            LedgerError: it cannot be written.
        """
        if self._path is not None:
            advance_mark(self._path, mark)

    def write(self, mark: Mark) -> None:
        """Make the file say this, whatever it said before.

        Raises:
            LedgerError: it cannot be written.
        """
        if self._path is None:
            return
        try:
            write_mark(self._path, mark)
        except OSError as error:
            raise _unwritable(self._path, error) from None

    def create(self, mark: Mark) -> None:
        """Make the file.

        Raises:
            LedgerError: there is one already, or it cannot be written.
        """
        if self._path is None:
            raise LedgerError("an anchor is to be made: name a file on another volume for it")
        if os.path.lexists(self._path):
            raise LedgerError(f"{self._path}: exists already: give another path for the anchor")
        self.write(mark)


_PRINTED = re.compile("([0-9]{1,18}):([0-9a-f]{64})", re.ASCII)


def _unwritable(path: Path, error: OSError) -> LedgerError:
    reason = (error.strerror or "unknown reason").lower()
    return LedgerError(f"{path}: cannot be written ({reason}): make it writable")


def _packed(mark: Mark) -> bytes:
    content = mark.number.to_bytes(8, "big") + mark.hash
    return content + hashlib.sha256(content).digest()


def _newest(data: bytes) -> Mark | None:
    """The newer of the records that are whole."""
    found = []
    for start in (0, _SPACING):
        record = data[start : start + _RECORD]
        mark = Mark(int.from_bytes(record[:8], "big"), record[8:40])
        if len(record) == _RECORD and record == _packed(mark):
            found.append(mark)
    return max(found, default=None)
