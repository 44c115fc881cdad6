"""HDMM: the best strategies of products and unions of products, and a bound (McKenna et al.)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.strategy.fixed_point import solve_axis
from adaptive_qs.strategy.solution import Array, Factor, IdentityFactor, SolverSettings
from adaptive_qs.workload.matrices import AxisQueries
from adaptive_qs.workload.workload import QueryWorkload

# A workload as a union of Kronecker products: McKenna et al., equation 3.

IntArray = NDArray[np.intp]
Groups = tuple[tuple[int, ...], ...]

SMALLEST_SHARE = 1e-9
"""Least share of a factor in the trace of a sum of Gram matrices; rounding loses smaller ones."""
ARRAYS_PER_GRAM = 6
"""Square arrays that a one-dimensional solver holds in memory besides the Gram matrices."""


@dataclass(frozen=True, eq=False)
class ProductWorkload:
    """Sets of product queries: the Gram matrix of set j is ⊗_i grams[i][kinds[j, i]].

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

    def only_nonzero(self) -> ProductWorkload:
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
    for i in clique:
        name, n, families = domain.names[i], domain.sizes[i], distinct[i]
        needed = 8 * n * n * (len(families) + 1 + ARRAYS_PER_GRAM)
        if needed > settings.max_bytes:
            raise ResourceExceeded(
                f"attribute {name!r} has {n} values: HDMM needs {needed / 2**30:.1f} GiB for it, "
                f"more than the ceiling of {settings.max_bytes / 2**30:.1f} GiB: use fewer bins "
                "or the mechanism residualplanner"
            )
        grams.append((np.ones((n, n)), *(family.gram() for family in families)))
    weights = np.concatenate([part.weights for part in workload.parts]).astype(np.float64)
    return ProductWorkload(
        tuple(domain.sizes[i] for i in clique),
        tuple(grams),
        np.concatenate(rows),
        weights,
        tuple(counts),
    )


# Product strategies for the sets of a workload, and their errors at privacy cost 1.


@dataclass(frozen=True, eq=False)
class ProductStrategy:
    """Strategies A_g = ⊗A_gi over all attributes, each measured apart for its own group of sets.

    A set γ of a table is answered from A_g x through ⊗_{i∈γ} A_gi⁺ and 1ᵀA_gi⁺ elsewhere.

    Attributes:
        workload: what it was made for.
        parts: for each group the strategies of all attributes, of sensitivity 1.
        groups: the sets, by number, that each part answers; every set is in one group.
        scales: c_g, shape (groups,): A_g is measured as c_g A_g; the whole has sensitivity 1.
    """

    workload: ProductWorkload
    parts: tuple[tuple[Factor, ...], ...]
    groups: Groups
    scales: Array

    @classmethod
    def single(cls, workload: ProductWorkload, axes: Sequence[Factor]) -> ProductStrategy:
        """Build one product for all sets."""
        return cls(workload, (tuple(axes),), (tuple(range(len(workload))),), np.ones(1))

    @cached_property
    def set_errors(self) -> Array:
        """Summed variance (rows²) of each set's queries for unit noise, shape (sets,)."""
        errors = np.empty(len(self.workload))
        for axes, sets, scale in zip(self.parts, self.groups, self.scales):
            of_axes = [_errors(axis, grams) for axis, grams in zip(axes, self.workload.grams)]
            errors[list(sets)] = self.workload.subset(sets).set_values(of_axes) / scale**2
        return errors

    @property
    def total_error(self) -> float:
        """Σ weight · variance over all queries for unit noise."""
        return math.fsum(self.workload.weights * self.set_errors)


def axis_error(factor: Factor, gram: Array) -> float:
    """Return tr(G V⁺), the summed variance of queries with Gram matrix G that a factor supports."""
    return float(np.vdot(gram, factor.covariance))


def _errors(axis: Factor, grams: Sequence[Array]) -> Array:
    return np.array([axis_error(axis, gram) for gram in grams])


# OPT_⊗ and OPT_+: one product strategy, or one for each group of sets. McKenna et al., section 6.

SWEEPS = 50
"""Most passes over the attributes from one starting point."""


