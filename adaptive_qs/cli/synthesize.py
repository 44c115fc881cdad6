"""`synthesize DATA`, and what it says when it is done."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from adaptive_qs.cli import io
from adaptive_qs.cli import options as shared
from adaptive_qs.cli.outputs import Outputs, Written
from adaptive_qs.errors import InputError
from adaptive_qs.pages.words import counted
from adaptive_qs.run.options import OUTPUT, Option, SynthesizeOptions
from adaptive_qs.table.files import FORMATS

if TYPE_CHECKING:
    from adaptive_qs.domain import Clique
    from adaptive_qs.release.release import Release
    from adaptive_qs.release.tables import ReleaseSet
    from adaptive_qs.run.states import CheckedRun, FinishedRun
    from adaptive_qs.run.tables import Tables
    from adaptive_qs.table.tables import TableSet

# What `synthesize` says when it is done, for people and for scripts.


@dataclass(frozen=True)
class Outcome:
    """A finished run: files read and written, the release, and the tables by name.

    ``seconds`` are by phase. ``closed`` is the run in its ledger, if there is one.
    """

    data: Path
    schema: Path
    outputs: Outputs
    release: ReleaseSet
    seconds: Mapping[str, float]
    closed: FinishedRun | None
    written: Mapping[str, Written]

    def list_fields(self) -> dict[str, Any]:
        """Return the fields that scripts rely on."""
        release, outputs = self.release, self.outputs
        manifest, root = release.manifest, release.schema.root
        content = {
            "rows": self.written[root].rows if self.written else release.root.num_rows,
            "rho": manifest.rho, "rho_spent": release.rho_spent, "epsilon": manifest.epsilon,
            "delta": manifest.delta, "unit": release.unit, "neighbours": manifest.neighbours,
            "rounds": release.rounds, **io.taken_json(self.seconds),
            "seed_insecure": release.insecure,
            "out": None if outputs.out is None else str(outputs.out),
            "release": None if outputs.release is None else str(outputs.release),
            "ledger": io.closed_json(self.closed),
            "unconnected": list(self._label(lambda each: each.manifest.unconnected)),
            "left_out": "; ".join(
                self._label(lambda each: filter(None, [each.manifest.settings.get("left_out")]))
            ) or None,
            "contradictions": list_contradictions(self.written), "target": self.coverage,
        }  # fmt: skip
        if release.schema.is_set:
            content["tables"] = {
                name: {
                    **(self.written[name].json() if self.written else {"rows": each.num_rows}),
                    "rho_spent": each.manifest.rho_spent, "rounds": len(each.rounds),
                    "unconnected": list(each.manifest.unconnected),
                }
                for name, each in release.tables.items()
            }  # fmt: skip
        return content

    def _label(self, find: Any) -> tuple[str, ...]:
        return self.release.label({n: find(each) for n, each in self.release.tables.items()})

    @property
    def coverage(self) -> dict[str, Any] | None:
        """How many marginals with the target column were measured; None without a target."""
        release = self.release.root
        target, workload = release.manifest.settings.get("target"), release.workload
        if target is None:
            return None
        (attribute,) = workload.domain.clique([target])
        requested = [c for c in workload.cliques if attribute in c and len(c) > 1]
        measured = len(_list_measured(release, requested))
        return {"column": target, "measured": measured, "combinations": len(requested)}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings that follow from released values."""
        unconnected = self._label(io.unconnected_warnings)
        return (*self.release.warnings, *unconnected, *warn_of_tables(self.written))

    def list_rows(self) -> list[io.Row]:
        """Return the same for a data steward, with the next command to try."""
        release, manifest = self.release, self.release.manifest
        share = manifest.spent_share(release.events)
        spent = "fully" if share > 1 - 1e-5 else f"{share:.2%}"
        rows = [
            *io.stamp_rows(release.insecure, manifest.stamp),
            *table_rows(self.written),
            ("release", str(self.outputs.release or "not saved (use --release FILE)")),
            ("privacy", f"epsilon {manifest.epsilon:.6g}, delta {manifest.delta:g}"),
            ("budget", f"rho {manifest.rho:.6g} ({manifest.zcdp}), {spent} spent"),
            *io.closed_rows(self.closed),
            ("protects", f"{release.unit}; neighbouring tables {manifest.neighbours}"),
            *(("measured", text) for text in self._label(_describe_measured)),
        ]
        if (found := self.coverage) is not None:
            some = counted(found["combinations"], "combination")
            text = f"{found['column']}: {found['measured']:,} of {some} with it measured"
            rows.append(("target", text))
        rows += io.taken_rows(self.seconds)
        if following := self._next():
            rows.append(("next", shlex.join([io.PROGRAM, *following])))
        return rows

    def _next(self) -> list[str]:
        """Return the arguments of the next command to try, or an empty list."""
        out, bundle = self.outputs.out, self.outputs.release
        if out is None:
            return [] if bundle is None else ["sample", str(bundle), "--out", "table.csv"]
        columns = self.release.root.schema.columns
        learnt = any(getattr(c, key, None) for c in columns for key in ("learnt", "counted"))
        schema = bundle if learnt and bundle is not None else self.schema
        tables = [str(self.data), str(out)]
        return ["evaluate", *tables, "--schema", str(schema), "--report", "report.html"]


