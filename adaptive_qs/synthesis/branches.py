"""Metropolis-Hastings moves that redraw a whole branch of the dependence tree at once.

A random node's branch is proposed from the tree given the branch's parent, and accepted with
the ratio of model to tree probability. Where attributes determine each other (codes that refine
each other, sequences) this changes in one step what single-site Gibbs sampling cannot.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from adaptive_qs.synthesis.loglinear import LogLinearModel
from adaptive_qs.synthesis.parallel import over_rows
from adaptive_qs.synthesis.randomness import uniform
from adaptive_qs.synthesis.tables import Rows
from adaptive_qs.synthesis.tree import Node, conditionals

MIX = 0.02
"""Weight of each attribute's own distribution in the proposals, so that they reach everything."""


class BranchMoves:
    """Proposals from a tree for a model.

    Args:
        model: the target distribution.
        nodes: the tree.
        singles: counts of each attribute (rows).
        workers: threads; the result does not depend on it.
    """

    def __init__(
        self,
        model: LogLinearModel,
        nodes: Sequence[Node],
        singles: Sequence[NDArray[np.float64]],
        workers: int,
    ) -> None:
        self._model = model
        self._workers = workers
        tables = [conditionals(node, singles[node.attribute], MIX) for node in nodes]
        self._attribute = np.array([node.attribute for node in nodes])
        self._parent = np.array([-1 if n.parent is None else n.parent for n in nodes])
        self._end = np.array([node.end for node in nodes])
        self._start = np.cumsum([0, *(t.size for t in tables)])
        self._probability = np.concatenate([t.ravel() for t in tables])
        self._cumulative = np.concatenate([np.cumsum(t, axis=1).ravel() for t in tables])

    def __call__(self, rows: Rows, key: int) -> None:
        """Propose one branch for every row, in place; randomness is a function of ``key``."""
        model = self._model
        a = model.adjacency

        def block(start: int, stop: int) -> None:
            _move_branches(
                rows, start, stop, self._attribute, self._parent, self._end, self._start,
                self._probability, self._cumulative, model.sizes, model.singles,
                model.single_start, model.packed, a.start, a.offset, a.other, a.stride,
                np.uint64(key),
            )  # fmt: skip

        over_rows(self._workers, len(rows), block)


@njit(cache=True, nogil=True)
def _move_branches(  # type: ignore[no-untyped-def]
    rows, begin, end, node_attribute, node_parent, node_end, table_start, probability, cumulative,
    sizes, singles, single_start, packed, start, offset, other, stride, key,
):  # fmt: skip
    d = node_attribute.size
    new = np.empty(d, np.int32)
    for r in range(begin, end):
        first = int(uniform(key, r, 0) * d)
        for i in range(d):
            new[i] = rows[r, i]
        ratio, log_ratio = 1.0, 0.0
        for k in range(first, node_end[first]):
            i, parent = node_attribute[k], node_parent[k]
            new_table, old_table = table_start[k], table_start[k]
            if parent >= 0:
                new_table += new[parent] * sizes[i]
                old_table += rows[r, parent] * sizes[i]
            u = uniform(key, r, k + 1)
            low, high = 0, sizes[i] - 1
            while low < high:
                middle = (low + high) // 2
                if cumulative[new_table + middle] > u:
                    high = middle
                else:
                    low = middle + 1
            new[i] = low
            old = rows[r, i]
            ratio *= probability[old_table + old] / probability[new_table + low]
            ratio *= singles[single_start[i] + low] / singles[single_start[i] + old]
            if not 1e-100 < ratio < 1e100:
                log_ratio += np.log(max(ratio, 1e-300))
                ratio = 1.0
        for k in range(first, node_end[first]):
            i = node_attribute[k]
            if new[i] == rows[r, i]:
                continue
            for e in range(start[i], start[i + 1]):
                old_cell, new_cell = offset[e] + rows[r, i], offset[e] + new[i]
                counted = False
                for m in range(other.shape[1]):
                    j = other[e, m]
                    # A clique that several changed attributes share counts at the first of them.
                    if stride[e, m] > 0 and j < i and new[j] != rows[r, j]:
                        counted = True
                        break
                    old_cell += rows[r, j] * stride[e, m]
                    new_cell += new[j] * stride[e, m]
                if not counted:
                    ratio *= np.float64(packed[new_cell]) / packed[old_cell]
                    if not 1e-100 < ratio < 1e100:
                        log_ratio += np.log(max(ratio, 1e-300))
                        ratio = 1.0
        if np.log(max(uniform(key, r, d + 1), 1e-300)) < log_ratio + np.log(max(ratio, 1e-300)):
            for i in range(d):
                rows[r, i] = new[i]
