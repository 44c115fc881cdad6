"""What a row costs, and what a group of rows, against the definitions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.audit.replay import Recorder
from adaptive_qs.errors import BudgetExceeded, InputError
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import (
    Cost,
    GaussianEvent,
    PartitionEvent,
    Purpose,
    SelectionEvent,
    threshold_delta,
)
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.privacy.selection import least_threshold
from adaptive_qs.privacy.unit import NEIGHBOURS, ROWS, Unit
from adaptive_qs.run.budget import PrivacyTarget

from ..doors import discover_values, release_counts, select

UNITS = [ROWS, Unit("who", 1), Unit("who", 5), Unit(None, 1, "replace"), Unit("who", 3, "replace")]
SIZES = [1, 1, 5, 2, 6]


def discovering(variance=50, share=Fraction(1, 10**6)):
    return PartitionEvent(Purpose.VALUES, ("c",), variance, least_threshold(variance, share), share)


def events():
    yield GaussianEvent(Purpose.ROWS, (), 3, 100)
    yield SelectionEvent(Purpose.SELECTION, (), 0.25)
    yield discovering()


@pytest.mark.parametrize(("unit", "rows"), list(zip(UNITS, SIZES)))
def test_a_group_costs_the_square_of_its_rows(unit, rows):
    assert unit.group == rows
    for event in events():
        priced = unit.priced(event)
        assert (priced.rho, priced.delta) == (rows**2 * event.rho, rows * event.delta)
        assert (priced.label, type(priced)) == (event.label, type(event))
    assert ROWS.priced(event) == event


@given(st.integers(1, 40), st.integers(1, 6), st.lists(st.integers(1, 2**50), max_size=9))
def test_what_rows_may_cost_never_costs_the_unit_more(rows, steps, units):
    """Events that fit a part of a budget fit the budget, rounding included."""
    unit = Unit("who", rows, "replace" if steps % 2 else "add-remove")
    budget = Cost(sum(units) * unit.group**2 + steps, 0)
    priced = [unit.priced(GaussianEvent(Purpose.ROWS, (), 2 * n, 2**60)) for n in units]
    assert Cost.of(priced).fits(budget)
    assert unit.for_rows(budget).rho_units >= sum(units)
    assert unit.for_rows(budget).rho_units * unit.group**2 <= budget.rho_units


@pytest.mark.parametrize("rows", [1, 3])
def test_counts_that_two_rows_move_less_than_twice_cost_less(rows):
    """K² times the squared distance of two rows; for rows added or removed it says nothing."""
    event = GaussianEvent(Purpose.RESIDUAL, ("a",), 12, 100)
    replaced, added = (Unit("who", rows, kind) for kind in ("replace", "add-remove"))
    assert replaced.priced_counts(event, 32).squared_sensitivity == 32 * rows**2
    assert replaced.priced_counts(event, None) == replaced.priced(event)
    assert added.priced_counts(event, 32) == added.priced(event)
    for impossible in (49, 11):
        with pytest.raises(ValueError, match="cannot be so far apart, or so near"):
            replaced.priced_counts(event, impossible)


def tail(variance, least):
    """P[noise ≥ least] of the discrete Gaussian, summed."""
    weights = np.exp(-(np.arange(-400, 401) ** 2) / (2 * variance))
    return float(weights[400 + least :].sum() / weights.sum())


def divisions(rows, most):
    """All ways to divide rows among values."""
    if rows == 0:
        yield []
    for first in range(min(rows, most), 0, -1):
        for rest in divisions(rows - first, first):
            yield [first, *rest]


@pytest.mark.parametrize("rows", [1, 2, 4, 7])
def test_values_of_one_person_are_found_as_rarely_as_stated(rows):
    """However a person's rows are divided among values that nobody else has."""
    event = Unit("who", rows).priced(discovering(variance=9, share=Fraction(1, 1_000)))
    found = [
        1 - math.prod(1 - tail(9, event.threshold - count) for count in counts)
        for counts in divisions(rows, rows)
    ]
    assert max(found) <= event.delta == rows * Fraction(1, 1_000)


