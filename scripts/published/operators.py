"""HDMM's operators, with unions of products, and its bound: for the tables of McKenna et al."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from adaptive_qs.strategy.fixed_point import solve_axis
from adaptive_qs.strategy.hdmm import COARSE_GAP, ProductWorkload, axis_errors, optimize_axes
from adaptive_qs.strategy.solution import Array, Factor, IdentityFactor, SolverSettings

Groups = tuple[tuple[int, ...], ...]

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
            of_axes = [axis_errors(axis, grams) for axis, grams in zip(axes, self.workload.grams)]
            errors[list(sets)] = self.workload.subset(sets).set_values(of_axes) / scale**2
        return errors

    @property
    def total_error(self) -> float:
        """Σ weight · variance over all queries for unit noise."""
        return math.fsum(self.workload.weights * self.set_errors)


# OPT_⊗ and OPT_+: one product strategy, or one for each group of sets. McKenna et al., section 6.


@dataclass(frozen=True, eq=False)
class Operators:
    """The operators of HDMM for Gaussian noise; ``laplace`` has Laplace noise.

    Settings are those of each attribute's problem; nothing private depends on starting points.
    """

    settings: SolverSettings
    rng: np.random.Generator

    order: ClassVar[int] = 2
    """Order k of the column norm Lk that is the sensitivity."""
    coarse_gap: ClassVar[float] = COARSE_GAP
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
        start = None
        if not first:
            identity = zip(map(IdentityFactor, workload.sizes), workload.grams)
            errors = [axis_errors(axis, grams) for axis, grams in identity]
            start = [values * self.rng.lognormal(0, 1, len(values)) for values in errors]
        axes = optimize_axes(workload, self.settings, self.axis, start, self.coarse_gap)
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
