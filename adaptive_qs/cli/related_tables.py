"""`synthesize`, `sample` and `evaluate` of two related tables: what --related makes of them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from os.path import exists, isdir  # those of Path raise where a name is too long
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self
from zipfile import is_zipfile

from adaptive_qs.cli import io
from adaptive_qs.cli.options import (
    check_distinct,
    check_file,
    check_release,
    check_table,
    chosen_formulas,
    companions,
    resumes,
    with_sidecar,
    workload_spec,
    write_stamped,
)
from adaptive_qs.errors import InputError, reason
from adaptive_qs.pages.words import counted
from adaptive_qs.run.options import BUDGET, Option, read_options
from adaptive_qs.table.files import FORMATS
from adaptive_qs.table.text import Formulas

if TYPE_CHECKING:
    from adaptive_qs.machine import PhaseClock
    from adaptive_qs.release.related import Pair, RelatedRelease
    from adaptive_qs.run.budget import FinishedRun
    from adaptive_qs.run.related import RelatedJob
    from adaptive_qs.table.related import RelatedSchema, TableName

Found = dict[str, Any]
"""Contradictions of both tables, by name."""
Children = Annotated[
    Path | None,
    Option("Private table of the children of the rows of DATA (persons of households, orders of "
           "customers): both are synthesized, with links. --schema then describes both tables, and "
           "names their files if DATA and --out are folders with both instead.", "FILE"),
]  # fmt: skip
ParentsShare = Annotated[
    float | None,
    Option("Part of the budget for the parents' table, of two related tables.", "P", BUDGET,
           "0.25"),
]  # fmt: skip


def refuse(why: str, **options: Any) -> None:
    """Refuse options that were given."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"--{name.replace('_', '-')} {why}")


def reject_options(options: Any, *names: str) -> None:
    """Refuse options that related tables do not have, if they differ from their defaults."""
    defaults = {each.name: each.default for each in read_options(type(options))}
    given = {n: v for n in names if (v := getattr(options, n)) is not None and v != defaults[n]}
    refuse("is not for related tables: leave it out", **given)


def describes_both(folder: Path | None, schema: Path | None) -> bool:
    """Whether a table is a folder and the schema one of two related tables, which it then holds."""
    return folder is not None and isdir(folder) and describes_pair(schema)


def describes_pair(schema: Path | None) -> bool:
    """Whether a file is a schema of two related tables, as far as can be told."""
    if schema is None or is_zipfile(schema):
        return False
    from adaptive_qs.errors import SchemaError
    from adaptive_qs.jsonfile import read_json

    with suppress(SchemaError):  # whoever reads it explains it
        content = read_json(schema, SchemaError)
        return isinstance(content, dict) and content.keys() >= {"parents", "children"}
    return False


def holds_both(out: Path, release: Path) -> bool:
    """Whether an output is a folder and the release one of two related tables, for both."""
    if out == io.STANDARD or _names_table(out):
        return False
    from adaptive_qs.release.bundle import RELATION
    from adaptive_qs.table.archive import open_archive

    with suppress(InputError), open_archive(release, "release", None) as archive:
        return RELATION in archive.names
    return False


def _names_table(path: Path) -> bool:
    return not isdir(path) and path.name.lower().endswith(tuple(FORMATS))


def _load(schema: Path | None, max_memory: int | str | None = None) -> tuple[Path, RelatedSchema]:
    if schema is None:
        raise InputError("no --schema was given: name the schema of both tables")
    from adaptive_qs.table.related import RelatedSchema

    return schema, RelatedSchema.load(schema, max_memory)


def _inside(folder: Path, schema: RelatedSchema, flag: str) -> tuple[Path, Path]:
    """Parents and children in a folder, by the names that the schema has to give them."""
    parents, children = schema.files.values()
    if parents is None or children is None:
        raise InputError(
            f'{folder}: is a folder, and the schema has no "parents_file" and "children_file": '
            f"name the tables in it there, or give the children with {flag}"
        )
    return folder / parents, folder / children


