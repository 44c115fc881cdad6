"""Distinct texts of a column and how many rows have each, in memory of the distinct ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Counts = NDArray[np.int64]

MERGING_BYTES = 200
"""Hash table and copies of one text while counts are merged and sorted, as measured."""

_WAITING_ROWS = 1 << 17
_BLOCK = 1 << 16


class Texts(Sequence[str]):
    """Texts in an Arrow array as a sequence of str, made one block at a time."""

    def __init__(self, array: pa.StringArray) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Texts: ...
    def __getitem__(self, index: int | slice) -> str | Texts:
        if isinstance(index, slice):
            return Texts(self._array[index])
        return str(self._array[index].as_py())

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _BLOCK):
            yield from self._array.slice(start, _BLOCK).to_pylist()


class TextCounter:
    """Adds up counts of texts.

    Blank texts and those with a NUL character, which a schema cannot list, are left out.
    """

    def __init__(self) -> None:
        self._merged = _table(pa.array([], pa.string()), np.zeros(0, np.int64))
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0

    def add(self, texts: pa.StringArray, counts: Counts) -> None:
        """Add the counts of some texts, which may repeat; null is left out."""
        listable = pc.and_(pc.not_equal(texts, ""), pc.invert(pc.match_substring(texts, "\0")))
        kept = pc.and_(listable, pa.array(counts > 0)).fill_null(False)
        table = _table(texts, counts).filter(kept)
        self._waiting.append(table)
        self._waiting_rows += table.num_rows
        if self._waiting_rows > max(_WAITING_ROWS, self._merged.num_rows):
            self._merge()

    @property
    def num_bytes(self) -> int:
        """Memory of what has been added, and of merging it."""
        tables = (self._merged, *self._waiting)
        return sum(table.nbytes + MERGING_BYTES * table.num_rows for table in tables)

    def sorted(self) -> tuple[Texts, Counts]:
        """The distinct texts in ascending order, and their counts."""
        self._merge()
        table = self._merged.sort_by("text")
        return Texts(_whole(table["text"])), _whole(table["count"]).to_numpy()

    def _merge(self) -> None:
        table = pa.concat_tables([self._merged, *self._waiting])
        summed = table.group_by("text", use_threads=False).aggregate([("count", "sum")])
        self._merged = pa.table({"text": summed["text"], "count": summed["count_sum"]})
        self._waiting.clear()
        self._waiting_rows = 0


def _table(texts: pa.StringArray, counts: Counts) -> pa.Table:
    return pa.table({"text": texts, "count": pa.array(counts, pa.int64())})


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
