"""`audit`: neighbouring tables give the same bytes when the noise is the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from adaptive_qs.arguments import natural_number, positive_integer
from adaptive_qs.cli import io
from adaptive_qs.cli.options import JsonOptions, SchemaOptions, WorkloadOptions, workload_spec
from adaptive_qs.errors import InputError
from adaptive_qs.pages.words import counted
from adaptive_qs.run.options import MACHINE, CountingOptions, Option, PromiseOptions, UnitOptions

if TYPE_CHECKING:
    from adaptive_qs.audit.replay import AuditReport

SHOWN = 20
"""Findings listed; the others are counted."""
APART = 100
"""How much larger the second of two budgets is."""
MOST_PAIRS = 100_000
MOST_RHO = 1e5
"""Above it `answer` has no noise to add."""


def _pairs(name: str, value: Any) -> int:
    if (number := positive_integer(name, value)) > MOST_PAIRS:
        raise InputError(f"{name} is {number:,}. Use at most {MOST_PAIRS:,}.")
    return number


@dataclass(kw_only=True)
class Options(JsonOptions, WorkloadOptions, CountingOptions, UnitOptions,
              PromiseOptions, SchemaOptions):  # fmt: skip
    """The options of `audit`."""

    pairs: Annotated[int, Option("Pairs of neighbouring tables.", "N", check=_pairs)] = 20
    seed: Annotated[int, Option("Seed of the generated rows.", "N", check=natural_number)] = 0
    max_memory: Annotated[str, Option(
        "Maximum memory of a run.", "SIZE", MACHINE)] = "2GB"  # fmt: skip


def audit(*, options: Options) -> int:
    """Check that neighbouring tables give the same bytes when the noise is the same.

    Runs synthesize and answer on generated rows of your schema, at the given budget and at 100
    times as much (by default at rho 0.02 and 5); only synthesize for a set of tables. Reads no
    private data and spends nothing.
    """
    schema, max_memory = options.schema, options.max_memory
    epsilon, delta, rho = options.epsilon, options.delta, options.rho
    if schema is None:
        raise InputError("No schema is set. Use --schema FILE.")
    spec = workload_spec(options.workload, options.ways)

    from adaptive_qs.audit.audit import RHOS
    from adaptive_qs.audit.audit import audit as run_audit
    from adaptive_qs.run.budget import PrivacyTarget
    from adaptive_qs.table.tables import TableSet

    rhos = RHOS
    if epsilon is not None or rho is not None or delta is not None:
        low = PrivacyTarget.of(epsilon, delta, rho).rho
        rhos = low, min(APART * low, max(MOST_RHO, low))
    described = TableSet.load(schema, max_memory)
    names = "engine", "scheduler", "rows_per_person", "neighbours"
    with io.progress_bars() as bars:
        report = run_audit(
            described, spec, options.pairs, options.seed, rhos, partial(bars, "audit"),
            max_memory=max_memory, **io.pick(options, *names),
        )  # fmt: skip
    failed = Counter(finding.check for finding in report.findings)
    checks = [(str(check), made, failed[check]) for check, made in report.made.items()]
    if options.as_json:
        io.emit_json(_json(report, checks))
    else:
        _show(report, checks, "synthesize" if described.is_set else "synthesize and answer")
    if report.clean:
        return 0
    io.fail(
        f"{counted(len(report.findings), 'finding')}: neighbouring tables can be distinguished. "
        "Do not publish, and report this with the schema and the seed."
    )
    return 1


def _json(report: AuditReport, checks: list[tuple[str, int, int]]) -> dict[str, Any]:
    return {
        **io.pick(report, "clean", "pairs", "runs", "draws", "moved"),
        "checks": [{"check": c, "made": made, "failed": bad} for c, made, bad in checks],
        "findings": [{"check": f.check, "run": f.where, "label": f.label} for f in report.findings],
    }


def _show(report: AuditReport, checks: list[tuple[str, int, int]], what: str) -> None:
    io.emit_rows(
        "No differences found." if report.clean else "Differences found.",
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
