"""How well learnt bins divide the rows, within bounds that follow from the noise."""

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.adaptive.preprocessing.grid import grid_points
from adaptive_qs.adaptive.preprocessing.quantile_edges import LEAST_SHARE, quantile_edges
from adaptive_qs.adaptive.preprocessing.tree import Tree
from adaptive_qs.data.inputs import read_table
from adaptive_qs.privacy.entropy import InsecureSeed
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.noise import discrete_gaussian

from .helpers import PLENTY, masses, one, resolved

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
    nodes = tree.counts(counts)
    noisy = nodes + discrete_gaussian(variance, nodes.size, InsecureSeed(seed))
    variances = tree.prefix_variances(counts.size) / (2 * float(rho))
    error = math.sqrt(variances.max()) * NormalDist().inv_cdf(1 - 1e-9 / 2 / counts.size)
    estimate = tree.consistent(noisy)[: counts.size]
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
    column, held = learnt(values, type="numeric")
    assert held[0] == 10_000


def test_a_constant_is_found():
    column, held = learnt([7] * 500, type="integer")
    assert (column.min, column.max, held.tolist()) == (7, 7, [500])
    column, held = learnt([0.0] * 500, type="numeric", decimals=1)
    assert held.tolist() == [500]
    column, held = learnt([7] * 500, type="integer", min=0, max=20)
    assert (column.min, column.max) == (0, 20)
    assert held[list(column.bin_starts).index(7)] == 500


def test_two_values_are_told_apart():
    column, held = learnt([0] * 300 + [1] * 200, type="integer")
    assert (column.min, column.max, held.tolist()) == (0, 1, [300, 200])
    column, held = learnt([0] * 300 + [10**6] * 200, type="integer")
    assert held[0] == 300
    assert held[-1] == 200
    assert column.bin_starts[1] == 1


def test_years_are_resolved_to_single_years():
    years = RNG.integers(1950, 2025, ROWS)
    column, held = learnt(years, type="integer")
    assert (column.min, column.max) == (1950, 2024)
    assert held.size == BINS
    assert held.max() < 1.5 * held.min()


def test_missing_values_are_no_values():
    column, held = learnt([None] * 5_000 + [1.0, 2.0] * 500, type="integer", missing=[""])
    assert (column.min, column.max) == (1, 2)
    assert held.tolist() == [500, 500, 5_000]


def test_values_beyond_learnt_ends_are_clipped_or_missing():
    values = [*RNG.integers(0, 100, ROWS), 10**9]
    cost = Cost.within(Fraction(1))
    column, held = learnt(values, cost, type="integer")
    assert column.max < 200  # a single row does not move a bound by itself
    assert held.sum() == ROWS + 1
    column, held = learnt(values, cost, type="integer", outside="missing", missing=["?"])
    assert column.max < 200
    assert held[-1] >= 1
