"""ResidualPlanner+ of He et al., section 7: products of one strategy for each attribute."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import InputError
from adaptive_qs.strategy.bounds import gram_trace, is_product, solve_with_basis, total_variance
from adaptive_qs.strategy.fixed_point import solve_dense
from adaptive_qs.strategy.residual_mechanism import Solver
from adaptive_qs.strategy.solution import (
    CenteringFactor,
    DenseFactor,
    Factor,
    SolverSettings,
    Strategy,
)
from adaptive_qs.workload.residuals import Decomposition, Subworkload

Array = NDArray[np.float64]
Bases = Mapping[int, Factor]
"""A strategy for each attribute, spanning every mean-free vector of its axis."""

# A basis for each attribute of ResidualPlanner+, chosen from all that is asked of the attribute.
#
# The total error at a fixed privacy cost is (Σ_τ √L_τ)², and to first order around contrasts
#
#     Σ_τ √L_τ ≈ ½ Σ_τ (L_τ/√L_τ⁰ + √L_τ⁰),
#
# an upper bound, as the root is concave, where L_τ⁰ is the error with contrasts. Seen from one
# attribute, with contrasts on all others, L_τ = tr(G_τi V_i⁺): the best basis of attribute i solves
# the one-axis problem for Σ_τ∋i G_τi/√L_τ⁰. Queries of one attribute and products of them give
# back the optimum of their own one-way problem; joint queries, whose one-way parts say little about
# their two-way parts, get a basis for what they ask.

DIGITS = 9
"""Gram matrices that agree to so many digits are solved once."""
FLOOR = 1e-9
"""Share of the mean eigenvalue for directions that nothing asks for: a basis spans them all."""


def attribute_bases(decomposition: Decomposition, settings: SolverSettings) -> list[Factor]:
    """A basis for every attribute of the domain, contrasts where nothing is asked of it.

    Attributes that are asked alike get the same object.
    """
    grams = attribute_grams(decomposition)
    found: dict[tuple[int, bytes], Factor] = {}
    factors = []
    for attribute, size in enumerate(decomposition.workload.domain.sizes):
        gram = grams.get(attribute)
        key = (size, b"" if gram is None else np.round(gram, DIGITS).tobytes())
        if key not in found:
            found[key] = CenteringFactor(size) if gram is None else _basis(gram, settings)
        factors.append(found[key])
    return factors


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
    return axis_gram(subworkload, axis) / np.sqrt(error)


def axis_gram(subworkload: Subworkload, axis: int) -> Array:
    """Return what one axis is asked if all others are measured by contrasts.

    Shape (n, n): tr(G V⁺) = tr(axis_gram · V_axis⁺) for every V_axis. The queries lie in the
    residual space already, so each contrast only scales them by (n − 1)/n.
    """
    shape = subworkload.shape
    size = shape[axis]
    total = np.zeros((size, size))
    for term in subworkload.terms:
        if is_product(term, len(shape)):
            others = (part for k, part in enumerate(term.factors) if k != axis)
            kept = math.prod(gram_trace(part) for part in others)
            total += term.scale * kept * term.factors[axis].gram()
        else:
            (queries,) = term.factors
            matrix = np.moveaxis(queries.gram().reshape(*shape, *shape), len(shape) + axis, -1)
            matrix = np.moveaxis(matrix, axis, 0).reshape(size, subworkload.cells // size, -1, size)
            total += term.scale * np.einsum("aiib->ab", matrix)
    scale = math.prod((n - 1) / n for k, n in enumerate(shape) if k != axis)
    return scale * (total + total.T) / 2


def _basis(gram: Array, settings: SolverSettings) -> Factor:
    """The optimum, kept from losing directions that nothing asks for."""
    size = len(gram)
    rank = int(np.linalg.matrix_rank(gram, tol=FLOOR / size, hermitian=True))
    if rank < size - 1:
        gram = gram + (FLOOR * np.trace(gram) / size) * (np.eye(size) - 1 / size)
    (factor,) = solve_dense(gram, (size,), settings).strategy.factors
    assert isinstance(factor, DenseFactor)
    return factor


def planner_plus(
    decomposition: Decomposition, settings: SolverSettings, bases: Bases | None = None
) -> tuple[Decomposition, Solver]:
    """ResidualPlanner+: one strategy for each attribute, combined by products.

    Attributes without a basis get one from :func:`attribute_bases`. Classes are split by bases.

    Raises:
        InputError: a basis for an attribute that there is not, or of another size.
    """
    given, sizes = bases or {}, decomposition.workload.domain.sizes
    for attribute, basis in given.items():
        if not 0 <= attribute < len(sizes) or basis.shape != (sizes[attribute],):
            raise InputError(f"a basis of shape {basis.shape} does not fit attribute {attribute}")
    found = [] if len(given) == len(sizes) else attribute_bases(decomposition, settings)
    chosen = {**dict(enumerate(found)), **given}
    number: dict[tuple[int, tuple[int, ...]], int] = {}
    of_class: dict[int, tuple[Factor, ...]] = {}
    subworkloads: list[Subworkload] = []
    class_of = np.empty_like(decomposition.class_of)
    for position, residual in enumerate(decomposition.residuals):
        factors = tuple(chosen[i] for i in residual)
        old = int(decomposition.class_of[position])
        key = (old, tuple(map(id, factors)))
        if key not in number:
            number[key] = len(subworkloads)
            subworkloads.append(replace(decomposition.subworkloads[old]))
            of_class[id(subworkloads[-1])] = factors
        class_of[position] = number[key]
    split = replace(decomposition, subworkloads=tuple(subworkloads), class_of=class_of)
    return split, lambda subworkload: solve_with_basis(subworkload, of_class[id(subworkload)])
