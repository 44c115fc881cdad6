"""What a run is asked to do, in the words by which a ledger recognises it when it is resumed."""

from __future__ import annotations

from fractions import Fraction

from adaptive_qs.data.schema import Schema
from adaptive_qs.release.manifest import package_version
from adaptive_qs.synthesizer.pipeline import RunSettings
from adaptive_qs.synthesizer.resources import RunPlan
from adaptive_qs.workload.digest import workload_digest
from adaptive_qs.workload.workload import Workload


def request_of(
    schema: Schema, workload: Workload, settings: RunSettings, plan: RunPlan
) -> dict[str, str]:
    """Everything public that decides what a run releases, by the names that its user knows."""
    target = settings.target
    return {
        "command": "synthesize",
        "version": package_version(),
        "schema": schema.fingerprint,
        "workload": workload_digest(workload),
        "budget": f"rho {Fraction(target.rho)}, epsilon {target.epsilon!r}, delta {target.delta!r}",
        "reference": settings.reference,
        "noise seed": str(settings.insecure_seed),
        "memory ceiling": f"{plan.measured_cells}, {plan.watched_cells}, {plan.most_rows}",
    }
