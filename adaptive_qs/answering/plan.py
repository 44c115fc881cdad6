"""What a batch release would look like: expected errors, certificates, time and memory; no data."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property

from adaptive_qs.answering.forecast import Forecast, forecast
from adaptive_qs.answering.target import BatchTarget
from adaptive_qs.progress import PhaseProgress
from adaptive_qs.strategy.mechanisms.choice import MechanismChoice, choose_mechanism
from adaptive_qs.strategy.mechanisms.mechanism import Mechanism
from adaptive_qs.strategy.mechanisms.residual_choice import Bases
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.workload.query_workload import QueryWorkload

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Privacy losses for which a plan tells the expected error."""


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """A mechanism chosen for a workload, and what it promises at a privacy cost.

    Every error is at the target's cost β and scales with 1/√β; nothing depends on data.

    Attributes:
        workload: what is to be answered.
        target: the privacy cost.
        choice: the mechanism, under the name that was chosen.
        seconds: how long planning took.
    """

    workload: QueryWorkload
    target: BatchTarget
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
        """What is measured."""
        return self.choice.mechanism

    @cached_property
    def queries(self) -> int:
        """Number of queries."""
        return self.workload.num_queries

    @cached_property
    def rmse(self) -> float:
        """√(Σ weight · variance / queries), rows (He et al., section 8.2 and appendix E)."""
        return self._rmse(self.mechanism.total_error, self.target.cost)

    @cached_property
    def lower_bound_rmse(self) -> float:
        """No mechanism of the same kind has a smaller one, whatever its strategies (rows)."""
        return self._rmse(self.mechanism.lower_bound, self.target.cost)

    @property
    def gap(self) -> float:
        """Relative gap between the squares of the two."""
        return (self.rmse / self.lower_bound_rmse) ** 2 - 1

    @cached_property
    def max_variance(self) -> tuple[float, bool]:
        """Largest variance of any answer (rows²), and whether it is exact or an upper bound."""
        value, exact = self.mechanism.largest_variance()
        return value / self.target.cost, exact

    @cached_property
    def forecast(self) -> Forecast:
        """Memory and time that `answer` will take, and the size of the answers."""
        return forecast(self.mechanism)

    def by_epsilon(self) -> list[tuple[float, float, float]]:
        """(ε, β, expected RMSE) for a range of ε at the target's δ and for the target itself."""
        targets = [self.target.at(epsilon) for epsilon in EPSILONS]
        if all(not math.isclose(t.epsilon, self.target.epsilon, rel_tol=1e-6) for t in targets):
            targets = sorted([*targets, self.target], key=lambda t: t.epsilon)
        error = self.mechanism.total_error
        return [(t.epsilon, t.cost, self._rmse(error, t.cost)) for t in targets]

    def _rmse(self, total_error: float, cost: float) -> float:
        return math.sqrt(total_error / cost / self.queries)


def plan_batch(
    workload: QueryWorkload,
    target: BatchTarget,
    mechanism: str = "auto",
    settings: SolverSettings | None = None,
    bases: Bases | None = None,
    jobs: int = 1,
    progress: PhaseProgress | None = None,
) -> BatchPlan:
    """Choose what to measure.

    Args:
        workload: what is to be answered.
        target: the privacy cost.
        mechanism: a name of :data:`adaptive_qs.strategy.mechanisms.choice.MECHANISMS`.
        settings: gap, iterations and memory of the solvers.
        bases: for residualplanner+ only: strategies of some attributes.
        jobs: threads that solve.
        progress: told the phase "plan", and how many problems of how many are solved.

    Raises:
        InputError: an unknown mechanism, or one that cannot answer such queries.
        ResourceExceeded: a subworkload is too large for the mechanism's solver.
    """
    begun = time.perf_counter()

    def tell(done: int, total: int) -> None:
        if progress is not None:
            progress("plan", done, total)

    choice = choose_mechanism(workload, mechanism, settings, bases, jobs, tell)
    return BatchPlan(workload, target, choice, time.perf_counter() - begun)
