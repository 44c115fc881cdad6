"""The rows of a set of tables as they are measured: bounded, behind the columns of ancestors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from adaptive_qs.arguments import check_path, shown
from adaptive_qs.errors import DataError, ResourceExceeded
from adaptive_qs.table import read as reading
from adaptive_qs.table.cells import MixedCells, take_cells
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.columns.category import identifier_column
from adaptive_qs.table.encode import encode_chunk
from adaptive_qs.table.files import inside
from adaptive_qs.table.formats import BATCH_ROWS
from adaptive_qs.table.persons import PERSON_BYTES, ContributionBound, PersonIndex, Places
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.tables import TableSet

# A row of the root and all rows below it are a family. Keys are compared exactly, by their text. At
# most ``most`` rows of each kept row of the parent are kept, chosen as the rows of a person are
# (:mod:`adaptive_qs.table.persons`) from the table joined with its ancestors; rows that others
# belong to are distinguished by their keys as well. Proof: docs/proofs.md, section 11.


def name_tables(given: Any, schema: TableSet) -> dict[str, Any]:
    """Return the private tables of a set by name.

    They are given as a mapping, a folder of files, or a file that holds all (a database or
    workbook). Raises InputError if a table is missing, or one is not in the schema.
    """
    if isinstance(given, str | Path):
        return dict(locate_tables(given, schema))
    if not isinstance(given, Mapping):
        raise DataError(
            f"the tables are {shown(given)}. Use a mapping with {', '.join(schema.names)}, or the "
            "path of a folder or database."
        )
    for name in {*given} ^ {*schema.tables}:
        where = "the schema lacks" if name in given else "the tables lack"
        raise DataError(f"{where} {shown(name)}. The tables are {', '.join(schema.names)}.")
    return {name: given[name] for name in schema.names}


def locate_tables(place: str | Path, schema: TableSet) -> dict[str, Path]:
    """Return the path of each table of a set in a folder, or in a database or workbook.

    Raise DataError if there is no such folder or file, or a table has no file or several.
    """
    check_path("the tables", place, DataError)
    place = Path(place)
    if place.name.lower().endswith(reading.ONE_TABLE) and os.path.isfile(place):
        raise DataError(
            f"{place} is one table, and the schema describes {len(schema.tables)}. Use a folder "
            "with their files, or a database."
        )
    if not os.path.exists(place):
        raise DataError(f"{place}: no such folder or database: check the path")
    if not os.path.isdir(place):
        return {n: Path(f"{place}::{schema.tables[n].file or n}") for n in schema.names}
    found = {}
    for name in schema.names:
        file = schema.tables[name].file
        endings = (*reading.ONE_TABLE, ".xlsx", ".sqlite", ".db", ".duckdb")
        names = [file] if file else [name, *(f"{name}{ending}" for ending in endings)]
        files = [place / each for each in names if os.path.exists(place / each)]
        if not files:
            raise DataError(
                f"{place}: has no table {name}: name its file {file or f'{name}.csv (or .parquet)'}"
                + ("" if file else ', or set "file" in the schema')
            )
        if len(files) > 1:
            both = " and ".join(each.name for each in files[:2])
            raise DataError(f'{place}: has {both}: remove one, or set "file" in the schema')
        found[name] = files[0]
    return found


def join_tables(
    tables: Mapping[str, Any], schema: TableSet, most_bytes: int, bounded: bool = True
) -> dict[str, reading.Rows]:
    """Return the tables of a set as they are measured, by name, root first.

    Tables with children are held in memory, their keys in at most ``most_bytes`` each; others are
    read once to count their rows, and again with what is returned. No table is coded, and each has
    the same rows at each reading. If ``bounded``, rows are left out that exceed ``most`` or whose
    parent is left out.

    Raises:
        DataError: If a table does not fit the schema, a key is missing or occurs twice, or a row
            has no parent.
        ResourceExceeded: If the keys do not fit the memory.
    """
    whole: dict[str, HeldRows] = {}
    for name in schema.names:
        parent = schema.by_child.get(name)
        above = None if parent is None else whole[parent.parent]
        if schema.own_key(name) is not None:
            whole[name] = _hold(tables[name], schema, name, above, most_bytes)
        if parent is None or above is None:
            continue
        if name in whole:
            counts = np.bincount(whole[name].places, minlength=len(above))
        else:
            counts = _count_rows(tables[name], schema, name, above)
        cells = pa.array(np.minimum(counts, parent.most))
        whole[parent.parent] = above.with_column(parent.number, cells)
    measured = {each.name: each.schema for each in schema.measured()}
    found: dict[str, reading.Rows] = {}
    for name in schema.names:
        parent = schema.by_child.get(name)
        if parent is None:
            found[name] = whole[name]
            continue
        kept = found[parent.parent]
        assert isinstance(kept, HeldRows), "a table with children is held"
        rows: reading.Rows = JoinedRows(tables[name], schema, name, kept)
        if name in whole:
            rows = whole[name].below(kept)
        if bounded:
            rows = _bound(rows, measured[name], parent.most, most_bytes)
        found[name] = rows
    return found


@dataclass(frozen=True, repr=False)
class HeldRows(reading.Rows):
    """Rows of a table in memory, behind the columns of their ancestors; private."""

    label: str  # the table, for messages
    key: str  # column that identifies the rows
    person: str | None  # column that names the row of the parent; None for the root
    keys: pa.StringArray  # the identifiers of the rows
    cells: Mapping[str, reading.Cells]  # own columns, and numbers of children, by name
    above: HeldRows | None  # the rows of the parent
    places: Places  # shape (rows,), the position of each row's parent in them
    keyed: bool = False  # whether the key is read as one of the columns

    def __len__(self) -> int:
        return len(self.keys)

    def __str__(self) -> str:
        return self.label

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the ancestors and of the table, in the order of the measured schema."""
        return *(() if self.above is None else self.above.names), *self.cells

    def with_column(self, name: str, cells: reading.Cells) -> HeldRows:
        """Return the rows with one more column."""
        return replace(self, cells={**self.cells, name: cells})

    def select(self, rows: Places) -> HeldRows:
        """Return some of the rows."""
        cells = {name: take_cells(column, rows) for name, column in self.cells.items()}
        keys = self.keys.take(pa.array(rows))
        return replace(self, keys=keys, cells=cells, places=self.places[rows])

    def below(self, above: HeldRows) -> HeldRows:
        """Return the rows whose parents are among some of all rows of the parent."""
        assert self.above is not None, "the root has no parent"
        found = pc.index_in(self.above.keys, value_set=above.keys).fill_null(-1)
        places = found.to_numpy(zero_copy_only=False).astype(np.int64)[self.places]
        return replace(self, above=above, places=places).select(np.flatnonzero(places >= 0))

    def take(self, names: Sequence[str], rows: Places) -> dict[str, reading.Cells]:
        """Return cells of the named columns, also of ancestors, in some rows."""
        found = {n: take_cells(self.cells[n], rows) for n in names if n in self.cells}
        if self.above is not None:
            found |= self.above.take(names, self.places[rows])
        return found

    @contextmanager
    def open(self) -> Iterator[reading.Source]:
        """Yield the rows as a source, with the key of the parent and, if requested, the own key."""
        more = [*([self.key] if self.keyed else []), *filter(None, [self.person])]
        yield reading.Source(self.label, (*self.names, *more), self._read)

    def _read(self, requested: Sequence[str]) -> Iterator[reading.Chunk]:
        for start in range(0, len(self), BATCH_ROWS):
            rows = np.arange(start, min(start + BATCH_ROWS, len(self)))
            found = self.take(requested, rows)
            found[self.key] = self.keys.take(pa.array(rows))
            if self.above is not None and self.person is not None:
                found[self.person] = self.above.keys.take(pa.array(self.places[rows]))
            columns = tuple(found[name] for name in requested)
            yield reading.Chunk(columns, int(rows[-1]) + 1, len(self))


