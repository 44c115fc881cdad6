"""What is known of a run beforehand: memory, ceilings, columns it will leave unconnected."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.generate.loglinear import maximal_cliques
from adaptive_qs.generate.rows import PAGE_CODES, SynthesisSettings
from adaptive_qs.loop.estimates import MOST_FORMED, ErrorCurves, Sizes
from adaptive_qs.loop.levels import at_levels, closure_at_levels, mean_error, with_levels
from adaptive_qs.loop.loop import (
    TOTAL_SHARE,
    Array,
    LoopSettings,
    assumed_shares,
    initial_share,
    measurable_cliques,
    one_way_plan,
    planned_opening,
)
from adaptive_qs.loop.measure import ConditionalPlanner, measurement_cost
from adaptive_qs.loop.opening import DEPENDENCE, Opening
from adaptive_qs.loop.pricing import SAFETY, Offer, PriceList, Schedule
from adaptive_qs.loop.select import Members
from adaptive_qs.machine import PROCESS_BYTES, ROWS_SHARE
from adaptive_qs.pages.words import at_resolution, first_of
from adaptive_qs.residual import ReferenceModel, ResidualEstimate
from adaptive_qs.table.coded import CODE_BYTES, KEPT_CELLS
from adaptive_qs.workload.limit import Ceilings, LeftOut, limited
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

CURVE_ROWS = 2.0**20
"""Rows for which expected errors are tabulated; with k times as many rows and k times the noise the
error is k times as large."""
RUNS, FEWER_RUNS = 5, 3
"""Loops for one number of rows that is given, and for each of many that are tried."""
MOST_CANDIDATES = 10_000
"""Above it there is no forecast: it would take longer than the run."""
MOST_ROUNDS = 2_000
ROWS = tuple(digit * 10**power for power in range(1, 9) for digit in (1, 3))
"""Numbers of rows among which the least is looked for."""
FEW_ROWS = 1_000
NAMED = 6
"""Columns that a line names."""
MEND = "use coarser bins, fewer values or columns, or more budget"


def total_std(workload: Workload, rho: float, rows: float = 0.0) -> float:
    """Standard deviation (rows) of the noisy number of rows after a run's first measurements.

    Rounds make it smaller where combinations are worth measuring. Rows are 0 where nobody knows
    about how many there are.
    """
    return float(_initial_precisions(workload, rho, rows)[0][()] ** -0.5)


class Foreseen(NamedTuple):
    """A combination that a run will likely measure, and how finely.

    Attributes:
        columns: their names.
        groups: codes of each that are told apart, or groups of them.
        codes: all codes of each.
    """

    columns: tuple[str, ...]
    groups: tuple[int, ...]
    codes: tuple[int, ...]

    def __str__(self) -> str:
        """Such as "age in 8 groups × city"."""
        return at_resolution(self.columns, self.groups, self.codes)


@dataclass(frozen=True)
class LoopForecast:
    """What a run of this budget will likely measure, and which columns it leaves independent of all
    others, selecting by AIM's rule whichever the settings name."""

    workload: Workload
    rho: float
    settings: LoopSettings = field(default_factory=LoopSettings)

    @property
    def possible(self) -> bool:
        """Whether there are combinations, and few enough for a forecast."""
        return bool(self._asked) and len(self.workload.closure) <= MOST_CANDIDATES

    def columns(self, rows: int) -> tuple[str, ...]:
        """Columns that stay unconnected in a table of about so many rows, in the schema's order."""
        left = self._left_unconnected(rows, RUNS)
        return tuple(name for i, name in enumerate(self.workload.domain.names) if i in left)

    def resolutions(self, rows: int) -> tuple[Foreseen, ...]:
        """The combinations that most loops measure in a table of about so many rows, the one that
        most do first, at the finest levels at which most of these do."""
        if opened := maximal_cliques(self._opening(rows).precisions):
            domain = self.workload.domain
            return tuple(Foreseen(domain.clique_names(c), *2 * (domain.shape(c),)) for c in opened)
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
            Foreseen(
                domain.clique_names(columns),
                domain.shape(some.most_common(1)[0][0]),
                domain.shape(columns),
            )
            for columns, some in often
        )

    def least_rows(self) -> dict[str, int | None]:
        """About how many rows each column takes to be connected; None where ``ROWS`` has no such.

        Columns of which no combination with another one is asked for are left out.
        """
        left_at: dict[int, frozenset[int]] = {-1: self._asked}

        def narrow(low: int, high: int) -> None:
            if high - low > 1 and left_at[low] != left_at[high]:
                middle = (low + high) // 2
                left_at[middle] = self._left_unconnected(ROWS[middle], FEWER_RUNS) & left_at[low]
                narrow(low, middle)
                narrow(middle, high)

        last = len(ROWS) - 1
        left_at[last] = self._left_unconnected(ROWS[last], FEWER_RUNS)
        narrow(-1, last)
        known = sorted(left_at)
        names = self.workload.domain.names
        return {
            names[i]: next((ROWS[k] for k in known if i not in left_at[k]), None)
            for i in sorted(self._asked)
        }

    def doubts(self, rows: int) -> tuple[str, ...]:
        """One line about the columns of a table of about so many rows, if there are any."""
        columns = self.columns(rows) if self.possible else ()
        if not columns:
            return ()
        size = len(self.workload.domain)
        return (
            f"{len(columns):,} of {size:,} column{'s' if size > 1 else ''} will likely be "
            f"independent of all others at this budget, with {rows:,} rows: "
            f"{first_of(columns, NAMED)}: {MEND}",
        )

    def note(self, compare: str = "--public-rows N") -> str | None:
        """One line about the rows that it takes, where nobody knows how many there are, and with
        which option that is compared.

        Columns that take no more than ``FEW_ROWS`` are not named.
        """
        least = self.least_rows() if self.possible else {}
        wanted = [(rows or math.inf, name) for name, rows in least.items()]
        columns = [
            f"{name} {f'more than {ROWS[-1]:,}' if rows == math.inf else format(rows, ',')}"
            for rows, name in sorted(wanted, key=lambda pair: -pair[0])
            if rows > FEW_ROWS
        ]
        if not columns:
            return None
        return (
            "at this budget these columns will likely be independent of all others unless the "
            f"table has at least about this many rows: {first_of(columns, NAMED)}: {MEND} "
            f"({compare} compares)"
        )

    @cached_property
    def _asked(self) -> frozenset[int]:
        """Attributes of several values that the workload combines with another such."""
        sizes = self.workload.domain.sizes
        several = [{i for i in clique if sizes[i] > 1} for clique in self.workload.cliques]
        return frozenset(i for clique in several if len(clique) > 1 for i in clique)

    @cached_property
    def _known_choices(self) -> dict[bool, _Choices]:
        return {}

    def _start(self, rows: int) -> _Start:
        """Return what all loops over a table of this many rows begin with."""
        domain = self.workload.domain
        first, initial = _initial_precisions(self.workload, self.rho, rows)
        left = self.rho * (1 - initial)
        if self.settings.levels == "auto" and self.settings.reference == "product":
            shares = assumed_shares(domain)
            total = ResidualEstimate(np.array(float(rows)), 1.0)
            model = ReferenceModel(domain, shares, {(): total})
            candidates = measurable_cliques(self.workload)
            error = mean_error(shares, rows, candidates, left)
            domain = with_levels(domain, model, candidates, error)
        leveled = bool(domain.groupings)
        if leveled not in self._known_choices:
            self._known_choices[leveled] = _Choices(self.workload, domain)
        return _Start(rows, self._known_choices[leveled], first, left)

    def _left_unconnected(self, rows: int, runs: int) -> frozenset[int]:
        """Attributes that most of so many loops leave unconnected."""
        if opened := self._opening(rows).precisions:
            return self._asked.difference(*opened)
        start = self._start(rows)
        missed = [self._asked - self._connected(start, seed) for seed in range(runs)]
        return frozenset(i for i in self._asked if 2 * sum(i in some for some in missed) > runs)

    def _opening(self, rows: int) -> Opening:
        """What is measured together before the first choice."""
        domain = self.workload.domain
        first, initial = _initial_precisions(self.workload, self.rho, rows)
        estimates = {
            tau: ResidualEstimate(np.full(domain.shape(tau), 0.0 if tau else rows), precision)
            for tau, precision in first.items()
        }
        model = ReferenceModel(domain, assumed_shares(domain), estimates)
        left, cost = self.rho * (1 - initial), partial(measurement_cost, domain)
        return planned_opening(model, self.workload, left, self.settings, cost)

    def _connected(self, start: _Start, seed: int) -> set[int]:
        """Attributes that one loop measures in some combination."""
        domain, connected = start.choices.domain, set[int]()
        for clique in self._measured(start, seed):
            connected.update(domain.columns(clique) if len(clique) > 1 else ())
            if connected == self._asked:
                break
        return connected

    def _measured(self, start: _Start, seed: int) -> Iterator[Clique]:
        """What one loop without a table measures, round by round."""
        rng = np.random.default_rng(seed)
        rows, choices, first, left = start
        precision = np.zeros(len(choices.closure))
        for residual, value in first.items():
            if residual in choices.position:
                precision[choices.position[residual]] = value
        error = choices.first_errors(rows, precision)
        offer = Offer(choices.domain, choices.candidates, self.settings.measured_cells)
        prices = PriceList(choices.planner, choices.weights, left)
        schedule = Schedule(offer, prices, left, self.settings.selecting_share, 0.0)
        stale = np.ones(len(error), dtype=bool)
        for _ in range(MOST_ROUNDS):
            left = schedule.left
            if left <= SAFETY * self.rho or not offer.open.any():
                break
            prices.refresh(partial(choices.errors, rows), precision, stale)
            choice = schedule.choice(rows)
            noise = rng.gumbel(scale=2 / choice.epsilon, size=len(error))
            score = choices.weights * (error - choice.least_error) + noise
            row = int(np.argmax(np.where(choice.offered, score, -np.inf)))
            clique = choices.candidates[row]
            budget = schedule.take(clique, choice)
            measured = choices.planner.allocate(clique, precision, 2 * budget.measuring)
            for residual, value in measured.items():
                precision[choices.position[residual]] += value
            stale = choices.members.containing(measured)
            yield clique
            expected = float(choice.prospects.expected[row])
            schedule.judge(float(error[row]), expected)
            for other, unseen in choices.unseen_after(clique):
                error[other] = min(error[other], expected + unseen * DEPENDENCE * rows)


