"""A selection rule is one class and one line of its registry; users name it in `--rule`."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import Synthesizer
from adaptive_qs.cli.entry import main
from adaptive_qs.errors import InputError
from adaptive_qs.generate import GENERATORS
from adaptive_qs.loop import SELECTION_RULES
from adaptive_qs.loop.loop import LoopSettings
from adaptive_qs.loop.select import SelectionRule, Selector
from adaptive_qs.privacy.events import Purpose, SelectionEvent
from adaptive_qs.release.release import Release

from .fresh import imported_in_either_order

ROWS = pd.DataFrame({"a": [0, 1, 2] * 40, "b": [0, 1, 2] * 40, "c": [0, 1] * 60})
SCHEMA = {"a": 3, "b": 3, "c": 2}


class AnyPair(SelectionRule):
    """A fair draw among the pairs on offer: scores of zero, which no row moves."""

    def __init__(self, counter, candidates, weights, workers=1):
        self.candidates = candidates

    def refresh(self, estimates, changed, offered):
        return 0

    def select(self, mechanisms, expected_error, epsilon, offered):
        pairs = [c for c, open_ in zip(self.candidates, offered) if open_ and len(c) == 2]
        zeros = np.zeros(len(pairs), dtype=np.int64)
        event = SelectionEvent(Purpose.SELECTION, (), epsilon)
        return pairs[mechanisms.select(event, zeros, 1)]


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(SELECTION_RULES, "any-pair", f"{__name__}:AnyPair")


@pytest.fixture
def command(tmp_path, monkeypatch):
    """`synthesize` with these options, in a folder of its own; its exit code."""
    monkeypatch.chdir(tmp_path)
    ROWS.to_csv("t.csv", index=False)
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    words = ["synthesize", "t.csv", "--schema", "s.json", "--rho", "5", "--release", "r.zip"]
    return lambda *options: main([*words, *options])


def test_a_run_chooses_by_the_rule_that_it_is_given(tmp_path):
    fitted = Synthesizer(rho=5, rule="any-pair", workers=1, insecure_seed=1)
    fitted.fit(ROWS, schema=SCHEMA)
    assert fitted.release_.manifest.settings["rule"] == "any-pair"
    assert {len(past.clique) for past in fitted.rounds_} == {2}
    assert fitted.rho_spent_ <= 5
    made = fitted.sample(50, seed=0)
    assert made.shape == (50, 3)
    assert set(made["a"]) <= {0, 1, 2}
    fitted.save(tmp_path / "r.zip")
    assert Synthesizer.load(tmp_path / "r.zip").rule == "any-pair"


def test_the_command_takes_it_and_the_statement_names_it(command):
    assert command("--rule", "any-pair") == 0
    release = Release.load("r.zip")
    assert {len(past.clique) for past in release.rounds} == {2}
    assert release.manifest.settings["rule"] == "any-pair"
    with zipfile.ZipFile("r.zip") as bundle:
        assert b"rule any-pair, generator loglinear" in bundle.read("statement.md")
        assert json.loads(bundle.read("manifest.json"))["settings"]["rule"] == "any-pair"


def test_an_unknown_rule_is_refused_with_the_names_there_are(command, tmp_path, capsys):
    said = f"rule is 'best': give one of {', '.join(SELECTION_RULES)}"
    assert said.endswith("any-pair")
    with pytest.raises(InputError, match=said):
        LoopSettings(rule="best")
    with pytest.raises(InputError, match=said):
        Synthesizer(rho=1, rule="best").fit(ROWS, schema=SCHEMA)
    before = sorted(tmp_path.iterdir())
    assert command("--rule", "best") == 2
    assert capsys.readouterr().err == f"error: {said}\n"
    assert sorted(tmp_path.iterdir()) == before


def test_a_run_with_another_rule_or_generator_is_not_taken_for_the_interrupted_one(
    command, monkeypatch, capsys
):
    monkeypatch.setitem(GENERATORS, "toy", "nowhere:toy")
    assert main(["ledger", "create", "--ledger", "l", "--rho", "9", "--delta", "1e-6"]) == 0
    with monkeypatch.context() as context:
        context.setattr(Release, "save", lambda *_, **__: 1 / 0)
        assert command("--ledger", "l", "--rule", "any-pair") == 1
    again = ["--ledger", "l", "--resume"]
    for options, name in (
        ([], "rule"),
        (["--rule", "aim"], "rule"),
        (["--rule", "any-pair", "--generator", "toy"], "generator"),
        (["--generator", "toy"], "generator, rule"),
    ):
        capsys.readouterr()
        assert command(*again, *options) == 2
        assert f"run 1 was started with another {name}: " in capsys.readouterr().err
    assert command(*again, "--rule", "any-pair") == 0
    assert Release.load("r.zip").manifest.settings["rule"] == "any-pair"


def test_a_rule_may_build_on_the_protocol_and_its_neighbours(tmp_path):
    assert SELECTION_RULES["aim"] is Selector
    source = "from adaptive_qs.loop.select import Members, RuleMaker, SelectionRule, Selector\n"
    source += "class Toy(Selector):\n    pass\n"
    imported_in_either_order(tmp_path, source, "adaptive_qs.loop:SELECTION_RULES")
