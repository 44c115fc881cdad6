"""HDMM on unions: OPT_+, OPT_M, the best of all operators, and its bound (McKenna et al.)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.bounds import gram_bound, root_sum
from adaptive_qs.strategy.hdmm_products import (
    GAUSSIAN,
    AxisStrategy,
    Noise,
    ProductStrategy,
    ProductWorkload,
    exchangeable,
    optimize_axis,
    optimize_product,
)
from adaptive_qs.strategy.optimal import solve_dense
from adaptive_qs.strategy.solution import SolverSettings

# Which sets of a union to optimise together; McKenna et al., section 6.2, leave it to experts.

Array = NDArray[np.float64]
Groups = tuple[tuple[int, ...], ...]

MOST_MERGED = 200
"""Merging compares all pairs of groups: more groups than this are left as they are."""


def singletons(workload: ProductWorkload) -> Groups:
    """Every set in a group of its own: the paper's default."""
    return tuple((j,) for j in range(len(workload)))


def nested(workload: ProductWorkload) -> Groups:
    """Every set beside the smallest set that is not contained in another and contains it.

    A set contains another where it asks the same on each attribute that the other mentions.
    """
    kinds = workload.kinds
    order = np.argsort(-(kinds > 0).sum(axis=1), kind="stable")
    maximal: list[int] = []
    members: dict[int, list[int]] = defaultdict(list)
    for j in order:
        mentioned = kinds[j] > 0
        covers = [h for h in maximal if (kinds[h, mentioned] == kinds[j, mentioned]).all()]
        if covers:
            members[min(covers, key=lambda h: workload.num_queries[h])].append(int(j))
        else:
            maximal.append(int(j))
            members[int(j)].append(int(j))
    return tuple(sorted(tuple(sorted(sets)) for sets in members.values()))


def with_zeros(workload: ProductWorkload, groups: Groups) -> Groups:
    """The same groups, sets whose queries are all zero beside sets that share most with them.

    Nothing needs to be measured for such sets, so that none of them makes a group.
    """
    asked = set(workload.asked.tolist())
    if len(asked) == len(workload):
        return groups
    kept = [[j for j in sets if j in asked] for sets in groups]
    kept = [sets for sets in kept if sets]
    mentioned = [_attributes(workload, tuple(sets)) for sets in kept]
    for j in sorted(set(range(len(workload))) - asked):
        own = _attributes(workload, (j,))
        home = max(range(len(kept)), key=lambda g: (own & mentioned[g]).bit_count())
        kept[home].append(j)
    return tuple(tuple(sorted(sets)) for sets in kept)


def merged(
    workload: ProductWorkload,
    start: Groups,
    noise: Noise,
    settings: SolverSettings,
    rng: np.random.Generator,
) -> Groups:
    """Join the groups that save most, until no join saves anything.

    A join takes two groups and all others whose attributes these two mention.

    The error of a group is estimated without a search: on each attribute the strategy that is best
    for the plain sum of the queries asked there, each scaled to the same trace. Small attributes
    gain most: one table over several of them answers all their pairs.
    """
    if len(start) > MOST_MERGED:
        return start
    estimate = _Estimate(workload, noise, settings, rng)
    groups = dict(enumerate(start))
    mentioned = {g: _attributes(workload, sets) for g, sets in groups.items()}
    cost = {g: estimate.root_error(sets) for g, sets in groups.items()}

    def joined(g: int, h: int) -> tuple[float, tuple[int, ...]]:
        """What joining g, h and all groups on their attributes saves, and these groups."""
        outside = ~(mentioned[g] | mentioned[h])
        absorbed = tuple([k for k, attributes in mentioned.items() if not attributes & outside])
        sets = tuple(j for k in absorbed for j in groups[k])
        return sum(cost[k] for k in absorbed) - estimate.root_error(sets), absorbed

    saved = {(g, h): joined(g, h) for g in groups for h in groups if g < h}
    while saved:
        gain, absorbed = max(saved.values())
        if gain <= 1e-9 * sum(cost.values()):
            break
        first, *gone = absorbed
        sets = tuple(j for k in absorbed for j in groups[k])
        for k in gone:
            del groups[k], mentioned[k], cost[k]
        groups[first] = sets
        mentioned[first] = _attributes(workload, sets)
        cost[first] = estimate.root_error(sets)
        changed = set(absorbed)
        saved = {p: v for p, v in saved.items() if changed.isdisjoint(p + v[1])}
        pairs = {(g, h) for g in groups for h in groups if g < h} - saved.keys()
        saved |= {pair: joined(*pair) for pair in sorted(pairs)}
    return tuple(sorted(tuple(sorted(sets)) for sets in groups.values()))


