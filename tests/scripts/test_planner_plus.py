"""Bases of attributes: what one axis is asked, and errors below those published."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError
from adaptive_qs.strategy.bounds import total_variance
from adaptive_qs.strategy.fixed_point import solve_dense
from adaptive_qs.strategy.solution import CenteringFactor, DenseFactor, SolverSettings, Strategy
from adaptive_qs.workload.axes import AbsDiff, Affine, Circular, Marginal, Prefix, Range
from adaptive_qs.workload.file import all_ways_queries
from adaptive_qs.workload.matrices import CustomAxis
from adaptive_qs.workload.residuals import decompose_workload
from adaptive_qs.workload.workload import QueryPart, QueryWorkload
from scripts.published.planner_plus import attribute_bases, attribute_grams, axis_gram
from scripts.published.querysmasher_methods import plan_batch, plan_with_bases
from tests.strategy.problems import ALL, all_ways, axis, random_basis
from tests.strategy.variance_oracles import WORKLOADS, dense_error

SETTINGS = SolverSettings()


@pytest.mark.parametrize("name", ALL)
def test_the_error_seen_from_one_axis(name):
    contrasts = tuple(map(CenteringFactor, ALL[name].shape))
    for k, size in enumerate(ALL[name].shape):
        factor = random_basis(size)
        factors = (*contrasts[:k], factor, *contrasts[k + 1 :])
        expected = total_variance(ALL[name], Strategy(factors))
        seen = np.trace(axis_gram(ALL[name], k) @ factor.covariance)
        assert seen == pytest.approx(expected, rel=1e-9)


def test_products_get_the_optimum_of_their_own_one_way_queries():
    workload = all_ways([6, 4, 6], (1, Prefix), (2, Prefix))
    factors = attribute_bases(decompose_workload(workload), SETTINGS)
    assert factors[0] is factors[2] is not factors[1]
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
            expected += axis_gram(one, residual.index(1)) / math.sqrt(error)
    assert_allclose(attribute_grams(split)[1], expected / np.trace(expected), atol=1e-12)


def test_an_attribute_that_nothing_asks_about_gets_contrasts():
    domain = Domain.from_sizes({"a": 3, "b": 5})
    part = QueryPart(np.array([[1]], dtype=np.int32), {1: Prefix(5)}, None, np.ones(1))
    factors = attribute_bases(decompose_workload(QueryWorkload(domain, (part,))), SETTINGS)
    assert factors[0] == CenteringFactor(3)
    assert factors[1].shape == (5,)


def test_a_basis_spans_what_nothing_asks_for():
    queries = CustomAxis([[2.0, -1.0, 0.0, 0.0]])
    domain = Domain.from_sizes({"a": 4})
    part = QueryPart(np.array([[0]], dtype=np.int32), {0: queries}, None, np.ones(1))
    (factor,) = attribute_bases(decompose_workload(QueryWorkload(domain, (part,))), SETTINGS)
    assert np.linalg.matrix_rank(factor.matrix) == 3


PUBLISHED = {  # He et al., table 4: WFF, RP+, and our least for RP+, whose bases are not published
    "marginal": ([(1, Marginal), (2, Marginal)], 23.48, 23.48, 23.47),
    "prefix": ([(1, Prefix), (2, Prefix)], 39.70, 36.23, 33.69),
    "range": ([(1, Range), (2, Range)], 41.36, 48.95, 41.07),
    "circular": ([(1, Circular), (2, Circular)], 39.77, np.inf, 0),
    "affine": ([(1, Prefix), (2, Affine)], 45.23, 62.48, 50.0),
    "absdiff": ([(1, Prefix), (2, AbsDiff)], 64.11, 85.99, 70.0),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_errors(name):
    """Ten values, 40 attributes. The least for RP+ is the certified optimum of products, or for
    joint queries a little below ours."""
    queries, fourier, planner_plus, at_least = PUBLISHED[name]
    workload = all_ways([10] * 40, *queries)
    wff, plus = (plan_batch(workload, "wff").rmse, plan_with_bases(workload).rmse)
    assert wff == pytest.approx(fourier, abs=0.005)
    assert at_least < plus <= planner_plus + 0.005


def test_mixed_workloads_gain_over_contrasts():
    workload = all_ways([7, 5, 6], (1, Range), (2, AbsDiff), (3, Prefix))
    plus, contrasts = (plan_with_bases(workload), plan_batch(workload, "residualplanner"))
    assert plus.mechanism.total_error < 0.95 * contrasts.mechanism.total_error


@pytest.mark.parametrize("asked", WORKLOADS)
def test_errors_are_those_of_the_whole_matrices(asked):
    mechanism = plan_with_bases(WORKLOADS[asked]).mechanism
    assert mechanism.total_error == pytest.approx(dense_error(mechanism), rel=1e-8)
    best = plan_batch(WORKLOADS[asked], "querysmasher").mechanism
    assert best.lower_bound <= mechanism.total_error * (1 + 1e-12)


def test_columns_with_one_basis_share_a_solution():
    tree = DenseFactor(np.array([[1.0, 1, -1, -1], [1, -1, 0, 0], [0, 0, 1, -1]]), (4,))
    workload = all_ways_queries(Domain.from_sizes({"a": 4, "b": 4, "c": 3}), 2, "marginal")
    own, free = plan_with_bases(workload, {0: tree, 1: tree}), plan_with_bases(workload)
    assert own.rmse > free.rmse  # contrasts are best for marginals
    assert own.choice.distinct_solves == free.choice.distinct_solves
    for basis in ({5: tree}, {2: tree}):
        with pytest.raises(InputError, match="does not fit"):
            plan_with_bases(workload, basis)
