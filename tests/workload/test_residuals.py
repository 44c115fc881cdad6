"""Parts of queries against explicit Kronecker matrices: He et al., equation 3."""

from __future__ import annotations

import math
from functools import reduce
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.domain import Domain, subsets
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.workload import residuals as module
from adaptive_qs.workload.axes import AbsDiff, Affine, Circular, Marginal, Prefix, Range
from adaptive_qs.workload.matrices import Custom, CustomAxis
from adaptive_qs.workload.residuals import (
    CenteredAxis,
    CenteredQueries,
    decompose_workload,
    squared_mean,
)
from adaptive_qs.workload.workload import QueryPart, QueryWorkload

from .families import AXIS, JOINT, identity_of, numbers

ROUNDING = 1e-12


def explicit_part(queries, kept):
    """Q ⊗_i (Π_i if kept, the mean otherwise)."""
    along = [
        np.eye(n) - 1 / n if axis in kept else np.full((n, 1), 1 / n)
        for axis, n in enumerate(queries.shape)
    ]
    return queries.matrix() @ reduce(np.kron, along)


def all_subsets(queries):
    axes = range(len(queries.shape))
    return [kept for k in range(1, len(axes) + 1) for kept in combinations(axes, k)]


def assert_is_part(part, slow, shape):
    gram = part.gram()
    scale = ROUNDING * max(1.0, np.abs(slow).max() ** 2 * len(slow))
    assert part.shape == shape
    np.testing.assert_allclose(gram, slow.T @ slow, rtol=0, atol=scale)
    assert (gram == gram.T).all()
    for axis in range(len(shape)):
        along = gram.reshape(*shape, -1).sum(axis=axis)
        np.testing.assert_allclose(along, 0, atol=10 * scale)
    if slow.shape[0] < slow.shape[1]:
        np.testing.assert_allclose(part.rows(), slow, rtol=0, atol=scale)
    else:
        assert part.rows() is None


@pytest.mark.parametrize("queries", AXIS + JOINT, ids=identity_of)
def test_every_part_of_queries(queries):
    for kept in all_subsets(queries):
        shape = tuple(queries.shape[axis] for axis in kept)
        assert_is_part(CenteredQueries(queries, kept), explicit_part(queries, kept), shape)
    if len(queries.shape) == 1:
        assert_is_part(CenteredAxis(queries), explicit_part(queries, (0,)), queries.shape)
    mean = queries.matrix().mean(axis=1)  # what is left when no axis is kept
    assert squared_mean(queries) == pytest.approx((mean**2).sum(), rel=ROUNDING)


seeds = st.integers(0, 9)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_circular_parts_are_circulant(n):
    row, gram = CenteredAxis(Circular(n)).circulant(), CenteredAxis(Circular(n)).gram()
    for shift in range(n):
        np.testing.assert_allclose(gram[shift], np.roll(row, shift), atol=1e-12 * n**2)
    assert CenteredAxis(Range(n)).circulant() is None
    row = CenteredAxis(Circular(10_000)).circulant()  # without a matrix
    assert abs(row.sum()) <= 1e-16 * 10_000 * np.abs(row).sum()


@pytest.mark.parametrize("kept", [(), (2,), (1, 0), (0, 0), (-1,)])
def test_axes_that_cannot_be_kept(kept):
    with pytest.raises(ValueError, match="kept axes"):
        CenteredQueries(Affine(2, 3), kept)


# Decomposition against explicit matrices: He et al., equation 3, written out.

FAMILIES = (Marginal, Prefix, Range, Circular)


def product(cliques, axis, weights=None, joint=None):
    weights = np.ones(len(cliques)) if weights is None else np.array(weights, dtype=float)
    return QueryPart(np.array(cliques, np.int32), axis, joint, weights)


def jointly(cliques, asked, weights=None):
    return product(cliques, {}, weights, tuple(asked))


def workload(sizes, *parts):
    return QueryWorkload(Domain.from_sizes({f"a{i}": n for i, n in enumerate(sizes)}), parts)


