"""How often the forecast of measured marginals and unconnected columns comes true.

    python -m scripts.speed.forecast --data FOLDER

Each table of FOLDER (<name>/<name>.csv of codes with domain.json beside it), whole and cut to few
rows, and each made-up kind of table is run at three epsilons with fresh noise, all 2-way marginals,
and compared with the forecast for its number of rows. Writes results/forecast.*: marginals measured
and forecast; columns left unconnected, forecast to be, and both. Recall is both/left, precision
both/forecast; ``near`` is the share of runs whose marginals are within a quarter of the forecast.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from adaptive_qs.loop.expected import DEPENDENCE
from adaptive_qs.loop.forecast import COLUMN_SPREAD, PAIR_SPREAD, RUNS, LoopForecast
from adaptive_qs.loop.loop import run_loop
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import SystemEntropy
from adaptive_qs.release.bundle import unconnected_columns
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.workload.workload import Workload
from scripts import table_kinds
from scripts.results import write_results

EPSILONS = (0.1, 1.0, 10.0)
DELTA = 1e-9
FEW_ROWS = (3_000,)
NEAR = 0.25


def main(data: Annotated[Path, typer.Option(help="Folder of coded tables.")]) -> None:
    rows = []
    for name, table in tables(data):
        for epsilon in EPSILONS:
            rows.append({"table": name, "rows": table.num_rows, "epsilon": epsilon})
            rows[-1] |= compared(table, epsilon)
            print(rows[-1], flush=True)
    left, forecast, both = (sum(row[key] for row in rows) for key in ("left", "forecast", "both"))
    near = [abs(row["measured"] - row["expected"]) <= NEAR * row["expected"] for row in rows]
    numbers = {"near": np.mean(near), "recall": both / left, "precision": both / forecast}
    config = {"delta": DELTA, "dependence": [DEPENDENCE, COLUMN_SPREAD, PAIR_SPREAD], "loops": RUNS}
    write_results("forecast", {**numbers, "runs": rows}, config, None, rows)
    print(numbers)


def tables(folder: Path) -> Iterator[tuple[str, CodedTable]]:
    """Real tables, each also with few rows, and made-up ones."""
    for path in sorted(folder.glob("*/domain.json")):
        table = table_kinds.coded_table(path.parent)
        yield path.parent.name, table
        for few in FEW_ROWS:
            yield path.parent.name, _some(table, few)
    for kind in (
        table_kinds.weak_dependence,
        table_kinds.functional_dependence,
        table_kinds.sequences,
        table_kinds.many_attributes,
        table_kinds.long_tails,
    ):
        yield kind.__name__, kind(20_000)


def compared(table: CodedTable, epsilon: float) -> dict[str, Any]:
    """Marginals measured and forecast; columns left unconnected, forecast to be, and both."""
    workload = Workload.all_ways(table.domain, 2)
    rho = PrivacyTarget.of(epsilon, DELTA).rho
    mechanisms = Mechanisms(Budget(rho, filtered=True), SystemEntropy())
    result = run_loop(mechanisms.table(MarginalCounter(table)), workload, mechanisms, rho)
    columns = result.model.domain.columns
    left = set(unconnected_columns(workload, map(columns, result.model.estimates)))
    expected = LoopForecast(workload, rho)
    forecast = set(expected.columns(table.num_rows))
    return {
        "columns": len(table.domain),
        "measured": len({columns(r.clique) for r in result.rounds if len(r.clique) > 1}),
        "expected": expected.measured(table.num_rows).marginals,
        "left": len(left),
        "forecast": len(forecast),
        "both": len(left & forecast),
    }


def _some(table: CodedTable, rows: int) -> CodedTable:
    chosen = np.random.default_rng(0).choice(table.num_rows, rows, replace=False)
    return CodedTable.from_codes(table.domain, [column[chosen] for column in table.columns])


if __name__ == "__main__":
    typer.run(main)
