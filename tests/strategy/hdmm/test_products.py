"""Workloads as unions of products."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.strategy.hdmm.products import product_workload
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.workload.axis_queries import Marginal, Prefix
from adaptive_qs.workload.joint_queries import Affine
from adaptive_qs.workload.query_workload import QueryPart, QueryWorkload

from .helpers import marginals, mixed, set_gram, workload


def test_every_set_has_its_queries_and_the_total_elsewhere():
    products = mixed()
    p, m, t = np.tril(np.ones((4, 4))), np.eye(3), np.ones((1, 5))
    first = np.kron(np.kron(p, m), t)
    np.testing.assert_array_equal(set_gram(products, 0), first.T @ first)
    last = np.kron(np.kron(np.ones((1, 4)), m), t)
    np.testing.assert_array_equal(set_gram(products, 4), last.T @ last)
    assert products.num_queries == (12, 60, 45, 4, 3)
    assert products.weights.tolist() == [1, 2, 0.5, 1, 1]


def test_equal_factors_are_stored_once():
    products = marginals((3, 4, 5, 6), 1, 2, 3)
    assert [len(grams) for grams in products.grams] == [2, 2, 2, 2]
    assert len(products) == 4 + 6 + 4


def test_a_union_that_is_one_product_is_recognised():
    families = {0: Prefix, 1: Marginal, 2: Marginal}
    parts = [([(0, 1, 2)], families, [6.0]), ([(0, 1), (0, 2)], families, [2.0, 3.0])]
    parts.append(([(0,)], families, [1.0]))
    products = product_workload(workload((4, 3, 2), parts))
    whole = reduce(np.kron, products.factorised())
    union = sum(w * set_gram(products, j) for j, w in enumerate(products.weights))
    np.testing.assert_allclose(whole, union, rtol=1e-13)


@pytest.mark.parametrize("sets", [[0, 1, 2], [0, 1, 2, 3, 3], [0, 1, 2, 2]])
def test_other_unions_are_not(sets):
    families = {0: Prefix, 1: Marginal, 2: Marginal}
    parts = [([(0, 1, 2)], families, None), ([(0, 1), (0, 2)], families, None)]
    parts.append(([(0,)], families, None))
    assert product_workload(workload((4, 3, 2), parts)).subset(sets).factorised() is None


@pytest.mark.parametrize(("weight", "recognised"), [(1e-6, True), (1e-15, False)])
def test_a_factor_that_rounding_would_lose_makes_no_product(weight, recognised):
    families = {0: Prefix, 1: Marginal}
    parts = [([(0,)], families, None), ([(0, 1)], families, None)]
    products = product_workload(workload((4, 3), parts))
    products = replace(products, weights=np.array([1.0, weight]))
    assert (products.factorised() is not None) == recognised


def test_weights_that_do_not_factor_are_no_product():
    families = {0: Prefix, 1: Marginal}
    parts = [([(0, 1)], families, [1.0]), ([(0,), (1,)], families, [1.0, 1.0])]
    products = product_workload(workload((4, 3), parts))
    assert products.factorised() is None


def test_joint_queries_are_refused_with_the_mechanism_to_use():
    domain = Domain.from_sizes({"age": 4, "hours": 4})
    part = QueryPart(np.array([[0, 1]], dtype=np.int32), {}, (Affine(4, 4),), np.ones(1))
    with pytest.raises(WorkloadError, match=r"age, hours.*querysmasher") as caught:
        product_workload(QueryWorkload(domain, (part,)))
    assert "\n" not in str(caught.value)


def test_an_attribute_beyond_the_memory_ceiling_is_refused_by_name():
    one = workload((3, 50), [([(0,), (1,)], {0: Marginal, 1: Prefix}, None)])
    with pytest.raises(ResourceExceeded, match="'a1' has 50 values"):
        product_workload(one, SolverSettings(max_bytes=100_000))
