"""Bases of attributes: what one axis is asked, and errors below those published."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from adaptive_qs.domain import Domain
from adaptive_qs.strategy.certified.dense import solve_dense
from adaptive_qs.strategy.matrix import CenteringFactor, Strategy
from adaptive_qs.strategy.objective import axis_gram, total_variance
from adaptive_qs.strategy.restricted.attribute_basis import attribute_bases, attribute_grams
from adaptive_qs.strategy.restricted.planner import solve_with_basis, strategy_basis
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.workload.axis_queries import Marginal, Prefix, Range
from adaptive_qs.workload.decomposition import decompose_workload
from adaptive_qs.workload.joint_queries import AbsDiff, Affine
from adaptive_qs.workload.matrix_queries import CustomAxis
from adaptive_qs.workload.query_workload import QueryPart, QueryWorkload

from ..problems import ALL, all_ways, axis, numbers

SETTINGS = SolverSettings(gap=1e-4)


def total_error(workload, factors):
    """(Σ√L)² over every residual, each with the bases of its own attributes."""
    split = decompose_workload(workload)
    roots = 0.0
    for residual, number, scale in zip(split.residuals, split.class_of, split.scales):
        basis = tuple(factors[i] for i in residual)
        roots += math.sqrt(scale * solve_with_basis(split.subworkloads[number], basis).objective)
    return roots**2


@pytest.mark.parametrize("name", ALL)
def test_the_error_seen_from_one_axis(name):
    shape = ALL[name].shape
    factors = tuple(strategy_basis(numbers(n + 2, n, seed=n)) for n in shape)
    expected = total_variance(ALL[name], Strategy(factors))
    for k, factor in enumerate(factors):
        seen = axis_gram(ALL[name], k, (*factors[:k], None, *factors[k + 1 :]))
        assert np.trace(seen @ factor.covariance) == pytest.approx(expected, rel=1e-9)


def test_products_get_the_optimum_of_their_own_one_way_queries():
    workload = all_ways([6, 4, 6], (1, Prefix), (2, Prefix))
    factors, numbers_ = attribute_bases(decompose_workload(workload), SETTINGS)
    assert numbers_ == [0, 1, 0]
    assert factors[0] is factors[2]
    for factor, size in zip(factors[:2], (6, 4)):
        gram = axis(Prefix, size).gram()
        optimum = solve_dense(gram, (size,), SETTINGS)
        error = np.trace(gram @ factor.covariance)
        assert error <= optimum.lower_bound * (1 + 2 * SETTINGS.gap)


def test_grams_weigh_every_residual_by_its_root_error():
    workload = all_ways([3, 4], (1, Range), (2, Affine))
    split = decompose_workload(workload)
    expected = np.zeros((4, 4))
    for residual, number, scale in zip(split.residuals, split.class_of, split.scales):
        if 1 in residual:
            one = split.subworkloads[number]
            one = replace(one, terms=tuple(replace(t, scale=t.scale * scale) for t in one.terms))
            contrasts = tuple(CenteringFactor(n) for n in one.shape)
            error = total_variance(one, Strategy(contrasts))
            expected += axis_gram(one, residual.index(1), contrasts) / math.sqrt(error)
    assert_allclose(attribute_grams(split)[1], expected / np.trace(expected), atol=1e-12)


def test_an_attribute_that_nothing_asks_about_gets_contrasts():
    domain = Domain.from_sizes({"a": 3, "b": 5})
    part = QueryPart(np.array([[1]], dtype=np.int32), {1: Prefix(5)}, None, np.ones(1))
    factors, _ = attribute_bases(decompose_workload(QueryWorkload(domain, (part,))), SETTINGS)
    assert factors[0] == CenteringFactor(3)
    assert factors[1].shape == (5,)


def test_a_basis_spans_what_nothing_asks_for():
    queries = CustomAxis([[2.0, -1.0, 0.0, 0.0]])
    domain = Domain.from_sizes({"a": 4})
    part = QueryPart(np.array([[0]], dtype=np.int32), {0: queries}, None, np.ones(1))
    (factor,), _ = attribute_bases(decompose_workload(QueryWorkload(domain, (part,))), SETTINGS)
    assert np.linalg.matrix_rank(factor.matrix) == 3


@pytest.mark.parametrize(
    ("queries", "published", "at_least"),
    [
        ([(1, Marginal), (2, Marginal)], 23.48, 23.47),
        ([(1, Prefix), (2, Prefix)], 36.23, 33.69),
        ([(1, Range), (2, Range)], 48.95, 41.07),
        ([(1, Prefix), (2, Affine)], 62.48, 50.0),
        ([(1, Prefix), (2, AbsDiff)], 85.99, 70.0),
    ],
    ids=["marginal", "prefix", "range", "affine", "absdiff"],
)
def test_errors_are_not_above_those_published(queries, published, at_least):
    """He et al., table 4, ten values, 40 attributes, column RP+ (its bases are not published).

    The least value is the certified optimum of products, or for joint queries a little below ours.
    """
    workload = all_ways([10] * 40, *queries)
    factors, _ = attribute_bases(decompose_workload(workload), SETTINGS)
    error = math.sqrt(total_error_by_class(workload, factors[0]) / workload.num_queries)
    assert at_least < error <= published + 0.005


def total_error_by_class(workload, factor):
    """The same where all attributes share one basis."""
    split = decompose_workload(workload)
    solved = [solve_with_basis(s, (factor,) * len(s.shape)).objective for s in split.subworkloads]
    return np.sqrt(np.array(solved)[split.class_of] * split.scales).sum() ** 2


def test_mixed_workloads_gain_over_contrasts():
    workload = all_ways([7, 5, 6], (1, Range), (2, AbsDiff), (3, Prefix))
    factors, _ = attribute_bases(decompose_workload(workload), SETTINGS)
    contrasts = [CenteringFactor(n) for n in (7, 5, 6)]
    assert total_error(workload, factors) < 0.95 * total_error(workload, contrasts)
