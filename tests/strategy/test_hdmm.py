"""HDMM's product strategies: workloads as products, memory, and the errors of all answers."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.strategy.choose import choose_mechanism
from adaptive_qs.strategy.fixed_point import solve_axis
from adaptive_qs.strategy.hdmm import optimize_axes, product_workload, solve_product
from adaptive_qs.strategy.solution import SolverSettings
from adaptive_qs.workload.axes import Affine, Marginal, Prefix, Range
from adaptive_qs.workload.families import Random
from adaptive_qs.workload.matrices import CustomAxis
from adaptive_qs.workload.workload import QueryPart, QueryWorkload

from .variance_oracles import WORKLOADS, dense_error, summed_variances


def workload(sizes, parts):
    """Parts are (cliques, {attribute: family}); a family is made of its size."""
    made = []
    for cliques, families in parts:
        axis = {i: family(sizes[i]) for i, family in families.items()}
        made.append(QueryPart(np.array(cliques, np.int32), axis, None, np.ones(len(cliques))))
    return QueryWorkload(Domain.from_sizes({f"a{i}": n for i, n in enumerate(sizes)}), tuple(made))


def gram(products):
    """The Gram matrix over all cells, from the factors of each set."""
    each = ([g[k] for g, k in zip(products.grams, kinds)] for kinds in products.kinds)
    return sum(w * reduce(np.kron, factors) for w, factors in zip(products.weights, each))


@pytest.mark.parametrize(
    ("cliques", "weights", "recognised"),
    [
        ([(0, 1, 2), (0, 1), (0, 2), (0,)], [6, 2, 3, 1], True),
        ([(0, 1, 2), (0, 1), (0, 2)], [1] * 3, False),
        ([(0, 1, 2), (0, 1), (0, 2), (0,), (0,)], [1] * 5, False),
        ([(0, 1, 2), (0, 1), (0, 2), (0, 2)], [1] * 4, False),
        ([(0,), (0, 1)], [1, 1e-6], True),
        ([(0,), (0, 1)], [1, 1e-15], False),  # a factor that rounding would lose
        ([(0, 1), (0,), (1,)], [1] * 3, False),
    ],
)
def test_a_union_that_is_one_product_is_recognised(cliques, weights, recognised):
    families = {0: Prefix, 1: Marginal, 2: Marginal}
    parts = [([clique], families) for clique in cliques]
    products = product_workload(workload((4, 3, 2), parts))
    products = replace(products, weights=np.array(weights, dtype=float))
    whole = products.factorised()
    assert (whole is not None) == recognised
    if recognised:
        np.testing.assert_allclose(reduce(np.kron, whole), gram(products), rtol=1e-13)


def test_joint_queries_are_refused_with_the_mechanism_to_use():
    domain = Domain.from_sizes({"age": 4, "hours": 4})
    part = QueryPart(np.array([[0, 1]], dtype=np.int32), {}, (Affine(4, 4),), np.ones(1))
    with pytest.raises(WorkloadError, match=r"age, hours.*querysmasher") as caught:
        product_workload(QueryWorkload(domain, (part,)))
    assert "\n" not in str(caught.value)


def test_an_attribute_beyond_the_memory_ceiling_is_refused_by_name():
    one = workload((3, 50), [([(0,), (1,)], {0: Marginal, 1: Prefix})])
    with pytest.raises(ResourceExceeded, match="'a1' has 50 values"):
        product_workload(one, SolverSettings(max_bytes=100_000))


@pytest.mark.parametrize("asked", ["marginal", "range", "prefix", "few"])
def test_a_product_has_the_errors_of_its_explicit_matrix(asked):
    """And each factor is the optimum of its axis, given the others, so identities are no better."""
    found = solve_product(WORKLOADS[asked], 0.0, SolverSettings())
    assert found.total_error == pytest.approx(dense_error(found), rel=1e-7)
    assert found.total_error == pytest.approx(summed_variances(found), rel=1e-9)
    identity = choose_mechanism(WORKLOADS[asked], "identity").mechanism
    assert identity.lower_bound * (1 - 1e-9) <= found.total_error
    assert found.total_error <= identity.total_error * (1 + 1e-12)


def solve_factor(gram, settings, _):
    return solve_axis(gram, settings).strategy.factors[0]


@pytest.mark.parametrize("weights", [[1e18, 1.0, 1.0], [1.0, 1.0, 1e-18]])
def test_a_set_that_hardly_counts_is_answered_all_the_same(weights):
    families = {0: Prefix, 1: Marginal}
    products = product_workload(workload((6, 4), [([(0,), (1,)], families), ([(0, 1)], families)]))
    products = replace(products, weights=np.array(weights))
    axes = optimize_axes(products, SolverSettings(), solve_factor)
    a = reduce(np.kron, [factor.matrix for factor in axes])
    assert np.linalg.matrix_rank(a, tol=1e-9) == 24


# Attribute sets whose queries are all zero: they cost nothing and disturb nobody.

SIZES = (4, 3, 5)
DOMAIN = Domain.from_sizes({f"a{i}": n for i, n in enumerate(SIZES)})
PAIRS = np.array([[0, 1], [0, 2], [1, 2]], np.int32)
SINGLES = np.array([[0], [1], [2]], np.int32)
RANGES = QueryPart(PAIRS, {i: Range(n) for i, n in enumerate(SIZES)}, None, np.ones(3))


def zero_axis(n):
    return CustomAxis(np.zeros((2, n)))


def parts_with_zeros():
    rare = {i: Random((n,), 0.01, 2, 1) for i, n in enumerate(SIZES)}
    assert sum(q.matrix().any() for q in rare.values()) < 3
    mixed = {0: zero_axis(4), 1: Range(3), 2: Range(5)}
    return {
        "rare": (QueryPart(SINGLES, rare, None, np.ones(3)), RANGES),
        "zero in pairs": (RANGES, QueryPart(PAIRS, mixed, None, np.array([1e6, 1.0, 2.0]))),
        "an attribute of zeros": (
            QueryPart(PAIRS[1:], {0: zero_axis(4), 1: Range(3), 2: Range(5)}, None, np.ones(2)),
        ),
    }


CASES = parts_with_zeros()


@pytest.mark.parametrize("case", CASES)
def test_the_planned_error_is_that_of_all_answers_and_above_the_bound(case):
    workload = QueryWorkload(DOMAIN, CASES[case])
    mechanism = choose_mechanism(workload, "hdmm").mechanism.on_grid(20)
    assert mechanism.total_error == pytest.approx(summed_variances(mechanism), rel=1e-9)
    assert mechanism.lower_bound <= mechanism.total_error < 2 * mechanism.lower_bound
    for p, i, _ in workload.sets():
        largest = np.prod([abs(q.matrix()).max() for q in workload.parts[p].queries(i)])
        assert (mechanism.variances(p, i).max() > 0) == (largest > 0)
