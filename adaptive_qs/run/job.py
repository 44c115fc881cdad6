"""The main job, step by step: everything is checked before any budget is spent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from adaptive_qs.arguments import shown
from adaptive_qs.errors import InputError, SpentNote
from adaptive_qs.learn.gather import Gathered
from adaptive_qs.learn.schema import (
    DEFAULT_SHARE,
    discovery_share,
    gather_private,
    learn_schema,
    preprocessing_cost,
)
from adaptive_qs.loop.forecast import UnconnectedForecast, total_std
from adaptive_qs.loop.loop import LoopSettings, Round, run_loop
from adaptive_qs.machine import MEASURED, ROWS_SHARE, PhaseClock, reach
from adaptive_qs.privacy.budget import (
    GuardRail,
    check_rails,
    checked_public_rows,
    float_below,
    guard_rails,
)
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.mechanisms import Mechanisms, audited
from adaptive_qs.privacy.noise import EntropySource, InsecureSeed, SystemEntropy
from adaptive_qs.release.release import Release
from adaptive_qs.release.statement import LedgerEntry
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.run.limits import RunPlan, plan_run
from adaptive_qs.run.request import request_of
from adaptive_qs.run.session import Session
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.count import counter_of
from adaptive_qs.table.encode import read_table, table_bytes, unchanged
from adaptive_qs.table.schema import Schema, check_reviewed
from adaptive_qs.workload.file import WorkloadSpec, resolve_workload
from adaptive_qs.workload.workload import Workload

LOOP_STEPS = 1_000
"""Steps in which the loop reports its progress: thousandths of the budget."""

SPENT_IN_VAIN = SpentNote(
    "part of the budget was spent before anything could be released: count all of it as spent"
)


@dataclass(frozen=True)
class RunSettings:
    """How a run spends its budget; public.

    Attributes:
        target: the budget.
        reference: "product" or "uniform"; see :class:`LoopSettings`.
        insecure_seed: makes the noise reproducible and the release not private.
    """

    target: PrivacyTarget
    reference: str = "product"
    insecure_seed: int | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.reference, str) and self.reference in ("product", "uniform")):
            raise InputError(f"reference is {shown(self.reference)}: give 'product' or 'uniform'")
        self.entropy()

    @property
    def fill(self) -> Literal["product", "uniform"]:
        """The reference, checked."""
        return "uniform" if self.reference == "uniform" else "product"

    def entropy(self) -> EntropySource:
        """Where the noise comes from.

        Raises:
            InputError: the seed is not a non-negative integer.
        """
        return SystemEntropy() if self.insecure_seed is None else InsecureSeed(self.insecure_seed)


def measure(
    table: CodedTable,
    schema: Schema,
    workload: Workload,
    settings: RunSettings,
    plan: RunPlan,
    mechanisms: Mechanisms,
    clock: PhaseClock,
) -> Release:
    """Spend the budget on a table; the only step that costs privacy.

    Args:
        table: the private rows.
        schema: their public description.
        workload: the marginals that matter.
        settings: how to spend the budget.
        plan: ceilings of memory and threads.
        mechanisms: charges, then draws; what its ledger has left of the budget is spent.
        clock: told about the phase "loop".

    Raises:
        ResourceExceeded: the table has more rows than were planned for; nothing is spent.
    """
    plan.check_rows(table.num_rows)
    clock.start("loop")
    target = settings.target
    loop = LoopSettings(settings.fill, measured_cells=plan.measured_cells)

    def on_round(_: Round, part: float) -> None:
        clock("loop", round(part * LOOP_STEPS), LOOP_STEPS)

    counter = counter_of(table)
    ledger = mechanisms.ledger
    rho = min(target.rho, float_below((ledger.limit - ledger.spent).rho))
    result = run_loop(counter, workload, mechanisms, rho, loop, plan.workers, on_round)
    reach(MEASURED)
    return Release.of_run(
        result,
        schema,
        workload,
        mechanisms,
        loop,
        (target.rho, target.epsilon, target.delta),
        plan.watched_cells,
        plan.most_rows,
        LedgerEntry.of(ledger.place),
    )


# A run with everything checked that can be checked before the private table is read.


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
        """Check the parameters; see :class:`~adaptive_qs.synthesizer.Synthesizer`.

        Raises:
            InputError: a parameter or the workload is wrong, the schema is unreviewed, or the
                budget is beyond a limit of :mod:`adaptive_qs.privacy.budget`.
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