def _attributes(workload: ProductWorkload, sets: tuple[int, ...]) -> int:
    """The attributes that these sets mention, as bits."""
    used = (workload.kinds[list(sets)] > 0).any(axis=0)
    return sum(1 << i for i in np.flatnonzero(used).tolist())


@dataclass
class _Estimate:
    workload: ProductWorkload
    noise: Noise
    settings: SolverSettings
    rng: np.random.Generator
    known: dict[tuple[int, tuple[int, ...]], Array] = field(default_factory=dict)

    def root_error(self, sets: tuple[int, ...]) -> float:
        """What these sets add to a sum that falls as the total error of a union does, estimated.

        Their own error is that under one product strategy.
        """
        rows = self.workload.kinds[list(sets)]
        product = self.workload.weights[list(sets)].copy()
        for i, column in enumerate(rows.T):
            used = tuple(sorted(set(column.tolist())))
            if used != (0,):
                product *= self._axis_errors(i, used)[column]
        return float(self.noise.roots(product.sum()))

    def _axis_errors(self, i: int, used: tuple[int, ...]) -> Array:
        if (i, used) not in self.known:
            grams = self.workload.grams[i]
            both = sum((grams[k] / np.trace(grams[k]) for k in used), np.zeros_like(grams[0]))
            axis = optimize_axis(both, self.noise, self.settings, self.rng)
            errors = [axis.error(g) if k in used else np.inf for k, g in enumerate(grams)]
            self.known[i, used] = np.array(errors)
        return self.known[i, used]


# OPT_+: product strategies for groups of sets that share the budget. McKenna et al., 6.2.


@dataclass(frozen=True, eq=False)
class UnionStrategy:
    """Product strategies A_g, each measured apart for its own group of sets.

    Attributes:
        workload: what it was made for.
        groups: the sets, by number, that each strategy answers; every set is in one group.
        parts: the strategy of each group.
        scales: c_g, shape (groups,): A_g is measured as c_g A_g; the whole has sensitivity 1.
        noise: the noise that it is made for.
    """

    workload: ProductWorkload
    groups: Groups
    parts: tuple[ProductStrategy, ...]
    scales: Array
    noise: Noise

    @cached_property
    def set_errors(self) -> Array:
        """Summed variance (rows²) of each set's queries at unit privacy, shape (sets,)."""
        errors = np.empty(len(self.workload))
        for sets, part, scale in zip(self.groups, self.parts, self.scales):
            errors[list(sets)] = part.set_errors / scale**2
        return errors

    @property
    def total_error(self) -> float:
        """Σ weight · variance over all queries at unit privacy."""
        return math.fsum(self.workload.weights * self.set_errors)


def optimize_union(
    workload: ProductWorkload,
    noise: Noise,
    settings: SolverSettings,
    rng: np.random.Generator,
    groups: Groups | None = None,
) -> UnionStrategy:
    """OPT_+: OPT_⊗ for every group, and the budget split with the least total error.

    Args:
        workload: the sets.
        noise: decides the sensitivity norm and how budgets add up.
        settings: passed to OPT_⊗.
        rng: starting points; nothing private depends on it.
        groups: which sets to optimise together. Without it the best of: every set alone (the
            paper's default), every set beside a larger one that contains it, and both of these
            with groups joined where an estimate says that it saves. Sets whose queries are all
            zero are placed anew.
    """
    if groups is None:
        asked = workload.only_asked()
        choices = {singletons(asked), nested(asked)}
        choices |= {merged(asked, start, noise, settings, rng) for start in sorted(choices)}
        number = workload.asked.tolist()
        found = []
        for choice in sorted(choices):
            groups = tuple(tuple(number[j] for j in sets) for sets in choice)
            found.append(optimize_union(workload, noise, settings, rng, groups))
        return min(found, key=lambda union: union.total_error)
    groups = with_zeros(workload, groups)
    solved: dict[tuple[int, int], AxisStrategy] = {}
    parts = []
    for sets in groups:
        part = workload.subset(sets)
        asked = part.only_asked()
        if len(asked) > 1:
            parts.append(optimize_product(part, noise, settings, rng, restarts=1))
            continue
        for i, kind in enumerate(asked.kinds[0]):
            if (i, int(kind)) not in solved:
                gram = workload.grams[i][kind]
                solved[i, int(kind)] = optimize_axis(gram, noise, settings, rng, restarts=3)
        axes = tuple(solved[i, int(kind)] for i, kind in enumerate(asked.kinds[0]))
        parts.append(ProductStrategy(part, axes, noise))
    scales = noise.shares(np.array([part.total_error for part in parts]))
    return UnionStrategy(workload, groups, tuple(parts), scales, noise)


