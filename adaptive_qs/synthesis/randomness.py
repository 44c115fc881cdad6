"""Counter-based random numbers for compiled kernels: the same for any order of execution."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, inline="always")
def uniform(key, row, step):  # type: ignore[no-untyped-def]
    """Uniform in [0, 1) as a function of (key, row, step): splitmix64 of their combination."""
    z = key + np.uint64(row) * np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(step + 1) * np.uint64(0xD1B54A32D192ED03)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) / 9007199254740992.0
