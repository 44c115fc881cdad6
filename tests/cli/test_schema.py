"""What `schema init` and `schema check` say about a proposal, and a table in a schema's place."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.cli.schema import NOT_PRIVATE
from adaptive_qs.table.schema import AS_PROPOSED, TAKEN_FROM_DATA

from .conftest import done, refused

CANARY = "c4n4ry"
LINES = {
    "level": ("categorical, ordered", "low, medium, high; missing: ?", "4"),
    "town": ("categorical", f"{CANARY}, x", "2"),
    "step": ("numeric", "0.5 to 1.5 in 3 bins, own bins: 0.5, 1, 1.5", "3"),
    "count": ("integer", "0 to 9", "10"),
    "spent": ("integer", "0 to 100 in 8 bins, own bin: 0", "8"),
    "flag": ("boolean", "false, true", "2"),
    "day": ("date", "2020-01-01 to 2020-01-09 by day", "9"),
}


@pytest.fixture
def proposed(run):
    """The table t.csv, its proposed schema p.json, and what was said."""
    rows = [",".join(LINES)]
    for i in range(200):
        level, step = ["low", "high", "medium", "?"][i % 4], [0.5, 1.0, 1.5][i % 3]
        spent = 0 if i % 3 else i // 2
        town, flag = [CANARY, "x"][i % 2], ["True", "False"][i % 2]
        rows.append(f"{level},{town},{step},{i % 10},{spent},{flag},2020-01-0{1 + i % 9}")
    Path("t.csv").write_text("\n".join(rows) + "\n")
    return done(run("schema", "init", "t.csv", "--out", "p.json"))


def listed(text):
    """The lines of the table by column: type, what was taken, codes."""
    lines = [line.strip() for line in text.splitlines()]
    parts = [[part.strip() for part in line.split("   ") if part.strip()] for line in lines]
    return {part[0]: tuple(part[1:]) for part in parts if len(part) == 4 and part[0] in LINES}


def test_init_lists_every_column_with_what_was_taken_which_stays_out_of_the_notes(proposed, run):
    assert listed(proposed.out) == LINES
    for word in ("May it be published", "catch_all", "clip", AS_PROPOSED, TAKEN_FROM_DATA):
        assert word in proposed.out
    assert "adaptive-qs schema check p.json" in proposed.out
    assert CANARY in proposed.out
    assert CANARY not in proposed.err
    printed = run("schema", "init", "t.csv")
    assert json.loads(printed.out)["columns"][0]["name"] == "level"
    assert CANARY not in printed.err


@pytest.mark.usefixtures("proposed")
def test_check_lists_what_is_left(run):
    content = json.loads(Path("p.json").read_text())
    assert content.pop("rules")
    for reviewed in (0, 5, 6, 7):
        for column in content["columns"][:reviewed]:
            column.pop("description", None)
        Path("p.json").write_text(json.dumps(content))
        said = run("schema", "check", "p.json", "t.csv")
        assert said.code == 0, said
        left = list(LINES)[reviewed:]
        assert list(listed(said.out)) == left
        assert "t.csv: fits the schema" in said.out
        verb = "is" if len(left) == 1 else "are"
        words = f"{len(left)} of 7 columns {verb} as proposed ({', '.join(map(repr, left))})"
        assert (words in said.err) == bool(left)
        assert TAKEN_FROM_DATA[:-1].split(":")[0].lower() in said.err
    content["description"] = ""
    Path("p.json").write_text(json.dumps(content))
    assert run("schema", "check", "p.json").err == ""


@pytest.mark.usefixtures("proposed")
def test_marks_of_columns_alone_refuse_a_run(run):
    """Neither command spends anything on it; plan, which reads no rows, takes it."""
    content = json.loads(Path("p.json").read_text())
    assert content.pop("rules")
    for column in content["columns"][1:]:
        column.pop("description")
    Path("p.json").write_text(json.dumps({**content, "description": ""}))
    assert "1 of 7 columns is as proposed" in run("schema", "check", "p.json").err
    options = ["t.csv", "--schema", "p.json", "--epsilon", "1", "--out", "o.csv"]
    for verb in ("synthesize", "answer"):
        remedy = "delete the review marks (1 column; see"
        assert remedy in refused(run(verb, *options))
    assert not Path("o.csv").exists()
    content["columns"][0].pop("description")
    Path("p.json").write_text(json.dumps({**content, "description": ""}))
    assert run("synthesize", *options).code == 0


def test_lists_are_marked_and_a_run_under_marks_that_was_asked_for_is_not_called_declared(
    proposed, run
):
    assert proposed.out.startswith(NOT_PRIVATE + "\n")
    checked = run("schema", "check", "p.json").out.splitlines()
    assert checked[1] == NOT_PRIVATE
    content = json.loads(Path("p.json").read_text())
    Path("p.json").write_text(json.dumps({**content, "description": ""}))
    options = ["--epsilon", "1", "--release", "r.zip", "--unreviewed-schema"]
    made = done(run("synthesize", "t.csv", "--schema", "p.json", *options))
    assert "taken from the data" in made.err
    with zipfile.ZipFile("r.zip") as bundle:
        assert "does not cover what the schema reveals" in bundle.read("statement.md").decode()


def test_long_lists_keep_their_ends(run):
    names = [f"name{i:02}" for i in range(40)]
    Path("t.csv").write_text("\n".join(["x", *names * 5]) + "\n")
    said = run("schema", "init", "t.csv", "--out", "p.json")
    line = next(line for line in said.out.splitlines() if "name00" in line)
    assert ", ..., name39" in line
    assert len(line) < 160


@pytest.mark.parametrize("name", ["t.csv", "T.CSV", "t.csv.gz", "t.tsv", "t.parquet", "t.xlsx"])
def test_a_table_in_the_place_of_a_schema(run, name):
    Path(name).write_bytes(b"a,b\n1,2\n")
    first = f"error: {name} is a table, not a schema."
    init, check = f"adaptive-qs schema init {name}", f"adaptive-qs schema check s.json {name}"
    said = refused(run("schema", "check", name))
    assert said == f"{first} To propose a schema, run {init}\n"
    assert refused(run("schema", "check", name, "s.json")) == f"{first} Usage: {check}\n"
    assert f"{name}: is a table, not a schema" in refused(run("plan", "--schema", name))


def test_parquet_is_known_by_its_content_and_other_files_are_read(run):
    Path("table").write_bytes(b"PAR1rest")
    assert "is a table" in run("schema", "check", "table").err
    for path in ("missing.csv", "folder.csv"):
        if path.startswith("folder"):
            Path(path).mkdir()
        said = run("schema", "check", path)
        assert said.code == 2
        assert "is a table" not in said.err


def test_check_takes_columns_that_are_still_to_be_learnt(run):
    """It refuses the same tables as a run does."""
    column = {"name": "age", "type": "integer", "private_bins": 4, "min": 0, "max": 9}
    Path("p.json").write_text(json.dumps({"version": 1, "columns": [column]}))
    for cell, hint in (("5", None), ("c4n4ry", "column 'age' has a cell that cannot be read")):
        Path("p.csv").write_text(f"age\n3\n{cell}\n")
        outcome = run("schema", "check", "p.json", "p.csv")
        assert (outcome.code == 0) == (hint is None)
        assert (hint or "") in outcome.err
        assert "c4n4ry" not in outcome.err
    assert "write it as text" not in outcome.err


def test_groups_are_asked_for(run):
    """By the number of values of a column."""
    rows = [f"{i * 1.5},t{i % 120}" for i in range(400)]
    Path("t.csv").write_text("\n".join(["price,town", *rows]))
    said = done(run("schema", "init", "t.csv", "--out", "p.json"))
    assert "values of town belong to larger units" in said.out


def test_whole_numbers_are_integers_however_they_are_spelled(run):
    """R writes 2e+05; decimals stay as many as the file has, and the ends of bins are round."""
    rng = np.random.default_rng(0)
    incomes = rng.lognormal(10, 1, 600).astype(int) * (rng.random(600) > 0.1)
    rows = [
        f"{income},{income / 100:.2f},{rate:.3f}" for income, rate in zip(incomes, rng.random(600))
    ]
    rows[5:7] = ["2e+05,1.5E3,1e-04", "-1.20e1,2.5e-1,0.5"]
    Path("t.csv").write_text("\n".join(["income,price,rate", *rows]) + "\n")
    done(run("schema", "init", "t.csv", "--out", "p.json"))
    income, price, rate = json.loads(Path("p.json").read_text())["columns"]
    assert income["type"] == "integer"
    assert (price["decimals"], rate["decimals"]) == (2, 4)
    for column, unit in ((income, 1), (price, 100), (rate, 10_000)):
        ends = column.get("bin_starts") or column["edges"]
        assert all(abs(end * unit - round(end * unit)) < 1e-9 for end in ends)
    words = ["--schema", "p.json", "--rho", "1", "--unreviewed-schema", "--out", "o.csv"]
    done(run("synthesize", "t.csv", *words))
    table = pd.read_csv("o.csv", dtype=str)
    assert table.income.str.fullmatch(r"-?[0-9]+").all()
    assert table.price.str.fullmatch(r"-?[0-9]+(\.[0-9]{1,2})?").all()
    assert table.rate.str.fullmatch(r"[0-9](\.[0-9]{1,4})?").all()


def test_columns_that_are_empty_together_are_proposed_as_rules(run):
    rng = np.random.default_rng(0)
    filled = rng.random(2_000) < 0.6
    rows = [f"{k % 3},{k % 7},{k % 5}" if full else ",," for k, full in enumerate(filled)]
    other = rng.random(2_000) < 0.5
    lines = [f"{row},{'x' if each else ''}" for row, each in zip(rows, other)]
    Path("t.csv").write_text("\n".join(["a,b,c,d", *lines]) + "\n")
    said = done(run("schema", "init", "t.csv", "--out", "p.json"))
    rules = [rule["rule"] for rule in json.loads(Path("p.json").read_text())["rules"]]
    circle = [f"{x} is missing -> {y} is missing" for x, y in ("ab", "bc", "ca")]
    assert [rule for rule in rules if "missing" in rule] == circle
    assert circle[0] in said.out