# Sums over all subsets of the attributes, in O(d 2^d).
#
# A function of subsets is an array of shape (2,)*d: index 1 on an axis means that the attribute is
# in the subset.


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


def subset_products(outside: Sequence[float], inside: Sequence[float]) -> Array:
    """For every τ: Π_{i∈τ} inside[i] · Π_{i∉τ} outside[i]."""
    factors = [np.array(pair, dtype=np.float64) for pair in zip(outside, inside)]
    return reduce(np.multiply.outer, factors, np.ones(()))


# OPT_M: strategies of weighted marginals, in the residual basis. McKenna et al., section 8.
#
# Measuring marginal b with weight θ_b measures every residual τ ⊆ b; together they give residual τ
# the precision λ_τ = n_τ Σ_{b⊇τ} θ_b²/n_b, the eigenvalue of AᵀA on the residual space up to a
# known factor (theorem 9). A workload matters only through u_τ, its trace on each residual space
# (theorem 10), so that with ω_τ = λ_τ/n_τ the error is Σ u_τ/ω_τ and the Gaussian privacy cost is
# Σ θ_b² = Σ p_τ λ_τ, p_τ = Π_{i∈τ} (n_i − 1)/n_i.

AxisValues = Sequence[tuple[Array, Array]]

MOST_ATTRIBUTES = 20
"""Arrays over all subsets of more attributes than this are refused."""
ROUNDING = 1e-10
"""Negative squared weights above minus this share of the largest count as zero."""


@dataclass(frozen=True, eq=False)
class MarginalStrategy:
    """Noisy marginals, or noisy residuals, of sensitivity 1.

    Arrays over subsets have shape (2,)*d, index 1 on axis i where attribute i is in the subset.

    Attributes:
        workload: what it was made for.
        precisions: λ_τ for every residual: 1/variance for noise of unit variance.
        weights: θ_b for every marginal; None where the residuals are measured by themselves.
        noise: the noise that it is made for.
    """

    workload: ProductWorkload
    precisions: Array
    weights: Array | None
    noise: Noise

    @cached_property
    def set_errors(self) -> Array:
        """Summed variance (rows²) of each set's queries at unit privacy, shape (sets,)."""
        spread = self.precisions / subset_products([1.0] * self.precisions.ndim, self._sizes)
        errors = []
        for place, traces in _set_values(self.workload, self.workload.axis_traces):
            needed = traces > 0
            errors.append(math.fsum(traces[needed] / spread[place][needed]))
        return self.noise.unit_variance * np.array(errors)

    @property
    def total_error(self) -> float:
        """Σ weight · variance over all queries at unit privacy."""
        return math.fsum(self.workload.weights * self.set_errors)

    @property
    def _sizes(self) -> tuple[float, ...]:
        return tuple(map(float, self.workload.sizes))


def residual_traces(workload: ProductWorkload) -> Array:
    """u_τ = Σ_j w_j Π_{i∈τ} tr(ΠG_ij)/n_i Π_{i∉τ} 1ᵀG_ij1/n_i², shape (2,)*d.

    Raises:
        ResourceExceeded: too many attributes for arrays over all their subsets.
    """
    d = len(workload.sizes)
    if d > MOST_ATTRIBUTES:
        raise ResourceExceeded(
            f"weights of all marginals of {d} attributes are 2^{d} numbers: use at most "
            f"{MOST_ATTRIBUTES} attributes or the mechanism residualplanner"
        )
    return residual_sums(workload, workload.axis_traces)


def residual_sums(workload: ProductWorkload, axis_values: AxisValues) -> Array:
    """Σ_j w_j Π_{i∈τ} centered_ij Π_{i∉τ} mean_ij for every τ, shape (2,)*d.

    Args:
        workload: the sets.
        axis_values: for each attribute the mean and centered values of its factors; those of the
            total are 1 and 0.
    """
    sums = np.zeros((2,) * len(workload.sizes))
    for weight, (place, values) in zip(workload.weights, _set_values(workload, axis_values)):
        sums[place] += weight * values
    return sums


