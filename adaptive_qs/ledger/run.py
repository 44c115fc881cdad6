"""The runs of a ledger: the current one, and the states of all runs from the entries."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from adaptive_qs.errors import LedgerError, SpentNote
from adaptive_qs.ledger import entries
from adaptive_qs.ledger.files import RunLock
from adaptive_qs.ledger.store import Store
from adaptive_qs.machine import Fault, reach
from adaptive_qs.privacy import budget
from adaptive_qs.privacy.accounting import FINE_NOISE
from adaptive_qs.privacy.budget import Ledger, LedgerPosition, Output, PrivacyLoss, check_process
from adaptive_qs.privacy.events import Cost, Event, GaussianEvent, Purpose, Transcript
from adaptive_qs.privacy.unit import ROWS, Unit


class LedgerRun(Ledger):
    """The budget of a run that outlives the process.

    Every release is one transaction, or comes from an earlier attempt. The rest of the program sees
    it only after its commit, so an interruption costs at most a draw that nobody saw. A resumed run
    requests the same releases again, since everything follows from released values. It gets those
    that were committed, and draws the others. Every method raises LedgerError if the file cannot be
    read or written.

    Attributes:
        resumed: Number of releases that earlier attempts committed.
        finished: Whether it is closed because its outputs are delivered.
    """

    def __init__(
        self,
        store: Store,
        identity: str,
        reserved: entries.Reserved,
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
        self._digest = entries.START
        self._broken = False
        self.finished = False
        self.resumed = sum(1 for _ in store.rows("released", self.number))

    @property
    def place(self) -> LedgerPosition | None:
        return LedgerPosition(self._identity, self.number, self._position, self._digest.hex())

    def release(
        self, events: Sequence[Event], draw: Callable[[], Sequence[Output]], definition: str = ""
    ) -> Sequence[Output]:
        """Return what was committed at this position, or draw and commit; see :class:`Ledger`.

        Raises:
            BudgetExceeded: If the events cost more than what remains; nothing is recorded or drawn.
            LedgerError: If the ledger holds another release at this position, or an earlier call
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
        """Record the digests of an output before it is delivered, unless they are recorded already.

        They later distinguish the output from a forgery. A crash before the output is written
        leaves an entry without output; a resumed run has the same digests, since they must follow
        from released values.
        """
        with self._store.writing():
            self._refuse_closed()
            if all(
                p.digests != digests for p in self._store.bodies(entries.Published, self.number)
            ):
                self._store.append(
                    entries.Published(held=self._store.held, run=self.number, digests=dict(digests))
                )
        reach(Fault.PUBLISHED)

    def finish(self) -> entries.Row:
        """Close the run after delivery, free what it did not spend, and return the newest entry."""
        self._close(finished=True)
        self.finished = True
        reach(Fault.CLOSED)
        last = self._store.last()
        self.leave()
        return last

    def leave(self) -> None:
        """End work on the run; free its budget, if that works, if nothing was released."""
        try:
            if self._lock.held and not any(self._store.rows("released", self.number)):
                self._close(finished=False)
        finally:
            self._lock.release()
            self._store.close()

    @property
    def charged(self) -> bool:
        """Whether this attempt received a release, or committed one that it did not receive."""
        unseen = self._store.rows("released", self.number, self._position)
        return bool(self._events) or (self._broken and any(unseen))

    def note(self) -> SpentNote:
        """Return the note that the ledger keeps everything released."""
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
        return [entries.from_bytes(kind, data) for kind, data in stored]

    def _commit(
        self, events: Sequence[Event], cost: Cost, outputs: Sequence[Output], definition: str
    ) -> None:
        stored = [entries.to_bytes(output) for output in outputs]
        with self._store.writing():
            self._refuse_closed()
            body = entries.Released(
                held=self._store.held, run=self.number, position=self._position, price=cost,
                transcript=Transcript(events=tuple(events)), definition=definition,
                outputs=entries.compute_digests(stored),
            )  # fmt: skip
            self._store.append(body)
            self._store.add_outputs(self.number, self._position, stored)
        self._digest = release_hash(self._digest, body)

    def _refuse_closed(self) -> None:
        if any(self._store.rows("closed", self.number)):
            raise LedgerError(f"run {self.number} was closed in the meantime: start a new run")

    def _close(self, finished: bool) -> None:
        with self._store.writing():
            self._store.end_run(self.number, finished)


