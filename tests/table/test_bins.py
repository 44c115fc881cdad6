"""Proposed bins: what is rare beside a sentinel, what stands alone, and numbers of any size."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.table.bins import Grid, bins_for, codes_for, find_grid, propose_edges
from adaptive_qs.table.columns.numeric import NumericColumn
from adaptive_qs.table.propose import propose

from . import helpers


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
    path.write_text("\n".join(["x,y", *(f"{cell},{k}" for k, cell in enumerate(cells))]) + "\n")
    schema = propose(path)
    column, value = schema.columns[0], float(cells[0])
    if column.name == "y":  # x has nothing to measure, and comes back as it is
        assert [float(cell) for cell in schema.generated[0].values] == [value]
    elif column.type == "integer":
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
    rows = [f"{cell},{k % 2}" for k, cell in enumerate(cells * 7)]
    path.write_text("\n".join(["x,y", *rows]) + "\n")
    proposal = propose(path)
    column = proposal.columns[0]
    if column.name == "x":
        assert all(map(column.declares, cells))
    elif len(cells) == 1:
        assert "the same value in every row" in helpers.left_out(proposal)["x"]
        assert [float(cell) for cell in proposal.generated[0].values] == [float(cells[0])]
    else:
        assert "too large to bin" in helpers.left_out(proposal)["x"]


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


# Numbers on a grid: the step is found, bins have no gaps, and decoded values are multiples.


def proposed(tmp_path, values, form):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["x", *(form % value for value in values)]) + "\n")
    return helpers.proposed(path)


@pytest.mark.parametrize("rows", [400, 1_000, 3_000])
@pytest.mark.parametrize(
    ("lowest", "step", "count", "form"),
    [(1.0, 0.5, 9, "%.1f"), (0.0, 0.05, 4, "%.2f"), (-1.0, 0.25, 12, "%.2f"), (0, 0.2, 6, "%.2f")],
)
def test_few_regular_values_have_a_bin_each_and_no_more(tmp_path, lowest, step, count, form, rows):
    ranks = np.arange(rows) % count
    column, codes, made = proposed(tmp_path, lowest + step * ranks, form)
    assert column.num_values == count
    np.testing.assert_array_equal(codes, ranks)
    np.testing.assert_array_equal(made, np.round(lowest + step * ranks, 2))


@pytest.mark.parametrize(
    ("values", "decimals", "grid"),
    [
        ([0.5, 1.0, 4.5], 1, Grid(1, 5)),
        ([-0.75, 1.5], 2, Grid(2, 25)),
        ([0.7, 1.4], 1, Grid(1)),
        ([1.5, 4.5], 1, Grid(1, 5)),
        ([0.1, 0.3], 2, Grid(1)),
        ([0.125, 1.0], 3, Grid(3, 125)),
        ([20.0, 40.0], 1, Grid(0, 20)),
        ([0.5], 1, Grid(1)),
        ([99_999_999.5, 0.0], 6, Grid(1, 5)),
    ],
)
def test_the_step_of_a_grid_is_a_usual_one(values, decimals, grid):
    assert find_grid(np.array(values), decimals) == grid


def test_all_multiples_in_a_bin_are_drawn_and_nothing_else():
    column = NumericColumn(
        name="x", type="numeric", edges=(-1.1, 0.3, 2.0, 3.2), decimals=1, step=0.5
    )
    drawn = column.decode(np.repeat([0, 1, 2], 400), np.random.default_rng(0)).to_numpy()
    made = pd.Series(drawn).groupby(np.repeat([0, 1, 2], 400)).unique().map(sorted).tolist()
    assert made == [[-1.0, -0.5, 0.0], [0.5, 1.0, 1.5], [2.0, 2.5, 3.0]]
