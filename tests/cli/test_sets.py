"""Sets of tables on the command line: a folder or a database in, and a folder or a database out."""

from __future__ import annotations

import json
import sqlite3
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import duckdb
import pandas as pd
import pytest

from ..family import DEEP, made_deep
from .conftest import done, refused

PROTECTS = "one row of homes with all rows of persons and trips below it"
BASE = ["synthesize", "town", "--schema", "tables.json", "--epsilon", "5"]
OUT = ["--out", "made"]
NAMES = ("homes", "persons", "trips")


@pytest.fixture
def town(run):
    """Commands in a working folder with a folder of tables and their schema."""
    Path("town").mkdir()
    for name, table in made_deep(300).items():
        table.to_csv(f"town/{name}.csv", index=False)
    Path("tables.json").write_text(json.dumps(DEEP))
    return run


def test_a_schema_of_tables_is_checked(town):
    shown = done(town("schema", "check", "tables.json")).out
    for name, columns in zip(NAMES, (2, 2, 1)):
        assert f"tables.json: {name}: valid, {columns} columns" in shown
    assert "leave the table out" in refused(town("schema", "check", "tables.json", "town"))
    Path("tables.json").write_text(json.dumps({**DEEP, "keys": DEEP["keys"][1:]}))
    assert "homes and persons have no parent" in refused(town("schema", "check", "tables.json"))


def test_tables_with_their_release_and_ledger(town):
    create = ["ledger", "create", "--ledger", "l.db", "--epsilon", "9", "--schema", "tables.json"]
    done(town(*create))
    Path("about.md").write_text("# The register of homes\n\npublisher: the city\n")
    kept = ["--release", "r.zip", "--ledger", "l.db", "--about", "about.md"]
    told = done(town(*BASE, *OUT, *kept))
    with ZipFile("r.zip") as bundle:
        opened = [bundle.read(f"{table}/page.html").decode() for table in NAMES]
    assert all("The register of homes" in page and "the city" in page for page in opened)
    assert f"{PROTECTS}, at most 2 of persons and 4 of trips" in told.out
    assert "evaluate town made --schema tables.json" in told.out
    tables = {name: pd.read_csv(f"made/{name}.csv") for name in NAMES}
    assert tables["persons"].columns.tolist() == ["id", "home", "age", "sex"]
    assert set(tables["trips"]["person"]) <= set(tables["persons"]["id"])
    verify = ["ledger", "verify", "--ledger", "l.db", "--release"]
    for file in ("r.zip", *(f"made/{name}.csv" for name in NAMES)):
        done(town(*verify, file))
    manifest = json.loads(Path("made/homes.csv.manifest.json").read_text())
    assert manifest["unit"] == PROTECTS
    assert manifest["neighbours"] == "add or remove one row of homes with all rows below it"
    Path("made/trips.csv").write_text("person,km\n1,1\n")
    assert "its table differs" in refused(town(*verify, "made/trips.csv"))
    true = Path("r.zip").read_bytes()
    Path("r.zip").write_bytes(true[:-22] + true[-22:-2] + b"\4\0said")  # a comment of the archive
    refused(town(*verify, "r.zip"))
    with ZipFile("r.zip", "w") as spelt, ZipFile(BytesIO(true)) as opened_again:
        for name in opened_again.namelist():
            spelt.writestr(name, opened_again.read(name))  # with other times and attributes
    assert "bytes that are no part of a release" in refused(town(*verify, "r.zip"))
    lost = ["ledger", "restore", "--ledger", "l.db", "--release", "made/homes.csv"]
    assert refused(town(*lost))


