"""Tables of unusual shape: the documented result, or a refusal before any budget is spent."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def given(columns, *lines):
    """s.json with these columns, and t.csv and good.csv with these lines below their names."""
    named = [{"name": f"c{k}", **column} for k, column in enumerate(columns)]
    Path("s.json").write_text(json.dumps({"version": 1, "columns": named}))
    text = "\n".join([",".join(column["name"] for column in named), *lines, ""])
    Path("t.csv").write_text(text)
    Path("good.csv").write_text(text)


BIT = {"type": "integer", "min": 0, "max": 1}
MANY = {"type": "categorical", "values": [f"v{k}" for k in range(100_000)]}
SINGLE = {"type": "categorical", "values": ["only"]}
VERBS = ["check", "synthesize", "answer", "true"]


def read_by_every_command(run):
    for verb in VERBS:
        outcome = run(verb, "t.csv", *(["--force"] if verb == "answer" else []))
        assert outcome.code == 0, (verb, outcome)
    return Path("o.csv").read_text().splitlines()


def test_500_columns(run):
    given([BIT] * 500, *[",".join("01"[(k + n) % 2] for k in range(500)) for n in range(20)])
    lines = read_by_every_command(run)
    assert lines[0].count(",") == 499


def test_an_attribute_of_100_000_categories(run):
    given([MANY, BIT], "v5,1", "v99999,0", "v7,1")
    lines = read_by_every_command(run)
    assert all(line.split(",")[0][1:].isdecimal() for line in lines[1:])
    assert "has 100000 codes" in run("check", "t.csv").err


@pytest.mark.parametrize("rows", [1, 3])
def test_a_single_valued_attribute(rows, run):
    given([SINGLE, BIT], *["only,1"] * rows)
    lines = read_by_every_command(run)
    assert {line.split(",")[0] for line in lines[1:]} == {"only"}


def test_nothing_but_one_value(run):
    given([SINGLE], "only")
    assert set(read_by_every_command(run)[1:]) == {"only"}


def test_more_than_memory_holds_is_said_before_any_row_is_read(run):
    """Answers are refused; of a table the single columns are left, and what is not is said."""
    given([MANY, MANY], "v1,v2")
    Path("t.csv").unlink()
    refused = run("answer", "t.csv", "--max-memory", "1GB", "--ways=2")
    assert refused.code == 4, refused
    assert refused.err.startswith("error: ")
    assert refused.err.count("\n") == 1
    assert "--max-memory" in refused.err or "fewer" in refused.err
    tabled = run("synthesize", "t.csv", "--max-memory", "1GB", "--ways=2")
    warning, missing = tabled.err.splitlines()
    assert warning.startswith("warning: 1 of 1 requested marginals were dropped")
    assert "--max-memory" in warning
    assert (tabled.code, missing.startswith("error: t.csv: no such file")) == (2, True)
