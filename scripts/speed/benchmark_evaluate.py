"""Time and memory of the whole `evaluate` command on Adult with all 3-way marginals.

Every cell is the command as a user would start it, in a new process: the quick measures, and the
report with its models. The synthetic table is made by `synthesize` at epsilon 1.

    python -m scripts.speed.benchmark_evaluate
    python -m scripts.speed.benchmark_evaluate --coded path/to/adult.csv path/to/domain.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from adaptive_qs.table.files import sample_dataset
from scripts.results import write_results

MOST_SECONDS, MOST_MEMORY_MB = 20, 2048
"""Of the quick measures."""
MOST_REPORT_MB = 3
WAYS, WORKERS, EPSILON = 3, 2, 1.0


def run_command(arguments: list[str]) -> tuple[dict, float, float]:
    """What a command printed, its wall seconds and the peak memory of its process in MB."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "adaptive_qs", *arguments, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    printed = json.loads(process.stdout.read() or "{}")
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{arguments[0]} failed with status {status}")
    return printed, time.perf_counter() - start, usage.ru_maxrss / 1024


def measured(table: str, data: Path, schema: Path, folder: Path, runs: int) -> list[dict]:
    """One row for the quick measures and one with the report; the slowest of the runs."""
    synthetic, report = folder / f"{table}.csv", folder / f"{table}.html"
    common = ["--schema", str(schema), "--ways", str(WAYS)]
    run_command(["synthesize", str(data), *common, "--epsilon", str(EPSILON), "--out",
                 str(synthetic), "--force"])  # fmt: skip
    evaluate = ["evaluate", str(data), str(synthetic), *common, "--workers", str(WORKERS)]
    run_command(evaluate)  # compiles the kernels, once for each installation
    rows = []
    for parts, more in (("quick", []), ("report", ["--report", str(report), "--force"])):
        cells = [run_command([*evaluate, *more]) for _ in range(runs)]
        found = cells[0][0]
        row = {
            "table": table,
            "parts": parts,
            "rows": found["rows_compared"]["true"],
            "columns": len(found["association"]["names"]),
            "marginals": len(found["per_clique"]),
            "mean_l1": found["workload_error"]["mean_l1"],
            "seconds_max": max(seconds for _, seconds, _ in cells),
            "seconds_target": MOST_SECONDS if parts == "quick" else None,
            "peak_memory_mb_max": max(memory for _, _, memory in cells),
            "peak_memory_mb_target": MOST_MEMORY_MB if parts == "quick" else None,
            "report_mb": report.stat().st_size / 1e6 if parts == "report" else None,
            "report_mb_target": MOST_REPORT_MB if parts == "report" else None,
        }
        limits = (
            (row["seconds_max"], row["seconds_target"]),
            (row["peak_memory_mb_max"], row["peak_memory_mb_target"]),
            (row["report_mb"], row["report_mb_target"]),
        )
        row["met"] = all(most is None or value <= most for value, most in limits)
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
