"""Time and memory of the whole `synthesize` command on large tables, with what the table is off by.

Tables are drawn with replacement from the shipped Adult, so that they have its dependences at any
number of rows, or have twenty columns of ten values that depend on each other along a tree, or
fifteen of 2 to 100 values along a chain, in a folder of Parquet files. Every row of the result is
the command as a user would start it, in a new process, with noise from the operating system:
processor and wall seconds, peak memory, and the mean L1 error of all 2-way marginals. Where persons
are protected, only single columns are measured: what is timed is reading the table, and keeping
rows of each person.

    python -m scripts.speed.benchmark_scale --only adult-1e6
"""

from __future__ import annotations

import json
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
from scripts.results import apart, timed_program, with_earlier, write_results

EPSILON, DELTA, SEED = 1.0, 1e-9, 20_261
BLOCK = 2**20
"""Rows of Adult that are drawn and written at once."""


@dataclass(frozen=True)
class Case:
    """A table, and what its synthesis should take at most.

    Attributes:
        rows: of the private table.
        rows_out: of the synthetic one.
        suffix: of the files; none for a folder of files, whose columns are drawn.
        peak_mb: target.
        cpu_s, wall_s: targets, of one of which there is none.
        person_rows: rows of a person that count, where persons are protected, who have as many
            on average; 0 where rows are.
        sizes: numbers of values of the drawn columns.
        chain: whether each of them depends on the one before; or on a random one before.
        suffix_out: of the synthetic file.
    """

    rows: int
    rows_out: int
    suffix: str
    peak_mb: float
    cpu_s: float | None = None
    wall_s: float | None = None
    person_rows: int = 0
    sizes: tuple[int, ...] = ()
    chain: bool = False
    suffix_out: str = ".parquet"

    @property
    def schema(self) -> Any:
        """The schema file, or what is written to one."""
        if self.suffix:
            return sample_dataset().schema
        return {f"c{i:02d}": size for i, size in enumerate(self.sizes)}


TENS = (10,) * 20
CHAIN = (2, 2, 3, 4, 5, 6, 8, 10, 13, 17, 23, 33, 50, 70, 100)
WAYS = 2
CASES = {
    "adult-1e6": Case(10**6, 10**6, ".csv", 600, cpu_s=20),
    "adult-1e6-parquet": Case(10**6, 10**6, ".parquet", 600, cpu_s=20),
    "adult-1e7": Case(10**7, 10**7, ".parquet", 1500, cpu_s=60),
    # 1.3 times what it took when each pass read the table anew, and a bound could be broken.
    "persons-1e7": Case(10**7, 10**4, ".csv", 2000, cpu_s=320, person_rows=4),
    "persons-1e7-parquet": Case(10**7, 10**4, ".parquet", 2000, cpu_s=145, person_rows=4),
    "tens-1e8": Case(10**8, 10**6, "", 3000, wall_s=300, sizes=TENS),
    "tens-1e8-out": Case(10**8, 10**8, "", 3000, wall_s=1200, sizes=TENS),
    "chain-1e7": Case(10**7, 10**7, "", 1500, cpu_s=70, sizes=CHAIN, chain=True, suffix_out=".csv"),
}


def write_drawn(folder: Path, case: Case) -> None:
    """Columns that depend on one before each, a file for each million rows."""
    rng = np.random.default_rng(SEED)
    sizes = case.sizes
    parents = [
        (i - 1 if case.chain else int(rng.integers(i))) if i else 0 for i in range(len(sizes))
    ]
    conditionals = [
        rng.dirichlet(np.full(size, 0.5), size=sizes[parent]).cumsum(axis=1)
        for size, parent in zip(sizes, parents)
    ]
    folder.mkdir()
    for first in range(0, case.rows, BLOCK):
        count = min(BLOCK, case.rows - first)
        codes = np.zeros((len(sizes), count), dtype=np.uint8)
        for i, parent in enumerate(parents):
            drawn = rng.random(count, dtype=np.float32)
            for value in range(sizes[parent]):
                given = codes[parent] == value if i else slice(None)
                codes[i, given] = np.searchsorted(conditionals[i][value, :-1], drawn[given])
        table = pa.table(dict(zip(case.schema, codes)))
        pq.write_table(table, folder / f"{first // BLOCK:04d}.parquet")


