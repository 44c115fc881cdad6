"""A check of the evaluation that the package does not know: one class, one entry."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import evaluate
from adaptive_qs.cli.entry import main
from adaptive_qs.evaluation.checks import CHECKS, Check, Facts, Finding, Table, Word, number
from adaptive_qs.evaluation.evaluation import evaluation_page
from adaptive_qs.table.schema import Schema

SCHEMA = {"version": 1, "columns": [{"name": "a", "type": "integer", "min": 0, "max": 9}]}
TRUE, MADE = pd.DataFrame({"a": np.arange(400) % 10}), pd.DataFrame({"a": np.arange(300) % 5})


class ParityCheck(Check):
    """Whether as many numbers are odd."""

    name, title, about, uses, shown = "parity", "Odd numbers", "parity", ("games",), "bad"
    rules = (Word("uneven", "poor", lambda gap: gap > 0.05), Word("even", "good"))

    def measure(self, comparison):
        """Return the share of odd codes in both tables."""
        pair = comparison.pair
        return [float((table.columns[0] % 2).mean()) for table in (pair.true, pair.synthetic)]

    def judge(self, facts, evaluation):
        """Judge the difference."""
        true, made = facts
        table = Table("Odd codes", (number("true"), number("synthetic")), [(true, made)])
        figures = (Facts((("difference", f"{made - true:+.2f}"),)), table)
        text = f"Odd numbers: {true:.2f} in the true table, {made:.2f} in the synthetic one."
        return Finding(*self.word_for(abs(made - true)), text, figures=figures)


@pytest.fixture(autouse=True)
def parity(monkeypatch):
    monkeypatch.setitem(CHECKS, "parity", ParityCheck)


def test_verdict_json_and_page_have_it():
    found = evaluate(TRUE, MADE, SCHEMA, 1)
    assert found.parity == [0.5, 0.4]
    assert found.verdict.uses["games"] == "poor"
    assert "parity (uneven)" in found.verdict.overall.said
    assert found.as_json()["parity"] == [0.5, 0.4]
    page = evaluation_page(found, ("true.csv", "made.csv"))
    for text in ("Odd numbers", "Odd codes"):
        assert text in page


def test_the_command_prints_it(tmp_path, capsys):
    files = [tmp_path / name for name in ("t.csv", "s.csv", "s.json")]
    TRUE.to_csv(files[0], index=False)
    MADE.to_csv(files[1], index=False)
    Schema.parse(SCHEMA).dump(files[2])
    true, made, schema = map(str, files)
    assert main(["evaluate", true, made, "--schema", schema]) == 0
    out = capsys.readouterr().out
    assert "Odd numbers: 0.50 in the true table" in out
    assert "difference" in out
