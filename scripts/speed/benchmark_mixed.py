"""Workloads of pairs and lighter triples, beside tables for pairs or triples alone.

    python -m scripts.speed.benchmark_mixed --data FOLDER

FOLDER is that of ``scripts.speed.benchmark_accuracy``. The objective of a workload is the mean
error of its marginals by their weights; each table is judged by the objectives of both mixed
workloads. Writes results/mixed.*.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from adaptive_qs.synthesizer import Synthesizer
from scripts.results import write_results
from scripts.speed.benchmark_accuracy import load, mean_l1

TABLES = ("adult", "br2000", "ma2019")
WEIGHTS = (0.1, 0.02)
"""Of triples, where pairs have 1."""
DELTA = 1e-9


def main(
    data: Annotated[Path, typer.Option(help="Folder of the real tables.")],
    table: Annotated[list[str], typer.Option(help="Tables.")] = [*TABLES],  # noqa: B006
    epsilon: Annotated[list[float], typer.Option(help="Budgets.")] = [1.0, 3.0, 10.0],  # noqa: B006
    seed: Annotated[list[int], typer.Option(help="Seeds.")] = [1],  # noqa: B006
    out: Annotated[str, typer.Option(help="Name of the results; empty writes none.")] = "mixed",
) -> None:
    rows = []
    for name in table:
        for each in epsilon:
            for one in seed:
                rows += compared(name, data, each, one)
    config = {"delta": DELTA, "noise": "exact, seeded"}
    if out:
        write_results(out, rows, config, seed, rows)


def compared(name: str, data: Path, epsilon: float, seed: int) -> list[dict[str, Any]]:
    """Errors of one table for each workload, and both objectives."""
    true, rows = load(name, data), []
    columns = len(true.domain)
    parts = {"pairs": [{"ways": [2]}], "triples": [{"ways": [3]}]}
    for weight in WEIGHTS:
        parts[f"pairs, triples {weight}"] = [{"ways": [2]}, {"ways": [3], "weight": weight}]
    for asked, part in parts.items():
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            workload = {"version": 1, "parts": part}
            model = Synthesizer(epsilon=epsilon, delta=DELTA, workload=workload, insecure_seed=seed)
            made = model.fit(true).release_.draw(seed=seed).coded()
        pairs, triples = mean_l1(true, made, 2), mean_l1(true, made, 3)
        row = {"table": name, "epsilon": epsilon, "seed": seed, "asked": asked}
        row |= {"pairs": round(pairs, 5), "triples": round(triples, 5)}
        for weight in WEIGHTS:
            shares = math.comb(columns, 2), weight * math.comb(columns, 3)
            both = (shares[0] * pairs + shares[1] * triples) / sum(shares)
            row[f"objective_{weight}"] = round(both, 5)
        rows.append(row | {"seconds": round(time.process_time() - start, 1)})
        typer.echo(json.dumps(rows[-1]))
    return rows


if __name__ == "__main__":
    typer.run(main)
