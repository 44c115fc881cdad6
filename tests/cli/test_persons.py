"""Persons on the command line."""

import json
from pathlib import Path

import pytest

from .conftest import SCHEMA, done, refused

BASE = ["synthesize", "t.csv", "--schema", "s.json", "--epsilon", "5"]
PERSON = "one person: all rows with the same 'id'"


@pytest.fixture
def persons(run):
    """Commands in a folder with a table of three rows for each person."""
    lines = Path("t.csv").read_text().splitlines()
    ids = ["id", *(f"n{k // 3}" for k in range(len(lines) - 1))]
    Path("t.csv").write_text("".join(f"{who},{line}\n" for who, line in zip(ids, lines)))
    Path("s.json").write_text(json.dumps({**SCHEMA, "person": "id"}))
    return run


def test_a_table_of_persons(persons):
    counted = ["--rows-per-person", "2", "--out", "o.csv", "--release", "r.zip"]
    assert f"{PERSON}, of which at most 2 count" in done(persons(*BASE, *counted)).out
    assert Path("o.csv").read_text().splitlines()[0] == "job,age,day"
    manifest = json.loads(Path("o.csv.manifest.json").read_text())
    assert manifest["neighbours"] == "add or remove one person with all rows"
    told = done(persons("evaluate", "t.csv", "o.csv", "--schema", "s.json", "--json"))
    assert json.loads(told.out)["workload_error"]["mean_l1"] < 2  # the person column is set aside


def test_persons_may_weigh_alike(persons):
    """The true table that it is compared with is one of persons then, as the statement says."""
    alike = ["--rows-per-person", "6", "--weigh", "persons"]
    told = f"{PERSON}, which together count as one row, in 6 equal parts"
    assert told in done(persons(*BASE, *alike, "--out", "o.csv")).out
    compared = ["evaluate", "t.csv", "o.csv", "--schema", "s.json"]
    assert "one true row of each person was compared" in done(persons(*compared)).out
    assert (
        "one true row of each person was compared"
        not in done(persons(*compared, "--weigh", "rows")).out
    )
    asked = ["--schema", "s.json", "--epsilon", "1", *alike, "--rows", "20", "--json"]
    assert json.loads(done(persons("plan", *asked)).out)["unit"] == told


def test_a_plan_and_answers_of_persons(persons):
    asked = ["--schema", "s.json", "--epsilon", "1", "--rows-per-person", "4", "--ways", "1"]
    assert f"{PERSON}, of which at most 4 count" in done(persons("plan", *asked)).out
    told = done(persons("answer", "t.csv", *asked, "--neighbours", "replace", "--out", "a.csv"))
    assert "replace one person with all rows" in told.out


def test_a_ledger_of_persons(persons):
    create = ["ledger", "create", "--ledger", "l.db", "--epsilon", "9"]
    done(persons(*create, "--person", "id"))
    show = done(persons("ledger", "show", "--ledger", "l.db"))
    assert f"{PERSON}; neighbouring tables add or remove one person" in show.out
    told = json.loads(done(persons("ledger", "show", "--ledger", "l.db", "--json")).out)
    assert told["protects"] == PERSON
    release = ["--release", "r.zip", "--ledger", "l.db"]
    done(persons(*BASE, *release, "--rows-per-person", "2"))
    done(persons("ledger", "verify", "--ledger", "l.db", "--release", "r.zip"))
    Path("s.json").write_text(json.dumps({**SCHEMA, "ignore": ["id"]}))
    line = refused(persons(*BASE, "--release", "q.zip", "--ledger", "l.db"), 2)
    assert "Their costs do not add up" in line


def test_the_audit_of_persons(persons):
    asked = ["--schema", "s.json", "--epsilon", "1", "--pairs", "1"]
    assert "No differences found" in done(persons("audit", *asked, "--rows-per-person", "2")).out


def test_what_is_missing_is_said_in_one_line(persons):
    assert "--rows-per-person" in refused(persons(*BASE, "--out", "o.csv"), 2)
    Path("t.csv").write_text(Path("t.csv").read_text().replace("n7,", ",", 1))
    lost = persons(*BASE, "--rows-per-person", "2", "--out", "o.csv")
    assert "some cells of the person column 'id' are empty" in refused(lost, 2)
