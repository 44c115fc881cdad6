"""Blocks of attributes that structural zeros tie together, and moves that redraw a whole block.

If five columns all state whether a person lives in a household, a row changes sides only when all
five change together. Redraws of one or two attributes never do that, so that the rows on each side
would stay where they began. A block is redrawn along a tree. Messages sum up the tree what it
joins, with the weights of everything outside the block. Values are drawn down the tree, each from
its messages and all tables that it shares with values drawn before. The density of this proposal
is known, so it is accepted with the ratio of model to proposal (Metropolis-Hastings).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from adaptive_qs.cliques import Array, Integers, Rows
from adaptive_qs.domain import Clique
from adaptive_qs.generate.loglinear import LogLinearModel, ModelMoves, over_rows, uniform
from adaptive_qs.generate.structure import Component
from adaptive_qs.generate.targets import Target
from adaptive_qs.generate.tree import (
    Forest,
    find_trees,
    list_parents,
    maximum_forest,
    mutual_information,
)
from adaptive_qs.generate.zeros import Mask, Zeros, allowed_cells, weigh
from adaptive_qs.machine import njit


@dataclass
class _Node:
    """An attribute in the tree of its block.

    Attributes:
        parent: the number of the node above; -1 for a root.
        place: where its values begin in the buffers.
        allowed: the values allowed with each value of the parent: shape (parent size or 1, size).
        hint: joint/product of both, in place of a missing table; ones otherwise.
        outside: entries of the adjacency of tables with no other attribute of the block.
        late: entries of tables whose other attributes of the block are all drawn before.
        tree: entries of tables with its parent alone of the block, and the stride of the parent.
    """

    attribute: int
    parent: int
    place: int
    allowed: Mask
    hint: Array
    outside: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    tree: list[tuple[int, int]] = field(default_factory=list)


class BlockTrees(NamedTuple):
    """The trees of all blocks as compiled kernels walk them, parents first.

    Attributes:
        parts: (blocks,) a move redraws each block in one row out of ``parts``.
        start: (blocks + 1,) the first node of each block.
        attribute, parent, place: (nodes,) see :class:`_Node`.
        outside, late, tree: entries of the adjacency of all nodes.
        outside_start, late_start, tree_start: (nodes + 1,) where those of each node begin.
        stride: of the parent in each entry of ``tree``.
        lists: (nodes,) the first list of each node, one for each value of its parent.
        list_start, values, hint: where each list begins, its values, and the hint of each.
        length: of the buffers.
    """

    parts: Integers
    start: Integers
    attribute: Integers
    parent: Integers
    place: Integers
    outside: Integers
    outside_start: Integers
    late: Integers
    late_start: Integers
    tree: Integers
    tree_start: Integers
    stride: Integers
    lists: Integers
    list_start: Integers
    values: Integers
    hint: Array
    length: int


def _flatten(parts: Sequence[int], start: Sequence[int], nodes: Sequence[_Node]) -> BlockTrees:
    def pack(lists: Sequence[Sequence[int]]) -> tuple[Integers, Integers]:
        packed = np.array([entry for entries in lists for entry in entries], dtype=np.int64)
        return packed, np.cumsum([0, *map(len, lists)])

    numbers = np.array([(n.attribute, n.parent, n.place) for n in nodes], dtype=np.int64)
    attribute, parent, place = numbers.reshape(-1, 3).T.copy()
    outside, late = pack([node.outside for node in nodes]), pack([node.late for node in nodes])
    tree = pack([[entry for entry, _ in node.tree] for node in nodes])
    stride, _ = pack([[stride for _, stride in node.tree] for node in nodes])
    lists = np.cumsum([0, *(len(node.allowed) for node in nodes)])[:-1]
    list_start = np.cumsum([0, *(int(n) for node in nodes for n in node.allowed.sum(axis=1))])
    values = np.concatenate([np.nonzero(node.allowed)[1] for node in nodes])
    hint = np.concatenate([node.hint[node.allowed] for node in nodes])
    length = sum(node.allowed.shape[1] for node in nodes)
    firsts = np.array(parts, dtype=np.int64), np.array(start, dtype=np.int64)
    return BlockTrees(
        *firsts, attribute, parent, place, *outside, *late, *tree, stride, lists, list_start,
        values, hint, length,
    )  # fmt: skip


class _Planner:
    """The construction of the trees of blocks."""

    def __init__(
        self, model: LogLinearModel, joints: Mapping[Clique, tuple[Target, Array]], zeros: Zeros
    ) -> None:
        self._model = model
        self._joints = joints
        self._zeros = zeros
        self.start, self.parts = [0], list[int]()
        self.nodes: list[_Node] = []

    def add(self, block: Component) -> None:
        """Add the tree of a block; attributes too wide to be swept stay as they are."""
        members = {*block.clique}.difference(self._model.wide.tolist())
        forest = self._span(members)
        for component in find_trees(forest):
            root = max(sorted(component), key=self._count_ties)
            for i, parent in list_parents(forest, root).items():
                self._add_node(i, parent, members)
        work = np.array(self._model.domain.sizes) * np.diff(self._model.adjacency.start)
        # A move costs about three sweeps of the block, and as much as seven steps of a sweep for
        # each pair of values in a tree. A tenth of a sweep of all is allowed.
        joined = sum(int(node.allowed.sum()) for node in self.nodes[self.start[-1] :])
        cost = 3 * work[list(members)].sum() + 7 * joined
        self.start.append(len(self.nodes))
        self.parts.append(max(round(cost / (0.1 * work.sum())), 1))

    def _span(self, members: set[int]) -> Forest:
        weights = {}
        for pair, (_, joint) in self._joints.items():
            if members.issuperset(pair):
                tied = allowed_cells(self._zeros, self._model.domain, pair) is not None
                weights[pair] = mutual_information(joint) + 1e3 * tied  # ties come first
        return maximum_forest(sorted(members), weights)

    def _count_ties(self, i: int) -> int:
        return len({j for zero in self._zeros if i in zero.clique for j in zero.clique})

    def _joint(self, above: int, i: int) -> Array:
        joint = self._joints[min(above, i), max(above, i)][1]
        return joint if above < i else joint.T

    def _add_node(self, i: int, above: int | None, members: set[int]) -> None:
        before = {node.attribute: number for number, node in enumerate(self.nodes)}
        size, place = self._model.domain.sizes[i], 0
        if self.nodes:
            place = self.nodes[-1].place + self.nodes[-1].allowed.shape[1]
        allowed: Mask = np.ones((1, size), dtype=np.bool_)
        if above is not None:
            pair = min(above, i), max(above, i)
            found = allowed_cells(self._zeros, self._model.domain, pair)
            cells = np.ones(self._model.domain.shape(pair), np.bool_) if found is None else found
            allowed = cells if above < i else cells.T
        parent = -1 if above is None else before[above]
        node = _Node(i, parent, place, allowed, np.ones(allowed.shape))
        start, _, other, stride, _, _, _ = self._model.adjacency
        for e in range(start[i], start[i + 1]):
            steps = {int(j): int(s) for j, s in zip(other[e], stride[e]) if s > 0}
            joined = steps.keys() & members
            if not joined:
                node.outside.append(e)
            elif joined <= before.keys():
                node.late.append(e)
                if above is not None and joined == {above}:
                    node.tree.append((e, steps[above]))
        if above is not None and not node.tree:
            joint = self._joint(above, i)
            even = np.outer(joint.sum(axis=1), joint.sum(axis=0)) / joint.sum()
            node.hint = (joint + 2.0) / (even + 2.0)
        self.nodes.append(node)


class BlockMoves(ModelMoves):
    """Redraws of all attributes of a block together."""

    def __init__(
        self,
        model: LogLinearModel,
        blocks: Sequence[Component],
        joints: Mapping[Clique, tuple[Target, Array]],
        zeros: Zeros,
        workers: int,
    ) -> None:
        planner = _Planner(model, joints, zeros)
        for block in blocks:
            planner.add(block)
        self._model = model
        self._trees = _flatten(planner.parts, planner.start, planner.nodes)
        self._workers = workers

    def __call__(self, rows: Rows, key: int, thorough: bool = False) -> None:
        """Propose new blocks in a part of the rows, or in all if ``thorough``, in place."""
        factors, adjacency = self._model.factors, self._model.adjacency
        trees, seed = self._trees, np.uint64(key)
        if thorough:
            trees = trees._replace(parts=np.ones_like(trees.parts))
        phases = key % trees.parts

        def move(start: int, stop: int) -> None:
            _move_blocks(rows, start, stop, phases, trees, factors, adjacency, seed)

        over_rows(self._workers, len(rows), move)


_ROWS_AT_ONCE = 32
"""Number of rows of which all or none get a new block in a move."""
_UNCHECKED = 16
"""Number of weights, each 1e±6, that multiply a probability before it is rescaled."""


@njit(cache=True, nogil=True, no_cpython_wrapper=True, forceinline=True)
def _rescale(weights, size):  # type: ignore[no-untyped-def]
    """Divide weights by the largest, in place, and return its logarithm; -inf if all are zero."""
    largest = 0.0
    for v in range(size):
        largest = max(largest, weights[v])
    if not largest > 0.0:
        return -np.inf
    for v in range(size):
        weights[v] /= largest
    return np.log(largest)


@njit(cache=True, nogil=True, no_cpython_wrapper=True, forceinline=True)
def _cell(row, e, adjacency):  # type: ignore[no-untyped-def]
    """Return where the weights of a row begin in an entry of the adjacency."""
    cell = adjacency[1][e]
    for m in range(adjacency[2].shape[1]):
        cell += row[adjacency[2][e, m]] * adjacency[3][e, m]
    return cell


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz", "arcp"})
def _move_blocks(rows, begin, end, phases, trees, factors, adjacency, key):  # type: ignore[no-untyped-def]
    old, new = np.empty(rows.shape[1], np.int32), np.empty(rows.shape[1], np.int32)
    alone, promised = np.empty((2, _ROWS_AT_ONCE, trees.length))
    possible = np.empty(_ROWS_AT_ONCE, np.bool_)
    p, cells = np.empty(factors[0].max()), np.empty(adjacency[1].size, np.int64)
    for group in range(begin // _ROWS_AT_ONCE, -(-end // _ROWS_AT_ONCE)):
        first, last = max(group * _ROWS_AT_ONCE, begin), min((group + 1) * _ROWS_AT_ONCE, end)
        for b in range(trees.start.size - 1):
            if group % trees.parts[b] != phases[b]:
                continue
            lo, hi = trees.start[b], trees.start[b + 1]
            promised[:] = 1.0
            possible[:] = True
            _send_messages(
                rows, first, last, lo, hi, trees, factors, adjacency, alone, promised, possible,
                p, cells,
            )  # fmt: skip
            for r in range(first, last):
                n = r - first
                if not possible[n]:
                    continue
                for k in range(rows.shape[1]):
                    old[k] = new[k] = rows[r, k]
                ratio = _walk_tree(
                    new, r, b, lo, hi, trees, adjacency, factors[4], alone[n], promised[n], p,
                    True, key,
                )  # fmt: skip
                same = True
                for k in range(lo, hi):
                    i = trees.attribute[k]
                    same = same and old[i] == new[i]
                if same:
                    continue
                if ratio > -np.inf:
                    ratio -= _walk_tree(
                        old, r, b, lo, hi, trees, adjacency, factors[4], alone[n], promised[n], p,
                        False, key,
                    )  # fmt: skip
                if np.log(max(uniform(key, r, hi + b), 1e-300)) < ratio < np.inf:
                    for k in range(lo, hi):
                        i = trees.attribute[k]
                        rows[r, i] = new[i]


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz", "arcp"})
def _send_messages(  # type: ignore[no-untyped-def]
    rows, begin, end, lo, hi, trees, factors, adjacency, alone, promised, possible, p, cells
):
    """Write the weights of each value given the attributes outside, times the messages from below.

    ``promised`` starts with ones and ends with the products of the messages. A row is no
    longer ``possible`` if no state of its block has weight. Each node is visited for all rows while
    its weights are in cache.
    """
    sizes, singles, single_start, _, packed = factors
    for k in range(hi - 1, lo - 1, -1):
        i, at, parent = trees.attribute[k], trees.place[k], trees.parent[k]
        size = sizes[i]
        outside = trees.outside[trees.outside_start[k] : trees.outside_start[k + 1]]
        first, last = trees.tree_start[k], trees.tree_start[k + 1]
        for r in range(begin, end):
            row, promise = rows[r], promised[r - begin]
            g = alone[r - begin, at : at + size]
            for v in range(size):
                g[v] = singles[single_start[i] + v]
            weigh(g, size, rows, r, adjacency, packed, outside, outside.size)
            for v in range(size):
                g[v] *= promise[at + v]
            if _rescale(g, size) == -np.inf:
                possible[r - begin] = False
            if parent < 0 or not possible[r - begin]:
                continue
            for t in range(first, last):
                above = row[trees.attribute[parent]]
                cells[t - first] = _cell(row, trees.tree[t], adjacency) - above * trees.stride[t]
            number, up = sizes[trees.attribute[parent]], trees.place[parent]
            for u in range(number):
                total, listed = 0.0, trees.lists[k] + u
                q0, q1 = trees.list_start[listed], trees.list_start[listed + 1]
                lowest = trees.values[q0] if q0 < q1 else 0
                if last - first == 1 and trees.values[q1 - 1] - lowest == q1 - q0 - 1:
                    own, hint = np.uint64(lowest), np.uint64(q0)  # consecutive: summed in lanes
                    cell = np.uint64(cells[0] + lowest)
                    for m in range(np.uint64(q1 - q0)):
                        total += g[own + m] * trees.hint[hint + m] * packed[cell + m]
                else:
                    for q in range(q0, q1):
                        v = trees.values[q]
                        weight = g[v] * trees.hint[q]
                        for t in range(last - first):
                            weight *= packed[cells[t] + v]
                        total += weight
                p[u] = total
                for t in range(last - first):
                    cells[t] += trees.stride[first + t]
            if _rescale(p, number) == -np.inf:
                possible[r - begin] = False
                continue
            for u in range(number):
                promise[up + u] *= p[u]


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz", "arcp"})
def _walk_tree(state, r, b, lo, hi, trees, adjacency, packed, alone, promised, p, draw, key):  # type: ignore[no-untyped-def]
    """Return log(model / proposal) of a state, up to a constant; -inf if it has no weight.

    With ``draw``, first draw the values of the block from the proposal, in place.
    """
    log_ratio = 0.0
    for k in range(lo, hi):
        i, at, index = trees.attribute[k], trees.place[k], trees.lists[k]
        if trees.parent[k] >= 0:
            index += state[trees.attribute[trees.parent[k]]]
        first, last = trees.list_start[index], trees.list_start[index + 1]
        number = last - first
        for q in range(number):
            p[q] = alone[at + trees.values[first + q]] * trees.hint[first + q]
        l0, l1 = trees.late_start[k], trees.late_start[k + 1]
        for n in range(l0, l1):
            cell = _cell(state, trees.late[n], adjacency)
            for q in range(number):
                p[q] *= packed[cell + trees.values[first + q]]
            if (n - l0) % _UNCHECKED == _UNCHECKED - 1:
                log_ratio += _rescale(p, number)
        total = 0.0
        for q in range(number):
            total += p[q]
        if not total > 0.0:
            return -np.inf
        chosen = -1
        if draw:
            left = uniform(key, r, k + b) * total
            for q in range(number):
                if p[q] > 0.0:
                    chosen = q
                    left -= p[q]
                    if left < 0.0:
                        break
            state[i] = trees.values[first + chosen]
        else:
            for q in range(number):
                if trees.values[first + q] == state[i]:
                    chosen = q
        log_ratio += np.log(total) - np.log(trees.hint[first + chosen])
        log_ratio -= np.log(max(promised[at + state[i]], 1e-300))
    return log_ratio
