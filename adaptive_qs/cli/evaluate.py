"""`evaluate TRUE SYNTHETIC`: an owner-only comparison, the worst first in every part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import exists  # Path.exists raises if a name is too long
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_qs.cli import io
from adaptive_qs.cli import options as common
from adaptive_qs.cli.options import TABLE_HELP, check_distinct, check_file, with_sidecar
from adaptive_qs.errors import InputError
from adaptive_qs.machine import PhaseClock
from adaptive_qs.run.options import OUTPUT, EvaluateOptions, Option, read_options
from adaptive_qs.table.files import atomic_writer

if TYPE_CHECKING:
    from adaptive_qs.evaluation.evaluation import Evaluation
    from adaptive_qs.evaluation.keys import SetEvaluation


def _html_path(name: str, path: Path) -> Path:
    """Return the path of a page; refuse one of another kind of file."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--{name} is {path}: the page is HTML. Use a name that ends in .html.")
    return path


NOT_ACCEPTED = 5
"""The exit code if a criterion is not met."""


@dataclass(kw_only=True)
class Options(
    common.JsonOptions,
    common.ForceOptions,
    common.WorkloadOptions,
    EvaluateOptions,
    common.SchemaOptions,
):
    """The options of `evaluate`."""

    report: Annotated[Path | None, Option(
        "Also write one self-contained HTML page, for the owner only.", "FILE", OUTPUT,
        check=_html_path)] = None  # fmt: skip


def evaluate(
    true: Annotated[
        Path | None, typer.Argument(metavar="TRUE", help=f"The private table: {TABLE_HELP}")
    ] = None,
    synthetic: Annotated[
        Path | None, typer.Argument(metavar="SYNTHETIC", help=f"The synthetic one: {TABLE_HELP}")
    ] = None,
    *,
    options: Options,
) -> int:
    """Compare a synthetic table with the true one; the result is for the owner only.

    --schema also accepts a release, which contains the schema with all learnt bins and values.

    With a workload file of queries other than marginals, the RMSE is that of its queries.

    The error of a marginal is the sum over its cells of |a/Na - b/Nb|, from 0 (equal) to 2.
    """
    from adaptive_qs.table.schema import describes_set, read_content

    if options.schema is None:
        raise InputError("No schema is set. Use --schema FILE.")
    if describes_set(read_content(options.schema, options.max_memory)):
        _evaluate_set(true, synthetic, options)
        return 0
    if true is None or synthetic is None:
        missing = "TRUE" if true is None else "SYNTHETIC"
        raise InputError(f"No {missing} is set. Name the private table, then the synthetic one.")
    _check_files(true, synthetic, options)

    from adaptive_qs.evaluation.evaluation import evaluation_page, titled_findings

    pages: dict[Path, str] = {}
    with io.progress_bars() as clock:
        result = _compare(true, synthetic, options, clock)
        clock.start("verdict")
        verdict = result.verdict
        _ = verdict.overall
        if options.report is not None:
            clock.start("write")
            names = true.name, synthetic.name
            pages[options.report] = evaluation_page(result, names)
        seconds = _write_pages(pages, options, clock)
    code = 0 if all(each.met for each in result.criteria or ()) else NOT_ACCEPTED
    if _is_json(result, seconds, options):
        return code
    io.emit_rows(f"Verdict: {verdict.overall.word}", [("-", text) for text in verdict.brief])
    io.show_figures(titled_findings(result))
    if result.limitations:
        io.emit_rows("Limitations", [("-", text) for text in result.limitations])
    promised, rows = result.comparison.promised, list[io.Row]()
    if (made := promised.promise) is not None:
        text = f"epsilon {made.epsilon:.6g}, delta {made.delta:g} ({promised.source})"
        rows.append(("promise", text))
    _close(rows, seconds, options)
    return code


# What the results of one table and of a set have in common.


def _write_pages(
    pages: Mapping[Path, str], options: Options, clock: PhaseClock
) -> Mapping[str, float]:
    for path, text in pages.items():
        with atomic_writer(path, options.force) as file:
            file.write(text.encode())
    return clock.stop()


def _is_json(
    result: Evaluation | SetEvaluation, seconds: Mapping[str, float], options: Options
) -> bool:
    """Write the result as JSON, if that is requested; otherwise its notice."""
    from adaptive_qs.evaluation.tables import OWNER_ONLY

    if options.as_json:
        written = None if options.report is None else str(options.report)
        io.emit_json({**result.as_json(), "report": written, **io.taken_json(seconds)})
    else:
        io.emit(OWNER_ONLY)
    return options.as_json


