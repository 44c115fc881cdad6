"""`answer DATA`: all queries of a workload; and what it and `plan` say of a planned mechanism."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from adaptive_qs.cli import io
from adaptive_qs.cli.options import (
    OF_ANSWERS,
    PrivateTable,
    naming_queries,
    workload_spec,
)
from adaptive_qs.errors import InputError
from adaptive_qs.pages.words import at_resolution, counted, first_of, short
from adaptive_qs.run import RunOptions

if TYPE_CHECKING:
    from adaptive_qs.answering.answers import Answers
    from adaptive_qs.answering.plan import BatchPlan
    from adaptive_qs.loop.estimates import Strategies
    from adaptive_qs.loop.forecast import LoopForecast
    from adaptive_qs.run.budget import PrivacyTarget
    from adaptive_qs.table.schema import Schema
    from adaptive_qs.workload.file import WorkloadSpec
    from adaptive_qs.workload.limit import LeftOut
    from adaptive_qs.workload.workload import Workload


# What `plan` and `answer` say about a planned mechanism, for people and for scripts.

ROUNDING = 1e-6
"""Relative error of a gap: one this close to zero is shown as none."""
GRID_GAP = 1e-3
"""Most that strategies in integers add to the gap without a word."""
MANY_ANSWERS = 10_000_000
"""Answers from which a plan says how large their file is."""
CLOSED_FORM_GAP = 0.02
"""Most that strategies of long attributes lack, which nothing but fewer values would change."""
SERVED = "for a synthetic table every set of attributes is also asked for together with it"
"""What a target means."""
MOST_MEASURED = 2**31
"""Cells of the largest table that can be counted and measured."""


def plan_json(plan: BatchPlan) -> dict[str, Any]:
    """The fields that scripts rely on, and more."""
    variance, exact = plan.max_variance
    forecast, target = plan.forecast, plan.target
    return {
        "queries": plan.queries,
        "rmse": plan.rmse,
        "lower_bound_rmse": plan.lower_bound_rmse,
        "max_variance": variance,
        "cost": target.cost,
        "mechanism": plan.choice.name,
        "subworkloads": plan.choice.subworkloads,
        "distinct_solves": plan.choice.distinct_solves,
        "seconds": round(plan.seconds, 3),
        "max_variance_exact": exact,
        "gap": gap_of(plan),
        "weighted": is_weighted(plan),
        "statuses": {str(status): count for status, count in plan.mechanism.statuses.items()},
        "unit": target.unit.name,
        "epsilon": target.epsilon,
        "delta": target.delta,
        "rho": target.rho,
        "by_epsilon": [
            {"epsilon": epsilon, "cost": cost, "rmse": rmse}
            for epsilon, cost, rmse in plan.by_epsilon()
        ],
        "forecast": {
            "memory_mb": round(forecast.memory_bytes / 2**20, 1),
            "seconds": round(forecast.seconds, 3),
            "answers": plan.queries,
        },
    }


def shared_lines(plan: BatchPlan, target: PrivacyTarget) -> tuple[io.Row, io.Row, io.Row]:
    """The mechanism and how good it is, what the whole run costs, and the error to expect."""
    from adaptive_qs.privacy.events import zcdp_name
    from adaptive_qs.strategy.solution import Status

    statuses = plan.mechanism.statuses
    if statuses[Status.STOPPED]:
        words = "stopped before the gap asked for"
    elif statuses[Status.RESTRICTED] and plan.choice.name == "querysmasher":
        words = f"not proven optimal in {_unproven(plan)}"
    elif statuses[Status.RESTRICTED]:
        words = "the best found of its family of strategies"
    else:
        words = "optimal within the gap"
    unit = " rows"
    if is_weighted(plan):
        unit = ": the root of weight x variance summed, divided by all queries"
    return (
        ("mechanism", f"{plan.choice.name}: {words}"),
        (
            "privacy",
            f"epsilon {target.epsilon:.6g}, delta {target.delta:g}; privacy cost "
            f"{target.cost:.6g}, rho {target.rho:.6g} ({zcdp_name(float(target.budget.delta))})",
        ),
        ("error", f"{rmse_words(plan)} {io.figure(plan.rmse)}{unit}"),
    )


def plan_lines(plan: BatchPlan, cells: io.Row) -> list[io.Row]:
    """What a plan says to people, with a line on its cells."""
    from adaptive_qs.strategy.residual_mechanism import ResidualMechanism

    forecast, (variance, exact) = plan.forecast, plan.max_variance
    excess = gap_of(plan)
    gap = io.excess(0.0 if abs(excess) < ROUNDING else excess)
    split = isinstance(plan.mechanism, ResidualMechanism)
    kind = "mechanism that measures residual spaces separately" if split else "matrix mechanism"
    bound = f"{rmse_words(plan).removeprefix('expected ')} {io.figure(plan.lower_bound_rmse)}"
    solves = counted(plan.choice.distinct_solves, "distinct problem")
    return [
        *shared_lines(plan, plan.target),
        io.protects(plan.target.unit),
        (
            "at best",
            f"no {kind} is below {bound}; the gap is {gap} of the squared error",
        ),
        (
            "largest",
            f"standard error {'' if exact else 'at most '}{io.figure(math.sqrt(variance))} rows",
        ),
        cells,
        ("solved", f"{counted(plan.choice.subworkloads, 'subworkload')}, {solves}"),
        ("planning", f"{plan.seconds:.1f} seconds"),
        (
            "answering",
            f"about {forecast.memory_bytes / 2**20:,.0f} MB and {forecast.seconds:.1f} seconds "
            f"not counting reading and writing{_file_words(plan)}",
        ),
    ]


def _file_words(plan: BatchPlan) -> str:
    """How large the file of very many answers will be."""
    from adaptive_qs.answering.answers import file_bytes

    if plan.queries < MANY_ANSWERS:
        return ""
    sizes = (file_bytes(plan.queries, f"a{suffix}") / 2**30 for suffix in (".parquet", ".csv"))
    return "; the file takes about {:,.1f} GiB as Parquet and {:,.1f} GiB as CSV".format(*sizes)


def is_weighted(plan: BatchPlan) -> bool:
    """Whether some query counts more or less than once."""
    return any(bool((part.weights != 1).any()) for part in plan.workload.parts)


def rmse_words(plan: BatchPlan) -> str:
    """What the expected error is called."""
    return "expected weighted RMSE" if is_weighted(plan) else "expected RMSE"


def gap_of(plan: BatchPlan) -> float:
    """The relative gap of the squared error, without what rounding adds below zero."""
    return 0.0 if -ROUNDING < plan.gap < 0 else plan.gap


def tell_limits(plan: BatchPlan, mechanism: str, wanted: float) -> None:
    """Say on stderr what a reader of the figures may overlook.

    Args:
        plan: what was planned.
        mechanism: the name that was asked for.
        wanted: the gap asked for.
    """
    from adaptive_qs.strategy.residual_mechanism import ResidualMechanism
    from adaptive_qs.strategy.solution import Status
    from adaptive_qs.strategy.waves import LARGE_AXIS

    if plan.forecast.noise_draws > MOST_MEASURED:
        _tell_size(plan)
    gap, statuses = gap_of(plan), plan.mechanism.statuses
    share = io.excess(abs(gap))
    if gap < 0:
        io.warn(
            f"the error is {share} below the bound that holds for it, which cannot be: "
            "do not trust either, and report the workload"
        )
        return
    slack = GRID_GAP if set(statuses) == {Status.OPTIMAL} else ROUNDING * wanted
    if mechanism not in ("auto", "querysmasher") or gap <= wanted + slack:
        return
    proven = f"the squared error is proven to be within {share} of the least"
    if not isinstance(plan.mechanism, ResidualMechanism):
        io.note(
            "a strategy for the whole table has less error than residual spaces measured "
            f"separately; its {proven.removeprefix('the ')} of all matrix mechanisms, no closer"
        )
    elif statuses[Status.STOPPED]:
        io.warn(
            f"the solver stopped before its gap in {_unproven(plan)}: {proven}, no closer: declare "
            f"coarser bins, or accept it with --gap {math.ceil(gap * 1e6) / 1e6:g}"
        )
    elif statuses[Status.RESTRICTED] and max(plan.workload.domain.sizes) > LARGE_AXIS:
        tell, mend = (io.note, "") if gap <= CLOSED_FORM_GAP else (io.warn, ": use coarser bins")
        tell(
            f"strategies for attributes of more than {LARGE_AXIS:,} values have a closed form in "
            f"{_unproven(plan)}: {proven}, no closer{mend}"
        )
    elif statuses[Status.RESTRICTED]:
        io.warn(
            f"the optimal solver could not take on {_unproven(plan)}, which got cheaper "
            f"strategies: {proven}, no closer: raise --max-memory, declare coarser bins or ask for "
            "fewer ways"
        )
    else:
        io.warn(
            f"strategies in integers leave the squared error within {share} of the least, no "
            "closer: declare coarser bins or ask for fewer ways"
        )


def _tell_size(plan: BatchPlan) -> None:
    mechanism = plan.mechanism
    measurements = map(mechanism.measurement, range(mechanism.num_measurements))
    largest = max(math.prod(plan.workload.domain.shape(m.clique)) for m in measurements)
    if largest > MOST_MEASURED:
        cells = f"{largest:,}" if largest < 10**15 else f"1e{len(str(largest)) - 1}"
        io.warn(
            f"this plan cannot be answered: {plan.choice.name} measures a table of {cells} cells, "
            f"and {MOST_MEASURED:,} is the most: use --mechanism auto, fewer ways or coarser bins"
        )


def _unproven(plan: BatchPlan) -> str:
    """How many subworkloads have no strategy that is proven optimal, of how many."""
    from adaptive_qs.strategy.residual_mechanism import ResidualMechanism
    from adaptive_qs.strategy.solution import Status

    mechanism, whole = plan.mechanism, plan.choice.subworkloads
    count = whole
    if isinstance(mechanism, ResidualMechanism):
        proven = [solution.status is Status.OPTIMAL for solution in mechanism.solutions]
        count = sum(not proven[number] for number in mechanism.decomposition.class_of.tolist())
    return f"{count:,} of {counted(whole, 'subworkload')}"


# How much data there will be for each cell of a planned workload, and what a synthetic table will
# know of its columns, from public numbers alone.


def cells_of(plan: BatchPlan, rows: int | None) -> dict[str, Any]:
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
    text = f"{mean} in a set of attributes on average, {largest} at most"
    if found["rows"] is None:
        return ("cells", f"{text} (--rows N adds the rows in each)")
    text += f"; {found['rows']:,} rows are {io.figure(found['rows_per_cell'])} for each"
    if found["relative_rmse"] is not None:
        text += f", and the {rmse_words(plan)} is {io.percent(found['relative_rmse'])} of that"
    return ("cells", text)


def tables_of(
    schema: Schema, spec: WorkloadSpec, workload: Workload, asked: RunOptions
) -> dict[str, Any]:
    """What `synthesize` would make of a workload with the same budget.

    Args:
        schema: the public schema.
        spec: the workload as it was given.
        workload: its marginals, as far as they are looked at.
        asked: the options of the run.

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
    from adaptive_qs.run.job import budget_of
    from adaptive_qs.run.tables import Served

    rho = asked.rho if asked.cost is None else asked.cost / 2
    budget = partial(PrivacyTarget.of, asked.epsilon, asked.delta, rho)
    target, learning = budget_of(schema, asked, budget)
    left = target.left_of(target.budget - learning)
    served = Served.of(spec, workload.domain)
    strategies = CELLS_ALONE if served is None else served.strategies
    forecast = LoopForecast(workload, left.rho_of_published)
    return foreseen_of(forecast, strategies, asked.public_rows)


