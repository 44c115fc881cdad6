"""What was released (events), what it costs (zCDP), and the ledger that refuses to overspend.

Costs are exact fractions, rounded up to whole units of 2⁻⁶⁰ ρ; limits are rounded down. So the
sum of the costs is at most ρ with no tolerance, and no float takes part in the comparison.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from threading import Lock
from typing import Protocol

from adaptive_qs.errors import BudgetExceeded, InputError

UNITS_PER_RHO = 2**60


@dataclass(frozen=True)
class GaussianEvent:
    """Discrete or continuous Gaussian noise on integer values, by its exact parameters.

    Attributes:
        label: what was released, in public words.
        squared_sensitivity: largest squared L2 change of the values by one row, Δ².
        noise_variance: parameter σ² of the noise.

    Raises:
        InputError: an empty label, or a parameter that is not a positive rational number.
    """

    label: str
    squared_sensitivity: Fraction | int
    noise_variance: Fraction | int

    def __post_init__(self) -> None:
        """Refuse bad parameters."""
        _check_label(self.label)
        _check_positive("squared sensitivity", self.squared_sensitivity)
        _check_positive("noise variance", self.noise_variance)

    @property
    def rho(self) -> Fraction:
        """zCDP cost Δ²/(2σ²). Canonne, Kamath, Steinke 2020, Theorem 14."""
        return Fraction(self.squared_sensitivity) / (2 * self.noise_variance)


@dataclass(frozen=True)
class SelectionEvent:
    """One draw of the exponential mechanism.

    Attributes:
        label: what was selected, in public words.
        epsilon: ε of the mechanism; a float stands for its exact binary value.

    Raises:
        InputError: an empty label, or an epsilon that is not positive and finite.
    """

    label: str
    epsilon: Fraction | float

    def __post_init__(self) -> None:
        """Refuse bad parameters."""
        _check_label(self.label)
        if not 0 < self.epsilon < math.inf:
            raise InputError(f"selection epsilon is {self.epsilon!r}: give a positive number")

    @property
    def rho(self) -> Fraction:
        """zCDP cost ε²/8 by bounded range: Cesar and Rogers 2021; Fuentes et al., Prop. B.3."""
        return Fraction(self.epsilon) ** 2 / 8


Event = GaussianEvent | SelectionEvent


def zcdp_units(event: Event) -> int:
    """Cost of an event in units of 2**-60 rho, rounded up.

    Raises:
        InputError: an event of unknown kind, whose cost would be a guess.
    """
    if type(event) not in (GaussianEvent, SelectionEvent):
        raise InputError(f"cannot price an event of type {type(event).__name__}: use a known one")
    return math.ceil(event.rho * UNITS_PER_RHO)


class Ledger(Protocol):
    """A zCDP budget that records every charge before the noise is drawn."""

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything charged so far, in order."""
        ...

    @property
    def total_rho(self) -> float:
        """The budget ρ, rounded down."""
        ...

    @property
    def spent_rho(self) -> float:
        """Sum of all charges, rounded up."""
        ...

    @property
    def remaining_rho(self) -> float:
        """What may still be charged, rounded down."""
        ...

    def charge(self, event: Event) -> None:
        """Record the event, or raise BudgetExceeded and record nothing."""
        ...


class Budget:
    """A ledger in memory.

    Raises:
        InputError: the budget is not positive and finite, or below one unit.
    """

    def __init__(self, rho: Fraction | float) -> None:
        """A budget of ``rho``-zCDP; a float stands for its exact binary value."""
        if not 0 < rho < math.inf or (units := math.floor(Fraction(rho) * UNITS_PER_RHO)) < 1:
            raise InputError(f"privacy budget rho is {rho!r}: give a number of at least 2**-60")
        self._limit = units
        self._spent = 0
        self._events: list[Event] = []
        self._lock = Lock()

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything charged so far, in order."""
        return tuple(self._events)

    @property
    def total_rho(self) -> float:
        """The budget ρ, rounded down."""
        return _rho_below(self._limit)

    @property
    def spent_rho(self) -> float:
        """Sum of all charges, rounded up."""
        return -_rho_below(-self._spent)

    @property
    def remaining_rho(self) -> float:
        """What may still be charged, rounded down."""
        return _rho_below(self._limit - self._spent)

    def charge(self, event: Event) -> None:
        """Record the event.

        Raises:
            BudgetExceeded: its cost exceeds what remains; nothing is recorded.
            InputError: an event of unknown kind.
        """
        units = zcdp_units(event)
        with self._lock:
            if self._spent + units > self._limit:
                raise BudgetExceeded(
                    f"{event.label}: cost rho {units / UNITS_PER_RHO:.4g} exceeds the remaining "
                    f"{self.remaining_rho:.4g}: lower the accuracy or raise the budget"
                )
            self._spent += units
            self._events.append(event)


def _rho_below(units: int) -> float:
    """The largest float that is not above this many units."""
    rho = Fraction(units, UNITS_PER_RHO)
    nearest = float(rho)
    return nearest if Fraction(nearest) <= rho else math.nextafter(nearest, -math.inf)


def _check_label(label: str) -> None:
    if not isinstance(label, str) or not label:
        raise InputError("an event has no label: say in public words what is released")


def _check_positive(name: str, value: Fraction | int) -> None:
    if not isinstance(value, int | Fraction) or value <= 0:
        raise InputError(f"{name} is {value!r}: give a positive int or Fraction")
