"""Budgets that promise or buy next to nothing: warned of, refused far out."""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import adaptive_qs
from adaptive_qs.errors import GuardRailWarning, InputError
from adaptive_qs.privacy.budget import list_budget_warnings, weaknesses
from adaptive_qs.release.release import UNCOUNTED_ROWS, Release
from adaptive_qs.synthesizer import Synthesizer

from .conftest import done, refused

SYNTHESIZE = ["synthesize", "t.csv", "--schema", "s.json", "--out", "o.csv", "--force"]
ANSWER = ["answer", "t.csv", "--schema", "s.json", "--out", "a.csv", "--force"]
LEDGER = ["ledger", "create", "--ledger", "l.ledger"]

FAR_OUT = {
    "epsilon": (["--epsilon", "150"], "epsilon 150"),
    "rho": (["--rho", "200"], "epsilon 3"),
    "delta": (["--epsilon", "1", "--delta", "0.5"], "delta 0.5"),
    "delta of the rows": (
        ["--epsilon", "1", "--delta", "0.009", "--public-rows", "2000"],
        "above 1 / number of rows (2,000)",
    ),
    "noise": (["--epsilon", "1e-5"], "standard error of"),
    "noise of the rows": (["--epsilon", "0.01", "--public-rows", "300"], "the table has about 300"),
}
DOUBTFUL = {
    "epsilon": (["--epsilon", "30"], "epsilon 30"),
    "delta": (["--epsilon", "1", "--delta", "0.001"], "delta 0.001"),
    "delta of the rows": (
        ["--epsilon", "1", "--delta", "0.004", "--public-rows", "300"],
        "above 1 / number of rows (300)",
    ),
    "noise": (["--epsilon", "0.001"], "standard error of"),
    "noise of the rows": (["--epsilon", "0.05", "--public-rows", "300"], "the table has about 300"),
}


@pytest.mark.parametrize("command", [SYNTHESIZE, ANSWER, LEDGER], ids=lambda c: c[0])
@pytest.mark.parametrize("case", FAR_OUT)
def test_far_out_is_refused_without_consent_and_told_with_it(run, command, case):
    budget, said = FAR_OUT[case]
    if case == "noise" and command is ANSWER:
        pytest.skip("answers have a limit of their own that consent does not lift")
    before = sorted(Path.cwd().iterdir())
    why = refused(run(*command, *budget))
    assert said in why
    assert "--beyond-limits" in why
    assert sorted(Path.cwd().iterdir()) == before
    warned = done(run(*command, *budget, "--beyond-limits")).err
    assert f"warning: {said[:9]}" in warned or said in warned


@pytest.mark.parametrize("command", [SYNTHESIZE, ANSWER, LEDGER], ids=lambda c: c[0])
@pytest.mark.parametrize("case", DOUBTFUL)
def test_what_may_not_be_meant_is_told_and_done(run, command, case):
    budget, said = DOUBTFUL[case]
    lines = done(run(*command, *budget)).err.splitlines()
    assert any(line.startswith("warning: ") and said in line for line in lines)


@pytest.mark.parametrize("command", [SYNTHESIZE, ANSWER], ids=lambda c: c[0])
def test_usual_budgets_pass_in_silence(run, command):
    usual = ["--epsilon", "10", "--delta", "1e-6", "--public-rows", "300"]
    assert done(run(*command, *usual)).err == ""


@pytest.mark.parametrize("rows", ["0", "-1", "1" + 16 * "0"])
@pytest.mark.parametrize("command", [SYNTHESIZE, ANSWER, LEDGER], ids=lambda c: c[0])
def test_numbers_of_rows_that_no_table_has_are_refused(run, command, rows):
    said = refused(run(*command, "--epsilon", "1", "--public-rows", rows))
    assert "give about how many rows" in said


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


def test_plan_says_the_same_and_what_would_be_refused(run):
    plan = ["plan", "--schema", "s.json"]
    assert run(*plan).err == ""
    told = run(*plan, "--epsilon", "30")
    assert told.err.startswith("warning: epsilon 30")
    assert "refused" not in told.err
    told = run(*plan, "--epsilon", "150", "--rows", "300")
    assert "is refused without --beyond-limits" in told.err
    assert "above 1 / number of rows (300)" in run(
        *plan, "--epsilon", "1", "--delta", "0.01", "--rows", "300"
    ).err  # fmt: skip


def test_a_count_that_is_noise_is_told_and_makes_no_large_table(run):
    """At this budget the noisy number of rows used to make a table of a million."""
    said = [
        run(
            *SYNTHESIZE, "--epsilon", "1e-5", "--beyond-limits", "--insecure-seed", str(seed),
            "--release", "r.zip",
        )
        for seed in range(4)
    ]  # fmt: skip
    assert all("is nothing but noise" in done(one).err for one in said)
    assert 1 <= len(pd.read_csv("o.csv")) <= UNCOUNTED_ROWS
    assert not Release.load("r.zip").counted
    told = run("sample", "r.zip", "--out", "s.csv")
    assert "is nothing but noise" in told.err
    assert "noise" not in run("sample", "r.zip", "--out", "u.csv", "--rows", "50").err.replace(
        "NOT PRIVATE: the noise came", ""
    )


def test_the_noisy_number_of_rows_shows_a_delta_that_is_too_large(run):
    said = done(run(*SYNTHESIZE, "--epsilon", "5", "--delta", "0.008"))
    assert "above one in the noisy number of rows" in said.err
    assert "noisy number" not in run(*SYNTHESIZE, "--epsilon", "5", "--delta", "0.0005").err


def test_resuming_asks_for_no_consent(run, monkeypatch):
    run(*LEDGER, "--epsilon", "400", "--beyond-limits")
    budget = ["--epsilon", "150", "--ledger", "l.ledger"]
    with monkeypatch.context() as patch:
        patch.setattr("adaptive_qs.cli.outputs.Outputs.write", lambda *_, **__: 1 / 0)
        assert run(*SYNTHESIZE, *budget, "--beyond-limits").code == 1
    done(run(*SYNTHESIZE, *budget, "--resume"))


FRAME = pd.DataFrame({"a": np.arange(300) % 3, "b": np.arange(300) % 2})
SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "a", "type": "integer", "min": 0, "max": 2},
        {"name": "b", "type": "integer", "min": 0, "max": 1},
    ],
}


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
        with pytest.raises(InputError, match="give about how many rows") as caught:
            Synthesizer(epsilon=1.0, public_rows=rows).fit(FRAME, schema=SCHEMA)
        assert "\n" not in str(caught.value)


def test_statements_say_how_little_is_promised(run):
    run(*SYNTHESIZE, "--epsilon", "30", "--delta", "0.001", "--release", "r.zip")
    statement = json.loads(Path("o.csv.manifest.json").read_text())
    said = weaknesses(statement["epsilon"], statement["delta"])
    assert len(said) == 2
    from zipfile import ZipFile

    with ZipFile("r.zip") as bundle:
        text = bundle.read("statement.md").decode()
    assert text.count("little is promised") == 2
    assert weaknesses(1.0, 1e-6) == ()


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
