"""The public description of a table: its columns, their values, and nothing from its rows."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shlex
import zipfile
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, Self, Union, cast

from pydantic import AfterValidator, Field, ValidationError, model_validator

from adaptive_qs.arguments import as_integer, plain_json
from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.errors import InputError, ResourceExceeded, SchemaError
from adaptive_qs.jsonfile import Claim, as_object, first_complaint, read_json
from adaptive_qs.machine import memory_claims
from adaptive_qs.pages.words import counted
from adaptive_qs.table.columns import COLUMN_TYPES
from adaptive_qs.table.columns.base import ColumnBase, Reviewed, Text, Topic
from adaptive_qs.table.files import atomic_writer, is_table_file
from adaptive_qs.table.generated import GeneratedColumn
from adaptive_qs.table.text import Dialect, check_encoding

if TYPE_CHECKING:
    from adaptive_qs.table.rules import Ruleset

RuleText = Annotated[str, Field(min_length=1, max_length=1_000)]
Delimiter = Literal[",", ";", "\t", "|"]
AboutKey = Literal["title", "publisher", "contact", "date", "licence", "description"]
AboutText = Annotated[Text, Field(min_length=1, max_length=4_000)]


class DeclaredRule(Reviewed):
    """A rule between columns that holds in every row."""

    rule: RuleText
    """What holds, such as "start <= end" or "city determines county"; see the guide to rules."""
    table: tuple[tuple[Text, ...], ...] = ()
    """Of a rule with "determines" or "limits": values that belong together, in its order."""
    table_file: Text = ""
    """CSV file next to the schema that has the table below a line of names, and is read with it."""
    description: str = ""
    """Free text for people; not part of the fingerprint."""


class Schema(Reviewed):
    """Every column of the table, in the order of the attributes of its domain.

    Build one from trusted values with the constructor (errors are pydantic's), or from a file or a
    mapping with `load` and `parse` (errors are `SchemaError`).
    """

    version: Literal[1]
    """Version of the file format."""
    description: str = ""
    """Where the declared values come from; not part of the fingerprint."""
    columns: tuple[ColumnBase, ...]
    """The columns that take part, in order. A table of a set can have keys alone."""
    ignore: tuple[Text, ...] = ()
    """Columns that the data may have and that are left out."""
    generated: tuple[GeneratedColumn, ...] = ()
    """Columns that the data may have, that are never measured, and that every synthetic table has
    with new cells."""
    person: Text | None = None
    """Column that identifies persons, if persons are protected and not rows. It is never measured,
    and no synthetic table has it."""
    rules: Annotated[tuple[RuleText | DeclaredRule, ...], Field(max_length=500)] = ()
    """What holds in every row; synthetic rows meet all of it."""
    compare: tuple[RuleText, ...] = ()
    """What `evaluate` shows first, such as "price by district"; not part of the fingerprint."""
    delimiter: Delimiter | None = None
    """What separates the cells of CSV, read and written; commas by default. Files that end in .tsv
    have tabs whatever is said here."""
    encoding: Annotated[str, AfterValidator(check_encoding)] | None = None
    """How CSV has text, read and written, such as cp1252 or utf_16; UTF-8 by default."""
    about: dict[AboutKey, AboutText] = Field(default_factory=dict)
    """What the page of a release says of the data, in public: title, publisher, contact, date,
    licence, description; not part of the fingerprint."""
    file: Text | None = None
    """Of a table of a set: its name in a folder, such as households.csv, or in a database; by
    default the name of the table, with any ending. Not part of the fingerprint."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        seen: set[str] = set()
        for name in (*self.names, *self.unread):
            if name in seen:
                raise ValueError(f"column {name!r} is listed twice: keep one")
            seen.add(name)
        if self.file is not None and not re.fullmatch(r"[^/\\:.][^/\\:]*", self.file):
            raise ValueError(f"file {self.file!r} is not a file name. Use one without a folder.")
        if self.person in seen:
            raise ValueError(
                f'column {self.person!r} is the person column. Remove it from "columns" and '
                '"ignore"; it is never measured.'
            )
        own = {column.name: column for column in self.columns}
        object.__setattr__(self, "columns", tuple(c.bound(own) for c in self.columns))
        _ = self.ruleset  # which refuses what is no rule
        return self

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"<Schema: {len(self.columns)} columns>"

    __str__ = __repr__

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def dialect(self) -> Dialect:
        """The form of CSV files."""
        copies = {part: name for name, own in self.parts.items() for part in own.values()}
        return Dialect(self.delimiter, self.encoding, copies=tuple(copies.items()))

    @property
    def unread(self) -> tuple[str, ...]:
        """Columns that the data can have and that are never read."""
        return (*self.ignore, *(column.name for column in self.generated))

    @property
    def set_aside(self) -> tuple[str, ...]:
        """Columns that the data can have and that have no codes."""
        return self.unread if self.person is None else (*self.unread, self.person)

    @cached_property
    def written(self) -> dict[str, ColumnBase | GeneratedColumn]:
        """The columns of a synthetic table by their names, in order."""
        found: list[ColumnBase | GeneratedColumn] = [*self.own_columns]
        for column in self.generated:
            found.insert(column.place, column)
        return {column.name: column for column in found}

    @property
    def own_columns(self) -> tuple[ColumnBase, ...]:
        """The columns that are no parts of others, in order."""
        return tuple(column for column in self.columns if not column.part_of)

    @cached_property
    def parts(self) -> dict[str, dict[str, str]]:
        """The names of the parts of columns, by the name of the column and the unit."""
        found: dict[str, dict[str, str]] = {}
        for column in self.columns:
            if column.part_of:
                found.setdefault(column.part_of[0], {})[column.part_of[1]] = column.name
        return found

    @cached_property
    def by_name(self) -> dict[str, ColumnBase]:
        """The columns by their names, in order."""
        return {column.name: column for column in self.columns}

    def column(self, name: str) -> ColumnBase:
        """Return the column with this name; raise SchemaError if there is none."""
        if name not in self.by_name:
            raise SchemaError(f"column {name!r} is not in the schema: check the spelling")
        return self.by_name[name]

    @property
    def declared_rules(self) -> tuple[DeclaredRule, ...]:
        """The rules, each with its table and description."""
        return tuple(r if isinstance(r, DeclaredRule) else DeclaredRule(rule=r) for r in self.rules)

    @cached_property
    def ruleset(self) -> Ruleset | None:
        """The parsed rules; None without any.

        Raises:
            InputError: If one is no rule, contradicts another, or allows no row.
        """
        if not self.rules:
            return None
        from adaptive_qs.table.rule_sampling import check_values
        from adaptive_qs.table.rules import Ruleset

        ruleset = Ruleset.of(self.columns, [(r.rule, r.table) for r in self.declared_rules])
        check_values(ruleset)
        return ruleset

    def with_columns(self, columns: Iterable[ColumnBase]) -> Self:
        """Return the same schema with some columns, by name, in place of its own."""
        others = {column.name: column for column in columns}
        return self.changed(columns=tuple(others.get(c.name, c) for c in self.columns))

    def changed(self, **fields: Any) -> Self:
        """Return the same schema with other fields, checked anew."""
        own = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**own, **fields})

    @property
    def private_columns(self) -> tuple[str, ...]:
        """Columns whose bins or values a run has to learn from the rows first, in order."""
        return tuple(c.name for c in self.columns if c.is_unlearnt)

    @property
    def open_columns(self) -> tuple[str, ...]:
        """Columns of which a run learns bins, values or frequent values first, in order."""
        return tuple(c.name for c in self.columns if c.is_open)

    def without_heaps(self) -> Self:
        """Return the schema for runs that make no tables, which count no frequent values."""
        closed = tuple(c.without_heaps() for c in self.columns)
        return self if closed == self.columns else self.model_copy(update={"columns": closed})

    def domain(self) -> Domain:
        """Return the attributes and their numbers of codes; raise SchemaError if unlearnt."""
        if self.private_columns:
            named = ", ".join(map(repr, self.private_columns))
            raise SchemaError(
                f"private_bins and private_values of {named} are learnt by a run that pays for "
                "them. To use the schema without such a run, declare bins and values."
            )
        return self.widest_domain()

    def widest_domain(self) -> Domain:
        """Return the domain with as many codes as each column can get, for planning in public."""
        return Domain(
            tuple(
                Attribute(c.name, c.size, c.has_order, c.size - c.num_values, self._find_levels(c))
                for c in self.columns
            )
        )

    def _find_levels(self, column: ColumnBase) -> tuple[tuple[int, ...], ...]:
        """Return the nested groups of a column's codes, declared or by tables of rules."""
        found = [] if (own := column.declared_groups) is None else [own]
        if self.ruleset is not None:
            found += self.ruleset.groups.get(column.name, ())
        if not found:
            return ()
        from adaptive_qs.levels import build_chain

        return build_chain(found)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the meaning, equal for files that differ in layout or comments."""
        unmeant = {"description", "about", "file", "open", "compare"}
        content = self.model_dump(mode="json", exclude_defaults=True, exclude=unmeant)
        for column in (*content["columns"], *content.get("generated", ())):
            column.pop("description", None)
            column.pop("open", None)
        if self.rules:
            rules = (
                r.model_dump(mode="json", exclude={"description", "open", "table_file"})
                for r in self.declared_rules
            )
            content["rules"] = list(rules)
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def parse(
        cls, content: Any, source: str = "schema", claim: Claim | None = None, of_set: bool = False
    ) -> Self:
        """Return the schema in parsed JSON: this format, or mbi domain sizes such as `{"age": 85}`.

        ``claim`` reserves the memory of bins of which only the number is stated, by default within
        :func:`memory_claims`. A table of a set can be without columns.

        Raises:
            SchemaError: If it is neither; the message names `source`, the column and the remedy.
            ResourceExceeded: If ``claim`` refuses the bins.
        """
        if is_domain_sizes(content):
            content = {
                "version": 1,
                "columns": [
                    {"name": name, "type": "integer", "min": 0, "max": size - 1}
                    for name, size in content.items()
                ],
            }
        if describes_set(content):
            raise SchemaError(
                f"{source} describes a set of tables, but one table is needed. Use a schema "
                'with "columns".'
            )
        try:
            text = json.dumps(content, default=to_json_value)
            claim_bins(json.loads(text), source, claim)
            schema = cls.model_validate_json(text, strict=True)
        except ValidationError as error:
            raise_complaint(error, content, source)
        if not (schema.columns or of_set):
            raise SchemaError(f"{source}: columns: must not be empty")
        return schema

    @classmethod
    def load(cls, path: str | Path, max_memory: int | str | None = None) -> Self:
        """Read a schema file, an mbi domain file, or the schema in a release bundle.

        Raises:
            SchemaError: If the file is missing, is not JSON, or is not a valid schema.
            ResourceExceeded: If reading it takes more than ``max_memory``.
        """
        return cls.parse(read_content(path, max_memory), str(path), memory_claims(max_memory))

    def dump(self, path: str | Path, force: bool = False) -> None:
        """Write the schema as JSON, one column a line; raise InputError if that is not possible."""
        with atomic_writer(path, force) as file:
            file.write(self.to_json(reasons=True).encode())

    def to_json(self, reasons: bool = False) -> str:
        """Return the schema as JSON text, one column a line, with ``reasons`` for its owner."""
        content = self.model_dump(mode="json", exclude_defaults=True)
        if reasons:
            content |= {"why": self.why} if self.why else {}
            for key in ("columns", "generated", "rules"):
                for each, dumped in zip(getattr(self, key), content.get(key, ())):
                    if why := getattr(each, "why", ()):
                        dumped["why"] = why
        columns = [
            {"name": column.pop("name"), "type": column.pop("type"), **column}
            for column in content["columns"]
        ]
        lines = ",\n".join(f"    {json.dumps(column, ensure_ascii=False)}" for column in columns)
        listed = {
            key: ",\n".join(f"    {json.dumps(each, ensure_ascii=False)}" for each in content[key])
            for key in ("generated", "rules")
            if key in content
        } | {"columns": lines}
        parts = [
            f'  "{key}": ' + (f"[\n{listed[key]}\n  ]" if key in listed else json.dumps(value))
            for key, value in content.items()
        ]
        return "{\n" + ",\n".join(parts) + "\n}\n"


def bind_column_types() -> None:
    """Make schemas take exactly the columns in ``COLUMN_TYPES``, after a program added a type."""
    annotated, union = cast(Any, Annotated), cast(Any, Union)
    column = annotated[union[tuple(COLUMN_TYPES.values())], Field(discriminator="type")]
    Schema.model_fields["columns"].annotation = cast(Any, tuple)[column, ...]
    Schema.model_rebuild(force=True)


bind_column_types()


# Whether the author of a valid schema has looked at it, and advice about it.

UNREVIEWED = "the schema was taken from the data and reveals parts of it. Review it."


def is_unreviewed(schema: Schema) -> bool:
    """Return whether the schema, a column or a rule has open questions."""
    return bool(open_topics(schema))


def check_reviewed(schema: Schema, unreviewed_schema: bool) -> None:
    """Raise SchemaError if the schema is unreviewed, unless that is allowed."""
    if unreviewed_schema or not is_unreviewed(schema):
        return
    marks = ["the whole table"] * bool(schema.open)
    if columns := sum(bool(column.open) for column in schema.written.values()):
        marks.append(counted(columns, "column"))
    if rules := sum(bool(rule.open) for rule in schema.declared_rules):
        marks.append(counted(rules, "rule"))
    raise SchemaError(
        "The schema is still marked as taken from the data, which the privacy promise does not "
        "cover. To use it unreviewed, set --unreviewed-schema (in Python unreviewed_schema=True). "
        f"To answer its open questions ({', '.join(marks)}), run adaptive-qs schema check SCHEMA "
        "--ask."
    )


def open_topics(schema: Schema) -> dict[Topic, list[str]]:
    """Return the open questions, each with the columns or rules that it is about."""
    found: dict[Topic, list[str]] = {topic: [] for topic in schema.open}
    for name, column in (*schema.written.items(), *((r.rule, r) for r in schema.declared_rules)):
        for topic in column.open:
            found.setdefault(topic, []).append(name)
    return found


def discovered_values(schema: Schema, column: ColumnBase | GeneratedColumn) -> frozenset[str]:
    """Return texts of a column that were learnt, or proposed and not reviewed."""
    return column.found_values(bool(schema.open or column.open))


def is_domain_sizes(content: Any) -> bool:
    """Return whether parsed JSON is an mbi domain: attribute names with their positive sizes."""
    sizes = as_object(content)
    return (
        bool(sizes)
        and "columns" not in sizes
        and sizes.keys() != {"version"}  # the beginning of a schema
        and all((as_integer(size) or 0) > 0 for size in sizes.values())
    )


def claim_bins(content: Any, source: str, claim: Claim | None) -> None:
    """Reserve the memory of bins that are stated by their number, before they are formed."""
    stated = [as_object(each).get("bins") for each in as_object(content).get("columns") or ()]
    number = sum(bins for bins in map(as_integer, stated) if bins is not None)
    if number > 2**16:
        try:
            (claim or memory_claims())(400 * number)  # bytes
        except ResourceExceeded as error:
            raise ResourceExceeded(f"{source}: with {number:,} bins it {error}") from None


def to_json_value(value: Any) -> Any:
    """Return a NumPy number or another value that JSON lacks as one that it has."""
    try:
        return plain_json(value)
    except TypeError:
        return str(value)


def raise_complaint(error: ValidationError, content: Any, source: str) -> NoReturn:
    """Raise the first complaint of pydantic as one line that names the column."""
    complaint = first_complaint(error)
    where = complaint.where
    place = source
    if len(where) > 1 and where[0] == "columns":
        index = int(where[1])
        name = as_object(content["columns"][index]).get("name")
        place += f": column {name!r}" if type(name) is str else f": column number {index + 1}"
        where = where[3:]
    elif len(where) > 1 and where[0] == "rules":
        place += f": rule number {int(where[1]) + 1}"
        where = where[3:]  # behind it, pydantic names what it tried to read the rule as
    raise SchemaError(complaint.line(place, where)) from None


SET_MEMBER = "tables.json"
"""Member of the release bundle of a set of tables that has their schema."""


def read_content(path: str | Path, max_memory: int | str | None) -> Any:
    """Return the parsed JSON of a schema file, or of the schema in a release bundle."""
    if is_table_file(path):
        init = shlex.join(["adaptive-qs", "schema", "init", str(path)])
        raise SchemaError(f"{path} is a table, not a schema. To propose one, run {init}.")
    is_bundle = False
    with contextlib.suppress(OSError, ValueError):  # read_json explains them
        is_bundle = zipfile.is_zipfile(path)
    if not is_bundle:
        content = read_json(path, SchemaError)
        tables = as_object(as_object(content).get("tables")).values()
        for rules in (as_object(part).get("rules") for part in (content, *tables)):
            for rule in rules if isinstance(rules, list) else ():
                if name := as_object(rule).get("table_file"):
                    from adaptive_qs.table.dictionary import read_pairs  # few schemas have one

                    rule |= {"table": read_pairs(Path(path).parent, str(name)), "table_file": ""}
        return content
    from adaptive_qs.table.archive import open_archive

    with contextlib.suppress(InputError), open_archive(path, "release", max_memory) as archive:
        if SET_MEMBER in archive.names:
            return as_object(archive.json(SET_MEMBER)).get("schema")
        return archive.json("schema.json")
    raise SchemaError(f"{path} is a zip file, but not a release. Name a schema.")


def describes_set(content: Any) -> bool:
    """Return whether parsed JSON describes a set of tables."""
    content = as_object(content)
    return "columns" not in content and "tables" in content and not is_domain_sizes(content)