class _Choices:
    """What a loop chooses from, whatever the budget and the number of rows.

    Args:
        workload: what matters.
        domain: its domain, with the levels on offer.

    Attributes:
        candidates, closure: marginals and their residuals, at all levels.
        position: of each residual in the closure.
        weights: of the candidates, the largest 1.
        members, planner: of the candidates.
    """

    def __init__(self, workload: Workload, domain: Domain) -> None:
        self.domain = domain
        self.candidates = at_levels(domain, measurable_cliques(workload))
        self.closure = closure_at_levels(domain, workload.closure)
        self.position = {residual: k for k, residual in enumerate(self.closure)}
        weights = workload.priorities([domain.columns(c) for c in self.candidates])
        self.weights = weights / weights.max()
        self.members = Members(domain, self.candidates)
        costs = [measurement_cost(domain, residual) for residual in self.closure]
        self.planner = ConditionalPlanner(domain, self.closure, self.candidates, costs)
        self._curves = self._tabulated(assumed_shares(domain))
        self._same: dict[Clique, list[int]] = {}
        for row, clique in enumerate(self.candidates):
            self._same.setdefault(domain.columns(clique), []).append(row)

    def _tabulated(self, shares: Sequence[Array]) -> ErrorCurves:
        """Errors expected of the candidates in a table of ``CURVE_ROWS`` with such columns."""
        sizes: dict[tuple[float, ...], Sizes] = {}
        alike: dict[tuple[tuple[float, ...], ...], list[int]] = {}
        kinds = []
        for position in range(self.domain.positions):
            (attribute,) = self.domain.columns((position,))
            held = self.domain.summed(shares[attribute], (attribute,), (position,))
            kinds.append(tuple(held.tolist()))
            sizes.setdefault(kinds[-1], Sizes.of(held))
        for row, clique in enumerate(self.candidates):
            alike.setdefault(tuple(sorted(kinds[i] for i in clique)), []).append(row)
        curves = ErrorCurves(len(self.candidates), CURVE_ROWS)
        for kind, same in alike.items():
            found = reduce(Sizes.times, (sizes[k] for k in kind))
            curves.take(np.array(same), found.errors(CURVE_ROWS, curves.stds))
        return curves

    def errors(self, rows: int, stds: Array, which: NDArray[np.int64]) -> Array:
        """L1 error (rows) of some candidates with this noise, in a table of so many rows."""
        scale = CURVE_ROWS / max(rows, 1)
        return self._curves.at(stds * scale, which) / scale

    def first_errors(self, rows: int, precision: Array) -> Array:
        """L1 error (rows) of all candidates before the first round, with these precisions."""
        error = np.full(len(self.candidates), DEPENDENCE * rows)
        single = np.flatnonzero([len(c) == 1 for c in self.candidates])
        (stds,) = self.planner.expected_stds(precision, np.zeros(1), single)
        error[single] = self.errors(rows, stds, single)
        return error

    def unseen_after(self, clique: Clique) -> Iterator[tuple[int, float]]:
        """The candidates over the attributes of a measured one, and which part of ``DEPENDENCE``
        its groups hide from each: 1/g for every attribute that it tells apart more finely."""
        shape = self.domain.shape(clique)
        for row in self._same[self.domain.columns(clique)]:
            finer = (i not in self.domain.chain(k) for i, k in zip(self.candidates[row], clique))
            yield row, math.fsum(1 / g for g, hidden in zip(shape, finer) if hidden)


