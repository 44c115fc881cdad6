"""Reversals and swaps of axes that leave a Gram matrix unchanged, and the blocks they cut it into.

If G is invariant under a group of cell permutations, so is an optimal dual vector y: average y over
the group, the dual objective is concave. The permutations here are involutions that commute (a
group ℤ₂ᵏ), so M = Y^½ G Y^½ splits exactly into one block per character of the group, each with at
most one coordinate per orbit of cells. Every involution halves the eigenproblems.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

Array = NDArray[np.float64]
Permutation = NDArray[np.int64]

SYMMETRY_TOLERANCE = 1e-12
"""Relative difference below which two Gram matrices are equal up to the rounding of their making:
it enters the allowance that is taken off lower bounds."""

_PROBES = 3
_MOST_AXES = 5


@dataclass(frozen=True, eq=False)
class SymmetricBlocks:
    """An orthogonal change of coordinates that splits every invariant matrix.

    Attributes:
        orbit: shape (N,): the orbit of each cell.
        sizes: shape (orbits,): cells in each orbit.
        bases: Q_b, sparse (N, N_b), orthonormal columns, each supported on one orbit; together
            they are an orthogonal N × N matrix.
        members: for each block, shape (N_b,): the orbit of each column.
    """

    orbit: NDArray[np.int64]
    sizes: Array
    bases: tuple[csr_array, ...]
    members: tuple[NDArray[np.int64], ...]

    @property
    def largest(self) -> int:
        """Coordinates of the largest block."""
        return max(map(len, self.members))


def symmetric_blocks(apply: Callable[[Array], Array], shape: tuple[int, ...]) -> SymmetricBlocks:
    """The blocks of a Gram matrix under the reversals and swaps of its axes that it allows.

    Args:
        apply: x ↦ G x for x of shape (N, k).
        shape: sizes of the axes, N = Πshape.
    """
    identity = np.arange(math.prod(shape))
    group = [identity]
    rng = np.random.Generator(np.random.PCG64(0))  # probes of a public matrix, not privacy noise
    probe = rng.standard_normal((identity.size, _PROBES))
    image = apply(probe)
    tolerance = SYMMETRY_TOLERANCE * float(np.abs(image).max(initial=0.0))
    for candidate in _involutions(shape):
        if any(np.array_equal(candidate, element) for element in group):
            continue
        if not all(np.array_equal(candidate[g], g[candidate]) for g in group):
            continue
        permuted = apply(probe[candidate])[candidate]
        if float(np.abs(permuted - image).max()) <= tolerance:
            group += [element[candidate] for element in group]
    return _split(group)


def _involutions(shape: tuple[int, ...]) -> list[Permutation]:
    """Reversals of every set of axes, then swaps of every two axes of equal size."""
    axes = range(len(shape))
    if len(shape) > _MOST_AXES:
        return []
    cells = np.arange(math.prod(shape)).reshape(shape)
    reversals = [
        np.flip(cells, some).ravel()
        for count in range(1, len(shape) + 1)
        for some in combinations(axes, count)
    ]
    swaps = [
        np.swapaxes(cells, i, j).ravel() for i, j in combinations(axes, 2) if shape[i] == shape[j]
    ]
    return reversals + swaps


def _split(group: list[Permutation]) -> SymmetricBlocks:
    """One basis per character; the group lists products of generators in binary order."""
    images = np.stack(group)  # (elements, N)
    order, cells = images.shape
    representative, orbit = np.unique(images.min(axis=0), return_inverse=True)
    sizes = np.bincount(orbit).astype(np.float64)
    bases, members = [], []
    for character in range(order):
        signs = np.array([(-1.0) ** (character & g).bit_count() for g in range(order)])
        fixed = images[:, representative] == representative
        alive = np.flatnonzero(signs @ fixed > 0)  # the character is trivial on the stabiliser
        if not alive.size:
            continue
        rows = images[:, representative[alive]]
        columns = np.broadcast_to(np.arange(alive.size), rows.shape)
        values = np.broadcast_to(signs[:, None], rows.shape)
        stabiliser = order / sizes[alive]
        values = values / (stabiliser * np.sqrt(sizes[alive]))
        entries = (values.ravel(), (rows.ravel(), columns.ravel()))
        bases.append(csr_array(coo_array(entries, shape=(cells, alive.size))))
        members.append(alive)
    return SymmetricBlocks(orbit, sizes, tuple(bases), tuple(members))
