"""HDMM with Laplace noise, as McKenna et al. have it beside Gaussian noise: for their tables only.

The operators of ``operators`` are for Gaussian noise; here is what is special about
this one: p-Identity strategies on one attribute, and OPT_M, the search for weights of marginals,
for either noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.fixed_point import exchangeable
from adaptive_qs.strategy.hdmm import ProductWorkload
from adaptive_qs.strategy.solution import Factor, SolverSettings
from scripts.published.operators import Operators, ProductStrategy
from scripts.published.subset_bounds import (
    MOST_ATTRIBUTES,
    lower_bound,
    residual_sums,
    subset_products,
    subset_values,
)

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
    def shape(self) -> tuple[int, ...]:
        """(n,)."""
        return self.weights.shape[1:]

    @cached_property
    def matrix(self) -> Array:
        """A, shape (n + p, n)."""
        return np.vstack([np.eye(self.weights.shape[1]), self.weights]) / self.column_sums

    @cached_property
    def inverse(self) -> Array:
        """A⁺ = (AᵀA)⁻¹ Aᵀ, shape (n, n + p)."""
        return self.covariance @ self.matrix.T

    @cached_property
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


class LaplaceOperators(Operators):
    """Sensitivity in L1, p-Identity strategies."""

    order: ClassVar[int] = 1
    coarse_gap: ClassVar[float] = 0.0

    def axis(self, gram: Array, settings: SolverSettings, previous: Factor | None = None) -> Factor:
        """A local optimum among p-Identity strategies (definition 14).

        One weighted row where the queries are only identity and total.
        """
        simple = exchangeable(gram)
        if simple is not None and simple[0] == 0:
            return super().axis(gram, settings)
        rows = 1 if simple is not None else default_rows(len(gram))
        start = previous.weights if isinstance(previous, PIdentity) else None
        restarts = 3 if previous is None else 1 if start is None else 0
        if start is not None and len(start) != rows:
            start = None
        return optimize_p_identity(gram, rows, self.rng, restarts, settings.max_iterations, start)


@dataclass(frozen=True)
class Noise:
    """What the paper's tables call noise.

    Attributes:
        name: as tables say it.
        unit_variance: on a strategy of sensitivity 1 at unit privacy, β = 1 or ε = 1.
        operators: of HDMM.
    """

    name: str
    unit_variance: float
    operators: type[Operators]

    def sensitivity(self, matrix: Array) -> float:
        """Largest column norm of a strategy matrix (rows, cells)."""
        norms: Array = np.linalg.norm(matrix, ord=self.operators.order, axis=0)
        return float(norms.max())


GAUSSIAN = Noise("gaussian", 1.0, Operators)
LAPLACE = Noise("laplace", 2.0, LaplaceOperators)


# The best strategy of weighted marginals, in the residual basis. McKenna et al., section 8.
#
# Measuring marginal b with weight θ_b measures every residual τ ⊆ b; together they give residual τ
# the precision λ_τ = n_τ Σ_{b⊇τ} θ_b²/n_b, the eigenvalue of AᵀA on the residual space up to a
# known factor (theorem 9). A workload matters only through u_τ, its trace on each residual space
# (theorem 10), so that the error is Σ u_τ n_τ/λ_τ and the Gaussian privacy cost is
# Σ θ_b² = Σ p_τ λ_τ, p_τ = Π_{i∈τ} (n_i − 1)/n_i. The best λ has a closed form, which is that of
# ResidualPlanner: the program measures it so.


@dataclass(frozen=True, eq=False)
class MarginalStrategy:
    """Noisy residuals, of sensitivity 1 together.

    Precisions are λ_τ for every residual, 1/variance for noise of unit variance, shape (2,)*d.
    """

    workload: ProductWorkload
    precisions: Array

    @cached_property
    def set_errors(self) -> Array:
        """Summed variance (rows²) of each set's queries for unit noise, shape (sets,)."""
        spread = self.precisions / subset_cells(self.workload)
        errors = []
        for place, traces in subset_values(self.workload, _axis_traces(self.workload)):
            needed = traces > 0
            errors.append(math.fsum(traces[needed] / spread[place][needed]))
        return np.array(errors)

    @property
    def total_error(self) -> float:
        """Σ weight · variance over all queries for unit noise."""
        return math.fsum(self.workload.weights * self.set_errors)


