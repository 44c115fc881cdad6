"""`evaluate TRUE SYNTHETIC`: an owner-only comparison, and what it is given."""

from __future__ import annotations

import sys
from contextlib import suppress
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
    from adaptive_qs.evaluation.results import UtilitySettings
    from adaptive_qs.evaluation.tables import TablePair
    from adaptive_qs.machine import PhaseClock
    from adaptive_qs.table.coded import CodedTable
    from adaptive_qs.table.schema import Schema

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
        "Also write one self-contained HTML page, for the owner only; trains models, too.",
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
    check_read_once([true, synthetic, control])
    if report is not None:
        inputs = [true, *beside(synthetic), schema, workload, control, release]
        check_distinct([report], inputs)
        check_file(report, force)
    _check_control(control, true, synthetic)
    settings = _model_settings(target, no_models, repeats, seed, report)

    from adaptive_qs.evaluation.evaluation import compare, evaluation_json, find_promise
    from adaptive_qs.evaluation.queries import resolve_compared
    from adaptive_qs.evaluation.rules import parse_rule
    from adaptive_qs.evaluation.tables import OWNER_ONLY
    from adaptive_qs.evaluation.verdict import findings, verdict
    from adaptive_qs.machine import PhaseClock, plan_workers
    from adaptive_qs.table.schema import Schema

    threads = plan_workers(workers)
    released = _released(true, synthetic, release)
    described = Schema.load(schema, max_memory)
    marginals, queries = resolve_compared(spec, described.domain())
    rules = [parse_rule(text, described) for text in rule or ()]
    promised = find_promise(release, synthetic, described, max_memory)
    said = [released, promised.limitation if report or control else None]
    with progress_bars() as bars:
        clock = PhaseClock(bars)
        pair, held_out = _read_tables(true, synthetic, control, described, clock)
        result = compare(
            pair,
            described,
            marginals,
            rules,
            workers=threads,
            progress=clock,
            utility=settings,
            control=held_out,
            promise=promised.promise,
            seed=seed,
            queries=queries,
            limitations=[text for text in said if text is not None],
        )
        found = findings(result, threads, clock.steps("verdict"))
        if report is not None:
            from adaptive_qs.evaluation.report import report_page
            from adaptive_qs.table.files import atomic_writer

            clock.start("write")
            names = shown(Path(true.name)), shown(Path(synthetic.name))
            page = report_page(found, described, names, promised.release)
            with atomic_writer(report) as file:
                file.write(page.encode())
        seconds = clock.stop()
    judged = verdict(found, promised.statement)
    if as_json:
        emit_json(
            {
                **evaluation_json(result, judged.brief),
                "report": None if report is None else str(report),
                "seconds": {phase: round(spent, 3) for phase, spent in seconds.items()},
                "peak_memory_mb": peak_memory_mb(),
            }
        )
        return
    if not sys.stdout.isatty():  # who reads only stderr must see it, too
        warn(OWNER_ONLY)
    emit(OWNER_ONLY)
    show(found, judged, promised.promise, seconds, report)


def _check_control(control: Path | None, true: Path, synthetic: Path) -> None:
    """Refuse a control table that is one of the others, before anything is read."""
    for name, other in (("TRUE", true), ("SYNTHETIC", synthetic)):
        with suppress(OSError):  # a file that is missing is named where it is read
            if control is not None and control.samefile(other):
                raise InputError(
                    f"{control}: is also {name}: give rows that were held out as --control"
                )


def _model_settings(
    target: str | None, no_models: bool, repeats: int, seed: int, report: Path | None
) -> UtilitySettings | None:
    """What was asked of the models; None for no models."""
    from adaptive_qs.evaluation.results import UtilitySettings

    settings = UtilitySettings(target=target, seed=seed, repeats=repeats)
    if no_models and target is not None:
        raise InputError("both --no-models and --target were given: give one of them")
    return None if no_models or (target is None and report is None) else settings


def _released(true: Path, synthetic: Path, release: Path | None) -> str | None:
    """That a privacy statement lies beside the true table, which is for released ones.

    Raises:
        InputError: and none is known of the synthetic one, so that they seem to be swapped.
    """
    from adaptive_qs.release.sidecar import manifest_path

    statement = manifest_path(true)
    if not exists(statement):
        return None
    if release is None and not exists(manifest_path(synthetic)):
        raise InputError(
            f"{true}: is a released table, {statement.name} lies beside it, and nothing says "
            f"so of {synthetic}: swap them, the private table comes first"
        )
    return (
        f"the table that was given as the true one is a released one: {statement.name} lies beside "
        "it, so that errors are those between two releases"
    )


def _read_tables(
    true: Path, synthetic: Path, control: Path | None, schema: Schema, clock: PhaseClock
) -> tuple[TablePair, CodedTable | None]:
    """The two tables, and the control table if there is one."""
    from adaptive_qs.evaluation.tables import TablePair, read_compared

    clock.start("read")
    with readable(true) as first, readable(synthetic) as second:
        pair = TablePair.of(first, second, schema, clock)
    if control is None:
        return pair, None
    with readable(control) as third:
        return pair, read_compared(third, schema, "control", clock)