class _Start(NamedTuple):
    """What all loops over a table of ``rows`` begin with.

    Attributes:
        rows: of the table.
        choices: what the loops choose from.
        first: precision (1 / rows²) of the residuals measured first.
        left: rho after them.
    """

    rows: int
    choices: _Choices
    first: dict[Clique, float]
    left: float


def _initial_precisions(
    workload: Workload, rho: float, rows: float
) -> tuple[dict[Clique, float], float]:
    """Precision (1 / rows²) of the residuals measured first, and the part of ``rho`` they take."""
    domain, candidates = workload.domain, measurable_cliques(workload)
    combined = any(len(clique) > 1 for clique in candidates)
    share = initial_share(workload, candidates, rho, rows) if combined else 1.0
    precisions = one_way_plan(workload, rho * (share - TOTAL_SHARE))
    precisions[()] += 2 * rho * TOTAL_SHARE / measurement_cost(domain, ())
    return precisions, share


CLIQUE_BYTES = 4096
"""Bookkeeping of one clique of the workload's closure, at the most."""
SCORED_CELL_BYTES = 40
"""Counts, estimate and intermediate arrays of one cell of a marginal while it is scored."""
MEASURED_CELL_BYTES = 72
"""Estimate, component, target, weights and their copies for one cell of a measured clique."""
WATCHED_CELL_BYTES = 12
"""Mean, difference and one temporary for one cell of a watched marginal."""
SYNTHETIC_CODE_BYTES = 16
"""One value of a synthetic table that is held as a whole: its code, and the value decoded."""
FITTED_CODE_BYTES = 24
"""One value of the chains: their state, its proposals and a page with its decoded values."""


