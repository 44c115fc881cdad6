"""Rows of a release that meet a condition: processor seconds beside those of any rows.

Each table is drawn by `sample` in a process of its own, from a release of the shipped sample.

    python -m scripts.speed.benchmark_steered
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import pandas as pd
import typer

from adaptive_qs.table.files import sample_dataset
from scripts.results import timed_program, write_results

EPSILON, ROWS, SEEDS = 1.0, 1_000, (1, 2, 3)
MOST_TIMES = 2.0
"""How many times the seconds of any rows those of a cell of a thousandth may take."""
CASES: dict[str, dict[str, str]] = {
    "any rows": {},
    "a half": {"where": "gender = Female or age >= 45"},
    "a hundredth": {"where": "gender = Female and age >= 70"},
    "a thousandth": {"where": "gender = Female and age >= 70 and income = '>50K'"},
    "a hundred thousandth": {
        "where": "gender = Female and age >= 80 and income = '>50K' and race = Other"
    },
    "two apart": {
        "where": "(gender = Female and age >= 80) or (gender = Male and age < 18 and race = Black)"
    },
}


def measured(release: Path, case: str, rows: int) -> dict[str, Any]:
    """Median seconds of a case over all seeds, and its share of all rows by the model."""
    options = [word for name, value in CASES[case].items() for word in (f"--{name}", value)]
    seconds, shares, kept = [], [], []
    for seed in SEEDS:
        out = release.with_name("table.parquet")
        arguments = ["sample", release, *options, "--rows", rows, "--seed", seed]
        printed, cpu, _, memory = timed_program(*arguments, "--out", out, "--force", "--workers", 1)
        seconds.append(cpu)
        shares.append(printed["share"])
        kept.append(int(pd.read_parquet(out).shape[0]))
    assert set(kept) == {rows}
    return {
        "case": case, **{"where": "", **CASES[case]},
        "share": round(median(shares), 7), "share_least": round(min(shares), 7),
        "share_most": round(max(shares), 7), "cpu_seconds": round(median(seconds), 2),
        "memory_mb": round(memory),
    }  # fmt: skip


def main(rows: Annotated[int, typer.Option(help="Rows of each table.")] = ROWS) -> None:
    """Measure all cases and write the results."""
    data = sample_dataset()
    with tempfile.TemporaryDirectory() as folder:
        release = Path(folder, "release.zip")
        made = ["--schema", data.schema, "--epsilon", EPSILON, "--delta", 1e-9, "--ways", 2]
        timed_program("synthesize", data.data, *made, "--release", release)
        timed_program("sample", release, "--rows", 1, "--out", Path(folder, "warm.csv"))
        found = []
        for case in CASES:
            row = measured(release, case, rows)
            times = row["cpu_seconds"] / (found[0] if found else row)["cpu_seconds"]
            found.append({**row, "times": round(times, 2), "to_reach": MOST_TIMES})
            typer.echo(json.dumps(found[-1]))
    config = {"epsilon": EPSILON, "delta": 1e-9, "ways": 2, "rows": rows, "workers": 1}
    write_results("benchmark_steered", found, config, list(SEEDS), found)


if __name__ == "__main__":
    typer.run(main)
