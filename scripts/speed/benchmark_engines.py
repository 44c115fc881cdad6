"""Time and memory of reading and counting a table with each engine.

One Parquet table, Adult drawn with replacement at any number of rows, is opened by every engine in
a process of its own, and all its 2-way marginals are counted: processor and wall seconds of both,
peak memory, and whether the counts are those of the first engine. With ``--columns`` the table has
so many attributes of 10 values, each of which depends on the one before.

    python -m scripts.speed.benchmark_engines --rows 1000000
    python -m scripts.speed.benchmark_engines --rows 10000000 --columns 20 --engines memory,stream
    python -m scripts.speed.benchmark_engines --columns 20 --engines dask@1,dask@2
"""

from __future__ import annotations

import hashlib
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from adaptive_qs.table.engines import ENGINES, EngineOptions, open_engine
from adaptive_qs.table.files import sample_dataset
from adaptive_qs.table.schema import Schema
from scripts.results import apart, peak_memory_mb, write_results
from scripts.speed.benchmark_scale import BLOCK, SEED, write_adult

EVERY = ",".join([*(name for name in ENGINES if name != "auto"), "dask@1"])
"""All engines with two workers, and the one that may have others with one."""
DEPENDENT = 0.6
"""Part of the rows in which an attribute has the value of the one before."""


def write_wide(path: Path, rows: int, columns: int) -> None:
    """Attributes of 10 values, each of which follows the one before in most rows."""
    rng = np.random.default_rng(SEED)
    types = pa.schema([(f"c{i}", pa.int8()) for i in range(columns)])
    with pq.ParquetWriter(path, types) as writer:
        for first in range(0, rows, BLOCK):
            size = min(BLOCK, rows - first)
            made = [rng.integers(0, 10, size, np.int8)]
            for _ in range(columns - 1):
                fresh = rng.integers(0, 10, size, np.int8)
                made.append(np.where(rng.random(size) < DEPENDENT, made[-1], fresh))
            writer.write_table(pa.table(made, schema=types))


def schema_of(columns: int | None) -> Schema:
    """The schema of the table."""
    if columns is None:
        return Schema.load(sample_dataset().schema)
    return Schema.parse({f"c{i}": 10 for i in range(columns)})


def measured(
    engine: str, path: Path, columns: int | None, workers: int, room: int, folder: Path
) -> dict[str, Any]:
    """What one engine takes; in a process of its own."""
    schema = schema_of(columns)
    cliques = list(combinations(range(len(schema.columns)), 2))
    options = EngineOptions(workers=workers, rows_bytes=room, temp_folder=folder)
    with open_engine("memory", *_small(), EngineOptions(workers=workers)) as small:
        small.count_all([(0,), (0, 1)])
    clock = _Clock()
    with ExitStack() as stack:
        if engine == "dask":
            options = replace(options, scheduler=stack.enter_context(_cluster(workers)))
        counting = stack.enter_context(open_engine(engine, path, schema, options))
        read = clock.lap()
        counting.count_all([(0,), (0, 1)])  # compiled, in other processes as well
        clock.lap()
        counts = counting.count_all(cliques)
        counted = clock.lap()
    digest = hashlib.sha256(b"".join(c.tobytes() for c in counts)).hexdigest()[:16]
    return {
        "engine": engine,
        "workers": workers,
        "columns": len(schema.columns),
        "marginals": len(cliques),
        "read_cpu_s": read[0],
        "read_wall_s": read[1],
        "count_cpu_s": counted[0],
        "count_wall_s": counted[1],
        "peak_memory_mb": round(peak_memory_mb()),
        "counts": digest,
    }


@contextmanager
def _cluster(workers: int) -> Iterator[str]:
    """The address of a cluster of processes on this machine, on loopback."""
    from distributed import LocalCluster

    settings = {"host": "127.0.0.1", "dashboard_address": None, "silence_logs": 50}
    with LocalCluster(n_workers=workers, threads_per_worker=1, **settings) as cluster:
        yield cluster.scheduler_address


def _small() -> tuple[pa.Table, Schema]:
    return pa.table({"a": [0, 1, 2], "b": [2, 1, 0]}), Schema.parse({"a": 3, "b": 3})


class _Clock:
    """Processor and wall seconds since the last lap, of this process and those that it started."""

    def __init__(self) -> None:
        self._last = self._now()

    @staticmethod
    def _now() -> tuple[float, float]:
        used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        running = [child.cpu_times() for child in psutil.Process().children()]
        seconds = sum(u.ru_utime + u.ru_stime for u in used)
        return seconds + sum(c.user + c.system for c in running), time.perf_counter()

    def lap(self) -> tuple[float, float]:
        last, self._last = self._last, self._now()
        return round(self._last[0] - last[0], 2), round(self._last[1] - last[1], 2)


def main(
    rows: Annotated[int, typer.Option(help="Of the table.")] = 10**7,
    columns: Annotated[int | None, typer.Option(help="Attributes of 10 values.")] = None,
    engines: Annotated[str, typer.Option(help="NAME@WORKERS, with commas; NAME for 2.")] = EVERY,
    room: Annotated[int, typer.Option(help="Memory for rows, in MB.")] = 1024,
) -> None:
    """Write results/benchmark_engines.{json,csv}."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        if columns is None:
            apart(write_adult, path, rows)
        else:
            apart(write_wide, path, rows, columns)
        found = []
        for name, _, workers in (engine.partition("@") for engine in engines.split(",")):
            measure = (name, path, columns, int(workers or 2), room * 2**20, Path(folder))
            found.append({"rows": rows, **apart(measured, *measure)})
            print(found[-1])
    for row in found:
        row["identical"] = row["counts"] == found[0]["counts"]
    config = {"rows": rows, "columns": columns, "room_mb": room}
    write_results("benchmark_engines", found, config, [SEED], found)


if __name__ == "__main__":
    typer.run(main)
