"""Which sets of a union to optimise together; McKenna et al., section 6.2, leave it to experts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.hdmm.axis import optimize_axis
from adaptive_qs.strategy.hdmm.noise import Noise
from adaptive_qs.strategy.hdmm.products import ProductWorkload
from adaptive_qs.strategy.settings import SolverSettings

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
    power = 1 / 2 if noise is Noise.GAUSSIAN else 1 / 3
    groups = dict(enumerate(start))
    mentioned = {g: _attributes(workload, sets) for g, sets in groups.items()}
    cost = {g: estimate.error(sets) ** power for g, sets in groups.items()}

    def joined(g: int, h: int) -> tuple[float, tuple[int, ...]]:
        """What joining g, h and all groups on their attributes saves, and these groups."""
        outside = ~(mentioned[g] | mentioned[h])
        absorbed = tuple([k for k, attributes in mentioned.items() if not attributes & outside])
        sets = tuple(j for k in absorbed for j in groups[k])
        return sum(cost[k] for k in absorbed) - estimate.error(sets) ** power, absorbed

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
        cost[first] = estimate.error(sets) ** power
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

    def error(self, sets: tuple[int, ...]) -> float:
        """Σ weight · variance of these sets under one product strategy, estimated."""
        rows = self.workload.kinds[list(sets)]
        product = self.workload.weights[list(sets)].copy()
        for i, column in enumerate(rows.T):
            used = tuple(sorted(set(column.tolist())))
            if used != (0,):
                product *= self._axis_errors(i, used)[column]
        return float(product.sum())

    def _axis_errors(self, i: int, used: tuple[int, ...]) -> Array:
        if (i, used) not in self.known:
            grams = self.workload.grams[i]
            both = sum((grams[k] / np.trace(grams[k]) for k in used), np.zeros_like(grams[0]))
            axis = optimize_axis(both, self.noise, self.settings, self.rng)
            errors = [axis.error(g) if k in used else np.inf for k, g in enumerate(grams)]
            self.known[i, used] = np.array(errors)
        return self.known[i, used]
