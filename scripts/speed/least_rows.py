"""From how many rows on a table shows more than single columns, as ``plan`` forecasts it.

For tables of so many equal columns, of so many values each, at three budgets: about how many rows
it takes before most columns are measured in some pair. No table is read. Writes
results/least_rows.*; an empty number of rows is more than 300 million.

    python -m scripts.speed.least_rows
"""

from __future__ import annotations

import math
from statistics import median_high

import typer

from adaptive_qs.domain import Domain
from adaptive_qs.loop.expected import DEPENDENCE
from adaptive_qs.loop.forecast import ROWS, LoopForecast
from adaptive_qs.privacy.accounting import compute_rho
from adaptive_qs.workload.workload import Workload
from scripts.results import write_results

EPSILONS = (0.1, 1.0, 10.0)
DELTA = 1e-9
COLUMNS = (5, 15, 30)
VALUES = (2, 10, 50, 200)


def main() -> None:
    rows = []
    for columns in COLUMNS:
        for values in VALUES:
            workload = Workload.all_ways(Domain.from_sizes(equal(columns, values)), 2)
            row: dict[str, int | None] = {"columns": columns, "values": values}
            for epsilon in EPSILONS:
                row[f"epsilon_{epsilon:g}"] = least_rows(workload, epsilon)
            rows.append(row)
            typer.echo(row)
    config = {"delta": DELTA, "ways": 2, "dependence": DEPENDENCE, "most rows": ROWS[-1]}
    write_results("least_rows", rows, config, None, rows)


def equal(columns: int, values: int) -> dict[str, int]:
    """Sizes of so many columns."""
    return {f"c{number}": values for number in range(columns)}


def least_rows(workload: Workload, epsilon: float) -> int | None:
    """Rows that the median column takes; None where no table has as many."""
    least = LoopForecast(workload, compute_rho(epsilon, DELTA)).least_rows()
    rows = median_high([math.inf if rows is None else rows for rows in least.values()])
    return None if rows == math.inf else int(rows)


if __name__ == "__main__":
    typer.run(main)
