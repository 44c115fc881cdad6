"""Slow and obvious references for the samplers."""

import math
from fractions import Fraction
from random import Random

import mpmath
import numpy as np
from scipy import special


class Scripted:
    """Entropy that hands out the given words."""

    insecure = True

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def words(self, count: int) -> np.ndarray:
        taken, self._words = self._words[:count], self._words[count:]
        return np.array(taken, dtype=np.uint64)


def bernoulli_exp(exponent: Fraction, random: Random) -> bool:
    """Canonne, Kamath, Steinke 2020, Algorithm 1: True with probability exp(-exponent)."""
    while exponent > 1:
        if not bernoulli_exp(Fraction(1), random):
            return False
        exponent -= 1
    k = 1
    while random.randrange(exponent.denominator * k) < exponent.numerator:
        k += 1
    return k % 2 == 1


def discrete_laplace(scale: int, random: Random) -> int:
    """Algorithm 2 with s = 1."""
    while True:
        offset = random.randrange(scale)
        if not bernoulli_exp(Fraction(offset, scale), random):
            continue
        block = 0
        while bernoulli_exp(Fraction(1), random):
            block += 1
        magnitude = offset + scale * block
        negative = random.randrange(2)
        if not (negative and magnitude == 0):
            return -magnitude if negative else magnitude


def discrete_gaussian(variance: Fraction, random: Random) -> int:
    """Algorithm 3."""
    scale = math.isqrt(math.floor(variance)) + 1
    while True:
        draw = discrete_laplace(scale, random)
        if bernoulli_exp((abs(draw) - variance / scale) ** 2 / (2 * variance), random):
            return draw


def gaussian_pmf(variance: float, reach: int) -> np.ndarray:
    """Probabilities of -reach .. reach, for a reach beyond which nothing counts."""
    values = np.arange(-reach, reach + 1, dtype=float)
    weights = np.exp(-(values**2) / (2 * variance))
    return weights / weights.sum()


def zcdp_delta(rho: float, epsilon: float) -> mpmath.mpf:
    """The infimum over α by its stationarity condition, to 60 digits."""
    with mpmath.workdps(60):
        rho, epsilon = mpmath.mpf(rho), mpmath.mpf(epsilon)
        low, high = mpmath.mpf("-60"), mpmath.mpf(60)  # ln(α - 1)
        for _ in range(200):
            middle = (low + high) / 2
            a = mpmath.exp(middle)
            if (1 + 2 * a) * rho - epsilon - mpmath.log1p(1 / a) < 0:
                low = middle
            else:
                high = middle
        a = mpmath.exp(low)
        return mpmath.exp(a * ((1 + a) * rho - epsilon)) / a * (1 - 1 / (1 + a)) ** (1 + a)


def gaussian_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """Dong, Roth, Su 2022, Corollary 2.13, to 60 digits beyond any cancellation."""
    with mpmath.workdps(120):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        first = mpmath.ncdf(mu / 2 - epsilon / mu)
        return first - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


def gaussian_cells(variance: Fraction | int, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Integer edges that cut the discrete Gaussian into cells, and the cells' probabilities.

    Cell k holds the integers from edges[k - 1] to below edges[k]; the first and the last are
    unbounded. Each holds about 1/cells, or one integer where that has more. Up to σ = 2¹⁵ the
    probabilities are sums of the pmf. Beyond, P[Y < e] is Φ((e - 1/2)/σ): the midpoint rule errs
    by less than 1/(24 σ²) ∫|φ''| < 2⁻³³.
    """
    sigma = math.sqrt(variance)
    middle = special.ndtri(np.arange(1, cells) / cells) * sigma
    edges = np.unique(np.rint(middle + 0.5)).astype(np.int64)
    if sigma > 2**15:
        below = special.ndtr((edges - 0.5) / sigma)
    else:
        reach = math.ceil(12 * sigma) + 2
        below = np.r_[0.0, np.cumsum(gaussian_pmf(float(variance), reach))][edges + reach]
    return edges, np.diff(np.r_[0.0, below, 1.0])


def gaussian_std(variance: Fraction | int) -> float:
    """Standard deviation of the discrete Gaussian; from σ = 10 on it is σ up to exp(-2π²σ²)."""
    if variance >= 100:
        return math.sqrt(variance)
    pmf = gaussian_pmf(float(variance), 130)
    return math.sqrt(pmf @ np.arange(-130.0, 131.0) ** 2)
