"""Files that appear whole or not at all, and what says of one that it is not private."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from adaptive_qs.arguments import Registry, check_path
from adaptive_qs.errors import DataError, InputError, reason
from adaptive_qs.machine import Fault, is_private, reach

# Temporary files beside their targets: named after them, locked by their writer.
#
# A writer that is killed leaves its file behind. The lock is gone with it, so the next writer of
# the same target can tell such a file from one that is still being written, and removes it.

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]
try:
    import msvcrt
except ImportError:
    msvcrt = None  # type: ignore[assignment]

SUFFIX = ".part"
_NAME_BYTES = 200


_LOCKED_BYTE = 2**30
"""Windows keeps others from reading what is locked: a byte behind all content is locked there."""


def lock(handle: int, wait: bool = False) -> None:
    """Lock an open file until it is closed.

    Raises:
        OSError: another process has it; with ENOLCK, this system cannot lock files.
    """
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return
    windows: Any = msvcrt
    if windows is None:
        raise OSError(errno.ENOLCK, "this system cannot lock files")
    before = os.lseek(handle, 0, os.SEEK_CUR)
    os.lseek(handle, _LOCKED_BYTE, os.SEEK_SET)
    try:
        windows.locking(handle, windows.LK_LOCK if wait else windows.LK_NBLCK, 1)
    finally:
        os.lseek(handle, before, os.SEEK_SET)


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
        with contextlib.suppress(OSError):  # a file system without locks
            lock(handle, wait=True)
        if os.path.exists(name):
            return handle, Path(name)
        os.close(handle)  # taken for a stale one before it was locked


def remove_stale(target: Path) -> None:
    """Remove the temporary files of a target whose writers are dead."""
    remove_unlocked(target.parent, _prefix(target), SUFFIX)


def remove_unlocked(folder: Path, prefix: str, suffix: str) -> None:
    """Remove files whose names begin and end so, unless a process holds a lock on them, or gives
    them their name meanwhile."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(prefix) and name.endswith(suffix):
                with (
                    contextlib.suppress(OSError),
                    _opened(folder / name, os.O_RDWR | NO_LINKS) as handle,
                ):
                    lock(handle)
                    (folder / name).unlink()


def take_lock(path: Path) -> int | None:
    """Lock a file, which is made if it does not exist.

    Returns:
        A handle that holds the lock until it is closed; None if another process has it.

    Raises:
        OSError: the file cannot be opened, or cannot be locked here.
    """
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


NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
OPEN_FILES_MOVE = os.name != "nt"
"""Whether a file can be renamed or removed while it is open."""


def sync(handle: int) -> None:
    """Make a file durable; fsync on macOS leaves data in the memory of the disk."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with contextlib.suppress(OSError):  # a file system without it
            fcntl.fcntl(handle, full)
            return
    os.fsync(handle)


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable, where the system can."""
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
    bytes_of = os.fsencode(target.name)[:_NAME_BYTES]
    name = bytes_of.decode(sys.getfilesystemencoding(), errors="ignore")
    return f".{name}."


# Output files that appear whole or not at all.

_PIECE = 2**20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def atomic_writer(path: str | Path, replace: bool = True) -> Iterator[BinaryIO]:
    """A binary file that is named `path` when the block ends, and leaves no trace if it fails.

    Args:
        path: the name.
        replace: whether the file may replace another one, which may have appeared during the block.

    Raises:
        InputError: the file cannot be written, or would replace another one.
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
            if not OPEN_FILES_MOVE:
                file.close()
            give_name(temporary, target, replace)
        reach(Fault.NAMED)
        sync_folder(target.parent)
    except OSError as error:
        raise _unwritable(target, error) from None
    finally:
        with contextlib.suppress(OSError):  # the next writer of this file removes it
            temporary.unlink()


class NameTaken(InputError):
    """Something has the name that a file was to get."""


def give_name(temporary: Path, target: Path, replace: bool) -> None:
    """Give a whole file its name; without ``replace`` only if nothing has this name.

    Raises:
        NameTaken: something has the name.
        OSError: the file cannot be named.
    """
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
    """Whether a file could be given a second name; raises FileExistsError if that is taken."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except (AttributeError, OSError):  # no hard links on this system or file system
        return False
    return True


