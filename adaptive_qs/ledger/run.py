"""The runs of a ledger: the one at work, and what the entries say of all of them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from adaptive_qs.errors import LedgerError, SpentNote
from adaptive_qs.ledger.entries import (
    START,
    Closed,
    Opened,
    Published,
    Released,
    Reserved,
    Restored,
    Row,
    compute_digests,
    from_bytes,
    parse_body,
    read_promise,
    to_bytes,
)
from adaptive_qs.ledger.files import RunLock
from adaptive_qs.ledger.store import Store
from adaptive_qs.machine import Fault, reach
from adaptive_qs.privacy.accounting import FINE_NOISE
from adaptive_qs.privacy.budget import Ledger, Output, Place, check_process, float_above
from adaptive_qs.privacy.events import Cost, Event, GaussianEvent, Purpose, Transcript
from adaptive_qs.privacy.unit import ROWS, Unit


class LedgerRun(Ledger):
    """A run's budget that outlives the process.

    Every release is one transaction, or comes from an earlier attempt. It is seen by the rest of
    the program only after its commit, so whatever stops the program costs at most a draw that
    nobody saw. A run that is resumed asks for the same releases again, since all it does follows
    from released values; it gets those that were committed, and draws the others.

    Args:
        store: the ledger's file.
        identity: the ledger's name.
        reserved: the entry that reserved the budget.
        lock: held by this process.
        filtered: whether the filter of Gaussian DP bounds it besides; see :class:`Ledger`.
        unit: whom the run protects.

    Attributes:
        number: of the run.
        resumed: releases that earlier attempts committed.
        finished: whether it is closed because its outputs are in place.

    Raises:
        LedgerError: from every method where the file cannot be read or written.
    """

    def __init__(
        self,
        store: Store,
        identity: str,
        reserved: Reserved,
        lock: RunLock,
        filtered: bool = False,
        unit: Unit = ROWS,
    ) -> None:
        super().__init__(reserved.price, filtered, unit)
        self.number = reserved.run
        self._store = store
        self._identity = identity
        self._lock = lock
        self._position = 0
        self._digest = START
        self._broken = False
        self.finished = False
        self.resumed = sum(1 for _ in store.rows("released", self.number))

    @property
    def place(self) -> Place | None:
        """Where the releases handed out stand."""
        return Place(self._identity, self.number, self._position, self._digest.hex())

    def release(
        self, events: Sequence[Event], draw: Callable[[], Sequence[Output]], definition: str = ""
    ) -> Sequence[Output]:
        """What was committed at this position, or draw it and commit; see :class:`Ledger`.

        Raises:
            BudgetExceeded: the events cost more than what remains; nothing is recorded or drawn.
            LedgerError: the ledger holds another release at this position, or an earlier call
                failed half way.
        """
        check_process(self._process)
        if self._broken:
            raise LedgerError("the ledger refused an earlier release of this run: resume it anew")
        cost = Cost.of(events)
        if self._position < self.resumed:
            outputs: Sequence[Output] = self._committed(tuple(events), definition)
        else:
            self._check(events, cost)
            self._broken = True
            reach(Fault.CHARGED)
            outputs = draw()
            reach(Fault.DRAWN)
            self._commit(events, cost, outputs, definition)
            reach(Fault.COMMITTED)
            self._broken = False
        self._position += 1
        self._charge(events, cost)
        return outputs

    def publish(self, digests: Mapping[str, str]) -> None:
        """Record the digests of what the run is about to hand over, where that was not done before.

        So a forgery can later be told from it. A crash between this and the writing leaves an
        entry that nothing refers to: a resumed run gives the same digests, which must follow from
        released values.
        """
        with self._store.writing():
            self._refuse_closed()
            if all(p.digests != digests for p in self._store.bodies(Published, self.number)):
                self._store.append(
                    Published(held=self._store.held, run=self.number, digests=dict(digests))
                )
        reach(Fault.PUBLISHED)

    def finish(self) -> Row:
        """Close the run: its outputs are delivered, and what it did not spend is free again.

        Returns the newest entry of the ledger now.
        """
        self._close(finished=True)
        self.finished = True
        reach(Fault.CLOSED)
        last = self._store.last()
        self.leave()
        return last

    def leave(self) -> None:
        """End work on the run as it is; give its budget back if nothing of it was released.

        What happens to the budget is all that may go wrong, and then it stays reserved.
        """
        try:
            if self._lock.held and not any(self._store.rows("released", self.number)):
                self._close(finished=False)
        finally:
            self._lock.release()
            self._store.close()

    @property
    def charged(self) -> bool:
        """Whether this attempt was handed a release, or committed one that it did not see."""
        unseen = self._store.rows("released", self.number, self._position)
        return bool(self._events) or (self._broken and any(unseen))

    def note(self) -> SpentNote:
        """That everything released is kept."""
        return SpentNote(
            f"run {self.number} in {self._store.path} keeps what was paid for: --resume continues "
            "it and spends nothing twice"
        )

    def _committed(self, events: tuple[Event, ...], definition: str) -> list[Output]:
        body, stored = next(self._store.releases(self.number, self._position))
        if (body.transcript.events, body.definition) != (events, definition):
            raise LedgerError(
                f"run {self.number} released something else at this place: it was started by "
                "another version, on other data or on another machine: start a new run, and give "
                f"back what is left with adaptive-qs ledger close --run {self.number}"
            )
        self._digest = release_hash(self._digest, body)
        return [from_bytes(kind, data) for kind, data in stored]

    def _commit(
        self, events: Sequence[Event], cost: Cost, outputs: Sequence[Output], definition: str
    ) -> None:
        stored = [to_bytes(output) for output in outputs]
        with self._store.writing():
            self._refuse_closed()
            body = Released(
                held=self._store.held,
                run=self.number,
                position=self._position,
                price=cost,
                transcript=Transcript(events=tuple(events)),
                definition=definition,
                outputs=compute_digests(stored),
            )
            self._store.append(body)
            self._store.add_outputs(self.number, self._position, stored)
        self._digest = release_hash(self._digest, body)

    def _refuse_closed(self) -> None:
        if any(self._store.rows("closed", self.number)):
            raise LedgerError(f"run {self.number} was closed in the meantime: start a new run")

    def _close(self, finished: bool) -> None:
        with self._store.writing():
            self._store.end_run(self.number, finished)


def release_hash(previous: bytes, body: Released) -> bytes:
    """Chain a release of a run to those before it.

    It covers what was released and what that cost: nothing else, such as the time, may show in what
    is published.
    """
    content = (body.transcript.model_dump_json(), *body.outputs)
    return hashlib.sha256(previous + json.dumps(content).encode()).digest()


def is_promised(opened: Opened, price: Cost, promise: tuple[float, float] | None) -> bool:
    """Whether a run promises a total that was given as (ε, δ), so that it may be all of it.

    The total in zCDP is for any runs together. One run of the same (ε, δ) can have a larger ρ, as
    its own accounting is exact.
    """
    declared = opened.declared
    if promise is None or "epsilon" not in declared:
        return False
    within = promise[0] <= declared["epsilon"] and promise[1] <= declared["delta"]
    return within and price.delta_units <= opened.total.delta_units


# All runs as the entries tell of them.

State = Literal["open", "finished", "closed"]


@dataclass
class RunState:
    """What a ledger knows of one run.

    It is "open" (at work or interrupted), "finished", or "closed" before it was. It asked for what
    is public in ``request``, might spend ``reserved``, spent ``spent`` on the events, and released
    them in so many transactions. Times are those of its first and its last entry, UTC.
    """

    number: int
    reserved: Cost
    request: Mapping[str, str]
    insecure: bool
    started: str
    ended: str
    state: State = "open"
    spent: Cost = field(default_factory=Cost)
    events: tuple[Event, ...] = ()
    releases: int = 0

    @property
    def counted(self) -> Cost:
        """What it counts against the total."""
        return self.reserved if self.state == "open" else self.spent

    @property
    def promise(self) -> tuple[float, float] | None:
        """The (ε, δ) of its budget; None if its request does not say."""
        return read_promise(self.request)

    @property
    def gaussian_mu(self) -> float | None:
        """μ of Gaussian DP, rounded up, where all its events are fine Gaussian noise on a batch of
        answers, whose parameters were fixed in advance. It holds up to a share 2⁻²⁰ of δ, for δ of
        at least 10⁻³⁰⁰.

        What a run that decides as it goes happens to have spent is no such bound.
        """
        fine = FINE_NOISE**2
        if not self.events or not all(
            isinstance(event, GaussianEvent)
            and event.purpose is Purpose.STRATEGY
            and event.noise_variance >= fine
            for event in self.events
        ):
            return None
        squared = float_above(2 * sum((event.rho for event in self.events), Fraction(0)))
        return math.nextafter(math.sqrt(squared), math.inf)

    def _follow(self, body: Released | Published | Closed, time: str) -> None:
        if self.state != "open":
            raise ValueError("belongs to a run that is not open")
        self.ended = time
        if isinstance(body, Released):
            events = body.transcript.events
            cost = Cost.of(events)
            if body.position != self.releases or len(events) != len(body.outputs):
                raise ValueError("is not the next release of its run")
            if cost != body.price:
                raise ValueError("states another cost than that of its events")
            self.spent += cost
            self.events += events
            self.releases += 1
        elif isinstance(body, Closed):
            if body.price != self.spent:
                raise ValueError("closes a run with another cost than that of its releases")
            self.state = "finished" if body.finished else "closed"


def collect_runs(rows: Iterable[Row]) -> list[RunState]:
    """All runs in the order in which they began, from all entries.

    Costs are computed anew from the events, the budget from the runs, and both compared with what
    the entries say.

    Raises:
        ValueError: an entry does not fit those before it; the message starts with its number.
    """
    runs: dict[int, RunState] = {}
    held = total = Cost()
    opened: Opened | None = None
    for row in rows:
        try:
            body = parse_body(row.body)
            if isinstance(body, Opened):
                if row.number != 1:
                    raise ValueError("sets the total a second time")
                total, opened = body.total, body
            elif isinstance(body, Restored):
                held += body.cost
            elif isinstance(body, Reserved):
                if body.run in runs:
                    raise ValueError("reserves for a run that exists")
                runs[body.run] = RunState(
                    body.run, body.price, body.request, body.insecure, row.time, row.time
                )
                held += body.price
            else:
                if body.run not in runs:
                    raise ValueError("belongs to a run that is not open")
                run = runs[body.run]
                held -= run.counted
                run._follow(body, row.time)
                held += run.counted
            # Only what was released from a copy that is lost may exceed the total.
            exceeds = isinstance(body, Reserved) and not held.fits(total)
            if isinstance(body, Reserved) and held == body.price and opened is not None:
                promised = is_promised(opened, body.price, read_promise(body.request))
                exceeds = exceeds and not promised
            if body.held != held or exceeds:
                raise ValueError("does not count what was spent")
        except ValueError as error:
            raise ValueError(f"entry {row.number:,}: {error}") from None
    return list(runs.values())
