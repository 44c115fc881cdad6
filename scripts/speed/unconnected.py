"""How often the forecast of unconnected columns comes true.

    python -m scripts.speed.unconnected --data FOLDER

Each table of FOLDER (<name>/<name>.csv of codes with domain.json beside it), whole and cut to few
rows, and each made-up kind of table is run at five epsilons with fresh noise, all 2-way marginals,
and compared with the forecast for its number of rows. A column counts as unconnected where most of
the runs left it so. Writes results/unconnected.*: columns left unconnected, forecast to be, and
both; recall is both/left, precision both/forecast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from adaptive_qs.loop.expected import DEPENDENCE
from adaptive_qs.loop.forecast import RUNS, LoopForecast
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

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
DELTA = 1e-9
REPEATS = 3
FEW_ROWS = (600, 3_000)


def main(data: Annotated[Path, typer.Option(help="Folder of coded tables.")]) -> None:
    rows = []
    for name, table in tables(data):
        for epsilon in EPSILONS:
            rows.append({"table": name, "rows": table.num_rows, "epsilon": epsilon})
            rows[-1] |= compared(table, epsilon)
            print(rows[-1], flush=True)
    left, forecast, both = (sum(row[key] for row in rows) for key in ("left", "forecast", "both"))
    numbers = {"recall": both / left, "precision": both / forecast, "columns": rows}
    config = {"delta": DELTA, "repeats": REPEATS, "dependence": DEPENDENCE, "forecast_runs": RUNS}
    write_results("unconnected", numbers, config, None, rows)
    print(f"recall {both / left:.3f}, precision {both / forecast:.3f}")


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
    """Columns left unconnected by most runs, forecast to be, and both."""
    workload = Workload.all_ways(table.domain, 2)
    rho = PrivacyTarget.of(epsilon, DELTA).rho
    counts: Counter[str] = Counter()
    for _ in range(REPEATS):
        mechanisms = Mechanisms(Budget(rho, filtered=True), SystemEntropy())
        result = run_loop(mechanisms.table(MarginalCounter(table)), workload, mechanisms, rho)
        measured = map(result.model.domain.columns, result.model.estimates)
        counts.update(unconnected_columns(workload, measured))
    left = {name for name, times in counts.items() if 2 * times > REPEATS}
    forecast = set(LoopForecast(workload, rho).columns(table.num_rows))
    sizes = len(table.domain)
    return {
        "columns": sizes,
        "left": len(left),
        "forecast": len(forecast),
        "both": len(left & forecast),
    }


def _some(table: CodedTable, rows: int) -> CodedTable:
    chosen = np.random.default_rng(0).choice(table.num_rows, rows, replace=False)
    return CodedTable.from_codes(table.domain, [column[chosen] for column in table.columns])


if __name__ == "__main__":
    typer.run(main)
