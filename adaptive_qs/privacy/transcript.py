"""Charged events in exact form: every number of the ledger as "numerator/denominator"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field

from adaptive_qs.privacy.events import Event, GaussianEvent, PartitionEvent, SelectionEvent

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
