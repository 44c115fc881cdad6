"""Calendar periods of arrays of moments: the vectorised side of `moments`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.moments import Granularity

Seconds = NDArray[np.int64]
_LENGTH = {"minute": 60, "hour": 3_600, "day": 86_400}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def periods_of(seconds: Seconds, granularity: Granularity) -> NDArray[np.int64]:
    """Whole periods from 1970 to each moment, given in seconds since 1970."""
    if granularity in _LENGTH:
        return seconds // _LENGTH[granularity]
    if granularity == "week":
        return (seconds // _LENGTH["day"] + 3) // 7
    months = seconds.astype("M8[s]").astype("M8[M]").astype(np.int64)
    return months // _MONTHS[granularity]


def starts_of(periods: NDArray[np.int64], granularity: Granularity) -> Seconds:
    """First second of each period: the inverse of `periods_of`."""
    if granularity in _LENGTH:
        return periods * _LENGTH[granularity]
    if granularity == "week":
        return (periods * 7 - 3) * _LENGTH["day"]
    months = (periods * _MONTHS[granularity]).astype("M8[M]")
    return months.astype("M8[s]").astype(np.int64)
