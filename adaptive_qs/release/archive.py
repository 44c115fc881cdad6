"""A zip of texts and npy members: the same members give the same bytes, and nothing is run.

Arrays are stored uncompressed, so that no member can be larger than the file that holds it; texts
have a size limit. Pickles are never read.
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.files import atomic_writer
from adaptive_qs.errors import InputError

MAX_TEXT_BYTES = 2**28
_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNIX = 3

DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError,
    UnicodeDecodeError, ValueError, RecursionError, OSError, OverflowError, SyntaxError,
    struct.error,
)  # fmt: skip
"""What the libraries raise on damaged bytes."""


class ArchiveWriter:
    """Members written in the order of the calls."""

    def __init__(self, file: BinaryIO) -> None:
        self._zip = zipfile.ZipFile(file, "w")

    def add_text(self, name: str, text: str) -> None:
        """A member of UTF-8 text."""
        member = _member(name)
        member.compress_type = zipfile.ZIP_DEFLATED
        self._zip.writestr(member, text.encode(), compresslevel=6)

    def add_array(self, name: str, parts: Sequence[NDArray[np.float64]]) -> None:
        """A member with these arrays, flattened and joined, as one npy vector of float64."""
        member = _member(name)
        header = {"descr": "<f8", "fortran_order": False, "shape": (sum(p.size for p in parts),)}
        with self._zip.open(member, "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(file, header)
            for part in parts:
                file.write(np.ascontiguousarray(part, dtype="<f8").tobytes())

    def close(self) -> None:
        """Write the directory of members."""
        self._zip.close()


def _member(name: str) -> zipfile.ZipInfo:
    """A member that tells nothing of when and on what system it was written."""
    member = zipfile.ZipInfo(name, _EPOCH)
    member.create_system = _UNIX
    member.external_attr = 0o644 << 16
    return member


@contextmanager
def create_archive(path: str | Path) -> Iterator[ArchiveWriter]:
    """An archive that appears at ``path`` whole or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    with atomic_writer(path) as file:
        writer = ArchiveWriter(file)
        try:
            yield writer
        finally:  # also of a file that is given up, or it would be closed when it is forgotten
            writer.close()


class ArchiveReader:
    """Members by name, each checked before it is taken into memory."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._zip = archive

    def text(self, name: str) -> str:
        """A member of text."""
        member = self._zip.getinfo(name)
        if member.file_size > MAX_TEXT_BYTES:
            raise ValueError(f"{name} is too large")
        return self._zip.read(member).decode()

    def json(self, name: str) -> Any:
        """A JSON member, parsed."""
        return json.loads(self.text(name))

    def arrays(self, name: str, shapes: Sequence[tuple[int, ...]]) -> list[NDArray[np.float64]]:
        """The arrays of these shapes that were joined into one member."""
        member = self._zip.getinfo(name)
        sizes = [int(np.prod(shape, dtype=object)) for shape in shapes]
        total = sum(sizes)
        if member.compress_type != zipfile.ZIP_STORED or member.file_size < 8 * total:
            raise ValueError(f"{name} has an unexpected size")
        with self._zip.open(member) as file:
            if np.lib.format.read_magic(file) != (1, 0):
                raise ValueError(f"{name} has an unexpected version")
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
            if shape != (total,) or fortran or dtype != np.dtype("<f8"):
                raise ValueError(f"{name} has an unexpected shape")
            values = np.frombuffer(file.read(), dtype="<f8").astype(np.float64)
        if values.size != total or not np.isfinite(values).all():
            raise ValueError(f"{name} does not hold finite numbers")
        pieces = np.split(values, np.cumsum(sizes)[:-1])
        return [piece.reshape(shape) for piece, shape in zip(pieces, shapes)]


@contextmanager
def open_archive(path: str | Path, kind: str) -> Iterator[ArchiveReader]:
    """The archive at ``path``; whatever damage is met becomes one line.

    Args:
        path: the file.
        kind: what it should be, for the message.

    Raises:
        InputError: the file is missing, damaged, or something else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield ArchiveReader(archive)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: no such file: check the path") from None
    except (PermissionError, IsADirectoryError) as error:
        reason = (error.strerror or "unreadable").lower()
        raise InputError(f"{path}: {reason}: check the path") from None
    except DAMAGE:
        raise InputError(
            f"{path}: is not a readable {kind}: it is damaged or of another kind, copy it again"
        ) from None
