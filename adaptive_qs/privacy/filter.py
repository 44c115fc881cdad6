"""Exact accounting for steps chosen one after the other: the filter of Gaussian DP.

It counts μ² = 2R, R in units of ρ, of which every step takes some, decided by what remains:

- Gaussian noise of variance σ² on values of squared sensitivity Δ² takes Δ²/(2(σ² − r²)), which is
  its zCDP cost but for r² = 9: what the noise loses in width where discrete noise is seen as
  continuous noise that is rounded at random;
- a choice by the exponential mechanism with zCDP cost s = ε²/8 leaves (R + √(R² − 4Rs))/2 of R. It
  takes s and about s²/R more, as the Gaussian noise that may still come blurs what it reveals, and
  is refused where 4s > R.

All that is released within R is μ-Gaussian DP, up to a share of 2⁻²⁰ of δ, however steps were
chosen: the whole curve (ε, δ(ε)) of one Gaussian measurement. As each step takes at least its zCDP
cost, it is R-zCDP besides.

Proof: docs/proofs.md, section 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from adaptive_qs.errors import BudgetExceeded
from adaptive_qs.privacy.events import UNITS_PER_RHO, Event, SelectionEvent

ROUNDING_VARIANCE = 9
"""r²: variance of the random rounding to integers. With r = 3 the rounding of continuous noise has
the law of discrete noise up to a factor of 1 ± 2⁻²⁵³ for each value that is drawn."""

LARGEST_CHOICE = 0.25
"""A choice may take no larger part of what remains, as zCDP."""


def left_after(left: int, events: Iterable[Event]) -> int:
    """What the filter has left after some more events, rounded down.

    Args:
        left: units of 2**-60 ρ that it has before.
        events: in the order of their charge.

    Raises:
        BudgetExceeded: an event does not fit.
    """
    for event in events:
        after = _after_choice if isinstance(event, SelectionEvent) else _after_noise
        remaining = after(left, event)
        if remaining is None:
            raise BudgetExceeded(
                f"{event.label}: cost rho {float(event.rho):.4g} does not fit the "
                f"{left / UNITS_PER_RHO:.4g} that exact accounting has left: lower the accuracy or "
                "raise the budget"
            )
        left = remaining
    return left


def _after_choice(left: int, event: Event) -> int | None:
    cost = math.ceil(event.rho * UNITS_PER_RHO)
    if 4 * cost > left:
        return None
    return (left + math.isqrt(left * (left - 4 * cost))) // 2


def _after_noise(left: int, event: Event) -> int | None:
    if isinstance(event, SelectionEvent) or event.noise_variance <= ROUNDING_VARIANCE:
        return None
    variance = Fraction(event.noise_variance)
    narrower = variance / (variance - ROUNDING_VARIANCE)
    cost = math.ceil(event.rho * narrower * UNITS_PER_RHO)
    return left - cost if cost <= left else None


def choice_cost(rho: float, remaining: float) -> float:
    """What a choice of zCDP cost ``rho`` takes of a remaining ρ, in floating point, for plans.

    Raises:
        ValueError: the choice is too large a part of it; see ``LARGEST_CHOICE``.
    """
    if not 0 < rho <= LARGEST_CHOICE * remaining:
        raise ValueError(f"a choice of rho {rho!r} where {remaining!r} remains")
    # (R − √(R² − 4Rs))/2 without cancellation.
    return 2 * rho / (1 + math.sqrt(1 - 4 * rho / remaining))
