"""OPT_+: product strategies for groups of sets that share the budget. McKenna et al., 6.2."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.hdmm.axis import AxisStrategy, optimize_axis
from adaptive_qs.strategy.hdmm.groups import Groups, merged, nested, singletons, with_zeros
from adaptive_qs.strategy.hdmm.noise import Noise
from adaptive_qs.strategy.hdmm.product import ProductStrategy, optimize_product
from adaptive_qs.strategy.hdmm.products import ProductWorkload
from adaptive_qs.strategy.settings import SolverSettings

Array = NDArray[np.float64]


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
