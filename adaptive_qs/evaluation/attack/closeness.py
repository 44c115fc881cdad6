"""Attack by closeness: rows that have more synthetic than reference rows around them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numba as nb
import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation.attack.tables import Stack

KEPT_PER_DIFFERENCE = 0.03
"""Weight of a row that differs in one more attribute, so that the closest rows decide."""
MAX_ROWS = 40_000
"""Synthetic and reference rows each that targets are compared with."""
_BLOCK = 250


def closeness_scores(stack: Stack, workers: int = 1) -> NDArray[np.float64]:
    """Log ratio of two kernel densities at each target: of the synthetic and the reference rows.

    The kernel is 0.03^d with the number d of attributes that differ, so that equal and almost
    equal rows decide: DOMIAS (van Breugel et al. 2023) with densities for codes. It scores an
    attack and says nothing on its own: a synthetic row close to a true one is no breach.

    Returns:
        Shape (targets,).
    """
    weights = KEPT_PER_DIFFERENCE ** np.arange(len(stack.columns) + 1)
    dtype = np.min_scalar_type(max(stack.sizes))
    codes = np.stack([column.astype(dtype) for column in stack.columns])
    start = np.cumsum((0, *stack.rows[:2]))
    targets = codes[:, start[2] :]
    blocks = [targets[:, i : i + _BLOCK] for i in range(0, targets.shape[1], _BLOCK)]
    densities = []
    for i, rows in enumerate(stack.rows[:2]):
        compared = np.ascontiguousarray(codes[:, start[i] : start[i] + min(rows, MAX_ROWS)])

        def density(block: NDArray, compared: NDArray = compared) -> NDArray[np.float64]:
            mean: NDArray[np.float64] = _differences(block, compared) @ weights / compared.shape[1]
            return mean

        with ThreadPoolExecutor(workers) as pool:
            densities.append(np.concatenate(list(pool.map(density, blocks))))
    ratio: NDArray[np.float64] = np.log(densities[0] / densities[1])
    return ratio


@nb.njit(nogil=True, cache=True)
def _differences(targets: NDArray, rows: NDArray) -> NDArray[np.int64]:
    """How many rows differ from each target in d attributes, shape (targets, attributes + 1)."""
    attributes, count = rows.shape
    found = np.zeros((targets.shape[1], attributes + 1), dtype=np.int64)
    differing = np.empty(count, dtype=np.uint16)
    for t in range(targets.shape[1]):
        differing[:] = 0
        for i in range(attributes):
            code = targets[i, t]
            for r in range(count):
                differing[r] += rows[i, r] != code
        for r in range(count):
            found[t, differing[r]] += 1
    return found
