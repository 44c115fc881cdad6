"""What `plan` and `answer` say about a planned mechanism, for people and for scripts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from adaptive_qs.cli.output import Row, counted, figure, note, warn

if TYPE_CHECKING:
    from adaptive_qs.answering.plan import BatchPlan


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
        privacy_line(plan),
        error_line(plan),
        ("at best", _bound(plan)),
        ("largest", _largest(plan)),
        ("solved", f"{counted(plan.choice.subworkloads, 'subworkload')}, {solves}"),
        ("planning", f"{plan.seconds:.1f} seconds"),
        (
            "answering",
            f"about {forecast.memory_bytes / 2**20:,.0f} MB and {forecast.seconds:.1f} seconds "
            "beside reading and writing",
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
    elif statuses[Status.RESTRICTED]:
        words = "the best of its family of strategies"
    else:
        words = "optimal within the gap"
    return ("mechanism", f"{plan.choice.name}: {words}")


def privacy_line(plan: BatchPlan) -> Row:
    """What it costs, in three measures."""
    target = plan.target
    return (
        "privacy",
        f"epsilon {target.epsilon:.6g}, delta {target.delta:g}; privacy cost {target.cost:.6g}, "
        f"rho {target.rho:.6g} (zCDP)",
    )


def error_line(plan: BatchPlan) -> Row:
    """The error to expect of one answer."""
    return ("error", f"expected RMSE {figure(plan.rmse)} rows")


def gap_of(plan: BatchPlan) -> float:
    """The relative gap of the squared error, without what rounding adds below zero."""
    return max(0.0, plan.gap)


def tell_limits(plan: BatchPlan) -> None:
    """Say on stderr what a reader of the figures may overlook."""
    from adaptive_qs.strategy.solution import Status

    statuses = plan.mechanism.statuses
    if stopped := statuses[Status.STOPPED]:
        warn(
            f"the solver stopped before its gap in {stopped:,} of "
            f"{counted(sum(statuses.values()), 'problem')}: the squared error is proven to be "
            f"within {_percent(gap_of(plan))} of the least, no closer"
        )
    if not plan.max_variance[1]:
        note("the largest standard error is an upper bound: no query has a larger one")


def _bound(plan: BatchPlan) -> str:
    bound, gap = figure(plan.lower_bound_rmse), _percent(gap_of(plan))
    return f"no mechanism of this kind is below RMSE {bound}; the gap is {gap} of the squared error"


def _largest(plan: BatchPlan) -> str:
    variance, exact = plan.max_variance
    return f"standard error {'' if exact else 'at most '}{figure(math.sqrt(variance))} rows"


def _percent(part: float) -> str:
    return f"{100 * part:.2g} %" if part < 100 else "far"
