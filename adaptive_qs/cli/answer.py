"""`answer DATA`: all queries of a workload, with a standard error for each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_qs.cli import options
from adaptive_qs.cli.artefacts import (
    beside,
    check_distinct,
    check_table,
    companions,
)
from adaptive_qs.cli.batch import error_line, mechanism_line, privacy_line, tell_limits
from adaptive_qs.cli.ledger_summary import closing_json, closing_lines
from adaptive_qs.cli.output import Row, counted, emit_json, emit_rows, progress_bars, warn
from adaptive_qs.cli.standard_input import readable
from adaptive_qs.cli.summary import peak_memory_mb
from adaptive_qs.cli.synthesize import demo_files
from adaptive_qs.data.formulas import check_formulas
from adaptive_qs.errors import InputError

if TYPE_CHECKING:
    from adaptive_qs.answering.answers import Answers

DEMO_OUT = Path("adult_answers.parquet")


def answer(
    data: Annotated[
        Path | None,
        typer.Argument(metavar="DATA", help=f"Private table: {options.TABLE_HELP}"),
    ] = None,
    schema: options.SchemaPath = None,
    workload: options.QueryFile = None,
    ways: options.QueryWays = None,
    queries: options.Queries = None,
    mechanism: options.Mechanism = "auto",
    gap: options.Gap = None,
    demo: options.DemoAnswer = False,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    rho: options.Rho = None,
    cost: options.Cost = None,
    learning_share: options.LearningShare = 0.1,
    insecure_seed: options.InsecureSeed = None,
    ledger: options.Ledger = None,
    resume: options.Resume = False,
    anchor: options.Anchor = None,
    unreviewed_schema: options.UnreviewedSchema = False,
    public_rows: options.PublicRows = None,
    beyond_limits: options.BeyondLimits = False,
    out: options.AnswersOut = None,
    confidence: options.Confidence = 0.95,
    formulas: options.FormulasKind = "escape-learnt",
    force: options.Force = False,
    as_json: options.Json = False,
    max_memory: options.MaxMemory = None,
    jobs: options.Jobs = None,
) -> None:
    """Answer counting queries about a private table, each with a standard error and an interval.

    The unit of privacy is one row: neighbouring tables differ by adding or removing one row.
    Everything is checked before any budget is spent; the file appears with the last answer.
    """
    replace = force
    if demo:
        if data is not None or schema is not None:
            raise InputError("--demo brings its own data and schema: leave out DATA and --schema")
        data, schema = demo_files()
        replace = replace or out is None
        out = out or DEMO_OUT
        epsilon = 1.0 if epsilon is None and rho is None and cost is None else epsilon
    if data is None:
        raise InputError("no DATA was given: name a CSV or Parquet file, or try --demo")
    if schema is None:
        raise InputError(
            "no --schema was given: write one, or start from adaptive-qs schema init DATA"
        )
    if out is None:
        raise InputError("no --out was given: name the file for the answers, such as a.parquet")
    spec = options.query_spec(workload, ways, queries)
    check_formulas(formulas)
    check_distinct(beside(out), [data, schema, workload, *companions(ledger, anchor)])
    from adaptive_qs.release.beside import of_interrupted_run

    check_table(out, replace or (resume and of_interrupted_run(out, ledger, max_memory)))

    from adaptive_qs.answering import api
    from adaptive_qs.answering.planning import DEFAULT_GAP
    from adaptive_qs.answering.tables import interval_factor
    from adaptive_qs.data.review import UNREVIEWED, is_unreviewed
    from adaptive_qs.data.schema import Schema

    interval_factor(confidence)
    described = Schema.load(schema, max_memory)
    if insecure_seed is not None:
        warn("--insecure-seed: whoever knows the seed can remove the noise; NOT PRIVATE")
    if is_unreviewed(described) and unreviewed_schema:
        warn(f"{schema}: {UNREVIEWED}")
    wanted = DEFAULT_GAP if gap is None else gap
    with options.naming_queries(queries), readable(data) as table, progress_bars() as bars:
        answers = api.answer(
            table,
            described,
            spec,
            epsilon=epsilon,
            delta=delta,
            rho=rho,
            cost=cost,
            mechanism=mechanism,
            gap=wanted,
            jobs=jobs,
            max_memory=max_memory,
            learning_share=learning_share,
            insecure_seed=insecure_seed,
            ledger=ledger,
            resume=resume,
            anchor=anchor,
            unreviewed_schema=unreviewed_schema,
            public_rows=public_rows,
            beyond_limits=beyond_limits,
            progress=bars,
        )
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
    from adaptive_qs.privacy.neighbours import NEIGHBOURS, UNIT

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
