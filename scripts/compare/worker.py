"""The process of a cell that runs one of this project's mechanisms: ``worker JOB.json``."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.release.statement import versions
from adaptive_qs.table.coded import CodedTable
from scripts.compare import floors, ours
from scripts.compare.job import Job, write_codes
from scripts.compare.outcome import Outcome

MECHANISMS: dict[str, Callable[[Job, CodedTable], Outcome]] = {
    "adaptive": ours.adaptive,
    "adaptive-uniform": ours.adaptive_uniform,
    "independent": ours.independent,
    "residualplanner": ours.residualplanner,
    "querysmasher": ours.querysmasher,
    "bootstrap": floors.bootstrap,
    "true-independent": floors.true_independent,
}
"""The functions behind the names of ``comparison.mechanisms``."""


def main(path: str) -> None:
    """Run a job and write its table, answers and report."""
    warnings.filterwarnings("ignore", message="insecure_seed")
    job = Job.load(path)
    table = job.table()
    outcome = MECHANISMS[job.mechanism](job, table)
    seconds = dict(outcome.seconds)
    if outcome.table is not None:
        write_codes(Path(job.out), outcome.table)
    if outcome.answers is not None:
        start = time.process_time()
        _write_answers(Path(job.answers), outcome.answers)
        seconds["answers"] = time.process_time() - start
    report = {
        "versions": versions(),
        "settings": outcome.settings,
        "seconds": seconds,
        "notes": list(outcome.notes),
    }
    Path(job.report).write_text(json.dumps(report), encoding="utf-8")


def _write_answers(path: Path, answers: Iterable[NDArray[np.float64]]) -> None:
    with path.open("wb") as file:
        for marginal in answers:
            file.write(np.ascontiguousarray(marginal, dtype=np.float64).data)


if __name__ == "__main__":
    main(sys.argv[1])
