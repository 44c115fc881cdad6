"""Sums over all subsets of the attributes, in O(d 2^d).

A function of subsets is an array of shape (2,)*d: index 1 on an axis means that the attribute is in
the subset.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def superset_sums(values: Array) -> Array:
    """For every τ: Σ_{b⊇τ} values[b]."""
    sums = values.copy()
    for axis in range(values.ndim):
        view = np.moveaxis(sums, axis, 0)
        view[0] += view[1]
    return sums


def subset_sums(values: Array) -> Array:
    """For every b: Σ_{τ⊆b} values[τ]."""
    sums = values.copy()
    for axis in range(values.ndim):
        view = np.moveaxis(sums, axis, 0)
        view[1] += view[0]
    return sums


def superset_differences(sums: Array) -> Array:
    """The inverse of :func:`superset_sums`: Möbius inversion."""
    values = sums.copy()
    for axis in range(sums.ndim):
        view = np.moveaxis(values, axis, 0)
        view[0] -= view[1]
    return values


def subset_products(outside: Sequence[float], inside: Sequence[float]) -> Array:
    """For every τ: Π_{i∈τ} inside[i] · Π_{i∉τ} outside[i]."""
    factors = [np.array(pair, dtype=np.float64) for pair in zip(outside, inside)]
    return reduce(np.multiply.outer, factors, np.ones(()))
