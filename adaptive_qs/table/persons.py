"""At most, or exactly, K rows of each person: rows are dropped or repeated before counting."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from adaptive_qs.errors import DataError, ResourceExceeded
from adaptive_qs.machine import StepProgress
from adaptive_qs.table import cells as cell_texts
from adaptive_qs.table.cells import MixedCells, as_identifiers, redacted, split_chunks, take_cells
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.encode import HASH_STEP, distinct_cells, encode_chunk, mix_bits
from adaptive_qs.table.read import Cells, Chunk, Rows, Source, check_names, name_source, open_source
from adaptive_qs.table.schema import Schema

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped,unused-ignore]

# Which rows of a person are kept: those with the K smallest marks. The mark of a row is a hash of
# whose it is, of its cells (all that is measured or learnt of them), and of how many rows of that
# person with the same cells come before it. Two rows with other cells and the same hash of 64 bits
# count as equal. Persons are compared exactly, by :func:`as_identifiers`: two that were taken for
# one would share its K rows, and one that was taken for two would have K rows of each.
#
# Proof: docs/proofs.md, section 11.

Places = NDArray[np.int64]
Marks = NDArray[np.uint64]

PERSON_BYTES = 200
"""Peak memory, in bytes per distinct person, while rows per person are counted."""


@dataclass(frozen=True, repr=False)
class ContributionBound(Rows):
    """A source with at most K rows per person and without the person column."""

    source: Any
    schema: Schema  # names the person column; bins and values can be open
    kept: RowSelection

    @classmethod
    def from_source(
        cls,
        source: Any,
        schema: Schema,
        most: int,
        most_bytes: int,
        progress: StepProgress | None = None,
    ) -> Self:
        """Count the rows of each person and select the rows to keep.

        The table is read again if some person has more than ``most``. The counts and the selection
        may take ``most_bytes``.

        Raises:
            DataError: If the table is coded, does not fit the schema, or a row has no person.
            ResourceExceeded: If the memory does not suffice.
        """
        counted = count_persons(source, schema, most_bytes, progress)
        many = counted.filter(pc.greater(counted["rows"], most))
        _check_bytes(most_bytes, int(many["rows"].to_numpy().sum()) * 120)  # bytes for each row
        names = pa.concat_arrays([*many["person"].chunks, pa.array([], pa.string())])
        hashes, places, marks = _hashed(names), [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
        if len(names):
            with _opened(source, schema) as whole:
                for chunk, whose in _chunks(whole, schema, schema.names, progress):
                    of, theirs = _marked(schema, chunk, whose, names, hashes)
                    places.append(of[of >= 0])
                    marks.append(theirs)
        found = np.concatenate(places), np.concatenate(marks)
        return cls(source, schema, RowSelection.from_marks(names, hashes, *found, most))

    def __str__(self) -> str:
        return name_source(self.source)

    @contextmanager
    def open(self) -> Iterator[Source]:
        """Yield the rows that are kept, as a source."""
        with _opened(self.source, self.schema) as whole:
            yield Source(whole.label, self.schema.names, partial(self._read, whole))

    def _read(self, whole: Source, requested: Sequence[str]) -> Iterator[Chunk]:
        kept, schema = self.kept, self.schema
        places, left = [schema.names.index(name) for name in requested], kept.quotas.copy()
        for chunk, whose in _chunks(whole, schema, schema.names):
            columns = tuple(chunk.columns[place] for place in places)
            if not len(kept.names):
                yield replace(chunk, columns=columns)
                continue
            of, marks = _marked(schema, chunk, whose, kept.names, kept.hashes)
            keeping = of < 0
            keeping[~keeping] = kept.taken(of[~keeping], marks, left, whole.label)
            rows = np.flatnonzero(keeping)
            yield replace(chunk, columns=tuple(take_cells(cells, rows) for cells in columns))


def count_persons(
    source: Any, schema: Schema, most_bytes: int, progress: StepProgress | None = None
) -> pa.Table:
    """Return the rows of each person (private), in columns ``person`` and ``rows``.

    Arguments and errors are as for :meth:`ContributionBound.from_source`.
    """
    with _opened(source, schema) as whole:
        persons = (whose for _, whose in _chunks(whole, schema, (), progress))
        return _counted(persons, partial(_check_bytes, most_bytes))


def _check_bytes(most_bytes: int, needed: int) -> None:
    if needed > most_bytes:
        raise ResourceExceeded(
            "which rows of a person count cannot be decided within "
            f"{most_bytes / 2**20:,.0f} MB: raise --max-memory"
        )


@contextmanager
def _opened(source: Any, schema: Schema) -> Iterator[Source]:
    """Open the whole source and check that it has the person column."""
    person = str(schema.person)
    if isinstance(source, CodedTable):
        raise DataError(f"a coded table has no person column {person!r}. Use the raw table.")
    with open_source(source, schema.dialect) as whole:
        check_names(whole, (*schema.names, person), schema.unread)
        yield whole


def _chunks(
    whole: Source, schema: Schema, requested: Sequence[str], progress: StepProgress | None = None
) -> Iterator[tuple[Chunk, PersonIndex]]:
    """Yield each chunk of the given columns with the persons of its rows."""
    person = str(schema.person)
    for chunk in whole.read((*requested, person)):
        *columns, persons = chunk.columns
        label = chunk.file or whole.label
        whose = PersonIndex.from_cells(person, persons, label)
        yield replace(chunk, columns=tuple(columns), file=label), whose
        if progress is not None:
            progress(chunk.done, chunk.total)


@dataclass(frozen=True)
class PersonIndex:
    """The persons of a chunk (texts, not always distinct) and the person of each row; private."""

    persons: pa.StringArray
    rows: Places

    @classmethod
    def from_cells(cls, name: str, cells: Cells, label: str, table: str | None = None) -> Self:
        """Build the index from the cells of a column of identifiers.

        Raise DataError if a cell is empty, or not exactly one identifier.
        """
        kind, several = ("person", "persons") if table is None else ("key", f"rows of {table}")
        explain = partial(cell_texts.unreadable_column, label, name)
        mixed = redacted(partial(MixedCells.join, [cells]), explain)
        texts = [pa.array([], pa.string())]
        for each in mixed.parts:
            found, problem = redacted(partial(as_identifiers, each), explain)
            if problem:
                raise DataError(
                    f"{label}: column {name!r} has {problem}, which can confuse {several}. "
                    "Store it as text or integers."
                )
            texts.append(found)
        persons, whose = pa.concat_arrays(texts), mixed.indices
        blank = pc.equal(persons, "").fill_null(True).to_numpy(zero_copy_only=False)
        if (whose < 0).any() or blank[whose].any():
            raise DataError(
                f"{label}: some cells of the {kind} column {name!r} are empty. Fill them in or "
                "remove these rows."
            )
        return cls(persons, whose)

    def table(self) -> pa.Table:
        """Return the rows of each person."""
        counts = np.bincount(self.rows, minlength=len(self.persons))
        return pa.table({"person": self.persons, "rows": counts}).filter(pa.array(counts > 0))

    def among(self, names: pa.StringArray) -> Places:
        """Return the position of each row's person in ``names``, or -1."""
        found = pc.index_in(self.persons, value_set=names).fill_null(-1)
        return found.to_numpy(zero_copy_only=False).astype(np.int64)[self.rows]


