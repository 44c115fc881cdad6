"""The structure of a model: codes that it distinguishes, and attributes that zeros tie together."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import scipy
from numpy.typing import NDArray

from adaptive_qs.cliques import Array, Integers, Rows, maximal_cliques, outermost_cliques
from adaptive_qs.domain import Attribute, Clique, Domain, subsets
from adaptive_qs.generate.loglinear import MOST_SWEPT, CarriedAttributes
from adaptive_qs.generate.shape import Shapes
from adaptive_qs.generate.targets import Target
from adaptive_qs.generate.zeros import Pairs, Zero, Zeros, allowed_cells
from adaptive_qs.levels import Grouping, Groups

MOST_CARRIED = 2**22
"""Largest number of cells of all tables together if some attributes are carried."""

# In the log-linear model, codes of one group at the finest level at which an attribute was measured
# together with others have the same weights everywhere: given its group, a code is independent of
# all other columns and distributed as in the single column. So the model is fitted over groups,
# exactly, and each row of groups becomes a row of codes by a draw from single columns.


class CoarseDomain:
    """The groups that a fit has to distinguish, and the way back to codes.

    The measured cliques are at their levels, ``singles`` are counts of each attribute's codes
    (rows). The codes of ``kept`` attributes are kept apart in any case. Attribute ``domain`` has
    these groups as codes, and the levels above them.
    """

    def __init__(
        self,
        domain: Domain,
        cliques: Iterable[Clique],
        singles: Sequence[Array],
        kept: Iterable[int] = (),
    ) -> None:
        used = {*kept, *(position for clique in cliques for position in clique)}
        chains = [domain.chain(i) for i in range(len(domain))]
        finest = [next((level for level in c if level in used), c[0]) for c in chains]
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
            i: _GroupShares(domain.groups(i, level), singles[i])
            for i, level in enumerate(finest)
            if level != i
        }

    def clique(self, clique: Clique) -> Clique:
        """Return the clique at the same levels of the smaller domain."""
        return tuple(self._place[position] for position in clique)

    def shapes(self, shapes: Shapes) -> Shapes:
        """Return shapes of attributes that are kept apart, by levels of the smaller domain."""
        return {self._place[level]: shape for level, shape in shapes.items()}

    def target(self, target: Target) -> Target:
        """Return a target of several attributes, or a single column, over the smaller domain."""
        if len(target.clique) > 1:
            return replace(target, clique=self.clique(target.clique))
        inside = self._insides.get(target.clique[0])
        counts = target.counts if inside is None else inside.groups.sums(target.counts, 0)
        return Target(target.clique, counts, target.noise_std)

    def marginal_of_codes(
        self, counts: NDArray[np.float32], columns: Clique
    ) -> NDArray[np.float32]:
        """Return a marginal over groups as one over codes, divided as single columns are."""
        for axis, attribute in enumerate(columns):
            if attribute in self._insides:
                inside = self._insides[attribute]
                along = [-1 if other == axis else 1 for other in range(len(columns))]
                counts = inside.groups.repeated(counts, axis) * inside.shares.reshape(along)
        return counts.astype(np.float32, copy=False)

    def draw_codes(self, rows: Rows, rng: np.random.Generator) -> Rows:
        """Draw a row of codes for each row of groups, in a new array."""
        found = rows.copy()
        for attribute, inside in self._insides.items():
            found[:, attribute] = inside.draw(rows[:, attribute], rng)
        return found


class _GroupShares:
    """The shares of codes inside their groups."""

    def __init__(self, groups: Groups, single: Array) -> None:
        self.groups = groups
        floored = np.maximum(single, 1e-9)
        self.shares = floored / groups.repeated(groups.sums(floored, 0), 0)
        self._order = np.argsort(groups.of, kind="stable")
        self._last = np.cumsum(groups.sizes) - 1
        # Group g has the interval from g to g + 1, divided among its codes by their shares.
        self._up_to = np.cumsum(self.shares[self._order])

    def draw(self, chosen: NDArray[np.int32], rng: np.random.Generator) -> NDArray[np.int32]:
        """Draw a code for each group."""
        at = np.searchsorted(self._up_to, chosen + rng.random(chosen.size), side="right")
        first = self._last[chosen] - self.groups.sizes[chosen] + 1
        return self._order[np.clip(at, first, self._last[chosen])].astype(np.int32)


def cliques_of_fit(
    domain: Domain, measured: Sequence[Clique], workload: Sequence[Clique] | Mapping[Clique, float]
) -> tuple[tuple[Clique, ...], dict[Clique, tuple[tuple[int, ...], ...]]]:
    """Return the cliques with weights of their own in the fit of chains, and their refinements.

    The first are the outermost measured ones. One whose pairs are all in parts that the workload
    weighs more gives way to these parts, because it is noisier than they are. It refines them: its
    weights follow only what these parts leave open. The second result has the axes of its parts.
    """
    weights = workload if isinstance(workload, Mapping) else dict.fromkeys(workload, 1.0)
    found, refined = list[Clique](), dict[Clique, tuple[tuple[int, ...], ...]]()
    for clique in measured:
        least = weights.get(domain.columns(clique), 0.0)
        parts = [part for part in subsets(clique) if 1 < len(part) < len(clique)]
        heavy = [part for part in parts if weights.get(domain.columns(part), 0.0) > least]
        held = {pair for part in heavy for pair in combinations(part, 2)}
        if heavy and len(held) == math.comb(len(clique), 2):
            found += heavy
            refined[clique] = tuple(tuple(map(clique.index, c)) for c in maximal_cliques(heavy))
        else:
            found.append(clique)
    cliques, outer = outermost_cliques(domain, found), outermost_cliques(domain, measured)
    return cliques, {c: refined[c] for c in outer if c in refined and c not in cliques}


def find_carried(
    domain: Domain, cliques: Iterable[Clique], zeros: Zeros, given: Clique = ()
) -> CarriedAttributes:
    """Find the attributes that another one determines by zeros, and which one carries each.

    An attribute whose tables in a model of these cliques would have more than ``MOST_CARRIED``
    cells is not carried, and neither are attributes whose values are given.
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


