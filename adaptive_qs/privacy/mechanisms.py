"""The only doors through which private counts leave: a charge structurally precedes each draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import InputError
from adaptive_qs.privacy.budget import Event, GaussianEvent, Ledger, SelectionEvent
from adaptive_qs.privacy.entropy import EntropySource
from adaptive_qs.privacy.noise import NOISE_LIMIT, checked_variance, discrete_gaussian
from adaptive_qs.privacy.selection import checked_rate, checked_scores, exponential_mechanism

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class PrimitiveCall:
    """One use of a private primitive, for tests that record and replay. Holds private inputs.

    Attributes:
        event: what was charged.
        inputs: the exact values or scores that went in.
        score_sensitivity: declared sensitivity of the scores; None for counts, whose
            sensitivity is in the event.
        output: the noisy values, or the position selected.
    """

    event: Event
    inputs: Counts
    score_sensitivity: int | None
    output: Counts | int


Observer = Callable[[PrimitiveCall], None]


class Mechanisms:
    """Noise and selection bound to one ledger and one source of entropy.

    A replay overrides ``_draw_counts`` and ``_draw_selection``, which run after the charge.
    """

    def __init__(
        self, ledger: Ledger, entropy: EntropySource, observer: Observer | None = None
    ) -> None:
        """Charge ``ledger``, draw from ``entropy``, and tell ``observer`` (tests only)."""
        self.ledger = ledger
        self.entropy = entropy
        self._observer = observer

    def release_counts(
        self,
        label: str,
        values: Counts,
        squared_sensitivity: Fraction | int,
        noise_variance: Fraction | int,
    ) -> Counts:
        """Values plus discrete Gaussian noise, at zCDP cost squared_sensitivity / (2 variance).

        Args:
            label: what is released, in public words.
            values: exact integers of any shape.
            squared_sensitivity: largest squared L2 change of ``values`` by one row.
            noise_variance: parameter σ² of the noise.

        Returns:
            Noisy integers of the shape of ``values``.

        Raises:
            InputError: a parameter out of range; nothing is charged.
            BudgetExceeded: the ledger refuses; nothing is drawn.
        """
        values = _checked_counts(values)
        checked_variance(noise_variance)
        event = GaussianEvent(label, squared_sensitivity, noise_variance)
        self.ledger.charge(event)
        output = self._draw_counts(event, values)
        self._tell(PrimitiveCall(event, values, None, output))
        return output

    def select(
        self,
        label: str,
        scores: Sequence[int] | NDArray[np.integer],
        sensitivity: int,
        epsilon: Fraction | float,
    ) -> int:
        """A candidate by the exponential mechanism, at zCDP cost epsilon² / 8.

        Args:
            label: what is selected, in public words.
            scores: shape (candidates,), exact integers in any common unit.
            sensitivity: most that one row changes any score, in that unit.
            epsilon: ε of the mechanism.

        Returns:
            The position of the candidate drawn.

        Raises:
            InputError: a parameter out of range; nothing is charged.
            BudgetExceeded: the ledger refuses; nothing is drawn.
        """
        scores = checked_scores(scores)
        checked_rate(sensitivity, epsilon)
        event = SelectionEvent(label, epsilon)
        self.ledger.charge(event)
        output = self._draw_selection(event, scores, sensitivity)
        self._tell(PrimitiveCall(event, scores, sensitivity, output))
        return output

    def _draw_counts(self, event: GaussianEvent, values: Counts) -> Counts:
        noise = discrete_gaussian(Fraction(event.noise_variance), values.size, self.entropy)
        return values + noise.reshape(values.shape)

    def _draw_selection(self, event: SelectionEvent, scores: Counts, sensitivity: int) -> int:
        return exponential_mechanism(scores, sensitivity, event.epsilon, self.entropy)

    def _tell(self, call: PrimitiveCall) -> None:
        if self._observer is not None:
            self._observer(call)


def _checked_counts(values: Counts) -> Counts:
    """The values as 64-bit integers that stay so after noise of magnitude below 2**62."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise InputError(f"values to release have type {array.dtype}: give integers")
    if array.size and (np.max(array) > NOISE_LIMIT or np.min(array) < -NOISE_LIMIT):
        raise InputError("a value to release exceeds 2**62: use a smaller scale")
    return array.astype(np.int64)