def subqueries(matrix, shape, kept):
    """The queries, as they act on the marginal over the kept axes, with their means removed."""
    cells = matrix.reshape(-1, *shape)
    for axis in range(len(shape)):
        mean = cells.mean(axis=axis + 1, keepdims=True)
        cells = cells - mean if axis in kept else np.repeat(mean, shape[axis], axis + 1)
    return cells.reshape(matrix.shape)


def brute_force(asked):
    """Gram matrix of every residual space, summed over all sets that contain it."""
    grams = {}
    sizes = asked.domain.sizes
    for part in asked.parts:
        for index, clique in enumerate(part.cliques.tolist()):
            matrix = reduce(np.kron, [q.matrix() for q in part.queries(index)], np.eye(1))
            shape = tuple(sizes[i] for i in clique)
            for kept in subsets(tuple(range(len(clique)))):
                rows = subqueries(matrix, shape, kept).reshape(-1, *shape)
                first = (slice(None) if a in kept else 0 for a in range(len(shape)))
                rows = rows[(slice(None), *first)].reshape(len(matrix), -1)
                residual = tuple(clique[a] for a in kept)
                grams[residual] = grams.get(residual, 0) + part.weights[index] * rows.T @ rows
    return {r: gram for r, gram in grams.items() if np.trace(gram) > 1e-12}


def check(asked):
    found = decompose_workload(asked)
    expected = brute_force(asked)
    assert set(found.residuals) == set(expected)
    assert list(found.residuals) == sorted(found.residuals, key=lambda r: (len(r), r))
    for residual, number, scale in zip(found.residuals, found.class_of, found.scales):
        subworkload = found.subworkloads[number]
        assert subworkload.shape == asked.domain.shape(residual)
        assert subworkload.terms[0].scale == 1.0
        gram = expected[residual]
        size = np.trace(gram)
        np.testing.assert_allclose(scale * subworkload.gram(), gram, rtol=0, atol=1e-12 * size)
    for part, inside in zip(asked.parts, found.inside):
        assert inside.shape == (len(part), 2**part.degree)
        for clique, row in zip(part.cliques.tolist(), inside):
            for mask, position in enumerate(row):
                residual = tuple(i for k, i in enumerate(clique) if mask >> k & 1)
                if position >= 0:
                    assert found.residuals[position] == residual
    return found