@dataclass(frozen=True, repr=False)
class JoinedRows(reading.Rows):
    """Rows of a table without children, behind the columns of their ancestors; private."""

    table: Any
    schema: TableSet
    name: str
    above: HeldRows  # rows of the parent that count; rows of other parents are left out

    def __str__(self) -> str:
        return self.name

    @contextmanager
    def open(self) -> Iterator[reading.Source]:
        key, own = self.schema.by_child[self.name].column, self.schema.tables[self.name].names
        with _open_table(self.table, self.schema, self.name) as source:
            names = (*self.above.names, *own, key)
            yield reading.Source(source.label, names, partial(self._read, source))

    def _read(self, source: reading.Source, requested: Sequence[str]) -> Iterator[reading.Chunk]:
        key, own = self.schema.by_child[self.name], self.schema.tables[self.name].names
        read = [name for name in requested if name in own]
        for chunk in source.read((*read, key.column)):
            *columns, cells = chunk.columns
            parents = PersonIndex.from_cells(
                key.column, cells, chunk.file or source.label, key.parent
            )
            places = parents.among(self.above.keys)
            rows = np.flatnonzero(places >= 0)
            found = self.above.take(requested, places[rows])
            found |= {name: take_cells(each, rows) for name, each in zip(read, columns)}
            found[key.column] = parents.persons.take(pa.array(parents.rows[rows]))
            yield replace(chunk, columns=tuple(found[name] for name in requested))


