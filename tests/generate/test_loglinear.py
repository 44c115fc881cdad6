"""Layouts against np.ravel_multi_index, and the sampler against enumerated distributions."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.cliques import count_rows, maximal_cliques
from adaptive_qs.generate.loglinear import LogLinearModel
from adaptive_qs.generate.zeros import Zero

from .helpers import (
    assert_drawn_from,
    domain_of,
    drawn_rows,
    histogram,
    marginal_of,
    random_loglinear,
)

DOMAIN = domain_of(2, 3, 1, 4, 5)
CLIQUES = [(0, 1), (1, 3, 4), (2, 3), (0, 1, 2, 4), (4,)]


ROWS = 40_000


def rows_at(row, count=ROWS):
    return np.tile(np.array(row, dtype=np.int32), (count, 1))


def freeze(model, domain, row, free):
    """Concentrate every attribute but one on its value (odds of 1e12 against any other)."""
    for i, n in enumerate(domain.sizes):
        if i != free:
            ratio = np.full(n, 1e-6)
            ratio[row[i]] = 1e6
            model.scale((i,), ratio)


@pytest.mark.parametrize("free", [0, 1, 2])
@pytest.mark.parametrize("row", [(0, 0, 0), (1, 2, 3), (1, 0, 2)])
def test_an_attribute_is_drawn_from_its_exact_conditional(free, row):
    domain = domain_of(2, 3, 4)
    model, joint = random_loglinear(domain, [(0, 1), (1, 2), (0, 1, 2)], seed=1)
    freeze(model, domain, row, free)
    rows = rows_at(row)
    model.sweep(rows, key=7)
    index = tuple(slice(None) if i == free else row[i] for i in range(3))
    conditional = joint[index] / joint[index].sum()
    for i in range(3):
        if i != free:
            assert (rows[:, i] == row[i]).all()
    assert_drawn_from(np.bincount(rows[:, free], minlength=conditional.size), conditional)


@pytest.mark.parametrize("exponent", [5, -5])
@pytest.mark.parametrize("neighbours", [15, 16, 17, 33, 80])
def test_many_cliques_around_an_attribute_neither_overflow_nor_bias(neighbours, exponent):
    """Eighty weights near a limit multiply to 1e400 or 1e-400; the conditional stays exact."""
    domain = domain_of(4, *[2] * neighbours)
    cliques = [(0, k) for k in range(1, neighbours + 1)]
    rng = np.random.default_rng(2)
    model = LogLinearModel(domain, cliques, [np.ones(n) for n in domain.sizes], workers=1)
    row = [0, *rng.integers(0, 2, neighbours).tolist()]
    logs = np.zeros(4)
    for clique in cliques:
        factors = np.exp(rng.normal(scale=0.3, size=(4, 2))) * 10.0**exponent
        model.scale(clique, factors)
        logs += np.log(factors[:, row[clique[1]]])
    for k in range(1, neighbours + 1):
        model.scale((k,), np.where(np.arange(2) == row[k], 1e6, 1e-6))
    # The other attributes see attribute 0 as well, by a factor e^±2 at most: they stay frozen.
    rows = rows_at(row)
    model.sweep(rows, key=3)
    assert (rows[:, 1:] == row[1:]).all()
    conditional = np.exp(logs - logs.max())
    assert_drawn_from(np.bincount(rows[:, 0], minlength=4), conditional / conditional.sum())


@pytest.mark.parametrize(
    "cliques",
    [[], [(0, 1)], [(0, 1), (1, 2), (0, 2)], [(0, 1, 2)], [(0, 1, 3), (1, 2), (2, 3)]],
    ids=str,
)
def test_the_stationary_distribution_is_the_models(cliques):
    """From one state, thirty sweeps at mild dependence leave no trace of the start."""
    domain = domain_of(2, 3, 2, 2)
    model, joint = random_loglinear(domain, cliques, seed=4, spread=0.5)
    rows = rows_at((1, 2, 1, 0))
    for key in range(30):
        model.sweep(rows, key)
    assert_drawn_from(histogram(rows, domain), joint)


def test_a_sweep_keeps_the_models_distribution():
    """Rows drawn from the joint itself, with strong dependence, stay so after one sweep."""
    domain = domain_of(3, 4, 2)
    model, joint = random_loglinear(domain, [(0, 1), (1, 2), (0, 2)], seed=5, spread=2.0)
    rows = drawn_rows(joint, ROWS)
    model.sweep(rows, key=11)
    assert_drawn_from(histogram(rows, domain), joint)


def test_a_sweep_keeps_the_distribution_where_zeros_leave_few_values():
    """A column of 40 values, of which the others leave 7 to 13 next to each other, some of them."""
    domain, rng = domain_of(40, 5, 3), np.random.default_rng(6)
    band = np.abs(np.arange(40)[:, None] - 8 * np.arange(5)) <= 6
    holes = band[..., None] & (rng.random((40, 5, 3)) < 0.7)
    zeros = [Zero((0, 1), band), Zero((0, 1, 2), holes)]
    cliques = [(0, 1), (1, 2), (0, 2), (0, 1, 2)]
    model, joint = random_loglinear(domain, cliques, seed=5, spread=1.5, zeros=zeros)
    rows = drawn_rows(joint, ROWS)
    model.sweep(rows, key=11)
    assert_drawn_from(histogram(rows, domain), joint)


def test_draws_of_rows_attributes_and_sweeps_are_independent():
    domain = domain_of(6, 6)
    model = LogLinearModel(domain, [], [np.ones(6)] * 2, workers=1)
    first, second = rows_at((0, 0)), rows_at((0, 0))
    model.sweep(first, key=100)
    model.sweep(second, key=101)
    uniform = np.full((6, 6), 1 / 36)
    for a, b in [
        (first[:, 0], first[:, 1]),
        (first[:, 0], second[:, 0]),
        (first[:, 0], second[:, 1]),
        (first[:-1, 0], first[1:, 0]),
        (first[:-1, 0], first[1:, 1]),
    ]:
        assert_drawn_from(np.bincount(6 * a + b, minlength=36), uniform)


def test_an_impossible_value_is_hardly_ever_drawn():
    model = LogLinearModel(domain_of(3), [], [np.array([0.0, 5.0, 5.0])], workers=1)
    rows = rows_at((0,))
    model.sweep(rows, key=1)
    assert (rows > 0).all()  # probability 1e-9 each: a false alarm of 4e-5


@pytest.mark.parametrize("count", [0, 1, 2])
def test_attributes_of_one_value_and_tables_of_one_row_or_none_sweep(count):
    model, _ = random_loglinear(domain_of(1, 3, 1), [(0, 1), (0, 2)], seed=7)
    rows = rows_at((0, 1, 0), count)
    model.sweep(rows, key=1)
    assert not rows[:, [0, 2]].any()
    assert ((rows >= 0) & (rows < 3)).all()


def test_counts_equal_a_bincount():
    domain = domain_of(3, 1, 4, 7)
    rng = np.random.default_rng(0)
    for count in (0, 1, 500):
        rows = rng.integers(0, domain.sizes, (count, 4)).astype(np.int32)
        for clique in [c for k in (1, 2, 3, 4) for c in combinations(range(4), k)]:
            found = count_rows(rows, domain, clique)
            assert found.dtype == np.float64
            np.testing.assert_array_equal(found, marginal_of(rows, domain, clique))


def test_counts_do_not_saturate_beyond_the_precision_of_single_floats():
    rows = np.broadcast_to(np.zeros((1, 1), dtype=np.int32), (2**24 + 6, 1))
    assert count_rows(rows, domain_of(3), (0,)).tolist() == [2**24 + 6, 0, 0]


cliques = st.sets(st.integers(0, 5), max_size=4).map(lambda s: tuple(sorted(s)))


@given(st.lists(cliques, max_size=8))
def test_maximal_cliques_are_those_inside_no_other(some):
    slow = {c for c in some if not any(set(c) < set(d) for d in some)}
    found = maximal_cliques(some)
    assert set(found) == slow
    assert len(found) == len(slow)
    assert maximal_cliques(reversed(some)) == found
