"""Each score against a slow, obvious computation."""

from __future__ import annotations

import math
import re
from functools import cache
from itertools import combinations
from math import comb, log
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brute
from scipy.stats import binom, binomtest, norm

from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.errors import DataError, InputError
from adaptive_qs.evaluation import attack
from adaptive_qs.evaluation.attack import (
    ATTACKS,
    CLOSENESS,
    Stack,
    best_threshold,
    check_control,
    judge,
    measure_membership,
)
from adaptive_qs.evaluation.promise import (
    Promise,
    advantage_bound,
    pair_distance,
    replacement_distance,
)
from adaptive_qs.privacy.accounting import compute_delta, compute_epsilon
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.coded import CodedTable

from .tables import rows_of, table

DOMAIN = Domain.from_sizes({"a": 4, "b": 3, "c": 300, "d": 2})
PARTS = [(table(DOMAIN, rows, seed), np.arange(rows)) for seed, rows in enumerate((60, 40, 9, 7))]
STACK = Stack.from_parts(PARTS)
SYNTHETIC, REFERENCE, *TARGETS = [rows_of(part) for part, _ in PARTS]
TARGETS = [*TARGETS[0], *TARGETS[1]]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("most_keys", [attack.MAX_DENSE_CELLS, 1])
def test_marginal_scores_are_mean_log_ratios_of_cell_shares(workers, most_keys, monkeypatch):
    monkeypatch.setattr(attack, "MAX_DENSE_CELLS", most_keys)
    sets = [s for ways in (1, 2, 3) for s in combinations(range(4), ways)]

    def share(rows, row, attributes):
        equal = sum(all(r[i] == row[i] for i in attributes) for r in rows)
        return equal / len(rows) + 1 / 40

    expected = [
        np.mean([log(share(SYNTHETIC, row, s) / share(REFERENCE, row, s)) for s in sets])
        for row in TARGETS
    ]
    found = attack.marginal_scores(STACK, attack.attribute_sets(4, 0), workers)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert STACK.rows[2:] == (9, 7)


def test_closeness_is_the_log_ratio_of_kernel_densities():
    def density(rows, row):
        return np.mean([0.03 ** sum(a != b for a, b in zip(row, other)) for other in rows])

    expected = [log(density(SYNTHETIC, row) / density(REFERENCE, row)) for row in TARGETS]
    np.testing.assert_allclose(attack.closeness_scores(STACK, 2), expected, atol=1e-9)


def test_of_many_attributes_an_even_sample_of_sets_is_looked_at():
    few = attack.attribute_sets(10, 0)
    assert len(few) == len(set(few)) == 10 + comb(10, 2) + comb(10, 3)
    many = attack.attribute_sets(600, 0)
    assert [sum(len(s) == ways for s in many) for ways in (1, 2, 3)] == [500, 500, 500]
    assert len(set(many)) == 1_500
    assert all(list(s) == sorted(set(s)) and s[-1] < 600 for s in many)
    assert many == attack.attribute_sets(600, 0) != attack.attribute_sets(600, 1)
    for columns in (14, 17, 300, 10**7):  # and time is bounded
        assert attack.rows_compared(columns) * columns <= max(attack.MAX_CELLS, columns)


def test_rows_that_differ_in_very_many_columns_have_a_density():
    domain = Domain.from_sizes({f"a{i}": 2 for i in range(300)})
    parts = []
    for others, share in ((0, 0.5), (0, 0.25), (1, 1.0), (1, 0.0)):  # 0.03^299 is 0 as a number
        codes = np.full((300, 40), others)
        codes[0] = np.arange(40) < share * 40
        parts.append((CodedTable.from_codes(domain, codes), np.arange(40)))
    stack, kernel = Stack.from_parts(parts), 0.03
    members, others = np.split(attack.closeness_scores(stack), [stack.rows[2]])
    member = log((0.5 + 0.5 * kernel) / (0.25 + 0.75 * kernel))
    np.testing.assert_allclose(members, member, atol=1e-9)
    np.testing.assert_allclose(
        others, log((0.5 + 0.5 * kernel) / (0.75 + 0.25 * kernel)), atol=1e-9
    )


# The bound of the advantage against exact distances of mechanisms that meet the promise.

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
    distance = np.abs(first - first[::-1]).sum() / 2
    assert distance == pytest.approx(pair_distance(epsilon, delta), abs=1e-12)