SCORING_THREADS = 4
"""Threads that the memory is planned for: what is measured and left out is the same for any number
of them. More of them score where there is room."""
KEPT_CELL_BYTES = 12
"""One cell of a counted marginal that is kept, with the count from which it was taken over."""
MOST_KEPT_CELLS = 2**26
"""More counts are not kept: they are sparse, and to count them again is as quick."""

# A scoring pass looks at every candidate once: it projects its estimate, and compares it with the
# rows. Processor seconds, measured on two cores of a server of 2024 (the script
# ``scripts/speed/benchmark_columns.py``); other machines differ by a factor, not by their order.

CANDIDATE_SECONDS, CELL_SECONDS, ROW_SECONDS = 2e-5, 2.5e-9, 1e-9
"""Processor seconds of a pass for one candidate, one cell of it, and one row in it."""
SEEN_CELLS = MOST_FORMED
"""Cells of a candidate beyond which more take no more time."""
DEFAULT_CANDIDATES = 250_000
"""Candidates of several columns, if not said otherwise: over a table of a million rows they are
scored in about five minutes of one core."""
DEFAULT_CELLS = 2**39
"""Cells of all candidates, if not said otherwise: two million for each of the others."""


@dataclass(frozen=True)
class _Candidates:
    """The marginals of a workload that may be measured, and the memory that looking at them takes.

    Attributes:
        attributes: columns of the table.
        closure: marginals of the workload and all inside them, of which something is kept.
        number: of candidates, single columns among them.
        cells: of all of them together.
        largest: the one with most cells, empty if there are none.
        largest_cells: its cells.
        seen_cells: as ``cells``, of each at most ``SEEN_CELLS``.
    """

    attributes: int
    closure: int
    number: int
    cells: int
    largest: Clique
    largest_cells: int
    seen_cells: int

    @classmethod
    def of(cls, workload: Workload) -> _Candidates:
        domain, cliques = workload.domain, measurable_cliques(workload)
        sizes = [domain.size(clique) for clique in cliques]
        most = max(sizes, default=1)
        largest = cliques[sizes.index(most)] if sizes else ()
        seen = sum(min(size, SEEN_CELLS) for size in sizes)
        return cls(len(domain), len(workload.closure), len(sizes), sum(sizes), largest, most, seen)

    def bytes(self, kept_cells: int) -> int:
        """Memory beside the process and the rows, with so many cells of counts kept."""
        return (
            self.closure * _clique_bytes(self.attributes)
            + self.largest_cells * SCORING_THREADS * SCORED_CELL_BYTES
            + min(self.cells, kept_cells) * KEPT_CELL_BYTES
        )


