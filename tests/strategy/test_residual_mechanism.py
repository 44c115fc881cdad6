"""Mechanisms of residual measurements, assembled, against whole matrices."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_qs.strategy import residual_mechanism as module
from adaptive_qs.strategy.choose import choose_mechanism
from adaptive_qs.strategy.optimal import solve
from adaptive_qs.strategy.residual_mechanism import smash
from adaptive_qs.workload.axes import Prefix
from adaptive_qs.workload.residuals import decompose_workload
from adaptive_qs.workload.workload import QueryPart, QueryWorkload

from .variance_oracles import (
    DOMAIN,
    WORKLOADS,
    dense_error,
    query_matrix,
    strategy_matrix,
    summed_variances,
)

NAMES = ("querysmasher", "residualplanner", "residualplanner+", "wff", "eigen")
CASES = [(asked, name) for asked in WORKLOADS for name in NAMES]


@pytest.mark.parametrize(("asked", "name"), CASES)
def test_errors_are_those_of_the_whole_matrices(asked, name):
    mechanism = choose_mechanism(WORKLOADS[asked], name).mechanism
    exact = dense_error(mechanism)
    assert mechanism.total_error == pytest.approx(exact, rel=1e-8)
    assert summed_variances(mechanism) == pytest.approx(exact, rel=1e-8)
    grid = mechanism.on_grid(40)
    assert grid.total_error == pytest.approx(dense_error(grid), rel=1e-5)
    assert grid.total_error == pytest.approx(mechanism.total_error, rel=1e-5)


@pytest.mark.parametrize(("asked", "name"), CASES)
def test_the_privacy_cost_is_one(asked, name):
    mechanism = choose_mechanism(WORKLOADS[asked], name).mechanism
    b = strategy_matrix(mechanism)
    assert (b * b).sum(axis=0).max() <= 1 + 1e-12
    if asked in ("marginal", "circular"):  # the same for every row
        assert (b * b).sum(axis=0) == pytest.approx(np.ones(24), rel=1e-9)


@pytest.mark.parametrize(("asked", "name"), CASES)
def test_shares_are_the_best_for_the_strategies(asked, name):
    """Total error (Σ√L)² at shares √L/Σ√L: nothing that sums to 1 does better."""
    mechanism = choose_mechanism(WORKLOADS[asked], name).mechanism
    roots = np.sqrt(mechanism.errors)
    assert mechanism.shares.sum() == pytest.approx(1, rel=1e-14)
    np.testing.assert_allclose(mechanism.shares, roots / roots.sum(), rtol=1e-12)
    assert mechanism.total_error == pytest.approx(roots.sum() ** 2, rel=1e-12)
    for k in range(len(roots)):
        other = mechanism.shares.copy()
        other[k] *= 1.2
        assert (mechanism.errors / (other / other.sum())).sum() > mechanism.total_error * (
            1 - 1e-12
        )


@pytest.mark.parametrize("asked", WORKLOADS)
def test_every_residual_mechanism_is_above_the_bound(asked):
    best = choose_mechanism(WORKLOADS[asked], "querysmasher").mechanism
    assert best.lower_bound <= best.total_error <= (1 + 1e-4) * best.lower_bound
    for name in NAMES:
        other = choose_mechanism(WORKLOADS[asked], name).mechanism
        assert other.lower_bound <= other.total_error * (1 + 1e-12)
        assert other.total_error >= best.lower_bound * (1 - 1e-12)
        # Bounds are of one problem, so no mechanism's bound can pass another's error.
        assert other.lower_bound <= best.total_error * (1 + 1e-12)


@pytest.mark.parametrize("asked", ["range", "joint"])
def test_the_largest_variance_is_bounded_where_there_are_too_many(asked, monkeypatch):
    mechanism = choose_mechanism(WORKLOADS[asked], "querysmasher").mechanism
    exact = max(
        mechanism.variances(p, i).max()
        for p, part in enumerate(mechanism.workload.parts)
        for i in range(len(part))
    )
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
        for axis in range(part.ndim):
            part = part - part.mean(axis=axis, keepdims=True)
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
