"""Tasks of the workers of a cluster: encode parts of a table, and count them.

Nothing that a task takes or returns shows anything of the rows when it is printed.
"""

import os
import platform
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from hashlib import blake2b
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import AdaptiveQsError, DataError, InputError, ResourceExceeded
from adaptive_qs.machine import find_version
from adaptive_qs.table.coded import BlockEngine, HeldBlocks, code_dtype, load_programs
from adaptive_qs.table.encode import encode_chunk, summed
from adaptive_qs.table.engines import Occupied
from adaptive_qs.table.files import inside
from adaptive_qs.table.read import RowGroups, check_names, open_file, with_copies
from adaptive_qs.table.schema import Schema

# Versions decide what a cell means: all machines must have the same.

_EXTRAS = ("openpyxl",)
PACKAGES = ("adaptive_qs", "numpy", "pandas", "pyarrow", *_EXTRAS)
"""Packages that decide what cells and codes are. Extras can be missing until a file needs one."""


def own_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages in this process."""
    python = ".".join(platform.python_version_tuple()[:2])
    here = [name for name in PACKAGES if name not in _EXTRAS or find_spec(name)]
    return {"python": python, **{name: find_version(name) for name in here}}


def check_versions(
    where: str, found: Mapping[str, str | None], versions: Mapping[str, str]
) -> None:
    """Raise InputError if versions differ from the coordinator's."""
    for name, own in versions.items():
        if found.get(name) != own and (found.get(name) or name not in _EXTRAS):
            has = f"has {name} {found.get(name)}" if found.get(name) else f"lacks {name}"
            raise InputError(
                f"{where} {has}, and this machine has {own}: install the same versions everywhere"
            )


T = TypeVar("T")
FileVersion = tuple[int, int]
"""Size of a file, and the time of its last change (ns): equal on every machine that sees it."""


@dataclass(frozen=True, repr=False)
class Refusal:
    """An error that a task returns in place of a result; it is safe to print."""

    error: AdaptiveQsError


@dataclass(frozen=True, repr=False)
class FilePart:
    """Rows of a file that one task encodes, in the state when the run began."""

    path: str  # absolute
    stamp: FileVersion
    size: int  # bytes of the rows
    groups: RowGroups = None


@dataclass(frozen=True, repr=False)
class Reader:
    """How workers read a table; ``sums`` is whether the cells of each part are summed."""

    schema: Schema
    versions: dict[str, str]
    sums: bool = False


@dataclass(frozen=True, repr=False)
class CountRequest:
    """Marginals to count."""

    cliques: Sequence[Clique]


@dataclass(frozen=True, repr=False)
class PartFacts:
    """Number of rows of a part, the sum of their cells if it is needed, and a digest."""

    rows: int
    row_sum: int
    digest: bytes  # of the codes; the same however often a part is read


class PartCodes:
    """The coded rows of a part on a worker: one contiguous array for each attribute."""

    def __init__(self, domain: Domain, columns: Sequence[NDArray[Any]], row_sum: int = 0) -> None:
        self.domain = domain
        self.columns = columns
        found = blake2b(str(row_sum).encode(), digest_size=16)
        for column in columns:
            found.update(np.ascontiguousarray(column).data)
        self.facts = PartFacts(len(columns[0]), row_sum, found.digest())

    def __sizeof__(self) -> int:
        return sum(column.nbytes for column in self.columns)


def _safely(task: Callable[..., T]) -> Callable[..., T | Refusal]:
    """Return a task that passes refusals on, and returns one instead of raising."""

    @wraps(task)
    def run(*arguments: Any) -> T | Refusal:
        for each in arguments:
            for one in each if isinstance(each, list) else [each]:
                if isinstance(one, Refusal):
                    return one
        try:
            return task(*arguments)
        except AdaptiveQsError as error:
            return Refusal(error.with_traceback(None))
        except MemoryError:
            return Refusal(ResourceExceeded("a worker is out of memory. Give it more memory."))
        except Exception as error:  # noqa: BLE001  (its message may quote private values)
            own = [
                f for f in traceback.extract_tb(error.__traceback__) if "adaptive_qs" in f.filename
            ]
            place = f"{os.path.basename(own[-1].filename)}:{own[-1].lineno}"
            words = f"internal error of a worker ({type(error).__name__} at {place})"
            return Refusal(AdaptiveQsError(f"{words}: this is a bug, please report it"))

    return run


@_safely
def same(value: T) -> T:
    """Return the argument, which moves it to the workers."""
    return value


