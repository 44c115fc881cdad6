"""The budget of a run: what its caller asks for, and how it is kept, in memory or in a ledger."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Self

from adaptive_qs.arguments import positive_number
from adaptive_qs.errors import AdaptiveQsError, BudgetExceeded, InputError, LedgerError, SpentNote
from adaptive_qs.machine import Fault, reach
from adaptive_qs.privacy.accounting import (
    compute_epsilon,
    compute_gaussian_epsilon,
    compute_gaussian_mu,
    compute_mu,
    compute_rho,
)
from adaptive_qs.privacy.budget import (
    Budget,
    Ledger,
    check_process,
    choose_delta,
    delta_left,
    float_below,
    this_process,
)
from adaptive_qs.privacy.events import UNITS_PER_RHO, Cost
from adaptive_qs.privacy.unit import ROWS, Unit

if TYPE_CHECKING:  # a run without a ledger does not read the modules of one
    from adaptive_qs.ledger.book import LedgerBook
    from adaptive_qs.ledger.run import LedgerRun

MIN_RHO, MAX_RHO = 1e-12, 1e12
"""Budgets of tables outside lead to noise that no exact sampler can draw."""
MAX_FILTERED = 64.0
"""ρ up to which budgets of tables are accounted for exactly; above it nothing is gained, and noise
may be too narrow for it."""
MAX_LEARNING = 2.0**-7
"""Likewise of what learning one column takes: the variance of its noise is 64 at least."""
MOST_LEARNING = 0.8
"""Likewise of the part of ρ that learning takes in all: noise of that variance counts as up to a
sixth more there."""
MIN_COST, MAX_COST = 1e-10, 1e6
"""Likewise of answers, as costs β."""
MIN_EPSILON, MAX_EPSILON = 1e-12, 1e9
"""Below them, or above, exact Gaussian DP is not shown for discrete noise, or costs too much."""

# Where all noise is Gaussian, the budget is that of exact Gaussian DP: its cost β = μ² = 2ρ is the
# largest μ² whose curve δ(ε) meets the requested (ε, δ), 8-15 % more than through zCDP.
#
# The noise is discrete, and this is why its curve is that of Gaussian DP all the same. Divide each
# answer by its σ, which is at least F = ``FINE_NOISE``. All answers together then are a point z of
# a lattice with steps of at most 1/F along each axis, with probability proportional to
# exp(−|z|²/2), and a row moves the point by a lattice vector of some length m ≤ μ. The privacy loss
# depends only on the coordinate t of z along that vector, so that
#
#     δ(ε) = Σ_z exp(−|z⊥|²/2) h(t) / Σ_z exp(−|z|²/2),    h(t) = (exp(−t²/2) − e^ε exp(−(t+m)²/2))₊
#
# while Gaussian DP has integrals in place of both sums. By Poisson's formula a sum over the
# lattice, times the volume of its cell, is the integral plus the Fourier transform at all other
# points ξ of the dual lattice, whose coordinates are multiples of the σ. Below the line that adds a
# share of less than 3 exp(−2π²F²) for each answer: nothing. Above it the transform at a point with
# coordinate τ along the row's vector is at most exp(−2π²|ξ⊥|²) C/(4π²τ²), C the total variation of
# h′ (two integrations by parts; h has one kink). Points with |τ| < 7F/8 have |ξ⊥| > 0.48F: nothing
# again. Cut the others into slabs of width F/8 in τ. In a slab exp(−2π²|ξ⊥|²) is at most e^¼ times
# exp(−64|ξ − c|²/F²), c the slab's centre, and the sum of a Gaussian over a shifted lattice is at
# most its sum over the lattice itself, here 1 + 2e⁻⁶⁴ for each answer. So all slabs together add
# less than 2e^¼ C/(4π²) · (64/F²) Σ_{i≥7} 1/i² < C/F². The integral grows with m, and for no m ≤ μ
# is C above 2¹⁷ times the integral at μ, at all costs up to ``MAX_COST`` and all δ from 10⁻³⁰⁰ on:
# discrete noise makes δ larger by a factor of at most 1 + 2¹⁷/F² = 1 + 2⁻²¹, and δ is lowered by
# SLACK = 2⁻²⁰ of itself first.

SLACK = 2.0**-20
"""Share of δ set aside for the noise being discrete."""


@dataclass(frozen=True)
class PrivacyTarget:
    """A budget and the (ε, δ) that it implies.

    Attributes:
        rho: the budget in zCDP.
        epsilon: ε of the whole run at this δ.
        delta: δ.
        discovery_share: part of δ for discovering values; the rest converts ρ to ε.
        gaussian: whether (ε, δ) is that of exact Gaussian DP; of zCDP otherwise.
        filtered: whether steps are chosen one after the other, so that the exact Gaussian DP is
            that of the filter of :mod:`adaptive_qs.privacy.accounting`.
        kept: part of the whole budget that ``rho`` is: what learning leaves, and of that what may
            be spent on single rows.
        unit: whom it protects.
    """

    rho: float
    epsilon: float
    delta: float
    discovery_share: Fraction = Fraction(0)
    gaussian: bool = False
    filtered: bool = False
    kept: float = 1.0
    unit: Unit = ROWS

    @classmethod
    def of(
        cls,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        discovery_share: Fraction | None = None,
        column_share: float = 0.0,
        learning_share: float = 0.0,
    ) -> Self:
        """Return the budget of tables, given either as (epsilon, delta) or as rho.

        It is that of exact Gaussian DP, or of zCDP where it exceeds ``MAX_FILTERED``, what
        learning a column takes of it ``MAX_LEARNING``, or all learning ``MOST_LEARNING``.

        Args:
            epsilon: ε of the whole run.
            delta: δ, by default 1e-9; with rho it only says where the implied ε is reported.
            rho: the budget ρ instead of ``epsilon``.
            discovery_share: part of δ set aside for discovering values; None for none.
            column_share: part of ρ for learning the bins or values of one column.
            learning_share: part of ρ for learning all of them.

        Raises:
            InputError: both or neither of epsilon and rho, or a value out of range.
        """
        if (epsilon is None) == (rho is None):
            came = "neither epsilon nor rho was" if rho is None else "both epsilon and rho were"
            raise InputError(f"{came} given: give one of them")
        share = discovery_share or Fraction(0)
        target = replace(cls._of(epsilon, delta, rho, share, gaussian=True), filtered=True)
        narrow = target.rho > MAX_FILTERED or target.rho * column_share > MAX_LEARNING
        if narrow or learning_share > MOST_LEARNING:
            target = cls._of(epsilon, delta, rho, share, gaussian=False)
        if not MIN_RHO <= target.rho <= MAX_RHO:
            raise InputError(
                f"the budget is rho {target.rho:.3g} (zCDP): give one from {MIN_RHO:g}, below "
                f"which there is nothing but noise, to {MAX_RHO:g}, above which there is none"
            )
        return target._with_epsilon(epsilon)

    @classmethod
    def of_answers(
        cls,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        cost: float | None = None,
        discovery_share: Fraction | None = None,
    ) -> Self:
        """Return the budget of answers, given as (epsilon, delta), as rho, or as the privacy cost.

        Args:
            epsilon: As for :meth:`of`.
            delta: Likewise.
            rho: Likewise.
            cost: the privacy cost β = 2ρ of He et al., instead of ``epsilon``.
            discovery_share: where bins or values are learnt first, the part of δ set aside for
                values; the budget is then that of zCDP. None where all noise is Gaussian.

        Raises:
            InputError: not exactly one of epsilon, rho and cost, or a value out of range.
        """
        given = {"epsilon": epsilon, "rho": rho, "cost": cost}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            came = " and ".join(named) + " were" if named else "neither epsilon, rho nor cost was"
            raise InputError(f"{came} given: give exactly one of them")
        if cost is not None:
            rho = positive_number("cost", cost) / 2
        share = discovery_share or Fraction(0)
        target = cls._of(epsilon, delta, rho, share, gaussian=discovery_share is None)
        if not MIN_COST <= target.cost <= MAX_COST:
            (name,) = named
            means = "" if name == "cost" else f", which is a privacy cost of {target.cost:.3g}"
            do, limit, side, leaves = "lower", MAX_COST, "above", "no noise"
            if target.cost < MIN_COST:
                do, limit, side, leaves = "raise", MIN_COST, "below", "nothing but noise"
            raise InputError(
                f"{name} is {float(given[name] or 0):.6g}{means}: {do} it, "
                f"as a cost {side} {limit:g} leaves {leaves}"
            )
        return target._with_epsilon(epsilon)

    @classmethod
    def _of(
        cls,
        epsilon: float | None,
        delta: float | None,
        rho: float | None,
        discovery_share: Fraction,
        gaussian: bool,
    ) -> Self:
        """One of epsilon and rho as ρ, in whatever range; ε is still to be found."""
        target = cls(0.0, 0.0, choose_delta(delta), discovery_share, gaussian)
        left = target._converting
        if epsilon is None:
            return replace(target, rho=positive_number("rho", rho))
        epsilon = positive_number("epsilon", epsilon)
        if not gaussian:
            return replace(target, rho=compute_rho(epsilon, left))
        if not MIN_EPSILON <= epsilon <= MAX_EPSILON:
            return replace(target, rho=math.inf if epsilon > 1 else 0.0)
        beta = math.nextafter(compute_gaussian_mu(epsilon, left) ** 2, 0.0)
        return replace(target, rho=beta / 2)

    @property
    def _converting(self) -> float:
        """The part of δ that turns ρ into ε."""
        left = delta_left(self.delta, Fraction(self.delta) * self.discovery_share)
        return left * (1 - SLACK) if self.gaussian else left

    def _with_epsilon(self, requested: float | None) -> Self:
        if requested is None and self.gaussian:
            return replace(
                self, epsilon=compute_gaussian_epsilon(compute_mu(self.rho), self._converting)
            )
        implied = (
            compute_epsilon(self.rho, self._converting) if requested is None else float(requested)
        )
        return replace(self, epsilon=implied)

    @property
    def cost(self) -> float:
        """β = μ² = 2ρ, the privacy cost of He et al.; exact Gaussian DP with μ = √β."""
        return 2 * self.rho

    @property
    def budget(self) -> Cost:
        """The budget and the share of δ in whole units, rounded down."""
        return Cost.within(self.rho, Fraction(self.delta) * self.discovery_share)

    @property
    def units(self) -> int:
        """The budget in units of 2**-60 ρ, rounded down."""
        return math.floor(Fraction(self.rho) * UNITS_PER_RHO)

    def protecting(self, unit: Unit) -> Self:
        """Return the same promise to another unit.

        Raises:
            InputError: what it leaves for measurements of single rows is nothing but noise.
        """
        target = replace(self, unit=unit)
        if unit.group > 1 and (left := float(unit.for_rows(self.budget).rho)) < MIN_COST / 2:
            raise InputError(
                f"the budget is rho {self.rho:.3g} for {unit.name}: that is {left:.3g} for a row, "
                "which leaves nothing but noise: raise the budget, or let fewer rows of a person "
                "count"
            )
        return target

    @property
    def compute_published_rho(self) -> float:
        """ρ for one row of what is published, of which :attr:`Unit.copies` are counted.

        What is measured at it has the noise, in such rows, of what is measured of the copies at ρ
        for one row.
        """
        return self.rho * self.unit.copies**2

    def within(self, remaining: Cost) -> Self:
        """Return the same promise, with what rows may cost if this much of the budget is left."""
        rows = self.unit.for_rows(remaining)
        rho = min(self.rho / self.unit.group**2, float_below(rows.rho))
        return replace(self, rho=rho, kept=rho / self.rho)

    def at(self, epsilon: float) -> Self:
        """Return the same budget of answers at another ε.

        Raises:
            InputError: the ε is out of range.
        """
        share = None if self.gaussian else self.discovery_share
        target = self.of_answers(epsilon, self.delta, discovery_share=share)
        return replace(target, rho=self.kept * target.rho, kept=self.kept, unit=self.unit)


# The budget of one run: in memory, or reserved in a ledger that survives the process.

IN_PLACE = SpentNote("the budget is spent, and what it bought is in place")


@dataclass(frozen=True)
class FinishedRun:
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
        filtered: whether the filter of Gaussian DP bounds the run besides; see :class:`Ledger`.
        unit: whom the budget protects.
        promise: the (ε, δ) of the budget; None if unknown.

    Attributes:
        closed: how it ended, after :meth:`finish` on a ledger.

    Raises:
        InputError: to resume without a ledger, or an anchor without one.
        LedgerError: the ledger cannot be used, or protects something else.
        BudgetExceeded: its total does not allow the budget.
    """

    def __init__(
        self,
        path: str | Path | None,
        resume: bool,
        cost: Cost,
        anchor: str | Path | None = None,
        filtered: bool = False,
        unit: Unit = ROWS,
        promise: tuple[float, float] | None = None,
    ) -> None:
        if path is None and resume:
            raise InputError("--resume needs --ledger. Name the ledger of the interrupted run.")
        if path is None and anchor is not None:
            raise InputError("--anchor needs --ledger. Name the ledger of the anchor.")
        self._book: LedgerBook | None = None
        if path is not None:
            from adaptive_qs.ledger.book import LedgerBook

            self._book = LedgerBook(path, anchor)
        self._resume = resume
        self._process = this_process()
        self._opening = threading.Lock()
        self._inputs = ""
        self._cost, self._filtered = cost, filtered
        self.closed: FinishedRun | None = None
        self._run: LedgerRun | None = None
        self._budget: Budget | None = None
        if self._book is not None:
            try:
                self._book.check_unit(unit)
                if resume:
                    self._book.interrupted()
                else:
                    self._book.check_remaining(cost, promise)
            except (BudgetExceeded, LedgerError):
                self._book.close()
                raise

    def recognise(self, table: Iterable[bytes]) -> None:
        """Look at the bytes of the private table, by which a resumed run knows that it is the same.

        Raises:
            LedgerError: the ledger's key cannot be used.
        """
        if self._book is not None:
            from adaptive_qs.ledger.files import keyed_hash

            self._inputs = keyed_hash(self._book.path, table, make=not self._resume)

    def begin(self, request: Callable[[], Mapping[str, str]], insecure: bool, unit: Unit) -> Ledger:
        """Reserve the budget, or take up the interrupted run; after :meth:`recognise`.

        Args:
            request: tells everything public that decides what the run does, for a ledger.
            insecure: whether the noise comes from a seed.
            unit: whom the run protects, with all that is known once there is a table.

        Raises:
            BudgetExceeded: the total does not allow the budget.
            InputError: this process was forked from the one that was to spend the budget, or the
                budget was opened before: a copy of what opens it would spend it again.
            LedgerError: the ledger cannot be written, or there is no such run to resume.
        """
        check_process(self._process)
        if not self._opening.acquire(blocking=False):
            raise InputError(
                "the budget was opened before, and copies of a run share it: begin another run"
            )
        if self._book is None:
            self._budget = Budget(self._cost.rho, self._cost.delta, self._filtered, unit)
            return self._budget
        if self._resume:
            self._run = self._book.resume(request(), self._inputs, self._filtered, unit)
        else:
            self._run = self._book.reserve(
                request(), self._inputs, self._cost, insecure, self._filtered, unit
            )
        return self._run

    def publish(self, digests: Mapping[str, str]) -> None:
        """Record in a ledger the SHA-256 of each part that is about to be handed over, by name.

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
            from adaptive_qs.ledger.entries import parse_body
            from adaptive_qs.ledger.files import Mark

            reach(Fault.DELIVERED)
            number, last = self._run.number, self._run.finish()
            held = parse_body(last.body).held
            left = self._book.left_beside(held, self._cost)
            head = str(Mark(last.number, last.hash))
            self.closed = FinishedRun(self._book.path, number, left, head)
            self._run = None

    @contextmanager
    def working(self, lost: SpentNote) -> Iterator[None]:
        """Add to any error what became of the budget (``lost`` without a ledger); leave the run."""
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