def _bound(rows: reading.Rows, schema: Schema, most: int, most_bytes: int) -> reading.Rows:
    if not isinstance(rows, HeldRows):
        return ContributionBound.from_source(rows, schema, most, most_bytes)
    keyed = schema.changed(columns=(*schema.columns, identifier_column(rows.key)))
    few = ContributionBound.from_source(replace(rows, keyed=True), keyed, most, most_bytes)
    with few.open() as source:
        kept = [chunk.columns[0] for chunk in source.read((rows.key,))]
    keys = pa.concat_arrays([*kept, pa.array([], pa.string())])
    return rows.select(np.flatnonzero(pc.is_in(rows.keys, value_set=keys)))


def _hold(
    table: Any, schema: TableSet, name: str, above: HeldRows | None, most_bytes: int
) -> HeldRows:
    own, parent = schema.tables[name], schema.by_child.get(name)
    columns: dict[str, list[reading.Cells]] = {column: [] for column in own.names}
    keys, places = [pa.array([], pa.string())], [np.zeros(0, np.int64)]
    key = str(schema.own_key(name))
    with _open_table(table, schema, name) as source:
        for chunk in source.read((*own.names, *schema.key_columns(name))):
            label = chunk.file or source.label
            found = PersonIndex.from_cells(key, chunk.columns[len(own.names)], label, name)
            keys.append(found.persons.take(pa.array(found.rows)))
            for column, cells in zip(own.names, chunk.columns):
                columns[column].append(cells)
            if parent is not None and above is not None:
                parents = PersonIndex.from_cells(
                    parent.column, chunk.columns[-1], label, parent.parent
                )
                places.append(_find_parents(parents, above, parent.column, label))
            if PERSON_BYTES * sum(map(len, keys)) > most_bytes:
                raise ResourceExceeded(
                    f"{source.label}: the keys of its rows do not fit within "
                    f"{most_bytes / 2**20:,.0f} MB: raise --max-memory"
                )
        label = source.label
    known = pa.concat_arrays(keys)
    if pc.count_distinct(known).as_py() < len(known):
        composite = (
            ""
            if parent is None
            else f", or combine {key!r} and {parent.column!r} to one column if {key!r} is unique "
            f"only below each row of {parent.parent}"
        )
        raise DataError(
            f"{label}: column {key!r} has a value in several rows, but each row of {name} has its "
            f"own key. Keep one row of each{composite}."
        )
    whole = {column: MixedCells.join(parts) for column, parts in columns.items()}
    for each in own.columns:  # the cells are read again with its children, under their name
        encode_chunk(each, whole[each.name], label)
    person = None if parent is None else parent.column
    return HeldRows(label, key, person, known, whole, above, np.concatenate(places))


def _count_rows(table: Any, schema: TableSet, name: str, above: HeldRows) -> Places:
    counts, key = np.zeros(len(above), dtype=np.int64), schema.by_child[name]
    with _open_table(table, schema, name) as source:
        for chunk in source.read((key.column,)):
            label = chunk.file or source.label
            parents = PersonIndex.from_cells(key.column, chunk.columns[0], label, key.parent)
            places = _find_parents(parents, above, key.column, label)
            counts += np.bincount(places, minlength=len(above))
    return counts


def _find_parents(parents: PersonIndex, above: HeldRows, column: str, label: str) -> Places:
    places = parents.among(above.keys)
    if (places < 0).any():
        raise DataError(
            f"{label}: column {column!r} has values that no row of {above.label} has. Add the "
            "parents of these rows, or remove the rows."
        )
    return places


@contextmanager
def _open_table(table: Any, schema: TableSet, name: str) -> Iterator[reading.Source]:
    """Open a whole table with its keys; raise DataError if it is not as the schema says."""
    own, keys = schema.tables[name], schema.key_columns(name)
    if isinstance(table, CodedTable):
        raise DataError(f"a coded table has no key {keys[0]!r}. Use the raw table of {name}.")
    with reading.open_source(table, own.dialect) as source:
        if source.label == reading.FRAME:
            source = replace(source, label=name)
        elif inside(reading.name_source(table))[1] is not None:  # one of several tables in a file
            source = replace(source, label=f"{source.label}: {name}")
        reading.check_names(source, (*own.names, *keys), own.unread)
        yield source
