"""The budget of a batch, and the evidence that discrete noise keeps its curve."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs import Synthesizer
from adaptive_qs.errors import InputError
from adaptive_qs.privacy.accounting import FINE_NOISE, compute_epsilon, compute_rho
from adaptive_qs.privacy.events import UNITS_PER_RHO
from adaptive_qs.run.budget import MAX_COST, MAX_FILTERED, MIN_COST, SLACK, PrivacyTarget

TABLE = [
    (1, 1e-9, 0.03311483),
    (0.1, 1e-9, 0.0003966639),
    (10, 1e-9, 2.365067),
    (1, 1e-6, 0.05602896),
]


def exact_delta(cost, epsilon):
    """Dong, Roth and Su 2022, Corollary 2.13, to 60 digits."""
    with mpmath.workdps(60):
        mu, epsilon = mpmath.sqrt(mpmath.mpf(cost)), mpmath.mpf(epsilon)
        x = epsilon / mu - mu / 2
        return mpmath.ncdf(-x) - mpmath.exp(epsilon) * mpmath.ncdf(-x - mu)


@pytest.mark.parametrize(("epsilon", "delta", "cost"), TABLE)
def test_known_costs_are_met_to_seven_digits_but_for_the_slack(epsilon, delta, cost):
    target = PrivacyTarget.of_answers(epsilon, delta)
    # The table has no slack; SLACK of δ moves β by at most SLACK, since β grows slower than δ.
    assert cost * (1 - SLACK) - 5e-7 * cost <= target.cost <= cost * (1 + 5e-7)
    assert exact_delta(target.cost, epsilon) * (1 + SLACK) <= delta
    assert exact_delta(target.cost * (1 + 2 * SLACK), epsilon) * (1 + SLACK) > delta
    assert target.cost > 1.05 * 2 * compute_rho(epsilon, delta)  # what exact accounting is for


@pytest.mark.parametrize(("epsilon", "delta", "cost"), TABLE)
def test_tables_get_the_same_budget_as_answers_and_a_filter(epsilon, delta, cost):
    target = PrivacyTarget.of(epsilon, delta)
    assert target == replace(PrivacyTarget.of_answers(epsilon, delta), filtered=True)
    assert target.gaussian
    back = PrivacyTarget.of(rho=target.rho, delta=delta)
    assert back.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert exact_delta(target.cost, back.epsilon) * (1 + SLACK) <= delta


def test_discovering_takes_its_share_of_delta_first():
    target = PrivacyTarget.of(1, 1e-9, discovery_share=Fraction(1, 2), column_share=0.05)
    assert target.filtered
    assert target.rho == PrivacyTarget.of(1, 5e-10).rho
    assert exact_delta(target.cost, 1) * (1 + SLACK) <= 5e-10


@pytest.mark.parametrize(
    "given_",
    [
        {"epsilon": 1, "discovery_share": Fraction(1, 2), "column_share": 0.5},
        {"epsilon": 10, "column_share": 0.01},
        {"epsilon": 1, "column_share": 0.01, "learning_share": 0.81},
        {"epsilon": 1_000},
        {"rho": MAX_FILTERED * 1.01},
    ],
)
def test_tables_are_of_zcdp_where_noise_is_narrow(given_):
    target = PrivacyTarget.of(**given_)
    assert not target.gaussian
    assert not target.filtered
    left = target.delta * (1 - float(target.discovery_share))
    assert target.epsilon == pytest.approx(compute_epsilon(target.rho, left), rel=1e-9)


def test_a_table_may_be_learnt_with_nearly_all_of_the_budget():
    column = {"name": "a", "type": "integer", "private_bins": 3}
    given_ = {"rho": 0.001, "learning_share": 0.999999, "beyond_limits": True}
    model = Synthesizer(**given_, insecure_seed=1).fit(
        pd.DataFrame({"a": range(50)}), schema={"version": 1, "columns": [column]}
    )
    assert model.release_.manifest.accountant == "zCDP"
    assert 0.9999e-3 < model.rho_spent_ <= 1e-3


@given(st.floats(0.01, 100), st.floats(1e-12, 1e-2))
def test_what_is_asked_for_is_never_exceeded(epsilon, delta):
    target = PrivacyTarget.of_answers(epsilon=epsilon, delta=delta)
    assert exact_delta(target.cost, epsilon) * (1 + SLACK) <= delta
    assert (target.epsilon, target.delta) == (epsilon, delta)
    assert target.units <= target.cost / 2 * UNITS_PER_RHO


@given(st.floats(1e-6, 1e4), st.floats(1e-12, 1e-2))
def test_costs_tell_an_epsilon_that_holds(cost, delta):
    target = PrivacyTarget.of_answers(cost=cost, delta=delta)
    assert exact_delta(cost, target.epsilon) * (1 + SLACK) <= delta
    assert (
        target.epsilon <= compute_epsilon(cost / 2, delta) * (1 + 1e-5) or target.epsilon == 1e-12
    )
    if target.epsilon > 1e-6:
        assert exact_delta(cost, target.epsilon * (1 - 1e-4)) > delta * (1 - SLACK)
        back = PrivacyTarget.of_answers(epsilon=target.epsilon, delta=delta).cost
        assert back == pytest.approx(cost, rel=1e-5)


def test_rho_is_half_the_cost():
    one, other = PrivacyTarget.of_answers(rho=0.25), PrivacyTarget.of_answers(cost=0.5)
    assert one == other
    assert one.rho == 0.25
    assert one.units == UNITS_PER_RHO // 4
    assert one.delta == 1e-9


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({}, "No privacy budget is set. Use exactly one"),
        ({"epsilon": 1, "cost": 1}, "epsilon and cost are set"),
        ({"rho": 1, "cost": 1}, "rho and cost are set"),
        ({"epsilon": 0}, "epsilon is 0"),
        ({"epsilon": -1.0}, "epsilon is -1.0"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"epsilon": math.inf}, "epsilon is inf"),
        ({"epsilon": "1"}, "epsilon is '1'"),
        ({"epsilon": True}, "epsilon is True"),
        ({"rho": 0.0}, "rho is 0.0"),
        ({"epsilon": 1e308}, r"epsilon is 1e\+308, which is a privacy cost of inf\. Lower it"),
        ({"rho": 1e308}, r"rho is 1e\+308, which is a privacy cost of inf\. Lower it"),
        ({"cost": MIN_COST / 2}, "cost is 5e-11. Raise it: .* 1e-10 leaves only noise"),
        ({"cost": MAX_COST * 1.01}, r"cost is 1.01e\+06. Lower it: .* 1e\+06 leaves no noise"),
        ({"epsilon": 1, "delta": 0}, "delta is 0"),
        ({"epsilon": 1, "delta": 1}, "delta is 1"),
        ({"epsilon": 1, "delta": 1e-301}, "delta is"),
        ({"cost": 1, "delta": math.nan}, "delta is nan"),
        ({"epsilon": 1e-9}, r"epsilon is 1e-09, which is a privacy cost of .*\. Raise it"),
        ({"epsilon": 1e9}, r"epsilon is 1e\+09, which is a privacy cost of 2e\+09\. Lower it"),
    ],
)
def test_impossible_targets_are_refused_in_one_line(given_, message):
    with pytest.raises(InputError, match=message) as caught:
        PrivacyTarget.of_answers(**given_)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cost", [MIN_COST, MAX_COST])
def test_the_ends_of_the_range_are_targets(cost):
    assert PrivacyTarget.of_answers(cost=cost).cost == cost


def lattice_delta(shift, std, epsilon):
    """δ(ε) of the discrete Gaussian N_Z(0, σ²)ᵈ for a row that moves it by ``shift``, by summing.

    The loss is (2⟨y, s⟩ + ‖s‖²)/(2σ²); the sums are over the values of ⟨y, s⟩, a multiple of the
    greatest common divisor. Each term is scaled by its largest factor, so nothing underflows.
    """
    reach = int(14 * std)
    y = np.arange(-reach, reach + 1)
    log_weight = -(y.astype(float) ** 2) / (2 * std**2)
    weight = np.exp(log_weight)
    norm = sum(s * s for s in shift)
    if len(shift) == 1:
        inner, mass = y * shift[0], weight
    else:
        first, second = shift
        products = np.add.outer(y * first, y * second).ravel()
        least = products.min()
        mass = np.bincount(products - least, weights=np.outer(weight, weight).ravel())
        inner = np.arange(mass.size) + least
    loss = (2 * inner + norm) / (2 * std**2)
    gain = -np.expm1(np.minimum(epsilon - loss, 0.0))
    terms = np.sort(mass * gain)
    return math.fsum(terms[terms > 0]) / math.fsum(weight) ** len(shift)


def variation_of_slope(cost, epsilon):
    """C of the module's docstring over √(2π): the total variation of h′, from its extremes."""
    mu = mpmath.sqrt(cost)
    x = epsilon / mu - mu / 2
    level = 1 / mpmath.sqrt(2 * mpmath.pi)

    def slope(t):
        here, there = (
            -t * mpmath.exp(-t * t / 2),
            (t + mu) * mpmath.exp(epsilon - (t + mu) ** 2 / 2),
        )
        return level * (here + there)

    reach = 8 - x if x < 0 else 16 / max(1, x)
    values = [mpmath.mpf(0), *(slope(x + k * reach / 400) for k in range(400)), mpmath.mpf(0)]
    return sum(abs(b - a) for a, b in pairwise(values))


