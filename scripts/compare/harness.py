"""A grid from start to end: what is left of it, run and recorded."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.compare.cells import FAILED, FINISHED, NOT_INSTALLED, UNFINISHED, Bench
from scripts.compare.grid import Cell
from scripts.compare.machine import machine
from scripts.compare.mechanisms import Mechanism
from scripts.compare.schedule import Slots, cores
from scripts.compare.sources import load_source
from scripts.compare.store import Record, Store

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Retry:
    """Which cells that came to a bad end run again."""

    failed: bool = False
    unfinished: bool = False

    def again(self, record: Record, mechanism: Mechanism) -> bool:
        """Whether the cell of this record is to run."""
        return {
            FINISHED: False,
            FAILED: self.failed,
            UNFINISHED: self.unfinished,
            NOT_INSTALLED: mechanism.command is not None,
        }[record["outcome"]]


def run_grid(
    cells: Sequence[Cell],
    data: Path,
    mechanisms: dict[str, Mechanism],
    store: Store,
    jobs: int,
    retry: Retry,
    tell: Tell,
) -> Counter[str]:
    """Run what the results file does not have yet.

    Args:
        cells: the grid.
        data: folder of the tables.
        mechanisms: by name.
        store: the results file, locked.
        jobs: cells at once; each has its share of the cores.
        retry: which bad ends are tried again.
        tell: given a line of progress.

    Returns:
        How many cells of the grid ended how, over all runs so far.

    Raises:
        Complaint: a table cannot be loaded.
    """
    sources = {name: load_source(name, data) for name in dict.fromkeys(c.table for c in cells)}
    threads = max(1, len(cores()) // jobs)
    with _working_folder(store.path) as folder:
        bench = Bench(folder, sources, mechanisms, threads, machine(jobs, threads))
        keys = {bench.key(cell): cell for cell in cells}
        pending = [
            cell
            for key, cell in keys.items()
            if key not in store.records
            or retry.again(store.records[key], mechanisms[cell.mechanism])
        ]
        tell(
            f"{len(keys)} cells, {len(keys) - len(pending)} done before; "
            f"{jobs} at once, {threads} threads each"
        )
        bench.write_tables()
        with closing(Slots(bench, jobs).run(pending)) as ended:
            start = time.monotonic()
            for number, (cell, record) in enumerate(ended, 1):
                store.add(record)
                left = (time.monotonic() - start) / number * (len(pending) - number)
                tell(f"[{number}/{len(pending)}] {cell}: {_said(record)}; {_duration(left)} left")
    return Counter(store.records[key]["outcome"] for key in keys)


@contextmanager
def _working_folder(results: Path) -> Iterator[Path]:
    """A folder beside the results, for what runs now; what a killed harness left is cleared.

    Only the harness that has the lock of the results uses it.
    """
    folder = results.with_name(f".{results.name}.work")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    try:
        yield folder.resolve()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _said(record: dict[str, Any]) -> str:
    if record["outcome"] != FINISHED:
        return f"{record['outcome'].upper()}, {record['why']}"
    parts = []
    if record["table_error"] is not None:
        parts.append(f"error {record['table_error']['mean_l1']:.4f}")
    if record["answer_error"] is not None:
        parts.append(f"answers {record['answer_error']['projected']['mean_l1']:.4f}")
    parts.append(f"{record['wall_seconds']:.1f} s")
    parts.append(f"{record['peak_memory_mb']:.0f} MB")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    hours, minutes = int(seconds // 3600), int(seconds // 60 % 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {int(seconds % 60)} s"