@dataclass(frozen=True, eq=False)
class Operators:
    """The operators of HDMM for Gaussian noise; ``scripts.published.laplace`` has Laplace noise.

    Settings are those of each attribute's problem; nothing private depends on starting points.
    """

    settings: SolverSettings
    rng: np.random.Generator

    order: ClassVar[int] = 2
    """Order k of the column norm Lk that is the sensitivity."""
    coarse_gap: ClassVar[float] = 1e-2
    """Largest gap of a single attribute's solution while the others still move."""

    def axis(self, gram: Array, settings: SolverSettings, previous: Factor | None = None) -> Factor:
        """Return OPT_0: a strategy of sensitivity 1 with least tr(G (AᵀA)⁺), for G of shape (n, n).

        A search, which Gaussian noise does not need, starts from a previous strategy.
        """
        return solve_axis(gram, settings).strategy.factors[0]

    def shares(self, errors: Array) -> Array:
        """Return c_g with Σ c_g^k = 1 and least Σ E_g/c_g²: the best division of a sensitivity.

        McKenna et al., definition 19.

        Args:
            errors: E_g > 0 of independent measurements, shape (measurements,).
        """
        root = errors ** (self.order / (self.order + 2))
        return (root / root.sum()) ** (1 / self.order)

    def product(self, workload: ProductWorkload, restarts: int = 3) -> ProductStrategy:
        """Return OPT_⊗: block descent over the attributes, the best of several starting points.

        With the other strategies fixed, the error is that of one attribute on the surrogate Gram
        matrix Σ_j w_j (Π_{k≠i} error_k) G_ij (definition 18, equation 5). A union that is itself
        one product is solved attribute by attribute, exactly (theorem 4). The first starting point
        is the identity on every attribute. Sets whose queries are all zero have no say.
        """
        nonzero = workload.only_nonzero()
        whole = nonzero.factorised()
        if whole is not None:
            return ProductStrategy.single(workload, [self.axis(g, self.settings) for g in whole])
        found = [self._descend(nonzero, first=r == 0) for r in range(restarts)]
        (axes,) = min(found, key=lambda product: product.total_error).parts
        return ProductStrategy.single(workload, axes)

    def _descend(self, workload: ProductWorkload, first: bool) -> ProductStrategy:
        axes: list[Factor] = [IdentityFactor(n) for n in workload.sizes]
        errors = [_errors(axis, grams) for axis, grams in zip(axes, workload.grams)]
        if not first:
            errors = [values * self.rng.lognormal(0, 1, len(values)) for values in errors]
        solver = replace(self.settings, gap=max(self.settings.gap, self.coarse_gap))
        last = math.inf
        for sweep in range(SWEEPS):
            for i, grams in enumerate(workload.grams):
                surrogate = _surrogate(workload, errors, i)
                new = self.axis(surrogate, solver, axes[i])
                moved = sweep == 0 and not first
                if moved or axis_error(new, surrogate) < axis_error(axes[i], surrogate):
                    axes[i], errors[i] = new, _errors(new, grams)
            total = float(workload.weights @ workload.set_values(errors))
            settled = total > last * (1 - self.settings.gap)
            if settled and solver.gap == self.settings.gap:
                break
            if settled:
                solver = self.settings
            last = total
        return ProductStrategy.single(workload, axes)

    def union(self, workload: ProductWorkload, groups: Groups | None = None) -> ProductStrategy:
        """Return OPT_+: OPT_⊗ for every group, and the budget split with the least total error.

        Without groups the better of: every set in a group of its own (the paper's default), and
        every set with a larger one that contains it. Sets whose queries are all zero are placed
        anew.
        """
        if groups is None:
            nonzero = workload.only_nonzero()
            choices = {tuple((j,) for j in range(len(nonzero))), nested(nonzero)}
            number = workload.nonzero.tolist()
            found = []
            for choice in sorted(choices):
                groups = tuple(tuple(number[j] for j in sets) for sets in choice)
                found.append(self.union(workload, groups))
            return min(found, key=lambda union: union.total_error)
        groups = with_zeros(workload, groups)
        solved: dict[tuple[int, int], Factor] = {}
        found = []
        for sets in groups:
            part = workload.subset(sets)
            nonzero = part.only_nonzero()
            if len(nonzero) > 1:
                found.append(self.product(part, restarts=1))
                continue
            keys = list(enumerate(nonzero.kinds[0].tolist()))
            for i, kind in keys:
                if (i, kind) not in solved:
                    solved[i, kind] = self.axis(workload.grams[i][kind], self.settings)
            found.append(ProductStrategy.single(part, [solved[key] for key in keys]))
        scales = self.shares(np.array([product.total_error for product in found]))
        return ProductStrategy(workload, tuple(p.parts[0] for p in found), groups, scales)


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


# Which sets of a union to optimise together; McKenna et al., section 6.2, leave it to experts.


def nested(workload: ProductWorkload) -> Groups:
    """Group every set with the smallest maximal set that contains it.

    A set contains another where it asks the same on each attribute that the other mentions.
    """
    kinds = workload.kinds
    order = np.argsort(-(kinds > 0).sum(axis=1), kind="stable")
    members: dict[int, list[int]] = defaultdict(list)
    for j in order.tolist():
        mentioned = kinds[j] > 0
        covers = [h for h in members if (kinds[h, mentioned] == kinds[j, mentioned]).all()]
        members[min(covers, key=lambda h: workload.num_queries[h]) if covers else j].append(j)
    return tuple(sorted(tuple(sorted(sets)) for sets in members.values()))


def with_zeros(workload: ProductWorkload, groups: Groups) -> Groups:
    """Return the groups; sets whose queries are all zero join sets that share most with them."""
    nonzero = set(workload.nonzero.tolist())
    if len(nonzero) == len(workload):
        return groups
    kept = [[j for j in sets if j in nonzero] for sets in groups]
    kept = [sets for sets in kept if sets]
    mentioned = [_attributes(workload, tuple(sets)) for sets in kept]
    for j in sorted(set(range(len(workload))) - nonzero):
        own = _attributes(workload, (j,))
        home = max(range(len(kept)), key=lambda g: (own & mentioned[g]).bit_count())
        kept[home].append(j)
    return tuple(tuple(sorted(sets)) for sets in kept)


def _attributes(workload: ProductWorkload, sets: tuple[int, ...]) -> int:
    used = (workload.kinds[list(sets)] > 0).any(axis=0)
    return sum(1 << i for i in np.flatnonzero(used).tolist())


# What no matrix mechanism can beat. McKenna et al., theorem 4.


def lower_bound(workload: ProductWorkload, settings: SolverSettings) -> float:
    """Return a bound on Σ weight · variance for unit noise that no strategy beats.

    Exact if the union is one product, up to the gap of the settings; else the sum of the sets'
    bounds. A column's L2 norm is at most its L1 norm, so both hold for that sensitivity too.
    """
    workload = workload.only_nonzero()

    def least(gram: Array) -> float:
        return solve_axis(gram, settings).lower_bound

    minima = workload.set_values([np.array([*map(least, grams)]) for grams in workload.grams])
    bounds = [math.fsum(workload.weights * minima)]  # the minimum of a sum is at least their sum
    whole = workload.factorised()
    if whole is not None:
        bounds.append(math.prod(map(least, whole)))
    return max(bounds)
