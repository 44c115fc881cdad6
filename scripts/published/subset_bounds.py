"""The singular value bound of unions of products. McKenna et al., theorem 12."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.bounds import root_sum
from adaptive_qs.strategy.hdmm import ProductWorkload
from adaptive_qs.strategy.solution import SolverSettings
from scripts.published import operators

Array = NDArray[np.float64]

# A function of subsets of the attributes is an array of shape (2,)*d: index 1 on an axis means that
# the attribute is in the subset.

AxisValues = Sequence[tuple[Array, Array]]

MOST_ATTRIBUTES = 20
"""Most attributes for arrays over all their subsets."""


def lower_bound(workload: ProductWorkload, settings: SolverSettings) -> float:
    """Return the larger of two bounds on Σ weight · variance for unit noise."""
    bound = operators.lower_bound(workload, settings)
    if len(workload.sizes) > MOST_ATTRIBUTES:
        return bound
    return max(bound, residual_bound(workload.only_nonzero()))


def residual_bound(workload: ProductWorkload) -> float:
    """Return the SVD bound from below, for any union of products; theorem 12 if all are marginals.

    tr √G is the nuclear norm of the queries W, which is tr(ZᵀW) at least for every Z of spectral
    norm 1. Z takes one polar factor per residual space τ, made of the queries' parts there with
    the means along the other axes replaced by their components s̃ orthogonal to the centered
    part of the same queries; these factors have orthogonal rows and columns. With
    a_i = tr √(ΠG_iΠ) / √n_i and (tr √·)² superadditive,

        (tr √G)²/n ≥ (Σ_τ √(Σ_{j⊇τ} w_j Π_{i∈τ} a_ij² Π_{i∈j∖τ} s̃_ij²/n_i²))².
    """
    values = [_bound_values(grams) for grams in workload.grams]
    return math.fsum(np.sqrt(residual_sums(workload, values)).ravel()) ** 2


def _bound_values(grams: tuple[Array, ...]) -> tuple[Array, Array]:
    """Return s̃²/n² and a² of every factor; the total, first, has 1 and 0."""
    n = len(grams[0])
    means, centered = np.ones(len(grams)), np.zeros(len(grams))
    for k, gram in enumerate(grams[1:], start=1):
        across = gram.sum(axis=0) - gram.sum() / n
        inner = gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean()
        values, vectors = np.linalg.eigh((inner + inner.T) / 2)
        kept = values > 1e-12 * values[-1]
        explained = float(((across @ vectors[:, kept]) ** 2 / values[kept]).sum())
        means[k] = max(float(gram.sum()) - explained, 0.0) / n**2
        centered[k] = root_sum(values) ** 2 / n
    return means, centered


def subset_products(outside: Sequence[float], inside: Sequence[float]) -> Array:
    """Return Π_{i∈τ} inside[i] · Π_{i∉τ} outside[i] for every τ."""
    factors = [np.array(pair, dtype=np.float64) for pair in zip(outside, inside)]
    return reduce(np.multiply.outer, factors, np.ones(()))


def residual_sums(workload: ProductWorkload, axis_values: AxisValues) -> Array:
    """Return Σ_j w_j Π_{i∈τ} centered_ij Π_{i∉τ} mean_ij for every τ."""
    sums = np.zeros((2,) * len(workload.sizes))
    for weight, (place, values) in zip(workload.weights, subset_values(workload, axis_values)):
        sums[place] += weight * values
    return sums


def subset_values(
    workload: ProductWorkload, axis_values: AxisValues
) -> Iterator[tuple[tuple[int | slice, ...], Array]]:
    """Yield for every set where its subsets lie in an array over all, and its values there."""
    for kinds in workload.kinds:
        place: list[int | slice] = [0] * len(kinds)
        mean, centered = [], []
        for i in np.flatnonzero(kinds).tolist():
            place[i] = slice(None)
            means, parts = axis_values[i]
            mean.append(float(means[kinds[i]]))
            centered.append(float(parts[kinds[i]]))
        yield tuple(place), subset_products(mean, centered)
