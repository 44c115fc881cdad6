"""A ledger as its owner sees it: a total that is set once, and runs that share it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Self

from adaptive_qs.arguments import positive_number
from adaptive_qs.errors import BudgetExceeded, InputError, LedgerError, reason
from adaptive_qs.ledger.entries import (
    RESTORE,
    START,
    Opened,
    Published,
    Recovered,
    Released,
    Reserved,
    Restored,
    parse_body,
    read_promise,
)
from adaptive_qs.ledger.files import Anchor, Mark, RunLock, remove_dead_locks
from adaptive_qs.ledger.run import LedgerRun, RunState, collect_runs, is_promised, release_hash
from adaptive_qs.ledger.store import Store
from adaptive_qs.machine import Fault, reach
from adaptive_qs.privacy.accounting import compute_epsilon, compute_rho
from adaptive_qs.privacy.budget import (
    BudgetWarning,
    Place,
    chosen_delta,
    delta_left,
    float_above,
    float_below,
    list_budget_warnings,
)
from adaptive_qs.privacy.events import Cost, Event
from adaptive_qs.privacy.unit import ROWS, Unit


@dataclass(frozen=True)
class Total:
    """What all runs on a data set may spend together.

    Attributes:
        limit: in whole units, rounded down.
        declared: in the owner's terms: delta, and epsilon or rho.
    """

    limit: Cost
    declared: dict[str, float]

    @classmethod
    def of(
        cls,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        discovery_delta: float = 0.0,
    ) -> Self:
        """The total given either as (epsilon, delta) or as rho.

        Args:
            epsilon: ε of all runs together.
            delta: δ; with rho it only says at which δ the implied ε is reported.
            rho: the total in zCDP.
            discovery_delta: part of delta for runs that discover values; the zCDP part is that of
                the rest.

        Raises:
            InputError: both or neither of epsilon and rho, or a value out of range.
        """
        if (epsilon is None) == (rho is None):
            came = "set twice" if rho is not None else "not set"
            raise InputError(f"The total is {came}. Use --epsilon or --rho.")
        delta = chosen_delta(delta)
        if not 0 <= discovery_delta < delta:
            raise InputError(
                f"the delta for discovery is {discovery_delta!r}: give a part of delta {delta:g}"
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
            raise InputError("the total is below 2**-60 rho: raise it")
        return cls(limit, declared)

    def list_warnings(self, rows: int | None) -> tuple[BudgetWarning, ...]:
        """What there is to say about it.

        Args:
            rows: about how many rows the data set has, as far as is public.
        """
        rho, delta = float(self.limit.rho), self.declared["delta"]
        epsilon = self.declared.get("epsilon")
        if epsilon is None:
            epsilon = compute_epsilon(rho, delta_left(delta, self.limit.delta))
        std = (2 * rho) ** -0.5
        return list_budget_warnings(epsilon, delta, std, rows, "a count that gets all of it")


NOTHING = 1e-6
"""Part of the total below which what is left is not worth a run."""
NAMED = 5
"""Open runs that a refusal names."""


def digits_below(value: float) -> str:
    """At most the value (0 or more), in six digits that can be typed."""
    if not value:
        return "0"
    exact = Decimal(value)
    unit = Decimal(1).scaleb(exact.adjusted() - 5)
    return f"{float(exact.quantize(unit, ROUND_FLOOR)):.6g}"


class LedgerBook(Store):
    """An open ledger: a total that is set once, and runs that share it.

    Proof: docs/proofs.md, section 9.

    Args:
        path: the file.
        anchor: how far it must have come, as for :class:`~adaptive_qs.ledger.files.Anchor`; a file
            is brought forward with the ledger.
        restoring: take a copy that does not reach its mark or anchor, to :meth:`restore` it.
        reading: open it also where it cannot be written, and write nothing then.

    Attributes:
        identity: 32 hexadecimal digits that name this ledger.
        limit: the total.
        declared: the total as the owner gave it.
        protected, relation: whom the total protects, and which tables are neighbours, in words.

    Raises:
        LedgerError: it is missing, not a ledger, of a newer version, or damaged, or does not reach
            its mark or anchor. All methods raise it where the file cannot be read or written, or
            has nothing such as they are asked for.
    """

    def __init__(
        self,
        path: str | Path,
        anchor: str | Path | None = None,
        restoring: bool = False,
        reading: bool = False,
    ) -> None:
        super().__init__(path, None if anchor is None else Anchor(anchor), restoring, reading)
        first = next(self.bodies(Opened))
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
        """A new ledger with this total, which cannot be changed later; its key will lie next to it.

        Args:
            path: the new file.
            limit: the total.
            declared: the total in the owner's terms, such as epsilon and delta.
            anchor: a file to be made as well, best on another volume.
            unit: whom the total protects, whatever number of rows counts in a run.
        """
        opened = Opened(
            held=Cost(),
            ledger=secrets.token_hex(16),
            total=limit,
            declared=dict(declared),
            unit=unit.protected,
            neighbours=unit.relation,
        )
        cls.write_new(Path(path), opened, None if anchor is None else Anchor(anchor))
        return cls(path, anchor)

    @property
    def left(self) -> Cost:
        """What further runs may spend; nothing where a lost copy had spent more than the total, or
        one run is all of it."""
        newest = self.newest_run()
        return self.left_beside(self.held, self.reservation(newest).price if newest else Cost())

    def left_beside(self, held: Cost, newest: Cost) -> Cost:
        """What a ledger with these costs allows, given what its newest run reserved."""
        alone = held != Cost() and not newest.fits(self.limit)
        left = self.limit - held  # less than nothing where a lost ledger had counted more
        return Cost() if alone else Cost(max(left.rho_units, 0), max(left.delta_units, 0))

    def exceeds(self, runs: Sequence[RunState]) -> bool:
        """Whether more was released than the total."""
        if self.held.fits(self.limit):
            return False
        alone = [run for run in runs if run.counted == self.held]
        return not any(is_promised(self._opened, run.reserved, run.promise) for run in alone)

    def compute_epsilon(
        self, cost: Cost, promise: tuple[float, float] | None = None
    ) -> float | None:
        """ε of a cost at the ledger's δ, of which partition selection takes its share first.

        None where that share is δ or more, so that no ε holds. What is the cost of one run alone
        has the ε that this run promised, if that is less.
        """
        delta = self.declared["delta"]
        left = Fraction(delta) - cost.delta
        found = compute_epsilon(float_above(cost.rho), float_below(left)) if left > 0 else None
        if promise is None or cost == Cost() or promise[1] > delta:
            return found
        return promise[0] if found is None else min(found, promise[0])

    @property
    def head(self) -> str:
        """Number and hash of the newest entry, to be printed and kept elsewhere."""
        return str(Mark.of(self.last()))

    @property
    def locked(self) -> bool:
        """Whether it is a copy of which its owner has still to say what it lacks."""
        return not all(entry.confirmed for entry in list(self.restorations())[-1:])

    @property
    def missing(self) -> int:
        """Entries that this copy lacks for certain, by its mark, its anchor, or what was recorded
        when it was locked."""
        last = self.last()
        body = parse_body(last.body)
        known = body.missing if isinstance(body, Restored) and not body.confirmed else 0
        return max(self.reached - last.number, known)

    def restorations(self) -> Iterator[Restored]:
        """What was recorded whenever a copy was put back, in order."""
        return self.bodies(Restored)

    def check_unit(self, unit: Unit) -> None:
        """Refuse a run that protects something else than the total: their costs do not add up.

        Raises:
            LedgerError: it does.
        """
        if (unit.protected, unit.relation) != (self.protected, self.relation):
            raise LedgerError(
                f"{self.path} protects {self.protected} (neighbouring tables {self.relation}), but "
                f"the run protects {unit.protected} ({unit.relation}). Their costs cannot be "
                "added. Use a ledger that was created for this unit."
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
        """Set a budget aside for a new run, which this process locks.

        Args:
            request: everything public that decides what the run does.
            inputs: keyed hash of the private table.
            cost: the budget.
            insecure: whether the noise comes from a seed.
            filtered: whether the filter of Gaussian DP bounds it besides.
            unit: whom the run protects.

        Raises:
            BudgetExceeded: the total does not allow it; nothing is recorded.
            LedgerError: an interrupted run was asked for the same, the ledger is locked, or its
                total protects something else.
        """
        self.check_unit(unit)
        lock: RunLock | None = None
        try:
            with self.writing():
                self._refuse_repetition(request, inputs)
                self.check_remaining(cost, read_promise(request))
                lost = (r.run for entry in self.restorations() for r in entry.releases)
                number = 1 + max(self.newest_run(), *lost, 0)
                reserved = Reserved(
                    held=self.held + cost,
                    run=number,
                    price=cost,
                    request=dict(request),
                    insecure=insecure,
                )
                self.append(reserved)
                self.add_input(number, inputs, reserved.request)
                lock = self._lock(number)
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        reach(Fault.RESERVED)
        return LedgerRun(self, self.identity, reserved, lock, filtered, unit)

    def check_remaining(self, cost: Cost, promise: tuple[float, float] | None = None) -> None:
        """Refuse a budget that the total does not allow, and any where the ledger is locked.

        Args:
            cost: the budget.
            promise: the (ε, δ) of the budget; None if unknown.
        """
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
                f" Run {runs} is open and holds its budget: --resume continues it, adaptive-qs "
                "ledger close frees what it did not spend."
            )
        if cost.rho_units > remaining.rho_units:
            left = digits_below(float(remaining.rho))
            remedy = f"Use --rho {left} or less."
            if remaining.rho_units < NOTHING * self.limit.rho_units:
                remedy = "The budget of this data set is used up."
            raise BudgetExceeded(
                f"{self.path} has rho {left} left of {float(self.limit.rho):.6g}, and the run "
                f"needs {float(cost.rho):.6g}. {remedy}{hint}"
            )
        raise BudgetExceeded(
            f"{self.path}: the run needs a share {float(cost.delta):.3g} of delta for discovery "
            f"and {float(remaining.delta):.3g} is left of {float(self.limit.delta):.3g}: declare "
            "the values of the columns, or set a larger share when a ledger is created "
            f"(--discovery-delta).{hint}"
        )

    def is_open(self, ledger: str, run: int) -> bool:
        """Whether the run of a ledger with this name is one of this ledger, and not closed."""
        return ledger == self.identity and run in self.open_runs()

    def resume(
        self,
        request: Mapping[str, str],
        inputs: str,
        filtered: bool = False,
        unit: Unit = ROWS,
    ) -> LedgerRun:
        """Go on with the newest interrupted run that asked for the same, and lock it.

        Raises:
            LedgerError: there is none, the table or a parameter differs from it, or another
                process works on it.
        """
        self.check_unit(unit)
        interrupted = self.interrupted()
        same = [past for past in interrupted if past.request == dict(request)]
        if not same:
            # What the most similar run was asked for otherwise.
            run, different = min(
                ((past.run, _changed(past.request, request)) for past in interrupted),
                key=lambda found: (found[1] == ["command"], len(found[1])),
            )
            raise LedgerError(
                f"{self.path}: run {run} was started with another {', '.join(different)}: repeat "
                "its command with --resume added, or leave out --resume to start a new run, which "
                "spends budget anew"
            )
        found = next((past for past in same if self.input(past.run) == inputs), None)
        if found is None:
            raise LedgerError(
                f"{self.path}: the private table is not the one that run {same[0].run} read: "
                "restore it, or start a new run without --resume"
            )
        lock = self._idle(found.run, "wait for its end, or close what holds it")
        self._mark(Mark.of(self.last()))  # a killed process may have left mark and anchor behind
        return LedgerRun(self, self.identity, found, lock, filtered, unit)

    def interrupted(self) -> list[Reserved]:
        """The reservations of all runs that are not closed, newest first; without any, or where the
        ledger is locked, there is nothing to resume."""
        self._refuse_locked()
        found = [self.reservation(number) for number in reversed(self.open_runs())]
        if not found:
            raise LedgerError(
                f"{self.path}: no interrupted run to resume: leave out --resume to start a new "
                "one, which spends budget anew"
            )
        return found

    def anchor(self, path: str | Path) -> None:
        """Make a new anchor of this ledger as it is."""
        Anchor(path).create(Mark.of(self.last()))

    def restore(self, releases: Iterable[Recovered], stated: Cost, confirmed: bool) -> Restored:
        """Record that this ledger is a copy, and what was released since it was made.

        Releases that it has are left out, and what is of one run counts once. Of the others all of
        the cost is counted, also where it exceeds the total, and a run of theirs that is still open
        in the copy is closed, or all is refused where a process works on it. Mark and anchor begin
        anew.

        Args:
            releases: of this ledger.
            stated: what else to count as spent.
            confirmed: whether that is all; otherwise no run is taken until it is.
        """
        with self.writing():
            lost: dict[Place, Recovered] = {}
            for release in releases:
                place = Place(self.identity, release.run, release.releases, release.hash)
                if not self.has(place) and not self.recovered(place):
                    lost[place] = release if place not in lost else lost[place].joined(release)
            still_open = self.open_runs()
            for run in dict.fromkeys(place.run for place in lost):
                if run in still_open:
                    self._close_idle(run)
            entry = Restored(
                held=self.held + sum((one.price for one in lost.values()), stated),
                reached=self.reached,
                missing=self.missing,
                confirmed=confirmed,
                releases=tuple(lost.values()),
                stated=stated,
            )
            self.append(entry)
        return entry

    def close_run(self, number: int) -> None:
        """Give up an interrupted run: free what it did not spend and forget its answers."""
        self.reservation(number)
        if number not in self.open_runs():
            raise LedgerError(
                f"Run {number} of {self.path} is finished. There is no reserved budget to return."
            )
        with self.writing():
            self._close_idle(number)

    def runs(self) -> list[RunState]:
        """All runs, in the order in which they began, with costs computed anew."""
        try:
            return collect_runs(self.rows())
        except ValueError as error:
            raise LedgerError(f"{self.path}: {error}: {RESTORE}") from None

    def verify(self) -> int:
        """Check all that opening did not: costs, sums, and the answers kept for open runs.

        Returns how many entries there are; a refusal names the one that does not fit.
        """
        for run in self.runs():
            if run.state == "open":
                for _ in self.releases(run.number):
                    pass
        return self.last().number

    def has(self, place: Place) -> bool:
        """Whether all releases of that run are here as a release of it states."""
        digest, releases = START, 0
        for body in self.bodies(Released, place.run):
            digest, releases = release_hash(digest, body), releases + 1
        return releases > 0 and place == Place(self.identity, place.run, releases, digest.hex())

    def recovered(self, place: Place) -> Recovered | None:
        """What was recorded of that release when a copy without it was restored."""
        found = (release for entry in self.restorations() for release in entry.releases)
        wanted = (self.identity, place.run, place.releases, place.hash)
        return next((r for r in found if (place.ledger, r.run, r.releases, r.hash) == wanted), None)

    def events(self, run: int) -> tuple[Event, ...]:
        """Everything that a run charged, in order."""
        bodies = self.bodies(Released, run)
        return tuple(event for body in bodies for event in body.transcript.events)

    def published(self, run: int) -> Sequence[Mapping[str, str]]:
        """SHA-256 of the parts of everything that a run handed over, each by name."""
        return [body.digests for body in self.bodies(Published, run)]

    def _refuse_locked(self) -> None:
        if self.locked:
            raise LedgerError(
                f"{self.path}: is a copy that was put back, and nobody has said what was released "
                "since it was made: say so with adaptive-qs ledger restore"
            )

    def _close_idle(self, number: int) -> None:
        lock = self._idle(number, "stop what holds it first")
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
                    f"{self.path}: run {run} was asked for the same and interrupted: continue it "
                    "with --resume, which spends nothing twice, or give it up with adaptive-qs "
                    f"ledger close --run {run}"
                )

    def _idle(self, number: int, otherwise: str) -> RunLock:
        lock = self._lock(number)
        if not lock.held:
            raise LedgerError(f"{self.path}: run {number} is being worked on: {otherwise}")
        return lock

    def _lock(self, number: int) -> RunLock:
        try:
            return RunLock(self.path, number)
        except OSError as error:
            raise LedgerError(
                f"{self.path}: its folder cannot be written ({reason(error)}): make it writable"
            ) from None


def _changed(past: Mapping[str, str], request: Mapping[str, str]) -> list[str]:
    names = sorted(past.keys() | request.keys())
    different = [name for name in names if past.get(name) != request.get(name)]
    return ["command"] if "command" in different else different


def exported(book: LedgerBook) -> str:
    """A ledger as JSON for auditors: everything that its hashes cover, and nothing private.

    Left out are the key, which never is in the ledger, and the noisy answers of open runs, of which
    the entries hold the hashes; ``body`` is the exact text over which ``hash`` is computed.
    """
    entries = [row._asdict() | {"hash": row.hash.hex()} for row in book.rows()]
    content = {
        "format": "adaptive-qs ledger",
        "version": 1,
        "ledger": book.identity,
        "hash": "SHA-256 over the hash before (first: 32 zero bytes), then number, time and body, "
        "each as UTF-8 after its length in bytes as 8 bytes, most significant first",
        "entries": entries,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
