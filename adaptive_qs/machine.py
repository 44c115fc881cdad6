"""What a run takes of the machine: threads, memory, time; progress; faults that tests provoke."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from pathlib import Path

from threadpoolctl import ThreadpoolController

from adaptive_qs.arguments import as_integer, positive_integer, shown
from adaptive_qs.errors import InputError, ResourceExceeded

# Threads and memory that a run may use: what the caller says, or what the machine has.

MEMORY_SHARE = 0.75
"""Part of the machine's memory used when no ceiling is given."""
PROCESS_BYTES = 350 * 2**20
"""Interpreter, libraries and compiled kernels."""
MOST_WORKERS = 1_024
"""Threads of a command: more only cost memory."""
ROWS_SHARE = 0.25
"""Part of the ceiling set aside for rows, whose number is private and must not steer a plan."""

_STATUS = Path("/proc/self/status")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]+)?) ?([KMGT]?)(?:i?B)?", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def memory_bytes(ceiling: int | str | None) -> int:
    """A memory ceiling in bytes; KB, MB, GB, TB are powers of 1024, with or without an "i" or "B".

    Raises:
        InputError: it is neither a positive integer nor such text.
    """
    if ceiling is None:
        return int(MEMORY_SHARE * _machine_bytes())
    size = as_integer(ceiling)
    if size is None and isinstance(ceiling, str) and (parts := _SIZE.fullmatch(ceiling.strip())):
        size = int(float(parts[1]) * _UNITS[parts[2].upper()])
    if size is None or size < 1:
        raise InputError(f"max-memory is {shown(ceiling)}: give a size such as 3GB")
    return size


def memory_claims(ceiling: int | str | None = None) -> Callable[[int], None]:
    """What counts the memory that reading files of others takes, told before it is taken.

    It raises ResourceExceeded where all of it together and the process itself exceed the ceiling,
    which is as for :func:`memory_bytes`.

    Raises:
        InputError: the ceiling is not a positive size.
    """
    most, needed = memory_bytes(ceiling), PROCESS_BYTES

    def claim(size: int) -> None:
        nonlocal needed
        needed += size
        if needed > most:
            raise ResourceExceeded(
                f"needs about {needed + 2**19 >> 20:,} MB to be read, more than the "
                f"{most / 2**20:,.0f} MB there are: raise --max-memory, if you trust its source"
            )

    return claim


def plan_workers(workers: int | None, name: str = "workers") -> int:
    """Threads to use: all cores by default.

    Raises:
        InputError: not a positive integer, or more than any machine has use for.
    """
    if workers is None:
        usable = getattr(os, "sched_getaffinity", None)
        return len(usable(0)) if usable else os.cpu_count() or 1
    threads = positive_integer(name, workers)
    if threads > MOST_WORKERS:
        raise InputError(f"{name} is {threads:,}: give at most {MOST_WORKERS:,}")
    return threads


@cache
def linear_algebra() -> ThreadpoolController:
    """Limits the threads that NumPy and SciPy use; finding their libraries takes milliseconds."""
    import scipy.linalg  # noqa: F401  (it finds only what is loaded)

    return ThreadpoolController()


@cache
def peak_memory_mb() -> float | None:
    """Largest resident size of this process so far, in MB (2**20 bytes); None if unknown.

    The system's figure for a program (``ru_maxrss``) begins with what the process held that
    started it, so that a small program started by a large one would look large.
    """
    try:
        return int(_STATUS.read_text(encoding="ascii").split("VmHWM:")[1].split()[0]) / 2**10
    except (OSError, IndexError):
        pass
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


@cache
def version_of(name: str) -> str:
    """Version of an installed package, as first read: its metadata is parsed anew at each look."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "0+unknown"


def _machine_bytes() -> int:
    """Physical memory, or the limit of the container where that is lower."""
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        physical = 4 * 2**30
    try:
        limit = int(_CGROUP_LIMIT.read_text())
    except (OSError, ValueError):
        return physical
    return min(physical, limit)


# Named places at which a test may stop the program, as a power cut would.


class Fault(StrEnum):
    """In the order in which a run reaches them first."""

    LOGGED = "entry committed, before the mark"
    RESERVED = "budget reserved"
    CHARGED = "charged, before the draw"
    DRAWN = "drawn, before the commit"
    COMMITTED = "committed, before the answer is seen"
    MEASURED = "everything measured"
    PUBLISHED = "digests committed, before an output has its name"
    WRITTEN = "output written, before it is synced"
    SYNCED = "output synced, before its name"
    NAMED = "output named, before its folder is synced"
    DELIVERED = "outputs in place, before the run is closed"
    CLOSED = "run closed"


_handlers: list[Callable[[Fault], None]] = []


def reach(fault: Fault) -> None:
    """Mark a place; does nothing outside tests."""
    for handler in _handlers:
        handler(fault)


def on_reach(handler: Callable[[Fault], None]) -> None:
    """Call ``handler`` with each place from now on in this process (tests only)."""
    _handlers.append(handler)


# How the steps of a run are reported, from the bottom layer to whoever shows them, and its time.

StepProgress = Callable[[int, int], None]
"""Called by one phase with the steps done and the steps in all."""

CheckRows = Callable[[int], None]
"""Told how many rows have come, before they are encoded; it raises where they are too many."""

PhaseProgress = Callable[[str, int, int], None]
"""Called with the phase, the steps done and the steps in all."""


class PhaseClock:
    """Seconds spent in each phase, and the phase passed on to whoever shows progress.

    A clock is itself a ``PhaseProgress``: a report from a new phase ends the one before.
    """

    def __init__(self, progress: PhaseProgress | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress
        self._phase: str | None = None
        self._since = self._begun = time.perf_counter()

    def start(self, phase: str) -> None:
        """End the phase before, if it is another one."""
        if phase != self._phase:
            self._close()
            self._phase = phase

    def steps(self, phase: str) -> StepProgress:
        """Start a phase; what is returned takes its reports."""
        self.start(phase)
        return lambda done, total: self(phase, done, total)

    def stop(self) -> dict[str, float]:
        """End the last phase; the seconds of every phase, and ``total``."""
        self._close()
        self._phase = None
        self.seconds["total"] = time.perf_counter() - self._begun
        return self.seconds

    def __call__(self, phase: str, done: int, total: int) -> None:
        """A report from a phase."""
        self.start(phase)
        if self._progress is not None:
            self._progress(phase, done, total)

    def _close(self) -> None:
        now = time.perf_counter()
        if self._phase is not None:
            self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + now - self._since
        self._since = now
