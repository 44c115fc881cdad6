"""How near the two kinds of counts in a release are to the truth.

For each table of FOLDER (<name>/<name>.csv of codes with domain.json beside it), ε and seed: mean
L1 distance to the true marginals, over all pairs, of the noisy estimates (as shares of the noisy
number of rows), of the same projected to counts that are not negative, of the fitted model, and of
a synthetic table. Writes results/fitted_marginals.*.

    python -m scripts.speed.benchmark_marginals --data FOLDER --table adult
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.generate.rows import fit_model
from adaptive_qs.generate.targets import make_target
from adaptive_qs.loop.budget import LoopSettings
from adaptive_qs.table.coded import CodedTable, MarginalCounter
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

Shares = Callable[[Clique], NDArray[np.float64]]


def main(
    data: Annotated[Path, typer.Option(help="Folder of coded tables.")],
    table: Annotated[list[str], typer.Option(help="Tables.")],
    epsilon: Epsilons = [0.1, 1.0, 10.0],  # noqa: B006
    seeds: int = 2,
) -> None:
    rows: list[dict[str, Any]] = []
    for name in table:
        true = coded_table(data / name)
        for each in epsilon:
            for seed in range(1, seeds + 1):
                rows.append({"table": name, "epsilon": each, "seed": seed})
                rows[-1] |= errors(true, each, seed)
                typer.echo(json.dumps(rows[-1]))
    config = {"delta": DELTA, "ways": 2, "noise": "exact, seeded"}
    write_results("fitted_marginals", {"cells": rows}, config, list(range(1, seeds + 1)), rows)


def errors(true: CodedTable, epsilon: float, seed: int) -> dict[str, float]:
    """Errors of all kinds of counts from one run of the loop."""
    workload = Workload.all_ways(true.domain, 2)
    loop = measured(true, workload, epsilon, seed, LoopSettings())
    model, cliques = loop.model, [past.clique for past in loop.rounds]
    fitted = fit_model(
        model, cliques, workload.cliques, true.num_rows, seed, DEFAULT, WORKERS,
        requested=workload.cliques,
    )  # fmt: skip
    total = max(model.total, 1.0)
    kinds: dict[str, Shares] = {
        "measured": lambda clique: model.marginal(clique) / total,
        "projected": lambda clique: make_target(model, clique).counts / total,
        "fitted": fitted.marginal,
    }
    found = {name: mean_l1(true, workload, shares) for name, shares in kinds.items()}
    made = table_of(loop, workload, seed, DEFAULT)
    return {**found, "synthetic_table": error_of(true, made, workload)}


def mean_l1(true: CodedTable, workload: Workload, shares: Shares) -> float:
    """Mean L1 distance to the true shares over the workload's marginals."""
    counter = MarginalCounter(true)
    distances = [
        np.abs(counter.count(clique) / true.num_rows - shares(clique)).sum()
        for clique in workload.cliques
    ]
    return round(float(np.mean(distances)), 4)


if __name__ == "__main__":
    typer.run(main)
