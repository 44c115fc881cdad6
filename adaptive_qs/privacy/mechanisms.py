"""The only way for private counts to leave: each draw of noise is charged first."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import InputError
from adaptive_qs.privacy import selection
from adaptive_qs.privacy.budget import Budget, Ledger, Output
from adaptive_qs.privacy.counts import (
    Counter,
    Measurement,
    PrivateScores,
    PrivateTable,
    PrivateTexts,
    open_private,
)
from adaptive_qs.privacy.events import Event, GaussianEvent, PartitionEvent, Purpose, SelectionEvent
from adaptive_qs.privacy.noise import EntropySource, check_variance, discrete_gaussian
from adaptive_qs.privacy.selection import check_rate, exponential_mechanism, select_values

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class PrimitiveCall:
    """One use of a private primitive, for tests that record and replay. Holds private inputs.

    Attributes:
        event: The charge.
        inputs: The exact values or scores.
        score_sensitivity: Declared sensitivity of the scores; None for counts, whose sensitivity
            is in the event.
        output: The noisy values, the position selected, or the values discovered.
        values: The values to which the counts of a discovery belong; empty otherwise.
    """

    event: Event
    inputs: Counts
    score_sensitivity: int | None
    output: Output
    values: tuple[str, ...] = ()


MISMATCH = InputError(
    "the ledger holds a release of another shape: this is not the run that it recorded"
)

Observer = Callable[[PrimitiveCall], None]


class Mechanisms:
    """Noise and selection bound to one ledger and one source of entropy.

    Measurements, scores and events are for one row; charges and records are for the unit of the
    ledger (:mod:`adaptive_qs.privacy.unit`). A replay overrides ``_draw_counts``,
    ``_draw_selection`` and ``_draw_values``, which run after the charge.

    Every method raises InputError if a parameter is out of range, and charges nothing then, and
    BudgetExceeded if the ledger refuses, and draws nothing then.

    Args:
        ledger: The ledger that is charged before anything is drawn.
        entropy: The source of random bits.
        observer: Called with every use, in tests only.
    """

    def __init__(
        self, ledger: Ledger, entropy: EntropySource, observer: Observer | None = None
    ) -> None:
        self.ledger = ledger
        self.entropy = entropy
        self._observer = observer
        self._releases = 0

    @contextmanager
    def spending(self, part: Ledger) -> Iterator[None]:
        """Charge a part of the budget in the block, for the unit of that part."""
        whole, self.ledger = self.ledger, part
        try:
            yield
        finally:
            self.ledger = whole

    def table(self, counter: Counter) -> PrivateTable:
        """Return the rows of a table, which only the current ledger opens."""
        return PrivateTable(counter, self.ledger)

    def measure(self, measurements: Sequence[Measurement]) -> list[NDArray[np.float64]]:
        """Return noisy answers: the integers of :meth:`release` divided by the factors."""
        return [
            np.asarray(noisy / measured.factor)
            for noisy, measured in zip(self.release(measurements), measurements)
        ]

    def release(self, measurements: Sequence[Measurement]) -> list[Counts]:
        """Add discrete Gaussian noise to exact answers; all measurements are charged or none.

        No measurement may depend on the outcome of another one. Return noisy integers for each
        measurement, one axis for each map of its query.
        """
        if not measurements:
            return []
        values = [each.exact_answers(self.ledger) for each in measurements]
        unit = self.ledger.unit
        events = [unit.priced_counts(each.event, each.squared_diameter) for each in measurements]
        for event in events:
            check_variance(event.noise_variance)
        outputs = self._release(
            events,
            lambda: [self._draw_counts(event, exact) for event, exact in zip(events, values)],
            _definition(measurements),
        )
        noisy = [self._check_output(output, exact) for output, exact in zip(outputs, values)]
        for event, exact, output in zip(events, values, noisy):
            self._observe(PrimitiveCall(event, exact, None, output))
        return noisy

    def select(self, scores: PrivateScores, epsilon: Fraction | float) -> int:
        """Return the position of the candidate that the exponential mechanism draws."""
        exact = selection.check_scores(open_private(scores, self.ledger))
        event = SelectionEvent(Purpose.SELECTION, (), epsilon)
        check_rate(scores.sensitivity, event.epsilon)
        event = self.ledger.unit.priced(event)
        sensitivity = scores.sensitivity * self.ledger.unit.group
        (output,) = self._release(
            [event], lambda: [self._draw_selection(event, exact, sensitivity)]
        )
        if not isinstance(output, int) or not 0 <= output < exact.size:
            raise MISMATCH
        self._observe(PrimitiveCall(event, exact, sensitivity, output))
        return output

    def discover_values(
        self, event: PartitionEvent, texts: PrivateTexts, at_most: int
    ) -> tuple[str, ...]:
        """Find values that occur in many rows; see :mod:`adaptive_qs.privacy.selection`.

        ``event`` is the charge for one row, ``texts`` has every value that occurs, with its count.
        Return, in ascending order, values whose noisy count passes the threshold: those with the
        largest noisy counts if there are more than ``at_most``.
        """
        values, counts = open_private(texts, self.ledger)
        counts = open_private(counts, self.ledger).astype(np.int64)
        check_variance(event.noise_variance)
        event = self.ledger.unit.priced(event)
        selection.check_values(values, counts, at_most)
        (output,) = self._release(
            [event], lambda: [self._draw_values(event, values, counts, at_most)]
        )
        if not isinstance(output, tuple) or len(output) > at_most:
            raise MISMATCH
        if self._observer is not None:
            self._observe(PrimitiveCall(event, counts, None, output, tuple(values)))
        return output

    def _release(
        self, events: Sequence[Event], draw: Callable[[], Sequence[Output]], definition: str = ""
    ) -> Sequence[Output]:
        self.entropy.begin(self._releases)
        self._releases += 1
        return self.ledger.release(events, draw, definition)

    def _check_output(self, output: Output, values: Counts) -> Counts:
        """Return an output of a ledger as counts; raise InputError if it is of another kind."""
        array = np.asarray(output)
        if array.dtype != np.int64 or array.size != values.size:
            raise MISMATCH
        return array.reshape(values.shape)

    def _draw_counts(self, event: GaussianEvent, values: Counts) -> Counts:
        noise = discrete_gaussian(event.noise_variance, values.size, self.entropy)
        return values + noise.reshape(values.shape)

    def _draw_selection(self, event: SelectionEvent, scores: Counts, sensitivity: int) -> int:
        return exponential_mechanism(scores, sensitivity, event.epsilon, self.entropy)

    def _draw_values(
        self, event: PartitionEvent, values: Sequence[str], counts: Counts, at_most: int
    ) -> tuple[str, ...]:
        noise = discrete_gaussian(event.noise_variance, counts.size, self.entropy)
        return select_values(values, counts + noise, event.threshold, at_most)

    def _observe(self, call: PrimitiveCall) -> None:
        if self._observer is not None:
            self._observer(call)


_AUDITED: ContextVar[Mechanisms | None] = ContextVar("audited", default=None)


@contextmanager
def auditing(mechanisms: Mechanisms) -> Iterator[None]:
    """Make runs that begin in the block use these mechanisms, which record or replay.

    This is for audits on generated rows, since the output of a replay is no noise. Other threads
    are not affected.
    """
    token = _AUDITED.set(mechanisms)
    try:
        yield
    finally:
        _AUDITED.reset(token)


def audited(ledger: Ledger) -> Mechanisms | None:
    """Return the mechanisms of the audit that this run is part of; None outside of audits.

    The ledger must be in memory: no audit may use the budget of a data set.
    """
    found = _AUDITED.get()
    if found is not None and not isinstance(ledger, Budget):
        raise RuntimeError("an audit on the ledger of a data set")
    return found


def _definition(measurements: Sequence[Measurement]) -> str:
    """Return one digest of several definitions; "" if there are none."""
    parts = [each.query.definition for each in measurements]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest() if any(parts) else ""
