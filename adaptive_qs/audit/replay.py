"""Mechanisms that record what passes them, and ones that hand the recorded outputs out again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from adaptive_qs.privacy.budget import Ledger, Output
from adaptive_qs.privacy.entropy import EntropySource
from adaptive_qs.privacy.events import Event, GaussianEvent, PartitionEvent, SelectionEvent
from adaptive_qs.privacy.mechanisms import Counts, Mechanisms, PrimitiveCall

Job = Callable[[Mechanisms], Mapping[str, bytes]]
"""Code under audit: it draws from the mechanisms only, and returns all that it would publish."""


class Diverged(Exception):
    """A replayed run asked for something else than the recorded one.

    Attributes:
        event: what it asked for.
    """

    def __init__(self, event: Event) -> None:
        super().__init__("the run on the neighbour took another course")
        self.event = event


class Recorder(Mechanisms):
    """Charges and draws as usual, and keeps every call.

    Attributes:
        calls: one for each draw, in order, with its private inputs.
    """

    def __init__(self, ledger: Ledger, entropy: EntropySource) -> None:
        """Record what is drawn from ``entropy`` after a charge to ``ledger``."""
        self.calls: list[PrimitiveCall] = []
        super().__init__(ledger, entropy, self.calls.append)


class Replayer(Recorder):
    """Charges as usual, but hands out what another run drew, as long as it asks for the same."""

    def __init__(
        self, ledger: Ledger, entropy: EntropySource, recorded: Sequence[PrimitiveCall]
    ) -> None:
        """Replay ``recorded``; ``entropy`` only tells whether it is insecure."""
        super().__init__(ledger, entropy)
        self._recorded = iter(recorded)

    def _next_output(self, event: Event) -> Output:
        """The recorded output.

        Raises:
            Diverged: the event is not the recorded one.
        """
        call = next(self._recorded, None)
        if call is None or call.event != event:
            raise Diverged(event)
        return call.output

    def _draw_counts(self, event: GaussianEvent, values: Counts) -> Counts:
        return self._next_output(event)  # type: ignore[return-value]

    def _draw_selection(self, event: SelectionEvent, scores: Counts, sensitivity: int) -> int:
        return self._next_output(event)  # type: ignore[return-value]

    def _draw_values(
        self, event: PartitionEvent, values: Sequence[str], counts: Counts, at_most: int
    ) -> tuple[str, ...]:
        return self._next_output(event)  # type: ignore[return-value]


@dataclass(frozen=True)
class Run:
    """What one run did, private inputs included.

    Attributes:
        calls: every draw.
        charged: every event in the ledger.
        artefacts: what it would publish, by name.
        stopped_at: label of the event at which a replay left the recorded course.
        failure: type of the error that ended a replay.
    """

    calls: tuple[PrimitiveCall, ...]
    charged: tuple[Event, ...]
    artefacts: Mapping[str, bytes]
    stopped_at: str | None = None
    failure: str | None = None


def record(job: Job, ledger: Ledger, entropy: EntropySource) -> Run:
    """Run a job and keep all that it drew."""
    mechanisms = Recorder(ledger, entropy)
    artefacts = job(mechanisms)
    return Run(tuple(mechanisms.calls), tuple(ledger.events), artefacts)


def replay(job: Job, ledger: Ledger, entropy: EntropySource, recorded: Run) -> Run:
    """Run a job on a neighbour with the outputs frozen to the recorded ones.

    Args:
        job: the same code on a neighbouring table.
        ledger: an unspent one of the same budget.
        entropy: of the same kind; nothing is drawn from it.
        recorded: the run on the other table.
    """
    mechanisms = Replayer(ledger, entropy, recorded.calls)
    stopped_at = failure = None
    artefacts: Mapping[str, bytes] = {}
    try:
        artefacts = job(mechanisms)
    except Diverged as error:
        stopped_at = error.event.label
    except Exception as error:  # noqa: BLE001  (whatever it is, the recorded run met no error)
        failure = type(error).__name__
    return Run(tuple(mechanisms.calls), tuple(ledger.events), artefacts, stopped_at, failure)
