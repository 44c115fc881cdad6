"""One thing that a reader of a release may learn of the private table, and why that is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from adaptive_qs.privacy.budget import float_above
from adaptive_qs.privacy.events import Cost, Event

Basis = Literal["declared public", "paid for", "post-processing", "not revealed", "NOT COVERED"]
"""Known before the run; measured with noise and charged; computed from these two; kept back; or
in the release with no promise about it."""

Kind = Literal[
    "columns", "values", "missing", "other cells", "constant", "ignored",
    "refusals", "settings", "rows", "single columns", "combinations", "selections", "answers",
    "derived", "kept back", "other",
]  # fmt: skip
"""What a fact is about; one column has at most one fact of a kind."""

Units = Annotated[int, Field(ge=0, le=2**160)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Fact(BaseModel):
    """Something that a reader of the release learns, and why that is allowed.

    Raises:
        ValueError: figures that contradict the exact ones, or a basis that contradicts them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    fact: str
    columns: Annotated[tuple[str, ...], FailFast()] = ()
    """The columns it is about; none where it is about the whole table or about combinations."""
    basis: Basis
    rho: NonNegative = 0.0
    """What was paid (zCDP), rounded up."""
    delta: NonNegative = 0.0
    """The share of δ that was paid, rounded up."""
    rho_units: Units = 0
    """What was paid, exactly, in units of 2⁻⁶⁰ ρ."""
    delta_units: Units = 0
    """The share of δ, exactly, in units of 2⁻¹⁰⁰."""

    @model_validator(mode="after")
    def _check_figures(self) -> Self:
        if (self.rho, self.delta) != (float_above(self.cost.rho), float_above(self.cost.delta)):
            raise ValueError("a fact's figures contradict each other")
        if (self.cost != Cost()) != (self.basis == "paid for"):
            raise ValueError("a fact is paid for and free at once")
        return self

    @property
    def cost(self) -> Cost:
        """What was paid, exactly."""
        return Cost(self.rho_units, self.delta_units)

    @classmethod
    def paid(
        cls, kind: Kind, fact: str, events: Iterable[Event], columns: Sequence[str] = ()
    ) -> Self:
        """A fact that these charges paid for."""
        cost = Cost.of(events)
        return cls(
            kind=kind,
            fact=fact,
            columns=tuple(columns),
            basis="paid for",
            rho=float_above(cost.rho),
            delta=float_above(cost.delta),
            rho_units=cost.rho_units,
            delta_units=cost.delta_units,
        )


def total_cost(facts: Iterable[Fact]) -> Cost:
    """What all facts cost together, exactly."""
    return sum((fact.cost for fact in facts), Cost())
