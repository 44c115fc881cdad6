"""`dummy`: rows from a public schema and its rules, marked as such."""

from __future__ import annotations

import hashlib
import json

import pandas as pd
import pytest

from adaptive_qs.cli.entry import main
from adaptive_qs.evaluation.evaluation import evaluate
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.schema import Schema

SCHEMA = {"version": 1, "rules": [
    "admitted <= left", "age < 15 -> married is missing",
    {"rule": "ward determines floor", "table": [["eye", "1"], ["heart", "2"], ["child", "2"]]},
], "columns": [
    {"name": "admitted", "type": "date", "min": "2020-01-01", "max": "2020-12-31",
     "granularity": "week"},
    {"name": "left", "type": "date", "min": "2020-01-01", "max": "2021-03-31",
     "granularity": "month"},
    {"name": "age", "type": "integer", "min": 0, "max": 99, "bins": 20},
    {"name": "married", "type": "boolean", "missing": [""]},
    {"name": "city", "type": "categorical", "values": list("abcdefgh")},
    {"name": "county", "type": "categorical", "values": ["x", "y", "z"]},
    {"name": "ward", "type": "categorical", "values": ["eye", "heart", "child"]},
    {"name": "floor", "type": "integer", "min": 1, "max": 3},
    {"name": "cost", "type": "numeric", "private_bins": 8, "min": 0, "max": 1000, "decimals": 2},
]}  # fmt: skip


@pytest.mark.slow
def test_rows_meet_all_rules_and_show_all_values(tmp_path, capsys):
    schema = tmp_path / "stays.json"
    schema.write_text(json.dumps(SCHEMA))
    assert main(["dummy", str(schema), "--rows", "800"]) == 0
    out = tmp_path / "stays.dummy.csv"
    table = pd.read_csv(out, dtype={"floor": str})
    assert len(table) == 800
    assert (table.admitted <= table.left).all()
    assert table.married[table.age < 15].isna().all()
    assert table.married[table.age >= 15].notna().mean() > 0.6
    assert set(zip(table.ward, table.floor)) == {("eye", "1"), ("heart", "2"), ("child", "2")}
    for name, number in (("city", 8), ("county", 3), ("age", 80)):
        assert table[name].nunique() >= number
    statement = json.loads((tmp_path / "stays.dummy.csv.manifest.json").read_text())
    assert statement["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert statement["statement"].startswith("Dummy table: drawn from the public schema")
    again = tmp_path / "again-DUMMY.csv"
    assert main(["dummy", str(schema), "--rows", "800", "--out", str(again), "--json"]) == 0
    assert again.read_bytes() == out.read_bytes()
    declared = Schema.parse({**SCHEMA, "columns": SCHEMA["columns"][:-1], "ignore": ["cost"]})
    assert read_table(out, declared).num_rows == 800
    found = evaluate(again, out, declared, 1)
    assert "is the statement of a dummy table" in found.limitations[-1]


def test_other_names_and_proposals_are_refused(tmp_path, capsys):
    schema = tmp_path / "s.json"
    schema.write_text(json.dumps({**SCHEMA, "open": ["publish"]}))
    assert main(["dummy", str(schema), "--out", str(tmp_path / "stays.csv")]) == 2
    assert "Use a name that contains dummy" in capsys.readouterr().err
    assert main(["dummy", str(schema)]) == 2
    assert "still marked as taken from the data" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.json"]
