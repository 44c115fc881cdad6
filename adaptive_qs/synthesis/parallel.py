"""Row- and task-parallel execution of compiled kernels that release the interpreter lock.

Results never depend on the number of workers: kernels draw from counter-based random numbers
keyed by row, and tasks write to disjoint memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any


def over_rows(workers: int, num_rows: int, kernel: Callable[[int, int], None]) -> None:
    """Call ``kernel(start, stop)`` on contiguous blocks that cover 0 .. num_rows."""
    bounds = [num_rows * k // workers for k in range(workers + 1)]
    _run(workers, [partial(kernel, start, stop) for start, stop in pairwise(bounds)])


def over_items(workers: int, task: Callable[[Any], None], items: Sequence[Any]) -> None:
    """Call ``task(item)`` for every item; each thread takes every so-manieth item."""

    def share(first: int) -> None:
        for item in items[first::workers]:
            task(item)

    _run(workers, [partial(share, first) for first in range(workers)])


def _run(workers: int, jobs: Sequence[Callable[[], None]]) -> None:
    if workers == 1:
        for job in jobs:
            job()
        return
    with ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(job) for job in jobs]:
            future.result()
