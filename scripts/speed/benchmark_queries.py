"""Tables for workloads of prefixes and ranges, beside tables for the cells of the same marginals.

    python -m scripts.speed.benchmark_queries --data FOLDER

FOLDER is that of ``scripts.speed.benchmark_accuracy``. Every workload asks for the cells of all
pairs, and once more for the pairs of some ordered columns: their cells, so that weights are the
same, or their prefixes, or ranges. Means of several runs of `Synthesizer` with noise from the
system, and their standard errors. Writes results/benchmark_queries.*.
"""

from __future__ import annotations

import json
import time
import warnings
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from scripts.results import write_results
from scripts.speed.benchmark_accuracy import DELTA, NUMERIC, boxes, corners, load, mean_l1

COLUMNS = {
    "adult": NUMERIC,
    "ma2019": ("AGEP", "DENSITY", "EDU", "PINCP", "PINCP_DECILE", "POVPIP"),
}
"""Ordered columns on whose pairs prefixes and ranges are asked."""
EPSILON = 1.0
FAMILIES = ("marginal", "prefix", "range")


def main(
    data: Annotated[Path, typer.Option(help="Folder of the real tables.")],
    runs: Annotated[int, typer.Option(min=2, help="Runs for each row.")] = 8,
) -> None:
    """Write results/benchmark_queries.{csv,json}."""
    rows = []
    for table, columns in COLUMNS.items():
        true = load(table, data)
        for family in FAMILIES:
            rows.append(measured(true, table, columns, family, runs))
            typer.echo(json.dumps(rows[-1]))
    config = {"runs": runs, "settings": "default", "noise": "operating system entropy"}
    write_results("benchmark_queries", rows, config, None, rows)


def measured(
    true: CodedTable, table: str, columns: tuple[str, ...], family: str, runs: int
) -> dict[str, Any]:
    """One row: errors of the prefixes and ranges of pairs, and of the prefixes of columns (mean
    absolute, in rows), and of all pairs (L1)."""
    names = true.domain.names
    frame = pd.DataFrame(dict(zip(names, true.columns)))
    pairs = list(combinations(true.domain.clique(columns), 2))
    asked = [true.domain.clique_names(pair) for pair in pairs]
    workload = {"version": 1, "parts": [{"ways": [2]}, {"attributes": asked, "queries": family}]}
    exact, errors = MarginalCounter(true), []
    for _ in range(runs):
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = Synthesizer(epsilon=EPSILON, delta=DELTA, workload=workload)
            sample = model.fit(frame, schema=dict(zip(names, true.domain.sizes))).sample()
        seconds = time.process_time() - start
        made = CodedTable.from_codes(true.domain, [sample[name].to_numpy() for name in names])
        counter = MarginalCounter(made)
        off = [exact.count(pair) - counter.count(pair) for pair in pairs]
        singles = [exact.count((i,)) - counter.count((i,)) for i in true.domain.clique(columns)]
        errors.append(
            (
                np.mean([np.abs(corners(d)).mean() for d in off]),
                np.mean([np.abs(boxes(d)).mean() for d in off]),
                np.mean([np.abs(np.cumsum(d)).mean() for d in singles]),
                mean_l1(true, made, 2),
                seconds,
            )
        )
    means, spread = np.mean(errors, axis=0), np.std(errors, axis=0, ddof=1) / runs**0.5
    found: dict[str, Any] = {"table": table, "epsilon": EPSILON, "asked": family}
    heads = ("prefixes_of_pairs", "ranges_of_pairs", "prefixes_of_columns", "l1", "seconds")
    for head, mean, error in zip(heads, means.tolist(), spread.tolist()):
        found[head] = float(f"{mean:.4g}")
        found[f"{head}_error"] = float(f"{error:.2g}")
    return found


if __name__ == "__main__":
    typer.run(main)
