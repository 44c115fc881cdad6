"""Time and memory of the whole `synthesize` command on large tables, with what the table is off by.

Tables are drawn with replacement from the shipped Adult, so that they have its dependences at any
number of rows. Every row of the result is the command as a user would start it, in a new process,
with noise from the operating system: processor and wall seconds, peak memory, and the mean L1 error
of all 2-way marginals.

    python -m scripts.speed.benchmark_scale --only adult-1e6
"""

from __future__ import annotations

import json
import os
import resource
import tempfile
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import typer

from adaptive_qs.table.engines import EngineOptions, open_engine
from adaptive_qs.table.files import sample_dataset
from adaptive_qs.table.schema import Schema
from scripts.results import apart, run_program, write_results

EPSILON, DELTA, SEED = 1.0, 1e-9, 20_261
BLOCK = 2**20
"""Rows of Adult that are drawn and written at once."""


@dataclass(frozen=True)
class Case:
    """A table, and what its synthesis should take at most.

    Attributes:
        rows: of the private table, and of the synthetic one.
        ways: attributes of each marginal.
        suffix: of the files.
        cpu_s, peak_mb: targets.
    """

    rows: int
    ways: int
    suffix: str
    cpu_s: float
    peak_mb: float


CASES = {
    "adult-1e6": Case(10**6, 2, ".csv", 20, 600),
    "adult-1e6-parquet": Case(10**6, 2, ".parquet", 20, 600),
    "adult-1e7": Case(10**7, 2, ".parquet", 60, 1500),
}


def write_adult(path: Path, rows: int) -> None:
    """Adult drawn with replacement, with its values as they are shipped."""
    sample = sample_dataset()
    schema = Schema.load(sample.schema)
    table = pa.csv.read_csv(
        sample.data,
        convert_options=pa.csv.ConvertOptions(
            column_types={name: pa.string() for name in schema.names}
        ),
    )
    rng = np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        parts = [Path(folder) / f"{first}.parquet" for first in range(0, rows, BLOCK)]
        for k, part in enumerate(parts):
            taken = rng.integers(0, table.num_rows, min(BLOCK, rows - k * BLOCK))
            pq.write_table(table.take(taken), part)
        if path.suffix == ".parquet":
            with pq.ParquetWriter(path, table.schema) as writer:
                for part in parts:
                    writer.write_table(pq.read_table(part))
        else:
            with pa.csv.CSVWriter(path, table.schema) as writer:
                for part in parts:
                    writer.write_table(pq.read_table(part))


def mean_l1(true: Path, synthetic: Path, ways: int) -> float:
    """Mean over all k-way marginals of the L1 distance of the normalised tables."""
    schema = Schema.load(sample_dataset().schema)
    counted = []
    cliques = list(combinations(range(len(schema.columns)), ways))
    for path in (true, synthetic):
        with open_engine("auto", path, schema, EngineOptions(workers=2)) as engine:
            counted.append([counts / engine.count_rows() for counts in engine.count_all(cliques)])
    return float(np.mean([np.abs(a - b).sum() for a, b in zip(*counted, strict=True)]))


def measured(name: str, case: Case, folder: Path) -> dict[str, Any]:
    """One row of the result."""
    data, out = (folder / f"{kind}{case.suffix}" for kind in ("true", "made"))
    apart(write_adult, data, case.rows)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found, wall, memory = run_program(
        "synthesize", data, "--schema", sample_dataset().schema, "--ways", case.ways,
        "--epsilon", EPSILON, "--delta", DELTA, "--out", out,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    row = {
        "case": name,
        "rows": case.rows,
        "columns": 15,
        "ways": case.ways,
        "input": case.suffix,
        "error": apart(mean_l1, data, out, case.ways),
        "cpu_s": round(cpu, 1),
        "cpu_s_target": case.cpu_s,
        "wall_s": round(wall, 1),
        "peak_memory_mb": round(memory),
        "peak_memory_mb_target": case.peak_mb,
        **{f"{phase}_s": round(value, 2) for phase, value in found["seconds"].items()},
    }
    row["met"] = cpu <= case.cpu_s and memory <= case.peak_mb
    for path in (data, out):
        os.unlink(path)
    return row


def main(
    only: Annotated[str | None, typer.Option(help="Names of cases, with commas.")] = None,
    out: Annotated[str, typer.Option(help="Name of the files in results/.")] = "benchmark_scale",
) -> None:
    """Write results/benchmark_scale.{json,csv}."""
    names = list(CASES) if only is None else only.split(",")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            rows.append(measured(name, CASES[name], Path(folder)))
            typer.echo(json.dumps(rows[-1]))
    config = {"epsilon": EPSILON, "delta": DELTA, "cases": names}
    write_results(out, rows, config, [SEED], rows)


if __name__ == "__main__":
    typer.run(main)
