"""What may go wrong around a command, as preparations of children."""

from __future__ import annotations

import os
import resource
import sqlite3
from pathlib import Path

NOBODY = 65_534


def full(size: int) -> None:
    """No file can grow beyond so many bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def full_from(fault: str, size: int) -> None:
    """The same from a fault on."""
    from adaptive_qs.machine import on_reach

    on_reach(lambda reached: full(size) if reached == fault else None)


def nobody(folder: Path) -> None:
    """Work without the rights of root, to which a read-only folder means nothing."""
    if os.getuid() == 0:
        for path in (folder, *folder.iterdir()):
            os.chown(path, NOBODY, NOBODY)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def read_only(folder: Path) -> None:
    """Nothing can be added to a folder."""
    folder.chmod(0o555)


def read_only_from(fault: str, folder: Path) -> None:
    """The same from a fault on."""
    from adaptive_qs.machine import on_reach

    on_reach(lambda reached: read_only(folder) if reached == fault else None)


def stdout_to(path: str) -> None:
    """Write results to a file."""
    os.dup2(os.open(path, os.O_WRONLY), 1)


def reader_gone() -> None:
    """Nobody reads the results."""
    there, here = os.pipe()
    os.close(there)
    os.dup2(here, 1)


def locked_from(fault: str, ledger: str, seconds: float) -> None:
    """From a fault on, another connection keeps the ledger locked; wait so long for it."""
    import adaptive_qs.ledger.store as database
    from adaptive_qs.machine import on_reach

    database.BUSY_SECONDS = seconds

    def lock(reached: str) -> None:
        if reached == fault and not held:
            held.append(sqlite3.connect(ledger, isolation_level=None, check_same_thread=False))
            held[0].execute("BEGIN IMMEDIATE")

    held: list[sqlite3.Connection] = []
    on_reach(lock)
