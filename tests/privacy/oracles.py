"""Slow and obvious references for the samplers."""

import math
from fractions import Fraction
from random import Random

import mpmath
import numpy as np


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
