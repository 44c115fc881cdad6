"""HDMM with Laplace noise, as McKenna et al. have it beside Gaussian noise: for their tables only.

The operators of ``adaptive_qs.strategy`` take the noise as an argument; here is what is special
about this one: p-Identity strategies on one attribute, and the search for weights of marginals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from adaptive_qs.strategy import hdmm
from adaptive_qs.strategy.hdmm import (
    LOWEST,
    MarginalStrategy,
    Selection,
    WeightSearch,
    asked_weights,
    log_error_and_gradient,
    weighted_marginals,
)
from adaptive_qs.strategy.hdmm_products import AxisStrategy, Noise, ProductWorkload, exchangeable

Array = NDArray[np.float64]

# OPT_0 for Laplace noise: p-Identity strategies. McKenna et al., section 4.3.

LARGEST_WEIGHT = 1e4
"""Bound on Θ: beyond it the Woodbury identity loses the objective to rounding."""
COARSE_FROM = 2_048
"""Cells from which a search starts from the solution over groups of cells."""
TOLERANCE = 1e-8
"""Relative decrease of the objective in one iteration below which the search ends."""


@dataclass(frozen=True, eq=False)
class PIdentity:
    """A(Θ) = [I; Θ] D with D = diag(1 + 1ᵀΘ)⁻¹: every column has L1 norm 1.

    Attributes:
        weights: Θ ≥ 0, shape (p, n).
    """

    weights: Array

    @property
    def column_sums(self) -> Array:
        """1 + 1ᵀΘ, shape (n,): the inverse of D's diagonal."""
        return 1 + self.weights.sum(axis=0)

    @property
    def matrix(self) -> Array:
        """A, shape (n + p, n)."""
        return np.vstack([np.eye(self.weights.shape[1]), self.weights]) / self.column_sums

    @property
    def covariance(self) -> Array:
        """(AᵀA)⁻¹ = D⁻¹ (I − Θᵀ (I + ΘΘᵀ)⁻¹ Θ) D⁻¹, shape (n, n)."""
        theta, s = self.weights, self.column_sums
        inner = cho_factor(np.eye(len(theta)) + theta @ theta.T)
        core = -(theta.T @ cho_solve(inner, theta))
        np.fill_diagonal(core, core.diagonal() + 1)
        return core * s[:, None] * s


def error_and_gradient(weights: Array, gram: Array) -> tuple[float, Array]:
    """tr(G (AᵀA)⁻¹) of a p-Identity strategy and its derivative in Θ, in O(n²p).

    With S = D⁻¹, M = I + ΘΘᵀ and R = M⁻¹Θ the objective is tr(SGS) − tr(R SGS Θᵀ). Its only
    product of size n²p is ΘSG; no n × n system is solved. McKenna et al., theorem 17.

    Args:
        weights: Θ, shape (p, n).
        gram: G, shape (n, n), symmetric.

    Returns:
        The objective and an array of shape (p, n).
    """
    s = 1 + weights.sum(axis=0)
    diagonal = gram.diagonal() * s
    inner = cho_factor(np.eye(len(weights)) + weights @ weights.T, check_finite=False)
    solved = cho_solve(inner, weights, check_finite=False)
    left = (weights * s) @ gram
    both = left * s
    error = float(diagonal @ s - np.vdot(solved, both))
    middle = cho_solve(inner, both @ weights.T, check_finite=False)
    gradient = cho_solve(inner, both, check_finite=False)
    gradient -= middle @ solved
    gradient *= -2
    gradient += 2 * (diagonal - np.einsum("rc,rc->c", left, solved))
    return error, gradient


