"""Workloads of marginals and of queries: what they hold, and what is refused."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.domain import Domain
from adaptive_qs.errors import WorkloadError
from adaptive_qs.workload.axes import Prefix, Range
from adaptive_qs.workload.workload import QueryPart, QueryWorkload, Workload

DOMAIN = Domain.from_sizes(dict(zip("abcde", (2, 3, 4, 1, 5))))
cliques = st.sets(st.integers(0, 4), min_size=1).map(lambda s: tuple(sorted(s)))
weights = st.dictionaries(cliques, st.floats(0.01, 100), min_size=1, max_size=6)


@given(weights, cliques)
def test_relevance_is_the_weighted_overlap(weight_of, clique):
    """Fuentes et al., Appendix F.1: w_γ = Σ_π weight_π |γ ∩ π|."""
    slow = math.fsum(w * len(set(clique) & set(pi)) for pi, w in weight_of.items())
    assert Workload(DOMAIN, weight_of).relevance(clique) == pytest.approx(slow)


@given(weights)
def test_priorities_are_the_4_norm_of_the_weights_that_contain_a_clique(weight_of):
    workload = Workload(DOMAIN, weight_of)
    inside = [c for c in workload.closure if c]
    for clique, found in zip(inside, workload.priorities(inside), strict=True):
        slow = math.fsum(w**4 for pi, w in weight_of.items() if set(clique) <= set(pi)) ** 0.25
        assert found == pytest.approx(slow)
    spread = Workload(DOMAIN, weight_of, handed_down=True).priorities(inside)
    assert spread.tolist() == [workload.relevance(clique) for clique in inside]


@given(weights)
def test_the_closure_is_all_subsets_of_the_cliques(weight_of):
    workload = Workload(DOMAIN, weight_of)
    slow = {
        subset
        for clique in weight_of
        for k in range(len(clique) + 1)
        for subset in combinations(clique, k)
    }
    assert set(workload.closure) == slow
    assert len(workload.closure) == len(slow)
    assert workload.cliques == tuple(weight_of)
    assert len(workload) == len(weight_of)


@pytest.mark.parametrize("ways", [1, 2, 5, [1, 3], [2, 2]])
def test_all_ways_holds_each_marginal_of_these_degrees_once(ways):
    degrees = {ways} if isinstance(ways, int) else set(ways)
    workload = Workload.all_ways(DOMAIN, ways)
    assert len(workload) == sum(math.comb(5, k) for k in degrees)
    assert {len(c) for c in workload.cliques} == degrees
    assert set(workload.weights.values()) == {1.0}


@pytest.mark.parametrize("ways", [0, -1, 6, [2, 6]])
def test_a_degree_the_domain_does_not_have_is_refused(ways):
    with pytest.raises(WorkloadError, match="from 1 to 5"):
        Workload.all_ways(DOMAIN, ways)
    with pytest.raises(WorkloadError, match="empty"):
        Workload.all_ways(DOMAIN, [])


@pytest.mark.parametrize(
    ("weight_of", "message"),
    [
        ({}, "empty"),
        ({(): 1.0}, "without attributes"),
        ({(0,): 0.0}, "weight 0.0. Use a number from 1e-12"),
        ({(0,): -1.0}, "weight -1.0. Use a number from 1e-12"),
        ({(0,): math.nan}, "weight nan. Use a number"),
        ({(0,): math.inf}, r"weight inf. Use a number from 1e-12 to 1e\+12"),
    ],
)
def test_a_workload_without_meaning_is_refused(weight_of, message):
    with pytest.raises(WorkloadError, match=message):
        Workload(DOMAIN, weight_of)


# Query workloads: what is refused, and counts that never overflow.

QUERY_WORKLOAD_DOMAIN = Domain.from_sizes({f"a{i}": 100_000 for i in range(6)})
SINGLES = np.array([[0], [1]], dtype=np.int32)


def part(weights, cliques=SINGLES, family=Prefix):
    return QueryPart(cliques, {i: family(100_000) for i in range(6)}, None, np.array(weights))


def test_weights_too_far_apart_are_refused():
    assert QueryWorkload(QUERY_WORKLOAD_DOMAIN, (part([1.0, 2e-9]),)).num_sets == 2
    for parts in ([part([1.0, 5e-10])], [part([1.0, 1.0]), part([5e-10, 5e-10])]):
        with pytest.raises(
            WorkloadError, match=r"weights reach from .* more than a factor of 1e\+09 apart"
        ):
            QueryWorkload(QUERY_WORKLOAD_DOMAIN, tuple(parts))


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf, 1e-320, 9e-13, 1e308])
def test_bad_weights_are_refused(weight):
    with pytest.raises(WorkloadError, match=r"from 1e-12 to 1e\+12") as caught:
        part([1.0, weight])
    assert f"weight {weight!r}. Use" in str(caught.value)


def test_the_ends_of_the_range_are_weights_and_an_empty_workload_is_none():
    for weight in (1e-12, 1e12):
        assert part([weight, weight]).weights.tolist() == [weight, weight]
    with pytest.raises(WorkloadError, match="empty"):
        QueryWorkload(QUERY_WORKLOAD_DOMAIN, ())
    with pytest.raises(WorkloadError, match="without attributes"):
        part([], np.empty((0, 1), dtype=np.int32))


def test_counts_are_exact():
    six = part([1.0], np.arange(6, dtype=np.int32)[None], Range)
    assert QueryWorkload(QUERY_WORKLOAD_DOMAIN, (six,)).num_queries == (100_000 * 100_001 // 2) ** 6
