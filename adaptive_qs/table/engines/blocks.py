"""Counting in blocks of coded rows: blocks stay near while all marginals of a pass are counted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.machine import ThreadPool, njit
from adaptive_qs.table.engines import Occupied

Codes = NDArray[np.unsignedinteger[Any]]

BLOCK_ROWS = 2**16
"""Rows of a block: it stays in the processor's cache while all cliques are counted."""
SHARED_CELLS = 2**21
"""Cells of a pass up to which every thread has counts of its own, and takes some of the blocks."""

SPARSE = 1
"""Cells for each row from which on a marginal's occupied cells are listed while rows are counted;
in smaller ones they are looked for afterwards."""
LISTED_CELLS = 2**26
"""Cells of a marginal up to which each has a place while rows are counted; larger ones are
sorted."""


class Blocks(Protocol):
    """Coded rows in blocks of at most ``BLOCK_ROWS``."""

    num_rows: int
    """Of all blocks; private."""

    @property
    def num_blocks(self) -> int:
        """How many there are."""

    def read(self, number: int, wanted: Sequence[int]) -> list[Codes]:
        """The codes of some attributes (contiguous) in a block, in the order of ``wanted``.

        Threads may ask at the same time.
        """


class HeldBlocks:
    """Blocks of codes that lie in memory.

    Args:
        columns: one contiguous array for each attribute, all of the same length.
    """

    def __init__(self, columns: Sequence[Codes]) -> None:
        self._columns = columns
        self.num_rows = len(columns[0])
        self.num_blocks = -(-self.num_rows // BLOCK_ROWS)

    def read(self, number: int, wanted: Sequence[int]) -> list[Codes]:
        """See :class:`Blocks`."""
        first = number * BLOCK_ROWS
        return [self._columns[i][first : first + BLOCK_ROWS] for i in wanted]


class BlockEngine:
    """Counts rows in blocks.

    Args:
        domain: the attributes.
        blocks: the rows.
        workers: threads.
    """

    def __init__(self, domain: Domain, blocks: Blocks, workers: int = 1) -> None:
        self.domain: Domain = domain
        self._blocks = blocks
        self._workers = workers
        self._spare: list[NDArray[np.uint32]] = []  # zeros, where cells are listed

    def count_rows(self) -> int:
        """The number of rows; private."""
        return self._blocks.num_rows

    def count_all(self, cliques: Sequence[Clique]) -> list[NDArray[np.int64]]:
        """The exact marginals over some cliques (rows), one axis per attribute, in one pass."""
        workers = min(self._workers, len(cliques))  # one clique: whoever asks has threads for more
        every = range(self._blocks.num_blocks)
        if workers < 2:
            return self._count(cliques, every)
        cells = sum(map(self.domain.size, cliques))
        with ThreadPool(workers) as pool:
            if workers * cells <= SHARED_CELLS:
                shares = [every[k::workers] for k in range(workers)]
                counted = pool.map(lambda share: self._count(cliques, share), shares)
                return [sum(parts[1:], parts[0]) for parts in zip(*counted)]
            parts = [cliques[k::workers] for k in range(workers)]
            counted_parts = list(pool.map(lambda part: self._count(part, every), parts))
        return [counted_parts[k % workers][k // workers] for k in range(len(cliques))]

    def occupied(self, cliques: Sequence[Clique]) -> list[Occupied]:
        """The occupied cells of the marginals over some cliques; whoever asks has threads."""
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
        """Those of one clique; ``places`` are zero before and after."""
        size, rows = self.domain.size(clique), self._blocks.num_rows
        every = range(self._blocks.num_blocks)
        if size <= SPARSE * rows:
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
        listed[:found].sort()  # who goes through them in order finds close what is close
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
        wanted = sorted({i for clique in cliques for i in clique})
        cells = np.empty(min(BLOCK_ROWS, self._blocks.num_rows), dtype=np.uint32)
        for number in numbers:
            columns = dict(zip(wanted, self._blocks.read(number, wanted)))
            for clique, marginal in zip(cliques, counts):
                count_block([columns[i] for i in clique], marginal, cells)
        return counts


def count_block(
    columns: Sequence[Codes], counts: NDArray[np.int64], cells: NDArray[np.uint32]
) -> None:
    """Add some rows to their marginal, in place.

    Args:
        columns: codes of the marginal's attributes.
        counts: the contiguous marginal, one axis per attribute, of at most 2³² cells.
        cells: room for as many integers as there are rows.
    """
    if counts.size > 2**32:
        raise ResourceExceeded("a marginal has more cells than 2**32: ask for fewer ways")
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
    """Have what counts compiled or loaded, which takes up to some seconds, before rows wait."""
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
    """Count cells in their places, list those that come first, and return how many are listed."""
    for cell in cells:
        if places[cell] == 0:
            listed[number] = cell
            number += 1
        places[cell] += 1
    return number


@njit(cache=True, nogil=True)
def _take_occupied(places, listed):  # type: ignore[no-untyped-def]
    """The cells listed and their counts, whose places are cleared."""
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
