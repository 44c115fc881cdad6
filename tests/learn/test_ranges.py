"""Magnitudes: the public grid, and the bounds found on it."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.learn.ranges import (
    BOUNDS_SHARE,
    HEAVY_DEVIATIONS,
    LEAST_SHARE,
    LEAST_SUM,
    PENALTY,
    Magnitudes,
    Tree,
    declared_points,
    grid_points,
    quantile_edges,
)
from adaptive_qs.learn.schema import DEFAULT_SHARE
from adaptive_qs.privacy.accounting import compute_rho
from adaptive_qs.privacy.counts import PrivateValues, open_private
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.noise import InsecureSeed, discrete_gaussian
from adaptive_qs.table.encode import read_table

from .helpers import PLENTY, masses, one, resolved

WHOLE = {"type": "integer", "private_bins": 5}
REAL = {"type": "numeric", "private_bins": 5}


def column(**keys):
    return one(**keys).columns[0]


def between(magnitudes, value, dtype):
    """Bounds where all rows have this value and there is no noise."""
    counts = _counts(magnitudes, np.array([value] * 9, dtype=dtype))
    assert counts.sum() == 9
    return magnitudes.bounds(counts, Fraction(1, 100))


@given(st.integers(-(10**18) + 1, 10**18 - 1), st.floats(-5e17, 5e17))
def test_every_number_lies_between_neighbouring_numbers(whole, real):
    low, high = between(Magnitudes.from_column(column(**WHOLE)), whole, np.int64)
    if abs(whole) <= 5 * 10**17:
        assert low <= whole <= high
    assert max(abs(low), abs(high)) <= 5 * 10**17
    assert (high - low) * 5 <= 3 * max(abs(low), abs(high)) or 0 in (low, high)
    low, high = between(Magnitudes.from_column(column(**REAL)), real, np.float64)
    assert low <= real <= high


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
    magnitudes = Magnitudes.from_column(declared)
    counts = _counts(magnitudes, np.clip(np.array(values), *declared.span))
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
    magnitudes = Magnitudes.from_column(column(**WHOLE))
    rng = np.random.default_rng(5)
    values = rng.integers(21, 100, 20_000)
    counts, runs, variance = _counts(magnitudes, values), 2000, 10_000
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


def _counts(magnitudes, values):
    counts = PrivateValues(values, None).histograms((magnitudes.find_cells, len(magnitudes.cells)))
    return open_private(counts, None)


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
    magnitudes = Magnitudes.from_column(column(**kind, **ends))
    empty = np.zeros(len(magnitudes.cells), np.int64)
    assert magnitudes.bounds(empty, 900) == bounds
    runs = 2000
    noise = np.rint(np.random.default_rng(8).normal(0, 30, (runs, empty.size))).astype(int)
    found = sum(magnitudes.bounds(row, 900) != bounds for row in noise)
    chance = empty.size * math.exp(-3 * LEAST_SUM)  # of a random walk with drift, by Chernoff
    assert found < runs * chance + 6 * math.sqrt(runs * chance)


def test_rows_on_both_sides_of_0_pay_for_no_cell_between():
    values = np.repeat([-7.0, 0.0, 7.0], 1000)
    magnitudes = Magnitudes.from_column(column(**REAL))
    counts, sigma = _counts(magnitudes, values), 100
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


@given(st.integers(0, 9), st.integers(-(10**9), 10**9), st.integers(1, 10**9))
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


# How well learnt bins divide the rows, within bounds that follow from the noise.

RNG = np.random.default_rng(11)
ROWS, BINS = 20_000, 16
SMOOTH = {
    "lognormal": (RNG.lognormal(8, 1.5, ROWS), {"type": "numeric"}, (0, 5e6)),
    "normal": (RNG.normal(-300, 40, ROWS), {"type": "numeric", "decimals": 2}, (-1000, 0)),
    "uniform": (RNG.random(ROWS), {"type": "numeric"}, (0, 1)),
    "ages": (np.rint(17 + RNG.gamma(3, 7, ROWS)), {"type": "integer"}, (10, 200)),
    "large integers": (RNG.integers(10**6, 10**7, ROWS), {"type": "integer"}, (0, 10**7)),
}


def noisy_edges(counts, rho, seed):
    """Positions of the edges, and a bound on the error of every estimated sum of first cells.

    The noise is sub-Gaussian, so each of the sums exceeds z standard deviations with at most the
    Gaussian probability; z makes the union over them 1e-9.
    """
    tree = Tree.best(counts.size)
    variance = Fraction(tree.height) / (2 * rho)
    nodes = tree.answers(counts)[:, 0]
    noisy = nodes + discrete_gaussian(variance, nodes.size, InsecureSeed(seed))
    variances = tree.prefix_variances() / (2 * float(rho))
    error = math.sqrt(variances.max()) * NormalDist().inv_cdf(1 - 1e-9 / 2 / counts.size)
    estimate = tree.consistent(noisy)
    return quantile_edges(estimate, math.sqrt(variances.mean()), BINS, (True, True)), error


@pytest.mark.parametrize("case", SMOOTH)
def test_bins_hold_about_equally_many_rows(case):
    values, keys, bounds = SMOOTH[case]
    points = grid_points(one(**keys, private_bins=BINS).columns[0], *bounds)
    assert points[0] <= values.min()
    assert values.max() <= points[-1]
    counts = np.histogram(values, points)[0]
    edges, error = noisy_edges(counts, Fraction(1, 10), seed=5)
    assert edges.size == BINS + 1
    inside = np.clip(edges, 0, counts.size)
    inside[0], inside[-1] = 0, counts.size  # what was cut off is clipped into the end bins
    held = np.diff(np.concatenate([[0], np.cumsum(counts)])[inside])
    # An edge is the end of a cell nearest to a quantile of estimated sums, each wrong by at most
    # `error`; a cell's estimated rows by twice that. Two edges, and the number of rows.
    tolerance = 2 * (error + (counts.max() + 2 * error) / 2) + error / BINS
    assert np.abs(held - ROWS / BINS).max() < tolerance < ROWS / BINS


def test_hardly_a_row_is_cut_off():
    counts = np.zeros(4000, np.int64)
    counts[1000:1200] = 100
    edges, error = noisy_edges(counts, Fraction(1, 10), seed=6)
    assert error < 0.1 * ROWS / BINS  # then the tails that are cut hold less than twice that
    assert edges[0] <= 1000 + 2
    assert edges[-1] >= 1200 - 2
    assert edges[0] > 900
    assert edges[-1] < 1300


def test_no_bin_is_asked_of_pure_noise():
    for counts in (-np.ones(100), np.zeros(100), np.full(100, 0.04)):
        assert quantile_edges(counts, 5.0, BINS, (True, True)).tolist() == [0, 100]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("most_bins", [2, 3, 5, 20])
def test_edges_ascend_and_are_never_too_many(seed, most_bins):
    rng = np.random.default_rng(seed)
    counts = rng.choice([-50.0, 0.0, 1.0, 10.0, 5000.0], rng.integers(1, 60))
    for cut in ((True, True), (False, False), (True, False)):
        edges = quantile_edges(counts, float(rng.choice([0.1, 30, 3000])), most_bins, cut)
        assert 2 <= edges.size <= most_bins + 1
        assert (np.diff(edges) > 0).all()
        assert edges[0] >= 0
        assert edges[-1] <= counts.size
        assert cut[0] or edges[0] == 0
        assert cut[1] or edges[-1] == counts.size


def learnt(values, cost=PLENTY, **keys):
    frame = pd.DataFrame({"a": values})
    schema = resolved(frame, one(private_bins=BINS, **keys), cost)
    column = schema.columns[0]
    return column, masses(read_table(frame, schema).columns[0], column.size)


def test_a_heavy_value_has_a_bin_of_its_own_and_the_rest_has_bins():
    tail = np.rint(RNG.lognormal(9, 1, 2_000)).astype(int) + 1
    column, held = learnt(np.concatenate([np.zeros(18_000, int), tail]), type="integer")
    assert column.bin_starts[:2] == (0, 1)
    assert held[0] == 18_000
    # The rest is divided into bins of a quarter of an equal share, as long as there are enough.
    fewest = int(2_000 / (LEAST_SHARE * ROWS / BINS)) - 1
    assert held.size > fewest >= 5
    assert held[1:].max() < 2_000 / fewest * 1.5


def test_zero_among_real_numbers_has_a_bin_of_its_own():
    values = np.concatenate([np.zeros(10_000), RNG.lognormal(3, 1, 10_000)])
    column, held = learnt(values, type="numeric", decimals=2)
    assert held[0] == 10_000
    assert column.bin_edges[:2] == (0.0, 0.01)
    assert learnt(values, type="numeric")[1][0] == 10_000


def test_constants_and_two_values_are_found():
    column, held = learnt([7] * 500, type="integer")
    assert (column.min, column.max, held.tolist()) == (7, 7, [500])
    assert learnt([0.0] * 500, type="numeric", decimals=1)[1].tolist() == [500]
    column, held = learnt([7] * 500, type="integer", min=0, max=20)
    assert (column.min, column.max) == (0, 20)
    assert held[list(column.bin_starts).index(7)] == 500
    column, held = learnt([0] * 300 + [1] * 200, type="integer")
    assert (column.min, column.max, held.tolist()) == (0, 1, [300, 200])
    column, held = learnt([0] * 300 + [10**6] * 200, type="integer")
    assert (held[0], held[-1], column.bin_starts[1]) == (300, 200, 1)


def test_missing_values_are_no_values():
    column, held = learnt([None] * 5_000 + [1.0, 2.0] * 500, type="integer", missing=[""])
    assert (column.min, column.max) == (1, 2)
    assert held.tolist() == [500, 500, 5_000]


def test_values_beyond_learnt_ends_are_clipped_or_missing():
    values = [*RNG.integers(0, 100, ROWS), 10**9]
    for keys in ({}, {"outside": "missing", "missing": ["?"]}):
        column, held = learnt(values, Cost.within(Fraction(1)), type="integer", **keys)
        assert column.max < 200  # a single row does not move a bound by itself
        assert held.sum() == ROWS + 1
        assert not keys or held[-1] >= 1


# Bins of skewed columns, over sizes and budgets, with and without declared ends.

CELLS = 10_000  # more than a grid has
DEVIATIONS = 4
DRAWS = {
    "lognormal": lambda rng, n: rng.lognormal(10, 1, n),
    "exponential": lambda rng, n: rng.exponential(1, n),
    "signed": lambda rng, n: rng.normal(0, 1, n),
    "half zeros": lambda rng, n: rng.lognormal(10, 1, n) * (np.arange(n) % 2),
}
ENDS = {
    "lognormal": [{}, {"min": 0}, {"max": 10**7}, {"min": 0, "max": 10**7}],
    "exponential": [{}, {"min": 0}, {"max": 100}, {"min": 0, "max": 100}],
    "signed": [{}, {"min": -50}, {"max": 50}, {"min": -50, "max": 50}],
    "half zeros": [{}, {"min": 0}, {"max": 10**7}, {"min": 0, "max": 10**7}],
}
TREE = Tree.best(CELLS)
PREFIX_VARIANCES = TREE.prefix_variances()


def skewed(keys):
    return one(type="numeric", private_bins=BINS, **keys)


def rho_learnt(epsilon):
    return DEFAULT_SHARE * compute_rho(epsilon, 1e-9)


def learnt_from(values, keys, epsilon, seed=0):
    """The column, and the codes of its rows."""
    frame = pd.DataFrame({"a": values})
    schema = resolved(frame, skewed(keys), Cost.within(Fraction(rho_learnt(epsilon))), seed)
    return schema.columns[0], read_table(frame, schema).columns[0]


def lost_rows(counts, sigma):
    """Most rows of the occupied cells of one part that lie outside its run.

    The m cells left off an end would have lengthened the run by Σ (noisy count - 1.5 σ), which is
    not above 0; all of them stay out if their sum is not above 4 σ.
    """
    counts = np.trim_zeros(counts)
    lengths = np.arange(1, counts.size + 1)
    most = (PENALTY * lengths + DEVIATIONS * np.sqrt(lengths)) * sigma
    if counts.size == 0 or counts.sum() <= most[-1] + LEAST_SUM * sigma:
        return int(counts.sum())
    tails = np.cumsum(counts), np.cumsum(counts[::-1])
    return sum(int(tail[tail <= most].max(initial=0)) for tail in tails)


def most_rows(values, keys, rho):
    """Most rows but zeros that a bin may hold, with all noise within DEVIATIONS of 0."""
    lost, rho_bins = 0, rho
    if not ("min" in keys and "max" in keys):
        magnitudes = Magnitudes.from_column(skewed(keys).columns[0])
        sigma = 1 / math.sqrt(2 * rho * BOUNDS_SHARE)
        cells, counts = np.array(magnitudes.cells), _counts(magnitudes, values)
        lost = sum(lost_rows(counts[np.sign(cells) == sign], sigma) for sign in (-1, 1))
        rho_bins *= 1 - BOUNDS_SHARE
    std = math.sqrt(PREFIX_VARIANCES.mean() / (2 * rho_bins))
    error = DEVIATIONS * math.sqrt(PREFIX_VARIANCES.max() / (2 * rho_bins))
    light = np.count_nonzero(values)
    most_bins = BINS - 4  # two edges at 0, two at the bounds
    aim = max(LEAST_SHARE * values.size / BINS, std)
    bins = min(most_bins, max(1, int((light - lost - 2 * error) / aim)))
    equal = (light + error) / bins
    cell = max((values.size + error) / most_bins, HEAVY_DEVIATIONS * std)
    return equal + cell + 2 * error + lost


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1, 5])
@pytest.mark.parametrize("rows", [500, 1000, 2000, 10_000, 100_000])
@pytest.mark.parametrize("name", DRAWS)
def test_no_bin_swallows_a_skewed_column(name, rows, epsilon):
    values = DRAWS[name](np.random.default_rng(rows), rows)
    for keys in ENDS[name]:
        found, codes = learnt_from(values, keys, epsilon)
        edges = np.array(found.bin_edges)
        assert edges[0] == keys.get("min", edges[0])
        assert edges[-1] == keys.get("max", edges[-1])
        assert (
            np.abs(edges[edges != 0]).min()
            >= Magnitudes.from_column(skewed(keys).columns[0]).steps[0]
        )
        held = np.bincount(codes[values != 0])
        assert held.max() <= most_rows(values, keys, rho_learnt(epsilon))


@pytest.mark.parametrize("name", DRAWS)
def test_the_limit_says_something_from_some_thousand_rows_on(name):
    """A declared end costs nothing: the limit of rows is below all rows for each of the ends."""
    for rows, epsilon, share in [(2000, 5, 0.65), (10_000, 1, 0.85), (100_000, 0.5, 0.35)]:
        values = DRAWS[name](np.random.default_rng(rows), rows)
        limits = [most_rows(values, keys, rho_learnt(epsilon)) for keys in ENDS[name]]
        assert max(limits) < share * np.count_nonzero(values)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("keys", ENDS["lognormal"])
def test_a_declared_end_far_away_does_not_collapse_a_small_column(keys, seed):
    """Three quarters of these rows lie in four cells: with σ = 37 they need (6 + 4) σ = 370."""
    values = np.random.default_rng(seed).lognormal(10, 1, 1500)
    _, codes = learnt_from(values, keys, 1, seed)
    assert np.bincount(codes).max() < values.size / 4


# The tree of counts against dense least squares.

SHAPES = [Tree(b, h, b**h) for b, h in [(2, 1), (2, 4), (3, 3), (5, 2), (7, 1)]]


def matrix(tree):
    """One row for each node, one column for each leaf."""
    return np.array([tree.answers(leaf)[:, 0] for leaf in np.eye(tree.leaves, dtype=np.int64)]).T


@pytest.mark.parametrize("tree", SHAPES)
def test_estimates_and_variances_are_those_of_least_squares(tree):
    nodes = matrix(tree)
    assert set(np.unique(nodes)) <= {0, 1}
    assert (nodes.sum(axis=0) == tree.height).all()  # one row changes one count of each level
    assert (np.diff(nodes, axis=1) ** 2).sum() >= 2  # leaves are told apart
    noisy = np.random.default_rng(1).integers(-1000, 1000, nodes.shape[0])
    expected = np.linalg.lstsq(nodes.astype(float), noisy, rcond=None)[0]
    assert np.allclose(tree.consistent(noisy), expected, rtol=0, atol=1e-8)
    covariance = np.linalg.inv(nodes.T @ nodes) * tree.height
    prefixes = np.tril(np.ones((tree.leaves, tree.leaves)))
    expected = np.einsum("ij,jk,ik->i", prefixes, covariance, prefixes)
    assert np.allclose(tree.prefix_variances(), expected, rtol=1e-10)


def test_missing_cells_at_the_end_are_empty():
    nodes = Tree(2, 2, 3).answers(np.array([5, 6, 7]))
    assert nodes[:, 0].tolist() == [11, 7, 5, 6, 7, 0]


@pytest.mark.parametrize("cells", [1, 2, 3, 64, 74, 1000, 4096, 7000])
def test_the_best_tree_is_no_worse_than_any(cells):
    best = Tree.best(cells)
    assert best.leaves >= cells
    error = best.prefix_variances().mean()
    for branching in (2, 4, 16, 60):
        for height in range(1, 14):
            tree = Tree(branching, height, cells)
            if cells <= tree.leaves <= 8 * cells:
                assert error <= tree.prefix_variances().mean() * (1 + 1e-12)
