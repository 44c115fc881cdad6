"""Private choices: the exponential mechanism and partition selection."""

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import InputError
from adaptive_qs.privacy import noise
from adaptive_qs.privacy.events import threshold_delta
from adaptive_qs.privacy.noise import EntropySource, LazyUniform, Words, gumbel_bounds

# The exponential mechanism, exactly, as the largest sum of score and Gumbel noise.
#
# At first 64 bits of each candidate's uniform w are known, which give a narrow interval for
# g = -ln(-ln w). With m the distance of the bits from the nearer end of their range, one unit
# changes g by at most 2/(m - 1) <= 4/m. Double precision errs by a few ulp of 1 + |g| + |loss|, and
# the filter allows 2⁻⁴⁰ of it. Candidates whose interval reaches the best lower bound are compared
# exactly, with more bits of the same w.
#
# Proof: docs/proofs.md, section 1.


FILTER_SLACK = 2.0**-40
"""Relative error that the floating-point filter allows for; see above."""

_COARSE_BITS = 2**20


def exponential_mechanism(
    scores: Sequence[int] | NDArray[np.integer],
    sensitivity: int,
    epsilon: Fraction | float,
    entropy: EntropySource,
) -> int:
    """Draw the position of a candidate with probability ∝ exp(epsilon · score / (2 sensitivity)).

    The scores are integers in any common unit, such as a power of two, of shape (candidates,). The
    sensitivity is the largest change of any score by one row, in the same unit. A float ``epsilon``
    stands for its exact binary value. InputError is raised if there are no scores, or they are not
    integers below 2**62, or the sensitivity or epsilon is out of range.
    """
    scores = check_scores(scores)
    rate = check_rate(sensitivity, epsilon)
    words = entropy.words(scores.size)
    losses = np.max(scores) - scores
    values, radii = _filtered_gumbels(words)
    float_losses = losses * float(rate)
    values -= float_losses
    radii += FILTER_SLACK * float_losses
    contenders = np.flatnonzero(values + radii >= np.max(values - radii))
    if contenders.size == 1:
        return int(contenders[0])
    return _find_largest(
        {int(i): (rate * int(losses[i]), LazyUniform(int(words[i]), entropy)) for i in contenders}
    )


def check_scores(scores: Sequence[int] | NDArray[np.integer]) -> NDArray[np.int64]:
    """Return scores as a vector; InputError unless non-empty integers below 2**62."""
    array = np.asarray(scores)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InputError("selection scores are not a non-empty vector of integers: round them")
    score_limit = 2**62  # bound on the magnitude of scores, so that their differences fit 64 bits
    if np.max(array) >= score_limit or np.min(array) <= -score_limit:
        raise InputError("a selection score reaches 2**62: use a coarser grid")
    return array.astype(np.int64)


def check_rate(sensitivity: int, epsilon: Fraction | float) -> Fraction:
    """Return the exact factor epsilon / (2 sensitivity) that multiplies a score.

    InputError is raised unless the sensitivity is a positive integer, and epsilon in (0, 2**40].
    """
    if not isinstance(sensitivity, int) or sensitivity < 1:
        raise InputError(f"score sensitivity is {sensitivity!r}. Use a positive integer.")
    # Largest ε, so that every score times its rate stays finite in floating point
    epsilon_limit = 2**40
    if not 0 < epsilon <= epsilon_limit:
        raise InputError(f"selection epsilon is {epsilon!r}. Use a number in (0, 2**40].")
    return Fraction(epsilon) / (2 * sensitivity)


def _filtered_gumbels(words: Words) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Gumbel values of these bits and bounds on their errors, infinite at the ends."""
    complements = np.uint64(0) - words  # 2⁶⁴ - word, exact; 0 only for word 0
    upper_half = words >= np.uint64(2**63)
    distances = np.where(upper_half, complements, words)
    known = distances >= np.uint64(_COARSE_BITS)
    distances[~known] = _COARSE_BITS
    small = distances * 2.0**-64
    gumbels = -np.log(-np.where(upper_half, np.log1p(-small), np.log(small)))
    radii = np.where(known, 4.0 / distances + FILTER_SLACK * (1 + np.abs(gumbels)), np.inf)
    return gumbels, radii


def _find_largest(rivals: dict[int, tuple[Fraction, LazyUniform]]) -> int:
    """Return the position with the largest Gumbel value minus loss; refine until it is certain."""
    while True:
        bounds = {i: _value_bounds(loss, uniform) for i, (loss, uniform) in rivals.items()}
        best = max(lower for lower, _ in bounds.values())
        rivals = {i: rivals[i] for i, (_, upper) in bounds.items() if upper >= best}
        if len(rivals) == 1:
            return next(iter(rivals))
        for _, uniform in rivals.values():
            uniform.refine()


def _value_bounds(loss: Fraction, uniform: LazyUniform) -> tuple[Decimal, Decimal]:
    digits = uniform.digits
    least, most = noise.quotient_bounds(loss, digits)
    lower, upper = gumbel_bounds(uniform, digits)
    return (
        Context(prec=digits, rounding=ROUND_FLOOR).subtract(lower, most),
        Context(prec=digits, rounding=ROUND_CEILING).subtract(upper, least),
    )


# Partition selection: which unknown values occur, by noisy counts above a threshold.
#
# Discrete Gaussian noise of variance σ² is added to the rows of every value that occurs. The M
# largest noisy counts of at least T give their values, in alphabetical order; neither counts nor
# the number of draws are released. Cost and proof: docs/proofs.md, section 8.

LIBRARY_MARGIN = Fraction(2**20 - 1, 2**20)
"""Share of δ that a threshold uses, so that the erfc of another machine accepts it as well."""


def least_threshold(noise_variance: Fraction | int, delta: Fraction) -> int:
    """Return the smallest T >= 2 that the value of a single row passes with at most ``delta``.

    InputError is raised if δ is not above 0 and below 1.
    """
    if not 0 < delta < 1:
        raise InputError(f"delta is {float(delta):.4g}: discovering values needs one above 0")
    usable = delta * LIBRARY_MARGIN
    low, high = 1, 2
    while threshold_delta(noise_variance, high) > usable:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if threshold_delta(noise_variance, middle) > usable:
            low = middle
        else:
            high = middle
    return high


def select_values(
    values: Sequence[str], noisy: NDArray[np.int64], threshold: int, at_most: int
) -> tuple[str, ...]:
    """Return, in alphabetical order, the values whose noisy count is at least the threshold.

    If more than ``at_most`` pass, those with the largest counts are selected; of equal counts, the
    first. The given values are distinct and ascending.
    """
    passing = np.flatnonzero(noisy >= threshold)
    by_count = passing[np.argsort(-noisy[passing], kind="stable")]
    return tuple(values[i] for i in np.sort(by_count[:at_most]).tolist())


def check_values(values: Sequence[str], counts: NDArray[np.int64], at_most: int) -> None:
    """Raise InputError unless values are distinct and ascending, with one positive count each.

    Order and number of the values must not carry anything but which of them occur. A value that
    came twice would be charged once. The message quotes no value.
    """
    if counts.shape != (len(values),):
        raise InputError("values and counts differ in number. Use one count for each value.")
    if counts.size and counts.min() < 1:
        raise InputError("a value to discover has no row. Use values that occur.")
    if any(before >= after for before, after in pairwise(values)):
        raise InputError("the values to discover are not distinct and ascending: sort them")
    if at_most < 1:
        raise InputError(f"the maximum number of values is {at_most!r}. Use a positive number.")