def release_hash(previous: bytes, body: entries.Released) -> bytes:
    """Return the hash of a release of a run and of those before it.

    It covers outputs and costs only: nothing else, such as the time, may show in a publication.
    """
    content = (body.transcript.model_dump_json(), *body.outputs)
    return hashlib.sha256(previous + json.dumps(content).encode()).digest()


def is_promised(opened: entries.Opened, price: Cost, promise: PrivacyLoss | None) -> bool:
    """Return whether a single run promises at most the (ε, δ) of the total.

    The total in zCDP is for any runs together. One run of the same (ε, δ) can have a larger ρ,
    since its own accounting is exact.
    """
    declared = opened.declared
    if promise is None or "epsilon" not in declared:
        return False
    within = promise.epsilon <= declared["epsilon"] and promise.delta <= declared["delta"]
    return within and price.delta_units <= opened.total.delta_units


# The states of all runs, from the entries.

State = Literal["open", "finished", "closed"]


@dataclass
class RunState:
    """The state of one run of a ledger.

    Attributes:
        insecure: Whether the noise comes from a seed.
        started: Time of its first entry, UTC.
        ended: Time of its last entry, UTC.
        state: "open" (active or interrupted), "finished", or "closed" before it was finished.
        releases: Number of transactions.
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
        """The part of the total that it uses."""
        return self.reserved if self.state == "open" else self.spent

    @property
    def promise(self) -> PrivacyLoss | None:
        """The (ε, δ) of its budget; None if its request does not say."""
        return entries.read_promise(self.request)

    @property
    def gaussian_mu(self) -> float | None:
        """μ of Gaussian DP, rounded up, of a batch of answers; None for any other run.

        It requires that all events are fine Gaussian noise with parameters that were fixed in
        advance; the cost that an adaptive run happens to have is no such bound. It holds up to a
        share 2⁻²⁰ of δ, for δ of at least 10⁻³⁰⁰.
        """
        fine = FINE_NOISE**2
        if not self.events or not all(
            isinstance(event, GaussianEvent)
            and event.purpose is Purpose.STRATEGY
            and event.noise_variance >= fine
            for event in self.events
        ):
            return None
        squared = budget.float_above(2 * sum((event.rho for event in self.events), Fraction(0)))
        return math.nextafter(math.sqrt(squared), math.inf)

    def _follow(
        self, body: entries.Released | entries.Published | entries.Closed, time: str
    ) -> None:
        if self.state != "open":
            raise ValueError("belongs to a run that is not open")
        self.ended = time
        if isinstance(body, entries.Released):
            events = body.transcript.events
            cost = Cost.of(events)
            if body.position != self.releases or len(events) != len(body.outputs):
                raise ValueError("is not the next release of its run")
            if cost != body.price:
                raise ValueError("states another cost than that of its events")
            self.spent += cost
            self.events += events
            self.releases += 1
        elif isinstance(body, entries.Closed):
            if body.price != self.spent:
                raise ValueError("closes a run with another cost than that of its releases")
            self.state = "finished" if body.finished else "closed"


def collect_runs(rows: Iterable[entries.Row]) -> list[RunState]:
    """Return all runs in the order in which they began, from all entries.

    Costs are computed anew from the events, the budget in use from the runs, and both are compared
    with the entries. ValueError starts with the number of the entry that does not fit.
    """
    runs: dict[int, RunState] = {}
    held = total = Cost()
    opened: entries.Opened | None = None
    for row in rows:
        try:
            body = entries.parse_body(row.body)
            if isinstance(body, entries.Opened):
                if row.number != 1:
                    raise ValueError("sets the total a second time")
                total, opened = body.total, body
            elif isinstance(body, entries.Restored):
                held += body.cost
            elif isinstance(body, entries.Reserved):
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
            # Only releases of a lost copy may exceed the total.
            exceeds = isinstance(body, entries.Reserved) and not held.fits(total)
            if isinstance(body, entries.Reserved) and held == body.price and opened is not None:
                promised = is_promised(opened, body.price, entries.read_promise(body.request))
                exceeds = exceeds and not promised
            if body.held != held or exceeds:
                raise ValueError("does not count what was spent")
        except ValueError as error:
            raise ValueError(f"entry {row.number:,}: {error}") from None
    return list(runs.values())
