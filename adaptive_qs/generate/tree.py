"""The strongest tree of measured pairs: rows drawn from it exactly, and moves of whole branches."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cliques import Array, Rows, find_cell
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.generate import loglinear
from adaptive_qs.generate.loglinear import CarriedAttributes, invert_at, over_rows, uniform
from adaptive_qs.generate.shape import MOST_SHAPED, Shapes, estimate_pair, shape_pair
from adaptive_qs.generate.targets import Target
from adaptive_qs.machine import njit

# Single-site Gibbs sampling mixes slowly where attributes depend strongly on each other. A maximum
# spanning tree of mutual information (Chow and Liu 1968) carries the strongest dependences and can
# be sampled exactly: rows start from it, and whole branches are proposed from it later.


@dataclass(frozen=True)
class Node:
    """An attribute of a tree, by its position in the domain, and its parent (None for a root).

    Attributes:
        end: the node's branch is ``nodes[its own position : end]``.
        table: non-negative joint counts, shape (parent size, size); (1, size) for a root.
        source: the target that contains the pair; None for a root.
    """

    attribute: int
    parent: int | None
    end: int
    table: Array
    source: Target | None


def dependence_tree(
    domain: Domain,
    targets: Sequence[Target],
    singles: Sequence[Array],
    given: Collection[int] = (),
    carried: CarriedAttributes | None = None,
    shapes: Shapes | None = None,
    allowed: Mapping[Clique, NDArray[np.bool_]] | None = None,
) -> tuple[Node, ...]:
    """Return the maximum spanning forest of the measured pairs, every branch contiguous.

    The targets are measured cliques of two or more attributes, ``singles`` counts of each attribute
    (rows). Branches start at given attributes, which rows have already. Carried attributes are no
    nodes. Weights over groups spread to codes by ``shapes``.
    """
    pairs = pair_marginals(domain, targets, singles, carried, shapes, allowed)
    weights = {pair: mutual_information(joint) for pair, (_, joint) in pairs.items()}
    # Given attributes are one root together, as none depends on others.
    weights |= dict.fromkeys(pairwise(sorted(given)), math.inf)
    held = carried.values if carried else ()
    forest = maximum_forest([i for i in range(len(domain)) if i not in held], weights)
    nodes: list[Node] = []
    for component in find_trees(forest):
        root = min(set(component).intersection(given), default=min(component))
        parents = list_parents(forest, root)
        order = [v for v in parents if v not in given]
        end = {v: len(nodes) + k + 1 for k, v in enumerate(order)}
        for v in reversed(order):
            if (parent := parents[v]) in end:
                end[parent] = max(end[parent], end[v])
        for v in order:
            if (parent := parents[v]) is None:
                nodes.append(Node(v, None, end[v], singles[v][None, :], None))
                continue
            source, joint = pairs[min(v, parent), max(v, parent)]
            nodes.append(Node(v, parent, end[v], joint if parent < v else joint.T, source))
    return tuple(nodes)


Forest = dict[int, list[int]]
"""The neighbours of each attribute."""


def maximum_forest(attributes: Iterable[int], weights: Mapping[Clique, float]) -> Forest:
    """Find the spanning forest of largest weight (Kruskal 1956); pairs are ascending."""
    forest: Forest = {i: [] for i in attributes}
    tree = {i: {i} for i in forest}
    for a, b in sorted(weights, key=lambda pair: (-weights[pair], pair[0])):
        if b not in tree[a]:
            forest[a].append(b)
            forest[b].append(a)
            joined = tree[a] | tree[b]
            tree |= dict.fromkeys(joined, joined)
    return forest


def find_trees(forest: Forest) -> list[tuple[int, ...]]:
    """List the attributes of each tree of a forest."""
    trees: dict[int, tuple[int, ...]] = {}
    for i in forest:
        if i not in trees:
            members = tuple(list_parents(forest, i))
            trees |= dict.fromkeys(members, members)
    return list(dict.fromkeys(trees.values()))


def list_parents(forest: Forest, root: int) -> dict[int, int | None]:
    """Map each attribute of a tree to the one that it hangs on, each branch contiguous."""
    parents: dict[int, int | None] = {}
    left: list[tuple[int, int | None]] = [(root, None)]
    while left:
        i, parent = left.pop()
        parents[i] = parent
        left += [(j, i) for j in reversed(forest[i]) if j != parent]
    return parents


def pair_marginals(
    domain: Domain,
    targets: Sequence[Target],
    singles: Sequence[Array],
    carried: CarriedAttributes | None = None,
    shapes: Shapes | None = None,
    allowed: Mapping[Clique, NDArray[np.bool_]] | None = None,
) -> dict[Clique, tuple[Target, Array]]:
    """Map every pair inside a target to its least noisy source and its counts over codes.

    All tables of the pair decide its counts; the source has sums of these. Inside groups of codes
    they follow ``shapes``, or are divided as in the single attributes. A pair of ``carried``
    attributes stands for those that carry them, if no other does. Only ``allowed`` cells have any.
    """
    carried = carried or CarriedAttributes(domain, {})
    allowed, sources = allowed or {}, dict[Clique, list[tuple[Target, tuple[int, int], Clique]]]()
    for direct in (True, False) if carried.values else (True,):
        for target in sorted(targets, key=lambda t: t.noise_std):
            columns = domain.columns(target.clique)
            for axes in combinations(range(len(columns)), 2):
                pair: Clique = (columns[axes[0]], columns[axes[1]])
                roots = carried.clique(pair)
                if len(roots) == 2 and (not direct or roots == pair):
                    sources.setdefault(roots, []).append((target, axes, pair))
    pairs: dict[Clique, tuple[Target, Array]] = {}
    for roots, held in sources.items():
        (target, axes, pair), tables = held[0], list[tuple[Clique, Array, float]]()
        for other, (a, b), columns in held:
            levels = other.clique[a], other.clique[b]
            if columns == pair and (other is target or other.noise_std < math.inf):
                rest = tuple(k for k in range(other.counts.ndim) if k not in (a, b))
                counts = other.counts.sum(axis=rest)
                spread = math.sqrt(other.counts.size / counts.size)
                tables.append((levels, counts, spread * other.noise_std))
        finest, counts, noise_std = tables[0]
        few = noise_std < math.inf and max(domain.shape(pair)) <= MOST_SHAPED
        if few and not {*finest}.isdisjoint(pair):
            joint = estimate_pair(tables, singles, domain, shapes or {}, allowed.get(pair, 1.0))
            others = tuple(k for k in range(target.counts.ndim) if k not in axes)
            sums = np.expand_dims(domain.summed(joint, pair, finest), others)
            target = replace(target, counts=sums, noise_std=0.0)
        else:
            joint = shape_pair(counts, noise_std, finest, singles, domain, shapes or {})
        if roots != pair:
            joint = carried.spread(joint, pair)
            for i in set(pair) & carried.values.keys():
                root, values = carried.values[i]
                single = np.maximum(singles[root], 1e-9)
                within = single / np.bincount(values, single, domain.sizes[i])[values]
                joint = joint * np.expand_dims(within, 1 - roots.index(root))
        pairs[roots] = (target, joint)
    return pairs


def mutual_information(joint: Array) -> float:
    """Mutual information in nats of a table of non-negative counts."""
    p = joint / joint.sum()
    independent = np.outer(p.sum(axis=1), p.sum(axis=0))
    seen = p > 0
    return float((p[seen] * np.log(p[seen] / independent[seen])).sum())


def fill_from_tree(
    rows: Rows, nodes: Sequence[Node], singles: Sequence[Array], rng: np.random.Generator
) -> None:
    """Draw the attributes of the tree for rows that have the others, in place.

    ``singles``, counts of each attribute (rows), are used where a parent's value has no counts.
    """
    nobody = np.zeros(len(rows), dtype=np.int32)
    for node in nodes:
        parent = nobody if node.parent is None else rows[:, node.parent]
        conditional = conditionals(node, singles[node.attribute], 0.0)
        rows[:, node.attribute] = _invert(parent, conditional, rng.random(len(rows)))


def conditionals(node: Node, single: Array, mix: float) -> Array:
    """Return P(child | parent), with a share ``mix`` of the child's own distribution.

    ``single`` are the counts of the node's attribute (rows).
    """
    prior = np.maximum(single, 1e-9)
    prior = prior / prior.sum()
    table = node.table + 1e-9 * prior
    return (1 - mix) * table / table.sum(axis=1, keepdims=True) + mix * prior


def _invert(parent: NDArray[np.int32], conditional: Array, uniforms: Array) -> NDArray[np.int32]:
    child = np.empty(parent.size, dtype=np.int32)
    order = np.argsort(parent, kind="stable")
    bounds = np.searchsorted(parent[order], np.arange(conditional.shape[0] + 1))
    for value in range(conditional.shape[0]):
        members = order[bounds[value] : bounds[value + 1]]
        cdf = np.cumsum(conditional[value])
        drawn = np.searchsorted(cdf, uniforms[members] * cdf[-1], side="right")
        child[members] = np.minimum(drawn, cdf.size - 1)
    return child


# Metropolis-Hastings moves redraw a whole branch of the dependence tree together. A random node's
# branch is proposed from the tree given the branch's parent, and accepted with the ratio of model
# to tree probability. Where attributes determine each other (codes that refine each other,
# sequences) this changes in one step what single-site Gibbs sampling cannot.

MIX = 0.02
"""Share of each attribute's own distribution in the proposals, which reach every value."""


