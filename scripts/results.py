"""What every script uses: measure in a process apart, and write numbers with all they depend on."""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_qs import machine

RESULTS = Path(__file__).resolve().parent.parent / "results"
CODE = ("adaptive_qs", "scripts", "pyproject.toml")
PACKAGES = ("adaptive-qs", "numpy", "scipy", "numba", "pandas", "pyarrow")


def write_results(
    name: str,
    numbers: Any,
    config: Mapping[str, Any],
    seeds: Sequence[int] | None,
    rows: Sequence[Mapping[str, Any]] | None = None,
    folder: Path = RESULTS,
) -> Path:
    """Write ``results/<name>.json`` and, given rows, ``results/<name>.csv``; each all or nothing.

    Args:
        name: file name without its ending.
        numbers: what was measured; JSON, NumPy numbers and arrays, nested at will.
        config: every setting the numbers depend on, without machine paths.
        seeds: seeds of all randomness that has one; None where it came from the system.
        rows: the same numbers as a flat table, one mapping with equal keys per line.
        folder: where to write.

    Returns:
        The path of the JSON file.
    """
    document = {
        "name": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "numbers": numbers,
        "config": dict(config),
        "seeds": seeds,
        "environment": environment(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    if rows is not None:
        table = io.StringIO()
        writer = csv.DictWriter(table, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(folder / f"{name}.csv", table.getvalue())
    path = folder / f"{name}.json"
    text = json.dumps(document, indent=2, ensure_ascii=False, default=_plain, allow_nan=False)
    write_atomically(path, text + "\n")
    return path


def with_earlier(
    name: str, fresh: Sequence[Mapping[str, Any]], order: Sequence[str], folder: Path = RESULTS
) -> list[dict[str, Any]]:
    """Rows of some cases, and those that a file has of the others, each with its own commit.

    Args:
        name: of the file, without its ending; there need not be one.
        fresh: rows measured now, with a "case".
        order: the cases, in the order of the rows.
        folder: where the file is.
    """
    path = folder / f"{name}.json"
    earlier = json.loads(path.read_text())["numbers"] if path.exists() else []
    now = {"commit": STARTED_FROM["hash"][:7] if STARTED_FROM else ""}
    rows = {row["case"]: row for row in earlier}
    rows |= {row["case"]: {**row, **now} for row in fresh}
    columns = [*next(iter(fresh)), "commit"]
    return [{key: rows[case].get(key) for key in columns} for case in order if case in rows]


def apart(task: Callable[..., Any], *arguments: Any, start: str = "spawn") -> Any:
    """The task's result from a process of its own, which has the memory of nothing else."""
    with ProcessPoolExecutor(1, multiprocessing.get_context(start)) as pool:
        return pool.submit(task, *arguments).result()


def here(task: Callable[..., Any], *arguments: Any) -> Any:
    """The task's result from this process: in place of :func:`apart` where a moment is enough."""
    return task(*arguments)


def peak_memory_mb() -> float:
    """Most memory this process ever held; not that of the process that started it."""
    peak = machine.peak_memory_mb()
    assert peak is not None, "no script runs where the system does not say it"
    return peak


def run_program(*arguments: object) -> tuple[dict[str, Any], float, float]:
    """Run ``adaptive-qs`` as a user would: in a new process, with noise from the system.

    Returns:
        What it printed with ``--json``, wall seconds, and the peak memory of its process in MB.
    """
    start = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-m", "adaptive_qs", *map(str, arguments), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if ended.returncode:
        raise SystemExit(f"{arguments[0]} failed with status {ended.returncode}")
    printed = json.loads(ended.stdout)
    return printed, time.perf_counter() - start, printed["peak_memory_mb"]


def timed_program(*arguments: object) -> tuple[dict[str, Any], float, float, float]:
    """What a command printed, its processor and wall seconds, and its peak memory in MB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found, wall, memory = run_program(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return found, cpu, wall, memory


def environment() -> dict[str, Any]:
    """Code, versions and processor; nothing that names the machine or its user."""
    return {
        "commit": STARTED_FROM,
        "python": platform.python_version(),
        "system": platform.system(),
        "packages": {package: _version(package) for package in PACKAGES},
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
    }


def git_commit(code: Sequence[str] = CODE) -> dict[str, Any] | None:
    """The commit checked out and whether tracked code, in these paths, differs from it."""
    root = RESULTS.parent
    try:
        commit = _git(root, "rev-parse", "HEAD").strip()
        changes = _git(root, "status", "--porcelain", "--untracked-files=no", "--", *code)
    except (OSError, subprocess.CalledProcessError):
        return None
    return {"hash": commit, "dirty": bool(changes.strip())}


def cpu_model() -> str:
    """The processor's name as the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's content; a reader sees the old file or the new one, never a part."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True
    ).stdout


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"cannot write a {type(value).__name__} as JSON: convert it first")


STARTED_FROM = git_commit()
"""The commit when the script began: a long run may see later ones come."""
