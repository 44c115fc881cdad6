"""Events: what is released, for what purpose, at what cost, and their exact form in records."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, FailFast, Field, PlainSerializer, PlainValidator

from adaptive_qs.errors import InputError


class Purpose(StrEnum):
    """What a charge paid for."""

    ROWS = "rows"
    """The number of rows."""
    BINS = "bins"
    """Bounds and bins of one column."""
    VALUES = "values"
    """Categories of one column."""
    HEAPS = "heaps"
    """Rows on the frequent values of one column in bins."""
    SELECTION = "selection"
    """Which marginal is measured next."""
    RESIDUAL = "residual"
    """What a marginal adds to its sub-marginals."""
    STRATEGY = "strategy"
    """Answers to a strategy, from which the answers to the workload follow."""


_WORDS = {
    Purpose.ROWS: "",
    Purpose.BINS: "bins of ",
    Purpose.VALUES: "values of ",
    Purpose.HEAPS: "heaps of ",
    Purpose.SELECTION: "select",
    Purpose.RESIDUAL: "residual ",
    Purpose.STRATEGY: "strategy ",
}
_COLUMNS = {
    Purpose.ROWS: range(1),
    Purpose.BINS: range(1, 2),
    Purpose.VALUES: range(1, 2),
    Purpose.HEAPS: range(1, 2),
    Purpose.SELECTION: range(1),
    Purpose.RESIDUAL: range(1, 2**16),
}
"""The allowed numbers of columns of an event; any number for other purposes."""


def format_label(purpose: Purpose, columns: Sequence[str]) -> str:
    """Return a purpose and its columns as text for messages."""
    about = "" if purpose is Purpose.SELECTION else " x ".join(columns) or "total"
    return _WORDS[purpose] + about


# Every number of an event is exact, and written as "numerator/denominator".

MOST_DIGITS = 1_000
"""Maximum number of digits of a numerator or denominator; floats have 767 at most."""
LEAST, MOST = Fraction(1, 10**150), Fraction(10**150)
"""Range of the numbers of an event; floats hold all their squares."""


def _read_ratio(value: Any) -> Fraction:
    """Return a fraction that is given as such or as text."""
    ratio = re.compile("([1-9][0-9]*)/([1-9][0-9]*)")
    if isinstance(value, str) and len(value) <= 2 * MOST_DIGITS + 1:
        found = ratio.fullmatch(value)
        value = Fraction(int(found[1]), int(found[2])) if found else None
    if not isinstance(value, Fraction):
        raise ValueError("not a positive fraction such as 3/4")
    if not LEAST <= value <= MOST:
        raise ValueError("not a number that any mechanism was charged by")
    return value


def _write_ratio(value: Fraction) -> str:
    return f"{value.numerator}/{value.denominator}"


_EXACT = (PlainValidator(_read_ratio), PlainSerializer(_write_ratio))
Ratio = Annotated[Fraction | int, *_EXACT]
"""A positive rational number, exactly."""


@dataclass(frozen=True)
class _Charge:
    """The common fields of events; they are also the fields of the record in JSON.

    The columns are empty for the number of rows, for a selection, and for counts of all rows.
    InputError is raised if the purpose, the columns, their number or a parameter is invalid.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", revalidate_instances="always")

    mechanism: str = field(kw_only=True)
    purpose: Purpose
    columns: Annotated[tuple[str, ...], FailFast()]

    def __post_init__(self) -> None:
        if not isinstance(self.purpose, Purpose):
            raise InputError("an event has no purpose: say what is released")
        names = self.columns
        if not isinstance(names, tuple) or not all(isinstance(n, str) and n for n in names):
            raise InputError("the columns of an event are not a tuple of names.")
        if self.purpose in _COLUMNS and len(names) not in _COLUMNS[self.purpose]:
            raise InputError(f"an event about {self.purpose} cannot be about {len(names)} columns")

    @property
    def label(self) -> str:
        """The purpose and the columns as text for messages."""
        return format_label(self.purpose, self.columns)

    def _set_positive(self, *parameters: str) -> None:
        """Keep parameters as fractions; raise InputError if one is not positive and rational."""
        for name in parameters:
            value = getattr(self, name)
            if not isinstance(value, int | Fraction) or value.numerator <= 0:
                words = name.replace("_", " ")
                raise InputError(f"{words} is {value!r}. Use a positive int or Fraction.")
            object.__setattr__(self, name, Fraction(value))