def table_rows(written: Mapping[str, Written]) -> list[io.Row]:
    """Return a line for each table that was written."""
    alone = len(written) == 1
    return [("table" if alone else name, str(table)) for name, table in written.items()]


def list_contradictions(written: Mapping[str, Written]) -> list[dict[str, Any]]:
    """Return the contradictions between tables and their release, as JSON fields."""
    return [asdict(one) for table in written.values() for one in table.contradictions]


def warn_of_tables(written: Mapping[str, Written]) -> list[str]:
    """Return warnings about tables that contradict their release."""
    from adaptive_qs.release.drawing import warn_of_contradictions

    found: list[str] = []
    for name, table in written.items():
        what = "table" if len(written) == 1 else f"table of {name}"
        found += warn_of_contradictions(table.contradictions, what)
    return found


def _describe_measured(release: Release) -> list[str]:
    requested = release.workload.cliques
    measured = _list_measured(release, requested)
    whole = counted(len(requested), "marginal")
    taken = {past.clique for past in release.rounds if len(past.clique) > 1}
    names = (release.domain.clique_names(clique) for clique in measured)
    coarse = len(taken - set(names)) if release.domain.groupings else 0
    grouped = f" at full resolution, {coarse:,} with grouped codes" if coarse else ""
    rounds = counted(len(release.rounds), "round")
    return [f"{len(measured):,} of {whole}{grouped}; {rounds}"]


def _list_measured(release: Release, cliques: Sequence[Clique]) -> list[Clique]:
    from adaptive_qs.residual import is_measured

    return [c for c in cliques if is_measured(release.estimates, c, release.domain)]


# `synthesize DATA`: the main job.

DEMO_OUT = Path("adult_synthetic.csv")


@dataclass(kw_only=True)
class DrawOptions(shared.OutputOptions):
    """How a table is drawn from a release."""

    rows: Annotated[int | None, Option(
        "Rows of the synthetic table; of a set of tables, rows of the root.", "N", OUTPUT,
        "the noisy number of private rows, or of those that meet the condition"
    )] = None  # fmt: skip
    seed: Annotated[int | None, Option(
        "Seed of the sampling. The same release and seed give the same table on the same kind of "
        "machine with the same versions.", "N", OUTPUT, "from the operating system"
    )] = None  # fmt: skip


OUT_HELP = (
    f"Synthetic table: {FORMATS.listed()}. Of a set of tables, a "
    "folder or a database for all of them."
)


