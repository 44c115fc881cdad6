"""The entries of a ledger: one kind for each step of a run, chain_entry by hashes."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, WrapValidator

from adaptive_qs.arguments import positive_number
from adaptive_qs.errors import InputError
from adaptive_qs.privacy import budget
from adaptive_qs.privacy.accounting import compute_epsilon, compute_rho
from adaptive_qs.privacy.budget import BudgetWarning, Output, PrivacyLoss, choose_delta, delta_left
from adaptive_qs.privacy.events import Cost, Transcript

RESTORE = (
    "put back a copy of the ledger, then run adaptive-qs ledger restore, which counts as spent "
    "what was released since it was made"
)
"""The remedy for a ledger that is damaged or lacks entries."""


@dataclass(frozen=True)
class Total:
    """The total that all runs on a data set may spend together, in whole units, rounded down.

    ``declared`` are the parameters of the owner: delta, and epsilon or rho.
    """

    limit: Cost
    declared: dict[str, float]

    @classmethod
    def from_parameters(
        cls,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        discovery_delta: float = 0.0,
    ) -> Self:
        """Return the total of all runs together, given as (epsilon, delta) or as rho (zCDP).

        With rho, delta is the δ at which the implied ε is reported. Epsilon is converted with the
        part of delta that ``discovery_delta`` leaves, which is for runs that discover values.
        InputError is raised if not exactly one of epsilon and rho is given, or a value is out of
        range.
        """
        if (epsilon is None) == (rho is None):
            came = "The total is not set" if rho is None else "Both --epsilon and --rho are set"
            raise InputError(f"{came}. Use one of --epsilon and --rho.")
        delta = choose_delta(delta)
        if isinstance(discovery_delta, str) or not 0 <= discovery_delta < delta:
            raise InputError(
                f"--discovery-delta is {discovery_delta!r}. Choose a part of delta {delta:g}."
            )
        if epsilon is not None:
            epsilon = positive_number("epsilon", epsilon)
            left = delta_left(delta, discovery_delta)
            limit = Cost.within(compute_rho(epsilon, left), discovery_delta)
            declared = {"epsilon": epsilon, "delta": delta}
        else:
            rho = positive_number("rho", rho)
            limit = Cost.within(rho, discovery_delta)
            declared = {"rho": rho, "delta": delta}
        if limit.rho_units < 1:
            raise InputError("The total is below 2**-60 rho. Raise it.")
        return cls(limit, declared)

    def list_warnings(self, rows: int | None) -> tuple[BudgetWarning, ...]:
        """Return warnings about the total, given the public number of rows if there is one."""
        rho, delta = float(self.limit.rho), self.declared["delta"]
        epsilon = self.declared.get("epsilon")
        if epsilon is None:
            epsilon = compute_epsilon(rho, delta_left(delta, self.limit.delta))
        std = (2 * rho) ** -0.5
        return budget.list_budget_warnings(
            epsilon, delta, std, rows, "a count with the whole budget"
        )


def round_down(value: float) -> str:
    """Return a number of at least 0 as text, rounded down to six digits."""
    if not value:
        return "0"
    exact = Decimal(value)
    unit = Decimal(1).scaleb(exact.adjusted() - 5)
    return f"{float(exact.quantize(unit, ROUND_FLOOR)):.6g}"


def cost_text(cost: Cost) -> str:
    """Return text such as "17 x 2^-60 rho, 0 x 2^-100 delta", which resumed runs compare."""
    return f"{cost.rho_units} x 2^-60 rho, {cost.delta_units} x 2^-100 delta"


_BUDGET = re.compile(r"(\d+) x 2\^-60 rho, .*, epsilon (\S+), delta (\S+)")


def budget_text(cost: Cost, loss: PrivacyLoss) -> str:
    """Return a budget and the (ε, δ) that it promises, as text of a request."""
    return f"{cost_text(cost)}, epsilon {loss.epsilon!r}, delta {loss.delta!r}"


def read_promise(request: Mapping[str, str]) -> PrivacyLoss | None:
    """Return what a run promises; None if its request does not say."""
    found = _BUDGET.search(request.get("budget", ""))
    with suppress(ValueError):
        return found and PrivacyLoss(float(found[1]) * 2.0**-60, float(found[2]), float(found[3]))
    return None


# Every entry has a hash over itself and the previous hash.
#
# A change of an entry breaks the chain there. Anyone who can write the file can also compute the
# chain anew, or cut off its end. The position in the ledger that a release states shows that.

START = bytes(32)
"""The hash before the first entry of a chain."""


class Row(NamedTuple):
    """One entry as it is stored: its number from 1, its JSON and the hash of it (32 bytes).

    The time (UTC, ISO 8601) does not determine the order.
    """

    number: int
    time: str
    body: str
    hash: bytes


def chain_entry(previous: bytes, number: int, time: str, body: str) -> Row:
    """Return the entry that follows the entry with the hash ``previous``."""
    digest = hashlib.sha256(previous)
    for field in (str(number), time, body):
        data = field.encode()
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return Row(number, time, body, digest.digest())


def find_last_sound(rows: Iterable[Row]) -> tuple[int, bool]:
    """Return the number of the last entry of an intact chain, and whether it is the last one."""
    previous, number = START, 0
    for row in rows:
        # A damaged file can hold values of any type.
        text = isinstance(row.time, str) and isinstance(row.body, str)
        if not text or row != chain_entry(previous, number + 1, row.time, row.body):
            return number, False
        previous, number = row.hash, row.number
    return number, True


# The kinds of entries; they hold released values only.

Count = Annotated[int, Field(ge=0)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def _read_cost(value: Any, read: Callable[[Any], Cost]) -> Cost:
    if isinstance(value, dict) and len(value) < 2:
        raise ValueError("a part of the cost is missing")
    cost = read(value)
    if min(cost.rho_units, cost.delta_units) < 0:
        raise ValueError("the cost is negative")
    return cost


WrittenCost = Annotated[Cost, WrapValidator(_read_cost)]
"""A cost in whole units of which both parts are given and neither is negative."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Body(_Record):
    held: WrittenCost
    """The budget in use after this entry: reserved by open runs and spent by closed ones."""


