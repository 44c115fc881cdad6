""""""

from __future__ import annotations

import math
import time
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from adaptive_qs.errors import BudgetExceeded, InputError
from adaptive_qs.privacy import selection
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import Cost, PartitionEvent, Purpose, threshold_delta
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import InsecureSeed, LazyUniform, gumbel_bounds
from adaptive_qs.privacy.selection import (
    LIBRARY_MARGIN,
    exponential_mechanism,
    least_threshold,
    select_values,
)

from ..doors import discover_values
from .oracles import Scripted

FALSE_ALARM = 1e-6  # per test; every seed is fixed


def exact_probabilities(scores, sensitivity, epsilon):
    exponents = epsilon * (np.asarray(scores, dtype=float) - max(scores)) / (2 * sensitivity)
    weights = np.exp(exponents)
    return weights / weights.sum()


def selections(scores, sensitivity, epsilon, count, seed):
    entropy = InsecureSeed(seed)
    draws = [exponential_mechanism(scores, sensitivity, epsilon, entropy) for _ in range(count)]
    return np.bincount(draws, minlength=len(scores))


@pytest.mark.parametrize(
    ("scores", "sensitivity", "epsilon"),
    [
        ([0, 1, 2, 3], 1, 1.0),
        ([5, 5], 3, 0.1),
        ([-(2**61), 2**61], 2**62, Fraction(1)),
        ([7 * 2**40, 2**40, 0, 9 * 2**40], 2**42, 2.5),
    ],
)
def test_frequencies_are_the_exponential_mechanism_s(scores, sensitivity, epsilon):
    n = 20_000
    observed = selections(scores, sensitivity, epsilon, n, seed=1)
    expected = n * exact_probabilities(scores, sensitivity, float(epsilon))
    assert stats.chisquare(observed, expected).pvalue > FALSE_ALARM


def test_exact_path_alone_has_the_same_frequencies(monkeypatch):
    monkeypatch.setattr(selection, "FILTER_SLACK", 1e6)
    scores, n = [0, 1, 2, 3], 2_000
    observed = selections(scores, 1, 1.0, n, seed=2)
    expected = n * exact_probabilities(scores, 1, 1.0)
    assert stats.chisquare(observed, expected).pvalue > FALSE_ALARM


def test_exact_path_and_filter_agree_word_by_word(monkeypatch):
    scores = np.arange(20) ** 2
    entropy = InsecureSeed(3)
    filtered = [exponential_mechanism(scores, 10, 0.5, entropy) for _ in range(200)]
    monkeypatch.setattr(selection, "FILTER_SLACK", 1e6)
    entropy = InsecureSeed(3)
    assert [exponential_mechanism(scores, 10, 0.5, entropy) for _ in range(200)] == filtered


@pytest.mark.parametrize(("third", "fourth", "winner"), [(10, 20, 1), (20, 10, 0)])
def test_equal_first_words_are_parted_by_more_bits(third, fourth, winner):
    assert exponential_mechanism([4, 4], 1, 1.0, Scripted(2**63, 2**63, third, fourth)) == winner


@pytest.mark.parametrize("end", [0, 2**64 - 1])
def test_ends_of_the_range_are_refined(end):
    winner = exponential_mechanism([0, 0], 1, 1.0, Scripted(end, 2**63, *[2**62] * 4))
    assert winner == (1 if end == 0 else 0)


def test_filtered_gumbels_lie_within_their_radius():
    words = np.concatenate(
        [
            InsecureSeed(4).words(1_000),
            np.uint64(2**20) + np.arange(50, dtype=np.uint64),
            np.uint64(2**63) + np.arange(-25, 25).astype(np.uint64),
            np.uint64(2**64 - 2**20) - np.arange(50, dtype=np.uint64),
            InsecureSeed(5).words(200) >> np.uint64(30),
            ~(InsecureSeed(6).words(200) >> np.uint64(30)),
        ]
    )
    gumbels, radii = selection._filtered_gumbels(words)
    with mpmath.workdps(60):
        for word, gumbel, radius in zip(words, gumbels, radii):
            for end in (int(word), int(word) + 1):
                if math.isfinite(radius):
                    true = -mpmath.log(-mpmath.log(mpmath.mpf(end) / 2**64))
                    assert abs(true - gumbel) <= radius


def test_words_near_the_ends_are_not_filtered():
    _, radii = selection._filtered_gumbels(np.array([0, 1, 2**64 - 1], dtype=np.uint64))
    assert np.isinf(radii).all()


@pytest.mark.parametrize("word", [1, 2**20, 2**63, 2**64 - 2])
def test_gumbel_bounds_enclose(word):
    uniform = LazyUniform(word, InsecureSeed(0))
    with mpmath.workdps(80):
        lower, upper = gumbel_bounds(uniform, uniform.digits)
        ends = [-mpmath.log(-mpmath.log(mpmath.mpf(w) / 2**64)) for w in (word, word + 1)]
        assert mpmath.mpf(str(lower)) <= ends[0] < ends[1] <= mpmath.mpf(str(upper))


