"""Errors of prefix and range queries on ordered attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation.pair import TablePair


@dataclass(frozen=True)
class OrderedError:
    """Errors of A <= a and of a <= A <= b, in shares of the rows; owner only.

    Missing and unknown values come after all others, as in the queries of a workload.

    Attributes:
        attribute: its name.
        prefix_rmse: root mean squared error over all prefixes.
        prefix_max: the largest error of a prefix: the Kolmogorov-Smirnov distance.
        range_rmse: root mean squared error over all ranges.
        range_max: the largest error of a range: the Kuiper distance.
        mean_shift: mean code of the synthetic table less that of the true one, in standard
            deviations of the true one; in codes where that is 0, and 0 where a table has no
            value. Missing and unknown values are left out.
    """

    attribute: str
    prefix_rmse: float
    prefix_max: float
    range_rmse: float
    range_max: float
    mean_shift: float


def ordered_errors(
    pair: TablePair, num_values: Mapping[str, int] | None = None
) -> tuple[OrderedError, ...]:
    """The errors of every ordered attribute.

    With G_0 = 0 and G_k the difference of the shares of the first k codes, the error of a range is
    G_j − G_i, i < j. So Σ over all n(n+1)/2 ranges of its square is (n+1)·ΣG² − (ΣG)², and the
    largest is max G − min G: linear in n.

    Args:
        pair: the tables.
        num_values: by attribute, how many of its first codes are values and neither missing nor
            unknown; all where it is not named.
    """
    errors = []
    for i, attribute in enumerate(pair.domain.attributes):
        if not attribute.ordered:
            continue
        columns = (pair.true.columns[i], pair.synthetic.columns[i])
        codes, ranks = np.unique(np.concatenate(columns), return_inverse=True)
        true = np.bincount(ranks[: pair.true.num_rows], minlength=len(codes))
        synthetic = np.bincount(ranks[pair.true.num_rows :], minlength=len(codes))
        difference = np.cumsum(synthetic / pair.synthetic.num_rows - true / pair.true.num_rows)
        difference[-1] = 0.0
        lengths = np.diff(codes.astype(np.float64), append=attribute.size)
        known = codes < (attribute.size if num_values is None else num_values[attribute.name])
        errors.append(
            OrderedError(
                attribute.name,
                *_prefix_and_range(difference, lengths, attribute.size),
                _mean_shift(codes[known], true[known], synthetic[known]),
            )
        )
    return tuple(errors)


def _prefix_and_range(
    difference: NDArray, lengths: NDArray, n: int
) -> tuple[float, float, float, float]:
    """From the prefixes that end in an occurring code, and for how many codes each holds."""
    squares = float((lengths * np.square(difference)).sum())
    ranges = max(0.0, (n + 1) * squares - float((lengths * difference).sum()) ** 2)
    return (
        float(np.sqrt(squares / n)),
        float(np.abs(difference).max()),
        float(np.sqrt(ranges / (n * (n + 1) / 2))),
        float(max(0.0, difference.max()) - min(0.0, difference.min())),
    )


def _mean_shift(codes: NDArray, true: NDArray, synthetic: NDArray) -> float:
    if not (true.sum() and synthetic.sum()):
        return 0.0
    mean = float(np.average(codes, weights=true))
    deviation = float(np.sqrt(np.average((codes - mean) ** 2, weights=true)))
    shift = float(np.average(codes, weights=synthetic)) - mean
    return shift / deviation if deviation else shift
