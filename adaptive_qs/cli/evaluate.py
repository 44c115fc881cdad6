"""`evaluate TRUE SYNTHETIC`: an owner-only comparison, and what it is given."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os.path import exists  # Path.exists raises where a name is too long
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_qs.cli import options
from adaptive_qs.cli.evaluate_summary import show
from adaptive_qs.cli.files import (
    beside,
    check_distinct,
    check_file,
    check_read_once,
    readable,
    shown,
)
from adaptive_qs.cli.options import option
from adaptive_qs.cli.output import emit, emit_json, progress_bars, warn
from adaptive_qs.cli.synthesize import peak_memory_mb
from adaptive_qs.errors import InputError

if TYPE_CHECKING:
    from adaptive_qs.evaluation.evaluation import Promised
    from adaptive_qs.evaluation.results import UtilitySettings
    from adaptive_qs.evaluation.rules import Rule
    from adaptive_qs.evaluation.tables import TablePair
    from adaptive_qs.evaluation.verdict import Findings
    from adaptive_qs.machine import PhaseClock
    from adaptive_qs.table.coded import CodedTable
    from adaptive_qs.table.schema import Schema
    from adaptive_qs.workload.workload import QueryWorkload, Workload


# What `evaluate` is given: checked before anything is compared.


@dataclass(frozen=True)
class Files:
    """The files that were named; None for those that were not.

    Attributes:
        true: the private table.
        synthetic: the table that stands for it.
        schema: of both.
        workload: what matters.
        control: rows that were held out.
        release: behind the synthetic table.
        report: to be written.
    """

    true: Path
    synthetic: Path
    schema: Path
    workload: Path | None
    control: Path | None
    release: Path | None
    report: Path | None

    def check(self, force: bool) -> None:
        """Refuse files that are in each other's way, before anything is read.

        Args:
            force: whether a report that exists is replaced.

        Raises:
            InputError: the control table is one of the others, or two tables are to come from
                standard input; the report is an input, exists
                already or cannot be written.
        """
        check_read_once([self.true, self.synthetic, self.control])
        if self.report is not None:
            inputs = [self.true, *beside(self.synthetic), self.schema]
            check_distinct([self.report], [*inputs, self.workload, self.control, self.release])
            check_file(self.report, force)
        for name, other in (("TRUE", self.true), ("SYNTHETIC", self.synthetic)):
            with suppress(OSError):  # a file that is missing is named where it is read
                if self.control is not None and self.control.samefile(other):
                    raise InputError(
                        f"{self.control}: is also {name}: give rows that were held out as --control"
                    )


@dataclass(frozen=True, eq=False)
class Question:
    """What is to be compared.

    Attributes:
        schema: of all tables.
        workload: the marginals that matter.
        queries: that matter, where they are others than the cells of these.
        rules: to check.
        promised: of the release behind the synthetic table.
        released: that the true table looks like a released one; None where it does not.
    """

    schema: Schema
    workload: Workload
    queries: QueryWorkload | None
    rules: list[Rule]
    promised: Promised
    released: str | None


def read_question(
    files: Files,
    spec: Path | Sequence[int] | None,
    rules: Sequence[str] | None,
    max_memory: str | None = None,
) -> Question:
    """Read all files but the tables.

    Args:
        files: that were named.
        spec: a workload file, or the numbers of attributes of the marginals that matter;
            None for the default.
        rules: as they were written.
        max_memory: ceiling of the process's memory while a release is read.

    Raises:
        InputError: a file or a rule cannot be read, or does not fit the schema; the tables are
            swapped.
    """
    from adaptive_qs.evaluation.evaluation import find_promise
    from adaptive_qs.evaluation.queries import resolve_compared
    from adaptive_qs.evaluation.rules import parse_rule
    from adaptive_qs.table.schema import Schema

    released = _released(files)
    schema = Schema.load(files.schema, max_memory)
    workload, queries = resolve_compared(spec, schema.domain())
    return Question(
        schema,
        workload,
        queries,
        [parse_rule(text, schema) for text in rules or ()],
        find_promise(files.release, files.synthetic, schema, max_memory),
        released,
    )


def _released(files: Files) -> str | None:
    """That a privacy statement lies beside the true table, which is for released ones.

    Raises:
        InputError: and none is known of the synthetic one, so that they seem to be swapped.
    """
    from adaptive_qs.release.sidecar import manifest_path

    statement = manifest_path(files.true)
    if not exists(statement):
        return None
    if files.release is None and not exists(manifest_path(files.synthetic)):
        raise InputError(
            f"{files.true}: is a released table, {statement.name} lies beside it, and nothing says "
            f"so of {files.synthetic}: swap them, the private table comes first"
        )
    return (
        f"the table that was given as the true one is a released one: {statement.name} lies beside "
        "it, so that errors are those between two releases"
    )


def read_tables(
    files: Files, schema: Schema, clock: PhaseClock
) -> tuple[TablePair, CodedTable | None]:
    """The two tables, and the control table if there is one.

    Raises:
        DataError: one cannot be read, has no rows, or does not fit the schema.
    """
    from adaptive_qs.evaluation.tables import TablePair, read_compared

    clock.start("read")
    with readable(files.true) as true, readable(files.synthetic) as synthetic:
        pair = TablePair.of(true, synthetic, schema, clock)
    if files.control is None:
        return pair, None
    with readable(files.control) as control:
        return pair, read_compared(control, schema, "control", clock)


def model_settings(
    target: str | None, no_models: bool, repeats: int, seed: int, report: Path | None
) -> UtilitySettings | None:
    """What was asked of the models; None for no models.

    Raises:
        InputError: the options contradict each other, or a number is out of its range.
    """
    from adaptive_qs.evaluation.results import UtilitySettings

    settings = UtilitySettings(target=target, seed=seed, repeats=repeats)
    if no_models and target is not None:
        raise InputError("both --no-models and --target were given: give one of them")
    return None if no_models or (target is None and report is None) else settings


# The options that `evaluate` has to itself.

_MODELS, _ATTACK, _OUTPUT = "Models", "Membership attack", "Output"

WorkloadFile = Annotated[
    Path | None,
    option(
        "--workload", "FILE", "Workload file: the marginals or other queries that matter.", None
    ),
]
Rules = Annotated[
    list[str] | None,
    option(
        "--rule",
        "TEXT",
        'A rule to check, such as "start <= end" or "city determines country"; repeat it for more.',
        None,
    ),
]
Report = Annotated[
    Path | None,
    option(
        "--report",
        "FILE",
        "Also write one self-contained HTML page, for the owner alone; trains models, too.",
        _OUTPUT,
    ),
]
Target = Annotated[
    str | None,
    option(
        "--target",
        "COLUMN",
        "Train models that predict this column on either table, and test them on true rows.",
        _MODELS,
        "with --report, a column that the program proposes",
    ),
]
NoModels = Annotated[
    bool, option("--no-models", None, "Leave the models out of the report.", _MODELS)
]
Repeats = Annotated[
    int, option("--repeats", "N", "Splits that models are trained and tested on.", _MODELS, "5")
]
Seed = Annotated[
    int,
    option("--seed", "N", "Seed of the splits, the models and the attacks.", _MODELS, "0"),
]
Control = Annotated[
    Path | None,
    option(
        "--control",
        "FILE",
        "Rows of the same kind that SYNTHETIC was not made from: attacks try to tell them from "
        "those of TRUE, and models are tested on them.",
        _ATTACK,
    ),
]
Release = Annotated[
    Path | None,
    option(
        "--release",
        "FILE",
        "Release bundle that SYNTHETIC comes from, for its privacy promise.",
        _ATTACK,
        "the statement that lies beside SYNTHETIC",
    ),
]


# `evaluate TRUE SYNTHETIC`: an owner-only comparison.


def evaluate(
    true: Annotated[
        Path, typer.Argument(metavar="TRUE", help=f"The private table: {options.TABLE_HELP}")
    ],
    synthetic: Annotated[
        Path, typer.Argument(metavar="SYNTHETIC", help=f"The synthetic one: {options.TABLE_HELP}")
    ],
    schema: options.NeededSchemaPath = None,
    workload: WorkloadFile = None,
    ways: options.Ways = None,
    rule: Rules = None,
    target: Target = None,
    no_models: NoModels = False,
    repeats: Repeats = 5,
    seed: Seed = 0,
    control: Control = None,
    release: Release = None,
    report: Report = None,
    force: options.Force = False,
    as_json: options.Json = False,
    max_memory: options.ReadMemory = None,
    workers: options.Workers = None,
) -> None:
    """Compare a synthetic table with the true one; the result is for the owner only.

    A release bundle will do as --schema: it holds the schema with whatever was learnt.

    With a workload file of other queries than marginals, the RMSE is that of its queries.

    The error of a marginal is the sum over its cells of |a/Na - b/Nb|, from 0 (equal) to 2.
    """
    if schema is None:
        raise InputError("no --schema was given: name the schema of both tables")
    spec = options.workload_spec(workload, ways)
    files = Files(true, synthetic, schema, workload, control, release, report)
    files.check(force)
    settings = model_settings(target, no_models, repeats, seed, report)

    from adaptive_qs.machine import PhaseClock, plan_workers

    threads = plan_workers(workers)
    question = read_question(files, spec, rule, max_memory)
    with progress_bars() as bars:
        clock = PhaseClock(bars)
        found = _compare(files, question, settings, seed, threads, clock)
        if report is not None:
            clock.start("write")
            _write_report(found, question, files, report)
        seconds = clock.stop()
    _emit(found, question, report, seconds, as_json)


def _compare(
    files: Files,
    question: Question,
    settings: UtilitySettings | None,
    seed: int,
    workers: int,
    clock: PhaseClock,
) -> Findings:
    """Read the tables, measure everything, and find what it means."""
    from adaptive_qs.evaluation.evaluation import compare
    from adaptive_qs.evaluation.verdict import findings

    promised = question.promised
    pair, held_out = read_tables(files, question.schema, clock)
    result = compare(
        pair,
        question.schema,
        question.workload,
        question.rules,
        workers=workers,
        progress=clock,
        utility=settings,
        control=held_out,
        promise=promised.promise,
        seed=seed,
        queries=question.queries,
    )
    needed = files.report is not None or files.control is not None
    said = [question.released, promised.limitation if needed else None]
    limitations = (*result.limitations, *(text for text in said if text is not None))
    return findings(replace(result, limitations=limitations), workers, clock.steps("verdict"))


def _write_report(found: Findings, question: Question, files: Files, report: Path) -> None:
    from adaptive_qs.evaluation.report import report_page
    from adaptive_qs.table.files import atomic_writer

    names = shown(Path(files.true.name)), shown(Path(files.synthetic.name))
    page = report_page(found, question.schema, names, question.promised.release)
    with atomic_writer(report) as file:
        file.write(page.encode())


def _emit(
    found: Findings,
    question: Question,
    report: Path | None,
    seconds: Mapping[str, float],
    as_json: bool,
) -> None:
    """Print the result, for a program or for people."""
    from adaptive_qs.evaluation.evaluation import evaluation_json
    from adaptive_qs.evaluation.tables import OWNER_ONLY
    from adaptive_qs.evaluation.verdict import verdict

    judged = verdict(found, question.promised.statement)
    if as_json:
        emit_json(
            {
                **evaluation_json(found.evaluation, judged.brief),
                "report": None if report is None else str(report),
                "seconds": {phase: round(spent, 3) for phase, spent in seconds.items()},
                "peak_memory_mb": peak_memory_mb(),
            }
        )
        return
    if not sys.stdout.isatty():  # whoever reads stderr alone must see it, too
        warn(OWNER_ONLY)
    emit(OWNER_ONLY)
    show(found, judged, question.promised.promise, seconds, report)
