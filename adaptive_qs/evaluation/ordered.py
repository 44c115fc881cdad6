"""Errors of prefix and range queries on ordered attributes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OrderedError:
    """Errors of A <= a and of a <= A <= b, in shares of the rows; owner only.

    Attributes:
        attribute: its name.
        prefix_rmse: root mean squared error over all prefixes.
        prefix_max: the largest error of a prefix: the Kolmogorov-Smirnov distance.
        range_rmse: root mean squared error over all ranges.
        range_max: the largest error of a range: the Kuiper distance.
        mean_shift: mean code of the synthetic table less that of the true one, in standard
            deviations of the true one.
    """

    attribute: str
    prefix_rmse: float
    prefix_max: float
    range_rmse: float
    range_max: float
    mean_shift: float
