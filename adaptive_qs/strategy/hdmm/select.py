"""OPT_HDMM: the best of all operators. McKenna et al., section 9."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from adaptive_qs.strategy.hdmm.lower_bound import lower_bound
from adaptive_qs.strategy.hdmm.marginals import (
    MOST_ATTRIBUTES,
    MarginalStrategy,
    optimal_residuals,
)
from adaptive_qs.strategy.hdmm.noise import Noise
from adaptive_qs.strategy.hdmm.opt_m import optimize_marginals
from adaptive_qs.strategy.hdmm.product import ProductStrategy, optimize_product
from adaptive_qs.strategy.hdmm.products import ProductWorkload
from adaptive_qs.strategy.hdmm.union import UnionStrategy, optimize_union
from adaptive_qs.strategy.settings import SolverSettings

AnyStrategy = ProductStrategy | UnionStrategy | MarginalStrategy


@dataclass(frozen=True, eq=False)
class Selection:
    """What every operator found.

    Attributes:
        candidates: by operator: "product" (OPT_⊗), "union" (OPT_+), "marginals" (OPT_M, weights
            of marginals) and, for Gaussian noise, "residuals" (its closed form); the last two
            for at most MOST_ATTRIBUTES attributes.
        lower_bound: no strategy at unit privacy has a smaller weighted squared error.
    """

    candidates: Mapping[str, AnyStrategy]
    lower_bound: float

    @property
    def operator(self) -> str:
        """The operator with the smallest error."""
        return min(self.candidates, key=lambda name: self.candidates[name].total_error)

    @property
    def strategy(self) -> AnyStrategy:
        """The best candidate."""
        return self.candidates[self.operator]

    @property
    def gap(self) -> float:
        """Relative gap of the squared error: total_error / lower_bound − 1."""
        return self.strategy.total_error / self.lower_bound - 1


def select(
    workload: ProductWorkload,
    noise: Noise = Noise.GAUSSIAN,
    settings: SolverSettings | None = None,
    seed: int = 0,
    restarts: int = 3,
) -> Selection:
    """OPT_HDMM: run all operators, keep the best. Sees no data and costs no privacy.

    Where the closed form meets the lower bound, as for marginals, the others are left out.

    Args:
        workload: the sets.
        noise: Gaussian or Laplace.
        settings: gap and limits of the inner solvers.
        seed: of the starting points; nothing private depends on it.
        restarts: starting points of OPT_⊗.
    """
    settings = settings or SolverSettings()
    rng = np.random.default_rng(seed)
    bound = lower_bound(workload, noise, settings)
    candidates: dict[str, AnyStrategy] = {}
    if len(workload.sizes) <= MOST_ATTRIBUTES and noise is Noise.GAUSSIAN:
        candidates["residuals"] = optimal_residuals(workload)
        if candidates["residuals"].total_error <= bound * (1 + settings.gap):
            return Selection(candidates, bound)
    candidates["product"] = optimize_product(workload, noise, settings, rng, restarts)
    candidates["union"] = optimize_union(workload, noise, settings, rng)
    if len(workload.sizes) <= MOST_ATTRIBUTES:
        candidates["marginals"] = optimize_marginals(workload, noise, rng)
    return Selection(candidates, bound)
