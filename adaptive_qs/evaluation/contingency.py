"""Cells of both tables side by side, in memory linear in the rows, whatever the marginal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.evaluation.pair import TablePair
from adaptive_qs.progress import StepProgress

MAX_DENSE_CELLS = 2**22
"""Cells of larger marginals are numbered by those that are occupied."""
BATCH = 32
"""Items that a thread takes at once."""

_MAX_NUMBERS = 2**62

Cells = NDArray[np.int64]
Item = TypeVar("Item")
Result = TypeVar("Result")


class JointCodes:
    """The codes of both tables, the true rows first.

    The codes of an attribute with more than ``MAX_DENSE_CELLS`` of them are replaced by their ranks
    among those that occur.

    Attributes:
        pair: the tables.
        true_rows: rows of the true table.
        rows: of both tables.
        codes: shape (attributes, rows).
        sizes: bound of the codes of every attribute.
    """

    def __init__(self, pair: TablePair) -> None:
        self.pair = pair
        self.true_rows = pair.true.num_rows
        self.rows = pair.true.num_rows + pair.synthetic.num_rows
        dtype = np.uint16 if max(pair.domain.sizes) <= 2**16 else np.uint32
        self.codes: NDArray[np.unsignedinteger] = np.empty((len(pair.domain), self.rows), dtype)
        sizes = list(pair.domain.sizes)
        for i, (true, synthetic) in enumerate(zip(pair.true.columns, pair.synthetic.columns)):
            self.codes[i, : self.true_rows] = true
            self.codes[i, self.true_rows :] = synthetic
            if sizes[i] > MAX_DENSE_CELLS:
                self.codes[i], sizes[i] = ranked(self.codes[i])
        self.sizes = tuple(sizes)

    def cells(self, clique: Clique) -> tuple[Cells, int]:
        """The cell of every row in a marginal, as a number, and the bound of the numbers."""
        shape = [self.sizes[i] for i in clique]
        size = math.prod(shape)
        if size > MAX_DENSE_CELLS:
            return self.ranks(clique)
        cells = np.empty(self.rows, dtype=np.int64)
        _number(self.codes, np.array(clique), np.array(shape), cells)
        return cells, size

    def ranks(self, clique: Clique) -> tuple[Cells, int]:
        """The same with the occupied cells alone, in the order of their codes."""
        return ranked(
            row_numbers([self.codes[i] for i in clique], [self.sizes[i] for i in clique])[0]
        )


def row_numbers(
    columns: Sequence[NDArray[np.integer]], sizes: Sequence[int], most: int = _MAX_NUMBERS
) -> tuple[Cells, int]:
    """A number for each row, in the order of its codes, and the bound of the numbers.

    Args:
        columns: the codes, one array for each attribute.
        sizes: bounds of the codes.
        most: where the bound would pass it, numbers are replaced by their ranks.
    """
    numbers: Cells = np.zeros(len(columns[0]), dtype=np.int64)
    bound = 1
    for codes, size in zip(columns, sizes):
        if bound * size > most:
            numbers, bound = ranked(numbers)
        numbers = numbers * size + codes
        bound *= size
    return numbers, bound


def in_batches(
    task: Callable[[Sequence[Item]], Sequence[Result]],
    items: Sequence[Item],
    workers: int,
    progress: StepProgress | None,
) -> list[Result]:
    """The results of all items, in their order, computed by threads that take some at a time.

    Args:
        task: gives one result for each item of a batch.
        items: what to compute.
        workers: threads.
        progress: called with the items done and in all.
    """
    results: list[Result] = []
    pool = ThreadPoolExecutor(workers)
    try:
        batches = [items[start : start + BATCH] for start in range(0, len(items), BATCH)]
        for found in pool.map(task, batches):
            results.extend(found)
            if progress is not None:
                progress(len(results), len(items))
    finally:  # whoever stops the command need not wait for the rest
        pool.shutdown(cancel_futures=True)
    return results


def ranked(numbers: NDArray[np.integer]) -> tuple[Cells, int]:
    """The ranks of numbers among the distinct ones, and how many those are."""
    distinct, ranks = np.unique(numbers, return_inverse=True)
    return ranks.astype(np.int64, copy=False), len(distinct)


@njit(cache=True, nogil=True)
def _number(codes, clique, shape, out):  # type: ignore[no-untyped-def]
    for row in range(codes.shape[1]):
        cell = np.int64(0)
        for axis in range(clique.size):
            cell = cell * shape[axis] + np.int64(codes[clique[axis], row])
        out[row] = cell
