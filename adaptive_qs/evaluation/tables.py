"""The tables that are compared, side by side, in memory linear in their rows."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import DataError
from adaptive_qs.machine import PhaseProgress, StepProgress, ThreadPool, njit
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.encode import Amounts, read_table, read_with_amounts
from adaptive_qs.table.schema import Schema

Numbers = NDArray[np.float64]
Counts = NDArray[np.int64]
Margins = tuple[NDArray[np.int64], ...]
"""The number of rows with each code, one array for each attribute."""
OWNER_ONLY = "For the owner only: computed from private rows without noise. Do not publish."
"""The notice in front of every output."""


@dataclass(frozen=True, eq=False)
class TablePair:
    """A true and a synthetic table over one domain; owner only.

    Attributes:
        true: the private rows.
        synthetic: the synthetic rows.
        amounts: numbers in the cells of both tables, of columns whose codes are bins.

    Raises:
        DataError: the domains differ, or a table has no rows.
    """

    true: CodedTable
    synthetic: CodedTable
    amounts: tuple[Amounts, Amounts] = ({}, {})

    def __post_init__(self) -> None:
        if self.true.domain != self.synthetic.domain:
            raise DataError("the tables have different attributes: encode both with one schema")
        if not (self.true.num_rows and self.synthetic.num_rows):
            raise DataError("a table has no rows. Check both tables.")

    @classmethod
    def of(
        cls, true: Any, synthetic: Any, schema: Schema, progress: PhaseProgress | None = None
    ) -> Self:
        """Read two files, data frames or coded tables.

        Raise DataError if one of them is missing, has no rows, or does not fit the schema.
        """
        names = [c.name for c in schema.columns if c.measured and not exactly_coded(c)]
        first, amounts = _read(true, schema, "true", progress, names)
        second, others = _read(synthetic, schema, "synthetic", progress, names)
        return cls(first, second, (amounts, others))

    @property
    def domain(self) -> Domain:
        """The attributes of both."""
        return self.true.domain

    def find_amounts(self, column: ColumnBase, table: int) -> NDArray[np.float64] | None:
        """Return the number in every cell of a column of the schema, NaN for none; shape (rows,).

        ``table`` is 0 for the true one, 1 for the synthetic. None is returned if the numbers are
        not known, or the column has none.
        """
        if not column.measured:
            return None
        if column.name in self.amounts[table]:
            return self.amounts[table][column.name]
        if not exactly_coded(column):
            return None
        coded = (self.true, self.synthetic)[table]
        codes = coded.columns[self.domain.names.index(column.name)]
        known = codes < column.num_values
        values = column.ends(np.where(known, codes, 0).astype(np.int64))[0]
        return np.where(known, values.astype(np.float64), np.nan)

    @cached_property
    def margins(self) -> tuple[Margins, Margins]:
        """The margins of the true and of the synthetic table."""
        true, synthetic = (
            tuple(np.bincount(codes, minlength=n) for codes, n in zip(t.columns, t.domain.sizes))
            for t in (self.true, self.synthetic)
        )
        return true, synthetic


def _read(
    table: Any, schema: Schema, role: str, progress: PhaseProgress | None, names: Sequence[str]
) -> tuple[CodedTable, Amounts]:
    """Return the codes of a table and the amounts of some columns; errors name its ``role``.

    The synthetic table may come from another tool: the message then says how to bring it to the
    schema.
    """
    steps = None if progress is None else partial(progress, "read")
    try:
        if not names:
            return read_table(table, schema, steps), {}
        return read_with_amounts(table, schema, names, steps)
    except DataError as error:
        said = str(error)
        if not isinstance(table, str | Path):
            said = re.sub(r"^(the )?((coded )?table)", rf"the {role} \2", said)
        refusals = "cannot be read as integer", "has a value outside its declared range"
        if role == "synthetic" and any(refusal in said for refusal in refusals):
            said += (
                "; a table of another tool must be brought to the schema first: round its numbers, "
                "and clip them to the declared range"
            )
        raise DataError(said) from None


DAY = 86_400
"""Seconds of a day."""


def exactly_coded(column: ColumnBase) -> bool:
    """Return whether every code of a column stands for one value; days count as values."""
    if getattr(column, "outside", "") == "clip" or column.num_values > 2**20:
        return False
    low, high = column.ends(np.arange(column.num_values))
    return bool((low // DAY == high // DAY).all() if column.by_day else (low == high).all())


# Cells of both tables side by side, in memory linear in the rows, whatever the marginal.

MAX_DENSE_CELLS = 2**22
"""Number of cells of a marginal above which only the occupied ones are numbered."""
BATCH = 32
"""Number of items in a batch of a thread."""

Cells = NDArray[np.int64]
Item = TypeVar("Item")
Result = TypeVar("Result")


class JointCodes:
    """The codes of both tables, the true rows first.

    The codes of an attribute with more than ``MAX_DENSE_CELLS`` of them are replaced by their
    ranks.

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
        """Return the cell of every row in a marginal, as a number, and the bound of the numbers."""
        shape = [self.sizes[i] for i in clique]
        size = math.prod(shape)
        if size > MAX_DENSE_CELLS:
            return self.ranks(clique)
        cells = np.empty(self.rows, dtype=np.int64)
        _number(self.codes, np.array(clique), np.array(shape), cells)
        return cells, size

    def ranks(self, clique: Clique) -> tuple[Cells, int]:
        """Return the same with numbers of the occupied cells only, in the order of their codes."""
        numbers: Cells = np.zeros(self.rows, dtype=np.int64)
        bound = 1
        for i in clique:
            if bound * self.sizes[i] > 2**62:
                numbers, bound = ranked(numbers)
            numbers = numbers * self.sizes[i] + self.codes[i]
            bound *= self.sizes[i]
        return ranked(numbers)


