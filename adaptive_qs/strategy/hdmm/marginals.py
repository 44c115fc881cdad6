"""OPT_M: strategies of weighted marginals, in the residual basis. McKenna et al., section 8.

Measuring marginal b with weight θ_b measures every residual τ ⊆ b; together they give residual τ
the precision λ_τ = n_τ Σ_{b⊇τ} θ_b²/n_b, the eigenvalue of AᵀA on the residual space up to a
known factor (theorem 9). A workload matters only through u_τ, its trace on each residual space
(theorem 10), so that with ω_τ = λ_τ/n_τ the error is Σ u_τ/ω_τ and the Gaussian privacy cost is
Σ θ_b² = Σ p_τ λ_τ, p_τ = Π_{i∈τ} (n_i − 1)/n_i.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.hdmm.noise import Noise
from adaptive_qs.strategy.hdmm.products import ProductWorkload
from adaptive_qs.strategy.hdmm.subsets import (
    subset_products,
    superset_differences,
    superset_sums,
)

Array = NDArray[np.float64]
AxisValues = Sequence[tuple[Array, Array]]

MOST_ATTRIBUTES = 20
"""Arrays over all subsets of more attributes than this are refused."""
ROUNDING = 1e-10
"""Negative squared weights above minus this share of the largest count as zero."""


@dataclass(frozen=True, eq=False)
class MarginalStrategy:
    """Noisy marginals, or noisy residuals, of sensitivity 1.

    Arrays over subsets have shape (2,)*d, index 1 on axis i where attribute i is in the subset.

    Attributes:
        workload: what it was made for.
        precisions: λ_τ for every residual: 1/variance for noise of unit variance.
        weights: θ_b for every marginal; None where the residuals are measured by themselves.
        noise: the noise that it is made for.
    """

    workload: ProductWorkload
    precisions: Array
    weights: Array | None
    noise: Noise

    @cached_property
    def set_errors(self) -> Array:
        """Summed variance (rows²) of each set's queries at unit privacy, shape (sets,)."""
        spread = self.precisions / subset_products([1.0] * self.precisions.ndim, self._sizes)
        errors = []
        for place, traces in _set_values(self.workload, self.workload.axis_traces):
            needed = traces > 0
            errors.append(math.fsum(traces[needed] / spread[place][needed]))
        return self.noise.unit_variance * np.array(errors)

    @property
    def total_error(self) -> float:
        """Σ weight · variance over all queries at unit privacy."""
        return math.fsum(self.workload.weights * self.set_errors)

    @property
    def _sizes(self) -> tuple[float, ...]:
        return tuple(map(float, self.workload.sizes))


def residual_traces(workload: ProductWorkload) -> Array:
    """u_τ = Σ_j w_j Π_{i∈τ} tr(ΠG_ij)/n_i Π_{i∉τ} 1ᵀG_ij1/n_i², shape (2,)*d.

    Raises:
        ResourceExceeded: too many attributes for arrays over all their subsets.
    """
    d = len(workload.sizes)
    if d > MOST_ATTRIBUTES:
        raise ResourceExceeded(
            f"weights of all marginals of {d} attributes are 2^{d} numbers: use at most "
            f"{MOST_ATTRIBUTES} attributes or the mechanism residualplanner"
        )
    return residual_sums(workload, workload.axis_traces)


def residual_sums(workload: ProductWorkload, axis_values: AxisValues) -> Array:
    """Σ_j w_j Π_{i∈τ} centered_ij Π_{i∉τ} mean_ij for every τ, shape (2,)*d.

    Args:
        workload: the sets.
        axis_values: for each attribute the mean and centered values of its factors; those of the
            total are 1 and 0.
    """
    sums = np.zeros((2,) * len(workload.sizes))
    for weight, (place, values) in zip(workload.weights, _set_values(workload, axis_values)):
        sums[place] += weight * values
    return sums


def optimal_residuals(workload: ProductWorkload) -> MarginalStrategy:
    """The best precision for every residual, for Gaussian noise, in closed form.

    Minimises Σ u_τ n_τ/λ_τ at Σ p_τ λ_τ = 1: λ_τ ∝ √(u_τ n_τ/p_τ), with error (Σ√(u_τ n_τ p_τ))².
    For marginal workloads that is the SVD bound (theorem 12), so nothing is better. Every marginal
    strategy is one of these; the converse fails where θ of theorem 13 is not real.
    """
    traces = residual_traces(workload)
    squared = superset_differences(_ideal_spread(workload, traces)) * _cells(workload)
    weights = None
    if squared.min() >= -ROUNDING * squared.max():
        weights = np.sqrt(np.maximum(squared, 0.0))
    precisions = _ideal_spread(workload, traces) * _cells(workload)
    return MarginalStrategy(workload, precisions, weights, Noise.GAUSSIAN)


def weighted_marginals(workload: ProductWorkload, weights: Array, noise: Noise) -> MarginalStrategy:
    """The strategy that measures marginal b with weight θ_b, scaled to sensitivity 1.

    Args:
        workload: the sets.
        weights: θ_b ≥ 0, shape (2,)*d.
        noise: decides the sensitivity norm (proposition 7).
    """
    theta = weights / np.linalg.norm(weights.ravel(), ord=noise.order)
    cells = _cells(workload)
    return MarginalStrategy(workload, superset_sums(theta**2 / cells) * cells, theta, noise)


def _ideal_spread(workload: ProductWorkload, traces: Array) -> Array:
    """ω_τ = √(u_τ/m_τ), m_τ = Π_{i∈τ} (n_i − 1), scaled to Σ m_τ ω_τ = 1."""
    m = _multiplicities(workload)
    spread = np.sqrt(np.divide(traces, m, out=np.zeros_like(traces), where=m > 0))
    return spread / math.fsum((m * spread).ravel())


def _cells(workload: ProductWorkload) -> Array:
    """n_b for every subset."""
    return subset_products([1.0] * len(workload.sizes), [float(n) for n in workload.sizes])


def _multiplicities(workload: ProductWorkload) -> Array:
    """m_τ = p_τ n_τ: the dimension of every residual space."""
    return subset_products([1.0] * len(workload.sizes), [n - 1.0 for n in workload.sizes])


def _set_values(
    workload: ProductWorkload, axis_values: AxisValues
) -> Iterator[tuple[tuple[int | slice, ...], Array]]:
    """For every set: where its subsets lie in an array over all, and its values there."""
    for kinds in workload.kinds:
        active = np.flatnonzero(kinds)
        place: list[int | slice] = [0] * len(kinds)
        mean, centered = [], []
        for i in active.tolist():
            place[i] = slice(None)
            means, parts = axis_values[i]
            mean.append(float(means[kinds[i]]))
            centered.append(float(parts[kinds[i]]))
        yield tuple(place), subset_products(mean, centered)
