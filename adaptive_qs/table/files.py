"""Files that appear whole or not at all, and their formats."""

import contextlib
import errno
import fcntl
import glob
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from adaptive_qs.arguments import Registry, check_path
from adaptive_qs.errors import DataError, InputError, reason
from adaptive_qs.machine import Fault, reach

# Temporary files next to their targets: named after them, locked by their writer.
# A writer that is killed leaves its file behind. The lock is gone with it, so the next writer of
# the same target distinguishes such a file from one that is still being written, and removes it.

SUFFIX = ".part"


def lock(handle: int, wait: bool = False) -> None:
    """Lock an open file until it is closed; raise OSError if another process has it."""
    fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def create_partial(target: Path) -> tuple[int, Path]:
    """Create a private empty file next to a target; return a handle that locks it, and its path."""
    remove_stale(target)
    while True:
        handle, name = tempfile.mkstemp(prefix=_prefix(target), suffix=SUFFIX, dir=target.parent)
        with contextlib.suppress(OSError):  # a file system without locks
            lock(handle, wait=True)
        if os.path.exists(name):
            return handle, Path(name)
        os.close(handle)  # taken for a stale one before it was locked


def remove_stale(target: Path) -> None:
    """Remove the temporary files of a target whose writers are dead."""
    remove_unlocked(target.parent, _prefix(target), SUFFIX)


def remove_unlocked(folder: Path, prefix: str, suffix: str) -> None:
    """Remove files with this prefix and suffix unless a process holds a lock on them."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(prefix) and name.endswith(suffix):
                with (
                    contextlib.suppress(OSError),
                    _opened(folder / name, os.O_RDWR | os.O_NOFOLLOW) as handle,
                ):
                    lock(handle)
                    (folder / name).unlink()


def take_lock(path: Path) -> int | None:
    """Lock a file, which can be new; return its handle, or None if another process has it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock(handle)
        except OSError as error:
            os.close(handle)
            if error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
                return None
            raise
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        os.close(handle)  # the file of a lock that was released just now


def sync(handle: int) -> None:
    """Make a file durable; fsync on macOS leaves data in the memory of the disk."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with contextlib.suppress(OSError):  # a file system without it
            fcntl.fcntl(handle, full)
            return
    os.fsync(handle)


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable if the system can."""
    with contextlib.suppress(OSError), _opened(folder, os.O_RDONLY) as handle:
        sync(handle)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    handle = os.open(path, flags)
    try:
        yield handle
    finally:
        os.close(handle)


def _prefix(target: Path) -> str:
    name = os.fsencode(target.name)[:200].decode(sys.getfilesystemencoding(), errors="ignore")
    return f".{name}."


# Output files that appear whole or not at all.


@contextmanager
def atomic_writer(path: str | Path, replace: bool = True) -> Iterator[BinaryIO]:
    """Yield a binary file that gets its name when the block ends, or leaves no trace.

    Without ``replace`` it replaces no other file, which can have appeared during the block. Raises
    InputError if the file cannot be written, or would replace another one.
    """
    target = Path(path)
    handle, temporary = _temporary(target)
    try:
        with os.fdopen(handle, "w+b") as file:  # open, and so locked, until it has its name
            yield file
            file.flush()
            reach(Fault.WRITTEN)
            sync(file.fileno())
            reach(Fault.SYNCED)
            give_name(temporary, target, replace)
        reach(Fault.NAMED)
        sync_folder(target.parent)
    except OSError as error:
        raise _unwritable(target, error) from None
    finally:
        with contextlib.suppress(OSError):  # the next writer of this file removes it
            temporary.unlink()


class NameTaken(InputError):
    """The error that the name of a new file is in use."""


def give_name(temporary: Path, target: Path, replace: bool) -> None:
    """Give a whole file its name; without ``replace`` raise NameTaken if it is in use."""
    try:
        if replace:
            temporary.replace(target)
        elif not _linked(temporary, target):
            os.close(os.open(target, os.O_CREAT | os.O_EXCL))  # empty until it is replaced
            temporary.replace(target)
    except FileExistsError:
        raise NameTaken(
            f"{target} already exists. Use --force (force=True) to replace it, or choose another "
            "path."
        ) from None


def _linked(temporary: Path, target: Path) -> bool:
    """Return whether a file got a second name; raise FileExistsError if the name is in use."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except (AttributeError, OSError):  # no hard links on this system or file system
        return False
    return True


def compute_sha256(pieces: Iterable[bytes]) -> str:
    """Return the SHA-256 of bytes that come in pieces, in hexadecimal digits."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def sealed_digest(file: BinaryIO) -> str:
    """Return the SHA-256 of an open file, which is left at its end."""
    file.flush()
    file.seek(0)
    return compute_sha256(iter(partial(file.read, 2**20), b""))


def check_writable(path: str | Path) -> None:
    """Raise InputError, before any work is done, unless `atomic_writer` can write `path`."""
    handle, temporary = _temporary(Path(path))
    os.close(handle)
    temporary.unlink(missing_ok=True)


