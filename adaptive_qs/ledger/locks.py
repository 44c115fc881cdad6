"""One process at a time works on a run; its lock is gone with the process, however it ends.

This spares the second process the work. That no release is made twice rests on the ledger itself,
where a run has one release at each position.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from adaptive_qs.data.partial import remove_unlocked

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
