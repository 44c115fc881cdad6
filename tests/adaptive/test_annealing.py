import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.adaptive.annealing import RoundBudget

rhos = st.floats(1e-12, 1e3)
shares = st.floats(0.01, 0.99)


@given(rhos, shares)
def test_a_split_adds_up(rho, share):
    budget = RoundBudget.split(rho, share)
    assert budget.total == pytest.approx(rho)
    assert budget.selecting == pytest.approx(rho * share)


@given(rhos, shares)
def test_epsilon_is_that_of_an_exponential_mechanism_of_this_cost(rho, share):
    budget = RoundBudget.split(rho, share)
    assert budget.epsilon**2 / 8 == pytest.approx(budget.selecting)


@given(rhos, shares, st.floats(0, 1e9), st.floats(0, 1e9))
def test_a_round_that_brought_only_noise_is_followed_by_one_four_times_as_large(
    rho, share, moved, expected
):
    budget = RoundBudget.split(rho, share)
    after = budget.after(moved, expected)
    factor = 1 if moved > expected else 4
    assert after.selecting == factor * budget.selecting
    assert after.measuring == factor * budget.measuring


def test_a_round_that_moved_exactly_as_far_as_noise_counts_as_noise():
    assert RoundBudget(1.0, 2.0).after(5.0, 5.0).total == 12.0


@given(rhos, shares, rhos)
def test_a_round_is_kept_while_two_more_fit_and_takes_all_otherwise(rho, share, remaining):
    budget = RoundBudget.split(rho, share)
    fitted = budget.fitted(remaining, share)
    if remaining > 2 * budget.total:
        assert fitted == budget
    else:
        assert math.isclose(fitted.total, remaining)
        assert math.isclose(fitted.selecting, remaining * share)