def optimal_residuals(workload: ProductWorkload) -> MarginalStrategy:
    """The best precision for every residual, for Gaussian noise, in closed form.

    Minimises Σ u_τ n_τ/λ_τ at Σ p_τ λ_τ = 1: λ_τ ∝ √(u_τ n_τ/p_τ), with error (Σ√(u_τ n_τ p_τ))².
    For marginal workloads that is the SVD bound (theorem 12), so nothing is better. Every strategy
    of weighted marginals is one of these.

    Raises as :func:`residual_traces` does.
    """
    traces = residual_traces(workload)
    m = subset_products(
        [1.0] * traces.ndim, [n - 1.0 for n in workload.sizes]
    )  # dimensions p_τ n_τ
    spread = np.sqrt(np.divide(traces, m, out=np.zeros_like(traces), where=m > 0))
    spread /= math.fsum((m * spread).ravel())
    return MarginalStrategy(workload, spread * subset_cells(workload))


def residual_traces(workload: ProductWorkload) -> Array:
    """u_τ = Σ_j w_j Π_{i∈τ} tr(ΠG_ij)/n_i Π_{i∉τ} 1ᵀG_ij1/n_i², shape (2,)*d.

    Raises ResourceExceeded for too many attributes.
    """
    d = len(workload.sizes)
    if d > MOST_ATTRIBUTES:
        raise ResourceExceeded(
            f"weights of all marginals of {d} attributes are 2^{d} numbers: use at most "
            f"{MOST_ATTRIBUTES} attributes or the mechanism residualplanner"
        )
    return residual_sums(workload, _axis_traces(workload))


def _axis_traces(workload: ProductWorkload) -> list[tuple[Array, Array]]:
    """For each attribute, of its factors: the mean part 1ᵀG1/n², the centered part tr(ΠG)/n."""
    traces = []
    for n, grams in zip(workload.sizes, workload.grams):
        mean = np.array([gram.sum() / n**2 for gram in grams])
        centered = np.maximum(np.array([np.trace(gram) / n for gram in grams]) - mean, 0.0)
        centered[0] = 0.0
        traces.append((mean, centered))
    return traces


def subset_cells(workload: ProductWorkload) -> Array:
    """n_b, the cells of the marginal of every subset, shape (2,)*d."""
    return subset_products([1.0] * len(workload.sizes), [float(n) for n in workload.sizes])


# Sums over all subsets of the attributes, in O(d 2^d); arrays of shape (2,)*d.


def superset_sums(values: Array) -> Array:
    """For every τ: Σ_{b⊇τ} values[b]."""
    return _accumulated(values, 0, 1)


def subset_sums(values: Array) -> Array:
    """For every b: Σ_{τ⊆b} values[τ]."""
    return _accumulated(values, 1, 1)


def superset_differences(sums: Array) -> Array:
    """The inverse of :func:`superset_sums`: Möbius inversion."""
    return _accumulated(sums, 0, -1)


def _accumulated(values: Array, into: int, sign: int) -> Array:
    """Axis after axis, one half added to the other, or taken from it."""
    sums = values.copy()
    for axis in range(values.ndim):
        view = np.moveaxis(sums, axis, 0)
        view[into] += sign * view[1 - into]
    return sums


# OPT_M: the search for weights of marginals. McKenna et al., definition 22 and theorem 13.

LOWEST = -12.0
"""log θ, relative to the largest, below which a search does not start a marginal."""
ROUNDING = 1e-10
"""Negative squared weights above minus this share of the largest count as zero."""


@dataclass(frozen=True, eq=False)
class WeightedMarginals(MarginalStrategy):
    """Marginals measured with weights.

    Attributes:
        weights: θ_b for every marginal, shape (2,)*d.
    """

    weights: Array


def weighted_marginals(
    workload: ProductWorkload, weights: Array, noise: Noise
) -> WeightedMarginals:
    """The strategy that measures marginal b with weight θ_b ≥ 0, scaled to sensitivity 1.

    Proposition 7.
    """
    theta = weights / np.linalg.norm(weights.ravel(), ord=noise.operators.order)
    cells = subset_cells(workload)
    return WeightedMarginals(workload, superset_sums(theta**2 / cells) * cells, theta)


def real_weights(strategy: MarginalStrategy) -> Array | None:
    """θ_b of theorem 13, which give these precisions; None where some are not real."""
    cells = subset_cells(strategy.workload)
    squared = superset_differences(strategy.precisions / cells) * cells
    if squared.min() < -ROUNDING * squared.max():
        return None
    return np.sqrt(np.maximum(squared, 0.0))


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


