"""A grid from start to end: what is left of it, run side by side, scored and recorded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

from adaptive_qs.errors import AdaptiveQsError
from adaptive_qs.table.coded import CodedTable
from scripts.compare.grid import Cell
from scripts.compare.job import Job, read_codes, write_codes
from scripts.compare.mechanisms import Mechanism
from scripts.compare.process import Ended, reason, run_supervised, without_paths
from scripts.compare.scoring import answer_error, table_error
from scripts.compare.store import Record, Store
from scripts.compare.summary import FAILED, FINISHED, NOT_INSTALLED, UNFINISHED
from scripts.compare.tables import Source, load_source
from scripts.results import STARTED_FROM, cpu_model

Started = Callable[[subprocess.Popen[bytes]], None]


def cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def machine(jobs: int, threads: int) -> dict[str, Any]:
    """Processor, cores, memory, and how cells share them; nothing that names the machine."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": cpu_model(),
        "cores": len(cores()),
        "memory_gb": round(memory / 2**30, 1),
        "cells_at_once": jobs,
        "threads_per_cell": threads,
    }


def run_grid(
    cells: Sequence[Cell],
    data: Path,
    mechanisms: dict[str, Mechanism],
    store: Store,
    jobs: int,
    retried: Collection[str],
    tell: Callable[[str], None],
) -> Counter[str]:
    """Run what the results file does not have yet.

    Args:
        cells: the grid.
        data: folder of the tables.
        mechanisms: by name.
        store: the results file, locked.
        jobs: cells at once; each has its share of the cores.
        retried: the outcomes that are tried again; "not installed" is, once it is installed.
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

        def is_left(key: str, cell: Cell) -> bool:
            ended = store.records[key]["outcome"] if key in store.records else None
            installed = mechanisms[cell.mechanism].command is not None
            return ended is None or ended in retried or (ended == NOT_INSTALLED and installed)

        pending = [cell for key, cell in keys.items() if is_left(key, cell)]
        tell(
            f"{len(keys)} cells, {len(keys) - len(pending)} done before; "
            f"{jobs} at once, {threads} threads each"
        )
        for source in sources.values():
            write_codes(bench.codes(source), source.table)
        with closing(side_by_side(bench, pending, jobs)) as ended:
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


@dataclass(frozen=True)
class Bench:
    """Where and how cells run.

    Attributes:
        folder: for files of running cells and the tables' codes.
        sources: the tables by name.
        mechanisms: the mechanisms by name.
        threads: for each cell.
        machine: what it runs on, and how many cells at once; goes into every record.
    """

    folder: Path
    sources: dict[str, Source]
    mechanisms: dict[str, Mechanism]
    threads: int
    machine: dict[str, Any]

    def codes(self, source: Source) -> Path:
        """The file of codes that all cells of a table read."""
        return self.folder / f"{source.fingerprint}.npy"

    def key(self, cell: Cell) -> str:
        """The key of a cell in the results file."""
        return cell.key(self.sources[cell.table].fingerprint)

    def run(self, cell: Cell, started: Started) -> Record:
        """Run a cell to its end, whatever that is; the record of it.

        Raises:
            Stopped: the harness is to end.
        """
        source, mechanism = self.sources[cell.table], self.mechanisms[cell.mechanism]
        record = {
            "key": self.key(cell),
            **cell.identity(source.fingerprint),
            "kind": mechanism.kind,
            "title": mechanism.title,
            "shape": [source.table.num_rows, len(source.table.domain)],
            "limit_s": cell.limit_s,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": STARTED_FROM,
            "machine": self.machine,
        }
        if mechanism.command is None:
            why = f"no environment {mechanism.missing!r}"
            return record | {"outcome": NOT_INSTALLED, "why": why}
        with tempfile.TemporaryDirectory(
            dir=self.folder, prefix="cell-", ignore_cleanup_errors=True
        ) as temporary:
            folder = Path(temporary)
            job = self._job(cell, source, folder)
            job.save(folder / "job.json")
            command = [*mechanism.command, str(folder / "job.json")]
            ended = run_supervised(command, folder, self.threads, cell.limit_s, started)
            record |= {
                "wall_seconds": round(ended.seconds, 3),
                "cpu_seconds": round(ended.cpu_seconds, 3),
                "peak_memory_mb": round(ended.peak_memory_mb, 1),
            }
            return record | _judged(cell, job, source.table, ended, folder)

    def _job(self, cell: Cell, source: Source, folder: Path) -> Job:
        domain = source.table.domain
        return Job(
            codes=str(self.codes(source)),
            domain=dict(zip(domain.names, domain.sizes)),
            workload=[list(names) for names in combinations(domain.names, cell.ways)],
            epsilon=cell.epsilon,
            delta=cell.delta,
            seed=cell.seed,
            threads=self.threads,
            out=str(folder / "synthetic.npy"),
            report=str(folder / "report.json"),
            answers=str(folder / "answers.f64"),
            mechanism=cell.mechanism,
            settings=json.loads(cell.settings),
        )


def side_by_side(
    bench: Bench, cells: Sequence[Cell], jobs: int
) -> Generator[tuple[Cell, Record], None, None]:
    """Every cell with its record, as they end, ``jobs`` at a time; leaving early kills what runs.

    A cell is run by a thread that has its share of the cores; processes that it starts inherit
    them, so that a library that takes no advice on threads has no more cores either.
    """
    usable, threads = cores(), bench.threads
    shares = iter([usable[i * threads : (i + 1) * threads] for i in range(jobs)])
    running: list[subprocess.Popen[bytes]] = []
    lock, stopping = threading.Lock(), threading.Event()

    def take_share() -> None:
        own = next(shares)
        if own and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, own)

    def started(supervisor: subprocess.Popen[bytes]) -> None:
        with lock:
            running[:] = [one for one in running if one.returncode is None] + [supervisor]
            if stopping.is_set():
                _end(supervisor)

    with ThreadPoolExecutor(jobs, initializer=take_share) as pool:
        runs = {pool.submit(bench.run, cell, started): cell for cell in cells}
        try:
            for ended in as_completed(runs):
                yield runs[ended], ended.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            with lock:
                stopping.set()
                for supervisor in running:
                    _end(supervisor)


def _end(supervisor: subprocess.Popen[bytes]) -> None:
    """Close its standard input, which makes it kill its group and end."""
    assert supervisor.stdin is not None
    if not supervisor.stdin.closed:
        supervisor.stdin.close()


def _judged(cell: Cell, job: Job, true: CodedTable, ended: Ended, folder: Path) -> Record:
    """Outcome, errors and what the process said of itself."""
    if ended.limit_reached:
        return {"outcome": UNFINISHED, "why": f"unfinished after {cell.limit_s:g} s"}
    if ended.status:
        return {"outcome": FAILED, "why": reason(ended, folder / "log.txt")}
    try:
        report = json.loads(Path(job.report).read_text(encoding="utf-8"))
        return {"outcome": FINISHED, "why": ""} | _scored(job, true, report, ended.cpu_seconds)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, AdaptiveQsError) as error:
        said = without_paths(" ".join(str(error).split()))[:200]
        return {"outcome": FAILED, "why": f"its output cannot be used: {said}"}


def _scored(job: Job, true: CodedTable, report: dict[str, Any], used: float) -> Record:
    """Errors of what was written, and the processor seconds that each output took.

    Processor time, of all threads, hardly depends on what else the machine does. The table's is
    that of the whole process but for forming answers, and the other way round, so that a mechanism
    that makes both is not charged for one while the other is judged.
    """
    workload = job.marginals()
    out, answers = Path(job.out), Path(job.answers)
    phases = {name: float(seconds) for name, seconds in report.get("seconds", {}).items()}
    scored: Record = dict.fromkeys(
        ("table_error", "answer_error", "table_seconds", "answer_seconds")
    )
    if out.exists():
        scored["table_error"] = table_error(true, read_codes(out, true.domain), workload)
        scored["table_seconds"] = round(used - phases.get("answers", 0.0), 3)
    if answers.exists():
        scored["answer_error"] = answer_error(true, answers, workload)
        scored["answer_seconds"] = round(used - phases.get("sample", 0.0), 3)
    if not (out.exists() or answers.exists()):
        raise ValueError("neither a table nor answers were written")
    return scored | {
        "phases": phases,
        "used": report.get("settings", {}),
        "versions": report.get("versions", {}),
        "notes": report.get("notes", []),
    }


def _said(record: Record) -> str:
    if record["outcome"] != FINISHED:
        return f"{record['outcome'].upper()}, {record['why']}"
    parts = []
    if record["table_error"] is not None:
        parts.append(f"error {record['table_error']['mean_l1']:.4f}")
    if record["answer_error"] is not None:
        parts.append(f"answers {record['answer_error']['projected']['mean_l1']:.4f}")
    return ", ".join(
        [*parts, f"{record['wall_seconds']:.1f} s", f"{record['peak_memory_mb']:.0f} MB"]
    )


def _duration(seconds: float) -> str:
    hours, minutes = int(seconds // 3600), int(seconds // 60 % 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {int(seconds % 60)} s"
