"""One process at a time works on a run; its lock is gone with the process, however it ends.

This spares the second process the work. That no release is made twice rests on the ledger itself,
where a run has one release at each position.
"""

from __future__ import annotations

import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]


class RunLock:
    """The lock of one run, held until :meth:`release`.

    Attributes:
        held: whether it could be had.
    """

    def __init__(self, ledger: Path, run: int) -> None:
        """Try to take the lock."""
        self._path = ledger.with_name(f".{ledger.name}.run-{run}.lock")
        self._handle: int | None = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        self.held = True
        if fcntl is not None:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._handle)
                self._handle, self.held = None, False

    def release(self) -> None:
        """Let go, and remove the file."""
        if self._handle is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = None
