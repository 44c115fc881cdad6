"""The private values of columns that are still to be learnt, read in one pass.

Everything else about the table is checked on the way: what the run could refuse later, it refuses
here, before anything is paid for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adaptive_qs.adaptive.preprocessing.texts import Counts, TextCounter, Texts
from adaptive_qs.data import cells
from adaptive_qs.data.encode import CheckRows, distinct_cells, encode_chunk
from adaptive_qs.data.private import (
    PrivateCategoricalColumn,
    PrivateColumn,
    PrivateIntegerColumn,
    PrivateNumericColumn,
)
from adaptive_qs.data.readers import Cells, Source, check_names, frame_source, open_file
from adaptive_qs.data.schema import Schema
from adaptive_qs.data.table import CodedTable
from adaptive_qs.errors import DataError, ResourceExceeded
from adaptive_qs.progress import StepProgress

Numbers = NDArray[Any]
"""Of int64 or float64."""


@dataclass(frozen=True)
class Gathered:
    """Private values by column, without the missing ones; never to be shown.

    Attributes:
        numbers: shape (rows with a value,), inside the declared ends.
        texts: distinct texts in ascending order and the rows with each.
    """

    numbers: dict[str, Numbers] = field(default_factory=dict, repr=False)
    texts: dict[str, tuple[Texts, Counts]] = field(default_factory=dict, repr=False)


def gather(
    source: Any,
    schema: Schema,
    most_bytes: int,
    progress: StepProgress | None = None,
    check_rows: CheckRows | None = None,
) -> Gathered:
    """Read the columns that are to be learnt and check that all others can be encoded.

    Args:
        source: the path of a CSV or Parquet file, or a pandas, polars or pyarrow table.
        schema: with private columns.
        most_bytes: ceiling of what is kept of the private columns.
        progress: counts as in :func:`adaptive_qs.data.inputs.read_table`.
        check_rows: told how many rows have come; it raises where they are too many.

    Raises:
        DataError: the table does not fit the schema; no cell is quoted.
        ResourceExceeded: the private columns do not fit the ceiling; it does not tell how large
            they are.
    """
    collectors = {c.name: _Collector(c) for c in schema.columns if isinstance(c, PrivateColumn)}
    rows = 0
    with _opened(source) as opened:
        check_names(opened, schema.names, schema.ignore)
        for chunk in opened.read(schema.names):
            rows += len(chunk.columns[0])
            if check_rows is not None:
                check_rows(rows)
            for column, values in zip(schema.columns, chunk.columns):
                if column.name not in collectors:
                    encode_chunk(column, values, opened.label)
                    continue
                collectors[column.name].add(values, opened.label)
                if sum(c.num_bytes for c in collectors.values()) > most_bytes:
                    raise ResourceExceeded(
                        f"{opened.label}: column {column.name!r} has more to learn from than fits "
                        f"{most_bytes / 2**20:,.0f} MB: raise --max-memory, or declare it"
                    )
            if progress is not None:
                progress(chunk.done, chunk.total)
        if not rows:
            raise DataError(f"{opened.label}: no rows: give a table with at least one")
    gathered = Gathered()
    for name, collector in collectors.items():
        if isinstance(collector.column, PrivateCategoricalColumn):
            gathered.texts[name] = collector.texts.sorted()
        else:
            gathered.numbers[name] = np.concatenate(collector.numbers)
            collector.numbers.clear()
    return gathered


class _Collector:
    """The values of one private column."""

    def __init__(self, column: PrivateColumn) -> None:
        self.column = column
        self._probe = column.probe
        self.numbers: list[Numbers] = []
        self.texts = TextCounter()
        self._number_bytes = 0

    @property
    def num_bytes(self) -> int:
        return self._number_bytes + self.texts.num_bytes

    def add(self, values: Cells, label: str) -> None:
        """Take the values of a chunk that are not missing, or refuse one as encoding would."""
        for part in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
            (codes,) = encode_chunk(self._probe, part, label)
            parts, indices = distinct_cells(self.column, part, label)
            self._take(parts, indices[codes == 0])

    def _take(self, parts: list[pa.Array], indices: NDArray[np.int64]) -> None:
        if isinstance(self.column, PrivateIntegerColumn | PrivateNumericColumn):
            whole = isinstance(self.column, PrivateIntegerColumn)
            read = cells.as_integers if whole else cells.as_numbers
            distinct = np.concatenate([read(part)[0] for part in parts])
            numbers = np.clip(distinct[indices], *self.column.span)
            self.numbers.append(numbers)
            self._number_bytes += numbers.nbytes
        else:
            distinct = pa.concat_arrays([cells.as_text(part) for part in parts])
            self.texts.add(distinct, np.bincount(indices, minlength=len(distinct)))


@contextmanager
def _opened(source: Any) -> Iterator[Source]:
    if isinstance(source, CodedTable):
        raise DataError("a coded table has no bins or values to learn: give the raw table")
    if isinstance(source, str | Path):
        with open_file(source) as opened:
            yield opened
    else:
        yield frame_source(source)
