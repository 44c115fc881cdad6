"""A ledger as its owner sees it: a total that is set once, and runs that share it.

Proof: docs/proofs.md, section 9.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Self

from adaptive_qs.errors import LedgerError
from adaptive_qs.faults import RESERVED, reach
from adaptive_qs.ledger.chain import START, Row
from adaptive_qs.ledger.entries import Opened, Price, Released, Reserved, parse_body
from adaptive_qs.ledger.locks import RunLock, remove_dead_locks
from adaptive_qs.ledger.matching import matching_run, open_runs
from adaptive_qs.ledger.overview import RunState, runs_of
from adaptive_qs.ledger.remaining import check_remaining
from adaptive_qs.ledger.run import (
    LedgerRun,
    check_outputs,
    close_run,
    release_hash,
    reservation,
)
from adaptive_qs.ledger.store import Store
from adaptive_qs.privacy.budget import Place
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.neighbours import NEIGHBOURS, UNIT


class LedgerBook:
    """An open ledger.

    Args:
        path: the file.

    Attributes:
        identity: 32 hexadecimal digits that name this ledger.
        limit: the total.
        declared: the total as the owner gave it.

    Raises:
        LedgerError: it is missing, not a ledger, of a newer version, or damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self._store = Store(path)
        self._read_total()
        remove_dead_locks(self.path)

    @classmethod
    def create(cls, path: str | Path, limit: Cost, declared: Mapping[str, float]) -> Self:
        """A new ledger with this total, which cannot be changed later.

        Args:
            path: the new file; its key will lie beside it.
            limit: the total.
            declared: the total in the owner's terms, such as epsilon and delta.

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
        book._store = Store.create(path, opened)
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
                number = self._store.newest_run() + 1
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
            BudgetExceeded: it does not.
        """
        check_remaining(self.path, self.limit, self.held, cost, self._store.open_runs)

    def is_open(self, ledger: str, run: int) -> bool:
        """Whether the run of a ledger with this name is one of this ledger, and not closed."""
        return ledger == self.identity and run in self._store.open_runs()

    def check_resumable(self) -> None:
        """Refuse to resume where no run is open.

        Raises:
            LedgerError: none is.
        """
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
        found = matching_run(self._store, request, inputs)
        lock = self._lock(found.run)
        if not lock.held:
            raise LedgerError(
                f"{self.path}: run {found.run} is being worked on: wait for its end, or close what "
                "holds it"
            )
        return LedgerRun(self._store, self.identity, found, lock)

    def close_run(self, number: int) -> None:
        """Give up an interrupted run: free what it did not spend and forget its answers.

        Raises:
            LedgerError: there is no such open run, or a process works on it.
        """
        reservation(self._store, number)
        if number not in self._store.open_runs():
            raise LedgerError(f"{self.path}: run {number} is over: nothing is left to give back")
        lock = self._lock(number)
        if not lock.held:
            raise LedgerError(
                f"{self.path}: run {number} is being worked on: stop what holds it first"
            )
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
            raise LedgerError(
                f"{self.path}: {error}: restore a copy, and count as spent whatever was released "
                "since it was made"
            ) from None

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
        """Whether the releases of that run are here as a release of it states."""
        rows = islice(self._store.rows("released", place.run), place.releases)
        found = [parse_body(row.body) for row in rows]
        digest = START
        for body in found:
            assert isinstance(body, Released)
            digest = release_hash(digest, body)
        return (place.ledger, place.releases, place.hash) == (
            self.identity, len(found), digest.hex(),
        )  # fmt: skip

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
