"""Noisy residuals against exact matrices; plans against CVXPY and optimality conditions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from adaptive_qs.cliques import downward_closure
from adaptive_qs.domain import Attribute, Clique, Domain, subsets
from adaptive_qs.levels import Grouping
from adaptive_qs.loop import estimates as measure
from adaptive_qs.loop.estimates import is_scaled, measurement_cost
from adaptive_qs.loop.planner import ConditionalPlanner, allocate_precision
from adaptive_qs.privacy.counts import LevelCounter
from adaptive_qs.privacy.unit import ROWS, Unit
from adaptive_qs.residual import centered, privacy_cost, variance_weight
from adaptive_qs.strategy.integer import ColumnStrategy, column_strategies
from adaptive_qs.table.coded import MAX_ROWS
from adaptive_qs.workload.file import WorkloadFile

from ..doors import measure_residual, measure_residuals
from .helpers import Recorder, counter_of, domain_of, every_row, skewed_rows


class World(NamedTuple):
    """Rows over plain columns, the domain that residuals are of, and strategies for columns."""

    columns: Domain
    domain: Domain
    strategies: Mapping[int, ColumnStrategy]
    residuals: tuple[Clique, ...]

    def counter(self, rows):
        counter = counter_of(self.columns, rows)
        return LevelCounter(counter, self.domain) if self.domain.groupings else counter

    def call(self, rows, residual, unit=ROWS):
        """What reaches the noise."""
        mechanisms = Recorder(rho=1.0, unit=unit)
        variances = {residual: 1e6}
        measure_residuals(self.counter(rows), mechanisms, variances, self.strategies)
        return mechanisms.calls[0]

    def exact_cost(self, residual, form):
        if len(residual) == 1 and residual[0] in self.strategies:
            return Fraction(self.strategies[residual[0]].cost)
        most = [groups.largest for groups in self.domain.parents(residual)]
        return math.prod((Fraction(m - 1, m) for m in most), start=Fraction(1)) ** (
            form == "scaled"
        )

    def covariance(self, residual):
        """Of the noise at variance 1; that of cells is also what makes a residual of counts."""
        if len(residual) == 1 and residual[0] in self.strategies:
            return self.strategies[residual[0]].noise
        shape = self.domain.shape(residual)
        units = np.eye(self.domain.size(residual))
        return np.array([centered(e.reshape(shape), self.domain, residual).ravel() for e in units])


DOMAIN = domain_of(2, 3, 4, 1)
PLAIN = Domain((Attribute("a", 7), Attribute("b", 4)))
SERVED = domain_of(9, 4, 3)
QUERIES = {"version": 1, "parts": [{"ways": [2], "queries": "range"}]}
GROUPS = ((0, (0, 0, 1, 2, 1, 3, 3)), (0, (0, 0, 1, 1, 1, 0, 0)), (1, (0, 0, 0, 1)))
AT_LEVELS = replace(PLAIN, groupings=tuple(Grouping(*groups) for groups in GROUPS))
WORLDS = {
    "cells": World(DOMAIN, DOMAIN, {}, ((), (0,), (1,), (0, 1), (0, 2), (1, 2), (0, 1, 2))),
    "levels": World(PLAIN, AT_LEVELS, {}, tuple(AT_LEVELS.at_levels((0, 1)))),
    "strategies": World(
        SERVED,
        SERVED,
        column_strategies(WorkloadFile.parse(QUERIES).query_workload(SERVED)),
        ((0,), (1,)),
    ),
}
CASES = [(world, residual) for world, each in WORLDS.items() for residual in each.residuals]
every_case = pytest.mark.parametrize(("world", "residual"), CASES)


@pytest.fixture(params=["scaled", "plain"])
def form(request, monkeypatch):
    """Both ways to release a residual; the plain one is forced by a scale limit of zero."""
    if request.param == "plain":
        monkeypatch.setattr(measure, "MAX_SCALE", 0)
    return request.param


@every_case
@pytest.mark.parametrize("variance", [1e-9, 12.34, 1e6])
def test_the_charge_is_exactly_the_cost_over_twice_the_variance(form, world, residual, variance):
    world = WORLDS[world]
    mechanisms, counter = Recorder(rho=1e12), world.counter(skewed_rows(world.columns, 40, 2))
    found = measure_residuals(counter, mechanisms, {residual: variance}, world.strategies)
    (event,) = mechanisms.budget.events
    cost = world.exact_cost(residual, form)
    assert event.rho == cost / (2 * Fraction(variance))
    assert measurement_cost(world.domain, residual, world.strategies) == pytest.approx(float(cost))
    # The label names the attributes and nothing else.
    names = " x ".join(world.domain.clique_names(world.domain.columns(residual)))
    assert event.label == (f"residual {names}" if names else "total")
    values = found[residual]
    assert values.shape == world.domain.shape(residual)
    if world is WORLDS["cells"]:
        for axis in range(values.ndim):
            np.testing.assert_allclose(values.sum(axis=axis), 0, atol=1e-9 * math.sqrt(variance))


@every_case
def test_no_row_moves_the_input_by_more_than_the_declared_sensitivity(form, world, residual):
    """Every possible row is added in turn; the worst moves it by exactly the sensitivity."""
    world = WORLDS[world]
    rows, moves = skewed_rows(world.columns, 5, 1), set()
    before = world.call(rows, residual)
    for row in every_row(world.columns):
        after = world.call([*rows, row], residual)
        moves.add(sum(x * x for x in (after.inputs - before.inputs).ravel().tolist()))
        assert after.event == before.event
    assert max(moves) == before.event.squared_sensitivity
    assert world is not WORLDS["cells"] or len(moves) == 1


@pytest.mark.parametrize("rows_per_person", [None, 2])
@every_case
def test_no_row_in_anothers_place_moves_the_input_by_more_than_is_charged(
    form, world, residual, rows_per_person
):
    """All pairs of rows: the worst moves it by exactly what is charged, but for the total, which
    no replacement moves and which is charged as a row removed and another one added."""
    world, unit = (
        WORLDS[world],
        Unit("who" if rows_per_person else None, rows_per_person or 1, "replace"),
    )
    every = [world.call([row] * unit.rows, residual, unit) for row in every_row(world.columns)]
    inputs = np.array([each.inputs.ravel() for each in every])
    moved = ((inputs[:, None] - inputs) ** 2).sum(axis=-1)
    charged = every[0].event.squared_sensitivity
    assert moved.max() == (charged if residual else 0)
    costs = [measurement_cost(world.domain, residual, world.strategies, r) for r in (True, False)]
    assert costs[0] * unit.group**2 / 2e6 == pytest.approx(float(every[0].event.rho))
    assert costs[0] <= costs[1]


@pytest.mark.parametrize(
    ("world", "residual"),
    [
        *(("cells", residual) for residual in [(), (0,), (1, 2), (0, 1, 2)]),
        *(("levels", residual) for residual in [(0, 1), (2, 4)]),
        ("strategies", (0,)),
    ],
)
@pytest.mark.one_in(3)
def test_noise_has_the_covariance_that_is_stated(form, world, residual):
    """Sample covariances of n draws err by sqrt((S_ii S_jj + S_ij²)/n) and means by sqrt(S_ii/n).

    At most 28·29/2 + 28 = 434 comparisons in each of 14 cases, each at 5.5 standard errors:
    false alarm below 14 · 434 · 4e-8 = 3e-4, once, since the seed is fixed.
    """
    world = WORLDS[world]
    n, variance = 1000, 20.25
    mechanisms = Recorder(rho=100 * n / variance, seed=3)
    counter = world.counter(skewed_rows(world.columns, 40, 2))
    draws = [
        measure_residuals(counter, mechanisms, {residual: variance}, world.strategies)[residual]
        for _ in range(n)
    ]
    expected = variance * world.covariance(residual)
    counts = counter.count(residual)
    noise = np.array(draws).reshape(n, -1) - centered(counts, world.domain, residual).ravel()
    spread = np.sqrt(np.maximum(np.diag(expected), 1e-12))
    assert (np.abs(noise.mean(axis=0)) <= 5.5 * spread / math.sqrt(n)).all()
    error = np.abs(noise.T @ noise / n - expected)
    assert (error <= 5.5 * np.sqrt((np.outer(spread, spread) ** 2 + expected**2) / n)).all()


def test_the_form_depends_on_public_sizes_alone():
    assert is_scaled(domain_of(1024, 1024), (0, 1))
    assert not is_scaled(domain_of(1024, 1025), (0, 1))
    assert measurement_cost(domain_of(1024, 1025), (0, 1)) == 1.0


class OneCell:
    """As many rows as are allowed at all, all in one cell."""

    domain = domain_of(1024, 1024)

    def prepare(self, cliques):
        pass

    def count(self, clique):
        counts = np.zeros(self.domain.shape(clique), dtype=np.int64)
        counts[5, 7] = MAX_ROWS
        return counts


def test_the_largest_table_at_the_largest_scale_stays_exact():
    mechanisms = Recorder(rho=1.0)
    measure_residual(OneCell(), mechanisms, (0, 1), 1e3)
    inputs = mechanisms.calls[0].inputs
    assert int(inputs[5, 7]) == MAX_ROWS * 1023 * 1023
    assert int(inputs[5, 8]) == -MAX_ROWS * 1023
    assert int(inputs[0, 0]) == MAX_ROWS
    assert not inputs.sum(axis=0).any()


WIDER = Domain.from_sizes(dict(zip("abcde", (2, 3, 7, 1, 4))))


def objective(v, x, a):
    """Σ v/(x + a) over the residuals that matter."""
    return sum(vi / (xi + ai) for vi, xi, ai in zip(v, x, a) if vi > 0)


def clarabel(v, p, a, c):
    """Problem (8) of Fuentes et al. in the scaled variables x/c, a/c."""
    x = cp.Variable(len(v), nonneg=True)
    terms = [vi * cp.inv_pos(x[i] + a[i] / c) for i, vi in enumerate(v) if vi > 0]
    problem = cp.Problem(cp.Minimize(sum(terms)), [p @ x <= 1])
    problem.solve(solver=cp.CLARABEL)
    assert problem.status == cp.OPTIMAL
    return np.asarray(x.value) * c, problem.value / c


def random_problem(rng, m):
    """Scales over several orders of magnitude, some residuals unknown, some without weight."""
    v = np.exp(rng.normal(scale=2, size=m))
    p = rng.uniform(0.5, 1, m)
    a = np.where(rng.random(m) < 0.4, 0.0, np.exp(rng.normal(scale=2, size=m)))
    if m > 1:
        v[rng.random(m) < 0.2] = 0.0
        v[0] = max(v[0], 0.1)
    return v, p, a, float(np.exp(rng.normal(scale=2)))


@pytest.mark.parametrize("seed", range(25))
def test_water_filling_equals_clarabel(seed):
    rng = np.random.default_rng(seed)
    v, p, a, c = random_problem(rng, int(rng.integers(1, 9)))
    x = allocate_precision(v, p, a, c)
    expected, value = clarabel(v, p, a, c)
    # Clarabel stops at a relative gap of 1e-8; near the optimum the objective is flat, so the
    # solution itself is only known to about its square root.
    assert objective(v, x, a) == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(x[v > 0], expected[v > 0], rtol=1e-3, atol=1e-3 * c)


positive = st.floats(1e-4, 1e4)


@st.composite
def problems(draw):
    m = draw(st.integers(1, 10))
    array = lambda elements: draw(hnp.arrays(float, m, elements=elements))  # noqa: E731
    v = array(st.one_of(st.just(0.0), positive))
    v[draw(st.integers(0, m - 1))] = draw(positive)
    a = array(st.one_of(st.just(0.0), positive))
    return v, array(st.floats(0.1, 1)), a, draw(positive)


@given(problems())
def test_the_conditions_of_karush_kuhn_and_tucker_hold(problem):
    v, p, a, c = problem
    x = allocate_precision(v, p, a, c)
    assert (x >= 0).all()
    # x = final·level − a cancels where the precision held dwarfs the budget: allow that rounding.
    slack = 1e-12 * (p * a).sum() / c
    assert (p * x).sum() == pytest.approx(c, rel=1e-9 + slack)
    assert (x[v == 0] == 0).all()
    unknown = (v > 0) & (a == 0)
    assert (x[unknown] > 0).all()
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(v > 0, v / (p * (x + a) ** 2), 0.0)  # marginal gain per unit of cost
    active = x > 0
    multiplier = gain[active].max()
    np.testing.assert_allclose(gain[active], multiplier, rtol=1e-6)
    assert (gain[~active] <= multiplier * (1 + 1e-6)).all()


@given(st.lists(problems(), min_size=1, max_size=4))
def test_leading_axes_are_independent_problems(some):
    m = max(len(v) for v, _, _, _ in some)
    pad = lambda array, value: np.pad(array, (0, m - len(array)), constant_values=value)  # noqa: E731
    v = np.array([pad(problem[0], 0.0) for problem in some])
    p = np.array([pad(problem[1], 1.0) for problem in some])
    a = np.array([pad(problem[2], 0.0) for problem in some])
    c = np.array([problem[3] for problem in some])
    together = allocate_precision(v[:, None], p[:, None], a[:, None], c[:, None])
    assert together.shape == (len(some), 1, m)
    for row in range(len(some)):
        alone = allocate_precision(v[row], p[row], a[row], c[row])
        np.testing.assert_allclose(together[row, 0], alone, rtol=1e-9)


def test_what_is_known_decides_who_gets_something():
    """Nothing known is the closed form of ResidualPlanner; what is known well gets nothing."""
    v, p, c = np.array([1.0, 4.0, 9.0]), np.array([1.0, 0.5, 0.25]), 7.0
    x = allocate_precision(v, p, np.zeros(3), c)
    np.testing.assert_allclose(x, c * np.sqrt(v / p) / np.sqrt(v * p).sum())
    x = allocate_precision([1.0, 1.0], [1.0, 1.0], [1000.0, 1.0], 2.0)
    np.testing.assert_allclose(x, [0.0, 2.0])


@pytest.mark.parametrize("residual", [(), (0,), (2,), (0, 2), (0, 2, 4), (3,), (0, 3)])
def test_cost_and_weight_follow_propositions_4_3_and_4_4(residual):
    n = WIDER.sizes
    assert privacy_cost(WIDER, residual) == pytest.approx(
        math.prod((n[i] - 1) / n[i] for i in residual)
    )
    clique = (0, 2, 3, 4)
    # The covariance ⊗Π_i (residual) ⊗ 11ᵀ/n_j² (rest) of a reconstructed part, in full.
    covariance = np.ones((1, 1))
    for i in clique:
        ones = np.ones((n[i], n[i]))
        factor = np.eye(n[i]) - ones / n[i] if i in residual else ones / n[i] ** 2
        covariance = np.kron(covariance, factor)
    weight = variance_weight(WIDER, residual, clique)
    np.testing.assert_allclose(np.diag(covariance), weight, atol=1e-15)


CANDIDATES = [c for k in (1, 2, 3) for c in combinations((0, 1, 2, 4), k)]


class Planned:
    """A planner with its closure and costs, and the problem of each clique."""

    def __init__(self, domain, candidates):
        self.closure = downward_closure(candidates)
        self.cost = np.array([privacy_cost(domain, tau) for tau in self.closure])
        self.planner = ConditionalPlanner(domain, self.closure, candidates, self.cost)
        self.domain = domain
        self.nothing = np.zeros(len(self.closure))

    def problem(self, clique):
        """Residuals, their positions in the closure, weights and costs."""
        taus = list(subsets(clique))
        rows = [self.closure.index(tau) for tau in taus]
        v = np.array([variance_weight(self.domain, tau, clique) for tau in taus])
        return taus, rows, v, self.cost[rows]

    def spent(self, chosen):
        return sum(self.cost[self.closure.index(tau)] * x for tau, x in chosen.items())


WIDE = Planned(WIDER, CANDIDATES)


def precisions(seed):
    rng = np.random.default_rng(seed)
    some = np.exp(rng.normal(scale=3, size=len(WIDE.closure)))
    return np.where(rng.random(len(WIDE.closure)) < 0.5, 0.0, some)


@pytest.mark.parametrize("seed", range(5))
def test_expected_noise_equals_a_direct_loop_in_any_order(seed):
    known, budget = precisions(seed), 0.3
    expected, unmeasured = [], []
    for clique in CANDIDATES:
        _, rows, v, p = WIDE.problem(clique)
        variance = objective(v, allocate_precision(v, p, known[rows], budget), known[rows])
        expected.append(math.sqrt(variance))
        held = [(vi, a) for vi, a in zip(v, known[rows]) if vi > 0]
        unmeasured.append(math.sqrt(sum(vi / a if a else math.inf for vi, a in held)))
    every = np.arange(len(CANDIDATES))
    found, before = WIDE.planner.expected_stds(known, np.array([budget, 0.0]), every)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(before, unmeasured, rtol=1e-12)
    order = np.random.default_rng(0).permutation(len(CANDIDATES))
    shuffled = ConditionalPlanner(WIDER, WIDE.closure, [CANDIDATES[k] for k in order], WIDE.cost)
    (moved,) = shuffled.expected_stds(known, np.array([budget]), every)
    np.testing.assert_allclose(moved, found[order])
    some = every[::2]
    (part,) = WIDE.planner.expected_stds(known, np.array([budget]), some)
    np.testing.assert_array_equal(part, found[some])


@pytest.mark.parametrize("seed", range(20))
def test_an_allocation_spends_the_budget_and_drops_only_known_negligible_residuals(seed):
    known, budget = precisions(seed), 0.3
    for clique in CANDIDATES:
        taus, rows, v, p = WIDE.problem(clique)
        best = allocate_precision(v, p, known[rows], budget)
        chosen = WIDE.planner.allocate(clique, known, budget)
        assert set(chosen) <= set(taus)
        assert WIDE.spent(chosen) == pytest.approx(budget)
        for tau, cost, row, x in zip(taus, p, rows, best):
            if tau not in chosen:
                assert x == 0 or (cost * x <= 1e-3 * budget and known[row] > 0)
        x = np.array([chosen.get(tau, 0.0) for tau in taus])
        # Each dropped residual gives away at most 1e-3 of the budget, and 8 at most are dropped.
        assert objective(v, x, known[rows]) <= 1.01 * objective(v, best, known[rows])


def test_an_unknown_residual_is_measured_however_little_it_gets():
    """The total of 60,000 cells gets 1/60,000 of what the largest residual gets."""
    large = Planned(Domain.from_sizes({"a": 50, "b": 40, "c": 30}), [(0, 1, 2)])
    chosen = large.planner.allocate((0, 1, 2), large.nothing, 1.0)
    assert set(chosen) == set(large.closure)
    assert chosen[()] < 1e-3


def test_the_share_of_a_dropped_residual_goes_to_the_others():
    """Known precisions put residual (0,) just below the water line, by a ten-thousandth."""
    pair = Planned(WIDER, [(0, 2)])
    taus, rows, v, cost = pair.problem((0, 2))
    assert rows == [0, 1, 2, 3]
    level = np.sqrt(v / cost)
    known = np.where([tau == (0,) for tau in taus], level * (1 - 1e-4), 0.0)
    best = level - known
    budget = float((cost * best).sum())
    chosen = pair.planner.allocate((0, 2), known, budget)
    assert set(chosen) == set(taus) - {(0,)}
    assert pair.spent(chosen) == pytest.approx(budget, rel=1e-12)
    for tau, x in zip(taus, best):
        assert tau == (0,) or chosen[tau] > x


def test_a_single_valued_attribute_costs_and_gets_nothing():
    single = Planned(WIDER, [(0, 3), (3,), (0,)])
    chosen = single.planner.allocate((0, 3), single.nothing, 1.0)
    assert set(chosen) == {(), (0,)}
    (stds,) = single.planner.expected_stds(single.nothing, np.ones(1), np.arange(3))
    assert np.isfinite(stds).all()
    assert stds[0] == pytest.approx(stds[2])


@pytest.mark.parametrize("seed", range(10))
def test_conditional_noise_is_never_worse_than_isotropic_noise(seed):
    """IID noise of variance s² gives residual τ the precision Π_{j∉τ}(1/n_j)/s²."""
    budget, known = 0.3, precisions(seed)
    for clique in CANDIDATES:
        taus, rows, v, p = WIDE.problem(clique)
        iid = budget * np.array([WIDER.size(t) / WIDER.size(clique) for t in taus])
        assert (p * iid).sum() == pytest.approx(budget)
        best = allocate_precision(v, p, known[rows], budget)
        assert objective(v, best, known[rows]) <= objective(v, iid, known[rows]) * (1 + 1e-9)


def test_a_known_clique_of_many_attributes_is_still_measured():
    """With 2,048 known residuals the average share is below a thousandth of the budget."""
    clique = tuple(range(11))
    many = Planned(Domain.from_sizes({f"b{i}": 2 for i in clique}), [clique])
    first = many.planner.allocate(clique, many.nothing, 1.0)
    known = np.array([first.get(tau, 0.0) for tau in many.closure])
    second = many.planner.allocate(clique, known, 1.0)
    assert second
    assert many.spent(second) == pytest.approx(1.0)
