"""Weighted Fourier queries on each axis apart: what is left of them where cells are many.

The best Fourier strategy over all axes together is a dense matrix once it is measured. A product
V = ⊗ F_k diag(h_k) F_k* needs one matrix for each axis. Its error Σ_f c_f / Π_k h_k(f_k) falls with
every exact step in one h_k, √(Σ_f c_f / Π_{j≠k} h_j) up to a scale; it starts from contrasts.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.bounds import svd_bound
from adaptive_qs.strategy.certified.limits import factor_fits
from adaptive_qs.strategy.matrix import CenteringFactor, Factor, Strategy
from adaptive_qs.strategy.restricted.fourier import subworkload_spectrum
from adaptive_qs.strategy.restricted.fourier_factor import FourierFactor
from adaptive_qs.strategy.restricted.planner import PROVEN
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.strategy.solution import Solution, Status
from adaptive_qs.workload.subworkload import Subworkload

Array = NDArray[np.float64]

SWEEPS = 100
"""Most passes over the axes."""
SETTLED = 1e-6
"""Relative change of the error in one pass that ends the search."""


def solve_fourier_product(subworkload: Subworkload, settings: SolverSettings) -> Solution:
    """One Fourier factor for each axis, contrasts where that would not fit in memory.

    Args:
        subworkload: over one axis or more.
        settings: memory ceiling.

    Returns:
        Status OPTIMAL where the objective meets the singular value bound, else RESTRICTED.
    """
    shape = subworkload.shape
    c = subworkload_spectrum(subworkload)
    weights = [np.where(np.arange(n) > 0, n / (n - 1), 0.0) for n in shape]
    free = [axis for axis, n in enumerate(shape) if factor_fits(n, settings)]
    objective, last, sweeps = _error(c, weights), np.inf, 0
    while sweeps < SWEEPS and objective < last * (1 - SETTLED):
        for axis in free:
            roots = np.sqrt(_seen_from(c, weights, axis))
            weights[axis] = roots * (roots.size / roots.sum())
        objective, last, sweeps = _error(c, weights), objective, sweeps + 1
    factors: tuple[Factor, ...] = tuple(
        FourierFactor((n,), h) if axis in free else CenteringFactor(n)
        for axis, (n, h) in enumerate(zip(shape, weights))
    )
    bound = min(svd_bound(subworkload), objective)
    status = Status.OPTIMAL if objective <= bound * (1 + PROVEN) else Status.RESTRICTED
    return Solution(Strategy(factors), objective, bound, status, sweeps)


def _seen_from(c: Array, weights: list[Array], axis: int) -> Array:
    """Σ_f c_f / Π_{j≠axis} h_j over all other axes, shape (n,)."""
    total = np.moveaxis(c, axis, 0)
    for h in reversed(weights[:axis] + weights[axis + 1 :]):
        total = total @ _reciprocal(h)
    return total


def _error(c: Array, weights: list[Array]) -> float:
    return float(reduce(lambda t, h: t @ _reciprocal(h), reversed(weights), c))


def _reciprocal(h: Array) -> Array:
    return np.divide(1.0, h, out=np.zeros_like(h), where=h > 0)
