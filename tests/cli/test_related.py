"""Related tables on the command line."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pandas as pd
import pytest

from ..family import SCHEMA, made
from .conftest import done, refused

PROTECTS = "one parent with all children: all rows of both tables with the same 'home'"
BASE = ["synthesize", "h.csv", "--related", "p.csv", "--schema", "both.json", "--epsilon", "5"]
PAGES = [(table, "page.html") for table in ("parents", "children")]
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
    assert "both.json is valid: parents: 2 columns" in shown
    assert "both.json is valid: children: 2 columns" in shown
    assert "leave the table out" in refused(homes("schema", "check", "both.json", "h.csv"))
    Path("both.json").write_text(json.dumps({**SCHEMA, "most_children": 0}))
    assert "most_children" in refused(homes("schema", "check", "both.json"))


def test_two_tables_with_their_release_ledger_and_evaluation(homes):
    create = ["ledger", "create", "--ledger", "l.db", "--epsilon", "9", "--person", "home"]
    assert "--person" in refused(homes(*create[:-2], "--related"))
    done(homes(*create, "--related"))
    kept = ["--release", "r.zip", "--ledger", "l.db"]
    Path("about.md").write_text("# The register of homes\n\npublisher: the city\n")
    about = ["--about", "about.md"]
    told = done(homes(*BASE, *OUT, *kept, *about, "--parents-share", "0.4"))
    with ZipFile("r.zip") as bundle:
        opened = [bundle.read(f"{table}/{name}").decode() for table, name in PAGES]
    assert all("The register of homes" in page and "the city" in page for page in opened)
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
    asked = ["--report", "page 1.html"]
    found = json.loads(done(homes(*compared, "--json", *asked)).out)
    pages = [Path(f"page 1{name}.html").read_text() for name in ("", "-parents", "-children")]
    assert all("Owner only – do not share" in page for page in pages)
    assert [page.count('href="page%201.html"') for page in pages] == [0, 1, 1]
    assert all(f'href="page%201-{name}.html"' in pages[0] for name in ("parents", "children"))
    assert f"at δ = 1e-09 for {PROTECTS}".replace("'", "&#39;") in pages[0]
    worst = found["across"]["per_pair"][0]
    assert " × ".join(worst["attributes"]) in found["verdict"][2]
    assert worst["fresh"] < worst["l1"] < worst["independent"] + 2
    assert '<h2 id="part-children">Number of children</h2>' in pages[0]
    assert found["report"] == "page 1.html"
    assert "already exists" in refused(homes(*compared, *asked))
    assert found["parents"]["uses"].keys() == found["children"]["uses"].keys()
    assert found["number_of_children"]["l1"] < 0.5
    assert 0 < found["across"]["mean_l1"] < 1
    assert len(found["across"]["per_pair"]) == 6
    assert found["parents"]["notice"] == found["children"]["notice"]
    Path("sp.csv").write_text("home,age,sex\n1,1,f\n")
    line = refused(homes("ledger", "verify", "--ledger", "l.db", "--release", "sp.csv"))
    assert "its table differs" in line
    true = Path("r.zip").read_bytes()
    Path("r.zip").write_bytes(true[:-22] + true[-22:-2] + b"\4\0said")  # a comment of the archive
    refused(homes("ledger", "verify", "--ledger", "l.db", "--release", "r.zip"))
    with ZipFile("r.zip", "w") as spelt, ZipFile(BytesIO(true)) as opened_again:
        for name in opened_again.namelist():
            spelt.writestr(name, opened_again.read(name))  # with other times and attributes
    line = refused(homes("ledger", "verify", "--ledger", "l.db", "--release", "r.zip"))
    assert "bytes that are no part of a release" in line
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
    for steered in (["--where", "region = s and age >= 3"], ["--balance", "age"]):
        line = refused(homes(*more, *steered, "--force"))
        assert "'age' is a column of the children" in line
        assert "or 'children'" in line
    assert "is a release of related tables" in refused(homes("sample", "r.zip", "--out", "c.csv"))
    assert "--out" in done(homes("sample", "--help")).out


FILES = {"parents_file": "homes.csv", "children_file": "persons.parquet"}


@pytest.fixture
def town(homes):
    """The same in one folder, which the schema describes."""
    Path("town").mkdir()
    Path("h.csv").rename("town/homes.csv")
    pd.read_csv("p.csv").to_parquet("town/persons.parquet")
    Path("both.json").write_text(json.dumps({**SCHEMA, **FILES}))
    return homes


IN_FOLDER = ["synthesize", "town", "--schema", "both.json", "--epsilon", "5"]


def test_a_folder_with_both_tables_gives_a_folder_with_both(town):
    seeded = ["--insecure-seed", "4", "--seed", "1"]
    told = done(town(*IN_FOLDER, *seeded, "--out", "made", "--release", "r.zip"))
    assert "evaluate town made --schema both.json" in told.out
    written = ["homes.csv", "persons.parquet"]
    beside = (f"{n}{end}" for n in written for end in (".manifest.json", ".NOT-PRIVATE.txt"))
    assert sorted(p.name for p in Path("made").iterdir()) == sorted([*written, *beside])
    asked = [*IN_FOLDER, *seeded, "--out", "a.csv", "--related-out", "b.parquet"]
    assert "--related-synthetic b.parquet" in done(town(*asked)).out
    assert Path("made/homes.csv").read_bytes() == Path("a.csv").read_bytes()
    assert Path("made/persons.parquet").read_bytes() == Path("b.parquet").read_bytes()
    assert "already exists" in refused(town(*IN_FOLDER, "--out", "made"))
    compared = ["evaluate", "town", "made", "--schema", "both.json", "--json"]
    files = ["evaluate", "town", "a.csv", "--related-synthetic", "b.parquet", *compared[3:]]
    found = [json.loads(done(town(*each)).out) for each in (compared, files)]
    assert found[0]["across"] == found[1]["across"]
    done(town("sample", "r.zip", "--out", "more", "--rows", "20"))
    assert len(pd.read_csv("more/homes.csv")) == 20
    assert "is a release of related tables" in refused(town("sample", "r.zip", "--out", "m.csv"))


@pytest.mark.parametrize(
    ("content", "arguments", "words"),
    [
        ({}, [*IN_FOLDER, "--out", "made"], 'town: is a folder, and the schema has no "parents_f'),
        ({"parents_file": "homes.csv"}, [*IN_FOLDER, "--out", "made"], "or neither"),
        ({**FILES, "parents_file": "../homes.csv"}, [*IN_FOLDER, "--out", "made"],
         "'../homes.csv' is no name of a file for a table"),
        ({**FILES, "parents_file": "PERSONS.parquet"}, [*IN_FOLDER, "--out", "made"], "different"),
        ({**FILES, "parents_file": "h.csv"}, [*IN_FOLDER, "--out", "made"], "h.csv: no such file"),
        (FILES, [*IN_FOLDER, "--out", "town"], "is also an input"),
        (FILES, [*IN_FOLDER, "--out", "made.csv"], "give --related-out as well"),
        (FILES, [*IN_FOLDER, "--out", "no/made"], "no/made: cannot be written"),
        (FILES, IN_FOLDER, "No output file is set"),
        (FILES, ["evaluate", "town", "nowhere", "--schema", "both.json"],
         "no --related-synthetic was given"),
    ],
)  # fmt: skip
def test_a_folder_that_is_none_of_two_tables_is_refused(town, unspent, content, arguments, words):
    Path("both.json").write_text(json.dumps({**SCHEMA, **content}))
    assert words in refused(town(*arguments))
    assert not Path("made").exists()


PLAN = ["plan", "--schema", "both.json"]


def test_a_plan_of_both_tables_from_public_numbers(homes):
    """The split, and that of K children each is charged K² times the rho of a single row."""
    budget = ["--rho", "0.5", "--parents-share", "0.4"]
    found = json.loads(done(homes(*PLAN, *budget, "--json")).out)
    parents, children = found["parents"], found["children"]
    assert (parents["rho"], children["rho"]) == pytest.approx((0.2, 0.3))
    assert (parents["rho_of_rows"], children["rho_of_rows"]) == pytest.approx((0.2, 0.3 / 9))
    assert (parents["marginals"], children["marginals"]) == (3, 3 * 2 + 1)
    assert found["unit"].endswith("of which at most 3 children count")
    stds = {each["most_children"]: each["total_std"] for each in found["by_most_children"]}
    assert list(stds) == [1, 2, 3, 6]
    assert stds[3] == children["tables"]["total_std"]
    assert sorted(stds.values()) == list(stds.values())
    four = json.loads(done(homes(*PLAN, "--rho", "2", "--parents-share", "0.4", "--json")).out)
    for name in ("parents", "children"):
        assert four[name]["rmse"] == pytest.approx(found[name]["rmse"] / 2)
    shown = done(homes(*PLAN, *budget, "--rows", "300", "--related-rows", "600")).out
    assert "3 (most_children)" in shown
    assert shown.count("marginals measured") == 2
    assert json.loads(done(homes(*PLAN, "--json")).out)["rho"] == 0.5
    for more, words in (
        (["--queries", "range"], "--queries is not for related tables"),
        (["--parents-share", "2"], "parents-share is 2.0"),
        (["--rows-per-person", "2"], "leave it out"),
        (["--schema", "s.json", "--related-rows", "3"], "the schema describes one"),
    ):
        assert words in refused(homes(*PLAN, *more))


def test_what_too_small_a_budget_leaves_out_is_said_before_and_after(homes):
    """At a rho of 0.001 noise in counts is above the 300 rows that there are."""
    small = [*BASE[:-2], "--rho", "0.001", "--insecure-seed", "1", "--release", "r.zip"]
    told = done(homes(*small))
    ahead, _, after = told.err.partition(
        "warning: parents: At this budget 3 of 3 columns are independent"
    )
    assert "children: At this budget, " in ahead
    assert "Use plan --related-rows N" in ahead
    assert "children: At this budget 5 of 5 columns are independent of all others." in after
    assert "unconnected  children: 5 of 5 columns (region, income" in told.out
    found = json.loads(done(homes(*small, "--force", "--json")).out)["unconnected"]
    assert set(found["children"]) == {"region", "income", "children", "age", "sex"}


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
(no_key, [*BASE, *OUT], "p.csv: some cells of the parent column 'home' are empty"),
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
        (nothing, BASE, "No output file is set"),
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
                   "p.csv", "--schema", "both.json", "--rule", "x"], "--rule is not for related"),
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
