"""The release of a set of tables: what one run let out of all, and any number of samples."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import ValidationError

from adaptive_qs.cliques import Rows
from adaptive_qs.domain import Clique
from adaptive_qs.errors import InputError
from adaptive_qs.generate.check import CheckedPages
from adaptive_qs.generate.targets import single_target
from adaptive_qs.machine import PhaseProgress
from adaptive_qs.privacy.budget import float_above
from adaptive_qs.privacy.events import Cost, Event
from adaptive_qs.privacy.unit import SetMember
from adaptive_qs.release.drawing import Contradiction, Drawing
from adaptive_qs.release.release import Release, chosen_seed
from adaptive_qs.release.statement import FORMAT_VERSION, Manifest, check_version
from adaptive_qs.table.archive import ArchiveReader, open_archive, write_archive
from adaptive_qs.table.bin_density import build_drawers
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import decode
from adaptive_qs.table.files import STAMP_KEY, compute_sha256
from adaptive_qs.table.generated import with_generated
from adaptive_qs.table.schema import SET_MEMBER, Schema
from adaptive_qs.table.tables import MeasuredTable, TableSet

_SAME = (
    "rho", "epsilon", "delta", "mu", "accountant", "stamp", "entropy", "neighbours",
)  # fmt: skip
"""Fields of a manifest that are equal for all tables of a set."""


@dataclass(eq=False)
class DrawnTable:
    """A synthetic table of a sample, whose pages are drawn as they are requested, once.

    Attributes:
        schema: The columns of its pages: keys, then its own.
        pages: Values of the declared types; keys are integers from 1 on.
        drawing: Draws the rows; None for a table without rows.
    """

    name: str
    schema: Schema
    rows: int
    pages: Iterator[pa.Table]
    drawing: Drawing | None = None

    @property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """As of the drawing."""
        return () if self.drawing is None else self.drawing.contradictions

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the table that follow from the release."""
        return () if self.drawing is None else self.drawing.warnings


