"""Parts of queries against explicit Kronecker matrices: He et al., equation 3."""

from functools import reduce
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_qs.workload.axis_queries import Circular, Marginal, Prefix, Range
from adaptive_qs.workload.centered import CenteredAxis, CenteredJoint, centered_part, squared_mean
from adaptive_qs.workload.joint_queries import AbsDiff, Affine
from adaptive_qs.workload.matrix_queries import Custom, CustomAxis
from adaptive_qs.workload.random_queries import Random

from .families import AXIS, JOINT, identity_of, numbers

ROUNDING = 1e-12


def explicit_part(queries, kept):
    """Q ⊗_i (Π_i if kept, the mean otherwise)."""
    along = [
        np.eye(n) - 1 / n if axis in kept else np.full((n, 1), 1 / n)
        for axis, n in enumerate(queries.shape)
    ]
    return queries.matrix() @ reduce(np.kron, along)


def subsets(queries):
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


@pytest.mark.parametrize("queries", AXIS, ids=identity_of)
def test_the_centered_part_of_one_attribute(queries):
    assert_is_part(CenteredAxis(queries), explicit_part(queries, (0,)), queries.shape)


@pytest.mark.parametrize("queries", AXIS + JOINT, ids=identity_of)
def test_every_part_of_joint_queries(queries):
    for kept in subsets(queries):
        shape = tuple(queries.shape[axis] for axis in kept)
        assert_is_part(centered_part(queries, kept), explicit_part(queries, kept), shape)


@pytest.mark.parametrize("queries", AXIS + JOINT, ids=identity_of)
def test_what_is_left_when_no_axis_is_kept(queries):
    mean = queries.matrix().mean(axis=1)
    assert squared_mean(queries) == pytest.approx((mean**2).sum(), rel=ROUNDING)


joint = st.one_of(
    st.builds(Affine, st.integers(1, 6), st.integers(1, 6)),
    st.builds(AbsDiff, st.integers(1, 6), st.integers(1, 6)),
    st.builds(
        Random,
        st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
        st.floats(0.1, 1),
        st.none() | st.integers(1, 20),
        st.integers(0, 9),
    ),
    st.builds(
        lambda shape, rows, seed: Custom(numbers(rows, int(np.prod(shape)), seed), shape),
        st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
        st.integers(1, 20),
        st.integers(0, 9),
    ),
)


@settings(deadline=None)
@given(joint)
def test_the_parts_add_up_to_the_queries(queries):
    """The residual spaces are orthogonal: QᵀQ restricted to them loses nothing of its trace."""
    whole = (queries.matrix() ** 2).sum()
    total = squared_mean(queries) * queries.matrix().shape[1]
    for kept in subsets(queries):
        part = centered_part(queries, kept)
        dropped = queries.matrix().shape[1] // np.prod(part.shape)
        total += np.trace(part.gram()) * dropped
        shape = tuple(queries.shape[axis] for axis in kept)
        assert_is_part(part, explicit_part(queries, kept), shape)
    assert total == pytest.approx(whole, rel=1e-9)


@given(st.sampled_from([Marginal, Prefix, Range, Circular]), st.integers(1, 12))
def test_families_of_one_attribute_at_any_size(family, n):
    queries = family(n)
    assert_is_part(CenteredAxis(queries), explicit_part(queries, (0,)), (n,))
    assert squared_mean(queries) == pytest.approx((queries.matrix().mean(axis=1) ** 2).sum())


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_circular_parts_are_circulant(n):
    part = CenteredAxis(Circular(n))
    row = part.circulant()
    gram = part.gram()
    for shift in range(n):
        np.testing.assert_allclose(gram[shift], np.roll(row, shift), atol=1e-12 * n**2)
    assert CenteredAxis(Range(n)).circulant() is None


def test_circulant_rows_need_no_matrix():
    row = CenteredAxis(Circular(10_000)).circulant()
    assert abs(row.sum()) <= 1e-16 * 10_000 * np.abs(row).sum()


def test_equal_parts_are_equal_values():
    eye = np.eye(3)
    assert len({CenteredAxis(CustomAxis(eye)), CenteredAxis(CustomAxis(eye.tolist()))}) == 1
    assert CenteredAxis(Prefix(3)) != CenteredAxis(Range(3))
    assert centered_part(Affine(2, 3), (1,)) == CenteredJoint(Affine(2, 3), (1,))
    assert centered_part(Affine(2, 3), (1,)) != centered_part(Affine(2, 3), (0, 1))


@pytest.mark.parametrize("kept", [(), (2,), (1, 0), (0, 0), (-1,)])
def test_axes_that_cannot_be_kept(kept):
    with pytest.raises(ValueError, match="kept axes"):
        CenteredJoint(Affine(2, 3), kept)


@pytest.mark.parametrize(("n", "published"), [(10, 39.77), (20, 63.01), (30, 79.14)])
def test_circular_parts_give_the_published_errors(n, published):
    """He et al., table 4: the optimum for circulant Grams is (Σ√λ)²/n on each residual."""
    d, pairs = 40, 780
    part, mean = CenteredAxis(Circular(n)), squared_mean(Circular(n))
    eigenvalues = np.fft.fft(part.circulant()).real.clip(0)
    s = np.sqrt(eigenvalues).sum() / np.sqrt(n)
    roots = np.sqrt(d * mean + pairs * mean**2) + d * np.sqrt(1 + (d - 1) * mean) * s + pairs * s**2
    num_queries = d * n**2 + pairs * n**4
    assert roots / np.sqrt(num_queries) == pytest.approx(published, abs=0.005)
