"""Exact discrete Gaussian noise, and the sources of its random bits."""

import math
import os
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.arguments import natural_number
from adaptive_qs.errors import InputError
from adaptive_qs.machine import njit

# The sources of random bits: the operating system, or a seed, which gives no privacy.

Words = NDArray[np.uint64]


class EntropySource(Protocol):
    """A stream of independent, uniform 64-bit words, each returned once."""

    @property
    def insecure(self) -> bool:
        """Whether the stream can be predicted, so that nothing drawn from it is private."""

    def begin(self, release: int) -> None:
        """Start to draw words for the release with this number in its run."""

    def words(self, count: int) -> Words:
        """Return the next ``count`` words."""


class SystemEntropy:
    """The operating system's cryptographic generator.

    It keeps no words between calls, so no fork, copy or restored process image can return a word
    twice. Request words in blocks: one block costs one system call.
    """

    insecure = False

    def begin(self, release: int) -> None:
        """Do nothing, since words are never repeated."""

    def words(self, count: int) -> Words:
        """Return the next ``count`` words from ``os.urandom``."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


class InsecureSeed:
    """A reproducible stream for tests: anyone who knows the seed can subtract the noise.

    The stream (Philox 4x64, counter mode) depends on the seed only, not on the sizes of the calls.
    Each release has its own stream, so that a resumed run draws the same as an undisturbed one.
    InputError is raised if the seed is not a non-negative integer.
    """

    insecure = True

    def __init__(self, seed: int) -> None:
        self._seed = natural_number("insecure seed", seed)
        self._generator = np.random.Philox(self._seed)

    def begin(self, release: int) -> None:
        """Go to the start of the stream of the release."""
        self._generator = np.random.Philox(np.random.SeedSequence(self._seed, spawn_key=(release,)))

    def words(self, count: int) -> Words:
        """Return the next ``count`` words of the stream."""
        return self._generator.random_raw(count)


# Exact decisions about a uniform real, by bounds that narrow until they no longer overlap.
#
# The fast samplers decide in floating point if that is certainly right. The rare rest is decided
# here. Every bound is rigorous: `decimal` rounds exp and ln correctly (to nearest), so the
# neighbouring decimals enclose the true value.

WORD_BITS = 64


class LazyUniform:
    """A uniform real in [0, 1) whose binary digits are drawn as they are needed.

    It lies between ``numerator / 2**bits`` and ``(numerator + 1) / 2**bits``.
    """

    def __init__(self, word: int, entropy: EntropySource) -> None:
        self.numerator = word
        self.bits = WORD_BITS
        self._entropy = entropy

    @property
    def digits(self) -> int:
        """Number of decimal digits at which a bound is finer than what is known of this number."""
        return 20 + self.bits // 3

    def refine(self) -> None:
        """Draw 64 more binary digits."""
        self.numerator = (self.numerator << WORD_BITS) | int(self._entropy.words(1)[0])
        self.bits += WORD_BITS

    def is_below(self, bounds: Callable[[int], tuple[Fraction, Fraction]]) -> bool:
        """Return whether this number is below the one that ``bounds(digits)`` encloses."""
        while True:
            lower, upper = bounds(self.digits)
            if self.numerator + 1 <= lower * 2**self.bits:
                return True
            if self.numerator >= upper * 2**self.bits:
                return False
            self.refine()


def exp_bounds(exponent: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Return bounds of exp(-exponent), for exponent >= 0, to about ``digits`` digits."""
    if exponent > 3 * digits:  # exp(-3 digits) < 10**-digits; never write out a vast power
        return Fraction(0), Fraction(1, 10**digits)
    smallest, largest = quotient_bounds(exponent, digits)
    context = Context(prec=digits)
    lower = context.exp(largest.copy_negate()).next_minus(context)
    upper = context.exp(smallest.copy_negate()).next_plus(context)
    return Fraction(lower), Fraction(upper)


