""""""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from random import Random

import mpmath
import numpy as np
import pytest
from scipy import stats

from adaptive_qs.errors import InputError
from adaptive_qs.privacy import noise
from adaptive_qs.privacy.noise import (
    InsecureSeed,
    LazyUniform,
    SystemEntropy,
    discrete_gaussian,
    exp_bounds,
)

from . import oracles
from .noise_paths import paths
from .recorded_noise import MEASUREMENTS, Discoveries, Noise, Selections, faults

FALSE_ALARM = 1e-6  # per test; every seed is fixed, so a pass is a pass for good
Z = 4.9  # two-sided normal quantile of FALSE_ALARM


def chi_square_pvalue(draws: np.ndarray, variance: float) -> float:
    """Against the exact pmf, cells pooled in the tails so that each expects at least 5."""
    reach = math.ceil(12 * math.sqrt(variance)) + 2
    expected = draws.size * oracles.gaussian_pmf(variance, reach)
    observed = np.bincount(draws + reach, minlength=expected.size)
    inner = np.flatnonzero(expected >= 5)
    first, last = inner[0], inner[-1]

    def pooled(cells):
        return np.r_[cells[:first].sum(), cells[first : last + 1], cells[last + 1 :].sum()]

    observed, expected = pooled(observed), pooled(expected)
    kept = expected > 1e-3
    statistic = ((observed - expected)[kept] ** 2 / expected[kept]).sum()
    assert observed[~kept].sum() == 0
    return stats.chi2.sf(statistic, kept.sum() - 1)


@pytest.mark.parametrize(
    "variance", [Fraction(1, 10), Fraction(1), Fraction(101, 2), Fraction(10**4)]
)
def test_frequencies_are_the_exact_pmf(variance):
    draws = discrete_gaussian(variance, 1_000_000, InsecureSeed(1))
    assert chi_square_pvalue(draws, float(variance)) > FALSE_ALARM


@pytest.mark.parametrize("variance", [10**4, 10**12, 2**80, 2**92])
def test_large_draws_follow_the_normal_law(variance):
    n = 1_000_000
    draws = discrete_gaussian(variance, n, InsecureSeed(2)) / math.sqrt(variance)
    # Var of the sample variance is 2/n; of the fourth moment (105 - 9)/n; of the mean 1/n.
    assert abs(np.mean(draws)) < Z / math.sqrt(n)
    assert abs(np.mean(draws**2) - 1) < Z * math.sqrt(2 / n)
    assert abs(np.mean(draws**4) - 3) < Z * math.sqrt(96 / n)
    cells = np.bincount((stats.norm.cdf(draws) * 1000).astype(int), minlength=1000)
    # Rounding to integers moves a cell's edge by at most 1/(2σ): below n/1000/σ draws.
    if variance >= 10**12:
        assert stats.chisquare(cells).pvalue > FALSE_ALARM


@pytest.mark.parametrize("variance", [Fraction(1, 10), Fraction(1), Fraction(101, 2)])
def test_low_digits_of_successive_draws_are_independent(variance):
    draws = discrete_gaussian(variance, 400_000, InsecureSeed(3)).astype(float)
    for lag in (1, 2, 3):
        correlation = np.corrcoef(draws[:-lag], draws[lag:])[0, 1]
        assert abs(correlation) < Z / math.sqrt(draws.size - lag)


def test_huge_draws_are_uniform_modulo_a_small_number():
    draws = discrete_gaussian(2**80, 500_000, InsecureSeed(4))
    assert stats.chisquare(np.bincount(draws % 7)).pvalue > FALSE_ALARM


@pytest.mark.parametrize("variance", [Fraction(1, 10), Fraction(1), Fraction(101, 2)])
def test_exact_path_alone_has_the_exact_pmf(variance, monkeypatch):
    monkeypatch.setattr(noise, "FILTER_SLACK", math.inf)
    draws = discrete_gaussian(variance, 2_000, InsecureSeed(5))
    assert chi_square_pvalue(draws, float(variance)) > FALSE_ALARM


@pytest.mark.parametrize(
    ("variance", "count", "constant", "value"),
    [
        # the exact path and the filter, and a narrow gap, which mixes them
        *((v, 1_000, "FILTER_SLACK", math.inf) for v in (Fraction(1, 10), Fraction(101, 2), 2**80)),
        (1000, 20_000, "FILTER_SLACK", 1e-3),
        (1000, 20_000, "_BLOCK_TRIALS", 7),
    ],
)
def test_neither_the_filter_nor_blocks_show_in_the_draws(
    variance, count, constant, value, monkeypatch
):
    usual = discrete_gaussian(variance, count, InsecureSeed(6))
    monkeypatch.setattr(noise, constant, value)
    assert np.array_equal(discrete_gaussian(variance, count, InsecureSeed(6)), usual)


