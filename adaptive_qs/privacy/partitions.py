"""Which of unknown values occur: noisy counts above a threshold (partition selection).

Count the rows of every value that occurs, add discrete Gaussian noise of variance σ² to each
count, keep the values whose noisy count is at least T, of these the M with the largest noisy
counts, and release their names in alphabetical order, without the counts.

The cost is δ-approximate ρ-zCDP (Bun and Steinke 2016, section 8) with ρ = 1/(2σ²) and
δ = P[1 + noise ≥ T]. A row holds one value v, or none. Take a table and the same with one row more.

- v occurs in both: both draw noise for the same values, and their counts differ by one in one
  place. The vector of noisy counts is 1/(2σ²)-zCDP (Canonne, Kamath, Steinke 2020, Theorem 14).
- v occurs in the larger table only, with count one. Let E be the event that its noisy count stays
  below T; P[E] ≥ 1 − δ. Given E the larger table releases nothing of v, and the noisy counts of
  the other values have the same distribution in both tables, so that given E the outputs are
  distributed alike. In the smaller table E is the sure event.

Keeping M and sorting names see only noisy counts that passed the threshold: post-processing. How
many values occur, and so how many draws are made, stays hidden, since values that do not pass are
never named; what time and memory tell is not covered.

Proof: docs/proofs.md, section 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import InputError
from adaptive_qs.privacy.events import threshold_delta

LIBRARY_MARGIN = Fraction(2**20 - 1, 2**20)
"""Part of δ that a threshold uses, so that another machine's erfc accepts it as well."""


def least_threshold(noise_variance: Fraction | int, delta: Fraction) -> int:
    """The smallest T of at least 2 for which a single row's value passes with at most ``delta``.

    Args:
        noise_variance: parameter σ² of the noise.
        delta: share of δ, above 0 and below 1.

    Raises:
        InputError: δ is out of range.
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


def released_values(
    values: Sequence[str], noisy: NDArray[np.int64], threshold: int, at_most: int
) -> tuple[str, ...]:
    """The values of the largest noisy counts that pass, in alphabetical order.

    Args:
        values: distinct and ascending; ties of the noisy counts go to the first.
        noisy: shape (len(values),), noisy counts.
        threshold: least noisy count that passes.
        at_most: how many values are kept.
    """
    passing = np.flatnonzero(noisy >= threshold)
    by_count = passing[np.argsort(-noisy[passing], kind="stable")]
    return tuple(values[i] for i in np.sort(by_count[:at_most]).tolist())


def check_values(values: Sequence[str], counts: NDArray[np.int64], at_most: int) -> None:
    """Refuse values that are not distinct and ascending with one count each.

    Order and number of the values must not carry anything but which of them occur, and a value
    that came twice would be charged once.

    Raises:
        InputError: they are not, or fewer than one value is to be kept; no value is quoted.
    """
    if counts.shape != (len(values),):
        raise InputError("values and counts differ in number: give one count for each value")
    if counts.size and counts.min() < 1:
        raise InputError("a value to discover has no row: give those that occur")
    if any(before >= after for before, after in pairwise(values)):
        raise InputError("the values to discover are not distinct and ascending: sort them")
    if at_most < 1:
        raise InputError(f"at most {at_most!r} values are asked for: give a positive number")
