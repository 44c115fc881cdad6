"""`plan` and `answer` as users call them: output, files, exit codes, and what is refused."""

from __future__ import annotations

import json
import re
import zipfile
from functools import partial
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from adaptive_qs.answering import api
from adaptive_qs.answering import plan as planning
from adaptive_qs.answering.plan import BatchPlan
from adaptive_qs.cli import entry
from adaptive_qs.cli.answer import list_fields
from adaptive_qs.errors import BudgetExceeded
from adaptive_qs.run.states import LOST
from adaptive_qs.strategy import optimal

from .conftest import done, refused
from .transcripts import CANARY

PLAN = ["plan", "--schema", "s.json"]
ANSWER = ["answer", "t.csv", "--schema", "s.json", "--epsilon", "5", "--out", "a.parquet"]
PAIRS = 3 * 10 + 3 * 9 + 10 * 9


def test_a_solver_that_stops_early_says_its_honest_gap(run, monkeypatch):
    settings = partial(planning.SolverSettings, max_iterations=1)
    monkeypatch.setattr(planning, "SolverSettings", settings)
    arguments = [*PLAN, "--ways", "1", "--queries", "hybrid", "--gap", "1e-12"]
    outcome = done(run(*arguments))
    assert outcome.err.startswith("warning: the squared error is proven to be within ")
    assert "of the least, not closer" in outcome.err
    assert "stopped before the requested gap" in outcome.out
    outcome = done(run(*arguments, "--json"))
    assert outcome.err.startswith("warning: ")
    content = json.loads(outcome.out)
    assert content["statuses"]["stopped"] > 0
    assert content["gap"] > 1e-12


def test_subworkloads_without_certificate_are_told(run, monkeypatch):
    """A fallback of `auto` is not silent: its gap, how many subworkloads, and what to do."""
    monkeypatch.setattr(optimal, "DENSE_CELLS", 4)
    Path("pair.json").write_text('{"a": 24, "b": 23}')
    arguments = ["plan", "--schema", "pair.json", "--queries", "affine"]
    outcome = done(run(*arguments, "--json"))
    content = json.loads(outcome.out)
    assert content["statuses"]["restricted"] == 3
    assert content["gap"] > 0.01
    assert outcome.err.startswith("warning: the squared error is proven to be within ")
    assert f"within {100 * content['gap']:.2g} % of the least, not closer" in outcome.err
    assert "Use coarser bins, fewer ways or a larger --max-memory" in outcome.err
    assert "querysmasher (not proven optimal in all subworkloads)" in done(run(*arguments)).out
    assert done(run(*arguments, "--gap", "100")).err == ""
    assert done(run(*arguments, "--mechanism", "wff")).err == ""


def test_rounding_below_the_bound_is_no_gap(run, monkeypatch):
    rounding = property(lambda plan: (1 + 1e-9) * plan.rmse)
    monkeypatch.setattr(BatchPlan, "lower_bound_rmse", rounding)
    outcome = done(run(*PLAN, "--json"))
    assert (json.loads(outcome.out)["gap"], outcome.err) == (0.0, "")


def test_answer_does_not_look_for_the_largest_variance(run, monkeypatch):
    def refuse(_):
        raise AssertionError("nobody asked")

    monkeypatch.setattr(BatchPlan, "max_variance", property(refuse))
    done(run(*ANSWER))
    with pytest.raises(AssertionError, match="nobody asked"):
        list_fields(api.plan({"a": 3, "b": 2}))


def test_answers_are_near_the_truth(run):
    """147 answers: one is beyond 5.5 standard errors with probability 6e-6."""
    done(run(*ANSWER, "--insecure-seed", "4"))
    found = pd.read_parquet("a.parquet").set_index("query")
    names = ["attributes", "estimate", "standard_error", "lower", "upper"]
    assert (found.columns.tolist(), len(found)) == (names, PAIRS)
    table = pd.read_csv("t.csv", dtype=str).replace({"job": {"?": "(missing)"}})
    for one, other in (("job", "age"), ("job", "day"), ("age", "day")):
        counts = table.groupby([one, other]).size()
        for (a, b), count in counts.items():
            row = found.loc[f"{one} = {a} and {other} = {b}"]
            assert abs(row.estimate - count) < 5.5 * row.standard_error