def gumbel_bounds(uniform: LazyUniform, digits: int) -> tuple[Decimal, Decimal]:
    """Return bounds of -ln(-ln w) over all w that ``uniform`` can be; infinite at the ends."""
    context = Context(prec=digits)
    scale = 2**uniform.bits
    smallest, _ = quotient_bounds(Fraction(uniform.numerator, scale), digits)
    _, largest = quotient_bounds(Fraction(uniform.numerator + 1, scale), digits)
    longest = context.ln(smallest).next_minus(context).copy_negate()
    shortest = max(Decimal(0), context.ln(largest).next_plus(context).copy_negate())
    lower = context.ln(longest).next_plus(context).copy_negate()
    upper = context.ln(shortest).next_minus(context).copy_negate()
    return lower, upper


def quotient_bounds(value: Fraction, digits: int) -> tuple[Decimal, Decimal]:
    """Return the decimals of ``digits`` digits just below and just above a fraction."""
    numerator, denominator = Decimal(value.numerator), Decimal(value.denominator)
    return (
        Context(prec=digits, rounding=ROUND_FLOOR).divide(numerator, denominator),
        Context(prec=digits, rounding=ROUND_CEILING).divide(numerator, denominator),
    )


# Exact discrete Gaussian noise. Source: Canonne, Kamath, Steinke 2020, Algorithms 1 to 3.
#
# One trial proposes y = offset + block·t with t = floor(σ) + 1, offset uniform on 0 .. t-1 and
# P(block >= k) = exp(-k), and a sign. It accepts with probability exp(-x), where
#
#     x = offset/t + (y - σ²/t)² / (2σ²)
#
# joins the paper's two rejections (Algorithm 2, step "D", and Algorithm 3, step "C"). Both restart
# the trial, so one test of the product gives the same distribution. A negative zero is rejected.
#
# Two words make a trial, accepted or not, so trials are independent of where a buffer ends.
# The first gives the sign (1 bit) and the offset (63 bits, by rejection). The second, u, is read
# as the first 64 bits of a uniform real w: block = k where exp(-k-1) <= w < exp(-k), and given the
# block the rest of w is uniform, so the trial accepts when
#
#     w < exp(-k-1) + (exp(-k) - exp(-k-1)) exp(-x) =: T.
#
# The kernel decides in double precision if that is certainly right. The rest is decided by exact
# arithmetic, which continues the same w with more bits. Error of the computed T: all inputs
# are rounded once (2⁻⁵³), and y < 2⁵³ is exact. If x <= 50 then |y - σ²/t| <= 10σ and σ²/t < σ, so
# the difference errs by at most 12·2⁻⁵³ σ and x by at most 400·2⁻⁵³ < 2⁻⁴⁴; exp adds below 2⁻⁵⁰
# (four ulp), and the sum, the constants and float(u) below 2⁻⁵⁰: in total less than 2⁻⁴³ T, and the
# filter allows 2⁻⁴⁰ T. If x > 50 then 2⁶⁴ exp(-x) < 0.004, and the filter also allows 2.
#
# Proof: docs/proofs.md, section 2.


NOISE_LIMIT = 2**62
"""Bound on the magnitude of draws, exceeded with probability below exp(-2¹⁵)."""

FILTER_SLACK = 2.0**-40
"""Relative error that the floating-point filter allows for; see above."""

_BLOCKS = 45
_BLOCK_TRIALS = 2**16