@dataclass(frozen=True)
class Inputs:
    """The private tables and the schema of both, by their files.

    Attributes:
        given: the table of parents, or the folder with both, as it was given.
        parents, children, path: files.
        schema: in the last of them.
    """

    given: Path
    parents: Path
    children: Path
    path: Path
    schema: RelatedSchema

    @classmethod
    def of(
        cls,
        data: Path | None,
        children: Path | None,
        schema: Path | None,
        max_memory: int | str | None = None,
    ) -> Self:
        """Those that were given.

        Raises:
            InputError: one is missing, or comes through standard input.
        """
        if data is None:
            raise InputError("no DATA was given: name the table of parents")
        if io.STANDARD in (data, children):
            raise InputError("related tables are read more than once: name files instead of -")
        schema, described = _load(schema, max_memory)
        both = _inside(data, described, "--related") if children is None else (data, children)
        return cls(data, *both, schema, described)


@dataclass(frozen=True)
class Outputs:
    """Where synthetic parents, children and the release go.

    Attributes:
        parents, children, release: files; None for what is not wanted.
        force: whether files are replaced.
        formulas: of CSV.
        folder: of both tables, where it was given instead of their files.
    """

    parents: Path | None
    children: Path | None
    release: Path | None
    force: bool
    formulas: Formulas
    folder: Path | None = None

    @classmethod
    def of(cls, options: Any, schema: Path | None) -> Self:
        """Return those that the options of a command name."""
        kind, release = chosen_formulas(options.formulas, schema), getattr(options, "release", None)
        return cls(options.out, options.related_out, release, options.force, kind)

    def named(self, schema: RelatedSchema) -> Self:
        """The same with the names that the schema gives to files, where one folder was given."""
        folder = self.parents
        given = self.children is not None or folder is None or folder == io.STANDARD
        if given or folder is None or _names_table(folder):
            return self
        parents, children = _inside(folder, schema, "--related-out")
        return replace(self, parents=parents, children=children, folder=folder)

    @property
    def tables(self) -> list[Path]:
        """Both tables, or none."""
        return [path for path in (self.parents, self.children) if path is not None]

    def check(
        self, inputs: Sequence[Path | None], mine: Callable[[Path], bool] = lambda _: False
    ) -> None:
        """Refuse files that cannot or may not be written, before anything is spent.

        Args:
            inputs: files that stay as they are.
            mine: whether the interrupted run that is resumed has written a file.

        Raises:
            InputError: one is such a file, or one table is asked for and not the other.
        """
        if not self.tables and self.release is None:
            raise InputError(
                "No output file is set. Use --out and --related-out, --out FOLDER, or --release."
            )
        if io.STANDARD in self.tables:
            raise InputError("- holds one table, and these are two: name files")
        if len(self.tables) == 1:
            missing = "--related-out" if self.children is None else "--out"
            raise InputError(f"one of two related tables would be written: give {missing} as well")
        beside = [file for table in self.tables for file in with_sidecar(table)]
        check_distinct([*beside, self.release], inputs)
        if self.folder is not None and not exists(self.folder):
            from adaptive_qs.table.files import check_writable
            from adaptive_qs.table.write import table_format

            check_writable(self.folder)  # in the folder where it will be
            for table in self.tables:
                table_format(table).library()
        else:
            for table in self.tables:
                check_table(table, self.force or mine(table))
        if self.release is not None:
            check_release(self.release, self.force or mine(self.release))

    def write(
        self, release: RelatedRelease, pair: Pair, sampling: Mapping[str, Any], found: Found
    ) -> None:
        """Write both tables, each with its statement and what it takes to draw it again."""
        parents, seed = len(pair.parents), sampling["seed"]
        if self.folder is not None:
            try:
                self.folder.mkdir(exist_ok=True)
            except OSError as error:
                complaint = f"{self.folder}: cannot be made ({reason(error)}): make it"
                raise InputError(complaint) from None
        for path, table, (name, part) in zip(self.tables, pair, release.by_table.items()):
            asked = {**sampling, "parents": parents, "contradictions": found[name] or None}
            written = release.schema.written(name, parents)
            write_stamped(
                iter([table]), len(table), path, part, seed, self.formulas, self.force, asked,
                written,
            )  # fmt: skip


