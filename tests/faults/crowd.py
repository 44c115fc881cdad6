"""Many processes that reserve from one ledger at once, some of them killed."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import closing
from multiprocessing.process import BaseProcess
from pathlib import Path

from adaptive_qs.errors import BudgetExceeded
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.ledger.entries import Reserved, parse_body
from adaptive_qs.privacy.events import Cost

from .children import PATIENCE_SECONDS, context

LARGEST = 9
"""Units of a reservation at most; at least one."""


def reservations(processes: int, count: int, kills: int, folder: Path) -> dict[str, float]:
    """Reserve until a total is used up to its last unit, and check that nothing went wrong."""
    path, journal = folder / "ledger", folder / "granted"
    journal.touch()
    total = Cost(count * LARGEST)
    LedgerBook.create(path, total, {"rho": float(total.rho), "delta": 1e-9}).close()
    draw = random.Random(count)
    start = time.monotonic()
    workers = [_start(path, journal) for _ in range(processes)]
    for i in range(kills):
        _wait(lambda i=i: _granted(journal) >= (i + 1) * count // (kills + 1))
        at = draw.randrange(processes)
        assert workers[at].is_alive()
        workers[at].kill()
        workers[at].join()
        workers[at] = _start(path, journal)
    for worker in workers:
        worker.join(PATIENCE_SECONDS)
        assert worker.exitcode == 0
    seconds = time.monotonic() - start
    with closing(LedgerBook(path)) as book:
        book.verify()
        bodies = [parse_body(row.body) for row in book.rows()]
    reserved = [body for body in bodies if isinstance(body, Reserved)]
    assert sum(body.price.rho_units for body in reserved) == total.rho_units
    most = max(body.held.rho_units for body in bodies)
    granted = list(map(int, journal.read_text().split()))
    assert len(set(granted)) == len(granted)
    assert {body.run for body in reserved} >= set(granted)
    assert len(reserved) - len(granted) <= kills
    assert sorted(p.name for p in folder.iterdir()) == ["granted", "ledger", "ledger.mark"]
    return {
        "processes": processes,
        "reservations": len(reserved),
        "kills": kills,
        "seconds": seconds,
        "per_second": len(reserved) / seconds,
        "most_counted_share": most / total.rho_units,
    }


def _start(path: Path, journal: Path) -> BaseProcess:
    process = context.Process(target=_reserve_all, args=(path, journal))
    process.start()
    return process


def _reserve_all(path: Path, journal: Path) -> None:
    """Reserve until nothing is left."""
    draw = random.Random()
    handle = os.open(journal, os.O_WRONLY | os.O_APPEND)
    book = LedgerBook(path)
    units = LARGEST
    while units:
        try:
            request = {"command": "test", "number": str(draw.getrandbits(64))}
            run = book.reserve(request, "0" * 64, Cost(units))
        except BudgetExceeded:
            units -= 1
            continue
        os.write(handle, f"{run.number}\n".encode())
        run._lock.release()
        units = draw.randint(1, LARGEST)
    book.close()


def _granted(journal: Path) -> int:
    return journal.read_bytes().count(b"\n")


def _wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)
