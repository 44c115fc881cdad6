"""Many cliques at once: their closure, where each of them lies, and runs of them that fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, subsets
from adaptive_qs.errors import ResourceExceeded

MOST_SUBSETS = 2**21
"""Marginals inside those of a workload, each counted once; a workload lists a million at most."""


def downward_closure(cliques: Iterable[Clique]) -> tuple[Clique, ...]:
    """Every subset of every clique, without repeats, ordered by size and then by attribute.

    Raises:
        ResourceExceeded: they are more than ``MOST_SUBSETS``.
    """
    given: dict[int, list[Clique]] = {}
    for clique in cliques:
        given.setdefault(len(clique), []).append(clique)
    if not given:
        return ()
    closure: list[Clique] = []
    above = np.empty((0, max(given) + 1), dtype=np.int64)
    for degree in range(max(given), 0, -1):
        listed = given.get(degree, [])
        found = np.array(listed, dtype=np.int64).reshape(len(listed), degree)
        for axis in range(degree + 1):
            found = distinct(np.concatenate([found, np.delete(above, axis, axis=1)]))
            if len(closure) + len(found) > MOST_SUBSETS:
                raise ResourceExceeded(
                    f"the marginals asked for contain more than {MOST_SUBSETS:,} smaller ones: ask "
                    "for marginals of fewer columns"
                )
        above = found
        closure[:0] = map(tuple, above.tolist())
    return ((), *closure)


def distinct(cliques: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cliques of equally many attributes, shape (cliques, degree), each once, in order."""
    base, most = int(cliques.max(initial=0)) + 1, 1
    keys = np.zeros(len(cliques), dtype=np.int64)
    for column in cliques.T:
        if most * base > 2**62:  # the ranks of what was read take the place of the digits
            keys = np.unique(keys, return_inverse=True)[1].ravel()
            most = len(cliques)
        keys, most = keys * base + column, most * base
    return cliques[np.unique(keys, return_index=True)[1]]


def batches(sizes: Sequence[int], most_cells: int, most: int | None = None) -> Iterator[slice]:
    """Cliques of these sizes in runs of at most so many cells, unless one alone has more, and of at
    most so many cliques."""
    first = cells = 0
    for end, size in enumerate(sizes):
        if end > first and (cells + size > most_cells or end - first == most):
            yield slice(first, end)
            first, cells = end, 0
        cells += size
    if first < len(sizes):
        yield slice(first, len(sizes))


class CliqueIndex:
    """Where cliques stand in a list, found for many at once.

    Args:
        positions: number of positions that may be in a clique.
        listed: cliques, by how many attributes they have; those of more than
            ``62 / log2(positions)`` attributes with all their subsets, in the order of
            :func:`downward_closure`.
    """

    def __init__(self, positions: int, listed: Iterable[Clique]) -> None:
        self._base = positions
        self._place: dict[int, NDArray[np.int64]] = {}
        self._keys: dict[int, NDArray[np.int64]] = {}
        start = 0
        for degree, group in groupby(listed, key=len):
            alike = list(group)
            keys = self._key(np.array(alike, dtype=np.int64).reshape(len(alike), degree))
            order = np.argsort(keys, kind="stable")
            self._keys[degree], self._place[degree] = keys[order], start + order
            start += len(alike)

    def positions(self, cliques: NDArray[np.integer]) -> NDArray[np.int64]:
        """Positions of cliques of equally many attributes, shape (cliques, degree), in the list."""
        degree = cliques.shape[1]
        ranks = np.searchsorted(self._keys[degree], self._key(cliques.astype(np.int64)))
        return self._place[degree][ranks]

    def of_subsets(self, cliques: NDArray[np.integer]) -> NDArray[np.int64]:
        """Positions of all their subsets, in the order of :func:`subsets`: (cliques, 2**degree)."""
        axes = subsets(tuple(range(cliques.shape[1])))
        return np.stack([self.positions(cliques[:, list(some)]) for some in axes], axis=1)

    def _key(self, cliques: NDArray[np.int64]) -> NDArray[np.int64]:
        """A number for each clique: its positions as digits, or, where these would be too many,
        the rank of the clique without its last attribute, and that."""
        fits = self._base ** cliques.shape[1] < 2**62
        key = np.zeros(len(cliques), dtype=np.int64)
        for axis in range(cliques.shape[1]):
            rank = key if fits else np.searchsorted(self._keys[axis], key)
            key = rank * self._base + cliques[:, axis]
        return key
