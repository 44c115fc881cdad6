"""What the events of a ledger cost, in each currency; computed anew from what was run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from adaptive_qs.privacy.accounting import FINE_NOISE, epsilon_of
from adaptive_qs.privacy.budget import float_above
from adaptive_qs.privacy.events import Cost, Event, GaussianEvent


def epsilon_at(cost: Cost, delta: float) -> float | None:
    """ε at this δ of a zCDP cost, of which partition selection takes its share of δ first.

    Returns:
        None where the share is δ or more, so that no ε holds.
    """
    left = Fraction(delta) - cost.delta
    if left <= 0:
        return None
    return epsilon_of(float_above(cost.rho), -float_above(-left))


def gaussian_mu(events: Sequence[Event]) -> float | None:
    """μ of exact Gaussian DP, rounded up, where all events are fine Gaussian noise.

    Holds for events whose parameters were all fixed in advance, such as those of one batch.
    """
    if not events or not all(map(_is_fine, events)):
        return None
    squared = float_above(2 * sum((event.rho for event in events), Fraction(0)))
    return math.nextafter(math.sqrt(squared), math.inf)


def _is_fine(event: Event) -> bool:
    return isinstance(event, GaussianEvent) and event.noise_variance >= FINE_NOISE**2
