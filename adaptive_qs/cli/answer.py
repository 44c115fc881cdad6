"""`answer DATA` and `plan`: all queries of a workload, and what is said of a planned mechanism."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from adaptive_qs.cli import options
from adaptive_qs.cli.files import beside, check_distinct, check_table, companions, readable
from adaptive_qs.cli.ledger import closing_json, closing_lines
from adaptive_qs.cli.output import (
    Row,
    emit_columns,
    emit_json,
    emit_rows,
    excess,
    figure,
    note,
    percent,
    progress_bars,
    warn,
)
from adaptive_qs.cli.synthesize import peak_memory_mb, private_inputs, warn_of
from adaptive_qs.errors import InputError
from adaptive_qs.pages.words import counted, first_of
from adaptive_qs.run.request import RunOptions
from adaptive_qs.table.text import check_formulas

if TYPE_CHECKING:
    from adaptive_qs.answering.answers import Answers
    from adaptive_qs.answering.plan import BatchPlan
    from adaptive_qs.loop.forecast import UnconnectedForecast
    from adaptive_qs.run.budget import PrivacyTarget


# What `plan` and `answer` say about a planned mechanism, for people and for scripts.

ROUNDING = 1e-6
"""Relative error of a gap: a gap this far below zero is none."""
GRID_GAP = 1e-3
"""Most that strategies in integers add to the gap without a word."""
MOST_MEASURED = 2**31
"""Cells of the largest table that can be counted and measured."""


def plan_json(plan: BatchPlan) -> dict[str, Any]:
    """The fields that scripts rely on, and more."""
    variance, exact = plan.max_variance
    forecast = plan.forecast
    return {
        "queries": plan.queries,
        "rmse": plan.rmse,
        "lower_bound_rmse": plan.lower_bound_rmse,
        "max_variance": variance,
        "cost": plan.target.cost,
        "mechanism": plan.choice.name,
        "subworkloads": plan.choice.subworkloads,
        "distinct_solves": plan.choice.distinct_solves,
        "seconds": round(plan.seconds, 3),
        "max_variance_exact": exact,
        "gap": gap_of(plan),
        "weighted": is_weighted(plan),
        "statuses": {str(status): count for status, count in plan.mechanism.statuses.items()},
        "epsilon": plan.target.epsilon,
        "delta": plan.target.delta,
        "rho": plan.target.rho,
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


def plan_lines(plan: BatchPlan) -> list[Row]:
    """The same for people."""
    forecast = plan.forecast
    solves = counted(plan.choice.distinct_solves, "distinct problem")
    return [
        mechanism_line(plan),
        privacy_line(plan.target),
        error_line(plan),
        ("at best", _bound(plan)),
        ("largest", _largest(plan)),
        ("solved", f"{counted(plan.choice.subworkloads, 'subworkload')}, {solves}"),
        ("planning", f"{plan.seconds:.1f} seconds"),
        (
            "answering",
            f"about {forecast.memory_bytes / 2**20:,.0f} MB and {forecast.seconds:.1f} seconds "
            "not counting reading and writing",
        ),
    ]


def epsilon_rows(plan: BatchPlan) -> list[tuple[str, str, str]]:
    """ε, privacy cost and expected error."""
    return [
        (f"{epsilon:.4g}", f"{cost:.4g}", figure(rmse)) for epsilon, cost, rmse in plan.by_epsilon()
    ]


def title(plan: BatchPlan) -> str:
    """What is answered."""
    queries = "1 query" if plan.queries == 1 else f"{plan.queries:,} queries"
    return f"{queries} about {counted(plan.workload.num_sets, 'set')} of attributes"


def mechanism_line(plan: BatchPlan) -> Row:
    """The mechanism, and what is known about how good it is."""
    from adaptive_qs.strategy.solution import Status

    statuses = plan.mechanism.statuses
    if statuses[Status.STOPPED]:
        words = "stopped before the gap asked for"
    elif statuses[Status.RESTRICTED] and plan.choice.name == "querysmasher":
        words = f"not proven optimal in {_uncertified(plan)}"
    elif statuses[Status.RESTRICTED]:
        words = "the best found of its family of strategies"
    else:
        words = "optimal within the gap"
    return ("mechanism", f"{plan.choice.name}: {words}")


def privacy_line(target: PrivacyTarget) -> Row:
    """What it costs, in three measures."""
    from adaptive_qs.privacy.events import zcdp_name

    return (
        "privacy",
        f"epsilon {target.epsilon:.6g}, delta {target.delta:g}; privacy cost {target.cost:.6g}, "
        f"rho {target.rho:.6g} ({zcdp_name(float(target.budget.delta))})",
    )


def is_weighted(plan: BatchPlan) -> bool:
    """Whether some query counts more or less than once."""
    return any(bool((part.weights != 1).any()) for part in plan.workload.parts)


def rmse_words(plan: BatchPlan) -> str:
    """What the expected error is called."""
    return "expected weighted RMSE" if is_weighted(plan) else "expected RMSE"


def error_line(plan: BatchPlan) -> Row:
    """The error to expect of one answer."""
    text = f"{rmse_words(plan)} {figure(plan.rmse)}"
    if is_weighted(plan):
        return ("error", f"{text}: the root of weight x variance summed, divided by all queries")
    return ("error", f"{text} rows")


def gap_of(plan: BatchPlan) -> float:
    """The relative gap of the squared error, without what rounding adds below zero."""
    return 0.0 if -ROUNDING < plan.gap < 0 else plan.gap


def tell_limits(plan: BatchPlan, mechanism: str, gap: float) -> None:
    """Say on stderr what a reader of the figures may overlook.

    Args:
        plan: what was planned.
        mechanism: the name that was asked for.
        gap: the one asked for.
    """
    _tell_size(plan)
    found = gap_of(plan)
    if found < 0:
        warn(
            f"the error is {excess(-found)} below the bound that holds for it, which cannot be: "
            "do not trust either, and report the workload"
        )
    elif mechanism in ("auto", "querysmasher") and found > gap + _slack(plan, gap):
        _tell_gap(plan, found)


def tell_largest(plan: BatchPlan) -> None:
    """Say on stderr where the largest error is only a bound."""
    if not plan.max_variance[1]:
        note("the largest standard error is an upper bound: no query has a larger one")


def _tell_gap(plan: BatchPlan, gap: float) -> None:
    from adaptive_qs.strategy.solution import Status

    statuses, share = plan.mechanism.statuses, excess(gap)
    if not _is_split(plan):
        note(
            f"a strategy for the whole table has less error than residual spaces measured "
            f"separately; its squared error is proven to be within {share} of the least of all "
            "matrix mechanisms, no closer"
        )
    elif statuses[Status.STOPPED]:
        warn(
            f"the solver stopped before its gap in {_uncertified(plan)}: the squared error is "
            f"proven to be within {share} of the least, no closer: declare coarser bins, or accept "
            f"it with --gap {math.ceil(gap * 1e6) / 1e6:g}"
        )
    elif statuses[Status.RESTRICTED]:
        warn(
            f"the optimal solver could not take on {_uncertified(plan)}, which got cheaper "
            f"strategies: the squared error is proven to be within {share} of the least, no "
            "closer: raise --max-memory, declare coarser bins or ask for fewer ways"
        )
    else:
        warn(
            f"strategies in integers leave the squared error within {share} of the least, no "
            "closer: declare coarser bins or ask for fewer ways"
        )


def _tell_size(plan: BatchPlan) -> None:
    if plan.forecast.noise_draws <= MOST_MEASURED:
        return
    mechanism = plan.mechanism
    measurements = map(mechanism.measurement, range(mechanism.num_measurements))
    largest = max(math.prod(plan.workload.domain.shape(m.clique)) for m in measurements)
    if largest > MOST_MEASURED:
        cells = f"{largest:,}" if largest < 10**15 else f"1e{len(str(largest)) - 1}"
        warn(
            f"this plan cannot be answered: {plan.choice.name} measures a table of {cells} cells, "
            f"and {MOST_MEASURED:,} is the most: use --mechanism auto, fewer ways or coarser bins"
        )


def _slack(plan: BatchPlan, gap: float) -> float:
    """What rounding adds to a gap that was reached."""
    from adaptive_qs.strategy.solution import Status

    reached = set(plan.mechanism.statuses) == {Status.OPTIMAL}
    return GRID_GAP if reached else ROUNDING * gap


def _is_split(plan: BatchPlan) -> bool:
    """Whether residual spaces are measured separately, which the bound is then limited to."""
    from adaptive_qs.strategy.residual_mechanism import ResidualMechanism

    return isinstance(plan.mechanism, ResidualMechanism)


def _uncertified(plan: BatchPlan) -> str:
    """How many subworkloads have no strategy that is proven optimal, of how many."""
    from adaptive_qs.strategy.residual_mechanism import ResidualMechanism
    from adaptive_qs.strategy.solution import Status

    mechanism, whole = plan.mechanism, plan.choice.subworkloads
    count = whole
    if isinstance(mechanism, ResidualMechanism):
        proven = [solution.status is Status.OPTIMAL for solution in mechanism.solutions]
        count = sum(not proven[number] for number in mechanism.decomposition.class_of.tolist())
    return f"{count:,} of {counted(whole, 'subworkload')}"


def _bound(plan: BatchPlan) -> str:
    bound, gap = figure(plan.lower_bound_rmse), excess(gap_of(plan))
    kind = (
        "mechanism that measures residual spaces separately"
        if _is_split(plan)
        else ("matrix mechanism")
    )
    words = rmse_words(plan).removeprefix("expected ")
    return f"no {kind} is below {words} {bound}; the gap is {gap} of the squared error"


def _largest(plan: BatchPlan) -> str:
    variance, exact = plan.max_variance
    return f"standard error {'' if exact else 'at most '}{figure(math.sqrt(variance))} rows"


# How much data there will be for each cell of a planned workload, and what a synthetic table will
# know of its columns, from public numbers alone.


@dataclass(frozen=True)
class Cells:
    """The cells of the marginals over a workload's sets of attributes, each set once.

    Attributes:
        plan: what was planned.
        mean, largest: cells of a marginal.
        rows: about how many rows the table will have; None where that is not public.
    """

    plan: BatchPlan
    mean: float
    largest: int
    rows: int | None

    @classmethod
    def of(cls, plan: BatchPlan, rows: int | None) -> Self:
        """Count them."""
        import numpy as np

        parts: dict[int, list[Any]] = {}
        for part in plan.workload.parts:
            parts.setdefault(part.degree, []).append(part.cliques)
        sizes = np.asarray(plan.workload.domain.sizes, dtype=np.float64)
        sets = [np.unique(np.concatenate(some), axis=0) for some in parts.values()]
        cells = np.concatenate([sizes[some].prod(axis=1) for some in sets])
        return cls(plan, float(cells.mean()), int(cells.max()), rows)

    @property
    def rows_per_cell(self) -> float | None:
        """Rows of a cell, on average over all cells of all sets."""
        return None if self.rows is None else self.rows / self.mean

    @property
    def _of_cells(self) -> bool:
        """Whether every query counts one cell of a marginal."""
        from adaptive_qs.workload.axes import Marginal

        parts = self.plan.workload.parts
        return all(p.axis and all(isinstance(q, Marginal) for q in p.axis.values()) for p in parts)

    @property
    def relative_rmse(self) -> float | None:
        """The expected RMSE as a part of them; None where rows or an unweighted RMSE lack, or where
        queries count more than a cell."""
        if self.rows_per_cell is None or is_weighted(self.plan) or not self._of_cells:
            return None
        return self.plan.rmse / self.rows_per_cell

    def json(self) -> dict[str, Any]:
        """The fields that scripts rely on."""
        return {
            "cells": {"mean": self.mean, "largest": self.largest},
            "rows": self.rows,
            "rows_per_cell": self.rows_per_cell,
            "relative_rmse": self.relative_rmse,
        }

    def line(self) -> Row:
        """The same for people."""
        text = (
            f"{figure(self.mean)} in a set of attributes on average, {figure(self.largest)} at most"
        )
        if self.rows_per_cell is None:
            return ("cells", f"{text} (--rows N adds the rows in each)")
        text += f"; {self.rows:,} rows are {figure(self.rows_per_cell)} for each"
        if self.relative_rmse is None:
            return ("cells", text)
        share = percent(self.relative_rmse)
        return ("cells", f"{text}, and the {rmse_words(self.plan)} is {share} of that")


@dataclass(frozen=True)
class Tables:
    """What `synthesize` would make of the same sets of attributes with the same budget.

    Attributes:
        forecast: of its loop.
        rows: about how many rows the table will have; None where that is not public.
        total_std: standard deviation (rows) of its number of rows, or less.
        unconnected: columns that it will likely leave independent of all others; None where the
            rows lack, where no combination is asked for, or too many.
        least_rows: about how many rows each column takes not to be; None as for these.
    """

    forecast: UnconnectedForecast
    rows: int | None
    total_std: float
    unconnected: tuple[str, ...] | None
    least_rows: dict[str, int | None] | None

    @classmethod
    def of(cls, schema: Path, plan: BatchPlan, asked: RunOptions) -> Self:
        """Forecast a run of `synthesize`.

        Raises:
            InputError: the budget is none that it takes.
        """
        from adaptive_qs.learn.schema import discovery_share, preprocessing_cost
        from adaptive_qs.loop.forecast import UnconnectedForecast, total_std
        from adaptive_qs.run.budget import PrivacyTarget
        from adaptive_qs.table.schema import Schema

        described, rows = Schema.load(schema), asked.public_rows
        rho = asked.rho if asked.cost is None else asked.cost / 2
        share = discovery_share(described)
        target = PrivacyTarget.of(asked.epsilon, asked.delta, rho, share)
        learning = preprocessing_cost(described, target.budget, asked.learning_share)
        workload = plan.workload.marginals()
        forecast = UnconnectedForecast(workload, target.left_of(target.budget - learning).rho)
        combined = any(len(clique) > 1 for clique in workload.cliques)
        std = total_std(workload.domain, forecast.rho, rows or 0, combined)
        possible = forecast.possible
        return cls(
            forecast,
            rows,
            std,
            forecast.columns(rows) if possible and rows is not None else None,
            forecast.least_rows() if possible else None,
        )

    def json(self) -> dict[str, Any]:
        """The fields that scripts rely on."""
        return {
            "total_std": self.total_std,
            "unconnected": None if self.unconnected is None else list(self.unconnected),
            "least_rows": self.least_rows,
        }

    def line(self) -> Row:
        """The same for people."""
        known = f"to about +/- {figure(self.total_std)}"
        text = f"with synthesize the number of rows would be known {known}"
        if self.least_rows is None:
            return ("tables", text)
        from adaptive_qs.loop.forecast import MEND

        if self.unconnected is None:
            return ("tables", f"{text} (--rows N tells which columns it would leave independent)")
        if not self.unconnected:
            return ("tables", f"{text}, and likely no column independent of all others")
        whole = counted(len(self.forecast.workload.domain), "column")
        named = first_of(self.unconnected, 6)
        return (
            "tables",
            f"{text}, and {len(self.unconnected):,} of {whole} likely independent of all others: "
            f"{named}: {MEND}",
        )


# `answer DATA` and `plan`: all queries of a workload, with a standard error for each.

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
    from adaptive_qs.release.bundle import of_interrupted_run

    mine = run.resume and of_interrupted_run(out, run.ledger, run.max_memory)
    check_table(out, replacing or mine)

    from adaptive_qs.answering import api
    from adaptive_qs.answering.answers import interval_factor
    from adaptive_qs.answering.plan import DEFAULT_GAP
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
    """State the error, time and memory of answering a workload, without any data.

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
