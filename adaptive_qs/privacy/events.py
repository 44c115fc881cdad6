"""What was released, and what it costs: zCDP, and for partition selection also a share of δ.

Costs are exact, rounded up to whole units of 2⁻⁶⁰ ρ and 2⁻¹⁰⁰ δ; limits are rounded down. So the
sum of the costs is at most the limit with no tolerance, and no float takes part in the comparison.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from adaptive_qs.errors import InputError

UNITS_PER_RHO = 2**60
UNITS_PER_DELTA = 2**100


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

    @property
    def delta(self) -> Fraction:
        """No share of δ."""
        return Fraction(0)


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

    @property
    def delta(self) -> Fraction:
        """No share of δ."""
        return Fraction(0)


@dataclass(frozen=True)
class PartitionEvent:
    """Which of unknown values occur: those whose noisy count reaches a threshold.

    A row is one value. A value that only one row has is found with probability at most
    P[1 + noise ≥ threshold] ≤ δ; otherwise neighbours differ as Gaussian counts do.

    Attributes:
        label: what was discovered, in public words.
        noise_variance: parameter σ² of the discrete Gaussian noise on each count.
        threshold: least noisy count of a value that is released.
        delta: share of δ that covers values of a single row.

    Raises:
        InputError: an empty label, a parameter out of range, or a δ below the bound on that
            probability.
    """

    label: str
    noise_variance: Fraction | int
    threshold: int
    delta: Fraction

    def __post_init__(self) -> None:
        """Refuse bad parameters."""
        _check_label(self.label)
        _check_positive("noise variance", self.noise_variance)
        if type(self.threshold) is not int or self.threshold < 2:
            raise InputError(f"threshold is {self.threshold!r}: give an integer of at least 2")
        if not isinstance(self.delta, Fraction) or not 0 < self.delta < 1:
            raise InputError(f"delta is {self.delta!r}: give a Fraction between 0 and 1")
        if self.delta < threshold_delta(self.noise_variance, self.threshold):
            raise InputError("threshold too low for its share of delta: raise one of them")

    @property
    def rho(self) -> Fraction:
        """zCDP cost 1/(2σ²): one row changes one count by one."""
        return Fraction(1) / (2 * self.noise_variance)


Event = GaussianEvent | SelectionEvent | PartitionEvent


def threshold_delta(noise_variance: Fraction | int, threshold: int) -> Fraction:
    """An upper bound on P[1 + noise ≥ threshold], for a threshold of at least 2.

    The discrete Gaussian has P[X ≥ m] ≤ P[N(0, σ²) ≥ m − 1] (Canonne, Kamath, Steinke 2020,
    Proposition 25); the error function is raised by far more than it may be wrong.
    """
    tail = math.erfc((threshold - 2) / math.sqrt(2 * noise_variance)) / 2
    return Fraction(tail) * Fraction(2**30 + 1, 2**30)


@dataclass(frozen=True)
class Cost:
    """A privacy cost in whole units.

    Attributes:
        rho_units: in 2**-60 ρ.
        delta_units: in 2**-100 δ.
    """

    rho_units: int = 0
    delta_units: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.rho_units + other.rho_units, self.delta_units + other.delta_units)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.rho_units - other.rho_units, self.delta_units - other.delta_units)

    def fits(self, limit: Cost) -> bool:
        """Whether neither part exceeds the limit's."""
        return self.rho_units <= limit.rho_units and self.delta_units <= limit.delta_units

    @property
    def rho(self) -> Fraction:
        """The zCDP part, exactly."""
        return Fraction(self.rho_units, UNITS_PER_RHO)

    @property
    def delta(self) -> Fraction:
        """The part of δ, exactly."""
        return Fraction(self.delta_units, UNITS_PER_DELTA)

    @classmethod
    def within(cls, rho: Fraction | float, delta: Fraction | float = 0) -> Self:
        """The largest whole units that exceed neither; floats stand for their exact values."""
        return cls(
            math.floor(Fraction(rho) * UNITS_PER_RHO), math.floor(Fraction(delta) * UNITS_PER_DELTA)
        )

    @classmethod
    def covering(cls, rho: Fraction | float, delta: Fraction | float = 0) -> Self:
        """The smallest whole units that are below neither; floats stand for their exact values."""
        return cls(
            math.ceil(Fraction(rho) * UNITS_PER_RHO), math.ceil(Fraction(delta) * UNITS_PER_DELTA)
        )

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        """What events cost together, each rounded up.

        Raises:
            InputError: an event of unknown kind, whose cost would be a guess.
        """
        known = list(events)
        for event in known:
            if type(event) not in (GaussianEvent, SelectionEvent, PartitionEvent):
                raise InputError(
                    f"cannot price an event of type {type(event).__name__}: use a known one"
                )
        return cls(
            sum(math.ceil(event.rho * UNITS_PER_RHO) for event in known),
            sum(math.ceil(event.delta * UNITS_PER_DELTA) for event in known),
        )


def _check_label(label: str) -> None:
    if not isinstance(label, str) or not label:
        raise InputError("an event has no label: say in public words what is released")


def _check_positive(name: str, value: Fraction | int) -> None:
    if not isinstance(value, int | Fraction) or value <= 0:
        raise InputError(f"{name} is {value!r}: give a positive int or Fraction")
