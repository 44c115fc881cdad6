"""OPT_0: the best strategy for one attribute. McKenna et al., section 4."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.certified.dense import solve_dense
from adaptive_qs.strategy.hdmm.noise import Noise
from adaptive_qs.strategy.hdmm.pidentity import default_rows, optimize_p_identity
from adaptive_qs.strategy.matrix import DenseFactor
from adaptive_qs.strategy.settings import SolverSettings

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AxisStrategy:
    """A strategy on one attribute with sensitivity 1.

    Attributes:
        matrix: A, shape (rows, n).
        covariance: (AᵀA)⁺, shape (n, n): covariance of the cells for noise of unit variance.
        weights: Θ of a p-Identity strategy; None for others.
    """

    matrix: Array
    covariance: Array
    weights: Array | None = None

    def error(self, gram: Array) -> float:
        """tr(G (AᵀA)⁺): summed variance of queries with Gram matrix G that A supports."""
        return float(np.vdot(gram, self.covariance))

    @property
    def factor(self) -> DenseFactor:
        """A as a factor of a Gaussian strategy (normalised in L2)."""
        return DenseFactor(self.matrix, (self.matrix.shape[1],), self.covariance)


def identity_strategy(size: int) -> AxisStrategy:
    """I: measures every cell, with either noise."""
    return AxisStrategy(np.eye(size), np.eye(size))


def total_strategy(size: int) -> AxisStrategy:
    """T = 1ᵀ: measures the sum of the cells and nothing else."""
    return AxisStrategy(np.ones((1, size)), np.full((size, size), 1 / size**2))


def exchangeable(gram: Array) -> tuple[float, float] | None:
    """(a, b) where G = aI + b11ᵀ up to rounding, else None: only identity and total queries."""
    n = len(gram)
    diagonal = float(gram.diagonal().mean())
    b = float((gram.sum() - gram.trace()) / (n * (n - 1))) if n > 1 else 0.0
    a = diagonal - b
    model = np.full_like(gram, b)
    np.fill_diagonal(model, a + b)
    if np.abs(gram - model).max() > 1e-12 * diagonal:
        return None
    return (a if abs(a) > 1e-12 * diagonal else 0.0), b


def optimize_axis(
    gram: Array,
    noise: Noise,
    settings: SolverSettings,
    rng: np.random.Generator,
    restarts: int = 1,
    previous: AxisStrategy | None = None,
) -> AxisStrategy:
    """OPT_0: a strategy of sensitivity 1 with least tr(G (AᵀA)⁺).

    Gaussian noise: the optimum to the gap of the settings (McKenna et al., definition 12, solved
    with a certificate). Laplace noise: a local optimum among p-Identity strategies
    (definition 14), one weighted row where the queries are only identity and total.

    Args:
        gram: G, shape (n, n).
        noise: decides the sensitivity norm.
        settings: gap and iteration limit.
        rng: starting points of the Laplace search.
        restarts: searches from random points, for Laplace noise.
        previous: a strategy for similar queries, from which the Laplace search starts once more.
    """
    n = len(gram)
    simple = exchangeable(gram)
    if simple is not None and simple[0] == 0:
        return total_strategy(n)
    if noise is Noise.LAPLACE:
        rows = 1 if simple is not None else default_rows(n)
        start = None if previous is None else previous.weights
        if start is not None and len(start) != rows:
            start = None
        found = optimize_p_identity(gram, rows, rng, restarts, settings.max_iterations, start)
        return AxisStrategy(found.matrix, found.covariance, found.weights)
    if simple is not None:
        return _root_strategy(n, *simple)
    (factor,) = solve_dense(gram, (n,), settings).strategy.factors
    return AxisStrategy(factor.matrix, factor.covariance)


def _root_strategy(n: int, a: float, b: float) -> AxisStrategy:
    """The Gaussian optimum for G = aI + b11ᵀ: AᵀA is √G, whose diagonal is constant."""
    centered, mean = np.sqrt(a), np.sqrt(max(a + n * b, 0.0))
    diagonal = (mean + (n - 1) * centered) / n
    centered, mean = centered / diagonal, mean / diagonal
    average = np.full((n, n), 1 / n)
    centering = np.eye(n) - average
    matrix = np.sqrt(centered) * centering + np.sqrt(mean) * average
    inverse = centering / centered + (average / mean if mean > 0 else 0.0)
    return AxisStrategy(matrix, inverse)
