"""Time and memory of the whole `evaluate` command on Adult with all 3-way marginals.

Every cell is the command as a user would start it, in a new process: the quick measures, and the
report with its models. The synthetic table is made by `synthesize` at epsilon 1.

    python -m scripts.speed.benchmark_evaluate
    python -m scripts.speed.benchmark_evaluate --coded path/to/adult.csv path/to/domain.json
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from adaptive_qs.table.files import sample_dataset
from scripts.results import run_program, write_results

MOST_SECONDS, MOST_MEMORY_MB = 20, 2048
"""Of the quick measures."""
MOST_REPORT_MB = 3
WAYS, WORKERS, EPSILON = 3, 2, 1.0


def measured(table: str, data: Path, schema: Path, folder: Path, runs: int) -> list[dict]:
    """One row for the quick measures and one with the report; the slowest of the runs."""
    synthetic, report = folder / f"{table}.csv", folder / f"{table}.html"
    common = ["--schema", schema, "--ways", WAYS]
    made = ["--epsilon", EPSILON, "--out", synthetic, "--force"]
    run_program("synthesize", data, *common, *made)
    evaluate = ["evaluate", data, synthetic, *common, "--workers", WORKERS]
    run_program(*evaluate)  # compiles the kernels, once for each installation
    rows = []
    for parts, more in (("quick", []), ("report", ["--report", report, "--force"])):
        cells = [run_program(*evaluate, *more) for _ in range(runs)]
        found, quick = cells[0][0], parts == "quick"
        row = {
            "table": table,
            "parts": parts,
            "rows": found["rows_compared"]["true"],
            "columns": len(found["association"]["names"]),
            "marginals": len(found["per_clique"]),
            "mean_l1": found["workload_error"]["mean_l1"],
            "seconds_max": max(seconds for _, seconds, _ in cells),
            "seconds_target": MOST_SECONDS if quick else None,
            "peak_memory_mb_max": max(memory for _, _, memory in cells),
            "peak_memory_mb_target": MOST_MEMORY_MB if quick else None,
            "report_mb": None if quick else report.stat().st_size / 1e6,
            "report_mb_target": None if quick else MOST_REPORT_MB,
        }
        limited = ("seconds_max", "peak_memory_mb_max", "report_mb")
        targets = {name: row[f"{name.removesuffix('_max')}_target"] for name in limited}
        row["met"] = all(most is None or row[name] <= most for name, most in targets.items())
        typer.echo(json.dumps(row))
        rows.append(row)
    return rows


def main(
    coded: Annotated[
        tuple[Path, Path] | None, typer.Option(help="Coded Adult as CSV, and its domain sizes.")
    ] = None,
    runs: Annotated[int, typer.Option(help="Runs per cell; the slowest counts.")] = 3,
) -> None:
    """Write results/benchmark_evaluate.{json,csv}."""
    sample = sample_dataset()
    tables = {"Adult": (sample.data, sample.schema)}
    if coded is not None:
        tables["Adult, coded"] = coded
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for table, (data, schema) in tables.items():
            rows += measured(table, data, schema, Path(folder), runs)
    config = {"ways": WAYS, "workers": WORKERS, "epsilon": EPSILON, "runs": runs}
    write_results("benchmark_evaluate", {"cells": rows}, config, [0], rows)


if __name__ == "__main__":
    typer.run(main)