def synthesize(data: Path | None, options: Any) -> None:
    """Turn two private tables into synthetic ones; the release is saved as soon as it is paid for.

    ``data`` is the table of parents, or the folder with both.
    """
    reject_options(options, "sql", "database", "demo")
    inputs = Inputs.of(data, options.related, options.schema, options.max_memory)
    outputs = Outputs.of(options, options.schema)
    workload = workload_spec(options.workload, options.ways)
    outputs = outputs.named(inputs.schema)
    files = [inputs.parents, inputs.children, inputs.path, options.about]
    outputs.check([*files, *companions(options)], partial(resumes, options=options))
    outputs = replace(outputs, force=outputs.force or options.resume)  # what is there is its own

    from adaptive_qs.machine import PhaseClock
    from adaptive_qs.release.release import check_rows, chosen_seed
    from adaptive_qs.run.related import DEFAULT_PARENTS_SHARE, RelatedJob, synthesize_related
    from adaptive_qs.run.tables import SPENT_IN_VAIN
    from adaptive_qs.table.schema_files import resolve_about

    described = inputs.schema
    if options.about is not None:
        described = described.with_about(*resolve_about(options.about))
    rows = None if options.rows is None else check_rows(options.rows)
    seed = chosen_seed(options.insecure_seed if options.seed is None else options.seed)
    share = DEFAULT_PARENTS_SHARE if options.parents_share is None else options.parents_share
    job = RelatedJob.of(described, replace(options, workload=workload), share)
    io.show_warnings(job.parents, inputs.path)
    for doubt in job.doubts:
        if doubt not in job.parents.doubts:
            io.warn(doubt)
    job = replace(job, parents=replace(job.parents, before=lambda: _tell_of(job)))
    workers = job.parents.work.limits.workers
    with io.progress_bars() as bars:
        clock = PhaseClock(bars)
        with job.session.working(SPENT_IN_VAIN):
            release = synthesize_related(job, inputs.parents, inputs.children, clock)
            with io.receipt(lambda: job.session.note) as written:
                if outputs.release is not None:
                    clock.start("write")
                    release.save(outputs.release, outputs.force)
                    written["release"] = outputs.release
                numbers, found = None, dict[str, Any]()
                if outputs.tables:
                    numbers, found = _drawn(release, outputs, {}, rows, seed, workers, clock)
                    written["table"] = outputs.tables[0]
                job.session.finish()
    for doubt in release.doubts:
        io.warn(doubt)
    for name, part in release.by_table.items():
        for warning in io.unconnected_warnings(part):
            io.warn(f"{name}: {warning}")
    closed = job.session.closed
    done = _Done(release, outputs, numbers, clock.stop(), closed, found)
    if options.as_json:
        io.emit_json(done.json())
    else:
        io.emit_rows("Done.", done.lines(inputs))


def _drawn(
    release: RelatedRelease,
    outputs: Outputs,
    steered: Mapping[str, str | None],
    rows: int | None,
    seed: int,
    workers: int,
    clock: PhaseClock,
) -> tuple[tuple[int, int], Found]:
    from adaptive_qs.release.drawing import warn_of_contradictions

    clock.start("fit")
    pair, found = release.draw(rows, seed, workers, clock, **steered)
    clock.start("write")
    listed = {name: [asdict(one) for one in each] for name, each in found.items()}
    outputs.write(release, pair, {"seed": seed, **steered}, listed)
    for name, each in found.items():
        for warning in warn_of_contradictions(each, f"table of {name}"):
            io.warn(warning)
    return (len(pair.parents), len(pair.children)), listed


def _tell_of(job: RelatedJob) -> None:
    if job.parents.options.resume:
        return
    told = {"children": job.children.work.forecast.note("plan --related-rows N")}
    if job.parents.options.public_rows is None:
        told = {"parents": job.parents.work.forecast.note(), **told}
    for name, note in told.items():
        if note is not None:
            io.note(f"{name}: {note}")