def in_batches(
    task: Callable[[Sequence[Item]], Sequence[Result]],
    items: Sequence[Item],
    workers: int,
    progress: StepProgress | None,
    size: int | None = None,
) -> Iterator[Result]:
    """Yield the results of all items, in their order, computed by threads.

    The task returns one result for each item of a batch, of ``BATCH`` items by default.
    """
    size, done = size or BATCH, 0
    pool = ThreadPool(workers)
    try:
        batches = [items[start : start + size] for start in range(0, len(items), size)]
        for found in pool.map(task, batches):
            done += len(found)
            if progress is not None:
                progress(done, len(items))
            yield from found
    finally:  # an interrupt does not wait for the rest
        pool.shutdown(cancel_futures=True)


def ranked(numbers: NDArray[np.integer]) -> tuple[Cells, int]:
    """Return the ranks of numbers among the distinct ones, and the number of those."""
    distinct, ranks = np.unique(numbers, return_inverse=True)
    return ranks.astype(np.int64, copy=False), len(distinct)


@njit(cache=True, nogil=True)
def _number(codes, clique, shape, out):  # type: ignore[no-untyped-def]
    for row in range(codes.shape[1]):
        cell = np.int64(0)
        for axis in range(clique.size):
            cell = cell * shape[axis] + np.int64(codes[clique[axis], row])
        out[row] = cell


class PairSums(NamedTuple):
    """Sums over the occupied cells n_xy of one contingency table.

    Attributes:
        squares: Σ n_xy² / (n_x·n_y), which is χ²/N + 1.
        occupied: number of cells with a row.
        influence: N times the variance of χ²/N over samples, in the limit of many rows.
    """

    squares: float
    occupied: float
    influence: float


ODD = 10.0
"""Surprise from which on a row is odd: chance makes a cell so with probability about e^−10."""


@dataclass(frozen=True)
class OddRow:
    """The synthetic row whose values of two columns are most surprising together; owner only.

    Attributes:
        pair: positions of the columns.
        row: position of the row in the synthetic table, from 0.
        surprise: the deviance of the n true rows with both values from the E that are expected of
            independent columns, or from the s synthetic ones, if that is more.
        true, expected, synthetic: n, E and s.
    """

    pair: Clique
    row: int
    surprise: float
    true: int
    expected: float
    synthetic: int


@dataclass(frozen=True, eq=False)
class PairCounts:
    """Counts of all pairs of attributes, of the true and of the synthetic table.

    Attributes:
        joint: the tables.
        margins, sums: counts of every attribute's codes, and sums of every pair, of both tables.
        odd: the oddest synthetic row of each pair.
        rows_odd: which synthetic rows have a surprise of ``ODD`` in some pair; shape (rows,).
    """

    joint: JointCodes
    margins: tuple[tuple[NDArray[np.int64], ...], tuple[NDArray[np.int64], ...]]
    sums: tuple[dict[Clique, PairSums], dict[Clique, PairSums]]
    odd: tuple[OddRow, ...]
    rows_odd: NDArray[np.bool_]


