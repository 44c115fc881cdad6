"""Exact marginal counts of a coded table: the only readers of private rows after encoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import DataError
from adaptive_qs.table.coded import MAX_ROWS, CodedTable


class TableCounter(Protocol):
    """Counts the rows of one private table; its counts are never released without noise."""

    domain: Domain
    """Attributes and their numbers of codes."""

    def count(self, clique: Clique) -> NDArray[np.int64]:
        """The exact marginal over a clique (rows), one axis per attribute."""


class MarginalCounter:
    """Counts in memory, by one pass over the rows for each marginal; it takes that of the codes.

    Args:
        table: the private rows.

    Raises:
        DataError: more than ``MAX_ROWS`` rows; the message does not tell how many.
    """

    def __init__(self, table: CodedTable) -> None:
        if table.num_rows > MAX_ROWS:
            raise DataError(f"table: more than {MAX_ROWS:,} rows: give a part of it")
        self.domain: Domain = table.domain
        dtype = np.uint16 if max(self.domain.sizes) <= 2**16 else np.uint32
        self._codes = np.empty((len(self.domain), table.num_rows), dtype=dtype)
        for i, column in enumerate(table.columns):
            self._codes[i] = column

    def count(self, clique: Clique) -> NDArray[np.int64]:
        """The exact marginal over a clique (rows), one axis per attribute."""
        shape = self.domain.shape(clique)
        out = np.zeros(self.domain.size(clique), dtype=np.int64)
        if not clique:
            out[0] = self._codes.shape[1]
            return out.reshape(())
        _count_rows(self._codes, np.array(clique), np.array(shape), out)
        return out.reshape(shape)


@njit(cache=True, nogil=True)
def _count_rows(codes, clique, shape, out):  # type: ignore[no-untyped-def]
    for row in range(codes.shape[1]):
        cell = 0
        for axis in range(clique.size):
            cell = cell * shape[axis] + codes[clique[axis], row]
        out[cell] += 1


COUNTERS: dict[str, Callable[[CodedTable], TableCounter]] = {"memory": MarginalCounter}
"""What makes a counter of a table, by the name of the engine."""
ENGINE = "memory"
"""The engine that counts."""


def counter_of(table: CodedTable) -> TableCounter:
    """What counts the rows of a table.

    Raises:
        DataError: the table has more than ``MAX_ROWS`` rows; the message does not tell how many.
    """
    return COUNTERS[ENGINE](table)