def discrete_gaussian(
    variance: Fraction | int, count: int, entropy: EntropySource
) -> NDArray[np.int64]:
    """Draw independent integers y with probability ∝ exp(-y² / (2 variance)), exactly.

    Their variance is at most ``variance``, and equal to it within 1 % from 0.5 on. InputError is
    raised if the variance is not a rational number in the supported range.
    """
    variance = check_variance(variance)
    scale = math.isqrt(variance.numerator // variance.denominator) + 1
    offsets = 2 ** (WORD_BITS - 1)
    last_offset = np.uint64(offsets - offsets % scale - 1)
    centre, half_precision = float(variance / scale), float(1 / (2 * variance))
    out = np.empty(count, dtype=np.int64)
    filled = 0
    while filled < count:
        words = entropy.words(2 * min(2 * (count - filled) + 16, _BLOCK_TRIALS))
        position = 0
        while position < words.size and filled < count:
            position, filled, decided = _run_trials(
                words, position, np.uint64(scale), last_offset, centre, half_precision,
                FILTER_SLACK, _THRESHOLDS, _FLOORS, _WIDTHS, out, filled,
            )  # fmt: skip
            if not decided:
                first, second = int(words[position]), int(words[position + 1])
                draw = _exact_trial(first, second, variance, scale, entropy)
                position += 2
                if draw is not None:
                    out[filled] = draw
                    filled += 1
    return out


def check_variance(variance: Fraction | int) -> Fraction:
    """Return the variance as a fraction; raise InputError unless it is from 2**-92 to 2**92."""
    if not isinstance(variance, int | Fraction):
        raise InputError(f"noise variance is a {type(variance).__name__}. Use an int or Fraction.")
    # Largest variance, and the inverse of the smallest: 45 blocks of t stay below 2⁵³
    variance_limit = 2**92
    if not Fraction(1, variance_limit) <= variance <= variance_limit:
        raise InputError("noise variance is outside 2**-92 .. 2**92: rescale the query")
    return Fraction(variance)


@njit(cache=True, nogil=True)
def _run_trials(
    words: Words,
    position: int,
    scale: np.uint64,
    last_offset: np.uint64,
    centre: float,
    half_precision: float,
    slack: float,
    thresholds: Words,
    floors: NDArray[np.float64],
    widths: NDArray[np.float64],
    out: NDArray[np.int64],
    filled: int,
) -> tuple[int, int, bool]:
    """Run trials until the words or the output end, or a trial is undecided (not consumed).

    Return the next word, the number of outputs, and whether every trial was decided.
    """
    one = np.uint64(1)
    inverse_scale = 1.0 / np.float64(scale)
    while filled < out.size and position < words.size:
        digits = words[position] >> one
        offset = digits % scale
        u = words[position + 1]
        block = 0
        while u < thresholds[block]:
            block += 1
        y = np.int64(offset) + block * np.int64(scale)
        distance = np.float64(y) - centre
        x = np.float64(offset) * inverse_scale + distance * distance * half_precision
        limit = floors[block] + widths[block] * math.exp(-x)
        known = np.float64(u)
        accepted = known < limit * (1.0 - slack) - 2.0
        if not (accepted or known > limit * (1.0 + slack) + 2.0) or u == thresholds[block]:
            return position, filled, False
        negative = (words[position] & one) == one
        out[filled] = -y if negative else y
        if accepted and digits <= last_offset and not (negative and y == 0):
            filled += 1
        position += 2
    return position, filled, True


def _exact_trial(
    first: int, second: int, variance: Fraction, scale: int, entropy: EntropySource
) -> int | None:
    """Run the trial of two words by rational arithmetic; return None if it rejects."""
    negative, digits = first & 1, first >> 1
    offsets = 2 ** (WORD_BITS - 1)
    if digits >= offsets - offsets % scale:
        return None
    offset = digits % scale
    uniform = LazyUniform(second, entropy)
    block = 0
    while uniform.is_below(partial(exp_bounds, Fraction(block + 1))):
        block += 1
    y = offset + block * scale
    x = Fraction(offset, scale) + (y - variance / scale) ** 2 / (2 * variance)
    if not uniform.is_below(partial(_limit_bounds, block, x)) or (negative and y == 0):
        return None
    return -y if negative else y


def _limit_bounds(block: int, x: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Return bounds of T = exp(-k-1) + exp(-k-x) - exp(-k-1-x) for block k."""
    floor = exp_bounds(Fraction(block + 1), digits)
    whole = exp_bounds(block + x, digits)
    cut = exp_bounds(block + 1 + x, digits)
    return floor[0] + whole[0] - cut[1], floor[1] + whole[1] - cut[0]


def _block_tables() -> tuple[NDArray[np.uint64], NDArray[np.float64], NDArray[np.float64]]:
    """Return 2⁶⁴exp(-k-1) rounded down and to nearest, and 2⁶⁴(exp(-k) - exp(-k-1)), k < 45."""
    unit = 2**WORD_BITS
    powers = [unit * exp_bounds(Fraction(k), 60)[0] for k in range(_BLOCKS + 1)]
    return (
        np.array([math.floor(power) for power in powers[1:]], dtype=np.uint64),
        np.array([float(power) for power in powers[1:]]),
        np.array([float(power - after) for power, after in pairwise(powers)]),
    )


_THRESHOLDS, _FLOORS, _WIDTHS = _block_tables()
