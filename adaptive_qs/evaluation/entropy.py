"""Entropy of a column, corrected for the number of its rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def miller_entropy(counts: NDArray[np.int64]) -> float:
    """The plug-in entropy of counts, in nats, plus (K − 1) / (2N) of K occurring values.

    Miller (1955); without it the entropy of few rows is too small.
    """
    seen = counts[counts > 0]
    rows = int(seen.sum())
    plug_in = np.log(rows) - float((seen * np.log(seen)).sum()) / rows
    return float(plug_in + (len(seen) - 1) / (2 * rows))
