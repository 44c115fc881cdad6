"""`evaluate TRUE SYNTHETIC`: an owner-only comparison."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_qs.cli import evaluate_options, options
from adaptive_qs.cli.artefacts import beside, check_distinct, check_file
from adaptive_qs.cli.evaluate_summary import show
from adaptive_qs.cli.output import emit, emit_json, progress_bars, warn
from adaptive_qs.cli.summary import peak_memory_mb
from adaptive_qs.errors import DataError, InputError

if TYPE_CHECKING:
    from adaptive_qs.data.schema import Schema
    from adaptive_qs.data.table import CodedTable
    from adaptive_qs.evaluation.utility.settings import UtilitySettings
    from adaptive_qs.progress import StepProgress

_OF_ANOTHER_TOOL = ("cannot be read as integer", "has a value outside its declared range")
"""Refusals of fractions and of numbers out of range, which tables of other tools may have."""


def evaluate(
    true: Annotated[Path, typer.Argument(metavar="TRUE", help="The private table.")],
    synthetic: Annotated[Path, typer.Argument(metavar="SYNTHETIC", help="A synthetic table.")],
    schema: options.NeededSchemaPath = None,
    workload: evaluate_options.WorkloadFile = None,
    ways: options.Ways = None,
    rule: evaluate_options.Rules = None,
    target: evaluate_options.Target = None,
    no_models: evaluate_options.NoModels = False,
    repeats: evaluate_options.Repeats = 5,
    seed: evaluate_options.Seed = 0,
    control: evaluate_options.Control = None,
    release: evaluate_options.Release = None,
    report: evaluate_options.Report = None,
    force: options.Force = False,
    as_json: options.Json = False,
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
    if report is not None:
        inputs = [true, *beside(synthetic), schema, workload, control, release]
        check_distinct([report], inputs)
        check_file(report, force)
    _check_control(control, true, synthetic)
    settings = _settings(target, no_models, repeats, seed, report)

    from adaptive_qs.clock import PhaseClock
    from adaptive_qs.data.encode import encode_file
    from adaptive_qs.data.files import atomic_writer
    from adaptive_qs.data.schema import Schema
    from adaptive_qs.evaluation.as_json import evaluation_json
    from adaptive_qs.evaluation.evaluation import evaluate as compare
    from adaptive_qs.evaluation.pair import OWNER_ONLY, TablePair
    from adaptive_qs.evaluation.promised import find_promise
    from adaptive_qs.evaluation.query_error import load_compared
    from adaptive_qs.evaluation.rules import parse_rule
    from adaptive_qs.machine import plan_workers
    from adaptive_qs.synthesizer.pipeline import resolve_workload

    threads = plan_workers(workers)
    described = Schema.load(schema)
    if isinstance(spec, Path):
        wanted, queries = load_compared(spec, described.domain())
    else:
        wanted, queries = resolve_workload(spec, described.domain()), None
    rules = [parse_rule(text, described) for text in rule or ()]
    promised = find_promise(release, synthetic, described)
    with progress_bars() as bars:
        clock = PhaseClock(bars)
        pair = TablePair(
            encode_file(true, described, clock.steps("read")),
            _read_synthetic(synthetic, described, clock.steps("read")),
        )
        held_out = None
        if control is not None:
            held_out = encode_file(control, described, clock.steps("read"))
        result = compare(
            pair,
            described,
            wanted,
            rules,
            workers=threads,
            progress=clock,
            utility=settings,
            control=held_out,
            promise=promised.promise,
            seed=seed,
            queries=queries,
        )
        if promised.limitation is not None and (report is not None or control is not None):
            result = replace(result, limitations=(*result.limitations, promised.limitation))
        if report is not None:
            from adaptive_qs.evaluation.report import report_page

            clock.start("write")
            page = report_page(result, described, (true.name, synthetic.name), promised.release)
            with atomic_writer(report) as file:
                file.write(page.encode())
        seconds = clock.stop()
    if as_json:
        emit_json(
            {
                **evaluation_json(result),
                "report": None if report is None else str(report),
                "seconds": {phase: round(spent, 3) for phase, spent in seconds.items()},
                "peak_memory_mb": peak_memory_mb(),
            }
        )
        return
    warn(OWNER_ONLY)
    emit(OWNER_ONLY)
    show(result, promised.promise, seconds, report)


def _check_control(control: Path | None, true: Path, synthetic: Path) -> None:
    """Refuse a control table that is one of the others.

    Raises:
        InputError: it is the same file.
    """
    for name, other in (("TRUE", true), ("SYNTHETIC", synthetic)):
        with suppress(OSError):  # a file that is missing is named where it is read
            if control is not None and control.samefile(other):
                raise InputError(
                    f"{control}: is also {name}: give rows that were held out as --control"
                )


def _settings(
    target: str | None, no_models: bool, repeats: int, seed: int, report: Path | None
) -> UtilitySettings | None:
    """What was asked of the models; None for no models.

    Raises:
        InputError: the options contradict each other, or a number is out of its range.
    """
    from adaptive_qs.evaluation.utility.settings import UtilitySettings

    settings = UtilitySettings(target=target, seed=seed, repeats=repeats)
    if no_models and target is not None:
        raise InputError("both --no-models and --target were given: give one of them")
    return None if no_models or (target is None and report is None) else settings


def _read_synthetic(path: Path, schema: Schema, progress: StepProgress) -> CodedTable:
    """The codes of a table that another tool may have made.

    Raises:
        DataError: it cannot be read, or does not fit the schema.
    """
    from adaptive_qs.data.encode import encode_file

    try:
        return encode_file(path, schema, progress)
    except DataError as error:
        if not any(said in str(error) for said in _OF_ANOTHER_TOOL):
            raise
        raise DataError(
            f"{error}; a table of another tool must be brought to the schema first: round its "
            "numbers, and clip them to the declared range"
        ) from None
