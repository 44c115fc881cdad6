"""`evaluate TRUE SYNTHETIC`: an owner-only comparison."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_qs.cli import evaluate_options, options
from adaptive_qs.cli.evaluate_inputs import (
    Files,
    Question,
    model_settings,
    read_question,
    read_tables,
)
from adaptive_qs.cli.evaluate_summary import show
from adaptive_qs.cli.output import emit, emit_json, progress_bars, warn
from adaptive_qs.cli.standard_input import shown
from adaptive_qs.cli.summary import peak_memory_mb
from adaptive_qs.errors import InputError

if TYPE_CHECKING:
    from adaptive_qs.clock import PhaseClock
    from adaptive_qs.evaluation.utility.settings import UtilitySettings
    from adaptive_qs.evaluation.verdict.findings import Findings


def evaluate(
    true: Annotated[
        Path, typer.Argument(metavar="TRUE", help=f"The private table: {options.TABLE_HELP}")
    ],
    synthetic: Annotated[
        Path, typer.Argument(metavar="SYNTHETIC", help=f"The synthetic one: {options.TABLE_HELP}")
    ],
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

    from adaptive_qs.clock import PhaseClock
    from adaptive_qs.machine import plan_workers

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
    from adaptive_qs.evaluation.verdict.findings import findings

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
    from adaptive_qs.data.files import atomic_writer
    from adaptive_qs.evaluation.report import report_page

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
    from adaptive_qs.evaluation.as_json import evaluation_json
    from adaptive_qs.evaluation.pair import OWNER_ONLY
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
