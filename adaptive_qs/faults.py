"""Named places at which a test may stop the program, as a power cut would."""

from __future__ import annotations

from collections.abc import Callable

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

FAULTS = (
    LOGGED, RESERVED, CHARGED, DRAWN, COMMITTED, MEASURED, PUBLISHED, WRITTEN, SYNCED, NAMED,
    DELIVERED, CLOSED,
)  # fmt: skip
"""All of them, in the order in which a run reaches them first."""

_handlers: list[Callable[[str], None]] = []


def reach(fault: str) -> None:
    """Mark a place; does nothing outside tests."""
    for handler in _handlers:
        handler(fault)


def on_reach(handler: Callable[[str], None]) -> None:
    """Call ``handler`` with the name of each place from now on in this process (tests only)."""
    _handlers.append(handler)