def _clique_bytes(attributes: int) -> int:
    """Bookkeeping of one clique of a table of so many columns."""
    return CLIQUE_BYTES + attributes


@dataclass(frozen=True)
class ScoringForecast:
    """What a scoring pass of the loop looks at, and how long it takes.

    Attributes:
        candidates: marginals that may be measured, single columns among them.
        cells: of all of them together.
        seconds: processor seconds, without what rows take where their number is not public.
        memory_bytes: of the process and the candidates, without rows and what is measured.
        rows: about how many rows there are; None where that is not public.
    """

    candidates: int
    cells: int
    seconds: float
    memory_bytes: int
    rows: int | None

    @classmethod
    def of(
        cls, workload: Workload, rows: int | None, kept_cells: int = MOST_KEPT_CELLS
    ) -> ScoringForecast:
        """The forecast for the candidates of a workload, with so many counts kept."""
        found = _Candidates.of(workload)
        seconds = found.number * (CANDIDATE_SECONDS + (rows or 0) * ROW_SECONDS)
        seconds += found.seen_cells * CELL_SECONDS
        memory = PROCESS_BYTES + found.bytes(kept_cells)
        return cls(found.number, found.cells, seconds, memory, rows)

    def __str__(self) -> str:
        """One line: how many, how large, how long, and with how much memory."""
        some = f"{self.candidates:,} candidate{'s' if self.candidates != 1 else ''}"
        more = ""
        if self.rows is None:
            each = self.candidates * ROW_SECONDS * 1e6
            more = f", {each:.1f} more for every million rows"
        memory = f"{self.memory_bytes / 2**20:,.0f} MB"
        return (
            f"{some} of {self.cells:,} cells; to score all takes {self.seconds:.1f} processor "
            f"seconds{more}, and {memory} without the rows"
        )


