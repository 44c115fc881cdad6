"""`plan`: what answers, or a set of tables, would cost and how good they would be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from adaptive_qs.arguments import positive_number
from adaptive_qs.cli import answer, io
from adaptive_qs.cli import options as common
from adaptive_qs.cli.options import FamilyOptions, JsonOptions, SchemaOptions, demo_files
from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.pages.words import counted, join_first, short
from adaptive_qs.run.options import (
    BUDGET,
    Option,
    PlanOptions,
    SelectionOptions,
    SynthesizeOptions,
    check_public_rows,
    read_options,
)  # fmt: skip

if TYPE_CHECKING:
    from adaptive_qs.answering.plan import BatchPlan
    from adaptive_qs.loop.estimates import Strategies
    from adaptive_qs.loop.forecast import LoopForecast
    from adaptive_qs.table.schema import Schema
    from adaptive_qs.table.tables import TableSet
    from adaptive_qs.workload.file import WorkloadSpec
    from adaptive_qs.workload.limit import DroppedMarginals
    from adaptive_qs.workload.workload import Workload


RUN = read_options(SynthesizeOptions)
"""The options that a run on a set of tables would have."""
OWN = ("queries", "mechanism", "gap")
"""Options of answers, which a set of tables has not."""


# Of answers.


def read_rows(text: str) -> Any:
    """Return a number of rows, or numbers by table, as in "households=10000,persons=25000"."""
    if "=" not in text:
        digits = text.strip().removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() else text
    pairs = [part.split("=", 1) if "=" in part else (part, "") for part in text.split(",")]
    return {name.strip(): read_rows(number.replace("=", " ")) for name, number in pairs}


def check_rows(name: str, value: Any) -> Any:
    """Return public numbers of rows, of one table or by table."""
    if isinstance(value, Mapping):
        return {table: check_public_rows(f"{name} of {table}", n) for table, n in value.items()}
    return check_public_rows(name, value)


@dataclass(kw_only=True)
class Options(JsonOptions, FamilyOptions, SelectionOptions, PlanOptions, SchemaOptions):
    """The options of `plan`."""

    demo: Annotated[bool, Option("Plan for the schema of the shipped sample (UCI Adult).")] = False
    public_rows: Annotated[Any, Option(
        "Approximate number of rows, from public knowledge. Adds the rows per cell, and the "
        "columns that would be independent in a synthetic table. Of a set of tables, as "
        "households=10000,persons=25000.", "N", read=read_rows, check=check_rows
    )] = None  # fmt: skip
    max_advantage: Annotated[float | None, Option(
        "Budget as the largest advantage (true less false positive rate) of a guess whether a row "
        "is in the table, instead of --epsilon.", "A", BUDGET, check=positive_number
    )] = None  # fmt: skip


def plan(*, options: Options) -> None:
    """State the error, time and memory of answering a workload, without any data.

    For a set of tables, which has no answers, it states which part of the budget synthesize would
    give to each table, and how accurately it would know the table.

    Without a budget, figures are for a privacy cost of 1. They shrink with its square root.
    """
    schema, advantage = options.schema, options.max_advantage
    if advantage is not None and options.budgeted:
        raise InputError("--max-advantage chooses the budget. Remove the other budget.")
    if options.demo and schema is not None:
        raise InputError("--demo has its own schema. Remove --schema.")
    if options.demo:
        schema = demo_files()[1]
    if schema is None:
        raise InputError("No schema is set. Use --schema FILE, or try --demo.")
    spec = common.workload_spec(options.workload, options.ways, options.queries)

    from adaptive_qs.answering.api import plan_answers
    from adaptive_qs.privacy.accounting import advantage_rho
    from adaptive_qs.privacy.budget import choose_delta
    from adaptive_qs.run.memory import rule_bytes
    from adaptive_qs.run.tables import select_candidates
    from adaptive_qs.table.tables import TableSet

    tables = TableSet.load(schema, options.max_memory)
    if advantage is not None:
        learns = any(table.open_columns for table in tables.tables.values())
        delta = choose_delta(options.delta) if learns else 0.0  # for discoveries at most
        options.rho = advantage_rho(advantage, not learns, delta)
    if tables.is_set:
        _plan_set(tables, spec, options)
        return
    described = tables.tables[tables.root]
    if isinstance(options.public_rows, Mapping):
        raise InputError("--public-rows names tables, and the schema describes one. Use a number.")
    planned: BatchPlan | ResourceExceeded
    with common.naming_queries(options.queries):
        try:
            with io.progress_bars() as bars:
                planned, warnings = plan_answers(described, spec, options, bars)
        except ResourceExceeded as error:
            if options.mechanism != "auto":  # which only answers have
                raise
            planned, warnings = error, ()
        ruled = rule_bytes(described)
        looked, left_out = select_candidates(spec, described.widest_domain(), options, ruled)
    lines, forecast, scoring = _forecast_tables(described, spec, looked, left_out, options)
    for warning in warnings:
        io.warn(warning)
    if isinstance(planned, ResourceExceeded):
        io.warn(f"This plan is for synthesize only. answer refuses the workload: {planned}")
        if options.as_json:
            io.emit_json({"refused": str(planned), "tables": forecast, "scoring": scoring})
        else:
            io.emit_rows(SYNTHETIC, lines)
        return
    answer.show_limits(planned, options)
    if not planned.max_variance[1]:
        io.note("the largest standard error is an upper bound: no query has a larger one")
    cells = describe_cells(planned, options.public_rows)
    if options.as_json:
        more = {"tables": forecast, "scoring": scoring, "refused": None}
        io.emit_json({**answer.list_fields(planned), **cells, **more})
    else:
        _emit_plan(planned, cells, lines)


SYNTHETIC = "Synthetic table (synthesize)"


def _emit_plan(plan: BatchPlan, cells: Mapping[str, Any], lines: list[io.Row]) -> None:
    queries = counted(plan.queries, "query", "queries")
    about = f"{queries} about {counted(plan.workload.num_sets, 'set')} of columns"
    unit = plan.target.unit
    attacks = unit.describe_guess(plan.target.advantage)
    io.emit_rows(SYNTHETIC, [io.protects(unit), ("attacks", attacks), *lines])
    heading = f"Counts with error bars (answer): {about}"
    io.emit_rows(heading, answer.list_rows(plan, list_cells(plan, cells)))
    io.emit_columns(
        ["epsilon", "privacy cost", answer.name_error(plan)],
        [(f"{e:.4g}", f"{cost:.4g}", io.figure(rmse)) for e, cost, rmse in plan.by_epsilon()],
    )


def _forecast_tables(
    schema: Schema,
    spec: WorkloadSpec,
    looked: Workload,
    left_out: DroppedMarginals | None,
    options: Options,
) -> tuple[list[io.Row], dict[str, Any] | None, dict[str, Any]]:
    scoring, scored = describe_scoring(looked, left_out, options)
    lines, tables = (
        describe_tables(schema, spec, looked, options) if options.budgeted else ([], None)
    )
    if scoring["target"] is not None:
        lines.append(("target", f"{scoring['target']}: {SERVED}"))
    return [*lines, scored], tables, scoring


# What `plan` says. The fields of JSON objects are described in docs/reference/json.md.


SERVED = "each set of attributes is also requested together with it"
"""What a target means."""


def describe_cells(plan: BatchPlan, rows: int | None) -> dict[str, Any]:
    """Return fields on the cells of the marginals over a workload's sets of attributes.

    The number of rows is the public one; None if it is not known.
    """
    import numpy as np

    from adaptive_qs.workload.axes import Marginal

    sizes = np.asarray(plan.workload.domain.sizes, dtype=np.float64)
    sets: dict[int, list[Any]] = {}
    for part in plan.workload.parts:
        sets.setdefault(part.degree, []).append(part.cliques)
    distinct = [np.unique(np.concatenate(some), axis=0) for some in sets.values()]
    cells = np.concatenate([sizes[some].prod(axis=1) for some in distinct])
    families = [[*part.axis.values()] for part in plan.workload.parts]
    single = all(some and all(isinstance(q, Marginal) for q in some) for some in families)
    mean = float(cells.mean())
    each = None if rows is None else rows / mean
    comparable = each and single and not answer.is_weighted(plan)
    return {
        "cells": {"mean": mean, "largest": int(cells.max())}, "rows": rows, "rows_per_cell": each,
        "relative_rmse": plan.rmse / each if each and comparable else None,
    }  # fmt: skip


def list_cells(plan: BatchPlan, found: Mapping[str, Any]) -> io.Row:
    """Return the same as a row of text."""
    mean, largest = (io.figure(found["cells"][name]) for name in ("mean", "largest"))
    text = f"{mean} per marginal on average, {largest} at most"
    if found["rows"] is None:
        return ("cells", f"{text} (--public-rows N adds the rows per cell)")
    each = io.figure(found["rows_per_cell"])
    text += f"; with {found['rows']:,} rows a cell holds {each} rows on average"
    if found["relative_rmse"] is not None:
        text += (
            f", and the {answer.name_error(plan)} is {io.percent(found['relative_rmse'])} of this"
        )
    return ("cells", text)


def describe_tables(
    schema: Schema, spec: WorkloadSpec, workload: Workload, options: PlanOptions
) -> tuple[list[io.Row], dict[str, Any]]:
    """Predict what `synthesize` measures of a workload with the same budget."""
    from adaptive_qs.loop.estimates import CELLS_ALONE
    from adaptive_qs.loop.forecast import LoopForecast
    from adaptive_qs.run.budget import PrivacyTarget, resolve_budget
    from adaptive_qs.run.tables import QueryStrategies

    rho = options.rho if options.cost is None else options.cost / 2
    budget = partial(PrivacyTarget.of, options.epsilon, options.delta, rho)
    target, learning = resolve_budget(schema, options, budget)
    left = target.within(target.budget - learning)
    served = QueryStrategies.of(spec, workload.domain)
    strategies = CELLS_ALONE if served is None else served.strategies
    forecast = LoopForecast(workload, left.rho, schema=schema)
    return predict_measurements(forecast, strategies, options.public_rows)


def predict_measurements(
    forecast: LoopForecast, strategies: Strategies, rows: int | None, flag: str = "--public-rows "
) -> tuple[list[io.Row], dict[str, Any]]:
    """Return lines and fields on the measurements of a table of about ``rows`` rows.

    ``flag`` is the option for the rows.
    """
    from adaptive_qs.loop.forecast import total_std
    from adaptive_qs.run.memory import run_seconds

    workload, measured, seconds, doubled = forecast.workload, None, None, None
    if rows and forecast.possible:
        measured = forecast.measured(rows)._asdict()
        seconds = run_seconds(workload, rows, measured["marginals"])
        if measured["unconnected"]:
            doubled = [*replace(forecast, rho=4 * forecast.rho).columns(rows)]
    found = {
        "total_std": total_std(workload, forecast.rho, rows or 0),
        "unconnected": [*measured.pop("unconnected")] if measured else None,
        "unconnected_doubled": doubled,
        "measured": measured, "seconds": seconds,
        "strategies": [
            {
                "column": workload.domain.names[i], "queries": len(strategy.integers),
                "cell_noise": strategy.cell_noise,
            }
            for i, strategy in sorted(strategies.items())
        ],
    }  # fmt: skip
    return _list_measurements(forecast, found, flag), found


def describe_scoring(
    workload: Workload, dropped: DroppedMarginals | None, options: SelectionOptions
) -> tuple[dict[str, Any], io.Row]:
    """Return fields on the candidates of `synthesize`, and the same as a row of text."""
    from adaptive_qs.run.tables import forecast_scoring

    number, cells, memory = forecast_scoring(workload, options)
    left, mb = None if dropped is None else str(dropped), memory / 2**20
    text = f"{mb:,.0f} MB plus the rows, for {counted(number, 'candidate')} with {cells:,} cells"
    return {
        "candidates": number, "cells": cells, "memory_mb": round(mb, 1), "left_out": left,
        "target": workload.target,
    }, ("memory", "; ".join(filter(None, (text, left))))  # fmt: skip


def _list_measurements(forecast: LoopForecast, found: Mapping[str, Any], flag: str) -> list[io.Row]:
    text = f"measured with a standard error of about {io.figure(found['total_std'])}"
    rows, unconnected, workload = [("rows", text)], found["unconnected"], forecast.workload
    if unconnected is None:
        text = f"{flag}N shows which columns would be independent of all others"
    elif not unconnected:
        text = "probably none is independent of all others"
    else:
        some = f"{len(unconnected):,} of {counted(len(workload.domain), 'column')}"
        text = f"{some} probably independent of all others: {join_first(unconnected, 6)}"
        if (left := len(found["unconnected_doubled"])) < len(unconnected):
            text += f"; with twice the epsilon probably {left or 'none'}"
    if forecast.possible:
        rows.append(("columns", text))
    if found["measured"] is not None:
        rows.append(("marginals", _describe_measured(workload, **found["measured"])))
    if found["seconds"] is not None:
        text = f"about {found['seconds']:.0f} processor seconds on two cores of a server"
        text += ", from reading to writing (an estimate: half to twice as much)"
        rows.append(("time", text))
    if found["strategies"]:
        queries = [
            f"{short(one['column'])} {counted(one['queries'], 'query', 'queries')} "
            f"(noise of cells +{io.excess(one['cell_noise'] - 1)})"
            for one in found["strategies"]
        ]
        text = f"single columns measured by queries of the workload: {join_first(queries, 4)}"
        rows.append(("strategies", text))
    return rows


def _describe_measured(workload: Workload, marginals: int, full: int, least: int, most: int) -> str:
    from adaptive_qs.loop.candidates import measurable_cliques

    combinations = sum(len(clique) > 1 for clique in measurable_cliques(workload))
    text = f"probably about {marginals:,} of {counted(combinations, 'marginal')} measured"
    if least < most:
        text += f" ({least:,} to {most:,}, as columns depend less or more on each other)"
    if full < marginals:
        text += f": {full:,} at full resolution, {marginals - full:,} with grouped codes"
    elif marginals:
        text += ", at full resolution"
    if marginals < combinations:
        text += "; the others follow from these" if marginals else "; all columns are independent"
    return text


# `plan` of a set of tables: what each would get of one budget.


def _plan_set(schema: TableSet, workload: Any, options: Options) -> None:
    from adaptive_qs.privacy.budget import describe_refusals
    from adaptive_qs.run.tables import check_tables

    defaults = {each.name: each.default for each in read_options(Options)}
    if given := [name for name in OWN if getattr(options, name) != defaults[name]]:
        raise InputError(f"--{given[0]} is for answers, and a set of tables has none. Remove it.")
    numbers = options.public_rows or {}
    numbers = numbers if isinstance(numbers, Mapping) else {schema.root: numbers}
    if unknown := sorted({*numbers} - {*schema.names}):
        known = ", ".join(schema.names)
        raise InputError(f"--public-rows names {unknown[0]!r}. The schema has the tables {known}.")
    rho = options.rho if options.budgeted else 0.5
    rho = rho if options.cost is None else options.cost / 2
    kept = {each.name: getattr(options, each.name, each.default) for each in RUN}
    kept |= {"rho": rho, "workload": workload, "public_rows": numbers.get(schema.root)}
    run = SynthesizeOptions(**kept | {"beyond_limits": True, "unreviewed_schema": True})
    checked, found, lines = check_tables(schema, run), dict[str, Any](), list[io.Row]()
    warnings: dict[str, str] = {}
    target, last = checked.root.target, list(checked.members.values())[-1].target.unit
    for table, (name, part) in zip(schema.measured(), checked.members.items()):
        rows, work, share = numbers.get(name), part.work, float(table.share)
        flag = f"--public-rows {name}="
        own, forecast = predict_measurements(work.forecast, work.strategies, rows, flag)
        scoring, scored = describe_scoring(work.workload, work.left_out, run)
        for doubt in describe_refusals(work.list_warnings(part.target, rows)):
            warnings.setdefault(str(doubt), f"{name}: {doubt}" if found else str(doubt))
        found[name] = {
            "rho": share * target.rho, "rho_of_rows": work.rho, "rows": rows,
            "rows_per_unit": table.rows_per_unit, "marginals": len(work.workload.cliques),
            "tables": forecast, "scoring": scoring,
        }  # fmt: skip
        some = counted(len(work.workload.cliques), "marginal")
        budget = f"rho {share * target.rho:.6g} ({io.percent(share)})"
        lines.append((name, f"{budget} for {some}"))
        lines += [*own, scored]
    for warning in warnings.values():
        io.warn(warning)
    if options.as_json:
        unit = {"unit": last.protected, "neighbours": last.relation}
        io.emit_json(
            {**io.pick(target, "epsilon", "delta", "rho", "advantage"), **unit, "tables": found}
        )
        return
    privacy = f"epsilon {target.epsilon:.6g}, delta {target.delta:g}; rho {target.rho:.6g}"
    protects = f"{last.protected}; neighbouring tables {last.relation}"
    attacks = last.describe_guess(target.advantage)
    lines = [("privacy", privacy), ("protects", protects), ("attacks", attacks), *lines]
    io.emit_rows(f"{len(schema.tables):,} tables under one budget", lines)
