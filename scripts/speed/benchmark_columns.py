"""Time and memory of `synthesize` and `sample` where columns, or combinations of them, are many.

Tables are generated from a tree of columns, each of which depends on one before it; Loans is read
from the folder that holds it. The loop and the table are two commands as a user would start them,
each in a new process, with noise from the operating system, so that each has processor seconds and
a peak of its own.

    python -m scripts.speed.benchmark_columns --only acs --only loans-10 --loans path/to/loans
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from scripts.results import apart, timed_program, with_earlier, write_results

DELTA, SEED = 1e-9, 20_261
NEAR = 8
"""A column depends on one of so many before it."""
CONCENTRATION = 0.7
"""Of the Dirichlet distributions of a column given another: the smaller, the closer they depend."""
ACS = (
    (2,) * 34 + (3,) * 12 + (4,) * 6 + (5,) * 4 + (7,) * 3 + (9,) * 3 + (12,) * 2 + (20, 36)
)  # fmt: skip
"""66 sizes of 4.2 on average."""


@dataclass(frozen=True)
class Case:
    """A table, and what its synthesis should take at most.

    Attributes:
        sizes: of the columns; none for Loans.
        rows: of the table, and of the synthetic one.
        ways: attributes of each marginal.
        epsilon: of the run.
        loop_cpu_s, table_cpu_s, peak_mb: targets; None where there is none.
    """

    sizes: tuple[int, ...]
    rows: int
    ways: int
    epsilon: float
    loop_cpu_s: float | None
    table_cpu_s: float | None
    peak_mb: float | None


CASES = {
    "acs": Case(ACS, 378_817, 3, 10, 60, 120, 6144),
    "wide-500": Case((4,) * 500, 10**5, 2, 1, 300, None, 4096),
    "loans-0.1": Case((), 42_535, 3, 0.1, 15, 30, None),
    "loans-1": Case((), 42_535, 3, 1, 15, 30, None),
    "loans-10": Case((), 42_535, 3, 10, 15, 30, None),
    "columns-200": Case((4,) * 200, 10**5, 3, 1, None, None, None),
}


def write_tree(path: Path, schema: Path, sizes: tuple[int, ...], rows: int) -> None:
    """A table whose columns depend on each other along a tree, and its schema."""
    rng = np.random.default_rng(SEED)
    order = rng.permutation(len(sizes))
    columns: dict[int, Any] = {}
    for k, i in enumerate(order):
        parent = order[rng.integers(max(0, k - NEAR), k)] if k else i
        given = columns.get(parent, np.zeros(rows, dtype=np.uint8))
        conditional = rng.dirichlet(np.full(sizes[i], CONCENTRATION), size=sizes[parent])
        drawn = rng.random(rows)[:, None] > conditional.cumsum(axis=1)[given]
        columns[i] = np.minimum(drawn.sum(axis=1), sizes[i] - 1).astype(np.uint8)
    names = [f"c{i:03d}" for i in range(len(sizes))]
    pq.write_table(pa.table({name: columns[i] for i, name in enumerate(names)}), path)
    schema.write_text(json.dumps(dict(zip(names, sizes))))


def write_loans(path: Path, schema: Path, folder: Path) -> None:
    """Loans as Parquet, and its schema."""
    pd.read_csv(folder / "loans.zip").to_parquet(path)
    schema.write_text((folder / "domain.json").read_text())


def measured(name: str, case: Case, folder: Path, loans: Path | None) -> dict[str, Any]:
    """One row of the result."""
    data, schema = folder / "true.parquet", folder / "schema.json"
    if case.sizes:
        apart(write_tree, data, schema, case.sizes, case.rows)
    elif loans is None:
        raise SystemExit(f"{name}: no folder of Loans was given: give --loans")
    else:
        apart(write_loans, data, schema, loans)
    release, out = folder / "r.zip", folder / "made.parquet"
    loop, loop_cpu, loop_wall, loop_mb = timed_program(
        "synthesize", data, "--schema", schema, "--ways", case.ways, "--epsilon", case.epsilon,
        "--delta", DELTA, "--release", release, "--force",
    )  # fmt: skip
    _, table_cpu, table_wall, table_mb = timed_program(
        "sample", release, "--out", out, "--rows", case.rows, "--force"
    )
    row = {
        "case": name,
        "rows": case.rows,
        "columns": len(json.loads(schema.read_text())),
        "ways": case.ways,
        "epsilon": case.epsilon,
        "rounds": loop["rounds"],
        "loop_cpu_s": round(loop_cpu, 1),
        "loop_cpu_s_target": case.loop_cpu_s,
        "loop_wall_s": round(loop_wall, 1),
        "loop_peak_memory_mb": round(loop_mb),
        "table_cpu_s": round(table_cpu, 1),
        "table_cpu_s_target": case.table_cpu_s,
        "table_wall_s": round(table_wall, 1),
        "table_peak_memory_mb": round(table_mb),
        "peak_memory_mb_target": case.peak_mb,
    }
    row["met"] = (
        loop_cpu <= (case.loop_cpu_s or np.inf)
        and table_cpu <= (case.table_cpu_s or np.inf)
        and max(loop_mb, table_mb) <= (case.peak_mb or np.inf)
    )
    return row


def main(
    only: Annotated[list[str] | None, typer.Option(help="Cases; all by default.")] = None,
    loans: Annotated[Path | None, typer.Option(help="Folder with loans.zip.")] = None,
    out: Annotated[str, typer.Option(help="Name of the files in results/.")] = "benchmark_columns",
) -> None:
    """Write results/benchmark_columns.{json,csv}; rows of other cases stay."""
    names = only or list(CASES)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            rows.append(measured(name, CASES[name], Path(folder), loans))
            typer.echo(json.dumps(rows[-1]))
    config = {"delta": DELTA, "cases": names, "acs sizes": ACS}
    rows = with_earlier(out, rows, list(CASES))
    write_results(out, rows, config, [SEED], rows)


if __name__ == "__main__":
    typer.run(main)
