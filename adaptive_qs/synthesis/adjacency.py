"""Which cells of which clique tables a change of one attribute touches, as flat arrays.

Compiled kernels walk this structure: for attribute i, entries ``start[i] : start[i+1]``; for
entry e, the table segment begins at ``offset[e] + Σ_k row[other[e, k]] · stride[e, k]`` and
value v of attribute i lies ``v · own_stride[e]`` further on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Adjacency:
    """Flat description of the clique tables around each attribute.

    Attributes:
        start: (attributes + 1,) first entry of each attribute.
        offset: (entries,) where the entry's table begins in the flat buffer.
        other: (entries, m) the clique's other attributes, padded with 0.
        stride: (entries, m) their strides, padded with 0.
        own_stride: (entries,) stride of the attribute itself.
        position: for each clique, where its table begins; with one copy per axis, the first.
        cells: length of the flat buffer.
    """

    start: Integers
    offset: Integers
    other: Integers
    stride: Integers
    own_stride: Integers
    position: tuple[int, ...]
    cells: int


def build_adjacency(domain: Domain, cliques: Sequence[Clique], copy_per_axis: bool) -> Adjacency:
    """Lay out the tables of ``cliques`` one after the other in a flat buffer.

    Args:
        domain: the attributes.
        cliques: the tables.
        copy_per_axis: store each table once per attribute, with that attribute's axis moved to
            the end (so that a kernel reads all its values from consecutive memory), instead of
            once in its natural order.
    """
    entries: list[list[tuple[int, list[int], list[int], int]]] = [[] for _ in domain.sizes]
    position, cells = [], 0
    width = max((len(c) - 1 for c in cliques), default=0)
    for clique in cliques:
        position.append(cells)
        shape = domain.shape(clique)
        for axis, attribute in enumerate(clique):
            others = [i for i in clique if i != attribute]
            if copy_per_axis:
                moved = [*others, attribute]
                strides = _strides([domain.sizes[i] for i in moved])
                entries[attribute].append((cells, others, strides[:-1], 1))
                cells += domain.size(clique)
            else:
                strides = _strides(shape)
                rest = [s for k, s in enumerate(strides) if k != axis]
                entries[attribute].append((cells, others, rest, strides[axis]))
        if not copy_per_axis:
            cells += domain.size(clique)
    flat = [entry for per_attribute in entries for entry in per_attribute]
    other = np.zeros((len(flat), width), dtype=np.int64)
    stride = np.zeros((len(flat), width), dtype=np.int64)
    for row, (_, attributes, strides, _) in enumerate(flat):
        other[row, : len(attributes)] = attributes
        stride[row, : len(strides)] = strides
    return Adjacency(
        start=np.cumsum([0, *(len(e) for e in entries)]),
        offset=np.array([e[0] for e in flat], dtype=np.int64),
        other=other,
        stride=stride,
        own_stride=np.array([e[3] for e in flat], dtype=np.int64),
        position=tuple(position),
        cells=cells,
    )


def _strides(shape: Sequence[int]) -> list[int]:
    strides = [1]
    for n in reversed(shape[1:]):
        strides.append(strides[-1] * n)
    return strides[::-1]