WORKLOADS = {
    "one family": workload(
        (3, 4, 2), product([(0, 1), (1, 2)], {0: Prefix(3), 1: Range(4), 2: Marginal(2)})
    ),
    "several parts": workload(
        (3, 4, 2),
        product([(0,), (1,)], {0: Marginal(3), 1: Prefix(4)}, [2, 0.5]),
        product([(0, 1), (0, 2), (1, 2)], {0: Range(3), 1: Prefix(4), 2: Marginal(2)}, [1, 3, 0.1]),
        product([(0, 1, 2)], {0: Circular(3), 1: Marginal(4), 2: Prefix(2)}),
    ),
    "sizes of one": workload(
        (1, 3, 1), product([(0, 1), (0, 2), (1, 2)], {0: Marginal(1), 1: Range(3), 2: Prefix(1)})
    ),
    "joint": workload((3, 4, 3), jointly([(0, 1), (0, 2)], [Affine(3, 4), AbsDiff(3, 3)], [1, 5])),
    "joint and products": workload(
        (3, 4),
        jointly([(0, 1)], [AbsDiff(3, 4)], [2]),
        product([(0, 1)], {0: Prefix(3), 1: Prefix(4)}),
        jointly([(0, 1)], [Custom(numbers(3, 12), (3, 4))]),
    ),
    "few custom": workload(
        (4, 5),
        product(
            [(0, 1)] * 2, {0: CustomAxis(numbers(2, 4)), 1: CustomAxis(numbers(3, 5, 1))}, [1, 2]
        ),
    ),
    "contrasts": workload(
        (3, 4), product([(0, 1)], {0: CustomAxis([[0.1, 0.2, -0.3]]), 1: Prefix(4)})
    ),
    "constants": workload(
        (3, 4), product([(0, 1)], {0: CustomAxis([[0.7, 0.7, 0.7]]), 1: Prefix(4)})
    ),
    "joint contrasts": workload(
        (2, 2), jointly([(0, 1)], [Custom([[0.3, -0.3, -0.3, 0.3]], (2, 2))])
    ),
    "joint of degree one": workload((4,), jointly([(0,)], [Custom(numbers(6, 4), (4,))])),
    "joint of degree three": workload(
        (2, 3, 2), jointly([(0, 1, 2)], [Custom(numbers(4, 12), (2, 3, 2))])
    ),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_subworkloads_match_the_explicit_matrices(name):
    check(WORKLOADS[name])


@st.composite
def small_workloads(draw):
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        degree = draw(st.integers(1, len(sizes)))
        sets = list(combinations(range(len(sizes)), degree))
        chosen = draw(st.lists(st.sampled_from(sets), min_size=1, max_size=3))
        weights = draw(st.lists(st.floats(0.01, 100), min_size=len(chosen), max_size=len(chosen)))
        given = lambda n: CustomAxis(numbers(draw(st.integers(1, 3)), n, draw(seeds)))  # noqa: E731
        family = lambda n: draw(st.sampled_from(FAMILIES))(n)  # noqa: E731
        axis = {i: (family if draw(st.booleans()) else given)(n) for i, n in enumerate(sizes)}
        if draw(st.booleans()):
            parts.append(product(chosen, axis, weights))
        else:
            shapes = [tuple(sizes[i] for i in row) for row in chosen]
            asked = [Custom(numbers(2, math.prod(shape), 3), shape) for shape in shapes]
            parts.append(jointly(chosen, asked, weights))
    return workload(sizes, *parts)


@given(small_workloads())
def test_any_small_workload_matches_the_explicit_matrices(asked):
    check(asked)


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_attributes_share_their_classes(family):
    cliques = list(combinations(range(20), 3))
    axis = {i: family(4) for i in range(20)}
    found = decompose_workload(workload((4,) * 20, product(cliques, axis)))
    assert len(found.class_of) == len(found.scales) == len(found.residuals)
    assert (found.scales > 0).all()
    assert len(found.subworkloads) == 4
    assert len(found.residuals) == 1 + 20 + 190 + 1140
    for number, subworkload in enumerate(found.subworkloads):
        members = [r for r, c in zip(found.residuals, found.class_of) if c == number]
        assert {len(r) for r in members} == {len(subworkload.shape)}


def test_a_small_mean_is_no_rounding():
    axis = {0: CustomAxis([[1, -1 + 1e-9]])}
    assert () in decompose_workload(workload((2,), product([(0,)], axis))).residuals


def test_zero_queries_and_too_many_subsets_are_refused(monkeypatch):
    asked = workload((3,), product([(0,)], {0: CustomAxis([[0, 0, 0]])}))
    with pytest.raises(WorkloadError, match="every query of the workload is zero"):
        decompose_workload(asked)
    monkeypatch.setattr("adaptive_qs.workload.workload.MAX_INCIDENCES", 7)
    with pytest.raises(ResourceExceeded, match="8 subsets together, more than 7"):
        workload((2, 2, 2), product([(0, 1, 2)], {i: Prefix(2) for i in range(3)}))


@pytest.mark.parametrize("queries", [Affine(10_000, 10_000), AbsDiff(500, 500)])
def test_comparisons_of_more_values_than_fit_are_refused_before_they_are_made(queries):
    with pytest.raises(ResourceExceeded, match="coefficients, more than 100,000,000: use fewer"):
        decompose_workload(workload(queries.shape, jointly([(0, 1)], [queries])))


def test_rows_are_told_apart_where_codes_would_overflow():
    rows = np.array([[2**30, 5, 7], [2**30, 5, 8], [-1, 5, 7], [2**30, 5, 7]], dtype=np.int64)
    found, position = module._unique_rows(rows)
    assert found[position].tolist() == rows.tolist()
    assert len(found) == 3
