"""The budget of a run: its parameters and limits, and the ledger that charges every release."""

import math
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from threading import Lock
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as validated

from adaptive_qs.arguments import as_integer, positive_number, shown
from adaptive_qs.errors import BudgetExceeded, GuardRailWarning, InputError
from adaptive_qs.privacy.accounting import left_after
from adaptive_qs.privacy.events import Cost, Event
from adaptive_qs.privacy.unit import ROWS, Unit

# The ledger that every release passes: charged first, then drawn, then returned.

Output = NDArray[np.int64] | int | tuple[str, ...]
"""Noisy counts, the position selected, or the values discovered."""
Hex = Annotated[str, Field(pattern="^[0-9a-f]+$")]


@validated(frozen=True, config=ConfigDict(extra="forbid"))
class LedgerPosition:
    """The position of a run in a durable ledger, which every release states.

    Attributes:
        releases: The number of transactions of the run.
        hash: The hash of what they released and of its cost.
    """

    ledger: Hex
    run: Annotated[int, Field(ge=1)]
    releases: Annotated[int, Field(ge=0)]
    hash: Hex


_forks = 0
"""Number of forks between the first process and this one, since process numbers repeat."""


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def this_process() -> tuple[int, int]:
    """Return what identifies this process among those forked from one."""
    return os.getpid(), _forks


def check_process(process: tuple[int, int]) -> None:
    """Raise InputError in a forked process, since both processes would spend the budget."""
    if this_process() != process:
        raise InputError("a run does not follow a fork: begin another one in the new process")


class Ledger(ABC):
    """A privacy budget through which every release passes.

    If it is ``filtered``, its ρ also bounds the filter (:func:`left_after`), so that everything
    together is Gaussian DP with μ² = 2ρ. Events are priced for its unit.
    """

    def __init__(self, limit: Cost, filtered: bool = False, unit: Unit = ROWS) -> None:
        self.limit, self.filtered, self.unit = limit, filtered, unit
        self._process = this_process()
        self._spent = Cost()
        self._filter_left = limit.rho_units
        self._events: list[Event] = []

    @property
    def events(self) -> tuple[Event, ...]:
        """All charges so far, in order."""
        return tuple(self._events)

    @property
    def spent(self) -> Cost:
        """The sum of all charges."""
        return self._spent

    @property
    def left(self) -> Cost:
        """The budget that is left."""
        left = self.limit - self._spent
        return Cost(min(left.rho_units, self._filter_left), left.delta_units)

    @property
    def place(self) -> LedgerPosition | None:
        """The position in a durable ledger; None if nothing outlives the process."""
        return None

    @abstractmethod
    def release(
        self, events: Sequence[Event], draw: Callable[[], Sequence[Output]], definition: str = ""
    ) -> Sequence[Output]:
        """Charge all the events or none, draw, and return the outputs once they are durable.

        Args:
            events: One event for each draw.
            draw: Returns one output for each event. It is called after the charge, or not at all
                if these events were released before and their outputs are stored.
            definition: A digest of what the outputs mean beyond the events. Stored outputs of
                another definition are not returned.

        Raises:
            BudgetExceeded: If they cost more than what is left; nothing is recorded or drawn.
            InputError: If the kind of an event is unknown.
        """

    def _check(self, events: Sequence[Event], cost: Cost) -> None:
        check_process(self._process)
        check_fits(events, cost, self.limit - self._spent)
        if self.filtered:
            left_after(self._filter_left, events)

    def _charge(self, events: Sequence[Event], cost: Cost) -> None:
        if self.filtered:
            self._filter_left = left_after(self._filter_left, events)
        self._spent += cost
        self._events += events


class Budget(Ledger):
    """A ledger in memory: ``rho``-zCDP and a share ``delta`` of δ for partition selection.

    Floats stand for their exact binary values. InputError is raised if the budget is not positive
    and finite, or is below one unit.
    """

    def __init__(
        self,
        rho: Fraction | float,
        delta: Fraction | float = 0,
        filtered: bool = False,
        unit: Unit = ROWS,
    ) -> None:
        if not 0 < rho < math.inf or (limit := Cost.within(rho, delta)).rho_units < 1:
            raise InputError(f"privacy budget rho is {rho!r}. Use a number of at least 2**-60.")
        super().__init__(limit, filtered, unit)
        self._lock = Lock()

    def release(
        self, events: Sequence[Event], draw: Callable[[], Sequence[Output]], definition: str = ""
    ) -> Sequence[Output]:
        cost = Cost.of(events)
        with self._lock:
            self._check(events, cost)
            self._charge(events, cost)
        return draw()


