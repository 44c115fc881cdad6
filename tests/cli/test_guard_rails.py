"""Budgets that promise or buy next to nothing: warned of, refused far out."""

import json
import warnings
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest

import adaptive_qs
from adaptive_qs.errors import GuardRailWarning, InputError
from adaptive_qs.privacy.budget import list_budget_warnings, weaknesses
from adaptive_qs.release.release import UNCOUNTED_ROWS
from adaptive_qs.synthesizer import Synthesizer

from .conftest import done

SYNTHESIZE = ["synthesize", "t.csv", "--schema", "s.json", "--out", "o.csv", "--force"]
ANSWER = ["answer", "t.csv", "--schema", "s.json", "--out", "a.csv", "--force"]
LEDGER = ["ledger", "create", "--ledger", "l.ledger"]


def test_the_true_number_of_rows_decides_nothing(run):
    """Tables of 300 rows and of one get the same words before they are read."""
    said = []
    lines = Path("t.csv").read_text().splitlines()
    for count in (300, 1):
        Path("t.csv").write_text("\n".join(lines[: count + 1]) + "\n")
        for budget in (["--delta", "0.5"], ["--delta", "0.009"]):
            spent = run(*ANSWER, "--epsilon", "1", *budget)
            said.append((spent.code, spent.err))
    assert said[:2] == said[2:]
    assert [code for code, _ in said] == [2, 0, 2, 0]


def test_resuming_asks_for_no_consent(run, monkeypatch):
    run(*LEDGER, "--epsilon", "400", "--beyond-limits")
    budget = ["--epsilon", "150", "--ledger", "l.ledger"]
    with monkeypatch.context() as patch:
        patch.setattr("adaptive_qs.cli.outputs.Outputs.write", lambda *_, **__: 1 / 0)
        assert run(*SYNTHESIZE, *budget, "--beyond-limits").code == 1
    done(run(*SYNTHESIZE, *budget, "--resume"))


def test_statements_say_how_little_is_promised_and_noisy_counts_make_no_large_table(run):
    done(run(*SYNTHESIZE, "--epsilon", "30", "--delta", "0.001", "--release", "r.zip"))
    statement = json.loads(Path("o.csv.manifest.json").read_text())
    assert len(weaknesses(statement["epsilon"], statement["delta"])) == 2
    with ZipFile("r.zip") as bundle:
        assert bundle.read("statement.md").decode().count("little is promised") == 2
    assert weaknesses(1.0, 1e-6) == ()
    for seed in range(4):
        noise = ["--epsilon", "1e-5", "--beyond-limits", "--insecure-seed", seed]
        assert "is mostly noise" in done(run(*SYNTHESIZE, *noise)).err
        assert 1 <= len(pd.read_csv("o.csv")) <= UNCOUNTED_ROWS


FRAME = pd.DataFrame({"a": np.arange(300) % 3, "b": np.arange(300) % 2})
SCHEMA = {"version": 1, "columns": [
    {"name": "a", "type": "integer", "min": 0, "max": 2},
    {"name": "b", "type": "integer", "min": 0, "max": 1},
]}  # fmt: skip


def test_python_warns_and_refuses_alike():
    with pytest.raises(InputError, match=r"epsilon 150.*beyond_limits=True"):
        Synthesizer(epsilon=150.0).fit(FRAME, schema=SCHEMA)
    with pytest.raises(InputError, match=r"delta 0\.5"):
        adaptive_qs.answer(FRAME, SCHEMA, epsilon=1.0, delta=0.5)
    with pytest.warns(GuardRailWarning, match="epsilon 150") as caught:
        Synthesizer(epsilon=150.0, beyond_limits=True).fit(FRAME, schema=SCHEMA)
    assert caught[0].filename == __file__
    with pytest.warns(GuardRailWarning, match=r"delta 0\.5") as caught:
        answers = adaptive_qs.answer(FRAME, SCHEMA, epsilon=1.0, delta=0.5, beyond_limits=True)
    assert caught[0].filename == __file__
    assert answers.rho_spent == 0
    with pytest.warns(GuardRailWarning, match="refused without") as caught:
        adaptive_qs.plan(SCHEMA, epsilon=150.0)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Synthesizer(epsilon=5.0, public_rows=300).fit(FRAME, schema=SCHEMA)
        adaptive_qs.plan(SCHEMA)
        Synthesizer(epsilon=5.0, public_rows=np.int64(300)).fit(FRAME, schema=SCHEMA)
    for rows in (0, 2.0, True, "300", FRAME):
        with pytest.raises(InputError, match="Use a positive number") as caught:
            Synthesizer(epsilon=1.0, public_rows=rows).fit(FRAME, schema=SCHEMA)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("epsilon", "delta", "std", "rows", "warned", "refused"),
    [
        (20, 1e-9, 1, None, 0, 0), (20.1, 1e-9, 1, None, 1, 0), (100, 1e-9, 1, None, 1, 0),
        (100.1, 1e-9, 1, None, 1, 1), (1, 1e-4, 1, None, 0, 0), (1, 1.1e-4, 1, None, 1, 0),
        (1, 0.011, 1, None, 1, 1), (1, 1e-3, 1, 1000, 0, 0), (1, 1.1e-3, 1, 1000, 1, 0),
        (1, 0.0101, 1, 1000, 1, 1), (1, 0.05, 0.1, 10, 0, 0), (1, 0.2, 0.1, 10, 1, 1),
        (1, 1e-9, 1000, None, 0, 0), (1, 1e-9, 1001, None, 1, 0), (1, 1e-9, 1e5 + 1, None, 1, 1),
        (1, 1e-9, 10, 100, 0, 0), (1, 1e-9, 11, 100, 1, 0), (1, 1e-9, 101, 100, 1, 1),
        (1, 1e-9, 1e5 + 1, 10**8, 0, 0),
    ],
)  # fmt: skip
def test_the_limits_are_those_of_the_table(epsilon, delta, std, rows, warned, refused):
    found = list_budget_warnings(epsilon, delta, std, rows)
    assert (len(found), sum(bool(each.beyond) for each in found)) == (warned, refused)
