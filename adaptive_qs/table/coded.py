"""A private table as compact integer codes, and its exact marginal counts.

A counter is the only reader of private rows after encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import DataError

MAX_ROWS = 2**40
"""Public bound on the number of rows; keeps every scaled count inside 64 bits."""
CODE_BYTES = 8
"""Memory of one private value: its code and the counter's copy."""


def code_dtype(size: int) -> np.dtype[np.unsignedinteger[Any]]:
    """The smallest unsigned integer type for the codes 0 .. size-1."""
    return np.min_scalar_type(size - 1)


@dataclass(frozen=True, eq=False)
class CodedTable:
    """Rows as codes: `columns[i][r]` in 0 .. sizes[i]-1 is attribute i of row r.

    Every column is a contiguous, read-only array of shape (num_rows,) in the smallest unsigned
    integer type of its attribute.

    Raises:
        DataError: the columns do not fit the domain or each other.
    """

    domain: Domain
    columns: tuple[NDArray[np.unsignedinteger[Any]], ...]

    def __post_init__(self) -> None:
        if len(self.columns) != len(self.domain):
            raise DataError(
                f"{len(self.columns)} code arrays came for {len(self.domain)} attributes: "
                "give one for each"
            )
        views = []
        for attribute, codes in zip(self.domain.attributes, self.columns):
            problem = ""
            if codes.ndim != 1 or codes.shape != self.columns[0].shape:
                problem = "is not one-dimensional and as long as the first"
            elif codes.dtype != code_dtype(attribute.size) or not codes.flags.c_contiguous:
                problem = f"is not a contiguous array of {code_dtype(attribute.size)}"
            elif codes.size and int(codes.max()) >= attribute.size:
                problem = f"has a code outside 0..{attribute.size - 1}"
            if problem:
                raise DataError(f"code array of {attribute.name!r} {problem}: encode it again")
            views.append(codes.view())
            views[-1].flags.writeable = False
        object.__setattr__(self, "columns", tuple(views))

    @classmethod
    def from_codes(cls, domain: Domain, columns: Iterable[NDArray[np.integer[Any]]]) -> Self:
        """The table of these integer codes of any integer type, checked and made compact.

        Raises:
            DataError: a code lies outside its attribute, or the arrays do not fit the domain.
        """
        arrays = [np.asarray(codes) for codes in columns]
        for i, (attribute, codes) in enumerate(zip(domain.attributes, arrays)):
            if not np.issubdtype(codes.dtype, np.integer):
                raise DataError(f"codes of {attribute.name!r} are not integers: encode the data")
            if codes.size and (int(codes.min()) < 0 or int(codes.max()) >= attribute.size):
                raise DataError(
                    f"codes of {attribute.name!r} leave 0..{attribute.size - 1}: "
                    "correct the data or the size"
                )
            arrays[i] = np.ascontiguousarray(codes, dtype=code_dtype(attribute.size))
        return cls(domain, tuple(arrays))

    @classmethod
    def from_parts(
        cls, domain: Domain, parts: Iterable[NDArray[np.integer[Any]]], num_rows: int
    ) -> Self:
        """The table of rows that come in parts, each of shape (some, attributes).

        Args:
            domain: the attributes.
            parts: the rows.
            num_rows: how many there are in all.

        Raises:
            DataError: there are more or fewer, of another width, or a code lies outside its
                attribute.
        """
        columns = [np.zeros(num_rows, dtype=code_dtype(n)) for n in domain.sizes]
        made = 0
        for rows in parts:
            if rows.ndim != 2 or rows.shape[1] != len(domain) or made + len(rows) > num_rows:
                break
            if len(rows) and (rows.min() < 0 or (rows.max(axis=0) >= domain.sizes).any()):
                break
            for column, codes in zip(columns, rows.T):
                column[made : made + len(rows)] = codes
            made += len(rows)
        if made != num_rows:
            raise DataError(f"the parts of a table are not {num_rows:,} rows of its codes")
        return cls(domain, tuple(columns))

    def __repr__(self) -> str:
        """The public part: neither codes nor their number."""
        return f"<CodedTable of {len(self.domain)} columns>"

    @property
    def num_rows(self) -> int:
        """Number of rows. Private: never print or release it."""
        return len(self.columns[0])


class TableCounter(Protocol):
    """Counts the rows of one private table; its counts are never released without noise."""

    domain: Domain
    """Attributes and their numbers of codes."""

    def count(self, clique: Clique) -> NDArray[np.int64]:
        """The exact marginal over a clique (rows), one axis per attribute."""


class MarginalCounter:
    """Counts in memory, by one pass over the rows for each marginal; it takes that of the codes.

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
        if not clique:
            return np.array(self._codes.shape[1])
        out = np.zeros(self.domain.size(clique), dtype=np.int64)
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
    """What counts the rows of a table; raises as :class:`MarginalCounter` does."""
    return COUNTERS[ENGINE](table)
