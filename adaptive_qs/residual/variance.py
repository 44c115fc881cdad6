"""What noise on a residual costs, and what it does to the marginals that contain it."""

from __future__ import annotations

import math

from adaptive_qs.domain import Clique, Domain


def privacy_cost(domain: Domain, residual: Clique) -> float:
    """p_τ = Π (n_i − 1)/n_i: ρ = p_τ / (2σ²) for residual τ (Fuentes et al., Proposition 4.3)."""
    return math.prod((n - 1) / n for n in domain.shape(residual))


def variance_weight(domain: Domain, residual: Clique, clique: Clique) -> float:
    """Mean variance that unit variance on residual τ adds to a cell of marginal γ ⊇ τ.

    v_τ = Π_{i∈τ} (n_i − 1)/n_i · Π_{j∈γ∖τ} 1/n_j² (Fuentes et al., Proposition 4.4, whose
    total over cells is n_γ times this).
    """
    outside = (1 / n**2 for i, n in zip(clique, domain.shape(clique)) if i not in residual)
    return privacy_cost(domain, residual) * math.prod(outside)
