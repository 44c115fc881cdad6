"""Tables of any kind as sources: chunks of their columns, each cell as its table has it."""

import contextlib
import glob
import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from adaptive_qs.arguments import Registry, check_path
from adaptive_qs.errors import DataError, InputError, reason
from adaptive_qs.pages.words import counted
from adaptive_qs.table.archive import open_archive
from adaptive_qs.table.cells import MixedCells, object_cells, redacted, unreadable_column
from adaptive_qs.table.files import PARQUET_MAGIC, TAB_SEPARATED, inside, is_pattern
from adaptive_qs.table.text import COMMA, Dialect

T = TypeVar("T")

FRAME_ROWS = 1 << 18
"""Rows of a chunk of a data frame."""
FRAME = "table"
"""What messages call a data frame."""
SEPARATORS = {COMMA: "commas", ";": "';'", "\t": "tabs", "|": "'|'"}
"""What messages call the characters that can separate the cells of CSV."""

Cells: TypeAlias = pa.Array | pa.ChunkedArray | MixedCells
"""Some cells of one column: of one type, or each of its own."""


@dataclass(frozen=True)
class Chunk:
    """Some rows of the requested columns, and how far the reading has come."""

    columns: tuple[Cells, ...]
    done: int
    total: int
    file: str = ""  # of several files, the one that holds the rows


RowGroups: TypeAlias = tuple[int, ...] | None
"""Positions of row groups of a Parquet file; None for the whole of any file."""