def foreseen_of(forecast: LoopForecast, strategies: Strategies, rows: int | None) -> dict[str, Any]:
    """The same of a forecast and of strategies, for a table of about so many rows."""
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


def scoring_of(
    workload: Workload, left_out: LeftOut | None, asked: RunOptions
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

    found = scoring_forecast(workload, asked)
    left = None if left_out is None else str(left_out)
    return {
        "candidates": found.candidates,
        "cells": found.cells,
        "seconds": found.seconds,
        "memory_mb": round(found.memory_bytes / 2**20, 1),
        "left_out": left,
        "target": workload.target,
    }, ("scoring", "; ".join(filter(None, (str(found), left))))


def tables_line(columns: int, found: Mapping[str, Any], flag: str = "--rows") -> io.Row:
    """What would be known of the columns, of which there are so many, for people; the number of
    rows is given with ``flag``."""
    from adaptive_qs.loop.forecast import MEND

    known, unconnected = f"to about +/- {io.figure(found['total_std'])}", found["unconnected"]
    text = f"with synthesize the number of rows would be known {known}"
    if found["least_rows"] is None:
        return ("tables", text)
    if unconnected is None:
        return ("tables", f"{text} ({flag} N tells which columns it would leave independent)")
    if not unconnected:
        return ("tables", f"{text}, and likely no column independent of all others")
    if found["least_rows"].keys() == set(unconnected):
        return ("tables", f"{text}, and likely nothing but single columns: {MEND}")
    some = f"{len(unconnected):,} of {counted(columns, 'column')}"
    named = f"likely independent of all others: {first_of(unconnected, 6)}: {MEND}"
    return ("tables", f"{text}, and {some} {named}")


def resolution_line(workload: Workload, found: Mapping[str, Any]) -> io.Row:
    """How finely combinations would likely be measured, for people; those over groups are named."""
    from adaptive_qs.loop.candidates import measurable_cliques

    likely = found["resolutions"]
    combinations = sum(len(clique) > 1 for clique in measurable_cliques(workload))
    fine = [one for one in likely if one["groups"] == one["codes"]]
    some = [at_resolution(**one) for one in likely if one not in fine]
    text = f"likely {len(likely):,} of {counted(combinations, 'combination')} measured"
    if some:
        text += f", {len(fine):,} over all codes and {len(some):,} over groups"
        text += f" ({first_of(some, 4)})"
    elif likely:
        text += ", over all codes"
    if len(likely) < combinations:
        missed = "all columns" if not likely else "what the others would show beyond these"
        text += f": {missed} would come out as if independent"
    return ("resolution", text)


def strategies_line(found: Mapping[str, Any]) -> io.Row:
    """Which single columns would be measured by other queries than their cells, for people."""
    some = [
        f"{short(one['column'])} by {counted(one['queries'], 'query', 'queries')} "
        f"(cells {io.excess(one['cell_noise'] - 1)} noisier)"
        for one in found["strategies"]
    ]
    return ("strategies", f"for what the workload asks of single columns: {first_of(some, 4)}")


# `answer DATA`: all queries of a workload, with a standard error for each.

DEMO_OUT = Path("adult_answers.parquet")


def answer(
    data: PrivateTable = None,
    *,
    sql: str | None = None,
    database: Path | None = None,
    schema: Path | None = None,
    workload: Path | None = None,
    ways: str | None = None,
    queries: str | None = None,
    mechanism: str = "auto",
    gap: float | None = None,
    demo: bool = False,
    run: Annotated[RunOptions, OF_ANSWERS],
    out: Path | None = None,
    confidence: float = 0.95,
    formulas: str | None = None,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Answer counting queries about a private table, each with a standard error and an interval.

    The unit of privacy is one row: neighbouring tables differ by adding or removing one row. It is
    one person where the schema names the column that tells whose a row is (--rows-per-person).
    Everything is checked before any budget is spent; the file appears with the last answer.
    """
    source, schema = io.private_inputs(data, schema, demo, sql, database)
    replacing = force or (demo and out is None)
    if demo:
        out = out or DEMO_OUT
        run = run if run.budgeted else replace(run, epsilon=1.0)
    if out is None:
        raise InputError("no --out was given: name the file for the answers, such as a.parquet")
    spec = workload_spec(workload, ways, queries)
    kind = io.chosen_formulas(formulas, schema)
    io.check_standard_output(out, run.insecure_seed is not None, as_json)
    io.check_distinct(
        io.with_sidecar(out),
        [io.file_of(source), schema, workload, *io.companions(run.ledger, run.anchor)],
    )
    from adaptive_qs.release.bundle import of_interrupted_run

    mine = run.resume and of_interrupted_run(out, run.ledger, run.max_memory)
    replacing = replacing or mine
    io.check_table(out, replacing)

    from adaptive_qs.answering.answers import interval_factor
    from adaptive_qs.answering.api import answers_job, answers_of
    from adaptive_qs.answering.plan import DEFAULT_GAP, Batch
    from adaptive_qs.machine import PhaseClock
    from adaptive_qs.table.schema import Schema

    interval_factor(confidence)
    described = Schema.load(schema, run.max_memory)
    wanted = DEFAULT_GAP if gap is None else gap
    with naming_queries(queries), io.readable(source) as table, io.progress_bars() as bars:
        clock = PhaseClock(bars)
        asked = partial(Batch, spec, mechanism=mechanism, gap=wanted, progress=clock)
        job = answers_job(described, asked, run)
        io.warn_of(job, schema)
        answers = answers_of(job, table, clock)
        tell_limits(answers.plan, mechanism, wanted)
        if out == io.STANDARD:
            rows = answers.write_csv(io.Stdout(), confidence, kind)  # type: ignore[arg-type]
        else:
            rows = answers.write(out, confidence, kind, replacing)
    if as_json:
        io.emit_json(_json(answers, out, rows, confidence))
    else:
        io.emit_done(_lines(answers, out, rows, confidence), out)


def _json(answers: Answers, out: Path, rows: int, confidence: float) -> Mapping[str, Any]:
    plan, target = answers.plan, answers.target
    return {
        "queries": plan.queries,
        "rows": rows,
        "out": str(out),
        "mechanism": plan.choice.name,
        "rmse": plan.rmse,
        "lower_bound_rmse": plan.lower_bound_rmse,
        "unit": target.unit.name,
        "cost": target.cost,
        "rho": target.rho,
        "rho_spent": answers.rho_spent,
        "epsilon": target.epsilon,
        "delta": target.delta,
        "confidence": confidence,
        **io.taken_json(answers.seconds),
        "seed_insecure": answers.insecure,
        "ledger": io.closed_json(answers.closed),
    }


def _lines(answers: Answers, out: Path, rows: int, confidence: float) -> list[io.Row]:
    mechanism, privacy, error = shared_lines(answers.plan, answers.target)
    stamp = [("NOT PRIVATE", answers.stamp.partition(": ")[2])] if answers.insecure else []
    return [
        *stamp,
        (
            "answers",
            f"{io.shown_output(out)} ({counted(rows, 'row')}, {100 * confidence:g} % intervals)",
        ),
        mechanism,
        privacy,
        *io.closed_rows(answers.closed),
        io.protects(answers.target.unit),
        error,
        *io.taken_rows(answers.seconds),
    ]
