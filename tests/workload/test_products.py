"""Products of queries against their Kronecker products."""

from functools import reduce

import numpy as np
import pytest

from adaptive_qs.workload.axis_queries import Circular, Marginal, Prefix, Range
from adaptive_qs.workload.joint_queries import Affine
from adaptive_qs.workload.matrix_queries import CustomAxis
from adaptive_qs.workload.products import (
    answer_product,
    count_queries,
    squares_product,
)

RNG = np.random.default_rng(0)
QUERIES = {
    "one": (Range(4),),
    "two": (Prefix(3), Marginal(4)),
    "three": (Range(3), CustomAxis(RNG.normal(size=(2, 4))), Circular(2)),
    "joint": (Affine(3, 4),),
    "none": (),
}


def dense(queries):
    return reduce(np.kron, [q.matrix() for q in queries], np.eye(1))


def shape(queries):
    return tuple(n for q in queries for n in q.shape)


@pytest.mark.parametrize("name", QUERIES)
def test_answers_are_those_of_the_kronecker_product(name):
    queries = QUERIES[name]
    table = RNG.normal(size=shape(queries))
    found = answer_product(queries, table)
    assert found.shape == tuple(q.num_queries for q in queries)
    assert count_queries(queries) == found.size
    np.testing.assert_allclose(found.ravel(), dense(queries) @ table.ravel(), atol=1e-12)


@pytest.mark.parametrize("name", ["one", "two", "three"])
def test_variances_are_those_of_the_kronecker_product(name):
    queries = QUERIES[name]
    sizes = shape(queries)
    cells = int(np.prod(sizes))
    root = RNG.normal(size=(cells, cells))
    covariance = root @ root.T
    for summed in range(-1, len(queries)):
        asked = tuple(None if axis == summed else q for axis, q in enumerate(queries))
        matrices = [np.ones((1, n)) if q is None else q.matrix() for q, n in zip(asked, sizes)]
        matrix = reduce(np.kron, matrices)
        expected = np.diag(matrix @ covariance @ matrix.T)
        found = squares_product(asked, covariance.reshape(sizes + sizes))
        assert found.shape == tuple(q.num_queries for q in asked if q is not None)
        np.testing.assert_allclose(found.ravel(), expected, rtol=1e-10)


def test_a_joint_family_on_some_axes_is_a_mistake():
    with pytest.raises(ValueError, match="covers all axes"):
        answer_product((Affine(3, 4), Prefix(2)), np.zeros((3, 4, 2)))


def test_numbers_of_queries_do_not_overflow():
    assert count_queries([Range(2000)] * 8) == (2000 * 2001 // 2) ** 8
