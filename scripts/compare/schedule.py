"""Cells side by side: one slot for each, with cores of its own."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from collections.abc import Generator, Sequence
from typing import Any

from scripts.compare.cells import Bench
from scripts.compare.grid import Cell
from scripts.compare.process import Stopped

Record = dict[str, Any]


def cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class Slots:
    """Runs cells, ``jobs`` at a time.

    A slot is a thread that has its share of the cores; processes that it starts inherit them, so
    that a library that takes no advice on threads has no more cores either.

    Args:
        bench: where and how cells run.
        jobs: cells at once.
    """

    def __init__(self, bench: Bench, jobs: int) -> None:
        self._bench = bench
        self._jobs = jobs
        self._todo: queue.SimpleQueue[Cell] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[Cell, Record | BaseException]] = queue.SimpleQueue()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopping = False

    def run(self, cells: Sequence[Cell]) -> Generator[tuple[Cell, Record], None, None]:
        """Every cell with its record, as they end; leaving early kills what runs."""
        for cell in cells:
            self._todo.put(cell)
        usable = cores()
        threads = self._bench.threads
        slots = [
            threading.Thread(target=self._slot, args=(usable[i * threads : (i + 1) * threads],))
            for i in range(self._jobs)
        ]
        for slot in slots:
            slot.start()
        try:
            for _ in cells:
                cell, ended = self._done.get()
                if isinstance(ended, BaseException):
                    raise ended
                yield cell, ended
        finally:
            self._stop()
            for slot in slots:
                slot.join()

    def _slot(self, own: list[int]) -> None:
        if own and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, own)
        while not self._stopping:
            try:
                cell = self._todo.get_nowait()
            except queue.Empty:
                return
            try:
                self._done.put((cell, self._bench.run(cell, self._started)))
            except Stopped:
                return
            except BaseException as error:  # noqa: BLE001  (raised again where cells are read)
                self._done.put((cell, error))
                return

    def _started(self, supervisor: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._running = {one for one in self._running if one.returncode is None}
            self._running.add(supervisor)
            if self._stopping:
                _end(supervisor)

    def _stop(self) -> None:
        with self._lock:
            self._stopping = True
            for supervisor in self._running:
                _end(supervisor)


def _end(supervisor: subprocess.Popen[bytes]) -> None:
    """Close its standard input, which makes it kill its group and end."""
    assert supervisor.stdin is not None
    if not supervisor.stdin.closed:
        supervisor.stdin.close()