@pytest.mark.parametrize("rho", [0.015, 0.5, 2.0])
def test_bound_is_the_least_that_a_brute_force_search_finds(rho):
    def by_pair(log_epsilon, scale):
        epsilon = math.exp(float(np.squeeze(log_epsilon)))
        return pair_distance(epsilon, compute_delta(scale * rho, epsilon))

    one, four = (
        float(brute(by_pair, ((-12, 6),), (scale,), Ns=2_000, full_output=True)[1])
        for scale in (1, 4)
    )
    least = min(1, math.sqrt(2 * rho), math.sqrt(1 - math.exp(-4 * rho)), 2 * one, four)
    assert replacement_distance(rho) == pytest.approx(least, rel=1e-5)


def test_everything_that_is_promised_is_used():
    bounds = [replacement_distance(rho) for rho in [0.0, *RHOS, 1e6]]
    assert bounds[0] == 0
    assert bounds == sorted(bounds)
    assert bounds[-1] <= 1
    for epsilon in (0.1, 1.0, 4.0):  # what randomised response of two steps reaches
        assert advantage_bound(promise(epsilon=epsilon, delta=0.0)) == pytest.approx(
            math.tanh(epsilon)
        )
    rho, delta = 0.5, 1e-9
    both = advantage_bound(promise(rho, compute_epsilon(rho, delta), delta))
    assert both == replacement_distance(rho)
    assert advantage_bound(promise(rho, 0.01, delta)) < 0.02
    assert advantage_bound(promise()) is None
    assert advantage_bound(promise(epsilon=1e4, delta=1e-9)) == 1


@pytest.mark.parametrize(
    "given", [{"rho": -1.0}, {"rho": math.nan}, {"epsilon": -1.0}, {"epsilon": 1.0, "delta": 2.0}]
)
def test_what_is_no_promise_is_refused(given):
    with pytest.raises(InputError, match="Use a"):
        advantage_bound(promise(**given))


# The interval of the advantage covers the truth as often as it says, and thresholds are honest.

RUNS = 250
INTERVAL_FALSE_ALARM = 1e-6


@pytest.fixture(scope="module", autouse=True)
def remembered():
    """Counts come again and again: what SciPy makes of one is worked out once."""

    @cache
    def of(count, rows):
        found = binomtest(count, rows)
        return SimpleNamespace(statistic=found.statistic, proportion_ci=cache(found.proportion_ci))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scipy.stats.binomtest", of)
        yield


@pytest.mark.slow
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
    assert missed <= binom.isf(INTERVAL_FALSE_ALARM, RUNS, 1 - confidence)


def test_pure_noise_has_no_advantage_because_other_rows_choose_the_threshold():
    rng = np.random.default_rng(3)
    found = [judge("a", *rng.normal(size=(2, 100)), 1, 0.95).advantage for _ in range(RUNS)]
    # Each is a difference of two means of 50 indicators: variance at most 2 * 0.25 / 50.
    assert abs(np.mean(found)) <= norm.isf(INTERVAL_FALSE_ALARM / 2) * np.sqrt(0.01 / RUNS)


def test_tied_scores_are_accused_together():
    members, others = np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.0, 0.0, 0.0, 0.0])
    assert best_threshold(members, others) == 1
    assert best_threshold(others, members) == np.inf
    equal = judge("a", np.zeros(50), np.zeros(50), 1, 0.95)
    assert (equal.advantage, equal.auc) == (0, 0.5)


# The whole game: leaks are seen, independence is not accused, and promises are kept.

GAME = Domain(tuple(Attribute(f"a{i}", 6, ordered=i % 2 == 0) for i in range(8)))


