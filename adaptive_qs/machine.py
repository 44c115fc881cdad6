"""Threads and memory that a run may use: what the caller says, or what the machine has."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

from threadpoolctl import ThreadpoolController

from adaptive_qs.arguments import as_integer, positive_integer, shown
from adaptive_qs.errors import InputError, ResourceExceeded

MEMORY_SHARE = 0.75
"""Part of the machine's memory used when no ceiling is given."""
PROCESS_BYTES = 350 * 2**20
"""Interpreter, libraries and compiled kernels."""
MOST_WORKERS = 1_024
"""Threads of a command: more only cost memory."""
ROWS_SHARE = 0.25
"""Part of the ceiling set aside for rows, whose number is private and must not steer a plan."""

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
    size = _parsed(ceiling)
    if size < 1:
        raise InputError(f"max-memory is {shown(ceiling)}: give a size such as 3GB")
    return size


class MemoryAllowance:
    """Memory that reading files of others may take, the process itself left out.

    Args:
        ceiling: of the process's memory, as for :func:`memory_bytes`.

    Raises:
        InputError: it is not a positive size.
    """

    def __init__(self, ceiling: int | str | None = None) -> None:
        self._ceiling = memory_bytes(ceiling)
        self._needed = PROCESS_BYTES

    def claim(self, size: int) -> None:
        """Count memory that is about to be taken.

        Raises:
            ResourceExceeded: with all that was claimed before it exceeds the ceiling.
        """
        self._needed += size
        if self._needed > self._ceiling:
            raise ResourceExceeded(
                f"needs about {self._needed + 2**19 >> 20:,} MB to be read, more than the "
                f"{self._ceiling / 2**20:,.0f} MB there are: raise --max-memory, if you trust its "
                "source"
            )


def refuse_rows(num_rows: int, most_rows: int, ceiling: int, what: str) -> None:
    """Refuse a table that does not fit the memory set aside for rows.

    Args:
        num_rows: rows of the table, private.
        most_rows: rows that fit, public.
        ceiling: of the process's memory, in bytes.
        what: the table, in public words.

    Raises:
        ResourceExceeded: it does not fit; the message does not tell how many rows came.
    """
    if num_rows > most_rows:
        raise ResourceExceeded(
            f"{what} has more rows than the {most_rows:,} that fit a quarter of "
            f"{ceiling / 2**20:,.0f} MB: raise --max-memory"
        )


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


def _parsed(ceiling: Any) -> int:
    size = as_integer(ceiling)
    if size is not None:
        return size
    parts = _SIZE.fullmatch(ceiling.strip()) if isinstance(ceiling, str) else None
    return int(float(parts[1]) * _UNITS[parts[2].upper()]) if parts else 0


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
