"""`answer DATA` and `plan`: all queries of a workload, with a standard error for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_qs.cli import options
from adaptive_qs.cli.batch import (
    Cells,
    Tables,
    epsilon_rows,
    error_line,
    mechanism_line,
    plan_json,
    plan_lines,
    privacy_line,
    rmse_words,
    tell_largest,
    tell_limits,
    title,
)
from adaptive_qs.cli.files import beside, check_distinct, check_table, companions, readable
from adaptive_qs.cli.ledger import closing_json, closing_lines
from adaptive_qs.cli.output import (
    Row,
    counted,
    emit_columns,
    emit_json,
    emit_rows,
    progress_bars,
)
from adaptive_qs.cli.synthesize import peak_memory_mb, private_inputs, warn_of
from adaptive_qs.errors import InputError
from adaptive_qs.run.request import RunOptions
from adaptive_qs.table.formulas import check_formulas

if TYPE_CHECKING:
    from adaptive_qs.answering.answers import Answers


# `answer DATA`: all queries of a workload, with a standard error for each.

DEMO_OUT = Path("adult_answers.parquet")


@options.takes_run(options.OF_ANSWERS)
def answer(
    data: Annotated[
        Path | None,
        typer.Argument(metavar="DATA", help=f"Private table: {options.TABLE_HELP}"),
    ] = None,
    *,
    schema: options.SchemaPath = None,
    workload: options.QueryFile = None,
    ways: options.QueryWays = None,
    queries: options.Queries = None,
    mechanism: options.Mechanism = "auto",
    gap: options.Gap = None,
    demo: options.DemoAnswer = False,
    run: RunOptions,
    out: options.AnswersOut = None,
    confidence: options.Confidence = 0.95,
    formulas: options.FormulasKind = "escape-learnt",
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Answer counting queries about a private table, each with a standard error and an interval.

    The unit of privacy is one row: neighbouring tables differ by adding or removing one row.
    Everything is checked before any budget is spent; the file appears with the last answer.
    """
    data, schema = private_inputs(data, schema, demo)
    replacing = force or (demo and out is None)
    if demo:
        out = out or DEMO_OUT
        run = run if run.budgeted else replace(run, epsilon=1.0)
    if out is None:
        raise InputError("no --out was given: name the file for the answers, such as a.parquet")
    spec = options.query_spec(workload, ways, queries)
    check_formulas(formulas)
    check_distinct(beside(out), [data, schema, workload, *companions(run.ledger, run.anchor)])
    from adaptive_qs.release.sidecar import of_interrupted_run

    mine = run.resume and of_interrupted_run(out, run.ledger, run.max_memory)
    check_table(out, replacing or mine)

    from adaptive_qs.answering import api
    from adaptive_qs.answering.plan import DEFAULT_GAP
    from adaptive_qs.answering.table import interval_factor
    from adaptive_qs.machine import PhaseClock
    from adaptive_qs.table.schema import Schema

    interval_factor(confidence)
    described = Schema.load(schema, run.max_memory)
    wanted = DEFAULT_GAP if gap is None else gap
    with options.naming_queries(queries), readable(data) as table, progress_bars() as bars:
        clock = PhaseClock(bars)
        job = api.answers_job(described, spec, run, mechanism, wanted, progress=clock)
        warn_of(job, schema)
        answers = api.answers_of(job, table, clock)
        tell_limits(answers.plan, mechanism, wanted)
        rows = answers.write(out, confidence, formulas, force=True)
    if as_json:
        emit_json(_json(answers, out, rows, confidence))
    else:
        emit_rows("Done.", _lines(answers, out, rows, confidence))


def _json(answers: Answers, out: Path, rows: int, confidence: float) -> Mapping[str, Any]:
    plan = answers.plan
    return {
        "queries": plan.queries,
        "rows": rows,
        "out": str(out),
        "mechanism": plan.choice.name,
        "rmse": plan.rmse,
        "lower_bound_rmse": plan.lower_bound_rmse,
        "cost": answers.target.cost,
        "rho": answers.target.rho,
        "rho_spent": answers.rho_spent,
        "epsilon": answers.target.epsilon,
        "delta": answers.target.delta,
        "confidence": confidence,
        "seconds": {phase: round(spent, 3) for phase, spent in answers.seconds.items()},
        "peak_memory_mb": peak_memory_mb(),
        "seed_insecure": answers.insecure,
        "ledger": closing_json(answers.closed),
    }


def _lines(answers: Answers, out: Path, rows: int, confidence: float) -> list[Row]:
    from adaptive_qs.privacy.events import NEIGHBOURS, UNIT

    lines: list[Row] = []
    if answers.insecure:
        lines.append(("NOT PRIVATE", answers.stamp.partition(": ")[2]))
    lines += [
        ("answers", f"{out} ({counted(rows, 'row')}, {100 * confidence:g} % intervals)"),
        mechanism_line(answers.plan),
        privacy_line(answers.target),
        *closing_lines(answers.closed),
        ("protects", f"{UNIT}; neighbouring tables {NEIGHBOURS}"),
        error_line(answers.plan),
        ("seconds", ", ".join(f"{phase} {spent:.1f}" for phase, spent in answers.seconds.items())),
    ]
    if (peak := peak_memory_mb()) is not None:
        lines.append(("memory", f"{peak:,.0f} MB at most"))
    return lines


# `plan`: what answering would cost and how good it would be, without data.


@options.takes_run(options.OF_PLAN)
def plan(
    *,
    schema: options.SchemaPath = None,
    workload: options.QueryFile = None,
    ways: options.QueryWays = None,
    queries: options.Queries = None,
    mechanism: options.Mechanism = "auto",
    gap: options.Gap = None,
    demo: options.DemoPlan = False,
    run: RunOptions,
    rows: options.PlanRows = None,
    as_json: options.Json = False,
) -> None:
    """Tell the error, time and memory of answering a workload, without any data.

    Without a budget, figures are for a privacy cost of 1; they shrink with its square root.
    """
    if demo:
        if schema is not None:
            raise InputError("--demo brings its own schema: leave out --schema")
        from adaptive_qs.table.files import sample_dataset

        schema = sample_dataset().schema
    if schema is None:
        raise InputError("no --schema was given: name the public schema, or try --demo")
    spec = options.query_spec(workload, ways, queries)

    from adaptive_qs.privacy.budget import checked_public_rows

    rows = checked_public_rows(rows, "--rows")

    from adaptive_qs.answering import api
    from adaptive_qs.answering.plan import DEFAULT_GAP

    wanted = DEFAULT_GAP if gap is None else gap
    asked = replace(run, public_rows=rows)
    with options.naming_queries(queries), progress_bars() as bars:
        planned = api.plan_answers(schema, spec, asked, mechanism, wanted, progress=bars)
    tell_limits(planned, mechanism, wanted)
    tell_largest(planned)
    cells = Cells.of(planned, rows)
    tables = Tables.of(schema, planned, asked) if run.budgeted else None
    if as_json:
        told = None if tables is None else tables.json()
        emit_json({**plan_json(planned), **cells.json(), "tables": told})
        return
    lines = plan_lines(planned)
    lines.insert([name for name, _ in lines].index("solved"), cells.line())
    if tables is not None:
        lines.append(tables.line())
    emit_rows(title(planned), lines)
    emit_columns(["epsilon", "privacy cost", rmse_words(planned)], epsilon_rows(planned))
