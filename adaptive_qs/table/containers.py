"""Tables inside other files: sheets of Excel workbooks, tables of SQLite and DuckDB databases.

A file that holds one table is read as that table; of several, the one that is named as FILE::NAME.
Cells of workbooks and of SQLite have types of their own, so each is read alone, as a Python
object is; DuckDB's columns have declared types. Nothing that these libraries say is passed on: they
quote cells.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import string
import tempfile
import warnings
import zipfile
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from adaptive_qs.errors import DataError, InputError
from adaptive_qs.machine import PROCESS_BYTES, memory_bytes
from adaptive_qs.table import sql
from adaptive_qs.table.cells import object_cells, redacted
from adaptive_qs.table.read import Chunk, Source, unreadable
from adaptive_qs.table.text import ASCII_SPACE
from adaptive_qs.table.workbook import Workbook, check_header, fill_rows
from adaptive_qs.table.write import AsText, OutputFormat, without_dictionaries

_ROWS, _MOST_CHARACTERS = 1 << 14, 1 << 24
"""Of a block of rows that are held as Python objects."""
_HIDDEN = 1
"""Kind of a column that SQLite's ``SELECT *`` leaves out; generated columns are of other kinds."""
_ROW_BYTES, _ALL_BYTES = 1 << 22, 1 << 28
"""Of a row of SQLite, as of one of CSV, and of all cells of a row that it computes."""
Row = Sequence[Any]


def _chosen(
    path: Path,
    names: Sequence[str],
    requested: str | None,
    what: str,
    refused: Mapping[str, str] = {},
) -> str:
    """Return the name of the table to read. Names in the file can be private and are not quoted.

    Raises:
        DataError: there is none, or none of that name, or several and no name was given, or it is
            one of those ``refused``, with what to do.
    """
    if requested is not None:
        if requested in refused:
            raise DataError(
                f"{path}: {requested!r} is a {refused[requested]}. The unit of privacy is then a "
                "row of that result."
            )
        if requested not in names:
            raise DataError(f"{path}: has no {what} {requested!r}: check the name behind ::")
        return requested
    if not names:
        raise DataError(f"{path}: has no {what}: check the file")
    if len(names) > 1:
        raise DataError(f"{path}: has {len(names)} {what}s: name one, as {path}::NAME")
    return names[0]


def _chunks(
    names: Sequence[str], rows: Iterator[Row], total: int, requested: Sequence[str]
) -> Iterator[Chunk]:
    """Rows of Python objects, one for each name, as chunks of the requested columns."""
    places, done = [names.index(name) for name in requested], 0
    for block in _blocks(rows):
        columns = []
        for place in places:
            objects = np.empty(len(block), dtype=object)
            objects[:] = [row[place] for row in block]
            columns.append(object_cells(objects))
        done += len(block)
        yield Chunk(tuple(columns), done, max(total, done))