@pytest.mark.parametrize("variance", [Fraction(1, 10), Fraction(5, 2)])
def test_the_paper_s_algorithm_gives_the_same_frequencies(variance):
    random, n = Random(9), 5_000
    slow = np.array([oracles.discrete_gaussian(variance, random) for _ in range(n)])
    fast = discrete_gaussian(variance, n, InsecureSeed(9))
    reach = max(np.abs(slow).max(), np.abs(fast).max())
    table = np.array([np.bincount(x + reach, minlength=2 * reach + 1) for x in (slow, fast)])
    table = table[:, table.sum(axis=0) >= 10]
    assert stats.chi2_contingency(table).pvalue > FALSE_ALARM


def test_tiny_variance_is_almost_never_noisy():
    assert not discrete_gaussian(Fraction(1, 2**92), 1_000, InsecureSeed(10)).any()


@pytest.mark.parametrize("bad", [0, -1, Fraction(1, 2**93), 2**92 + 1, 2.5])
def test_unsupported_variances_are_refused(bad):
    with pytest.raises(InputError, match="variance"):
        discrete_gaussian(bad, 1, InsecureSeed(0))


@pytest.mark.parametrize("variance", [Fraction(1, 10), Fraction(101, 2), Fraction(2**92 - 1)])
def test_filter_encloses_the_true_limit(variance):
    """The kernel's floating-point limit errs far less than the slack: 2⁻⁴³ by its proof."""
    random = Random(11)
    scale = math.isqrt(math.floor(variance)) + 1
    centre, half_precision = float(variance / scale), float(1 / (2 * variance))
    with mpmath.workdps(60):
        for _ in range(2_000):
            offset, block = random.randrange(scale), random.randrange(12)
            y = offset + block * scale
            x = offset * (1.0 / scale) + (float(y) - centre) ** 2 * half_precision
            computed = noise._FLOORS[block] + noise._WIDTHS[block] * math.exp(-x)
            true_x = Fraction(offset, scale) + (y - variance / scale) ** 2 / (2 * variance)
            power = mpmath.exp(-mpmath.mpf(true_x.numerator) / true_x.denominator)
            low, high = mpmath.exp(-block - 1), mpmath.exp(-block)
            true = 2**64 * (low + (high - low) * power)
            assert abs(computed - true) <= 2.0**-43 * true + 0.01


def test_exp_bounds_enclose_and_narrow():
    random = Random(12)
    with mpmath.workdps(120):
        for _ in range(500):
            exponent = Fraction(random.randrange(10**6), random.randrange(1, 10**5))
            power = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator)
            for digits in (20, 60):
                lower, upper = (
                    mpmath.mpf(b.numerator) / b.denominator for b in exp_bounds(exponent, digits)
                )
                assert lower < power < upper
                assert upper - lower <= power * mpmath.mpf(10) ** (4 - digits) + mpmath.mpf(10) ** (
                    -digits
                )


def words_of_inverse_e() -> tuple[int, int]:
    """The first two 64-bit words of exp(-1)."""
    with mpmath.workdps(80):
        return divmod(int(mpmath.exp(-1) * 2**128), 2**64)


@pytest.mark.parametrize(("step", "below"), [(-1, True), (1, False)])
def test_undecided_uniform_draws_more_bits(step, below):
    first, second = words_of_inverse_e()
    uniform = LazyUniform(first, oracles.Scripted(second + step))
    assert uniform.is_below(lambda digits: exp_bounds(Fraction(1), digits)) is below


@pytest.mark.parametrize(("step", "draw"), [(-1, 1), (1, 0)])
def test_a_word_on_a_block_s_edge_is_decided_by_more_bits(step, draw):
    """At σ = 1, w just above exp(-1) accepts y = 0; just below, it rejects y = 2.

    The next trial, sign +, offset 1, w = 1/2, accepts y = 1.
    """
    first, second = words_of_inverse_e()
    entropy = oracles.Scripted(0, first, *[2, 2**63] * 17, second + step)
    assert discrete_gaussian(1, 1, entropy) == [draw]


def test_only_the_seed_is_marked_insecure():
    assert InsecureSeed(0).insecure
    assert not SystemEntropy().insecure


@pytest.mark.parametrize("source", [SystemEntropy(), InsecureSeed(1)])
def test_words_are_uniform_and_fresh(source):
    words = np.concatenate([source.words(20_000), source.words(1), source.words(0)])
    assert words.dtype == np.uint64
    assert np.unique(words).size == 20_001
    cells = np.bincount(words.view(np.uint8), minlength=256)
    assert stats.chisquare(cells).pvalue > 1e-6  # false alarm; the system's words have no seed


