"""Schemas of sets of tables: a tree in which rows of a table belong to a row of another one.

One table is a set with one member.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, Self, cast

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from adaptive_qs.errors import SchemaError
from adaptive_qs.jsonfile import Claim, as_object, first_complaint
from adaptive_qs.machine import memory_claims
from adaptive_qs.table.columns.base import ColumnBase, Text
from adaptive_qs.table.encode import resolve_schema
from adaptive_qs.table.schema import Schema, describes_set, read_content

MOST_TABLES = 64
"""Maximum number of tables of a set."""
LONE = "table"
"""Name of the table of a set with one member whose schema names none."""


class Key(BaseModel, frozen=True, extra="forbid"):
    """A column whose value names the row of another table that a row belongs to."""

    child: Text
    """Table whose rows belong to rows of the parent."""
    column: Text
    """Column of the child that names the row of the parent. It is never measured."""
    parent: Text
    """Table of the rows that own them."""
    parent_column: Text | None = None
    """Column that identifies the rows of the parent; by default the one that `column` names. It is
    never measured, and synthetic tables have new keys, from 1 on."""
    most: Annotated[int, Field(ge=1, le=2**12)]
    """Maximum number of rows of the child that count for one row of the parent: a public number,
    not one taken from the data."""
    count: Text | None = None
    """Name of the number of these rows in workloads and conditions, where it is a column of the
    parent; by default the name of the child."""

    @field_validator("column", "parent_column", mode="before")
    @classmethod
    def _check_single(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            raise ValueError(
                "is a list, and a key has one column: write a column that combines the columns, "
                "and name it"
            )
        return value

    @property
    def identifier(self) -> str:
        """Column that identifies the rows of the parent."""
        return self.parent_column or self.column

    @property
    def number(self) -> str:
        """Name of the number of children."""
        return self.count or self.child


class MeasuredTable(NamedTuple):
    """A table of a set as it is measured.

    The schema has the columns of all ancestors before its own, each table with its numbers of
    children. Its person column is the key of the parent.
    """

    name: str
    schema: Schema
    given: int  # number of leading columns that come from ancestors
    rows_per_unit: int  # maximum number of its rows below one row of the root
    share: Fraction  # part of the budget of the run


class TableSet(BaseModel, frozen=True, extra="forbid"):
    """Tables by name, and keys that make a tree of them.

    Build one from a file or a mapping with `load` and `parse` (errors are `SchemaError`).
    """

    version: Literal[1]
    """Version of the file format."""
    tables: Annotated[dict[Text, Schema], Field(min_length=1, max_length=MOST_TABLES)]
    """Tables by name, each with its columns but the keys. Names begin with a letter, and have
    letters, digits and underscores."""
    keys: tuple[Key, ...] = ()
    """How the tables belong together. Every table but one, the root, is the child of one key."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_table_names()
        self._check_tree()
        if self.is_set:
            self._check_columns()
        return self

    def _check_table_names(self) -> None:
        reserved = r"(?i)con|prn|aux|nul|(com|lpt)\d|sqlite_.*"  # by systems, and by SQLite
        for name in self.tables:
            plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,59}", name)
            if not plain or re.fullmatch(reserved, name):
                raise ValueError(
                    f"{name!r} cannot be the name of a table: begin with a letter, and use letters "
                    "without accents, digits and underscores, 60 at most, but no name that systems "
                    "reserve, such as con or sqlite_x"
                )
        for kind, names in (
            ("names", list(self.tables)),
            ("files", [schema.file or name for name, schema in self.tables.items()]),
        ):
            if len({name.lower() for name in names}) < len(names):
                raise ValueError(f"two tables have the same {kind}, but for case: rename one")

    def _check_tree(self) -> None:
        parents: dict[str, str] = {}
        for key in self.keys:
            for name in (key.child, key.parent):
                if name not in self.tables:
                    known = ", ".join(self.tables)
                    raise ValueError(f"a key names the table {name!r}: there are {known}")
            if key.child == key.parent:
                raise ValueError(
                    f"{key.child}: column {key.column!r} names rows of the table itself: add it to "
                    '"ignore", since its rows can be related without end'
                )
            if key.child in parents:
                raise ValueError(
                    f"{key.child}: has two parents, {parents[key.child]} and {key.parent}: keep "
                    'the key of the rows to be protected, and add the other column to "ignore"'
                )
            parents[key.child] = key.parent
        roots = [name for name in self.tables if name not in parents]
        if len(roots) > 1:
            raise ValueError(
                f"{' and '.join(roots[:2])} have no parent, and a set of tables has one root: "
                "relate them by a key, or make a schema for each and run them with one ledger"
            )
        if len(self.names) < len(self.tables):
            rest = next(name for name in self.tables if name not in self.names)
            raise ValueError(f"{rest}: belongs to its own descendants: remove one key of the cycle")

    def _check_columns(self) -> None:
        for name, schema in self.tables.items():
            if not (schema.columns or self.find_keys_below(name)):
                raise ValueError(f"{name}: columns: must not be empty, as no key names its rows")
            if schema.person is not None:
                raise ValueError(
                    f'{name}: has "person": remove it, since one row of {self.root} is '
                    "protected with all rows below it"
                )
            for column in schema.columns:
                if column.open_keys:
                    keys = ", ".join(f'"{key}"' for key in column.open_keys)
                    raise ValueError(
                        f"{name}: column {column.name!r} has {keys}, but nothing is learnt from "
                        f"the rows of a set of tables: {column.open_remedy}"
                    )
            self._check_scope(name, schema)
        most = 2**20  # with more there is nothing but noise
        for table in self._measured:
            if table.rows_per_unit > most:
                raise ValueError(
                    f"{table.name}: {table.rows_per_unit:,} rows can be below one row of "
                    f'{self.root}, more than {most:,}: lower "most"'
                )

    def _check_scope(self, name: str, schema: Schema) -> None:
        """Check that names are distinct among the columns that a row of the table is joined to."""
        keys = self.key_columns(name)
        if len({key.identifier for key in self.find_keys_below(name)}) > 1:
            raise ValueError(
                f"{name}: its children name its rows by several columns: use one column for all"
            )
        scope = [column for each in self.list_path(name) for column in self._list_columns(each)]
        for key in keys:
            if key in (*scope, *schema.unread):
                raise ValueError(
                    f"{name}: column {key!r} is a key, which is never measured: remove it from "
                    '"columns" and "ignore" of this table and of its ancestors'
                )
        if len(set(keys)) < len(keys):
            raise ValueError(f"{name}: column {keys[0]!r} names a row and its parent: rename one")
        for column, times in Counter(scope).items():
            if times > 1:
                raise ValueError(
                    f"{name}: {column!r} names two columns or numbers of children of this table "
                    'and its ancestors: rename a column, or set another "count" in the key'
                )

    def _list_columns(self, name: str) -> tuple[str, ...]:
        return *self.tables[name].names, *(key.number for key in self.find_keys_below(name))

    def __repr__(self) -> str:
        sizes = ", ".join(f"{n} {len(s.columns)}" for n, s in self.tables.items())
        return f"<TableSet: columns of {sizes}>"

    __str__ = __repr__

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    # The tree.

    @property
    def is_set(self) -> bool:
        """Whether there are several tables."""
        return len(self.tables) > 1

    @cached_property
    def root(self) -> str:
        """The table of which one row is protected with all rows below it."""
        children = {key.child for key in self.keys}
        return next(name for name in self.tables if name not in children)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Tables in the order in which they are measured and drawn: breadth first.

        So each comes after its parent, and what a table leaves of its budget goes to deeper ones,
        whose noise is larger.
        """
        found = [self.root] if len(self.keys) < len(self.tables) else []
        for name in found:
            found += [key.child for key in self.find_keys_below(name)]
        return tuple(found)

    @cached_property
    def by_child(self) -> dict[str, Key]:
        """The key of each table but the root, by the table's name."""
        return {key.child: key for key in self.keys}

    @cached_property
    def joins(self) -> tuple[str, ...]:
        """The columns that each key relates, in the same order for every schema."""
        return tuple(
            sorted(f"{k.child}.{k.column!r} = {k.parent}.{k.identifier!r}" for k in self.keys)
        )

    def find_keys_below(self, name: str) -> tuple[Key, ...]:
        """Return the keys whose parent is a table, in the order of the schema."""
        return tuple(key for key in self.keys if key.parent == name)

    def list_path(self, name: str) -> tuple[str, ...]:
        """Return the tables from the root to a table."""
        path = [name]
        while (key := self.by_child.get(path[0])) is not None:
            path.insert(0, key.parent)
        return tuple(path)

    def own_key(self, name: str) -> str | None:
        """Return the column that identifies the rows of a table; None if it has no children."""
        keys = self.find_keys_below(name)
        return keys[0].identifier if keys else None

    def key_columns(self, name: str) -> tuple[str, ...]:
        """Return the columns of a table that are keys: its own, then that of its parent."""
        parent = self.by_child.get(name)
        found = (self.own_key(name), None if parent is None else parent.column)
        return tuple(column for column in found if column is not None)

    # The tables as they are measured and written.

    def measured(self) -> tuple[MeasuredTable, ...]:
        """Return the tables as they are measured, root first."""
        return self._measured

    @cached_property
    def _measured(self) -> tuple[MeasuredTable, ...]:
        if not self.is_set:
            (schema,) = self.tables.values()
            return (MeasuredTable(self.root, schema, 0, 1, Fraction(1)),)
        shares, found = self._divide_budget(), []
        for name in self.names:
            path = self.list_path(name)
            given = sum(len(self._list_columns(each)) for each in path[:-1])
            rows = math.prod(self.by_child[each].most for each in path[1:])
            found.append(MeasuredTable(name, self._join(path), given, rows, shares[name]))
        return tuple(found)

    def _join(self, path: tuple[str, ...]) -> Schema:
        own, columns = self.tables[path[-1]], list[ColumnBase]()
        for each in path:
            columns += self.tables[each].columns
            columns += (_integers(key.number, key.most) for key in self.find_keys_below(each))
        described = (self.tables[each].description for each in path)
        topics = (topic for each in path for topic in self.tables[each].open)
        parent = self.by_child.get(path[-1])
        return own.changed(
            columns=tuple(columns), description=" ".join(filter(None, described)),
            open=tuple(dict.fromkeys(topics)), ignore=own.ignore if parent is None else (),
            person=None if parent is None else parent.column, about=self.tables[self.root].about,
            file=None,
        )  # fmt: skip

    def _divide_budget(self) -> dict[str, Fraction]:
        """Return the part of the budget of each table.

        A table gets a quarter of what it and the tables below it have, and its children share the
        rest evenly: they have all its columns besides their own, and more noise.
        """
        shares, left = {}, {self.root: Fraction(1)}
        for name in self.names:
            below = self.find_keys_below(name)
            shares[name] = left[name] / 4 if below else left[name]
            for key in below:
                left[key.child] = (left[name] - shares[name]) / len(below)
        return shares

    def written(self, name: str, rows: Mapping[str, int]) -> Schema:
        """Return the schema of a synthetic table as it is written: keys first, then its columns.

        ``rows`` has the numbers of rows of the synthetic tables, by name.
        """
        own, parent = self.tables[name], self.by_child.get(name)
        owners = ([name] if self.own_key(name) else []) + ([parent.parent] if parent else [])
        keys = [_integers(c, rows[table]) for c, table in zip(self.key_columns(name), owners)]
        return own.changed(columns=(*keys, *own.columns))

    def changed(self, tables: Mapping[str, Schema]) -> Self:
        """Return the same set with other schemas of some tables, checked anew."""
        return type(self)(version=1, tables={**self.tables, **tables}, keys=self.keys)

    # Files.

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what the schema means: equal for files that differ in layout or comments."""
        if not self.is_set:
            return self.tables[self.root].fingerprint
        content = {
            "tables": {name: schema.fingerprint for name, schema in self.tables.items()},
            "keys": [key.model_dump(mode="json", exclude_defaults=True) for key in self.keys],
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> str:
        """Return the schema as JSON text; that of one table as its own."""
        if not self.is_set:
            return self.tables[self.root].to_json()
        content = self.model_dump(mode="json", exclude_defaults=True)
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def parse(cls, content: Any, source: str = "schema", claim: Claim | None = None) -> Self:
        """Return the schema in parsed JSON, of one table or of a set; see ``Schema.parse``.

        Raises:
            SchemaError: If it is no schema; the message names ``source``, the table and the column.
            ResourceExceeded: If ``claim`` refuses the bins.
        """
        if not describes_set(content):
            return cls.of_one(Schema.parse(content, source, claim))
        described = as_object(content)
        if isinstance(tables := described["tables"], Mapping):
            described["tables"] = {
                name: Schema.parse(table, f"{source}: {name}", claim, True)
                if as_object(table)
                else table
                for name, table in tables.items()
            }
        if isinstance(keys := described.get("keys"), list):
            described["keys"] = tuple(keys)
        try:
            return cls.model_validate(described, strict=True)
        except ValidationError as error:
            _refuse(error, source)

    @classmethod
    def of_one(cls, schema: Schema) -> Self:
        """Return the set whose only member has a schema."""
        return cls(version=1, tables={LONE: schema})

    @classmethod
    def load(cls, path: str | Path, max_memory: int | str | None = None) -> Self:
        """Read a schema file, of one table or of a set, or the schema in a release bundle.

        Raises:
            SchemaError: If the file is missing, is not JSON, or is not a valid schema.
            ResourceExceeded: If reading it takes more than ``max_memory``.
        """
        return cls.parse(read_content(path, max_memory), str(path), memory_claims(max_memory))

    @classmethod
    def resolve(cls, given: Any, table: Any = None, max_memory: int | str | None = None) -> Self:
        """Return the schema given as such, as a file or as JSON; raise as `resolve_schema`."""
        match given:
            case TableSet():
                return cast(Self, given)
            case str() | Path():
                return cls.load(given, max_memory)
            case Mapping():
                return cls.parse(given, claim=memory_claims(max_memory))
        return cls.of_one(resolve_schema(given, table, max_memory))


def _integers(name: str, most: int) -> ColumnBase:
    """Return a column of whole numbers from 0 on."""
    return Schema.parse({name: most + 1}).columns[0]


def _refuse(error: ValidationError, source: str) -> NoReturn:
    complaint = first_complaint(error)
    where, place = complaint.where, source
    if len(where) > 1 and where[0] == "keys":
        place, where = f"{source}: key number {int(where[1]) + 1}", where[2:]
    raise SchemaError(complaint.line(place, where)) from None
