"""The ledger of a data set: a total that is set once, and runs that share it."""

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Self

from adaptive_qs.errors import BudgetExceeded, LedgerError, reason
from adaptive_qs.ledger import entries
from adaptive_qs.ledger.files import Anchor, Mark, RunLock, remove_dead_locks
from adaptive_qs.ledger.run import LedgerRun, RunState, collect_runs, is_promised, release_hash
from adaptive_qs.ledger.store import Store
from adaptive_qs.machine import Fault, reach
from adaptive_qs.privacy.accounting import compute_epsilon
from adaptive_qs.privacy.budget import LedgerPosition, PrivacyLoss, float_above, float_below
from adaptive_qs.privacy.events import Cost, Event
from adaptive_qs.privacy.unit import ROWS, Unit

NOTHING = 1e-6
"""Share of the total below which the rest is called used up."""
NAMED = 5
"""Maximum number of open runs that a message names."""


class LedgerBook(Store):
    """An open ledger: a total that is set once, and runs that share it.

    All methods raise LedgerError if the file cannot be read or written, or lacks what they need;
    opening also raises it if the ledger is of a newer version, damaged, or does not reach its mark
    or anchor. Proof: docs/proofs.md, section 9.

    Args:
        path: The file.
        anchor: An entry that the ledger must have, as for
            :class:`~adaptive_qs.ledger.files.Anchor`; a file is updated with the ledger.
        restoring: Open a copy that does not reach its mark or anchor, to :meth:`restore` it.
        reading: Also open a ledger that cannot be written, and do not write to it.

    Attributes:
        identity: 32 hexadecimal digits that name this ledger.
        declared: The total in the parameters of the owner.
        protected: The unit that the total protects, as text.
        relation: The neighbouring tables, as text.
    """

    def __init__(
        self,
        path: str | Path,
        anchor: str | Path | None = None,
        restoring: bool = False,
        reading: bool = False,
    ) -> None:
        super().__init__(path, None if anchor is None else Anchor(anchor), restoring, reading)
        first = next(self.bodies(entries.Opened))
        self._opened = first
        self.identity = first.ledger
        self.limit = first.total
        self.declared = dict(first.declared)
        self.protected, self.relation = first.unit, first.neighbours
        remove_dead_locks(self.path)

    @classmethod
    def create(
        cls,
        path: str | Path,
        limit: Cost,
        declared: Mapping[str, float],
        anchor: str | Path | None = None,
        unit: Unit = ROWS,
    ) -> Self:
        """Create a ledger with a total that cannot be changed later.

        ``declared`` is the total in the parameters of the owner, such as epsilon and delta. The
        anchor is the path of a new one, best on another volume. The total protects the unit for any
        number of rows that count in a run.
        """
        opened = entries.Opened(
            held=Cost(), ledger=secrets.token_hex(16), total=limit, declared=dict(declared),
            unit=unit.identity, neighbours=unit.relation,
        )  # fmt: skip
        cls.write_new(Path(path), opened, None if anchor is None else Anchor(anchor))
        try:
            return cls(path, anchor)
        except LedgerError as error:
            raise LedgerError(f"{error}. The ledger was created: do not create it again.") from None

    @property
    def left(self) -> Cost:
        """The budget that is left for further runs."""
        newest = self.newest_run()
        return self.left_beside(self.held, self.reservation(newest).price if newest else Cost())

    def left_beside(self, held: Cost, newest: Cost) -> Cost:
        """Return the budget that is left, given the budget in use and that of the newest run.

        Nothing is left if a single run is the whole total (see :func:`is_promised`).
        """
        alone = held != Cost() and not newest.fits(self.limit)
        left = self.limit - held  # negative if a lost ledger had counted more
        return Cost() if alone else Cost(max(left.rho_units, 0), max(left.delta_units, 0))

    def exceeds(self, runs: Sequence[RunState]) -> bool:
        """Return whether more was released than the total allows."""
        if self.held.fits(self.limit):
            return False
        alone = [run for run in runs if run.counted == self.held]
        return not any(is_promised(self._opened, run.reserved, run.promise) for run in alone)

    def compute_epsilon(self, cost: Cost, promise: PrivacyLoss | None = None) -> float | None:
        """Return ε of a cost at the δ of the ledger, from which discovery takes its share first.

        Return None if nothing is left of δ. The promise is the (ε, δ) of a run, if it is the only
        one that has this cost; its ε is returned if it is smaller.
        """
        delta = self.declared["delta"]
        left = Fraction(delta) - cost.delta
        found = compute_epsilon(float_above(cost.rho), float_below(left)) if left > 0 else None
        if promise is None or cost == Cost() or promise.delta > delta:
            return found
        return promise.epsilon if found is None else min(found, promise.epsilon)

    @property
    def head(self) -> str:
        """Number and hash of the newest entry, to be printed and stored elsewhere."""
        return str(Mark.of(self.last()))

    @property
    def locked(self) -> bool:
        """Whether it is a restored copy whose missing releases the owner has not listed yet."""
        return not all(entry.confirmed for entry in list(self.restorations())[-1:])

    @property
    def missing(self) -> int:
        """Number of entries that this copy certainly lacks, by mark, anchor or its restoration."""
        last = self.last()
        body = entries.parse_body(last.body)
        known = body.missing if isinstance(body, entries.Restored) and not body.confirmed else 0
        return max(self.reached - last.number, known)

    def restorations(self) -> Iterator[entries.Restored]:
        """Yield the entries of all restorations, in order."""
        return self.bodies(entries.Restored)

    def check_unit(self, unit: Unit) -> None:
        """Raise LedgerError if a run protects another unit, so that costs do not add up."""
        if (unit.identity, unit.relation) != (self.protected, self.relation):
            raise LedgerError(
                f"{self.path} protects {self.protected} (neighbouring tables: {self.relation}), "
                f"but the run protects {unit.identity} ({unit.relation}). Their costs do not add "
                "up. Use a ledger that was created for this unit."
            )

    def reserve(
        self,
        request: Mapping[str, str],
        inputs: str,
        cost: Cost,
        insecure: bool = False,
        filtered: bool = False,
        unit: Unit = ROWS,
    ) -> LedgerRun:
        """Reserve the budget of a new run, which this process locks.

        BudgetExceeded is raised, and nothing recorded, if the total does not allow it; LedgerError
        if an interrupted run has the same request, or the ledger is locked or protects another
        unit.
        """
        self.check_unit(unit)
        lock: RunLock | None = None
        try:
            with self.writing():
                self._refuse_repetition(request, inputs)
                self.check_remaining(cost, entries.read_promise(request))
                lost = (r.run for entry in self.restorations() for r in entry.releases)
                number = 1 + max(self.newest_run(), *lost, 0)
                reserved = entries.Reserved(
                    held=self.held + cost, run=number, price=cost, request=dict(request),
                    insecure=insecure,
                )  # fmt: skip
                self.append(reserved)
                self.add_input(number, inputs, reserved.request)
                lock = self._lock(number)
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        reach(Fault.RESERVED)
        return LedgerRun(self, self.identity, reserved, lock, filtered, unit)

    def check_remaining(self, cost: Cost, promise: PrivacyLoss | None = None) -> None:
        """Raise BudgetExceeded if the total does not allow a budget, LedgerError if locked."""
        self._refuse_locked()
        remaining = self.left
        if cost.fits(remaining):
            return
        if self.held == Cost() and is_promised(self._opened, cost, promise):
            return
        hint = ""
        if holding := self.open_runs():
            runs = ", ".join(map(str, holding[:NAMED])) + (" and others" if holding[NAMED:] else "")
            hint = (
                f" Run {runs} is open and has reserved its budget: --resume continues it, and "
                "adaptive-qs ledger close frees what it did not spend."
            )
        if cost.rho_units > remaining.rho_units:
            left = entries.round_down(float(remaining.rho))
            remedy = f"Use --rho {left} or less."
            if remaining.rho_units < NOTHING * self.limit.rho_units:
                remedy = "The budget of this data set is used up."
            raise BudgetExceeded(
                f"{self.path} has rho {left} left of {float(self.limit.rho):.6g}, and the run "
                f"needs {float(cost.rho):.6g}. {remedy}{hint}"
            )
        raise BudgetExceeded(
            f"{self.path} has {float(remaining.delta):.3g} left of {float(self.limit.delta):.3g} "
            f"delta for discovery, and the run needs {float(cost.delta):.3g}. Declare the values "
            f"of the columns, or create a ledger with a larger --discovery-delta.{hint}"
        )

    def is_open(self, ledger: str, run: int) -> bool:
        """Return whether a run of the ledger with this name is an open run of this ledger."""
        return ledger == self.identity and run in self.open_runs()

    def resume(
        self, request: Mapping[str, str], inputs: str, filtered: bool = False, unit: Unit = ROWS
    ) -> LedgerRun:
        """Resume the newest interrupted run with the same request, and lock it.

        LedgerError is raised if there is none, the table or a parameter differs, or another process
        works on it.
        """
        self.check_unit(unit)
        interrupted = self.interrupted()
        same = [past for past in interrupted if past.request == dict(request)]
        if not same:
            # The differences from the most similar run.
            run, different = min(
                ((past.run, _changed(past.request, request)) for past in interrupted),
                key=lambda found: (found[1] == ["command"], len(found[1])),
            )
            raise LedgerError(
                f"{self.path}: run {run} was started with another {', '.join(different)}. Repeat "
                "its command with --resume, or remove --resume to start a new run, which spends "
                "budget again."
            )
        found = next((past for past in same if self.input(past.run) == inputs), None)
        if found is None:
            raise LedgerError(
                f"{self.path}: the private table is not the one that run {same[0].run} read. "
                "Restore it, or start a new run without --resume."
            )
        lock = self._idle(found.run, "Wait until it ends, or stop it.")
        self._mark(Mark.of(self.last()))  # a killed process may have left mark and anchor behind
        return LedgerRun(self, self.identity, found, lock, filtered, unit)

    def interrupted(self) -> list[entries.Reserved]:
        """Return the reservations of all open runs, newest first; LedgerError without any."""
        self._refuse_locked()
        found = [self.reservation(number) for number in reversed(self.open_runs())]
        if not found:
            raise LedgerError(
                f"{self.path}: no interrupted run to resume. Remove --resume to start a new run, "
                "which spends budget again."
            )
        return found

    def anchor(self, path: str | Path) -> None:
        """Create an anchor with the newest entry of this ledger."""
        Anchor(path).create(Mark.of(self.last()))

    def restore(
        self, releases: Iterable[entries.Recovered], stated: Cost, confirmed: bool
    ) -> entries.Restored:
        """Record that this ledger is a copy, and the releases since the copy was made.

        Releases that the copy has are ignored, and a release with several files counts once. The
        cost of the others, and further ``stated`` cost, is counted, even if it exceeds the total.
        Their runs that are open in the copy are closed; LedgerError is raised if a process works on
        one. Mark and anchor are written anew. Unless the list is ``confirmed`` as complete, no run
        starts.
        """
        with self.writing():
            lost: dict[LedgerPosition, entries.Recovered] = {}
            for release in releases:
                place = LedgerPosition(self.identity, release.run, release.releases, release.hash)
                if not self.has(place) and not self.recovered(place):
                    lost[place] = release if place not in lost else lost[place].joined(release)
            still_open = self.open_runs()
            for run in dict.fromkeys(place.run for place in lost):
                if run in still_open:
                    self._close_idle(run)
            entry = entries.Restored(
                held=self.held + sum((one.price for one in lost.values()), stated),
                reached=self.reached, missing=self.missing, confirmed=confirmed,
                releases=tuple(lost.values()), stated=stated,
            )  # fmt: skip
            self.append(entry)
        return entry

    def close_run(self, number: int) -> None:
        """Close an interrupted run: free what it did not spend and delete its outputs."""
        self.reservation(number)
        if number not in self.open_runs():
            raise LedgerError(
                f"{self.path}: run {number} is closed. It has no reserved budget to return."
            )
        with self.writing():
            self._close_idle(number)

    def runs(self) -> list[RunState]:
        """Return all runs in the order in which they began, with costs computed anew."""
        try:
            return collect_runs(self.rows())
        except ValueError as error:
            raise LedgerError(f"{self.path}: {error}: {entries.RESTORE}") from None

    def verify(self) -> int:
        """Check costs, sums and the stored outputs of open runs; return the number of entries.

        LedgerError names the entry that does not fit.
        """
        for run in self.runs():
            if run.state == "open":
                for _ in self.releases(run.number):
                    pass
        return self.last().number

    def has(self, place: LedgerPosition) -> bool:
        """Return whether this ledger has all releases of a run up to a position."""
        digest, releases = entries.START, 0
        for body in self.bodies(entries.Released, place.run):
            digest, releases = release_hash(digest, body), releases + 1
        return releases > 0 and place == LedgerPosition(
            self.identity, place.run, releases, digest.hex()
        )

    def recovered(self, place: LedgerPosition) -> entries.Recovered | None:
        """Return the record of a release that a restored copy lacks, if there is one."""
        found = (release for entry in self.restorations() for release in entry.releases)
        searched = (self.identity, place.run, place.releases, place.hash)
        return next(
            (r for r in found if (place.ledger, r.run, r.releases, r.hash) == searched), None
        )

    def events(self, run: int) -> tuple[Event, ...]:
        """Return all charges of a run, in order."""
        bodies = self.bodies(entries.Released, run)
        return tuple(event for body in bodies for event in body.transcript.events)

    def published(self, run: int) -> Sequence[Mapping[str, str]]:
        """Return the digests of all outputs of a run, by the names of their parts."""
        return [body.digests for body in self.bodies(entries.Published, run)]

    def _refuse_locked(self) -> None:
        if self.locked:
            raise LedgerError(
                f"{self.path} is a restored copy, and the releases since it was made are not "
                "recorded. List them with adaptive-qs ledger restore."
            )

    def _close_idle(self, number: int) -> None:
        lock = self._idle(number, "Stop it first.")
        try:
            self.end_run(number, finished=False)
        finally:
            lock.release()

    def _refuse_repetition(self, request: Mapping[str, str], inputs: str) -> None:
        for run in self.asked_for(inputs, request):
            lock = self._lock(run)
            if lock.held:  # so nobody works on it
                lock.release()
                raise LedgerError(
                    f"{self.path}: run {run} with the same request was interrupted. Continue it "
                    "with --resume, which spends nothing twice, or close it with adaptive-qs "
                    f"ledger close --run {run}."
                )

    def _idle(self, number: int, otherwise: str) -> RunLock:
        lock = self._lock(number)
        if not lock.held:
            raise LedgerError(f"{self.path}: a process works on run {number}. {otherwise}")
        return lock

    def _lock(self, number: int) -> RunLock:
        try:
            return RunLock(self.path, number)
        except OSError as error:
            raise LedgerError(
                f"{self.path}: its folder cannot be written ({reason(error)}). Make it writable."
            ) from None


def _changed(past: Mapping[str, str], request: Mapping[str, str]) -> list[str]:
    names = sorted(past.keys() | request.keys())
    different = [name for name in names if past.get(name) != request.get(name)]
    return ["command"] if "command" in different else different


def export_json(book: LedgerBook) -> str:
    """Return a ledger as JSON for auditors: all entries, and nothing private.

    It lacks the key, which is never in the ledger, and the noisy outputs of open runs, whose hashes
    are in the entries. ``body`` is the exact text over which ``hash`` is computed.
    """
    exported = [row._asdict() | {"hash": row.hash.hex()} for row in book.rows()]
    content = {
        "format": "adaptive-qs ledger",
        "version": 1,
        "ledger": book.identity,
        "hash": "SHA-256 over the hash before (first: 32 zero bytes), then number, time and body, "
        "each as UTF-8 after its length in bytes as 8 bytes, most significant first",
        "entries": exported,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
