"""A zip of texts and npy members: the same members give the same bytes, and nothing is run.

Members are stored uncompressed. Archives come from others, and earlier versions compressed texts:
these are bounded in size, in values and in their compression before they are parsed, and all of it
counts against a ceiling of memory. Pickles are never read.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import AdaptiveQsError, InputError, ResourceExceeded, reason
from adaptive_qs.jsonfile import Claim, bounded_text, parse_json
from adaptive_qs.machine import memory_claims
from adaptive_qs.table.files import atomic_writer, compute_sha256, sealed_digest

MOST_RATIO = 200
"""Greatest ratio of a long text to its compressed bytes. Equal charges compress 50 times, lists of
columns 8 times; only a bomb compresses 1,000 times."""

DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError,
    UnicodeDecodeError, ValueError, RecursionError, OSError, ArithmeticError, SyntaxError,
    struct.error, expat.ExpatError,
)  # fmt: skip
"""Exceptions of the libraries on damaged bytes."""


def npy_bytes(parts: Sequence[NDArray[np.float64]]) -> Iterator[bytes]:
    """Yield these arrays, flattened and joined, as the bytes of one npy vector of float64."""
    header = io.BytesIO()
    shape = (sum(part.size for part in parts),)
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    yield header.getvalue()
    for part in parts:
        yield np.ascontiguousarray(part, dtype="<f8").tobytes()


Members = Iterable[tuple[str, str | Sequence[NDArray[np.float64]]]]
"""Texts, and arrays that are joined as one npy vector of float64, by name."""


def check_archive_name(path: str | Path) -> None:
    """Raise InputError unless the name of a release ends in .zip."""
    if Path(path).suffix.lower() != ".zip":
        raise InputError(f"{path}: a release is a zip archive. Use a name that ends in .zip.")


def write_archive(path: str | Path, members: Members, replace: bool = True) -> None:
    """Write an archive of these members, whole or not at all; raise InputError if that fails."""
    check_archive_name(path)
    with atomic_writer(path, replace) as file:
        _pack(file, members)


def is_packed(path: str | Path, members: Members) -> bool:
    """Return whether a file is, byte for byte, the archive of these members.

    The fresh one is held in memory: readers of the file claimed its arrays twice.
    """
    fresh = io.BytesIO()
    _pack(fresh, members)
    with open(path, "rb") as file:
        return sealed_digest(fresh) == sealed_digest(file)


def _pack(file: IO[bytes], members: Members) -> None:
    """Write all members uncompressed: compressed bytes depend on the library."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members:
            member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            member.create_system = 3
            member.external_attr = 0o644 << 16
            if isinstance(content, str):
                archive.writestr(member, content.encode())
                continue
            with archive.open(member, "w", force_zip64=True) as target:
                for piece in npy_bytes(content):
                    target.write(piece)


