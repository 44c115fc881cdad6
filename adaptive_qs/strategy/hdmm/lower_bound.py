"""What no matrix mechanism can beat. McKenna et al., definition 11 and theorems 5 and 12."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.bounds import root_trace
from adaptive_qs.strategy.certified import solve_dense
from adaptive_qs.strategy.hdmm.axis import exchangeable
from adaptive_qs.strategy.hdmm.marginals import MOST_ATTRIBUTES, marginal_bound
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
    one product, up to the gap of the settings. Otherwise the sum of what each set would need if
    the whole budget were its own, which is far from tight for many sets. A column's L2 norm is at
    most its L1 norm, so the bounds hold for Laplace noise too.
    """
    bounds = [_sum_of_sets(workload, settings)]
    whole = workload.factorised()
    if whole is not None:
        bounds.append(math.prod(_axis_bound(gram, settings) for gram in whole))
    if _only_marginals(workload) and len(workload.sizes) <= MOST_ATTRIBUTES:
        bounds.append(marginal_bound(workload))
    return noise.unit_variance * max(bounds)


def _sum_of_sets(workload: ProductWorkload, settings: SolverSettings) -> float:
    """The minimum of a sum is at least the sum of the minima."""
    bounds = [np.array([_axis_bound(g, settings) for g in grams]) for grams in workload.grams]
    return math.fsum(workload.weights * workload.set_values(bounds))


def _axis_bound(gram: Array, settings: SolverSettings) -> float:
    if exchangeable(gram) is not None:
        return svd_bound(gram)
    return solve_dense(gram, (len(gram),), settings).lower_bound


def _only_marginals(workload: ProductWorkload) -> bool:
    return all(exchangeable(gram) is not None for grams in workload.grams for gram in grams)