def test_gumbel_bounds_are_infinite_at_the_ends():
    low, high = (LazyUniform(word, InsecureSeed(0)) for word in (0, 2**64 - 1))
    assert gumbel_bounds(low, 40)[0] == Decimal("-Infinity")
    assert gumbel_bounds(high, 40)[1] == Decimal("Infinity")


def test_a_hopeless_candidate_is_not_selected():
    entropy = InsecureSeed(7)
    for _ in range(200):
        assert exponential_mechanism([2**62 - 1, 1 - 2**62], 1, 2**40, entropy) == 0


def test_many_candidates_are_fast():
    scores = np.arange(50_000) % 1_000
    exponential_mechanism(scores, 1, 0.1, InsecureSeed(8))
    started = time.perf_counter()
    exponential_mechanism(scores, 1, 0.1, InsecureSeed(8))
    assert time.perf_counter() - started < 0.25


@pytest.mark.parametrize("scores", [[], [[1, 2]], [0.5, 1.0], ["a"], [2**62], [-(2**62)], [2**70]])
def test_unsafe_scores_are_refused(scores):
    with pytest.raises(InputError, match="score"):
        exponential_mechanism(scores, 1, 1.0, InsecureSeed(0))


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf, 2**41])
def test_impossible_epsilons_are_refused(epsilon):
    with pytest.raises(InputError, match="epsilon"):
        exponential_mechanism([1], 1, epsilon, InsecureSeed(0))


@pytest.mark.parametrize("sensitivity", [0, -1, 1.5])
def test_impossible_sensitivities_are_refused(sensitivity):
    with pytest.raises(InputError, match="sensitivity"):
        exponential_mechanism([1], sensitivity, 1.0, InsecureSeed(0))


# Partition selection: thresholds against exact tails, what is released, and what is refused.

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
    assert PartitionEvent(Purpose.VALUES, ("values",), variance, threshold, delta).delta == delta


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
    event = PartitionEvent(
        Purpose.VALUES, ("values",), variance, least_threshold(variance, delta), delta
    )
    found = discover_values(mechanisms(), event, names(n), np.ones(n, np.int64), n)
    share = float(exact_tail(variance, event.threshold - 1))
    assert 0.005 < share <= delta  # the test has power: T is not far above what is needed
    # Binomial(n, share): six standard deviations, false alarm below 1e-8.
    assert abs(len(found) - n * share) < 6 * math.sqrt(n * share * (1 - share))


def test_frequent_values_are_found_and_rare_ones_are_not():
    # Noise of variance 4 exceeds 40 with probability below exp(-200).
    event = PartitionEvent(Purpose.VALUES, ("values",), 4, 60, Fraction(1, 10**9))
    counts = np.array([110, 3, 200, 1, 150])
    values = ["apple", "b", "cherry", "d", "elder"]
    assert discover_values(mechanisms(), event, values, counts, 10) == ("apple", "cherry", "elder")
    assert discover_values(mechanisms(), event, values, counts, 2) == ("cherry", "elder")
    assert discover_values(mechanisms(), event, values, counts, 1) == ("cherry",)


def test_no_value_at_all_is_an_answer():
    event = PartitionEvent(Purpose.VALUES, ("values",), 4, 60, Fraction(1, 10**9))
    assert discover_values(mechanisms(), event, [], np.zeros(0, np.int64), 5) == ()


def test_ties_go_to_the_first_and_names_ascend():
    noisy = np.array([7, 9, 7, 7, 2])
    assert select_values("abcde", noisy, 3, 3) == ("a", "b", "c")
    assert select_values("abcde", noisy, 10, 3) == ()


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
    event = PartitionEvent(Purpose.VALUES, ("values",), 4, 60, Fraction(1, 10**9))
    with pytest.raises(InputError) as caught:
        discover_values(doors, event, values, np.array(counts), at_most)
    assert doors.ledger.spent == Cost()
    assert "'a'" not in str(caught.value)


def test_rho_and_delta_are_charged_and_exhausted_delta_refuses():
    delta = Fraction(1, 1000)
    event = PartitionEvent(Purpose.VALUES, ("values",), 8, least_threshold(8, delta), delta)
    doors = mechanisms(delta=Fraction(1, 700))
    discover_values(doors, event, ["a"], np.array([100]), 5)
    assert doors.ledger.spent == Cost.of([event])
    assert doors.ledger.spent.rho == Fraction(1, 16)
    with pytest.raises(BudgetExceeded, match="delta"):
        discover_values(doors, event, ["a"], np.array([100]), 5)
    assert doors.ledger.events == (event,)


def test_a_ledger_with_a_foreign_output_is_refused():
    class Stale(Budget):
        def release(self, events, draw, definition=""):
            return [np.zeros(1, np.int64)]

    event = PartitionEvent(Purpose.VALUES, ("values",), 4, 60, Fraction(1, 10**9))
    with pytest.raises(InputError, match="another shape"):
        discover_values(Mechanisms(Stale(1, 1e-3), InsecureSeed(0)), event, [], np.zeros(0, int), 5)
