"""The sampler's decisions enumerated: probabilities of its outputs as fractions, not frequencies.

One trial of the discrete Gaussian is a tree whose branches are random bits. Here every branch is
followed, with its probability as an exact fraction, and what is still open at the end is counted
as well. So each output has a lower and an upper bound of its probability. The exact probability,
enclosed by interval arithmetic of another library, has to lie between them.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from adaptive_qs.privacy import noise

UNDECIDED = "undecided"
SLOW = pytest.mark.slow
VARIANCES = [Fraction(1, 3), Fraction(2), Fraction(27, 4)]
"""With one, two and three offsets; three do not divide the number of words."""


class RanOutError(Exception):
    """More random words are needed than there are."""


class Words:
    """Entropy that ends."""

    insecure = True

    def __init__(self, *words: int) -> None:
        self._words = iter(words)

    def words(self, count: int) -> list[int]:
        try:
            return [next(self._words) for _ in range(count)]
        except StopIteration:
            raise RanOutError from None


def scale_of(variance):
    return math.isqrt(math.floor(variance)) + 1


def decide(variance, *words):
    """What a trial of these words gives by exact arithmetic: an output, None, or UNDECIDED."""
    first, second, *more = words
    try:
        return noise._exact_trial(first, second, variance, scale_of(variance), Words(*more))
    except (RanOutError, RuntimeError):  # a StopIteration
        return UNDECIDED


def exact(variance, value, bits):
    """Bounds of a trial's probability of a value, from the law and not from the code.

    An output has P(offset) · ½ · (1 − 1/e) · exp(−σ²/2t²) · exp(−y²/2σ²), t the number of offsets:
    the rejections of Canonne, Kamath, Steinke 2020 (Algorithms 2 and 3) multiplied out.
    """
    scale, offsets = scale_of(variance), 2 ** (bits - 1)
    with mpmath.workprec(400):
        exponent = variance / (2 * scale**2) + value**2 / (2 * variance)
        iv = mpmath.iv
        iv.prec = 400
        found = (1 - iv.exp(-1)) * iv.exp(-iv.mpf(exponent.numerator) / exponent.denominator)
        found *= iv.mpf(offsets // scale) / offsets / 2
        return tuple(map(as_fraction, (found.a, found.b)))


def as_fraction(bound):
    sign, mantissa, power, _ = mpmath.mpf(bound)._mpf_
    return (-1) ** sign * Fraction(int(mantissa)) * Fraction(2) ** int(power)


BITS = 4


def every_branch(variance, depth):
    """Outcomes of a trial by all words of ``BITS`` bits, up to ``depth`` words, with fractions."""
    found, open_branches = Counter(), [()]
    while open_branches:
        words = open_branches.pop()
        outcome = decide(variance, *words) if len(words) >= 2 else UNDECIDED
        if outcome == UNDECIDED and len(words) < depth:
            open_branches += [(*words, word) for word in range(2**BITS)]
        else:
            found[outcome] += Fraction(1, 2 ** (BITS * len(words)))
    return found


@pytest.mark.parametrize("variance", [Fraction(2), pytest.param(Fraction(1, 3), marks=SLOW)])
def test_all_branches_of_short_words_have_the_exact_law(variance, monkeypatch):
    monkeypatch.setattr(noise, "WORD_BITS", BITS)
    found = every_branch(variance, 3)
    assert sum(found.values()) == 1
    left = found.pop(UNDECIDED)
    assert 0 < left < Fraction(1, 20)
    del found[None]
    assert {-1, 0, 1} <= found.keys()
    for value, lower in found.items():
        least, most = exact(variance, value, BITS)
        assert lower <= most
        assert least <= lower + left
    # Another law does not fit: the bounds are narrow enough to tell.
    assert any(
        not lower <= exact(variance * Fraction(6, 5), value, BITS)[1] <= lower + left
        for value, lower in found.items()
    )


def kernel(variance, first, second):
    """What the compiled kernel makes of two words: an output, None, or UNDECIDED."""
    scale, out = scale_of(variance), np.full(1, 2**62)
    offsets = 2 ** (noise.WORD_BITS - 1)
    _, filled, decided = noise._run_trials(
        np.array([first, second], dtype=np.uint64), 0, np.uint64(scale),
        np.uint64(offsets - offsets % scale - 1), float(variance / scale),
        float(1 / (2 * variance)),
        noise.FILTER_SLACK, noise._THRESHOLDS, noise._FLOORS, noise._WIDTHS, out, 0,
    )  # fmt: skip
    if not decided:
        return UNDECIDED
    return int(out[0]) if filled else None


def first_not(outcome, low, high, decision):
    """The first word in low .. high that does not have the outcome, where those that have it come
    first."""
    while low < high:
        middle = (low + high) // 2
        if decision(middle) == outcome:
            low = middle + 1
        else:
            high = middle
    return low


def bounds_in_block(variance, offset, block):
    """Bounds of a trial's probability of offset + block · t, by words of 64 bits.

    The second word u decides: inside the block the kernel accepts the smallest, rejects the
    largest, and hands those between over to exact arithmetic. That accepts, needs one more word,
    or rejects.
    """
    first, value = 2 * offset, offset + block * scale_of(variance)
    low = int(noise._THRESHOLDS[block]) + 1  # the block's edge itself is decided exactly
    high = int(noise._THRESHOLDS[block - 1]) if block else 2**64

    def fast(u):
        return kernel(variance, first, u)

    accepted = first_not(value, low, high, fast)
    rejected = first_not(UNDECIDED, accepted, high, fast)
    rng = np.random.default_rng(block)
    for start, end, outcome in ((low, accepted, value), (rejected, high, None)):
        for u in rng.integers(start, end, 20, dtype=np.uint64) if start < end else ():
            assert fast(int(u)) == outcome
    assert rejected - accepted <= 2**-38 * rejected + 8, "the filter hands over too many words"

    def slow(*words):
        return decide(variance, first, *words)

    edge = low - 1  # part of its values belongs to this block, part to the next
    begin = first_not(None, 0, 2**64, lambda w: None if slow(edge, w) != value else value)
    below = first_not(value, accepted, rejected, slow)
    after = first_not(UNDECIDED, below, rejected, slow)
    lower, upper = Fraction(below - low), Fraction(after - low)
    if after > below:  # one word, of which the next decides
        assert after - below == 1
        deep = first_not(value, 0, 2**64, lambda w: slow(below, w))
        lower, upper = lower + Fraction(deep, 2**64), lower + Fraction(deep + 1, 2**64)
    lower += Fraction(2**64 - begin - 1, 2**64)
    upper += Fraction(2**64 - begin + 1, 2**64)
    scale, offsets = scale_of(variance), 2**63
    chance = Fraction(offsets // scale, 2 * offsets)
    return value, lower * chance / 2**64, upper * chance / 2**64


@pytest.mark.parametrize(
    "variance", [Fraction(27, 4), *(pytest.param(v, marks=SLOW) for v in VARIANCES[:2])]
)
def test_the_tree_of_whole_words_has_the_exact_law(variance):
    """To 2⁻¹²⁵, kernel and exact arithmetic together; statistics would see 2⁻¹⁰."""
    for offset in range(scale_of(variance)):
        for block in range(6):
            value, lower, upper = bounds_in_block(variance, offset, block)
            least, most = exact(variance, value, 64)
            assert lower <= most
            assert least <= upper
            assert upper - lower < Fraction(1, 2**125)


def test_the_sign_is_fair_and_there_is_no_negative_zero():
    for variance in VARIANCES:
        for offset in range(scale_of(variance)):
            positive, negative = (kernel(variance, 2 * offset + sign, 2**63) for sign in (0, 1))
            if positive == 0:
                assert negative is None
            elif positive is not None:
                assert negative == -positive


def test_offsets_are_uniform():
    """First words above the last multiple of the number of offsets are rejected."""
    variance = VARIANCES[2]
    last = 2**63 - 2**63 % 3 - 1
    assert [kernel(variance, 2 * d, 2**63) for d in range(last - 2, last + 1)] == [0, 1, 2]
    assert kernel(variance, 2 * (last + 1), 2**63) is None
    assert decide(variance, 2 * (last + 1), 2**63) is None