def optimal_residuals(workload: ProductWorkload) -> MarginalStrategy:
    """The best precision for every residual, for Gaussian noise, in closed form.

    Minimises Σ u_τ n_τ/λ_τ at Σ p_τ λ_τ = 1: λ_τ ∝ √(u_τ n_τ/p_τ), with error (Σ√(u_τ n_τ p_τ))².
    For marginal workloads that is the SVD bound (theorem 12), so nothing is better. Every marginal
    strategy is one of these; the converse fails where θ of theorem 13 is not real.
    """
    traces = residual_traces(workload)
    squared = superset_differences(_ideal_spread(workload, traces)) * _cells(workload)
    weights = None
    if squared.min() >= -ROUNDING * squared.max():
        weights = np.sqrt(np.maximum(squared, 0.0))
    precisions = _ideal_spread(workload, traces) * _cells(workload)
    return MarginalStrategy(workload, precisions, weights, GAUSSIAN)


def weighted_marginals(workload: ProductWorkload, weights: Array, noise: Noise) -> MarginalStrategy:
    """The strategy that measures marginal b with weight θ_b, scaled to sensitivity 1.

    Args:
        workload: the sets.
        weights: θ_b ≥ 0, shape (2,)*d.
        noise: decides the sensitivity norm (proposition 7).
    """
    theta = weights / np.linalg.norm(weights.ravel(), ord=noise.order)
    cells = _cells(workload)
    return MarginalStrategy(workload, superset_sums(theta**2 / cells) * cells, theta, noise)


def _ideal_spread(workload: ProductWorkload, traces: Array) -> Array:
    """ω_τ = √(u_τ/m_τ), m_τ = Π_{i∈τ} (n_i − 1), scaled to Σ m_τ ω_τ = 1."""
    m = _multiplicities(workload)
    spread = np.sqrt(np.divide(traces, m, out=np.zeros_like(traces), where=m > 0))
    return spread / math.fsum((m * spread).ravel())


def _cells(workload: ProductWorkload) -> Array:
    """n_b for every subset."""
    return subset_products([1.0] * len(workload.sizes), [float(n) for n in workload.sizes])


def _multiplicities(workload: ProductWorkload) -> Array:
    """m_τ = p_τ n_τ: the dimension of every residual space."""
    return subset_products([1.0] * len(workload.sizes), [n - 1.0 for n in workload.sizes])


def _set_values(
    workload: ProductWorkload, axis_values: AxisValues
) -> Iterator[tuple[tuple[int | slice, ...], Array]]:
    """For every set: where its subsets lie in an array over all, and its values there."""
    for kinds in workload.kinds:
        active = np.flatnonzero(kinds)
        place: list[int | slice] = [0] * len(kinds)
        mean, centered = [], []
        for i in active.tolist():
            place[i] = slice(None)
            means, parts = axis_values[i]
            mean.append(float(means[kinds[i]]))
            centered.append(float(parts[kinds[i]]))
        yield tuple(place), subset_products(mean, centered)


# OPT_M: the search for weights of marginals. McKenna et al., definition 22 and theorem 13.

LOWEST = -12.0
"""log θ, relative to the largest, below which a search does not start a marginal."""


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


def optimize_marginals(workload: ProductWorkload, max_iterations: int = 1_000) -> MarginalStrategy:
    """OPT_M: weights θ_b ≥ 0 of all marginals with the least error at sensitivity 1.

    The closed form of theorem 13 where it is real, which is optimal; otherwise a search in log θ
    (the problem is convex in θ²). For Gaussian noise.

    Args:
        workload: the sets, d attributes.
        max_iterations: of each search.

    Raises:
        ResourceExceeded: too many attributes for arrays over all their subsets.
    """
    closed = optimal_residuals(workload)
    if closed.weights is not None:
        return closed
    search = WeightSearch.of(workload, max_iterations)
    starts = (np.zeros(search.traces.shape), asked_weights(workload))
    _, found = min((search.run(start, 2.0) for start in starts), key=lambda pair: pair[0])
    return weighted_marginals(workload, np.exp(found), GAUSSIAN)


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
        return cls(traces / traces.sum(), _cells(workload), max_iterations)

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


# What no matrix mechanism can beat. McKenna et al., definition 11 and theorems 5 and 12.


