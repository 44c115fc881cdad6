"""Levels in the loop: what is counted, measured, planned and offered; neighbours replay."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from adaptive_qs.cliques import downward_closure
from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.levels import Grouping
from adaptive_qs.loop import candidates as levels
from adaptive_qs.loop import estimates as measure
from adaptive_qs.loop.budget import LoopSettings
from adaptive_qs.loop.candidates import CellLimit, ResidualIndex, at_levels, closure_at_levels
from adaptive_qs.loop.estimates import measurement_cost
from adaptive_qs.loop.loop import run_loop
from adaptive_qs.loop.planner import ConditionalPlanner
from adaptive_qs.privacy.counts import LevelCounter
from adaptive_qs.residual import variance_weight
from adaptive_qs.workload.workload import Workload

from .helpers import Recorder, counter_of, domain_of, skewed_rows
from .test_loop import assert_replays

FINE, COARSE = (0, 0, 1, 2, 1, 3, 3), (0, 0, 1, 1, 1, 0, 0)
PLAIN = Domain((Attribute("a", 7), Attribute("b", 4)))
DOMAIN = replace(
    PLAIN, groupings=(Grouping(0, FINE), Grouping(0, COARSE), Grouping(1, (0, 0, 0, 1)))
)
ROWS = skewed_rows(PLAIN, 60, 2)
PAIRS = list(DOMAIN.at_levels((0, 1)))


def counted(rows, domain=DOMAIN):
    return LevelCounter(counter_of(PLAIN, rows), domain)


def group_of(position, code):
    (column,) = DOMAIN.columns((position,))
    return code if column == position else DOMAIN.groupings[position - 2].groups[code]


def summed(rows, clique):
    """The marginal at its levels, row by row."""
    columns, found = DOMAIN.columns(clique), np.zeros(DOMAIN.shape(clique), dtype=np.int64)
    for row in rows:
        found[tuple(group_of(i, row[k]) for i, k in zip(clique, columns))] += 1
    return found


@pytest.mark.parametrize("kept", [0, 20, 10**6])
def test_marginals_at_levels_are_those_of_the_rows(kept):
    counter = LevelCounter(counter_of(PLAIN, ROWS), DOMAIN, kept)
    cliques = [*PAIRS, (2,), (3,), (0,), (4,)]
    assert counter.count(()) == len(ROWS)
    for _ in range(2):
        counter.prepare(cliques)
        for clique, found in zip(cliques, counter.count_all(cliques), strict=True):
            np.testing.assert_array_equal(found, summed(ROWS, clique))
            assert found.dtype == np.int64
    for clique, (cells, counts) in zip(PAIRS, counter.occupied(PAIRS), strict=True):
        dense = np.zeros(DOMAIN.size(clique), dtype=np.int64)
        dense[cells] = counts
        np.testing.assert_array_equal(dense.reshape(DOMAIN.shape(clique)), summed(ROWS, clique))
        assert (counts > 0).all()


def test_every_candidate_is_planned_over_all_levels_below_it():
    candidates = at_levels(DOMAIN, [(0,), (1,), (0, 1)])
    assert set(candidates) == {(0,), (1,), *PAIRS}
    closure = closure_at_levels(DOMAIN, downward_closure([(0, 1)]))
    assert set(closure) == set(DOMAIN.below((0, 1)))
    cost = [measurement_cost(DOMAIN, tau) for tau in closure]
    planner = ConditionalPlanner(DOMAIN, closure, candidates, cost)
    known = np.exp(np.random.default_rng(0).normal(size=len(closure)))
    place = {tau: k for k, tau in enumerate(closure)}
    (found,) = planner.expected_stds(known, np.zeros(1), np.arange(len(candidates)))
    for row, clique in enumerate(candidates):
        below = list(DOMAIN.below(clique))
        held = (variance_weight(DOMAIN, tau, clique) / known[place[tau]] for tau in below)
        assert found[row] == pytest.approx(math.sqrt(math.fsum(held)))
        new = planner.allocate(clique, np.zeros(len(closure)), 1.0)
        assert set(new) == set(below)
        assert sum(cost[place[tau]] * x for tau, x in new.items()) == pytest.approx(1.0)
    assert planner.most_residuals == len(list(DOMAIN.below((0, 1))))


def test_a_changed_residual_is_in_the_candidates_at_its_levels_and_finer_ones():
    candidates = [(0,), (1,), *PAIRS]
    members = ResidualIndex(DOMAIN, candidates)
    for residual in DOMAIN.below((0, 1)):
        wanted = [DOMAIN.is_below(residual, clique) for clique in candidates]
        assert members.containing([residual]).tolist() == wanted


def test_all_levels_of_a_marginal_count_once_against_the_ceiling_on_cells():
    offer = CellLimit(DOMAIN, [(0,), *PAIRS], 30)
    assert offer.open.all()
    offer.take((2, 4))
    assert offer.open.tolist() == [False, *[True] * len(PAIRS)]
    offer.take((0, 1))
    assert offer.open.tolist() == [False, *[True] * len(PAIRS)]


# The loop.

LARGE = domain_of(16, 20, 70, 18)
MANY = skewed_rows(LARGE, 300, 0)
PAIRS_OF_LARGE = Workload.all_ways(LARGE, 2)


@pytest.mark.parametrize("neighbour", [[*MANY, (0, 0, 0, 0)], MANY[1:]], ids=["added", "removed"])
def test_levels_replay_on_a_neighbour(neighbour):
    """Groups, offers, choices and noise are the same, inputs within their sensitivity."""
    result = assert_replays(MANY, neighbour, PAIRS_OF_LARGE, 0.5, None)
    domain = result.model.domain
    assert [g.attribute for g in domain.groupings] == [0, 1, 2, 2, 3]
    assert any(domain.columns(r.clique) != r.clique for r in result.rounds)
    for past in result.rounds:  # one without a marginal looks at halves
        assert not past.clique or set(past.measured) <= set(domain.below(past.clique))


PUBLIC = Domain(
    (
        *LARGE.attributes[:2],
        replace(LARGE.attributes[2], declared=(tuple(k // 14 for k in range(70)),)),
        LARGE.attributes[3],
    )
)


def test_declared_levels_replay_on_a_neighbour():
    result = assert_replays(MANY, MANY[1:], Workload.all_ways(PUBLIC, 2), 0.5, None)
    domain = result.model.domain
    (place,) = (
        k for k, g in enumerate(domain.groupings) if g.groups in PUBLIC.attributes[2].declared
    )
    assert any(len(LARGE) + place in past.clique for past in result.rounds)


def test_three_columns_at_levels_replay(monkeypatch):
    monkeypatch.setattr(measure, "MAX_SCALE", 50)  # some residuals are released in plain form
    rng = np.random.default_rng(0)
    halves = rng.integers(0, 2, (1000, 2))  # no pair says anything of the third half
    third = halves[:, 0] ^ halves[:, 1]
    high = np.stack([*halves.T, 0 * third, third], axis=1)
    spread = rng.integers(0, 8, (1000, 4))
    rows = list(map(tuple, (np.array([8, 10, 0, 9]) * high + spread).tolist()))
    triples = Workload(LARGE, {(0, 1, 3): 1.0, (1, 2): 1.0})
    result = assert_replays(rows, rows[:-1], triples, 2.0, None)
    domain = result.model.domain
    assert any(len(r.clique) == 3 and domain.columns(r.clique) != r.clique for r in result.rounds)


def offered(workload=PAIRS_OF_LARGE, rho=0.05, rows=MANY, **settings):
    mechanisms = Recorder(rho)
    table = mechanisms.table(counter_of(workload.domain, rows))
    result = run_loop(table, workload, mechanisms, rho, LoopSettings(**settings))
    return result.model.domain.groupings


def test_levels_are_offered_where_they_may_pay_and_only_there(monkeypatch):
    assert offered()
    assert not offered(levels="off")
    assert not offered(reference="uniform")
    assert not offered(rho=1e6)  # codes are measured well enough
    assert not offered(Workload.all_ways(LARGE, 1))
    assert not offered(Workload(LARGE, {(0, 1, 2, 3): 1.0}))
    small = domain_of(16, 20, 18)  # all cells are fitted as such
    assert not offered(Workload.all_ways(small, 2), rows=skewed_rows(small, 300, 0))
    for most, numbers in ((34, {32, 8}), (33, {8}), (27, set())):
        monkeypatch.setattr(levels, "MOST_CANDIDATES", most)
        assert {g.number for g in offered()} <= numbers
        assert bool(offered()) == bool(numbers)


def test_large_marginals_are_offered_over_codes_alone(monkeypatch):
    monkeypatch.setattr(levels, "MOST_SPREAD", 20)
    assert at_levels(DOMAIN, [(0, 1), (0,)]) == ((0, 1), (0,))


def test_noise_that_was_drawn_for_other_groups_is_not_taken_for_these():
    """Charges of a resumed run name columns only; what was measured is told apart beside them."""
    others = replace(DOMAIN, groupings=tuple(_shifted(g) for g in DOMAIN.groupings))
    for residual in (pair for pair in PAIRS if max(pair) >= len(DOMAIN)):
        assert measure._definition(DOMAIN, residual) != measure._definition(others, residual)
    plain = Domain(DOMAIN.attributes)
    assert measure._definition(plain, (0, 1)) == measure._definition(DOMAIN, (0,)) == ""


def _shifted(grouping):
    """The same number of groups, cut one code later."""
    return Grouping(grouping.attribute, (grouping.groups[0], *grouping.groups[:-1]))
