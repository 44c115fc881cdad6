"""A ledger as its owner sees it: a total that is set once, and runs that share it.

Proof: docs/proofs.md, section 9.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from adaptive_qs.errors import LedgerError
from adaptive_qs.faults import RESERVED, reach
from adaptive_qs.ledger.chain import START, Row
from adaptive_qs.ledger.entries import (
    Opened,
    Price,
    Published,
    Recovered,
    Released,
    Reserved,
    Restored,
    parse_body,
)
from adaptive_qs.ledger.locks import RunLock, remove_dead_locks
from adaptive_qs.ledger.mark import Anchor, Mark
from adaptive_qs.ledger.matching import matching_run, open_runs
from adaptive_qs.ledger.overview import RunState, runs_of
from adaptive_qs.ledger.remaining import check_remaining, remaining_of
from adaptive_qs.ledger.run import (
    LedgerRun,
    append_closing,
    check_outputs,
    close_run,
    release_hash,
    reservation,
)
from adaptive_qs.ledger.store import Store
from adaptive_qs.ledger.wording import RESTORE
from adaptive_qs.privacy.budget import Place
from adaptive_qs.privacy.events import Cost, Event
from adaptive_qs.privacy.neighbours import NEIGHBOURS, UNIT


class LedgerBook:
    """An open ledger.

    Args:
        path: the file.
        anchor: how far it must have come, as for :class:`~adaptive_qs.ledger.mark.Anchor`; a file
            is brought forward with the ledger.
        restoring: take a copy that does not reach its mark or anchor, to :meth:`restore` it.

    Attributes:
        identity: 32 hexadecimal digits that name this ledger.
        limit: the total.
        declared: the total as the owner gave it.

    Raises:
        LedgerError: it is missing, not a ledger, of a newer version, or damaged, or does not reach
            its mark or anchor.
    """

    def __init__(
        self, path: str | Path, anchor: str | Path | None = None, restoring: bool = False
    ) -> None:
        self._store = Store(path, None if anchor is None else Anchor(anchor), restoring)
        self._read_total()
        remove_dead_locks(self.path)

    @classmethod
    def create(
        cls,
        path: str | Path,
        limit: Cost,
        declared: Mapping[str, float],
        anchor: str | Path | None = None,
    ) -> Self:
        """A new ledger with this total, which cannot be changed later.

        Args:
            path: the new file; its key will lie beside it.
            limit: the total.
            declared: the total in the owner's terms, such as epsilon and delta.
            anchor: a file to be made as well, best on another volume.

        Raises:
            LedgerError: there is a file already, or none can be written there.
        """
        opened = Opened(
            held=Price.of(Cost()),
            ledger=secrets.token_hex(16),
            total=Price.of(limit),
            declared=dict(declared),
            unit=UNIT,
            neighbours=NEIGHBOURS,
        )
        book = cls.__new__(cls)
        book._store = Store.create(path, opened, None if anchor is None else Anchor(anchor))
        book._read_total()
        return book

    @property
    def path(self) -> Path:
        """The file."""
        return self._store.path

    @property
    def held(self) -> Cost:
        """What counts against the total: reserved by open runs, spent by others."""
        return parse_body(self._store.last().body).held.cost()

    @property
    def left(self) -> Cost:
        """What further runs may spend; nothing where a lost copy had spent more than the total."""
        return remaining_of(self.limit, self.held)

    @property
    def head(self) -> str:
        """Number and hash of the newest entry, to be printed and kept elsewhere."""
        last = self._store.last()
        return str(Mark(last.number, last.hash))

    @property
    def locked(self) -> bool:
        """Whether it is a copy of which its owner has still to say what it lacks."""
        return not all(entry.confirmed for entry in list(self.restorations())[-1:])

    @property
    def missing(self) -> int:
        """Entries that this copy lacks for certain, by its mark, its anchor, or what was recorded
        when it was locked."""
        last = self._store.last()
        body = parse_body(last.body)
        known = body.missing if isinstance(body, Restored) and not body.confirmed else 0
        return max(self._store.reached - last.number, known)

    def restorations(self) -> Iterator[Restored]:
        """What was recorded whenever a copy was put back, in order."""
        for row in self._store.rows("restored"):
            body = parse_body(row.body)
            assert isinstance(body, Restored)
            yield body

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def reserve(
        self, request: Mapping[str, str], inputs: str, cost: Cost, insecure: bool = False
    ) -> LedgerRun:
        """Set a budget aside for a new run.

        Args:
            request: everything public that decides what the run does.
            inputs: keyed hash of the private table.
            cost: the budget.
            insecure: whether the noise comes from a seed.

        Returns:
            The run, locked by this process.

        Raises:
            BudgetExceeded: the total does not allow it; nothing is recorded.
            LedgerError: the ledger cannot be written.
        """
        lock: RunLock | None = None
        try:
            with self._store.writing():
                self._refuse_repetition(request, inputs)
                self.check_remaining(cost)
                number = 1 + max(self._store.newest_run(), *self._recovered_runs())
                reserved = Reserved(
                    held=Price.of(self.held + cost),
                    run=number,
                    price=Price.of(cost),
                    request=dict(request),
                    insecure=insecure,
                )
                self._store.append(reserved)
                self._store.add_input(number, inputs, reserved.request)
                lock = self._lock(number)
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        reach(RESERVED)
        return LedgerRun(self._store, self.identity, reserved, lock)

    def check_remaining(self, cost: Cost) -> None:
        """Refuse a budget that the total does not allow.

        Raises:
            LedgerError: nobody has said yet what was released since the ledger was copied.
            BudgetExceeded: it does not.
        """
        self._refuse_locked()
        check_remaining(self.path, self.limit, self.held, cost, self._store.open_runs)

    def is_open(self, ledger: str, run: int) -> bool:
        """Whether the run of a ledger with this name is one of this ledger, and not closed."""
        return ledger == self.identity and run in self._store.open_runs()

    def check_resumable(self) -> None:
        """Refuse to resume where no run is open.

        Raises:
            LedgerError: none is, or the ledger is locked.
        """
        self._refuse_locked()
        open_runs(self._store)

    def resume(self, request: Mapping[str, str], inputs: str) -> LedgerRun:
        """Go on with the newest interrupted run that asked for the same.

        Args:
            request: as for :meth:`reserve`.
            inputs: keyed hash of the private table.

        Returns:
            The run, locked by this process.

        Raises:
            LedgerError: there is none, the table or a parameter differs from it, or another
                process works on it.
        """
        self._refuse_locked()
        found = matching_run(self._store, request, inputs)
        lock = self._lock(found.run)
        if not lock.held:
            raise LedgerError(
                f"{self.path}: run {found.run} is being worked on: wait for its end, or close what "
                "holds it"
            )
        self._store.catch_up()
        return LedgerRun(self._store, self.identity, found, lock)

    def anchor(self, path: str | Path) -> None:
        """Make a new anchor of this ledger as it is.

        Raises:
            LedgerError: the file exists, or cannot be written.
        """
        last = self._store.last()
        Anchor(path).create(Mark(last.number, last.hash))

    def restore(self, releases: Iterable[Recovered], stated: Cost, confirmed: bool) -> Restored:
        """Record that this ledger is a copy, and what was released since it was made.

        Releases that it has are left out, and what is of one run counts once. Of the others all of
        the cost is counted, also where it exceeds the total, and a run of theirs that is still open
        in the copy is closed. Mark and anchor begin anew.

        Args:
            releases: of this ledger.
            stated: what else to count as spent.
            confirmed: whether that is all; otherwise no run is taken until it is.

        Returns:
            What was recorded.

        Raises:
            LedgerError: the ledger cannot be written, or a process works on one of these runs.
        """
        with self._store.writing():
            lost: dict[Place, Recovered] = {}
            for release in releases:
                place = Place(self.identity, release.run, release.releases, release.hash)
                if not self.has(place) and not self.recovered(place):
                    lost[place] = release if place not in lost else lost[place].joined(release)
            open_runs = self._store.open_runs()
            for run in dict.fromkeys(place.run for place in lost):
                if run in open_runs:
                    self._close_idle(run)
            entry = Restored(
                held=Price.of(self.held),
                reached=self._store.reached,
                missing=self.missing,
                confirmed=confirmed,
                releases=tuple(lost.values()),
                stated=Price.of(stated),
            )
            entry = entry.model_copy(update={"held": Price.of(self.held + entry.cost)})
            self._store.append(entry)
        return entry

    def close_run(self, number: int) -> None:
        """Give up an interrupted run: free what it did not spend and forget its answers.

        Raises:
            LedgerError: there is no such open run, or a process works on it.
        """
        reservation(self._store, number)
        if number not in self._store.open_runs():
            raise LedgerError(f"{self.path}: run {number} is over: nothing is left to give back")
        lock = self._idle(number)
        try:
            close_run(self._store, number, finished=False)
        finally:
            lock.release()

    def rows(self) -> Iterator[Row]:
        """All entries, in order."""
        return self._store.rows()

    def runs(self) -> list[RunState]:
        """All runs, in the order in which they began, with costs computed anew.

        Raises:
            LedgerError: an entry does not fit those before it.
        """
        try:
            return runs_of(self._store.rows())
        except ValueError as error:
            raise LedgerError(f"{self.path}: {error}: {RESTORE}") from None

    def verify(self) -> int:
        """Check all that opening did not: costs, sums, and the answers kept for open runs.

        Returns:
            How many entries there are.

        Raises:
            LedgerError: something does not fit; the message names the entry.
        """
        for run in self.runs():
            if run.state == "open":
                check_outputs(self._store, run.number)
        return self._store.last().number

    def has(self, place: Place) -> bool:
        """Whether the releases of that run are here, all of them, as a release of it states."""
        found = self._released(place.run)
        digest = START
        for body in found:
            digest = release_hash(digest, body)
        return bool(found) and (place.ledger, place.releases, place.hash) == (
            self.identity, len(found), digest.hex(),
        )  # fmt: skip

    def recovered(self, place: Place) -> Recovered | None:
        """What was recorded of that release when a copy without it was restored."""
        found = (release for entry in self.restorations() for release in entry.releases)
        wanted = (self.identity, place.run, place.releases, place.hash)
        return next((r for r in found if (place.ledger, r.run, r.releases, r.hash) == wanted), None)

    def events(self, run: int) -> tuple[Event, ...]:
        """Everything that a run charged, in order."""
        return tuple(event for body in self._released(run) for event in body.transcript.restored())

    def published(self, run: int) -> Sequence[Mapping[str, str]]:
        """SHA-256 of the parts of everything that a run handed over, each by name."""
        found = (parse_body(row.body) for row in self._store.rows("published", run))
        return [body.digests for body in found if isinstance(body, Published)]

    def _released(self, run: int) -> list[Released]:
        found = (parse_body(row.body) for row in self._store.rows("released", run))
        return [body for body in found if isinstance(body, Released)]

    def _recovered_runs(self) -> list[int]:
        return [0, *(r.run for entry in self.restorations() for r in entry.releases)]

    def _refuse_locked(self) -> None:
        if self.locked:
            raise LedgerError(
                f"{self.path}: is a copy that was put back, and nobody has said what was released "
                "since it was made: say so with adaptive-qs ledger restore"
            )

    def _close_idle(self, number: int) -> None:
        """Close an open run; inside a transaction."""
        lock = self._idle(number)
        try:
            append_closing(self._store, number, finished=False)
        finally:
            lock.release()

    def _idle(self, number: int) -> RunLock:
        """The lock of a run on which nobody works.

        Raises:
            LedgerError: a process does.
        """
        lock = self._lock(number)
        if not lock.held:
            raise LedgerError(
                f"{self.path}: run {number} is being worked on: stop what holds it first"
            )
        return lock

    def _refuse_repetition(self, request: Mapping[str, str], inputs: str) -> None:
        """Refuse to pay again for what an interrupted run has paid for."""
        for run in self._store.asked_for(inputs, request):
            lock = self._lock(run)
            if lock.held:  # so nobody works on it
                lock.release()
                raise LedgerError(
                    f"{self.path}: run {run} was asked for the same and interrupted: continue it "
                    "with --resume, which spends nothing twice, or give it up with adaptive-qs "
                    f"ledger close --run {run}"
                )

    def _lock(self, number: int) -> RunLock:
        try:
            return RunLock(self.path, number)
        except OSError as error:
            reason = (error.strerror or "unknown reason").lower()
            raise LedgerError(
                f"{self.path}: its folder cannot be written ({reason}): make it writable"
            ) from None

    def _read_total(self) -> None:
        first = parse_body(next(self._store.rows("opened")).body)
        assert isinstance(first, Opened)
        self.identity = first.ledger
        self.limit = first.total.cost()
        self.declared = dict(first.declared)
