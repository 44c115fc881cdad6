"""Partition selection: thresholds against exact tails, what is released, and what is refused."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from adaptive_qs.errors import BudgetExceeded, InputError
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.entropy import InsecureSeed
from adaptive_qs.privacy.events import Cost, PartitionEvent, threshold_delta
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.partitions import LIBRARY_MARGIN, least_threshold, released_values

VARIANCES = [Fraction(1, 5), Fraction(1), Fraction(37, 4), Fraction(2500)]
DELTAS = [Fraction(1, 20), Fraction(1, 10**6), Fraction(1, 10**12), Fraction(1, 2**100)]


def exact_tail(variance, least):
    """P[noise >= least] of the discrete Gaussian, to 40 digits."""
    with mpmath.workdps(40):
        reach = least + 60 * math.ceil(math.sqrt(variance)) + 60
        mass = [
            mpmath.exp(-mpmath.mpf(y * y) * variance.denominator / (2 * variance.numerator))
            for y in range(reach)
        ]
        return mpmath.fsum(mass[least:]) / (2 * mpmath.fsum(mass) - 1)


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("delta", DELTAS)
def test_a_single_row_passes_the_threshold_with_at_most_delta(variance, delta):
    threshold = least_threshold(variance, delta)
    tail = exact_tail(variance, threshold - 1)
    assert tail <= mpmath.mpf(delta.numerator) / delta.denominator
    assert PartitionEvent("values", variance, threshold, delta).delta == delta


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("delta", DELTAS)
def test_the_threshold_is_the_least_that_the_bound_allows(variance, delta):
    threshold = least_threshold(variance, delta)
    assert threshold_delta(variance, threshold) <= delta * LIBRARY_MARGIN
    if threshold > 2:
        assert threshold_delta(variance, threshold - 1) > delta * LIBRARY_MARGIN
        # The bound is Gaussian, the noise discrete: they differ by about one count.
        tail = exact_tail(variance, threshold - 3)
        assert tail > mpmath.mpf(delta.numerator) / delta.denominator


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1), Fraction(-1, 2)])
def test_a_threshold_needs_a_share_of_delta(delta):
    with pytest.raises(InputError, match="delta"):
        least_threshold(1, delta)


def mechanisms(seed=0, delta=Fraction(1, 2)):
    return Mechanisms(Budget(10, delta), InsecureSeed(seed))


def names(count):
    return [f"v{i:06d}" for i in range(count)]


def test_values_of_one_row_are_found_with_the_probability_of_the_exact_tail():
    n, variance, delta = 100_000, Fraction(9), Fraction(1, 20)
    event = PartitionEvent("values", variance, least_threshold(variance, delta), delta)
    found = mechanisms().discover_values(event, names(n), np.ones(n, np.int64), n)
    share = float(exact_tail(variance, event.threshold - 1))
    assert 0.005 < share <= delta  # the test has power: T is not far above what is needed
    # Binomial(n, share): six standard deviations, false alarm below 1e-8.
    assert abs(len(found) - n * share) < 6 * math.sqrt(n * share * (1 - share))


def test_frequent_values_are_found_and_rare_ones_are_not():
    # Noise of variance 4 exceeds 40 with probability below exp(-200).
    event = PartitionEvent("values", 4, 60, Fraction(1, 10**9))
    counts = np.array([110, 3, 200, 1, 150])
    values = ["apple", "b", "cherry", "d", "elder"]
    assert mechanisms().discover_values(event, values, counts, 10) == ("apple", "cherry", "elder")
    assert mechanisms().discover_values(event, values, counts, 2) == ("cherry", "elder")
    assert mechanisms().discover_values(event, values, counts, 1) == ("cherry",)


def test_no_value_at_all_is_an_answer():
    event = PartitionEvent("values", 4, 60, Fraction(1, 10**9))
    assert mechanisms().discover_values(event, [], np.zeros(0, np.int64), 5) == ()


def test_ties_go_to_the_first_and_names_ascend():
    noisy = np.array([7, 9, 7, 7, 2])
    assert released_values("abcde", noisy, 3, 3) == ("a", "b", "c")
    assert released_values("abcde", noisy, 10, 3) == ()


@pytest.mark.parametrize(
    ("values", "counts", "at_most"),
    [
        (["b", "a"], [1, 1], 5),
        (["a", "a"], [1, 1], 5),
        (["a"], [1, 1], 5),
        (["a"], [0], 5),
        (["a"], [1.0], 5),
        (["a"], [1], 0),
    ],
)
def test_refused_input_charges_nothing_and_is_not_quoted(values, counts, at_most):
    doors = mechanisms()
    event = PartitionEvent("values", 4, 60, Fraction(1, 10**9))
    with pytest.raises(InputError) as caught:
        doors.discover_values(event, values, np.array(counts), at_most)
    assert doors.ledger.spent == Cost()
    assert "'a'" not in str(caught.value)


def test_rho_and_delta_are_charged_and_exhausted_delta_refuses():
    delta = Fraction(1, 1000)
    event = PartitionEvent("values", 8, least_threshold(8, delta), delta)
    doors = mechanisms(delta=Fraction(1, 700))
    doors.discover_values(event, ["a"], np.array([100]), 5)
    assert doors.ledger.spent == Cost.of([event])
    assert doors.ledger.spent.rho == Fraction(1, 16)
    with pytest.raises(BudgetExceeded, match="delta"):
        doors.discover_values(event, ["a"], np.array([100]), 5)
    assert doors.ledger.events == (event,)


def test_a_ledger_with_a_foreign_output_is_refused():
    class Stale(Budget):
        def release(self, events, draw, definition=""):
            return [np.zeros(1, np.int64)]

    event = PartitionEvent("values", 4, 60, Fraction(1, 10**9))
    with pytest.raises(InputError, match="another shape"):
        Mechanisms(Stale(1, 1e-3), InsecureSeed(0)).discover_values(event, [], np.zeros(0, int), 5)
