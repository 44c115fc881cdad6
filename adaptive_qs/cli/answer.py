"""`answer DATA`: answers to a workload, and the lines about a plan that `plan` shares."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from adaptive_qs.cli import io
from adaptive_qs.cli import options as shared
from adaptive_qs.errors import InputError
from adaptive_qs.pages.words import counted
from adaptive_qs.run.options import OUTPUT, AnswerOptions, MechanismOptions, Option
from adaptive_qs.table.files import FORMATS

if TYPE_CHECKING:
    from adaptive_qs.answering.api import Answers
    from adaptive_qs.answering.plan import BatchPlan
    from adaptive_qs.run.budget import PrivacyTarget


ROUNDING = 1e-6
"""Relative rounding error of a gap; a smaller gap is shown as zero."""
GRID_GAP = 1e-3
"""Largest part of a gap, due to integer strategies, that brings no warning."""
MOST_MEASURED = 2**31
"""Largest number of cells that one measurement can have."""


def shared_rows(plan: BatchPlan, target: PrivacyTarget) -> tuple[io.Row, io.Row, io.Row]:
    """Return rows with the mechanism, the cost of the run and the expected error."""
    from adaptive_qs.privacy.events import zcdp_name
    from adaptive_qs.strategy.solution import Status

    statuses = plan.mechanism.statuses
    if statuses[Status.STOPPED]:
        words = "stopped before the requested gap"
    elif statuses[Status.RESTRICTED] and plan.choice.name == "querysmasher":
        words = "not proven optimal in all subworkloads"
    elif statuses[Status.RESTRICTED]:
        words = "the best strategy found in its family"
    else:
        words = "optimal within the requested gap"
    unit = " rows"
    if is_weighted(plan):
        unit = ": the root of weight x variance summed, divided by all queries"
    row = " of one row, added or removed" if target.unit.replaced or target.unit.group > 1 else ""
    privacy = f"epsilon {target.epsilon:.6g}, delta {target.delta:g}{' of the run' * bool(row)}; "
    privacy += f"privacy cost {target.cost:.6g}, rho {target.rho:.6g} "
    privacy += f"({zcdp_name(float(target.budget.delta))}){row}"
    error = f"{name_error(plan)} {io.figure(plan.rmse)}{unit}"
    return ("mechanism", f"{plan.choice.name} ({words})"), ("privacy", privacy), ("error", error)


def is_weighted(plan: BatchPlan) -> bool:
    """Whether a query has a weight other than 1."""
    return any(bool((part.weights != 1).any()) for part in plan.workload.parts)


def name_error(plan: BatchPlan) -> str:
    """Return the name of the expected error."""
    return "expected weighted RMSE" if is_weighted(plan) else "expected RMSE"


def compute_gap(plan: BatchPlan) -> float:
    """Return the relative gap of the squared error; a rounding error below zero gives zero."""
    return 0.0 if -ROUNDING < plan.gap < 0 else plan.gap


def show_limits(plan: BatchPlan, options: MechanismOptions) -> None:
    """Write notes and warnings that limit the meaning of a plan's figures."""
    from adaptive_qs.strategy.residual_mechanism import ResidualMechanism
    from adaptive_qs.strategy.solution import Status

    if plan.forecast.noise_draws > MOST_MEASURED:
        _warn_of_size(plan)
    gap, statuses = compute_gap(plan), plan.mechanism.statuses
    share = io.excess(gap)
    slack = GRID_GAP if set(statuses) == {Status.OPTIMAL} else ROUNDING * options.gap
    if options.mechanism not in ("auto", "querysmasher") or gap <= options.gap + slack:
        return
    proven = f"the squared error is proven to be within {share} of the least"
    if not isinstance(plan.mechanism, ResidualMechanism):
        io.note(f"{proven} of all matrix mechanisms")
        return
    io.warn(
        f"{proven}, not closer. Use coarser bins, fewer ways or a larger --max-memory, or "
        f"accept it with --gap {math.ceil(gap * 1e6) / 1e6:g}."
    )


def _warn_of_size(plan: BatchPlan) -> None:
    mechanism = plan.mechanism
    measurements = map(mechanism.measurement, range(mechanism.num_measurements))
    largest = max(math.prod(plan.workload.domain.shape(m.clique)) for m in measurements)
    if largest > MOST_MEASURED:
        cells = f"{largest:,}" if largest < 10**15 else f"1e{len(str(largest)) - 1}"
        io.warn(
            f"This plan cannot be answered: {plan.choice.name} measures a table of {cells} cells, "
            f"more than {MOST_MEASURED:,}. Use --mechanism auto, fewer ways or coarser bins."
        )


def list_fields(plan: BatchPlan) -> dict[str, Any]:
    """Return the JSON fields of a plan."""
    variance, exact = plan.max_variance
    forecast, target = plan.forecast, plan.target
    return {
        **io.pick(plan, "queries", "rmse", "lower_bound_rmse"), "max_variance": variance,
        "cost": target.cost, "mechanism": plan.choice.name,
        **io.pick(plan.choice, "subworkloads", "distinct_solves"),
        "seconds": round(plan.seconds, 3), "max_variance_exact": exact, "gap": compute_gap(plan),
        "weighted": is_weighted(plan),
        "statuses": {str(status): count for status, count in plan.mechanism.statuses.items()},
        "unit": target.unit.name, **io.pick(target, "epsilon", "delta", "rho", "advantage"),
        "by_epsilon": [dict(zip(("epsilon", "cost", "rmse"), row)) for row in plan.by_epsilon()],
        "forecast": {
            "memory_mb": round(forecast.memory_bytes / 2**20, 1),
            "seconds": round(forecast.seconds, 3), "answers": plan.queries,
        },
    }  # fmt: skip