def lower_bound(workload: ProductWorkload, noise: Noise, settings: SolverSettings) -> float:
    """A bound on Σ weight · variance at unit privacy that no strategy beats.

    Exact for Gaussian noise where all queries are marginals (theorem 12) and where the union is
    one product, up to the gap of the settings; else the largest of several bounds. A column's L2
    norm is at most its L1 norm, so all of them hold for Laplace noise too.
    """
    workload = workload.only_asked()
    bounds = [sum_of_sets(workload, settings)]
    whole = workload.factorised()
    if whole is not None:
        bounds.append(math.prod(_axis_bound(gram, settings) for gram in whole))
    if len(workload.sizes) <= MOST_ATTRIBUTES:
        bounds.append(residual_bound(workload))
    return noise.unit_variance * max(bounds)


def sum_of_sets(workload: ProductWorkload, settings: SolverSettings) -> float:
    """The minimum of a sum is at least the sum of the minima."""
    bounds = [np.array([_axis_bound(g, settings) for g in grams]) for grams in workload.grams]
    return math.fsum(workload.weights * workload.set_values(bounds))


def residual_bound(workload: ProductWorkload) -> float:
    """The SVD bound from below, for any union of products; theorem 12 where all are marginals.

    tr √G is the nuclear norm of the queries W, which is tr(ZᵀW) at least for every Z of spectral
    norm 1. Z takes one polar factor per residual space τ, made of the queries' parts there with
    the means along the other axes replaced by their components s̃ orthogonal to the centered
    part of the same queries; these factors have orthogonal rows and columns. With
    a_i = tr √(ΠG_iΠ) / √n_i and (tr √·)² superadditive,

        (tr √G)²/n ≥ (Σ_τ √(Σ_{j⊇τ} w_j Π_{i∈τ} a_ij² Π_{i∈j∖τ} s̃_ij²/n_i²))².
    """
    values = [_axis_values(grams) for grams in workload.grams]
    return math.fsum(np.sqrt(residual_sums(workload, values)).ravel()) ** 2


def _axis_values(grams: tuple[Array, ...]) -> tuple[Array, Array]:
    """s̃²/n² and a² of every factor; the total, first, has 1 and 0."""
    n = len(grams[0])
    means, centered = np.ones(len(grams)), np.zeros(len(grams))
    for k, gram in enumerate(grams[1:], start=1):
        across = gram.sum(axis=0) - gram.sum() / n
        inner = gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean()
        values, vectors = np.linalg.eigh((inner + inner.T) / 2)
        kept = values > 1e-12 * values[-1]
        explained = float(((across @ vectors[:, kept]) ** 2 / values[kept]).sum())
        means[k] = max(float(gram.sum()) - explained, 0.0) / n**2
        centered[k] = root_sum(values) ** 2 / n
    return means, centered


def _axis_bound(gram: Array, settings: SolverSettings) -> float:
    if exchangeable(gram) is not None:
        return gram_bound(gram)
    return solve_dense(gram, (len(gram),), settings).lower_bound


# OPT_HDMM: the best of all operators. McKenna et al., section 9.

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
    noise: Noise = GAUSSIAN,
    settings: SolverSettings | None = None,
    seed: int = 0,
    restarts: int = 3,
    marginals: Callable[[ProductWorkload, np.random.Generator], MarginalStrategy] | None = None,
) -> Selection:
    """OPT_HDMM: run all operators, keep the best. Sees no data and costs no privacy.

    Where the closed form meets the lower bound, as for marginals, the others are left out.

    Args:
        workload: the sets.
        noise: what the strategy is made for.
        settings: gap and limits of the inner solvers.
        seed: of the starting points; nothing private depends on it.
        restarts: starting points of OPT_⊗.
        marginals: OPT_M for the noise; :func:`optimize_marginals` where it is Gaussian.
    """
    settings = settings or SolverSettings()
    rng = np.random.default_rng(seed)
    bound = lower_bound(workload, noise, settings)
    candidates: dict[str, AnyStrategy] = {}
    if len(workload.sizes) <= MOST_ATTRIBUTES and noise.has_residuals:
        candidates["residuals"] = optimal_residuals(workload)
        if candidates["residuals"].total_error <= bound * (1 + settings.gap):
            return Selection(candidates, bound)
    candidates["product"] = optimize_product(workload, noise, settings, rng, restarts)
    candidates["union"] = optimize_union(workload, noise, settings, rng)
    if len(workload.sizes) <= MOST_ATTRIBUTES:
        candidates["marginals"] = (
            optimize_marginals(workload) if marginals is None else marginals(workload, rng)
        )
    return Selection(candidates, bound)