def population(rows, seed):
    """Rows whose attributes depend on one hidden class."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(0, 3, rows)
    columns = [(hidden * (i % 3) + rng.integers(0, 4, rows)) % 6 for i in range(len(GAME))]
    return CodedTable.from_codes(GAME, columns)


TRUE, FRESH, CONTROL = population(1_000, 1), population(1_000, 2), population(1_000, 3)


def test_a_copy_of_the_table_is_seen_at_once():
    result = measure_membership(TRUE, TRUE, CONTROL, promise(0.01))
    assert result.scores[0].attack == CLOSENESS
    assert result.scores[0].lower > 0.5 > result.bound
    assert result.scores[0].auc > 0.9
    advantages = [score.advantage for score in result.scores]
    assert advantages == sorted(advantages, reverse=True)
    assert measure_membership(TRUE, TRUE, CONTROL, promise(0.01), 0, 3) == result
    assert measure_membership(TRUE, TRUE, CONTROL, promise(0.01), 6) != result
    few = measure_membership(TRUE, FRESH, population(16, 4), None)
    assert any("no advantage below about" in said for said in few.limitations)
    assert (few.members, few.scores[0].lower > -1.01) == (8, True)


def test_a_table_that_is_independent_of_the_members_is_not_accused():
    # All intervals hold together with probability 1 - 1e-6, and the true advantage is 0.
    steps = []
    result = measure_membership(
        TRUE, FRESH, CONTROL, None, confidence=1 - 1e-6, progress=lambda *step: steps.append(step)
    )
    assert {score.attack for score in result.scores} == set(ATTACKS)
    assert all(score.lower <= 0 <= score.upper for score in result.scores)
    assert result.bound is None
    assert (result.members, result.non_members) == (500, 500)
    assert steps[-1][0] == steps[-1][1] == len(steps)
    assert not any("overlaps" in said for said in result.limitations)


def test_advantage_over_real_releases_obeys_their_bound():
    rho = 0.01
    frame = {a.name: codes for a, codes in zip(GAME.attributes, TRUE.columns)}
    schema = {a.name: a.size for a in GAME.attributes}
    model = Synthesizer(rho=rho).fit(pd.DataFrame(frame), schema=schema)
    sample = model.sample(1_000, seed=1)
    codes = [np.asarray(sample[a.name].to_numpy(), dtype=np.int64) for a in GAME.attributes]
    synthetic = CodedTable.from_codes(GAME, codes)
    result = measure_membership(TRUE, synthetic, CONTROL, promise(rho), confidence=1 - 1e-6)
    assert 0 < result.bound < 0.15
    assert all(score.lower <= result.bound for score in result.scores)


# Control rows that were never held out are found, and honest ones are left in peace.

COIN = Domain.from_sizes({"a": 2, "b": 2})
WIDE = Domain.from_sizes({f"a{i}": 10 for i in range(8)})


def drawn(domain, rows, rng):
    return np.column_stack([rng.integers(0, n, rows) for n in domain.sizes])


def note_on(domain, true, control, seed=0):
    """The note on control rows; "refused" if they cannot have been held out."""
    tables = (CodedTable.from_codes(domain, rows.T) for rows in (true, control))
    try:
        return check_control(*tables, seed) or ""
    except DataError as error:
        return f"refused: {error}"


def test_rows_of_the_true_table_are_no_control():
    rng = np.random.default_rng(1)
    true, fresh = drawn(WIDE, 1_000, rng), drawn(WIDE, 180, rng)
    few = note_on(WIDE, true, np.concatenate([fresh, true[:20]]))
    share = float(re.search(r"([\d.]+)% of its rows", few)[1])
    assert 5 <= share <= 10  # the base lacks the rows that are compared with
    assert "against 0.0% by chance" in few
    coins = drawn(COIN, 500, rng)
    for domain, rows, control in (
        (WIDE, true, true[:60]),
        (COIN, coins, rng.permutation(coins)),  # by overlap alone it could not be seen
        (WIDE, true, true[:15]),
    ):
        assert note_on(domain, rows, control).startswith("refused")
    other = coins.copy()
    other[0] = 1 - other[0]
    for control in (other, coins[:299], drawn(COIN, 200, rng)):
        assert "cannot be decided" in note_on(COIN, coins, control)


@pytest.mark.parametrize("size", [2, 5])
def test_honest_rows_raise_an_alarm_as_rarely_as_stated(size):
    domain = Domain.from_sizes({f"a{i}": size for i in range(3)})
    rng, runs = np.random.default_rng(2), 1_000
    alarms = 0
    for seed in range(runs):
        rows = drawn(domain, 90, rng)
        note = note_on(domain, rows[:60], rows[60:], seed)
        alarms += "overlaps" in note or note.startswith("refused")
    assert alarms <= binom.isf(1e-6, runs, attack.FALSE_ALARM)
