"""Bins of skewed columns, over sizes and budgets, with and without declared ends."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.adaptive.preprocessing.magnitudes import LEAST_SUM, PENALTY, Magnitudes
from adaptive_qs.adaptive.preprocessing.quantile_edges import HEAVY_DEVIATIONS, LEAST_SHARE
from adaptive_qs.adaptive.preprocessing.ranges import BOUNDS_SHARE
from adaptive_qs.adaptive.preprocessing.shares import DEFAULT_SHARE
from adaptive_qs.adaptive.preprocessing.tree import Tree
from adaptive_qs.data.inputs import read_table
from adaptive_qs.privacy.accounting import rho_of
from adaptive_qs.privacy.events import Cost

from .helpers import one, resolved

BINS = 16
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
PREFIX_VARIANCES = TREE.prefix_variances(CELLS)


def schema_column(keys):
    return one(type="numeric", private_bins=BINS, **keys).columns[0]


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
        magnitudes = Magnitudes.of(schema_column(keys))
        sigma = 1 / math.sqrt(2 * rho * BOUNDS_SHARE)
        cells, counts = np.array(magnitudes.cells), magnitudes.counts(values)
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


@pytest.mark.parametrize("epsilon", [0.5, 1, 5])
@pytest.mark.parametrize("rows", [500, 1000, 2000, 10_000, 100_000])
@pytest.mark.parametrize("name", DRAWS)
def test_no_bin_swallows_a_skewed_column(name, rows, epsilon):
    values = DRAWS[name](np.random.default_rng(rows), rows)
    rho = DEFAULT_SHARE * rho_of(epsilon, 1e-9)
    frame = pd.DataFrame({"a": values})
    for keys in ENDS[name]:
        schema = resolved(
            frame, one(type="numeric", private_bins=BINS, **keys), Cost.within(Fraction(rho))
        )
        edges = np.array(schema.columns[0].bin_edges)
        assert edges[0] == keys.get("min", edges[0])
        assert edges[-1] == keys.get("max", edges[-1])
        assert np.abs(edges[edges != 0]).min() >= Magnitudes.of(schema_column(keys)).steps[0]
        held = np.bincount(read_table(frame, schema).columns[0][values != 0])
        assert held.max() <= most_rows(values, keys, rho)


@pytest.mark.parametrize("name", DRAWS)
def test_the_limit_says_something_from_some_thousand_rows_on(name):
    """A declared end costs nothing: the limit of rows is below all rows for each of the ends."""
    for rows, epsilon, share in [(2000, 5, 0.65), (10_000, 1, 0.85), (100_000, 0.5, 0.35)]:
        values = DRAWS[name](np.random.default_rng(rows), rows)
        rho = DEFAULT_SHARE * rho_of(epsilon, 1e-9)
        for keys in ENDS[name]:
            assert most_rows(values, keys, rho) < share * np.count_nonzero(values)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("keys", ENDS["lognormal"])
def test_a_declared_end_far_away_does_not_collapse_a_small_column(keys, seed):
    """Three quarters of these rows lie in four cells: with σ = 37 they need (6 + 4) σ = 370."""
    values = np.random.default_rng(seed).lognormal(10, 1, 1500)
    frame = pd.DataFrame({"a": values})
    cost = Cost.within(Fraction(DEFAULT_SHARE * rho_of(1, 1e-9)))
    schema = resolved(frame, one(type="numeric", private_bins=BINS, **keys), cost, seed)
    held = np.bincount(read_table(frame, schema).columns[0])
    assert held.max() < values.size / 4
