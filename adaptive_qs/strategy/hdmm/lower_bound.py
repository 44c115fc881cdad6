"""What no matrix mechanism can beat. McKenna et al., definition 11 and theorems 5 and 12."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.bounds import root_sum, root_trace
from adaptive_qs.strategy.certified.dense import solve_dense
from adaptive_qs.strategy.hdmm.axis import exchangeable
from adaptive_qs.strategy.hdmm.marginals import MOST_ATTRIBUTES, residual_sums
from adaptive_qs.strategy.hdmm.noise import Noise
from adaptive_qs.strategy.hdmm.products import ProductWorkload
from adaptive_qs.strategy.settings import SolverSettings

Array = NDArray[np.float64]


def svd_bound(gram: Array) -> float:
    """(tr √G)²/n: definition 11, for either noise at sensitivity 1 and unit noise variance."""
    return root_trace(gram) ** 2 / len(gram)


def lower_bound(workload: ProductWorkload, noise: Noise, settings: SolverSettings) -> float:
    """A bound on Σ weight · variance at unit privacy that no strategy beats.

    Exact for Gaussian noise where all queries are marginals (theorem 12) and where the union is
    one product, up to the gap of the settings; else the largest of several bounds. A column's L2
    norm is at most its L1 norm, so all of them hold for Laplace noise too.
    """
    workload = workload.only_asked()
    bounds = [sum_of_sets(workload, settings)]
    whole = workload.factorised()
    if whole is not None:
        bounds.append(math.prod(_axis_bound(gram, settings) for gram in whole))
    if len(workload.sizes) <= MOST_ATTRIBUTES:
        bounds.append(residual_bound(workload))
    return noise.unit_variance * max(bounds)


def sum_of_sets(workload: ProductWorkload, settings: SolverSettings) -> float:
    """The minimum of a sum is at least the sum of the minima."""
    bounds = [np.array([_axis_bound(g, settings) for g in grams]) for grams in workload.grams]
    return math.fsum(workload.weights * workload.set_values(bounds))


def residual_bound(workload: ProductWorkload) -> float:
    """The SVD bound from below, for any union of products; theorem 12 where all are marginals.

    tr √G is the nuclear norm of the queries W, which is tr(ZᵀW) at least for every Z of spectral
    norm 1. Z takes one polar factor per residual space τ, made of the queries' parts there with
    the means along the other axes replaced by their components s̃ orthogonal to the centered
    part of the same queries; these factors have orthogonal rows and columns. With
    a_i = tr √(ΠG_iΠ) / √n_i and (tr √·)² superadditive,

        (tr √G)²/n ≥ (Σ_τ √(Σ_{j⊇τ} w_j Π_{i∈τ} a_ij² Π_{i∈j∖τ} s̃_ij²/n_i²))².
    """
    values = [_axis_values(grams) for grams in workload.grams]
    return math.fsum(np.sqrt(residual_sums(workload, values)).ravel()) ** 2


def _axis_values(grams: tuple[Array, ...]) -> tuple[Array, Array]:
    """s̃²/n² and a² of every factor; the total, first, has 1 and 0."""
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


def _axis_bound(gram: Array, settings: SolverSettings) -> float:
    if exchangeable(gram) is not None:
        return svd_bound(gram)
    return solve_dense(gram, (len(gram),), settings).lower_bound