@dataclass(frozen=True, eq=False)
class WeightSearch:
    """The problem of definition 22, on a relative scale."""

    traces: Array
    cells: Array
    max_iterations: int

    @classmethod
    def of(cls, workload: ProductWorkload, max_iterations: int) -> WeightSearch:
        """The problem of a workload, its traces scaled to sum to one."""
        traces = residual_traces(workload)
        return cls(traces / traces.sum(), subset_cells(workload), max_iterations)

    def run(self, start: Array, order: float) -> tuple[float, Array]:
        """A local optimum from log θ for a norm of this order: log error and log θ, at most 0."""

        def objective(flat: Array) -> tuple[float, Array]:
            log_weights = flat.reshape(start.shape)
            value, slope = log_error_and_gradient(log_weights, self.traces, self.cells, order)
            return value, slope.ravel()

        limits = {"maxiter": self.max_iterations, "maxfun": 2 * self.max_iterations}
        options = {**limits, "ftol": 1e-12, "maxcor": 20}
        found = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options=options)
        log_weights = found.x.reshape(start.shape)
        return float(found.fun), log_weights - log_weights.max()


def asked_weights(workload: ProductWorkload) -> Array:
    """log θ where the workload's own marginals are measured, and the others hardly."""
    start = np.full((2,) * len(workload.sizes), LOWEST / 2)
    for kinds in workload.kinds:
        start[tuple((kinds > 0).astype(int))] = 0.0
    return start


def optimize_gaussian_marginals(
    workload: ProductWorkload, max_iterations: int = 1_000
) -> WeightedMarginals:
    """OPT_M for Gaussian noise: the closed form where it is real, otherwise a search in log θ.

    The problem is convex in θ².
    """
    closed = optimal_residuals(workload)
    weights = real_weights(closed)
    if weights is not None:
        return WeightedMarginals(workload, closed.precisions, weights)
    search = WeightSearch.of(workload, max_iterations)
    starts = (np.zeros(search.traces.shape), asked_weights(workload))
    _, found = min((search.run(start, 2.0) for start in starts), key=lambda pair: pair[0])
    return weighted_marginals(workload, np.exp(found), GAUSSIAN)


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
) -> WeightedMarginals:
    """OPT_M for Laplace noise: weights θ_b ≥ 0 of all marginals with a small error.

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


# OPT_HDMM: the best of all operators. McKenna et al., section 9.

AnyStrategy = ProductStrategy | MarginalStrategy


@dataclass(frozen=True, eq=False)
class Selection:
    """What every operator found.

    Attributes:
        candidates: "residuals" (the closed form, for at most MOST_ATTRIBUTES attributes), "product"
            (OPT_⊗) and "union" (OPT_+).
        lower_bound: no strategy has a smaller weighted squared error for unit noise.
    """

    candidates: Mapping[str, AnyStrategy]
    lower_bound: float

    @property
    def strategy(self) -> AnyStrategy:
        """The candidate with the smallest error."""
        return min(self.candidates.values(), key=lambda found: found.total_error)

    @property
    def gap(self) -> float:
        """Relative gap of the squared error: total_error / lower_bound − 1."""
        return self.strategy.total_error / self.lower_bound - 1


def select_gaussian(workload: ProductWorkload) -> Selection:
    """OPT_HDMM: run all operators, keep the best. Sees no data and costs no privacy.

    Where the closed form meets the lower bound, as for marginals, the others are left out.
    """
    settings = SolverSettings()
    operators = Operators(settings, np.random.default_rng(0))
    bound = lower_bound(workload, settings)
    candidates: dict[str, AnyStrategy] = {}
    if len(workload.sizes) <= MOST_ATTRIBUTES:
        candidates["residuals"] = optimal_residuals(workload)
        if candidates["residuals"].total_error <= bound * (1 + settings.gap):
            return Selection(candidates, bound)
    candidates["product"] = operators.product(workload)
    candidates["union"] = operators.union(workload)
    return Selection(candidates, bound)


def select(workload: ProductWorkload, noise: Noise, seed: int = 0) -> Selection:
    """OPT_HDMM with either noise; errors are for noise of unit variance.

    See :func:`select_gaussian`.
    """
    if noise == GAUSSIAN:
        found = select_gaussian(workload)
        if len(found.candidates) == 1 or len(workload.sizes) > MOST_ATTRIBUTES:
            return found
        marginals = optimize_gaussian_marginals(workload)
        return Selection({**found.candidates, "marginals": marginals}, found.lower_bound)
    settings, rng = SolverSettings(), np.random.default_rng(seed)
    operators = noise.operators(settings, rng)
    candidates: dict[str, AnyStrategy] = {
        "product": operators.product(workload),
        "union": operators.union(workload),
    }
    if len(workload.sizes) <= MOST_ATTRIBUTES:
        candidates["marginals"] = optimize_marginals(workload, rng)
    return Selection(candidates, lower_bound(workload, settings))


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
