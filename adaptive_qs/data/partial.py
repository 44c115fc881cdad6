"""Temporary files beside their targets: named after them, locked by their writer.

A writer that is killed leaves its file behind. The lock is gone with it, so the next writer of the
same target can tell such a file from one that is still being written, and removes it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

try:
    import fcntl
except ImportError:  # no such locks on this system: what the dead leave stays
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".part"
_NAME_BYTES = 200


def create_partial(target: Path) -> tuple[int, Path]:
    """A new empty file beside a target, readable by its owner only; those of the dead go.

    Returns:
        A handle for reading and writing, which holds the lock until it is closed, and the path.

    Raises:
        OSError: it cannot be created.
    """
    remove_stale(target)
    while True:
        handle, name = tempfile.mkstemp(prefix=_prefix(target), suffix=SUFFIX, dir=target.parent)
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(name):
            return handle, Path(name)
        os.close(handle)  # taken for a stale one before it was locked


def remove_stale(target: Path) -> None:
    """Remove the temporary files of a target whose writers are dead."""
    remove_unlocked(target.parent, _prefix(target), SUFFIX)


def remove_unlocked(folder: Path, prefix: str, suffix: str) -> None:
    """Remove files whose names begin and end so, unless a process holds a lock on them."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(prefix) and name.endswith(suffix):
                with contextlib.suppress(OSError):
                    _remove_unlocked(folder / name)


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove_unlocked(path: Path) -> None:
    """Raises OSError where a writer holds the lock, or gave the file its name meanwhile."""
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(handle)


def _prefix(target: Path) -> str:
    name = os.fsencode(target.name)[:_NAME_BYTES].decode(errors="ignore")
    return f".{name}."
