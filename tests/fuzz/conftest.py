"""The command line in process, in a folder of its own."""

import json
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from adaptive_qs.cli.entry import main
from adaptive_qs.generate.rows import SynthesisSettings

from .tables import DOCUMENT


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


VERBS = {
    "synthesize": ["synthesize", "{}", "--epsilon", "1", "--ways", "1", "--out", "o.csv",
                   "--release", "r.zip"],
    "answer": ["answer", "{}", "--epsilon", "1", "--ways", "1", "--out", "o.parquet"],
    "true": ["evaluate", "{}", "good.csv", "--ways", "1"],
    "synthetic": ["evaluate", "good.csv", "{}", "--ways", "1"],
    "check": ["schema", "check", "s.json", "{}"],
}  # fmt: skip
"""Commands that read a table, whose place is marked."""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Call a verb on a table: run("answer", "t.csv") -> Outcome; the schema is s.json."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "adaptive_qs.release.release.SynthesisSettings", partial(SynthesisSettings, fit_rows=100)
    )
    Path("s.json").write_text(json.dumps(DOCUMENT))

    def call(verb, table, *more):
        words = [word.format(table) for word in VERBS.get(verb, [*verb.split(), "{}"])]
        needs_schema = verb in VERBS and verb != "check"
        code = main([*words, *(["--schema", "s.json"] if needs_schema else []), *more])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call
