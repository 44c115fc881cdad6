"""The plan of a batch of answers: expected errors, bounds, time and memory, without data."""

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property

from adaptive_qs.answering.measure import MAX_ROWS, divide_units, grid_bits
from adaptive_qs.domain import Domain
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.machine import PROCESS_BYTES, ROWS_SHARE, PhaseProgress, plan_workers
from adaptive_qs.privacy.budget import BudgetWarning, list_budget_warnings
from adaptive_qs.run.budget import Limits, PrivacyTarget
from adaptive_qs.run.options import DEFAULT_GAP
from adaptive_qs.strategy.choose import MechanismChoice, choose_mechanism
from adaptive_qs.strategy.mechanism import Mechanism
from adaptive_qs.strategy.solution import SolverSettings
from adaptive_qs.table.coded import CODE_BYTES
from adaptive_qs.workload.families import count_queries
from adaptive_qs.workload.file import QuerySource, resolve_queries, workload_digest
from adaptive_qs.workload.workload import QueryWorkload

# Memory, time and output of an `answer` run, from public quantities.

TABLE_BYTES = 96 * 2**20
"""Memory of batches of answers that are written to a file."""
HELD_MATRICES, PASSING_MATRICES = 3, 5
"""Number of arrays of the size of each strategy that are kept (integers, inverse, covariance), and
of temporary arrays of the size of the largest strategy while it is rounded to integers."""
CELL_BYTES = 48
"""Memory of one cell of a measurement: count, integer answer, noise, noisy answer and estimate."""
KEPT_BYTES = 8
"""Memory of one cell of a measurement that is kept for later attribute sets."""
ANSWER_BYTES = 64
"""Memory of one answer of the current attribute set: estimate, variance, interval and text."""
NOISE_PER_SECOND = 6e6
"""Exact draws per second on one core."""
ANSWERS_PER_SECOND = 6e6
"""Answers with variances per second on one core, without writing them."""
MATRIX_PRODUCTS = 6
"""Number of products of square matrices, or operations of equal cost, for the integers, the
covariance and the inverse of a strategy."""
PRODUCT_RATE = 3e10
"""Multiply-adds of these products per second on one core."""


@dataclass(frozen=True)
class Forecast:
    """The resources of a run; times are estimates for one core.

    Attributes:
        memory_bytes: Peak memory of the process without the private table.
        strategy_bytes: The part of it for the matrices of strategies.
        seconds: Time to measure and answer, without reading the table and writing the answers.
        largest_set: Number of queries of the largest attribute set.
    """

    memory_bytes: int
    strategy_bytes: int
    seconds: float
    noise_draws: int
    largest_set: int


def forecast(mechanism: Mechanism) -> Forecast:
    """Add up the measurements and answers of a plan."""
    draws, largest, kept = 0, 0, 0
    strategies: dict[int, int] = {}
    deepest = max((part.degree for part in mechanism.workload.parts), default=0)
    for number in range(mechanism.num_measurements):
        measurement = mechanism.measurement(number)
        cells = math.prod(measurement.strategy.shape)
        for factor in measurement.strategy.factors:
            strategies[id(factor)] = factor.measured_entries
        draws += cells
        largest = max(largest, cells)
        if len(measurement.clique) < deepest:
            kept += cells
    answers = largest_set = 0
    for part in mechanism.workload.parts:
        answers += part.num_queries
        for queries in {part.queries(index) for index in range(len(part))}:
            largest_set = max(largest_set, count_queries(queries))
    matrices = 8 * HELD_MATRICES * sum(strategies.values())
    matrices += 8 * PASSING_MATRICES * max(strategies.values(), default=0)
    cells = kept * KEPT_BYTES + largest * CELL_BYTES + largest_set * ANSWER_BYTES
    memory = PROCESS_BYTES + TABLE_BYTES + matrices + cells
    seconds = draws / NOISE_PER_SECOND + answers / ANSWERS_PER_SECOND
    seconds += sum(n**1.5 for n in strategies.values()) * MATRIX_PRODUCTS / PRODUCT_RATE
    return Forecast(memory, matrices, seconds, draws, largest_set)


EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Values of ε for which a plan shows the expected error."""


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """A mechanism for a workload, chosen without data, and its errors at a budget.

    Every error is at the cost β of the target and scales with 1/√β.

    Attributes:
        workload: The queries.
        target: The budget.
        choice: The mechanism, and the name under which it was chosen.
        seconds: The time of planning, in seconds.
    """

    workload: QueryWorkload
    target: PrivacyTarget
    choice: MechanismChoice
    seconds: float

    def __repr__(self) -> str:
        return (
            f"<BatchPlan of {self.queries:,} queries by {self.choice.name}, epsilon "
            f"{self.target.epsilon:g}, delta {self.target.delta:g}, expected RMSE "
            f"{self.rmse:.4g} rows>"
        )

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism."""
        return self.choice.mechanism

    @cached_property
    def queries(self) -> int:
        """The number of queries."""
        return self.workload.num_queries

    @cached_property
    def rmse(self) -> float:
        """The RMSE √(Σ weight · variance / queries) (rows; He et al., section 8.2, appendix E)."""
        return self._rmse(self.mechanism.total_error, self.target.cost)

    @cached_property
    def lower_bound_rmse(self) -> float:
        """A lower bound of the RMSE of any mechanism of the same kind (rows)."""
        return self._rmse(self.mechanism.lower_bound, self.target.cost)

    @property
    def gap(self) -> float:
        """The relative gap between the squares of RMSE and lower bound."""
        return (self.rmse / self.lower_bound_rmse) ** 2 - 1

    @cached_property
    def max_variance(self) -> tuple[float, bool]:
        """The largest variance of an answer (rows²), and whether it is exact or a bound."""
        value, exact = self.mechanism.largest_variance()
        return value / self.target.cost, exact

    @cached_property
    def forecast(self) -> Forecast:
        """The memory and time of `answer`."""
        return forecast(self.mechanism)

    def by_epsilon(self) -> list[tuple[float, float, float]]:
        """Return (ε, β, expected RMSE) for several ε at the δ of the target, and for the target."""
        targets = [self.target.at(epsilon) for epsilon in EPSILONS]
        if all(not math.isclose(t.epsilon, self.target.epsilon, rel_tol=1e-6) for t in targets):
            targets = sorted([*targets, self.target], key=lambda t: t.epsilon)
        error = self.mechanism.total_error
        return [(t.epsilon, t.cost, self._rmse(error, t.cost)) for t in targets]

    def _rmse(self, total_error: float, cost: float) -> float:
        return math.sqrt(total_error / cost / self.queries)


def answers_limits(
    domain: Domain, max_memory: int | str | None = None, workers: int | None = None
) -> Limits:
    """Return the limits of a batch for a memory such as "3GB" and a number of threads."""
    return Limits.of(domain, max_memory, plan_workers(workers), CODE_BYTES, MAX_ROWS)


def check_forecast(forecast: Forecast, limits: Limits) -> None:
    """Raise ResourceExceeded if a plan does not fit into the memory that the rows leave."""
    left = limits.max_memory_bytes * (1 - ROWS_SHARE)
    if forecast.memory_bytes <= left:
        return
    remedy = f"use fewer than {forecast.largest_set:,} queries about one set of columns"
    if 2 * forecast.strategy_bytes > forecast.memory_bytes:
        remedy = "use --mechanism residualplanner, or declare coarser bins"
    raise ResourceExceeded(
        f"answering needs about {forecast.memory_bytes / 2**20:,.0f} MB in addition to the table, "
        f"and three quarters of --max-memory are {left / 2**20:,.0f} MB: raise it, or {remedy}"
    )


@dataclass(frozen=True)
class Batch:
    """Queries on a domain with a budget; see :class:`~adaptive_qs.run.states.Work`.

    Attributes:
        workload: The queries, on any domain.
        target: The budget, or what learning leaves of it.
        mechanism: A name of ``adaptive_qs.strategy.MECHANISMS``.
        gap: Relative excess of the squared error over its lower bound at which solvers stop.
        progress: Called with the phase "plan", the steps done and the total of steps.
    """

    workload: QuerySource
    domain: Domain
    target: PrivacyTarget
    limits: Limits
    mechanism: str = "auto"
    gap: float = DEFAULT_GAP
    progress: PhaseProgress | None = None

    def plan(self) -> BatchPlan:
        """Choose the mechanism.

        Raises:
            InputError: If the workload or the mechanism does not fit the domain.
            ResourceExceeded: If a part of the workload is too large for the solver.
        """
        settings = SolverSettings(gap=self.gap, max_bytes=self.limits.solver_bytes)
        queries = resolve_queries(self.workload, self.domain)
        begun = time.perf_counter()

        def report(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress("plan", done, total)

        choice = choose_mechanism(queries, self.mechanism, settings, self.limits.workers, report)
        return BatchPlan(queries, self.target, choice, time.perf_counter() - begun)

    @cached_property
    def measurable(self) -> BatchPlan:
        """The plan with integer strategies, which are measured, and their errors.

        Raises:
            InputError: As for :meth:`plan`, or if the budget is too small for the measurements.
            ResourceExceeded: As for :meth:`plan`, or if the plan exceeds the memory.
        """
        planned, units = self.plan(), self.target.units
        check_forecast(planned.forecast, self.limits)
        bits = grid_bits(planned.mechanism, units, self.limits.countable_rows)
        choice = replace(planned.choice, mechanism=planned.mechanism.on_grid(bits))
        divide_units(choice.mechanism, units)
        return replace(planned, choice=choice)

    def list_warnings(self, target: PrivacyTarget, rows: int | None) -> tuple[BudgetWarning, ...]:
        """Return warnings about the budget of the whole run."""
        std = target.within(target.budget).cost ** -0.5
        counted = "a count with the whole budget"
        return list_budget_warnings(target.epsilon, target.delta, std, rows, counted, target.unit)

    def warnings(self, rows: int) -> tuple[str, ...]:
        """Return nothing, since every answer has its own error."""
        return ()

    def request_fields(self) -> dict[str, str]:
        """Return the fields of the request: what is measured and how."""
        planned = self.measurable
        return {
            "command": "answer",
            "workload": workload_digest(planned.workload),
            "mechanism": f"{planned.choice.name}, {planned.mechanism.num_measurements} "
            "measurements",
            "gap": repr(self.gap),
        }