@contextmanager
def claimed(path: str | Path) -> Iterator[None]:
    """Claim an output; raise InputError if another process works for it or it cannot be written."""
    check_writable(path)
    lock = Path(path).parent / f"{_prefix(Path(path))}claim"
    try:
        handle = take_lock(lock)
    except OSError:  # a file system without locks
        handle = None
    else:
        if handle is None:
            raise InputError(
                f"{path} is being written by another run. Wait for its end, or use another path."
            )
    try:
        yield
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):
                lock.unlink()
            os.close(handle)


def check_new(path: str | Path, force: bool, option: str = "force=True") -> None:
    """Raise InputError if a file exists, unless ``force`` is set; ``option`` is the remedy."""
    if not force and os.path.lexists(path):
        raise InputError(
            f"{path} already exists. Use {option} to replace it, or choose another path."
        )


def check_name(path: str | Path) -> None:
    """Raise InputError if this system or its locale has no such file names."""
    with contextlib.suppress(UnicodeEncodeError):
        if b"\0" not in os.fsencode(path):
            return
    raise InputError(
        f"{str(path)!a}: this system or its locale has no such file names: rename the file, "
        "or choose a UTF-8 locale"
    )


def _temporary(target: Path) -> tuple[int, Path]:
    """Create an empty file next to the target, with the permissions of any new file."""
    check_name(target)
    try:
        with contextlib.suppress(FileNotFoundError):
            mode = target.stat().st_mode
            if stat.S_ISDIR(mode):
                raise is_folder(target)
            if not stat.S_ISREG(mode):
                raise InputError(f"{target} is not a regular file. Use another path.")
        handle, temporary = create_partial(target)
    except OSError as error:
        raise _unwritable(target, error) from None
    umask = os.umask(0)
    os.umask(umask)
    os.fchmod(handle, 0o666 & ~umask)
    return handle, temporary


def is_folder(target: str | Path) -> InputError:
    """Return the error that a folder has the path of a file to be written."""
    return InputError(f"{target} is a folder. Use the path of a file.")


def _unwritable(target: Path, error: OSError) -> InputError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    remedy = "Free some space" if full else "Create its folder, or use another path"
    return InputError(f"{target} cannot be written ({reason(error)}). {remedy}.")


def temporary_folder(folder: str | Path | None) -> Path:
    """Return the folder for temporary files; raise InputError if there is none."""
    path = Path(tempfile.gettempdir() if folder is None else folder)
    if not os.path.isdir(path):
        raise InputError(f"--temp-folder {path} is not a folder. Create it or choose another one.")
    return path


FORMATS: Registry[Any] = Registry(
    {
        ".csv": "adaptive_qs.table.write:CSV",
        ".csv.gz": "adaptive_qs.table.write:CSV_BY_GZIP",
        ".tsv": "adaptive_qs.table.write:TSV",
        ".tsv.gz": "adaptive_qs.table.write:TSV_BY_GZIP",
        ".parquet": "adaptive_qs.table.write:PARQUET",
        ".pq": "adaptive_qs.table.write:PARQUET",
        ".sqlite": "adaptive_qs.table.sql:SQLITE",
        ".db": "adaptive_qs.table.sql:SQLITE",
    }
)
"""Output formats of :mod:`adaptive_qs.table.write`, by the endings of file names."""
TAB_SEPARATED = (".tsv", ".tsv.gz")
"""Endings of CSV whose cells are separated by tabs."""
PARQUET_MAGIC = b"PAR1"
"""First bytes of Parquet files."""


def inside(path: str | Path) -> tuple[Path, str | None]:
    """Return the file, and the name of the table inside it if there is one.

    Raise DataError if it is no path; it is not quoted.
    """
    check_path("the table", path, DataError)
    file, found, name = str(path).rpartition("::")
    if not found or not file or os.path.exists(path):
        return Path(path), None
    return Path(file), name


def is_pattern(path: str | Path) -> bool:
    """Return whether a path is a pattern for file names, such as data/*.csv, and no file."""
    return glob.has_magic(str(path)) and not os.path.exists(inside(path)[0])


def is_table_file(path: str | Path) -> bool:
    """Return whether a file is a table by its name, or Parquet by its first bytes."""
    with contextlib.suppress(OSError, ValueError):  # what reads it explains them
        if Path(path).is_file():
            if str(path).lower().endswith((*FORMATS, ".xls", ".xlsx", ".duckdb")):
                return True
            with open(path, "rb") as file:
                return file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    return False


Stamp = Literal["private", "NOT PRIVATE: the noise came from an insecure seed; for tests only"]
PRIVATE: Stamp = "private"
NOT_PRIVATE: Stamp = "NOT PRIVATE: the noise came from an insecure seed; for tests only"
STAMP_KEY = b"adaptive_qs.stamp"
"""Key of the stamp in the metadata of every table that is made from a private one."""


class SampleDataset(NamedTuple):
    """Paths of a sample table and its public schema."""

    data: Path
    """A CSV file, compressed by gzip."""
    schema: Path
    """A schema file."""


def sample_dataset(name: str = "adult") -> SampleDataset:
    """Return the sample data set with this name; raise InputError if it is not installed."""
    for parent in Path(__file__).parents[1:3]:
        folder = parent / "datasets" / name
        sample = SampleDataset(folder / f"{name}.csv.gz", folder / "schema.json")
        if all(path.is_file() for path in sample):
            return sample
    raise InputError(f"sample data set {name!r} is not installed: reinstall the package")
