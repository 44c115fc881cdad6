"""OPT_⊗: one product strategy for a union of products. McKenna et al., section 6."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.hdmm.axis import AxisStrategy, identity_strategy, optimize_axis
from adaptive_qs.strategy.hdmm.noise import Noise
from adaptive_qs.strategy.hdmm.products import SMALLEST_SHARE, ProductWorkload
from adaptive_qs.strategy.matrix import Strategy
from adaptive_qs.strategy.settings import SolverSettings

Array = NDArray[np.float64]

SWEEPS = 50
"""Most passes over the attributes from one starting point."""
COARSE_GAP = 1e-2
"""Gap asked of a single attribute while the others still move."""


@dataclass(frozen=True, eq=False)
class ProductStrategy:
    """A = ⊗A_i over all attributes, of sensitivity 1.

    A set γ of a table is answered from Ax through ⊗_{i∈γ} A_i⁺ and 1ᵀA_i⁺ for the other attributes.

    Attributes:
        workload: what it was made for.
        axes: A_i for every attribute.
        noise: the noise that it is made for.
    """

    workload: ProductWorkload
    axes: tuple[AxisStrategy, ...]
    noise: Noise

    @cached_property
    def set_errors(self) -> Array:
        """Summed variance (rows²) of each set's queries at unit privacy, shape (sets,)."""
        return self.noise.unit_variance * self.workload.set_values(
            [_errors(axis, grams) for axis, grams in zip(self.axes, self.workload.grams)]
        )

    @property
    def total_error(self) -> float:
        """Σ weight · variance over all queries at unit privacy."""
        return math.fsum(self.workload.weights * self.set_errors)

    @property
    def strategy(self) -> Strategy:
        """The factors normalised for Gaussian noise."""
        return Strategy(tuple(axis.factor for axis in self.axes))


def optimize_product(
    workload: ProductWorkload,
    noise: Noise,
    settings: SolverSettings,
    rng: np.random.Generator,
    restarts: int = 3,
) -> ProductStrategy:
    """OPT_⊗: block descent over the attributes, the best of several starting points.

    With the other strategies fixed, the error is that of one attribute on the surrogate Gram
    matrix Σ_j w_j (Π_{k≠i} error_k) G_ij: McKenna et al., definition 18 and equation 5. A union
    that is itself one product is solved one attribute at a time, exactly (theorem 4). Sets whose
    queries are all zero have no say.

    Args:
        workload: the sets.
        noise: decides the sensitivity norm.
        settings: gap and iteration limit of each attribute's problem.
        rng: starting points; nothing private depends on it.
        restarts: starting points; the first is the identity on every attribute.
    """
    asked = workload.only_asked()
    whole = asked.factorised()
    if whole is not None:
        axes = tuple(optimize_axis(gram, noise, settings, rng, restarts) for gram in whole)
        return ProductStrategy(workload, axes, noise)
    found = [_descend(asked, noise, settings, rng, first=r == 0) for r in range(restarts)]
    return replace(min(found, key=lambda product: product.total_error), workload=workload)


def _descend(
    workload: ProductWorkload,
    noise: Noise,
    settings: SolverSettings,
    rng: np.random.Generator,
    first: bool,
) -> ProductStrategy:
    axes = [identity_strategy(n) for n in workload.sizes]
    errors = [_errors(axis, grams) for axis, grams in zip(axes, workload.grams)]
    if not first:
        errors = [values * rng.lognormal(0, 1, len(values)) for values in errors]
    coarse, refining = replace(settings, gap=max(settings.gap, COARSE_GAP)), False
    last = math.inf
    for sweep in range(SWEEPS):
        for i, grams in enumerate(workload.grams):
            surrogate = _surrogate(workload, errors, i)
            solver = settings if refining else coarse
            restarts = 1 if sweep == 0 else 0
            new = optimize_axis(surrogate, noise, solver, rng, restarts, axes[i])
            moved = sweep == 0 and not first
            if moved or new.error(surrogate) < axes[i].error(surrogate):
                axes[i], errors[i] = new, _errors(new, grams)
        total = float(workload.weights @ workload.set_values(errors))
        settled = total > last * (1 - settings.gap)
        if settled and (refining or noise is Noise.LAPLACE):
            break
        last, refining = total, refining or settled
    return ProductStrategy(workload, tuple(axes), noise)


def _surrogate(workload: ProductWorkload, errors: Sequence[Array], i: int) -> Array:
    """Σ_j w_j (Π_{k≠i} error_k) G_ij up to a scale, shape (n_i, n_i)."""
    others = [np.ones_like(e) if k == i else e for k, e in enumerate(errors)]
    scales = workload.weights * workload.set_values(others)
    grams = workload.grams[i]
    totals = np.bincount(workload.kinds[:, i], weights=scales, minlength=len(grams))
    traces = np.array([np.trace(gram) for gram in grams])
    shares = totals * traces / (totals * traces).max()
    gram: Array = np.zeros_like(grams[0])
    for k in np.unique(workload.kinds[:, i]):
        gram += max(shares[k], SMALLEST_SHARE) / traces[k] * grams[k]
    return gram


def _errors(axis: AxisStrategy, grams: Sequence[Array]) -> Array:
    return np.array([axis.error(gram) for gram in grams])