def write_tree(model: loglinear.LogLinearModel, tree: Sequence[Node], damping: float) -> None:
    """Multiply joint/product of every tree edge into the weights of the clique that holds it.

    ``damping`` rows are added to numerator and denominator; estimates without noise get 1 % of it.
    """
    for node in tree:
        if (source := node.source) is None or node.parent is None:
            continue
        columns = [model.carried.root(i) for i in model.domain.columns(source.clique)]
        first, second = sorted((columns.index(node.parent), columns.index(node.attribute)))
        others = tuple(axis for axis in range(len(columns)) if axis not in (first, second))
        joint = source.counts.sum(axis=others, keepdims=True)
        sums = joint.sum(axis=second, keepdims=True), joint.sum(axis=first, keepdims=True)
        independent = sums[0] * sums[1] / joint.sum()
        rows = damping if source.noise_std else damping / 100
        model.scale(source.clique, (joint + rows) / (independent + rows))


class TreeMoves(loglinear.ModelMoves):
    """Proposals from a tree for a model."""

    def __init__(
        self,
        model: loglinear.LogLinearModel,
        nodes: Sequence[Node],
        singles: Sequence[NDArray[np.float64]],
        workers: int,
    ) -> None:
        self.nodes = nodes
        self._model = model
        self._workers = workers
        tables = [conditionals(node, singles[node.attribute], MIX) for node in nodes]
        self._tree = (
            np.array([node.attribute for node in nodes]),
            np.array([-1 if node.parent is None else node.parent for node in nodes]),
            np.array([node.end for node in nodes]),
            np.cumsum([0, *(t.size for t in tables)]),
            np.concatenate([t.ravel() for t in tables]),
            np.concatenate([np.cumsum(t, axis=1).ravel() for t in tables]),
        )

    def __call__(self, rows: Rows, key: int) -> None:
        """Propose one branch for every row, in place; ``key`` seeds the random numbers."""
        factors, adjacency = self._model.factors, self._model.adjacency

        def block(start: int, stop: int) -> None:
            _move_branches(rows, start, stop, self._tree, factors, adjacency, np.uint64(key))

        over_rows(self._workers, len(rows), block)

    def replace_wide(self, rows: Rows, key: int) -> None:
        """Propose ``TRIES`` values of each wide attribute for every row, in place.

        They come from the tree given the parent, and are accepted with the ratio of model to tree
        probability: the work does not grow with the number of values.
        """
        wide = np.flatnonzero(np.isin(self._tree[0], self._model.wide))

        def block(start: int, stop: int) -> None:
            model = self._model
            _move_values(
                rows, start, stop, wide, self._tree, model.factors, model.adjacency, np.uint64(key)
            )

        if wide.size:
            over_rows(self._workers, len(rows), block)


