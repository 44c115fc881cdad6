"""The budget of one run: in memory, or reserved in a ledger that survives the process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adaptive_qs.errors import AdaptiveQsError, BudgetExceeded, InputError, LedgerError, SpentNote
from adaptive_qs.machine import DELIVERED, reach
from adaptive_qs.privacy.budget import Budget, Ledger
from adaptive_qs.privacy.events import Cost

if TYPE_CHECKING:  # a run without a ledger does not read the modules of one
    from adaptive_qs.ledger.book import LedgerBook
    from adaptive_qs.ledger.run import LedgerRun

IN_PLACE = SpentNote("the budget is spent, and what it bought is in place")


@dataclass(frozen=True)
class Closing:
    """A run that was finished, and what its ledger has left.

    Attributes:
        path: of the ledger.
        run: number of the run.
        left: what other runs may spend.
        head: number and hash of the ledger's newest entry then.
    """

    path: Path
    run: int
    left: Cost
    head: str


class Session:
    """A budget for one run.

    Nothing is reserved before :meth:`begin`, but a budget that the ledger cannot grant is refused
    at once.

    Args:
        path: the ledger's file; None keeps the budget in memory.
        resume: go on with an interrupted run.
        cost: the budget.
        anchor: how far the ledger must have come, as a file or as it was printed; None for none.

    Attributes:
        closed: how it ended, after :meth:`finish` on a ledger.

    Raises:
        InputError: to resume without a ledger, or an anchor without one.
        LedgerError: the ledger cannot be used.
        BudgetExceeded: its total does not allow the budget.
    """

    def __init__(
        self,
        path: str | Path | None,
        resume: bool,
        cost: Cost,
        anchor: str | Path | None = None,
    ) -> None:
        if path is None and resume:
            raise InputError("resume was asked for without a ledger: name the ledger of the run")
        if path is None and anchor is not None:
            raise InputError("an anchor was given without a ledger: name the ledger that it is of")
        self._book: LedgerBook | None = None
        if path is not None:
            from adaptive_qs.ledger.book import LedgerBook

            self._book = LedgerBook(path, anchor)
        self._resume = resume
        self._inputs = ""
        self._cost = cost
        self.closed: Closing | None = None
        self._run: LedgerRun | None = None
        self._budget: Budget | None = None
        if self._book is not None:
            try:
                if resume:
                    self._book.interrupted()
                else:
                    self._book.check_remaining(cost)
            except (BudgetExceeded, LedgerError):
                self._book.close()
                raise

    def recognise(self, table: Iterable[bytes]) -> None:
        """Look at the private table, so that a resumed run can tell whether it is the same.

        Args:
            table: its bytes; not looked at without a ledger.

        Raises:
            LedgerError: the ledger's key cannot be used.
        """
        if self._book is not None:
            from adaptive_qs.ledger.files import keyed_hash

            self._inputs = keyed_hash(self._book.path, table, make=not self._resume)

    def begin(self, request: Callable[[], Mapping[str, str]], insecure: bool = False) -> Ledger:
        """Reserve the budget, or take up the interrupted run; after :meth:`recognise`.

        Args:
            request: tells everything public that decides what the run does, for a ledger.
            insecure: whether the noise comes from a seed.

        Raises:
            BudgetExceeded: the total does not allow the budget.
            LedgerError: the ledger cannot be written, or there is no such run to resume.
        """
        if self._book is None:
            self._budget = Budget(self._cost.rho, self._cost.delta)
            return self._budget
        if self._resume:
            self._run = self._book.resume(request(), self._inputs)
        else:
            self._run = self._book.reserve(request(), self._inputs, self._cost, insecure)
        return self._run

    def publish(self, digests: Mapping[str, str]) -> None:
        """Record in the ledger what is about to be handed over; nothing without one.

        Args:
            digests: SHA-256 of each part, by name.

        Raises:
            LedgerError: the ledger cannot be written.
        """
        if self._run is not None:
            self._run.publish(digests)

    def finish(self) -> None:
        """Say that the outputs are in place: the run is closed. Nothing more happens later.

        Raises:
            LedgerError: the ledger cannot be written.
        """
        if self._run is not None and self._book is not None:
            from adaptive_qs.ledger.book import remaining_of
            from adaptive_qs.ledger.entries import parse_body
            from adaptive_qs.ledger.files import Mark

            reach(DELIVERED)
            number, last = self._run.number, self._run.finish()
            held = parse_body(last.body).held
            left = remaining_of(self._book.limit, held)
            head = str(Mark(last.number, last.hash))
            self.closed = Closing(self._book.path, number, left, head)
            self._run = None

    @contextmanager
    def working(self, lost: SpentNote) -> Iterator[None]:
        """Add to any error what became of the budget, and leave the run as it is.

        Args:
            lost: what is true without a ledger once something was released.
        """
        try:
            yield
        except GeneratorExit:
            self.leave()
            raise
        except BaseException as error:
            notes = getattr(error, "__notes__", ())
            if self._charged() and not any(isinstance(n, SpentNote) for n in notes):
                delivered = self._run is not None and self._run.finished
                error.add_note(IN_PLACE if delivered else self.note or lost)
            self.leave()
            raise

    @property
    def note(self) -> SpentNote | None:
        """That a ledger keeps what was released; None where it does not, or not any more."""
        return self._run.note() if self._run and not self._run.finished else None

    def _charged(self) -> bool:
        if self._run is None:
            return self._budget is not None and bool(self._budget.events)
        try:
            return self._run.finished or self._run.charged
        except AdaptiveQsError:
            return True  # nobody can tell at present

    def leave(self) -> None:
        """End work on an unfinished run; it stays to be resumed if it released anything."""
        if self._run is not None:
            with suppress(AdaptiveQsError):  # the budget stays reserved then
                self._run.leave()
            self._run = None
        if self._book is not None:
            self._book.close()