@_safely
def load(reader: Reader) -> None:
    """Check the versions of a worker, and compile its programs."""
    check_versions("a worker", own_versions(), reader.versions)
    load_programs()


@_safely
def see(parts: Sequence[FilePart]) -> None:
    """Check that a worker sees the files."""
    for part in parts:
        _check_file(part)


@_safely
def cut(part: FilePart, reader: Reader, most_bytes: int) -> list[FilePart]:
    """Return the parts of a file, each of about this number of bytes if the format allows."""
    with _steady(part, reader), open_file(part.path, None, reader.schema.dialect) as source:
        source = with_copies(source, reader.schema.dialect)
        check_names(source, reader.schema.names, reader.schema.set_aside)
        several = [*source.cut(most_bytes)]
        size = part.size // len(several)
        return [FilePart(part.path, part.stamp, size, groups) for groups in several]


@_safely
def encode(part: FilePart, reader: Reader) -> PartCodes:
    """Return the codes of a part."""
    columns = reader.schema.columns
    codes: list[list[NDArray[Any]]] = [[] for _ in columns]
    sums: list[int] = []
    opened = open_file(part.path, part.groups, reader.schema.dialect)
    with _steady(part, reader), opened as source:
        source = with_copies(source, reader.schema.dialect)
        source = summed(source, sums.append) if reader.sums else source
        check_names(source, reader.schema.names, reader.schema.set_aside)
        for chunk in source.read(reader.schema.names):
            for kept, column, cells in zip(codes, columns, chunk.columns):
                kept.extend(encode_chunk(column, cells, source.label))
    none = [np.empty(0, dtype=code_dtype(column.size)) for column in columns]
    whole = [np.concatenate([*kept, empty]) for kept, empty in zip(codes, none)]
    return PartCodes(reader.schema.domain(), whole, sum(sums))


@_safely
def find_facts(codes: PartCodes) -> PartFacts:
    """Return what the coordinator keeps of a part."""
    return codes.facts


def _engine(codes: PartCodes, facts: PartFacts) -> BlockEngine:
    """Return an engine for a part; refuse one that was read again and has other rows."""
    if codes.facts != facts:
        raise DataError(
            "the table changed before a worker read a part of it again, in place of a worker that "
            "was lost: repeat the command"
        )
    return BlockEngine(codes.domain, HeldBlocks(codes.columns))


@_safely
def count(codes: PartCodes, request: CountRequest, facts: PartFacts) -> NDArray[np.int64]:
    """Return the marginals of a part, one after the other in one array."""
    engine = _engine(codes, facts)
    return np.concatenate([counts.reshape(-1) for counts in engine.count_all(request.cliques)])


@_safely
def add(counts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the sum of counts."""
    total = counts[0].copy()
    for each in counts[1:]:
        total += each
    return total


@_safely
def list_occupied(codes: PartCodes, request: CountRequest, facts: PartFacts) -> list[Occupied]:
    """Return the occupied cells of the marginals of a part."""
    return _engine(codes, facts).occupied(request.cliques)


@_safely
def join(parts: Sequence[list[Occupied]]) -> list[Occupied]:
    """Return the occupied cells of all parts together."""
    return [_joined(each) for each in zip(*parts)]


def _joined(parts: Sequence[Occupied]) -> Occupied:
    cells, where = np.unique(np.concatenate([p.cells for p in parts]), return_inverse=True)
    counts = np.zeros(cells.size, dtype=np.int64)
    np.add.at(counts, where, np.concatenate([p.counts for p in parts]))
    return Occupied(cells, counts)


@contextmanager
def _steady(part: FilePart, reader: Reader) -> Iterator[None]:
    """Check that a worker sees the coordinator's file, with the same program, before and after."""
    check_versions("a worker", own_versions(), reader.versions)
    _check_file(part)
    yield
    _check_file(part)


def _check_file(part: FilePart) -> None:
    try:
        same = file_stamp(part.path) == part.stamp
    except OSError:
        raise DataError(
            f"{part.path} does not exist for a worker. Put it under this path on all machines, as "
            "on a shared file system."
        ) from None
    if not same:
        raise DataError(
            f"{part.path} changed while it was read, or is another file for a worker. Put the "
            "same file on all machines, with the same time of change, and repeat the command."
        )


def file_stamp(path: str) -> FileVersion:
    """Return the state of a file."""
    found = os.stat(inside(path)[0])
    return found.st_size, found.st_mtime_ns
