"""What a ledger records: one kind of entry for each step of a run, chained by hashes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, WrapValidator

from adaptive_qs.privacy.budget import Output
from adaptive_qs.privacy.events import Cost, Transcript

RESTORE = (
    "put back a copy of the ledger, then run adaptive-qs ledger restore, which counts as spent "
    "what was released since it was made"
)
"""What to do about a ledger that is damaged or behind."""


def cost_text(cost: Cost) -> str:
    """Such as "17 x 2^-60 rho, 0 x 2^-100 delta".

    The same in every version, since resumed runs compare the text.
    """
    return f"{cost.rho_units} x 2^-60 rho, {cost.delta_units} x 2^-100 delta"


_BUDGET = re.compile(r", epsilon (\S+), delta (\S+)")


def budget_text(cost: Cost, epsilon: float, delta: float) -> str:
    """Return a budget and the (ε, δ) that it promises, as the request of a run has them."""
    return f"{cost_text(cost)}, epsilon {epsilon!r}, delta {delta!r}"


def read_promise(request: Mapping[str, str]) -> tuple[float, float] | None:
    """Return the (ε, δ) that a run promises; None if its request does not say."""
    found = _BUDGET.search(request.get("budget", ""))
    with suppress(ValueError):
        return (float(found[1]), float(found[2])) if found else None
    return None


# Every entry has a hash over itself and the hash before it.
#
# Whatever changes in an entry breaks the chain there. Whoever may write the file can also compute
# the chain anew, or cut off its end: the hash that a release states of its ledger is what shows it.

START = bytes(32)
"""Stands before the first of anything that is chained."""


class Row(NamedTuple):
    """One entry as it is stored: its number from 1, when it was written (UTC, in ISO 8601; says
    nothing about the order), its JSON and its hash of 32 bytes."""

    number: int
    time: str
    body: str
    hash: bytes


def chained(previous: bytes, number: int, time: str, body: str) -> Row:
    """An entry that follows another one, by the hash of that or ``START``."""
    digest = hashlib.sha256(previous)
    for field in (str(number), time, body):
        data = field.encode()
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return Row(number, time, body, digest.digest())


def last_sound(rows: Iterable[Row]) -> tuple[int, bool]:
    """The number of the last entry up to which a chain holds, and whether that is all of them."""
    previous, number = START, 0
    for row in rows:
        # A damaged file may hold values of any type.
        text = isinstance(row.time, str) and isinstance(row.body, str)
        if not text or row != chained(previous, number + 1, row.time, row.body):
            return number, False
        previous, number = row.hash, row.number
    return number, True


# What a ledger records, one kind of entry for each step of a run; released values only.

Count = Annotated[int, Field(ge=0)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def _checked_cost(value: Any, read: Callable[[Any], Cost]) -> Cost:
    if isinstance(value, dict) and len(value) < 2:
        raise ValueError("a part of the cost is missing")
    cost = read(value)
    if min(cost.rho_units, cost.delta_units) < 0:
        raise ValueError("the cost is negative")
    return cost


WrittenCost = Annotated[Cost, WrapValidator(_checked_cost)]
"""In whole units, both given and neither negative."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Body(_Record):
    held: WrittenCost
    """What counts against the total after this entry: reserved by open runs, spent by others."""


class Opened(_Body):
    """The first entry: the total, which is set once."""

    kind: Literal["opened"] = "opened"
    ledger: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    """Names this ledger in every release."""
    total: WrittenCost
    declared: dict[str, float]
    """The total as its owner gave it."""
    unit: str
    neighbours: str


class Reserved(_Body):
    """A run may spend this much."""

    kind: Literal["reserved"] = "reserved"
    run: Count
    price: WrittenCost
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
    price: WrittenCost
    transcript: Transcript
    definition: str
    """Digest of what was asked, where the transcript does not tell."""
    outputs: tuple[Digest, ...]
    """SHA-256 of each output."""


class Closed(_Body):
    """The run is over; what it did not spend may be spent by others."""

    kind: Literal["closed"] = "closed"
    run: Count
    price: WrittenCost
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


class Recovered(_Record):
    """A release of this ledger that a restored copy of it does not have."""

    run: Count
    releases: Count
    hash: Digest
    """Its place in the ledger that was lost, as it states it."""
    price: WrittenCost
    """What it says that it cost; all of it is counted here."""
    digests: dict[str, Digest]
    """SHA-256 of its parts, as for :class:`Published`."""

    def joined(self, other: Recovered) -> Recovered:
        """The same release by two of its files: the parts of both, at the larger price."""
        price = Cost(
            max(self.price.rho_units, other.price.rho_units),
            max(self.price.delta_units, other.price.delta_units),
        )
        return self.model_copy(update={"price": price, "digests": other.digests | self.digests})


class Restored(_Body):
    """The ledger is a copy, put back by its owner."""

    kind: Literal["restored"] = "restored"
    reached: Count
    """Newest entry that the ledger had come to for certain; 0 where that is unknown."""
    missing: Count
    """Entries that it is known to have had beyond this copy."""
    confirmed: bool
    """Whether the owner said what was released since the copy was made; no run is taken before."""
    releases: tuple[Recovered, ...]
    """Of those, the ones that the copy does not have."""
    stated: WrittenCost
    """What else the owner counts as spent."""

    @property
    def cost(self) -> Cost:
        """All that this entry counts as spent."""
        return sum((release.price for release in self.releases), self.stated)


Body = Opened | Reserved | Released | Published | Closed | Restored

_BODIES: TypeAdapter[Body] = TypeAdapter(Annotated[Body, Field(discriminator="kind")])


def parse_body(text: str) -> Body:
    """The entry that was written as this JSON.

    Raises:
        ValueError: it is none.
    """
    return _BODIES.validate_json(text)


# Noisy answers as bytes, and back.

COUNTS, CHOICE, VALUES = "counts", "choice", "values"


def to_bytes(output: Output) -> tuple[str, bytes]:
    """The kind of an output and its bytes."""
    if isinstance(output, tuple):
        return VALUES, json.dumps(output).encode()
    if isinstance(output, int):
        return CHOICE, output.to_bytes(8, "little")  # of one size, whatever was chosen
    return COUNTS, np.ascontiguousarray(output, dtype="<i8").tobytes()


def from_bytes(kind: str, data: bytes) -> Output:
    """The output of these bytes; counts come back as a vector.

    Raises:
        ValueError: they are none of this kind.
    """
    if kind == COUNTS:
        return np.frombuffer(data, dtype="<i8").astype(np.int64)
    if kind == CHOICE:
        if len(data) != 8:
            raise ValueError("not a choice")
        return int.from_bytes(data, "little")
    values = json.loads(data)
    if kind != VALUES or not isinstance(values, list):
        raise ValueError("unknown kind of output")
    return tuple(map(str, values))


def compute_digests(stored: Sequence[tuple[str, bytes]]) -> tuple[str, ...]:
    """SHA-256 of each output, as the entry of their release states it."""
    return tuple(hashlib.sha256(kind.encode() + b"\0" + data).hexdigest() for kind, data in stored)