CURVES = [
    (1e-3, 0.1),
    (0.0331, 1.0),
    (0.2, 0.5),
    (1.0, 3.0),
    (2.365, 10.0),
    (25.0, 40.0),
    (400.0, 290.0),
]


@pytest.mark.parametrize(("cost", "epsilon"), CURVES)
@pytest.mark.parametrize("std", [2.0**7, 2.0**10, 2.0**12])
def test_one_answer_stays_within_the_bound(std, cost, epsilon):
    """A row moves one answer by s; the excess of δ is below C/σ², and far below SLACK at F."""
    shift = round(math.sqrt(cost) * std)
    if not shift:
        pytest.skip("no row moves so coarse an answer")
    mu = shift / std
    exact = exact_delta(mu * mu, epsilon)
    excess = lattice_delta((shift,), std, epsilon) / float(exact) - 1
    bound = float(variation_of_slope(mu * mu, epsilon) / exact) / std**2
    # The sum of 10⁵ terms that are each right to 2⁻⁵⁰ or so of their size.
    assert abs(excess) <= bound + 1e-11


@pytest.mark.parametrize("shift", [(64, 48), (63, 50), (80, 0), (57, 57), (1, 79)])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
def test_two_answers_stay_within_the_bound(shift, epsilon):
    """With a common divisor of 16, of 1, of 80, of 57: coarse and fine lattices of the loss."""
    std = 80.0
    cost = sum(s * s for s in shift) / std**2
    exact = exact_delta(cost, epsilon)
    excess = lattice_delta(shift, std, epsilon) / float(exact) - 1
    bound = float(variation_of_slope(cost, epsilon) / exact) / std**2
    assert abs(excess) <= bound + 1e-11


