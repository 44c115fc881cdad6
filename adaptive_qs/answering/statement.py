"""The privacy statement of a batch of answers, for the file beside them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from adaptive_qs.answering.plan import BatchPlan
from adaptive_qs.answering.target import BatchTarget
from adaptive_qs.data.schema import Schema
from adaptive_qs.data.stamps import PRIVATE, Stamp
from adaptive_qs.privacy.budget import float_above
from adaptive_qs.privacy.events import Cost, Event, GaussianEvent
from adaptive_qs.privacy.labels import Purpose, read_label
from adaptive_qs.privacy.transcript import Record, Transcript
from adaptive_qs.release.fact import NonNegative, total_cost
from adaptive_qs.release.facts import ANSWERS, facts_of
from adaptive_qs.release.paid import mechanisms_of
from adaptive_qs.release.statement import Hex, LedgerEntry, Loss, Statement
from adaptive_qs.workload.digest import workload_digest

_BATCH = (Purpose.STRATEGY, Purpose.QUERIES)


class Charges(BaseModel):
    """Charges of equal parameters; the label names the first of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    times: Annotated[int, Field(ge=1, le=2**62)]
    charge: Record

    @property
    def cost(self) -> Cost:
        """Of all of them."""
        one = Cost.of([self.charge.event()])
        return Cost(self.times * one.rho_units, self.times * one.delta_units)


class AnswersManifest(Statement):
    """What a batch of answers states.

    Raises:
        ValueError: as for :class:`Statement`, or charges that do not add up to the facts.
    """

    kind: Literal["answers"] = "answers"
    mechanism: str
    """The name of what was measured, as `plan` gives it."""
    workload: Hex
    """SHA-256 of what was asked."""
    queries: Annotated[int, Field(ge=1)]
    cost: Loss
    """Privacy cost β = 2ρ of He et al.: the budget."""
    expected_rmse: NonNegative
    """Planned without data (rows)."""
    lower_bound_rmse: NonNegative
    """No mechanism of the same kind has a smaller one (rows)."""
    charges: Annotated[tuple[Charges, ...], FailFast()]
    """Every charge, those with equal parameters together."""

    @property
    def charges_in(self) -> str:
        """The manifest itself."""
        return "the field charges of the manifest"

    @model_validator(mode="after")
    def _check_charges(self) -> Self:
        if sum((some.cost for some in self.charges), Cost()) != total_cost(self.facts):
            raise ValueError("the charges do not add up to the facts")
        return self


def statement_of_answers(
    plan: BatchPlan,
    target: BatchTarget,
    schema: Schema,
    events: Sequence[Event],
    stamp: Stamp,
    confidence: float,
    ledger: LedgerEntry | None = None,
) -> AnswersManifest:
    """The statement of a finished batch.

    Where all noise is that of the plan, (ε, δ) follows from Gaussian DP; where bins or values were
    learnt as well, from zCDP.

    Args:
        plan: what was measured.
        target: the budget of the whole run, of which the plan's is what learning left.
        schema: as used, with whatever was learnt.
        events: every charge.
        stamp: whether the answers are private.
        confidence: of the intervals.
        ledger: where a durable ledger keeps the charges.

    Raises:
        ValueError: the charges exceed the target, or do not imply its (ε, δ).
    """
    cost = Cost.of(events)
    gaussian = all(
        isinstance(event, GaussianEvent) and read_label(event.label).purpose in _BATCH
        for event in events
    )
    return AnswersManifest(
        stamp=stamp,
        rho=target.rho,
        rho_spent=float_above(cost.rho),
        epsilon=target.epsilon,
        delta=target.delta,
        delta_spent=float_above(cost.delta),
        accountant="Gaussian DP" if gaussian else "zCDP",
        mu=math.nextafter(math.sqrt(target.cost), math.inf) if gaussian else None,
        mechanisms=mechanisms_of(events),
        entropy="operating system CSPRNG" if stamp == PRIVATE else "insecure seed",
        settings={"confidence": confidence},
        schema_fingerprint=schema.fingerprint,
        ledger=ledger,
        facts=facts_of(events, schema, ANSWERS),
        mechanism=plan.choice.name,
        workload=workload_digest(plan.workload),
        queries=plan.queries,
        cost=target.cost,
        expected_rmse=plan.rmse,
        lower_bound_rmse=plan.lower_bound_rmse,
        charges=charges_of(events),
    )


def charges_of(events: Iterable[Event]) -> tuple[Charges, ...]:
    """The charges, counted by their parameters, in the order in which each kind came first."""
    labels: dict[Event, str] = {}
    times: Counter[Event] = Counter()
    for event in events:
        bare = replace(event, label="charge")
        labels.setdefault(bare, event.label)
        times[bare] += 1
    first = [replace(bare, label=label) for bare, label in labels.items()]
    records = Transcript.of(first).events
    return tuple(
        Charges(times=count, charge=record) for count, record in zip(times.values(), records)
    )