@dataclass(frozen=True, eq=False, repr=False)
class ReleaseSet:
    """Everything that one run released of a set of tables: safe to share, sampled at no cost.

    Attributes:
        schema: The public description of the tables.
        tables: The release of each table as it is measured, by name, root first.

    Raises:
        ValueError: Parts do not fit each other, or charges exceed the budget together.
    """

    schema: TableSet
    tables: Mapping[str, Release]

    @classmethod
    def of_run(cls, schema: TableSet, tables: Mapping[str, Release]) -> Self:
        """Return the release of a finished run; all tables have the last one's ledger position."""
        if not schema.is_set:
            return cls(schema.changed({n: each.schema for n, each in tables.items()}), tables)
        ledger = {"ledger": list(tables.values())[-1].manifest.ledger}
        placed = {
            name: replace(each, manifest=each.manifest.model_copy(update=ledger))
            for name, each in tables.items()
        }
        return cls(schema, placed)

    def __post_init__(self) -> None:
        measured, first = self.schema.measured(), self.root.manifest
        if [*self.tables] != [table.name for table in measured]:
            raise ValueError("the tables are not those of the schema")
        for table, release in zip(measured, self.tables.values()):
            if release.schema.fingerprint != table.schema.fingerprint:
                raise ValueError(f"the columns of {table.name} are not those of the schema")
            if any(getattr(release.manifest, n) != getattr(first, n) for n in _SAME):
                raise ValueError("the promises of the tables differ")
            related = release.manifest.protects.related
            if not self.schema.is_set:
                if related is not None:
                    raise ValueError("the promise is one for a set of tables")
                continue
            if related != SetMember(self.schema.names, table.name):
                raise ValueError("the promise is not one for the tables of the schema")
            if release.manifest.protects.rows != table.rows_per_unit:
                raise ValueError(f"the promise counts other rows of {table.name} than the schema")
        spent = Cost.of(self.events)
        if float_above(spent.rho) > first.rho or (first.mu and first.spent_share(self.events) > 1):
            raise ValueError("the charges of all tables exceed the budget")

    @property
    def root(self) -> Release:
        """The release of the table of which one row is protected."""
        return next(iter(self.tables.values()))

    @property
    def manifest(self) -> Manifest:
        """The privacy statement of the last table; its promise is that of all tables."""
        return list(self.tables.values())[-1].manifest

    @property
    def unit(self) -> str:
        """What is protected, with the number of rows that count in each table."""
        if not self.schema.is_set:
            return self.root.manifest.unit
        below = sorted(self.schema.measured()[1:], key=lambda each: each.name)
        rows = [f"{each.rows_per_unit:,} of {each.name}" for each in below]
        protects = self.manifest.protects
        return f"{protects.protected}, at most {' and '.join(rows)}"

    @property
    def events(self) -> tuple[Event, ...]:
        """Every charge, in order."""
        return tuple(event for release in self.tables.values() for event in release.events)

    @property
    def rho_spent(self) -> float:
        """The sum of all charges, rounded up."""
        return float_above(Cost.of(self.events).rho)

    @property
    def rounds(self) -> int:
        """The number of rounds of all tables."""
        return sum(len(release.rounds) for release in self.tables.values())

    @property
    def insecure(self) -> bool:
        """Whether the noise came from a seed, so that nothing here is private."""
        return self.manifest.insecure

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the budget that follow from the noisy numbers of rows."""
        return self.label({name: release.warnings for name, release in self.tables.items()})

    def label(self, texts: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
        """Return the texts of all tables, each with the name of its table if there are several."""
        prefix = "{0}: {1}" if self.schema.is_set else "{1}"
        return tuple(prefix.format(name, text) for name, each in texts.items() for text in each)

    def __repr__(self) -> str:
        manifest = self.manifest
        stamp = ", NOT PRIVATE" if self.insecure else ""
        return (
            f"<{type(self).__name__}: {self.schema!r}, epsilon {manifest.epsilon:g}, "
            f"delta {manifest.delta:g}, rho {self.rho_spent:g} spent{stamp}>"
        )

    # Samples: tables that fit each other.

    def count_rows(self, num_rows: int | None = None) -> dict[str, int]:
        """Return about how many rows the tables have for ``num_rows`` rows of the root."""
        rows = self.root.num_rows if num_rows is None else num_rows
        share = rows / self.root.num_rows
        others = {name: round(each.num_rows * share) for name, each in self.tables.items()}
        return {**others, next(iter(self.tables)): rows}

    def sample(self, *args: Any, **options: Any) -> dict[str, pa.Table]:
        """Return synthetic tables by name; the arguments are as for :meth:`draw`."""
        drawn = self.draw(*args, **options)
        return {each.name: pa.concat_tables(each.pages) for each in drawn}

    def draw(
        self,
        num_rows: int | None = None,
        seed: int | None = None,
        workers: int = 1,
        progress: PhaseProgress | None = None,
        where: str | None = None,
    ) -> Iterator[DrawnTable]:
        """Yield synthetic tables, root first; draw all pages of one before taking the next.

        The root is drawn from its own model, each row with its numbers of children. As many rows of
        the other tables are then drawn, given the columns of their ancestors. Tables with children
        are held in memory, others are drawn page by page.

        Args:
            num_rows: Rows of the root; None for the noisy number that meet the condition.
            seed: The same seed gives the same tables on the same kind of machine with the same
                versions of the libraries; None takes one from the operating system.
            workers: Threads; the tables do not depend on it.
            progress: Called in each phase.
            where: A condition that all rows of the root meet; it may name numbers of children.

        Raises:
            InputError: A number is out of range, or the condition cannot be met.
        """
        seed = chosen_seed(seed)
        selected: Clique = ()
        population: dict[str, Rows] = {}
        if where is not None and self.schema.is_set:  # as rows are among those that were measured
            selected = self._check_where(where)
            family = _Family(self, seed, workers, progress)
            for each in family.draw(self.root.draw(None, seed, workers, progress), inner=True):
                _ = [*each.pages]
            population = family.given
        drawing = self.root.draw(num_rows, seed, workers, progress, where)
        family = _Family(self, seed, workers, progress, selected, population)
        yield from family.draw(drawing)

    def _check_where(self, where: str) -> Clique:
        """Return the columns of the root that choose rows; refuse columns of other tables."""
        from adaptive_qs.table.grammar import parse_condition  # few samples need it

        root, requested = self.root.schema, list[str]()
        named = {c.name: c for release in self.tables.values() for c in release.schema.columns}
        with suppress(InputError):  # refused with the columns of the root
            requested += parse_condition(where, {**named, **root.by_name}).columns()
        if other := [name for name in requested if name in named and name not in root.by_name]:
            raise InputError(
                f"{other[0]!r} is not a column of {self.schema.root}, and where chooses its rows: "
                f"name {', '.join(root.names)}, or select from a larger sample"
            )
        return self.root.domain.clique(set(requested) & set(root.names))

    # The bundle: members of one table as they are; several tables have a folder each.

    def members(self) -> Iterator[tuple[str, Any]]:
        """Yield the members of the bundle, by name."""
        if self.schema.is_set:
            schema = self.schema.model_dump(mode="json", exclude_defaults=True)
            content = {"format_version": FORMAT_VERSION, "schema": schema}
            yield SET_MEMBER, json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        for name, release in self.tables.items():
            yield from release.members(self.folder(name))

    def folder(self, name: str) -> str:
        """Return the beginning of the names of a table's members."""
        return f"{name}/" if self.schema.is_set else ""

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of every member that a program reads, by name, as it is saved."""
        found = {}
        if self.schema.is_set:
            found[SET_MEMBER] = compute_sha256([next(self.members())[1].encode()])
        for name, release in self.tables.items():
            folder = self.folder(name)
            found |= {f"{folder}{member}": value for member, value in release.digests().items()}
        return found

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write one zip of JSON and npy; the same release gives the same bytes.

        Raises:
            InputError: The file exists and is not to be replaced, or cannot be written.
        """
        write_archive(path, self.members(), force)

    @classmethod
    def load(cls, path: str | Path, max_memory: int | str | None = None) -> Self:
        """Read a bundle, of one table or of a set, and check that its parts fit.

        Raises:
            InputError: It is missing, damaged, or made by a newer version.
            ResourceExceeded: Reading it takes more memory than ``max_memory``.
        """
        with open_archive(path, "release bundle", max_memory) as archive:
            return cls.read(archive, path)

    @classmethod
    def read(cls, archive: ArchiveReader, path: str | Path) -> Self:
        """Return the release in an open archive; see :meth:`load`."""
        if SET_MEMBER not in archive.names:
            release = Release.read(archive, path)
            if release.manifest.protects.related is not None:
                raise InputError(
                    f"{path} is the release of one table of a set. Use the bundle of all tables."
                )
            schema = TableSet.of_one(release.schema)
            return cls(schema, {schema.root: release})
        content = archive.json(SET_MEMBER)
        check_version(content, path)
        try:
            schema = TableSet.parse(content.get("schema"), claim=archive.claim)
            return cls(schema, {n: Release.read(archive.within(n), path) for n in schema.names})
        except ValidationError:  # whose text is long: explained as for one table
            raise
        except (InputError, ValueError) as error:
            raise InputError(f"{path}: the release is damaged: {error}") from None


