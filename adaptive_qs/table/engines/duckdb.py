"""Counting in DuckDB: codes lie in a compressed table, and marginals are groups of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.machine import StepProgress
from adaptive_qs.table.coded import code_dtype
from adaptive_qs.table.encode import coded_chunks
from adaptive_qs.table.engines import CountingEngine, EngineOptions, Occupied
from adaptive_qs.table.files import private_folder
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.sql import duckdb, said, settings

WHAT = "counting in DuckDB"
_TYPES = {1: "UTINYINT", 2: "USMALLINT", 4: "UINTEGER"}


class DuckEngine:
    """Counts the rows of the table ``codes``, whose columns are c0, c1 and so on.

    Args:
        domain: the attributes.
        connection: to the database that holds it.
    """

    def __init__(self, domain: Domain, connection: Any) -> None:
        self.domain: Domain = domain
        self._connection = connection
        ((self._rows,),) = self._fetched("SELECT count(*) AS n FROM codes", list)

    def count_rows(self) -> int:
        """The number of rows; private."""
        return int(self._rows)

    def count_all(self, cliques: Sequence[Clique]) -> list[NDArray[np.int64]]:
        """The exact marginals over some cliques (rows), one axis per attribute.

        A clique is a scan of its columns only: one scan for several, by GROUPING SETS, is hardly
        faster.
        """
        return list(map(self._count, cliques))

    def occupied(self, cliques: Sequence[Clique]) -> list[Occupied]:
        """The occupied cells of the marginals over some cliques: the groups as they are found."""
        return list(map(self._occupied, cliques))

    def _count(self, clique: Clique) -> NDArray[np.int64]:
        shape, found = self.domain.shape(clique), self._occupied(clique)
        counts = np.zeros(shape, dtype=np.int64)
        counts.reshape(-1)[found.cells] = found.counts
        return counts

    def _occupied(self, clique: Clique) -> Occupied:
        names = ", ".join(f"c{i}" for i in clique)
        sql = f"SELECT {names}, count(*) AS n FROM codes GROUP BY {names}"
        found = self._fetched(sql, dict)
        codes = tuple(np.asarray(found[f"c{i}"], dtype=np.int64) for i in clique)
        cells = np.ravel_multi_index(codes, self.domain.shape(clique))
        return Occupied(cells, np.asarray(found["n"], dtype=np.int64))

    def _fetched(self, sql: str, kind: type) -> Any:
        with closing(self._connection.cursor()) as cursor:  # threads may ask at the same time
            asked = said(lambda: cursor.execute(sql), WHAT)
            return said(asked.fetchnumpy if kind is dict else asked.fetchall, WHAT)


@contextmanager
def open_duckdb(
    source: Any, schema: Schema, options: EngineOptions, progress: StepProgress | None
) -> Iterator[CountingEngine]:
    """Codes in a DuckDB database of their own; see :class:`EngineOpener`."""
    library, domain = duckdb(), schema.domain()
    # Where a query is the table, another connection works beside this one.
    with private_folder(options.temp_folder) as folder:
        limits = settings(options, folder)
        connect = lambda: library.connect(str(folder / "codes.db"), config=limits)  # noqa: E731
        with closing(said(connect, WHAT)) as connection:
            connection.execute("SET enable_external_access=false")
            types = [_TYPES[code_dtype(size).itemsize] for size in domain.sizes]
            columns = ", ".join(f"c{i} {name}" for i, name in enumerate(types))
            said(lambda: connection.execute(f"CREATE TABLE codes ({columns})"), WHAT)
            names = [f"c{i}" for i in range(len(types))]
            check, workers = options.check_rows, options.workers
            for chunk in coded_chunks(source, schema, progress, check, workers):
                _insert(connection, pa.table(list(map(pa.array, chunk)), names=names))
            yield DuckEngine(domain, connection)


def _insert(connection: Any, rows: pa.Table) -> None:
    def insert() -> None:
        connection.register("chunk", rows)
        connection.execute("INSERT INTO codes SELECT * FROM chunk")
        connection.unregister("chunk")

    said(insert, WHAT)
