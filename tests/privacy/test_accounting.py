import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_qs.errors import InputError
from adaptive_qs.privacy.accounting import (
    advantage_rho,
    bound_advantage,
    compute_delta,
    compute_epsilon,
    compute_gaussian_delta,
    compute_gaussian_epsilon,
    compute_gaussian_mu,
    compute_rho,
)

from .oracles import gaussian_delta, zcdp_delta

PAIRS = [
    (1, 1e-9, 0.01497306, 0.1819748),
    (0.1, 1e-9, 0.0001771384, 0.01991642),
    (10, 1e-9, 1.090786, 1.537877),
    (1, 1e-6, 0.02435597, 0.2367044),
]
epsilons = st.floats(1e-4, 1e3)
deltas = st.floats(1e-30, 0.9)


@pytest.mark.parametrize(("epsilon", "delta", "rho", "mu"), PAIRS)
def test_known_pairs_are_met_to_seven_digits(epsilon, delta, rho, mu):
    assert float(f"{compute_rho(epsilon, delta):.7g}") == rho
    assert float(f"{compute_gaussian_mu(epsilon, delta):.7g}") == mu


CONVERSIONS = {
    "rho": (compute_rho, zcdp_delta, 1 + 1e-10, epsilons),
    "mu": (compute_gaussian_mu, gaussian_delta, 1 + 1e-6, epsilons),
    "epsilon": (compute_epsilon, zcdp_delta, 1 - 1e-7, st.floats(1e-8, 1e2)),
    "gaussian epsilon": (compute_gaussian_epsilon, gaussian_delta, 1 - 1e-6, st.floats(1e-5, 1e3)),
}
"""Our conversion, δ by definition, a factor that leaves safety, and what is converted."""


@pytest.mark.parametrize("name", CONVERSIONS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_conversion_is_safe_and_the_next_value_is_not(name, data):
    convert, exact_delta, beyond, values = CONVERSIONS[name]
    given, delta = data.draw(values), data.draw(deltas)
    found = convert(given, delta)

    def cost_and_epsilon(value):
        return (value, given) if name in ("rho", "mu") else (given, value)

    ours = compute_delta if exact_delta is zcdp_delta else compute_gaussian_delta
    if found > 1e-12:
        assert ours(*cost_and_epsilon(found)) <= delta
        assert exact_delta(*cost_and_epsilon(found * beyond)) > delta * (1 - 1e-9)
    assert exact_delta(*cost_and_epsilon(found)) <= delta


@pytest.mark.parametrize(("epsilon", "delta", "rho", "mu"), PAIRS)
def test_known_pairs_are_met_the_other_way(epsilon, delta, rho, mu):
    assert compute_gaussian_epsilon(compute_gaussian_mu(epsilon, delta), delta) <= epsilon * (
        1 + 1e-12
    )
    assert compute_gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.floats(1e-3, 1e2), deltas)
def test_epsilon_and_mu_are_inverse(mu, delta):
    epsilon = compute_gaussian_epsilon(mu, delta)
    if epsilon > 1e-6:
        assert compute_gaussian_mu(epsilon, delta) == pytest.approx(mu, rel=1e-6)


def test_a_gaussian_cost_within_delta_needs_next_to_no_epsilon():
    assert compute_gaussian_epsilon(1e-6, 0.5) == 1e-12


def test_nothing_spent_reveals_nothing():
    assert compute_delta(0.0, 1.0) == 0
    assert compute_epsilon(0.0, 1e-9) == 0


def test_a_cost_within_delta_needs_no_epsilon():
    assert compute_epsilon(1e-12, 0.5) == 0


def test_exact_accounting_beats_zcdp():
    for epsilon, delta, rho, mu in PAIRS:
        assert compute_gaussian_delta(math.sqrt(2 * rho), epsilon) < delta
        assert mu**2 > 2 * rho


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("convert", [compute_rho, compute_gaussian_mu])
def test_impossible_epsilons_are_refused(convert, bad):
    with pytest.raises(InputError, match="epsilon"):
        convert(bad, 1e-9)


@pytest.mark.parametrize("bad", [0.0, -1.0, 1.0, math.inf, math.nan])
@pytest.mark.parametrize(
    "convert", [compute_rho, compute_gaussian_mu, compute_epsilon, compute_gaussian_epsilon]
)
def test_impossible_deltas_are_refused(convert, bad):
    with pytest.raises(InputError, match="delta"):
        convert(1.0, bad)


@pytest.mark.parametrize("bad", [-1.0, math.inf, math.nan])
def test_impossible_costs_are_refused(bad):
    with pytest.raises(InputError, match="rho"):
        compute_delta(bad, 1.0)
    with pytest.raises(InputError, match="rho"):
        compute_epsilon(bad, 1e-9)
    with pytest.raises(InputError, match="mu"):
        compute_gaussian_delta(bad, 1.0)
    with pytest.raises(InputError, match="mu"):
        compute_gaussian_epsilon(bad, 1e-9)


def test_a_delta_too_small_for_any_number_is_not_zero():
    assert compute_delta(1e-12, 0.1) == math.ulp(0.0)


@given(st.floats(1e-6, 20))
def test_the_advantage_is_bounded_by_the_distance_of_gaussians_and_of_zcdp(mu):
    exact = math.erf(mu / math.sqrt(8))  # the total variation of N(0, 1) and N(mu, 1)
    assert exact <= bound_advantage(mu**2 / 2, mu, 0.0) <= exact * 1.000001 + 1e-12
    assert exact <= bound_advantage(mu**2 / 2, None, 0.0) <= 1
    assert bound_advantage(mu**2 / 2, mu, 0.01) == pytest.approx(min(exact + 0.01, 1), rel=1e-6)


@given(st.floats(1e-6, 0.999))
def test_a_budget_keeps_within_the_advantage_that_it_was_chosen_by(advantage):
    rho = advantage_rho(advantage)
    assert 0.9999 * advantage < bound_advantage(rho, math.sqrt(2 * rho), 0.0) <= advantage
    spent = advantage / 10  # by the discovery of values, next to zCDP
    rho = advantage_rho(advantage, False, spent)
    assert 0.9999 * advantage < bound_advantage(rho, None, spent) <= advantage
