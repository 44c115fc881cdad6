"""Rules from the schema to the rows, through the doors that users have."""

from __future__ import annotations

import json
import re
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import Synthesizer, evaluate
from adaptive_qs.cli.entry import main
from adaptive_qs.errors import SchemaError
from adaptive_qs.generate.rows import SynthesisSettings

COLUMNS = [
    {"name": "age", "type": "integer", "min": 0, "max": 29, "bins": 3},
    {"name": "status", "type": "categorical", "values": ["never", "once"], "missing": [""]},
    {"name": "a", "type": "integer", "min": 0, "max": 3},
    {"name": "b", "type": "integer", "min": 0, "max": 2},
    {"name": "total", "type": "integer", "min": 0, "max": 5},
    {"name": "city", "type": "categorical", "values": ["p", "q", "r"]},
    {"name": "county", "type": "categorical", "values": ["k", "l"]},
]
RULES = [
    "age < 15 -> status = never",
    "total = a + b",
    "b <= a",
    {"rule": "city determines county", "table": [["p", "k"], ["q", "l"], ["r", "l"]]},
    {"rule": "city limits age", "table": [["r", "3", "26"]]},
    "never total = 4 and city = p",
    "status is not missing",
]
SCHEMA = {"version": 1, "columns": COLUMNS, "rules": RULES}


@pytest.fixture(autouse=True)
def quick_tables(monkeypatch):
    """Fit tables with few rows: these tests are not about their quality."""
    quick = partial(SynthesisSettings, fit_rows=2_000)
    monkeypatch.setattr("adaptive_qs.release.release.SynthesisSettings", quick)


def private(rows=600):
    """Rows that keep all rules but for a few."""
    rng = np.random.default_rng(1)
    age = rng.integers(0, 30, rows)
    a = rng.integers(0, 4, rows)
    b = np.minimum(rng.integers(0, 3, rows), a)
    city = rng.choice(list("pqr"), rows, p=[0.5, 0.3, 0.2])
    frame = pd.DataFrame(
        {
            "age": age,
            "status": np.where(age < 15, "never", rng.choice(["never", "once"], rows)),
            "a": a,
            "b": b,
            "total": a + b,
            "city": city,
            "county": np.where(city == "p", "k", "l"),
        }
    )
    frame.loc[:5, "status"] = "once"
    return frame


def broken(table):
    """Rows that break some rule, by definition."""
    return (
        ((table["age"] < 15) & (table["status"] != "never"))
        | (table["total"] != table["a"] + table["b"])
        | (table["b"] > table["a"])
        | ((table["total"] == 4) & (table["city"] == "p"))
        | table["status"].isna()
        | (table.groupby("city")["county"].transform("nunique") > 1)
        | (table["city"].eq("r") & ~table["age"].between(3, 26))
    )


def fitted(epsilon, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Synthesizer(epsilon=epsilon, insecure_seed=1, workers=1, beyond_limits=True, **more)
        return model.fit(private(), schema=SCHEMA)


@pytest.mark.parametrize("epsilon", [0.1, 1, 10])
def test_every_synthetic_row_meets_every_rule(epsilon, tmp_path):
    model = fitted(epsilon)
    table = model.sample(3_000, seed=1)
    assert not broken(table).any()
    model.save(tmp_path / "r.zip")
    again = Synthesizer.load(tmp_path / "r.zip").sample(500, seed=2)
    assert not broken(pd.concat([table, again])).any()  # a city has the same county in both
    if epsilon == 10:  # what is not ruled out is as it was measured
        assert table["county"].eq("k").mean() == pytest.approx(0.5, abs=0.05)
        assert table["total"].mean() == pytest.approx(private()["total"].mean(), abs=0.15)


def test_fitted_marginals_have_nothing_in_forbidden_cells():
    model = fitted(1)
    (marginal,) = model.release_.fitted_marginals([["a", "b"]])
    assert marginal.counts[0, 1:].sum() == 0
    assert marginal.counts[1, 1] > 0


def test_the_owner_is_told_how_many_rows_break_a_rule():
    true = private()
    found = evaluate(true, fitted(1).sample(1_000, seed=1), SCHEMA, rules="a >= b", workers=1)
    checks = {check.rule: check for check in found.rules.checks if check.source == "declared"}
    assert list(checks) == [*(r if type(r) is str else r["rule"] for r in RULES), "a >= b"]
    age = checks["age < 15 -> status = never"]
    assert age.broken_true == ((true["age"] < 15) & (true["status"] != "never")).mean() > 0
    assert age.broken_synthetic == 0
    assert checks["total = a + b"].broken_synthetic == 0


def test_a_table_of_a_rule_says_where_rows_without_a_value_are():
    columns = [
        {"name": "city", "type": "categorical", "values": ["p", "q", "r"]},
        {"name": "county", "type": "categorical", "values": ["k", "l"], "missing": [""]},
    ]
    declared = [["k", "p"], ["(missing)", "q"]]
    rule = {"rule": "county determines city", "table": declared}
    schema = {"version": 1, "columns": columns, "rules": [rule]}
    county = np.random.default_rng(2).choice(["k", "l", ""], 400)
    frame = pd.DataFrame({"city": np.where(county == "", "q", "p"), "county": county})
    run = Synthesizer(epsilon=0.1, delta=1e-6, insecure_seed=1, workers=1)
    rows = run.fit(frame, schema=schema).sample(400, seed=1)
    missing = rows["county"].isna()
    assert 50 < missing.sum() < 300
    assert (rows["city"][missing] == "q").all()
    assert (rows["city"][rows["county"] == "k"] == "p").all()
    assert len(set(rows["city"][rows["county"] == "l"])) > 1


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([*RULES, "total = 5 -> a < 3", "total > 4"], "contradicts|leave no row"),
        (["age > 99"], "rule 'age > 99': no row can meet it"),
        (["2 * age = 5"], r"rule '2 \* age = 5': no row was found that meets it"),
        (["a < b and"], "rule 'a < b and'"),
        (["a < cost"], "'cost' is neither a column"),
    ],
)
@pytest.mark.parametrize("verb", ["synthesize", "answer"])
def test_rules_that_cannot_be_end_the_command_before_anything_is_spent(
    tmp_path, capsys, verb, rules, words
):
    private(20).to_csv(tmp_path / "t.csv", index=False)
    odd = {**SCHEMA, "rules": rules}
    (tmp_path / "s.json").write_text(json.dumps(odd))
    ledger = tmp_path / "l.db"
    command = [verb, str(tmp_path / "t.csv"), "--schema", str(tmp_path / "s.json")]
    assert (
        main(
            [*command, "--epsilon", "1", "--ledger", str(ledger), "--out", str(tmp_path / "o.csv")]
        )
        == 2
    )
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert re.search(words, said[0]), said[0]
    assert not ledger.exists()


def test_a_schema_built_from_values_is_checked_too():
    with pytest.raises(SchemaError, match="contradicts"):
        Synthesizer(epsilon=1).fit(private(), schema={**SCHEMA, "rules": ["a < b", "a >= 2"]})
