"""A run with everything checked that can be checked before the private table is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

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
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.mechanisms import Mechanisms, audited
from adaptive_qs.release.release import Release
from adaptive_qs.synthesizer.pipeline import RunSettings, WorkloadSpec, measure, resolve_workload
from adaptive_qs.synthesizer.request import request_of
from adaptive_qs.synthesizer.resources import RunPlan, plan_run
from adaptive_qs.synthesizer.target import PrivacyTarget


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
    """

    schema: Schema
    workload: WorkloadSpec
    settings: RunSettings
    plan: RunPlan
    session: Session
    learning: Cost

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
        unreviewed_schema: bool = False,
    ) -> Self:
        """Check the parameters; see :class:`~adaptive_qs.synthesizer.estimator.Synthesizer`.

        Raises:
            InputError: a parameter or the workload is wrong, or the schema is unreviewed.
            ResourceExceeded: the plan exceeds ``max_memory``.
            LedgerError: the ledger cannot be used.
            BudgetExceeded: the ledger's total does not allow the budget.
        """
        check_reviewed(schema, unreviewed_schema)
        target = PrivacyTarget.of(epsilon, delta, rho, discovery_share(schema))
        settings = RunSettings(target, reference, insecure_seed)
        learning = preprocessing_cost(schema, target.cost, learning_share)
        domain = schema.widest_domain()
        plan = plan_run(domain, resolve_workload(workload, domain), max_memory, workers)
        session = Session(ledger, resume, target.cost)
        return cls(schema, workload, settings, plan, session, learning)

    def run(self, source: Any, clock: PhaseClock) -> Release:
        """Spend the budget on a table; inside ``session.working``.

        Bad cells are refused before anything is reserved.

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
                mechanisms = self._begin()
            else:
                gathered = self._gather(source, clock)
                mechanisms = self._begin()
                schema = learn_schema(self.schema, gathered, mechanisms, self.learning)
                table = self._read(source, schema, clock)
        workload = resolve_workload(self.workload, schema.domain())
        return measure(table, schema, workload, self.settings, self.plan, mechanisms, clock)

    def _read(self, source: Any, schema: Schema, clock: PhaseClock) -> CodedTable:
        return read_table(source, schema, clock.steps("read"), self.plan.check_rows)

    def _begin(self) -> Mechanisms:
        insecure = self.settings.insecure_seed is not None
        budget = self.session.begin(request_of(self), insecure)
        return audited() or Mechanisms(budget, self.settings.entropy())

    def _gather(self, source: Any, clock: PhaseClock) -> Gathered:
        return gather_private(
            source,
            self.schema,
            self.learning,
            most_bytes=int(ROWS_SHARE * self.plan.max_memory_bytes),
            progress=clock.steps("learn"),
            check_rows=self.plan.check_rows,
        )
