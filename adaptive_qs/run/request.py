"""What a run is asked to do, in the words by which a ledger recognises it when it is resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adaptive_qs.ledger.entries import cost_text
from adaptive_qs.release.statement import package_version
from adaptive_qs.workload.file import resolve_workload, workload_digest

if TYPE_CHECKING:
    from adaptive_qs.run.job import Job


def request_of(job: Job) -> dict[str, str]:
    """Everything public that decides what a run releases, by the names that its user knows."""
    plan, settings = job.plan, job.settings
    target = settings.target
    workload = resolve_workload(job.workload, job.schema.widest_domain())
    return {
        "command": "synthesize",
        "version": package_version(),
        "schema": job.schema.fingerprint,
        "workload": workload_digest(workload),
        "budget": f"{cost_text(target.cost)}, epsilon {target.epsilon!r}, delta {target.delta!r}",
        "learning share": cost_text(job.learning),
        "reference": settings.reference,
        "noise seed": "none" if settings.insecure_seed is None else str(settings.insecure_seed),
        "memory ceiling": f"{plan.measured_cells} measured cells, {plan.watched_cells} watched, "
        f"{plan.most_rows} rows",
    }
