"""Output files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from adaptive_qs.data.partial import create_partial, sync_folder
from adaptive_qs.errors import InputError
from adaptive_qs.faults import NAMED, SYNCED, WRITTEN, reach

_PIECE = 2**20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def atomic_writer(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file that replaces `path` when the block ends, and leaves no trace if it fails.

    Raises:
        InputError: the file cannot be written.
    """
    target = Path(path)
    handle, temporary = _temporary(target)
    try:
        with os.fdopen(handle, "w+b") as file:  # open, and so locked, until it has its name
            yield file
            file.flush()
            reach(WRITTEN)
            os.fsync(file.fileno())
            reach(SYNCED)
            temporary.replace(target)
        reach(NAMED)
        sync_folder(target.parent)
    except OSError as error:
        raise _unwritable(target, error) from None
    finally:
        with contextlib.suppress(OSError):  # the next writer of this file removes it
            temporary.unlink()


def sealed_digest(file: BinaryIO) -> str:
    """SHA-256 of all that was written to an open file, which is left at its end."""
    file.flush()
    file.seek(0)
    digest = hashlib.sha256()
    for piece in iter(partial(file.read, _PIECE), b""):
        digest.update(piece)
    return digest.hexdigest()


def remove_file(path: str | Path) -> None:
    """Remove a file where there is one.

    Raises:
        InputError: it cannot be removed.
    """
    try:
        Path(path).unlink(missing_ok=True)
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise InputError(f"{path}: cannot be removed ({reason}): remove it by hand") from None


def check_writable(path: str | Path) -> None:
    """Make sure, before any work is done, that `atomic_writer` can write `path`.

    Raises:
        InputError: it cannot.
    """
    handle, temporary = _temporary(Path(path))
    os.close(handle)
    temporary.unlink(missing_ok=True)


def check_new(path: str | Path, force: bool, option: str = "force=True") -> None:
    """Refuse to replace a file that nobody said may be replaced.

    Args:
        path: to be written.
        force: whether it may be.
        option: what says so, in the caller's words.

    Raises:
        InputError: there is something at the path, and ``force`` is not set.
    """
    if not force and os.path.exists(path):  # never raises, unlike Path.exists
        raise InputError(
            f"{path}: exists already: add {option} to replace it, or give another path"
        )


def _temporary(target: Path) -> tuple[int, Path]:
    """A new empty file beside the target and its handle, with the permissions of any new file."""
    try:
        with contextlib.suppress(FileNotFoundError):
            _check_kind(target, target.stat().st_mode)
        handle, temporary = create_partial(target)
    except OSError as error:
        raise _unwritable(target, error) from None
    umask = os.umask(0)
    os.umask(umask)
    os.fchmod(handle, 0o666 & ~umask)
    return handle, temporary


def _check_kind(target: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise InputError(f"{target}: is a folder: give the path of a file")
    if not stat.S_ISREG(mode):
        raise InputError(f"{target}: is not a regular file: give another path")


def _unwritable(target: Path, error: OSError) -> InputError:
    reason = (error.strerror or "unknown reason").lower()
    mend = "free some space" if error.errno in _FULL else "give a path in a writable folder"
    return InputError(f"{target}: cannot be written ({reason}): {mend}")
