"""Sets of tables on the command line: a folder or a database in, and a folder or a database out."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from io import BytesIO, StringIO
from pathlib import Path
from zipfile import ZipFile

import duckdb
import pandas as pd
import pytest

from adaptive_qs import Synthesizer
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.table import write

from ..family import DEEP, made_deep
from .conftest import done, refused

PROTECTS = "one row of homes with all rows of persons and trips below it"
NAMES = ("homes", "persons", "trips")
TABLES = made_deep(150, seed=3)
SECRET = 987654321
SEEDED = ["--rho", "20", "--beyond-limits", "--insecure-seed", "3", "--seed", "1"]
LEDGER = ["--ledger", "l.db"]


def in_folder(tables, place, suffix):
    """Write a file for each table."""
    Path(place).mkdir()
    for name, table in tables.items():
        path = f"{place}/{name}.{suffix}"
        table.to_csv(path, index=False) if suffix == "csv" else table.to_parquet(path, index=False)


def in_sqlite(tables, place):
    """Write all tables to one file."""
    with closing(sqlite3.connect(place)) as database:
        for name, table in tables.items():
            table.to_sql(name, database, index=False)
        database.commit()


def in_duckdb(tables, place):
    """Write all tables to one file."""
    with duckdb.connect(place) as database:
        for name, table in tables.items():
            database.register("given", table)
            database.execute(f"CREATE TABLE {name} AS SELECT * FROM given")


CONTAINERS = {
    "csv": lambda *given: in_folder(*given, "csv"),
    "parquet": lambda *given: in_folder(*given, "parquet"),
    "db": in_sqlite,
    "duckdb": in_duckdb,
}


def synthesize(kind, *more):
    """Return a command on the tables in a container."""
    return ["synthesize", f"town.{kind}", "--schema", "tables.json", *more]


@pytest.fixture
def town(run):
    """Commands in a folder with a ledger and a schema of three levels."""
    Path("tables.json").write_text(json.dumps(DEEP))
    create = ["ledger", "create", *LEDGER, "--rho", "50", "--beyond-limits"]
    done(run(*create, "--schema", "tables.json"))
    return run


@pytest.fixture(scope="module")
def frames():
    """The tables that frames give with the same noise and seed."""
    options = {"rho": 20.0, "insecure_seed": 3, "beyond_limits": True, "workers": 1}
    return Synthesizer(**options).fit(TABLES, schema=DEEP).sample(seed=1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "ledger"),
    [("csv", LEDGER), ("csv", []), ("parquet", []), ("db", LEDGER), ("duckdb", [])],
)
@pytest.mark.one_in(5)
def test_every_container_gives_the_same_tables_with_and_without_a_ledger(
    town, frames, kind, ledger
):
    CONTAINERS[kind](TABLES, f"town.{kind}")
    given = [*SEEDED, *ledger, "--workers", "2", "--out", "made", "--release", "r.zip"]
    done(town(*synthesize(kind, *given)))
    for name, table in frames.items():
        assert Path(f"made/{name}.csv").read_text() == table.to_csv(index=False, na_rep="?")
        if ledger:
            done(town("ledger", "verify", *ledger, "--release", f"made/{name}.csv"))
    if ledger:
        done(town("ledger", "verify", *ledger, "--release", "r.zip"))


@pytest.mark.filterwarnings("ignore")
def test_tables_are_written_to_a_database_as_to_folders_and_verified_by_their_statements(
    town, frames
):
    in_folder(TABLES, "town.csv", "csv")
    done(town(*synthesize("csv", *SEEDED, "--out", "made.db", *LEDGER)))
    again = synthesize("csv", *SEEDED, "--out", "made.db")
    assert "made.db already exists" in refused(town(*again))
    files = sorted(path.name for path in Path().glob("made.d*"))
    ends = ("", *(f".{name}.manifest.json" for name in NAMES))
    assert files == sorted(f"made.db{end}" for end in ends)
    with closing(sqlite3.connect("made.db")) as database:
        for name, table in frames.items():
            text = StringIO(table.to_csv(index=False, na_rep="?"))
            rows = pd.read_csv(text, na_values="?").fillna("-").itertuples(index=False)
            found = database.execute(f"SELECT * FROM {name}").fetchall()
            assert [tuple("-" if v is None else v for v in row) for row in found] == [
                tuple(row) for row in rows
            ]
    verify = ["ledger", "verify", *LEDGER, "--release", "made.db.trips.manifest.json"]
    done(town(*verify))
    with closing(sqlite3.connect("made.db")) as database:
        database.execute("DELETE FROM trips")
        database.commit()
    assert "its table differs" in refused(town(*verify))


def test_tables_with_their_release_and_ledger(town):
    in_folder(TABLES, "town.csv", "csv")
    kept = ["--release", "r.zip", "--out", "made", "--epsilon", "5"]
    done(town(*synthesize("csv", *kept, *LEDGER)))
    tables = {name: pd.read_csv(f"made/{name}.csv") for name in NAMES}
    assert tables["persons"].columns.tolist() == ["id", "home", "age", "sex"]
    assert set(tables["trips"]["person"]) <= set(tables["persons"]["id"])
    done(town("sample", "r.zip", "--out", "more", "--rows", "25", "--seed", "3"))
    trips = json.loads(Path("more/trips.csv.manifest.json").read_text())
    number = len(pd.read_csv("more/trips.csv"))
    assert trips["sampling"] == {
        "seed": 3, "rows": number, "formulas": "escape", "root_rows": 25
    }  # fmt: skip
    manifest = json.loads(Path("made/homes.csv.manifest.json").read_text())
    assert manifest["unit"] == PROTECTS
    assert manifest["neighbours"] == "add or remove one row of homes with all rows below it"
    verify = ["ledger", "verify", *LEDGER, "--release"]
    Path("made/trips.csv").write_text("person,km\n1,1\n")
    assert "its table differs" in refused(town(*verify, "made/trips.csv"))
    true = Path("r.zip").read_bytes()
    Path("r.zip").write_bytes(true[:-22] + true[-22:-2] + b"\4\0said")  # a comment of the archive
    refused(town(*verify, "r.zip"))
    with ZipFile("r.zip", "w") as spelt, ZipFile(BytesIO(true)) as opened_again:
        for name in opened_again.namelist():
            spelt.writestr(name, opened_again.read(name))  # with other times and attributes
    assert "bytes that are no part of a release" in refused(town(*verify, "r.zip"))
    refused(town("ledger", "restore", *LEDGER, "--release", "made/homes.csv"))


BAD = {
    "a child without its parent": (
        {**TABLES, "trips": TABLES["trips"].assign(person=SECRET)},
        r"trips[.a-z]*: column 'person' has values"
    ),
    "a parent key twice": (
        {**TABLES, "persons": TABLES["persons"].assign(id=SECRET)},
        r"persons[.a-z]*: column 'id' has a value in sev"
    ),
    "a row without a key": (
        {**TABLES, "persons": TABLES["persons"].assign(home=None)},
        r"persons[.a-z]*: some cells of the key column 'home'"
    ),
    "no rows": ({**TABLES, "trips": TABLES["trips"][:0]}, "no rows"),
    "a table less": ({name: TABLES[name] for name in ("homes", "persons")}, "trips"),
    "another column": ({**TABLES, "homes": TABLES["homes"].assign(more=SECRET)}, "column 'more'"),
    "a value outside": ({**TABLES, "trips": TABLES["trips"].assign(km=SECRET)},
        r"trips[.a-z]*: column 'km'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.one_in(5)
def test_tables_that_do_not_fit_are_refused_before_anything_is_spent(town, kind, case):
    tables, words = BAD[case]
    CONTAINERS[kind](tables, f"town.{kind}")
    line = refused(town(*synthesize(kind, "--rho", "0.5", *LEDGER, "--out", "made")))
    assert re.search(words, line)
    assert str(SECRET) not in line
    assert not Path("made").exists()
    with closing(LedgerBook("l.db")) as book:
        assert book.held.rho_units == 0


@pytest.mark.parametrize("foreign", [False, True])
def test_a_run_that_was_stopped_between_two_tables_writes_them_when_resumed(
    town, monkeypatch, foreign
):
    """It replaces the tables that it wrote, and no file that was there before."""
    in_folder(TABLES, "town.csv", "csv")
    done(town(*synthesize("csv", *SEEDED, "--out", "whole")))
    given = synthesize("csv", *SEEDED, *LEDGER, "--out", "made", "--release", "r.zip")
    write_table, written = write.write_table, []

    def stopping(pages, path, *others):
        if written:
            raise KeyboardInterrupt
        written.append(path)
        return write_table(pages, path, *others)

    with monkeypatch.context() as patch:
        patch.setattr(write, "write_table", stopping)
        assert town(*given).code != 0
    assert [path.name for path in written] == ["homes.csv"]
    if foreign:
        Path("made/trips.csv").write_text("of somebody\n")
        assert "exists" in refused(town(*given, "--resume"))
        assert Path("made/trips.csv").read_text() == "of somebody\n"
        return
    done(town(*given, "--resume"))
    for name in TABLES:
        assert Path(f"made/{name}.csv").read_bytes() == Path(f"whole/{name}.csv").read_bytes()
        done(town("ledger", "verify", *LEDGER, "--release", f"made/{name}.csv"))
