"""Sets of tables through every door: one release from every container, and refusals before it."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from adaptive_qs import Synthesizer
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.table import write

from ..family import DEEP, made_deep
from .conftest import done, refused

TABLES = made_deep(150, seed=3)
SECRET = 987654321


def in_folder(tables, place, write):
    Path(place).mkdir()
    for name, table in tables.items():
        write(table, f"{place}/{name}")


def in_sqlite(tables, place):
    with closing(sqlite3.connect(place)) as database:
        for name, table in tables.items():
            table.to_sql(name, database, index=False)
        database.commit()


def in_duckdb(tables, place):
    with duckdb.connect(place) as database:
        for name, table in tables.items():
            database.register("given", table)
            database.execute(f"CREATE TABLE {name} AS SELECT * FROM given")


CONTAINERS = {
    "csv": lambda tables, place: in_folder(
        tables, place, lambda table, path: table.to_csv(f"{path}.csv", index=False)
    ),
    "parquet": lambda tables, place: in_folder(
        tables, place, lambda table, path: table.to_parquet(f"{path}.parquet", index=False)
    ),
    "db": in_sqlite,
    "duckdb": in_duckdb,
}
SEEDED = ["--rho", "20", "--beyond-limits", "--insecure-seed", "3"]


@pytest.fixture
def town(run):
    """Commands in a folder with a ledger and a schema of three levels."""
    Path("deep.json").write_text(json.dumps(DEEP))
    create = ["ledger", "create", "--ledger", "l.db", "--rho", "50", "--beyond-limits"]
    done(run(*create, "--schema", "deep.json"))
    return run


@pytest.fixture(scope="module")
def frames():
    """The tables that frames give with the same noise and seed."""
    options = {"rho": 20.0, "insecure_seed": 3, "beyond_limits": True, "workers": 1}
    return Synthesizer(**options).fit(TABLES, schema=DEEP).sample(seed=1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ledger", [[], ["--ledger", "l.db"]])
@pytest.mark.parametrize("kind", CONTAINERS)
def test_every_container_gives_the_same_tables_with_and_without_a_ledger(
    town, frames, kind, ledger
):
    CONTAINERS[kind](TABLES, f"town.{kind}")
    given = ["synthesize", f"town.{kind}", "--schema", "deep.json", *SEEDED, *ledger]
    done(town(*given, "--seed", "1", "--out", "made", "--release", "r.zip"))
    for name, table in frames.items():
        assert Path(f"made/{name}.csv").read_text() == table.to_csv(index=False, na_rep="?")
    if ledger:
        done(town("ledger", "verify", *ledger, "--release", "r.zip"))
        for name in frames:
            done(town("ledger", "verify", *ledger, "--release", f"made/{name}.csv"))


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
def test_tables_that_do_not_fit_are_refused_before_anything_is_spent(town, kind, case):
    tables, words = BAD[case]
    CONTAINERS[kind](tables, f"town.{kind}")
    given = ["synthesize", f"town.{kind}", "--schema", "deep.json", "--rho", "0.5"]
    line = refused(town(*given, "--ledger", "l.db", "--out", "made"))
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
    CONTAINERS["csv"](TABLES, "town")
    given = ["synthesize", "town", "--schema", "deep.json", *SEEDED, "--seed", "1"]
    done(town(*given, "--out", "whole"))
    given += ["--ledger", "l.db", "--out", "made", "--release", "r.zip"]
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
        done(town("ledger", "verify", "--ledger", "l.db", "--release", f"made/{name}.csv"))


OTHER = {
    "rows": ["--rho", "50"],
    "persons": ["--rho", "50", "--person", "home"],
    "another neighbour": ["--rho", "50", "--schema", "deep.json", "--neighbours", "replace"],
}


@pytest.mark.parametrize("case", OTHER)
def test_a_ledger_for_something_else_refuses(town, case):
    CONTAINERS["csv"](TABLES, "town")
    done(town("ledger", "create", "--ledger", "o.db", "--beyond-limits", *OTHER[case]))
    given = ["synthesize", "town", "--schema", "deep.json", "--rho", "0.5", "--ledger", "o.db"]
    line = refused(town(*given, "--out", "made"))
    assert "do not add up" in line
    assert not Path("made").exists()


def test_a_ledger_is_made_for_a_set_or_for_persons_and_says_so(town):
    shown = done(town("ledger", "show", "--ledger", "l.db")).out
    assert "one row of homes with all rows of persons and trips below it" in shown
    create = ["ledger", "create", "--ledger", "o.db", "--rho", "1", "--schema"]
    assert "--person cannot be combined" in refused(town(*create, "deep.json", "--person", "home"))
    Path("one.json").write_text(json.dumps(DEEP["tables"]["homes"]))
    assert "describes one table" in refused(town(*create, "one.json"))
