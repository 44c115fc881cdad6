"""The statement that goes with every release: what was promised, spent and assumed."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from adaptive_qs.data.stamps import PRIVATE, Stamp
from adaptive_qs.privacy.budget import float_above
from adaptive_qs.privacy.events import Cost, Event, SelectionEvent

FORMAT_VERSION = 1
UNIT = "one row"
NEIGHBOURS = "add or remove one row"

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Fact(BaseModel):
    """Something that a reader of the release learns, and why that is allowed."""

    model_config = ConfigDict(frozen=True)

    fact: str
    basis: Literal["declared public", "paid for", "post-processing"]
    rho: Annotated[float, Field(ge=0)] = 0.0
    """What was paid (zCDP)."""


class RoundRecord(BaseModel):
    """One round of the loop, in released values only."""

    model_config = ConfigDict(frozen=True)

    clique: tuple[str, ...]
    """The attributes of the marginal selected."""
    noise_variances: tuple[tuple[tuple[str, ...], Positive], ...]
    """The residuals measured, by their attributes, and the noise variance of each (rows²)."""
    rho_selecting: Positive
    rho_measuring: Positive
    moved: Finite
    """L1 distance between the marginal's estimates after and before (rows)."""
    expected: Finite
    """L1 error expected of the new estimate (rows)."""
    rescored: Annotated[int, Field(ge=0)]
    """Candidates rescored before the selection."""


class Manifest(BaseModel):
    """The privacy statement and the public parameters of a release."""

    model_config = ConfigDict(frozen=True)

    format_version: Literal[1] = 1
    package_version: str
    stamp: Stamp
    unit: str = UNIT
    neighbours: str = NEIGHBOURS
    rho: Positive
    """zCDP budget."""
    rho_spent: Positive
    """Sum of all charges, rounded up."""
    epsilon: Positive
    delta: Positive
    """(ε, δ)-DP that the budget implies."""
    mechanisms: tuple[str, ...] = ("exact discrete Gaussian", "exponential mechanism")
    entropy: Literal["operating system CSPRNG", "insecure seed"]
    settings: dict[str, Any]
    """How the loop was told to spend the budget."""
    watched_cells: Annotated[int, Field(ge=0)]
    """Most cells of the marginals watched while a table is refined."""
    most_rows: Annotated[int, Field(ge=1)]
    """Most rows of a table whose number of rows is not asked for."""
    schema_fingerprint: str
    facts: tuple[Fact, ...]
    """Everything learnt from the data, and whether it was declared public or paid for."""

    @property
    def insecure(self) -> bool:
        """Whether the noise can be predicted, so that nothing here is private."""
        return self.entropy == "insecure seed" or self.stamp != PRIVATE


def package_version() -> str:
    """Version of the installed package."""
    try:
        return version("adaptive-qs")
    except PackageNotFoundError:
        return "0+unknown"


def facts_of(events: Iterable[Event], schema_note: str = "") -> tuple[Fact, ...]:
    """Every fact in a release with these charges.

    Args:
        events: every charge.
        schema_note: what the schema says of itself that a reader must know.
    """
    selections: list[Event] = []
    totals: list[Event] = []
    residuals: list[Event] = []
    for event in events:
        if isinstance(event, SelectionEvent):
            selections.append(event)
        else:
            (totals if event.label == "total" else residuals).append(event)
    return (
        Fact(
            fact=f"the columns, their values, ranges and missing markers{schema_note}",
            basis="declared public",
        ),
        Fact(fact="that every cell of the table fits the schema", basis="declared public"),
        Fact(fact="that the table fits the memory ceiling", basis="declared public"),
        Fact(fact="the workload, the budget and all settings", basis="declared public"),
        _paid("the number of rows, with noise", totals),
        _paid(f"which marginals were measured ({len(selections)} selections)", selections),
        _paid(f"{len(residuals)} noisy residuals of marginals", residuals),
        Fact(fact="reference distributions and synthetic rows", basis="post-processing"),
    )


def _paid(fact: str, events: list[Event]) -> Fact:
    return Fact(fact=fact, basis="paid for", rho=float_above(Cost.of(events).rho))