def keep_what_fits(
    workload: Workload,
    num_rows: int,
    max_memory_bytes: int,
    max_candidates: int | None = None,
    max_cells: int | None = None,
) -> tuple[Workload, LeftOut | None]:
    """What of a workload is looked at within the ceilings, by :func:`limited`.

    Args:
        workload: what was asked for.
        num_rows, max_memory_bytes: as for :func:`plan_memory`; where it refuses, less is looked at.
        max_candidates: most marginals of several columns; by default ``DEFAULT_CANDIDATES``.
        max_cells: most cells of all of them together; by default ``DEFAULT_CELLS``.
    """
    domain = workload.domain
    ceilings = Ceilings(max_candidates or DEFAULT_CANDIDATES, max_cells or DEFAULT_CELLS)
    kept, left = limited(workload, ceilings)
    try:
        plan_memory(kept, num_rows, max_memory_bytes)
    except ResourceExceeded:
        each = _clique_bytes(len(domain))
        spare = max_memory_bytes - _table_bytes(domain, num_rows)
        spare -= (1 + len(domain)) * each + KEPT_CELLS * KEPT_CELL_BYTES
        fitting = min(ceilings.candidates, spare // 2 // each)
        cell_bytes = MEASURED_CELL_BYTES + SCORING_THREADS * SCORED_CELL_BYTES
        largest = (spare - fitting * each) // cell_bytes
        if fitting > 0 and largest > 0:
            by = "max-candidates" if fitting == ceilings.candidates else "max-memory"
            return limited(workload, Ceilings(fitting, ceilings.cells, largest, by))
    return kept, left


def fit_bytes(attributes: int) -> int:
    """Memory of fitting the model and of the pages that are drawn at the same time."""
    return SynthesisSettings().fit_rows * attributes * FITTED_CODE_BYTES + PAGE_CODES * 24


@dataclass(frozen=True)
class MemoryPlan:
    """Planned peak memory and the ceilings that hold a run to it.

    Attributes:
        fixed_bytes: what every run on this table needs.
        total_bytes: planned peak at most.
        measured_cells: for :class:`LoopSettings`.
        watched_cells: for :class:`SynthesisSettings`.
        kept_cells: for :meth:`MarginalCounter.keep_up_to`.
        scoring_threads: most threads that there is room for.
    """

    fixed_bytes: int
    total_bytes: int
    measured_cells: int
    watched_cells: int
    kept_cells: int
    scoring_threads: int


def _table_bytes(domain: Domain, num_rows: int) -> int:
    """What every run needs for the process and the rows."""
    rows = num_rows * len(domain) * CODE_BYTES
    return PROCESS_BYTES + rows + fit_bytes(len(domain))


def plan_memory(workload: Workload, num_rows: int, max_memory_bytes: int) -> MemoryPlan:
    """Divide the memory ceiling, or refuse.

    Args:
        workload: the marginals wanted.
        num_rows: most rows of the private table. This number must be public: the ceilings it
            leaves steer what is measured.
        max_memory_bytes: the ceiling.

    Raises:
        ResourceExceeded: the ceiling is too low; the message names the largest marginal.
    """
    domain, candidates = workload.domain, _Candidates.of(workload)
    cells = candidates.largest_cells
    table = _table_bytes(domain, num_rows)
    fixed = table + candidates.bytes(KEPT_CELLS)
    if fixed + cells * MEASURED_CELL_BYTES > max_memory_bytes:
        needed = fixed + cells * MEASURED_CELL_BYTES
        others = needed - num_rows * len(domain) * CODE_BYTES
        needed = max(needed, math.ceil(others / (1 - ROWS_SHARE)))  # as rows get a share of it
        raise ResourceExceeded(_refusal(domain, candidates.largest, needed, max_memory_bytes))
    spare = max_memory_bytes - fixed
    room = (spare - cells * MEASURED_CELL_BYTES) // 4 // KEPT_CELL_BYTES
    kept = min(candidates.cells, max(KEPT_CELLS, min(MOST_KEPT_CELLS, KEPT_CELLS + room)))
    fixed = table + candidates.bytes(kept)
    spare = max_memory_bytes - fixed
    watched = min(SynthesisSettings().watched_cells, spare // 4 // WATCHED_CELL_BYTES)
    measured = max((spare - watched * WATCHED_CELL_BYTES) // MEASURED_CELL_BYTES, cells)
    # More cells than every candidate measured once are never needed.
    measured = min(measured, candidates.cells)
    total = fixed + measured * MEASURED_CELL_BYTES + watched * WATCHED_CELL_BYTES
    more = max(0, max_memory_bytes - total) // (cells * SCORED_CELL_BYTES)
    total = min(total, max_memory_bytes)
    return MemoryPlan(fixed, total, measured, watched, kept, SCORING_THREADS + more)


def _refusal(domain: Domain, largest: Clique, needed: int, max_memory_bytes: int) -> str:
    def megabytes(size: int) -> str:
        return f"{-(-size // 2**20):,} MB"

    cells = domain.size(largest)
    marginal = cells * (MEASURED_CELL_BYTES + SCORING_THREADS * SCORED_CELL_BYTES)
    message = (
        f"the plan needs {megabytes(needed)} and the ceiling is {megabytes(max_memory_bytes)}: "
        "raise --max-memory"
    )
    if 2 * marginal < needed:
        return message
    return (
        f"{message}, ask for fewer ways, or declare coarser bins; the largest marginal, over "
        f"{' x '.join(domain.clique_names(largest))}, has {cells:,} cells and takes "
        f"{megabytes(marginal)} of it"
    )