def _counted(chunks: Iterable[PersonIndex], check: Callable[[int], None]) -> pa.Table:
    """Return the rows of each person, in columns ``person`` and ``rows``."""
    merged = pa.table({"person": pa.array([], pa.string()), "rows": pa.array([], pa.int64())})
    waiting: list[pa.Table] = []
    for whose in chunks:
        waiting.append(whose.table())
        if sum(part.num_rows for part in waiting) > max(1 << 17, merged.num_rows):
            merged = _summed([merged, *waiting])
            waiting.clear()
        check(sum(PERSON_BYTES * part.num_rows + part.nbytes for part in (merged, *waiting)))
    return _summed([merged, *waiting])


def _summed(parts: Sequence[pa.Table]) -> pa.Table:
    grouped = pa.concat_tables(parts).group_by("person", use_threads=False)
    summed = grouped.aggregate([("rows", "sum")])
    return pa.table({"person": summed["person"], "rows": summed["rows_sum"]})


@dataclass(frozen=True)
class RowSelection:
    """The rows that count of persons with more than K; private."""

    names: pa.StringArray  # these persons
    hashes: Marks  # hashes of their names
    equal: pd.MultiIndex  # place of a person and mark of the cells, for each group of equal rows
    quotas: Places  # number of rows that count in each group

    @classmethod
    def from_marks(
        cls, names: pa.StringArray, hashes: Marks, places: Places, marks: Marks, most: int
    ) -> Self:
        """Choose the ``most`` rows of each person with the smallest hashes.

        ``names``, with their hashes, have more rows than that. Each of their rows has the place of
        its person and a mark of its cells.
        """
        import pandas as pd  # slow to import

        order = np.lexsort((marks, places))
        places, marks = places[order], marks[order]
        starts = np.flatnonzero(_is_new(places, marks))
        equal = pd.MultiIndex.from_arrays([places[starts], marks[starts]])
        own = mix_bits(marks + HASH_STEP * _rank(_is_new(places, marks)).astype(np.uint64))
        order = np.lexsort((own, places))
        chosen = np.empty(places.size, dtype=np.int64)
        chosen[order] = _rank(_is_new(places[order])) < most
        ends = pairwise([*starts.tolist(), places.size])
        quotas = np.array([chosen[start:end].sum() for start, end in ends], dtype=np.int64)
        return cls(names, hashes, equal, quotas)

    def taken(self, places: Places, marks: Marks, left: Places, label: str) -> NDArray[np.bool_]:
        """Mark rows that count and decrement ``left`` in place; DataError if rows are new."""
        import pandas as pd

        which = self.equal.get_indexer(pd.MultiIndex.from_arrays([places, marks]))
        if (which < 0).any():
            raise DataError(f"{label}: changed while it was read: repeat the command")
        before = pd.Series(which).groupby(which).cumcount().to_numpy()
        keeping: NDArray[np.bool_] = before < left[which]
        left -= np.minimum(np.bincount(which, minlength=left.size), left)
        return keeping


