"""A run with everything checked that can be checked before the private table is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from adaptive_qs.adaptive.forecast import UnconnectedForecast, total_std
from adaptive_qs.adaptive.loop import LoopSettings
from adaptive_qs.adaptive.preprocessing.gather import Gathered
from adaptive_qs.adaptive.preprocessing.resolve import gather_private, learn_schema
from adaptive_qs.adaptive.preprocessing.shares import (
    DEFAULT_SHARE,
    discovery_share,
    preprocessing_cost,
)
from adaptive_qs.clock import PhaseClock
from adaptive_qs.data.fingerprint import table_bytes, unchanged
from adaptive_qs.data.inputs import read_table
from adaptive_qs.data.review import check_reviewed
from adaptive_qs.data.schema import Schema
from adaptive_qs.data.table import CodedTable
from adaptive_qs.ledger.session import Session
from adaptive_qs.machine import ROWS_SHARE
from adaptive_qs.privacy.budget import float_below
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.guard_rails import GuardRail, check_rails, checked_public_rows, guard_rails
from adaptive_qs.privacy.mechanisms import Mechanisms, audited
from adaptive_qs.release.release import Release
from adaptive_qs.synthesizer.pipeline import RunSettings, measure
from adaptive_qs.synthesizer.request import request_of
from adaptive_qs.synthesizer.resources import RunPlan, plan_run
from adaptive_qs.synthesizer.target import PrivacyTarget
from adaptive_qs.workload.file import WorkloadSpec, resolve_workload


@dataclass(frozen=True)
class Job:
    """What a run will do.

    Attributes:
        schema: the public description of the columns.
        workload: which marginals matter.
        settings: how to spend the budget.
        plan: ceilings of memory and threads, for as many codes as private columns can get.
        session: the budget, in memory or in a ledger.
        learning: the part of it for the bins and values that the schema leaves open.
        doubts: what there is to say about the budget and what it can buy, from public numbers.
        forecast: which columns it will likely leave unconnected.
    """

    schema: Schema
    workload: WorkloadSpec
    settings: RunSettings
    plan: RunPlan
    session: Session
    learning: Cost
    doubts: tuple[str, ...]
    forecast: UnconnectedForecast

    @classmethod
    def of(
        cls,
        schema: Schema,
        workload: WorkloadSpec = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        reference: str = "product",
        learning_share: float = DEFAULT_SHARE,
        max_memory: int | str | None = None,
        workers: int | None = None,
        insecure_seed: int | None = None,
        ledger: str | Path | None = None,
        resume: bool = False,
        anchor: str | Path | None = None,
        unreviewed_schema: bool = False,
        public_rows: int | None = None,
        beyond_limits: bool = False,
    ) -> Self:
        """Check the parameters; see :class:`~adaptive_qs.synthesizer.estimator.Synthesizer`.

        Raises:
            InputError: a parameter or the workload is wrong, the schema is unreviewed, or the
                budget is beyond a limit of :mod:`adaptive_qs.privacy.guard_rails`.
            ResourceExceeded: the plan exceeds ``max_memory``.
            LedgerError: the ledger cannot be used.
            BudgetExceeded: the ledger's total does not allow the budget.
        """
        check_reviewed(schema, unreviewed_schema)
        public_rows = checked_public_rows(public_rows)
        target = PrivacyTarget.of(epsilon, delta, rho, discovery_share(schema))
        settings = RunSettings(target, reference, insecure_seed)
        learning = preprocessing_cost(schema, target.cost, learning_share)
        domain = schema.widest_domain()
        marginals = resolve_workload(workload, domain)
        plan = plan_run(domain, marginals, max_memory, workers)
        forecast = UnconnectedForecast(
            marginals,
            float_below((target.cost - learning).rho),
            LoopSettings(settings.fill, measured_cells=plan.measured_cells),
        )
        rails = budget_rails(target, forecast, public_rows)
        doubts = check_rails(rails, beyond_limits or resume)
        if public_rows is not None and not resume:
            doubts += forecast.doubts(public_rows)
        session = Session(ledger, resume, target.cost, anchor)
        return cls(schema, workload, settings, plan, session, learning, doubts, forecast)

    def run(
        self, source: Any, clock: PhaseClock, before: Callable[[], None] | None = None
    ) -> Release:
        """Spend the budget on a table; inside ``session.working``.

        Bad cells are refused before anything is reserved.

        Args:
            source: the private table.
            clock: told about the phases.
            before: called once nothing stands against it any more, before anything is spent.

        Raises:
            InputError: the table does not fit the schema, or changed while it was read.
            ResourceExceeded: it has more rows than were planned for.
            LedgerError: the ledger cannot be written, or holds no such run to resume.
            BudgetExceeded: the ledger's total does not allow the budget.
        """
        with unchanged(source):
            self.session.recognise(table_bytes(source))
            if not self.schema.private_columns:
                schema = self.schema
                table = self._read(source, schema, clock)
                mechanisms = self._begin(before)
            else:
                gathered = self._gather(source, clock)
                mechanisms = self._begin(before)
                schema = learn_schema(self.schema, gathered, mechanisms, self.learning)
                table = self._read(source, schema, clock)
        workload = resolve_workload(self.workload, schema.domain())
        release = measure(table, schema, workload, self.settings, self.plan, mechanisms, clock)
        self.session.publish(release.digests())
        return release

    def _read(self, source: Any, schema: Schema, clock: PhaseClock) -> CodedTable:
        return read_table(source, schema, clock.steps("read"), self.plan.check_rows)

    def _begin(self, before: Callable[[], None] | None) -> Mechanisms:
        insecure = self.settings.insecure_seed is not None
        budget = self.session.begin(request_of(self), insecure)
        mechanisms = audited(budget) or Mechanisms(budget, self.settings.entropy())
        if before is not None:
            before()
        return mechanisms

    def _gather(self, source: Any, clock: PhaseClock) -> Gathered:
        return gather_private(
            source,
            self.schema,
            self.learning,
            most_bytes=int(ROWS_SHARE * self.plan.max_memory_bytes),
            progress=clock.steps("learn"),
            check_rows=self.plan.check_rows,
        )


def budget_rails(
    target: PrivacyTarget, forecast: UnconnectedForecast, rows: int | None
) -> tuple[GuardRail, ...]:
    """What there is to say about the budget of a run.

    Args:
        target: what the owner asks for.
        forecast: of the loop, which has the part that learning leaves.
        rows: about how many rows there are, as far as is public.
    """
    workload = forecast.workload
    combined = any(len(clique) > 1 for clique in workload.cliques)
    std = total_std(workload.domain, forecast.rho, rows or 0, combined)
    return guard_rails(target.epsilon, target.delta, std, rows, "the number of rows")
