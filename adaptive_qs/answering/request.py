"""What a batch is asked to do, in the words by which a ledger recognises it when it is resumed."""

from __future__ import annotations

from adaptive_qs.answering.plan import BatchPlan
from adaptive_qs.data.schema import Schema
from adaptive_qs.release.manifest import package_version
from adaptive_qs.workload.digest import workload_digest


def request_of(
    plan: BatchPlan, schema: Schema, gap: float, insecure_seed: int | None
) -> dict[str, str]:
    """Everything public that decides what a batch releases, by the names that its user knows."""
    target = plan.target
    return {
        "command": "answer",
        "version": package_version(),
        "schema": schema.fingerprint,
        "workload": workload_digest(plan.workload),
        "budget": f"{target.units}, epsilon {target.epsilon!r}, delta {target.delta!r}",
        "mechanism": f"{plan.choice.name}, {plan.mechanism.num_measurements} measurements",
        "gap": repr(gap),
        "noise seed": str(insecure_seed),
    }