def _is_new(*sorted_keys: NDArray[Any]) -> NDArray[np.bool_]:
    new = np.zeros(sorted_keys[0].size, dtype=np.bool_)
    new[:1] = True
    for keys in sorted_keys:
        new[1:] |= keys[1:] != keys[:-1]
    return new


def _rank(new: NDArray[np.bool_]) -> Places:
    places = np.arange(new.size)
    return places - np.maximum.accumulate(np.where(new, places, 0))


def _marked(
    schema: Schema, chunk: Chunk, whose: PersonIndex, names: pa.StringArray, hashes: Marks
) -> tuple[Places, Marks]:
    """Return the position of each row's person in names, -1 for others, and the marks of rows."""
    places = whose.among(names)
    rows = np.flatnonzero(places >= 0)
    marks = hashes[places[rows]]
    for column, cells in zip(schema.columns, chunk.columns):
        marks = mix_bits(marks * HASH_STEP + _codes(column, take_cells(cells, rows), chunk.file))
    return places, marks


def _codes(column: ColumnBase, cells: Cells, label: str) -> Marks:
    """Return numbers for cells that are equal for cells that are counted and learnt alike.

    They are codes, with the values if rows on frequent values are counted, and hashes of texts if
    codes are still to be learnt.
    """
    if column.is_unlearnt:
        texts, rows = _texts(column.name, cells, label)
        return _hashed(texts)[rows]
    codes = np.concatenate([np.zeros(0, np.int64), *encode_chunk(column, cells, label)])
    marks = codes.astype(np.uint64)
    if column.counts_heaps:
        bits = [np.zeros(0, np.uint64)]
        for part in split_chunks(cells):
            distinct, rows = distinct_cells(column.name, part, label)
            values = np.concatenate([column.numbers(each) for each in distinct])
            bits.append(values[rows].view(np.uint64))
        values_of = mix_bits(marks * HASH_STEP + np.concatenate(bits))
        marks = np.where(codes < column.num_values, values_of, marks)
    return marks


def _texts(name: str, cells: Cells, label: str) -> tuple[pa.StringArray, Places]:
    """Return the distinct cells as text, and for each row the index of its cell."""
    texts, rows = [pa.array([], pa.string())], [np.zeros(0, np.int64)]
    explain = partial(cell_texts.unreadable_column, label, name)
    for part in split_chunks(cells):
        found, indices = redacted(partial(distinct_cells, name, part, label), explain)
        rows.append(indices + sum(map(len, texts)))
        texts += map(cell_texts.as_text, found)
    return pa.concat_arrays(texts), np.concatenate(rows)


def _hashed(texts: pa.StringArray) -> Marks:
    """Return a hash of each text; null has one of its own."""
    found = (
        hashlib.blake2b(str(text).encode(), digest_size=8, person=b"cell" if text else b"none")
        for text in texts.to_pylist()
    )
    return np.array([int.from_bytes(each.digest()) for each in found], dtype=np.uint64)
