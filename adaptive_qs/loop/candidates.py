"""What the loop chooses from, and what measuring each candidate is expected to give.

A price says how many weighted rows of L1 error a unit of ρ has to take away. At a price each
candidate has its own budget, the one at which its error and what it pays are least together; a
candidate that gains less than it pays is not offered. All of it follows from released values.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Self

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cliques import AXES, Array, Integers
from adaptive_qs.domain import Clique, Domain, subsets
from adaptive_qs.generate.exact import can_fit
from adaptive_qs.generate.rows import SynthesisSettings
from adaptive_qs.levels import nested_groupings
from adaptive_qs.loop.expected import LEAST_ERROR
from adaptive_qs.loop.planner import ConditionalPlanner, Errors, TogetherPlan
from adaptive_qs.residual import ReferenceModel
from adaptive_qs.workload.workload import Workload

Flags = NDArray[np.bool_]


def measurable_cliques(workload: Workload) -> tuple[Clique, ...]:
    """Return the subsets of workload cliques in which every attribute has several values."""
    sizes = workload.domain.sizes
    return tuple(c for c in workload.closure if c and all(sizes[i] > 1 for i in c))


# A coarse marginal has fewer cells and so less noise for the same budget, and says less. Where the
# budget suffices for codes, levels only divide it among more choices. So they are offered where an
# even division among all marginals over codes would leave each of them off by a good part.

MOST_CANDIDATES = 50_000
"""Levels are left out, the finest first, where there would be more candidates."""
MOST_SPREAD = 2**20
"""Most cells over codes of a marginal that is offered at coarser levels as well."""


def with_levels(
    domain: Domain, model: ReferenceModel, candidates: Sequence[Clique], error: float
) -> Domain:
    """Return the domain with the levels at which marginals are offered, if these are worth it.

    Candidates are over codes, ``error`` is their :func:`~adaptive_qs.loop.expected.mean_error`.
    """
    several = [clique for clique in candidates if len(clique) > 1]
    plain = max(map(len, several), default=0) > AXES
    if error < LEAST_ERROR or plain or can_fit(domain, several, SynthesisSettings().exact_cells):
        return domain
    groupings = [
        grouping
        for i, attribute in enumerate(domain.attributes)
        for grouping in nested_groupings(
            i, model.reference[i], attribute.ordered, attribute.declared
        )
    ]
    while groupings:
        found = replace(domain, groupings=tuple(groupings))
        if len(at_levels(found, candidates)) <= MOST_CANDIDATES:
            return found
        most = max(grouping.number for grouping in groupings)
        groupings = [grouping for grouping in groupings if grouping.number < most]
    return domain


LOOK_SHARE, LOOK_STD = 0.04, 0.25
"""Largest part of the budget left for a look at halves (errors fall with its fourth root at most,
so by 1 %), and a standard deviation of covariances that suffices."""


def pairs_to_look_at(domain: Domain, candidates: Sequence[Clique]) -> list[Clique]:
    """Return the pairs of ordered columns among the candidates, if levels are on offer."""
    ordered = {i for i, one in enumerate(domain.attributes) if one.ordered and one.size > 2}
    return [c for c in candidates if len(c) == 2 and ordered >= {*c}] if domain.groupings else []


def look_rho(pairs: int, total: float, left: float) -> float:
    """Return ρ of a look at the halves of some pairs; 0 if noise would exceed any dependence.

    At ρ, P pairs have covariances with the standard deviation √(P/2ρ) / rows.
    """
    needed = pairs / (2 * max(total, 1.0) ** 2)  # for a standard deviation of 1
    most = LOOK_SHARE * left
    return min(most, needed / LOOK_STD**2) if needed <= most else 0.0


def at_levels(domain: Domain, cliques: Sequence[Clique]) -> tuple[Clique, ...]:
    """Return cliques of codes, and the same at the coarser levels that are offered."""

    def levels(clique: Clique) -> Sequence[Clique]:
        spread = len(clique) > 1 and domain.size(clique) <= MOST_SPREAD
        return tuple(domain.at_levels(clique)) if spread else (clique,)

    return tuple(chain.from_iterable(map(levels, cliques)))


def closure_at_levels(domain: Domain, closure: Sequence[Clique]) -> tuple[Clique, ...]:
    """Return every residual of cliques that are closed under subsets, by size."""
    return tuple(chain.from_iterable(domain.at_levels(c) if len(c) > 1 else (c,) for c in closure))


class ResidualIndex:
    """Finds the cliques that contain residuals."""

    def __init__(self, domain: Domain, cliques: Sequence[Clique]) -> None:
        self._size = len(cliques)
        around: list[list[int]] = [[] for _ in range(domain.positions)]
        for row, clique in enumerate(cliques):
            for position in clique:
                for coarser in domain.chain(position):
                    around[coarser].append(row)
        self._around = [np.array(rows, dtype=np.int64) for rows in around]
        self._coarsest = [domain.chain(i)[-1] for i in range(len(domain))]

    def containing(self, residuals: Iterable[Clique]) -> NDArray[np.bool_]:
        """Return which cliques contain one of the residuals, shape (cliques,)."""
        hit = np.zeros(self._size, dtype=np.bool_)
        for residual in residuals:
            if not residual:
                hit[:] = True
                break
            if len(residual) == 1:  # over codes, and in marginals at every level
                hit[self._around[self._coarsest[residual[0]]]] = True
                continue
            rows, *others = sorted((self._around[i] for i in residual), key=len)
            for other in others:
                rows = np.intersect1d(rows, other, assume_unique=True)
            hit[rows] = True
        return hit


UNKNOWN = 0.75
"""Assumed L1 error, as a part of the rows, of a candidate of which something was never measured."""
RARELY = 20
"""If errors are as assumed, at most one choice in RARELY takes a candidate not worth it."""
OPENING_SHARE = 0.25
"""Part of the budget that all offers together take at the first price: a later round adds to an
earlier one, but what was spent for nothing is gone."""
FALL = 2.0
"""By what the price is divided after a round that brought too little."""
MOST_FALLS = 100
"""So often a price is lowered in search of something worth it."""
_AT_ONCE = 4096
"""Candidates whose noise is planned by one call."""


@dataclass(frozen=True)
class Gains:
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
        """Return which of the candidates that fit are offered to a choice at this ε.

        Those worth it, and others where the choice sees that they are not unless they are off by
        far more than assumed: the exponential mechanism takes one of k whose scores are d lower
        with a probability of k exp(−εd/2) at most.
        """
        doubtful = fits & (self.deficit > 0)
        number = max(int(doubtful.sum()), 1)
        seen = self.deficit >= 2 / epsilon * math.log(RARELY * number)
        return (fits & self.worth) | (doubtful & seen)


class ErrorTable:
    """Expected errors of all candidates by the budget spent on them, kept current.

    The largest weight is 1. Attribute ``budgets`` has the ρ that a measurement may have, falling by
    factors of two from all there is to an eighth of what each candidate has if all get the same.
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
        """Recompute the ``stale`` candidates, of which an estimate or a precision changed.

        The precision is held for each residual of the planner's closure (1 / rows²).
        """
        self._stale |= stale
        rows = np.flatnonzero(stale)
        doubled = 2 * np.append(self.budgets, 0.0)
        for first in range(0, rows.size, _AT_ONCE):
            some = rows[first : first + _AT_ONCE]
            found = errors(self._planner.expected_stds(precision, doubled, some), some)
            self._errors[:, some], self._now[some] = found[:-1], found[-1]

    def gains(self, price: float, most: float, total: float) -> Gains:
        """Return the best budget of each candidate.

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
        return Gains(budgets[level], expected, paid, cost < gain, deficit)

    def _find_best(self, price: float, first: int, budgets: Array) -> None:
        """Update the best budgets of changed candidates; of all if the price or budgets changed."""
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
        """Return the first of falling prices at which what is worth it takes ``OPENING_SHARE``."""
        rho = float(self.budgets[0])
        price = total / float(self.budgets[-1])
        for _ in range(MOST_FALLS):
            gains = self.gains(price, rho, total)
            if float(gains.budget[gains.worth].sum()) >= OPENING_SHARE * rho:
                break
            price /= FALL
        return price


class CellLimit:
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

    def take(self, *cliques: Clique) -> None:
        """Account for candidates that are measured."""
        for row in map(self.row.__getitem__, cliques):
            if not self._taken[row]:
                self._taken |= self._same == self._same[row]
                self._left -= int(self._cells[row])
                self.open = self._taken | (self._cells <= self._left)


@dataclass(frozen=True)
class JointPlan:
    """Marginals that are measured together.

    Attributes:
        precisions: by marginal, the new precision (1 / rows²) of each residual in it that is in
            none before.
        expected: by marginal, the L1 error (rows) expected of its new estimate.
        all_spent: whether that takes all of the budget.
    """

    precisions: Mapping[Clique, Mapping[Clique, float]] = field(default_factory=dict)
    expected: Mapping[Clique, float] = field(default_factory=dict)
    all_spent: bool = False

    @classmethod
    def of(
        cls,
        domain: Domain,
        cliques: Sequence[Clique],
        errors: Sequence[float],
        new: Mapping[Clique, float],
        all_spent: bool = True,
    ) -> Self:
        """Divide new precisions of residuals (1 / rows²) among marginals, the largest first.

        The errors are L1 (rows). A precision is 0 where the residual is not measured.
        """
        left, precisions = {tau: x for tau, x in new.items() if x > 0}, {}
        order = sorted(zip(cliques, errors), key=lambda one: -len(one[0]))
        for clique, _ in order:
            if inside := [tau for tau in domain.below(clique) if tau in left]:
                precisions[clique] = {tau: left.pop(tau) for tau in inside}
        expected = {clique: error for clique, error in order if clique in precisions}
        return cls(precisions, expected, all_spent)


class CandidateSet:
    """The marginals that may be measured, at their levels, and their residuals.

    Attributes:
        domain: the workload's, with the levels on offer.
        cliques: W↓ without marginals of single codes, at all levels.
        closure: their residuals, the empty one included.
        position: of each residual in the closure.
        weights: of the cliques, the largest 1.
        waits: candidates and residuals that have to be known before they are on offer, shape
            (n, 2): what the workload has inside of them with more than ``FALL`` times their weight.
        cost: p_τ of each residual.
        index: finds the cliques that contain residuals.
        planner: plans their measurements.
    """

    def __init__(self, workload: Workload, domain: Domain, cost: Callable[[Clique], float]) -> None:
        self.domain = domain
        self.cliques = at_levels(domain, measurable_cliques(workload))
        self.closure = closure_at_levels(domain, workload.closure)
        self.position = {residual: k for k, residual in enumerate(self.closure)}
        weights = workload.priorities([domain.columns(clique) for clique in self.cliques])
        self.weights: Array = weights / weights.max()
        self.index = ResidualIndex(domain, self.cliques)
        self.cost = cost
        asked = {c: w / weights.max() for c, w in workload.weights.items() if len(c) > 1}
        lighter = np.flatnonzero(FALL * self.weights < max(asked.values(), default=0.0))
        waits = [
            (row, self.position[inside])
            for row in lighter.tolist()
            for inside in subsets(self.cliques[row])
            if asked.get(domain.columns(inside), 0.0) > FALL * self.weights[row]
        ]
        self.waits = np.array(waits, dtype=np.int64).reshape(-1, 2)
        costs = [*map(cost, self.closure)]
        self.planner = ConditionalPlanner(domain, self.closure, self.cliques, costs)


class Candidates:
    """What is known of a set of candidates while it is measured with ρ in all.

    Attributes:
        precisions: held for each residual that was measured (1 / rows²).
        limit: which candidates fit ``most_cells`` over codes of all measured cliques.
        errors: expected of them, by the budget spent.
        outdated: whose estimates changed since the errors were computed.
        ready: which wait for nothing (:attr:`CandidateSet.waits`); errors of others are not needed.
    """

    def __init__(
        self, every: CandidateSet, precisions: Mapping[Clique, float], rho: float, most_cells: int
    ) -> None:
        self.cliques, self.weights, self._set = every.cliques, every.weights, every
        self.limit = CellLimit(every.domain, every.cliques, most_cells)
        self.errors = ErrorTable(every.planner, every.weights, rho)
        self.outdated, self.ready = np.ones((2, len(every.cliques)), dtype=bool)
        self._precision = np.array([precisions.get(tau, 0.0) for tau in every.closure])
        self._own = np.array([every.position[clique] for clique in every.cliques])
        self._find_ready()

    @property
    def most_residuals(self) -> int:
        """How many residuals a candidate has at most."""
        return self._set.planner.most_residuals

    def refresh(self, errors: Errors) -> None:
        """Compute the expected errors of outdated candidates that are ready."""
        self._curves = errors
        self.errors.refresh(errors, self._precision, self.outdated & self.ready)
        self.outdated &= ~self.ready

    @property
    def known(self) -> Flags:
        """Which candidates were measured, alone or inside another one."""
        return np.asarray(self._precision[self._own] > 0)

    @property
    def open(self) -> Flags:
        """Which candidates fit, are ready, and are not known."""
        return self.limit.open & self.ready & ~self.known

    def _find_ready(self) -> None:
        row, residual = self._set.waits.T
        self.ready[:] = True
        self.ready[row[self._precision[residual] == 0]] = False
        self.ready |= self.known

    def plan_known(self, rho: float) -> TogetherPlan:
        """Plan a joint measurement of all known candidates that takes ``rho``."""
        every, rows = self._set, np.flatnonzero(self.known)
        return every.planner.plan_together(
            self._curves, self._precision, 2 * rho, every.weights, rows
        )

    def divide(self, plan: TogetherPlan) -> JointPlan:
        """Divide a plan for all known candidates among them."""
        known = [self.cliques[row] for row in np.flatnonzero(self.known).tolist()]
        new = dict(zip(self._set.closure, plan.precisions.tolist()))
        return JointPlan.of(self._set.domain, known, plan.errors.tolist(), new)

    def allocate(self, clique: Clique, rho: float) -> dict[Clique, float]:
        """Return the new precision (1 / rows²) of each residual that is worth measuring (CRP)."""
        return self._set.planner.allocate(clique, self._precision, 2 * rho)

    def add(self, precisions: Mapping[Clique, float]) -> None:
        """Account for measured residuals; the candidates that contain them are outdated."""
        for residual, precision in precisions.items():
            self._precision[self._set.position[residual]] += precision
        self.outdated |= self._set.index.containing(precisions)
        self._find_ready()
