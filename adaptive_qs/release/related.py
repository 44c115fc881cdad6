"""The release of two related tables: what one run let out of both, and any number of pairs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adaptive_qs.cliques import Rows
from adaptive_qs.domain import Clique
from adaptive_qs.errors import InputError
from adaptive_qs.generate.check import CheckedPages
from adaptive_qs.generate.targets import single_target
from adaptive_qs.machine import PhaseProgress
from adaptive_qs.privacy.budget import float_above
from adaptive_qs.privacy.events import Cost, Event
from adaptive_qs.release.bundle import RELATION, TABLES
from adaptive_qs.release.drawing import Contradiction, Drawing, contradictions
from adaptive_qs.release.page import build_pages
from adaptive_qs.release.release import Release, chosen_seed
from adaptive_qs.release.statement import FORMAT_VERSION, Manifest, check_version
from adaptive_qs.table.archive import ArchiveReader, open_archive, write_archive
from adaptive_qs.table.bin_density import build_drawers
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import decode, read_table
from adaptive_qs.table.files import STAMP_KEY, compute_sha256
from adaptive_qs.table.grammar import parse_condition
from adaptive_qs.table.related import RelatedSchema
from adaptive_qs.table.schema import Schema

_SAME = (
    "rho", "epsilon", "delta", "mu", "accountant", "stamp", "entropy", "neighbours",
)  # fmt: skip
"""What the promise of both tables has in common."""


class Pair(NamedTuple):
    """Two synthetic tables with values of the declared types, and new keys from 1 on."""

    parents: pa.Table
    children: pa.Table


@dataclass(frozen=True, eq=False, repr=False)
class RelatedRelease:
    """Everything that one run released of parents and children: safe to share, reloadable, and
    sampled at no cost.

    Attributes:
        schema: the public description of both tables.
        parents: the release of parents with the number of their children.
        children: the release of children behind the columns of their parents.

    Raises:
        ValueError: parts that do not fit each other, or charges that exceed the budget together.
    """

    schema: RelatedSchema
    parents: Release
    children: Release

    def __post_init__(self) -> None:
        schema, first, second = self.schema, self.parents.manifest, self.children.manifest
        if self.parents.schema.fingerprint != schema.counted.fingerprint:
            raise ValueError("the parents' columns are not those of the schema")
        if self.children.schema.fingerprint != schema.joined.fingerprint:
            raise ValueError("the children's columns are not those of the schema")
        if any(getattr(first, name) != getattr(second, name) for name in _SAME):
            raise ValueError("the promises of the two tables differ")
        units = first.protects, second.protects
        if [unit.related for unit in units] != list(TABLES) or any(
            unit.person != schema.key for unit in units
        ):
            raise ValueError("the promise is not one for parents with their children")
        if second.protects.rows != schema.most_children:
            raise ValueError("the promise counts another number of children than the schema")
        spent = Cost.of(self.events)
        if float_above(spent.rho) > first.rho or (first.mu and first.spent_share(self.events) > 1):
            raise ValueError("the charges of both tables exceed the budget")

    @property
    def manifest(self) -> Manifest:
        """The privacy statement of the children, which says whom both protect."""
        return self.children.manifest

    @property
    def by_table(self) -> dict[str, Release]:
        """The releases of both tables, by the folders of a bundle."""
        return dict(zip(TABLES, (self.parents, self.children)))

    @property
    def events(self) -> tuple[Event, ...]:
        """Every charge, in order."""
        return (*self.parents.events, *self.children.events)

    @property
    def rho_spent(self) -> float:
        """The sum of all charges, rounded up."""
        return float_above(Cost.of(self.events).rho)

    @property
    def insecure(self) -> bool:
        """Whether the noise came from a seed, so that nothing here is private."""
        return self.manifest.insecure

    @property
    def doubts(self) -> tuple[str, ...]:
        """What the noisy numbers of rows say against the budget; empty where they say nothing."""
        both = self.by_table.items()
        return tuple(f"{table}: {doubt}" for table, each in both for doubt in each.doubts)

    def __repr__(self) -> str:
        manifest = self.manifest
        stamp = ", NOT PRIVATE" if self.insecure else ""
        return (
            f"<{type(self).__name__}: {self.schema!r}, epsilon {manifest.epsilon:g}, "
            f"delta {manifest.delta:g}, rho {self.rho_spent:g} spent{stamp}>"
        )

    # Two tables that fit each other.

    def sample(
        self,
        num_parents: int | None = None,
        seed: int | None = None,
        workers: int = 1,
        progress: PhaseProgress | None = None,
        where: str | None = None,
        balance: str | None = None,
    ) -> Pair:
        """Synthetic parents, and children of theirs; see :meth:`draw`."""
        return self.draw(num_parents, seed, workers, progress, where, balance)[0]

    def draw(
        self,
        num_parents: int | None = None,
        seed: int | None = None,
        workers: int = 1,
        progress: PhaseProgress | None = None,
        where: str | None = None,
        balance: str | None = None,
    ) -> tuple[Pair, dict[str, tuple[Contradiction, ...]]]:
        """Return synthetic parents and their children, and where they contradict the release.

        Parents are drawn from their own model, each with a number of children; so many rows of
        children are then drawn from the children's model given the columns of the parent.

        Args:
            num_parents: rows of parents; None takes their noisy number, or that of those that meet
                the condition.
            seed: the same seed gives the same tables on the same kind of machine with the same
                versions of the libraries; None takes one from the operating system.
            workers: threads; the tables do not depend on it.
            progress: called in each phase.
            where: a condition that all parents meet; it may name the number of children.
            balance: a column whose values the parents have in equal numbers.

        Raises:
            InputError: a number is out of range, or the condition or the column asks for what there
                is not.
        """
        seed, schema = chosen_seed(seed), self.schema
        selected = self._check_steered(where, balance)

        def drawn(number: int | None, *steered: str | None) -> tuple[Drawing, pa.Table, Rows, Rows]:
            """Parents, the numbers of their children, and the codes that these have of them."""
            drawing = self.parents.draw(number, seed, workers, progress, *steered)
            table = drawing.table()
            codes = np.stack(read_table(table, schema.counted).columns, axis=1).astype(np.int32)
            children = table[schema.count].to_numpy()
            return drawing, table, children, np.repeat(codes, children, axis=0)

        drawing, parents, numbers, given = drawn(num_parents, where, balance)
        population = None if where is None and balance is None else drawn(None)[-1]
        pages: list[pa.Table] = []
        found: tuple[Contradiction, ...] = ()
        if len(given):
            rows = self.children.linked(given, seed, workers, progress, population)
            check = self.children.check(selected, range(given.shape[1]))
            checked = CheckedPages(rows, check, seed)
            pages += self._pages(checked, given.shape[1], seed)
            found = contradictions(checked, schema.joined)
        children = pa.concat_tables(pages or [_without_rows(schema.children)])
        keys, stamp = np.arange(1, len(parents) + 1), {STAMP_KEY: self.manifest.stamp}
        of_parents, of_children = schema.keys["parents"], schema.keys["children"]
        pair = Pair(
            _with_key(parents.drop_columns([schema.count]), of_parents, keys, stamp),
            _with_key(children, of_children, np.repeat(keys, numbers), stamp),
        )
        return pair, dict(zip(TABLES, (drawing.contradictions, found)))

    def _check_steered(self, where: str | None, balance: str | None) -> Clique:
        """Return the columns by which parents are chosen; refuse those of the children, who come as
        their parents have them."""
        own, asked = self.schema.children.names, [] if balance is None else [balance]
        if where is not None:
            with suppress(InputError):  # what is no condition is refused with the parents' columns
                asked += parse_condition(where, self.schema.joined.by_name).columns()
        if named := [name for name in asked if name in own]:
            raise InputError(
                f"{named[0]!r} is a column of the children, and where and balance are about "
                f"parents: name columns of theirs or {self.schema.count!r}, or keep of a larger "
                "sample the families that are wanted"
            )
        return self.children.domain.clique(set(asked) & set(self.schema.joined.names))

    def _pages(self, pages: Iterable[Rows], width: int, seed: int) -> Iterator[pa.Table]:
        """Yield values of the children's own columns, which come after so many of the parents."""
        schema, model = self.schema.children, self.children.model()
        drawers = build_drawers(schema.columns, lambda i: single_target(model, width + i).counts)
        for number, rows in enumerate(pages):
            own = CodedTable.from_parts(schema.domain(), [rows[:, width:]], len(rows))
            rng = np.random.default_rng((seed, 2, number))
            yield decode(own, schema, rng, drawers)

    # The bundle.

    def members(self) -> Iterator[tuple[str, Any]]:
        """What a bundle holds, by name."""
        content = {
            "format_version": FORMAT_VERSION,
            "schema": self.schema.model_dump(mode="json", exclude_defaults=True),
        }
        yield RELATION, json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        for folder, release in self.by_table.items():
            parts: dict[str, Any] = {**build_pages(release), **release.texts(), **release.arrays()}
            yield from ((f"{folder}/{name}", part) for name, part in parts.items())

    def digests(self) -> dict[str, str]:
        """SHA-256 of every member that a program reads, by name, as it is saved."""
        found = {RELATION: compute_sha256([dict(self.members())[RELATION].encode()])}
        for folder, release in self.by_table.items():
            found |= {f"{folder}/{name}": value for name, value in release.digests().items()}
        return found

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write one zip of JSON and npy; the same release gives the same bytes.

        Raises:
            InputError: the file exists and is not to be replaced, or cannot be written.
        """
        write_archive(path, self.members(), force)

    @classmethod
    def load(cls, path: str | Path, max_memory: int | str | None = None) -> Self:
        """Read a bundle and check that its parts fit each other and the budget.

        Raises:
            InputError: it is missing, damaged, of one table, or made by a newer version.
            ResourceExceeded: reading it would take more memory.
        """
        with open_archive(path, "release", max_memory) as archive:
            if RELATION not in archive.names:
                raise InputError(f"{path}: is a release of one table: give one of related tables")
            return cls.read(archive, path)

    @classmethod
    def read(cls, archive: ArchiveReader, path: str | Path) -> Self:
        """The bundle in an open archive; see :meth:`load`."""
        content = archive.json(RELATION)
        check_version(content, path)
        try:
            schema = RelatedSchema.parse(content.get("schema"), claim=archive.claim)
        except InputError as error:
            raise InputError(f"{path}: the release is damaged: {error}") from None
        return cls(schema, *(Release.read(archive.within(table), path) for table in TABLES))


def _without_rows(schema: Schema) -> pa.Table:
    codes = CodedTable.from_parts(schema.domain(), [], 0)
    return decode(codes, schema, np.random.default_rng(0))


def _with_key(
    table: pa.Table, name: str, keys: NDArray[np.int64], stamp: Mapping[bytes, str]
) -> pa.Table:
    return table.add_column(0, name, pa.array(keys, pa.int64())).replace_schema_metadata(stamp)
