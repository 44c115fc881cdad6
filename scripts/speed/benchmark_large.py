"""Attributes with many values: seconds, memory and gap of `plan` and `answer`, by family and codes.

Every case is planned and answered in processes of its own, as a user would start them, with a
ceiling of memory. What is refused is written down with the reason.

    python -m scripts.speed.benchmark_large
    python -m scripts.speed.benchmark_large --most 10000
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from scripts.results import write_results

CODES = (1_000, 2_000, 4_096, 10_000, 30_000, 100_000)
FAMILIES = ("marginal", "prefix", "range", "circular")
SETS = {
    "one": [["code"]],
    "pair": [["code", "kind"]],
    "several": [["code", "kind"], ["code"], ["kind"]],
}
ROWS, EPSILON, CEILING = 20_000, 1.0, "3GB"
MOST_ANSWERED = 10_000_000
"""Answers beyond these are written for one case only: they say how fast files are written."""
WRITTEN = ("range", "one", 10_000)


def run(folder: Path, *arguments: str) -> tuple[dict[str, Any], str, float, float]:
    """What a command printed, its error, processor seconds and peak memory in MB."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, *arguments, "--json"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    *rest, figures = done.stderr.strip().splitlines()
    seconds, memory = map(float, figures.split())
    error = next((line for line in rest if line.startswith("error: ")), "")
    return json.loads(done.stdout or "{}"), error.removeprefix("error: "), seconds, memory


_MEASURED = """
import time, sys
from adaptive_qs.cli.entry import main
from adaptive_qs.machine import peak_memory_mb
try:
    code = main()
except SystemExit as stop:
    code = stop.code
print(time.process_time(), peak_memory_mb(), file=sys.stderr)
sys.exit(code)
"""


def cases(most: int) -> Iterator[tuple[str, str, int]]:
    """Family, sets and codes."""
    for family in FAMILIES:
        for sets in SETS:
            yield from ((family, sets, codes) for codes in CODES if codes <= most)


def measured(folder: Path, family: str, sets: str, codes: int) -> dict[str, Any]:
    """One case."""
    kinds = {"name": "kind", "type": "categorical", "values": list("abcde"), "ordered": True}
    code = {"name": "code", "type": "integer", "min": 0, "max": codes - 1}
    (folder / "s.json").write_text(json.dumps({"version": 1, "columns": [code, kinds]}))
    part = {"attributes": SETS[sets], "queries": family}
    (folder / "w.json").write_text(json.dumps({"version": 1, "parts": [part]}))
    rng = np.random.default_rng(0)
    frame = {"code": rng.integers(0, codes, ROWS), "kind": rng.choice(list("abcde"), ROWS)}
    pd.DataFrame(frame).to_csv(folder / "d.csv", index=False)
    common = ["--schema", "s.json", "--workload", "w.json", "--epsilon", str(EPSILON)]
    common += ["--max-memory", CEILING]
    planned, error, seconds, memory = run(folder, "plan", *common)
    row: dict[str, Any] = {
        "family": family, "sets": sets, "codes": codes, "queries": planned.get("queries"),
        "mechanism": planned.get("mechanism"), "rmse": planned.get("rmse"),
        "gap": planned.get("gap"), "plan_cpu_seconds": round(seconds, 2),
        "plan_mb": round(memory), "forecast_mb": planned.get("forecast", {}).get("memory_mb"),
        "answer_cpu_seconds": None, "answer_mb": None, "answer_rmse": None, "refused": error,
    }  # fmt: skip
    few = (planned.get("queries") or 0) <= MOST_ANSWERED
    if planned and (few or (family, sets, codes) == WRITTEN):
        answer = ["answer", "d.csv", *common, "--out", "a.parquet", "--force"]
        found, error, seconds, memory = run(folder, *answer)
        row |= {"answer_cpu_seconds": round(seconds, 2), "answer_mb": round(memory)}
        row |= {"answer_rmse": found.get("rmse"), "refused": error}
    return row


def main(most: Annotated[int, typer.Option(help="Most codes.")] = CODES[-1]) -> None:
    """Measure all cases and write the results."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for family, sets, codes in cases(most):
            rows.append(measured(Path(folder), family, sets, codes))
            typer.echo(json.dumps(rows[-1]))
    config = {"rows": ROWS, "epsilon": EPSILON, "max_memory": CEILING}
    write_results("benchmark_large", rows, config, [0], rows)


if __name__ == "__main__":
    typer.run(main)
