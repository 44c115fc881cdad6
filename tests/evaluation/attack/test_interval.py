"""The interval of the advantage covers the truth as often as it says, and thresholds are honest."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm

from adaptive_qs.evaluation.attack import interval
from adaptive_qs.evaluation.attack.interval import best_threshold, judge, resolution

RUNS = 250
FALSE_ALARM = 1e-6


@pytest.fixture(scope="module", autouse=True)
def remembered():
    """Counts come again and again: what SciPy makes of one is worked out once."""

    @cache
    def of(count, rows):
        found = binomtest(count, rows)
        return SimpleNamespace(statistic=found.statistic, proportion_ci=cache(found.proportion_ci))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interval, "binomtest", of)
        yield


@pytest.mark.parametrize("shift", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_intervals_cover_the_advantage_of_the_rule_that_was_chosen(shift, confidence):
    rng = np.random.default_rng(8)
    missed = 0
    for _ in range(RUNS):
        members, others = rng.normal(shift, 1, 200), rng.normal(0, 1, 200)
        threshold = best_threshold(members[:100], others[:100])
        truth = norm.sf(threshold - shift) - norm.sf(threshold)
        score = judge("a", members, others, 1, confidence)
        missed += not score.lower <= truth <= score.upper
    # Each run misses with probability 1 - confidence at most, independently of the others.
    assert missed <= binom.isf(FALSE_ALARM, RUNS, 1 - confidence)


def test_pure_noise_has_no_advantage_because_other_rows_choose_the_threshold():
    rng = np.random.default_rng(3)
    found = [judge("a", *rng.normal(size=(2, 100)), 1, 0.95).advantage for _ in range(RUNS)]
    # Each is a difference of two means of 50 indicators: variance at most 2 * 0.25 / 50.
    assert abs(np.mean(found)) <= norm.isf(FALSE_ALARM / 2) * np.sqrt(0.01 / RUNS)


def test_more_attacks_and_fewer_rows_widen_the_interval():
    rng = np.random.default_rng(1)
    members, others = rng.normal(1, 1, 400), rng.normal(0, 1, 400)
    one, three = (judge("a", members, others, attacks, 0.95) for attacks in (1, 3))
    assert three.lower < one.lower < one.advantage < one.upper < three.upper
    assert resolution(400, 3, 0.95) < resolution(40, 3, 0.95) <= 1


def test_resolution_is_where_the_lower_end_of_even_rates_leaves_zero():
    tested, attacks = 100, 3
    least = resolution(2 * tested, attacks, 0.95)

    def lower(accused):  # members and non-members symmetric around one half
        scores = [np.repeat([1.0, 0.0], [count, tested - count]) for count in accused]
        chosen = [np.array([1.0] * tested), np.array([0.0] * tested)]
        return judge("a", *map(np.concatenate, zip(chosen, scores)), attacks, 0.95).lower

    above = int(np.ceil(tested * (1 + least) / 2))
    assert lower((above, tested - above)) > -2 / tested  # one row more of either kind
    assert lower((above - 5, tested - above + 5)) < 0


def test_tied_scores_are_accused_together():
    members, others = np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.0, 0.0, 0.0, 0.0])
    assert best_threshold(members, others) == 1
    assert best_threshold(others, members) == np.inf
    equal = judge("a", np.zeros(50), np.zeros(50), 1, 0.95)
    assert (equal.advantage, equal.auc) == (0, 0.5)
