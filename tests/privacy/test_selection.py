import math
import time
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from adaptive_qs.errors import InputError
from adaptive_qs.privacy import selection
from adaptive_qs.privacy.entropy import InsecureSeed
from adaptive_qs.privacy.exact import LazyUniform, gumbel_bounds
from adaptive_qs.privacy.selection import exponential_mechanism

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
