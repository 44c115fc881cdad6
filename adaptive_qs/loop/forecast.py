"""What a loop will likely measure, and which columns it will leave unconnected."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

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
from adaptive_qs.loop.candidates import (
    CandidateSet,
    Flags,
    JointPlan,
    look_rho,
    measurable_cliques,
    pairs_to_look_at,
    with_levels,
)
from adaptive_qs.loop.estimates import Estimates, measurement_cost
from adaptive_qs.loop.expected import DEPENDENCE, CellSizeHistogram, ErrorCurves, mean_error
from adaptive_qs.loop.loop import Measured, Precisions, choose_rounds
from adaptive_qs.loop.planner import Errors, assumed_shares, initial_share, one_way_plan
from adaptive_qs.pages.words import join_first
from adaptive_qs.residual import ReferenceModel, ResidualEstimate
from adaptive_qs.workload.workload import Workload

# Sizes, weights, the budget and a public number of rows decide; no row is looked at. The loop is
# run without a table. Every noise level, every share of the budget and every rule is that of
# :mod:`adaptive_qs.loop.loop`; in the place of what only the table can say stand two assumptions.
# The values of a column are as frequent as 1, 1/2, 1/3, ... (Zipf's law). Combinations of columns
# differ from what is known of each column by ``DEPENDENCE`` of the rows (L1) on average: the
# logarithm is a sum of normal variables, two of the columns and one of the combination. In real
# tables columns explain 56 to 85 % of its variance. ``RUNS`` such loops are run, which differ in
# these variables and in the noise of the selection.
#
# How often that comes true: ``results/forecast.csv``, by ``scripts/speed/forecast.py``.

COLUMN_SPREAD, PAIR_SPREAD = 0.9, 0.7
"""Standard deviations of the logarithm of dependence, by column and by combination."""
RUNS = 5
MOST_CANDIDATES = 10_000
"""Above it there is no forecast: it would take longer than the run."""
MOST_ROUNDS = 2_000
NAMED = 3
"""Columns that a line names."""
REMEDY = "Use a larger budget or fewer columns."


def total_std(workload: Workload, rho: float, rows: float = 0.0) -> float:
    """Return the standard deviation (rows) of the number of rows after the first measurements.

    Rounds make it smaller where combinations are worth measuring. Rows are 0 where nobody knows
    about how many there are.
    """
    return float(_initial_precisions(workload, rho, rows)[0][()] ** -0.5)


class MeasuredForecast(NamedTuple):
    """How many combinations a run will likely measure.

    ``full`` of them are at full resolution; the others are measured over groups of codes.
    """

    marginals: int
    full: int


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
        """Return the columns that most loops over about ``rows`` rows leave unconnected."""
        left = Counter[int]()
        for measured in self._loops(rows):
            left.update(self.combined.difference(*self._until_connected(measured)))
        names = self.workload.domain.names
        return tuple(names[i] for i in sorted(self.combined) if 2 * left[i] > RUNS)

    def measured(self, rows: int) -> MeasuredForecast:
        """Return the median of what loops over about ``rows`` rows measure."""
        found = list[MeasuredForecast]()
        shape = self.workload.domain.shape
        for measured in self._loops(rows):
            full = dict[Clique, bool]()
            for columns, codes in measured:
                full[columns] = full.get(columns, False) or codes == shape(columns)
            found.append(MeasuredForecast(len(full), sum(full.values())))
        return sorted(found)[RUNS // 2]

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
            left -= look_rho(len(pairs_to_look_at(domain, candidates)), rows, left)
        return _Start(rows, _Choices(self.workload, domain, kept), first, left)

    def _loops(self, rows: int) -> Iterator[Iterable[tuple[Clique, tuple[int, ...]]]]:
        """Yield what each loop measures of several columns: the columns, and groups of each."""
        opened, shape = self._opening(rows).precisions, self.workload.domain.shape
        if opened:
            yield from [[(clique, shape(clique)) for clique in maximal_cliques(opened)]] * RUNS
            return
        start = self._start(rows)
        yield from (self._measured(start, seed) for seed in range(RUNS))

    def _until_connected(self, measured: Iterable[tuple[Clique, Any]]) -> Iterator[Clique]:
        left = self.combined
        for columns, _ in measured:
            yield columns
            left -= {*columns}
            if not left:
                return

    def _opening(self, rows: int) -> JointPlan:
        first, initial, _ = _initial_precisions(self.workload, self.rho, rows)
        estimates = _assumed_columns(self.workload.domain, first, rows)
        return plan_opening(estimates, self.workload, self.rho * (1 - initial), self.settings)

    def _measured(self, start: _Start, seed: int) -> Iterator[tuple[Clique, tuple[int, ...]]]:
        domain, budget = start.choices.domain, LoopBudget(self.rho, self.settings)
        budget.left = start.left
        rounds = choose_rounds(_AssumedWorld(start, seed), start.choices.every, budget)
        for past in islice(rounds, MOST_ROUNDS):
            if len(past.clique) > 1:
                yield domain.columns(past.clique), domain.shape(past.clique)


class _AssumedWorld:
    """A table of which sizes are known, and how much columns depend is drawn."""

    def __init__(self, start: _Start, seed: int) -> None:
        self._start, self._noise = start, np.random.default_rng(seed)
        self.total, choices = start.rows, start.choices
        self.precisions = start.first
        held = [start.first.get(residual, 0.0) for residual in choices.every.closure]
        self._different = choices.assume_differences(self._noise) * start.rows
        self._errors = choices.first_errors(start.rows, np.array(held), self._different)
        self._chosen = 0, 0.0

    def rounding(self, residuals: int) -> float:
        return 0.0

    def expect(self, outdated: Flags, ready: Flags) -> Errors:
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
            most = expected + unseen * self._different[other]
            self._errors[other] = min(self._errors[other], most)
        return [Measured({}, moved)]


class _Choices:
    """What a loop chooses from, whatever the budget and the number of rows.

    ``kept`` is the share of the noise variance of a column that smoothing leaves.
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

    def assume_differences(self, chance: np.random.Generator) -> Array:
        """Draw how far each candidate is from what its columns tell (share of the rows)."""
        even = (np.arange(len(self.domain)) + 0.5) / len(self.domain)
        strengths = COLUMN_SPREAD * chance.permutation(ndtri(even))
        found = np.zeros(len(self.every.cliques))
        for columns, same in self._same.items():
            strength = 2 * strengths[list(columns)].mean()
            found[same] = math.exp(strength + PAIR_SPREAD * chance.normal())
        several = [len(clique) > 1 for clique in self.every.cliques]
        return np.minimum(found * DEPENDENCE / np.mean(found, where=several), 1.0)

    def first_errors(self, rows: int, precision: Array, different: Array) -> Array:
        """Return the L1 error (rows) of all candidates before the first round."""
        error = different.copy()
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