def compute_sha256(pieces: Iterable[bytes]) -> str:
    """SHA-256 of bytes that come in pieces, in hexadecimal digits."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def sealed_digest(file: BinaryIO) -> str:
    """SHA-256 of all that was written to an open file, which is left at its end."""
    file.flush()
    file.seek(0)
    return compute_sha256(iter(partial(file.read, _PIECE), b""))


def check_writable(path: str | Path) -> None:
    """Make sure, before any work is done, that `atomic_writer` can write `path`.

    Raises:
        InputError: it cannot.
    """
    handle, temporary = _temporary(Path(path))
    os.close(handle)
    temporary.unlink(missing_ok=True)


@contextmanager
def claimed(path: str | Path) -> Iterator[None]:
    """Keep other processes from beginning work for the same output.

    Raises:
        InputError: another process is at work for it, or it cannot be written.
    """
    check_writable(path)
    lock = Path(path).parent / f"{_prefix(Path(path))}claim"
    try:
        handle = take_lock(lock)
    except OSError:  # a file system without locks
        handle = None
    else:
        if handle is None:
            raise InputError(
                f"{path}: another run is about to write it: wait for its end, or give another path"
            )
    try:
        yield
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):
                lock.unlink()
            os.close(handle)


def check_new(path: str | Path, force: bool, option: str = "force=True") -> None:
    """Refuse to replace a file, unless ``force`` says that it may be.

    Raises:
        InputError: there is something at the path; ``option`` says, in the caller's words, what
            would allow to replace it.
    """
    if not force and os.path.lexists(path):
        raise InputError(
            f"{path} already exists. Use {option} to replace it, or choose another path."
        )


def check_name(path: str | Path) -> None:
    """Refuse a path that no file of this system can have.

    Raises:
        InputError: it holds characters that the system or its locale cannot write.
    """
    with contextlib.suppress(UnicodeEncodeError):
        if b"\0" not in os.fsencode(path):
            return
    raise InputError(
        f"{str(path)!a}: this system or its locale has no such file names: rename the file, "
        "or choose a UTF-8 locale"
    )


def _temporary(target: Path) -> tuple[int, Path]:
    """A new empty file beside the target and its handle, with the permissions of any new file."""
    check_name(target)
    try:
        with contextlib.suppress(FileNotFoundError):
            mode = target.stat().st_mode
            if stat.S_ISDIR(mode):
                raise is_folder(target)
            if not stat.S_ISREG(mode):
                raise InputError(f"{target}: is not a regular file: give another path")
        handle, temporary = create_partial(target)
    except OSError as error:
        raise _unwritable(target, error) from None
    umask = os.umask(0)
    os.umask(umask)
    if hasattr(os, "fchmod"):  # elsewhere permissions are those of the folder
        os.fchmod(handle, 0o666 & ~umask)
    return handle, temporary


def is_folder(target: str | Path) -> InputError:
    """The error where a folder stands in the place of a file to be written."""
    return InputError(f"{target}: is a folder: give the path of a file")


def _unwritable(target: Path, error: OSError) -> InputError:
    mend = "free some space" if error.errno in _FULL else "give a path in a writable folder"
    return InputError(f"{target}: cannot be written ({reason(error)}): {mend}")


# Folders for what does not stay in memory: removed at the end, or by the next run if the process
# was killed.

_PREFIX, _LOCK = "adaptive-qs-", "codes"


def temporary_folder(folder: str | Path | None) -> Path:
    """The folder for what does not stay in memory, by default the system's.

    Raises:
        InputError: it is no folder.
    """
    path = Path(tempfile.gettempdir() if folder is None else folder)
    if not os.path.isdir(path):
        raise InputError(f"--temp-folder {path} is not a folder. Create it or choose another one.")
    return path


@contextmanager
def private_folder(inside: str | Path | None) -> Iterator[Path]:
    """A new folder that only this user can read; those of the dead go.

    Args:
        inside: as for :func:`temporary_folder`.

    Raises:
        InputError: it cannot be made.
    """
    parent = temporary_folder(inside)
    try:
        _remove_dead(parent)
        while True:
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            with contextlib.suppress(FileNotFoundError):  # not locked yet, so taken for a dead one
                handle, _ = create_partial(folder / _LOCK)
                break
    except OSError as error:
        raise InputError(
            f"temp-folder {parent}: cannot be written ({reason(error)}): name another one"
        ) from None
    try:
        yield folder
    finally:
        os.close(handle)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_dead(parent: Path) -> None:
    """Remove what :func:`private_folder` made and whose lock nobody holds; nothing else."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            locks = f"{_prefix(folder / _LOCK)}*{SUFFIX}"
            if is_private(folder) and any(folder.glob(locks)):
                remove_stale(folder / _LOCK)
                if not any(folder.glob(locks)):
                    shutil.rmtree(folder, ignore_errors=True)


# Whether a file holds a table, told without reading it.