def test_the_lattice_can_be_seen():
    """At σ = 8 the curve does differ, by about the size of the bound: the sums have power."""
    cost, epsilon = 1.0, 2.0  # the kink is at y = 12
    excess = lattice_delta((8,), 8.0, epsilon) / float(exact_delta(cost, epsilon)) - 1
    bound = float(variation_of_slope(cost, epsilon) / exact_delta(cost, epsilon)) / 64
    assert bound / 100 < abs(excess) < bound


@pytest.mark.parametrize("cost", [1e-10, 1e-4, 1.0, 400.0, MAX_COST])
@pytest.mark.parametrize("x", [-3.0, 0.0, 2.0, 6.0, 20.0, 36.9])
@pytest.mark.one_in(7)
def test_the_slack_covers_the_bound_at_every_cost_and_delta(cost, x):
    """x = ε/μ − μ/2 up to 36.9 covers δ down to 1e-300; rows may have any effect up to μ."""
    with mpmath.workdps(60):
        cost = mpmath.mpf(cost)
        mu = mpmath.sqrt(cost)
        epsilon = mu * (x + mu / 2)
        if epsilon <= 0:
            pytest.skip("δ is so large only for larger costs")
        delta = exact_delta(cost, epsilon)
        slopes = [variation_of_slope(cost * m * m, epsilon) for m in (0.1, 0.5, 0.8, 0.9, 0.97, 1)]
        assert max(slopes) < 2**17 * delta
    assert 2**17 / FINE_NOISE**2 < SLACK
