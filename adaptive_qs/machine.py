"""Resources of the machine (threads, memory, time), progress, and faults that tests provoke."""

import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from adaptive_qs.arguments import as_integer, positive_integer, shown
from adaptive_qs.errors import InputError, ResourceExceeded

# Threads and memory of a run: from the caller, or from the machine.

PROCESS_BYTES = 350 * 2**20
"""Memory of the interpreter, the libraries and compiled kernels."""
MOST_WORKERS = 1_024
"""Maximum number of threads; more only cost memory."""
ROWS_SHARE = 0.25
"""Share of the memory for rows, whose number is private and must not change a plan."""

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]+)?) ?([KMGT]?)(?:i?B)?", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def memory_bytes(ceiling: int | str | None) -> int:
    """Return a maximum memory in bytes, given as bytes or as text such as "3GB" (2**30 bytes each).

    InputError is raised if it is neither a positive integer nor such text.
    """
    memory_share = 0.75  # default of the maximum memory, as a share of the memory of the machine
    if ceiling is None:
        return int(memory_share * _machine_bytes())
    size = as_integer(ceiling)
    if size is None and isinstance(ceiling, str) and (parts := _SIZE.fullmatch(ceiling.strip())):
        size = int(float(parts[1]) * _UNITS[parts[2].upper()])
    if size is None or size < 1:
        raise InputError(f"max-memory is {shown(ceiling)}. Use a size such as 3GB.")
    return size


def memory_claims(ceiling: int | str | None = None) -> Callable[[int], None]:
    """Return a function that reserves memory before an untrusted file is read.

    It raises ResourceExceeded if the process and all reserved memory exceed the ceiling, which is
    as for :func:`memory_bytes`.
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


def plan_workers(workers: int | None) -> int:
    """Return the number of threads: all cores by default.

    InputError is raised if it is not a positive integer of at most ``MOST_WORKERS``.
    """
    if workers is None:
        usable = getattr(os, "sched_getaffinity", None)
        return len(usable(0)) if usable else os.cpu_count() or 1
    threads = positive_integer("workers", workers)
    if threads > MOST_WORKERS:
        raise InputError(f"workers is {threads:,}. Use at most {MOST_WORKERS:,}.")
    return threads


T = TypeVar("T")


class ThreadPool(ThreadPoolExecutor):
    """A pool of threads that explains why the system starts none."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Submit a task; start a thread if none is idle, or raise ResourceExceeded if none can."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            if "start new thread" not in str(error):
                raise
            raise ResourceExceeded(
                "the system starts no further thread: raise its limit on memory or threads "
                "(ulimit -v, ulimit -u), or use fewer workers"
            ) from None


@cache
def linear_algebra() -> ThreadpoolController:
    """Return a controller of the threads of NumPy and SciPy."""
    import scipy.linalg  # noqa: F401  (it finds only what is loaded)

    return ThreadpoolController()


@cache
def peak_memory_mb() -> float:
    """Return the largest resident size of this process in MB (2**20 bytes).

    The figure of the system (``ru_maxrss``) includes the memory of the process that started this
    one, so it is only a fallback.
    """
    status = Path("/proc/self/status")
    try:
        return int(status.read_text(encoding="ascii").split("VmHWM:")[1].split()[0]) / 2**10
    except (OSError, IndexError):
        pass
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


@cache
def find_version(name: str) -> str:
    """Return the version of an installed package."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "0+unknown"


def _machine_bytes() -> int:
    """Return the physical memory in bytes, or the limit of the container if it is lower."""
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        physical = 4 * 2**30
    try:
        limit = int(_CGROUP_LIMIT.read_text())
    except (OSError, ValueError):
        return physical
    return min(physical, limit)


# Compiled functions. Numba caches them next to the module, or else in the home folder.


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return Numba's decorator with these options; code that cannot be cached is compiled anew."""

    def compiled(function: Callable[..., Any]) -> Any:
        import numba

        dispatcher = numba.njit(
            **{"no_cfunc_wrapper": True, "error_model": "numpy", **options, "cache": False}
        )(function)
        if options.get("cache"):
            try:
                dispatcher._cache = _code_cache()(function)
            except RuntimeError:  # Numba finds no folder that it can write
                _note_uncached()
        return dispatcher

    return compiled


@cache
def _code_cache() -> Any:
    """Return Numba's cache, extended to survive damaged files and full disks."""
    from numba.core import caching

    base: Any = caching.FunctionCache

    class Cache(base):  # type: ignore[misc,unused-ignore]
        def load_overload(self, *args: Any) -> Any:
            try:
                return super().load_overload(*args)
            except Exception:  # noqa: BLE001  (a damaged file raises anything)
                with suppress(OSError):
                    self.flush()
                return None

        def save_overload(self, *args: Any) -> None:
            with suppress(OSError):
                super().save_overload(*args)

    return Cache


@cache
def _note_uncached() -> None:
    """Note on stderr, once, that code is not kept."""
    if sys.stderr is not None:
        sys.stderr.write(
            "compiled code cannot be kept in the package or the home folder: every run compiles "
            "for some seconds; NUMBA_CACHE_DIR names another private folder\n"
        )


# Named points at which a test can stop the program, as a power cut would.


class Fault(StrEnum):
    """The points, in the order in which a run reaches them first."""

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
    """Mark a point; does nothing outside tests."""
    for handler in _handlers:
        handler(fault)


def on_reach(handler: Callable[[Fault], None]) -> None:
    """Call ``handler`` with each point from now on in this process (tests only)."""
    _handlers.append(handler)


# Progress and time of a run.

StepProgress = Callable[[int, int], None]
"""A function that one phase calls with the steps done and the total of steps."""

CheckRows = Callable[[int], None]
"""A function that is called with the number of rows read so far; raises if they are too many."""

PhaseProgress = Callable[[str, int, int], None]
"""A function that is called with the phase, the steps done and the total of steps."""


class PhaseClock:
    """A clock that times the phases of a run (``seconds``) and forwards their progress reports.

    It is itself a ``PhaseProgress``: a report from a new phase ends the previous one.
    """

    def __init__(self, progress: PhaseProgress | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress
        self._phase: str | None = None
        self._since = self._begun = time.perf_counter()

    def start(self, phase: str) -> None:
        """Start a phase, and end the previous one."""
        if phase != self._phase:
            self._close()
            self._phase = phase

    def steps(self, phase: str) -> StepProgress:
        """Start a phase, and return the function for its reports."""
        self.start(phase)
        return lambda done, total: self(phase, done, total)

    def stop(self) -> dict[str, float]:
        """End the last phase; return the seconds of every phase and their ``total``."""
        self._close()
        self._phase = None
        self.seconds["total"] = time.perf_counter() - self._begun
        return self.seconds

    def __call__(self, phase: str, done: int, total: int) -> None:
        self.start(phase)
        if self._progress is not None:
            self._progress(phase, done, total)

    def _close(self) -> None:
        now = time.perf_counter()
        if self._phase is not None:
            self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + now - self._since
        self._since = now


def over_items(workers: int, task: Callable[[Any], None], items: Sequence[Any]) -> None:
    """Call ``task(item)`` for every item; thread k takes items k, k + workers, and so on."""

    def share(first: int) -> None:
        for item in items[first::workers]:
            task(item)

    workers = max(min(workers, len(items)), 1)
    if workers == 1:
        share(0)
        return
    with ThreadPool(workers - 1) as pool:
        futures = [pool.submit(share, first) for first in range(1, workers)]
        share(0)
        for future in futures:
            future.result()