MOST_PATTERNS = 2**14
"""Largest number of patterns of a component that are listed."""


@dataclass(frozen=True, eq=False)
class Component:
    """Attributes that zeros tie together, directly or through each other.

    Attributes:
        classes: by attribute, the class of each value. The zeros allow the same values of other
            attributes for all values of a class.
        patterns: the allowed combinations of classes, shape (patterns, attributes); None if there
            are more than ``MOST_PATTERNS``.
        modes: for each pattern the number of its mode. Moves of single attributes lead from a
            pattern to all patterns of its mode and to no other.
        is_block: whether moves of single attributes and of pairs do not connect all patterns.
    """

    clique: Clique
    classes: tuple[Integers, ...]
    patterns: Integers | None
    modes: Integers
    is_block: bool

    def sides(self, axis: int) -> Integers:
        """Return the number of each value's side: values of one side occur in the same modes."""
        classes = self.classes[axis]
        if self.patterns is None:
            return np.zeros(len(classes), dtype=np.int64)
        occurs = np.zeros((classes.max() + 1, self.modes.max() + 1), dtype=np.bool_)
        occurs[self.patterns[:, axis], self.modes] = True
        return np.unique(occurs, axis=0, return_inverse=True)[1].ravel()[classes]

    def modes_of(self, axis: int) -> Integers | None:
        """Return the mode of each value, 0 for forbidden ones; None if a value has several."""
        if self.patterns is None:
            return None
        pairs = np.unique(np.column_stack([self.patterns[:, axis], self.modes]), axis=0)
        alone = len(np.unique(pairs[:, 0])) == len(pairs)
        modes = np.zeros(self.classes[axis].max() + 1, dtype=np.int64)
        modes[pairs[:, 0]] = pairs[:, 1]
        return modes[self.classes[axis]] if alone else None

    def repeats(self) -> list[int]:
        """Count, for each attribute, the attributes of the component that determine its side."""
        if self.patterns is None:
            return [1] * len(self.clique)
        sides = [self.sides(axis)[_find_first(c)] for axis, c in enumerate(self.classes)]
        columns = [side[codes] for side, codes in zip(sides, self.patterns.T)]
        return [sum(_determines(other, own) for other in columns) for own in columns]


def _find_first(classes: Integers) -> NDArray[np.intp]:
    return np.unique(classes, return_index=True)[1]


def _determines(left: Integers, right: Integers) -> bool:
    pairs = np.unique(np.column_stack([left, right]), axis=0)
    return len(pairs) == len(np.unique(pairs[:, 0]))