TRIES = 4
"""Number of values proposed for each wide attribute in a move."""


@njit(cache=True, nogil=True)
def _move_values(rows, begin, end, wide, tree, factors, adjacency, key):  # type: ignore[no-untyped-def]
    node_attribute, node_parent, _, table_start, probability, cumulative = tree
    sizes, singles, single_start, _, packed = factors
    start, offset, other, stride, _, _, _ = adjacency
    for r in range(begin, end):
        step = 0
        for k in wide:
            i, parent = node_attribute[k], node_parent[k]
            table, single = table_start[k], single_start[i]
            if parent >= 0:
                table += rows[r, parent] * sizes[i]
            for _ in range(TRIES):
                low = invert_at(cumulative, table, sizes[i], uniform(key, r, step))
                old = rows[r, i]
                chance = math.log(probability[table + old] / probability[table + low])
                chance += math.log(singles[single + low] / singles[single + old])
                for e in range(start[i], start[i + 1]):
                    cell = find_cell(rows, r, e, offset, other, stride)
                    weight = np.float64(packed[cell + np.uint64(low)])
                    chance += math.log(weight / packed[cell + np.uint64(old)])
                if math.log(max(uniform(key, r, step + 1), 1e-300)) < chance:
                    rows[r, i] = low
                step += 2