class ArchiveReader:
    """Members of an archive by name, each checked before it is read, under one ceiling."""

    def __init__(self, archive: zipfile.ZipFile, claim: Claim, folder: str = "") -> None:
        self._zip = archive
        self.claim = claim
        self._folder = folder

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all members, in order."""
        names, folder = self._zip.namelist(), self._folder
        return tuple(name.removeprefix(folder) for name in names if name.startswith(folder))

    def within(self, folder: str) -> ArchiveReader:
        """Return the members in a folder, by their names there."""
        return ArchiveReader(self._zip, self.claim, f"{self._folder}{folder}/")

    def _member(self, name: str) -> zipfile.ZipInfo:
        return self._zip.getinfo(self._folder + name)

    def text(self, name: str) -> str:
        """Return a member of text."""
        member = self._member(name)
        if member.file_size > max(2**20, MOST_RATIO * member.compress_size):
            raise ValueError(f"{name} was compressed further than any text of a release")
        return bounded_text(self._pieces(member), self.claim)

    def json(self, name: str) -> Any:
        """Return a JSON member, parsed."""
        return parse_json(self.text(name))

    def sha256(self, name: str) -> str:
        """Return the digest of a member's bytes."""
        return compute_sha256(self._pieces(self._member(name)))

    def arrays(self, name: str, shapes: Sequence[tuple[int, ...]]) -> list[NDArray[np.float64]]:
        """Return the arrays of these shapes that were joined into one member."""
        member = self._member(name)
        sizes = [int(np.prod(shape, dtype=object)) for shape in shapes]
        total = sum(sizes)
        if member.compress_type != zipfile.ZIP_STORED or member.file_size < 8 * total:
            raise ValueError(f"{name} has an unexpected size")
        self.claim(2 * member.file_size)
        with self._zip.open(member) as file:
            magic, length = file.read(8), file.read(2)
            header = file.read(int.from_bytes(length, "little"))
            known = rb"\{'descr': '<f8', 'fortran_order': False, 'shape': \((\d{1,18}),\), \} *\n"
            found = re.fullmatch(known, header)  # NumPy would parse anything
            if magic != b"\x93NUMPY\x01\x00" or found is None or int(found[1]) != total:
                raise ValueError(f"{name} has an unexpected header")
            values = np.frombuffer(file.read(), dtype="<f8").astype(np.float64)
        if values.size != total or not np.isfinite(values).all():
            raise ValueError(f"{name} does not hold finite numbers")
        pieces = np.split(values, np.cumsum(sizes)[:-1])
        return [piece.reshape(shape) for piece, shape in zip(pieces, shapes)]

    def _pieces(self, member: zipfile.ZipInfo) -> Iterator[bytes]:
        """Yield the member in pieces: no more is unpacked than is read."""
        with self._zip.open(member) as file:
            yield from iter(partial(file.read, 2**16), b"")


@contextmanager
def open_archive(
    path: str | Path, kind: str, max_memory: int | str | None = None
) -> Iterator[ArchiveReader]:
    """Yield the archive at ``path``, of a kind; damage becomes an error of one line.

    Raises:
        InputError: If the file is missing, damaged, or something else.
        ResourceExceeded: If reading it needs more memory than ``max_memory``.
    """
    claim = memory_claims(max_memory)
    try:
        with _Guarded(path) as file, zipfile.ZipFile(file) as archive:
            file.most_bytes = None
            if len(set(archive.namelist())) < len(archive.namelist()):
                raise ValueError("two members have one name")
            _refuse_additions(archive)
            yield ArchiveReader(archive, claim)
    except ResourceExceeded as error:
        raise ResourceExceeded(f"{path}: {error}") from None
    except AdaptiveQsError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: no such file: check the path") from None
    except (PermissionError, IsADirectoryError) as error:
        raise InputError(f"{path}: {reason(error, 'unreadable')}: check the path") from None
    except DAMAGE:
        raise InputError(f"{path} is not a {kind}, or is damaged. Check the path.") from None


def _refuse_additions(archive: zipfile.ZipFile) -> None:
    """Raise ValueError if bytes that no reader of members sees were put around them."""
    file, end = archive.fp, 0
    assert file is not None
    members = sorted(archive.infolist(), key=lambda member: member.header_offset)
    if archive.comment or any(member.comment or member.extra for member in members):
        raise ValueError("there are bytes besides the members")
    for member in members:
        file.seek(member.header_offset)
        sizes = struct.unpack("<26x2H", file.read(30))  # of the name, and what follows
        if member.header_offset != end:
            raise ValueError("something stands before a member")
        end += 30 + sum(sizes) + member.compress_size
    if end != archive.start_dir:
        raise ValueError("something stands behind the members")


class _Guarded(io.FileIO):
    """A file of which one call reads at most ``most_bytes`` (None for no limit)."""

    most_bytes: int | None = 2**16 + 2**7  # a list of 500 members fits; releases have 9

    def read(self, size: int | None = -1, /) -> bytes:
        """Return this number of bytes, or the rest; raise BadZipFile if they are too many."""
        most = self.most_bytes
        if most is None:
            return super().read(size) or b""
        size_read = most + 1 if size is None or size < 0 else size
        found = b"" if size_read > most + 1 else super().read(size_read) or b""
        if len(found) > most or size_read > most + 1:
            raise zipfile.BadZipFile("too many members")
        return found
