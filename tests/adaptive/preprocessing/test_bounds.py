"""Magnitudes: the public grid, and the bounds found on it."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.adaptive.preprocessing.grid import declared_points, grid_points
from adaptive_qs.adaptive.preprocessing.magnitudes import LEAST_SUM, PENALTY, Magnitudes

from .helpers import one

WHOLE = {"type": "integer", "private_bins": 5}
REAL = {"type": "numeric", "private_bins": 5}


def column(**keys):
    return one(**keys).columns[0]


def between(magnitudes, value, dtype):
    """Bounds where all rows have this value and there is no noise."""
    counts = magnitudes.counts(np.array([value] * 9, dtype=dtype))
    assert counts.sum() == 9
    return magnitudes.bounds(counts, Fraction(1, 100))


@given(st.integers(-(10**18) + 1, 10**18 - 1))
def test_every_integer_lies_between_neighbouring_numbers(value):
    low, high = between(Magnitudes.of(column(**WHOLE)), value, np.int64)
    if abs(value) <= 5 * 10**17:
        assert low <= value <= high
    assert max(abs(low), abs(high)) <= 5 * 10**17
    assert (high - low) * 5 <= 3 * max(abs(low), abs(high)) or 0 in (low, high)


@given(st.floats(-5e17, 5e17))
def test_every_number_lies_between_neighbouring_numbers(value):
    low, high = between(Magnitudes.of(column(**REAL)), value, np.float64)
    assert low <= value <= high


@given(
    st.one_of(st.none(), st.integers(-(10**6), 0)),
    st.one_of(st.none(), st.integers(1, 10**6)),
    st.lists(st.integers(-(10**6), 10**6), min_size=1),
    st.integers(0, 2**31),
)
def test_bounds_lie_between_declared_ends_whatever_the_noise(low, high, values, seed):
    keys = {"min": low, "max": high, "private_bins": 2}
    declared = column(type="integer", **{key: end for key, end in keys.items() if end is not None})
    if low is not None and high is not None:
        return
    magnitudes = Magnitudes.of(declared)
    counts = magnitudes.counts(np.clip(np.array(values), *declared.span))
    noisy = counts + np.random.default_rng(seed).integers(-50, 51, counts.size)
    found = magnitudes.bounds(noisy, 900)
    assert found[0] <= found[1]
    assert low is None or found[0] >= low
    assert high is None or found[1] <= high
    points = declared_points(declared, *found)
    assert low is None or points[0] == low
    assert high is None or points[-1] == high + 1
    assert (np.diff(points) > 0).all()


def test_bounds_hold_the_data_and_seldom_reach_beyond_the_next_number():
    magnitudes = Magnitudes.of(column(**WHOLE))
    rng = np.random.default_rng(5)
    values = rng.integers(21, 100, 20_000)
    counts, runs, variance = magnitudes.counts(values), 2000, 10_000
    wide = 0
    for _ in range(runs):
        noise = np.rint(rng.normal(0, math.sqrt(variance), counts.size)).astype(int)
        low, high = magnitudes.bounds(counts + noise, variance)
        assert low <= 20
        assert high >= 100
        wide += (low, high) != (20, 100)
    # The sum of both ends' probabilities, and six standard deviations (1e-9).
    chance = 2 * sum(math.erfc(PENALTY * math.sqrt(m / 2)) / 2 for m in range(1, 60))
    assert chance < 0.2
    assert wide / runs < chance + 6 * math.sqrt(chance / runs)


@pytest.mark.parametrize(
    ("ends", "bounds"),
    [
        ({}, (-100, 100)),
        ({"min": 0}, (0, 100)),
        ({"max": 7}, (-100, 7)),
        ({"min": 1900}, (1900, 3800)),
        ({"max": -1900}, (-3800, -1900)),
        ({"min": 100}, (100, 200)),
        ({"max": -100}, (-200, -100)),
    ],
)
@pytest.mark.parametrize("kind", [WHOLE, REAL])
def test_bounds_are_public_where_no_cell_stands_out(kind, ends, bounds):
    magnitudes = Magnitudes.of(column(**kind, **ends))
    empty = np.zeros(len(magnitudes.cells), np.int64)
    assert magnitudes.bounds(empty, 900) == bounds
    runs = 2000
    noise = np.rint(np.random.default_rng(8).normal(0, 30, (runs, empty.size))).astype(int)
    found = sum(magnitudes.bounds(row, 900) != bounds for row in noise)
    chance = empty.size * math.exp(-3 * LEAST_SUM)  # of a random walk with drift, by Chernoff
    assert found < runs * chance + 6 * math.sqrt(runs * chance)


def test_rows_on_both_sides_of_0_pay_for_no_cell_between():
    values = np.repeat([-7.0, 0.0, 7.0], 1000)
    magnitudes = Magnitudes.of(column(**REAL))
    counts, sigma = magnitudes.counts(values), 100
    assert PENALTY * sigma * np.count_nonzero(counts == 0) > values.size
    assert magnitudes.bounds(counts, sigma**2) == (-10, 10)


@pytest.mark.parametrize("kind", [WHOLE, REAL])
def test_declared_ends_add_a_cell_on_either_side_and_one_for_0(kind):
    points = declared_points(column(**kind, min=-50), 1000, 2000)
    past = kind is WHOLE
    assert points[:2].tolist() == [-50, 0]
    assert points[3] == 1000
    assert points[-1] == 2000 + past
    assert 0 < points[2] <= 1
    points = declared_points(column(**kind, max=10**6), 1000, 2000)
    assert points[0] == 1000
    assert points[-2:].tolist() == [2000 + past, 10**6 + past]


@given(st.integers(-(10**17), 10**17), st.integers(1, 10**17))
def test_grids_of_integers(low, width):
    points = grid_points(column(**WHOLE), low, low + width)
    assert (points[0], points[-1]) == (low, low + width + 1)
    assert (np.diff(points) > 0).all()
    assert points.size < 10_000
    if width < 4096:
        assert points.size == width + 2
    if low < 0 < low + width:
        assert {0, 1} <= set(points.tolist())


@given(
    st.integers(0, 9),
    st.integers(-(10**9), 10**9),
    st.integers(1, 10**9),
)
def test_grids_with_decimals_make_valid_bins(decimals, low, width):
    real = column(**REAL, decimals=decimals)
    unit = 10.0**-decimals
    points = grid_points(real, round(low * unit, decimals), round((low + width) * unit, decimals))
    # The column checks that edges ascend and that every bin holds a number with these decimals.
    assert real.resolved(points.tolist()).num_values == points.size - 1


@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300))
def test_grids_of_numbers_make_valid_bins(one_end, other_end):
    low, high = sorted((one_end, other_end))
    points = grid_points(column(**REAL), low, high)
    assert points[0] == low
    assert points[-1] == high or low == high < points[-1] <= high + max(1e-11, abs(high) * 1e-11)
    assert points.size < 10_000
    assert column(**REAL).resolved(points.tolist()).num_values == points.size - 1


@pytest.mark.parametrize(("keys", "last"), [(REAL, 1e-11), ({**REAL, "decimals": 1}, 0.05)])
def test_a_range_of_zero_alone_has_one_bin(keys, last):
    assert grid_points(column(**keys), 0, 0).tolist() == [0.0, last]


def test_wide_ranges_resolve_small_numbers_to_two_digits():
    points = set(grid_points(column(**WHOLE), 0, 10**9).tolist())
    assert {1, 2, 99, 1200, 87_000, 990_000, 500_000_000} <= points
