"""`plan`: what answering, or two related tables, would cost and how good it would be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from adaptive_qs.cli import io, related_tables
from adaptive_qs.cli.answer import (
    SERVED,
    cells_line,
    cells_of,
    foreseen_of,
    plan_json,
    plan_lines,
    resolution_line,
    rmse_words,
    scoring_of,
    strategies_line,
    tables_line,
    tables_of,
    tell_limits,
)
from adaptive_qs.cli.options import (
    FamilyOptions,
    JsonOptions,
    SchemaOptions,
    naming_queries,
    workload_spec,
)
from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.pages.words import counted
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
    from adaptive_qs.run.related import RelatedJob
    from adaptive_qs.table.related import RelatedSchema
    from adaptive_qs.table.schema import Schema
    from adaptive_qs.workload.workload import Workload


RUN = read_options(SynthesizeOptions)
"""The options that a run of related tables would have."""


# Of answers.


@dataclass(kw_only=True)
class Options(JsonOptions, FamilyOptions, SelectionOptions, PlanOptions, SchemaOptions):
    """The options of `plan`."""

    demo: Annotated[bool, Option("Plan for the schema of the shipped sample (UCI Adult).")] = False
    public_rows: Annotated[int | None, Option(
        "About how many rows the table will have, if that is public. The plan then gives the rows "
        "in a cell, and the columns that a synthetic table would leave independent.", "N",
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
    if options.demo:
        if schema is not None:
            raise InputError("--demo brings its own schema: leave out --schema")
        from adaptive_qs.table.files import sample_dataset

        schema = sample_dataset().schema
    if schema is None:
        raise InputError("no --schema was given: name the public schema, or try --demo")
    spec = workload_spec(options.workload, options.ways, options.queries)
    if related_tables.describes_pair(schema):
        related_tables.reject_options(options, "queries", "mechanism", "gap")
        _plan_related(schema, spec, options)
        return
    related_tables.refuse_for_one(
        parents_share=options.parents_share, related_rows=options.related_rows
    )

    from adaptive_qs.answering.api import plan_answers
    from adaptive_qs.run.tables import looked_at
    from adaptive_qs.table.schema import Schema

    described, rows = Schema.load(schema, options.max_memory), options.public_rows
    planned: BatchPlan | ResourceExceeded
    with naming_queries(options.queries):
        try:
            with io.progress_bars() as bars:
                planned, doubts = plan_answers(described, spec, options, bars)
        except ResourceExceeded as error:
            if options.mechanism != "auto":  # which only answers have
                raise
            planned, doubts = error, ()
        looked, left_out = looked_at(spec, described.widest_domain(), options)
    tables = tables_of(described, spec, looked, options) if options.budgeted else None
    scoring, scored = scoring_of(looked, left_out, options.counted_rows, options)
    lines = [scored]
    if scoring["target"] is not None:
        lines.insert(0, ("target", f"{scoring['target']}: {SERVED}"))
    if tables is not None:
        if tables["strategies"]:
            lines.insert(0, strategies_line(tables))
        if tables["resolutions"] is not None:
            lines.insert(0, resolution_line(looked, tables))
        lines.insert(0, tables_line(len(looked.domain), tables))
    for doubt in doubts:
        io.warn(doubt)
    if isinstance(planned, ResourceExceeded):
        io.warn(f"only for synthesize: answer refuses this workload: {planned}")
        if options.as_json:
            io.emit_json({"refused": str(planned), "tables": tables, "scoring": scoring})
        else:
            io.emit_rows("Synthetic tables for this workload", lines)
        return
    tell_limits(planned, options)
    if not planned.max_variance[1]:
        io.note("the largest standard error is an upper bound: no query has a larger one")
    cells = cells_of(planned, rows)
    if options.as_json:
        told = {**plan_json(planned), **cells, "tables": tables, "scoring": scoring}
        io.emit_json({**told, "refused": None})
        return
    about = counted(planned.workload.num_sets, "set")
    io.emit_rows(
        f"{counted(planned.queries, 'query', 'queries')} about {about} of attributes",
        [*plan_lines(planned, cells_line(planned, cells)), *lines],
    )
    io.emit_columns(
        ["epsilon", "privacy cost", rmse_words(planned)],
        [(f"{e:.4g}", f"{cost:.4g}", io.figure(rmse)) for e, cost, rmse in planned.by_epsilon()],
    )


# `plan` of two related tables: what each would get of one budget.


def _plan_related(schema: Path, workload: Any, options: Options) -> None:
    """State what `synthesize` would know of both tables, and what a child more that counts costs.

    Args:
        schema: of both.
        workload: the marginals that matter.
        options: of the command; without a budget, figures are for a privacy cost of 1.
    """
    from adaptive_qs.loop.forecast import total_std
    from adaptive_qs.privacy.budget import refusable
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
        tables = foreseen_of(work.forecast, work.strategies, rows)
        scoring, scored = scoring_of(work.workload, work.left_out, rows, run)
        error = _cell_rmse(part.schema, work.workload, work.rho, run)
        found[name] = {
            "rho": of_budget * target.rho, "rho_of_rows": work.rho, "rows": rows,
            "marginals": len(work.workload.cliques), "rmse": error, "tables": tables,
            "scoring": scoring,
        }  # fmt: skip
        for doubt in refusable(work.rails(part.target, rows)):
            io.warn(doubt)
        some = counted(len(work.workload.cliques), "marginal")
        known = "" if error is None else f", each cell known to about +/- {io.figure(error)} rows"
        budget = f"rho {of_budget * target.rho:.6g} ({io.percent(of_budget)})"
        lines.append((name, f"{budget} for {some}{known} if all are measured"))
        lines.append(tables_line(len(work.workload.domain), tables, flag))
        if tables["resolutions"] is not None:
            lines.append(resolution_line(work.workload, tables))
        if tables["strategies"]:
            lines.append(strategies_line(tables))
        lines.append(scored)
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

    asked = WorkloadFile.of(workload).model_dump(exclude_none=True)
    one = schema.model_copy(update={"person": None})
    try:
        return planned(one, asked, rho=rho, workers=run.workers, max_memory=run.max_memory).rmse
    except ResourceExceeded:
        return None
