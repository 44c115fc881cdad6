"""A strategy matrix rounded to integers that keep what matters of it.

Where all rows sum to zero along an axis the integers do so exactly: the estimate of a residual
stays unbiased. Column norms that rounding pushed above the largest are trimmed back, since the
largest is the sensitivity.

Where the matrix spans less than its space (few queries), rows of small norm are added for the rest,
so that the integers still determine its queries exactly. For more than ``MOST_COMPLETED`` cells
they are left out: estimates then are unbiased up to about 2^-bits √cells of the largest coefficient
for every row of the table, which is why such a matrix gets more bits.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import svd

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_COMPLETED = 1024
"""Cells up to which a matrix that spans too little is completed."""
ZERO = 1e-9
"""Sums of normalised rows below this are zero."""
TRIMS_PER_COLUMN = 16
MOST_TRIMMED_BITS = 26
"""Squared norms of columns stay in 64 bits; with more bits there is little to trim."""


def centered(matrix: Array, shape: tuple[int, ...]) -> Array:
    """The rows without their means along every axis, shape (rows, Πshape)."""
    cells = matrix.reshape(-1, *shape)
    for axis in range(1, cells.ndim):
        cells = cells - cells.mean(axis=axis, keepdims=True)
    return cells.reshape(matrix.shape)


def round_matrix(
    matrix: Array, shape: tuple[int, ...], bits: int
) -> tuple[Integers, tuple[bool, ...]]:
    """About 2**bits times a matrix.

    Args:
        matrix: shape (rows, Πshape), largest column norm 1.
        shape: sizes of the axes that the columns run over.
        bits: of the largest coefficients.

    Returns:
        The integers, and for each axis whether all rows sum to zero along it.
    """
    cells = matrix.reshape(-1, *shape)
    axes = range(1, cells.ndim)
    balanced = tuple(bool(abs(cells.sum(axis=axis)).max() < ZERO) for axis in axes)
    matrix = _completed(matrix, shape, balanced, 2.0 ** (-bits / 2))
    grid: Integers = np.rint(matrix * 2.0**bits).astype(np.int64).reshape(-1, *shape)
    for axis, zero in zip(axes, balanced):
        if zero:  # the first cell takes up what rounding left
            index = [slice(None)] * grid.ndim
            index[axis] = slice(0, 1)
            grid[tuple(index)] -= grid.sum(axis=axis, keepdims=True)
    integers = grid.reshape(len(matrix), -1)
    if len(shape) == 1 and bits <= MOST_TRIMMED_BITS:
        integers = _trim(integers, 4**bits, balanced[0])
    return integers[(integers != 0).any(axis=1)], balanced


def with_differences(
    integers: Integers, balanced: tuple[bool, ...], shape: tuple[int, ...], bits: int
) -> Integers:
    """More rows, so that the integers determine every table that is balanced as they are.

    Differences of two cells along balanced axes and single cells along others, of small weight:
    for matrices that lose directions when they are rounded, because these have small norms or
    there are few bits.

    Args:
        integers: shape (rows, Πshape).
        balanced: for each axis, whether all rows sum to zero along it.
        shape: sizes of the axes.
        bits: of the largest coefficients.
    """
    extra: Integers = np.ones((1, 1), dtype=np.int64)
    for n, zero in zip(shape, balanced):
        unit = np.eye(n, dtype=np.int64)
        steps = sorted({1, math.isqrt(n)} if zero else ())
        rows = [unit - np.roll(unit, step, axis=1) for step in steps] or [unit]
        extra = np.kron(extra, np.concatenate(rows))
    return np.concatenate([integers, max(1, 2 ** (bits // 2) // 2) * extra])


def _trim(grid: Integers, limit: int, balanced: bool) -> Integers:
    """Single units moved from columns of too large a norm, to others if rows balance."""
    norms = np.einsum("rc,rc->c", grid, grid)
    if norms.max() <= limit:
        return grid
    columns = np.ascontiguousarray(grid.T)  # whole columns are looked at, many thousand times
    for _ in range(TRIMS_PER_COLUMN * len(columns)):
        top = int(norms.argmax())
        excess = int(norms[top]) - limit
        if excess <= 0:
            break
        sign = np.sign(columns[top])
        gain = np.minimum(2 * abs(columns[top]) - 1, excess)
        low = int(norms.argmin())
        raised = 2 * sign * columns[low] + 1
        if balanced:
            gain = gain - np.maximum(norms[low] + raised - limit, 0)
        row = int(gain.argmax())
        if gain[row] <= 0:
            break
        unit = int(sign[row])
        norms[top] -= 2 * abs(columns[top, row]) - 1
        columns[top, row] -= unit
        if balanced:
            norms[low] += raised[row]
            columns[low, row] += unit
    return np.ascontiguousarray(columns.T)


def _completed(
    matrix: Array, shape: tuple[int, ...], balanced: tuple[bool, ...], weight: float
) -> Array:
    """With orthonormal rows of small weight for what the matrix does not span."""
    dimension = math.prod(n - 1 if zero else n for n, zero in zip(shape, balanced))
    if matrix.shape[1] > MOST_COMPLETED:
        return matrix
    _, singular, rows = svd(matrix, full_matrices=True)
    rank = int((singular > ZERO * singular[0]).sum())
    if rank >= dimension:
        return matrix
    missing = rows[rank:].reshape(-1, *shape)
    for axis, zero in enumerate(balanced, start=1):
        if zero:
            missing = missing - missing.mean(axis=axis, keepdims=True)
    flat = missing.reshape(len(missing), -1)
    _, _, basis = svd(flat, full_matrices=False)
    return np.vstack([matrix, weight * basis[: dimension - rank]])
