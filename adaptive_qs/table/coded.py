"""A private table as compact integer codes, and its exact marginal counts.

A counter is the only reader of private rows after encoding. Rows are counted in blocks, which stay
in the processor's cache while all marginals of a pass are counted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import DataError, ResourceExceeded
from adaptive_qs.machine import ThreadPool, njit
from adaptive_qs.table.engines import CountingEngine, Occupied

T = TypeVar("T")
Codes = NDArray[np.unsignedinteger[Any]]

MAX_ROWS = 2**40
"""Public bound on the number of rows; keeps every scaled count inside 64 bits."""
CODE_BYTES = 8
"""Memory of one code while chunks are read and joined, in bytes."""


def code_dtype(size: int) -> np.dtype[np.unsignedinteger[Any]]:
    """Return the smallest unsigned integer type for the codes 0 .. size-1."""
    return np.min_scalar_type(size - 1)


@dataclass(frozen=True, eq=False)
class CodedTable:
    """Rows as codes: `columns[i][r]` in 0 .. sizes[i]-1 is attribute i of row r.

    Every column is a contiguous, read-only array of shape (num_rows,) in the smallest unsigned
    integer type of its attribute.
    """

    domain: Domain
    columns: tuple[NDArray[np.unsignedinteger[Any]], ...]

    def __post_init__(self) -> None:
        if len(self.columns) != len(self.domain):
            raise DataError(
                f"{len(self.columns)} code arrays came for {len(self.domain)} attributes: "
                "use one for each"
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
        """Return the table of integer codes of any type, checked and made compact.

        Raise DataError if a code lies outside its attribute, or arrays do not fit the domain.
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
        """Build a table from parts with ``num_rows`` rows in total, each (rows, attributes).

        Raise DataError if the parts are not ``num_rows`` rows of codes of the domain.
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
        """Return the public part, without codes and their number."""
        return f"<CodedTable of {len(self.domain)} columns>"

    @property
    def num_rows(self) -> int:
        """Number of rows. It is private: never print or release it."""
        return len(self.columns[0])


# Counting in blocks of coded rows.

BLOCK_ROWS = 2**16
"""Rows of a block, which stays in the processor's cache while all cliques are counted."""
LISTED_CELLS = 2**26
"""Cells of a marginal up to which each has a place while rows are counted; others are sorted."""


class Blocks(Protocol):
    """Coded rows in blocks of at most ``BLOCK_ROWS``."""

    num_rows: int
    """Number of rows of all blocks; private."""

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""

    def read(self, number: int, requested: Sequence[int]) -> list[Codes]:
        """Return the contiguous codes of some attributes in a block, also to several threads."""


