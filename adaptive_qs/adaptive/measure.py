"""Noisy measurement of residuals, in integers.

Scaled form: release Ξv + discrete Gaussian of variance σ²n², divide by n, where v is the integer
marginal over τ, Ξ = ⊗(n_i I − 11ᵀ) and n = Πn_i. One row moves Ξv by a vector of squared length
Πn_i(n_i − 1), so ρ = (1/2σ²) Π(n_i − 1)/n_i, the cost of the continuous mechanism
(Fuentes et al., Proposition 4.3). Where n is too large for 64-bit integers the marginal itself is
released with variance σ² at ρ = 1/(2σ²) and decomposed afterwards; the choice depends on n alone.

Proof: docs/proofs.md, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.privacy.labels import Purpose, measurement_label
from adaptive_qs.privacy.mechanisms import CountsRequest, Mechanisms
from adaptive_qs.residual.arrays import decompose
from adaptive_qs.residual.basis import CenteredBasis
from adaptive_qs.residual.variance import privacy_cost

MAX_SCALE = 2**20
"""Largest n = Πn_i for which Ξv is formed: |Ξv| ≤ n · rows stays inside 64 bits."""


def is_scaled(domain: Domain, residual: Clique) -> bool:
    """Whether the residual is released in scaled form; depends on public sizes only."""
    return domain.size(residual) <= MAX_SCALE


def measurement_cost(domain: Domain, residual: Clique) -> float:
    """p_τ: a measurement of noise variance σ² costs ρ = p_τ / (2σ²)."""
    if not is_scaled(domain, residual):
        return 1.0
    return privacy_cost(domain, residual)


def measure_residual(
    counter: MarginalCounter, mechanisms: Mechanisms, residual: Clique, noise_variance: float
) -> NDArray[np.float64]:
    """One noisy residual; see :func:`measure_residuals`."""
    return measure_residuals(counter, mechanisms, {residual: noise_variance})[residual]


def measure_residuals(
    counter: MarginalCounter, mechanisms: Mechanisms, noise_variances: Mapping[Clique, float]
) -> dict[Clique, NDArray[np.float64]]:
    """Noisy residuals in centered form (rows), each shaped like the marginal over it.

    Args:
        counter: the private counts.
        mechanisms: charges :func:`measurement_cost` / (2 · noise variance) for each, all or none,
            then draws.
        noise_variances: for each residual τ the variance σ² of the equivalent noise on the
            marginal's cells (rows²).

    Returns:
        ζ_τ + N(0, σ² ⊗Π_i) for each τ: zero-sum along every axis.
    """
    domain = counter.domain
    requests = [_request(counter, *measured) for measured in noise_variances.items()]
    outputs = mechanisms.release_together(requests)
    return {
        residual: decompose(
            noisy / _scale(domain, residual),
            residual,
            residual,
            [CenteredBasis(n) for n in domain.shape(residual)],
        )
        for residual, noisy in zip(noise_variances, outputs)
    }


def _request(counter: MarginalCounter, residual: Clique, noise_variance: float) -> CountsRequest:
    domain = counter.domain
    values = counter.count(residual)
    squared_sensitivity = Fraction(1)
    if is_scaled(domain, residual):
        for axis, n in enumerate(domain.shape(residual)):
            values = n * values - values.sum(axis=axis, keepdims=True)
            squared_sensitivity *= n * (n - 1)
    label = measurement_label(Purpose.RESIDUAL, domain.clique_names(residual))
    variance = Fraction(noise_variance) * _scale(domain, residual) ** 2
    return CountsRequest(label, values, squared_sensitivity, variance)


def _scale(domain: Domain, residual: Clique) -> int:
    return domain.size(residual) if is_scaled(domain, residual) else 1
