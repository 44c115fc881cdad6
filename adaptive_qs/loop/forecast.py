"""What a loop will likely measure, and which columns it will leave unconnected."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from itertools import chain, combinations, count, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path
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
from adaptive_qs.table.columns.binned import RangeColumn
from adaptive_qs.workload.workload import Workload

if TYPE_CHECKING:
    from adaptive_qs.table.schema import Schema

# Sizes, weights, the budget and a public number of rows decide; no row is looked at. The loop is
# run without a table. Every noise level, every share of the budget and every rule is that of
# :mod:`adaptive_qs.loop.loop`; in the place of what only the table can say stand assumptions.
# The values of a column are as frequent as 1, 1/2, 1/3, ... (Zipf's law). Combinations of columns
# differ from what is known of each column by ``DEPENDENCE`` of the rows (L1) on average in half of
# all tables: the logarithm is a sum of normal variables of the table, of the columns and of the
# combination. Pairs of numbers, and those that a schema ties, depend more. What is hidden of an
# unmeasured pair falls with the path of measured pairs that joins its columns. Such loops differ in
# these variables and in the noise of the selection.
#
# How often that comes true: ``results/forecast.csv``, by ``scripts/speed/forecast.py``.

TABLE_SPREAD, COLUMN_SPREAD, PAIR_SPREAD = 0.6, 0.6, 0.6
"""Standard deviations of the logarithm of dependence, by table, by column and by combination. It is
0.6 between means of tables (ten, and 348 of R), and 1.1 on average between pairs of one table."""
IMPLIED = 0.55
"""Part of the dependence of two columns that a path of two measured pairs shows; of k pairs it is
the power k − 1. In ten tables the median is 0.56, 0.26 and 0.19 for two to four pairs."""
NUMBERS, TIED, TIED_SPREAD = 0.28, 0.8, 0.3
"""Dependence in the place of ``DEPENDENCE`` of two numbers, and of a pair that the schema ties (see
:func:`assumed_dependence`), with the standard deviation by tied pair (of the logarithm). Medians of
301 and 107 tables of R, of 348 that have five columns and 800 rows; pairs without numbers: 0.13."""
LEAST_CODES, EDGES, NEAR = 16, 32, 0.15
"""Codes that numbers have at least, parts of equal size in which their bins are compared, and the
largest part that lies elsewhere in bins that are alike (distance of Kolmogorov and Smirnov)."""
RUNS, LEAST_RUNS = 15, 3
"""Loops that are run: fewer if together they would have more than ``MOST_ROUNDS``."""
MOST_ROUNDS = 2_000
PROBABLE = 0.6
"""Part of the loops that leave a column unconnected for it to be named."""
MOST_CANDIDATES = 10_000
"""Above it there is no forecast: it would take longer than the run."""
NAMED = 3
"""Columns that a line names."""


def total_std(workload: Workload, rho: float, rows: float = 0.0) -> float:
    """Return the standard deviation (rows) of the number of rows after the first measurements.

    Rounds make it smaller where combinations are worth measuring. Rows are 0 where nobody knows
    about how many there are.
    """
    return float(_initial_precisions(workload, rho, rows)[0][()] ** -0.5)


class MeasuredForecast(NamedTuple):
    """How many combinations a run will likely measure, and which columns it leaves unconnected.

    ``full`` of them are at full resolution; the others are measured over groups of codes. Loops
    over four of five tables measure between ``least`` and ``most``.
    """

    marginals: int
    full: int
    least: int
    most: int
    unconnected: tuple[str, ...]


@dataclass(frozen=True)
class LoopForecast:
    """Forecast of what a run of this budget measures, and of the columns it leaves unconnected.

    It selects by AIM's rule, whichever rule the settings name. Without a ``schema``, which has the
    workload's columns, all pairs are assumed to depend alike.
    """

    workload: Workload
    rho: float
    settings: LoopSettings = field(default_factory=LoopSettings)
    schema: Schema | None = None

    @property
    def possible(self) -> bool:
        """Whether there are combinations, and few enough for a forecast."""
        return bool(self.combined) and len(self.workload.closure) <= MOST_CANDIDATES

    def columns(self, rows: int) -> tuple[str, ...]:
        """Return the columns that most loops over about ``rows`` rows leave unconnected."""
        return self._unconnected(map(self._until_connected, self._loops(rows)))

    def measured(self, rows: int) -> MeasuredForecast:
        """Return the median and the range of what loops over about ``rows`` rows measure."""
        found, shape = list[dict[Clique, bool]](), self.workload.domain.shape
        for measured in self._loops(rows):
            found.append({})
            for columns, codes in measured:
                found[-1][columns] = found[-1].get(columns, False) or codes == shape(columns)
        numbers = sorted((len(one), sum(one.values())) for one in found)
        middle, least, most = numbers[len(numbers) // 2], numbers[0][0], numbers[-1][0]
        return MeasuredForecast(*middle, least, most, self._unconnected(found))

    def _unconnected(self, loops: Iterable[Iterable[Clique]]) -> tuple[str, ...]:
        """Return the columns that are probably left. Columns that are equal in public are alike."""
        domain, weights = self.workload.domain, self.workload.column_weights
        left = [self.combined.difference(*measured) for measured in loops]
        kind = {}
        for i in self.combined:
            others = sorted(mean for pair, mean in self._assumed.items() if i in pair)
            kind[i] = domain.sizes[i], round(float(weights[i]), 9), *others
        columns, number = Counter(kind.values()), Counter(kind[i] for i in chain(*left))
        named = (i for i in kind if number[kind[i]] >= PROBABLE * columns[kind[i]] * len(left))
        return tuple(domain.names[i] for i in sorted(named))

    def warnings(self, rows: int) -> tuple[str, ...]:
        """Return one line about the columns of a table of about ``rows`` rows, if there are any."""
        columns = self.columns(rows) if self.possible else ()
        if not columns:
            return ()
        size = len(self.workload.domain)
        return (
            f"With this budget and {rows:,} rows, {len(columns):,} of {size:,} "
            f"column{'s' if size > 1 else ''} will probably be independent of all others: "
            f"{join_first(columns, NAMED)}.",
        )

    @cached_property
    def combined(self) -> frozenset[int]:
        """Attributes of several values that the workload combines with another such."""
        sizes = self.workload.domain.sizes
        several = [{i for i in clique if sizes[i] > 1} for clique in self.workload.cliques]
        return frozenset(i for clique in several if len(clique) > 1 for i in clique)

    @cached_property
    def _assumed(self) -> Mapping[Clique, float]:
        return {} if self.schema is None else assumed_dependence(self.schema)

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
        return _Start(rows, _Choices(self.workload, domain, kept, self._assumed), first, left)

    def _loops(self, rows: int) -> Iterator[Iterable[tuple[Clique, tuple[int, ...]]]]:
        """Yield what each loop measures of several columns: the columns, and groups of each."""
        opened, shape = self._opening(rows).precisions, self.workload.domain.shape
        if opened:
            yield [(clique, shape(clique)) for clique in maximal_cliques(opened)]
            return
        start, taken = self._start(rows), count()
        yield (one for one, _ in zip(self._measured(start, 0, 0.5), taken))
        runs = min(max(MOST_ROUNDS // max(next(taken), 1), LEAST_RUNS), RUNS) // 2 * 2 + 1
        for seed, share in enumerate(np.linspace(0.1, 0.9, runs).tolist()):
            if seed != runs // 2:
                yield self._measured(start, seed + 1, share)

    def _until_connected(self, measured: Iterable[tuple[Clique, Any]]) -> Iterable[Clique]:
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

    def _measured(
        self, start: _Start, seed: int, share: float
    ) -> Iterator[tuple[Clique, tuple[int, ...]]]:
        """Yield what a loop measures of a table that depends more than this share of tables."""
        domain, budget = start.choices.domain, LoopBudget(self.rho, self.settings)
        budget.left = start.left
        world = _AssumedWorld(start, seed, DEPENDENCE * math.exp(TABLE_SPREAD * ndtri(share)))
        rounds = choose_rounds(world, start.choices.every, budget)
        for past in islice(rounds, MOST_ROUNDS):
            if len(past.clique) > 1:
                yield domain.columns(past.clique), domain.shape(past.clique)


class _AssumedWorld:
    """A table of which sizes are known, and how much columns depend is drawn."""

    def __init__(self, start: _Start, seed: int, dependence: float) -> None:
        self._start, self._noise = start, np.random.default_rng(seed)
        self.total, self.precisions, choices = start.rows, start.first, start.choices
        held = [start.first.get(residual, 0.0) for residual in choices.every.closure]
        self._held = np.array(held)
        self._different = choices.assume_differences(self._noise, dependence)
        self._unseen = np.ones(len(self._different))
        self._joined = np.zeros((len(choices.domain),) * 2)
        self._chosen = 0, 0.0
        self._update()

    def rounding(self, residuals: int) -> float:
        return 0.0

    def expect(self, outdated: Flags, ready: Flags) -> Errors:
        return partial(self._start.choices.errors, self._start.rows)

    def select(self, plan: RoundPlan) -> tuple[int | None, int]:
        noise = self._noise.gumbel(scale=2 / plan.epsilon, size=len(self._errors))
        weights = self._start.choices.every.weights
        score = weights * (self._errors - plan.least_error) + noise
        score = np.where(plan.offered, score, -np.inf)
        row = int(np.argmax(score))
        if score[row] < self._noise.gumbel(-plan.nothing, 2 / plan.epsilon):
            return None, 0
        self._chosen = row, float(plan.gains.expected[row])
        return row, 0

    def measure(self, precisions: Precisions) -> list[Measured]:
        if len(precisions) > 1:  # the last measurements, of what is known
            return [Measured({}, 0.0)] * len(precisions)
        ((clique, new),), (row, expected) = precisions.items(), self._chosen
        choices, hidden = self._start.choices, self._different[row] * self._unseen[row]
        moved = math.hypot(hidden * self.total, expected)
        for residual, precision in new.items():
            self._held[choices.every.position[residual]] += precision
        columns = choices.domain.columns(clique)
        if len(columns) == 2 and not self._joined[columns]:
            self._joined[columns] = self._different[row]
            implied = choices.implied(self._joined)
            self._unseen = np.where(self._joined[choices.ends] > 0, self._unseen, implied)
        for other, unseen in choices.unseen_after(clique):
            self._unseen[other] = min(self._unseen[other], unseen)
        self._update()
        return [Measured({}, moved)]

    def _update(self) -> None:
        """Compute how far each estimate (rows) is from the table, by noise and by what it misses.

        Both add by squares.
        """
        choices, rows = self._start.choices, self._start.rows
        noise = choices.every.planner.noise_held(self._held)
        errors = choices.errors(rows, noise, np.arange(noise.size))
        self._errors = np.hypot(self._different * self._unseen * rows, errors)


class _Choices:
    """What a loop chooses from, whatever the budget and the number of rows.

    ``kept`` is the share of the noise variance of a column that smoothing leaves, ``assumed`` as
    :func:`assumed_dependence`.
    """

    def __init__(
        self,
        workload: Workload,
        domain: Domain,
        kept: Mapping[Clique, float],
        assumed: Mapping[Clique, float],
    ) -> None:
        self.domain, self._assumed = domain, assumed

        def cost(residual: Clique) -> float:
            return measurement_cost(domain, residual) * kept.get(residual, 1.0)

        self.every = CandidateSet(workload, domain, cost)
        self._curves = self._tabulated(assumed_shares(domain))
        self._same: dict[Clique, list[int]] = {}
        for row, clique in enumerate(self.every.cliques):
            self._same.setdefault(domain.columns(clique), []).append(row)
        ends = [domain.columns(c) if len(c) == 2 else (0, 0) for c in self.every.cliques]
        self.ends = tuple(np.array(ends, dtype=np.int64).T)

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

    def assume_differences(self, chance: np.random.Generator, dependence: float) -> Array:
        """Draw how far each candidate is from what its columns tell (share of the rows).

        Combinations have the mean ``dependence``, or as much more as is assumed of them, but none
        is above 2(1 − 1/n), where n is their least number of codes. Columns have 0.
        """
        even = (np.arange(len(self.domain)) + 0.5) / len(self.domain)
        strengths = COLUMN_SPREAD * chance.permutation(ndtri(even))
        several = [columns for columns in self._same if len(columns) > 1]
        means = [2 * strengths[[*columns]].mean() for columns in several]
        drawn = np.exp(means + PAIR_SPREAD * chance.normal(size=len(several)))
        found = np.zeros(len(self.every.cliques))
        for columns, one in zip(several, (drawn / drawn.mean()).tolist()):
            mean = self._assumed.get(columns, DEPENDENCE)
            one = math.exp(TIED_SPREAD * chance.normal()) if mean == TIED else one
            most = 2 - 2 / min(self.domain.sizes[i] for i in columns)
            found[self._same[columns]] = min(one * dependence * mean / DEPENDENCE, most)
        return found

    def implied(self, joined: Array) -> Array:
        """Return the part of its dependence that each candidate misses while it is unmeasured.

        Measured pairs have their dependence in ``joined``, by columns. The strongest of them form a
        forest. It shows what two columns have in common with all columns between them.
        """
        steps = shortest_path(abs(minimum_spanning_tree(-joined)), directed=False, unweighted=True)
        np.fill_diagonal(steps, np.inf)  # of single columns, and of three or more
        return 1 - IMPLIED ** (steps[self.ends] - 1)

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


def assumed_dependence(schema: Schema) -> dict[Clique, float]:
    """Return how much pairs of columns likely depend, ``NUMBERS`` or ``TIED``, for what is public.

    Numbers are columns of at least ``LEAST_CODES`` codes with a scale. A pair is tied by a rule, or
    if both are numbers of one kind: their names differ in digits alone, where not all names do, or
    at most ``NEAR`` of their codes begin elsewhere.
    """
    columns = schema.columns
    stems = [re.sub(r"\d+", "#", column.name) for column in columns]
    starts = dict[int, Array]()
    for i, column in enumerate(columns):
        size = column.num_values
        if isinstance(column, RangeColumn) and not column.is_unlearnt and size >= LEAST_CODES:
            starts[i] = column.ends(np.arange(1, EDGES) * size // EDGES)[0].astype(np.float64)

    def tied(a: int, b: int) -> bool:
        if stems[a] == stems[b] and len({*stems}) > 1:
            return True
        every = np.concatenate([starts[a], starts[b]])
        below = [np.searchsorted(starts[i], every, side="right") for i in (a, b)]
        same = columns[a].type == columns[b].type
        return bool(same and abs(below[0] - below[1]).max() <= NEAR * EDGES)

    found: dict[Clique, float]
    found = {pair: TIED if tied(*pair) else NUMBERS for pair in combinations(starts, 2)}
    place = {column.name: i for i, column in enumerate(columns)}
    for cells in () if schema.ruleset is None else schema.ruleset.cells:
        ends = sorted(place[name] for name in cells.names)
        found |= dict.fromkeys(combinations(ends, 2), TIED)
    return found
