"""Related tables on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from ..family import SCHEMA, made
from .conftest import done, refused

PROTECTS = "one parent with all children: all rows of both tables with the same 'home'"
BASE = ["synthesize", "h.csv", "--related", "p.csv", "--schema", "both.json", "--epsilon", "5"]
OUT = ["--out", "sh.csv", "--related-out", "sp.csv"]


@pytest.fixture
def homes(run):
    """Commands in a folder with two related tables and their schema."""
    for name, table in zip(("h.csv", "p.csv"), made(300)):
        table.to_csv(name, index=False)
    Path("both.json").write_text(json.dumps(SCHEMA))
    return run


def test_a_schema_of_two_tables_is_checked(homes):
    shown = done(homes("schema", "check", "both.json")).out
    assert "both.json: parents: valid, 2 columns" in shown
    assert "both.json: children: valid, 2 columns" in shown
    assert "leave the table out" in refused(homes("schema", "check", "both.json", "h.csv"))
    Path("both.json").write_text(json.dumps({**SCHEMA, "most_children": 0}))
    assert "most_children" in refused(homes("schema", "check", "both.json"))


def test_two_tables_with_their_release_ledger_and_evaluation(homes):
    create = ["ledger", "create", "--ledger", "l.db", "--epsilon", "9", "--person", "home"]
    assert "--person" in refused(homes(*create[:-2], "--related"))
    done(homes(*create, "--related"))
    kept = ["--release", "r.zip", "--ledger", "l.db"]
    told = done(homes(*BASE, *OUT, *kept, "--parents-share", "0.4"))
    assert f"{PROTECTS}, of which at most 3 children count" in told.out
    assert "evaluate h.csv sh.csv --related p.csv --related-synthetic sp.csv" in told.out
    parents, children = pd.read_csv("sh.csv"), pd.read_csv("sp.csv")
    assert parents.columns.tolist() == ["home", "region", "income"]
    assert set(children["home"]) <= set(parents["home"])
    for file in ("r.zip", "sh.csv", "sp.csv"):
        done(homes("ledger", "verify", "--ledger", "l.db", "--release", file))
    manifest = json.loads(Path("sh.csv.manifest.json").read_text())
    assert (manifest["unit"], manifest["neighbours"]) == (
        PROTECTS, "add or remove one parent with all children",
    )  # fmt: skip
    compared = ["evaluate", "h.csv", "sh.csv", "--related", "p.csv"]
    compared += ["--related-synthetic", "sp.csv", "--schema", "both.json"]
    shown = done(homes(*compared)).out
    assert "owner only" in shown
    assert "Verdict on children" in shown
    found = json.loads(done(homes(*compared, "--json")).out)
    assert found["number_of_children"]["l1"] < 0.5
    assert 0 < found["across"]["mean_l1"] < 1
    assert len(found["across"]["per_pair"]) == 6
    assert found["parents"]["notice"] == found["children"]["notice"]
    Path("sp.csv").write_text("home,age,sex\n1,1,f\n")
    line = refused(homes("ledger", "verify", "--ledger", "l.db", "--release", "sp.csv"))
    assert "its table differs" in line
    lost = ["ledger", "restore", "--ledger", "l.db", "--release", "sh.csv"]
    assert refused(homes(*lost))


def test_more_tables_from_a_release(homes):
    done(homes(*BASE, "--release", "r.zip"))
    more = ["sample", "r.zip", "--out", "a.csv", "--related-out", "b.parquet"]
    asked = ["--rows", "25", "--where", "children >= 2", "--seed", "3"]
    told = json.loads(done(homes(*more, *asked, "--json")).out)
    children = pd.read_parquet("b.parquet")
    assert told["parents"] == len(pd.read_csv("a.csv")) == 25
    assert told["children"] == len(children) >= 50
    sampling = json.loads(Path("b.parquet.manifest.json").read_text())["sampling"]
    assert sampling == {"seed": 3, "rows": len(children), "where": "children >= 2", "parents": 25}
    assert "exists" in refused(homes(*more))
    assert "is a release of related tables" in refused(homes("sample", "r.zip", "--out", "c.csv"))
    assert "--out" in done(homes("sample", "--help")).out


def test_the_same_seed_gives_the_same_files(homes):
    seeded = ["--insecure-seed", "4", "--seed", "1", "--force"]
    kept = []
    for workers in ("1", "2"):
        done(homes(*BASE, *OUT, *seeded, "--workers", workers))
        kept.append([Path(file).read_bytes() for file in ("sh.csv", "sp.csv")])
    assert kept[0] == kept[1]
    assert Path("sp.csv.NOT-PRIVATE.txt").exists()


def replaced(file, old, new, count=1):
    return lambda: Path(file).write_text(Path(file).read_text().replace(old, new, count))


def nothing():
    """The files are as they should be."""


def no_key():
    with Path("p.csv").open("a") as file:
        file.write("9999,,1,f\n")


def a_key_twice():
    lines = Path("h.csv").read_text().splitlines()
    Path("h.csv").write_text("\n".join([*lines, lines[1]]) + "\n")


def a_parent_less():
    lines = Path("h.csv").read_text().splitlines()
    Path("h.csv").write_text("\n".join([lines[0], *lines[2:]]) + "\n")
    with Path("p.csv").open("a") as file:
        file.write("9999,987654321,1,f\n")


@pytest.mark.parametrize(
    ("spoil", "arguments", "words"),
    [
        (a_parent_less, [*BASE, *OUT], "'home' has values that no row of h.csv has"),
        (a_key_twice, [*BASE, *OUT], "h.csv: column 'home' has a value in several rows"),
        (replaced("h.csv", "home", "house"), [*BASE, *OUT], "'home' of the schema is missing"),
        (replaced("p.csv", "home", "house"), [*BASE, *OUT], "'home' of the schema is missing"),
(no_key, [*BASE, *OUT], "p.csv: column 'home' is empty in some rows, which belong to no parent"),
        (replaced("both.json", '"most_children": 3, ', ""), [*BASE, *OUT],
         "both.json: most_children: is required"),
        (replaced("both.json", '"key": "home", ', ""), [*BASE, *OUT], "key: is required"),
        (replaced("both.json", '"most_children": 3', '"most_children": 99999'), [*BASE, *OUT],
         "most_children"),
        (nothing, [*BASE[:4], "--schema", "s.json", "--epsilon", "1", *OUT],
         "s.json: describes one table"),
        (nothing, [*BASE[:2], "--schema", "both.json", "--epsilon", "1", "--out", "o.csv"],
         "describes two related tables: give the children with --related"),
        (nothing, [*BASE, "--out", "sh.csv"], "give --related-out as well"),
        (nothing, [*BASE, "--related-out", "sp.csv"], "give --out as well"),
        (nothing, BASE, "nothing would be written"),
        (nothing, [*BASE, *OUT, "--related", "none.csv"], "none.csv: no such file"),
        (nothing, [*BASE, *OUT, "--parents-share", "1"], "parents-share is 1.0"),
        (nothing, [*BASE, *OUT, "--rows-per-person", "2"], "leave it out"),
        (nothing, [*BASE, *OUT, "--target", "age"], "target was given for related tables"),
        (nothing, [*BASE, *OUT, "--sql", "q", "--database", "d"], "--sql is not for related"),
        (nothing, [*BASE, "--out", "-", "--related-out", "sp.csv"], "name files"),
        (nothing, [*BASE, "--out", "sh.csv", "--related-out", "sh.csv"], "another output"),
        (nothing, [*BASE, "--out", "p.csv", "--related-out", "sp.csv"], "also an input"),
        (nothing, ["synthesize", "-", *BASE[2:], *OUT], "name files instead of -"),
        (nothing, [*BASE[:2], *BASE[4:], "--out", "o.csv", "--related-out", "q.csv"],
         "--related-out was given without --related"),
        (nothing, ["evaluate", "h.csv", "h.csv", "--related", "p.csv", "--schema", "both.json"],
         "no --related-synthetic was given"),
        (nothing, ["evaluate", "h.csv", "h.csv", "--related", "p.csv", "--related-synthetic",
                   "p.csv", "--schema", "both.json", "--by", "age"], "--by is not for related"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_in_one_line_before_anything_is_spent(
    homes, unspent, spoil, arguments, words
):
    spoil()
    line = refused(homes(*arguments))
    assert words in line
    assert "987654321" not in line
    assert not Path("sh.csv").exists()
