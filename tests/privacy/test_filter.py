"""The filter of exact accounting: its theorem against an adversary, and its integers."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import ndtr

from adaptive_qs.errors import BudgetExceeded
from adaptive_qs.privacy.accounting import (
    LARGEST_CHOICE,
    ROUNDING_VARIANCE,
    choice_cost,
    left_after,
)
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import (
    UNITS_PER_RHO,
    GaussianEvent,
    PartitionEvent,
    Purpose,
    SelectionEvent,
    Transcript,
)

from ..audit import recompute


def expected_excess(ratio, level, left):
    """E(R exp(G) − K)₊ with G ~ N(−m/2, m), the potential of docs/proofs.md, section 6."""
    if left <= 0:
        return np.maximum(ratio - level, 0.0)
    upper = (np.log(ratio / level) + left / 2) / math.sqrt(left)
    return ratio * ndtr(upper) - level * ndtr(upper - math.sqrt(left))


def two_points(squared, skew):
    """Ratios of a choice of range 2√s, s squared, and the law Q that makes their mean 1."""
    span = math.exp(2 * math.sqrt(squared))
    low = 1 / (1 - skew + skew * span)
    return np.array([low, low * span]), np.array([1 - skew, skew])


SKEWS = [1e-6, 1e-3, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 0.999, 1 - 1e-6]
LEFT = [1e-6, 1e-3, 0.033, 0.5, 2.4, 20.0, 128.0]


def largest_excess(left, part, cost):
    """Most by which a choice that takes ``part`` of ``left`` raises the potential at ``cost``.

    In units of what floating point may err: 1e-14 where the potential is nearly linear, 1e-9 of it
    where it is small.
    """
    levels = np.exp(math.sqrt(left) * np.linspace(-6, 6, 97))
    excess = -math.inf
    for skew in SKEWS:
        ratios, chances = two_points(part * left, skew)
        after = sum(
            chance * expected_excess(ratio, levels, left - cost)
            for ratio, chance in zip(ratios, chances)
        )
        before = expected_excess(1.0, levels, left)
        unit = np.where(levels < 1, 1e-14, 1e-9 * before)
        excess = max(excess, float(((after - before) / unit).max()))
    return excess


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("part", [1e-4, 0.01, 0.1, 0.2, 0.25])
def test_no_choice_raises_the_potential_at_its_cost(left, part):
    cost = 2 * choice_cost(part * left / 2, left / 2)
    assert largest_excess(left, part, cost) <= 1


@pytest.mark.parametrize("part", [0.1, 0.25])
def test_a_choice_costs_more_than_its_zcdp(part):
    """At s, or hardly more, some choice raises the potential: the cost is not made up."""
    assert largest_excess(0.5, part, part * 0.5 * 0.98) > 1e6


NODES, WEIGHTS = hermegauss(24)
WEIGHTS = WEIGHTS / math.sqrt(2 * math.pi)


def worst(ratio, level, left, depth):
    """The largest δ that an adversary gets who picks every step by the outcomes so far.

    Steps take parts of what is left: choices of two sizes and three skews, noise of one size, and
    at the end noise that takes all.
    """
    best = float(expected_excess(ratio, level, left))
    if not depth:
        return best
    for part, skew in product((0.1, LARGEST_CHOICE), (0.02, 0.5, 0.98)):
        ratios, chances = two_points(part * left, skew)
        rest = left - 2 * choice_cost(part * left / 2, left / 2)
        found = sum(c * worst(ratio * r, level, rest, depth - 1) for r, c in zip(ratios, chances))
        best = max(best, found)
    noise = left / 2
    ratios = np.exp(math.sqrt(noise) * NODES - noise / 2)
    found = sum(
        c * worst(ratio * r, level, left - noise, depth - 1) for r, c in zip(ratios, WEIGHTS)
    )
    return max(best, found)


@pytest.mark.parametrize("left", [0.033, 2.4])
@pytest.mark.parametrize("x", [-1.0, 1.0, 4.0])
def test_no_adversary_gets_more_than_gaussian_dp_allows(left, x):
    level = math.exp(math.sqrt(left) * (x + math.sqrt(left) / 2))
    delta = float(expected_excess(1.0, level, left))
    # 24 nodes integrate the smooth potential to far below a millionth of δ.
    assert worst(1.0, level, left, 2) <= delta * (1 + 1e-6)


def rounded_law(variance, rounding, value):
    """Probability that a continuous Gaussian, rounded at random to integers, gives ``value``."""
    narrow, step = mpmath.mpf(variance) - rounding, mpmath.mpf(1) / 8
    reach = int(8 * 14 * mpmath.sqrt(variance))

    def normaliser(x):
        near = int(mpmath.nint(x))
        width = 16 + int(24 * math.sqrt(rounding))
        return sum(
            mpmath.exp(-((y - x) ** 2) / (2 * mpmath.mpf(rounding)))
            for y in range(near - width, near + width + 1)
        )

    periodic = [normaliser(step * k) for k in range(8)]
    total = mpmath.mpf(0)
    for k in range(8 * value - reach, 8 * value + reach + 1):
        x = step * k
        density = mpmath.exp(-(x**2) / (2 * narrow)) / mpmath.sqrt(2 * mpmath.pi * narrow)
        weight = mpmath.exp(-((value - x) ** 2) / (2 * mpmath.mpf(rounding)))
        total += density * weight / periodic[k % 8]
    return total * step


@pytest.mark.parametrize("value", [0, 5])
@pytest.mark.parametrize(("rounding", "digits"), [(Fraction(1, 2), 3), (1, 7), (2, 16)])
def test_discrete_noise_is_rounded_continuous_noise_but_for_kappa(value, rounding, digits):
    """Theorem 11 at roundings so narrow that κ shows: the laws differ by less than 3κ, and not by
    nothing."""
    with mpmath.workdps(30):
        rounding = mpmath.mpf(rounding.numerator) / rounding.denominator
        kappa = 2 * mpmath.nsum(
            lambda k: mpmath.exp(-2 * mpmath.pi**2 * rounding * k**2), [1, mpmath.inf]
        )
        mass = sum(mpmath.exp(-mpmath.mpf(y * y) / 18) for y in range(-60, 61))
        exact = mpmath.exp(-mpmath.mpf(value * value) / 18) / mass
        differ = abs(rounded_law(9, rounding, value) / exact - 1)
        assert kappa**2 / 100 < differ < 3 * kappa < mpmath.mpf(10) ** -digits


def test_at_the_variance_that_is_used_kappa_is_nothing():
    with mpmath.workdps(100):
        kappa = 2 * mpmath.exp(-2 * mpmath.pi**2 * ROUNDING_VARIANCE)
        assert 3 * kappa * (1 + mpmath.mpf(2) ** -100) < mpmath.mpf(2) ** -253


def discrete_delta(level, std, first, second, skew, squared):
    """δ of discrete noise, then a choice whose skew depends on its outcome, then discrete noise.

    By enumeration: a row moves the two values by ``first`` and ``second``.
    """
    y = np.arange(-int(12 * std), int(12 * std) + 1)
    chance = np.exp(-(y.astype(float) ** 2) / (2 * std**2))
    chance /= math.fsum(chance)

    def ratio(shift):
        return np.exp((2.0 * y * shift - shift**2) / (2 * std**2))

    last = ratio(second)
    delta = 0.0
    for outcome, weight, before in zip(y, chance, ratio(first)):
        ratios, chances = two_points(squared, skew if outcome > 0 else 1 - skew)
        for r, c in zip(ratios, chances):
            delta += weight * c * float(chance @ np.maximum(before * r * last - level, 0.0))
    return delta


@pytest.mark.parametrize("std", [5.0, 12.0])
@pytest.mark.parametrize("skew", [0.1, 0.5])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.5, 3.0])
def test_a_run_of_discrete_noise_stays_below_the_curve(std, skew, epsilon):
    first, second = round(0.6 * std), round(0.4 * std)
    after = second**2 / (std**2 - ROUNDING_VARIANCE)
    squared = 0.2 * after
    # The choice is made where v is left: v²/(v − s) before it.
    whole = first**2 / (std**2 - ROUNDING_VARIANCE) + after**2 / (after - squared)
    level = math.exp(epsilon)
    found = discrete_delta(level, std, first, second, skew, squared)
    assert found <= float(expected_excess(1.0, level, whole)) * (1 + 1e-9)


# The integers.


def noise(rho, variance):
    return GaussianEvent(Purpose.ROWS, (), 2 * variance * Fraction(rho), variance)


def choice(rho):
    return SelectionEvent(Purpose.SELECTION, (), math.sqrt(8 * rho))


STEPS = st.lists(
    st.builds(noise, st.floats(1e-6, 0.2), st.integers(10, 10**6))
    | st.builds(choice, st.floats(1e-9, 0.05)),
    max_size=20,
)


@given(st.floats(1e-3, 1.0), STEPS)
def test_what_is_left_is_that_of_exact_arithmetic_rounded_down(rho, events):
    rho = 2.0 ** math.floor(math.log2(rho))  # whole units
    left, kept = int(rho * UNITS_PER_RHO), []
    for event in events:
        records = Transcript(events=(event,)).model_dump(mode="json")["events"]
        exact = recompute.filter_left(Fraction(left, UNITS_PER_RHO), records) * UNITS_PER_RHO
        try:
            after = left_after(left, [event])
        except BudgetExceeded:
            assert exact < 1 or 4 * event.rho * UNITS_PER_RHO > left - 4
            continue
        # A unit of the cost is worth more where a choice takes nearly a quarter.
        most = 5 if 4 * event.rho * UNITS_PER_RHO < 0.9 * left else 2**31
        assert 0 <= exact - after <= most
        left = after
        kept.append(event)
    ledger = Budget(rho, filtered=True)
    ledger.release(kept, lambda: kept)
    assert ledger.left.rho_units == left
    assert left <= (ledger.limit - ledger.spent).rho_units


def test_a_choice_above_a_quarter_is_refused():
    quarter = SelectionEvent(Purpose.SELECTION, (), Fraction(1, 4))  # ρ = 1/128
    limit = UNITS_PER_RHO // 32
    assert left_after(limit, [quarter]) == limit // 2
    with pytest.raises(BudgetExceeded, match=r"^select: cost rho .* exact accounting"):
        left_after(limit - 1, [quarter])


def test_noise_that_is_as_narrow_as_the_rounding_is_refused():
    wide, narrow = (noise(1e-3, v) for v in (ROUNDING_VARIANCE + 1, ROUNDING_VARIANCE))
    assert left_after(UNITS_PER_RHO, [wide]) < UNITS_PER_RHO * (1 - 0.0099)
    with pytest.raises(BudgetExceeded, match=r"^total: cost rho .* exact accounting"):
        left_after(UNITS_PER_RHO, [narrow])


def test_a_discovery_counts_as_noise():
    found = PartitionEvent(Purpose.VALUES, ("a",), 100, 200, Fraction(1, 2))
    assert left_after(UNITS_PER_RHO, [found]) == left_after(UNITS_PER_RHO, [noise(0.005, 100)])


def test_a_budget_that_is_filtered_refuses_what_zcdp_would_grant():
    drawn = []
    events = [choice(0.024), noise(0.0755, 10**9)]
    Budget(0.1).release(events, lambda: drawn.append(1) or events)
    with pytest.raises(BudgetExceeded, match="exact accounting"):
        Budget(0.1, filtered=True).release(events, lambda: drawn.append(2) or events)
    assert drawn == [1]


@pytest.mark.parametrize("rho", [0.0, -1.0, 0.26, math.nan])
def test_plans_of_a_choice_that_is_no_part_are_refused(rho):
    with pytest.raises(ValueError, match="a choice"):
        choice_cost(rho, 1.0)
