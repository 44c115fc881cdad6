"""The main job, step by step: everything is checked before any budget is spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from adaptive_qs.adaptive.loop import LoopSettings, Round, run_loop
from adaptive_qs.arguments import shown
from adaptive_qs.clock import PhaseClock
from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.data.schema import Schema
from adaptive_qs.data.table import CodedTable
from adaptive_qs.errors import InputError, SpentNote
from adaptive_qs.faults import MEASURED, reach
from adaptive_qs.privacy.budget import float_below
from adaptive_qs.privacy.entropy import EntropySource, InsecureSeed, SystemEntropy
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.release.release import Release
from adaptive_qs.release.statement import LedgerEntry
from adaptive_qs.synthesizer.resources import RunPlan
from adaptive_qs.synthesizer.target import PrivacyTarget
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

    counter = MarginalCounter(table)
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
