"""What a target column brings to models trained on the table, and what it costs the other pairs.

For each table of FOLDER named in ``TARGETS`` (<name>/<name>.csv of codes with domain.json beside
it), ε and seed, two thirds of the rows are made into a table of all pairs, once as they are and
once serving the target. Gradient boosting learns from true and from synthetic rows and is judged
on the other third. Errors are mean L1 distances between normalised marginals. Writes
results/target.*.

    python -m scripts.speed.benchmark_target --data FOLDER
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from adaptive_qs.evaluation.models import ModelSettings, measure_utility
from adaptive_qs.loop.budget import LoopSettings
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.workload.workload import Workload
from scripts.results import write_results
from scripts.speed.benchmark_kinds import (
    DEFAULT,
    DELTA,
    WORKERS,
    Epsilons,
    error_of,
    measured,
    table_of,
)
from scripts.table_kinds import coded_table

TARGETS = {"adult": "income>50K", "br2000": "c13", "nltcs": "c15"}
"""The column to predict."""
TRAINED = 20_000
"""Rows at most that a model is trained on."""


def main(
    data: Annotated[Path, typer.Option(help="Folder of coded tables.")],
    table: Annotated[list[str] | None, typer.Option(help="Tables; all of them by default.")] = None,
    epsilon: Epsilons = [1.0, 10.0],  # noqa: B006
    seeds: int = 2,
) -> None:
    rows: list[dict[str, Any]] = []
    for name in table or TARGETS:
        train, test = split(coded_table(data / name))
        for each in epsilon:
            for seed in range(1, seeds + 1):
                for served in (False, True):
                    rows.append({"table": name, "epsilon": each, "seed": seed, "served": served})
                    rows[-1] |= compared(train, test, TARGETS[name], each, seed, served)
                    typer.echo(json.dumps(rows[-1]))
    config = {"delta": DELTA, "ways": 2, "trained rows": TRAINED, "noise": "exact, seeded"}
    write_results("target", {"cells": rows}, config, list(range(1, seeds + 1)), rows)


def split(table: CodedTable) -> tuple[CodedTable, CodedTable]:
    """Two thirds of the rows at random, and the others."""
    order = np.random.default_rng(0).permutation(table.num_rows)
    cut = 2 * table.num_rows // 3

    def some(rows: np.ndarray) -> CodedTable:
        return CodedTable.from_codes(table.domain, [column[rows] for column in table.columns])

    return some(order[:cut]), some(order[cut:])


def compared(
    train: CodedTable, test: CodedTable, target: str, epsilon: float, seed: int, served: bool
) -> dict[str, Any]:
    """One table: AUROC of models of true and of synthetic rows, and errors of pairs."""
    pairs = Workload.all_ways(train.domain, 2)
    workload = pairs.serving(target) if served else pairs
    start = time.perf_counter()
    loop = measured(train, workload, epsilon, seed, LoopSettings())
    made = table_of(loop, workload, seed, DEFAULT)
    seconds = time.perf_counter() - start
    settings = ModelSettings(target, seed, repeats=1, max_rows=TRAINED)
    utility = measure_utility(train, made, settings, WORKERS, held_out=test)
    (attribute,) = train.domain.clique([target])
    own = {clique: 1.0 for clique in pairs.cliques if attribute in clique}
    chosen = {loop.model.domain.columns(r.clique) for r in loop.rounds}
    return {
        "auroc_true": round(utility.real.mean, 4),
        "auroc_table": round(utility.synthetic.mean, 4),
        "error_pairs": error_of(train, made, pairs),
        "error_target_pairs": error_of(train, made, Workload(train.domain, own)),
        "measured_with_target": len({clique for clique in chosen if attribute in clique}),
        "rounds": len(loop.rounds),
        "seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    typer.run(main)