def _blocks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Yield rows in blocks of at most ``_ROWS``, or fewer if their texts are long."""
    block: list[Row] = []
    length = 0
    for row in rows:
        block.append(row)
        length += sum(len(cell) for cell in row if isinstance(cell, str | bytes))
        if len(block) == _ROWS or length > _MOST_CHARACTERS:
            yield block
            block, length = [], 0
    if block:
        yield block


def _guarded(
    rows: Iterator[Chunk],
    explain: Callable[[Exception], DataError],
    database: sqlite3.Connection | None = None,
) -> Iterator[Chunk]:
    """Yield the chunks; suppress library messages, which may quote cells.

    A signal interrupts the database that they come from.
    """

    def following() -> Chunk | None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return next(rows, None)

    call = following if database is None else partial(sql.interruptible, following, database)
    while (chunk := redacted(call, explain)) is not None:
        yield chunk


# Sheets of Excel workbooks (.xlsx).


def openpyxl() -> Any:
    """Import the library.

    Raises:
        InputError: it is not installed.
    """
    try:
        import openpyxl as library
    except ImportError:
        raise InputError(
            "openpyxl is not installed: pip install 'adaptive-qs[excel]', or take CSV or Parquet"
        ) from None
    return library


@contextmanager
def open_workbook(path: Path, name: str | None = None) -> Iterator[Source]:
    """Yield a sheet as a source: names in its first row; rows without any value are none.

    Dates and numbers count by the kind of each cell. Formulas are refused in the columns that are
    read: the value of one can depend on all rows, as a row of a view can. Times of day and
    durations are of no type that columns take.

    Raises:
        DataError: it is no workbook, has not that sheet, or no names; also while reading.
        ResourceExceeded: its texts, or formats of rows, do not fit the machine.
    """
    openpyxl()
    most_bytes = memory_bytes(None) - PROCESS_BYTES

    def damaged(error: Exception) -> DataError:
        if isinstance(error, FileNotFoundError | PermissionError):
            return unreadable(path, error)
        return DataError(
            f"{path}: is an Excel file that cannot be read: save it again as .xlsx, or export it "
            "as CSV or Parquet"
        )

    with ExitStack() as opened:
        archive = redacted(lambda: opened.enter_context(zipfile.ZipFile(path)), damaged)
        book = redacted(lambda: Workbook(path, archive), damaged)
        titles = [title for title, is_visible, _ in book.sheets if is_visible or name is not None]
        title = _chosen(path, titles, name, "sheet")
        part = next(part for other, _, part in book.sheets if other == title)
        first = redacted(lambda: next(book.rows(part, most_bytes), (1, {})), damaged)
        names = check_header(path, *first)

        def read(requested: Sequence[str]) -> Iterator[Chunk]:
            values_only = {names.index(name): name for name in requested}
            cells = islice(book.rows(part, most_bytes, values_only), 1, None)
            rows = fill_rows(path, cells, len(names))
            yield from _guarded(_chunks(names, rows, 0, requested), damaged)

        yield Source(str(path), names, read)


# Tables of databases.


def _at_rest(path: Path, *beside: str) -> None:
    """Refuse a database some of whose rows are still in a file next to it.

    Raises:
        DataError: they are.
    """
    for suffix in beside:
        log = path.with_name(path.name + suffix)
        if os.path.exists(log) and os.path.getsize(log):
            raise DataError(
                f"{path}: has changes in {log.name}: close the program that writes to it"
            )


@contextmanager
def open_sqlite(path: Path, name: str | None = None) -> Iterator[Source]:
    """Yield a table of a SQLite database as a source; the file is opened for reading only.

    Views and virtual tables are refused: each of their rows can depend on many rows.

    Raises:
        DataError: it cannot be read, is being written to, has not that table, or it is a view.
    """
    _at_rest(path, "-wal", "-journal")

    def damaged(error: Exception) -> DataError:
        # The message is only searched: it quotes the cell.
        if isinstance(error, sqlite3.OperationalError) and "decode to UTF-8" in str(error):
            return DataError(f"{path}: has text that is not UTF-8: write it again as UTF-8")
        if isinstance(error, sqlite3.DataError) and "too big" in str(error):
            return DataError(f"{path}: has a row or cell of more than 4 MiB: write it shorter")
        return DataError(f"{path}: is no SQLite database that can be read: check the file")

    def connected() -> sqlite3.Connection:
        return sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
        )

    with closing(redacted(connected, damaged)) as database:

        def ask(query: str) -> list[Row]:
            call = partial(sql.interruptible, lambda: database.execute(query).fetchall(), database)
            return redacted(call, damaged)

        ask("PRAGMA trusted_schema=OFF")  # what the file computes, whose author is not known
        listed = ask(
            "SELECT name, type, coalesce(rootpage, 0) FROM sqlite_schema "
            "WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY 1"
        )
        remedy = "whose rows can depend on each other: write its rows to a table, and name that"
        refused = {
            row[0]: f"{'view' if row[1] == 'view' else 'virtual table'}, {remedy}"
            for row in listed
            if not _is_stored(row)
        }
        tables = [row[0] for row in listed if _is_stored(row)]
        table = _chosen(path, tables, name, "table", refused)
        described = ask(f"PRAGMA table_xinfo({_identifier(table)})")
        names = tuple(str(row[1]) for row in described if row[6] != _HIDDEN)
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(_ROW_BYTES, _ALL_BYTES // len(names)))
        total = ask(f"SELECT count(*) FROM {_identifier(table)}")[0][0]

        def read(requested: Sequence[str]) -> Iterator[Chunk]:
            listed = ", ".join(map(_identifier, names))
            rows = redacted(
                lambda: database.execute(f"SELECT {listed} FROM {_identifier(table)}"), damaged
            )
            yield from _guarded(_chunks(names, rows, total, requested), damaged, database)

        yield Source(str(path), tuple(title.strip(ASCII_SPACE) for title in names), read)


def _is_stored(row: Row) -> bool:
    """Return whether an entry of a schema of SQLite has a page of its own, as tables alone do."""
    return row[1] == "table" and row[2] > 0


@contextmanager
def open_duckdb(path: Path, name: str | None = None) -> Iterator[Source]:
    """Yield a table of a DuckDB database as a source; the file is opened for reading only.

    Views are refused: each of their rows can depend on many rows.

    Raises:
        DataError: it is being written to, has not that table, or it is a view.
        InputError: it cannot be read, or DuckDB is not installed.
    """
    _at_rest(path, ".wal")
    listed = sql.list_tables(path)
    refused = {
        title: "view, whose rows can depend on each other: give "
        + shlex.join(["--sql", f"SELECT * FROM {_identifier(title)}", "--database", str(path)])
        for title in listed
        if not listed[title]
    }
    tables = [title for title in listed if listed[title]]
    table = _chosen(path, tables, name, "table", refused)
    with _rows_of_query(path, f"SELECT * FROM {_identifier(table)}") as source:
        yield source


@contextmanager
def _rows_of_query(path: Path, query: str) -> Iterator[Source]:
    """Yield the rows of a query as a source that messages call by its file."""
    refusal: InputError | None = None
    with ExitStack() as opened:
        try:
            rows = sql.Query(path, query, label=f"{path}: the table")
            source = opened.enter_context(rows.open())
        except InputError as error:
            refusal = InputError(str(error).removeprefix("--database "))
        if refusal is None:
            yield replace(source, label=str(path))
    if refusal is not None:
        raise refusal  # once DuckDB's error is gone


def _identifier(name: str) -> str:
    """Return a name in quotation marks, for SQL."""
    return '"' + name.replace('"', '""') + '"'


# Writing: into a temporary file of the library's own, which is then copied.

_TABLE, _ANSWERS = "synthetic", "answers"
"""Names of the table in a file of rows, and in one of answers."""
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
Written = Callable[[Sequence[pa.Array]], None]
"""A function that writes columns of some rows."""


class Database(OutputFormat):
    """A database with one table, or several, which is written by its own library."""

    is_text = False
    readable = True
    holds_sets = True

    def write(self, tables: Iterable[pa.Table], texts: Sequence[AsText], file: BinaryIO) -> None:
        """Write values of the declared types, missing ones as null."""
        self.write_set([(_TABLE, tables, texts)], file)

    def write_set(
        self, tables: Iterable[tuple[str, Iterable[pa.Table], Sequence[AsText]]], file: BinaryIO
    ) -> None:
        """Write tables by name, one after the other; see :meth:`write`."""
        with self._connected(file) as database:
            for name, parts, texts in tables:
                pages = iter(parts)
                first = next(pages)
                write = self._create_table(database, first.schema, name)
                for page in chain([first], pages):
                    for batch in page.to_batches(max_chunksize=_ROWS):
                        columns = zip(batch.columns, texts)
                        write([self._cells(values, as_text) for values, as_text in columns])

    @contextmanager
    def batch_writer(
        self, schema: pa.Schema, dictionaries: Sequence[str], file: BinaryIO
    ) -> Iterator[Callable[[pa.RecordBatch], None]]:
        """Yield a function that writes batches; every text is as it is."""
        plain = without_dictionaries(schema)
        with self._connected(file) as database:
            write = self._create_table(database, plain, _ANSWERS)
            yield lambda batch: write(batch.cast(plain).columns)

    @abstractmethod
    def _connected(self, file: BinaryIO) -> AbstractContextManager[Any]:
        """Yield a connection to a new database, which is copied to the file at the end."""

    @abstractmethod
    def _create_table(self, database: Any, schema: pa.Schema, name: str) -> Written:
        """Create a table and return a function that writes columns of rows in its types."""

    def _cells(self, values: pa.Array, as_text: AsText) -> pa.Array:
        """Values as the file has them; by default as they are."""
        return values


@contextmanager
def _copied(file: BinaryIO, name: str) -> Iterator[Path]:
    """Yield the path of a temporary file that is written in the block and then copied."""
    with tempfile.TemporaryDirectory(prefix="adaptive-qs-out-") as folder:
        path = Path(folder) / name
        yield path
        with path.open("rb") as written:
            shutil.copyfileobj(written, file)


class Sqlite(Database):
    """A SQLite database with one table; dates and times are texts, booleans 0 and 1."""

    most_columns = 2_000

    @staticmethod
    def fold(name: str) -> str:
        """Return the name with ASCII letters in lower case."""
        return name.translate(_LOWER)

    def _cells(self, values: pa.Array, as_text: AsText) -> pa.Array:
        if not pa.types.is_temporal(values.type):
            return values
        return pc.if_else(values.is_valid(), as_text(values), None)

    @contextmanager
    def _connected(self, file: BinaryIO) -> Iterator[Any]:
        with _copied(file, "table.db") as path, closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA journal_mode=OFF")
            yield database
            database.commit()

    def _create_table(self, database: Any, schema: pa.Schema, name: str) -> Written:
        table, names = _identifier(name), [*map(_identifier, schema.names)]
        kinds = [_sqlite_type(kind) for kind in schema.types]
        columns = ", ".join(f"{title} {kind}" for title, kind in zip(names, kinds))
        insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})"
        database.execute(f"CREATE TABLE {table} ({columns})")

        def write(columns: Sequence[pa.Array]) -> None:
            database.executemany(insert, zip(*(column.to_pylist() for column in columns)))

        return write


def _sqlite_type(kind: pa.DataType) -> str:
    if pa.types.is_floating(kind):
        return "REAL"
    return "INTEGER" if pa.types.is_integer(kind) or pa.types.is_boolean(kind) else "TEXT"


class DuckDb(Database):
    """A DuckDB database with one table."""

    @staticmethod
    def fold(name: str) -> str:
        """Return the name in lower case."""
        return name.lower()

    @staticmethod
    def library() -> object:
        """As :func:`~adaptive_qs.table.sql.duckdb`."""
        return sql.duckdb()

    @contextmanager
    def _connected(self, file: BinaryIO) -> Iterator[Any]:
        library = sql.duckdb()
        with _copied(file, "table.duckdb") as path, closing(library.connect(str(path))) as database:
            yield database

    def _create_table(self, database: Any, schema: pa.Schema, name: str) -> Written:
        table = _identifier(name)

        def run(query: str, page: pa.Table) -> None:
            database.register("page", page)
            database.execute(f"{query} SELECT * FROM page")
            database.unregister("page")

        run(f"CREATE TABLE {table} AS", schema.empty_table())
        return lambda columns: run(
            f"INSERT INTO {table}", pa.Table.from_arrays([*columns], schema=schema)
        )


SQLITE, DUCKDB = Sqlite(), DuckDb()