def find_components(zeros: Zeros) -> list[Component]:
    """Find the sets of two or more attributes that zeros tie together, and their patterns."""
    parts: list[set[int]] = []
    for zero in zeros:
        apart = [part for part in parts if part.isdisjoint(zero.clique)]
        tied = [part for part in parts if not part.isdisjoint(zero.clique)]
        parts = [*apart, {*zero.clique}.union(*tied)]
    cliques = sorted(tuple(sorted(part)) for part in parts)
    return [
        _describe(clique, [zero for zero in zeros if zero.clique[0] in clique])
        for clique in cliques
        if len(clique) > 1
    ]


def _describe(component: Clique, zeros: Zeros) -> Component:
    """List the patterns of a component and number their modes."""
    classes = {}
    for i in component:
        seen = [np.moveaxis(z.allowed, z.clique.index(i), 0) for z in zeros if i in z.clique]
        flat = np.packbits(np.hstack([s.reshape(len(s), -1) for s in seen]), axis=1)
        keys = np.ascontiguousarray(flat).view(f"V{flat.shape[1]}").ravel()  # sorts faster
        classes[i] = np.unique(keys, return_inverse=True)[1]
    first = {i: _find_first(c) for i, c in classes.items()}
    small = [Zero(z.clique, z.allowed[np.ix_(*(first[i] for i in z.clique))]) for z in zeros]
    patterns = _list_patterns({i: len(f) for i, f in first.items()}, small)
    if patterns is None:
        none = np.zeros(0, dtype=np.int64)
        return Component(component, tuple(classes.values()), None, none, len(component) > 2)
    singly: list[set[int]] = [{i} for i in component]
    pairs = Pairs.from_zeros(zeros)
    paired = [{i, t} for i, t in zip(pairs.first.tolist(), pairs.second.tolist())]
    modes = _number_modes(patterns, component, singly)
    is_block = bool(_number_modes(patterns, component, [*singly, *paired]).any())
    return Component(component, tuple(classes.values()), patterns, modes, is_block)


def _list_patterns(sizes: Mapping[int, int], zeros: Zeros) -> Integers | None:
    """List the combinations of classes that all zeros allow; None if there are too many or none.

    Attributes are joined one by one. Next comes the attribute that most zeros tie to those before.
    """
    most_joined = 2**18  # before zeros remove some
    order: list[int] = []
    patterns = np.zeros((1, 0), dtype=np.int64)
    while left := [i for i in sizes if i not in order]:
        ties = {i: sum(i in z.clique and not {*order}.isdisjoint(z.clique) for z in zeros)
                for i in left}  # fmt: skip
        i = max(left, key=lambda j: ties[j])
        if len(patterns) * sizes[i] > most_joined:
            return None
        codes = np.tile(np.arange(sizes[i]), len(patterns))
        patterns = np.column_stack([np.repeat(patterns, sizes[i], axis=0), codes])
        order.append(i)
        for zero in zeros:
            if i in zero.clique:
                beyond = tuple(axis for axis, j in enumerate(zero.clique) if j not in order)
                inside = [order.index(j) for j in zero.clique if j in order]
                possible = np.asarray(zero.allowed.any(axis=beyond))
                patterns = patterns[possible[tuple(patterns[:, inside].T)]]
        if not 0 < len(patterns) <= MOST_PATTERNS:
            return None
    return patterns[:, [order.index(i) for i in sizes]]


def _number_modes(
    patterns: Integers, component: Clique, moved: Sequence[Collection[int]]
) -> Integers:
    links = []
    for change in moved:
        kept = patterns[:, [axis for axis, i in enumerate(component) if i not in change]]
        _, one, group = np.unique(kept, axis=0, return_index=True, return_inverse=True)
        links.append(one[group.ravel()])
    number = len(patterns)
    starts, ends = np.tile(np.arange(number), len(links)), np.concatenate(links)
    graph = scipy.sparse.coo_array((np.ones(starts.size), (starts, ends)), shape=(number, number))
    return scipy.sparse.csgraph.connected_components(graph, directed=False)[1].astype(np.int64)