FORMATS: Registry[Any] = Registry(
    {
        ".csv": "adaptive_qs.table.write:CSV",
        ".csv.gz": "adaptive_qs.table.write:CSV_BY_GZIP",
        ".tsv": "adaptive_qs.table.write:TSV",
        ".tsv.gz": "adaptive_qs.table.write:TSV_BY_GZIP",
        ".parquet": "adaptive_qs.table.write:PARQUET",
        ".pq": "adaptive_qs.table.write:PARQUET",
        ".sqlite": "adaptive_qs.table.containers:SQLITE",
        ".db": "adaptive_qs.table.containers:SQLITE",
        ".duckdb": "adaptive_qs.table.containers:DUCKDB",
    }
)
"""The output formats, as :mod:`adaptive_qs.table.write` has them, by the endings of file names."""
TAB_SEPARATED = (".tsv", ".tsv.gz")
"""Endings of CSV whose cells are separated by tabs."""
_OTHER_TABLES = (".xls", ".xlsx")
PARQUET_MAGIC = b"PAR1"
"""First bytes of Parquet files."""

# Files that hold several tables: one is named behind the file, as FILE::NAME.

BOOKS: Registry[Any] = Registry(
    {
        "Excel": "adaptive_qs.table.containers:open_workbook",
        "SQLite": "adaptive_qs.table.containers:open_sqlite",
        "DuckDB": "adaptive_qs.table.containers:open_duckdb",
    }
)
"""What opens a table inside a file, by the kind of file."""
BOOK_ENDINGS = {
    ".xlsx": "Excel workbook", ".sqlite": "SQLite database", ".duckdb": "DuckDB database",
}  # fmt: skip
"""What files with these endings have to be."""
_INSIDE = "::"


def inside(path: str | Path) -> tuple[Path, str | None]:
    """Return the file, and the name of the table inside it if there is one.

    Raises:
        DataError: it is no path; it is not quoted.
    """
    check_path("the table", path, DataError)
    file, found, name = str(path).rpartition(_INSIDE)
    if not found or not file or os.path.exists(path):
        return Path(path), None
    return Path(file), name


def is_pattern(path: str | Path) -> bool:
    """Whether it is a pattern for the names of files, such as data/*.csv, and no file itself, nor a
    table inside one."""
    return glob.has_magic(str(path)) and not os.path.exists(inside(path)[0])


def is_written_only(path: str | Path) -> bool:
    """Whether a file's name has the ending of a format that tables are not read from."""
    name = str(path).lower()
    endings = (suffix for suffix in FORMATS if name.endswith(suffix))
    return any(not FORMATS[suffix].readable for suffix in endings)


def is_table_file(path: str | Path) -> bool:
    """Whether there is a file that is a table by its name, or Parquet by its first bytes."""
    with contextlib.suppress(OSError, ValueError):  # whoever reads it explains them
        if Path(path).is_file():
            if str(path).lower().endswith((*FORMATS, *_OTHER_TABLES)):
                return True
            with open(path, "rb") as file:
                return file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    return False


# What says of a table that it is not private: a key in its metadata, and a file beside it.

Stamp = Literal["private", "NOT PRIVATE: the noise came from an insecure seed; for tests only"]
PRIVATE: Stamp = "private"
NOT_PRIVATE: Stamp = "NOT PRIVATE: the noise came from an insecure seed; for tests only"
STAMP_KEY = b"adaptive_qs.stamp"
"""Key of the stamp in the metadata of every table that comes out of a private one."""


def stamp_path(table: str | Path) -> Path:
    """The file beside a table that says that the table is not private."""
    path = Path(table)
    return path.parent / f"{path.name}.NOT-PRIVATE.txt"


@contextmanager
def stamped(table: str | Path, stamp: Stamp) -> Iterator[Callable[[], None]]:
    """Around the writing of a table: a file beside it says what its CSV has no place for.

    A table that is not private never stands without its stamp; the stamp of an earlier table is
    removed once it is replaced.

    Yields:
        What writes the stamp: to be called once the table is whole, before it has its name. So a
        run that is refused leaves none.

    Raises:
        InputError: the stamp cannot be written or removed.
    """
    beside = stamp_path(table)

    def put() -> None:
        if stamp != PRIVATE:
            with atomic_writer(beside) as file:
                file.write(f"{Path(table).name}: {stamp}\n".encode())

    yield put
    if stamp == PRIVATE:
        try:
            beside.unlink(missing_ok=True)
        except OSError as error:
            said = f"cannot be removed ({reason(error)}): remove it by hand"
            raise InputError(f"{beside}: {said}") from None


# The sample data shipped with the package.


class SampleDataset(NamedTuple):
    """Where a sample table and its public schema lie on disk."""

    data: Path
    """A CSV file, compressed by gzip."""
    schema: Path
    """A schema file."""


def sample_dataset(name: str = "adult") -> SampleDataset:
    """The sample data set with this name, in an installed package or in a source checkout.

    Raises:
        InputError: there is no such data set.
    """
    for parent in Path(__file__).parents[1:3]:
        folder = parent / "datasets" / name
        sample = SampleDataset(folder / f"{name}.csv.gz", folder / "schema.json")
        if all(path.is_file() for path in sample):
            return sample
    raise InputError(f"sample data set {name!r} is not installed: reinstall the package")
