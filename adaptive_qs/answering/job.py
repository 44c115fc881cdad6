"""A batch with everything checked that can be checked before the private table is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from adaptive_qs.adaptive.preprocessing.resolve import gather_private, learn_schema
from adaptive_qs.answering.answers import LOST, Answers
from adaptive_qs.answering.plan import BatchPlan
from adaptive_qs.answering.planning import Planner
from adaptive_qs.answering.request import request_of
from adaptive_qs.answering.target import BatchTarget
from adaptive_qs.answering.workloads import check_learnable
from adaptive_qs.clock import PhaseClock
from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.data.fingerprint import table_bytes, unchanged
from adaptive_qs.data.inputs import read_table
from adaptive_qs.data.schema import Schema
from adaptive_qs.data.table import CodedTable
from adaptive_qs.ledger.session import Session
from adaptive_qs.machine import ROWS_SHARE
from adaptive_qs.privacy.entropy import EntropySource
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.mechanisms import Mechanisms, audited


@dataclass(frozen=True)
class BatchJob:
    """What a batch will do.

    Attributes:
        schema: the public description of the columns.
        planner: what to answer, and how.
        target: the budget of the whole batch.
        learning: the part of it for the bins and values that the schema leaves open.
        session: the budget, in memory or in a ledger.
        entropy: where the noise comes from.
        insecure_seed: of the noise, if it has one.
        clock: told about the phases.
        resumed: ledger of an interrupted run that this one goes on with.
    """

    schema: Schema
    planner: Planner
    target: BatchTarget
    learning: Cost
    session: Session
    entropy: EntropySource
    insecure_seed: int | None
    clock: PhaseClock
    resumed: str | Path | None = None

    @cached_property
    def widest(self) -> BatchPlan:
        """The plan for as many codes as private columns can get.

        Raises:
            InputError, ResourceExceeded: as for :meth:`Planner.measurable`.
        """
        left = self.target.left_of(self.target.budget - self.learning)
        return self.planner.measurable(self.schema.widest_domain(), left)

    def answers(self, source: Any) -> Answers:
        """Read the table; learn what the schema leaves open, which spends a part of the budget.

        Bad cells are refused before anything is reserved.

        Raises:
            InputError: the table does not fit the schema, or changed while it was read.
            ResourceExceeded: it has more rows than were planned for.
            LedgerError: the ledger cannot be used, or holds no such run to resume.
            BudgetExceeded: the ledger's total does not allow the budget.
        """
        self.clock.start("plan")
        schema, planned, begin = self.schema, self.widest, self._begin
        with unchanged(source), self.session.working(LOST):
            self.session.recognise(table_bytes(source))
            if schema.private_columns:
                schema, mechanisms = self._learnt(source)
                ledger = mechanisms.ledger
                left = self.target.left_of(ledger.limit - ledger.spent)
                self.clock.start("plan")
                planned = self.planner.measurable(schema.domain(), left)
                begin = _always(mechanisms)
            table = self._read(source, schema)
        counter = MarginalCounter(table)
        insecure = self.entropy.insecure
        return Answers(
            planned, self.target, schema, counter, self.session, begin, insecure, self.clock,
            self.resumed,
        )  # fmt: skip

    def _begin(self) -> Mechanisms:
        request = request_of(
            self.widest, self.target, self.schema, self.planner.gap, self.learning,
            self.insecure_seed,
        )  # fmt: skip
        budget = self.session.begin(request, self.entropy.insecure)
        return audited(budget) or Mechanisms(budget, self.entropy)

    def _learnt(self, source: Any) -> tuple[Schema, Mechanisms]:
        check_learnable(self.widest.workload, self.schema)
        limits = self.planner.limits
        gathered = gather_private(
            source,
            self.schema,
            self.learning,
            most_bytes=int(ROWS_SHARE * limits.max_memory_bytes),
            progress=self.clock.steps("learn"),
            check_rows=limits.check_rows,
        )
        mechanisms = self._begin()
        return learn_schema(self.schema, gathered, mechanisms, self.learning), mechanisms

    def _read(self, source: Any, schema: Schema) -> CodedTable:
        return read_table(source, schema, self.clock.steps("read"), self.planner.limits.check_rows)


def _always(mechanisms: Mechanisms) -> Callable[[], Mechanisms]:
    return lambda: mechanisms
