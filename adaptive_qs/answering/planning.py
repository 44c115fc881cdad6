"""How a batch is planned for any domain and budget: all that its caller asked for, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from adaptive_qs.answering.measure import check_noise, grid_bits
from adaptive_qs.answering.plan import BatchPlan, plan_batch
from adaptive_qs.answering.resources import BatchLimits
from adaptive_qs.answering.run import divide_units
from adaptive_qs.answering.target import BatchTarget
from adaptive_qs.answering.workloads import QuerySource, resolve_queries
from adaptive_qs.arguments import as_number, shown
from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError
from adaptive_qs.progress import PhaseProgress
from adaptive_qs.strategy.matrix import Factor
from adaptive_qs.strategy.mechanisms.residual_choice import Bases
from adaptive_qs.strategy.restricted.planner import strategy_basis
from adaptive_qs.strategy.settings import SolverSettings

DEFAULT_GAP = SolverSettings().gap


@dataclass(frozen=True)
class Planner:
    """What to plan.

    Attributes:
        workload: what to answer.
        mechanism: a name of ``adaptive_qs.strategy.mechanisms.choice.MECHANISMS``.
        gap: solvers stop where the squared error is proven to be this close to the least.
        limits: ceilings of memory and threads.
        bases: for residualplanner+ only: strategies by column name.
        progress: called with the phase "plan", steps done and steps in all.
    """

    workload: QuerySource
    mechanism: str
    gap: float
    limits: BatchLimits
    bases: Mapping[str, Any] | None
    progress: PhaseProgress | None

    @classmethod
    def of(
        cls,
        workload: QuerySource,
        mechanism: str,
        gap: float,
        limits: BatchLimits,
        bases: Mapping[str, Any] | None,
        progress: PhaseProgress | None,
    ) -> Self:
        """Check the gap.

        Raises:
            InputError: it is not a positive number.
        """
        known = as_number(gap)
        if known is None or not 0 < known < math.inf:
            raise InputError(f"gap is {shown(gap)}: give a positive number such as {DEFAULT_GAP:g}")
        return cls(workload, mechanism, known, limits, bases, progress)

    def plan(self, domain: Domain, target: BatchTarget) -> BatchPlan:
        """Choose what to measure.

        Raises:
            InputError: the workload, the mechanism or the bases do not fit the domain.
            ResourceExceeded: a subworkload is too large for the mechanism's solver.
        """
        settings = SolverSettings(gap=self.gap, max_bytes=self.limits.solver_bytes)
        queries = resolve_queries(self.workload, domain)
        factors = None if self.bases is None else _factors(self.bases, domain)
        jobs = self.limits.jobs
        return plan_batch(queries, target, self.mechanism, settings, factors, jobs, self.progress)

    def measurable(self, domain: Domain, target: BatchTarget) -> BatchPlan:
        """The plan with the integer strategies that are measured, and their errors.

        Raises:
            InputError: as for :meth:`plan`, or the budget is too small for the measurements.
            ResourceExceeded: as for :meth:`plan`, or the noise is too large for exact integers.
        """
        planned = self.plan(domain, target)
        self.limits.check_forecast(planned.forecast)
        bits = grid_bits(planned.mechanism, target.units, self.limits.most_rows)
        choice = replace(planned.choice, mechanism=planned.mechanism.on_grid(bits))
        planned = replace(planned, choice=choice)
        divide_units(planned.mechanism, target.units)
        check_noise(planned.mechanism, target.units)
        return planned


def _factors(bases: Mapping[str, Any], domain: Domain) -> Bases:
    """Bases by name as factors by position; columns that share a matrix share the factor."""
    known: dict[int, Factor] = {}
    factors: dict[int, Factor] = {}
    for name, matrix in bases.items():
        (attribute,) = domain.clique([name])
        if id(matrix) not in known:
            known[id(matrix)] = strategy_basis(matrix)
        factors[attribute] = known[id(matrix)]
    return factors
