"""`evaluate TRUE SYNTHETIC`: an owner-only comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adaptive_qs.cli import options
from adaptive_qs.cli.output import (
    counted,
    emit_columns,
    emit_json,
    emit_rows,
    progress_bars,
    warn,
)
from adaptive_qs.errors import InputError

WORST_SHOWN = 10


def evaluate(
    true: Annotated[Path, typer.Argument(metavar="TRUE", help="The private table.")],
    synthetic: Annotated[Path, typer.Argument(metavar="SYNTHETIC", help="A synthetic table.")],
    schema: options.SchemaPath = None,
    workload: options.WorkloadPath = None,
    ways: options.Ways = None,
    as_json: options.Json = False,
    workers: options.Workers = None,
) -> None:
    """Compare a synthetic table with the true one; the result is for the owner only.

    A release bundle will do as --schema: it holds the schema with whatever was learnt.

    The error of a marginal is the sum over its cells of |a/Na - b/Nb|, from 0 (equal) to 2.
    """
    if schema is None:
        raise InputError("no --schema was given: name the schema of both tables")
    spec = options.workload_spec(workload, ways)

    from adaptive_qs.data.encode import encode_file
    from adaptive_qs.data.schema import Schema
    from adaptive_qs.evaluation.marginals import workload_error
    from adaptive_qs.evaluation.pair import OWNER_ONLY
    from adaptive_qs.machine import plan_workers
    from adaptive_qs.synthesizer.pipeline import resolve_workload

    threads = plan_workers(workers)
    described = Schema.load(schema)
    wanted = resolve_workload(spec, described.domain())
    with progress_bars() as bars:
        first, second = (
            encode_file(path, described, lambda done, total: bars("read", done, total))
            for path in (true, synthetic)
        )
        result = workload_error(
            first, second, wanted, threads, lambda done, total: bars("evaluate", done, total)
        )
    if as_json:
        per_clique = [
            {"attributes": list(clique.attributes), "l1": clique.l1, "weight": clique.weight}
            for clique in result.per_clique
        ]
        emit_json(
            {
                "workload_error": {"mean_l1": result.mean_l1, "max_l1": result.max_l1},
                "per_clique": per_clique,
                "notice": OWNER_ONLY,
            }
        )
        return
    warn(OWNER_ONLY)
    emit_rows(
        f"L1 distance of {counted(len(wanted), 'marginal')}: 0 is equal, 2 has nothing in common",
        [("mean", f"{result.mean_l1:.4f}"), ("largest", f"{result.max_l1:.4f}")],
    )
    worst = sorted(result.per_clique, key=lambda clique: -clique.l1)[:WORST_SHOWN]
    emit_columns(
        ["worst marginals", "error"],
        [(" x ".join(clique.attributes), f"{clique.l1:.4f}") for clique in worst],
    )
