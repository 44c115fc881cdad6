"""Time, memory and error of the whole `synthesize` command on coded Adult.

Each cell of the table is the median of several runs of the command as a user would start it
(a new process, exact noise from the operating system), scored as the mean over all k-way
marginals of the L1 distance between the normalised true and synthetic tables.

    python -m scripts.speed.benchmark_synthesize path/to/adult.csv path/to/domain.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from adaptive_qs.evaluation.marginals import workload_error
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload
from scripts.results import write_results

TARGETS = {  # (ways, epsilon): (table error, seconds, peak memory in MB)
    (2, 0.1): (0.205, 30, 1500),
    (2, 1.0): (0.080, 30, 1500),
    (2, 10.0): (0.046, 30, 1500),
    (3, 0.1): (0.36, 60, 3000),
    (3, 1.0): (0.183, 60, 3000),
    (3, 10.0): (0.130, 60, 3000),
}
DELTA = 1e-9


def run_command(data: Path, schema: Path, ways: int, epsilon: float, out: Path) -> dict[str, float]:
    """One run in its own process: wall seconds, peak memory of that process, and its report."""
    command = [sys.executable, "-m", "adaptive_qs", "synthesize", str(data)]
    command += ["--schema", str(schema), "--ways", str(ways), "--epsilon", str(epsilon)]
    command += ["--delta", str(DELTA), "--out", str(out), "--json"]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    report = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"the command failed with status {status}")
    return {
        "seconds": time.perf_counter() - start,
        "peak_memory_mb": usage.ru_maxrss / 1024,
        "rho_spent_share": report["rho_spent"] / report["rho"],
        "rounds": report["rounds"],
        **{f"seconds_{phase}": value for phase, value in report["seconds"].items()},
    }


def main(
    data: Annotated[Path, typer.Argument(help="Coded Adult as CSV.")],
    schema: Annotated[Path, typer.Argument(help="Its domain sizes or schema as JSON.")],
    runs: Annotated[int, typer.Option(help="Runs per cell.")] = 3,
) -> None:
    """Write results/benchmark_synthesize.{json,csv}."""
    description = Schema.load(schema)
    true = read_table(data, description)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for (ways, epsilon), (target, most_seconds, most_memory) in TARGETS.items():
            workload = Workload.all_ways(true.domain, ways)
            cells = []
            for run in range(runs):
                out = Path(folder) / f"{ways}-{epsilon}-{run}.csv"
                cell = run_command(data, schema, ways, epsilon, out)
                synthetic = read_table(out, description)
                cell["error"] = workload_error(true, synthetic, workload).mean_l1
                cells.append(cell)
            row = {
                "ways": ways,
                "epsilon": epsilon,
                "error_median": median(c["error"] for c in cells),
                "error_min": min(c["error"] for c in cells),
                "error_max": max(c["error"] for c in cells),
                "error_target": target,
                "seconds_max": max(c["seconds"] for c in cells),
                "seconds_target": most_seconds,
                "peak_memory_mb_max": max(c["peak_memory_mb"] for c in cells),
                "peak_memory_mb_target": most_memory,
                "rounds_median": median(c["rounds"] for c in cells),
                "loop_seconds_max": max(c["seconds_loop"] for c in cells),
            }
            row["met"] = (
                row["error_median"] <= target
                and row["seconds_max"] <= most_seconds
                and row["peak_memory_mb_max"] <= most_memory
            )
            rows.append(row)
            typer.echo(json.dumps(row))
    config = {
        "delta": DELTA,
        "runs": runs,
        "noise": "operating system entropy",
        "settings": "default",
    }
    write_results("benchmark_synthesize", {"cells": rows}, config, None, rows)


if __name__ == "__main__":
    typer.run(main)
