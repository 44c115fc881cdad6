"""Weighted marginals and means, against tables whose rows are repeated as often as they weigh."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.errors import DataError, InputError
from adaptive_qs.evaluation.evaluation import evaluate, evaluation_json
from adaptive_qs.evaluation.report import report_page
from adaptive_qs.evaluation.verdict import findings, verdict
from adaptive_qs.table.schema import Schema

SCHEMA = Schema.parse({"version": 1, "columns": [
    {"name": "sex", "type": "categorical", "values": ["f", "m"]},
    {"name": "age", "type": "integer", "min": 0, "max": 99, "bin_starts": [0, 30, 60]},
    {"name": "pay", "type": "numeric", "edges": [0, 50, 100], "decimals": 1, "decimal": ","},
    {"name": "weight", "type": "integer", "min": 0, "max": 9, "missing": [""]},
    {"name": "change", "type": "integer", "min": -5, "max": 5},
]})  # fmt: skip


def people(seed, rows=3_000, tilt=True):
    """Women weigh more, if the table is told so; pay depends on the sex."""
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, rows)
    weight = rng.integers(1, 4, rows) + np.where(sex == 0, 5, 0) * tilt
    pay = 30 * rng.random(rows) + 40 * sex
    return pd.DataFrame({
        "sex": np.array(["f", "m"])[sex],
        "age": rng.integers(0, 100, rows),
        "pay": [f"{value:.1f}".replace(".", ",") for value in pay],
        "weight": np.where(rng.random(rows) < 0.01, "", weight.astype(str)),
        "change": rng.integers(-5, 6, rows),
    })  # fmt: skip


TRUE, SAME, FLAT = people(1), people(2), people(3, tilt=False)


def repeated(table):
    weights = pd.to_numeric(table["weight"]).fillna(0).astype(int)
    return table.loc[table.index.repeat(weights)].reset_index(drop=True)


def test_weights_count_rows_as_often_as_they_weigh():
    found = evaluate(TRUE, SAME, SCHEMA, weights="weight").weighted
    both = [repeated(table).drop(columns="weight") for table in (TRUE, SAME)]
    others = Schema.parse({"version": 1, "columns": [
        c for c in SCHEMA.model_dump(mode="json", exclude_unset=True)["columns"]
        if c["name"] != "weight"
    ]})  # fmt: skip
    slow = evaluate(*both, others)
    assert found.marginals == 6
    assert found.weighted.error == pytest.approx(slow.workload.mean_l1)
    assert found.totals == tuple(map(len, both))
    means = {mean.column.name: mean for mean in found.means}
    assert means.keys() == {"age", "pay", "change"}
    for values in slow.values:
        mean = means[values.column.name]
        assert (mean.true, mean.synthetic) == pytest.approx(
            (values.true.mean, values.synthetic.mean)
        )


def test_effective_rows_are_those_of_kish():
    found = evaluate(TRUE, SAME, SCHEMA, weights="weight").weighted
    for table, rows in zip((TRUE, SAME), found.weighted.rows):
        w = pd.to_numeric(table["weight"]).fillna(0).to_numpy()
        assert rows == round(w.sum() ** 2 / (w**2).sum()) < len(table)


def test_chance_is_that_of_fresh_samples():
    """Of 24 pairs, errors vary by a sixth and their mean by 3.5 %; the estimate allows for 5 %."""
    found = [
        evaluate(people(40 + k), people(70 + k), SCHEMA, weights="weight").weighted
        for k in range(24)
    ]
    errors, fresh = (
        [getattr(each.weighted, name) for each in found] for name in ("error", "fresh")
    )
    assert np.mean(errors) == pytest.approx(np.mean(fresh), rel=0.1)
    assert not any(each.worse or any(mean.moved for mean in each.means) for each in found)


def test_weights_that_lost_their_meaning_are_told():
    """Plain rows are close: only the weights no longer depend on the sex."""
    evaluation = evaluate(TRUE, FLAT, SCHEMA, weights="weight")
    found, judged = evaluation.weighted, verdict(findings(evaluation), None)
    assert found.worse
    assert [mean.column.name for mean in found.means if mean.moved] == ["pay"]
    assert (judged.weights.grade, judged.weights.word) == ("fair", "off when weighted")
    assert "“pay” (" in judged.weights.text
    content = evaluation_json(evaluation, [])["weighted"]
    assert content["worse"] is True
    assert content["means"][0]["attribute"] == "pay"
    page = report_page(findings(evaluation), SCHEMA, ("t", "s"), None)
    assert "Weighted by weight" in page
    kept = verdict(findings(evaluate(TRUE, SAME, SCHEMA, weights="weight")), None).weights
    assert (kept.grade, kept.word) == ("good", "kept when weighted")


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ("wait", "'wait' is not in the schema"),
        ("sex", "'sex' is no column of numbers"),
        ("change", "'change' may be negative"),
    ],
)
def test_columns_that_cannot_weigh_are_refused(weights, said):
    with pytest.raises(InputError, match=said):
        evaluate(TRUE, SAME, SCHEMA, weights=weights)


def test_tables_without_weights_are_refused():
    with pytest.raises(DataError, match="'weight' are all 0 or missing"):
        evaluate(TRUE, SAME.assign(weight=""), SCHEMA, weights="weight")