class Opened(_Body):
    """The first entry, which sets the total."""

    kind: Literal["opened"] = "opened"
    ledger: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    """The name of this ledger in every release."""
    total: WrittenCost
    declared: dict[str, float]
    """The total in the parameters of its owner."""
    unit: str
    neighbours: str


class Reserved(_Body):
    """The budget of a run."""

    kind: Literal["reserved"] = "reserved"
    run: Count
    price: WrittenCost
    request: dict[str, str]
    """All public parameters of the run; a resumed run must have the same."""
    insecure: bool
    """Whether the noise comes from a seed, so that the run is not private."""


class Released(_Body):
    """Noisy outputs, and the events that were charged for them."""

    kind: Literal["released"] = "released"
    run: Count
    position: Count
    """Number of previous releases of this run."""
    price: WrittenCost
    transcript: Transcript
    definition: str
    """Digest of what the outputs mean beyond the transcript."""
    outputs: tuple[Digest, ...]
    """SHA-256 of each output."""


class Closed(_Body):
    """The end of a run, which frees the budget that it did not spend."""

    kind: Literal["closed"] = "closed"
    run: Count
    price: WrittenCost
    """The cost of the run."""
    finished: bool
    """Whether its outputs were delivered."""


class Published(_Body):
    """The output of a run, recorded before it is delivered."""

    kind: Literal["published"] = "published"
    run: Count
    digests: dict[str, Digest]
    """SHA-256 of each part: the members that a program reads of a release bundle, or the statement
    and the file of answers."""


class Recovered(_Record):
    """A release of this ledger that a restored copy of the ledger lacks."""

    run: Count
    releases: Count
    hash: Digest
    """The position in the lost ledger that it states."""
    price: WrittenCost
    """The cost that it states, all of which is counted."""
    digests: dict[str, Digest]
    """SHA-256 of its parts, as for :class:`Published`."""

    def joined(self, other: Self) -> Self:
        """Return the release of two of its files: the parts of both, at the larger cost."""
        price = Cost(
            max(self.price.rho_units, other.price.rho_units),
            max(self.price.delta_units, other.price.delta_units),
        )
        return self.model_copy(update={"price": price, "digests": other.digests | self.digests})


class Restored(_Body):
    """The restoration of a copy by the owner."""

    kind: Literal["restored"] = "restored"
    reached: Count
    """Number of the newest entry that the ledger certainly had; 0 if unknown."""
    missing: Count
    """Number of entries that the copy certainly lacks."""
    confirmed: bool
    """Whether the owner listed all releases since the copy was made; until then no run starts."""
    releases: tuple[Recovered, ...]
    """The releases that the copy lacks."""
    stated: WrittenCost
    """Further cost that the owner counts as spent."""

    @property
    def cost(self) -> Cost:
        """The cost that this entry counts as spent."""
        return sum((release.price for release in self.releases), self.stated)


Body = Opened | Reserved | Released | Published | Closed | Restored

_BODIES: TypeAdapter[Body] = TypeAdapter(Annotated[Body, Field(discriminator="kind")])


def parse_body(text: str) -> Body:
    """Return the entry of this JSON; raise ValueError if it is not an entry."""
    return _BODIES.validate_json(text)


# Noisy outputs as bytes.

COUNTS, CHOICE, VALUES = "counts", "choice", "values"


def to_bytes(output: Output) -> tuple[str, bytes]:
    """Return the kind of an output and its bytes."""
    if isinstance(output, tuple):
        return VALUES, json.dumps(output).encode()
    if isinstance(output, int):
        return CHOICE, output.to_bytes(8, "little")  # of one size, whatever was chosen
    return COUNTS, np.ascontiguousarray(output, dtype="<i8").tobytes()


def from_bytes(kind: str, data: bytes) -> Output:
    """Return the output of these bytes, counts as a vector; raise ValueError for another kind."""
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
    """Return the SHA-256 of each output, as the entry of their release states it."""
    return tuple(hashlib.sha256(kind.encode() + b"\0" + data).hexdigest() for kind, data in stored)