@dataclass(frozen=True)
class GaussianEvent(_Charge):
    """Discrete or continuous Gaussian noise of parameter σ² on integer values.

    Neighbours differ by at most ``squared_sensitivity``, Δ² (L2).
    """

    mechanism: Literal["discrete gaussian"] = field(default="discrete gaussian", kw_only=True)
    squared_sensitivity: Ratio
    noise_variance: Ratio
    delta = Fraction(0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set_positive("squared_sensitivity", "noise_variance")

    @property
    def rho(self) -> Fraction:
        """The zCDP cost Δ²/(2σ²): Canonne, Kamath, Steinke 2020, Theorem 14."""
        return Fraction(self.squared_sensitivity) / (2 * self.noise_variance)

    def of_group(self, rows: int) -> Self:
        """Return the event for neighbours that differ by ``rows`` rows: Δ is larger by that."""
        return replace(self, squared_sensitivity=self.squared_sensitivity * rows**2)


@dataclass(frozen=True)
class SelectionEvent(_Charge):
    """One draw of the exponential mechanism; a float ``epsilon`` stands for its exact value."""

    mechanism: Literal["exponential"] = field(default="exponential", kw_only=True)
    epsilon: Annotated[Fraction | float, *_EXACT]
    delta = Fraction(0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.epsilon < math.inf:
            raise InputError(f"selection epsilon is {self.epsilon!r}. Use a positive number.")
        object.__setattr__(self, "epsilon", Fraction(self.epsilon))

    @property
    def rho(self) -> Fraction:
        """The zCDP cost ε²/8 by bounded range: Cesar and Rogers 2021; Fuentes et al., Prop. B.3."""
        return Fraction(self.epsilon) ** 2 / 8

    def of_group(self, rows: int) -> Self:
        """Return the event for neighbours that differ by ``rows`` rows: ε is larger by that."""
        return replace(self, epsilon=self.epsilon * rows)


@dataclass(frozen=True)
class PartitionEvent(_Charge):
    """The release of values whose noisy count reaches a threshold.

    Each row has one value. Neighbours differ by at most ``rows`` rows. Values that only these rows
    have are released with probability at most rows · P[rows + noise ≥ threshold] ≤ δ; otherwise
    neighbours differ as Gaussian counts do.

    Attributes:
        noise_variance: Parameter σ² of the discrete Gaussian noise on each count.
        threshold: Smallest noisy count of a value that is released.
        delta: The share of δ that bounds that probability.
        rows: Maximum number of rows by which neighbours differ.
    """

    mechanism: Literal["partition selection"] = field(default="partition selection", kw_only=True)
    noise_variance: Ratio
    threshold: Annotated[int, Field(ge=2, le=2**62)]
    delta: Annotated[Fraction, *_EXACT]
    rows: Annotated[int, Field(ge=1, le=2**32)] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set_positive("noise_variance")
        if type(self.rows) is not int or self.rows < 1:
            raise InputError(f"rows is {self.rows!r}. Use a positive integer.")
        if type(self.threshold) is not int or self.threshold <= self.rows:
            raise InputError(
                f"threshold is {self.threshold!r}. Use an integer of at least {self.rows + 1}."
            )
        if not isinstance(self.delta, Fraction) or not 0 < self.delta < 1:
            raise InputError(f"delta is {self.delta!r}. Use a Fraction between 0 and 1.")
        single = threshold_delta(self.noise_variance, self.threshold - self.rows + 1)
        if self.delta < self.rows * single:
            raise InputError("threshold too low for its share of delta: raise one of them")

    @property
    def rho(self) -> Fraction:
        """The zCDP cost rows²/(2σ²), since counts change by ``rows`` rows together."""
        return Fraction(self.rows**2) / (2 * self.noise_variance)

    def of_group(self, rows: int) -> Self:
        """Return the event for neighbours that are ``rows`` times as far apart.

        The noise is the same. A value of that many rows passes the higher threshold with the same
        probability, and there can be that many such values.
        """
        return replace(
            self, rows=self.rows * rows, threshold=self.threshold + self.rows * (rows - 1),
            delta=self.delta * rows,
        )  # fmt: skip


Event = GaussianEvent | SelectionEvent | PartitionEvent
E = TypeVar("E", GaussianEvent, SelectionEvent, PartitionEvent)


class Transcript(BaseModel, frozen=True, extra="forbid"):
    """All charges, in order."""

    events: Annotated[tuple[Annotated[Event, Field(discriminator="mechanism")], ...], FailFast()]


def threshold_delta(noise_variance: Fraction | int, threshold: int) -> Fraction:
    """Return an upper bound on P[1 + noise ≥ threshold], for a threshold of at least 2.

    The discrete Gaussian has P[X ≥ m] ≤ P[N(0, σ²) ≥ m − 1] (Canonne, Kamath, Steinke 2020,
    Proposition 25). The error function is raised by far more than its possible error.
    """
    tail = math.erfc((threshold - 2) / math.sqrt(2 * noise_variance)) / 2
    return Fraction(tail) * Fraction(2**30 + 1, 2**30)


# Costs: zCDP, and for partition selection also a share of δ.
#
# Costs are rounded up to whole units of 2⁻⁶⁰ ρ and 2⁻¹⁰⁰ δ, and limits are rounded down. So sums of
# costs are compared with limits exactly, without a tolerance and without floats.

UNITS_PER_RHO = 2**60
UNITS_PER_DELTA = 2**100


@dataclass(frozen=True)
class Cost:
    """A privacy cost in whole units of 2**-60 ρ (zCDP) and of 2**-100 δ."""

    rho_units: int = 0
    delta_units: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.rho_units + other.rho_units, self.delta_units + other.delta_units)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.rho_units - other.rho_units, self.delta_units - other.delta_units)

    def fits(self, limit: Cost) -> bool:
        """Return whether neither part exceeds that of the limit."""
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
        """Return the largest cost that exceeds neither; floats stand for their exact values."""
        return cls(
            math.floor(Fraction(rho) * UNITS_PER_RHO), math.floor(Fraction(delta) * UNITS_PER_DELTA)
        )

    @classmethod
    def covering(cls, rho: Fraction | float, delta: Fraction | float = 0) -> Self:
        """Return the smallest cost that is below neither; floats stand for their exact values."""
        return cls(
            math.ceil(Fraction(rho) * UNITS_PER_RHO), math.ceil(Fraction(delta) * UNITS_PER_DELTA)
        )

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        """Return the cost of events together, each rounded up; InputError for an unknown kind."""
        known = list(events)
        for event in known:
            if type(event) not in get_args(Event):
                raise InputError(
                    f"cannot price an event of type {type(event).__name__}: use a known one"
                )
        return cls(
            sum(math.ceil(event.rho * UNITS_PER_RHO) for event in known),
            sum(math.ceil(event.delta * UNITS_PER_DELTA) for event in known),
        )


def zcdp_name(delta: float) -> str:
    """Return the name of zCDP if ``delta`` was spent on the discovery of values.

    Any such δ makes it approximate zCDP: Bun and Steinke 2016, section 8.
    """
    return f"{delta:.3g}-approximate zCDP" if delta else "zCDP"
