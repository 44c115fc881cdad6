"""Offsets and strides against np.ravel_multi_index, for both layouts."""

import numpy as np
import pytest

from adaptive_qs.synthesis.adjacency import build_adjacency

from .helpers import domain_of

DOMAIN = domain_of(2, 3, 1, 4, 5)
CLIQUES = [(0, 1), (1, 3, 4), (2, 3), (0, 1, 2, 4), (4,)]


def cell(adjacency, entry, row, value):
    """The cell a kernel reads for an entry when the attribute has this value."""
    base = adjacency.offset[entry] + row[adjacency.other[entry]] @ adjacency.stride[entry]
    return base + value * adjacency.own_stride[entry]


@pytest.mark.parametrize("copy_per_axis", [False, True])
def test_every_entry_points_at_the_cell_of_its_clique(copy_per_axis):
    adjacency = build_adjacency(DOMAIN, CLIQUES, copy_per_axis)
    rng = np.random.default_rng(0)
    for _ in range(20):
        row = np.array([rng.integers(n) for n in DOMAIN.sizes])
        for i in range(len(DOMAIN)):
            entries = range(adjacency.start[i], adjacency.start[i + 1])
            around = [k for k, clique in enumerate(CLIQUES) if i in clique]
            assert len(entries) == len(around)
            for entry, k in zip(entries, around):
                clique = CLIQUES[k]
                begin = adjacency.position[k]
                order = clique
                if copy_per_axis:
                    begin += clique.index(i) * DOMAIN.size(clique)
                    order = (*(j for j in clique if j != i), i)
                for value in range(DOMAIN.sizes[i]):
                    moved = row.copy()
                    moved[i] = value
                    index = np.ravel_multi_index(moved[list(order)], DOMAIN.shape(order))
                    assert cell(adjacency, entry, row, value) == begin + index


@pytest.mark.parametrize("copy_per_axis", [False, True])
def test_tables_lie_one_after_the_other(copy_per_axis):
    adjacency = build_adjacency(DOMAIN, CLIQUES, copy_per_axis)
    lengths = [DOMAIN.size(c) * (len(c) if copy_per_axis else 1) for c in CLIQUES]
    assert adjacency.position == tuple(np.cumsum([0, *lengths[:-1]]))
    assert adjacency.cells == sum(lengths)


def test_with_copies_the_values_of_an_attribute_are_consecutive():
    assert set(build_adjacency(DOMAIN, CLIQUES, copy_per_axis=True).own_stride) == {1}


@pytest.mark.parametrize("copy_per_axis", [False, True])
def test_no_cliques_is_an_empty_structure(copy_per_axis):
    adjacency = build_adjacency(DOMAIN, [], copy_per_axis)
    assert adjacency.cells == 0
    assert adjacency.position == ()
    assert not adjacency.start.any()
    assert adjacency.start.size == len(DOMAIN) + 1