def test_all_containers_hold_the_same_tables(town):
    """A folder, SQLite and DuckDB: read alike, and written alike."""
    seeded = ["--insecure-seed", "4", "--seed", "1", "--json"]
    with sqlite3.connect("d.db") as database:
        for name in NAMES:
            pd.read_csv(f"town/{name}.csv").to_sql(name, database, index=False)
    told = json.loads(done(town(*BASE, *seeded, *OUT)).out)
    assert {name: each["out"] for name, each in told["tables"].items()} == {
        name: f"made/{name}.csv" for name in NAMES
    }
    beside = (f"{n}.csv{end}" for n in NAMES for end in ("", ".manifest.json", ".NOT-PRIVATE.txt"))
    assert sorted(path.name for path in Path("made").iterdir()) == sorted(beside)
    databases = ["synthesize", "d.db", *BASE[2:], *seeded]
    for out in ("made.db", "made.duckdb"):
        found = json.loads(done(town(*databases, "--out", out)).out)
        assert found["rho_spent"] == told["rho_spent"]
        assert {each["out"] for each in found["tables"].values()} == {out}
        assert f"{out}: exists already" in refused(town(*databases, "--out", out))
    files = sorted(path.name for path in Path().glob("made.d*"))
    assert files == sorted(
        f"{out}{end}" for out in ("made.db", "made.duckdb") for end in (
            "", ".NOT-PRIVATE.txt", *(f".{name}.manifest.json" for name in NAMES))
    )  # fmt: skip
    with (
        sqlite3.connect("made.db") as first,
        duckdb.connect("made.duckdb", read_only=True) as other,
    ):
        for name in NAMES:
            table = pd.read_csv(f"made/{name}.csv", na_values="?").fillna("-")
            assert told["tables"][name]["rows"] == len(table)
            rows = [tuple(row) for row in table.itertuples(index=False)]
            for database in (first, other):
                found = database.execute(f"SELECT * FROM {name}").fetchall()
                assert [tuple("-" if v is None else v for v in row) for row in found] == rows


def test_a_database_is_verified_by_its_statements(town):
    done(town("ledger", "create", "--ledger", "l.db", "--epsilon", "9", "--schema", "tables.json"))
    done(town(*BASE, "--out", "made.db", "--ledger", "l.db"))
    verify = ["ledger", "verify", "--ledger", "l.db", "--release", "made.db.trips.manifest.json"]
    assert "no such file" not in done(town(*verify)).out
    with sqlite3.connect("made.db") as database:
        database.execute("DELETE FROM trips")
    assert "its table differs" in refused(town(*verify))


def test_more_tables_from_a_release(town):
    done(town(*BASE, "--release", "r.zip"))
    more = ["sample", "r.zip", "--out", "more"]
    asked = ["--rows", "25", "--where", "size >= 2", "--seed", "3"]
    told = json.loads(done(town(*more, *asked, "--json")).out)
    trips = pd.read_csv("more/trips.csv")
    assert (
        told["rows"] == told["tables"]["homes"]["rows"] == len(pd.read_csv("more/homes.csv")) == 25
    )
    assert told["tables"]["persons"]["rows"] >= 50
    assert told["tables"]["trips"]["rows"] == len(trips)
    sampling = json.loads(Path("more/trips.csv.manifest.json").read_text())["sampling"]
    assert sampling == {
        "seed": 3, "rows": len(trips), "where": "size >= 2", "formulas": "escape", "root_rows": 25
    }  # fmt: skip
    assert "exists" in refused(town(*more))
    for steered in (["--where", "region = s and age >= 3"], ["--balance", "age"]):
        line = refused(town(*more, *steered, "--force"))
        assert "'age' is not a column of homes" in line
    for out, words in (("c.csv", "c.csv: holds one table, and there are 3"), ("-", "- holds one")):
        assert words in refused(town("sample", "r.zip", "--out", out))


def test_a_plan_of_all_tables_from_public_numbers(town):
    """The shares, and that of K rows each is charged K² times the rho of a single row."""
    plan = ["plan", "--schema", "tables.json"]
    found = json.loads(done(town(*plan, "--rho", "0.5", "--json")).out)
    tables = found["tables"]
    assert [each["rho"] for each in tables.values()] == pytest.approx([1 / 8, 3 / 32, 9 / 32])
    assert [each["rho_of_rows"] for each in tables.values()] == pytest.approx(
        [1 / 8, 3 / 32 / 4, 9 / 32 / 16]
    )
    assert [each["marginals"] for each in tables.values()] == [3, 9 + 3, 6]
    assert found["unit"] == PROTECTS
    more = json.loads(done(town(*plan, "--rho", "2", "--json")).out)["tables"]
    for name in NAMES:
        assert more[name]["rmse"] == pytest.approx(tables[name]["rmse"] / 2)
    shown = done(town(*plan, "--rho", "0.5", "--rows", "homes=300,persons=600")).out
    assert shown.count("combinations measured") == 2
    assert "--rows trips=N tells" in shown
    assert json.loads(done(town(*plan, "--json")).out)["rho"] == 0.5
    for options, words in (
        (["--queries", "range"], "--queries is for answers"),
        (["--rows", "cars=3"], "--rows names 'cars': the schema has the tables homes, persons"),
        (["--rows", "homes=many"], "rows of homes"),
        (["--rows-per-person", "2"], "leave it out"),
        (["--schema", "s.json", "--rows", "homes=3"], "the schema describes one"),
    ):
        assert words in refused(town(*plan, *options))


