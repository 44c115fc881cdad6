"""The private values of columns to be learnt, gathered in one pass over the rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from adaptive_qs.errors import DataError, ResourceExceeded
from adaptive_qs.machine import CheckRows, StepProgress
from adaptive_qs.table import cells
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.encode import distinct_cells, encode_chunk, read_rows
from adaptive_qs.table.read import Cells, open_source
from adaptive_qs.table.schema import Schema

Counts = NDArray[np.int64]

MOST_BYTES = 2**30
"""Default maximum of the memory for private values (bytes)."""
MERGING_BYTES = 200
"""Measured memory, in bytes per text, of merging and sorting counts, and of the text itself."""

_WAITING_ROWS = 1 << 17


class TextCounter:
    """Sums of counts of texts; those that a schema cannot list (blank or with NUL) do not count."""

    def __init__(self) -> None:
        self._merged = _table(pa.array([], pa.string()), np.zeros(0, np.int64))
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0

    def add(self, texts: pa.StringArray, counts: Counts) -> None:
        """Add the counts of some texts, which can repeat; null is not counted."""
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

    def sorted(self) -> tuple[list[str], Counts]:
        """Return the distinct texts in ascending order, and their counts."""
        self._merge()
        table = self._merged.sort_by("text")
        return table["text"].to_pylist(), table["count"].to_numpy()

    def _merge(self) -> None:
        table = pa.concat_tables([self._merged, *self._waiting])
        summed = table.group_by("text", use_threads=False).aggregate([("count", "sum")])
        self._merged = pa.table({"text": summed["text"], "count": summed["count_sum"]})
        self._waiting.clear()
        self._waiting_rows = 0


def _table(texts: pa.StringArray, counts: Counts) -> pa.Table:
    return pa.table({"text": texts, "count": pa.array(counts, pa.int64())})


Numbers = NDArray[Any]
"""Array of int64 or float64."""


@dataclass(frozen=True)
class Gathered:
    """Private values by column, without missing ones; never shown.

    Numbers are inside the declared ends, texts distinct, ascending and with the rows of each.
    """

    numbers: dict[str, Numbers] = field(default_factory=dict, repr=False)
    texts: dict[str, tuple[list[str], Counts]] = field(default_factory=dict, repr=False)


def gather(
    source: Any,
    schema: Schema,
    most_bytes: int = MOST_BYTES,
    progress: StepProgress | None = None,
    check_rows: CheckRows | None = None,
) -> Gathered:
    """Return the private values to learn from; check that all other cells can be encoded.

    Every cell of the table fits the learnt schema: a run refuses cells before it has a budget.
    ``check_rows`` is called with the number of rows so far, to raise if there are too many.

    Raises:
        DataError: If the table does not fit the schema, or is coded.
        ResourceExceeded: If the values exceed ``most_bytes``.
    """
    collectors = {c.name: _Collector(c) for c in schema.columns if c.is_open}
    if isinstance(source, CodedTable):
        raise DataError("a coded table has no bins or values to learn. Use the raw table.")
    with open_source(source, schema.dialect) as opened:
        for chunk in read_rows(opened, schema, progress, check_rows):
            label = chunk.file or opened.label
            for column, values in zip(schema.columns, chunk.columns):
                if column.name not in collectors:
                    encode_chunk(column, values, label)
                    continue
                collectors[column.name].add(values, label)
                if sum(c.num_bytes for c in collectors.values()) > most_bytes:
                    raise ResourceExceeded(
                        f"{opened.label}: column {column.name!r} has more to learn from than fits "
                        f"{most_bytes / 2**20:,.0f} MB: raise --max-memory, or declare it"
                    )
    gathered = Gathered()
    for name, collector in collectors.items():
        if collector.column.discovers:
            gathered.texts[name] = collector.texts.sorted()
        else:
            gathered.numbers[name] = np.concatenate(collector.numbers)
            collector.numbers.clear()
    return gathered


class _Collector:
    def __init__(self, column: ColumnBase) -> None:
        self.column = column
        self._probe = column.probe
        self._values = self._probe.num_values
        self.numbers: list[Numbers] = []
        self.texts = TextCounter()
        self._number_bytes = 0

    @property
    def num_bytes(self) -> int:
        return self._number_bytes + self.texts.num_bytes

    def add(self, values: Cells, label: str) -> None:
        """Collect the values of a chunk that are not missing; refuse what encoding would refuse."""
        for part in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
            (codes,) = encode_chunk(self._probe, part, label)
            parts, indices = distinct_cells(self.column.name, part, label)
            indices = indices[codes < self._values]
            if not self.column.discovers:
                numbers = np.concatenate([self.column.numbers(each) for each in parts])[indices]
                self.numbers.append(numbers)
                self._number_bytes += numbers.nbytes
            else:
                distinct = pa.concat_arrays([cells.as_text(each) for each in parts])
                self.texts.add(distinct, np.bincount(indices, minlength=len(distinct)))
