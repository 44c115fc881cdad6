"""Time, memory and error of the whole `synthesize` command on coded Adult.

Each cell of the table is the median of several runs of the command as a user would start it
(a new process, exact noise from the operating system), scored as the mean over all k-way
marginals of the L1 distance between the normalised true and synthetic tables.

    python -m scripts.speed.benchmark_synthesize path/to/adult.csv path/to/domain.json
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from adaptive_qs.evaluation.marginals import workload_error
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload
from scripts.results import run_program, write_results

TARGETS = {  # (ways, epsilon): (table error, seconds, peak memory in MB)
    (2, 0.1): (0.205, 30, 1500),
    (2, 1.0): (0.080, 30, 1500),
    (2, 10.0): (0.046, 30, 1500),
    (3, 0.1): (0.36, 60, 3000),
    (3, 1.0): (0.183, 60, 3000),
    (3, 10.0): (0.130, 60, 3000),
}
DELTA = 1e-9


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
                report, seconds, memory = run_program(
                    *("synthesize", data, "--schema", schema, "--ways", ways),
                    *("--epsilon", epsilon, "--delta", DELTA, "--out", out),
                )
                error = workload_error(true, read_table(out, description), workload).mean_l1
                loop = report["seconds"]["loop"]
                cells.append((error, seconds, memory, report["rounds"], loop))
            errors, each_seconds, memories, rounds, loops = zip(*cells)
            row = {
                "ways": ways,
                "epsilon": epsilon,
                "error_median": median(errors),
                "error_min": min(errors),
                "error_max": max(errors),
                "error_target": target,
                "seconds_max": max(each_seconds),
                "seconds_target": most_seconds,
                "peak_memory_mb_max": max(memories),
                "peak_memory_mb_target": most_memory,
                "rounds_median": median(rounds),
                "loop_seconds_max": max(loops),
            }
            row["met"] = (
                row["error_median"] <= target
                and row["seconds_max"] <= most_seconds
                and row["peak_memory_mb_max"] <= most_memory
            )
            rows.append(row)
            typer.echo(json.dumps(row))
    config = {"delta": DELTA, "runs": runs, "settings": "default"}
    config["noise"] = "operating system entropy"
    write_results("benchmark_synthesize", {"cells": rows}, config, None, rows)


if __name__ == "__main__":
    typer.run(main)