def match_parts(desired: Array, counted: Array, parts: Sequence[Sequence[int]]) -> Array:
    """Scale the desired counts until their marginals over ``parts`` are nearly as counted.

    Interactions that no part contains stay (iterative proportional fitting, Deming and Stephan
    1940).
    """
    for part in (*parts, *parts):
        beyond = tuple(axis for axis in range(desired.ndim) if axis not in part)
        most, own = (array.sum(axis=beyond, keepdims=True) for array in (counted, desired))
        desired = desired * np.divide(most, own, out=np.zeros_like(most), where=own > 0)
    return desired


def followed(target: Target, desired: Array, counted: Array) -> Array:
    """Return the desired counts, with what the weights of a target do not follow as counted.

    That is the part of its dependence that is not clear, and marginals that it leaves to others.
    """
    if target.clear < 1:
        known = match_parts(counted, desired, [(axis,) for axis in range(desired.ndim)])
        desired = target.clear * desired + (1 - target.clear) * known
    return match_parts(desired, counted, target.parts) if target.parts else desired


class SharedSteps:
    """Logarithmic steps of weights, each attribute of a component taking its share.

    Several attributes of a component determine the side of a row. The weights of each of them, and
    of each with any other attribute, would all move by the whole difference, and the sum would
    overshoot. So the part of a step that is equal for all values of one side is divided by the
    number of attributes that determine the side.
    """

    def __init__(self, components: Sequence[Component]) -> None:
        self._sides: dict[int, tuple[Integers, Array, float]] = {}
        for component in components:
            for axis, (i, repeats) in enumerate(zip(component.clique, component.repeats())):
                sides = component.sides(axis)
                if repeats > 1 and sides.any():
                    belongs = np.equal.outer(np.arange(sides.max() + 1), sides).astype(np.float64)
                    self._sides[i] = sides, belongs, 1 - 1 / repeats

    def log_ratio(self, clique: Clique, desired: Array, counted: Array) -> Array:
        """Return log(desired / counted), of which shared parts count only in part."""
        logs: Array = np.log(desired / counted)
        sums: dict[tuple[int, ...], tuple[Array, ...]] = {(): (desired, counted)}
        shared = [axis for axis, i in enumerate(clique) if i in self._sides]
        for degree in range(1, len(shared) + 1):
            for axes in combinations(shared, degree):
                _, belongs, _ = self._sides[clique[axes[-1]]]
                sums[axes] = wide, narrow = tuple(
                    _sum_sides(total, belongs, axes[-1]) for total in sums[axes[:-1]]
                )
                change = np.log(wide / narrow)
                for axis in axes:
                    sides, _, removed = self._sides[clique[axis]]
                    change = -removed * change.take(sides, axis)
                logs += change
        return logs


class ModeShares:
    """The shares of the rows that belong in each mode of a block, by its single columns.

    Few rows move from mode to mode in a step, so that weights go too far before the rows follow.
    Therefore each step ends by restoring these shares.
    """

    def __init__(self, blocks: Iterable[Component], counts: Sequence[Array]) -> None:
        self._blocks = list[tuple[int, Integers, Array]]()
        for block in blocks:
            modes = {i: block.modes_of(axis) for axis, i in enumerate(block.clique)}
            known = {i: of for i, of in modes.items() if of is not None}
            if known:
                shares = [np.bincount(of, counts[i] / counts[i].sum()) for i, of in known.items()]
                self._blocks.append((*next(iter(known.items())), np.mean(shares, axis=0)))

    def restore(self, rows: Rows, rng: np.random.Generator) -> None:
        """Replace rows of modes that have too many by copies of rows of other modes, in place."""
        for attribute, modes, shares in self._blocks:
            own = modes[rows[:, attribute]]
            found = [rng.permutation(np.flatnonzero(own == mode)) for mode in range(shares.size)]
            reached = np.cumsum(shares * [part.size > 0 for part in found])
            if not reached[-1]:
                continue
            ends = np.floor(reached / reached[-1] * len(rows) + rng.random())
            ends[-1] = len(rows)
            change = np.diff(ends, prepend=0).astype(int) - [part.size for part in found]
            fewer = [part[: max(-by, 0)] for part, by in zip(found, change)]
            more = [np.resize(part, max(by, 0)) for part, by in zip(found, change)]
            rows[np.concatenate(fewer)] = rows[np.concatenate(more)]


def _sum_sides(total: Array, belongs: Array, axis: int) -> Array:
    if axis == total.ndim - 1:
        return total @ belongs.T
    return np.moveaxis(np.moveaxis(total, axis, -1) @ belongs.T, -1, axis)
