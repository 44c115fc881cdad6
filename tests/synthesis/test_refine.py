import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_qs.synthesis.refine import refine_rows
from adaptive_qs.synthesis.tables import count_rows

from .helpers import domain_of, marginal_of, random_loglinear

DOMAIN = domain_of(3, 4, 1, 2, 5)
WATCHED = [(0, 1), (1, 3, 4), (2, 3), (4,)]


def drawn(count, seed, skew=0.5):
    rng = np.random.default_rng(seed)
    columns = [rng.binomial(n - 1, skew, count) for n in DOMAIN.sizes]
    return np.stack(columns, axis=1).astype(np.int32)


def slow_distance(rows, means):
    """The mean over watched cliques of ‖table − wanted‖₁ / rows, counted afresh."""
    gaps = [
        np.abs(marginal_of(rows, DOMAIN, c) - m.astype(float)).sum() for c, m in zip(WATCHED, means)
    ]
    return sum(gaps) / len(rows) / len(WATCHED)


def wanted(count, seed):
    """Marginals of another table, shrunk towards even ones so that they are no integers."""
    rows = drawn(count, seed, skew=0.3)
    even = [count / DOMAIN.size(c) for c in WATCHED]
    return [
        (0.9 * count_rows(rows, DOMAIN, c) + 0.1 * e).astype(np.float32)
        for c, e in zip(WATCHED, even)
    ]


@settings(max_examples=30)
@given(st.integers(1, 300), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_the_distance_never_grows_and_is_booked_correctly(count, passes, seed):
    model, _ = random_loglinear(DOMAIN, [(0, 1), (1, 3, 4)], seed=0)
    rows, means = drawn(count, seed), wanted(count, seed + 1)
    before = slow_distance(rows, means)
    booked = refine_rows(model, rows, WATCHED, means, passes, np.random.default_rng(seed))
    after = slow_distance(rows, means)
    # float32 errors: at most 300 rows in a cell and five passes of unit steps, 1e-4 in all.
    assert booked == pytest.approx(after, abs=1e-4)
    assert after <= before + 1e-4
    assert ((rows >= 0) & (rows < DOMAIN.sizes)).all()


@pytest.mark.parametrize("seed", range(5))
def test_near_the_optimum_no_move_makes_it_worse(seed):
    """Wanted marginals within half a row of the table's: every move is a loss, some a small one."""
    model, _ = random_loglinear(DOMAIN, [(0, 1), (1, 3, 4)], seed=0)
    rows, rng = drawn(200, seed), np.random.default_rng(seed)
    means = []
    for clique in WATCHED:
        gap = rng.uniform(-0.49, 0.49, DOMAIN.shape(clique))
        means.append((count_rows(rows, DOMAIN, clique) + gap).astype(np.float32))
    before = slow_distance(rows, means)
    refine_rows(model, rows, WATCHED, means, 3, rng)
    assert slow_distance(rows, means) <= before + 1e-6


def test_every_pass_goes_on_where_the_last_one_stopped():
    model, _ = random_loglinear(DOMAIN, [(0, 1)], seed=0)
    means = wanted(3000, 1)
    reached = []
    for passes in (0, 1, 3, 6):
        rows = drawn(3000, 0)
        rng = np.random.default_rng(5)
        reached.append(refine_rows(model, rows, WATCHED, means, passes, rng))
    assert reached == sorted(reached, reverse=True)
    assert reached[-1] < reached[0] / 3


def test_no_passes_change_nothing():
    model, _ = random_loglinear(DOMAIN, [(0, 1)], seed=0)
    rows, means = drawn(50, 0), wanted(50, 1)
    before = rows.copy()
    refine_rows(model, rows, WATCHED, means, 0, np.random.default_rng(0))
    np.testing.assert_array_equal(rows, before)


def test_a_table_that_matches_stays_as_it_is():
    model, _ = random_loglinear(DOMAIN, [(0, 1)], seed=0)
    rows = drawn(200, 0)
    before = [marginal_of(rows, DOMAIN, c) for c in WATCHED]
    means = [count_rows(rows, DOMAIN, c) for c in WATCHED]
    assert refine_rows(model, rows, WATCHED, means, 3, np.random.default_rng(0)) == 0
    for clique, marginal in zip(WATCHED, before):
        np.testing.assert_array_equal(marginal_of(rows, DOMAIN, clique), marginal)
