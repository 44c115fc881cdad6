"""Tables that a DuckDB database holds: the rows of a query, and relations that callers bring.

Only rows come from the database. Their cells are coded one by one like those of a file, so that no
cell decides how another is read, and what DuckDB says of an error is not passed on: it quotes
values.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import (
    AbstractContextManager,
    ExitStack,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from adaptive_qs.arguments import RELATION
from adaptive_qs.errors import AdaptiveQsError, InputError, ResourceExceeded
from adaptive_qs.machine import ThreadPool
from adaptive_qs.table.engines import EngineOptions
from adaptive_qs.table.files import private_folder
from adaptive_qs.table.read import BATCH_ROWS, Chunk, Rows, Source

T = TypeVar("T")

_PATIENCE = 0.2
"""Seconds after which signals are heard where they do not end a wait."""

_QUERY = "the query (--sql)"
LEAST_BYTES = 2**27
"""DuckDB's memory at least: it refuses to start with much less."""


@dataclass(frozen=True)
class Query(Rows):
    """The rows of a query in a database file, which is opened for reading only.

    Attributes:
        database: the file.
        sql: one SELECT, on what the database itself holds.
        options: what DuckDB may take of the machine.
        label: what messages call it.
    """

    database: Path
    sql: str
    options: EngineOptions = field(default_factory=EngineOptions, compare=False)
    label: str = field(default=_QUERY, compare=False)

    def __str__(self) -> str:
        return str(self.database)

    @contextmanager
    def open(self) -> Iterator[Source]:
        """Its rows as a source; raises as :func:`_opened` does."""
        with _opened(self) as (relation, connection):
            yield _relation_source(relation, self.label, connection)


@dataclass(frozen=True)
class Relation(Rows):
    """The rows of a relation of DuckDB, whose connection stays its caller's."""

    relation: Any

    def __str__(self) -> str:
        return "the relation"

    def open(self) -> AbstractContextManager[Source]:
        """Its rows as a source."""
        return nullcontext(_relation_source(self.relation, str(self)))


def as_source(table: Any, options: EngineOptions) -> Any:
    """Return a table as a run reads it: queries with what DuckDB may take, relations as rows."""
    if isinstance(table, Query):
        return replace(table, options=options)
    library = sys.modules.get("duckdb")  # not imported for that
    known = library is not None and isinstance(table, library.DuckDBPyRelation)
    return Relation(table) if known else table


def settings(options: EngineOptions, folder: Path) -> dict[str, Any]:
    """Return the threads, memory and temporary folder of a connection to DuckDB.

    The folder must have nothing else in it: queries can read and write there.
    """
    return {
        "threads": options.workers,
        "memory_limit": f"{max(options.rows_bytes // 2, LEAST_BYTES) >> 20}MiB",
        "temp_directory": str(folder),
    }


def duckdb() -> Any:
    """Import the library.

    Raises:
        InputError: it is not installed.
    """
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
            while not wait([result], _PATIENCE).done:
                pass
        except BaseException:
            database.interrupt()
            raise
        return result.result()


def redacted_call(call: Callable[[], T], what: str, database: Any = None) -> T:
    """Return the result of a call of DuckDB; its errors become one line that quotes nothing.

    Signals end it if its database is given.

    Raises:
        InputError: it failed; the message begins with ``what``.
        ResourceExceeded: it has not enough memory or disk.
    """
    library = duckdb()
    try:
        return call() if database is None else interruptible(call, database)
    except (library.Error, pa.ArrowException, OSError, RuntimeError) as error:
        refusal = _refusal(library, error, what)
    raise refusal  # once DuckDB's error is gone, which may quote a cell


