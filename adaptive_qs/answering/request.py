"""What a batch is asked to do, in the words by which a ledger recognises it when it is resumed."""

from __future__ import annotations

from adaptive_qs.answering.plan import BatchPlan
from adaptive_qs.answering.target import BatchTarget
from adaptive_qs.data.schema import Schema
from adaptive_qs.ledger.wording import cost_text
from adaptive_qs.privacy.events import Cost
from adaptive_qs.release.environment import package_version
from adaptive_qs.workload.digest import workload_digest


def request_of(
    plan: BatchPlan,
    target: BatchTarget,
    schema: Schema,
    gap: float,
    learning: Cost,
    insecure_seed: int | None,
) -> dict[str, str]:
    """Everything public that decides what a batch releases, by the names that its user knows.

    Args:
        plan: for the widest domain of the schema.
        target: the whole budget.
        schema: with or without private columns.
        gap: what solvers were told.
        learning: part of the budget for private columns.
        insecure_seed: of the noise.
    """
    return {
        "command": "answer",
        "version": package_version(),
        "schema": schema.fingerprint,
        "workload": workload_digest(plan.workload),
        "budget": f"{cost_text(target.budget)}, epsilon {target.epsilon!r}, delta {target.delta!r}",
        "learning share": cost_text(learning),
        "mechanism": f"{plan.choice.name}, {plan.mechanism.num_measurements} measurements",
        "gap": repr(gap),
        "noise seed": "none" if insecure_seed is None else str(insecure_seed),
    }
