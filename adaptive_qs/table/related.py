"""Two related tables: parents with a key, and children that name their parent's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from adaptive_qs.arguments import shown
from adaptive_qs.errors import DataError, ResourceExceeded, SchemaError
from adaptive_qs.jsonfile import Claim, as_object, first_complaint, read_json, render_schema
from adaptive_qs.machine import memory_claims
from adaptive_qs.table.cells import MixedCells, split_chunks
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.columns.base import ColumnBase, Text
from adaptive_qs.table.encode import with_plain_names
from adaptive_qs.table.files import FORMATS
from adaptive_qs.table.persons import PERSON_BYTES, PersonIndex
from adaptive_qs.table.read import FRAME, Cells, Chunk, Rows, Source, check_names, open_source
from adaptive_qs.table.schema import Schema

MOST_CHILDREN = 2**12
"""Of one parent, at most: the number of children is an attribute with as many values."""

Places = NDArray[np.int64]
TableName = Literal["parents", "children"]


class RelatedSchema(BaseModel):
    """A table of parents, a table of their children, and how a child names its parent.

    Build one from a file or a mapping with `load` and `parse` (errors are `SchemaError`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    version: Literal[1]
    """Version of the file format."""
    key: Text
    """Column of the parents' table that tells one parent from another. It is never measured, and
    synthetic tables have new keys, from 1 on."""
    foreign_key: Text | None = None
    """Column of the children's table that has the key of the parent, where it has another name."""
    most_children: Annotated[int, Field(ge=1, le=MOST_CHILDREN)]
    """Children of one parent that count at most: a public number, not one taken from the data."""
    count: Text = "children"
    """What the number of children is called where it is an attribute of the parents."""
    parents_file: Text | None = None
    """Name of the file with the parents' table in a folder that holds both tables, such as
    households.csv. Of synthetic tables in a folder, the parents have the same name."""
    children_file: Text | None = None
    """The same of the children's table."""
    parents: Schema
    """Columns of the parents' table, without the key."""
    children: Schema
    """Columns of the children's table, without the foreign key."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for table, schema in self.by_table.items():
            key = self.keys[table]
            if key in (*schema.names, *schema.ignore):
                raise ValueError(
                    f"{table}: column {key!r} is the key: leave it out of the columns and of "
                    '"ignore", as it is never measured'
                )
            if schema.person is not None:
                raise ValueError(
                    f'{table}: has "person": leave it out, the key tells who is protected: a '
                    "parent with all children"
                )
            for column in schema.columns:
                if column.open_keys:
                    keys = ", ".join(f'"{key}"' for key in column.open_keys)
                    raise ValueError(
                        f"{table}: column {column.name!r}: has {keys}, which is learnt from the "
                        f"rows, and nothing is of related tables: {column.open_remedy}"
                    )
        names = (self.key, self.count, *self.parents.names, *self.children.names)
        for name in {name for name in names if names.count(name) > 1}:
            raise ValueError(
                f"column {name!r} has a name that occurs twice among the columns of both tables, "
                'the key and "count": rename one'
            )
        files = [name for name in self.files.values() if name is not None]
        for name in files:
            if not name.lower().endswith(tuple(FORMATS)) or any(c in name for c in "/\\:"):
                raise ValueError(
                    f"{name!r} is no name of a file for a table: give one without a folder and "
                    f"with the ending {FORMATS.listed()}"
                )
        if len(files) == 1 or len({name.lower() for name in files}) < len(files):
            raise ValueError(
                'give both "parents_file" and "children_file", with different names, or neither'
            )
        return self

    def __repr__(self) -> str:
        columns = len(self.parents.columns), len(self.children.columns)
        return f"<RelatedSchema: {columns[0]} columns of parents, {columns[1]} of children>"

    __str__ = __repr__

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @property
    def by_table(self) -> dict[str, Schema]:
        """The schemas of both tables as they are in their files."""
        return {"parents": self.parents, "children": self.children}

    @property
    def keys(self) -> dict[str, str]:
        """The column of each table by which they are related."""
        return {"parents": self.key, "children": self.foreign_key or self.key}

    def with_about(self, about: Mapping[str, str], source: str = "about") -> Self:
        """Return the same schema with these parts of ``about`` in place of the parents'.

        Raises:
            SchemaError: a key or a text is not allowed.
        """
        return self.changed(parents=self.parents.with_about(about, source))

    def changed(self, **fields: Any) -> Self:
        """Return the same schema with other fields; raises ValueError where they are wrong."""
        own = {name: getattr(self, name) for name in RelatedSchema.model_fields}
        return type(self)(**{**own, **fields})

    @property
    def files(self) -> dict[str, str | None]:
        """The names of both files in a folder; None where they are not given."""
        return {"parents": self.parents_file, "children": self.children_file}

    @cached_property
    def counted(self) -> Schema:
        """The parents as they are measured: with the number of their children."""
        number = _numbers(self.count, self.most_children)
        return self.parents.changed(columns=(*self.parents.columns, number))

    @cached_property
    def joined(self) -> Schema:
        """The children as they are measured, behind the columns of their parents.

        The person column is the key.
        """
        both = self.parents, self.children
        return self.children.changed(
            columns=(*self.counted.columns, *self.children.columns),
            description=" ".join(table.description for table in both if table.description),
            ignore=(),
            person=self.key,
            about=self.parents.about,
        )

    def written(self, table: str, rows: int) -> Schema:
        """Return the schema of a synthetic table as it is written: the key, then its columns."""
        own = self.by_table[table]
        key = _numbers(self.keys[table], rows)
        return own.changed(columns=(key, *own.columns))

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what the schema means: equal for files that differ in layout or comments."""
        layout = {"parents", "children", "parents_file", "children_file"}
        own = self.model_dump(mode="json", exclude=layout)
        parts = {table: schema.fingerprint for table, schema in self.by_table.items()}
        text = json.dumps({**own, **parts}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def parse(cls, content: Any, source: str = "schema", claim: Claim | None = None) -> Self:
        """Return the schema in parsed JSON.

        Raises:
            SchemaError: the content is none, naming `source`, the table, the column and the remedy.
        """
        if "columns" in as_object(content):
            raise SchemaError(
                f'{source}: describes one table: give "parents" and "children", each such a '
                'schema, with "key" and "most_children"'
            )
        described: Any = as_object(content) or content
        for table in ("parents", "children"):
            if one := as_object(as_object(content).get(table)):
                described[table] = Schema.parse(one, f"{source}: {table}", claim)
        try:
            return cls.model_validate(described, strict=True)
        except ValidationError as error:
            _refuse(error, source)

    @classmethod
    def load(cls, path: str | Path, max_memory: int | str | None = None) -> Self:
        """Read a schema file.

        Raises:
            SchemaError: the file is missing, is not JSON, or is not such a schema.
            ResourceExceeded: its bins take more than ``max_memory``.
        """
        return cls.parse(read_json(path, SchemaError), str(path), memory_claims(max_memory))

    @classmethod
    def of(cls, given: Any) -> Self:
        """Return the schema given as such, as a file or as parsed JSON.

        Raises:
            SchemaError: it is none.
        """
        match given:
            case RelatedSchema():
                return cast(Self, given)
            case str() | Path():
                return cls.load(given)
            case Mapping():
                return cls.parse(given)
        raise SchemaError(
            f"the schema is {shown(given)}: pass a RelatedSchema, the path of a schema file, or "
            "parsed JSON"
        )


def _numbers(name: str, most: int) -> ColumnBase:
    """Return a column of whole numbers from 0 on."""
    return Schema.parse({name: most + 1}).columns[0]


def _refuse(error: ValidationError, source: str) -> NoReturn:
    complaint = first_complaint(error)
    raise SchemaError(complaint.line(source, complaint.where)) from None


# Two tables as two others, each of which is measured as one: the parents with the number of their
# children, and the children behind the columns of their parents.
#
# Which rows belong together is compared exactly, by the text of the keys (as persons are). A parent
# with children above the most that count has that number; which of them count is decided as for
# the rows of a person (:mod:`adaptive_qs.table.persons`), whose rows are here those of the children
# joined with the parent's: a function of this parent and its children alone. So tables that differ
# by a parent with all children differ here by one row of a parent, and by a number of children at
# most.
#
# Proof: docs/proofs.md, section 11.


@dataclass(frozen=True, repr=False)
class Family:
    """Private parents and children whose keys fit each other.

    Attributes:
        tables: of parents and of children, as they were given.
        schema: of both.
        keys: of the parents, in the order of their rows.
        counts: shape (parents,), children of each that count.
        cells: of the columns of parents, in that order.
    """

    tables: Mapping[str, Any]
    schema: RelatedSchema
    keys: pa.StringArray
    counts: Places
    cells: Mapping[str, MixedCells]

    @classmethod
    def of(cls, parents: Any, children: Any, schema: RelatedSchema, most_bytes: int) -> Self:
        """Read the keys of both tables, and the parents' columns.

        Args:
            parents: any kind of table but a coded one.
            children: the same.
            schema: of both.
            most_bytes: memory for the parents' keys.

        Raises:
            DataError: a table is coded or does not fit the schema; a row has no key, two parents
                have the same, or a child has one that no parent has.
            ResourceExceeded: there are more parents than fit the memory.
        """
        tables = {"parents": parents, "children": children}
        names, keys = schema.parents.names, []
        cells: dict[str, list[Cells]] = {name: [] for name in names}
        with _opened(tables, "parents", schema) as source:
            for chunk, whose in _chunks(source, "parents", schema, names):
                keys.append(whose.persons.take(pa.array(whose.rows)))
                for name, column in zip(names, chunk.columns):
                    cells[name].append(column)
                if PERSON_BYTES * sum(map(len, keys)) > most_bytes:
                    raise ResourceExceeded(
                        f"{source.label}: the keys of its rows do not fit within "
                        f"{most_bytes / 2**20:,.0f} MB: raise --max-memory"
                    )
            label = source.label
        known = pa.concat_arrays([*keys, pa.array([], pa.string())])
        if pc.count_distinct(known).as_py() < len(known):
            raise DataError(
                f"{label}: column {schema.key!r} has a value in several rows, and every parent has "
                "one row and its own key: keep one row of each"
            )
        whole = {name: _joined(parts) for name, parts in cells.items()}
        counts = _count_children(known, tables, schema, label)
        return cls(tables, schema, known, np.minimum(counts, schema.most_children), whole)

    def take_columns(self, names: Sequence[str], rows: Places) -> dict[str, Cells]:
        """Cells of the parents in these places, and the numbers of their children."""
        found: dict[str, Cells] = {
            name: self.cells[name].take(rows) for name in names if name in self.cells
        }
        return {**found, self.schema.count: pa.array(self.counts[rows])}


@dataclass(frozen=True, repr=False)
class FamilyRows(Rows):
    """One of the tables of a family as it is measured; see :class:`~adaptive_qs.table.read.Rows`.

    Attributes:
        family: both tables.
        table: "parents" or "children".
    """

    family: Family
    table: TableName

    def __str__(self) -> str:
        return self.table

    @contextmanager
    def open(self) -> Iterator[Source]:
        """Yield the rows with the parents' columns and the number of children, or the key."""
        family, names = self.family, self.family.schema.counted.names
        if self.table == "children":
            names = (*family.schema.joined.names, family.schema.key)
        with _opened(family.tables, self.table, family.schema) as source:
            yield Source(source.label, names, partial(self._read, source))

    def _read(self, source: Source, requested: Sequence[str]) -> Iterator[Chunk]:
        family, schema = self.family, self.family.schema
        own = [name for name in requested if name in schema.by_table[self.table].names]
        for chunk, whose in _chunks(source, self.table, schema, own):
            rows = whose.among(family.keys)
            if (rows < 0).any():
                raise DataError(f"{source.label}: changed while it was read: repeat the command")
            found: dict[str, Cells] = family.take_columns(requested, rows)
            found |= dict(zip(own, chunk.columns))
            found[schema.key] = whose.persons.take(pa.array(whose.rows))
            yield replace(chunk, columns=tuple(found[name] for name in requested))


@contextmanager
def _opened(tables: Mapping[str, Any], table: str, schema: RelatedSchema) -> Iterator[Source]:
    """All rows of a table, with its key; raises DataError where it is not as the schema says."""
    own, key = schema.by_table[table], schema.keys[table]
    if isinstance(tables[table], CodedTable):
        raise DataError(f"a coded table has no key {key!r}: give the raw table of {table}")
    with open_source(tables[table], own.delimiter) as source:
        source = with_plain_names(source, own, (key,))
        if source.label == FRAME:
            source = replace(source, label=table)
        check_names(source, (*own.names, key), own.ignore)
        yield source


def _chunks(
    source: Source, table: str, schema: RelatedSchema, requested: Sequence[str]
) -> Iterator[tuple[Chunk, PersonIndex]]:
    key = schema.keys[table]
    for chunk in source.read((*requested, key)):
        *columns, keys = chunk.columns
        label = chunk.file or source.label
        yield (
            replace(chunk, columns=tuple(columns)),
            PersonIndex.from_cells(key, keys, label, noun="parent"),
        )


def _count_children(
    keys: pa.StringArray, tables: Mapping[str, Any], schema: RelatedSchema, parents: str
) -> Places:
    """How many children each parent has; raises DataError where a child has none of them."""
    counts = np.zeros(len(keys), dtype=np.int64)
    with _opened(tables, "children", schema) as source:
        for _, whose in _chunks(source, "children", schema, ()):
            rows = whose.among(keys)
            if (rows < 0).any():
                key = schema.keys["children"]
                raise DataError(
                    f"{source.label}: column {key!r} has values that no row of {parents} has: add "
                    "the parents of these children, or take the rows out"
                )
            counts += np.bincount(rows, minlength=len(keys))
    return counts


def _joined(parts: Sequence[Cells]) -> MixedCells:
    """Cells of one column, one chunk after the other, each by its own type."""
    distinct: list[pa.Array] = []
    indices, before = [np.zeros(0, np.int64)], 0
    for part in parts:
        for each in split_chunks(part):
            cells = MixedCells.of(each)
            indices.append(np.where(cells.indices < 0, -1, cells.indices + before))
            distinct += cells.parts
            before += sum(map(len, cells.parts))
    return MixedCells(tuple(distinct), np.concatenate(indices))


# The published JSON Schema of schema files of related tables, generated from the models.
#
# The copy beside this module is kept current by a test; `scripts/make_reference.py` writes it anew.

PUBLISHED = Path(__file__).with_name("related.schema.json")


def render() -> str:
    """Return the text of the published file."""
    return render_schema("related", RelatedSchema.model_json_schema())
