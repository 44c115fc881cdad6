"""What a ledger records, one kind of entry for each step of a run; released values only."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.transcript import Transcript

Units = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Price(BaseModel):
    """A cost as it is written: whole units of 2**-60 ρ and 2**-100 δ."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rho_units: Units
    delta_units: Units

    @classmethod
    def of(cls, cost: Cost) -> Price:
        """A cost to be written."""
        return cls(rho_units=cost.rho_units, delta_units=cost.delta_units)

    def cost(self) -> Cost:
        """The cost that was written."""
        return Cost(self.rho_units, self.delta_units)


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    held: Price
    """What counts against the total after this entry: reserved by open runs, spent by others."""


class Opened(_Body):
    """The first entry: the total, which is set once."""

    kind: Literal["opened"] = "opened"
    ledger: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    """Names this ledger in every release."""
    total: Price
    declared: dict[str, float]
    """The total as its owner gave it."""
    unit: str
    neighbours: str


class Reserved(_Body):
    """A run may spend this much."""

    kind: Literal["reserved"] = "reserved"
    run: Count
    price: Price
    request: dict[str, str]
    """Everything public that decides what the run does; a resumed run must ask for the same."""
    insecure: bool
    """Whether the noise comes from a seed, so that the run is not private."""


class Released(_Body):
    """Noisy answers, and the events that they cost."""

    kind: Literal["released"] = "released"
    run: Count
    position: Count
    """Releases of this run before this one."""
    price: Price
    transcript: Transcript
    definition: str
    """Digest of what was asked, where the transcript does not tell."""
    outputs: tuple[Digest, ...]
    """SHA-256 of each output."""


class Closed(_Body):
    """The run is over; what it did not spend may be spent by others."""

    kind: Literal["closed"] = "closed"
    run: Count
    price: Price
    """What the run spent."""
    finished: bool
    """Whether its outputs were delivered."""


class Published(_Body):
    """What a run hands over, recorded before anybody has it."""

    kind: Literal["published"] = "published"
    run: Count
    digests: dict[str, Digest]
    """SHA-256 of each part: the members of a release bundle that a program reads, or the statement
    and the file of answers."""


class Recovered(BaseModel):
    """A release of this ledger that a restored copy of it does not have."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: Count
    releases: Count
    hash: Digest
    """Its place in the ledger that was lost, as it states it."""
    price: Price
    """What it says that it cost; all of it is counted here."""
    digests: dict[str, Digest]
    """SHA-256 of its parts, as for :class:`Published`."""

    def joined(self, other: Recovered) -> Recovered:
        """The same release by two of its files: the parts of both, at the larger price."""
        price = Price(
            rho_units=max(self.price.rho_units, other.price.rho_units),
            delta_units=max(self.price.delta_units, other.price.delta_units),
        )
        update = {"price": price, "digests": other.digests | self.digests}
        return self.model_copy(update=update)


class Restored(_Body):
    """The ledger is a copy, put back by its owner."""

    kind: Literal["restored"] = "restored"
    reached: Count
    """Newest entry that the ledger had come to for certain; 0 where nothing tells."""
    missing: Count
    """Entries that it is known to have had beyond this copy."""
    confirmed: bool
    """Whether the owner said what was released since the copy was made; no run is taken before."""
    releases: tuple[Recovered, ...]
    """Of those, the ones that the copy does not have."""
    stated: Price
    """What else the owner counts as spent."""

    @property
    def cost(self) -> Cost:
        """All that this entry counts as spent."""
        return sum((release.price.cost() for release in self.releases), self.stated.cost())


Body = Opened | Reserved | Released | Published | Closed | Restored

_BODIES: TypeAdapter[Body] = TypeAdapter(Annotated[Body, Field(discriminator="kind")])


def parse_body(text: str) -> Body:
    """The entry that was written as this JSON.

    Raises:
        ValueError: it is none.
    """
    return _BODIES.validate_json(text)