def list_rows(plan: BatchPlan, cells: io.Row) -> list[io.Row]:
    """Return the rows of a plan, with one on its cells."""
    from adaptive_qs.strategy.residual_mechanism import ResidualMechanism

    forecast, (variance, exact) = plan.forecast, plan.max_variance
    excess = compute_gap(plan)
    gap = io.excess(0.0 if abs(excess) < ROUNDING else excess)
    split = isinstance(plan.mechanism, ResidualMechanism)
    kind = "mechanism that measures residual spaces separately" if split else "matrix mechanism"
    bound = f"{name_error(plan).removeprefix('expected ')} {io.figure(plan.lower_bound_rmse)}"
    solves = counted(plan.choice.distinct_solves, "distinct problem")
    largest = f"standard error {'' if exact else 'at most '}{io.figure(math.sqrt(variance))} rows"
    needs = f"about {forecast.memory_bytes / 2**20:,.0f} MB and {forecast.seconds:.1f} seconds"
    return [
        *shared_rows(plan, plan.target),
        ("lower bound", f"{bound} for any {kind}; gap {gap} of the squared error"),
        ("largest", largest),
        cells,
        ("solved", f"{counted(plan.choice.subworkloads, 'subworkload')}, {solves}"),
        ("planning", f"{plan.seconds:.1f} seconds"),
        ("answering", f"{needs} without reading and writing"),
    ]


DEMO_OUT = Path("adult_answers.parquet")


@dataclass(kw_only=True)
class Options(shared.OutputOptions, shared.FamilyOptions, AnswerOptions, shared.SchemaOptions):
    """The options of `answer`."""

    demo: Annotated[bool, Option(
        f"Run on the shipped sample (UCI Adult) with epsilon 1. Writes or replaces ./{DEMO_OUT} "
        "unless --out is set.")] = False  # fmt: skip
    out: Annotated[Path | None, Option(
        f"Answers: {FORMATS.listed()}.", "FILE", OUTPUT
    )] = None  # fmt: skip
    confidence: Annotated[float, Option(
        "Probability with which an interval contains the true answer.", "P", OUTPUT
    )] = 0.95  # fmt: skip


def answer(data: shared.PrivateTable = None, *, options: Options) -> None:
    """Answer counting queries about a private table, each with a standard error and an interval.

    Protects one row: neighbouring tables differ by adding or removing one row. If the schema names
    a person column, protects all rows of a person (--rows-per-person). Everything is checked before
    any budget is spent. The output file is created after the last answer.
    """
    source, schema, options, replacing = shared.private_inputs(data, options, DEMO_OUT)
    out, confidence = options.out, options.confidence
    if out is None:
        raise InputError("No output file is set. Use --out, such as --out a.parquet.")
    spec = shared.workload_spec(options.workload, options.ways, options.queries)
    kind = shared.chosen_formulas(options.formulas, schema)
    inputs = [source, schema, options.workload, *shared.companions(options)]
    shared.check_distinct(shared.with_sidecar(out), inputs)
    replacing = replacing or shared.resumes(out, options)
    shared.check_table(out, replacing)

    from adaptive_qs.answering.api import check_answers, read_answers
    from adaptive_qs.answering.measure import interval_factor
    from adaptive_qs.table.schema import Schema

    interval_factor(confidence)
    described = Schema.load(schema, options.max_memory)
    with shared.naming_queries(options.queries), io.progress_bars() as clock:
        checked = check_answers(described, spec, options, clock)
        io.show_warnings(checked, schema)
        answers = read_answers(checked, source, clock)
        show_limits(answers.plan, options)
        rows = answers.write(out, confidence, kind, replacing)
    what = answers, out, rows, confidence
    io.conclude(options.as_json, _list_answer_fields(*what), _list_answer_rows(*what))


def _list_answer_fields(
    answers: Answers, out: Path, rows: int, confidence: float
) -> Mapping[str, Any]:
    plan, target = answers.plan, answers.target
    return {
        "queries": plan.queries, "rows": rows, "out": str(out), "mechanism": plan.choice.name,
        **io.pick(plan, "rmse", "lower_bound_rmse"), "unit": target.unit.name,
        **io.pick(target, "cost", "rho"), "rho_spent": answers.rho_spent,
        **io.pick(target, "epsilon", "delta"), "confidence": confidence,
        **io.taken_json(answers.seconds), "seed_insecure": answers.insecure,
        "ledger": io.closed_json(answers.closed),
    }  # fmt: skip


def _list_answer_rows(answers: Answers, out: Path, rows: int, confidence: float) -> list[io.Row]:
    mechanism, privacy, error = shared_rows(answers.plan, answers.target)
    written = f"{out} ({counted(rows, 'row')}, {100 * confidence:g} % intervals)"
    return [
        *io.stamp_rows(answers.insecure, answers.stamp),
        ("answers", written),
        mechanism,
        privacy,
        *io.closed_rows(answers.closed),
        io.protects(answers.target.unit),
        error,
        *io.taken_rows(answers.seconds),
    ]
