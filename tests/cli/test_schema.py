"""What `schema init` and `schema check` say about a proposal, and a table in a schema's place."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import Synthesizer
from adaptive_qs.table.propose import propose

from .conftest import done


def test_long_lists_keep_their_ends_and_ask_for_groups(run):
    names = [f"name{i:02}" for i in range(40)]
    rows = [f"{i * 1.5},{names[i % 40]},t{i % 120}" for i in range(400)]
    Path("t.csv").write_text("\n".join(["price,name,town", *rows]))
    said = done(run("schema", "init", "t.csv", "--out", "p.json")).out
    line = next(line for line in said.splitlines() if "name00" in line)
    assert ", ..., name39" in line
    assert len(line) < 160


def test_whole_numbers_are_integers_however_they_are_spelled(run):
    """R writes 2e+05; decimals stay as many as the file has, and the ends of bins are round."""
    rng = np.random.default_rng(0)
    incomes = rng.lognormal(10, 1, 600).astype(int) * (rng.random(600) > 0.1)
    rows = [
        f"{income},{income / 100:.2f},{rate:.3f},{(k % 30 + 1) * 10_000}".replace(
            ",100000", ",1e+05"
        )
        for k, (income, rate) in enumerate(zip(incomes, rng.random(600)))
    ]
    rows[5:7] = ["2e+05,1.5E3,1e-04,2e+05", "-1.20e1,2.5e-1,0.5,10000"]
    Path("t.csv").write_text("\n".join(["income,price,rate,limit", *rows]) + "\n")
    done(run("schema", "init", "t.csv", "--out", "p.json"))
    income, price, rate, limit = json.loads(Path("p.json").read_text())["columns"]
    assert income["type"] == "integer"
    assert (price["decimals"], rate["decimals"]) == (2, 4)
    assert limit["exponents"]  # as R writes them, so that pandas reads the same type
    for column, unit in ((income, 1), (price, 100), (rate, 10_000)):
        ends = column.get("bin_starts") or column["edges"]
        assert all(abs(end * unit - round(end * unit)) < 1e-9 for end in ends)
    words = ["--schema", "p.json", "--rho", "1", "--unreviewed-schema", "--out", "o.csv"]
    done(run("synthesize", "t.csv", *words))
    table = pd.read_csv("o.csv", dtype=str)
    assert table.income.str.fullmatch(r"-?[0-9]+|[1-9](\.[0-9]+)?e\+0[0-9]").all()
    assert (
        {"1e+05", "2e+05"} < {*table.limit} < {"1e+05", "2e+05", "3e+05", *map(str, range(10**6))}
    )
    assert table.price.str.fullmatch(r"-?[0-9]+(\.[0-9]{1,2})?").all()
    assert table.rate.str.fullmatch(r"[0-9](\.[0-9]{1,4})?").all()


@pytest.mark.parametrize("greatest", ["1e+05", "99999", "0"])
def test_pandas_reads_the_types_of_the_private_table_again(run, greatest):
    """One cell in 800 makes floats of whole numbers; the schema says so, and no row has to."""
    rows = [f"{k % 7},{k % 300},{'' if k == 5 else k % 40}" for k in range(800)]
    rows[3] = f"3,{greatest},2"
    Path("t.csv").write_text("\n".join(["level,amount,visits", *rows]) + "\n")
    true = pd.read_csv("t.csv")
    done(run("schema", "init", "t.csv", "--out", "p.json"))
    words = ["--schema", "p.json", "--rho", "1", "--unreviewed-schema", "--out", "o.csv"]
    done(run("synthesize", "t.csv", *words, "--rows", "50"))
    assert (pd.read_csv("o.csv").dtypes[:2] == true.dtypes[:2]).all()
    model = Synthesizer(rho=1.0, unreviewed_schema=True)
    for schema in ("p.json", propose(true)):
        with pytest.warns(UserWarning, match="taken from the data"):
            model.fit(true, schema=schema)
        made = model.sample(50).dtypes
        assert (made[:2] == true.dtypes[:2]).all()
    assert made["visits"] == true.dtypes["visits"]  # the frame's type is in the schema


def test_columns_that_are_empty_together_are_proposed_as_rules(run):
    rng = np.random.default_rng(0)
    filled = rng.random(2_000) < 0.6
    rows = [f"{k % 3},{k % 7},{k % 5}" if full else ",," for k, full in enumerate(filled)]
    other = rng.random(2_000) < 0.5
    lines = [f"{row},{'x' if each else ''}" for row, each in zip(rows, other)]
    Path("t.csv").write_text("\n".join(["a,b,c,d", *lines]) + "\n")
    said = done(run("schema", "init", "t.csv", "--out", "p.json"))
    rules = [
        rule["rule"] for rule in json.loads(Path("p.json").read_text(encoding="utf-8"))["rules"]
    ]
    together = [f"a is missing <-> {name} is missing" for name in "bc"]
    assert [rule for rule in rules if "missing" in rule] == together
    assert together[0] in said.out