class HeldBlocks:
    """Blocks of codes in memory: a contiguous array for each attribute, all of the same length."""

    def __init__(self, columns: Sequence[Codes]) -> None:
        self._columns = columns
        self.num_rows = len(columns[0])
        self.num_blocks = -(-self.num_rows // BLOCK_ROWS)

    def read(self, number: int, requested: Sequence[int]) -> list[Codes]:
        """Return the codes of some attributes in a block."""
        first = number * BLOCK_ROWS
        return [self._columns[i][first : first + BLOCK_ROWS] for i in requested]


class BlockEngine(CountingEngine):
    """An engine that counts blocks of rows."""

    def __init__(self, domain: Domain, blocks: Blocks, workers: int = 1) -> None:
        self.domain: Domain = domain
        self._blocks = blocks
        self._workers = workers
        self._spare: list[NDArray[np.uint32]] = []  # zeros, where cells are listed

    def count_rows(self) -> int:
        return self._blocks.num_rows

    def count_all(self, cliques: Sequence[Clique]) -> list[NDArray[np.int64]]:
        workers = min(self._workers, len(cliques))  # one clique: the caller has threads for more
        every = range(self._blocks.num_blocks)
        if workers < 2:
            return self._count(cliques, every)
        cells = sum(map(self.domain.size, cliques))
        with ThreadPool(workers) as pool:
            if workers * cells <= 2**21:  # each thread counts some of the blocks into own cells
                shares = [every[k::workers] for k in range(workers)]
                counted = pool.map(lambda share: self._count(cliques, share), shares)
                return [sum(parts[1:], parts[0]) for parts in zip(*counted)]
            parts = [cliques[k::workers] for k in range(workers)]
            counted_parts = list(pool.map(lambda part: self._count(part, every), parts))
        return [counted_parts[k % workers][k // workers] for k in range(len(cliques))]

    def occupied(self, cliques: Sequence[Clique]) -> list[Occupied]:
        listed = map(self.domain.size, cliques)
        room = max((size for size in listed if size <= LISTED_CELLS), default=0)
        places = np.zeros(0, dtype=np.uint32)
        with suppress(IndexError):
            places = self._spare.pop()
        if places.size < room:
            places = np.zeros(room, dtype=np.uint32)
        found = [self._occupied(clique, places) for clique in cliques]
        self._spare.append(places)
        return found

    def _occupied(self, clique: Clique, places: NDArray[np.uint32]) -> Occupied:
        """Return those of one clique; ``places`` are zero before and after."""
        size, rows = self.domain.size(clique), self._blocks.num_rows
        every = range(self._blocks.num_blocks)
        if size <= rows:
            counts = self._count([clique], every)[0].reshape(-1)
            cells = np.flatnonzero(counts)
            return Occupied(cells, counts[cells])
        if size > LISTED_CELLS:
            blocks = [self._cells(clique, number, np.int64) for number in every]
            none = np.empty(0, np.int64)
            return Occupied(*np.unique(np.concatenate([none, *blocks]), return_counts=True))
        listed, found = np.empty(rows, dtype=np.uint32), 0
        for number in every:
            found = _list_occupied(self._cells(clique, number, np.uint32), places, listed, found)
        listed[:found].sort()  # neighbouring cells are read one after the other
        return Occupied(*_take_occupied(places, listed[:found]))

    def _cells(self, clique: Clique, number: int, kind: type) -> NDArray[Any]:
        shape = self.domain.shape(clique)
        first, *others = self._blocks.read(number, clique)
        cells: NDArray[Any] = first.astype(kind)
        for codes, size in zip(others, shape[1:]):
            _next_axis(cells, codes, kind(size))
        return cells

    def _count(self, cliques: Sequence[Clique], numbers: Sequence[int]) -> list[NDArray[np.int64]]:
        counts = [np.zeros(self.domain.shape(clique), dtype=np.int64) for clique in cliques]
        requested = sorted({i for clique in cliques for i in clique})
        cells = np.empty(min(BLOCK_ROWS, self._blocks.num_rows), dtype=np.uint32)
        for number in numbers:
            columns = dict(zip(requested, self._blocks.read(number, requested)))
            for clique, marginal in zip(cliques, counts):
                count_block([columns[i] for i in clique], marginal, cells)
        return counts


def count_block(
    columns: Sequence[Codes], counts: NDArray[np.int64], cells: NDArray[np.uint32]
) -> None:
    """Add some rows to their marginal, in place.

    It is contiguous and has at most 2³² cells. ``cells`` has room for one integer per row.
    """
    if counts.size > 2**32:
        raise ResourceExceeded("a marginal has more cells than 2**32: request fewer ways")
    cells = cells[: len(columns[0])]
    cells[:] = columns[0]
    for codes, size in zip(columns[1:], counts.shape[1:]):
        _next_axis(cells, codes, np.uint32(size))
    flat = counts.reshape(-1)
    if flat.size > _LANE_CELLS:
        _tally(cells, flat)
    else:
        lanes = np.zeros((4, flat.size), dtype=np.uint32)
        _tally_in_lanes(cells, lanes)
        flat += lanes.sum(axis=0, dtype=np.int64)


def load_programs() -> None:
    """Compile or load the counting kernels, which takes up to some seconds, before rows wait."""
    for kind in (np.uint8, np.uint16, np.uint32):  # see code_dtype
        codes: Codes = np.zeros(1, dtype=kind)
        for cells in (1, 2 * _LANE_CELLS):
            counts = np.zeros((cells, 1), dtype=np.int64)
            count_block([codes, codes], counts, np.empty(1, dtype=np.uint32))


_LANE_CELLS = 2**12


@njit(cache=True, nogil=True)
def _next_axis(cells, codes, size):  # type: ignore[no-untyped-def]
    for row in range(cells.size):
        cells[row] = cells[row] * size + np.uint32(codes[row])


@njit(cache=True, nogil=True)
def _tally(cells, counts):  # type: ignore[no-untyped-def]
    for cell in cells:
        counts[cell] += 1


@njit(cache=True, nogil=True)
def _list_occupied(cells, places, listed, number):  # type: ignore[no-untyped-def]
    """Count cells in their places, list new ones, and return how many are listed."""
    for cell in cells:
        if places[cell] == 0:
            listed[number] = cell
            number += 1
        places[cell] += 1
    return number


@njit(cache=True, nogil=True)
def _take_occupied(places, listed):  # type: ignore[no-untyped-def]
    """Return the listed cells and their counts, and clear their places."""
    cells, counts = np.empty(listed.size, np.int64), np.empty(listed.size, np.int64)
    for k in range(listed.size):
        cells[k], counts[k] = listed[k], places[listed[k]]
        places[listed[k]] = 0
    return cells, counts


@njit(cache=True, nogil=True)
def _tally_in_lanes(cells, lanes):  # type: ignore[no-untyped-def]
    """Count four rows in turn, so that none waits for an equal one before it."""
    whole = cells.size // 4 * 4
    for row in range(0, whole, 4):
        lanes[0, cells[row]] += 1
        lanes[1, cells[row + 1]] += 1
        lanes[2, cells[row + 2]] += 1
        lanes[3, cells[row + 3]] += 1
    for row in range(whole, cells.size):
        lanes[0, cells[row]] += 1


# Counting. An engine counts; what it counted is kept, since the loop asks for it again.
KEPT_CELLS = 2**22
"""Cells of all counted marginals that are kept by default."""


class MarginalCounter:
    """Exact marginals of one private table, kept if they fit; never released without noise.

    ``most_cells`` of all marginals are kept. An engine has its own ``workers``. Raises DataError if
    there are more than ``MAX_ROWS`` rows.
    """

    def __init__(
        self, table: CodedTable | CountingEngine, most_cells: int = KEPT_CELLS, workers: int = 1
    ) -> None:
        if isinstance(table, CodedTable):
            table = BlockEngine(table.domain, HeldBlocks(table.columns), workers)
        self._engine = table
        self._rows = self._engine.count_rows()
        if self._rows > MAX_ROWS:
            raise DataError(f"table: more than {MAX_ROWS:,} rows. Use a part of it.")
        self.domain: Domain = self._engine.domain
        self._dtype = np.uint32 if self._rows < 2**32 else np.int64
        self._left = self._most = most_cells
        self._kept: dict[Clique, NDArray[Any]] = {}
        self._listed: dict[Clique, Sequence[NDArray[Any]]] = {}
        self._lock = Lock()

    def keep_up_to(self, cells: int) -> None:
        """Keep counted marginals of at least this number of cells together."""
        with self._lock:
            self._left += max(0, cells - self._most)
            self._most = max(cells, self._most)

    def count(self, clique: Clique) -> NDArray[np.int64]:
        """Return the exact marginal over a clique (rows), one axis per attribute."""
        if not clique:
            return np.array(self._rows)
        return self.count_all([clique])[0]

    def count_all(self, cliques: Sequence[Clique]) -> list[NDArray[np.int64]]:
        """Return the exact marginals over some nonempty cliques; one pass counts missing ones."""
        kept, found = self._find(cliques, self._kept, self._engine.count_all, self._keep)
        return [
            found[clique] if counts is None else counts.astype(np.int64)
            for clique in cliques
            for counts in [kept[clique]]
        ]

    def occupied(self, cliques: Sequence[Clique]) -> list[Occupied]:
        """Return the occupied cells of the marginals over some nonempty cliques."""
        kept, found = self._find(cliques, self._listed, self._engine.occupied, self._keep_listed)
        return [
            found[clique] if cells is None else Occupied(*(a.astype(np.int64) for a in cells))
            for clique in cliques
            for cells in [kept[clique]]
        ]

    def prepare(self, cliques: Iterable[Clique]) -> None:
        """Count in one pass the marginals that will be requested and can be kept."""
        requested, left = [], self._left
        for clique in dict.fromkeys(cliques):
            if clique and clique not in self._kept and self.domain.size(clique) <= left:
                left -= self.domain.size(clique)
                requested.append(clique)
        self.count_all(requested)

    @staticmethod
    def _find(
        cliques: Sequence[Clique],
        held: Mapping[Clique, Any],
        count: Callable[[Sequence[Clique]], list[T]],
        keep: Callable[[Clique, T], None],
    ) -> tuple[dict[Clique, Any], dict[Clique, T]]:
        """Return what is kept for each clique, or None, and what was counted for the others."""
        kept = {clique: held.get(clique) for clique in cliques}
        missing = [clique for clique, counts in kept.items() if counts is None]
        found = dict(zip(missing, count(missing) if missing else ()))
        for clique, counts in found.items():
            keep(clique, counts)
        return kept, found

    def _keep(self, clique: Clique, counts: NDArray[np.int64]) -> None:
        with self._lock:
            if counts.size <= self._left and clique not in self._kept:
                self._left -= counts.size
                self._kept[clique] = counts.astype(self._dtype)

    def _keep_listed(self, clique: Clique, occupied: Occupied) -> None:
        """Keep occupied cells that fit; position and count fit the planned 12 bytes."""
        with self._lock:
            if occupied.cells.size <= self._left and clique not in self._listed:
                self._left -= occupied.cells.size
                cells = np.uint32 if self.domain.size(clique) < 2**32 else np.int64
                self._listed[clique] = Occupied(
                    occupied.cells.astype(cells), occupied.counts.astype(self._dtype)
                )
