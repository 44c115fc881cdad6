"""HDMM: the best product strategy for a workload of product queries (McKenna et al.)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.strategy.fixed_point import exchangeable, solve_axis
from adaptive_qs.strategy.mechanism import TableMechanism, used_attributes
from adaptive_qs.strategy.optimal import check_dense
from adaptive_qs.strategy.solution import (
    Array,
    Factor,
    IdentityFactor,
    SolverSettings,
    Status,
    Strategy,
)
from adaptive_qs.workload.matrices import AxisQueries
from adaptive_qs.workload.workload import QueryWorkload

# A workload as a union of Kronecker products: McKenna et al., equation 3.

IntArray = NDArray[np.intp]

SMALLEST_SHARE = 1e-9
"""Least share of a factor in the trace of a sum of Gram matrices; rounding loses smaller ones."""


@dataclass(frozen=True, eq=False)
class ProductWorkload:
    """Sets of product queries: the Gram matrix of set j is ⊗_i grams[i][kinds[j, i]]."""

    sizes: tuple[int, ...]  # n_i of every attribute
    grams: tuple[tuple[Array, ...], ...]  # distinct ones (n_i, n_i); first 11ᵀ, of the total
    kinds: IntArray  # shape (sets, attributes): which factor a set has on an attribute
    weights: Array  # shape (sets,): how much the squared error of each query of a set counts
    num_queries: tuple[int, ...]  # for each set (exact)

    def __len__(self) -> int:
        return len(self.kinds)

    def subset(self, sets: Sequence[int]) -> Self:
        """Return these sets only, in the order given."""
        chosen = np.asarray(sets, dtype=np.intp)
        counts = tuple(self.num_queries[j] for j in chosen)
        return replace(
            self, kinds=self.kinds[chosen], weights=self.weights[chosen], num_queries=counts
        )

    @cached_property
    def nonzero(self) -> IntArray:
        """The sets whose queries are not all zero; WorkloadError if there is none."""
        zero = [np.array([not gram.any() for gram in grams]) for grams in self.grams]
        void = np.any([of[self.kinds[:, i]] for i, of in enumerate(zero)], axis=0)
        if void.all():
            raise WorkloadError("every query of the workload is zero: ask for something")
        return np.flatnonzero(~void)

    def only_nonzero(self) -> Self:
        """Return the sets whose queries are not all zero; raise as :attr:`nonzero` does."""
        return self if len(self.nonzero) == len(self) else self.subset(self.nonzero.tolist())

    def set_values(self, axis_values: Sequence[Array]) -> Array:
        """Return Π_i values[i][kinds[j, i]] for every set j."""
        product = np.ones(len(self))
        for i, values in enumerate(axis_values):
            product *= values[self.kinds[:, i]]
        return product

    def factorised(self) -> tuple[Array, ...] | None:
        """Return one Gram matrix per attribute if the union is itself a single product, else None.

        The sets must be all combinations of some factors per attribute, with weights that are
        products of a weight per factor, none of them lost by rounding, such as all marginals of
        every degree.
        """
        used = [np.unique(column) for column in self.kinds.T]
        if not math.prod(map(len, used)) == len(self) == len(np.unique(self.kinds, axis=0)):
            return None
        total = float(self.weights.sum())
        shares = [
            np.bincount(column, self.weights, len(grams)) / total
            for column, grams in zip(self.kinds.T, self.grams)
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


def product_workload(
    workload: QueryWorkload,
    settings: SolverSettings | None = None,
    clique: Sequence[int] | None = None,
) -> ProductWorkload:
    """Return the sets of a workload as products; attributes outside a set contribute their total.

    Only the attributes of ``clique`` are looked at, all by default; it holds those in use.

    Raises:
        WorkloadError: joint queries on several attributes, which are no product.
        ResourceExceeded: the Gram matrices of an attribute exceed the memory ceiling.
    """
    settings = settings or SolverSettings()
    domain = workload.domain
    clique = list(range(len(domain)) if clique is None else clique)
    distinct: list[dict[AxisQueries, int]] = [{} for _ in domain.sizes]
    rows, counts = [], []
    for part in workload.parts:
        if part.joint is not None:
            several = ", ".join(domain.names[i] for i in part.cliques[0])
            raise WorkloadError(
                f"the queries on {several} are no product of queries on single attributes, which "
                f"HDMM needs: use the mechanism querysmasher"
            )
        kinds = np.zeros(len(domain), dtype=np.intp)  # of each attribute; 0 is the total
        for attribute, family in part.axis.items():
            known = distinct[attribute]
            kinds[attribute] = known.setdefault(family, len(known) + 1)
        index = np.zeros((len(part), len(domain)), dtype=np.intp)
        np.put_along_axis(index, part.cliques.astype(np.intp), kinds[part.cliques], axis=1)
        rows.append(index[:, clique])
        counts += [math.prod(q.num_queries for q in part.queries(j)) for j in range(len(part))]
    grams = []
    # Square arrays that a one-dimensional solver holds in memory besides the Gram matrices
    arrays_per_gram = 6
    for i in clique:
        name, n, families = domain.names[i], domain.sizes[i], distinct[i]
        needed = 8 * n * n * (len(families) + 1 + arrays_per_gram)
        if needed > settings.max_bytes:
            raise ResourceExceeded(
                f"attribute {name!r} has {n} values: HDMM needs {needed / 2**30:.1f} GiB for it, "
                f"more than the ceiling of {settings.max_bytes / 2**30:.1f} GiB: use fewer bins "
                "or the mechanism residualplanner"
            )
        grams.append((np.ones((n, n)), *(family.gram() for family in families)))
    weights = np.concatenate([part.weights for part in workload.parts]).astype(np.float64)
    return ProductWorkload(
        tuple(domain.sizes[i] for i in clique), tuple(grams), np.concatenate(rows), weights,
        tuple(counts),
    )  # fmt: skip


# OPT_⊗: the best product of strategies. McKenna et al., section 6.

COARSE_GAP = 1e-2
"""Largest gap of a single attribute's solution while the others still move."""
AxisSolver = Callable[[Array, SolverSettings, Factor], Factor]
"""Returns a strategy of sensitivity 1 with least tr(G (AᵀA)⁺), given G, limits and a start."""


