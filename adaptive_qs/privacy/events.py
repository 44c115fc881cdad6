"""What was released, what it costs, what it was for, and its exact form in a record."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field

from adaptive_qs.errors import InputError

# What was released, and what it costs: zCDP, and for partition selection also a share of δ.
#
# Costs are exact, rounded up to whole units of 2⁻⁶⁰ ρ and 2⁻¹⁰⁰ δ; limits are rounded down. So the
# sum of the costs is at most the limit with no tolerance, and no float takes part in the
# comparison.

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


# What a charge paid for, in its label: said here once, and read back for the statement.
#
# A label begins with a word that tells the purpose; columns follow by name. Names may hold
# anything, so only labels of a single column are taken apart.

SELECTION = "select"
TOTAL = "total"
SEPARATOR = " x "
"""Between the columns of a combination."""


class Purpose(Enum):
    """What a charge paid for."""

    ROWS = "rows"
    """The number of rows."""
    BINS = "bins"
    """Bounds and bins of one column."""
    VALUES = "values"
    """Categories of one column."""
    SELECTION = "selection"
    """Which marginal is measured next."""
    RESIDUAL = "residual"
    """The part of a marginal that smaller ones do not tell."""
    STRATEGY = "strategy"
    """Answers to a strategy, from which the workload's follow."""
    QUERIES = "queries"
    """Answers to the workload's own queries."""
    OTHER = "other"
    """None of these, as far as the label tells."""


_PREFIXES = {
    "residual ": Purpose.RESIDUAL,
    "strategy ": Purpose.STRATEGY,
    "queries ": Purpose.QUERIES,
    "bins of ": Purpose.BINS,
    "values of ": Purpose.VALUES,
}
_WORDS = {purpose: prefix for prefix, purpose in _PREFIXES.items()}


class Reading(NamedTuple):
    """A label read back.

    Attributes:
        purpose: what was paid for.
        subject: the rest of the label: the column of bins and values, or columns joined.
    """

    purpose: Purpose
    subject: str


def measurement_label(purpose: Purpose, names: Sequence[str]) -> str:
    """The label of noisy counts over these columns; over none it is the number of rows."""
    if not names and purpose is Purpose.RESIDUAL:
        return TOTAL
    return _WORDS[purpose] + (SEPARATOR.join(names) or TOTAL)


def column_label(purpose: Purpose, name: str) -> str:
    """The label of what is learnt about one column: ``Purpose.BINS`` or ``Purpose.VALUES``."""
    return _WORDS[purpose] + name


def read_label(label: str) -> Reading:
    """What a label says; ``Purpose.OTHER`` where it follows none of these rules."""
    if label == TOTAL:
        return Reading(Purpose.ROWS, "")
    if label == SELECTION:
        return Reading(Purpose.SELECTION, "")
    for prefix, purpose in _PREFIXES.items():
        if label.startswith(prefix):
            return Reading(purpose, label.removeprefix(prefix))
    return Reading(Purpose.OTHER, label)


# Which tables the promise compares, and what its kind is called; named in every output.

UNIT = "one row"
NEIGHBOURS = "add or remove one row"


def zcdp_name(delta: float) -> str:
    """The kind of zCDP where so much of δ was spent on discovering values.

    Bun and Steinke 2016, section 8: with any of it the promise of zCDP alone does not hold.
    """
    return f"{delta:.3g}-approximate zCDP" if delta else "zCDP"


# Charged events in exact form: every number of the ledger as "numerator/denominator".

MOST_DIGITS = 1_000
"""Of a numerator or denominator: floats have 767 at most, products of sizes far fewer."""
LEAST, MOST = Fraction(1, 10**150), Fraction(10**150)
"""Between them lies every charge that can be drawn, and floats hold all their squares."""


def _check_ratio(text: str) -> str:
    if len(text) > 2 * MOST_DIGITS + 1 or not re.fullmatch(r"[1-9][0-9]*/[1-9][0-9]*", text):
        raise ValueError("not a positive fraction such as 3/4")
    if not LEAST <= Fraction(text) <= MOST:
        raise ValueError("not a number that any mechanism was charged by")
    return text


Ratio = Annotated[str, AfterValidator(_check_ratio)]
"""A positive rational number, exactly."""


class GaussianRecord(BaseModel):
    """Discrete Gaussian noise on integers: zCDP cost squared_sensitivity / (2 noise_variance)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mechanism: Literal["discrete gaussian"] = "discrete gaussian"
    label: str
    squared_sensitivity: Ratio
    noise_variance: Ratio

    def event(self) -> Event:
        """The event as it was charged."""
        return GaussianEvent(
            self.label, Fraction(self.squared_sensitivity), Fraction(self.noise_variance)
        )


class SelectionRecord(BaseModel):
    """One draw of the exponential mechanism: zCDP cost epsilon² / 8."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mechanism: Literal["exponential"] = "exponential"
    label: str
    epsilon: Ratio

    def event(self) -> Event:
        """The event as it was charged."""
        return SelectionEvent(self.label, Fraction(self.epsilon))


class PartitionRecord(BaseModel):
    """Partition selection: zCDP cost 1 / (2 noise_variance), and ``delta`` of δ."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mechanism: Literal["partition selection"] = "partition selection"
    label: str
    noise_variance: Ratio
    threshold: Annotated[int, Field(ge=2, le=2**62)]
    delta: Ratio

    def event(self) -> Event:
        """The event as it was charged."""
        return PartitionEvent(
            self.label, Fraction(self.noise_variance), self.threshold, Fraction(self.delta)
        )


Record = Annotated[
    GaussianRecord | SelectionRecord | PartitionRecord, Field(discriminator="mechanism")
]


class Transcript(BaseModel):
    """Everything that was charged, in order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    events: Annotated[tuple[Record, ...], FailFast()]

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        """The records of a ledger's events."""
        return cls(events=tuple(map(_record, events)))

    def restored(self) -> tuple[Event, ...]:
        """The events, equal to those recorded."""
        return tuple(record.event() for record in self.events)


def _record(event: Event) -> GaussianRecord | SelectionRecord | PartitionRecord:
    match event:
        case GaussianEvent():
            return GaussianRecord(
                label=event.label,
                squared_sensitivity=_ratio(event.squared_sensitivity),
                noise_variance=_ratio(event.noise_variance),
            )
        case SelectionEvent():
            return SelectionRecord(label=event.label, epsilon=_ratio(event.epsilon))
        case PartitionEvent():
            return PartitionRecord(
                label=event.label,
                noise_variance=_ratio(event.noise_variance),
                threshold=event.threshold,
                delta=_ratio(event.delta),
            )


def _ratio(value: Fraction | float) -> str:
    numerator, denominator = Fraction(value).as_integer_ratio()
    return f"{numerator}/{denominator}"
