"""What a loop will likely measure, and which columns it will leave unconnected."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from itertools import islice, takewhile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cliques import Array, maximal_cliques
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.loop.budget import (
    FIRST_PART,
    TABULATED_ROWS,
    TOTAL_SHARE,
    LoopBudget,
    LoopSettings,
    RoundPlan,
    plan_opening,
)
from adaptive_qs.loop.candidates import CandidateSet, JointPlan, measurable_cliques, with_levels
from adaptive_qs.loop.estimates import Estimates, measurement_cost
from adaptive_qs.loop.expected import DEPENDENCE, CellSizeHistogram, ErrorCurves, mean_error
from adaptive_qs.loop.loop import Measured, Precisions, choose_rounds
from adaptive_qs.loop.planner import Errors, assumed_shares, initial_share, one_way_plan
from adaptive_qs.pages.words import at_resolution, join_first
from adaptive_qs.residual import ReferenceModel, ResidualEstimate
from adaptive_qs.workload.workload import Workload

# Sizes, weights, the budget and a public number of rows decide; no row is looked at. The loop is
# run without a table. Every noise level, every share of the budget and every rule is that of
# :mod:`adaptive_qs.loop.loop`; in the place of what only the table can say stand two assumptions:
# each combination of columns differs from what is known of it by ``DEPENDENCE`` of the rows (L1),
# and the values of a column are as frequent as 1, 1/2, 1/3, ... (Zipf's law). A column is likely to
# stay unconnected where most of ``RUNS`` such loops, which differ in the noise of the selection
# alone, end without a combination that holds it. Columns that depend on others more strongly are
# connected with fewer rows, others need more.
#
# How often that comes true: ``results/unconnected.csv``, by ``scripts/speed/unconnected.py``.

RUNS = 5
"""Loops for a number of rows."""
MOST_CANDIDATES = 10_000
"""Above it there is no forecast: it would take longer than the run."""
MOST_ROUNDS = 2_000
NAMED = 3
"""Columns that a line names."""
REMEDY = "Use coarser bins, fewer columns or a larger budget."


def total_std(workload: Workload, rho: float, rows: float = 0.0) -> float:
    """Return the standard deviation (rows) of the number of rows after the first measurements.

    Rounds make it smaller where combinations are worth measuring. Rows are 0 where nobody knows
    about how many there are.
    """
    return float(_initial_precisions(workload, rho, rows)[0][()] ** -0.5)


class PredictedMarginal(NamedTuple):
    """A combination that a run will likely measure, and how finely.

    Attributes:
        columns: their names.
        groups: number of codes, or groups of codes, of each column.
        codes: all codes of each.
    """

    columns: tuple[str, ...]
    groups: tuple[int, ...]
    codes: tuple[int, ...]

    def __str__(self) -> str:
        return at_resolution(self.columns, self.groups, self.codes)


@dataclass(frozen=True)
class LoopForecast:
    """Forecast of what a run of this budget measures, and of the columns it leaves unconnected.

    It selects by AIM's rule, whichever rule the settings name.
    """

    workload: Workload
    rho: float
    settings: LoopSettings = field(default_factory=LoopSettings)

    @property
    def possible(self) -> bool:
        """Whether there are combinations, and few enough for a forecast."""
        return bool(self.combined) and len(self.workload.closure) <= MOST_CANDIDATES

    def columns(self, rows: int) -> tuple[str, ...]:
        """Return the columns that stay unconnected in a table of about ``rows`` rows."""
        left = self._left_unconnected(rows)
        return tuple(name for i, name in enumerate(self.workload.domain.names) if i in left)

    def resolutions(self, rows: int) -> tuple[PredictedMarginal, ...]:
        """Return the combinations that most loops measure in a table of about ``rows`` rows.

        The most frequent comes first, each at the finest levels that most of these loops use.
        """
        if opened := maximal_cliques(self._opening(rows).precisions):
            domain = self.workload.domain
            return tuple(
                PredictedMarginal(domain.clique_names(c), *2 * (domain.shape(c),)) for c in opened
            )
        start = self._start(rows)
        domain = start.choices.domain
        found: dict[Clique, Counter[Clique]] = {}
        for seed in range(RUNS):
            finest = {domain.columns(c): c for c in self._measured(start, seed) if len(c) > 1}
            for columns, clique in finest.items():
                found.setdefault(columns, Counter())[clique] += 1
        often = [(columns, some) for columns, some in found.items() if 2 * some.total() > RUNS]
        often.sort(key=lambda one: (-one[1].total(), one[0]))
        return tuple(
            PredictedMarginal(
                domain.clique_names(columns),
                domain.shape(some.most_common(1)[0][0]),
                domain.shape(columns),
            )
            for columns, some in often
        )

    def warnings(self, rows: int) -> tuple[str, ...]:
        """Return one line about the columns of a table of about ``rows`` rows, if there are any."""
        columns = self.columns(rows) if self.possible else ()
        if not columns:
            return ()
        size = len(self.workload.domain)
        return (
            f"With this budget and {rows:,} rows, {len(columns):,} of {size:,} "
            f"column{'s' if size > 1 else ''} will probably be independent of all others: "
            f"{join_first(columns, NAMED)}. {REMEDY}",
        )

    @cached_property
    def combined(self) -> frozenset[int]:
        """Attributes of several values that the workload combines with another such."""
        sizes = self.workload.domain.sizes
        several = [{i for i in clique if sizes[i] > 1} for clique in self.workload.cliques]
        return frozenset(i for clique in several if len(clique) > 1 for i in clique)

    @cached_property
    def _known_choices(self) -> dict[tuple[Any, ...], _Choices]:
        return {}

    def _start(self, rows: int) -> _Start:
        domain = self.workload.domain
        first, initial, codes = _initial_precisions(self.workload, self.rho, rows)
        # What smoothing leaves of the noise of columns is all there is while the loop chooses.
        kept: dict[Clique, float] = {(i,): (n / domain.sizes[i]) ** 2 for i, n in codes.items()}
        first |= {column: first[column] / share for column, share in kept.items()}
        left = self.rho * (1 - initial)
        if self.settings.levels == "auto" and self.settings.reference == "product":
            shares = assumed_shares(domain)
            total = ResidualEstimate(np.array(float(rows)), 1.0)
            model = ReferenceModel(domain, shares, {(): total})
            candidates = measurable_cliques(self.workload)
            error = mean_error(shares, rows, candidates, left)
            domain = with_levels(domain, model, candidates, error)
        key = bool(domain.groupings), *codes.items()
        if key not in self._known_choices:
            self._known_choices[key] = _Choices(self.workload, domain, kept)
        return _Start(rows, self._known_choices[key], first, left)

    def _left_unconnected(self, rows: int) -> frozenset[int]:
        if opened := self._opening(rows).precisions:
            return self.combined.difference(*opened)
        start = self._start(rows)
        missed = [self.combined - self._connected(start, seed) for seed in range(RUNS)]
        return frozenset(i for i in self.combined if 2 * sum(i in some for some in missed) > RUNS)

    def _opening(self, rows: int) -> JointPlan:
        first, initial, _ = _initial_precisions(self.workload, self.rho, rows)
        estimates = _assumed_columns(self.workload.domain, first, rows)
        return plan_opening(estimates, self.workload, self.rho * (1 - initial), self.settings)

    def _connected(self, start: _Start, seed: int) -> set[int]:
        domain, connected = start.choices.domain, set[int]()
        for clique in self._measured(start, seed):
            connected.update(domain.columns(clique) if len(clique) > 1 else ())
            if connected == self.combined:
                break
        return connected

    def _measured(self, start: _Start, seed: int) -> Iterator[Clique]:
        budget = LoopBudget(self.rho, self.settings)
        budget.left = start.left
        rounds = choose_rounds(_AssumedWorld(start, seed), start.choices.every, budget)
        chosen = takewhile(lambda past: past.budget.selecting, rounds)
        return (past.clique for past in islice(chosen, MOST_ROUNDS))


class _AssumedWorld:
    """A table of which sizes and :data:`DEPENDENCE` are all that is known."""

    def __init__(self, start: _Start, seed: int) -> None:
        self._start, self._noise = start, np.random.default_rng(seed)
        self.total, choices = start.rows, start.choices
        self.precisions = start.first
        held = [start.first.get(residual, 0.0) for residual in choices.every.closure]
        self._errors = choices.first_errors(start.rows, np.array(held))
        self._chosen = 0, 0.0

    def rounding(self, residuals: int) -> float:
        return 0.0

    def expect(self, outdated: NDArray[np.bool_]) -> Errors:
        return partial(self._start.choices.errors, self._start.rows)

    def select(self, plan: RoundPlan) -> tuple[int, int]:
        noise = self._noise.gumbel(scale=2 / plan.epsilon, size=len(self._errors))
        weights = self._start.choices.every.weights
        score = weights * (self._errors - plan.least_error) + noise
        row = int(np.argmax(np.where(plan.offered, score, -np.inf)))
        self._chosen = row, float(plan.gains.expected[row])
        return row, 0

    def measure(self, precisions: Precisions) -> list[Measured]:
        if len(precisions) > 1:  # the last measurements, of what is known
            return [Measured({}, 0.0)] * len(precisions)
        (clique,), (row, expected) = precisions, self._chosen
        moved = math.hypot(self._errors[row], expected)
        for other, unseen in self._start.choices.unseen_after(clique):
            most = expected + unseen * DEPENDENCE * self._start.rows
            self._errors[other] = min(self._errors[other], most)
        return [Measured({}, moved)]


class _Choices:
    """What a loop chooses from, whatever the budget and the number of rows.

    ``domain`` is that of the workload, with the levels on offer; ``kept`` is the share of the noise
    variance of a column that smoothing leaves.
    """

    def __init__(self, workload: Workload, domain: Domain, kept: Mapping[Clique, float]) -> None:
        self.domain = domain

        def cost(residual: Clique) -> float:
            return measurement_cost(domain, residual) * kept.get(residual, 1.0)

        self.every = CandidateSet(workload, domain, cost)
        self._curves = self._tabulated(assumed_shares(domain))
        self._same: dict[Clique, list[int]] = {}
        for row, clique in enumerate(self.every.cliques):
            self._same.setdefault(domain.columns(clique), []).append(row)

    def _tabulated(self, shares: Sequence[Array]) -> ErrorCurves:
        """Return the errors of the candidates in a table of ``TABULATED_ROWS`` rows."""
        sizes: dict[tuple[float, ...], CellSizeHistogram] = {}
        alike: dict[tuple[tuple[float, ...], ...], list[int]] = {}
        kinds = []
        for position in range(self.domain.positions):
            (attribute,) = self.domain.columns((position,))
            held = self.domain.summed(shares[attribute], (attribute,), (position,))
            kinds.append(tuple(held.tolist()))
            sizes.setdefault(kinds[-1], CellSizeHistogram.of(held))
        for row, clique in enumerate(self.every.cliques):
            alike.setdefault(tuple(sorted(kinds[i] for i in clique)), []).append(row)
        curves = ErrorCurves(len(self.every.cliques), TABULATED_ROWS)
        for kind, same in alike.items():
            found = reduce(CellSizeHistogram.times, (sizes[k] for k in kind))
            curves.take(np.array(same), found.errors(TABULATED_ROWS, curves.stds))
        return curves

    def errors(self, rows: int, stds: Array, which: NDArray[np.int64]) -> Array:
        """Return the L1 error (rows) of some candidates with this noise."""
        scale = TABULATED_ROWS / max(rows, 1)
        return self._curves.at(stds * scale, which) / scale

    def first_errors(self, rows: int, precision: Array) -> Array:
        """Return the L1 error (rows) of all candidates before the first round."""
        error = np.full(len(self.every.cliques), DEPENDENCE * rows)
        single = np.flatnonzero([len(c) == 1 for c in self.every.cliques])
        (stds,) = self.every.planner.expected_stds(precision, np.zeros(1), single)
        error[single] = self.errors(rows, stds, single)
        return error

    def unseen_after(self, clique: Clique) -> Iterator[tuple[int, float]]:
        """Return the candidates over the attributes of a measured one, and what its groups hide.

        The part of ``DEPENDENCE`` hidden from each is 1/g for every attribute that it divides more
        finely.
        """
        shape = self.domain.shape(clique)
        for row in self._same[self.domain.columns(clique)]:
            finer = (i not in self.domain.chain(k) for i, k in zip(self.every.cliques[row], clique))
            yield row, math.fsum(1 / g for g, hidden in zip(shape, finer) if hidden)


class _Start(NamedTuple):
    """First measurements of all loops over a table: their precision (1 / rows²), and ρ left."""

    rows: int
    choices: _Choices
    first: dict[Clique, float]
    left: float


def _initial_precisions(
    workload: Workload, rho: float, rows: float
) -> tuple[dict[Clique, float], float, dict[int, float]]:
    """Return the precision (1 / rows²) of the first residuals, and their share of ``rho``.

    The third are the effective codes of columns that can be smooth. They are as smooth as the
    assumed shares, if the number of rows is known.
    """
    domain, candidates = workload.domain, measurable_cliques(workload)
    combined = any(len(clique) > 1 for clique in candidates)
    share = initial_share(workload, candidates, rho, rows) if combined else 1.0
    precisions = one_way_plan(workload, FIRST_PART * rho * (share - TOTAL_SHARE))
    columns = _assumed_columns(domain, precisions, rows)
    codes = columns.effective_codes() if rows and columns.smooth_columns else ()
    if codes and combined:
        share = initial_share(workload, candidates, rho, rows, codes)
    precisions = one_way_plan(workload, rho * (share - TOTAL_SHARE), codes=codes)
    precisions[()] += 2 * rho * TOTAL_SHARE / measurement_cost(domain, ())
    return precisions, share, {i: codes[i] for i in columns.smooth_columns if codes}


def _assumed_columns(domain: Domain, precisions: Mapping[Clique, float], rows: float) -> Estimates:
    """Return estimates of the number of rows and of columns, with the assumed shares."""
    shares = assumed_shares(domain)
    estimates = {
        tau: ResidualEstimate(rows * (shares[tau[0]] - 1 / shares[tau[0]].size), precision)
        if tau
        else ResidualEstimate(np.array(float(rows)), precision)
        for tau, precision in precisions.items()
    }
    return Estimates(ReferenceModel(domain, shares, estimates))
