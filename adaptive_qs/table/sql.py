"""Tables in databases: SQLite, read and written, and DuckDB, read.

Only rows come from a database. Their cells are coded one by one like cells of a file, so that no
cell decides how another is read. Messages of these libraries quote values, so they are not passed
on.
"""

import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from adaptive_qs.errors import DataError, InputError
from adaptive_qs.machine import ThreadPool
from adaptive_qs.table.cells import redacted
from adaptive_qs.table.containers import OBJECT_ROWS, Row, choose_table, chunk_objects
from adaptive_qs.table.read import Chunk, Reader, Source
from adaptive_qs.table.text import ASCII_SPACE
from adaptive_qs.table.write import AsText, OutputFormat, without_dictionaries

T = TypeVar("T")


def duckdb() -> Any:
    """Import the library; raise InputError if it is not installed."""
    try:
        import duckdb as library
    except ImportError:
        raise InputError("DuckDB is not installed: pip install 'adaptive-qs[duckdb]'") from None
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


def _explain_opening(place: str, error: Exception) -> DataError:
    """Return why a database cannot be opened. The message is only searched: it may quote it."""
    if "Out of Memory" in str(error):
        return DataError(f"{place} has rows too large for DuckDB. Write it to Parquet.")
    if re.search(r"\block\b", str(error)):
        return DataError(
            f"{place} is in use by another program that can write to it. Close that program."
        )
    return DataError(
        f"{place} is not a DuckDB database that can be read. Check the file and its version."
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


_WRITE_ROWS = "whose rows can depend on each other: write its rows to a table, and name that"


def _at_rest(path: Path, *suffixes: str) -> None:
    """Raise DataError if some rows of a database are still in a file next to it."""
    for suffix in suffixes:
        log = path.with_name(path.name + suffix)
        if os.path.exists(log) and os.path.getsize(log):
            raise DataError(
                f"{path} has changes in {log.name}. Close the program that writes to it."
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
        refused = {
            row[0]: f"{'view' if row[1] == 'view' else 'virtual table'}, {_WRITE_ROWS}"
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
        return DataError(f"{path} has text that is not UTF-8. Write it again as UTF-8.")
    if "too big" in str(error):
        return DataError(f"{path} has a row or cell of more than 4 MiB. Shorten it.")
    return DataError(f"{path} is not a SQLite database that can be read. Check the file.")


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
    tables = [title for title in listed if listed[title]]
    refused = {title: f"view, {_WRITE_ROWS}" for title in listed if not listed[title]}
    table = choose_table(path, tables, name, "table", refused)
    limits = {"threads": 1, "memory_limit": "256MiB", "temp_directory": ""}
    with closing(duckdb().connect(str(path), read_only=True, config=limits)) as connection:
        connection.execute("SET enable_external_access=false")
        relation = connection.sql(f"SELECT * FROM {_identifier(table)}")
        names = tuple(relation.columns)
        begin = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader

        def read(requested: Sequence[str]) -> Iterator[Chunk]:
            places = [names.index(name) for name in requested]
            reader = interruptible(lambda: begin(1 << 16), connection)
            while batch := interruptible(lambda: [*zip([0], reader)], connection):
                yield Chunk(tuple(batch[0][1].column(place) for place in places), 0, 1)

        yield Source(str(path), names, read)


SQLITE_READER = Reader(open_sqlite, _explain_sqlite)
DUCKDB_READER = Reader(open_duckdb, lambda path, error: _explain_opening(str(path), error))


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Sqlite(OutputFormat):
    """A SQLite database with one table, or several; dates are texts, booleans 0 and 1."""

    is_text = False
    holds_sets = True
    most_columns = 2_000

    @staticmethod
    def fold(name: str) -> str:
        """Return the name with ASCII letters in lower case."""
        return re.sub("[A-Z]+", lambda letters: letters[0].lower(), name)

    def write(self, tables: Iterable[pa.Table], texts: Sequence[AsText], file: BinaryIO) -> None:
        """Write values of the declared types, missing ones as null."""
        self.write_set([("synthetic", tables, texts)], file)

    def write_set(
        self, tables: Iterable[tuple[str, Iterable[pa.Table], Sequence[AsText]]], file: BinaryIO
    ) -> None:
        """Write tables by name, one after the other; see :meth:`write`."""
        with _written(file) as database:
            for name, parts, texts in tables:
                pages = iter(parts)
                first = next(pages)
                write = _create_table(database, first.schema, name)
                for page in chain([first], pages):
                    for batch in page.to_batches(max_chunksize=OBJECT_ROWS):
                        write([
                            pc.if_else(values.is_valid(), as_text(values), None)
                            if pa.types.is_temporal(values.type)
                            else values
                            for values, as_text in zip(batch.columns, texts)
                        ])  # fmt: skip

    @contextmanager
    def batch_writer(
        self, schema: pa.Schema, dictionaries: Sequence[str], file: BinaryIO
    ) -> Iterator[Callable[[pa.RecordBatch], None]]:
        """Yield a function that writes every text unchanged."""
        plain = without_dictionaries(schema)
        with _written(file) as database:
            write = _create_table(database, plain, "answers")
            yield lambda batch: write(batch.cast(plain).columns)


@contextmanager
def _written(file: BinaryIO) -> Iterator[sqlite3.Connection]:
    """Yield a connection to a new database in a temporary file, which is then copied."""
    with tempfile.TemporaryDirectory(prefix="adaptive-qs-out-") as folder:
        path = Path(folder) / "table.db"
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA journal_mode=OFF")
            yield database
            database.commit()
        with path.open("rb") as written:
            shutil.copyfileobj(written, file)


def _create_table(
    database: sqlite3.Connection, schema: pa.Schema, name: str
) -> Callable[[Sequence[pa.Array]], None]:
    """Create a table and return a function that writes columns of rows in its types."""
    table, names = _identifier(name), [*map(_identifier, schema.names)]
    numbers = {pa.float64(): "REAL", pa.int64(): "INTEGER", pa.bool_(): "INTEGER"}
    kinds = [numbers.get(kind, "TEXT") for kind in schema.types]
    columns = ", ".join(f"{title} {kind}" for title, kind in zip(names, kinds))
    insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})"
    database.execute(f"CREATE TABLE {table} ({columns})")

    def write(columns: Sequence[pa.Array]) -> None:
        database.executemany(insert, zip(*(column.to_pylist() for column in columns)))

    return write


SQLITE = Sqlite()
