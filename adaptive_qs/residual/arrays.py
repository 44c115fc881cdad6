"""In-axis transforms between marginals and residuals. Source: Fuentes et al., section 3, Table 1.

Every operation is linear along one axis and touches each cell a constant number of times, so a
transform over clique γ takes O(|γ| n_γ).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.residual.basis import Basis

Array = NDArray[np.float64]


def smear(array: Array, axis: int, size: int) -> Array:
    """Spread a singleton axis evenly over ``size`` cells: (..., 1, ...) -> (..., size, ...)."""
    return np.repeat(array / size, size, axis=axis)


def decompose(marginal: Array, clique: Clique, residual: Clique, bases: Sequence[Basis]) -> Array:
    """The residual over ``residual`` of a marginal over ``clique`` (Fuentes et al., Algorithm 1).

    Args:
        marginal: counts, one axis per attribute of ``clique``.
        clique: γ, the attributes of the marginal's axes.
        residual: τ ⊆ γ.
        bases: one basis per attribute of ``clique``, in its order.

    Returns:
        An array with one axis per attribute of ``residual``, each of its basis's rank.
    """
    array = np.asarray(marginal, dtype=np.float64)
    for axis in range(len(clique) - 1, -1, -1):
        if clique[axis] in residual:
            array = bases[axis].analyse(array, axis)
        else:
            array = array.sum(axis=axis)
    return array


def reconstruct(values: Array, residual: Clique, clique: Clique, bases: Sequence[Basis]) -> Array:
    """The part of a marginal that a residual explains (Fuentes et al., Algorithm 2).

    The pseudo-inverse of :func:`decompose`; the parts of all τ ⊆ γ add up to the marginal.

    Args:
        values: the residual, one axis per attribute of ``residual``.
        residual: τ ⊆ γ.
        clique: γ.
        bases: one basis per attribute of ``clique``, in its order.

    Returns:
        An array shaped like the marginal over ``clique``.
    """
    array = np.asarray(values, dtype=np.float64)
    for axis, attribute in enumerate(clique):
        if attribute in residual:
            array = bases[axis].synthesise(array, axis)
        else:
            array = smear(np.expand_dims(array, axis), axis, bases[axis].size)
    return array
