"""The neighbour game at μ = 3: nobody wins it more often than promised, and the tester can play.

True error rates are about Φ(−1.5) = 0.067. With 500 runs for each world the lower bound of μ is
then about 2.4, and reaches 2 unless a count of errors is five standard deviations off; it exceeds
3 where both counts are off by 3.3 or one by 4.6, which has a probability below 1e-6.
"""

import math

import numpy as np
import pytest

from adaptive_qs.audit.replay import Recorder, squared_distance
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import GaussianEvent, Purpose, SelectionEvent
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.privacy.selection import exponential_mechanism

from ..doors import release_counts, select
from . import game
from .game import CONFIDENCE, MU, batch_game, log_chance, log_ratio, lower_mu, verdict

pytestmark = pytest.mark.slow

RUNS = 500


@pytest.mark.parametrize("name", ["batch_game", "loop_game"])
def test_the_game_is_won_as_often_as_promised(name):
    result = getattr(game, name)(RUNS)
    assert 2 <= result.mu <= MU


def test_the_loop_game_is_about_choices_too():
    recorder = Recorder(Budget(game.LOOP_RHO), InsecureSeed(0))
    result = game.loop(game.WORLDS[0], recorder)
    chosen = [call for call in recorder.calls if isinstance(call.event, SelectionEvent)]
    selected = [past for past in result.rounds if past.budget.selecting]
    assert 1 <= len(chosen) == len(selected) < len(result.rounds)  # the last ones are not chosen


def test_the_neighbours_are_as_far_apart_as_promised(monkeypatch):
    """Otherwise the bound would be kept by an easier game."""
    lengths = []

    def measure(ratio_of, others):
        lengths.append(
            sum(
                squared_distance(one.inputs, other.inputs) / float(one.event.noise_variance)
                for one, other in zip(ratio_of, others)
            )
        )
        return 0.0

    monkeypatch.setattr(game, "log_ratio", measure)
    batch_game(1)
    assert math.sqrt(lengths[0]) == pytest.approx(MU, rel=1e-4)


def test_the_bound_of_mu_holds_as_often_as_it_says():
    rng = np.random.default_rng(0)
    trials, runs, mu = 4_000, 500, 3.0
    ratios = rng.normal(-(mu**2) / 2, mu, (2, trials, runs))
    bounds = np.array([verdict((ratios[0, k], -ratios[1, k])).mu for k in range(trials)])
    wrong = (bounds > mu).sum()
    # At most 1 in 1000 by the union bound: 4 expected, 25 has a probability below 1e-12.
    assert wrong < 25
    assert np.median(bounds) > 2.2


def test_a_test_without_errors_bounds_mu_by_the_number_of_runs():
    each = (1 - CONFIDENCE) / 2
    assert lower_mu((0, 0), 500) == pytest.approx(2 * 2.1687, abs=0.05)
    assert each ** (1 / 500) == pytest.approx(1 - 0.01509, abs=1e-4)


def test_chances_of_a_selection_are_those_of_the_mechanism():
    """20,000 draws of four candidates: each within five standard deviations of its probability."""
    recorder = Recorder(Budget(1), InsecureSeed(0))
    scores = np.array([3, 0, 7, 5])
    select(recorder, SelectionEvent(Purpose.SELECTION, (), 1.5), scores, 4)
    (call,) = recorder.calls
    assert isinstance(call.event, SelectionEvent)
    chances = np.exp([log_chance(call, k) for k in range(4)])
    assert chances.sum() == pytest.approx(1)
    entropy, draws = InsecureSeed(1), 20_000
    counts = np.bincount(
        [exponential_mechanism(scores, 4, 1.5, entropy) for _ in range(draws)], minlength=4
    )
    assert (abs(counts - draws * chances) < 5 * np.sqrt(draws * chances)).all()


def test_the_ratio_is_that_of_two_normal_densities():
    here, there = Recorder(Budget(10), InsecureSeed(0)), Recorder(Budget(10), InsecureSeed(0))
    for recorder, values in ((here, [10, 20]), (there, [11, 20])):
        event = GaussianEvent(Purpose.STRATEGY, ("counts",), 1, 4)
        release_counts(recorder, event, np.array(values))
    noise = here.calls[0].output[0] - 10
    assert log_ratio(here.calls, there.calls) == pytest.approx((2 * noise - 1) / 8)