def axis_error(factor: Factor, gram: Array) -> float:
    """Return tr(G V⁺), the summed variance of queries with Gram matrix G that a factor supports."""
    return float(np.vdot(gram, factor.covariance))


def axis_errors(factor: Factor, grams: Sequence[Array]) -> Array:
    """Return :func:`axis_error` for each of several Gram matrices."""
    return np.array([axis_error(factor, gram) for gram in grams])


def optimize_axes(
    workload: ProductWorkload,
    settings: SolverSettings,
    solve: AxisSolver,
    start: Sequence[Array] | None = None,
    coarse_gap: float = COARSE_GAP,
) -> list[Factor]:
    """Return one strategy for each attribute, by block descent from the identity on each of them.

    With the other strategies fixed, the error is that of one attribute on the surrogate Gram matrix
    Σ_j w_j (Π_{k≠i} error_k) G_ij (definition 18, equation 5). No set of the workload has only zero
    queries. ``start`` has the errors of the factors to start from, by default of the identity.
    """
    axes: list[Factor] = [IdentityFactor(n) for n in workload.sizes]
    errors = [axis_errors(axis, grams) for axis, grams in zip(axes, workload.grams)]
    errors = errors if start is None else list(start)
    solver = replace(settings, gap=max(settings.gap, coarse_gap))
    last = math.inf
    most_sweeps = 50  # most passes over the attributes from one starting point
    for sweep in range(most_sweeps):
        for i, grams in enumerate(workload.grams):
            surrogate = _surrogate(workload, errors, i)
            new = solve(surrogate, solver, axes[i])
            moved = sweep == 0 and start is not None
            if moved or axis_error(new, surrogate) < axis_error(axes[i], surrogate):
                axes[i], errors[i] = new, axis_errors(new, grams)
        total = float(workload.weights @ workload.set_values(errors))
        settled = total > last * (1 - settings.gap)
        if settled and solver.gap == settings.gap:
            break
        if settled:
            solver = settings
        last = total
    return axes


def _surrogate(workload: ProductWorkload, errors: Sequence[Array], i: int) -> Array:
    """Return Σ_j w_j (Π_{k≠i} error_k) G_ij up to a scale, shape (n_i, n_i)."""
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


def solve_product(
    workload: QueryWorkload, bound: float, settings: SolverSettings, largest: float = math.inf
) -> TableMechanism:
    """Return OPT_⊗ on the attributes in use; the optimum of each if the workload is one product.

    No matrix mechanism has a smaller total error than ``bound``. A search, which solves each
    attribute often, takes at most ``largest`` codes of an attribute.

    Raises:
        WorkloadError: joint queries on several attributes, which are no product, or only zeros.
        ResourceExceeded: an attribute is too large for memory, or for a search.
    """
    clique = used_attributes(workload)
    products = product_workload(workload, settings, clique).only_nonzero()
    whole = products.factorised()
    if whole is None:
        if max(products.sizes) > largest:
            raise ResourceExceeded(f"an attribute has more than {largest:,.0f} values to search")
        axes = optimize_axes(
            products, settings, lambda gram, own, _: solve_axis(gram, own).strategy.factors[0]
        )
        return TableMechanism(workload, clique, Strategy(tuple(axes)), bound)
    single = replace(settings, gap=math.expm1(math.log1p(settings.gap) / len(whole)))
    solutions = []
    for gram in whole:
        if exchangeable(gram) is None:
            check_dense(gram.shape[:1], single)
        solutions.append(solve_axis(gram, single))
    objective = math.prod(solution.objective for solution in solutions)
    best = max(bound, math.prod(solution.lower_bound for solution in solutions))
    status = Status.OPTIMAL if objective <= best * (1 + settings.gap) else Status.STOPPED
    factors = tuple(factor for solution in solutions for factor in solution.strategy.factors)
    return TableMechanism(workload, clique, Strategy(factors), best, status)