def test_what_too_small_a_budget_leaves_out_is_said_before_and_after(town):
    """At a rho of 0.001 noise in counts is above the 300 rows that there are."""
    small = [*BASE[:-2], "--rho", "0.001", "--insecure-seed", "1", "--release", "r.zip"]
    told = done(town(*small))
    ahead, _, after = told.err.partition("warning: persons: 6 of 6 columns are independent of all")
    assert "persons: at this budget these columns will likely be independent" in ahead
    assert "plan --rows persons=N compares" in ahead
    assert "trips: 7 of 7 columns are independent of all others at this budget" in after
    assert "unconnected  persons: 6 of 6 columns: region, income" in told.out
    found = json.loads(done(town(*small, "--force", "--json")).out)
    assert set(found["tables"]["persons"]["unconnected"]) >= {"region", "income", "size", "age"}
    assert "persons: region" in found["unconnected"]


def test_the_same_seed_gives_the_same_files(town):
    seeded = ["--insecure-seed", "4", "--seed", "1", "--force"]
    kept = []
    for workers in ("1", "2"):
        done(town(*BASE, *OUT, *seeded, "--workers", workers))
        kept.append([Path(f"made/{name}.csv").read_bytes() for name in NAMES])
    assert kept[0] == kept[1]


def replaced(file, old, new):
    return lambda: Path(file).write_text(Path(file).read_text().replace(old, new, 1))


def with_row(file, row):
    return lambda: Path(file).write_text(Path(file).read_text() + row + "\n")


def with_schema(**changes):
    return lambda: Path("tables.json").write_text(json.dumps({**DEEP, **changes}))


def nothing():
    """The files are as they should be."""


def a_parent_less():
    lines = Path("town/homes.csv").read_text().splitlines()
    Path("town/homes.csv").write_text("\n".join([lines[0], *lines[2:]]) + "\n")
    with_row("town/persons.csv", "9999,987654321,1,f")()


@pytest.mark.parametrize(
    ("spoil", "arguments", "words"),
    [
        (a_parent_less, [*BASE, *OUT], "'home' has values that no row of town/homes.csv has"),
        (with_row("town/homes.csv", "11,n,1"), [*BASE, *OUT], "'home' has a value in several rows"),
        (replaced("town/homes.csv", "home", "house"), [*BASE, *OUT], "'home' of the schema is"),
        (replaced("town/trips.csv", "person", "who"), [*BASE, *OUT], "'person' of the schema"),
        (with_row("town/persons.csv", "9999,,1,f"), [*BASE, *OUT],
         "column 'home' is empty in some rows, which belong to no row of homes"),
        (with_schema(keys=[]), [*BASE, *OUT], "have no parent, and a set of tables has one root"),
        (with_schema(tables=3), [*BASE, *OUT], "tables.json: tables: must be an object"),
        (Path("town/trips.csv").unlink, [*BASE, *OUT], "town: has no table trips: name its file"),
        (nothing, ["synthesize", "nowhere", *BASE[2:], *OUT], "nowhere: no such folder"),
        (nothing, ["synthesize", "town/homes.csv", *BASE[2:], *OUT], "is one table, and the sch"),
        (nothing, ["synthesize", "-", *BASE[2:], *OUT], "name a folder"),
        (nothing, [*BASE[:1], *BASE[2:], *OUT, "--sql", "q", "--database", "d"], "gives one table"),
        (nothing, BASE, "nothing would be written"),
        (nothing, [*BASE, "--out", "made.csv"], "made.csv: holds one table, and there are 3"),
        (nothing, [*BASE, "--out", "-"], "- holds one table, and there are 3"),
        (nothing, [*BASE, "--out", "town"], "another path"),
        (nothing, [*BASE, "--out", "no/made"], "no/made: cannot be written"),
        (nothing, [*BASE, *OUT, "--rows-per-person", "2"], "leave it out"),
        (nothing, [*BASE, *OUT, "--target", "age"], "target was given for a set of tables"),
        (nothing, ["answer", "town/homes.csv", *BASE[2:], "--out", "a.csv"], "takes one table"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_in_one_line_before_anything_is_spent(
    town, unspent, spoil, arguments, words
):
    spoil()
    line = refused(town(*arguments))
    assert words in line
    assert "987654321" not in line
    assert not Path("made").exists()
