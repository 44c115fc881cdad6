"""What the automatic choice takes, and what it leaves alone."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.strategy import choose
from adaptive_qs.strategy.choose import choose_mechanism, may_be_product
from adaptive_qs.strategy.solution import SolverSettings, Strategy
from adaptive_qs.workload.axes import Prefix
from adaptive_qs.workload.file import all_ways_queries
from adaptive_qs.workload.workload import QueryPart, QueryWorkload


def domain(*sizes):
    return Domain.from_sizes({f"a{i}": n for i, n in enumerate(sizes)})


def workload(sizes, ways, family="prefix"):
    parts = [part for k in ways for part in all_ways_queries(domain(*sizes), k, family).parts]
    return QueryWorkload(domain(*sizes), tuple(parts))


def rmse(asked, name):
    return math.sqrt(choose_mechanism(asked, name).mechanism.total_error / asked.num_queries)


CASES = {
    "two large attributes": ((100, 100), [2], 4.998),
    "a square": ((40, 40), [2], 3.836),
    "a cube": ((20, 20, 20), [3], 5.397),
    "all degrees of a cube": ((10, 10, 10), [1, 2, 3], 3.837),
    "five attributes": ((7, 4, 2, 50, 100), [1, 2, 3, 4, 5], 10.19),
}


@pytest.mark.parametrize("case", CASES)
def test_auto_is_as_good_as_hdmm_and_as_querysmasher(case):
    sizes, ways, most = CASES[case]
    asked = workload(sizes, ways)
    found = choose_mechanism(asked, "auto")
    error = math.sqrt(found.mechanism.total_error / asked.num_queries)
    assert error <= most
    assert error <= rmse(asked, "hdmm") * (1 + 1e-4)
    assert error < rmse(asked, "querysmasher")
    assert found.mechanism.lower_bound <= found.mechanism.total_error
    assert found.mechanism.workload is asked


def test_unused_attributes_do_not_count():
    """A column of a million values that no query mentions changes nothing."""
    part = QueryPart(np.array([[1, 2]], np.int32), {1: Prefix(40), 2: Prefix(40)}, None, np.ones(1))
    asked = QueryWorkload(domain(1_000_000, 40, 40), (part,))
    found = choose_mechanism(asked, "auto")
    assert found.name == "hdmm"
    assert found.mechanism.measurement(0).clique == (1, 2)
    small = choose_mechanism(workload((40, 40), [2]), "auto")
    assert found.mechanism.total_error == pytest.approx(small.mechanism.total_error, rel=1e-9)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -1.0, 0.0])
def test_candidates_with_impossible_errors_are_never_taken(broken, monkeypatch):
    asked = workload((20, 20), [2])
    real = choose.solve_product

    def spoilt(*arguments):
        found = real(*arguments)
        factor, *others = found.strategy.factors
        covariance = factor.covariance.copy()
        covariance[3, 3] = broken
        spoiled = replace(factor, gram_inverse=covariance)
        return replace(found, strategy=Strategy((spoiled, *others)))

    assert choose_mechanism(asked, "auto").name == "hdmm"
    monkeypatch.setattr(choose, "solve_product", spoilt)
    monkeypatch.setattr(choose, "may_be_solved", lambda *_: False)
    assert choose_mechanism(asked, "auto").name == "querysmasher"


def test_tables_that_cannot_be_measured_are_not_tried():
    settings = SolverSettings()
    assert may_be_product(workload((100, 100, 100), [3]), settings)
    assert not may_be_product(workload((100, 100, 100), [3]), SolverSettings(max_bytes=2**25))
    assert not may_be_product(workload((300, 300, 300), [3]), settings)
    assert not may_be_product(workload((2,) * 12, [3, 4]), settings)
    assert not may_be_product(workload((10, 10), [2], "affine"), settings)


@pytest.mark.parametrize("family", ["marginal", "circular"])
def test_nothing_is_tried_where_nothing_can_be_better(family, monkeypatch):
    def refuse(*_):
        raise AssertionError("a search without a purpose")

    monkeypatch.setattr(choose, "solve_product", refuse)
    monkeypatch.setattr(choose, "solve_full", refuse)
    found = choose_mechanism(workload((7, 4, 6), [1, 2], family), "auto")
    assert found.name == "querysmasher"


def test_many_attributes_are_planned_at_once():
    """161,700 sets: far below the time any search would take."""
    asked = workload((20,) * 100, [3], "marginal")
    begun = time.perf_counter()
    assert choose_mechanism(asked, "auto").name == "querysmasher"
    assert time.perf_counter() - begun < 10