PERSON = "person"


def write_adult(path: Path, rows: int, person_rows: int = 0) -> None:
    """Adult drawn with replacement, with its values as they are shipped, and perhaps persons."""
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
            drawn = table.take(taken)
            if person_rows:
                persons = rng.integers(0, rows // person_rows, drawn.num_rows)
                drawn = drawn.append_column(PERSON, pa.array(persons).cast(pa.string()))
            pq.write_table(drawn, part)
        if path.suffix == ".parquet":
            with pq.ParquetWriter(path, pq.read_schema(parts[0])) as writer:
                for part in parts:
                    writer.write_table(pq.read_table(part))
        else:
            with pa.csv.CSVWriter(path, pq.read_schema(parts[0])) as writer:
                for part in parts:
                    writer.write_table(pq.read_table(part))


def mean_l1(true: Path, synthetic: Path, described: Path) -> float:
    """Mean over all 2-way marginals of the L1 distance of the normalised tables."""
    schema = Schema.load(described)
    counted = []
    cliques = list(combinations(range(len(schema.columns)), WAYS))
    for path in (true, synthetic):
        with open_engine("auto", path, schema, EngineOptions(workers=2)) as engine:
            counted.append([counts / engine.count_rows() for counts in engine.count_all(cliques)])
    return float(np.mean([np.abs(a - b).sum() for a, b in zip(*counted, strict=True)]))


def measured(name: str, case: Case, folder: Path) -> dict[str, Any]:
    """One row of the result."""
    data, out = folder / f"true{case.suffix}", folder / f"made{case.suffix or case.suffix_out}"
    schema = case.schema
    if isinstance(schema, dict):
        schema = folder / "schema.json"
        schema.write_text(json.dumps(case.schema))
        data = folder / f"true-{len(case.sizes)}-{case.rows}"
        if not data.exists():
            apart(write_drawn, data, case)
    else:
        apart(write_adult, data, case.rows, case.person_rows)
    more: tuple[Any, ...] = ()
    if case.person_rows:
        content = {**json.loads(Path(schema).read_text()), "person": PERSON}
        schema = folder / "persons.json"
        schema.write_text(json.dumps(content))
        more = ("--rows-per-person", case.person_rows)
    ways = 1 if more else WAYS
    found, cpu, wall, memory = timed_program(
        "synthesize", data, "--schema", schema, "--ways", ways, "--rows", case.rows_out,
        "--epsilon", EPSILON, "--delta", DELTA, "--out", out, "--force", *more,
    )  # fmt: skip
    row = {
        "case": name,
        "rows": case.rows,
        "rows_out": case.rows_out,
        "columns": len(Schema.load(schema).columns),
        "ways": ways,
        "rows_per_person": case.person_rows or None,
        "input": case.suffix or "folder of .parquet",
        "error": None if more else apart(mean_l1, data, out, schema),
        "cpu_s": round(cpu, 1),
        "cpu_s_target": case.cpu_s,
        "wall_s": round(wall, 1),
        "wall_s_target": case.wall_s,
        "peak_memory_mb": round(memory),
        "peak_memory_mb_target": case.peak_mb,
        **{f"{phase}_s": round(value, 2) for phase, value in found["seconds"].items()},
    }
    limits = [(cpu, case.cpu_s), (wall, case.wall_s), (memory, case.peak_mb)]
    row["met"] = all(limit is None or value <= limit for value, limit in limits)
    out.unlink()
    if data.is_file():  # a folder is the table of the next case as well
        data.unlink()
    return row


def main(
    only: Annotated[str | None, typer.Option(help="Names of cases, with commas.")] = None,
    out: Annotated[str, typer.Option(help="Name of the files in results/.")] = "benchmark_scale",
) -> None:
    """Write results/benchmark_scale.{json,csv}; rows of other cases stay."""
    names = list(CASES) if only is None else only.split(",")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            rows.append(measured(name, CASES[name], Path(folder)))
            typer.echo(json.dumps(rows[-1]))
    config = {"epsilon": EPSILON, "delta": DELTA, "cases": names}
    rows = with_earlier(out, rows, list(CASES))
    write_results(out, rows, config, [SEED], rows)


if __name__ == "__main__":
    typer.run(main)
