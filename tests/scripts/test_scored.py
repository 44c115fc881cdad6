"""Scoring by evaluators of others: the cases, with an evaluator that costs nothing."""

import json
import sys

import pandas as pd
import pytest
import typer

from scripts.compare import scored

EVALUATOR = """
import json, sys
job = json.load(open(sys.argv[1]))
lines = {key: sum(1 for _ in open(job[key])) for key in ("private", "synthetic")}
print(json.dumps({"rows": lines, "numbers": job["numbers"]}))
"""
SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "a", "type": "integer", "min": 0, "max": 9},
        {"name": "b", "type": "categorical", "values": ["x", "y"]},
    ],
}


@pytest.fixture
def case(tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    frame = pd.DataFrame({"a": [i % 10 for i in range(300)], "b": ["x", "y", "y"] * 100})
    return scored.Case(tmp_path, frame, schema, 1e-6)


def test_a_case_is_synthesized_by_the_command_and_scored_in_its_environment(
    case, tmp_path, monkeypatch
):
    python = tmp_path / "environments" / "fake" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (tmp_path / "fake_scores.py").write_text(EVALUATOR)
    monkeypatch.setattr(scored, "EVALUATORS", tmp_path)
    made = case.synthesize(10.0, 1, case.private)
    job = {"private": case.private, "synthetic": made, "numbers": case.numbers}
    found = scored.run_evaluator("fake", job, tmp_path / "environments")
    assert found["numbers"] == ["a"]
    assert found["rows"]["private"] == 301
    assert abs(found["rows"]["synthetic"] - 301) < 30
    with pytest.raises(typer.BadParameter, match="fake failed"):
        scored.run_evaluator("fake", {}, tmp_path / "environments")


def test_halves_share_the_rows(case):
    half, other = (pd.read_csv(path) for path in case.halves(1))
    both = pd.concat([half, other]).value_counts().sort_index()
    assert len(half) == len(other)
    assert both.equals(case.frame.value_counts().sort_index())
