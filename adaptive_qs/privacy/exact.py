"""Exact decisions about a uniform real, by bounds that narrow until they no longer overlap.

The fast samplers decide in floating point wherever that is surely right. The rare rest comes
here: every bound is rigorous because `decimal` rounds exp and ln correctly (to nearest), so that
the neighbouring decimals enclose the true value.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from adaptive_qs.privacy.entropy import EntropySource

WORD_BITS = 64


class LazyUniform:
    """A uniform real in [0, 1) whose binary digits are drawn as they are needed.

    It lies between ``numerator / 2**bits`` and ``(numerator + 1) / 2**bits``.
    """

    def __init__(self, word: int, entropy: EntropySource) -> None:
        """Start from the first 64 digits, already drawn; later ones come from ``entropy``."""
        self.numerator = word
        self.bits = WORD_BITS
        self._entropy = entropy

    @property
    def digits(self) -> int:
        """Decimal digits at which a bound is finer than what is known of this number."""
        return 20 + self.bits // 3

    def refine(self) -> None:
        """Draw 64 more binary digits."""
        self.numerator = (self.numerator << WORD_BITS) | int(self._entropy.words(1)[0])
        self.bits += WORD_BITS

    def is_below(self, bounds: Callable[[int], tuple[Fraction, Fraction]]) -> bool:
        """Whether this number is below the one that ``bounds(digits)`` encloses."""
        while True:
            lower, upper = bounds(self.digits)
            if self.numerator + 1 <= lower * 2**self.bits:
                return True
            if self.numerator >= upper * 2**self.bits:
                return False
            self.refine()


def exp_bounds(exponent: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Lower and upper bound of exp(-exponent), for exponent >= 0, to about ``digits`` digits."""
    if exponent > 3 * digits:  # exp(-3 digits) < 10**-digits; never write out a vast power
        return Fraction(0), Fraction(1, 10**digits)
    smallest, largest = quotient_bounds(exponent, digits)
    context = Context(prec=digits)
    lower = context.exp(largest.copy_negate()).next_minus(context)
    upper = context.exp(smallest.copy_negate()).next_plus(context)
    return Fraction(lower), Fraction(upper)


def gumbel_bounds(uniform: LazyUniform, digits: int) -> tuple[Decimal, Decimal]:
    """Bounds of -ln(-ln w) over all w that ``uniform`` may still be; infinite at the ends."""
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
    """The decimals of ``digits`` digits just below and just above a fraction."""
    numerator, denominator = Decimal(value.numerator), Decimal(value.denominator)
    return (
        Context(prec=digits, rounding=ROUND_FLOOR).divide(numerator, denominator),
        Context(prec=digits, rounding=ROUND_CEILING).divide(numerator, denominator),
    )
