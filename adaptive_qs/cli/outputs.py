"""Where synthetic tables and releases go: checked before anything is spent, then written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from os.path import exists, isdir  # those of Path raise where a name is too long
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from adaptive_qs.cli import io
from adaptive_qs.cli.options import check_file, check_release, check_table, with_sidecar
from adaptive_qs.errors import InputError, reason
from adaptive_qs.pages.words import counted
from adaptive_qs.table.files import FORMATS, check_writable

if TYPE_CHECKING:
    from adaptive_qs.machine import PhaseClock
    from adaptive_qs.release.drawing import Contradiction
    from adaptive_qs.release.tables import DrawnTable, ReleaseSet
    from adaptive_qs.table.tables import TableSet
    from adaptive_qs.table.text import Formulas


class Written(NamedTuple):
    """A synthetic table that was written.

    Attributes:
        contradictions: Cells in which it contradicts the release.
        share: Of all rows of the model, those that meet the condition.
    """

    rows: int
    columns: int
    out: Path
    contradictions: tuple[Contradiction, ...]
    share: float

    def json(self) -> dict[str, Any]:
        """Return the fields that scripts rely on."""
        found = [asdict(each) for each in self.contradictions]
        return {"rows": self.rows, "out": str(self.out), "contradictions": found}

    def __str__(self) -> str:
        size = f"{counted(self.rows, 'row')}, {counted(self.columns, 'column')}"
        return f"{self.out} ({size})"


@dataclass(frozen=True)
class Outputs:
    """Where the tables of a set and their release go; one table is a set with one member.

    Attributes:
        out: A file, or a folder or a database for all tables of a set; None for no tables.
        tables: The path by which each table is known, by name: its sidecar is named after it. A
            table in a database has the path FILE.NAME.
        in_database: Whether all tables of a set go to one file.
    """

    out: Path | None
    tables: Mapping[str, Path]
    release: Path | None = None
    in_database: bool = False

    @classmethod
    def of(cls, out: Path | None, schema: TableSet, release: Path | None = None) -> Self:
        """Return the outputs of a command.

        InputError is raised if a set would go to a file that holds one table.
        """
        if out is None:
            return cls(None, {}, release)
        if not schema.is_set:
            return cls(out, {schema.root: out}, release)
        number, remedy = len(schema.tables), "Use a folder, or a database (.db)."
        if _holds_tables(out):
            known = {name: out.with_name(f"{out.name}.{name}") for name in schema.names}
            return cls(out, known, release, in_database=True)
        if not isdir(out) and out.name.lower().endswith(tuple(FORMATS)):
            raise InputError(f"{out} can hold one table, but the set has {number}. {remedy}")
        names = {name: schema.tables[name].file or name for name in schema.names}
        files = {
            name: file if file.lower().endswith(tuple(FORMATS)) else f"{file}.csv"
            for name, file in names.items()
        }
        return cls(out, {name: out / file for name, file in files.items()}, release)

    def file(self, name: str) -> Path:
        """Return the file that a table is written to."""
        return self.out if self.in_database and self.out is not None else self.tables[name]

    @property
    def files(self) -> list[Path]:
        """Paths of all output files: tables, their sidecars and the release."""
        from adaptive_qs.release.bundle import manifest_path

        found = [file for path in self.tables.values() for file in with_sidecar(path)]
        if self.in_database and self.out is not None:
            found = [self.out, *map(manifest_path, self.tables.values())]
        return found if self.release is None else [*found, self.release]

    def check(self, table_force: bool, release_force: bool, schema: TableSet) -> None:
        """Refuse files that cannot or may not be written, or cannot hold the tables.

        Tables or the release replace files if ``table_force`` or ``release_force``.
        """
        from adaptive_qs.release.bundle import manifest_path
        from adaptive_qs.table.write import check_format, table_format

        folder = self.out if schema.is_set and not self.in_database else None
        if folder is not None and not exists(folder):
            check_writable(folder)  # in the folder where it will be
        if self.in_database and self.out is not None:
            check_table(self.out, table_force)
        for name, path in self.tables.items():
            file = self.file(name)
            if self.in_database:
                check_file(manifest_path(path), table_force)
            elif folder is None or exists(folder):
                check_table(file, table_force)
            else:
                table_format(path)
            rows = dict.fromkeys(schema.names, 1)
            written = schema.written(name, rows) if schema.is_set else schema.tables[name]
            check_format(file, [*written.written])
        if self.release is not None:
            check_release(self.release, release_force)

    def write(
        self,
        release: ReleaseSet,
        drawn: Iterable[DrawnTable],
        requested: Mapping[str, Any],
        formulas: Formulas,
        replacing: bool,
        clock: PhaseClock,
    ) -> dict[str, Written]:
        """Write the tables of a sample as they are drawn, each with its sidecar.

        A sidecar has the parameters that draw the table again (``requested``), the SHA-256 of its
        file, and every charge of the table. The tables are drawn root first. Return them by name.
        """
        from adaptive_qs.table.write import table_format, write_set, write_table

        found: dict[str, Written] = {}
        tables = self._note(drawn, found)
        if self.in_database and self.out is not None:
            with self._stating(release, [*self.tables], replacing) as state:
                done: list[DrawnTable] = []

                def named() -> Iterator[Any]:
                    for table in tables:
                        done.append(table)
                        yield table.name, timed(table.pages, clock), table.schema

                write_set(named(), self.out, partial(state, done, found, requested), replacing)
            return found
        for table in tables:
            if release.schema.is_set and self.out is not None:
                _make_folder(self.out)
            path, pages = self.tables[table.name], timed(table.pages, clock)
            more = {**requested, "formulas": formulas} if table_format(path).is_text else requested
            with self._stating(release, [table.name], replacing) as state:
                seal = partial(state, [table], found, more)
                write_table(pages, path, table.schema, formulas, seal, replacing)
        return found

    def _note(self, drawn: Iterable[DrawnTable], found: dict[str, Written]) -> Iterator[DrawnTable]:
        for table in drawn:
            for warning in table.warnings:
                io.warn(warning)
            yield table
            found[table.name] = Written(
                table.rows, len(table.schema.written), self.file(table.name), table.contradictions,
                1.0 if table.drawing is None else table.drawing.share,
            )  # fmt: skip

    @contextmanager
    def _stating(
        self, release: ReleaseSet, names: Sequence[str], replacing: bool
    ) -> Iterator[Callable[..., None]]:
        """Yield a function that writes the sidecars of a file, to be called when it is whole."""
        from adaptive_qs.privacy.events import Transcript
        from adaptive_qs.release.bundle import with_manifest

        with ExitStack() as stack:
            writers = {
                name: stack.enter_context(with_manifest(self.tables[name], replacing))
                for name in names
            }

            def state(
                tables: Sequence[DrawnTable],
                found: Mapping[str, Written],
                requested: Mapping[str, Any],
                sha256: str,
            ) -> None:
                for table in tables:
                    part, root = release.tables[table.name], found.get(release.schema.root)
                    rows = {"root_rows": table.rows if root is None else root.rows}
                    stated = {"seed": requested["seed"], "rows": table.rows, **requested}
                    stated |= rows if release.schema.is_set else {}
                    sampling = {name: value for name, value in stated.items() if value is not None}
                    if contradictions := table.contradictions:
                        sampling["contradictions"] = [asdict(each) for each in contradictions]
                    charges = Transcript(events=part.events).model_dump(mode="json")["events"]
                    writers[table.name](
                        part.manifest, sampling=sampling, charges=charges, sha256=sha256
                    )

            yield state


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be created ({reason(error)}). Create it.") from None


def _holds_tables(path: Path) -> bool:
    name = path.name.lower()
    endings = [ending for ending in FORMATS if name.endswith(ending)]
    return not isdir(path) and any(FORMATS[ending].holds_sets for ending in endings)


def timed(pages: Iterator[Any], clock: PhaseClock) -> Iterator[Any]:
    """Yield the pages of a table; the time between them counts as writing."""
    clock.start("fit")
    for page in pages:
        clock.start("write")
        yield page
        clock.start("draw")
