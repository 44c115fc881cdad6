"""What says of a table that it is not private: a key in its metadata, and a file beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from adaptive_qs.data.files import atomic_writer, remove_file

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
def stamped(table: str | Path, stamp: Stamp) -> Iterator[None]:
    """Around the writing of a table: a file beside it says what its CSV has no place for.

    A table that is not private never stands without its stamp; the stamp of an earlier table is
    removed once it is replaced.

    Raises:
        InputError: the stamp cannot be written or removed.
    """
    beside = stamp_path(table)
    if stamp != PRIVATE:
        with atomic_writer(beside) as file:
            file.write(f"{Path(table).name}: {stamp}\n".encode())
    yield
    if stamp == PRIVATE:
        remove_file(beside)
