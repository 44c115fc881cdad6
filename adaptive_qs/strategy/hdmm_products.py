"""HDMM on products: OPT_0 and OPT_⊗ (McKenna et al., sections 4 and 6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.strategy.optimal import solve_dense
from adaptive_qs.strategy.solution import DenseFactor, SolverSettings, Strategy
from adaptive_qs.workload.matrices import AxisQueries
from adaptive_qs.workload.workload import QueryPart, QueryWorkload

# A workload as a union of Kronecker products: McKenna et al., equation 3.

Array = NDArray[np.float64]
IntArray = NDArray[np.intp]

SMALLEST_SHARE = 1e-9
"""Of a factor in the trace of a sum of Gram matrices: with less, rounding loses its queries."""
ARRAYS_PER_GRAM = 6
"""Square arrays that a one-dimensional solver holds at once, beside the Gram matrices."""


@dataclass(frozen=True, eq=False)
class ProductWorkload:
    """Sets of product queries, each known by one Gram matrix per attribute.

    Equal factors are stored once. The Gram matrix of set j is ⊗_i grams[i][kinds[j, i]].

    Attributes:
        sizes: n_i of every attribute.
        grams: for each attribute its distinct factors, shape (n_i, n_i); the first is the Gram
            matrix 11ᵀ of the total, which stands for an attribute that a set does not mention.
        kinds: shape (sets, attributes): which factor a set has on an attribute.
        weights: shape (sets,): how much the squared error of each query of a set counts.
        num_queries: for each set (exact).
    """

    sizes: tuple[int, ...]
    grams: tuple[tuple[Array, ...], ...]
    kinds: IntArray
    weights: Array
    num_queries: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.kinds)

    def subset(self, sets: Sequence[int]) -> ProductWorkload:
        """These sets only, in the order given."""
        chosen = np.asarray(sets, dtype=np.intp)
        counts = tuple(self.num_queries[j] for j in chosen)
        return replace(
            self, kinds=self.kinds[chosen], weights=self.weights[chosen], num_queries=counts
        )

    @cached_property
    def asked(self) -> IntArray:
        """The sets whose queries are not all zero; the others have no error, whatever is measured.

        Raises:
            WorkloadError: there is none.
        """
        zero = [np.array([not gram.any() for gram in grams]) for grams in self.grams]
        void = np.zeros(len(self), dtype=bool)
        for i, of in enumerate(zero):
            void |= of[self.kinds[:, i]]
        if void.all():
            raise WorkloadError("every query of the workload is zero: ask for something")
        return np.flatnonzero(~void)

    def only_asked(self) -> ProductWorkload:
        """The sets whose queries are not all zero, in order.

        Raises:
            WorkloadError: there is none.
        """
        return self if len(self.asked) == len(self) else self.subset(self.asked.tolist())

    def set_values(self, axis_values: Sequence[Array]) -> Array:
        """Π_i values[i][kinds[j, i]] for every set j, given one value per factor and attribute."""
        product = np.ones(len(self))
        for i, values in enumerate(axis_values):
            product *= values[self.kinds[:, i]]
        return product

    def rmse(self, set_errors: Array) -> float:
        """Root of the mean squared error per query, every query counted once.

        Args:
            set_errors: shape (sets,): summed variance of the queries of each set.
        """
        return math.sqrt(math.fsum(set_errors) / sum(self.num_queries))

    def factorised(self) -> tuple[Array, ...] | None:
        """One Gram matrix per attribute where the union is itself a single product, else None.

        The sets must be all combinations of some factors per attribute, with weights that are
        products of a weight per factor, none of which is lost beside the others by rounding.
        Example: all marginals of every degree.
        """
        used = [np.unique(column) for column in self.kinds.T]
        if math.prod(map(len, used)) != len(self):
            return None
        if len(np.unique(self.kinds, axis=0)) != len(self):
            return None
        total = float(self.weights.sum())
        shares = [
            np.array([self.weights[self.kinds[:, i] == k].sum() / total for k in range(len(g))])
            for i, g in enumerate(self.grams)
        ]
        if not np.allclose(self.set_values(shares) * total, self.weights, rtol=1e-9, atol=0):
            return None
        for share, grams in zip(shares, self.grams):
            parts = share * [np.trace(gram) for gram in grams]
            if parts[share > 0].min() < SMALLEST_SHARE * parts.max():
                return None
        mixed = [sum(s * g for s, g in zip(share, g_i)) for share, g_i in zip(shares, self.grams)]
        mixed[0] = mixed[0] * total
        return tuple(np.asarray(gram, dtype=np.float64) for gram in mixed)

    @cached_property
    def axis_traces(self) -> tuple[tuple[Array, Array], ...]:
        """For each attribute, of its factors: the mean part 1ᵀG1/n², the centered part tr(ΠG)/n."""
        traces = []
        for n, grams in zip(self.sizes, self.grams):
            mean = np.array([gram.sum() / n**2 for gram in grams])
            trace = np.array([np.trace(gram) / n for gram in grams])
            centered = np.maximum(trace - mean, 0.0)
            centered[0] = 0.0
            traces.append((mean, centered))
        return tuple(traces)


def product_workload(
    workload: QueryWorkload, settings: SolverSettings | None = None
) -> ProductWorkload:
    """The sets of a workload as products; attributes outside a set contribute their total.

    Raises:
        WorkloadError: queries on several attributes at once, which are no product.
        ResourceExceeded: the Gram matrices of an attribute exceed the memory ceiling.
    """
    settings = settings or SolverSettings()
    domain = workload.domain
    distinct: list[dict[AxisQueries, int]] = [{} for _ in domain.sizes]
    rows, weights, counts = [], [], []
    for part in workload.parts:
        kinds = _kinds(part, distinct, domain.names)
        index = np.zeros((len(part), len(domain)), dtype=np.intp)
        np.put_along_axis(index, part.cliques.astype(np.intp), kinds[part.cliques], axis=1)
        rows.append(index)
        weights.append(part.weights)
        counts += [math.prod(q.num_queries for q in part.queries(j)) for j in range(len(part))]
    grams = []
    for name, n, families in zip(domain.names, domain.sizes, distinct):
        _check_memory(name, n, len(families) + 1, settings.max_bytes)
        grams.append((np.ones((n, n)), *(family.gram() for family in families)))
    return ProductWorkload(
        domain.sizes,
        tuple(grams),
        np.concatenate(rows),
        np.concatenate(weights).astype(np.float64),
        tuple(counts),
    )


def with_total(workload: ProductWorkload) -> ProductWorkload:
    """The same queries and, as one more set, the number of rows with weight 1."""
    kinds = np.vstack([workload.kinds, np.zeros_like(workload.kinds[:1])])
    weights, counts = np.append(workload.weights, 1.0), (*workload.num_queries, 1)
    return replace(workload, kinds=kinds, weights=weights, num_queries=counts)


def _kinds(
    part: QueryPart, distinct: list[dict[AxisQueries, int]], names: tuple[str, ...]
) -> IntArray:
    """For each attribute the number of the family that the part has on it; 0 is the total."""
    if part.joint is not None:
        several = ", ".join(names[i] for i in part.cliques[0])
        raise WorkloadError(
            f"the queries on {several} are no product of queries on single attributes, which "
            f"HDMM needs: use the mechanism querysmasher"
        )
    kinds = np.zeros(len(names), dtype=np.intp)
    for attribute, family in part.axis.items():
        kinds[attribute] = distinct[attribute].setdefault(family, len(distinct[attribute]) + 1)
    return kinds


def _check_memory(name: str, size: int, factors: int, max_bytes: int) -> None:
    needed = 8 * size * size * (factors + ARRAYS_PER_GRAM)
    if needed > max_bytes:
        raise ResourceExceeded(
            f"attribute {name!r} has {size} values: HDMM needs {needed / 2**30:.1f} GiB for it, "
            f"more than the ceiling of {max_bytes / 2**30:.1f} GiB: use fewer bins or the "
            f"mechanism residualplanner"
        )


# OPT_0: the best strategy for one attribute. McKenna et al., section 4.


@dataclass(frozen=True, eq=False)
class AxisStrategy:
    """A strategy on one attribute with sensitivity 1.

    Attributes:
        matrix: A, shape (rows, n).
        covariance: (AᵀA)⁺, shape (n, n): covariance of the cells for noise of unit variance.
    """

    matrix: Array
    covariance: Array

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

    Gaussian noise: the optimum to the gap of the settings (McKenna et al., definition 12).

    Args:
        gram: G, shape (n, n).
        noise: decides the sensitivity norm.
        settings: gap and iteration limit.
        rng: starting points of a search.
        restarts: searches from random points, for noise that needs a search.
        previous: a strategy for similar queries, from which such a search starts once more.
    """
    simple = exchangeable(gram)
    if simple is not None and simple[0] == 0:
        return total_strategy(len(gram))
    return noise.best_axis(gram, settings, rng, restarts, previous)


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


