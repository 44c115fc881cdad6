"""Blocks: attributes that structural zeros tie together, and moves that redraw all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.generate.loglinear import LogLinearModel, Rows, Target, over_rows, uniform
from adaptive_qs.generate.tree import mutual_information
from adaptive_qs.generate.zeros import Pairs, Zero, Zeros, allowed_cells
from adaptive_qs.machine import njit

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_PATTERNS = 20_000
"""Patterns of a component that are looked at; one of more is taken for a block unseen."""


@dataclass(frozen=True)
class Block:
    """Attributes that zeros tie together.

    Attributes:
        clique: the attributes.
        classes: by attribute, the class of each of its values: two are in one class where the zeros
            allow the same beside them.
        patterns: allowed combinations of classes, one column for each attribute; None where there
            are too many.
        modes: for each pattern, a number that those have in common that redraws of single values,
            and of the pairs of :class:`~adaptive_qs.generate.zeros.Pairs`, lead to from it.
    """

    clique: Clique
    classes: tuple[Integers, ...]
    patterns: Integers | None
    modes: Integers | None

    def sides(self, axis: int) -> Integers:
        """What each value of an attribute tells of the mode: values with the same number occur in
        the same modes."""
        classes = self.classes[axis]
        if self.patterns is None or self.modes is None:
            return np.zeros(len(classes), dtype=np.int64)
        occurs = np.zeros((classes.max() + 1, self.modes.max() + 1), dtype=np.bool_)
        occurs[self.patterns[:, axis], self.modes] = True
        return np.unique(occurs, axis=0, return_inverse=True)[1].ravel()[classes]

    def repeats(self) -> list[int]:
        """For each attribute, how many of the block tell all that it tells of the mode."""
        if self.patterns is None:
            return [1] * len(self.clique)
        told = [self.sides(axis) for axis in range(len(self.clique))]
        each = np.column_stack(
            [
                side[np.unique(c, return_index=True)[1]][self.patterns[:, axis]]
                for axis, (side, c) in enumerate(zip(told, self.classes))
            ]
        )
        found = []
        for axis in range(len(self.clique)):
            tells = 0
            for other in range(len(self.clique)):
                both = np.unique(each[:, [other, axis]], axis=0)
                tells += len(both) == len(np.unique(both[:, 0]))
            found.append(tells)
        return found


def blocks_of(zeros: Zeros, domain: Domain) -> list[Block]:
    """The components of attributes under zeros in which redraws of single values and pairs do not
    reach every pattern from every other."""
    graph = nx.Graph()
    for zero in zeros:
        nx.add_path(graph, zero.clique)
    found = []
    for component in sorted(map(sorted, nx.connected_components(graph))):
        if len(component) > 2:
            held = [zero for zero in zeros if set(zero.clique) <= set(component)]
            block = _block(tuple(component), held)
            if block.modes is None or block.modes.any():
                found.append(block)
    return found


def _block(component: Clique, zeros: Zeros) -> Block:
    """The patterns of a component, and which of them single values and pairs lead to."""
    classes = {}
    for i in component:
        seen = [np.moveaxis(z.allowed, z.clique.index(i), 0) for z in zeros if i in z.clique]
        flat = np.hstack([s.reshape(len(s), -1) for s in seen])
        classes[i] = np.unique(flat, axis=0, return_inverse=True)[1].ravel()
    first = {i: np.unique(c, return_index=True)[1] for i, c in classes.items()}
    small = [Zero(z.clique, z.allowed[np.ix_(*(first[i] for i in z.clique))]) for z in zeros]
    order: list[int] = []
    patterns = np.zeros((1, 0), dtype=np.int64)
    unseen = Block(component, tuple(classes.values()), None, None)
    while len(order) < len(component):  # next, what most zeros tie to those before
        left = [i for i in component if i not in order]
        i = max(left, key=lambda j: sum(j in z.clique and not {*order}.isdisjoint(z.clique)
                                        for z in small))  # fmt: skip
        size = len(first[i])
        if len(patterns) * size > 50 * MOST_PATTERNS:
            return unseen
        patterns = np.column_stack(
            [np.repeat(patterns, size, axis=0), np.tile(np.arange(size), len(patterns))]
        )
        order.append(i)
        for zero in small:
            if i in zero.clique:
                beyond = tuple(a for a, j in enumerate(zero.clique) if j not in order)
                inside = [order.index(j) for j in zero.clique if j in order]
                patterns = patterns[zero.allowed.any(axis=beyond)[tuple(patterns[:, inside].T)]]
        if not 0 < len(patterns) <= MOST_PATTERNS:
            return unseen
    patterns = patterns[:, [order.index(i) for i in component]]
    pairs = Pairs.of(zeros)
    moved = [{i} for i in component]
    moved += [{i, t} for i, t in zip(pairs.first.tolist(), pairs.second.tolist())]
    links = nx.Graph()
    links.add_nodes_from(range(len(patterns)))
    for change in moved:
        kept = patterns[:, [axis for axis, i in enumerate(component) if i not in change]]
        _, one, group = np.unique(kept, axis=0, return_index=True, return_inverse=True)
        links.add_edges_from(zip(range(len(patterns)), one[group.ravel()].tolist()))
    modes = np.zeros(len(patterns), dtype=np.int64)
    for number, members in enumerate(nx.connected_components(links)):
        modes[list(members)] = number
    return Block(component, tuple(classes.values()), patterns, modes)


class Sharing:
    """Steps of weights, of which attributes of a block share those that they all would take.

    Whether a row is on one side of a block or another, several of its attributes tell, and the
    weights of each, and of each with any other attribute, would move by the whole difference: all
    together by so many times what is missing. So each takes its part.

    Args:
        domain: the attributes.
        blocks: see :func:`blocks_of`.
    """

    def __init__(self, domain: Domain, blocks: Sequence[Block]) -> None:
        self._sides: dict[int, tuple[Array, float]] = {}
        for block in blocks:
            for axis, (i, repeats) in enumerate(zip(block.clique, block.repeats())):
                sides = block.sides(axis)
                if repeats > 1 and sides.any():
                    of = np.equal.outer(sides, np.arange(sides.max() + 1)).astype(np.float64)
                    self._sides[i] = of, 1 - 1 / repeats

    def ratio(self, clique: Clique, wanted: Array, counted: Array) -> Array:
        """What is wanted over what is counted; what several tell in common, only in part."""
        ratio = wanted / counted
        held = [axis for axis, i in enumerate(clique) if i in self._sides]
        if not held:
            return ratio
        logs = np.log(ratio)
        for degree in range(1, len(held) + 1):
            for axes in combinations(held, degree):
                sums, part = [wanted, counted], -1.0
                for axis in axes:
                    of, shared = self._sides[clique[axis]]
                    part *= -shared
                    sums = [
                        np.moveaxis(np.moveaxis(total, axis, -1) @ of @ of.T, -1, axis)
                        for total in sums
                    ]
                logs -= part * np.log(sums[0] / sums[1])
        return np.exp(logs)


class Loop(NamedTuple):
    """A table of two attributes of a block that its tree does not join.

    Attributes:
        cells: where the table lies among the weights.
        root: where the values of the root begin in the buffers, and what each tells: (n_root,).
        shares: for each that it tells, what part of its rows lie in each cell.
    """

    cells: slice
    root: slice
    of: Integers
    shares: Array


class Blocks(NamedTuple):
    """Blocks as compiled kernels walk them: the nodes of a tree over each, parents first.

    Attributes:
        start: (blocks + 1,) first node of each block.
        attribute, parent: (nodes,) the attribute, and the node it hangs on; -1 for a root.
        place: (nodes,) where its values begin in the buffers.
        outside, late, tree: entries of the adjacency, and where those of each node begin: tables
            with no other attribute of the block; with others, all of them drawn before; and with
            its parent alone of the block.
        outside_start, late_start, tree_start: (nodes + 1,).
        stride: of the parent in each entry of ``tree``.
        hint: of nodes without such a table, what joins them to their parent, parent first.
        hint_start: (nodes,) where it begins, or -1.
        listed: (nodes,) where the lists of values of a node begin that a zero allows beside each
            value of its parent, if these are few; or -1.
        list_start, values: where each list begins, and all lists.
        hoped: length of the buffers.
    """

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
    hint: Array
    hint_start: Integers
    listed: Integers
    list_start: Integers
    values: Integers
    hoped: int


TIED = 1e3
"""Mutual information (nats) above any: pairs that a zero ties come first in a tree."""
REDRAWN = 0.5
"""Part of the rows whose blocks are redrawn in each move: it costs more than a sweep."""
DENSE = 0.25
"""Part of the cells of a pair from which all are looked at, rather than those allowed."""


def plan_blocks(
    model: LogLinearModel,
    blocks: Sequence[Block],
    joints: Mapping[Clique, tuple[Target, Array]],
    zeros: Zeros,
) -> tuple[Blocks, list[Loop]]:
    """The strongest tree of each block, and the tables around its nodes.

    Args:
        model: the tables.
        blocks: see :func:`blocks_of`; attributes too wide to be swept stay as they are.
        joints: counts of pairs, as of :func:`~adaptive_qs.generate.tree.pair_marginals`.
        zeros: what ties the attributes.
    """
    domain, wide = model.domain, {*model.wide.tolist()}
    first, offset, other, strides, _, _, _ = model.adjacency
    starts, attribute, parent, place, length = [0], [], [], [], 0
    outside, late, tree, stride, hint = [], [], [], [], [np.zeros(0)]
    outside_start, late_start, tree_start, hint_start, listed = [0], [0], [0], [], []
    lists, values = [np.zeros(1, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    loops: list[Loop] = []
    for block in blocks:
        members = {i for i in block.clique if i not in wide}
        if not members:
            continue
        graph = nx.Graph()
        graph.add_nodes_from(sorted(members))
        for a, b in joints:
            if a in members and b in members:
                tied = allowed_cells(zeros, domain, (a, b)) is not None
                strength = mutual_information(joints[a, b][1])
                graph.add_edge(a, b, weight=strength + TIED * tied)
        forest = nx.maximum_spanning_tree(graph)
        ties = {i: len({j for z in zeros if i in z.clique for j in z.clique}) for i in members}
        position: dict[int, int] = {}
        for component in nx.connected_components(forest):
            root, top = max(sorted(component), key=lambda i: ties[i]), length
            parents = dict(nx.dfs_predecessors(forest, root))
            for i in nx.dfs_preorder_nodes(forest, root):
                above = parents.get(i)
                own: list[tuple[int, int]] = []
                for e in range(first[i], first[i + 1]):
                    step = {int(j): int(s) for j, s in zip(other[e], strides[e]) if s > 0}
                    joined = step.keys() & members
                    if not joined:
                        outside.append(e)
                    elif joined <= position.keys():
                        late.append(e)
                        if joined == {above}:
                            own.append((e, step[above]))
                        elif len(step) == 1:
                            (j,) = step
                            pair = (min(i, j), max(i, j))
                            table = joints[pair][1].T if i < j else joints[pair][1]
                            loops += _loop(block, root, j, i, table, int(offset[e]), top)
                tree += [e for e, _ in own]
                stride += [s for _, s in own]
                outside_start.append(len(outside))
                late_start.append(len(late))
                tree_start.append(len(tree))
                position[i] = len(attribute)
                attribute.append(i)
                parent.append(-1 if above is None else position[above])
                place.append(length)
                length += domain.sizes[i]
                hint_start.append(-1)
                listed.append(-1)
                if above is None:
                    continue
                pair = (min(above, i), max(above, i))
                allowed = allowed_cells(zeros, domain, pair)
                shown = None if allowed is None else (allowed if above < i else allowed.T)
                if not own:
                    joint = joints[pair][1] if above < i else joints[pair][1].T
                    even = np.outer(joint.sum(axis=1), joint.sum(axis=0)) / joint.sum()
                    table = (joint + 2.0) / (even + 2.0)
                    hint_start[-1] = sum(map(np.size, hint))
                    hint.append(np.ravel(table if shown is None else table * shown))
                if shown is not None and shown.mean() < DENSE:
                    listed[-1] = sum(map(len, lists)) - 1
                    lists.append(shown.sum(axis=1))
                    values.append(np.nonzero(shown)[1])
        starts.append(len(attribute))

    def integers(some: Sequence[int]) -> Integers:
        return np.array(some, dtype=np.int64)

    return Blocks(
        integers(starts), integers(attribute), integers(parent), integers(place),
        integers(outside), integers(outside_start), integers(late), integers(late_start),
        integers(tree), integers(tree_start), integers(stride),
        np.concatenate(hint), integers(hint_start), integers(listed),
        np.cumsum(np.concatenate(lists)), np.concatenate(values), length,
    ), loops  # fmt: skip


def _loop(
    block: Block, root: int, i: int, t: int, joint: Array, offset: int, top: int
) -> list[Loop]:
    """The table of i and t, none the child of the other, as far as the root tells of it."""
    if block.patterns is None:
        return []
    at, first, second = (block.clique.index(j) for j in (root, i, t))
    of = block.classes[at]
    shares = np.zeros((of.max() + 1, *joint.shape))
    for number in range(len(shares)):
        there = block.patterns[block.patterns[:, at] == number]
        together = np.zeros((block.classes[first].max() + 1, block.classes[second].max() + 1))
        together[there[:, first], there[:, second]] = 1.0
        shares[number] = together[np.ix_(block.classes[first], block.classes[second])]
        shares[number] *= joint + 1e-6
        shares[number] /= max(shares[number].sum(), 1e-300)
    cells = slice(offset, offset + joint.size)
    return [Loop(cells, slice(top, top + of.size), of, shares.reshape(len(shares), -1))]


# A block is redrawn along a tree: messages up the tree sum over what the tree joins, with the
# weights of everything outside the block; values are drawn down the tree, each from the product of
# what its messages promise and of all tables shared with attributes drawn before. What the
# messages left out - tables between attributes that the tree does not join - is made up for by
# accepting with the ratio of model to proposal (Metropolis-Hastings); where it leaves nothing out,
# every proposal is taken.


class BlockMoves:
    """Redraws of all attributes of a block at once.

    Args:
        model: the distribution, whose weights are none in forbidden cells.
        blocks: see :func:`plan_blocks`.
        workers: threads; the result does not depend on it.
    """

    def __init__(
        self, model: LogLinearModel, blocks: Blocks, loops: Sequence[Loop], workers: int
    ) -> None:
        self._model = model
        self.blocks = blocks
        self._loops = loops
        self._workers = workers

    def towards(self, model: LogLinearModel) -> BlockMoves:
        """The same blocks of another model of these attributes."""
        found = copy(self)
        found._model = model
        return found

    def __call__(self, rows: Rows, key: int) -> None:
        """Propose every block of every row, in place; random as a function of ``key``."""
        factors, adjacency = self._model.factors, self._model.adjacency
        hopes = self._hopes()

        def part(start: int, stop: int) -> None:
            _move_blocks(rows, start, stop, self.blocks, hopes, factors, adjacency, np.uint64(key))

        if self.blocks.attribute.size:
            over_rows(self._workers, len(rows), part)

    def _hopes(self) -> Array:
        """For each value of a root, what the tables that its tree leaves out multiply rows by: the
        geometric mean over the cells that go with it."""
        hopes = np.zeros(self.blocks.hoped)
        for loop in self._loops:
            weights = self._model.factors.packed[loop.cells].astype(np.float64)
            logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
            hopes[loop.root] += (loop.shares @ logs)[loop.of]
        return np.exp(np.clip(hopes, -200, 200))


_UNCHECKED = 32
"""Weights that multiply a probability before its size is checked: each is 1e±6."""


@njit(cache=True, nogil=True, inline="always")
def _weigh(weights, size, row, adjacency, packed, entries, begin, end):  # type: ignore[no-untyped-def]
    """Multiply the weights of values by those of some tables, but for a factor, whose logarithm is
    returned."""
    _, offset, other, stride, _, _, _ = adjacency
    log_factor, n, values = 0.0, begin, np.uint64(size)
    while n < end:
        checked = n
        if n + 4 <= end:
            e0, e1, e2, e3 = entries[n], entries[n + 1], entries[n + 2], entries[n + 3]
            c0, c1 = np.uint64(offset[e0]), np.uint64(offset[e1])
            c2, c3 = np.uint64(offset[e2]), np.uint64(offset[e3])
            for k in range(other.shape[1]):
                c0 += np.uint64(row[other[e0, k]]) * np.uint64(stride[e0, k])
                c1 += np.uint64(row[other[e1, k]]) * np.uint64(stride[e1, k])
                c2 += np.uint64(row[other[e2, k]]) * np.uint64(stride[e2, k])
                c3 += np.uint64(row[other[e3, k]]) * np.uint64(stride[e3, k])
            for v in range(values):
                weights[v] *= (packed[c0 + v] * packed[c1 + v]) * (packed[c2 + v] * packed[c3 + v])
            n += 4
        else:
            e = entries[n]
            cell = np.uint64(offset[e])
            for k in range(other.shape[1]):
                cell += np.uint64(row[other[e, k]]) * np.uint64(stride[e, k])
            for v in range(values):
                weights[v] *= packed[cell + v]
            n += 1
        if n == end or (n - begin) // _UNCHECKED > (checked - begin) // _UNCHECKED:
            largest = 0.0
            for v in range(values):
                if weights[v] > largest:
                    largest = weights[v]
            if largest > 0.0 and not 1e-50 < largest < 1e50:
                for v in range(size):
                    weights[v] /= largest
                log_factor += np.log(largest)
    return log_factor


@njit(cache=True, nogil=True, inline="always")
def _scale(weights, size):  # type: ignore[no-untyped-def]
    """Bring the largest weight to one; whether there is any."""
    largest = 0.0
    for v in range(size):
        largest = max(largest, weights[v])
    if largest > 0.0:
        for v in range(size):
            weights[v] /= largest
    return largest > 0.0


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz", "arcp"})
def _move_blocks(rows, begin, end, blocks, hopes, factors, adjacency, key):  # type: ignore[no-untyped-def]
    sizes, singles, single_start, _, packed = factors
    offset, other, stride = adjacency[1], adjacency[2], adjacency[3]
    attributes = rows.shape[1]
    row, new = np.empty(attributes, np.int32), np.empty(attributes, np.int32)
    alone, promised = np.empty(blocks.hoped), np.empty(blocks.hoped)
    p = np.empty(sizes.max())
    last = blocks.attribute.size + blocks.start.size
    for r in range(begin, end):
        if uniform(key, r, last) > REDRAWN:
            continue
        for i in range(attributes):
            row[i] = new[i] = rows[r, i]
        for b in range(blocks.start.size - 1):
            lo, hi = blocks.start[b], blocks.start[b + 1]
            dead = False
            for v in range(
                blocks.place[hi - 1] - blocks.place[lo] + sizes[blocks.attribute[hi - 1]]
            ):
                promised[blocks.place[lo] + v] = hopes[blocks.place[lo] + v]
            for k in range(hi - 1, lo - 1, -1):  # up the tree
                i, at, parent = blocks.attribute[k], blocks.place[k], blocks.parent[k]
                size = sizes[i]
                g = alone[at : at + size]
                for v in range(size):
                    g[v] = singles[single_start[i] + v]
                _weigh(
                    g,
                    size,
                    row,
                    adjacency,
                    packed,
                    blocks.outside,
                    blocks.outside_start[k],
                    blocks.outside_start[k + 1],
                )
                for v in range(size):
                    g[v] *= promised[at + v]
                if not _scale(g, size):
                    dead = True
                    break
                if parent < 0:
                    continue
                above, up = sizes[blocks.attribute[parent]], blocks.place[parent]
                message = p[:above]
                hint, listed = blocks.hint_start[k], blocks.listed[k]
                t0, t1 = blocks.tree_start[k], blocks.tree_start[k + 1]
                if hint >= 0:
                    for u in range(above):
                        total = 0.0
                        for v in range(size):
                            total += g[v] * blocks.hint[hint + u * size + v]
                        message[u] = total
                elif t1 - t0 == 1:
                    e = blocks.tree[t0]
                    cell, step = offset[e], blocks.stride[t0]
                    for m in range(other.shape[1]):
                        cell += row[other[e, m]] * stride[e, m]
                    cell -= row[blocks.attribute[parent]] * step
                    for u in range(above):
                        total = 0.0
                        c = np.uint64(cell + u * step)
                        if listed >= 0:
                            for q in range(
                                blocks.list_start[listed + u], blocks.list_start[listed + u + 1]
                            ):
                                v = blocks.values[q]
                                total += g[v] * packed[c + np.uint64(v)]
                        else:
                            for w in range(np.uint64(size)):
                                total += g[w] * packed[c + w]
                        message[u] = total
                else:
                    for u in range(above):
                        total = 0.0
                        for v in range(size):
                            weight = g[v]
                            for t in range(t0, t1):
                                e = blocks.tree[t]
                                cell = offset[e] + v
                                for m in range(other.shape[1]):
                                    cell += row[other[e, m]] * stride[e, m]
                                cell += (u - row[blocks.attribute[parent]]) * blocks.stride[t]
                                weight *= packed[cell]
                            total += weight
                        message[u] = total
                if not _scale(message, above):
                    dead = True
                    break
                for u in range(above):
                    promised[up + u] *= message[u]
            if dead:
                continue
            log_ratio = 0.0
            for old in range(2):  # down the tree: what is drawn, then what is there
                state = row if old else new
                if old:
                    same = True
                    for k in range(lo, hi):
                        i = blocks.attribute[k]
                        same = same and row[i] == new[i]
                    if same:
                        break
                for k in range(lo, hi):
                    i, at, parent = blocks.attribute[k], blocks.place[k], blocks.parent[k]
                    size, hint = sizes[i], blocks.hint_start[k]
                    if hint >= 0:
                        hint += state[blocks.attribute[parent]] * size
                    l0, l1, log_sum = blocks.late_start[k], blocks.late_start[k + 1], 0.0
                    few = blocks.listed[k] >= 0 and hint < 0 and l1 - l0 <= _UNCHECKED
                    first, number = 0, size
                    if few:  # only these values go with that of the parent
                        at_list = blocks.listed[k] + state[blocks.attribute[parent]]
                        first = blocks.list_start[at_list]
                        number = blocks.list_start[at_list + 1] - first
                        for q in range(number):
                            p[q] = alone[at + blocks.values[first + q]]
                        for n in range(l0, l1):
                            e = blocks.late[n]
                            cell = offset[e]
                            for m in range(other.shape[1]):
                                cell += state[other[e, m]] * stride[e, m]
                            for q in range(number):
                                p[q] *= packed[cell + blocks.values[first + q]]
                    else:
                        for v in range(size):
                            p[v] = alone[at + v]
                        log_sum = _weigh(p, size, state, adjacency, packed, blocks.late, l0, l1)
                        if hint >= 0:
                            for v in range(size):
                                p[v] *= blocks.hint[hint + v]
                    total = 0.0
                    for v in range(number):
                        total += p[v]
                    if not total > 0.0:
                        dead = True
                        break
                    if not old:
                        left = uniform(key, r, k + b) * total
                        choice = -1
                        for v in range(number):
                            if p[v] > 0.0:
                                choice = v
                                left -= p[v]
                                if left < 0.0:
                                    break
                        new[i] = blocks.values[first + choice] if few else choice
                    log_sum += np.log(total) - np.log(max(promised[at + state[i]], 1e-300))
                    if hint >= 0:
                        log_sum -= np.log(blocks.hint[hint + state[i]])
                    log_ratio += -log_sum if old else log_sum
                if dead:
                    break
            taken = not dead and np.log(max(uniform(key, r, hi + b), 1e-300)) < log_ratio
            for k in range(lo, hi):
                i = blocks.attribute[k]
                if taken:
                    row[i] = rows[r, i] = new[i]
                else:
                    new[i] = row[i]
