"""The one-run audit: its bound holds where ε is known, and it refutes noise that is too small."""

import math
from itertools import product

import numpy as np
import pytest

from . import one_run
from .one_run import judge, lower_epsilon, p_value


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("correct", [0, 2, 5])
def test_right_guesses_without_delta_are_binomial(epsilon, correct):
    right = math.exp(epsilon) / (1 + math.exp(epsilon))
    chance = sum(
        math.prod(right if hit else 1 - right for hit in hits)
        for hits in product((0, 1), repeat=5)
        if sum(hits) >= correct
    )
    assert p_value(9, 5, correct, epsilon, 0.0) == pytest.approx(chance)


def test_delta_adds_what_the_theorem_says():
    """2mδ times the steepest mean slope of the tail below v."""
    tail = [p_value(9, 5, v, 1.0, 0.0) for v in range(6)]
    slope = max((tail[5 - i] - tail[5]) / i for i in range(1, 6))
    assert p_value(9, 5, 5, 1.0, 1e-3) == pytest.approx(tail[5] + 2 * 9 * 1e-3 * slope)
    assert p_value(9, 5, 5, 1.0, 1.0) == 1


def test_the_bound_holds_for_randomised_response():
    """The one mechanism that attains the bound: ε is refuted in less than 1 of 1,000 audits.

    In 200 of them 0.2 are expected at most; 4 or more have a probability below 1e-4.
    """
    rng, epsilon, delta = np.random.default_rng(0), 2.0, 0.0
    level = (1 - one_run.CONFIDENCE) / len(one_run.GUESSED)
    right = math.exp(epsilon) / (1 + math.exp(epsilon))
    above = 0
    for _ in range(200):
        truthful = rng.random(1_000) < right
        numbers = [round(share * truthful.size) for share in one_run.GUESSED]
        above += any(
            p_value(1_000, n, int(truthful[:n].sum()), epsilon, delta) < level for n in numbers
        )
    assert above < 4
    coins = rng.integers(0, 2, 1_000).astype(bool)
    found = judge(np.where(coins == truthful, 1.0, -1.0), coins, epsilon, delta)
    assert 0.7 * epsilon < found.epsilon <= epsilon


def test_no_bound_without_knowledge_and_the_largest_with_all():
    coins = np.arange(1_000) % 2 == 0
    assert judge(np.ones(1_000), coins, 1.0, 1e-9).epsilon == 0.0
    level = (1 - one_run.CONFIDENCE) / len(one_run.GUESSED)
    best = lower_epsilon(1_000, 1_000, 1_000, 0.0, level)
    assert 1 / (1 + math.exp(-best)) == pytest.approx(level ** (1 / 1_000))


@pytest.mark.slow
def test_one_run_on_a_table_of_usual_size_does_not_refute_its_epsilon():
    found = one_run.one_run(3.0, 1)
    assert not found.refuted
    assert found.claimed == 3.0


@pytest.mark.slow
def test_one_run_refutes_noise_that_is_too_small():
    with one_run.weaker_noise():
        found = one_run.one_run(3.0, 1)
    assert found.refuted, found
