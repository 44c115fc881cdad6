"""A private table as compact integer codes, and its exact marginal counts.

A counter is the only reader of private rows after encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import DataError

MAX_ROWS = 2**40
"""Public bound on the number of rows; keeps every scaled count inside 64 bits."""
CODE_BYTES = 8
"""Memory of one private value: its code, in the chunks that were read and joined."""


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
        refusal = DataError(f"the parts of a table are not {num_rows:,} rows of its codes")
        made = 0
        for rows in parts:
            fits = rows.ndim == 2 and rows.shape[1] == len(domain) and made + len(rows) <= num_rows
            inside = not rows.size or (rows.min() >= 0 and (rows.max(axis=0) < domain.sizes).all())
            if not (fits and inside):
                raise refusal
            for column, codes in zip(columns, rows.T):
                column[made : made + len(rows)] = codes
            made += len(rows)
        if made != num_rows:
            raise refusal
        return cls(domain, tuple(columns))

    def __repr__(self) -> str:
        """The public part: neither codes nor their number."""
        return f"<CodedTable of {len(self.domain)} columns>"

    @property
    def num_rows(self) -> int:
        """Number of rows. Private: never print or release it."""
        return len(self.columns[0])


# Counting. An engine counts; what it counted is kept, since the loop asks for it again.


class CountingEngine(Protocol):
    """Counts the rows of one private table."""

    domain: Domain
    """Attributes and their numbers of codes."""

    def count_all(self, cliques: Sequence[Clique]) -> list[NDArray[np.int64]]:
        """The exact marginals over some cliques (rows), one axis per attribute, in one pass.

        Cliques are not empty. Counts are never released without noise.
        """

    def count_rows(self) -> int:
        """The number of rows; private."""


class MemoryEngine:
    """Counts codes in memory, in blocks of rows that stay near while all cliques are counted.

    Args:
        table: the codes.
        workers: threads, each for a part of the cliques.
    """

    def __init__(self, table: CodedTable, workers: int = 1) -> None:
        self.domain: Domain = table.domain
        self._columns = table.columns
        self._workers = workers

    def count_rows(self) -> int:
        """The number of rows; private."""
        return len(self._columns[0])

    def count_all(self, cliques: Sequence[Clique]) -> list[NDArray[np.int64]]:
        """The exact marginals over some cliques (rows), one axis per attribute, in one pass."""
        counts = [np.zeros(self.domain.shape(clique), dtype=np.int64) for clique in cliques]
        shares = [list(zip(cliques, counts))[k :: self._workers] for k in range(self._workers)]
        if len(cliques) == 1 or self._workers == 1:
            self._count_share(list(zip(cliques, counts)))
            return counts
        with ThreadPoolExecutor(self._workers) as pool:
            list(pool.map(self._count_share, filter(None, shares)))
        return counts

    def _count_share(self, share: Sequence[tuple[Clique, NDArray[np.int64]]]) -> None:
        rows = self.count_rows()
        cells = np.empty(min(_BLOCK_ROWS, rows), dtype=np.int64)
        for first in range(0, rows, _BLOCK_ROWS):
            block = [codes[first : first + _BLOCK_ROWS] for codes in self._columns]
            for clique, counts in share:
                count_block([block[i] for i in clique], counts, cells)


_BLOCK_ROWS = 2**16
"""Rows that are counted for all cliques before the next ones are read from memory."""


def count_block(
    columns: Sequence[NDArray[np.unsignedinteger[Any]]],
    counts: NDArray[np.int64],
    cells: NDArray[np.int64],
) -> None:
    """Add some rows to their marginal, in place.

    Args:
        columns: codes of the marginal's attributes.
        counts: the contiguous marginal, one axis per attribute.
        cells: room for as many integers as there are rows.
    """
    cells = cells[: len(columns[0])]
    cells[:] = columns[0]
    for codes, size in zip(columns[1:], counts.shape[1:]):
        _next_axis(cells, codes, size)
    _tally(cells, counts.reshape(-1))


@njit(cache=True, nogil=True)
def _next_axis(cells, codes, size):  # type: ignore[no-untyped-def]
    for row in range(cells.size):
        cells[row] = cells[row] * size + codes[row]


@njit(cache=True, nogil=True)
def _tally(cells, counts):  # type: ignore[no-untyped-def]
    for cell in cells:
        counts[cell] += 1


KEPT_CELLS = 2**22
"""Cells of all counted marginals that are kept, by default."""


class MarginalCounter:
    """Exact marginals of one private table, kept where they fit; never released without noise.

    Args:
        table: the private rows, or the engine that counts them.
        most_cells: cells of all marginals that are kept.

    Raises:
        DataError: more than ``MAX_ROWS`` rows; the message does not tell how many.
    """

    def __init__(self, table: CodedTable | CountingEngine, most_cells: int = KEPT_CELLS) -> None:
        self._engine = MemoryEngine(table) if isinstance(table, CodedTable) else table
        self._rows = self._engine.count_rows()
        if self._rows > MAX_ROWS:
            raise DataError(f"table: more than {MAX_ROWS:,} rows: give a part of it")
        self.domain: Domain = self._engine.domain
        self._dtype = np.uint32 if self._rows < 2**32 else np.int64
        self._left = most_cells
        self._kept: dict[Clique, NDArray[Any]] = {}
        self._lock = Lock()

    def count(self, clique: Clique) -> NDArray[np.int64]:
        """The exact marginal over a clique (rows), one axis per attribute."""
        if not clique:
            return np.array(self._rows)
        return self.count_all([clique])[0]

    def count_all(self, cliques: Sequence[Clique]) -> list[NDArray[np.int64]]:
        """The exact marginals over some cliques that are not empty; one pass counts the missing."""
        kept = {clique: self._kept.get(clique) for clique in cliques}
        missing = [clique for clique, counts in kept.items() if counts is None]
        found = dict(zip(missing, self._engine.count_all(missing) if missing else ()))
        for clique, counts in found.items():
            self._keep(clique, counts)
        return [
            found[clique] if counts is None else counts.astype(np.int64)
            for clique in cliques
            for counts in [kept[clique]]
        ]

    def prepare(self, cliques: Iterable[Clique]) -> None:
        """Count in one pass those of some marginals that will be asked for and can be kept."""
        wanted, left = [], self._left
        for clique in dict.fromkeys(cliques):
            if clique and clique not in self._kept and self.domain.size(clique) <= left:
                left -= self.domain.size(clique)
                wanted.append(clique)
        for clique, counts in zip(wanted, self._engine.count_all(wanted) if wanted else ()):
            self._keep(clique, counts)

    def _keep(self, clique: Clique, counts: NDArray[np.int64]) -> None:
        with self._lock:
            if counts.size <= self._left and clique not in self._kept:
                self._left -= counts.size
                self._kept[clique] = counts.astype(self._dtype)


COUNTERS: dict[str, Callable[[CodedTable, int], CountingEngine]] = {"memory": MemoryEngine}
"""What makes an engine of a table and a number of threads, by its name."""
ENGINE = "memory"
"""The engine that counts."""


def counter_of(table: CodedTable, workers: int = 1) -> MarginalCounter:
    """What counts the rows of a table; raises as :class:`MarginalCounter` does."""
    return MarginalCounter(COUNTERS[ENGINE](table, workers))
