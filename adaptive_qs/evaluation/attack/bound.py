"""The advantage that a privacy promise leaves to any membership attack.

The game: rows are drawn independently; the table D holds n of them; the target is one row of D or
one fresh row, and the attacker, who may know all other rows, sees the release M(D) and the target.

**One target.** Let x, z be independent draws and C the other n - 1 rows. The true positive rate is
P(A(M(C + x), x) = 1). The target of the false positive rate is a fresh row, and since x and z may
change places, it is P(A(M(C + z), x) = 1). For every C, x and z the two probabilities are of one
event under M(C + x) and M(C + z), so they differ by at most the total variation distance of the
two; the mean over C, x and z differs by no more.

**Many targets.** The true positive rate over many members of one table is the mean of their
indicators. Its expectation is the mean of the probabilities above, one for each member, however
they depend on each other. Reference rows, and targets on which a threshold is chosen, are among
what the attacker may know. So the expected advantage obeys the bound of one target.

**Caveat.** That is an expectation over tables and noise, and the measured interval is about the
one release at hand. A point estimate above the bound does not refute the promise; a lower end well
above it is a strong sign that something is wrong.

**The distance.** C + x and C + z differ by the removal of one row and the addition of one. With
ρ-zCDP for each of these steps the Kullback-Leibler divergence between the ends is at most 4ρ
(groups: Bun and Steinke 2016, Proposition 1.9, as the order falls to 1). Hence

- total variation <= √(4ρ / 2), by Pinsker;
- total variation <= √(1 - exp(-4ρ)), by Bretagnolle and Huber 1979, which stays below 1;
- total variation <= (e^ε - 1 + 2δ) / (e^ε + 1) for each (ε, δ) that holds in both directions
  (Kairouz, Oh, Viswanath 2015): P(S) <= e^ε Q(S) + δ and 1 - Q(S) <= e^ε (1 - P(S)) + δ give it
  when added. It is taken for the best ε of the curve of 4ρ-zCDP, and twice for the best ε of one
  step, by the triangle inequality.

From (ε, δ) for one step follow (2ε, (1 + e^ε)δ) for both, and the triangle inequality. The
smallest of all is the bound.
"""

from __future__ import annotations

import math

from scipy.optimize import minimize_scalar

from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.attack.game import Promise
from adaptive_qs.privacy.accounting import delta_of

_LOG_EPSILONS = (-12.0, 6.0)
"""Range of ln ε that is searched; every ε gives a valid bound."""


def advantage_bound(promise: Promise) -> float | None:
    """The largest expected advantage that the promise leaves; None if it names neither ρ nor ε.

    Raises:
        InputError: ρ, ε or δ is negative, not finite, or no probability.
    """
    bounds = [1.0]
    if promise.rho is not None:
        bounds.append(replacement_distance(promise.rho))
    if promise.epsilon is not None:
        bounds.append(_replacement_of_pair(promise.epsilon, promise.delta or 0.0))
    return min(bounds) if len(bounds) > 1 else None


def replacement_distance(rho: float) -> float:
    """Bound of the total variation between releases of tables in which one row is replaced.

    Args:
        rho: zCDP for the addition or removal of one row.

    Raises:
        InputError: rho is negative or not finite.
    """
    if not 0 <= rho < math.inf:
        raise InputError(f"rho is {rho!r}: give a finite number of 0 or more")
    if rho == 0:
        return 0.0
    divergence = 4 * rho
    return min(
        1.0,
        math.sqrt(divergence / 2),
        math.sqrt(-math.expm1(-divergence)),
        _least_on_curve(divergence),
        2 * _least_on_curve(rho),
    )


def pair_distance(epsilon: float, delta: float) -> float:
    """Bound of the total variation of two distributions that are (ε, δ)-close both ways."""
    return min(1.0, math.tanh(epsilon / 2) + 2 * delta / (1 + math.exp(min(epsilon, 700.0))))


def _least_on_curve(rho: float) -> float:
    """The best bound by an (ε, δ) that ρ-zCDP implies."""
    found = minimize_scalar(
        lambda log_epsilon: pair_distance(
            math.exp(log_epsilon), delta_of(rho, math.exp(log_epsilon))
        ),
        bounds=_LOG_EPSILONS,
        method="bounded",
    )
    return float(found.fun)


def _replacement_of_pair(epsilon: float, delta: float) -> float:
    if not 0 <= epsilon < math.inf:
        raise InputError(f"epsilon is {epsilon!r}: give a finite number of 0 or more")
    if not 0 <= delta <= 1:
        raise InputError(f"delta is {delta!r}: give a number from 0 to 1")
    group_delta = min(1.0, (1 + math.exp(min(epsilon, 700.0))) * delta)
    return min(1.0, pair_distance(2 * epsilon, group_delta), 2 * pair_distance(epsilon, delta))
