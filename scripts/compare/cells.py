"""One cell from its job to its record."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

from adaptive_qs.errors import AdaptiveQsError
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.workload.workload import Workload
from scripts.compare.grid import Cell, key_of
from scripts.compare.job import Job, read_codes, write_codes
from scripts.compare.mechanisms import Mechanism
from scripts.compare.process import Ended, reason, run_supervised, without_paths
from scripts.compare.scoring import answer_error, table_error
from scripts.compare.sources import Source
from scripts.results import git_commit

COMMIT = git_commit()

Record = dict[str, Any]
FINISHED, UNFINISHED, FAILED, NOT_INSTALLED = "finished", "unfinished", "failed", "not installed"


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

    def write_tables(self) -> None:
        """Write the codes that all cells of a table read."""
        for source in self.sources.values():
            write_codes(self.codes(source), source.table)

    def codes(self, source: Source) -> Path:
        """The codes of a table."""
        return self.folder / f"{source.fingerprint}.npy"

    def key(self, cell: Cell) -> str:
        """The key of a cell in the results file."""
        return key_of(cell.identity(self.sources[cell.table].fingerprint))

    def run(self, cell: Cell, started: Callable[[subprocess.Popen[bytes]], None]) -> Record:
        """Run a cell to its end, whatever that is; the record of it.

        Raises:
            Stopped: the harness is to end.
        """
        source, mechanism = self.sources[cell.table], self.mechanisms[cell.mechanism]
        record = self._described(cell, source, mechanism)
        if mechanism.command is None:
            why = f"no environment {mechanism.missing!r}"
            return record | {"outcome": NOT_INSTALLED, "why": why}
        folder = Path(tempfile.mkdtemp(dir=self.folder, prefix="cell-"))
        try:
            job = self._job(cell, source, folder)
            job.save(folder / "job.json")
            command = [*mechanism.command, str(folder / "job.json")]
            ended = run_supervised(command, folder, self.threads, cell.limit_s, started)
            return record | _measured(ended) | _judged(cell, job, source.table, ended, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _described(self, cell: Cell, source: Source, mechanism: Mechanism) -> Record:
        return {
            "key": self.key(cell),
            **cell.identity(source.fingerprint),
            "kind": mechanism.kind,
            "title": mechanism.title,
            "shape": [source.table.num_rows, len(source.table.domain)],
            "limit_s": cell.limit_s,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": COMMIT,
            "machine": self.machine,
        }

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


def _measured(ended: Ended) -> Record:
    return {
        "wall_seconds": round(ended.seconds, 3),
        "cpu_seconds": round(ended.cpu_seconds, 3),
        "peak_memory_mb": round(ended.peak_memory_mb, 1),
    }


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
    workload: Workload = job.marginals()
    out, answers = Path(job.out), Path(job.answers)
    phases = {name: float(seconds) for name, seconds in report.get("seconds", {}).items()}
    scored: Record = {
        "table_error": None,
        "answer_error": None,
        "table_seconds": None,
        "answer_seconds": None,
    }
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
