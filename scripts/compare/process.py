"""The harness's side of a supervised process: environment, start, end, and why it failed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUPERVISOR = Path(__file__).parent / "supervise.py"
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "NPROC",  # of XLA
)
LONGEST_REASON = 200


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes:
        status: exit status, or minus the signal's number.
        seconds: wall clock, from start to end.
        cpu_seconds: of all its threads and of processes that it waited for.
        peak_memory_mb: resident memory of its largest process (MB of 2**20 bytes).
        limit_reached: whether it was killed at the time limit.
    """

    status: int
    seconds: float
    cpu_seconds: float
    peak_memory_mb: float
    limit_reached: bool


class Stopped(Exception):
    """The harness is to end; the process was killed."""


def run_supervised(
    command: Sequence[str],
    folder: Path,
    threads: int,
    limit_s: float,
    started: Callable[[subprocess.Popen[bytes]], None],
) -> Ended:
    """Run a command in a process group of its own, and wait for its end.

    Args:
        command: what to run.
        folder: its working folder; its output goes to ``log.txt`` there.
        threads: what libraries are told to use.
        limit_s: wall-clock seconds until the group is killed.
        started: given the supervisor; closing its standard input kills the group.

    Raises:
        Stopped: the supervisor was told to end.
    """
    request = {
        "command": list(command),
        "environment": environment(threads, command[0] == sys.executable),
        "folder": str(folder),
        "log": str(folder / "log.txt"),
        "limit_s": limit_s,
    }
    path = folder / "request.json"
    path.write_text(json.dumps(request), encoding="utf-8")
    supervisor = subprocess.Popen(
        [sys.executable, "-I", "-S", str(SUPERVISOR), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    started(supervisor)
    assert supervisor.stdout is not None
    printed = supervisor.stdout.read()
    supervisor.wait()
    for pipe in (supervisor.stdin, supervisor.stdout):
        assert pipe is not None
        pipe.close()
    if not printed:
        raise Stopped
    return Ended(**json.loads(printed))


def environment(threads: int, own: bool) -> dict[str, str]:
    """Variables of a cell's process: threads declared, and no Python path but its own.

    Args:
        threads: for every library that can be told.
        own: whether it runs this project's code and not a peer's.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    kept |= dict.fromkeys(THREAD_VARIABLES, str(threads))
    kept["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'}"
    kept["JAX_PLATFORMS"] = "cpu"
    kept["PYTHONHASHSEED"] = "0"
    if own:
        kept["PYTHONPATH"] = str(ROOT)
    return kept


def reason(ended: Ended, log: Path) -> str:
    """One line on why a process failed, without paths."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if ended.status < 0:
        said = f"killed by signal {-ended.status}"
        said += " (out of memory?)" if ended.status == -9 else ""
    else:
        said = lines[-1] if lines else f"exit status {ended.status}"
    return without_paths(said)[:LONGEST_REASON]


def without_paths(text: str) -> str:
    """The text with folders taken off the names of files."""
    return re.sub(r"(?<![\w:/])(?:/[\w.+@~-]+)+/", "", text)
