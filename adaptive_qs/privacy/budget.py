"""The ledger that every release passes: charged first, then drawn, then handed out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from threading import Lock
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import BudgetExceeded, InputError
from adaptive_qs.privacy.events import Cost, Event

Output = NDArray[np.int64] | int | tuple[str, ...]
"""Noisy counts, the position selected, or the values discovered."""


@dataclass(frozen=True)
class Place:
    """Where a durable ledger keeps the charges of a run.

    Attributes:
        ledger: 32 hexadecimal digits that name the ledger.
        run: number of the run.
        releases: transactions of the run.
        hash: of what they released and what it cost, in 64 hexadecimal digits.
    """

    ledger: str
    run: int
    releases: int
    hash: str


class Ledger(Protocol):
    """A privacy budget through which every release passes."""

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything charged so far, in order."""
        ...

    @property
    def limit(self) -> Cost:
        """The budget."""
        ...

    @property
    def spent(self) -> Cost:
        """The sum of all charges."""
        ...

    @property
    def place(self) -> Place | None:
        """Where the releases stand; None where nothing outlives the process."""
        ...

    def release(
        self, events: Sequence[Event], draw: Callable[[], Sequence[Output]], definition: str = ""
    ) -> Sequence[Output]:
        """Charge all the events or none, draw, and hand out what was drawn once it is safe.

        Args:
            events: what is about to be drawn.
            definition: what the outputs mean, where the events do not tell: known outputs of
                another definition must not be handed out.
            draw: one output for each event; called after the charge, or not at all where these
                events were released before and their outputs are known.

        Raises:
            BudgetExceeded: they cost more than what remains; nothing is recorded or drawn.
        """
        ...


class Budget:
    """A ledger in memory.

    Raises:
        InputError: the budget is not positive and finite, or below one unit.
    """

    def __init__(self, rho: Fraction | float, delta: Fraction | float = 0) -> None:
        """A budget of ``rho``-zCDP and a share ``delta`` of δ for partition selection.

        Floats stand for their exact binary values.
        """
        if not 0 < rho < math.inf or (limit := Cost.within(rho, delta)).rho_units < 1:
            raise InputError(f"privacy budget rho is {rho!r}: give a number of at least 2**-60")
        self.limit = limit
        self.place: Place | None = None
        self._spent = Cost()
        self._events: list[Event] = []
        self._lock = Lock()

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything charged so far, in order."""
        return tuple(self._events)

    @property
    def spent(self) -> Cost:
        """The sum of all charges."""
        return self._spent

    def release(
        self, events: Sequence[Event], draw: Callable[[], Sequence[Output]], definition: str = ""
    ) -> Sequence[Output]:
        """Charge all the events or none, then draw; see :class:`Ledger`.

        Raises:
            BudgetExceeded: they cost more than what remains; nothing is recorded or drawn.
            InputError: an event of unknown kind.
        """
        cost = Cost.of(events)
        with self._lock:
            check_fits(events, cost, self.limit - self._spent)
            self._spent += cost
            self._events += events
        return draw()


def check_fits(events: Sequence[Event], cost: Cost, remaining: Cost) -> None:
    """Refuse events that cost more than what remains.

    Raises:
        BudgetExceeded: they do.
    """
    if cost.fits(remaining):
        return
    what = events[0].label + (f" and {len(events) - 1} more" if len(events) > 1 else "")
    if cost.rho_units > remaining.rho_units:
        raise BudgetExceeded(
            f"{what}: cost rho {float(cost.rho):.4g} exceeds the remaining "
            f"{float(remaining.rho):.4g}: lower the accuracy or raise the budget"
        )
    raise BudgetExceeded(
        f"{what}: a share {float(cost.delta):.4g} of delta exceeds the remaining "
        f"{float(remaining.delta):.4g}: discover fewer columns or raise delta"
    )


def float_below(value: Fraction) -> float:
    """The largest float that is not above the value."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def float_above(value: Fraction) -> float:
    """The smallest float that is not below the value."""
    return 0.0 - float_below(-value)  # a zero without a sign
