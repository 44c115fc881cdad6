"""`plan`: what answering, or two related tables, would cost and how good it would be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from adaptive_qs.cli import io, related_tables
from adaptive_qs.cli.answer import (
    is_weighted,
    plan_json,
    plan_lines,
    rmse_words,
    show_limits,
)
from adaptive_qs.cli.options import (
    FamilyOptions,
    JsonOptions,
    SchemaOptions,
    demo_files,
    naming_queries,
    workload_spec,
)
from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.pages.words import at_resolution, counted, join_first, short
from adaptive_qs.run.options import (
    Option,
    PlanOptions,
    SelectionOptions,
    SynthesizeOptions,
    check_public_rows,
    read_options,
)

if TYPE_CHECKING:
    from adaptive_qs.answering.plan import BatchPlan
    from adaptive_qs.loop.estimates import Strategies
    from adaptive_qs.loop.forecast import LoopForecast
    from adaptive_qs.run.related import RelatedJob
    from adaptive_qs.table.related import RelatedSchema
    from adaptive_qs.table.schema import Schema
    from adaptive_qs.workload.file import WorkloadSpec
    from adaptive_qs.workload.limit import DroppedMarginals
    from adaptive_qs.workload.workload import Workload


RUN = read_options(SynthesizeOptions)
"""The options that a run of related tables would have."""


# Of answers.


@dataclass(kw_only=True)
class Options(JsonOptions, FamilyOptions, SelectionOptions, PlanOptions, SchemaOptions):
    """The options of `plan`."""

    demo: Annotated[bool, Option("Plan for the schema of the shipped sample (UCI Adult).")] = False
    public_rows: Annotated[int | None, Option(
        "Approximate number of rows, from public knowledge. Adds the rows per cell, and the "
        "columns that would be independent in a synthetic table.", "N",
        check=check_public_rows, flag="--rows")] = None  # fmt: skip
    parents_share: related_tables.ParentsShare = None
    related_rows: Annotated[int | None, Option(
        "About how many children there will be, if that is public, with a schema of two related "
        "tables. --rows are then parents.", "N", check=check_public_rows)] = None  # fmt: skip


def plan(*, options: Options) -> None:
    """State the error, time and memory of answering a workload, without any data.

    For two related tables, which have no answers, it states what synthesize would give each of them
    of the budget, and what it would know of them.

    Without a budget, figures are for a privacy cost of 1. They shrink with its square root.
    """
    schema = options.schema
    if options.demo and schema is not None:
        raise InputError("--demo has its own schema. Remove --schema.")
    if options.demo:
        schema = demo_files()[1]
    if schema is None:
        raise InputError("No schema is set. Use --schema FILE, or try --demo.")
    spec = workload_spec(options.workload, options.ways, options.queries)
    if related_tables.describes_pair(schema):
        related_tables.reject_options(options, "queries", "mechanism", "gap")
        _plan_related(schema, spec, options)
        return
    related_tables.refuse(
        "is for two related tables, and the schema describes one: leave it out",
        parents_share=options.parents_share, related_rows=options.related_rows,
    )  # fmt: skip

    from adaptive_qs.answering.api import plan_answers
    from adaptive_qs.run.tables import select_candidates
    from adaptive_qs.table.schema import Schema

    described = Schema.load(schema, options.max_memory)
    planned: BatchPlan | ResourceExceeded
    with naming_queries(options.queries):
        try:
            with io.progress_bars() as bars:
                planned, warnings = plan_answers(described, spec, options, bars)
        except ResourceExceeded as error:
            if options.mechanism != "auto":  # which only answers have
                raise
            planned, warnings = error, ()
        looked, left_out = select_candidates(spec, described.widest_domain(), options)
    lines, tables, scoring = _forecast_tables(described, spec, looked, left_out, options)
    for warning in warnings:
        io.warn(warning)
    if isinstance(planned, ResourceExceeded):
        io.warn(f"only for synthesize: answer refuses this workload: {planned}")
        if options.as_json:
            io.emit_json({"refused": str(planned), "tables": tables, "scoring": scoring})
        else:
            io.emit_rows("Synthetic tables for this workload", lines)
        return
    show_limits(planned, options)
    if not planned.max_variance[1]:
        io.note("the largest standard error is an upper bound: no query has a larger one")
    cells = describe_cells(planned, options.public_rows)
    if options.as_json:
        more = {"tables": tables, "scoring": scoring, "refused": None}
        io.emit_json({**plan_json(planned), **cells, **more})
    else:
        _emit_plan(planned, cells, lines)


def _emit_plan(plan: BatchPlan, cells: Mapping[str, Any], lines: list[io.Row]) -> None:
    about = counted(plan.workload.num_sets, "set")
    io.emit_rows(
        f"{counted(plan.queries, 'query', 'queries')} about {about} of attributes",
        [*plan_lines(plan, cells_line(plan, cells)), *lines],
    )
    io.emit_columns(
        ["epsilon", "privacy cost", rmse_words(plan)],
        [(f"{e:.4g}", f"{cost:.4g}", io.figure(rmse)) for e, cost, rmse in plan.by_epsilon()],
    )


def _forecast_tables(
    schema: Schema,
    spec: WorkloadSpec,
    looked: Workload,
    left_out: DroppedMarginals | None,
    options: Options,
) -> tuple[list[io.Row], dict[str, Any] | None, dict[str, Any]]:
    tables = describe_tables(schema, spec, looked, options) if options.budgeted else None
    scoring, scored = describe_scoring(looked, left_out, options.counted_rows, options)
    lines = [] if tables is None else table_lines(looked, tables)
    if scoring["target"] is not None:
        lines.append(("target", f"{scoring['target']}: {SERVED}"))
    return [*lines, scored], tables, scoring


# What `plan` says, for people and for scripts.


SERVED = "each set of attributes is also requested together with it"
"""What a target means."""


def describe_cells(plan: BatchPlan, rows: int | None) -> dict[str, Any]:
    """The cells of the marginals over a workload's sets of attributes, each set once.

    Args:
        plan: what was planned.
        rows: about how many rows the table will have; None where that is not public.

    Returns:
        Fields that scripts rely on. ``relative_rmse`` is the expected RMSE as a part of the rows
        of a cell: None without rows, with weights, or where queries count more than a cell.
    """
    import numpy as np

    from adaptive_qs.workload.axes import Marginal

    sets: dict[int, list[Any]] = {}
    single = True
    for part in plan.workload.parts:
        sets.setdefault(part.degree, []).append(part.cliques)
        families = part.axis.values()
        single = single and bool(families) and all(isinstance(q, Marginal) for q in families)
    sizes = np.asarray(plan.workload.domain.sizes, dtype=np.float64)
    distinct = [np.unique(np.concatenate(some), axis=0) for some in sets.values()]
    cells = np.concatenate([sizes[some].prod(axis=1) for some in distinct])
    mean = float(cells.mean())
    each = None if rows is None else rows / mean
    comparable = each is not None and single and not is_weighted(plan)
    return {
        "cells": {"mean": mean, "largest": int(cells.max())},
        "rows": rows,
        "rows_per_cell": each,
        "relative_rmse": plan.rmse / each if comparable and each else None,
    }


def cells_line(plan: BatchPlan, found: Mapping[str, Any]) -> io.Row:
    """The same for people."""
    mean, largest = (io.figure(found["cells"][name]) for name in ("mean", "largest"))
    text = f"{mean} per marginal on average, {largest} at most"
    if found["rows"] is None:
        return ("cells", f"{text} (--rows N adds the rows per cell)")
    each = io.figure(found["rows_per_cell"])
    text += f"; with {found['rows']:,} rows a cell holds {each} rows on average"
    if found["relative_rmse"] is not None:
        text += f", and the {rmse_words(plan)} is {io.percent(found['relative_rmse'])} of this"
    return ("cells", text)


def describe_tables(
    schema: Schema, spec: WorkloadSpec, workload: Workload, options: PlanOptions
) -> dict[str, Any]:
    """What `synthesize` would make of a workload with the same budget.

    Args:
        schema: the public schema.
        spec: the workload as it was given.
        workload: the marginals that can be selected.
        options: the options of the run.

    Returns:
        Fields that scripts rely on: ``total_std``, the standard deviation of its number of rows or
        less; ``unconnected``, columns that it will likely leave independent of all others (None
        without rows, or where no combination is asked for, or too many); ``least_rows``, about how
        many rows each column takes not to be (None likewise); ``resolutions``, the combinations
        that it will likely measure, each with the groups of codes of its columns (None likewise);
        ``strategies``, the columns that it will measure by other queries than their cells, each
        with the number of them and the noise that its cells get, relative to that of counting them.
    """
    from adaptive_qs.loop.estimates import CELLS_ALONE
    from adaptive_qs.loop.forecast import LoopForecast
    from adaptive_qs.run.budget import PrivacyTarget
    from adaptive_qs.run.job import resolve_budget
    from adaptive_qs.run.tables import QueryStrategies

    rho = options.rho if options.cost is None else options.cost / 2
    budget = partial(PrivacyTarget.of, options.epsilon, options.delta, rho)
    target, learning = resolve_budget(schema, options, budget)
    left = target.within(target.budget - learning)
    served = QueryStrategies.of(spec, workload.domain)
    strategies = CELLS_ALONE if served is None else served.strategies
    forecast = LoopForecast(workload, left.compute_published_rho)
    return predict_measurements(forecast, strategies, options.public_rows)


def predict_measurements(
    forecast: LoopForecast, strategies: Strategies, rows: int | None
) -> dict[str, Any]:
    """Return the fields of :func:`describe_tables` for a table of about ``rows`` rows."""
    from adaptive_qs.loop.forecast import total_std

    workload = forecast.workload
    foreseen = forecast.resolutions(rows) if forecast.possible and rows else None
    return {
        "total_std": total_std(workload, forecast.rho, rows or 0),
        "unconnected": list(forecast.columns(rows)) if forecast.possible and rows else None,
        "least_rows": forecast.least_rows() if forecast.possible else None,
        "resolutions": foreseen and [one._asdict() for one in foreseen],
        "strategies": [
            {
                "column": workload.domain.names[i],
                "queries": len(strategy.integers),
                "cell_noise": strategy.cell_noise,
            }
            for i, strategy in sorted(strategies.items())
        ],
    }


def describe_scoring(
    workload: Workload,
    left_out: DroppedMarginals | None,
    rows: int | None,
    options: SelectionOptions,
) -> tuple[dict[str, Any], io.Row]:
    """What a scoring pass of `synthesize` looks at.

    Returns:
        Fields that scripts rely on: ``candidates``, marginals that may be measured; ``cells`` of
        all of them; ``seconds`` of a processor, without what rows take where their number is not
        given; ``memory_mb`` without the rows; ``left_out``, what is not looked at and why, or
        None; ``target``, the column that a table would serve, or None. And the candidates in one
        line.
    """
    from adaptive_qs.run.tables import scoring_forecast

    found = scoring_forecast(workload, rows, options)
    left = None if left_out is None else str(left_out)
    return {
        "candidates": found.candidates,
        "cells": found.cells,
        "seconds": found.seconds,
        "memory_mb": round(found.memory_bytes / 2**20, 1),
        "left_out": left,
        "target": workload.target,
    }, ("scoring", "; ".join(filter(None, (str(found), left))))


def table_lines(workload: Workload, found: Mapping[str, Any], flag: str = "--rows") -> list[io.Row]:
    """Return lines of text on the synthetic table that the workload would get."""
    lines = [tables_line(len(workload.domain), found, flag)]
    if found["resolutions"] is not None:
        lines.append(resolution_line(workload, found))
    if found["strategies"]:
        lines.append(strategies_line(found))
    return lines


def tables_line(columns: int, found: Mapping[str, Any], flag: str) -> io.Row:
    """Return a row on the columns of the synthetic table; ``flag`` is the option for rows."""
    from adaptive_qs.loop.forecast import REMEDY

    std, unconnected = io.figure(found["total_std"]), found["unconnected"]
    text = f"would measure the number of rows with a standard error of about {std}"
    if found["least_rows"] is None:
        return ("synthesize", text)
    if unconnected is None:
        return ("synthesize", f"{text} ({flag} N shows which columns would be independent)")
    if not unconnected:
        return ("synthesize", f"{text}; probably no column would be independent of all others")
    if found["least_rows"].keys() == set(unconnected):
        return ("synthesize", f"{text}; probably nothing but single columns. {REMEDY}")
    some = f"{len(unconnected):,} of {counted(columns, 'column')}"
    named = f"probably independent of all others: {join_first(unconnected, 6)}. {REMEDY}"
    return ("synthesize", f"{text}; {some} {named}")


def resolution_line(workload: Workload, found: Mapping[str, Any]) -> io.Row:
    """How finely combinations would likely be measured, for people; those over groups are named."""
    from adaptive_qs.loop.candidates import measurable_cliques

    likely = found["resolutions"]
    combinations = sum(len(clique) > 1 for clique in measurable_cliques(workload))
    fine = [one for one in likely if one["groups"] == one["codes"]]
    some = [at_resolution(**one) for one in likely if one not in fine]
    text = f"probably {len(likely):,} of {counted(combinations, 'marginal')} measured"
    if some:
        text += f": {len(fine):,} at full resolution, {len(some):,} with grouped codes"
        text += f" ({join_first(some, 4)})"
    elif likely:
        text += ", at full resolution"
    if len(likely) < combinations:
        missed = "all columns" if not likely else "what the others would show beyond these"
        text += f"; {missed} would be independent"
    return ("resolution", text)


def strategies_line(found: Mapping[str, Any]) -> io.Row:
    """Which single columns would be measured by other queries than their cells, for people."""
    some = [
        f"{short(one['column'])} {counted(one['queries'], 'query', 'queries')} "
        f"(noise of cells +{io.excess(one['cell_noise'] - 1)})"
        for one in found["strategies"]
    ]
    return (
        "strategies",
        f"single columns measured by queries of the workload: {join_first(some, 4)}",
    )


# `plan` of two related tables: what each would get of one budget.


def _plan_related(schema: Path, workload: Any, options: Options) -> None:
    """State what `synthesize` would know of both tables, and what one more child costs."""
    from adaptive_qs.loop.forecast import total_std
    from adaptive_qs.privacy.budget import describe_refusals
    from adaptive_qs.run.related import DEFAULT_PARENTS_SHARE, RelatedJob
    from adaptive_qs.table.related import MOST_CHILDREN, RelatedSchema

    numbers, share = (options.public_rows, options.related_rows), options.parents_share
    share = DEFAULT_PARENTS_SHARE if share is None else share
    rho = options.rho if options.budgeted else 0.5
    rho = rho if options.cost is None else options.cost / 2
    given = {each.name: getattr(options, each.name, each.default) for each in RUN}
    given |= {"rho": rho, "workload": workload}
    run = SynthesizeOptions(**given | {"beyond_limits": True, "unreviewed_schema": True})
    described = RelatedSchema.load(schema, options.max_memory)

    def job_of(schema: RelatedSchema) -> RelatedJob:
        return RelatedJob.of(schema, run, share)

    job = job_of(described)
    target, found, lines = job.parents.target, {}, []
    parts = ("parents", job.parents, share), ("children", job.children, 1 - share)
    for (name, part, of_budget), rows in zip(parts, numbers):
        work = part.work
        flag = "--rows" if name == "parents" else "--related-rows"
        tables = predict_measurements(work.forecast, work.strategies, rows)
        scoring, scored = describe_scoring(work.workload, work.left_out, rows, run)
        error = _cell_rmse(part.schema, work.workload, work.rho, run)
        found[name] = {
            "rho": of_budget * target.rho, "rho_of_rows": work.rho, "rows": rows,
            "marginals": len(work.workload.cliques), "rmse": error, "tables": tables,
            "scoring": scoring,
        }  # fmt: skip
        for warning in describe_refusals(work.list_warnings(part.target, rows)):
            io.warn(warning)
        some = counted(len(work.workload.cliques), "marginal")
        known = "" if error is None else f", each cell known to about +/- {io.figure(error)} rows"
        budget = f"rho {of_budget * target.rho:.6g} ({io.percent(of_budget)})"
        lines.append((name, f"{budget} for {some}{known} if all are measured"))
        lines += [*table_lines(work.workload, tables, flag), scored]
    most, stds = described.most_children, {}
    for number in sorted({1, (most + 1) // 2, most, min(2 * most, MOST_CHILDREN)}):
        work = job_of(described.changed(most_children=number)).children.work
        stds[number] = total_std(work.workload, work.rho, numbers[1] or 0)
    if options.as_json:
        io.emit_json(
            {
                **{name: getattr(target, name) for name in ("epsilon", "delta", "rho")},
                "unit": job.children.target.unit.name,
                "neighbours": job.children.target.unit.relation,
                "parents_share": share,
                **found,
                "by_most_children": [
                    {"most_children": number, "total_std": std} for number, std in stds.items()
                ],
            }
        )
        return
    privacy = f"epsilon {target.epsilon:.6g}, delta {target.delta:g}; rho {target.rho:.6g}"
    lines = [("privacy", privacy), io.protects(job.children.target.unit), *lines]
    io.emit_rows("Two related tables under one budget", lines)
    io.emit_columns(
        ["children of a parent that count", "number of children known to about +/-"],
        [(f"{k:,}{' (most_children)' * (k == most)}", io.figure(s)) for k, s in stds.items()],
    )


def _cell_rmse(
    schema: Schema, workload: Workload, rho: float, run: SynthesizeOptions
) -> float | None:
    """Expected RMSE (rows) of all cells of the marginals where rho is spent on them in the optimal
    way, without choosing; None where that is too large to plan."""
    from adaptive_qs.answering.api import plan as planned
    from adaptive_qs.workload.file import WorkloadFile

    requested = WorkloadFile.of(workload).model_dump(exclude_none=True)
    one = schema.model_copy(update={"person": None})
    try:
        return planned(one, requested, rho=rho, workers=run.workers, max_memory=run.max_memory).rmse
    except ResourceExceeded:
        return None
