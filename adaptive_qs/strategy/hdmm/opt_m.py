"""OPT_M: the search for weights of marginals. McKenna et al., definition 22 and theorem 13."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from adaptive_qs.strategy.hdmm.marginals import (
    MarginalStrategy,
    optimal_residuals,
    residual_traces,
    weighted_marginals,
)
from adaptive_qs.strategy.hdmm.noise import Noise
from adaptive_qs.strategy.hdmm.products import ProductWorkload
from adaptive_qs.strategy.hdmm.subsets import subset_products, subset_sums, superset_sums

Array = NDArray[np.float64]

ORDERS = (2.0, 1.5, 1.2, 1.0)
"""Norms of θ on the way from the convex problem to the L1 norm of Laplace noise."""
LOWEST = -12.0
"""log θ, relative to the largest, below which a search does not start a marginal."""
ACTIVE = 1e-4
"""θ relative to the largest from which a marginal counts as measured."""
SHARES = (0.2, 0.4, 0.7)
"""Weight tried for a joint marginal, as a share of all weight within it."""
KEPT = 0.05
"""Share of their weight that the marginals within a joint one keep."""
PROMISING = 0.01
"""Increase of the log error, before a search, up to which a move is worth one."""


def log_error_and_gradient(
    log_weights: Array, traces: Array, cells: Array, order: float
) -> tuple[float, Array]:
    """log(‖θ‖² Σ_τ u_τ/ω_τ) with ω_τ = Σ_{b⊇τ} θ_b²/n_b, and its derivative in log θ.

    Scale-free in θ; the triangular systems of theorem 11 become two sums over subsets.

    Args:
        log_weights: log θ, shape (2,)*d.
        traces: u, shape (2,)*d.
        cells: n_b, shape (2,)*d.
        order: k of the norm ‖θ‖_k that is the sensitivity: 2 for Gaussian noise, 1 for Laplace.
    """
    theta = np.exp(np.maximum(log_weights - log_weights.max(), -100.0))
    squares = theta**2
    spread = superset_sums(squares / cells)
    ratio = np.divide(traces, spread, out=np.zeros_like(traces), where=traces > 0)
    error = float(ratio.sum())
    slope = subset_sums(np.divide(ratio, spread, out=np.zeros_like(ratio), where=traces > 0))
    costs = theta**order
    cost = float(costs.sum())
    gradient = 2 * costs / cost - 2 * squares / cells * slope / error
    return float(np.log(error) + 2 / order * np.log(cost)), gradient


def optimize_marginals(
    workload: ProductWorkload,
    noise: Noise,
    rng: np.random.Generator,
    max_iterations: int = 1_000,
    moves: int = 1_000,
) -> MarginalStrategy:
    """OPT_M: weights θ_b ≥ 0 of all marginals with the least error at sensitivity 1.

    Gaussian noise: the closed form of theorem 13 where it is real, which is optimal; otherwise a
    search in log θ (the problem is convex in θ²). Laplace noise has many local optima: the search
    follows the norm from L2 to L1, and then tries joint marginals in place of those within them.

    Args:
        workload: the sets, d attributes.
        noise: decides the sensitivity norm.
        rng: draws the moves; nothing private depends on it.
        max_iterations: of each search.
        moves: joint marginals tried, for Laplace noise.

    Raises:
        ResourceExceeded: too many attributes for arrays over all their subsets.
    """
    if noise is Noise.GAUSSIAN:
        closed = optimal_residuals(workload)
        if closed.weights is not None:
            return closed
    search = _Search.of(workload, max_iterations)
    found = search.run(np.zeros(search.traces.shape), ORDERS[0])
    if noise is Noise.GAUSSIAN:
        found = min(found, search.run(_asked(workload), ORDERS[0]), key=lambda pair: pair[0])
    else:
        for order in ORDERS[1:]:
            found = search.run(np.maximum(found[1], LOWEST), order)
        found = min(found, search.run(_asked(workload), 1.0), key=lambda pair: pair[0])
        for _ in range(moves):
            found = min(found, _move(search, found, rng), key=lambda pair: pair[0])
    return weighted_marginals(workload, np.exp(found[1]), noise)


@dataclass(frozen=True, eq=False)
class _Search:
    """The problem of definition 22, on a relative scale."""

    traces: Array
    cells: Array
    max_iterations: int

    @classmethod
    def of(cls, workload: ProductWorkload, max_iterations: int) -> _Search:
        traces = residual_traces(workload)
        ones = [1.0] * len(workload.sizes)
        cells = subset_products(ones, [float(n) for n in workload.sizes])
        return cls(traces / traces.sum(), cells, max_iterations)

    def error(self, log_weights: Array, order: float) -> float:
        return log_error_and_gradient(log_weights, self.traces, self.cells, order)[0]

    def run(self, start: Array, order: float) -> tuple[float, Array]:
        """A local optimum: log error and log θ, whose largest entry is 0."""

        def objective(flat: Array) -> tuple[float, Array]:
            log_weights = flat.reshape(start.shape)
            value, slope = log_error_and_gradient(log_weights, self.traces, self.cells, order)
            return value, slope.ravel()

        limits = {"maxiter": self.max_iterations, "maxfun": 2 * self.max_iterations}
        options = {**limits, "ftol": 1e-12, "maxcor": 20}
        found = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options=options)
        log_weights = found.x.reshape(start.shape)
        return float(found.fun), log_weights - log_weights.max()


def _asked(workload: ProductWorkload) -> Array:
    """log θ where the workload's own marginals are measured, and the others hardly."""
    start = np.full((2,) * len(workload.sizes), LOWEST / 2)
    for kinds in workload.kinds:
        start[tuple((kinds > 0).astype(int))] = 0.0
    return start


def _move(
    search: _Search, found: tuple[float, Array], rng: np.random.Generator
) -> tuple[float, Array]:
    """Measure the joint marginal of two measured ones in place of all those within it."""
    error, log_weights = found
    active = np.argwhere(log_weights > np.log(ACTIVE))
    if len(active) < 2:
        return found
    first, second = rng.choice(len(active), 2, replace=False)
    joint = active[first] | active[second]
    within = tuple(slice(None) if bit else slice(0, 1) for bit in joint)
    lowered = np.exp(log_weights)
    weight = float(lowered[within].sum())
    lowered[within] *= KEPT
    best, start = np.inf, log_weights
    for share in SHARES:
        trial = lowered.copy()
        trial[tuple(joint)] = share * weight
        trial = np.log(np.maximum(trial, np.exp(LOWEST)))
        value = search.error(trial, 1.0)
        if value < best:
            best, start = value, trial
    return search.run(start, 1.0) if best < error + PROMISING else found
