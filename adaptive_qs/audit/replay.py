"""A recorded run compared with its replay on a neighbouring table, draw by draw, byte by byte."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from adaptive_qs.privacy.budget import Ledger
from adaptive_qs.privacy.events import Event, GaussianEvent, PartitionEvent, SelectionEvent
from adaptive_qs.privacy.mechanisms import Counts, Mechanisms, PrimitiveCall
from adaptive_qs.privacy.noise import EntropySource

Job = Callable[[Mechanisms], Mapping[str, bytes]]
"""Code under audit: it draws from the given mechanisms only, and returns all that it publishes."""


class Diverged(Exception):
    """A replayed run requested another event than the recorded run."""

    def __init__(self, event: Event) -> None:
        super().__init__("the run on the neighbour took another course")
        self.event = event


class Recorder(Mechanisms):
    """Mechanisms that charge and draw as usual, and keep every draw with its private inputs."""

    def __init__(self, ledger: Ledger, entropy: EntropySource) -> None:
        self.calls: list[PrimitiveCall] = []
        super().__init__(ledger, entropy, self.calls.append)


class Replayer(Recorder):
    """Mechanisms that charge as usual and return what another run drew.

    Every draw raises :class:`Diverged` if its event is not the recorded one.
    """

    def __init__(
        self, ledger: Ledger, entropy: EntropySource, recorded: Sequence[PrimitiveCall]
    ) -> None:
        """Replay ``recorded``; nothing is drawn from ``entropy``."""
        super().__init__(ledger, entropy)
        self._recorded = iter(recorded)

    def _next_output(self, event: Event, *private: object) -> Any:
        call = next(self._recorded, None)
        if call is None or call.event != event:
            raise Diverged(event)
        return call.output

    _draw_counts = _draw_selection = _draw_values = _next_output  # type: ignore[assignment]


@dataclass(frozen=True)
class Run:
    """The course of one run, private inputs included.

    Attributes:
        charged: every event in the ledger.
        artefacts: what the run publishes, by name.
        stopped_at: label of the event at which a replay left the recorded course.
        failure: type of the error that ended a replay.
    """

    calls: tuple[PrimitiveCall, ...]
    charged: tuple[Event, ...]
    artefacts: Mapping[str, bytes]
    stopped_at: str | None = None
    failure: str | None = None


def record(job: Job, ledger: Ledger, entropy: EntropySource, known: Run | None = None) -> Run:
    """Run a job on an unspent ledger, and keep all that it drew.

    If a run of the job on a neighbouring table is known, its outputs are returned again, nothing is
    drawn, and an error is a finding.
    """
    if known is None:
        mechanisms = Recorder(ledger, entropy)
    else:
        mechanisms = Replayer(ledger, entropy, known.calls)
    stopped_at = failure = None
    artefacts: Mapping[str, bytes] = {}
    try:
        artefacts = job(mechanisms)
    except Diverged as error:
        stopped_at = error.event.label
    except Exception as error:
        if known is None:
            raise
        failure = type(error).__name__
    return Run(tuple(mechanisms.calls), tuple(ledger.events), artefacts, stopped_at, failure)


class Check(StrEnum):
    """A comparison of two runs."""

    COURSE = "the same draws in the same order, with the same parameters"
    CHARGED = "every draw charged"
    COUNTS = "counts differ by at most the sensitivity charged"
    SCORES = "scores differ by at most the sensitivity declared"
    OUTPUTS = "outputs equal to the last byte"
    SEEN = "the row that differs is seen"


class Finding(NamedTuple):
    """A failed check, the run and the event or artefact; it contains no private value."""

    check: Check
    where: str
    label: str


@dataclass
class AuditReport:
    """The result of an audit; nothing in it is private.

    Attributes:
        draws: number of noisy releases and selections that were compared.
        moved: number of draws whose private inputs differed between the neighbours.
        made: number of comparisons by check.
        findings: the comparisons that failed, in order.
    """

    pairs: int = 0
    runs: int = 0
    draws: int = 0
    moved: int = 0
    made: Counter[Check] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether no check failed."""
        return not self.findings

    def note(self, check: Check, passed: bool, where: str, label: str) -> None:
        """Count a check; keep it if it failed."""
        self.made[check] += 1
        if not passed:
            self.findings.append(Finding(check, where, label))


