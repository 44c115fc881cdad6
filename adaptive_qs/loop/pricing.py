"""Which candidates are offered and what each is measured with: a public price decides.

The price says how many weighted rows of L1 error a unit of ρ has to take away. At a price each
candidate has its own budget, the one at which its error and what it pays are least together; a
candidate that gains less than it pays is not offered. Rounds that bring only noise lower the price.
All of it follows from released values, so that it may be fixed before the next choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.loop.measure import ConditionalPlanner, Errors
from adaptive_qs.privacy.filter import choice_cost

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

UNKNOWN = 0.75
"""Assumed L1 error, as a part of the rows, of a candidate of which something was never measured."""
RARELY = 20
"""If errors are as assumed, one choice of so many at most takes a candidate not worth it."""
OPENING_SHARE = 0.25
"""Part of the budget that all offers together take at the first price: a later round adds to an
earlier one, but what was spent for nothing is gone."""
FALL = 2.0
"""By what the price is divided after a round that brought only noise."""
MOST_FALLS = 100
"""So often a price is lowered in search of something worth it."""
SAFETY = 1e-6
"""Part of a budget left unspent so that rounding costs up, and what exact accounting adds to those
of noise, never exceed it."""
_AT_ONCE = 4096
"""Candidates whose noise is planned by one call."""


@dataclass(frozen=True)
class Prospects:
    """What candidates would be measured with at a price, and what that is good for.

    Attributes:
        budget: ρ of the measurement of each.
        expected: L1 error (rows) of each once measured.
        paid: what the budget is worth (rows; times the weight it is price times budget).
        worth: which of them gain more than they pay.
        deficit: what others lose that could gain if they were off by more than assumed (rows times
            weight); 0 for all else.
    """

    budget: Array
    expected: Array
    paid: Array
    worth: Flags
    deficit: Array

    def offered(self, epsilon: float, fits: Flags) -> Flags:
        """Which of the candidates that fit are offered to a choice at this ε.

        Those worth it, and others where the choice sees that they are not unless they are off by
        far more than assumed: the exponential mechanism takes one of k whose scores are d lower
        with a probability of k exp(−εd/2) at most.
        """
        doubtful = fits & (self.deficit > 0)
        number = max(int(doubtful.sum()), 1)
        seen = self.deficit >= 2 / epsilon * math.log(RARELY * number)
        return (fits & self.worth) | (doubtful & seen)


class PriceList:
    """Expected errors of all candidates by the budget spent on them, kept current.

    Args:
        planner: of the candidates' measurements.
        weights: of the candidates, the largest 1.
        rho: for all measurements together.

    Attributes:
        budgets: ρ that a measurement may have, falling by factors of two from all there is to an
            eighth of what each candidate has if all get the same.
    """

    def __init__(self, planner: ConditionalPlanner, weights: Array, rho: float) -> None:
        self._planner = planner
        self._weights = weights
        levels = math.ceil(math.log2(8 * weights.size)) + 1
        self.budgets: Array = rho * np.exp2(-np.arange(levels, dtype=np.float64))
        self._errors = np.zeros((levels, weights.size))
        self._now = np.zeros(weights.size)
        # The best budget of each, by the price and the budgets that it was found for.
        self._found_for: tuple[float, int, float] | None = None
        self._stale = np.ones(weights.size, dtype=np.bool_)
        self._level = np.zeros(weights.size, dtype=np.int64)
        self._expected, self._paid, self._cost = np.zeros((3, weights.size))

    def refresh(self, errors: Errors, precision: Array, stale: Flags) -> None:
        """Recompute the candidates of which an estimate or a precision changed.

        Args:
            errors: expected of candidates.
            precision: held for each residual of the planner's closure (1 / rows²).
            stale: which changed, shape (candidates,).
        """
        self._stale |= stale
        rows = np.flatnonzero(stale)
        doubled = 2 * np.append(self.budgets, 0.0)
        for first in range(0, rows.size, _AT_ONCE):
            some = rows[first : first + _AT_ONCE]
            found = errors(self._planner.expected_stds(precision, doubled, some), some)
            self._errors[:, some], self._now[some] = found[:-1], found[-1]

    def prospects(self, price: float, most: float, total: float) -> Prospects:
        """The best budget of each candidate.

        What a candidate can gain is its error by now; where something of it was never measured,
        that is not known, and ``UNKNOWN`` of the rows are assumed. It is at most all of them twice.

        Args:
            price: weighted rows for a unit of ρ.
            most: ρ there is.
            total: number of rows.
        """
        first = min(int((self.budgets > most).sum()), self.budgets.size - 1)
        budgets = np.minimum(self.budgets[first:], most)
        self._find_best(price, first, budgets)
        level, cost = self._level, self._cost
        gain = np.minimum(self._now, UNKNOWN * total)
        may_be_worth = (self._now > gain) & (cost >= gain) & (cost < 2 * total)
        deficit = np.where(may_be_worth, self._weights * (cost - gain), 0.0)
        expected, paid = self._expected.copy(), self._paid.copy()
        return Prospects(budgets[level], expected, paid, cost < gain, deficit)

    def _find_best(self, price: float, first: int, budgets: Array) -> None:
        """Bring the best budgets up to date: of all candidates, or, where price and budgets are as
        they were, of those that changed."""
        found_for = price, first, float(budgets[0])
        rows: Integers | slice = slice(None)
        if found_for == self._found_for:
            rows = np.flatnonzero(self._stale)
        paid = price * budgets[:, None] / self._weights[rows]
        errors = self._errors[first:, rows]
        costs = errors + paid
        level = np.argmin(costs, axis=0)
        at = level, np.arange(level.size)
        self._level[rows], self._cost[rows] = level, costs[at]
        self._expected[rows], self._paid[rows] = errors[at], paid[at]
        self._found_for = found_for
        self._stale[:] = False

    def opening_price(self, total: float) -> float:
        """The first of falling prices at which all that is worth it takes ``OPENING_SHARE``."""
        rho = float(self.budgets[0])
        price = total / float(self.budgets[-1])
        for _ in range(MOST_FALLS):
            prospects = self.prospects(price, rho, total)
            if float(prospects.budget[prospects.worth].sum()) >= OPENING_SHARE * rho:
                break
            price /= FALL
        return price


@dataclass(frozen=True)
class RoundBudget:
    """zCDP of one round.

    Attributes:
        selecting: ρ of the exponential mechanism, ε²/8.
        measuring: ρ of the measurements.
    """

    selecting: float
    measuring: float

    @property
    def total(self) -> float:
        """ρ of the whole round."""
        return self.selecting + self.measuring


def selection_rho(
    price: float, typical: float, left: float, allowance: float, share: float
) -> float:
    """ρ of a choice, fixed before it.

    At ε the exponential mechanism misses the best score by about 2/ε (rows times the largest
    weight); so at a price λ it is worth ρ = ε²/8 where √(1/2ρ) + λρ is least. It never takes more
    than its share of what is left, nor than its part of what choices may still take if all later
    rounds are typical ones. So all choices together take no more than the first allowance, but
    where a round that was to take all there is leaves something for others.

    Args:
        price: λ, weighted rows for a unit of ρ.
        typical: ρ of a typical measurement on offer.
        left: ρ of the loop that is left.
        allowance: ρ that this choice and later ones may take together.
        share: part of what is left that a choice may take.
    """
    worth = (1 / (2 * math.sqrt(2) * price)) ** (2 / 3)
    return min(worth, allowance * min(typical / left, 1.0), left * share)


class Offer:
    """Which candidates may be chosen, given a ceiling on the cells of all measured cliques.

    It depends on sizes and on what was chosen before, both released. ``row`` is the position of
    each candidate; ``open`` says which of them fit, or were measured already. The cells that count
    are those over codes, once for all levels.
    """

    def __init__(self, domain: Domain, candidates: Sequence[Clique], most_cells: int) -> None:
        self.row = {clique: k for k, clique in enumerate(candidates)}
        columns = [domain.columns(clique) for clique in candidates]
        first = {c: k for k, c in reversed([*enumerate(columns)])}
        self._same = np.array([first[c] for c in columns])
        self._cells = np.array([min(domain.size(c), 2**62) for c in columns], dtype=np.int64)
        self._left = most_cells
        self._taken = np.zeros(len(candidates), dtype=bool)
        self.open = self._cells <= most_cells

    def take(self, clique: Clique) -> None:
        """Account for a candidate that is measured now."""
        row = self.row[clique]
        if not self._taken[row]:
            self._taken |= self._same == self._same[row]
            self._left -= int(self._cells[row])
            self.open = self._taken | (self._cells <= self._left)


@dataclass(frozen=True)
class Choice:
    """What is public before a choice.

    Attributes:
        prospects: of all candidates.
        offered: which of them may be chosen; at least one.
        selecting: ρ of the choice.
    """

    prospects: Prospects
    offered: Flags
    selecting: float

    @property
    def epsilon(self) -> float:
        """ε of the exponential mechanism."""
        return math.sqrt(8 * self.selecting)

    @property
    def least_error(self) -> Array:
        """L1 error (rows) of each candidate from which on choosing it gains more than it pays."""
        return self.prospects.expected + self.prospects.paid


class Schedule:
    """The rounds' budgets: what is offered at which price, and what is left.

    Args:
        offer: which candidates fit.
        prices: of the candidates.
        rho: for all rounds.
        selecting_share: part of ``rho``, and of what is left at any time, for choices.
        rounding: by how much the ledger may round up the charges of a round.

    Attributes:
        left: ρ that was not spent.
    """

    def __init__(
        self, offer: Offer, prices: PriceList, rho: float, selecting_share: float, rounding: float
    ) -> None:
        self.left = rho
        self._offer = offer
        self._prices = prices
        self._share = selecting_share
        self._allowance = rho * selecting_share
        self._rounding = rounding
        self._price = 0.0

    def choice(self, total: float) -> Choice:
        """The next choice at the highest price up to now at which anything is worth it.

        Where nothing ever is, whatever fits is offered with all there is.
        """
        spare, fits = self.left - self._rounding, self._offer.open
        self._price = self._price or self._prices.opening_price(total)
        prospects = self._prices.prospects(self._price, spare, total)
        for _ in range(MOST_FALLS):
            if (prospects.worth & fits).any():
                break
            self._price /= FALL
            prospects = self._prices.prospects(self._price, spare, total)
        else:
            everything = np.full(fits.size, spare)
            prospects = replace(prospects, budget=everything, worth=np.ones_like(fits))
        typical = float(np.median(prospects.budget[prospects.worth & fits]))
        selecting = selection_rho(self._price, typical, spare, self._allowance, self._share)
        offered = prospects.offered(math.sqrt(8 * selecting), fits)
        return Choice(prospects, offered, selecting)

    def take(self, clique: Clique, choice: Choice) -> RoundBudget:
        """Spend on a choice and on measuring what was chosen, which gets all there is where not
        as much again would be left for a later round."""
        self._offer.take(clique)
        measuring = float(choice.prospects.budget[self._offer.row[clique]])
        cost = choice_cost(choice.selecting, self.left)
        spare = self.left - cost - self._rounding
        budget = RoundBudget(choice.selecting, measuring if 2 * measuring < spare else spare)
        self.left -= (cost + budget.measuring) * (1 + SAFETY) + self._rounding
        self._allowance -= choice.selecting
        if self._allowance <= 0:  # the round was to take all there is, and what was chosen did not
            self._allowance = self.left * self._share
        return budget

    def judge(self, moved: float, expected: float) -> None:
        """Lower the price if a round brought only noise.

        Args:
            moved: L1 distance between the chosen marginal's new and old estimate (rows).
            expected: L1 error expected of the new estimate (rows).
        """
        if moved <= expected:
            self._price /= FALL
