"""`audit`: neighbouring tables give the same bytes when the noise is the same."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_qs.cli import io
from adaptive_qs.cli.options import workload_spec
from adaptive_qs.cli.related_tables import describes_pair, refuse_beside
from adaptive_qs.errors import InputError
from adaptive_qs.pages.words import counted
from adaptive_qs.privacy import DEFAULT_NEIGHBOURS, DEFAULT_WEIGH
from adaptive_qs.table.engines import DEFAULT_ENGINE

if TYPE_CHECKING:
    from adaptive_qs.audit.audit import AuditReport

SHOWN = 20
"""Findings listed; the others are counted."""
APART = 100
"""How much larger the second of two budgets is."""
MOST_RHO = 1e5
"""Above it `answer` has no noise to add."""


def audit(
    schema: Path | None = None,
    workload: Path | None = None,
    ways: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    rows_per_person: int | None = None,
    weigh: str = DEFAULT_WEIGH,
    neighbours: str = DEFAULT_NEIGHBOURS,
    pairs: Annotated[
        int,
        typer.Option(
            "--pairs", metavar="N", min=1, max=100_000, help="Pairs of neighbouring tables."
        ),
    ] = 20,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Seed of the generated rows.")
    ] = 0,
    as_json: bool = False,
    engine: str = DEFAULT_ENGINE,
    scheduler: str | None = None,
    max_memory: Annotated[
        str,
        typer.Option(
            "--max-memory",
            metavar="SIZE",
            help="Most memory that a run may plan for.",
            rich_help_panel="Machine",
        ),
    ] = "2GB",
) -> int:
    """Check that neighbouring tables give the same bytes when the noise is the same.

    Runs synthesize and answer on generated rows of your schema, at the budget given and at 100
    times as much (by default at rho 0.02 and 5); synthesize alone where it describes two related
    tables. Reads no private data and spends nothing.
    """
    if schema is None:
        raise InputError("no --schema was given: name the public schema to audit")
    spec = workload_spec(workload, ways)

    from adaptive_qs.audit.audit import RHOS
    from adaptive_qs.audit.audit import audit as run_audit
    from adaptive_qs.audit.related import audit_related
    from adaptive_qs.run.budget import PrivacyTarget
    from adaptive_qs.table.related import RelatedSchema
    from adaptive_qs.table.schema import Schema

    rhos = RHOS
    if epsilon is not None or rho is not None or delta is not None:
        low = PrivacyTarget.of(epsilon, delta, rho).rho
        rhos = low, min(APART * low, max(MOST_RHO, low))
    both = describes_pair(schema)
    described: Any = (RelatedSchema if both else Schema).load(schema, max_memory)
    options: dict[str, Any] = {"scheduler": scheduler, "rows_per_person": rows_per_person}
    if both:
        refuse_beside(**options, weigh=None if weigh == DEFAULT_WEIGH else weigh)
        options = {}
    else:
        options["weigh"] = weigh
    with io.progress_bars() as bars:
        steps = partial(bars, "audit")
        report = (audit_related if both else run_audit)(
            described, spec, pairs, seed, rhos, steps,
            max_memory=max_memory, engine=engine, neighbours=neighbours, **options,
        )  # fmt: skip
    failed = Counter(finding.check for finding in report.findings)
    checks = [(str(check), made, failed[check]) for check, made in report.made.items()]
    if as_json:
        io.emit_json(
            {
                "clean": report.clean,
                "pairs": report.pairs,
                "runs": report.runs,
                "draws": report.draws,
                "moved": report.moved,
                "checks": [{"check": c, "made": made, "failed": bad} for c, made, bad in checks],
                "findings": [
                    {"check": f.check, "run": f.where, "label": f.label} for f in report.findings
                ],
            }
        )
    else:
        _show(report, checks, "synthesize" if both else "synthesize and answer")
    if report.clean:
        return 0
    io.fail(
        f"{counted(len(report.findings), 'finding')}: neighbouring tables can be told apart: "
        "do not publish, and report this with the schema and the seed"
    )
    return 1


def _show(report: AuditReport, checks: list[tuple[str, int, int]], what: str) -> None:
    io.emit_rows(
        "Nothing found." if report.clean else "Found something.",
        [
            ("pairs", f"{counted(report.pairs, 'pair')} of generated neighbouring tables"),
            ("runs", f"{report.runs:,} of {what}, each replayed on the neighbour"),
            ("draws", f"{report.draws:,}, of which {report.moved:,} saw the row that differs"),
        ],
    )
    rows = [(check, str(failed), f"{made:,}") for check, made, failed in checks]
    io.emit_columns(["check", "failed", "made"], rows)
    if report.findings:
        io.emit_columns(
            ["failed check", "run", "draw or output"],
            [(f.check, f.where, f.label) for f in report.findings[:SHOWN]],
        )