@dataclass(frozen=True)
class _Done:
    """A finished run, or a finished sampling, with the numbers of rows of the tables made."""

    release: RelatedRelease
    outputs: Outputs
    numbers: tuple[int, int] | None
    seconds: Mapping[str, float]
    closed: FinishedRun | None = None
    contradictions: Found = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """The fields that scripts rely on."""
        manifest, outputs = self.release.manifest, self.outputs
        parents, children = self.numbers or (None, None)
        return {
            "parents": parents,
            "children": children,
            "rho": manifest.rho,
            "rho_spent": self.release.rho_spent,
            "epsilon": manifest.epsilon,
            "delta": manifest.delta,
            "unit": manifest.unit,
            "neighbours": manifest.neighbours,
            **io.taken_json(self.seconds),
            "seed_insecure": self.release.insecure,
            "out": None if outputs.parents is None else str(outputs.parents),
            "related_out": None if outputs.children is None else str(outputs.children),
            "release": None if outputs.release is None else str(outputs.release),
            "ledger": io.closed_json(self.closed),
            "unconnected": {
                n: list(p.manifest.unconnected) for n, p in self.release.by_table.items()
            },
            "contradictions": self.contradictions,
        }

    def lines(self, inputs: Inputs) -> list[io.Row]:
        """The same for a data steward, with the next command to try."""
        manifest, outputs = self.release.manifest, self.outputs
        rows = self.tables()
        if self.release.insecure:
            rows.insert(0, ("NOT PRIVATE", manifest.stamp.partition(": ")[2]))
        rounds = (counted(len(part.rounds), "round") for part in self.release.by_table.values())
        rows += [
            ("release", str(outputs.release or "not saved (use --release FILE)")),
            ("privacy", f"epsilon {manifest.epsilon:.6g}, delta {manifest.delta:g}"),
            (
                "budget",
                f"rho {manifest.rho:.6g} ({manifest.zcdp}), {self.release.rho_spent:.6g} spent on "
                f"both tables, {self.release.parents.manifest.rho_spent:.6g} on parents",
            ),
            *io.closed_rows(self.closed),
            ("protects", f"{manifest.unit}; neighbouring tables {manifest.neighbours}"),
            ("measured", "parents in {}, children in {}".format(*rounds)),
            *(
                (row, f"{name}: {text}")
                for name, part in self.release.by_table.items()
                for row, text in io.unconnected_rows(part)
            ),
            *io.taken_rows(self.seconds),
        ]
        if outputs.tables:
            following: list[Any] = ["evaluate", inputs.given, outputs.folder or outputs.parents]
            if inputs.given == inputs.parents:
                following += ["--related", inputs.children]
            if outputs.folder is None:
                following += ["--related-synthetic", outputs.children]
            following += ["--schema", inputs.path]
            rows.append(("next", shlex.join([io.PROGRAM, *map(str, following)])))
        return rows

    def tables(self) -> list[io.Row]:
        """The tables that were made."""
        if self.numbers is None:
            return []
        names = self.release.by_table
        sizes = zip(names, self.outputs.tables, self.numbers)
        return [(name, f"{path} ({counted(rows, 'row')})") for name, path, rows in sizes]


def sample(bundle: Path, options: Any) -> None:
    """Draw another pair of tables from a release, at no cost."""
    outputs = Outputs.of(options, bundle)
    rows, steered = options.rows, {"where": options.where, "balance": options.balance}
    if outputs.children is not None:
        outputs.check([bundle])

    from adaptive_qs.machine import PhaseClock, plan_workers
    from adaptive_qs.related import check_sample_pair
    from adaptive_qs.release.related import RelatedRelease
    from adaptive_qs.release.release import chosen_seed

    seed, threads = chosen_seed(options.seed), plan_workers(options.workers)
    release = RelatedRelease.load(bundle, options.max_memory)
    if outputs.children is None:
        outputs = outputs.named(release.schema)
        outputs.check([bundle])
    check_sample_pair(release, rows, options.max_memory)
    if release.insecure:
        io.warn(f"{bundle}: {release.manifest.stamp}")
    with io.progress_bars() as bars:
        clock = PhaseClock(bars)
        numbers, found = _drawn(release, outputs, steered, rows, seed, threads, clock)
    done = _Done(release, outputs, numbers, clock.stop())
    if options.as_json:
        content = {"parents": numbers[0], "children": numbers[1], "contradictions": found}
        content |= io.taken_json(done.seconds)
        io.emit_json({**content, "seed_insecure": release.insecure})
        return
    lines = [
        *done.tables(),
        ("privacy", "no budget spent (sampled from the release)"),
        ("seconds", f"{done.seconds['total']:.1f}"),
    ]
    io.emit_rows("Done.", lines)


