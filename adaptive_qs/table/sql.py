"""Tables in databases: SQLite and DuckDB, read and written, and the rows of queries.

Only rows come from a database. Their cells are coded one by one like cells of a file, so that no
cell decides how another is read. Messages of these libraries quote values, so they are not passed
on.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sqlite3
import sys
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from adaptive_qs.arguments import RELATION
from adaptive_qs.errors import AdaptiveQsError, DataError, InputError, ResourceExceeded
from adaptive_qs.machine import ThreadPool
from adaptive_qs.table.cells import redacted
from adaptive_qs.table.containers import OBJECT_ROWS, Row, choose_table, chunk_objects
from adaptive_qs.table.engines import EngineOptions
from adaptive_qs.table.files import private_folder
from adaptive_qs.table.read import Chunk, Reader, Rows, Source
from adaptive_qs.table.text import ASCII_SPACE
from adaptive_qs.table.write import AsText, OutputFormat, without_dictionaries

T = TypeVar("T")


@dataclass(frozen=True)
class Query(Rows):
    """The rows of a query in a database file, which is opened for reading only.

    Attributes:
        database: The file.
        sql: One SELECT, on what the database itself holds.
        options: Memory and threads that DuckDB can use.
        label: What messages call the query.
        place: What messages call the file.
    """

    database: Path
    sql: str
    options: EngineOptions = field(default_factory=EngineOptions, compare=False)
    label: str = field(default="the query (--sql)", compare=False)
    place: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", self.place or f"--database {self.database}")

    def __str__(self) -> str:
        return str(self.database)

    @contextmanager
    def open(self) -> Iterator[Source]:
        """Yield its rows as a source; raise as :func:`_opened` does."""
        with _opened(self) as (relation, connection):
            yield _relation_source(relation, self.label, connection)


@dataclass(frozen=True)
class Relation(Rows):
    """The rows of a relation of DuckDB, whose connection its caller keeps."""

    relation: Any

    def __str__(self) -> str:
        return "the relation"

    def open(self) -> AbstractContextManager[Source]:
        """Return its rows as a source."""
        return nullcontext(_relation_source(self.relation, str(self)))


def as_source(table: Any, options: EngineOptions) -> Any:
    """Return a table as a run reads it: a query with the options, a relation as rows."""
    if isinstance(table, Query):
        return replace(table, options=options)
    library = sys.modules.get("duckdb")  # not imported for that
    known = library is not None and isinstance(table, library.DuckDBPyRelation)
    return Relation(table) if known else table


def settings(options: EngineOptions, folder: Path) -> dict[str, Any]:
    """Return the threads, memory and temporary folder of a connection to DuckDB.

    The folder must have nothing else in it: queries can read and write there.
    """
    least = 2**27  # DuckDB refuses to start with much less
    return {
        "threads": options.workers,
        "memory_limit": f"{max(options.rows_bytes // 2, least) >> 20}MiB",
        "temp_directory": str(folder),
    }


def duckdb() -> Any:
    """Import the library; raise InputError if it is not installed."""
    try:
        import duckdb as library
    except ImportError:
        raise InputError(
            "DuckDB is not installed: pip install 'adaptive-qs[duckdb]', or take another engine"
        ) from None
    return library


def interruptible(call: Callable[[], T], database: Any) -> T:
    """Run a call on a database in a thread, so that a signal can interrupt it."""
    with ThreadPool(1) as thread:
        result = thread.submit(call)
        try:
            while not wait([result], 0.2).done:  # signals are heard between two waits
                pass
        except BaseException:
            database.interrupt()
            raise
        return result.result()


def redacted_call(call: Callable[[], T], what: str, database: Any = None) -> T:
    """Return the result of a call of DuckDB; its errors become one line that quotes nothing.

    The message begins with ``what``. Signals interrupt the call if its database is given.
    """
    action = call if database is None else partial(interruptible, call, database)
    return redacted(action, partial(_explain_duckdb, what))


def _explain_duckdb(what: str, error: Exception) -> AdaptiveQsError:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "OutOfMemoryException" in kinds or "Out of Memory" in str(error):
        return ResourceExceeded(
            f"{what}: DuckDB has not enough memory or temporary space: raise --max-memory, or name "
            "a larger --temp-folder"
        )
    causes = {
        "ParserException": "is not valid SQL: correct it",
        "BinderException": "names an unknown column or function, or mixes types: correct it",
        "CatalogException": "names an unknown table or function: correct it",
        "ConversionException": "casts a value that cannot be cast: use TRY_CAST, or declare the "
        "column as it is",
        "OutOfRangeException": "computes a value that is out of range: use wider types",
        "PermissionException": "reads outside the database: name only what the database holds",
        "InvalidInputException": "cannot be run on its rows: try it in DuckDB",
    }
    found = [cause for kind, cause in causes.items() if kind in kinds]
    cause = found[0] if found else "failed: try it in DuckDB, whose message may quote values"
    return InputError(f"{what} {cause}")


@contextmanager
def _opened(query: Query) -> Iterator[tuple[Any, Any]]:
    """Yield the relation of a query, and a connection of its own; or raise InputError."""
    library, database = duckdb(), query.database
    if not os.path.isfile(database):
        raise InputError(f"{query.place}: no such file: check the path")
    with private_folder(query.options.temp_folder) as folder:
        limits = settings(query.options, folder)
        connect = partial(library.connect, str(database), read_only=True, config=limits)
        with closing(redacted(connect, partial(_explain_opening, query.place))) as connection:
            connection.execute("SET enable_external_access=false")
            connection.execute("SET lock_configuration=true")
            ask = partial(redacted_call, what=query.label, database=connection)
            statements = ask(lambda: connection.extract_statements(query.sql))
            if [statement.type.name for statement in statements] != ["SELECT"]:
                raise InputError(f"{query.label} is not a single SELECT statement. Use one.")
            yield ask(lambda: connection.sql(query.sql)), connection


def _explain_opening(place: str, error: Exception) -> DataError:
    """Return why a database cannot be opened. The message is only searched: it may quote it."""
    if re.search(r"\block\b", str(error)):
        return DataError(
            f"{place}: is in use by another program that may write to it: close that first"
        )
    return DataError(
        f"{place}: is not a DuckDB database that can be read: check the file and its version"
    )


def list_tables(database: Path) -> dict[str, bool]:
    """Return the names of the tables and views of a database, and whether each is a table.

    The database is attached to an empty one. There, no macro of the file can replace a function of
    DuckDB and call a view a table.
    """

    def listed() -> list[tuple[str, bool]]:
        with closing(duckdb().connect(config={"threads": 1})) as connection:
            quoted = str(database).replace("'", "''")
            connection.execute(f"ATTACH '{quoted}' AS private (READ_ONLY)")
            found: list[tuple[str, bool]] = []
            for kind in ("table", "view"):
                found += connection.execute(
                    f"SELECT {kind}_name, '{kind}' = 'table' FROM duckdb_{kind}s() "
                    "WHERE database_name = 'private' AND schema_name = 'main' ORDER BY 1"
                ).fetchall()
            return found

    return dict(redacted(listed, partial(_explain_opening, str(database))))


def digest_query(table: Any) -> str | None:
    """Return the SHA-256 of the text of the query whose rows are a table.

    It is ``RELATION`` for a relation, whose text DuckDB makes in part of the rows, so that its
    digest would be private. None for other tables.
    """
    match as_source(table, EngineOptions()):
        case Query(sql=text):
            return sha256(text.encode()).hexdigest()
        case Relation():
            return RELATION
    return None


def _relation_source(relation: Any, label: str, connection: Any = None) -> Source:
    names = tuple(relation.columns)

    def read(requested: Sequence[str]) -> Iterator[Chunk]:
        places = [names.index(name) for name in requested]
        ask = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        reader = redacted_call(lambda: ask(1 << 16), label, connection)
        while batch := redacted_call(lambda: [*zip([0], reader)], label, connection):
            yield Chunk(tuple(batch[0][1].column(place) for place in places), 0, 1)

    return Source(label, names, read)


# Tables of databases.


def _at_rest(path: Path, *suffixes: str) -> None:
    """Raise DataError if some rows of a database are still in a file next to it."""
    for suffix in suffixes:
        log = path.with_name(path.name + suffix)
        if os.path.exists(log) and os.path.getsize(log):
            raise DataError(
                f"{path}: has changes in {log.name}: close the program that writes to it"
            )


@contextmanager
def open_sqlite(path: Path, name: str | None = None) -> Iterator[Source]:
    """Yield a table of a SQLite database as a source; the file is opened for reading only.

    Views and virtual tables are refused: each of their rows can depend on many rows.
    """
    _at_rest(path, "-wal", "-journal")
    location = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(location, uri=True, check_same_thread=False)) as database:
        call = partial(interruptible, database=database)

        def ask(query: str) -> list[Row]:
            return call(lambda: database.execute(query).fetchall())

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
        table = choose_table(path, tables, name, "table", refused)
        described = ask(f"PRAGMA table_xinfo({_identifier(table)})")
        names = tuple(str(row[1]) for row in described if row[6] != 1)  # not hidden
        most_bytes = min(1 << 22, (1 << 28) // len(names))  # of a cell
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most_bytes)
        total = ask(f"SELECT count(*) FROM {_identifier(table)}")[0][0]

        def read(requested: Sequence[str]) -> Iterator[Chunk]:
            listed = ", ".join(map(_identifier, names))
            rows = database.execute(f"SELECT {listed} FROM {_identifier(table)}")
            yield from chunk_objects(names, rows, total, requested, call)

        yield Source(str(path), tuple(title.strip(ASCII_SPACE) for title in names), read)


def _explain_sqlite(path: Path, error: Exception) -> DataError:
    """Return why a database cannot be read. The message is only searched: it quotes the cell."""
    if "decode to UTF-8" in str(error):
        return DataError(f"{path}: has text that is not UTF-8: write it again as UTF-8")
    if "too big" in str(error):
        return DataError(f"{path}: has a row or cell of more than 4 MiB: write it shorter")
    return DataError(f"{path}: is no SQLite database that can be read: check the file")


def _is_stored(row: Row) -> bool:
    """Return whether an entry of a SQLite schema has a page of its own, as only tables do."""
    return row[1] == "table" and row[2] > 0


@contextmanager
def open_duckdb(path: Path, name: str | None = None) -> Iterator[Source]:
    """Yield a table of a DuckDB database as a source; the file is opened for reading only.

    Views are refused: each of their rows can depend on many rows.
    """
    _at_rest(path, ".wal")
    listed = list_tables(path)
    refused = {
        title: "view, whose rows can depend on each other. Use "
        + shlex.join(["--sql", f"SELECT * FROM {_identifier(title)}", "--database", str(path)])
        for title in listed
        if not listed[title]
    }
    tables = [title for title in listed if listed[title]]
    table = choose_table(path, tables, name, "table", refused)
    query = f"SELECT * FROM {_identifier(table)}"
    with Query(path, query, label=f"{path}: the table", place=str(path)).open() as source:
        yield replace(source, label=str(path))


SQLITE_READER = Reader(open_sqlite, _explain_sqlite)
DUCKDB_READER = Reader(open_duckdb, lambda path, error: _explain_opening(str(path), error))


def _identifier(name: str) -> str:
    """Return a name in quotation marks, for SQL."""
    return '"' + name.replace('"', '""') + '"'


# Writing: into a temporary file of the library's own, which is then copied.

Written = Callable[[Sequence[pa.Array]], None]
"""Writes columns of some rows."""


class Database(OutputFormat):
    """A database with one table, or several, which is written by its own library."""

    is_text = False
    readable = True
    holds_sets = True

    def write(self, tables: Iterable[pa.Table], texts: Sequence[AsText], file: BinaryIO) -> None:
        """Write values of the declared types, missing ones as null."""
        self.write_set([("synthetic", tables, texts)], file)

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
                    for batch in page.to_batches(max_chunksize=OBJECT_ROWS):
                        columns = zip(batch.columns, texts)
                        write([self._cells(values, as_text) for values, as_text in columns])

    @contextmanager
    def batch_writer(
        self, schema: pa.Schema, dictionaries: Sequence[str], file: BinaryIO
    ) -> Iterator[Callable[[pa.RecordBatch], None]]:
        """Yield a function that writes every text unchanged."""
        plain = without_dictionaries(schema)
        with self._connected(file) as database:
            write = self._create_table(database, plain, "answers")
            yield lambda batch: write(batch.cast(plain).columns)

    @abstractmethod
    def _connected(self, file: BinaryIO) -> AbstractContextManager[Any]:
        """Yield a connection to a new database, which is copied to the file at the end."""

    @abstractmethod
    def _create_table(self, database: Any, schema: pa.Schema, name: str) -> Written:
        """Create a table and return a function that writes columns of rows in its types."""

    def _cells(self, values: pa.Array, as_text: AsText) -> pa.Array:
        """Return values as the file has them, by default unchanged."""
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
        return re.sub("[A-Z]+", lambda letters: letters[0].lower(), name)

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
        numbers = {pa.float64(): "REAL", pa.int64(): "INTEGER", pa.bool_(): "INTEGER"}
        kinds = [numbers.get(kind, "TEXT") for kind in schema.types]
        columns = ", ".join(f"{title} {kind}" for title, kind in zip(names, kinds))
        insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})"
        database.execute(f"CREATE TABLE {table} ({columns})")

        def write(columns: Sequence[pa.Array]) -> None:
            database.executemany(insert, zip(*(column.to_pylist() for column in columns)))

        return write


class DuckDb(Database):
    """A DuckDB database with one table."""

    @staticmethod
    def fold(name: str) -> str:
        """Return the name in lower case."""
        return name.lower()

    @staticmethod
    def library() -> object:
        """Import the library; raise InputError if it is not installed."""
        return duckdb()

    @contextmanager
    def _connected(self, file: BinaryIO) -> Iterator[Any]:
        library = duckdb()
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
