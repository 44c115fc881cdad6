"""How values are drawn inside codes: means, heaps and endings, and no row leaves its code."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import stats

from adaptive_qs import Synthesizer
from adaptive_qs.table.bin_density import build_drawers, inside
from adaptive_qs.table.columns.binned import Counted, Ending
from adaptive_qs.table.schema import Schema


def column_of(**content):
    return Schema.parse({"version": 1, "columns": [{"name": "x", **content}]}).columns[0]


def counted(column, heaps=(), rows=(), endings=()):
    endings = tuple(Ending(remainder=r, modulus=m, rows=n) for r, m, n in endings)
    update = {"heaps": heaps, "counted": Counted(rows=rows, endings=endings)}
    return column.model_copy(update=update)


def values(column, counts, rows=200_000):
    """Values drawn for codes in these proportions, as numbers or days."""
    codes = np.repeat(np.arange(len(counts)), np.rint(counts / np.sum(counts) * rows).astype(int))
    drawn = inside(column, np.asarray(counts, dtype=float)).draw(codes, np.random.default_rng(0))
    return drawn.to_numpy(zero_copy_only=False)


LAWS = {
    "normal": stats.norm(50, 12),
    "exponential": stats.expon(scale=30),
    "lognormal": stats.lognorm(0.9, scale=20_000),
    "Pareto": stats.pareto(2.5, scale=1000),
    "t": stats.t(3, loc=100, scale=500),
    "mirrored": stats.gumbel_l(0, 10),
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_the_mean_of_a_known_law_comes_back_from_its_quantile_bins(law):
    """The last bin reaches ten times as far as all others: drawn evenly, its rows move the mean by
    more than a tenth of the standard deviation."""
    cuts = law.ppf([*np.arange(1, 24) / 24, 0.99])
    low, high = law.ppf([1e-6, 1 - 1e-6])
    reach = 10 * (cuts[-1] - cuts[0])
    bottom = low if low > cuts[0] - reach / 10 else cuts[0] - reach
    edges = [float(bottom), *cuts.tolist(), float(max(high, cuts[-1] + reach))]
    column = column_of(type="numeric", edges=edges)
    counts = np.diff(law.cdf(edges)) * 20_000
    drawn = values(column, counts)
    flat = counts @ (np.array(edges[1:]) + edges[:-1]) / 2 / counts.sum()
    assert abs(drawn.mean() - law.mean()) < 0.02 * law.std()
    assert abs(flat - law.mean()) > 0.04 * law.std()
    shares = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    np.testing.assert_allclose(law.cdf(np.quantile(drawn, shares)), shares, atol=0.006)


def test_a_heap_keeps_its_rows_and_leaves_the_density_alone():
    column = column_of(type="integer", min=0, max=399, bins=4)
    counts = np.array([4000.0, 4000, 4000, 8000])
    drawn = values(counted(column, (75, 350), (1000, 4000)), counts, 20_000)
    assert (drawn == 75).sum() == pytest.approx(1000, abs=5 * 30)
    assert (drawn == 350).sum() == pytest.approx(4000, abs=5 * 45)
    others = drawn[(drawn >= 300) & (drawn != 350)]
    halves = np.histogram(others, (300, 350, 400))[0]
    assert abs(halves[0] - halves[1]) < 5 * np.sqrt(len(others))


def test_heaps_have_no_more_rows_than_their_code():
    column = column_of(type="integer", min=0, max=99, bins=2)
    drawn = values(counted(column, (3, 7, 60), (900, 300, -50)), [600.0, 600.0], 1200)
    assert set(drawn[drawn < 50]) == {3, 7}
    assert (drawn == 3).sum() == pytest.approx(450, abs=5 * np.sqrt(600 * 0.75 * 0.25))
    assert len(set(drawn[drawn >= 50])) > 40


@pytest.mark.parametrize("bins", [30, 3], ids=["points", "cells of several points"])
def test_endings_keep_their_rows(bins):
    """A third of the bins have more points than there are cells."""
    column = column_of(type="numeric", min=0, max=300, bins=bins, decimals=2)
    endings = [(99, 100, 12_000), (0, 50, 4000)]
    drawn = values(counted(column, endings=endings), np.full(bins, 20_000 / bins), 20_000)
    cents = np.rint(drawn * 100).astype(int)
    assert (cents % 100 == 99).mean() == pytest.approx(0.6, abs=0.02)
    assert (cents % 50 == 0).mean() == pytest.approx(0.2, abs=0.02)
    assert drawn.mean() == pytest.approx(150, abs=5 * 87 / np.sqrt(20_000))
    thirds = np.histogram(drawn, 3, (0, 300))[0]
    assert np.abs(thirds - 20_000 / 3).max() < 400


def test_rows_on_single_values_and_heaps_are_no_ending():
    """All that ends with 0 is on 0, which has a bin of its own, and on 50, which is a heap."""
    column = column_of(type="integer", min=0, max=100, bin_starts=[0, 1, 41])
    column = counted(column, (50,), (3000,), [(0, 10, 5000)])
    drawn = values(column, [2000.0, 4000, 4000], 10_000)
    assert (drawn == 50).sum() == pytest.approx(3000, abs=5 * 30)
    assert (drawn % 10 == 0).sum() < 5300


def test_first_days_of_months():
    for granularity in ("year", "100 years"):
        column = column_of(type="date", min="1900-01-01", max="1999-12-31", granularity=granularity)
        size = column.num_values
        days = values(
            counted(column, endings=[(0, 31, 5000)]), np.full(size, 10_000 / size), 10_000
        )
        first = days == days.astype("M8[M]").astype("M8[D]")
        assert first.mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    "counts", [[0.0, 0, 0, 0], [0.0, 0, 5, 0], [1e-9, 1e9, 1e-9, 1e9], [3.0, 2, 1, 0]]
)
def test_whatever_the_counts_are_values_stay_in_their_codes(counts):
    column = column_of(type="numeric", edges=[-1e6, 0, 1e-3, 10, 1e9], decimals=3)
    column = counted(column, (0.0, 7.5, 1e8), (50, 3, 1), [(0, 1000, 7)])
    drawers = build_drawers([column], lambda _: np.array(counts))
    codes = np.tile(np.arange(4), 500)
    drawn = column.decode(codes, np.random.default_rng(1), drawers.get("x"))
    np.testing.assert_array_equal(column.encode(drawn), codes)
    again = column.decode(codes, np.random.default_rng(1), drawers.get("x"))
    assert drawn.equals(again)


TAIL = [-350_000, 0, 1, 5_000, 10_000, 20_000, 30_000, 50_000, 80_000, 120_000, 200_000]
BEYOND_ZERO = {
    "integer": {"type": "integer", "min": -350_000, "max": 999_999, "bin_starts": TAIL},
    "decimals": {"type": "numeric", "decimals": 0, "edges": [*TAIL, 1e6]},
    "no decimals": {"type": "numeric", "edges": [*TAIL[:2], 5e-324, *TAIL[3:], 1e6]},
    "inside a bin": {
        "type": "integer", "min": -350_000, "max": 999_999, "bin_starts": [TAIL[0], 0, *TAIL[3:]],
    },
    "several values": {
        "type": "integer", "min": -350_000, "max": 999_999,
        "bin_starts": [*TAIL[:3], 900, 901, *TAIL[3:5], 10_001, *TAIL[5:]],
    },
}  # fmt: skip


def money():
    """700 rows below 0 with mean -3,162, 2,000 rows on 0, and the rest above."""
    rng = np.random.default_rng(0)
    below, above = -rng.exponential(3_000, 700) - 1, rng.exponential(40_000, 27_000) + 1
    return np.rint(np.clip(np.r_[below, np.zeros(2_000), above], -340_000, 900_000))


@pytest.mark.parametrize("content", BEYOND_ZERO.values(), ids=BEYOND_ZERO)
def test_a_tail_follows_the_density_beyond_a_single_value(content):
    """Its mean lies within 20 % of the true one; drawn evenly it would be -175,000."""
    column, table = column_of(**content), money()
    codes = column.encode(pa.array(table))
    drawn = values(column, np.bincount(codes), 1_000_000)
    assert drawn[drawn < 0].mean() == pytest.approx(table[table < 0].mean(), rel=0.2)
    assert drawn.std() == pytest.approx(table.std(), rel=0.03)


@pytest.mark.parametrize("ends", [[0, 1], [1]], ids=["a bin of its own", "inside a bin"])
def test_a_tail_above_a_single_value_is_the_mirror_image(ends):
    starts = [-999_999, *sorted(1 - start for start in TAIL[3:]), *ends]
    column = column_of(type="integer", min=-999_999, max=350_000, bin_starts=starts)
    table = -money()
    drawn = values(column, np.bincount(column.encode(pa.array(table))), 1_000_000)
    assert drawn[drawn > 0].mean() == pytest.approx(table[table > 0].mean(), rel=0.2)


@pytest.mark.parametrize("zeros", [0, 500, 8_000])
def test_rows_on_a_single_value_inside_a_bin_do_not_shorten_the_tail(zeros):
    column, table = column_of(**BEYOND_ZERO["inside a bin"]), money()
    table = np.r_[table[table != 0], np.zeros(zeros)]
    drawn = values(column, np.bincount(column.encode(pa.array(table))), 1_000_000)
    assert drawn[drawn < 0].mean() == pytest.approx(table[table < 0].mean(), rel=0.2)


def test_the_mean_of_the_left_tail_comes_back_from_a_release():
    """Through a run, on several seeds: the rows of a tail are few, so their mean is averaged."""
    frame = pd.DataFrame({"x": money().astype(int)})
    schema = {"version": 1, "columns": [{"name": "x", **BEYOND_ZERO["integer"]}]}
    means = []
    for seed in range(5):
        run = Synthesizer(epsilon=10, delta=1e-6, workload=1, insecure_seed=seed)
        drawn = run.fit(frame, schema=schema).sample(40_000, seed=seed).x
        means.append(drawn[drawn < 0].mean())
    assert np.mean(means) == pytest.approx(frame.x[frame.x < 0].mean(), rel=0.2)


def test_values_with_codes_of_their_own_leave_an_ending_to_the_others():
    """Of 600 rows that end with .99, 200 have a code of their own: 400 are among the other 780."""
    edges = (0, 0.99, 1, 10, 20)
    column = counted(column_of(type="numeric", edges=edges, decimals=2), endings=[(99, 100, 600)])
    drawn = inside(column, np.array([0.0, 200, 400, 380])).draw(
        np.repeat([2, 3], 50_000), np.random.default_rng(1)
    )
    share = (np.rint(drawn.to_numpy() * 100) % 100 == 99).mean()
    assert share == pytest.approx(400 / 780, abs=0.02)
