"""A basis for each attribute of ResidualPlanner+, chosen from all that is asked of the attribute.

The total error at a fixed privacy cost is (Σ_τ √L_τ)², and to first order around contrasts

    Σ_τ √L_τ ≈ ½ Σ_τ (L_τ/√L_τ⁰ + √L_τ⁰),

an upper bound, as the root is concave, where L_τ⁰ is the error with contrasts. Seen from one
attribute, with contrasts on all others, L_τ = tr(G_τi V_i⁺): the best basis of attribute i solves
the certified problem for Σ_τ∋i G_τi/√L_τ⁰. Queries of one attribute and products of them give back
the optimum of their own one-way problem; joint queries, whose one-way parts say little about
their two-way parts, get a basis for what they ask.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.certified.dense import solve_dense
from adaptive_qs.strategy.matrix import CenteringFactor, DenseFactor, Factor, Strategy
from adaptive_qs.strategy.objective import axis_gram, total_variance
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.workload.decomposition import Decomposition
from adaptive_qs.workload.subworkload import Subworkload

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

DIGITS = 9
"""Gram matrices that agree to so many digits are solved once."""
FLOOR = 1e-9
"""Share of the mean eigenvalue for directions that nothing asks for: a basis spans them all."""


def attribute_bases(
    decomposition: Decomposition, settings: SolverSettings
) -> tuple[list[Factor], list[int]]:
    """A basis for every attribute of the domain.

    Args:
        decomposition: the subworkloads.
        settings: for the certified one-axis problems.

    Returns:
        One factor for each attribute, contrasts where nothing is asked of it, and a number for
        each that is equal where the factors are the same.
    """
    grams = attribute_grams(decomposition)
    found: dict[tuple[int, bytes], int] = {}
    factors: list[Factor] = []
    numbers: list[int] = []
    for attribute, size in enumerate(decomposition.workload.domain.sizes):
        gram = grams.get(attribute)
        key = (size, b"" if gram is None else np.round(gram, DIGITS).tobytes())
        if key not in found:
            found[key] = attribute
            factors.append(CenteringFactor(size) if gram is None else _basis(gram, settings))
        else:
            factors.append(factors[found[key]])
        numbers.append(found[key])
    return factors, numbers


def attribute_grams(decomposition: Decomposition) -> dict[int, Array]:
    """Σ_τ∋i G_τi/√L_τ⁰ for each attribute i that a residual holds, with trace 1; shape (n, n)."""
    grams: dict[int, Array] = {}
    classes = decomposition.class_of
    roots = np.sqrt(decomposition.scales)
    start = 0
    for degree, group in groupby(decomposition.residuals, key=len):
        attributes = np.array(list(group), dtype=np.int64)
        rows = slice(start, start + len(attributes))
        start += len(attributes)
        for axis in range(degree):
            pairs = np.stack([classes[rows], attributes[:, axis]], axis=1)
            distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
            weights = np.bincount(inverse.reshape(-1), roots[rows])
            shared: tuple[int, Array] | None = None  # of the class at hand: pairs are in order
            for (number, attribute), weight in zip(distinct.tolist(), weights):
                if shared is None or shared[0] != number:
                    shared = (number, _class_gram(decomposition.subworkloads[number], axis))
                grams[attribute] = grams.get(attribute, 0.0) + weight * shared[1]
    return {attribute: gram / np.trace(gram) for attribute, gram in grams.items()}


def _class_gram(subworkload: Subworkload, axis: int) -> Array:
    contrasts = tuple(CenteringFactor(size) for size in subworkload.shape)
    error = total_variance(subworkload, Strategy(contrasts))
    return axis_gram(subworkload, axis, contrasts) / np.sqrt(error)


def _basis(gram: Array, settings: SolverSettings) -> Factor:
    """The certified optimum, kept from losing directions that nothing asks for."""
    size = len(gram)
    rank = int(np.linalg.matrix_rank(gram, tol=FLOOR / size, hermitian=True))
    if rank < size - 1:
        gram = gram + (FLOOR * np.trace(gram) / size) * (np.eye(size) - 1 / size)
    (factor,) = solve_dense(gram, (size,), settings).strategy.factors
    assert isinstance(factor, DenseFactor)
    return factor