@dataclass(frozen=True)
class Source:
    """A table that can be read once, in chunks."""

    label: str
    names: tuple[str, ...]
    read: Callable[[Sequence[str]], Iterator[Chunk]]
    """Yields chunks of the named columns, in that order."""
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The column names of each file of a table in several files."""
    copied: frozenset[str] = frozenset()
    """Names that are no columns of the table: under these, columns are read once more."""
    cut: Callable[[int], Iterator[RowGroups]] = lambda _: (part for part in [None])
    """Yields parts of about this number of bytes that make up the file."""
    other_delimiter: str | None = None
    """What seems to separate the cells of CSV, if it is not the delimiter that was used."""
    explain: Callable[[Exception], DataError] | None = None
    """Returns what is wrong with a file that cannot be read on; None takes how it was opened."""


class Reader(NamedTuple):
    """How files of one format are read: an entry of ``READERS``.

    ``open`` yields a file as a source, ``explain`` returns what is wrong with a file given an
    exception that is not quoted, and ``check_held`` raises ResourceExceeded if some columns need
    too much memory.
    """

    open: Callable[..., AbstractContextManager[Source]]
    explain: Callable[[Path, Exception], DataError]
    check_held: Callable[[Path, Collection[str], int], None] = lambda *_: None


READERS: Registry[Reader] = Registry(
    {
        "CSV": "adaptive_qs.table.formats:CSV_READER",
        "Parquet": "adaptive_qs.table.formats:PARQUET_READER",
        "Excel": "adaptive_qs.table.containers:EXCEL",
        "SQLite": "adaptive_qs.table.sql:SQLITE_READER",
        "DuckDB": "adaptive_qs.table.sql:DUCKDB_READER",
    }
)
"""The formats that are read, each a :class:`Reader`. FILE::NAME is one of several tables."""


class Rows:
    """A table that is neither a file nor a data frame."""

    def open(self) -> AbstractContextManager[Source]:
        """Return its rows as a source."""
        raise NotImplementedError


# Errors of a library that reads private cells can quote them. Readers of files let them pass; they
# are replaced here.


@contextmanager
def _open_redacted(
    opened: AbstractContextManager[Source], explain: Callable[[Exception], DataError]
) -> Iterator[Source]:
    """Open a source; what a library raises, then or while it is read, is explained without it."""
    with ExitStack() as stack:
        source = redacted(lambda: stack.enter_context(opened), explain)
        problem = source.explain or explain
        yield replace(
            source,
            read=lambda requested: _iterate_redacted(source.read(requested), problem),
            cut=lambda most_bytes: _iterate_redacted(source.cut(most_bytes), problem),
        )


def _iterate_redacted(items: Iterator[T], explain: Callable[[Exception], DataError]) -> Iterator[T]:
    with contextlib.closing(items):  # type: ignore[type-var]
        while found := redacted(lambda: [*zip([0], items)], explain):
            yield found[0][1]


def unreadable(path: str | Path, error: Exception) -> DataError:
    """Return what is wrong with a file that cannot be opened."""
    if re.match(r"(?i)[a-z][a-z0-9+.-]+:/", str(path)):  # drives have one letter
        url = re.sub(":/+", "://", str(path), count=1)
        return DataError(f"{url}: is a URL: download it first, and name the file")
    said = reason(error, "unreadable") if isinstance(error, OSError) else "unreadable"
    return DataError(f"{path}: {said}: check the path")


_ZIP_MAGIC = b"PK\x03\x04"


@contextmanager
def open_file(
    path: str | Path, groups: RowGroups = None, dialect: Dialect | None = None
) -> Iterator[Source]:
    """Yield a CSV or Parquet file, or a table inside a file (FILE::NAME), as a source.

    The first bytes tell the format. ``groups`` is what to read of a Parquet file. Tabs separate
    .tsv files whatever the dialect. Raise DataError, also while reading, if it cannot be read.
    """
    path, name = inside(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise DataError(f"{path} is not a regular file. Use a file.")
    first = redacted(partial(_read_start, path), partial(unreadable, path))
    _refuse_kind(path, first)
    kind = _find_kind(path, first)
    reader = READERS[kind]
    if kind not in ("CSV", "Parquet"):
        opened = reader.open(path, name)
    elif name is not None:
        raise DataError(f"{path} cannot hold several tables. Remove ::{name}.")
    elif path.suffix.lower() in (".xlsx", ".sqlite", ".duckdb"):
        raise DataError(
            f"{path} is not a readable {path.suffix} file. Save it again, or export the table as "
            "CSV."
        )
    else:
        opened = reader.open(path, dialect if kind == "CSV" else groups)
    with _open_redacted(opened, partial(reader.explain, path)) as source:
        yield source


def _read_start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(16)


def _find_kind(path: Path, first: bytes) -> str:
    """Return the format of a file that begins so, a key of ``READERS``."""
    if first.startswith(_ZIP_MAGIC):
        return "Excel"
    if first.startswith(b"SQLite format 3\0"):
        return "SQLite"
    if first[8:].startswith(b"DUCK"):
        return "DuckDB"
    is_parquet = first.startswith(PARQUET_MAGIC) or path.suffix.lower() in (".parquet", ".pq")
    return "Parquet" if is_parquet else "CSV"


def _refuse_kind(path: Path, first: bytes) -> None:
    """Raise DataError if a file that begins so holds no table that can be read."""
    if not first:
        raise DataError(f"{path} is empty. Use a CSV file with a header line, or Parquet.")
    if first.startswith(_ZIP_MAGIC) and _is_release(path):
        raise DataError(
            f"{path}: is a release bundle, not a table: draw one from it by "
            f"{shlex.join(['adaptive-qs', 'sample', str(path), '--out', 'table.csv'])}"
        )
    if first.startswith(_ZIP_MAGIC) and path.suffix.lower() == ".zip":
        raise DataError(f"{path}: is a zip archive: unpack it, or compress the CSV file by gzip")
    unreadable_kinds = {
        b"\xfd7zXZ": "an archive of xz",
        b"BZh": "an archive of bzip2",
        b"\x28\xb5\x2f\xfd": "an archive of zstd",
        b"ARROW1": "a Feather or Arrow file",
        b"ORC": "an ORC file",
        b"\x80\x04": "a pickle of Python",
        b"\xd0\xcf\x11\xe0": "an Excel file of an old kind",
    }
    for magic, kind in unreadable_kinds.items():
        if first.startswith(magic):
            raise DataError(f"{path}: is {kind}: save it as CSV or Parquet")


def _is_release(path: Path) -> bool:
    """Return whether a zip archive has the members of a release bundle."""
    with contextlib.suppress(InputError), open_archive(path, "release bundle") as archive:
        return {"manifest.json", "residuals.npy"} <= set(archive.names)
    return False


def name_source(source: Any) -> str:
    """Return what messages call a table."""
    return str(source) if isinstance(source, str | Path | Rows) else FRAME


def check_held(source: Any, most_bytes: int, names: Collection[str]) -> None:
    """Raise ResourceExceeded if a file needs more memory than this while these columns are read."""
    if not isinstance(source, str | Path):
        return
    path = inside(source)[0]
    if path.is_file():  # reading a pipe would wait
        with contextlib.suppress(OSError, DataError):  # what opens it explains it
            reader = READERS[_find_kind(path, _read_start(path))]
            held = partial(reader.check_held, path, names, most_bytes)
            redacted(held, partial(reader.explain, path))


# Tables in several files: all of a folder, or all that a pattern names.

ONE_TABLE = (".csv", ".csv.gz", *TAB_SEPARATED, ".parquet", ".pq")
"""Endings of files that hold one table."""


def table_files(path: str | Path) -> list[Path]:
    """Return the CSV and Parquet files of a folder or pattern, sorted, or the path itself.

    Hidden files do not count. Raises DataError if there are none, or the folder has folders in it.
    """
    check_path("the table", path, DataError)
    path = Path(path)
    if os.path.isdir(path):  # never raises, unlike Path.is_dir
        found = redacted(lambda: [*path.iterdir()], lambda error: unreadable(path, error))
    elif is_pattern(path):
        found = [Path(name) for name in glob.glob(str(path))]
    else:
        return [path]
    found = [file for file in found if not file.name.startswith(".")]
    if any(map(os.path.isdir, found)):
        raise DataError(
            f"{path} has folders in it. Use a pattern for their files, such as 'DIR/*/*.parquet'."
        )
    files = [file for file in found if file.name.lower().endswith(ONE_TABLE)]
    if not files:
        raise DataError(f"{path}: no CSV or Parquet file there: check the folder or the pattern")
    _check_once(path, sorted(files))
    return sorted(files)


def _check_once(path: Path, files: Sequence[Path]) -> None:
    """Refuse a file under two names, or next to its compressed form: its rows would count twice."""
    names: dict[tuple[int, int], Path] = {}
    plain = {file.with_name(file.name[:-3]) for file in files if file.suffix.lower() == ".gz"}
    for file in files:
        if file in plain:
            raise DataError(f"{path}: has {file.name} and {file.name}.gz: remove one")
        with contextlib.suppress(OSError):  # what reads it explains them
            found = file.stat()
            other = names.setdefault((found.st_dev, found.st_ino), file)
            if other is not file:
                raise DataError(f"{path}: {other.name} and {file.name} are one file: remove one")


@contextmanager
def _open_files(label: str, files: Sequence[Path], dialect: Dialect | None) -> Iterator[Source]:
    """Yield several files as one source; the column names of all are known before it is read."""
    columns: dict[str, tuple[str, ...]] = {}
    sizes: list[int] = []
    for file in files:
        with open_file(file, dialect=dialect) as part:
            columns[str(file)] = part.names
            other = part.other_delimiter
            sizes.append(redacted(file.stat, partial(unreadable, file)).st_size)

    def read(requested: Sequence[str]) -> Iterator[Chunk]:
        before = 0
        for file, size in zip(files, sizes):
            with open_file(file, dialect=dialect) as part:
                if part.names != columns[str(file)]:
                    raise DataError(f"{file}: changed while it was read: repeat the command")
                for chunk in part.read(requested):
                    done = before + size * chunk.done // max(chunk.total, 1)
                    yield replace(chunk, done=done, total=sum(sizes), file=str(file))
            before += size

    yield Source(label, columns[str(files[0])], read, columns, other_delimiter=other)


def _frame_cells(series: Any) -> pa.Array | pa.ChunkedArray | MixedCells:
    """Return a column of a data frame (a series of narwhals), each cell by its own type."""
    if series.implementation.is_pandas_like():
        column = series.to_pandas()
        if column.dtype == object:
            return object_cells(column.to_numpy())
        if column.dtype == "category" and column.dtype.categories.dtype == object:
            codes = column.cat.codes.to_numpy()
            used, places = np.unique(codes[codes >= 0], return_inverse=True)
            rows = np.full(len(codes), -1)
            rows[codes >= 0] = places
            return MixedCells.of(object_cells(column.cat.categories.to_numpy()[used])).take(rows)
    elif series.implementation.is_polars() and str(series.dtype) == "Object":
        return object_cells(np.array([*series.to_list(), None], dtype=object)[:-1])
    return series.to_arrow()


def frame_source(table: Any) -> Source:
    """Return a pandas, polars or pyarrow table as a source; raise DataError if it is none.

    No type is inferred: a column keeps its type, and in a column of Python objects each cell has
    its own.
    """
    import narwhals as nw  # files need none

    frame = redacted(
        lambda: nw.from_native(table, eager_only=True),
        lambda _: DataError(
            "the table is not an eager pandas, polars or pyarrow table with distinct column "
            "names: convert it (collect() a lazy one)"
        ),
    )
    names = tuple(str(name) for name in frame.columns)

    bad = partial(unreadable_column, FRAME)

    def read_cells(part: Any, name: str) -> Cells:
        return _frame_cells(part[:, names.index(name)])

    def read(requested: Sequence[str]) -> Iterator[Chunk]:
        rows = len(frame)
        for start in range(0, rows, FRAME_ROWS):
            part = frame[start : start + FRAME_ROWS]
            columns = tuple(
                redacted(partial(read_cells, part, name), partial(bad, name)) for name in requested
            )
            yield Chunk(columns, start + len(part), rows)

    return Source(FRAME, names, read)


@contextmanager
def open_source(table: Any, dialect: Dialect | None = None) -> Iterator[Source]:
    """Yield a file, a folder or a pattern of files, or a data frame, as a source.

    Raise DataError if it is none of these; as for :func:`table_files` and :func:`open_file`.
    """
    opened: AbstractContextManager[Source]
    match table:
        case str() | Path():
            files = table_files(table)
            single = [*files] == [Path(table)]
            opened = (
                open_file(table, dialect=dialect)
                if single
                else _open_files(str(table), files, dialect)
            )
        case Rows():  # which are of a source that has copies
            opened, dialect = table.open(), None
        case _:
            opened = contextlib.nullcontext(frame_source(table))
    with opened as source:
        yield with_copies(source, dialect)


def with_copies(source: Source, dialect: Dialect | None) -> Source:
    """Return a table in which columns can be read once more, under the names of the dialect.

    Raise DataError if the table has one of these names.
    """
    copies = dict(dialect.copies) if dialect else {}
    if taken := sorted({*copies} & {*source.names}):
        raise DataError(
            f"{source.label}: column {taken[0]!r} has the name of a part in the schema. Rename one "
            "of them."
        )

    def extended(names: tuple[str, ...]) -> tuple[str, ...]:
        return *names, *(name for name, of in copies.items() if of in names)

    return replace(
        source,
        copied=frozenset(copies),
        names=extended(source.names),
        files={file: extended(names) for file, names in source.files.items()},
        read=lambda requested: source.read([copies.get(name, name) for name in requested]),
    )


def check_names(source: Source, requested: Collection[str], ignored: Collection[str]) -> None:
    """Raise DataError if the columns of a table, in any of its files, are not those of the schema.

    Names of the data are quoted only once all names of the schema have been found among them: the
    first line of a file without a header is a private row.
    """
    for file, names in source.files.items():
        check_names(replace(source, label=file, names=names, files={}), requested, ignored)
    requested = [name for name in requested if name not in source.copied]
    ignored = {*ignored, *source.copied}
    matching = sum(name in source.names for name in requested)
    if 2 * matching < len(requested):
        check_separator(source)
        raise DataError(
            f"{source.label} has {matching} of the {counted(len(requested), 'column')} of the "
            "schema. Check that it is the right table, with a header line, and the right schema."
        )
    for name in requested:
        if name not in source.names:
            check_separator(source)
            raise DataError(
                f"{source.label}: column {name!r} of the schema is missing from the data: add it "
                "(and a header line, if there is none), or remove it from the schema"
            )
    seen: set[str] = set()
    for name in source.names:
        if name in seen:
            raise DataError(f"{source.label}: column {name!r} occurs twice: rename or drop one")
        seen.add(name)
        if name not in requested and name not in ignored:
            raise DataError(
                f"{source.label}: column {name!r} is not in the schema: declare it, or list it "
                'under "ignore"'
            )


def check_alike(source: Source) -> None:
    """Raise DataError if files of one table have different columns; their names are not quoted."""
    for file, names in source.files.items():
        if sorted(names) != sorted(source.names):
            raise DataError(
                f"{file} does not have the columns of {next(iter(source.files))}. Use files of "
                'one table. For a set, propose a schema for each table, and join them by "tables".'
            )


def check_separator(source: Source) -> None:
    """Raise DataError if the only column name of a table holds what looks like a separator."""
    found = source.other_delimiter
    if found is not None and len(source.names) == 1:
        raise DataError(
            f"{source.label}: cells are separated by {SEPARATORS[found]}. "
            f'Set "delimiter": {json.dumps(found)} in the schema.'
        )
