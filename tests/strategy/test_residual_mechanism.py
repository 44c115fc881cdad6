"""Residual mechanisms against whole matrices, and what stands in where the optimum is too large."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy import optimal
from adaptive_qs.strategy import residual_mechanism as module
from adaptive_qs.strategy.choose import choose_mechanism
from adaptive_qs.strategy.optimal import SolveCache, solve
from adaptive_qs.strategy.residual_mechanism import restricted, smash
from adaptive_qs.strategy.solution import CenteringFactor, SolverSettings
from adaptive_qs.workload.axes import AbsDiff, Affine, Circular, Prefix, Range
from adaptive_qs.workload.residuals import decompose_workload
from adaptive_qs.workload.workload import QueryPart, QueryWorkload

from . import problems
from .problems import added, axis, joint, product
from .variance_oracles import DOMAIN, WORKLOADS, dense_error, query_matrix, summed_variances

SETTINGS = SolverSettings()


@pytest.mark.parametrize("asked", ["range", "joint"])
def test_the_largest_variance_is_bounded_where_there_are_too_many(asked, monkeypatch):
    mechanism = choose_mechanism(WORKLOADS[asked], "querysmasher").mechanism
    exact = max(mechanism.variances(p, i).max() for p, i, _ in mechanism.workload.sets())
    assert mechanism.largest_variance() == (pytest.approx(exact, rel=1e-12), True)
    monkeypatch.setattr(module, "EXACT_QUERIES", 0)
    top, is_exact = mechanism.largest_variance()
    assert top >= exact * (1 - 1e-12)
    assert not is_exact


def test_the_marginal_is_that_of_the_residuals():
    """Residuals of a table, put together again."""
    mechanism = choose_mechanism(WORKLOADS["prefix"], "residualplanner").mechanism
    table = np.random.default_rng(0).normal(size=(3, 4, 2))
    kept = {}
    for number, residual in enumerate(mechanism.decomposition.residuals):
        part = table.sum(axis=tuple(i for i in range(3) if i not in residual))
        for k in range(part.ndim):
            part = part - part.mean(axis=k, keepdims=True)
        kept[number] = np.asarray(part)
    clique = mechanism.workload.parts[0].cliques[1].tolist()
    expected = table.sum(axis=tuple(i for i in range(3) if i not in clique))
    np.testing.assert_allclose(mechanism.marginal(0, 1, kept), expected, atol=1e-12)


def test_equal_problems_are_solved_once_whatever_the_threads():
    sets = np.array([[0], [1], [2]], np.int32)
    part = QueryPart(sets, {i: Prefix(n) for i, n in enumerate((3, 4, 2))}, None, np.ones(3))
    d = decompose_workload(QueryWorkload(DOMAIN, (part, part)))
    seen, told = [], []

    def solver(subworkload):
        seen.append(subworkload)
        return solve(subworkload)

    one = smash(d, solver)
    many = smash(d, solver, jobs=3, progress=lambda done, total: told.append((done, total)))
    assert len(seen) == 2 * len(d.subworkloads) == 8
    assert told == [(k, 4) for k in range(1, 5)]
    assert one.shares.tobytes() == many.shares.tobytes()
    assert query_matrix(one.workload).shape == (18, 24)
    assert summed_variances(one) == pytest.approx(dense_error(one), rel=1e-9)


# What stands in for the certified solver where it refuses, within memory.


SUMS = {
    "affine": joint(Affine(7, 6)),
    "joint and products": added(
        joint(AbsDiff(6, 5), 2.0), product(axis(Prefix, 6), axis(Prefix, 5))
    ),
    "products": added(
        product(axis(Prefix, 4), axis(Range, 5), axis(Prefix, 3)),
        product(axis(Circular, 4), axis(Prefix, 5), axis(Range, 3)),
    ),
    "one axis": product(axis(Prefix, 9)),
}


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
    assert found.objective == pytest.approx(
        problems.dense_error(SUMS[name], found.strategy), rel=1e-8
    )
    assert 0 < found.lower_bound <= found.objective
    roomy = restricted(SUMS[name], SETTINGS, SolveCache())
    assert roomy.objective <= found.objective * (1 + 1e-9)


def test_a_huge_axis_takes_no_more_memory_than_its_cells():
    asked = product(axis(Range, 20_000))
    found = restricted(asked, SolverSettings(max_bytes=2**20), SolveCache())
    assert found.strategy.factors == (CenteringFactor(20_000),)
    assert found.gap > 0


def test_queries_that_do_not_fit_are_refused():
    settings = SolverSettings(max_bytes=2**20)
    asked = joint(Affine(300, 280))
    with pytest.raises(ResourceExceeded) as refused:
        restricted(asked, settings, SolveCache())
    message = str(refused.value)
    for words in ("300 x 280", "84,000 cells", "743 MB", "1 MB", "use fewer values"):
        assert words in message


@pytest.mark.parametrize(("shape", "max_bytes"), [((60, 60), 500_000_000), ((9_000,), 2**32)])
def test_the_advice_is_a_mechanism_that_fits(shape, max_bytes):
    with pytest.raises(ResourceExceeded, match="--mechanism auto or"):
        optimal.check_dense(shape, SolverSettings(max_bytes=max_bytes))


def test_sizes_below_a_gibibyte_are_in_megabytes():
    with pytest.raises(ResourceExceeded, match=r"need 3 MB, above the ceiling of 1 MB"):
        optimal.check_dense((200,), SolverSettings(max_bytes=2**20))
    with pytest.raises(ResourceExceeded, match=r"need 6\.7 GiB, above the ceiling of 477 MB"):
        optimal.check_dense((10_000,), SolverSettings(max_bytes=500_000_000))