def test_a_threshold_that_is_too_low_for_a_group_is_refused():
    event = Unit("who", 4).priced(discovering())
    with pytest.raises(InputError, match="threshold too low"):
        PartitionEvent(Purpose.VALUES, ("c",), 50, event.threshold - 9, event.delta, 4)
    with pytest.raises(InputError, match="at least 5"):
        PartitionEvent(Purpose.VALUES, ("c",), 50, 4, Fraction(1, 2), 4)
    with pytest.raises(InputError, match="rows is 0"):
        PartitionEvent(Purpose.VALUES, ("c",), 50, 40, Fraction(1, 2), 0)
    assert threshold_delta(Fraction(50), event.threshold - 3) * 4 <= event.delta


@pytest.mark.parametrize("unit", UNITS)
def test_every_draw_is_charged_for_the_unit_of_its_ledger(unit):
    """Whoever measures gives events for a row, and all ways out price them."""
    mechanisms = Recorder(Budget(10**6, 1, unit=unit), InsecureSeed(3))
    counts, choice, values = events()
    release_counts(mechanisms, counts, np.array([4, 5]))
    select(mechanisms, choice, np.array([2, 9, 4]), 2)
    discover_values(mechanisms, values, ["x", "y"], np.array([1, 400]), 5)
    told = [call.event for call in mechanisms.calls]
    assert told == list(mechanisms.ledger.events) == [unit.priced(event) for event in events()]
    assert mechanisms.calls[1].score_sensitivity == 2 * unit.group
    assert mechanisms.ledger.spent == Cost.of(told)


def test_noise_for_rows_does_not_fit_the_budget_of_persons():
    mechanisms = Recorder(Budget(1, unit=Unit("who", 3)), InsecureSeed(0))
    with pytest.raises(BudgetExceeded):
        release_counts(mechanisms, GaussianEvent(Purpose.ROWS, (), 2, 1), np.array([4]))
    assert mechanisms.calls == []


def test_draws_are_those_of_rows():
    """A group changes what a draw costs, not how it is made."""
    drawn = []
    for unit in (ROWS, Unit("who", 4)):
        mechanisms = Recorder(Budget(10**6, unit=unit), InsecureSeed(5))
        counts, choice, _ = events()
        noisy = release_counts(mechanisms, counts, np.arange(50))
        chosen = [select(mechanisms, choice, np.arange(30), 1) for _ in range(20)]
        drawn.append([*noisy.tolist(), *chosen])
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            ("who", None, "add-remove"),
            "schema names the person column 'who'. Set --rows-per-person",
        ),
        ((None, 3, "add-remove"), "needs a person column, and the schema names none"),
        (("who", 0, "add-remove"), "rows-per-person is 0. Use a positive integer"),
        (("who", 2.5, "add-remove"), "rows-per-person is 2.5"),
        (("who", 2**21, "add-remove"), "rows-per-person is 2,097,152. Use 1,048,576 at most"),
        (("who", 2, "bounded"), "neighbours is 'bounded'. Use one of add-remove, replace"),
    ],
)
def test_units_that_do_not_make_sense_are_refused(values, words):
    with pytest.raises(InputError, match=words):
        Unit.of(*values)


def test_a_unit_says_what_it_protects():
    assert (ROWS.name, ROWS.relation) == ("one row", "add or remove one row")
    assert Unit(None, 1, "replace").relation == "replace one row"
    person = Unit.of("who", 3, "replace")
    assert person.name == "one person: all rows with the same 'who', of which at most 3 count"
    assert person.protected == Unit.of("who", 9, "replace").protected
    assert person.relation == "replace one person with all rows"
    assert set(NEIGHBOURS) == {"add-remove", "replace"}


def test_a_budget_that_leaves_a_row_nothing_is_refused():
    target = PrivacyTarget.of(1.0)
    assert target.protecting(Unit("who", 1_000)).unit.rows == 1_000
    with pytest.raises(InputError, match="leaves only noise"):
        target.protecting(Unit("who", 50_000))
