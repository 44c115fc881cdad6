"""Mechanisms for the whole table, queries measured directly, and the choice among all."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError, ResourceExceeded, WorkloadError
from adaptive_qs.strategy import MECHANISMS
from adaptive_qs.strategy.choose import choose_mechanism
from adaptive_qs.strategy.mechanism import (
    TableMechanism,
    any_mechanism_bound,
    full_gram,
    may_be_solved,
    solve_full,
)
from adaptive_qs.strategy.solution import DenseFactor, SolverSettings, Strategy
from adaptive_qs.workload.axes import Prefix
from adaptive_qs.workload.file import all_ways_queries
from adaptive_qs.workload.matrices import CustomAxis
from adaptive_qs.workload.residuals import decompose_workload
from adaptive_qs.workload.workload import QueryPart, QueryWorkload

from .variance_oracles import DOMAIN, SIZES, WORKLOADS, dense_error, summed_variances

RNG = np.random.default_rng(0)
STRATEGIES = {
    "identity": Strategy(tuple(DenseFactor(np.eye(n), (n,)) for n in SIZES)),
    "product": Strategy(tuple(DenseFactor(np.tril(np.ones((n, n))), (n,)) for n in SIZES)),
    "pair": Strategy(
        (DenseFactor(RNG.normal(size=(14, 12)), (3, 4)), DenseFactor(np.eye(2), (2,)))
    ),
    "last pair": Strategy(
        (DenseFactor(np.eye(3), (3,)), DenseFactor(RNG.normal(size=(9, 8)), (4, 2)))
    ),
    "whole": Strategy((DenseFactor(RNG.normal(size=(30, 24)), SIZES),)),
}


@pytest.mark.parametrize("asked", WORKLOADS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_table_has_the_errors_of_its_whole_matrix(asked, strategy):
    mechanism = TableMechanism(WORKLOADS[asked], (0, 1, 2), STRATEGIES[strategy], 0.0)
    assert mechanism.total_error == pytest.approx(summed_variances(mechanism), rel=1e-12)
    assert mechanism.total_error == pytest.approx(dense_error(mechanism), rel=1e-9)
    top = max(mechanism.variances(p, i).max() for p, i, _ in WORKLOADS[asked].sets())
    assert mechanism.largest_variance() == (pytest.approx(top, rel=1e-14), True)
    assert mechanism.on_grid(54).total_error == pytest.approx(mechanism.total_error, rel=1e-4)


@pytest.mark.parametrize("asked", WORKLOADS)
def test_no_mechanism_is_below_the_bound_for_all(asked):
    """The certified optimum of the full problem is between the bound and every mechanism."""
    settings = SolverSettings()
    d = decompose_workload(WORKLOADS[asked])
    bound = any_mechanism_bound(d)
    optimum = solve_full(WORKLOADS[asked], settings)
    assert bound <= optimum.total_error * (1 + 1e-9)
    assert optimum.lower_bound <= optimum.total_error <= (1 + 1e-4) * optimum.lower_bound
    assert optimum.total_error == pytest.approx(dense_error(optimum), rel=1e-6)
    for name in MECHANISMS:
        if name == "hdmm" and asked == "joint":
            continue
        found = choose_mechanism(WORKLOADS[asked], name).mechanism
        assert found.total_error >= optimum.lower_bound * (1 - 1e-9)
        if name in ("identity", "hdmm"):
            assert found.lower_bound <= optimum.total_error * (1 + 1e-9)


@pytest.mark.parametrize("family", ["marginal", "circular", "prefix", "range"])
@pytest.mark.parametrize("ways", [1, 2])
def test_bounds_on_large_domains_hold(family, ways, monkeypatch):
    """The bound without the matrix of the whole domain is no larger than the one with it."""
    domain = Domain.from_sizes({"a": 4, "b": 5, "c": 3})
    workload = all_ways_queries(domain, ways, family)
    d = decompose_workload(workload)
    exact = any_mechanism_bound(d)
    monkeypatch.setattr("adaptive_qs.strategy.bounds.DENSE_CELLS", 0)
    assert 0 < any_mechanism_bound(d) <= exact * (1 + 1e-6)
    if family in ("marginal", "circular"):
        gram = full_gram(workload, (0, 1, 2))
        roots = np.sqrt(np.clip(np.linalg.eigvalsh(gram), 0, None)).sum()
        assert exact == pytest.approx(roots**2 / 60, rel=1e-6)


def test_queries_that_are_all_zero_need_no_measurement():
    axis = {0: CustomAxis([[0, 0, 0]]), 1: Prefix(4)}
    part = QueryPart(np.array([[0], [1]], np.int32), axis, None, np.ones(2))
    found = choose_mechanism(QueryWorkload(DOMAIN, (part,)), "querysmasher").mechanism
    assert found.needed(0, 0) == []
    assert found.answers(0, 0, {}).tolist() == found.variances(0, 0).tolist() == [0.0]


def test_auto_takes_the_better_of_the_split_and_the_full_problem():
    full = choose_mechanism(WORKLOADS["range"], "auto")
    assert full.name == "hdmm"
    apart = choose_mechanism(WORKLOADS["range"], "querysmasher")
    assert full.mechanism.total_error < apart.mechanism.total_error
    split = choose_mechanism(WORKLOADS["marginal"], "auto")
    assert split.name == "querysmasher"
    assert split.subworkloads == 7


def test_large_domains_are_not_solved_as_a_whole():
    settings = SolverSettings()
    assert may_be_solved(WORKLOADS["range"], settings)
    assert not may_be_solved(WORKLOADS["range"], SolverSettings(max_bytes=2**15))
    domain = Domain.from_sizes({"a": 1536, "b": 2049, "c": 2})
    one = {i: Prefix(n) for i, n in enumerate(domain.sizes)}
    for sets, small in (([[0]], True), ([[0, 2]], True), ([[1, 2]], False)):
        part = QueryPart(np.array(sets, np.int32), one, None, np.ones(1))
        assert may_be_solved(QueryWorkload(domain, (part,)), settings) == small
    with pytest.raises(ResourceExceeded, match="2,049 cells: that is too many to be solved"):
        solve_full(all_ways_queries(Domain.from_sizes({"b": 2049}), 1, "prefix"), settings)


def test_wrong_requests_are_refused():
    with pytest.raises(InputError, match=r"mechanism is 'magic'\. Use one of auto, querysmasher"):
        choose_mechanism(WORKLOADS["range"], "magic")
    with pytest.raises(WorkloadError, match="use the mechanism querysmasher"):
        choose_mechanism(WORKLOADS["joint"], "hdmm")
