"""Sets of tables: what the comparison says of keys, and that it reads every kind of container."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

from adaptive_qs.cli.entry import main
from adaptive_qs.errors import DataError, InputError
from adaptive_qs.evaluation.evaluation import evaluate
from adaptive_qs.evaluation.keys import evaluate_set

from ..family import DEEP, made_deep
from .test_golden import Outline

TRUE, OTHER = made_deep(2_500, seed=1, most=2), made_deep(2_500, seed=2, most=2)


def moved(tables, name, column):
    """The tables with the keys of one in another order: numbers of rows per parent stay."""
    keys = np.random.default_rng(0).permutation(tables[name][column])
    return {**tables, name: tables[name].assign(**{column: keys})}


def single(tables, name, column):
    """The tables with at most one row of a parent, and no rows below those that are gone."""
    kept = {**tables, name: tables[name].drop_duplicates(column)}
    kept["trips"] = kept["trips"][kept["trips"]["person"].isin(kept["persons"]["id"])]
    return kept


@pytest.mark.parametrize(
    ("synthetic", "poor"),
    [
        (OTHER, []),
        (moved(OTHER, "persons", "home"), ["persons", "trips"]),
        (moved(OTHER, "trips", "person"), ["trips"]),
        (single(OTHER, "persons", "home"), ["persons"]),
        (single(OTHER, "trips", "person"), ["trips"]),
    ],
)
def test_the_verdict_sees_keys_that_are_lost_on_every_level(synthetic, poor):
    judged = evaluate_set(TRUE, synthetic, DEEP)
    assert set(poor) <= {name for name, found in judged.keys.items() if found.grade == "poor"}
    assert judged.overall.grade == ("poor" if poor else "good")
    assert all(name in judged.overall.said for name in poor)
    grades = [part.verdict.overall.grade for part in judged.tables.values()]
    assert ("poor" in grades) == bool(poor)


def test_group_means_are_about_a_column_of_the_table_itself():
    judged = evaluate_set(TRUE, OTHER, DEEP)
    compared = {
        name: [{means.column.name, means.by} for means in part.facts["group_means"].pairs]
        for name, part in judged.tables.items()
    }
    assert any(compared.values())
    for table in judged.schema.measured():
        given = {*table.schema.names[: table.given]}
        assert not any(pair <= given for pair in compared[table.name])


def test_numbers_and_pairs_are_those_of_a_join_by_pandas():
    found = evaluate_set(TRUE, OTHER, DEEP)
    facts = found.tables["trips"].key
    for side, tables in enumerate((TRUE, OTHER)):
        sizes = tables["trips"]["person"].value_counts().reindex(tables["persons"]["id"])
        counts = sizes.fillna(0).clip(upper=2).value_counts(normalize=True).sort_index()
        assert facts.numbers.shares[side] == pytest.approx(counts.to_numpy())
        assert facts.means[side] == len(tables["trips"]) / len(tables["persons"])
    joins = [t["trips"].merge(t["persons"], left_on="person", right_on="id").merge(t["homes"])
             for t in (TRUE, OTHER)]  # fmt: skip
    errors = {e.attributes: e.l1 for e in facts.list_pairs(found.tables["trips"])}
    for pair in ("region", "km"), ("income", "km"), ("age", "km"):
        one, other = (join.value_counts([*pair], normalize=True) for join in joins)
        assert errors[pair] == pytest.approx(one.sub(other, fill_value=0).abs().sum())
    ancestors = {"region", "income", "size", "age", "sex", "trips"}
    assert set(errors) == {(name, "km") for name in ancestors}
    assert "key" not in found.tables["homes"].as_json()
    assert "key" not in evaluate(TRUE["homes"].drop(columns="home"),
                                 OTHER["homes"].drop(columns="home"),
                                 DEEP["tables"]["homes"]).as_json()  # fmt: skip


@pytest.fixture
def containers(tmp_path, monkeypatch):
    """The same tables in folders of CSV and Parquet files, in SQLite and in DuckDB."""
    monkeypatch.chdir(tmp_path)
    Path("deep.json").write_text(json.dumps(DEEP))
    for name, tables in (("true", TRUE), ("made", OTHER)):
        for kind in ("csv", "parquet"):
            Path(f"{name}.{kind}").mkdir()
        with (
            closing(sqlite3.connect(f"{name}.db")) as lite,
            duckdb.connect(f"{name}.duckdb") as duck,
        ):
            for table, frame in tables.items():
                frame.to_csv(f"{name}.csv/{table}.csv", index=False)
                frame.to_parquet(f"{name}.parquet/{table}.parquet", index=False)
                frame.to_sql(table, lite, index=False)
                duck.execute(f"CREATE TABLE {table} AS SELECT * FROM frame")
            lite.commit()


def call(capsys, *arguments):
    code = main(["evaluate", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_every_container_is_compared_alike(containers, capsys):
    frames = json.loads(json.dumps(evaluate_set(TRUE, OTHER, DEEP).as_json()))
    for kind in ("csv", "parquet", "db", "duckdb"):
        code, out, _ = call(
            capsys, f"true.{kind}", f"made.{kind}", "--schema", "deep.json", "--json"
        )
        found = json.loads(out)
        assert code == 0
        assert found["tables"] == frames["tables"]
        assert found["verdict"] == frames["verdict"]


def test_the_report_has_a_page_per_table_whose_links_lead_somewhere(containers, capsys):
    files = ["true.csv", "made.csv", "--schema", "deep.json"]
    code, out, _ = call(capsys, *files, "--report", "look.html")
    assert code == 0
    assert out.count("Verdict on ") == 3
    assert "Rows of trips per parent" in out
    pages = {path.name: Outline(path.read_text()) for path in Path.cwd().glob("*.html")}
    assert sorted(pages) == ["look-homes.html", "look-persons.html", "look-trips.html", "look.html"]
    for page in pages.values():
        assert len(page.ids) == len(set(page.ids))
        for link in page.links:
            file, _, anchor = link.partition("#")
            assert file in pages or anchor in page.ids
    assert {f"look-{name}.html" for name in TRUE} <= set(pages["look.html"].links)
    text = Path("look.html").read_text()
    assert all(f"{name}: Close to the true table" in text for name in TRUE)
    code, _, err = call(capsys, *files, "--report", "look.html")
    assert (code, err.count("\n")) == (2, 1)
    assert "look.html" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["true.csv"], "No SYNTHETIC is set"),
        (["true.csv", "nowhere"], "nowhere"),
        (["true.csv", "made.csv/homes.csv"], "is one table"),
        (["true.csv", "made.csv", "--rule", "income < 3"], "--rule is for one table"),
        (["true.csv", "made.csv", "--ways", "1"], "--ways is for one table"),
        (["true.csv", "made.csv", "--disclose", "age"], "--disclose is for one table"),
        (["true.csv", "made.csv", "--report", "look.txt"], "look.txt"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(containers, capsys, arguments, words):
    code, out, err = call(capsys, *arguments, "--schema", "deep.json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_keys_that_do_not_fit_are_refused_without_a_cell():
    lost = {**OTHER, "persons": OTHER["persons"].assign(home=987654321)}
    twice = {**OTHER, "homes": pd.concat([OTHER["homes"]] * 2)}
    for tables, words in ((lost, "'home'"), (twice, "'home'"), ({"homes": 1}, "the tables lack")):
        with pytest.raises((DataError, InputError), match=words) as caught:
            evaluate_set(TRUE, tables, DEEP)
        assert "987654321" not in str(caught.value)
