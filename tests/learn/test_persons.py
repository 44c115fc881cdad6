"""How many rows of a person count, against the numbers of rows themselves."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_qs.errors import InputError
from adaptive_qs.learn.persons import GRID, counting_cost, learn_rows, tolerated
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import Cost, Purpose
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.privacy.unit import MOST_LEARNT, NEIGHBOURS, Unit

RNG = np.random.default_rng(11)
ROWS = {
    "all alike": np.full(2_000, 3),
    "a long tail": np.minimum(RNG.zipf(1.9, 8_000), 50_000),
    "few rows": RNG.geometric(0.4, 5_000),
    "far too many": np.full(1_000, 10 * MOST_LEARNT),
}


def learnt(rows, rho=2.0**-7, few=50.0, most=MOST_LEARNT, seed=0, neighbours="add-remove"):
    unit = Unit.of("who", "auto", neighbours)
    mechanisms = Mechanisms(Budget(1, unit=unit), InsecureSeed(seed))
    found = learn_rows(unit, rows, mechanisms, unit.for_rows(Cost.within(rho)), few, most)
    assert mechanisms.ledger.unit == Unit("who", found, neighbours)
    return found, mechanisms.ledger.events


@pytest.mark.parametrize("name", ROWS)
def test_it_is_the_least_number_that_few_persons_exceed(name):
    """Within five deviations (a false alarm in a million draws, of about thirty) of the noise of
    counts of which at most all levels of a tree of 30 cells or fewer branches are summed."""
    rows, few = ROWS[name], 200.0
    for seed in range(20):
        found, (event,) = learnt(rows, few=few, seed=seed)
        noise = 5 * (float(event.noise_variance) * 2 * event.squared_sensitivity) ** 0.5
        below = GRID[max(GRID.index(found) - 1, 0)]
        assert found == MOST_LEARNT or (rows > found).sum() <= few + noise
        assert found == 1 or (rows > below).sum() >= few - noise


def test_without_noise_to_speak_of_it_is_exact():
    few = 37.0
    for rows in ROWS.values():
        exact = next((k for k in GRID if (rows > k).sum() <= few), MOST_LEARNT)
        assert learnt(rows, rho=0.9, few=few)[0] == exact


def test_nobody_is_seen_where_there_is_only_noise():
    """Persons fewer than noise can show give 1: the least noise for what is measured next."""
    drawn = [learnt(np.full(2, 900), rho=1e-4, few=0.0, seed=seed)[0] for seed in range(40)]
    assert np.mean(np.array(drawn) == 1) > 0.8


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_it_costs_what_was_set_aside_and_no_more_for_many_rows(neighbours):
    """One person changes one number, whatever it is: no factor for rows, but one for replacing."""
    cost = counting_cost(Cost.within(0.3))
    assert float(cost.rho) == pytest.approx(0.006)
    found, (event,) = learnt(ROWS["a long tail"], 0.006, neighbours=neighbours)
    assert found > 1
    assert event.purpose is Purpose.PERSONS
    assert event.columns == ("who",)
    assert 0.006 * (1 - 1e-9) < Cost.of([event]).rho <= Cost.within(0.006).rho
    assert counting_cost(Cost.within(1e4)).rho == 2.0**-7
    with pytest.raises(InputError, match="too little to learn how many rows of a person"):
        counting_cost(Cost(100))


def test_no_more_are_taken_than_leave_a_budget_for_rows():
    assert learnt(ROWS["far too many"], most=37)[0] == 30
    assert learnt(ROWS["far too many"], most=0)[0] == 1


def test_few_are_those_whose_rows_are_worth_less_than_the_noise():
    """The L1 error of one-way marginals with equal shares of rho, from its definition."""
    sizes, rho = [4, 9, 20], 0.01
    noise = np.random.default_rng(3).normal(0, (3 / (2 * rho)) ** 0.5, (20_000, 33))
    l1 = np.abs(noise).sum(axis=1).mean() / 3
    assert tolerated(sizes, rho) == pytest.approx(l1, rel=0.01)
