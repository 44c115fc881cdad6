"""Conversions between zCDP, Gaussian DP and (ε, δ), each rounded to the safe side.

zCDP: δ = inf over α > 1 of exp((α-1)(αρ-ε)) / (α-1) · (1-1/α)^α (Canonne, Kamath, Steinke 2020,
Corollary 13). With a = α - 1 that is

    ln δ = a((1+a)ρ - ε) - g(a),    g(a) = a ln(1 + 1/a) + ln(1 + a),

and every a gives a valid bound. So a is found in floating point, and the bound is evaluated at
that a to 60 digits and then rounded.

Gaussian DP: with x = ε/μ - μ/2, δ = Φ(-x) - exp(ε) Φ(-x-μ), exactly (Dong, Roth, Su 2022,
Corollary 2.13). The second term is φ(x) times the Mills ratio at x + μ.

Every conversion raises InputError if ε, ρ or μ is not positive and finite (a ρ of 0 costs nothing),
or if δ is not in [1e-300, 1).
"""

import math
from collections.abc import Callable, Iterable
from decimal import Context, Decimal, localcontext
from fractions import Fraction

from scipy.special import erfcx, ndtr

from adaptive_qs.errors import BudgetExceeded, InputError
from adaptive_qs.privacy.events import UNITS_PER_RHO, Event, SelectionEvent

_PRECISE = Context(prec=60)

_SMALLEST_DELTA = 1e-300

FINE_NOISE = 2**19
"""Smallest standard deviation of discrete noise with the curve of Gaussian DP, up to a share of δ;
proof in ``adaptive_qs.run.budget``."""

DISCRETE_SHARE = 2.0**-21
"""That share: the largest relative excess of δ over that of continuous noise."""

_NORMAL_SLACK = 2.0**-48
"""Relative error allowed for each normal term, divided by (1 + |x|)(16 + x + μ): rounding moves x
by at most 2⁻⁵²(x + μ), a tail by |x| times that, and the functions err by a few ulp."""


def compute_delta(rho: float, epsilon: float) -> float:
    """Return the δ for which ρ-zCDP implies (ε, δ)-DP, rounded up."""
    _check_positive("epsilon", epsilon)
    if rho == 0:
        return 0.0
    _check_positive("rho", rho)
    order = _best_order(lambda a: a * ((1 + a) * rho - epsilon) - _shape(a))
    with localcontext(_PRECISE):
        log_delta = order * ((1 + order) * Decimal(rho) - Decimal(epsilon)) - _precise_shape(order)
        if log_delta >= 0:
            return 1.0
        return min(1.0, max(_float_above(log_delta.exp()), math.ulp(0.0)))  # which can underflow


def compute_epsilon(rho: float, delta: float) -> float:
    """Return the smallest ε for which ρ-zCDP implies (ε, δ)-DP, rounded up."""
    _check_delta(delta)
    if rho == 0:
        return 0.0
    _check_positive("rho", rho)
    order = _best_order(lambda a: (1 + a) * rho - (_shape(a) + math.log(delta)) / a)
    with localcontext(_PRECISE):
        exponent = _precise_shape(order) + Decimal(delta).ln()
        epsilon = _float_above((1 + order) * Decimal(rho) - exponent / order)
    if epsilon <= 0:
        return 0.0
    return _moved(epsilon, 1, lambda value: compute_delta(rho, value) <= delta)


def compute_rho(epsilon: float, delta: float) -> float:
    """Return the largest ρ for which ρ-zCDP implies (ε, δ)-DP, rounded down."""
    _check_positive("epsilon", epsilon)
    _check_delta(delta)
    order = _best_order(lambda a: -(epsilon + (_shape(a) + math.log(delta)) / a) / (1 + a))
    with localcontext(_PRECISE):
        exponent = _precise_shape(order) + Decimal(delta).ln()
        rho = -_float_above(-(Decimal(epsilon) + exponent / order) / (1 + order))
    return _moved(rho, -1, lambda value: compute_delta(value, epsilon) <= delta)


def compute_gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the δ for which μ-Gaussian DP implies (ε, δ)-DP, rounded up."""
    _check_positive("mu", mu)
    _check_positive("epsilon", epsilon)
    return min(1.0, _gaussian_delta(mu, epsilon))


def bound_advantage(rho: float, mu: float | None, delta_spent: float) -> float:
    """Return a bound of the true less the false positive rate of any guess between neighbours.

    It is that of μ-Gaussian DP if μ is known. Otherwise the divergence of ρ-zCDP is at most ρ, and
    the bounds of Pinsker and of Bretagnolle and Huber hold (docs/proofs.md, section 10).
    """
    if mu is not None:
        found = compute_gaussian_delta(mu, _SMALLEST_DELTA) * (1 + DISCRETE_SHARE)
    else:
        found = math.nextafter(math.sqrt(min(rho / 2, -math.expm1(-rho))), 1.0)
    return min(1.0, found + delta_spent)


def advantage_rho(advantage: float, gaussian: bool = True, delta_spent: float = 0.0) -> float:
    """Return the largest ρ, of Gaussian DP or zCDP, that bounds an advantage from 0 to 1."""
    if not 0 < advantage < 1:
        raise InputError(f"the advantage is {advantage:g}. Use a number between 0 and 1.")

    def is_safe(mu: float) -> bool:
        return bound_advantage(mu * mu / 2, mu if gaussian else None, delta_spent) <= advantage

    mu = _last_safe(1e-12, 80.0, is_safe)
    return mu * mu / 2 * (1 - 2.0**-50)


def compute_gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ for which μ-Gaussian DP implies (ε, δ)-DP, rounded down.

    Noise variances σ_i² on queries of squared sensitivities Δ_i² achieve it if Σ Δ_i²/σ_i² <= μ².
    """
    _check_positive("epsilon", epsilon)
    _check_delta(delta)

    def mu_at(x: float) -> float:  # the μ > 0 with ε/μ - μ/2 = x
        shifted = math.sqrt(x * x + 2 * epsilon)
        return 2 * epsilon / (x + shifted) if x > 0 else shifted - x

    return _last_safe(mu_at(38.0), mu_at(-9.0), lambda mu: _gaussian_delta(mu, epsilon) <= delta)


