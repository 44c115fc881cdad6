import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.errors import BudgetExceeded, InputError
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import UNITS_PER_RHO, Cost, GaussianEvent, Purpose, SelectionEvent

positive = st.fractions(min_value=Fraction(1, 10**9), max_value=10**9)
gaussians = st.builds(
    GaussianEvent, st.just(Purpose.STRATEGY), st.just(("counts",)), positive, positive
)
selections = st.builds(
    SelectionEvent,
    st.just(Purpose.SELECTION),
    st.just(()),
    st.one_of(positive, st.floats(1e-9, 1e3)),
)
events = st.one_of(gaussians, selections)


def charge(budget, event):
    """Release something that costs this."""
    assert budget.release([event], lambda: [7]) == [7]


def recomputed(event) -> Fraction:
    """zCDP cost straight from the definitions, apart from the code under test."""
    match dataclasses.asdict(event):
        case {"squared_sensitivity": squared, "noise_variance": variance}:
            return Fraction(squared) / Fraction(variance) / 2
        case {"epsilon": epsilon}:
            return Fraction(epsilon) * Fraction(epsilon) / 8
    raise AssertionError


@given(events)
def test_units_are_the_cost_rounded_up(event):
    units, cost = Cost.of([event]).rho_units, recomputed(event)
    assert Fraction(units - 1, UNITS_PER_RHO) < cost <= Fraction(units, UNITS_PER_RHO)


def test_ten_tenths_of_a_float_do_not_fit():
    """0.1 is a little above a tenth as a float; nothing is forgiven."""
    budget = Budget(1.0)
    tenth = GaussianEvent(Purpose.STRATEGY, ("counts",), Fraction(0.1), Fraction(1, 2))
    for _ in range(9):
        charge(budget, tenth)
    with pytest.raises(BudgetExceeded):
        charge(budget, tenth)


def test_threads_cannot_overspend_together():
    budget = Budget(1)
    event = GaussianEvent(Purpose.STRATEGY, ("counts",), 1, 50)  # 1/100 each

    def attempt(_):
        try:
            charge(budget, event)
        except BudgetExceeded:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        granted = sum(pool.map(attempt, range(300)))
    assert granted == len(budget.events)
    assert sum(map(recomputed, budget.events)) <= 1
    assert granted == 99  # 1/100 is rounded up to whole units, so the last one does not fit


@pytest.mark.parametrize("rho", [0, -1, math.inf, math.nan, 2.0**-61])
def test_impossible_budgets_are_refused(rho):
    with pytest.raises(InputError, match="rho"):
        Budget(rho)


@pytest.mark.parametrize(
    ("squared_sensitivity", "noise_variance"),
    [(0, 1), (-1, 1), (1, 0), (1, -1), (1.0, 1), (1, 1.0), (1, math.inf)],
)
def test_impossible_gaussian_events_are_refused(squared_sensitivity, noise_variance):
    with pytest.raises(InputError, match="positive int or Fraction"):
        GaussianEvent(Purpose.STRATEGY, ("counts",), squared_sensitivity, noise_variance)


@pytest.mark.parametrize("epsilon", [0, -1.0, math.inf, math.nan])
def test_impossible_selection_events_are_refused(epsilon):
    with pytest.raises(InputError, match="epsilon"):
        SelectionEvent(Purpose.SELECTION, (), epsilon)


@pytest.mark.parametrize("purpose", ["", None, 3, "selection", "gossip"])
def test_events_need_a_purpose(purpose):
    with pytest.raises(InputError, match="purpose"):
        SelectionEvent(purpose, (), 1.0)


@pytest.mark.parametrize(
    ("purpose", "columns"),
    [
        (Purpose.STRATEGY, "age"),
        (Purpose.STRATEGY, ["age"]),
        (Purpose.STRATEGY, ("",)),
        (Purpose.STRATEGY, (3,)),
        (Purpose.ROWS, ("age",)),
        (Purpose.SELECTION, ("age",)),
        (Purpose.BINS, ()),
        (Purpose.BINS, ("age", "job")),
        (Purpose.VALUES, ()),
        (Purpose.RESIDUAL, ()),
    ],
)
def test_columns_are_names_as_many_as_the_purpose_has(purpose, columns):
    with pytest.raises(InputError, match="columns"):
        GaussianEvent(purpose, columns, 1, 1)