def test_insecure_answers_repeat_and_are_stamped(run):
    arguments = [*ANSWER[:-1], "a.csv", "--insecure-seed", "1", "--force"]
    written = []
    for _ in range(2):
        done(run(*arguments))
        written.append(Path("a.csv").read_bytes())
    assert written[0] == written[1]
    assert "NOT PRIVATE" in json.loads(Path("a.csv.manifest.json").read_text())["stamp"]
    done(run(*ANSWER, "--insecure-seed", "1"))
    assert b"NOT PRIVATE" in pq.read_schema("a.parquet").metadata[b"adaptive_qs.stamp"]
    csv, parquet = pd.read_csv("a.csv"), pd.read_parquet("a.parquet")
    assert csv["query"].tolist() == parquet["query"].tolist()
    np.testing.assert_allclose(csv.iloc[:, 2:], parquet.iloc[:, 2:], rtol=1e-14)


@pytest.mark.parametrize(
    ("error", "code", "hint", "first"),
    [
        (entry.Stopped(15), 143, "stopped before the end", False),
        (RuntimeError(CANARY), 1, "internal error (RuntimeError", False),
        (BudgetExceeded("x"), 1, "x", False),
        (BudgetExceeded("total: cost rho 2 exceeds the remaining 1"), 3, "exceeds", True),
    ],
)
def test_failures_after_the_first_charge_own_up(error, code, hint, first, run, monkeypatch):
    real, before = api.answer_sets, sorted(Path.cwd().iterdir())

    def failing(*arguments):
        if not first:
            yield next(real(*arguments))
        raise error

    monkeypatch.setattr(api, "answer_sets", failing)
    said = refused(run(*ANSWER), code)
    assert hint in said
    assert (str(LOST) in said) != first
    assert CANARY not in said
    assert sorted(Path.cwd().iterdir()) == before


# One sentence says what is promised, wherever it is said: also where values were discovered.

DISCOVERED = {
    "version": 1,
    "columns": [
        {"name": "job", "type": "categorical", "private_values": 4, "catch_all": "other"},
        {"name": "age", "type": "integer", "min": 0, "max": 9},
    ],
}
PLAIN = re.compile(r"(?<!approximate rho-)(?<!approximate )zCDP with|\(zCDP\)")
"""Where zCDP itself is claimed to hold."""


def test_a_run_that_discovers_values_claims_no_plain_zcdp(run):
    Path("p.json").write_text(json.dumps(DISCOVERED))
    Path("p.csv").write_text("job,age\n" + "".join(f"{'ab'[i % 2]},{i % 10}\n" for i in range(400)))
    total = ["--ledger", "l", "--rho", 4, "--delta", "2e-6", "--discovery-delta", "1.5e-6"]
    done(run("ledger", "create", *total))
    command = ["p.csv", "--schema", "p.json", "--rho", "0.5", "--delta", "1e-6", "--ledger", "l"]
    said = done(run("synthesize", *command, "--out", "o.csv", "--release", "r.zip"))
    with zipfile.ZipFile("r.zip") as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()[:3]}
    manifest = json.loads(texts["manifest.json"])
    sentence = manifest["guarantee"]
    assert re.match(r"\S+-approximate rho-zCDP with rho = 0\.5, which implies", sentence)
    assert manifest["delta_spent"] > 0
    assert f"- guarantee: {sentence}\n" in texts["statement.md"]
    assert f"<li>Guarantee: {sentence}.</li>" in unescape(texts["page.html"])
    assert json.loads(Path("o.csv.manifest.json").read_text())["guarantee"] == sentence
    done(run("evaluate", "p.csv", "o.csv", "--schema=r.zip", "--report=e.html"))
    assert not PLAIN.search(Path("e.html").read_text())
    answers = done(run("answer", *command, "--out", "a.csv"))
    texts["answers"] = Path("a.csv.manifest.json").read_text()
    show = run("ledger", "show", "--ledger", "l").out
    for text in (*texts.values(), said.out, answers.out, show):
        assert "approximate" in text
        assert not PLAIN.search(text), PLAIN.search(text)