def count_pairs(
    joint: JointCodes, workers: int = 1, progress: StepProgress | None = None
) -> PairCounts:
    """Count all pairs of attributes of both tables in one pass over the rows each."""
    split = joint.true_rows
    parts = (joint.codes[:, :split], joint.codes[:, split:])
    margins = tuple(
        tuple(np.bincount(codes, minlength=n) for codes, n in zip(part, joint.sizes))
        for part in parts
    )
    pairs: tuple[Clique, ...] = tuple(combinations(range(len(joint.sizes)), 2))
    rows_odd = np.zeros(joint.rows - split, dtype=np.bool_)

    def count(batch: Sequence[Clique]) -> list[tuple[PairSums, PairSums, OddRow]]:
        scratch = np.zeros((2, 0), dtype=np.int64)
        found = []
        for i, j in batch:
            cells, bound = joint.cells((i, j))
            if bound > scratch.shape[1]:
                scratch = np.zeros((2, bound), dtype=np.int64)
            ends = joint.codes[i], joint.codes[j], margins[0][i], margins[0][j]
            row, surprise = _count(cells, split, scratch, rows_odd, *ends, ODD)
            cell = cells[split + row]
            expected = margins[0][i][ends[0][split + row]] * margins[0][j][ends[1][split + row]]
            times = int(scratch[0, cell]), expected / split, int(scratch[1, cell])
            odd = OddRow((i, j), row, surprise, *times)
            tables = zip((cells[:split], cells[split:]), parts, margins, scratch)
            true, synthetic = (
                PairSums(*_sum(own, codes[i], codes[j], of[i], of[j], counts))
                for own, codes, of, counts in tables
            )
            found.append((true, synthetic, odd))
        return found

    columns = list(zip(*in_batches(count, pairs, workers, progress))) or [()] * 3
    true, synthetic = (dict(zip(pairs, column)) for column in columns[:2])
    return PairCounts(joint, (margins[0], margins[1]), (true, synthetic), columns[2], rows_odd)


@njit(cache=True, nogil=True)
def _count(cells, true_rows, counts, odd, first, second, of_first, of_second, least):  # type: ignore[no-untyped-def]
    """Fill both rows of counts, and mark odd rows; return the oddest row and its surprise.

    A row is odd only if its cell has at most half of the true rows that are expected of independent
    columns, and none or half of its synthetic ones.
    """
    for row in range(true_rows):
        counts[0, cells[row]] += 1
    for row in range(true_rows, cells.size):
        counts[1, cells[row]] += 1
    oddest, most, usual = 0, 0.0, 2 * (cells.size - true_rows) / true_rows
    for row in range(true_rows, cells.size):
        true, made = counts[0, cells[row]], counts[1, cells[row]]
        expected = float(of_first[first[row]]) * float(of_second[second[row]]) / true_rows
        if 2 * true <= expected and (true == 0 or made > usual * true):
            alike = (true + made) * true_rows / cells.size
            surprise, apart = made * np.log(made / (true + made - alike)), expected - true
            if true:
                surprise += true * np.log(true / alike)
                apart += true * np.log(true / expected)
            surprise = max(surprise, apart)
            if surprise > most:
                oddest, most = row - true_rows, surprise
            if surprise >= least:
                odd[row - true_rows] = True
    return oddest, most


@njit(cache=True, nogil=True)
def _sum(cells, first, second, of_first, of_second, counts):  # type: ignore[no-untyped-def]
    """Sum over the occupied cells, and reset the counts to zero.

    By the delta method a row of cell xy moves χ²/N + 1 = Σ p r, r = p_xy/(p_x p_y), by
    h = 2 r − Σ_y p(y|x) r − Σ_x p(x|y) r, which is 0 on average, and the variance is Σ p h² / N.
    """
    squares, occupied = 0.0, 0
    ratio_first, ratio_second = np.zeros(of_first.size), np.zeros(of_second.size)
    found, times = np.empty(cells.size, np.int64), np.empty(cells.size)
    for row in range(cells.size):
        count = counts[cells[row]]
        if count == 0:
            continue
        counts[cells[row]] = 0
        expected = float(of_first[first[row]]) * float(of_second[second[row]])
        square = float(count) * float(count) / expected
        squares += square
        ratio_first[first[row]] += square
        ratio_second[second[row]] += square
        found[occupied], times[occupied] = row, count
        occupied += 1
    influence = 0.0
    for k in range(occupied):
        i, j = first[found[k]], second[found[k]]
        ratio = times[k] / (float(of_first[i]) * float(of_second[j]))
        moved = 2 * ratio - ratio_first[i] / of_first[i] - ratio_second[j] / of_second[j]
        influence += times[k] * cells.size * moved * moved
    return squares, occupied, influence