def first_weights(
    gram: Array, rows: int, rng: np.random.Generator, max_iterations: int
) -> list[Array]:
    """Θ to start from: windows; over many cells first the optimum for groups of four cells.

    A quarter of the rows then comes from the coarser problem and the others are finer windows.
    Either start may lead to the better optimum, depending on how long the queries are.
    """
    n = len(gram)
    plain = windows(rows, n, rng)
    if n < COARSE_FROM or rows < 8:
        return [plain]
    groups = np.arange(n) * (n // 4) // n
    edges = np.flatnonzero(np.diff(groups, prepend=-1))
    coarse = np.add.reduceat(np.add.reduceat(gram, edges, axis=0), edges, axis=1)
    found = optimize_p_identity(coarse, rows // 4, rng, 0, max_iterations).weights[:, groups]
    return [np.vstack([found, windows(rows - len(found), n, rng)]), plain]


def windows(rows: int, size: int, rng: np.random.Generator) -> Array:
    """Θ with the shape that McKenna et al. found for ranges (figure 1b), plus some wide rows.

    Every row is a tent over one and a half times its share of the cells; a fifth of the rows have
    random weights on all cells besides, from which queries over longer stretches develop.
    """
    width = size / rows
    centres = (np.arange(rows) + 0.5) * width
    tents = 1 - np.abs(np.arange(size) + 0.5 - centres[:, None]) / (1.5 * width)
    wide = 0.3 * rng.random((rows, size)) * (rng.random((rows, 1)) < 0.2)
    return np.maximum(tents, wide)


def default_rows(size: int) -> int:
    """p: a sixteenth of the cells as in McKenna et al., and never below 2."""
    return max(2, size // 16)


def optimize_p_identity(
    gram: Array,
    rows: int,
    rng: np.random.Generator,
    restarts: int = 1,
    max_iterations: int = 1_000,
    start: Array | None = None,
) -> PIdentity:
    """A p-Identity strategy with small tr(G (AᵀA)⁻¹): the best of several local optima and Θ = 0.

    Args:
        gram: G, shape (n, n), symmetric positive semidefinite, not zero.
        rows: p.
        rng: draws the starting points; nothing private depends on it.
        restarts: searches from random Θ, uniform on [0, 1], after the first.
        max_iterations: of each search.
        start: where the first search starts, shape (p, n); without it :func:`first_weights`.
    """
    n = len(gram)
    scaled = gram / (np.trace(gram) / n)

    def objective(flat: Array) -> tuple[float, Array]:
        error, gradient = error_and_gradient(flat.reshape(rows, n), scaled)
        return error / n, gradient.ravel() / n

    first = [start] if start is not None else first_weights(scaled, rows, rng, max_iterations)
    starts = [np.clip(theta, 0, LARGEST_WEIGHT) for theta in first]
    starts += [rng.random((rows, n)) for _ in range(restarts)]
    best, best_error = np.zeros((rows, n)), 1.0
    for theta in starts:
        found = minimize(
            objective,
            theta.ravel(),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, LARGEST_WEIGHT)] * (rows * n),
            options={"maxiter": max_iterations, "maxfun": 4 * max_iterations, "ftol": TOLERANCE},
        )
        if found.fun < best_error:
            best, best_error = found.x.reshape(rows, n), found.fun
    return PIdentity(best)


# The noise itself. McKenna et al., definitions 7, 14 and 19.


@dataclass(frozen=True, eq=False)
class PIdentityAxis(AxisStrategy):
    """A p-Identity strategy, which remembers where it came from.

    Attributes:
        weights: Θ.
    """

    weights: Array


@dataclass(frozen=True)
class Laplace(Noise):
    """Sensitivity in L1. Unit privacy: scale = sensitivity, so that ε = 1 and the variance 2."""

    name: ClassVar[str] = "laplace"
    order: ClassVar[int] = 1
    unit_variance: ClassVar[float] = 2.0
    has_residuals: ClassVar[bool] = False
    refines: ClassVar[bool] = False

    def roots(self, errors):
        """Cube roots: Σ E_g / c_g² at Σ c_g = 1."""
        return np.cbrt(errors)

    def best_axis(self, gram, settings, rng, restarts, previous):
        """A local optimum among p-Identity strategies (definition 14).

        One weighted row where the queries are only identity and total.
        """
        rows = 1 if exchangeable(gram) is not None else default_rows(len(gram))
        start = getattr(previous, "weights", None)
        if start is not None and len(start) != rows:
            start = None
        found = optimize_p_identity(gram, rows, rng, restarts, settings.max_iterations, start)
        return PIdentityAxis(found.matrix, found.covariance, found.weights)


LAPLACE = Laplace()


# OPT_M for Laplace noise, and the best of all operators.

ORDERS = (2.0, 1.5, 1.2, 1.0)
"""Norms of θ on the way from the convex problem to the L1 norm of Laplace noise."""
ACTIVE = 1e-4
"""θ relative to the largest from which a marginal counts as measured."""
SHARES = (0.2, 0.4, 0.7)
"""Weight tried for a joint marginal, as a share of all weight within it."""
KEPT = 0.05
"""Share of their weight that the marginals within a joint one keep."""
PROMISING = 0.01
"""Increase of the log error, before a search, up to which a move is worth one."""


def optimize_marginals(
    workload: ProductWorkload,
    rng: np.random.Generator,
    max_iterations: int = 1_000,
    moves: int = 1_000,
) -> MarginalStrategy:
    """OPT_M: weights θ_b ≥ 0 of all marginals with a small error at sensitivity 1.

    There are many local optima: the search follows the norm from L2 to L1, and then tries joint
    marginals in place of those within them.

    Args:
        workload: the sets, d attributes.
        rng: draws the moves; nothing private depends on it.
        max_iterations: of each search.
        moves: joint marginals tried.
    """
    search = WeightSearch.of(workload, max_iterations)
    found = search.run(np.zeros(search.traces.shape), ORDERS[0])
    for order in ORDERS[1:]:
        found = search.run(np.maximum(found[1], LOWEST), order)
    found = min(found, search.run(asked_weights(workload), 1.0), key=lambda pair: pair[0])
    for _ in range(moves):
        found = min(found, _move(search, found, rng), key=lambda pair: pair[0])
    return weighted_marginals(workload, np.exp(found[1]), LAPLACE)


def select(workload: ProductWorkload, noise: Noise, seed: int = 0) -> Selection:
    """OPT_HDMM with either noise; see :func:`adaptive_qs.strategy.hdmm.select`."""
    if noise == LAPLACE:
        return hdmm.select(workload, noise, seed=seed, marginals=optimize_marginals)
    return hdmm.select(workload, noise, seed=seed)


def _move(
    search: WeightSearch, found: tuple[float, Array], rng: np.random.Generator
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
        value = log_error_and_gradient(trial, search.traces, search.cells, 1.0)[0]
        if value < best:
            best, start = value, trial
    return search.run(start, 1.0) if best < error + PROMISING else found
