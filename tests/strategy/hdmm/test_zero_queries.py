"""Attribute sets whose queries are all zero: they cost nothing and disturb nobody."""

import warnings

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.errors import WorkloadError
from adaptive_qs.strategy.hdmm.groups import with_zeros
from adaptive_qs.strategy.hdmm.lower_bound import lower_bound
from adaptive_qs.strategy.hdmm.noise import Noise
from adaptive_qs.strategy.hdmm.opt_m import optimize_marginals
from adaptive_qs.strategy.hdmm.product import optimize_product
from adaptive_qs.strategy.hdmm.products import product_workload
from adaptive_qs.strategy.hdmm.select import select
from adaptive_qs.strategy.hdmm.union import optimize_union
from adaptive_qs.strategy.mechanisms.choice import choose_mechanism
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.workload.axis_queries import Range
from adaptive_qs.workload.matrix_queries import CustomAxis
from adaptive_qs.workload.query_workload import QueryPart, QueryWorkload
from adaptive_qs.workload.random_queries import Random

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
@pytest.mark.parametrize("noise", Noise)
def test_operators_leave_them_out(case, noise):
    products = product_workload(QueryWorkload(DOMAIN, CASES[case]))
    asked, settings = products.only_asked(), SolverSettings()
    assert 0 < len(asked) < len(products)
    void = np.setdiff1d(np.arange(len(products)), products.asked)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for find in (
            lambda w, rng: optimize_product(w, noise, settings, rng),
            lambda w, rng: optimize_union(w, noise, settings, rng),
            lambda w, rng: optimize_marginals(w, noise, rng, moves=5),
        ):
            found = find(products, np.random.default_rng(0))
            alone = find(asked, np.random.default_rng(0))
            assert found.workload is products
            assert not found.set_errors[void].any()
            np.testing.assert_allclose(found.set_errors[products.asked], alone.set_errors, 1e-9)
        bound = lower_bound(products, noise, settings)
        assert bound == pytest.approx(lower_bound(asked, noise, settings), rel=1e-12)
        found = select(products, noise)
        assert 0 < bound <= found.strategy.total_error * (1 + 1e-9)


@pytest.mark.parametrize("case", CASES)
def test_the_planned_error_is_that_of_all_answers_and_above_the_bound(case):
    workload = QueryWorkload(DOMAIN, CASES[case])
    mechanism = choose_mechanism(workload, "hdmm").mechanism.on_grid(20)
    total = sum(
        weight * mechanism.variances(p, i).sum()
        for p, part in enumerate(workload.parts)
        for i, weight in enumerate(part.weights)
    )
    assert mechanism.total_error == pytest.approx(total, rel=1e-9)
    assert mechanism.lower_bound <= mechanism.total_error < 2 * mechanism.lower_bound
    for p, part in enumerate(workload.parts):
        for i in range(len(part)):
            largest = np.prod([abs(q.matrix()).max() for q in part.queries(i)])
            assert (mechanism.variances(p, i).max() > 0) == (largest > 0)


def test_explicit_groups_take_them_in():
    products = product_workload(QueryWorkload(DOMAIN, CASES["zero in pairs"]))
    # Sets 3 and 4, on attributes (0, 1) and (0, 2), ask nothing.
    groups = with_zeros(products, ((0, 1), (2,), (3,), (4, 5)))
    assert groups == ((0, 1, 3, 4), (2,), (5,))
    settings, rng = SolverSettings(), np.random.default_rng(0)
    found = optimize_union(products, Noise.GAUSSIAN, settings, rng, ((0, 1), (2,), (3,), (4, 5)))
    assert found.groups == groups
    assert np.isfinite(found.set_errors).all()
    assert (found.scales > 0).all()


def test_nothing_but_zeros_is_refused():
    products = product_workload(
        QueryWorkload(DOMAIN, (QueryPart(SINGLES, dict(enumerate(map(zero_axis, SIZES))), None,
                                         np.ones(3)),))
    )  # fmt: skip
    for find in (optimize_product, optimize_union):
        with pytest.raises(WorkloadError, match="every query of the workload is zero"):
            find(products, Noise.GAUSSIAN, SolverSettings(), np.random.default_rng(0))
