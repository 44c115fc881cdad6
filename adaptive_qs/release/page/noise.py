"""How large the noise in the marginals of a release is, from released quantities alone."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain, subsets
from adaptive_qs.residual.model import ReferenceModel, ResidualEstimate
from adaptive_qs.residual.variance import privacy_cost, variance_weight

Z95 = 1.959963984540054
"""Half a 95 % interval of a normal deviate, in standard deviations."""


def is_measured(
    estimates: Mapping[Clique, ResidualEstimate], clique: Clique, domain: Domain
) -> bool:
    """Whether all that a marginal can tell was measured: every residual in it.

    A residual with an attribute of one code is zero and needs no measurement.
    """
    several = tuple(i for i in clique if domain.sizes[i] > 1)
    return several in estimates and all(tau in estimates for tau in subsets(several))


def group_variance(model: ReferenceModel, attribute: int, codes: int) -> float:
    """Variance of the sum of so many cells of a one-way marginal (rows²).

    Residual noise σ² (I − 11ᵀ/n) adds σ² g (1 − g/n), the number of rows (g/n)² σ₀².
    """
    n = model.domain.sizes[attribute]
    part = codes / n
    return _variance(model, (attribute,)) * codes * (1 - part) + _variance(model, ()) * part**2


def measured_variance(model: ReferenceModel, clique: Clique) -> float:
    """Variance of every cell of a measured marginal (rows²): Fuentes et al., Proposition 4.4."""
    return math.fsum(
        variance_weight(model.domain, tau, clique) * _variance(model, tau)
        for tau in subsets(clique)
    )


def expected_l1(model: ReferenceModel, clique: Clique, total: float) -> float:
    """Expected L1 distance, in shares of the rows, between a measured marginal and the truth.

    Only noise counts: n_γ √(2/π) standard errors. Signed estimates; a table has no negative
    cells and is a little closer.
    """
    std = math.sqrt(measured_variance(model, clique))
    return model.domain.size(clique) * math.sqrt(2 / math.pi) * std / total


def known_noise_l1(model: ReferenceModel, clique: Clique, total: float) -> float:
    """The same of any marginal, for the part of it that was measured.

    A measured residual τ enters the estimate with weight
    Σ_{π: τ⊆π⊆γ} k_π (⊗_{π∖τ} excess) ⊗ (⊗_{γ∖π} q), as in :class:`ReferenceModel`, and so does
    its noise. That the reference follows the same noise changes this in the second order only.
    What the unmeasured residuals hold comes on top and is not known to anybody but the owner.
    """
    domain, sizes = model.domain, model.domain.sizes
    measured = [tau for tau in subsets(clique) if tau in model.estimates]
    variance: NDArray[np.float64] = np.zeros(domain.shape(clique))
    for tau in measured:
        factor: dict[Clique, int] = {tau: 1}
        weight = np.zeros([1 if i in tau else sizes[i] for i in clique])
        for pi in (p for p in measured if set(p) >= set(tau)):
            if pi != tau:
                factor[pi] = -sum(k for below, k in factor.items() if set(below) <= set(pi))
            weight = weight + factor[pi] * _outer(model, clique, tau, pi)
        variance += _variance(model, tau) * privacy_cost(domain, tau) * np.square(weight)
    return math.sqrt(2 / math.pi) * float(np.sqrt(variance).sum()) / total


def _outer(model: ReferenceModel, clique: Clique, tau: Clique, pi: Clique) -> NDArray[np.float64]:
    """(⊗_{π∖τ} excess) ⊗ (⊗_{γ∖π} q), with axes of length 1 for τ."""
    array: NDArray[np.float64] = np.ones([1] * len(clique))
    for axis, i in enumerate(clique):
        if i not in tau:
            q = model.reference[i]
            shape = [1] * len(clique)
            shape[axis] = -1
            array = array * (q - 1 / q.size if i in pi else q).reshape(shape)
    return array


def _variance(model: ReferenceModel, residual: Clique) -> float:
    precision = model.precision(residual)
    return 1 / precision if precision else 0.0
