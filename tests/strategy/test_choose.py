"""What the automatic choice takes, and what it leaves alone."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy import choose, optimal
from adaptive_qs.strategy import choose as choice_module
from adaptive_qs.strategy.choose import choose_mechanism, has_candidates
from adaptive_qs.strategy.fixed_basis import FourierFactor, solve_fourier, solve_residual_planner
from adaptive_qs.strategy.optimal import SolveCache
from adaptive_qs.strategy.residual_mechanism import restricted
from adaptive_qs.strategy.restricted import solve_fourier_product
from adaptive_qs.strategy.solution import CenteringFactor, SolverSettings, Status
from adaptive_qs.workload.axes import AbsDiff, Affine, Circular, Prefix, Range
from adaptive_qs.workload.file import all_ways_queries
from adaptive_qs.workload.residuals import CenteredAxis, CenteredQueries, Subworkload, Term
from adaptive_qs.workload.workload import QueryPart, QueryWorkload

from .variance_oracles import summed_variances


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


@pytest.mark.parametrize("name", ["auto", "hdmm"])
def test_a_single_product_is_certified(name):
    mechanism = choose_mechanism(workload((40, 40), [2]), name).mechanism
    assert mechanism.statuses == {Status.OPTIMAL: 1}
    assert mechanism.total_error <= mechanism.lower_bound * (1 + 1e-4)


def test_a_product_without_a_certificate_is_restricted():
    mechanism = choose_mechanism(workload((10, 10, 10), [1, 2, 3]), "hdmm").mechanism
    assert mechanism.total_error > mechanism.lower_bound * (1 + 1e-4)
    assert set(mechanism.statuses) == {Status.RESTRICTED}


def test_unused_attributes_do_not_count():
    """A column of a million values that no query mentions changes nothing."""
    part = QueryPart(np.array([[1, 2]], np.int32), {1: Prefix(40), 2: Prefix(40)}, None, np.ones(1))
    asked = QueryWorkload(domain(1_000_000, 40, 40), (part,))
    found = choose_mechanism(asked, "auto")
    assert found.name == "hdmm"
    assert found.mechanism.measurement(0).clique == (1, 2)
    small = choose_mechanism(workload((40, 40), [2]), "auto")
    assert found.mechanism.total_error == pytest.approx(small.mechanism.total_error, rel=1e-9)


def test_groups_answer_on_the_attributes_they_use(monkeypatch):
    """OPT_+ on an unused first attribute: errors are those of the whole matrices."""
    sets = [np.array([[1], [2]], np.int32), np.array([[1, 2]], np.int32)]
    axis = {1: Prefix(3), 2: Prefix(4)}
    parts = tuple(QueryPart(s, axis, None, np.full(len(s), 2.0)) for s in sets)
    asked = QueryWorkload(domain(3, 3, 4), parts)
    groups = ((0,), (1, 2))
    monkeypatch.setattr(choose, "_groupings", lambda *_: [groups])
    *_, union = choose.product_candidates(asked, 0.0, SolverSettings())
    assert [union.measurement(k).clique for k in (0, 1)] == [(1,), (1, 2)]
    assert [union.needed(p, i) for p, i in ((0, 0), (0, 1), (1, 0))] == [[0], [1], [1]]
    assert union.total_error == pytest.approx(summed_variances(union), rel=1e-12)
    product = next(choose.product_candidates(asked, 0.0, SolverSettings()))
    assert product.total_error == pytest.approx(summed_variances(product), rel=1e-12)


@pytest.mark.parametrize(("part", "taken"), [(0.91, False), (0.89, True)])
def test_groups_whose_answers_contradict_each_other_must_be_much_better(part, taken, monkeypatch):
    """Two sets of attributes that share one: counts of it come from either."""
    asked = workload((20, 20, 20), [2])
    split = choose_mechanism(asked, "querysmasher").mechanism
    *_, union = choose.product_candidates(asked, 0.0, SolverSettings())
    scaled = replace(union, shares=union.shares * union.total_error / (part * split.total_error))
    assert scaled.total_error == pytest.approx(part * split.total_error)
    monkeypatch.setattr(choice_module, "product_candidates", lambda *_: iter([scaled]))
    monkeypatch.setattr(choice_module.table_mechanism, "may_be_solved", lambda *_: False)
    found = choose_mechanism(asked, "auto").mechanism
    assert (getattr(found, "groups", None) is scaled.groups) == taken


@pytest.mark.parametrize("broken", [math.nan, math.inf, -1.0, 0.0])
def test_candidates_with_impossible_errors_are_never_taken(broken, monkeypatch):
    asked = workload((20, 20), [2])
    real = choose.product_candidates

    def spoilt(*arguments):
        for found in real(*arguments):
            factor = found.strategy.factors[0]
            covariance = factor.covariance.copy()
            covariance[3, 3] = broken
            spoiled = replace(factor, gram_inverse=covariance)
            strategy = replace(found.strategy, factors=(spoiled, *found.strategy.factors[1:]))
            yield replace(found, strategy=strategy)

    assert choose_mechanism(asked, "auto").name == "hdmm"
    monkeypatch.setattr(choice_module, "product_candidates", spoilt)
    monkeypatch.setattr(choice_module.table_mechanism, "may_be_solved", lambda *_: False)
    assert choose_mechanism(asked, "auto").name == "querysmasher"


def test_tables_that_cannot_be_measured_are_not_tried():
    settings = SolverSettings()
    assert has_candidates(workload((100, 100, 100), [3]), settings)
    assert not has_candidates(workload((100, 100, 100), [3]), SolverSettings(max_bytes=2**25))
    assert not has_candidates(workload((300, 300, 300), [3]), settings)
    assert not has_candidates(workload((2,) * 12, [3, 4]), settings)
    assert not has_candidates(workload((10, 10), [2], "affine"), settings)


@pytest.mark.parametrize("family", ["marginal", "circular"])
def test_nothing_is_tried_where_nothing_can_be_better(family, monkeypatch):
    def refuse(*_):
        raise AssertionError("a search without a purpose")

    monkeypatch.setattr(choice_module, "product_candidates", refuse)
    monkeypatch.setattr(choice_module.table_mechanism, "solve_full", refuse)
    found = choose_mechanism(workload((7, 4, 6), [1, 2], family), "auto")
    assert found.name == "querysmasher"


def test_many_attributes_are_planned_at_once():
    """161,700 sets: far below the time any search would take."""
    asked = workload((20,) * 100, [3], "marginal")
    begun = time.perf_counter()
    assert choose_mechanism(asked, "auto").name == "querysmasher"
    assert time.perf_counter() - begun < 10


def test_the_error_of_a_taken_candidate_is_that_of_its_matrices():
    found = choose_mechanism(workload((6, 5), [2]), "auto")
    assert found.name == "hdmm"
    assert found.mechanism.total_error == pytest.approx(dense_error_of(found.mechanism), rel=1e-6)


def dense_error_of(mechanism):
    """tr(W V⁺ Wᵀ) on a table of 30 cells with one measurement."""
    b = np.kron(*[factor.matrix for factor in mechanism.measurement(0).strategy.factors])
    w = np.kron(Prefix(6).matrix(), Prefix(5).matrix())
    return float(np.trace(w @ np.linalg.inv(b.T @ b) @ w.T))


# What stands in for the certified solver where it refuses, within memory.

SETTINGS = SolverSettings()


def joint(queries, scale=1.0):
    return Term(scale, (CenteredQueries(queries, (0, 1)),))


def products(*queries):
    return Term(1.0, tuple(map(CenteredAxis, queries)))


SUMS = {
    "affine": Subworkload((7, 6), (joint(Affine(7, 6)),)),
    "joint and products": Subworkload(
        (6, 5), (joint(AbsDiff(6, 5), 2.0), products(Prefix(6), Prefix(5)))
    ),
    "products": Subworkload(
        (4, 5, 3),
        (products(Prefix(4), Range(5), Prefix(3)), products(Circular(4), Prefix(5), Range(3))),
    ),
    "one axis": Subworkload((9,), (products(Prefix(9)),)),
}


def dense_error(subworkload, strategy):
    b = reduce(np.kron, [factor.matrix for factor in strategy.factors])
    return float(np.trace(subworkload.gram() @ np.linalg.pinv(b.T @ b, rcond=1e-11)))


@pytest.mark.parametrize("name", SUMS)
def test_fourier_products_have_the_error_they_say(name):
    found = solve_fourier_product(SUMS[name], SETTINGS)
    assert found.objective == pytest.approx(dense_error(SUMS[name], found.strategy), rel=1e-8)
    assert found.lower_bound <= found.objective
    assert found.strategy.shape == SUMS[name].shape
    best = solve_fourier(SUMS[name]).objective
    assert best * (1 - 1e-9) <= found.objective
    assert found.objective <= solve_residual_planner(SUMS[name]).objective * (1 + 1e-9)


def test_a_single_product_is_solved_exactly():
    single = Subworkload((5, 4), (products(Prefix(5), Range(4)),))
    found = solve_fourier_product(single, SETTINGS)
    assert found.objective == pytest.approx(solve_fourier(single).objective, rel=1e-9)
    level = Subworkload((5, 4), (products(Circular(5), Circular(4)),))
    assert solve_fourier_product(level, SETTINGS).status is Status.OPTIMAL


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("limit", [1_300, 2_500, 4_000, 2**30])
def test_fallbacks_can_be_measured_within_memory(name, limit, monkeypatch):
    """Only closed forms have no matrix: of all others six copies fit."""
    monkeypatch.setattr(optimal, "check_queries", lambda *_: None)
    settings = SolverSettings(max_bytes=limit)
    found = restricted(SUMS[name], settings, SolveCache())
    for factor in found.strategy.factors:
        cells = int(np.prod(factor.shape))
        assert isinstance(factor, CenteringFactor) or 6 * 8 * cells**2 <= limit
    assert found.objective == pytest.approx(dense_error(SUMS[name], found.strategy), rel=1e-8)
    assert 0 < found.lower_bound <= found.objective
    roomy = restricted(SUMS[name], SETTINGS, SolveCache())
    assert roomy.objective <= found.objective * (1 + 1e-9)


def test_a_huge_axis_is_measured_by_contrasts():
    sizes = (20_000,)
    asked = Subworkload(sizes, (products(Range(20_000)),))
    found = restricted(asked, SolverSettings(max_bytes=2**30), SolveCache())
    assert found.strategy.factors == (CenteringFactor(20_000),)
    roomy = restricted(asked, SolverSettings(max_bytes=2**35), SolveCache())
    assert isinstance(roomy.strategy.factors[0], FourierFactor)
    assert roomy.objective < found.objective


def test_queries_that_do_not_fit_are_refused():
    settings = SolverSettings(max_bytes=2**20)
    asked = Subworkload((300, 280), (joint(Affine(300, 280)),))
    with pytest.raises(ResourceExceeded) as refused:
        restricted(asked, settings, SolveCache())
    message = str(refused.value)
    for words in ("300 x 280", "84,000 cells", "743 MB", "1 MB", "--mechanism gaussian"):
        assert words in message


@pytest.mark.parametrize(
    ("shape", "joint_queries", "max_bytes", "advice"),
    [
        ((60, 60), True, 700_000_000, "wff"),
        ((60, 60), True, 500_000_000, "auto"),
        ((60, 60), False, 500_000_000, "residualplanner+"),
        ((9_000,), False, 2**32, "wff"),
        ((9_000,), False, 2**30, "auto"),
    ],
)
def test_the_advice_is_a_mechanism_that_fits(shape, joint_queries, max_bytes, advice):
    with pytest.raises(ResourceExceeded, match=f"--mechanism {advice.replace('+', '[+]')} or"):
        optimal.check_dense(shape, SolverSettings(max_bytes=max_bytes), joint_queries)


def test_sizes_below_a_gibibyte_are_in_megabytes():
    with pytest.raises(ResourceExceeded, match=r"need 3 MB, above the ceiling of 1 MB"):
        optimal.check_dense((200,), SolverSettings(max_bytes=2**20))
    with pytest.raises(ResourceExceeded, match=r"need 6\.7 GiB, above the ceiling of 477 MB"):
        optimal.check_dense((10_000,), SolverSettings(max_bytes=500_000_000))
