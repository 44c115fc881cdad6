"""Decomposition against explicit matrices: He et al., equation 3, written out."""

from functools import reduce
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.domain import Domain, subsets
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.workload import decomposition as module
from adaptive_qs.workload.axis_queries import Circular, Marginal, Prefix, Range
from adaptive_qs.workload.decomposition import decompose_workload
from adaptive_qs.workload.joint_queries import AbsDiff, Affine
from adaptive_qs.workload.matrix_queries import Custom, CustomAxis
from adaptive_qs.workload.query_workload import QueryPart, QueryWorkload

FAMILIES = (Marginal, Prefix, Range, Circular)


def numbers(rows, cells, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, cells))


def product(cliques, axis, weights=None):
    weights = np.ones(len(cliques)) if weights is None else np.array(weights, dtype=float)
    return QueryPart(np.array(cliques, np.int32), axis, None, weights)


def joint(cliques, asked, weights=None):
    weights = np.ones(len(cliques)) if weights is None else np.array(weights, dtype=float)
    return QueryPart(np.array(cliques, np.int32), {}, tuple(asked), weights)


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
                rows = rows[
                    (slice(None), *(slice(None) if a in kept else 0 for a in range(len(shape))))
                ]
                rows = rows.reshape(len(matrix), -1)
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
    "joint": workload((3, 4, 3), joint([(0, 1), (0, 2)], [Affine(3, 4), AbsDiff(3, 3)], [1, 5])),
    "joint and products": workload(
        (3, 4),
        joint([(0, 1)], [AbsDiff(3, 4)], [2]),
        product([(0, 1)], {0: Prefix(3), 1: Prefix(4)}),
        joint([(0, 1)], [Custom(numbers(3, 12), (3, 4))]),
    ),
    "few custom": workload(
        (4, 5),
        product(
            [(0, 1), (0, 1)],
            {0: CustomAxis(numbers(2, 4)), 1: CustomAxis(numbers(3, 5, 1))},
            [1, 2],
        ),
    ),
    "contrasts": workload(
        (3, 4), product([(0, 1)], {0: CustomAxis([[0.1, 0.2, -0.3]]), 1: Prefix(4)})
    ),
    "constants": workload(
        (3, 4), product([(0, 1)], {0: CustomAxis([[0.7, 0.7, 0.7]]), 1: Prefix(4)})
    ),
    "joint contrasts": workload(
        (2, 2), joint([(0, 1)], [Custom([[0.3, -0.3, -0.3, 0.3]], (2, 2))])
    ),
    "joint of degree one": workload((4,), joint([(0,)], [Custom(numbers(6, 4), (4,))])),
    "joint of degree three": workload(
        (2, 3, 2), joint([(0, 1, 2)], [Custom(numbers(4, 12), (2, 3, 2))])
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
        axis = {
            i: draw(st.sampled_from(FAMILIES))(n)
            if draw(st.booleans())
            else CustomAxis(numbers(draw(st.integers(1, 3)), n, draw(st.integers(0, 9))))
            for i, n in enumerate(sizes)
        }
        if draw(st.booleans()):
            parts.append(product(chosen, axis, weights))
        else:
            shapes = [tuple(sizes[i] for i in row) for row in chosen]
            asked = [Custom(numbers(2, int(np.prod(shape)), 3), shape) for shape in shapes]
            parts.append(joint(chosen, asked, weights))
    return workload(sizes, *parts)


@given(small_workloads())
def test_any_small_workload_matches_the_explicit_matrices(asked):
    check(asked)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_pieces_of_a_query_add_up_to_it(name):
    asked = WORKLOADS[name]
    found = decompose_workload(asked)
    for part, inside in zip(asked.parts, found.inside):
        for index, clique in enumerate(part.cliques.tolist()):
            shape = asked.domain.shape(tuple(clique))
            matrix = reduce(np.kron, [q.matrix() for q in part.queries(index)], np.eye(1))
            total = np.zeros_like(matrix)
            for mask in np.flatnonzero(inside[index] >= 0):
                kept = [k for k in range(part.degree) if mask >> k & 1]
                total += subqueries(matrix, shape, kept)
            np.testing.assert_allclose(total, matrix, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_attributes_share_their_classes(family):
    sizes, ways = (4,) * 20, 3
    cliques = list(combinations(range(20), ways))
    found = check_counts(workload(sizes, product(cliques, {i: family(4) for i in range(20)})))
    assert len(found.subworkloads) == ways + 1
    assert len(found.residuals) == 1 + 20 + 190 + 1140
    for number in range(ways + 1):
        degree = len(found.subworkloads[number].shape)
        assert {len(r) for r, c in zip(found.residuals, found.class_of) if c == number} == {degree}


def check_counts(asked):
    found = decompose_workload(asked)
    assert len(found.class_of) == len(found.scales) == len(found.residuals)
    assert (found.scales > 0).all()
    return found


def test_attributes_of_other_sizes_or_families_have_their_own_classes():
    axis = {0: Prefix(4), 1: Prefix(4), 2: Prefix(5), 3: Range(4)}
    found = decompose_workload(
        workload((4, 4, 5, 4), product(list(combinations(range(4), 2)), axis))
    )
    number = dict(zip(found.residuals, found.class_of))
    assert number[0,] == number[1,]
    assert len({number[0,], number[2,], number[3,]}) == 3
    assert number[0, 2] == number[1, 2]
    assert number[0, 3] == number[1, 3] != number[0, 1]


def test_a_common_scale_does_not_make_a_class():
    axis = {i: Prefix(3) for i in range(4)}
    found = decompose_workload(workload((3,) * 4, product([(0, 1), (2, 3)], axis, [1, 1 / 3])))
    number = dict(zip(found.residuals, found.class_of))
    scale = dict(zip(found.residuals, found.scales))
    assert number[0, 1] == number[2, 3]
    assert scale[0, 1] == pytest.approx(3 * scale[2, 3], rel=1e-12)


def test_other_ratios_of_the_same_terms_are_other_classes():
    axis, joints = {i: Prefix(3) for i in range(4)}, [AbsDiff(3, 3)] * 2
    parts = product([(0, 1), (2, 3)], axis), joint([(0, 1), (2, 3)], joints, [1, 2])
    found = decompose_workload(workload((3,) * 4, *parts))
    number = dict(zip(found.residuals, found.class_of))
    assert number[0, 1] != number[2, 3]


def test_sets_without_part_in_a_residual_are_marked():
    found = decompose_workload(WORKLOADS["sizes of one"])
    assert set(found.residuals) == {(), (1,)}
    assert sorted(np.unique(found.inside[0]).tolist()) == [-1, 0, 1]


def test_queries_that_sum_to_zero_do_not_ask_for_the_total():
    assert set(decompose_workload(WORKLOADS["contrasts"]).residuals) == {(0,), (0, 1)}
    assert set(decompose_workload(WORKLOADS["joint contrasts"]).residuals) == {(0, 1)}


def test_a_small_mean_is_no_rounding():
    axis = {0: CustomAxis([[1, -1 + 1e-9]])}
    assert () in decompose_workload(workload((2,), product([(0,)], axis))).residuals


def test_zero_queries_are_refused():
    asked = workload((3,), product([(0,)], {0: CustomAxis([[0, 0, 0]])}))
    with pytest.raises(WorkloadError, match="every query of the workload is zero"):
        decompose_workload(asked)


def test_too_many_subsets_are_refused(monkeypatch):
    monkeypatch.setattr(module, "MAX_INCIDENCES", 7)
    with pytest.raises(ResourceExceeded, match="8 subsets together, more than 7"):
        decompose_workload(
            workload((2, 2, 2), product([(0, 1, 2)], {i: Prefix(2) for i in range(3)}))
        )


def test_rows_are_told_apart_where_codes_would_overflow():
    rows = np.array([[2**30, 5, 7], [2**30, 5, 8], [-1, 5, 7], [2**30, 5, 7]], dtype=np.int64)
    found, position = module._unique_rows(rows)
    assert found[position].tolist() == rows.tolist()
    assert len(found) == 3
