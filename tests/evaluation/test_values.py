"""Values in their units, against pandas and slow counting."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.evaluation.columns import FREQUENT, QUANTILES, column_values
from adaptive_qs.evaluation.evaluation import evaluate
from adaptive_qs.evaluation.tables import TablePair
from adaptive_qs.table.schema import Schema

DISTRICTS = ("north", "south", "isle")
SCHEMA = Schema.parse({"version": 1, "columns": [
    {"name": "price", "type": "numeric", "edges": [0, 100, 200, 1000], "decimals": 2,
     "missing": ["", "-1"]},
    {"name": "day", "type": "date", "min": "2020-01-01", "max": "2021-12-31",
     "granularity": "quarter"},
    {"name": "age", "type": "integer", "min": 0, "max": 99},
    {"name": "capped", "type": "integer", "min": 0, "max": 9, "outside": "clip"},
    {"name": "district", "type": "categorical", "values": list(DISTRICTS)},
]})  # fmt: skip
ROWS = 1_500


def people(seed, rows=ROWS, within=lambda x, rng: x):
    """Rows whose prices depend on the district; ``within`` may move prices, as bins do."""
    rng = np.random.default_rng(seed)
    district = rng.choice(3, rows, p=[0.6, 0.3, 0.1])
    price = (
        np.round(np.array([60, 130, 400])[district] * rng.uniform(0.5, 1.5, rows) / 5) * 5 - 0.01
    )
    days = pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 700, rows), unit="D")
    return pd.DataFrame({
        "price": np.where(rng.random(rows) < 0.1, np.nan, within(price, rng)),
        "day": days,
        "age": rng.integers(0, 100, rows),
        "capped": rng.integers(0, 15, rows),
        "district": np.array(DISTRICTS)[district],
    })  # fmt: skip


def spread_in_bins(price, rng):
    """What drawing evenly in wide bins does: the codes stay, the values do not."""
    low, high = (np.array(ends)[np.digitize(price, [100, 200])]
                 for ends in ((0, 100, 200), (100, 200, 1000)))  # fmt: skip
    return np.round(rng.uniform(low, high - 0.01), 2)


TRUE, SAME, SPREAD = people(1), people(2), people(2, within=spread_in_bins)


def values_of(true, made, schema=SCHEMA):
    pair = TablePair.of(true, made, schema)
    return pair, {found.column.name: found for found in column_values(pair, schema)}


@pytest.mark.parametrize("form", ["frame", "csv", "parquet"])
def test_means_and_quantiles_are_those_of_the_cells(tmp_path, form):
    """Also where a code stands for a bin, a quarter, or all that is beyond the range."""
    tables = [TRUE, SPREAD]
    if form != "frame":
        for k, table in enumerate(tables):
            tables[k] = tmp_path / f"{k}.{form}"
            text = table.assign(day=table.day.dt.strftime("%Y-%m-%d"))
            (text.to_csv if form == "csv" else text.to_parquet)(tables[k], index=False)
    _, found = values_of(*tables)
    assert set(found) == {"price", "day", "age", "capped"}
    for name, column in found.items():
        for summary, table in ((column.true, TRUE), (column.synthetic, SPREAD)):
            cells = table[name].dropna()
            if name == "day":
                cells = (cells - pd.Timestamp(0)).dt.total_seconds()
            assert summary.rows == len(cells)
            assert summary.mean == pytest.approx(cells.mean(), rel=1e-12)
            assert summary.std == pytest.approx(cells.std(ddof=0), rel=1e-9)
            wanted = np.quantile(cells, QUANTILES, method="inverted_cdf")
            assert list(summary.quantiles) == pytest.approx(list(wanted))
            often = TRUE[name].dropna().value_counts().sort_index()
            often = often.sort_values(ascending=False, kind="stable").index[:FREQUENT]
            assert summary.frequent == pytest.approx(table[name].dropna().isin(often).mean())


def test_markers_that_are_numbers_are_no_values():
    true = TRUE.assign(price=np.where(np.arange(ROWS) % 2, -1, 50))
    _, found = values_of(true, true)
    assert (found["price"].true.mean, found["price"].true.rows) == (50, ROWS // 2)


def test_tables_of_codes_tell_values_only_where_codes_are_values():
    pair, _ = values_of(TRUE, SAME)
    coded = TablePair(pair.true, pair.synthetic)
    assert [c.column.name for c in column_values(coded, SCHEMA)] == ["age"]


@pytest.mark.parametrize(
    ("factor", "word"), [(1.0, "kept"), (1.03, "kept"), (1.12, "moved"), (1.4, "far off")]
)
def test_a_mean_is_off_by_parts_of_itself(factor, word):
    """The standard error of the mean of age, 29·√(2/1500), is 1.05: 3 of it are 6 % of 50."""
    made = SAME.assign(age=np.minimum(TRUE.age.to_numpy() * factor, 150).astype(int))
    wide = SCHEMA.model_copy(update={"columns": tuple(
        c.model_copy(update={"max": 150}) if c.name == "age" else c for c in SCHEMA.columns
    )})  # fmt: skip
    sentence = evaluate(TRUE, made, wide).findings["values"]
    assert sentence.word == word


def test_one_value_only_is_kept_or_not():
    true = TRUE.assign(age=40)
    assert values_of(true, true)[1]["age"].off == 0
    moved = values_of(true, TRUE.assign(age=50))[1]["age"]
    assert moved.off == pytest.approx(10 / 2)  # 5 % of 40
    zero = values_of(TRUE.assign(age=0), TRUE.assign(age=1))[1]["age"]
    assert zero.off == math.inf


# Group means.


def means_of(true, made, schema=SCHEMA, workload=1):
    """The comparison of prices by district."""
    facts = evaluate(true, made, schema, workload).group_means
    return next(m for m in facts.pairs if (m.column.name, m.by) == ("price", "district"))


def test_means_and_medians_by_groups_are_those_of_pandas():
    evaluation = evaluate(TRUE, SPREAD, SCHEMA)
    facts = evaluation.group_means
    (strong,) = facts.strongest  # nothing else depends on the district
    found = means_of(TRUE, SPREAD)
    assert (found.column.name, found.by) == (strong.column.name, strong.by) == ("price", "district")
    wanted = [
        t.groupby("district").price.agg(
            ["count", "mean", lambda x: np.quantile(x.dropna(), 0.5, method="inverted_cdf")]
        ).loc[list(found.labels)].to_numpy().T
        for t in (TRUE, SPREAD)
    ]  # fmt: skip
    for k, figures in enumerate((found.rows, found.means, found.medians)):
        assert figures == pytest.approx(np.stack([each[k] for each in wanted]))
    weight = wanted[0][0] / wanted[0][0].sum()
    overall = TRUE.price.mean()
    error = math.sqrt((weight * (wanted[1][1] - wanted[0][1]) ** 2).sum())
    assert found.error == pytest.approx(error)
    assert found.spread == pytest.approx(math.sqrt((weight * (wanted[0][1] - overall) ** 2).sum()))
    assert "“isle” (" in evaluation.findings["group_means"].said
    content = evaluation.as_json()
    values = {entry["attribute"]: entry for entry in content["values"]}
    assert values["day"]["unit"] == "seconds since 1970"
    assert values["price"]["true"]["quantiles"].keys() == {"p5", "p25", "p50", "p75", "p95"}
    assert values["price"]["off"] > 1 > values["age"]["off"]
    (group,) = [g for g in content["group_means"]["groups"] if g["value"] == "isle"]
    assert group["median"]["true"] == pytest.approx(wanted[0][2][found.labels.index("isle")])


@pytest.mark.slow
def test_the_error_of_fresh_samples_is_the_one_expected():
    """30 samples: the mean of their squared errors varies by √(2/30)·√(Σ e²) of 3 groups, at most
    26 % of the whole; four times that."""
    errors, fresh = [], []
    for seed in range(30):
        found = means_of(TRUE, people(100 + seed))
        errors.append(found.error**2)
        fresh.append(found.fresh**2)
        assert found.lost <= 0.15
        assert not (found.off >= 1).any()
    assert np.mean(errors) == pytest.approx(np.mean(fresh), rel=4 * math.sqrt(2 / 30))


def test_the_group_that_is_furthest_off_times_its_rows_comes_first():
    """The means of three of 30 groups are moved."""
    rng = np.random.default_rng(6)
    group = rng.choice(30, 6_000, p=np.arange(30, 0, -1) / 465)
    group[:20] = 29
    names = [f"g{k}" for k in range(30)]
    schema = Schema.parse({"version": 1, "columns": [
        {"name": "group", "type": "categorical", "values": names},
        {"name": "pay", "type": "integer", "min": 0, "max": 999},
    ]})  # fmt: skip
    pay = 100 + 10 * group + rng.integers(0, 20, 6_000)
    true = pd.DataFrame({"group": np.array(names)[group], "pay": pay})
    moved = np.select([group == 29, group == 2, group == 4], [100, pay * 2, pay + 80], pay)
    made = true.assign(pay=moved)
    evaluation = evaluate(true, made, schema)
    ranked = evaluation.group_means.ranked
    assert [means.labels[k] for means, k in ranked] == ["g2", "g4", "g29"]
    finding = evaluation.findings["group_means"]
    assert "far off in 3 of 30 groups: " in finding.said
    assert "“pay” where “group” is “g2” (130.0, now 260.0, +100\u00a0%), mean" in finding.said
    assert len(finding.figures[0].rows) == 3


def test_values_that_are_frequent_by_chance_are_not_lost():
    """Ten of 35 values, that 40 rows take alike, have most of the rows only where they were named.
    With a peak on three values they are lost."""
    rng = np.random.default_rng(5)
    schema = Schema.parse({"version": 1, "columns": [
        {"name": "years", "type": "integer", "min": 0, "max": 34, "bins": 7},
    ]})  # fmt: skip
    even, other = (pd.DataFrame({"years": rng.integers(0, 35, 40)}) for _ in range(2))
    frequent = even.years.value_counts()[:FREQUENT].index
    assert even.years.isin(frequent).mean() > 2 * other.years.isin(frequent).mean()
    peaked = pd.DataFrame({"years": rng.choice([3, 11, 20], 40)})
    assert evaluate(even, other, schema).findings["values"].word != "frequent values lost"
    assert "Frequent values are lost" in evaluate(peaked, other, schema).findings["values"].said
