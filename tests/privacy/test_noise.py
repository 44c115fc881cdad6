import math
from fractions import Fraction
from random import Random

import mpmath
import numpy as np
import pytest
from scipy import stats

from adaptive_qs.errors import InputError
from adaptive_qs.privacy import noise
from adaptive_qs.privacy.entropy import InsecureSeed
from adaptive_qs.privacy.exact import LazyUniform, exp_bounds
from adaptive_qs.privacy.noise import discrete_gaussian

from . import oracles

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


@pytest.mark.parametrize("variance", [Fraction(1, 10), Fraction(101, 2), Fraction(2**80)])
def test_exact_path_and_filter_agree_word_by_word(variance, monkeypatch):
    filtered = discrete_gaussian(variance, 1_000, InsecureSeed(6))
    monkeypatch.setattr(noise, "FILTER_SLACK", math.inf)
    assert np.array_equal(discrete_gaussian(variance, 1_000, InsecureSeed(6)), filtered)


def test_narrow_gap_mixes_both_paths(monkeypatch):
    filtered = discrete_gaussian(1000, 20_000, InsecureSeed(7))
    monkeypatch.setattr(noise, "FILTER_SLACK", 1e-3)
    assert np.array_equal(discrete_gaussian(1000, 20_000, InsecureSeed(7)), filtered)


def test_block_boundaries_do_not_matter(monkeypatch):
    whole = discrete_gaussian(1000, 20_000, InsecureSeed(8))
    monkeypatch.setattr(noise, "_BLOCK_TRIALS", 7)
    assert np.array_equal(discrete_gaussian(1000, 20_000, InsecureSeed(8)), whole)


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
