"""Attack by closeness: rows that have more synthetic than reference rows around them."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numba as nb
import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from adaptive_qs.evaluation.attack.tables import Stack
from adaptive_qs.progress import StepProgress

KEPT_PER_DIFFERENCE = 0.03
"""Weight of a row that differs in one more attribute, so that the closest rows decide."""
MAX_ROWS = 40_000
"""Synthetic and reference rows each that targets are compared with."""
MAX_CELLS = 16 * MAX_ROWS
"""Of those rows; of tables with more than 16 columns fewer rows are compared."""
_BLOCK = 250


def rows_compared(attributes: int) -> int:
    """Synthetic and reference rows each that targets are compared with at most."""
    return max(1, min(MAX_ROWS, MAX_CELLS // attributes))


def density_steps(targets: int) -> int:
    """Steps of the progress for so many targets."""
    return 2 * math.ceil(targets / _BLOCK)


def closeness_scores(
    stack: Stack, workers: int = 1, progress: StepProgress | None = None
) -> NDArray[np.float64]:
    """Log ratio of two kernel densities at each target: of the synthetic and the reference rows.

    The kernel is 0.03^d with the number d of attributes that differ, so that equal and almost
    equal rows decide: DOMIAS (van Breugel et al. 2023) with densities for codes. It scores an
    attack and says nothing on its own: a synthetic row close to a true one is no breach. Time is
    bounded whatever the number of columns: see :func:`rows_compared`.

    Args:
        stack: the rows.
        workers: threads.
        progress: called with the blocks of targets done and in all.

    Returns:
        Shape (targets,).
    """
    log_kernel = math.log(KEPT_PER_DIFFERENCE) * np.arange(len(stack.columns) + 1)
    most = rows_compared(len(stack.columns))
    dtype = np.min_scalar_type(max(stack.sizes))
    codes = np.stack([column.astype(dtype) for column in stack.columns])
    start = np.cumsum((0, *stack.rows[:2]))
    targets = codes[:, start[2] :]
    blocks = [targets[:, i : i + _BLOCK] for i in range(0, targets.shape[1], _BLOCK)]
    log_densities: list[NDArray[np.float64]] = []
    for i, rows in enumerate(stack.rows[:2]):
        compared = np.ascontiguousarray(codes[:, start[i] : start[i] + min(rows, most)])

        def density(block: NDArray, compared: NDArray = compared) -> NDArray[np.float64]:
            total = logsumexp(log_kernel, axis=1, b=_differences(block, compared))
            return np.asarray(total - math.log(compared.shape[1]))

        found = []
        with ThreadPoolExecutor(workers) as pool:
            for part in pool.map(density, blocks):
                found.append(part)
                if progress is not None:
                    progress(i * len(blocks) + len(found), 2 * len(blocks))
        log_densities.append(np.concatenate(found))
    return log_densities[0] - log_densities[1]


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