def test_a_seed_gives_one_stream_however_it_is_cut():
    whole, cut = InsecureSeed(2), InsecureSeed(2)
    parts = np.concatenate([cut.words(n) for n in (1, 6, 93)])
    assert np.array_equal(whole.words(100), parts)
    assert not np.array_equal(InsecureSeed(3).words(100), parts)


@pytest.mark.parametrize("seed", [-1, 1.5, "x", None])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(InputError, match="seed"):
        InsecureSeed(seed)


# Noise as users get it: its law, its width and its independence, path by path.
#
# Each path is tested once with fresh entropy: at most five figures with the false alarms that
# ``recorded_noise`` states, so that the whole file fails by chance less than once in 10⁸ runs.

DRAWS = 200_000
SLOW = {"selection, marginals", "selection, scores", "bins, magnitudes"}
SELECTIONS = 60_000  # of both paths, which take 40 microseconds each


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in paths()],
)
def test_noise_has_its_declared_law(name):
    count = SELECTIONS if name.startswith("selection") else DRAWS
    figures = paths()[name](count).figures()
    assert figures["draws"] >= count
    assert faults(figures) == []


def honest(variance=Fraction(400)):
    drawn = discrete_gaussian(variance, DRAWS, InsecureSeed(1)).reshape(MEASUREMENTS, -1)
    return Noise(drawn, variance, drawn / oracles.gaussian_std(variance))


def test_honest_noise_has_no_faults():
    assert faults(honest().figures()) == []


SPOILT = {
    "reused": (lambda n: {"drawn": n.drawn[[0, 0, 2, 3]]}, "correlation"),
    "repeated": (lambda n: {"drawn": np.repeat(n.drawn[:, ::2], 2, axis=1)}, "correlation"),
    "declared wider": (lambda n: {"variance": n.variance * Fraction(103, 100)}, "std_error"),
    "declared double": (lambda n: {"variance": n.variance * 2}, "p_value"),
    "returned narrower": (lambda n: {"returned": n.returned / 2**0.5}, "returned_std_error"),
    "coarse": (lambda n: {"drawn": n.drawn // 2 * 2}, "low_digits_p_value"),
    "cut off": (lambda n: {"drawn": np.clip(n.drawn, -60, 60)}, "p_value"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_spoilt_noise_is_found_out(case):
    spoil, fault = SPOILT[case]
    found = honest()
    assert fault in faults(dataclasses.replace(found, **spoil(found)).figures())


def test_continuous_noise_that_was_rounded_is_found_out():
    drawn = np.rint(np.random.default_rng(2).normal(size=(MEASUREMENTS, DRAWS // MEASUREMENTS)))
    noise = Noise(drawn.astype(np.int64), Fraction(1), drawn / drawn.std())
    assert "p_value" in faults(noise.figures())


def test_a_selection_of_another_epsilon_is_found_out():
    probabilities = np.array([0.5, 0.3, 0.2])
    chosen = np.random.default_rng(3).choice(3, DRAWS, p=probabilities)
    assert faults(Selections(chosen, probabilities).figures()) == []
    sharper = probabilities**1.05
    assert faults(Selections(chosen, sharper / sharper.sum()).figures()) == ["p_value"]


def passing(sigma, threshold=0.0):
    """Values of counts -20 .. 20 around a threshold, with normal noise of this width."""
    counts = np.arange(DRAWS // MEASUREMENTS) % 41 - 20
    noise = np.random.default_rng(4).normal(size=(MEASUREMENTS, counts.size)) * sigma
    return counts + noise >= threshold, stats.norm.cdf(counts / 10)


def test_values_that_pass_another_threshold_are_found_out():
    assert faults(Discoveries(*passing(10)).figures()) == []
    assert "p_value" in faults(Discoveries(*passing(10 / 2**0.5)).figures())
    assert "p_value" in faults(Discoveries(*passing(10, threshold=-1)).figures())
    passed, probabilities = passing(10)
    passed[1] = passed[0]
    assert "correlation" in faults(Discoveries(passed, probabilities).figures())


@pytest.mark.parametrize("variance", [Fraction(16, 25), Fraction(10**8), Fraction(2**31)])
def test_cells_hold_the_exact_probabilities(variance):
    """The sum of the pmf and the midpoint rule agree where both are possible."""
    edges, probabilities = oracles.gaussian_cells(variance, 50)
    reach = int(12 * float(variance) ** 0.5) + 2
    below = np.r_[0.0, np.cumsum(oracles.gaussian_pmf(float(variance), reach))]
    exact = np.diff(np.r_[0.0, below[edges + reach], 1.0])
    assert abs(probabilities - exact).max() < 2.0**-33