def _refusal(library: Any, error: Exception, what: str) -> AdaptiveQsError:
    text = str(error)
    if isinstance(error, library.OutOfMemoryException) or "Out of Memory" in text:
        return ResourceExceeded(
            f"{what}: DuckDB has not enough memory or temporary space: raise --max-memory, or name "
            "a larger --temp-folder"
        )
    causes = {
        "ParserException": "is not valid SQL: correct it",
        "BinderException": "names a column or a function that there is not, or mixes types: "
        "correct it",
        "CatalogException": "names a table or a function that there is not: correct it",
        "ConversionException": "casts a value that cannot be cast: use TRY_CAST, or declare the "
        "column as it is",
        "OutOfRangeException": "computes a value that is out of range: use wider types",
        "PermissionException": "reads outside the database: name only what the database holds",
        "InvalidInputException": "cannot be run on its rows: try it in DuckDB",
    }
    for kind, cause in causes.items():
        if isinstance(error, getattr(library, kind, ())):
            return InputError(f"{what} {cause}")
    return InputError(f"{what} failed: try it in DuckDB, whose message may quote values")


@contextmanager
def _opened(query: Query) -> Iterator[tuple[Any, Any]]:
    """Yield the relation of a query, and a connection of its own.

    Raises:
        InputError: the database is missing, in use or damaged, the query fails, or is no SELECT.
    """
    library, database = duckdb(), query.database
    if not os.path.isfile(database):
        raise InputError(f"--database {database}: no such file: check the path")
    with private_folder(query.options.temp_folder) as folder, ExitStack() as opened:
        limits = settings(query.options, folder)
        try:
            connection = library.connect(str(database), read_only=True, config=limits)
        except library.Error as error:
            raise InputError(f"--database {database}: {_cause(error)}") from None
        opened.enter_context(closing(connection))
        connection.execute("SET enable_external_access=false")
        connection.execute("SET lock_configuration=true")
        ask = partial(redacted_call, what=query.label, database=connection)
        statements = ask(lambda: connection.extract_statements(query.sql))
        if [statement.type.name for statement in statements] != ["SELECT"]:
            raise InputError(f"{query.label} is not one SELECT: give one")
        yield ask(lambda: connection.sql(query.sql)), connection


def _cause(error: Exception) -> str:
    """Return why a database cannot be opened. The message is only searched: it may quote it."""
    if re.search(r"\block\b", str(error)):
        return "is in use by another program that may write to it: close that first"
    return "is not a DuckDB database that can be read: check the file and its version"


def list_tables(database: Path) -> dict[str, bool]:
    """Return the names of the tables and views of a database, and whether each is a table.

    The database is attached to an empty one: there, no macro of the file stands in the place of a
    function of DuckDB, and could call a view a table.

    Raises:
        InputError: it cannot be read.
    """
    library, listed, cause = duckdb(), [], ""
    with closing(library.connect(config={"threads": 1})) as connection:
        try:
            quoted = str(database).replace("'", "''")
            connection.execute(f"ATTACH '{quoted}' AS private (READ_ONLY)")
            for kind in ("table", "view"):
                listed += connection.execute(
                    f"SELECT {kind}_name, '{kind}' = 'table' FROM duckdb_{kind}s() "
                    "WHERE database_name = 'private' AND schema_name = 'main' ORDER BY 1"
                ).fetchall()
        except library.Error as error:
            cause = _cause(error)
    if cause:  # once DuckDB's error is gone
        raise InputError(f"{database}: {cause}")
    return dict(listed)


def digest_query(table: Any) -> str | None:
    """Return the SHA-256 of the text of the query whose rows are a table.

    Returns:
        ``RELATION`` for a relation: DuckDB makes its text, in part of the rows (types that it
        inferred, values that it holds), so that its digest would be a private value. None for
        tables that no query makes.
    """
    if isinstance(table, Query):
        return sha256(table.sql.encode()).hexdigest()
    return RELATION if isinstance(as_source(table, EngineOptions()), Relation) else None


def _relation_source(relation: Any, label: str, connection: Any = None) -> Source:
    names = tuple(relation.columns)

    def read(requested: Sequence[str]) -> Iterator[Chunk]:
        places = [names.index(name) for name in requested]
        ask = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        reader = redacted_call(lambda: ask(BATCH_ROWS), label, connection)
        with suppress(StopIteration):
            while True:
                batch = redacted_call(reader.read_next_batch, label, connection)
                yield Chunk(tuple(batch.column(place) for place in places), 0, 1)

    return Source(label, names, read)
