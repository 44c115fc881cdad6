"""The words by which a ledger recognises what a run was asked to do, when it is resumed."""

from __future__ import annotations

from adaptive_qs.ledger.entries import cost_text
from adaptive_qs.privacy.events import Cost
from adaptive_qs.release.statement import package_version
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.run.options import RunOptions
from adaptive_qs.table.schema import Schema


def request_of(
    options: RunOptions, schema: Schema, target: PrivacyTarget, learning: Cost, work: dict[str, str]
) -> dict[str, str]:
    """Everything public that decides what a run releases, by the names that its user knows.

    Args:
        options: of the run.
        schema: with or without private columns.
        target: the whole budget.
        learning: the part of it for private columns.
        work: what is measured, and how.
    """
    return {
        "version": package_version(),
        "schema": schema.fingerprint,
        "budget": f"{cost_text(target.budget)}, epsilon {target.epsilon!r}, delta {target.delta!r}",
        "learning share": cost_text(learning),
        "noise seed": "none" if options.insecure_seed is None else str(options.insecure_seed),
        **work,
    }
