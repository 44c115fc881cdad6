"""Bins for columns whose description names none, in proposed and imported schemas."""

from __future__ import annotations

from typing import Any

MAX_INTEGERS = 200
"""Integer ranges longer than this get bins where the number of rows is not known."""
INTEGER_BINS = 100
NUMERIC_BINS = 32
LEAST_BINS = 8
"""Bins proposed for the smallest tables."""
LEAST_PERIODS = 24
"""Periods allowed in the smallest tables: two years of months, a day of hours."""


def integer_bins(low: int, high: int) -> dict[str, Any]:
    """What an integer column from ``low`` to ``high`` says about its bins; nothing if short."""
    return {"bins": INTEGER_BINS} if high - low + 1 > MAX_INTEGERS else {}


def bins_for(rows: int) -> int:
    """Most bins to propose for a column with a value in so many rows: 2 · rows^¼, from 8 to 32.

    A histogram over two columns is nearest to the truth with a number of bins per column that
    grows as the fourth root of the rows (Scott 1992, Multivariate Density Estimation, section
    3.4): fewer hide where the rows lie, more leave too few rows in each cell to stand out of
    noise. The factor of 2 leaves a cell of a pair √rows / 4 rows on average (8 of 1,000, 25 of
    10,000), where 10 to 20 codes serve some thousand rows best.
    """
    return max(LEAST_BINS, min(NUMERIC_BINS, round(2 * rows**0.25)))


def codes_for(rows: int) -> int:
    """Most values that keep a code each; from half as many again as `bins_for` on, bins are less.

    Between the two, bins would hardly save codes and would blur the values.
    """
    return bins_for(rows) * 3 // 2


def periods_for(rows: int) -> int:
    """Most days, weeks, months or the like of a column with a date or time in so many rows.

    Months are four weeks, years four quarters, and so on: what fits is a quarter of these at least
    as a rule, so that twice `bins_for` makes about as many codes as other columns have.
    """
    return max(LEAST_PERIODS, 2 * bins_for(rows))
