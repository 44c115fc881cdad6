"""Charged events in exact form: every number of the ledger as "numerator/denominator"."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from adaptive_qs.privacy.budget import (
    UNITS_PER_RHO,
    Event,
    GaussianEvent,
    SelectionEvent,
    zcdp_units,
)


def _check_ratio(text: str) -> str:
    if len(text) > 2_000 or not re.fullmatch(r"[1-9][0-9]*/[1-9][0-9]*", text):
        raise ValueError("not a positive fraction such as 3/4")
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


Record = Annotated[GaussianRecord | SelectionRecord, Field(discriminator="mechanism")]


class Transcript(BaseModel):
    """Everything that was charged, in order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    events: tuple[Record, ...]

    @classmethod
    def of(cls, events: tuple[Event, ...]) -> Self:
        """The records of a ledger's events."""
        return cls(events=tuple(map(_record, events)))

    def restored(self) -> tuple[Event, ...]:
        """The events, equal to those recorded."""
        return tuple(record.event() for record in self.events)


def cost(events: tuple[Event, ...]) -> Fraction:
    """zCDP of these events together, each rounded up to the ledger's unit."""
    return Fraction(sum(map(zcdp_units, events)), UNITS_PER_RHO)


def _record(event: Event) -> GaussianRecord | SelectionRecord:
    if isinstance(event, GaussianEvent):
        return GaussianRecord(
            label=event.label,
            squared_sensitivity=_ratio(event.squared_sensitivity),
            noise_variance=_ratio(event.noise_variance),
        )
    return SelectionRecord(label=event.label, epsilon=_ratio(event.epsilon))


def _ratio(value: Fraction | float) -> str:
    numerator, denominator = Fraction(value).as_integer_ratio()
    return f"{numerator}/{denominator}"