def compare(recorded: Run, replayed: Run, where: str, report: AuditReport) -> None:
    """Compare a run with its replay on a neighbour; ``where`` names the two in findings.

    The report receives the checks, and how many draws there were and had inputs that differed.
    """
    finished = replayed.stopped_at is None and replayed.failure is None
    for run in (recorded, replayed):
        drawn = tuple(call.event for call in run.calls)
        # An event at which a replay stops is charged and not drawn.
        same = drawn == run.charged[: len(drawn)]
        complete = len(drawn) == len(run.charged) or (run is replayed and not finished)
        report.note(Check.CHARGED, same and complete, where, _first_difference(run))
    report.draws += len(recorded.calls)
    for one, other in zip(recorded.calls, replayed.calls):
        report.note(Check.COURSE, _same_request(one, other), where, other.event.label)
        report.moved += not (
            np.array_equal(one.inputs, other.inputs) and one.values == other.values
        )
        _compare_inputs(one, other, where, report)
    if not finished:
        stop = replayed.stopped_at
        label = f"stopped by {replayed.failure}" if stop is None else stop
        report.note(Check.COURSE, False, where, label)
        return
    report.note(Check.COURSE, len(recorded.calls) == len(replayed.calls), where, "number of draws")
    for name in sorted({*recorded.artefacts, *replayed.artefacts}):
        equal = recorded.artefacts.get(name) == replayed.artefacts.get(name)
        report.note(Check.OUTPUTS, equal, where, name)


def squared_distance(one: Counts, other: Counts) -> int:
    """Squared L2 distance of two integer arrays of one shape, exactly."""
    difference = one.ravel() - other.ravel()  # both below 2**62
    if difference.size and int(abs(difference).max()) ** 2 * difference.size >= 2**62:
        difference = difference.astype(object)
    return int((difference * difference).sum())


def _compare_inputs(
    one: PrimitiveCall, other: PrimitiveCall, where: str, report: AuditReport
) -> None:
    label = one.event.label
    if isinstance(one.event, PartitionEvent):
        here, there = (dict(zip(c.values, c.inputs.tolist())) for c in (one, other))
        changes = [here.get(v, 0) - there.get(v, 0) for v in {**here, **there}]
        report.note(Check.COUNTS, sum(map(abs, changes)) <= one.event.rows, where, label)
    elif one.inputs.shape != other.inputs.shape:
        return
    elif isinstance(one.event, GaussianEvent):
        distance = squared_distance(one.inputs, other.inputs)
        report.note(Check.COUNTS, distance <= one.event.squared_sensitivity, where, label)
    elif isinstance(one.event, SelectionEvent) and one.score_sensitivity is not None:
        changes = [a - b for a, b in zip(one.inputs.tolist(), other.inputs.tolist())]
        largest = max(map(abs, changes), default=0)
        report.note(Check.SCORES, largest <= one.score_sensitivity, where, label)
    else:
        report.note(Check.COUNTS, False, where, f"{label}: no rule for {type(one.event).__name__}")


def _same_request(one: PrimitiveCall, other: PrimitiveCall) -> bool:
    """Whether all but the private inputs is the same; which values occur is one of them."""
    shapes = one.inputs.shape == other.inputs.shape or isinstance(one.event, PartitionEvent)
    return (
        one.event == other.event
        and one.score_sensitivity == other.score_sensitivity
        and shapes
        and np.array_equal(one.output, other.output)
    )


def _first_difference(run: Run) -> str:
    """Label of the first draw that was not charged, or of the first charge without a draw."""
    for call, event in zip(run.calls, run.charged):
        if call.event != event:
            return call.event.label
    longer = [*(c.event for c in run.calls[len(run.charged) :]), *run.charged[len(run.calls) :]]
    return longer[0].label if longer else "all draws"