@njit(cache=True, nogil=True)
def _move_branches(rows, begin, end, tree, factors, adjacency, key):  # type: ignore[no-untyped-def]
    node_attribute, node_parent, node_end, table_start, probability, cumulative = tree
    sizes, singles, single_start, _, packed = factors
    start, offset, other, stride, _, _, _ = adjacency
    d, attributes = node_attribute.size, rows.shape[1]
    new = np.empty(attributes, np.int32)
    for r in range(begin, end):
        first = int(uniform(key, r, 0) * d)
        for i in range(attributes):
            new[i] = rows[r, i]
        ratio, log_ratio = 1.0, 0.0
        for k in range(first, node_end[first]):
            i, parent = node_attribute[k], node_parent[k]
            new_table, old_table = table_start[k], table_start[k]
            if parent >= 0:
                new_table += new[parent] * sizes[i]
                old_table += rows[r, parent] * sizes[i]
            low = invert_at(cumulative, new_table, sizes[i], uniform(key, r, k + 1))
            new[i] = low
            old = rows[r, i]
            ratio *= probability[old_table + old] / probability[new_table + low]
            ratio *= singles[single_start[i] + low] / singles[single_start[i] + old]
            if not 1e-100 < ratio < 1e100:
                log_ratio += math.log(ratio)
                ratio = 1.0
        for k in range(first, node_end[first]):
            own = np.uint64(node_attribute[k])
            if new[own] == rows[r, own]:
                continue
            for e in range(np.uint64(start[own]), np.uint64(start[own + np.uint64(1)])):
                begins = np.uint64(offset[e])  # unsigned indices: see find_cell
                old_cell, new_cell = begins + np.uint64(rows[r, own]), begins + np.uint64(new[own])
                counted = False
                for m in range(other.shape[1]):
                    j, length = np.uint64(other[e, m]), np.uint64(stride[e, m])
                    # A clique that several changed attributes share counts at the first of them.
                    if length > 0 and j < own and new[j] != rows[r, j]:
                        counted = True
                        break
                    old_cell += np.uint64(rows[r, j]) * length
                    new_cell += np.uint64(new[j]) * length
                if not counted:
                    ratio *= np.float64(packed[new_cell]) / packed[old_cell]
                    if not 1e-100 < ratio < 1e100:
                        log_ratio += math.log(ratio)  # -inf where a cell has no weight
                        ratio = 1.0
        if math.log(max(uniform(key, r, d + 1), 1e-300)) < log_ratio + math.log(max(ratio, 1e-300)):
            for i in range(attributes):
                rows[r, i] = new[i]
