"""Pairs of columns with causes in common, completed by a model of low rank.

Columns with causes in common, such as latent classes, are no tree: where q_i are the shares of each
code, joint shares less products are V_i V_jᵀ, with few columns of V for all pairs together. V
follows from noisy pairs by alternating least squares with a ridge, a prior of independent entries
of variance q/ridge (Salakhutdinov and Mnih 2008). Rank and ridge, and whether pairs have such a
form at all, are judged by measured pairs that are held out.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations, pairwise, product

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.generate.targets import Target, project_to_simplex
from adaptive_qs.residual import ReferenceModel

Array = NDArray[np.float64]

PART_HELD = 10
"""Measured pairs for each that is held out."""
MOST_CODES = 4096
"""Most codes of all columns together."""
RANKS = 2, 4, 6, 9, 13, 19
"""Ranks that are tried."""
RIDGES = 120.0, 60.0, 240.0
"""Inverse variances of the entries of V/√q that are tried."""
STEPS = 40
"""Rounds of alternating least squares."""
LEAST_EXPLAINED, MOST_MISFIT = 0.85, 2.0
"""The least part of the dependence in held-out pairs that the model has to find, and their largest
misfit beyond their noise, in squares of this noise."""


def completed_pairs(
    model: ReferenceModel, measured: Iterable[Clique], requested: Iterable[Clique]
) -> Iterator[Target]:
    """Predict the requested pairs by a model of low rank, and yield their targets, without noise.

    Measured pairs that are held out test the model; if it fails, no pair has a target. Measured
    pairs shrink towards their prediction (James and Stein 1961). Besides what is measured, the
    memory of one target is taken.

    Args:
        model: noisy interactions of pairs, and denoised columns.
        measured: pairs of which interactions are known.
        requested: cliques whose pairs get targets.
    """
    domain, total = model.domain, max(model.total, 1.0)
    pairs = sorted(c for c in measured if model.precision(c))
    if domain.groupings or sum(domain.sizes) > MOST_CODES:
        return
    low_rank = _LowRank(model, pairs)
    if (best := _choose(low_rank, pairs[::PART_HELD])) is None:
        return
    factors = low_rank.solve(*best)
    for pair in sorted({pair for c in requested for pair in combinations(c, 2)}):
        shares = low_rank.predicted(factors, pair)
        if pair in low_rank.known:
            part = low_rank.noise(pair) / max(low_rank.misfit(factors, [pair]), 1e-9)
            shares += max(1 - part, 0.0) * (low_rank.known[pair] - shares)
        counts = total * (np.outer(*(model.reference[i] for i in pair)) + shares)
        yield Target(pair, project_to_simplex(counts, total), 0.0)


class _LowRank:
    """A low-rank model of the interactions of pairs; ``known`` has those measured (shares)."""

    def __init__(self, model: ReferenceModel, pairs: Sequence[Clique]) -> None:
        total = max(model.total, 1.0)
        ends = np.cumsum([0, *model.domain.sizes])
        self._parts = [slice(a, b) for a, b in pairwise(ends.tolist())]
        self._shares = np.concatenate(model.reference)
        self.known: dict[Clique, Array] = {}
        self._weights: dict[Clique, float] = {}
        for pair in pairs:
            values = model.component(pair)
            assert values is not None
            self.known[pair] = values / total
            self._weights[pair] = model.precision(pair) * total**2

    @property
    def most_rank(self) -> float:
        """The rank that has as many parameters as numbers were measured."""
        measured = math.fsum(map(self.noise, self.known))
        return measured / (self._shares.size - len(self._parts))

    def noise(self, pair: Clique) -> float:
        """Return the expected sum of squares of a pair's noise, in variances of an entry."""
        return float(math.prod(x - 1 for x in self.known[pair].shape))

    def predicted(self, factors: Array, pair: Clique) -> Array:
        """Return the predicted interaction of a pair (shares of the rows, one for each cell)."""
        first, second = (factors[self._parts[i]] for i in pair)
        return first @ second.T

    def misfit(self, factors: Array | None, pairs: Iterable[Clique]) -> float:
        """Return the squared distance of pairs from their prediction, in variances of an entry.

        Without factors, the prediction is independence.
        """
        found = 0.0
        for pair in pairs:
            off = self.known[pair] - (0.0 if factors is None else self.predicted(factors, pair))
            found += self._weights[pair] * float(np.vdot(off, off))
        return found

    def solve(self, rank: int, ridge: float, held: Collection[Clique] = ()) -> Array:
        """Fit factors, shape (codes, rank), to the measured pairs that are not held out."""
        around: list[list[tuple[int, Array, float]]] = [[] for _ in self._parts]
        for (a, b), values in self.known.items():
            if (a, b) not in held:
                around[a].append((b, values, self._weights[a, b]))
                around[b].append((a, values.T, self._weights[a, b]))
        factors = np.random.default_rng(0).standard_normal((self._shares.size, rank))
        factors *= np.sqrt(self._shares / ridge)[:, None]
        codes, systems = np.arange(self._shares.size), []
        for part, pairs in zip(self._parts, around):
            if not pairs:
                factors[part] = 0.0
                continue
            others = np.concatenate([codes[self._parts[i]] for i, _, _ in pairs])
            weights = np.concatenate([np.full(len(v.T), weight) for _, v, weight in pairs])
            weighed = np.concatenate([v for _, v, _ in pairs], axis=1) * weights
            systems.append((part, others, weights, weighed, ridge / self._shares[part, None]))
        for _, (part, others, weights, weighed, damping) in product(range(STEPS), systems):
            near = factors[others]
            values, vectors = np.linalg.eigh((near.T * weights) @ near)
            damped = np.maximum(values, 0.0) + damping
            factors[part] = (weighed @ near @ vectors / damped) @ vectors.T
        return factors


def _choose(low_rank: _LowRank, held: Sequence[Clique]) -> tuple[int, float] | None:
    """Select rank and ridge by the misfit of held-out pairs. Return None if all are too far off.

    A rank of more parameters than there are measured numbers is not tried, nor are ranks above one
    that is worse than a smaller one.
    """
    noise = math.fsum(map(low_rank.noise, held))
    nothing = low_rank.misfit(None, held)
    most = noise + min(MOST_MISFIT * noise, (1 - LEAST_EXPLAINED) * (nothing - noise))
    tried: dict[tuple[int, float], float] = {}

    def attempt(rank: int, ridge: float) -> bool:
        before = min(tried.values(), default=math.inf)
        tried[rank, ridge] = low_rank.misfit(low_rank.solve(rank, ridge, held), held)
        return tried[rank, ridge] < before

    for rank in RANKS:
        if rank > low_rank.most_rank or not attempt(rank, RIDGES[0]):
            break
    if not tried:
        return None
    rank = min(tried, key=tried.__getitem__)[0]
    for ridge in RIDGES[1:]:
        attempt(rank, ridge)
    best = min(tried, key=tried.__getitem__)
    return best if tried[best] <= most else None
