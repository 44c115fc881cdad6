"""What two runs on neighbouring tables may differ in, and findings where they differ in more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from adaptive_qs.audit.replay import Run
from adaptive_qs.privacy.events import GaussianEvent, PartitionEvent, SelectionEvent
from adaptive_qs.privacy.mechanisms import Counts, PrimitiveCall


class Check(StrEnum):
    """What is compared."""

    COURSE = "the same draws in the same order, with the same parameters"
    CHARGED = "every draw charged"
    COUNTS = "counts differ by at most the sensitivity charged"
    SCORES = "scores differ by at most the sensitivity declared"
    OUTPUTS = "outputs equal to the last byte"
    SEEN = "the row that differs is seen"


@dataclass(frozen=True)
class Finding:
    """A check that failed; holds no private value.

    Attributes:
        check: which one.
        where: the run.
        label: the event or artefact.
    """

    check: Check
    where: str
    label: str


@dataclass
class Tally:
    """How often each check was made, and what was found.

    Attributes:
        made: comparisons by check.
        findings: those that failed, in order.
    """

    made: Counter[Check] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def note(self, check: Check, passed: bool, where: str, label: str) -> None:
        """Count a check; keep it where it failed."""
        self.made[check] += 1
        if not passed:
            self.findings.append(Finding(check, where, label))


def compare(recorded: Run, replayed: Run, where: str, tally: Tally) -> int:
    """Compare a run with its replay on a neighbour.

    Args:
        recorded: the run whose outputs were frozen.
        replayed: the run that got them.
        where: names the two in findings.
        tally: receives the checks.

    Returns:
        How many draws had inputs that differed.
    """
    for run in (recorded, replayed):
        drawn = tuple(call.event for call in run.calls)
        # An event at which a replay stops is charged and not drawn.
        same = drawn == run.charged[: len(drawn)]
        complete = len(drawn) == len(run.charged) or (run is replayed and not _finished(run))
        tally.note(Check.CHARGED, same and complete, where, _first_difference(run))
    moved = 0
    for one, other in zip(recorded.calls, replayed.calls):
        tally.note(Check.COURSE, _same_request(one, other), where, other.event.label)
        moved += not (np.array_equal(one.inputs, other.inputs) and one.values == other.values)
        _compare_inputs(one, other, where, tally)
    if replayed.stopped_at is not None:
        tally.note(Check.COURSE, False, where, replayed.stopped_at)
    elif replayed.failure is not None:
        tally.note(Check.COURSE, False, where, f"stopped by {replayed.failure}")
    else:
        as_long = len(recorded.calls) == len(replayed.calls)
        tally.note(Check.COURSE, as_long, where, "number of draws")
        for name in sorted({*recorded.artefacts, *replayed.artefacts}):
            equal = recorded.artefacts.get(name) == replayed.artefacts.get(name)
            tally.note(Check.OUTPUTS, equal, where, name)
    return moved


def squared_distance(one: Counts, other: Counts) -> int:
    """Squared L2 distance of two integer arrays of one shape, exactly."""
    difference = one.ravel() - other.ravel()  # both below 2**62
    if difference.size and int(abs(difference).max()) ** 2 * difference.size >= 2**62:
        difference = difference.astype(object)
    return int((difference * difference).sum())


def _compare_inputs(one: PrimitiveCall, other: PrimitiveCall, where: str, tally: Tally) -> None:
    label = one.event.label
    if isinstance(one.event, PartitionEvent):
        here, there = (dict(zip(c.values, c.inputs.tolist())) for c in (one, other))
        changes = [here.get(v, 0) - there.get(v, 0) for v in {**here, **there}]
        tally.note(Check.COUNTS, sum(map(abs, changes)) <= 1, where, label)
    elif one.inputs.shape != other.inputs.shape:
        return
    elif isinstance(one.event, GaussianEvent):
        distance = squared_distance(one.inputs, other.inputs)
        tally.note(Check.COUNTS, distance <= one.event.squared_sensitivity, where, label)
    elif isinstance(one.event, SelectionEvent) and one.score_sensitivity is not None:
        largest = max((abs(d) for d in _differences(one.inputs, other.inputs)), default=0)
        tally.note(Check.SCORES, largest <= one.score_sensitivity, where, label)
    else:
        tally.note(Check.COUNTS, False, where, f"{label}: no rule for {type(one.event).__name__}")


def _differences(one: Counts, other: Counts) -> Iterator[int]:
    return (a - b for a, b in zip(one.tolist(), other.tolist()))


def _same_request(one: PrimitiveCall, other: PrimitiveCall) -> bool:
    """Whether all but the private inputs is the same; which values occur is one of them."""
    shapes = one.inputs.shape == other.inputs.shape or isinstance(one.event, PartitionEvent)
    return (
        one.event == other.event
        and one.score_sensitivity == other.score_sensitivity
        and shapes
        and np.array_equal(one.output, other.output)
    )


def _finished(run: Run) -> bool:
    return run.stopped_at is None and run.failure is None


def _first_difference(run: Run) -> str:
    """Label of the first draw that was not charged, or of the first charge without a draw."""
    for call, event in zip(run.calls, run.charged):
        if call.event != event:
            return call.event.label
    longer = [*(c.event for c in run.calls[len(run.charged) :]), *run.charged[len(run.calls) :]]
    return longer[0].label if longer else "all draws"