def _close(more: Sequence[io.Row], seconds: Mapping[str, float], options: Options) -> None:
    report = [] if options.report is None else [("report", str(options.report))]
    io.emit_rows("Done.", [*more, *report, *io.taken_rows(seconds)])


def _check_files(private: Path, synthetic: Path, options: Options) -> None:
    """Refuse files that cannot be read or written as requested, before anything is read."""
    schema, report = options.schema, options.report
    common.workload_spec(options.workload, options.ways)
    if report is not None:
        inputs = [private, *with_sidecar(synthetic), schema, options.release]
        check_distinct([report], [*inputs, options.workload, options.accept])
        check_file(report, options.force)


def _compare(private: Path, synthetic: Path, options: Options, clock: PhaseClock) -> Evaluation:
    from adaptive_qs.evaluation.evaluation import evaluate as compare
    from adaptive_qs.table.schema import Schema

    given = [each.name for each in read_options(EvaluateOptions)]
    released = _describe_released(private, synthetic, options.release)
    assert options.schema is not None
    schema = Schema.load(options.schema, options.max_memory)
    clock.start("read")
    result = compare(
        private, synthetic, schema, common.workload_spec(options.workload, options.ways),
        progress=clock, **io.pick(options, *given),
    )  # fmt: skip
    return result if released is None else replace(result, notes=(*result.notes, released))


def _describe_released(true: Path, synthetic: Path, release: Path | None) -> str | None:
    """Return a limitation if a privacy statement lies next to the true table.

    InputError is raised if none is known of the synthetic table: the two seem to be swapped.
    """
    from adaptive_qs.release.bundle import manifest_path

    if not exists(statement := manifest_path(true)):
        return None
    if release is None and not exists(manifest_path(synthetic)):
        raise InputError(
            f"{true} is a released table: {statement.name} is next to it, and no statement is next "
            f"to {synthetic}. Swap them: the private table comes first."
        )
    return (
        f"the true table is a released one: {statement.name} is next to it. So all errors are "
        "between two releases"
    )


ONE_TABLE = (
    "workload", "ways", "rules", "compare", "accept", "disclose", "target", "release",
)  # fmt: skip
"""Options that sets of tables have no use for."""


def _evaluate_set(true: Path | None, synthetic: Path | None, options: Options) -> None:
    if true is None or synthetic is None:
        raise InputError("No SYNTHETIC is set. Name two folders or databases, the private first.")
    for each in read_options(Options):
        if each.name in ONE_TABLE and getattr(options, each.name) != each.default:
            raise InputError(f"{each.flag} is for one table; the schema has several. Remove it.")

    from adaptive_qs.evaluation.keys import evaluate_set
    from adaptive_qs.table.joined import locate_tables
    from adaptive_qs.table.tables import TableSet

    schema, report = TableSet.load(str(options.schema), options.max_memory), options.report
    first, second = (locate_tables(place, schema) for place in (true, synthetic))
    named = _name_pages(schema.names, options, [true, synthetic, *first.values(), *second.values()])
    pages: dict[Path, str] = {}
    with io.progress_bars() as clock:
        result = evaluate_set(
            first, second, schema, seed=options.seed, workers=options.workers, progress=clock
        )
        clock.start("verdict")
        verdicts = {name: each.verdict for name, each in result.tables.items()}
        if report is not None:
            names = {name: (str(first[name]), str(second[name])) for name in first}
            texts = result.pages(names, named, report.name)
            pages = {report.with_name(name): text for name, text in texts.items()}
        seconds = _write_pages(pages, options, clock)
    if _is_json(result, seconds, options):
        return
    io.emit_rows(f"Verdict: {result.overall.word}", [("-", result.overall.said)])
    for name, verdict in verdicts.items():
        rows = [("-", text) for text in verdict.brief]
        io.emit_rows(f"Verdict on {name}: {verdict.overall.word}", rows)
    io.show_figures((f"Rows of {name} per parent", each) for name, each in result.keys.items())
    _close([], seconds, options)


def _name_pages(tables: Sequence[str], options: Options, inputs: Sequence[Path]) -> dict[str, str]:
    """Return the file name of the page about each table; refuse pages that cannot be written."""
    if (report := options.report) is None:
        return {}
    pages = {name: f"{report.stem}-{name}{report.suffix}" for name in tables}
    written = [report, *(report.with_name(page) for page in pages.values())]
    check_distinct(written, [options.schema, *(f for path in inputs for f in with_sidecar(path))])
    for path in written:
        check_file(path, options.force)
    return pages