def compute_mu(rho: float) -> float:
    """Return the μ of Gaussian DP for a budget of μ²/2 = ρ, rounded up."""
    return math.nextafter(math.sqrt(2 * rho), math.inf)


def compute_gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest ε for which μ-Gaussian DP implies (ε, δ)-DP, rounded up."""
    _check_positive("mu", mu)
    _check_delta(delta)
    lowest = 1e-12
    if _gaussian_delta(mu, lowest) <= delta:
        return lowest
    highest = 40 * mu + mu * mu / 2  # there Φ(−x) is below every δ that is allowed
    return _last_safe(highest, lowest, lambda epsilon: _gaussian_delta(mu, epsilon) <= delta)


def _gaussian_delta(mu: float, epsilon: float) -> float:
    """Return an upper bound of the exact δ that allows for rounding errors."""
    x = epsilon / mu - mu / 2
    first = float(ndtr(-x))
    second = math.exp(-x * x / 2) * float(erfcx((x + mu) / math.sqrt(2))) / 2
    slack = _NORMAL_SLACK * (1 + abs(x)) * (16 + x + mu)
    return first - second + slack * (first + second) + _SMALLEST_DELTA / 2


def _shape(a: float) -> float:
    """Return g(a) of the module's docstring, in floating point."""
    return a * math.log1p(1 / a) + math.log1p(a)


def _precise_shape(a: Decimal) -> Decimal:
    """Return g(a) to the digits of the current decimal context."""
    return a * (1 + 1 / a).ln() + (1 + a).ln()


def _best_order(loss: Callable[[float], float]) -> Decimal:
    """Return the a = α - 1 with the least loss, which has one valley in ln a."""
    low, high = -80.0, 80.0
    while high - low > 1e-9:  # by thirds; the loss is flat where it is least
        third = (high - low) / 3
        if loss(math.exp(low + third)) < loss(math.exp(high - third)):
            high -= third
        else:
            low += third
    return Decimal(math.exp((low + high) / 2))


def _float_above(value: Decimal) -> float:
    """Return the smallest float that is not below the value."""
    nearest = float(value)
    return nearest if Decimal(nearest) >= value else math.nextafter(nearest, math.inf)


def _last_safe(safe: float, other: float, is_safe: Callable[[float], bool]) -> float:
    """Find the safe value next to those that are not, between one that is safe and another."""
    while (middle := (safe + other) / 2) not in (safe, other):
        safe, other = (middle, other) if is_safe(middle) else (safe, middle)
    return safe


def _moved(value: float, direction: int, is_safe: Callable[[float], bool]) -> float:
    """Move a value up (1) or down (-1) by a few ulp until it is safe."""
    step = 2.0**-52
    while not is_safe(value):
        value *= 1 + direction * step
        step *= 2
    return value


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise InputError(f"{name} is {value!r}. Use a positive finite number.")


def _check_delta(delta: float) -> None:
    if not _SMALLEST_DELTA <= delta < 1:
        raise InputError(f"delta is {delta!r}. Use a number from 1e-300 to below 1.")


# Exact accounting for steps chosen one after the other: the filter of Gaussian DP.
#
# It counts μ² = 2R, R in units of ρ, of which every step takes some, decided by what remains: noise
# on values of squared sensitivity Δ² takes Δ²/(2(σ² − r²)), and a choice of zCDP cost s leaves
# (R + √(R² − 4Rs))/2, refused where 4s > R. Everything within R is μ-Gaussian DP, up to a share of
# 2⁻²⁰ of δ, and R-zCDP. Proof: docs/proofs.md, section 6.

ROUNDING_VARIANCE = 9
"""Variance r² of the random rounding to integers. With r = 3 the rounding of continuous noise has
the law of discrete noise up to a factor of 1 ± 2⁻²⁵³ for each value that is drawn."""

LARGEST_CHOICE = 0.25
"""Largest zCDP cost of a choice, as a share of what remains."""


def left_after(left: int, events: Iterable[Event]) -> int:
    """Return what the filter has left after events in the order of their charge, rounded down.

    ``left`` is in units of 2**-60 ρ. BudgetExceeded is raised if an event does not fit.
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
    """Return what a choice of zCDP cost ``rho`` takes of a remaining ρ, for plans.

    ValueError is raised if the choice is above ``LARGEST_CHOICE`` of what remains.
    """
    if not 0 < rho <= LARGEST_CHOICE * remaining:
        raise ValueError(f"a choice of rho {rho!r} where {remaining!r} remains")
    # (R − √(R² − 4Rs))/2 without cancellation.
    return 2 * rho / (1 + math.sqrt(1 - 4 * rho / remaining))