def evaluate(true: Path | None, synthetic: Path | None, options: Any) -> None:
    """Compare two synthetic tables with the true ones; the result is for the owner only.

    ``true`` and ``synthetic`` are the tables of parents, or folders with both.
    """
    reject_options(
        options, "sql", "database", "workload", "ways", "rule", "weigh", "target", "control",
        "release",
    )  # fmt: skip
    schema, described = _load(options.schema)
    children = options.related, options.related_synthetic
    first, second = _both((true, synthetic), children, described)
    report, force = options.report, options.force
    pages: dict[TableName, Path] = {}
    if report is not None:
        names: tuple[TableName, ...] = ("parents", "children")
        pages = {n: report.with_name(f"{report.stem}-{n}{report.suffix}") for n in names}
    check_distinct(
        [*pages.values(), report],
        [schema, *first, *(file for table in second for file in with_sidecar(table))],
    )
    for path in (*pages.values(), report):
        if path is not None:
            check_file(path, force)

    from adaptive_qs.evaluation.related import evaluate_related
    from adaptive_qs.evaluation.tables import OWNER_ONLY
    from adaptive_qs.machine import PhaseClock, plan_workers

    threads = plan_workers(options.workers)
    with io.progress_bars() as bars:
        clock = PhaseClock(bars)
        clock.start("read")
        result = evaluate_related(first, second, described, workers=threads, progress=clock)
        clock.start("verdict")
        _ = result.overall
        if report is not None:
            from adaptive_qs.table.files import atomic_writer

            clock.start("write")
            inputs = {n: (a.name, b.name) for n, a, b in zip(pages, first, second)}
            files = {name: path.name for name, path in pages.items()}
            for name, page in result.pages(inputs, files, report.name).items():
                with atomic_writer(report.with_name(name), force) as file:
                    file.write(page.encode())
        seconds = clock.stop()
    if options.as_json:
        written = None if report is None else str(report)
        io.emit_json({**result.as_json(), "report": written, **io.taken_json(seconds)})
        return
    io.emit(OWNER_ONLY)
    lines = [("-", finding.plain) for finding in result.sentences]
    io.emit_rows(f"Verdict: {result.overall.word}", lines)
    for name, each in result.by_table.items():
        lines = [("-", text) for text in each.verdict.brief]
        io.emit_rows(f"Verdict on {name}: {each.verdict.overall.word}", lines)
    io.show_figures(result.findings.items())
    closing = [io.NOT_PUBLIC]
    closing += (
        [] if report is None else [("report", ", ".join(map(str, (report, *pages.values()))))]
    )
    io.emit_rows("Done.", [*closing, *io.taken_rows(seconds)])


def _both(
    parents: tuple[Path | None, Path | None],
    children: tuple[Path | None, Path | None],
    schema: RelatedSchema,
) -> tuple[tuple[Path, Path], tuple[Path, Path]]:
    pairs = []
    names = ("TRUE", "--related"), ("SYNTHETIC", "--related-synthetic")
    for table, child, (name, option_name) in zip(parents, children, names):
        if io.STANDARD in (table, child):
            raise InputError("related tables are read more than once: name files instead of -")
        if table is not None and child is None and isdir(table):
            table, child = _inside(table, schema, option_name)
        if table is None or child is None:
            raise InputError(
                f"no {name if table is None else option_name} was given: related tables are "
                "compared as TRUE SYNTHETIC --related FILE --related-synthetic FILE, or as two "
                "folders"
            )
        pairs.append((table, child))
    first, second = pairs
    return first, second
