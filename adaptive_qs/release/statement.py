"""What every release states, tables and answers alike: promised, spent and assumed."""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from adaptive_qs.data.stamps import PRIVATE, Stamp
from adaptive_qs.privacy.accounting import delta_of, gaussian_delta_of
from adaptive_qs.privacy.budget import Place, float_above
from adaptive_qs.privacy.neighbours import NEIGHBOURS, UNIT, zcdp_name
from adaptive_qs.release.environment import package_version, versions
from adaptive_qs.release.fact import Fact, NonNegative, total_cost
from adaptive_qs.release.promise import SAMPLING_SEEDS, ThreatModel, guarantee_of

FORMAT_VERSION = 2
ROUNDING = Fraction(1, 2**30)
"""Relative error allowed to δ for functions that differ between versions of the libraries."""

MOST_LOSS = 1e12
"""Largest budget and ε of a statement: with more there is no noise at all."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Loss = Annotated[float, Field(gt=0, le=MOST_LOSS)]
Hex = Annotated[str, Field(pattern="^[0-9a-f]+$")]


class LedgerEntry(BaseModel):
    """Where a durable ledger keeps the charges."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ledger: Hex
    """Name of the ledger."""
    run: Annotated[int, Field(ge=1)]
    """Number of the run in it."""
    releases: Annotated[int, Field(ge=0)]
    """Transactions of the run."""
    hash: Hex
    """Of what they released and what it cost."""

    @classmethod
    def of(cls, place: Place | None) -> Self | None:
        """The same as the ledger tells it; None where there is no durable one."""
        return None if place is None else cls(**asdict(place))


class Statement(BaseModel):
    """The privacy statement that goes with a release.

    Raises:
        ValueError: parts that contradict each other: facts whose exact costs are not what was
            spent, more spent than the budget, a stamp that is not that of the noise, or an (ε, δ)
            that the budget does not imply.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[2] = 2
    package_version: str = Field(default_factory=package_version)
    versions: dict[str, str] = Field(default_factory=versions)
    """What the bytes of a release depend on besides its numbers."""
    stamp: Stamp
    unit: str = UNIT
    neighbours: str = NEIGHBOURS
    guarantee: str = ""
    """What is promised, in words that follow from the figures below."""
    rho: Loss
    """zCDP budget."""
    rho_spent: Loss
    """Sum of all charges, rounded up."""
    epsilon: Annotated[float, Field(ge=0, le=2 * MOST_LOSS)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    """(ε, δ)-DP that the budget implies."""
    delta_spent: NonNegative = 0.0
    """The part of δ that discovering unknown values took, rounded up."""
    accountant: Literal["zCDP", "Gaussian DP"]
    """How (ε, δ) follows from the budget."""
    mu: Annotated[float, Field(gt=0, le=2 * MOST_LOSS)] | None = None
    """μ of Gaussian DP, where all noise is Gaussian and none of it depends on earlier outcomes."""
    mechanisms: tuple[str, ...]
    entropy: Literal["operating system CSPRNG", "insecure seed"]
    """Where the noise came from."""
    sampling_seeds: str = SAMPLING_SEEDS
    threat_model: ThreatModel = ThreatModel()
    settings: dict[str, Any]
    """How the budget was to be spent."""
    schema_fingerprint: str
    ledger: LedgerEntry | None = None
    facts: Annotated[tuple[Fact, ...], FailFast()]
    """Everything learnt from the data, and whether it was declared public or paid for."""

    @property
    def insecure(self) -> bool:
        """Whether the noise can be predicted, so that nothing here is private."""
        return self.entropy == "insecure seed"

    @property
    def zcdp(self) -> str:
        """What its kind of zCDP is called."""
        return zcdp_name(self.delta_spent)

    @property
    def drafted(self) -> bool:
        """Whether the promise leaves out what the schema tells, which was taken from the data."""
        return any(fact.basis == "NOT COVERED" for fact in self.facts)

    @property
    def charges_in(self) -> str:
        """The file in which each charge stands."""
        raise NotImplementedError

    def to_json(self) -> str:
        """The statement as JSON text; the same statement gives the same bytes."""
        return self.model_dump_json(indent=2) + "\n"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.insecure == (self.stamp == PRIVATE):
            raise ValueError("the stamp is not that of the noise")
        promised = guarantee_of(self.rho, self.epsilon, self.delta, self.delta_spent, self.mu)
        if self.guarantee not in ("", promised):
            raise ValueError("the guarantee in words is not that of the figures")
        object.__setattr__(self, "guarantee", promised)
        spent = total_cost(self.facts)
        if (self.rho_spent, self.delta_spent) != (float_above(spent.rho), float_above(spent.delta)):
            raise ValueError("the facts do not add up to what was spent")
        if self.rho_spent > self.rho:
            raise ValueError("the charges exceed the budget")
        if (self.mu is None) == (self.accountant == "Gaussian DP"):
            raise ValueError("mu goes with the accountant of Gaussian DP")
        if self.mu is None:
            implied = delta_of(self.rho, max(self.epsilon, 1e-300))
        else:
            if 2 * spent.rho > Fraction(self.mu) ** 2 or spent.delta:
                raise ValueError("mu is not that of the charges")
            implied = gaussian_delta_of(self.mu, self.epsilon)
        if Fraction(implied) + spent.delta > Fraction(self.delta) * (1 + ROUNDING):
            raise ValueError("epsilon and delta are not what the budget implies")
        return self
