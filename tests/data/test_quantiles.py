"""Proposed bins: what is rare beside a sentinel, what stands alone, and numbers of any size."""

import math
from itertools import pairwise

import numpy as np
import pytest

from adaptive_qs.data.binning import bins_for, codes_for
from adaptive_qs.data.propose import propose, propose_schema
from adaptive_qs.data.quantiles import propose_edges
from adaptive_qs.data.steps import Grid


def edges_of(rows, decimals):
    values, counts = np.unique(rows, return_counts=True)
    limits = bins_for(len(rows)), codes_for(len(rows))
    return np.array(propose_edges(values, counts.astype(float), Grid(decimals), *limits))


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("decimals", [0, 1, None])
def test_no_value_shares_a_bin_with_a_wide_gap(seed, decimals):
    """Wide: as wide as all values but the sentinels, which lie at ten times their extent."""
    rng = np.random.default_rng(seed)
    count = int(rng.choice([300, 1_000, 5_000]))
    low, extent = rng.integers(0, 50), rng.integers(20, 300)
    ordinary = rng.integers(low, low + extent + 1, count) / 10 ** (decimals or 0)
    if decimals is None:
        ordinary = ordinary / 3
    extent = np.ptp(ordinary)
    above, below = np.ceil([low + 20 * extent, 20 * extent]) + 1
    sentinels = rng.choice([above, -below], count)
    rows = np.where(rng.random(count) < 0.3, sentinels, ordinary)
    edges = edges_of(rows, decimals)
    inside = np.searchsorted(edges[:-1], rows, side="right") - 1
    assert (np.diff(edges)[inside] < extent).all()
    assert len(edges) - 1 <= bins_for(count)
    assert all(a < b for a, b in pairwise(edges))


@pytest.mark.parametrize("cells", [["0.5"], ["1e-5"] * 2, ["3e300"], ["-7"], ["1234567890.5"]])
def test_a_single_value_stays_what_it_is(tmp_path, cells):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["x", *cells]) + "\n")
    column = propose_schema(path).columns[0]
    value = float(cells[0])
    if column.type == "integer":
        assert (column.min, column.max) == (value, value)
    elif column.grid is not None:
        first, last = column.grid
        assert first == last
        assert first[0] / 10**column.decimals == value
    else:
        assert column.bin_edges == (value, math.nextafter(value, math.inf))


@pytest.mark.parametrize(
    "cells",
    [
        ["1.797e308"],
        ["1.0e308", "-1.79e308"],
        ["1.797e308", "-1.797e308", "0"],
        ["1.7976931348623157e308"],
        ["1234567890.5", "1234567890.5000002"],
        ["5e-324", "1e-323"],
    ],
)
def test_numbers_of_any_size_get_bins_or_a_reason(tmp_path, cells):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["x,y", *(f"{cell},1" for cell in cells * 7)]) + "\n")
    proposal = propose(path)
    column = proposal.schema.columns[0]
    if column.name == "x":
        assert all(map(column.declares, cells))
    else:
        assert "too large to bin" in proposal.left_out["x"]


@pytest.mark.parametrize("sentinel", [None, 999, -9])
@pytest.mark.parametrize("rows", [1_000, 50_000])
def test_an_end_of_the_scale_that_many_share_has_its_bin(rows, sentinel):
    """1 % at the top code, three times what lies on others near it: half a percent is enough,
    beside a sentinel, too."""
    common, rare = np.resize(np.arange(18, 60), rows), np.resize(np.arange(60, 90), rows)
    ages = np.where(np.arange(rows) < 0.05 * rows, rare, common)
    ages[-rows // 100 :] = 90
    if sentinel is not None:
        ages[rows // 4 : rows // 2] = sentinel
    edges = edges_of(ages, 0).tolist()
    assert 90 in edges[:-1]
    assert edges[edges.index(90) + 1] <= 91


def test_an_end_that_few_share_has_none():
    rows = np.append(np.resize(np.arange(18, 91), 5_000), np.full(50, 90))
    assert edges_of(rows, 0)[-2] < 90


@pytest.mark.parametrize("first", [0, 10**9, 2**53 - 500])
def test_large_integers_close_together_get_as_many_bins_as_small_ones(first):
    rows = first + 7 * np.resize(np.arange(60), 300)
    assert len(edges_of(rows.astype(float), 0)) - 1 >= bins_for(300) - 1  # rounding may merge two
