"""Commands in children of a process that has imported everything: quick to start and to kill.

What happens to a child is said by preparations: functions that it calls before the command.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import util
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 120

Preparation = Callable[[], None]

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload([f"{__package__}.warm"])
util.get_temp_dir()  # made now: tests move temporary files to paths too long for a socket
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))  # where children find this module


class Ended(NamedTuple):
    """How a command ended; a negative code is the signal that ended it."""

    code: int
    out: str
    err: str


class Child:
    """A command at work."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, logs: Path, *preparations: Preparation
    ) -> None:
        self._logs = logs
        for name in ("out", "err"):
            (logs / name).write_bytes(b"")
        self._process = context.Process(
            target=_work, args=(list(arguments), folder, logs, preparations)
        )
        self._process.start()

    def send(self, number: int) -> None:
        """Send a signal, unless it is over."""
        if self._process.is_alive():
            with suppress(ProcessLookupError):  # it may end in between
                os.kill(self._process.pid, number)

    def wait_for(self, text: str) -> None:
        """Wait until its journal holds this text, or it is over."""
        journal = self._logs / "journal"
        while self._process.is_alive():
            if journal.exists() and text in journal.read_text():
                return
            time.sleep(0.002)

    def ended(self) -> Ended:
        """Wait for its end."""
        self._process.join(PATIENCE_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            raise TimeoutError("a command did not end")
        texts = (self._logs / name for name in ("out", "err"))
        return Ended(self._process.exitcode, *(text.read_text() for text in texts))


def _work(
    arguments: list[str], folder: Path, logs: Path, preparations: Sequence[Preparation]
) -> None:
    os.chdir(folder)
    for number, name in ((1, "out"), (2, "err")):
        handle = os.open(logs / name, os.O_WRONLY | os.O_APPEND)
        os.dup2(handle, number)
        os.close(handle)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup around the tests would leave it ignored
    quick_tables()
    for prepare in preparations:
        prepare()
    from adaptive_qs.cli import entry

    entry.PATIENCE_SECONDS = PATIENCE_SECONDS  # of a loaded machine, where cleaning up takes longer
    sys.exit(entry.main(arguments))


def quick_tables() -> None:
    """Fit tables with few rows: these tests are not about their quality."""
    import adaptive_qs.release.release as release
    from adaptive_qs.generate.rows import SynthesisSettings

    release.SynthesisSettings = partial(SynthesisSettings, fit_rows=200)


def small_groups() -> None:
    """Answer in several releases also where one would do."""
    import adaptive_qs.answering.measure as run

    run.GROUP_MEASUREMENTS = 2


def stopped_clock() -> None:
    """The same ledger, byte for byte, whenever it is written."""
    import adaptive_qs.ledger.store as store

    store._now = lambda: "2000-01-01T00:00:00.000000+00:00"


def noting(journal: Path) -> None:
    """Note in a file each fault reached, each draw, and each release that the program sees."""
    from adaptive_qs.ledger.entries import compute_digests, to_bytes
    from adaptive_qs.ledger.run import LedgerRun
    from adaptive_qs.machine import on_reach

    handle = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    release = LedgerRun.release

    def note(*words: object) -> None:
        os.write(handle, ("\t".join(map(str, words)) + "\n").encode())

    def noted(run, events, draw, definition=""):
        position = run._position

        def noted_draw():
            note("drawn", position)
            return draw()

        outputs = release(run, events, noted_draw, definition)
        note("seen", position, ",".join(compute_digests([to_bytes(output) for output in outputs])))
        return outputs

    LedgerRun.release = noted
    on_reach(lambda fault: note("reached", fault))


def waiting(fault: str, file: Path) -> None:
    """Stop at a fault until there is this file."""
    from adaptive_qs.machine import on_reach

    def wait(reached: str) -> None:
        while reached == fault and not file.exists():
            time.sleep(0.002)

    on_reach(wait)


def at(fault: str, nth: int, number: int = signal.SIGKILL) -> None:
    """Send this signal to itself where it reaches a fault for the n-th time."""
    from adaptive_qs.machine import on_reach

    left = nth

    def count(reached: str) -> None:
        nonlocal left
        left -= reached == fault
        if reached == fault and left == 0:
            os.kill(os.getpid(), number)

    on_reach(count)
