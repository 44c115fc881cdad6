"""A smaller model to fit: codes that no marginal tells apart are one until rows are made, and
attributes that another one determines are carried by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Attribute, Clique, Domain
from adaptive_qs.generate.loglinear import MOST_SWEPT, CarriedAttributes, Rows, Target
from adaptive_qs.generate.zeros import Zero, Zeros, allowed_cells
from adaptive_qs.levels import Grouping, Groups

MOST_CARRIED = 2**22
"""Maximum number of cells of all tables of attributes that carry others."""

# In the log-linear model, codes of one group at the finest level at which an attribute was measured
# together with others have the same weights everywhere: given its group, a code is independent of
# all other columns and distributed as in the single column. So the model is fitted over groups,
# exactly, and each row of groups becomes one of codes by a draw from single columns.


class CoarseDomain:
    """The groups that a fit has to tell apart, and the way back to codes.

    Args:
        domain: the attributes, with their levels.
        cliques: of several attributes, each at its levels; what they tell apart is kept apart.
        singles: counts of each attribute's codes (rows).
        kept: attributes whose codes are kept apart in any case.

    Attributes:
        domain: the attributes with these groups as codes, and the levels above them.
    """

    def __init__(
        self,
        domain: Domain,
        cliques: Iterable[Clique],
        singles: Sequence[NDArray[np.float64]],
        kept: Iterable[int] = (),
    ) -> None:
        used = {*kept, *(position for clique in cliques for position in clique)}
        finest = [self._finest(domain.chain(i), used) for i in range(len(domain))]
        self._place: dict[int, int] = {level: i for i, level in enumerate(finest)}
        groupings: list[Grouping] = []
        for i, level in enumerate(finest):
            for coarser in domain.chain(level)[1:]:
                self._place[coarser] = len(domain) + len(groupings)
                groupings.append(Grouping(i, tuple(domain.groups(level, coarser).of.tolist())))
        sizes = domain.shape(tuple(finest))
        attributes = (Attribute(a.name, n) for a, n in zip(domain.attributes, sizes))
        self.domain = Domain(tuple(attributes), tuple(groupings))
        self._insides = {
            i: _Inside(domain.groups(i, level), singles[i])
            for i, level in enumerate(finest)
            if level != i
        }

    @staticmethod
    def _finest(chain: Sequence[int], used: set[int]) -> int:
        return next((level for level in chain if level in used), chain[0])

    def clique(self, clique: Clique) -> Clique:
        """A clique at the same levels of the smaller domain."""
        return tuple(self._place[position] for position in clique)

    def target(self, target: Target) -> Target:
        """A target of several attributes, or of a single one, over the smaller domain."""
        if len(target.clique) > 1:
            return Target(self.clique(target.clique), target.counts, target.noise_std)
        (attribute,) = target.clique
        inside = self._insides.get(attribute)
        counts = target.counts if inside is None else inside.groups.sums(target.counts, 0)
        return Target(target.clique, counts, target.noise_std)

    def marginal_of_codes(
        self, counts: NDArray[np.float32], columns: Clique
    ) -> NDArray[np.float32]:
        """A marginal over groups as one over codes, divided inside groups as single columns are."""
        for axis, attribute in enumerate(columns):
            if attribute in self._insides:
                inside = self._insides[attribute]
                along = [-1 if other == axis else 1 for other in range(len(columns))]
                counts = inside.groups.repeated(counts, axis) * inside.shares.reshape(along)
        return counts.astype(np.float32, copy=False)

    def draw_codes(self, rows: Rows, rng: np.random.Generator) -> Rows:
        """Rows of groups as rows of codes, in an array of their own."""
        found = rows.copy()
        for attribute, inside in self._insides.items():
            found[:, attribute] = inside.draw(rows[:, attribute], rng)
        return found


class _Inside:
    """How the codes of an attribute are divided inside its groups, as their counts are."""

    def __init__(self, groups: Groups, single: NDArray[np.float64]) -> None:
        self.groups = groups
        floored = np.maximum(single, 1e-9)
        self.shares = floored / groups.repeated(groups.sums(floored, 0), 0)
        self._order = np.argsort(groups.of, kind="stable")
        self._last = np.cumsum(groups.sizes) - 1
        # Group g holds the numbers from g to g + 1, each of its codes as many as its share.
        self._up_to = np.cumsum(self.shares[self._order])

    def draw(self, chosen: NDArray[np.int32], rng: np.random.Generator) -> NDArray[np.int32]:
        """A code for each group."""
        at = np.searchsorted(self._up_to, chosen + rng.random(chosen.size), side="right")
        first = self._last[chosen] - self.groups.sizes[chosen] + 1
        return self._order[np.clip(at, first, self._last[chosen])].astype(np.int32)


def find_carried(
    domain: Domain, cliques: Iterable[Clique], zeros: Zeros, given: Clique = ()
) -> CarriedAttributes:
    """Find the attributes that another one determines by zeros, and which one carries each.

    Args:
        domain: the attributes.
        cliques: of attributes, whose tables the model has. Where they would have more than
            ``MOST_CARRIED`` cells, an attribute is not carried.
        zeros: structural zeros.
        given: attributes whose values are given; they are not carried.
    """
    every = [*cliques, *(zero.clique for zero in zeros)]
    found = CarriedAttributes(domain, {})
    for pair in dict.fromkeys(zero.clique for zero in zeros if len(zero.clique) == 2):
        allowed = np.asarray(allowed_cells(zeros, domain, pair))
        if allowed.shape != domain.shape(pair):
            continue
        for (above, below), table in ((pair, allowed), (pair[::-1], allowed.T)):
            root = found.root(above)
            if below in (*given, *found.values, root) or domain.sizes[root] > MOST_SWEPT:
                continue
            if (table.sum(axis=1) != 1).any():
                continue
            values = found.spread(table.argmax(axis=1), (above,))
            wider = found.with_carried(below, root, values)
            tables = {wider.clique(clique) for clique in every}
            if sum(map(domain.size, tables)) <= MOST_CARRIED:
                found = wider
                break
    return found


def carried_zeros(zeros: Zeros, carried: CarriedAttributes) -> list[Zero]:
    """Return zeros over the attributes that carry others, without those that forbid nothing."""
    if not carried.values:
        return [*zeros]
    found = [
        Zero(carried.clique(zero.clique), carried.spread(zero.allowed, zero.clique))
        for zero in zeros
    ]
    return [zero for zero in found if not zero.allowed.all()]
