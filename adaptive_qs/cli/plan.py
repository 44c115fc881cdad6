"""`plan`: what answering would cost and how good it would be, without data."""

from __future__ import annotations

from pathlib import Path

from adaptive_qs.cli import options
from adaptive_qs.cli.batch import (
    epsilon_rows,
    plan_json,
    plan_lines,
    rmse_words,
    tell_largest,
    tell_limits,
    title,
)
from adaptive_qs.cli.cells import Cells, Tables
from adaptive_qs.cli.output import emit_columns, emit_json, emit_rows, progress_bars
from adaptive_qs.errors import InputError


def plan(
    schema: options.SchemaPath = None,
    workload: options.QueryFile = None,
    ways: options.QueryWays = None,
    queries: options.Queries = None,
    mechanism: options.Mechanism = "auto",
    gap: options.Gap = None,
    demo: options.DemoPlan = False,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    rho: options.Rho = None,
    cost: options.Cost = None,
    learning_share: options.LearningShare = 0.1,
    rows: options.PlanRows = None,
    as_json: options.Json = False,
    max_memory: options.MaxMemory = None,
    jobs: options.Jobs = None,
) -> None:
    """Tell the error, time and memory of answering a workload, without any data.

    Without a budget, figures are for a privacy cost of 1; they shrink with its square root.
    """
    if demo:
        if schema is not None:
            raise InputError("--demo brings its own schema: leave out --schema")
        schema = demo_schema()
    if schema is None:
        raise InputError("no --schema was given: name the public schema, or try --demo")
    spec = options.query_spec(workload, ways, queries)

    from adaptive_qs.privacy.guard_rails import checked_public_rows

    rows = checked_public_rows(rows, "--rows")

    from adaptive_qs.answering import api
    from adaptive_qs.answering.planning import DEFAULT_GAP

    wanted = DEFAULT_GAP if gap is None else gap
    with options.naming_queries(queries), progress_bars() as bars:
        planned = api.plan(
            schema,
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
            public_rows=rows,
            progress=bars,
        )
    tell_limits(planned, mechanism, wanted)
    tell_largest(planned)
    cells = Cells.of(planned, rows)
    tables = None
    if any(budget is not None for budget in (epsilon, rho, cost)):
        zcdp = rho if cost is None else cost / 2
        tables = Tables.of(schema, planned, epsilon, delta, zcdp, learning_share, rows)
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


def demo_schema() -> Path:
    """The schema of the shipped table."""
    from adaptive_qs.data.sample import sample_dataset

    return sample_dataset().schema