# The noise that a strategy is made for. McKenna et al., definitions 7 and 8.


@dataclass(frozen=True)
class Noise:
    """Gaussian noise: its sensitivity, how a budget is shared, and what is best on one attribute.

    Unit privacy is standard deviation = sensitivity, so that β = 2ρ = 1. The operators ask their
    noise for all that depends on it; ``scripts.published.laplace`` has the paper's other one.

    Attributes:
        name: as tables say it.
        order: k of the column norm Lk that bounds the sensitivity.
        unit_variance: variance of the noise on a strategy of sensitivity 1 at unit privacy.
        has_residuals: whether residuals may be measured by themselves, which has a closed form.
        refines: whether a smaller gap gives a better strategy on an attribute.
    """

    name: ClassVar[str] = "gaussian"
    order: ClassVar[int] = 2
    unit_variance: ClassVar[float] = 1.0
    has_residuals: ClassVar[bool] = True
    refines: ClassVar[bool] = True

    def sensitivity(self, matrix: Array) -> float:
        """Largest column norm of a strategy matrix (rows, cells)."""
        norms: Array = np.linalg.norm(matrix, ord=self.order, axis=0)
        return float(norms.max())

    def roots(self, errors: Array) -> Array:
        """E_g^(k/(k + 2)), whose sum is least where the total error of measurements is."""
        return np.sqrt(errors)

    def shares(self, errors: Array) -> Array:
        """How to divide a sensitivity of 1 among independent measurements with the least error.

        Measurement g has squared error E_g / c_g² where its strategy is scaled by c_g, Σ c_g^k = 1.
        McKenna et al., definition 19.

        Args:
            errors: E_g > 0, shape (measurements,).

        Returns:
            c_g, shape (measurements,).
        """
        root = self.roots(errors)
        return (root / root.sum()) ** (1 / self.order)

    def best_axis(
        self,
        gram: Array,
        settings: SolverSettings,
        rng: np.random.Generator,
        restarts: int,
        previous: AxisStrategy | None,
    ) -> AxisStrategy:
        """A strategy for more than the total of one attribute; see :func:`optimize_axis`."""
        simple = exchangeable(gram)
        if simple is not None:
            return _root_strategy(len(gram), *simple)
        (factor,) = solve_dense(gram, gram.shape[:1], settings).strategy.factors
        return AxisStrategy(factor.matrix, factor.covariance)


GAUSSIAN = Noise()


# OPT_⊗: one product strategy for a union of products. McKenna et al., section 6.

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
        if settled and (refining or not noise.refines):
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