@dataclass(eq=False)
class _Family:
    """Draws the tables below the rows of a root; arguments are as for :meth:`ReleaseSet.draw`.

    Attributes:
        selected: Columns of the root by which its rows were chosen.
        population: For each table, codes of ancestors among all rows, if rows of the root were
            chosen.
        codes: Codes of the rows of tables with children, by name, once they are drawn.
        given: The codes of ancestors that the rows of a table got, by name.
    """

    release: ReleaseSet
    seed: int
    workers: int
    progress: PhaseProgress | None
    selected: Clique = ()
    population: Mapping[str, Rows] = field(default_factory=dict)
    codes: dict[str, Rows] = field(default_factory=dict)
    given: dict[str, Rows] = field(default_factory=dict)

    def draw(self, drawing: Drawing, inner: bool = False) -> Iterator[DrawnTable]:
        """Yield all tables, or those with children only."""
        schema, rows = self.release.schema, dict[str, int]()
        for number, table in enumerate(schema.measured()):
            name, parents = table.name, None
            if (key := schema.by_child.get(name)) is not None:
                above = self.codes[key.parent]
                width = schema.measured()[schema.names.index(key.parent)].schema
                parents = np.repeat(np.arange(len(above)), above[:, width.names.index(key.number)])
                self.given[name] = above[parents]
            if inner and schema.own_key(name) is None:
                continue
            own: Drawing | None = drawing
            if parents is not None:
                own = self._draw_linked(table, number) if len(parents) else None
            rows[name] = drawing.rows if parents is None else len(parents)
            for above_name in schema.list_path(name):
                rows.setdefault(above_name, 0)
            written = schema.written(name, rows) if schema.is_set else drawing.schema
            pages = drawing.pages()
            if schema.is_set:
                pages = self._pages(table, own, parents, [*written.written])
            yield DrawnTable(name, written, rows[name], pages, own)

    def _draw_linked(self, table: MeasuredTable, number: int) -> Drawing:
        """Return a drawing of the own columns, given the codes of ancestors."""
        release, given = self.release.tables[table.name], self.given[table.name]
        seed = self.seed ^ (number - 1)  # each table has random numbers of its own
        rows = release.linked(
            given, seed, self.workers, self.progress, self.population.get(table.name)
        )
        check = release.check(self.selected, range(table.given))
        own = table.schema.columns[table.given :]
        model = release.model()
        drawers = build_drawers(own, lambda i: single_target(model, table.given + i).counts)
        described = table.schema.changed(columns=own, person=None)
        return Drawing(
            described, len(given), CheckedPages(rows, check, seed), seed,
            release.manifest.stamp, drawers, given=table.given, described=table.schema,
        )  # fmt: skip

    def _pages(
        self,
        table: MeasuredTable,
        drawing: Drawing | None,
        parents: NDArray[np.int64] | None,
        names: Sequence[str],
    ) -> Iterator[pa.Table]:
        """Yield the pages of a table with keys in the place of its numbers of children."""
        schema, codes, start = self.release.schema, list[Rows](), 0
        stamp = {STAMP_KEY: self.release.manifest.stamp}
        own_key, parent = schema.own_key(table.name), schema.by_child.get(table.name)
        numbers = [key.number for key in schema.find_keys_below(table.name)]
        keep = codes.append if own_key is not None else None
        own = table.schema.changed(columns=table.schema.columns[table.given :], person=None)
        nothing = decode(CodedTable.from_parts(own.domain(), [], 0), own, np.random.default_rng(0))
        empty = with_generated(nothing, own.generated, 0, (0,))
        for page in [empty] if drawing is None else drawing.pages(keep):
            rows = slice(start, start + len(page))
            start = rows.stop
            page = page.drop_columns(numbers)
            if parent is not None and parents is not None:
                page = page.add_column(0, parent.column, pa.array(parents[rows] + 1, pa.int64()))
            if own_key is not None:
                keys = np.arange(rows.start, rows.stop) + 1
                page = page.add_column(0, own_key, pa.array(keys, pa.int64()))
            yield page.select(names).replace_schema_metadata(stamp)
        if own_key is not None:
            none = np.zeros((0, len(table.schema.columns)), dtype=np.int32)
            self.codes[table.name] = np.concatenate([none, *codes])