@dataclass(kw_only=True)
class Options(DrawOptions, SynthesizeOptions, shared.SchemaOptions):
    """The options of `synthesize`."""

    ways: Annotated[str | None, Option(
        "All sets of K columns, such as 2 or 1,2.", "K", default="2")] = None  # fmt: skip
    demo: Annotated[bool, Option(
        f"Run on the shipped sample (UCI Adult) with epsilon 1. Writes or replaces ./{DEMO_OUT} "
        "unless --out is set.")] = False  # fmt: skip
    out: Annotated[Path | None, Option(OUT_HELP, "FILE", OUTPUT)] = None
    release: Annotated[Path | None, Option(
        "Release (.zip). More tables can be sampled from it at no cost.", "FILE", OUTPUT
    )] = None  # fmt: skip


def synthesize(data: shared.PrivateTable = None, *, options: Options) -> None:
    """Turn a private table, or a set of tables that keys relate, into synthetic ones.

    Protects one row: neighbouring tables differ by adding or removing one row. If the schema names
    a person column, protects all rows of a person (--rows-per-person). If it describes a set of
    tables, in a folder or a database, protects a row of the root with all rows below it. Everything
    is checked before any budget is spent. The release is saved when all measurements are done; the
    tables are saved after fitting.
    """
    source, path, options, replacing = shared.private_inputs(data, options, DEMO_OUT)

    from adaptive_qs.table.tables import TableSet

    schema = TableSet.load(path, options.max_memory)
    outputs = Outputs.of(options.out, schema, options.release)
    tables = _locate_tables(source, schema)
    inputs = [source, *tables.values(), path]
    replacing, renewing = _check_outputs(outputs, schema, inputs, options, replacing)
    kind = shared.chosen_formulas(options.formulas, path)

    from adaptive_qs.release.release import chosen_seed
    from adaptive_qs.run.tables import synthesize as spend

    seed = chosen_seed(options.insecure_seed if options.seed is None else options.seed)
    checked, written = _check(schema, path, options), dict[str, Written]()
    with io.progress_bars() as clock:
        with checked.read(tables, clock) as read:
            run, release = spend(read, clock)
        with run, io.receipt(lambda: run.note) as files:
            if outputs.release is not None:
                clock.start("write")
                release.save(outputs.release, renewing)
                files["release"] = outputs.release
            if outputs.out is not None:
                drawn = release.draw(options.rows, seed, checked.root.work.limits.workers, clock)
                written = outputs.write(release, drawn, {"seed": seed}, kind, replacing, clock)
                files["table"] = outputs.out
            closed = run.finish()
    outcome = Outcome(source, path, outputs, release, clock.stop(), closed, written)
    for warning in outcome.warnings:
        io.warn(warning)
    io.conclude(options.as_json, outcome.list_fields(), outcome.list_rows())


def _locate_tables(source: Path, schema: TableSet) -> dict[str, Path]:
    if not schema.is_set:
        return {schema.root: source}
    from adaptive_qs.table.joined import locate_tables

    return locate_tables(source, schema)


def _check_outputs(
    outputs: Outputs, schema: TableSet, inputs: Sequence[Path], options: Options, replacing: bool
) -> tuple[bool, bool]:
    """Refuse outputs that cannot be written; return whether tables and release replace files."""
    if outputs.out is None and outputs.release is None:
        raise InputError("No output file is set. Use --out, --release or both.")
    shared.check_distinct(outputs.files, [*inputs, options.workload, *shared.companions(options)])
    begun = [
        path for path in outputs.tables.values() if any(map(exists, shared.with_sidecar(path)))
    ]
    replacing |= bool(begun) and all(shared.resumes(path, options) for path in begun)
    renewing = options.force
    if outputs.release is not None:
        renewing |= shared.resumes(outputs.release, options)
    outputs.check(replacing, renewing, schema)
    return replacing, renewing


def _check(schema: TableSet, path: Path, options: Options) -> CheckedRun[Tables]:
    from adaptive_qs.release.release import check_rows
    from adaptive_qs.run.memory import check_table_rows
    from adaptive_qs.run.tables import check_tables

    spec = shared.workload_spec(options.workload, options.ways)
    checked = check_tables(schema, replace(options, workload=spec))
    if options.rows is not None:
        check_rows(options.rows)
        columns = len(checked.root.schema.columns)
        check_table_rows(options.rows, columns, options.max_memory, held=schema.is_set)
    io.show_warnings(checked, path)
    return checked