class Part(Ledger):
    """A part of a budget, for one of several tables that one promise covers.

    It charges the whole budget, and also refuses events that do not fit the part. A choice takes
    less of a larger remainder, so the filter of the whole always has at least as much left as the
    filter of the part and the rest of the budget together.

    Args:
        whole: The whole budget; its parts follow one another.
        limit: The part, at most what the whole has left.
        unit: The unit of the whole, with its number of rows in this table.

    Raises:
        ValueError: If the unit differs from the unit of the whole.
    """

    def __init__(self, whole: Ledger, limit: Cost, unit: Unit) -> None:
        if (unit.identity, unit.relation) != (whole.unit.identity, whole.unit.relation):
            raise ValueError("a part of a budget protects what the whole does")
        super().__init__(limit, whole.filtered, unit)
        self._whole = whole

    @property
    def left(self) -> Cost:
        own, whole = super().left, self._whole.left
        return Cost(min(own.rho_units, whole.rho_units), min(own.delta_units, whole.delta_units))

    @property
    def place(self) -> LedgerPosition | None:
        return self._whole.place

    def release(
        self, events: Sequence[Event], draw: Callable[[], Sequence[Output]], definition: str = ""
    ) -> Sequence[Output]:
        """Charge all the events to the whole or none, then draw; see :class:`Ledger`."""
        cost = Cost.of(events)
        self._check(events, cost)
        outputs = self._whole.release(events, draw, definition)
        self._charge(events, cost)
        return outputs


def check_fits(events: Sequence[Event], cost: Cost, remaining: Cost) -> None:
    """Raise BudgetExceeded if events cost more than what remains."""
    if cost.fits(remaining):
        return
    what = events[0].label + (f" and {len(events) - 1} more" if len(events) > 1 else "")
    if cost.rho_units > remaining.rho_units:
        raise BudgetExceeded(
            f"{what}: cost rho {float(cost.rho):.4g} exceeds the remaining "
            f"{float(remaining.rho):.4g}: lower the accuracy or raise the budget"
        )
    raise BudgetExceeded(
        f"{what}: a share {float(cost.delta):.4g} of delta exceeds the remaining "
        f"{float(remaining.delta):.4g}: discover fewer columns or raise delta"
    )


