"""How often the forecast of measured marginals, unconnected columns and time comes true.

    python -m scripts.speed.forecast --data FOLDER [--only TABLE]

Each table of FOLDER (<name>/<name>.csv of codes with domain.json beside it), whole and cut to few
rows, each of FOLDER/raw by the schema that `schema init` proposes, and each made-up kind is run at
three epsilons with fresh noise, all 2-way marginals, and compared with the forecast for its number
of rows. Writes results/forecast.*: marginals measured and forecast, with the range that is
foreseen; columns left unconnected, forecast to be, and both; at one epsilon the processor seconds
of a whole run in this process, with those of starting one, and their estimate. Recall is both/left,
precision both/forecast; ``near`` is the share of runs whose marginals are within a quarter of the
forecast, ``inside`` of those in its range, ``timely`` of those whose seconds are within a factor of
2. The numbers are of all rows, earlier ones too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from adaptive_qs.loop.expected import DEPENDENCE
from adaptive_qs.loop.forecast import (
    COLUMN_SPREAD,
    IMPLIED,
    MOST_ROUNDS,
    PAIR_SPREAD,
    RUNS,
    TABLE_SPREAD,
    TIED,
    LoopForecast,
)
from adaptive_qs.loop.loop import run_loop
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import SystemEntropy
from adaptive_qs.release.bundle import unconnected_columns
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.run.memory import START_SECONDS, run_seconds
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.propose import propose
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload
from scripts import table_kinds
from scripts.compare.tables import REAL
from scripts.results import RESULTS, write_results

EPSILONS = (0.1, 1.0, 10.0)
DELTA = 1e-9
FEW_ROWS = (3_000,)
MOST_SINGLE = 3
"""Raw tables of so many columns are not run."""
NEAR = 0.25
TIMED, MOST_TIMED = 1.0, 50
"""Epsilon at which whole runs are timed, of tables of so many columns."""


def main(
    data: Annotated[Path, typer.Option(help="Folder of coded tables.")],
    only: Annotated[list[str] | None, typer.Option(help="Tables to run.")] = None,
) -> None:
    rows = list[dict[str, Any]]()
    for name, table, schema in tables(data, only):
        for epsilon in EPSILONS:
            rows.append({"table": name, "rows": table.num_rows, "epsilon": epsilon})
            rows[-1] |= compared(table, epsilon, schema)
            print(rows[-1], flush=True)
    path = RESULTS / "forecast.json"
    earlier = json.loads(path.read_text())["numbers"]["runs"] if only and path.exists() else []
    every = {(row["table"], row["rows"], row["epsilon"]): row for row in [*earlier, *rows]}
    rows = [*every.values()]
    left, forecast, both = (sum(row[key] for row in rows) for key in ("left", "forecast", "both"))
    near = [abs(row["measured"] - row["expected"]) <= NEAR * row["expected"] for row in rows]
    inside = [row["least"] <= row["measured"] <= row["most"] for row in rows]
    timed = [row["seconds"] / row["estimate"] for row in rows if row["seconds"]]
    numbers = {
        "near": np.mean(near), "inside": np.mean(inside), "recall": both / left,
        "precision": both / forecast, "timely": np.mean([0.5 <= r <= 2 for r in timed]),
    }  # fmt: skip
    spreads = [DEPENDENCE, TIED, TABLE_SPREAD, COLUMN_SPREAD, PAIR_SPREAD, IMPLIED]
    config = {"delta": DELTA, "dependence": spreads, "loops": [RUNS, MOST_ROUNDS]}
    write_results("forecast", {**numbers, "runs": rows}, config, None, rows)
    print(numbers)


def tables(folder: Path, only: list[str] | None) -> Iterator[tuple[str, CodedTable, Schema | None]]:
    """Real tables, those of codes also with few rows, and made-up ones; some with a schema."""

    def chosen(name: str) -> bool:
        return not only or name in only

    for path in filter(lambda one: chosen(one.parent.name), sorted(folder.glob("*/domain.json"))):
        table = table_kinds.coded_table(path.parent)
        for rows in (table.num_rows, *FEW_ROWS):
            yield path.parent.name, _some(table, rows), None
    sources = {path.name.partition(".")[0]: path for path in (folder / "raw").glob("*.csv.gz")}
    schemas = {name: propose(path) for name, path in sorted(sources.items()) if chosen(name)}
    if chosen("ma2019"):
        file, declared, _ = REAL["ma2019"]
        sources["ma2019"] = folder / "ma2019" / file
        schemas["ma2019"] = Schema.load(folder / "ma2019" / declared)
    for name, schema in schemas.items():
        if len(schema.columns) > MOST_SINGLE:
            table = read_table(sources[name], schema)
            for rows in (table.num_rows, *(FEW_ROWS if name == "ma2019" else ())):
                yield name, _some(table, rows), schema
    for kind in (
        table_kinds.weak_dependence,
        table_kinds.functional_dependence,
        table_kinds.sequences,
        table_kinds.many_attributes,
        table_kinds.long_tails,
    ):
        if chosen(kind.__name__):
            yield kind.__name__, kind(20_000), None


def compared(table: CodedTable, epsilon: float, schema: Schema | None) -> dict[str, Any]:
    """Marginals measured and forecast; columns left unconnected, forecast to be, and both."""
    workload = Workload.all_ways(table.domain, 2)
    rho = PrivacyTarget.of(epsilon, DELTA).rho
    mechanisms = Mechanisms(Budget(rho, filtered=True), SystemEntropy())
    result = run_loop(mechanisms.table(MarginalCounter(table)), workload, mechanisms, rho)
    columns = result.model.domain.columns
    left = set(unconnected_columns(workload, map(columns, result.model.estimates)))
    expected = LoopForecast(workload, rho, schema=schema).measured(table.num_rows)
    forecast, timed = {*expected.unconnected}, epsilon == TIMED and len(table.domain) <= MOST_TIMED
    return {
        "columns": len(table.domain),
        "measured": len({columns(r.clique) for r in result.rounds if len(r.clique) > 1}),
        "expected": expected.marginals,
        "least": expected.least,
        "most": expected.most,
        "left": len(left),
        "forecast": len(forecast),
        "both": len(left & forecast),
        "seconds": round(whole_seconds(table, epsilon), 1) if timed else None,
        "estimate": round(run_seconds(workload, table.num_rows, expected.marginals), 1),
    }


def whole_seconds(table: CodedTable, epsilon: float) -> float:
    """Processor seconds of a run that fits and draws a table, with those of starting a process."""
    begun = time.process_time()
    model = Synthesizer(epsilon=epsilon, delta=DELTA, workload=2, workers=2).fit(table)
    model.release_.draw().coded()
    return START_SECONDS + time.process_time() - begun


def _some(table: CodedTable, rows: int) -> CodedTable:
    if rows == table.num_rows:
        return table
    chosen = np.random.default_rng(0).choice(table.num_rows, rows, replace=False)
    return CodedTable.from_codes(table.domain, [column[chosen] for column in table.columns])


if __name__ == "__main__":
    typer.run(main)
