"""The bound of the advantage against exact distances of mechanisms that meet the promise."""

import math

import numpy as np
import pytest
from scipy.optimize import brute
from scipy.stats import norm

from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.attack.bound import (
    advantage_bound,
    pair_distance,
    replacement_distance,
)
from adaptive_qs.evaluation.attack.game import Promise
from adaptive_qs.privacy.accounting import delta_of, epsilon_of

RHOS = [1e-6, 1e-3, 0.015, 0.1, 0.5, 1.09, 5.0]


def promise(rho=None, epsilon=None, delta=None):
    return Promise(rho, epsilon, delta, "given")


@pytest.mark.parametrize("rho", RHOS)
def test_gaussian_noise_is_within_the_bound_and_not_far_from_it(rho):
    # Removing and adding a row move the mean by two sensitivities at most: mu = 2 sqrt(2 rho).
    exact = 2 * norm.cdf(math.sqrt(2 * rho)) - 1
    bound = replacement_distance(rho)
    assert exact <= bound <= 1
    # With x = sqrt(2 rho) Pinsker gives x, and 2 Phi(x) - 1 >= 2 x phi(x).
    assert bound <= math.sqrt(math.pi / 2) * math.exp(rho) * exact


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.01, 0.3])
def test_worst_pair_of_an_epsilon_delta_promise_reaches_the_pair_distance(epsilon, delta):
    # Kairouz, Oh, Viswanath 2015: the dominating pair has four outcomes.
    shares = np.array([math.exp(epsilon), 1.0]) * (1 - delta) / (1 + math.exp(epsilon))
    first = np.array([delta, *shares, 0.0])
    second = first[::-1]
    distance = np.abs(first - second).sum() / 2
    assert distance == pytest.approx(pair_distance(epsilon, delta), abs=1e-12)


@pytest.mark.parametrize("rho", [0.015, 0.5, 2.0])
def test_bound_is_the_least_that_a_brute_force_search_finds(rho):
    def by_pair(log_epsilon, scale):
        epsilon = math.exp(float(np.squeeze(log_epsilon)))
        return pair_distance(epsilon, delta_of(scale * rho, epsilon))

    searched = [
        float(brute(by_pair, ((-12, 6),), (scale,), Ns=2_000, full_output=True)[1])
        for scale in (1, 4)
    ]
    least = min(
        1, math.sqrt(2 * rho), math.sqrt(1 - math.exp(-4 * rho)), 2 * searched[0], searched[1]
    )
    assert replacement_distance(rho) == pytest.approx(least, rel=1e-5)


def test_bound_grows_with_rho_from_nothing_to_one():
    bounds = [replacement_distance(rho) for rho in [0.0, *RHOS, 1e6]]
    assert bounds[0] == 0
    assert bounds == sorted(bounds)
    assert bounds[-1] <= 1


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_pure_promise_allows_what_randomised_response_of_two_steps_reaches(epsilon):
    bound = advantage_bound(promise(epsilon=epsilon, delta=0.0))
    assert bound == pytest.approx(math.tanh(epsilon))  # TV of randomised response at 2 epsilon


def test_everything_that_is_promised_is_used():
    rho, delta = 0.5, 1e-9
    both = advantage_bound(promise(rho, epsilon_of(rho, delta), delta))
    assert both == replacement_distance(rho)
    assert advantage_bound(promise(rho, 0.01, delta)) < 0.02
    assert advantage_bound(promise()) is None
    assert advantage_bound(promise(epsilon=1e4, delta=1e-9)) == 1


@pytest.mark.parametrize(
    "given", [{"rho": -1.0}, {"rho": math.nan}, {"epsilon": -1.0}, {"epsilon": 1.0, "delta": 2.0}]
)
def test_what_is_no_promise_is_refused(given):
    with pytest.raises(InputError, match="give a"):
        advantage_bound(promise(**given))