def float_below(value: Fraction) -> float:
    """Return the largest float that is not above the value."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def float_above(value: Fraction) -> float:
    """Return the smallest float that is not below the value."""
    return 0.0 - float_below(-value)  # a zero without a sign


class PrivacyLoss(NamedTuple):
    """A budget in zCDP, the (ε, δ) that it implies, and μ if that of exact Gaussian DP."""

    rho: float
    epsilon: float
    delta: float
    mu: float | None = None


# Privacy parameters as users give them.

LEAST_DELTA = 1e-290
"""Smallest δ that is accepted: part of it can be set aside before the rest is converted, and
conversions accept at least 1e-300."""


def choose_delta(value: Any) -> float:
    """Return δ or its default; raise InputError unless it is from ``LEAST_DELTA`` to below 1."""
    default_delta = 1e-9  # default δ: below 1/rows for any table that fits a machine
    delta = default_delta if value is None else positive_number("delta", value)
    if not delta < 1:
        raise InputError(f"delta is {delta!r}. Use a number below 1, such as 1e-9.")
    if delta < LEAST_DELTA:
        raise InputError(
            f"delta is {delta!r}. Use a number of at least {LEAST_DELTA!r}, such as 1e-9."
        )
    return delta


def delta_left(delta: float, discovery: Fraction | float) -> float:
    """Return the part of δ that converts ρ to ε, rounded down; discovery takes the rest."""
    return float_below(Fraction(delta) - Fraction(discovery))


# Warnings about budgets that promise little or buy little. Extreme budgets are refused.
#
# They depend on public numbers only: the parameters, and a number of rows that its owner declares
# public, since a refusal is visible. The limits: docs/guides/synthesize.md, "Before it spends".

MOST_ROWS = 10**15
"""Largest number of rows: counts are exact in floating point, with any noise."""
CONSENT = "--beyond-limits (in Python beyond_limits=True)"


@dataclass(frozen=True)
class BudgetWarning:
    """A warning about a budget: the number, what it means, and what to do.

    ``beyond`` is the limit that is exceeded, so that the run needs consent; "" if there is none.
    """

    text: str
    beyond: str = ""


def check_public_rows(rows: Any, name: str = "public_rows") -> int | None:
    """Return a public number of rows or None; InputError unless it is from 1 to ``MOST_ROWS``."""
    whole = as_integer(rows)
    if rows is not None and (whole is None or not 1 <= whole <= MOST_ROWS):
        raise InputError(f"{name} is {shown(rows)}. Use a positive number, such as 50000.")
    return whole


def list_budget_warnings(
    epsilon: float,
    delta: float,
    count_std: float | None,
    rows: int | None,
    counted: str = "a count",
    unit: Unit = ROWS,
) -> tuple[BudgetWarning, ...]:
    """Return warnings about a budget, from public numbers only.

    ``count_std`` is the standard deviation (rows) of the count that ``counted`` names.
    """
    warned_epsilon, most_epsilon = 20.0, 100.0
    warned_delta, most_delta = 1e-4, 1e-2
    warned_std, most_std = 1e3, 1e5
    found = []
    if epsilon > warned_epsilon:
        power = f"{epsilon:.4g}" if epsilon < 1_000 else f"{epsilon:,.0f}"
        text = (
            f"epsilon {epsilon:.6g} is a weak promise: one {unit.noun} can make a release "
            f"e^{power} times as likely. Values up to 10 are usual."
        )
        beyond = f"the limit of {most_epsilon:g}" if epsilon > most_epsilon else ""
        found.append(BudgetWarning(text, beyond))
    warned, limit = warned_delta, most_delta
    if rows is not None:
        warned = 1 / rows
        limit = max(warned, min(10 / rows, most_delta))
    if delta > warned:
        above = f"a weak promise: with more than {1 / delta:,.0f} rows"
        if rows is not None:
            above = f"above 1 / number of rows ({rows:,}):"
        text = (
            f"delta {delta:g} is {above} even publishing a random row would satisfy it. Choose a "
            "delta far below 1 / number of rows, such as 1e-9."
        )
        found.append(BudgetWarning(text, f"the limit of {limit:g}" if delta > limit else ""))
    if count_std is not None and count_std > (warned_std if rows is None else rows / 10):
        text = f"At this budget the standard error of {counted} is about {count_std:,.0f} rows"
        if rows is None:
            text += (
                ". Raise epsilon, unless there are many times more rows (--public-rows N compares)."
            )
            beyond = f"the limit of {most_std:,.0f} rows" if count_std > most_std else ""
        else:
            text += f", and the table has about {rows:,}. Raise epsilon."
            beyond = "the number of rows" if count_std > rows else ""
        found.append(BudgetWarning(text, beyond))
    return tuple(found)


def weaknesses(epsilon: float, delta: float, unit: Unit = ROWS) -> tuple[str, ...]:
    """Return the warnings about (ε, δ) for readers of a release."""
    found = list_budget_warnings(epsilon, delta, None, None, unit=unit)
    return tuple(warning.text for warning in found)


def check_budget_warnings(found: Sequence[BudgetWarning], beyond_limits: bool) -> tuple[str, ...]:
    """Return the texts of warnings; InputError if limits are exceeded without consent."""
    refused = [f"{each.text} This exceeds {each.beyond}." for each in found if each.beyond]
    if refused and not beyond_limits:
        raise InputError(f"{' '.join(refused)} To continue anyway, use {CONSENT}.")
    return tuple(warning.text for warning in found)


def describe_refusals(found: Iterable[BudgetWarning]) -> tuple[str, ...]:
    """Return the texts of the warnings of a plan; each says if a run would be refused."""
    note = f" Spending this budget is refused without {CONSENT}."
    return tuple(warning.text + note * bool(warning.beyond) for warning in found)


def warn_all(texts: Iterable[str], stacklevel: int) -> None:
    """Warn with each text as a :class:`GuardRailWarning`."""
    for text in texts:
        warnings.warn(text, GuardRailWarning, stacklevel=stacklevel + 1)
