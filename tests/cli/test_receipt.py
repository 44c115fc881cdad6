"""Failures after the budget is spent: what it bought is kept, and the message says where."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import CodedTable, Domain, Synthesizer
from adaptive_qs.adaptive import loop
from adaptive_qs.cli import entry
from adaptive_qs.errors import InputError
from adaptive_qs.release.release import Release
from adaptive_qs.synthesizer import pipeline

CANARY = "c4n4ry"
BASE = ["synthesize", "t.csv", "--schema", "s.json", "--epsilon", "5", "--out", "o.csv"]
SAVED = "the budget is spent; the release is in r.zip: sample a table from it free of charge"
FAILURES = {
    "memory": (MemoryError(CANARY), 1, "out of memory"),
    "interrupt": (entry.Stopped(2), 130, "stopped before the end"),
    "signal": (entry.Stopped(15), 143, "stopped before the end"),
    "bug": (RuntimeError(CANARY), 1, "internal error (RuntimeError"),
    "input": (InputError("o.csv: cannot be written"), 1, "o.csv: cannot be written"),
}


@pytest.fixture(params=FAILURES)
def failure(request):
    """An error to raise, the exit code it leads to, and the start of the message."""
    error, code, hint = FAILURES[request.param]
    if hasattr(error, "__notes__"):
        del error.__notes__
    return error, code, hint


def fail_at(monkeypatch, target, name, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(target, name, fail)


def check(outcome, code, *hints):
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert CANARY not in outcome.err
    assert "no output was written" not in outcome.err
    for hint in hints:
        assert hint in outcome.err


def test_the_release_is_saved_before_the_table_is_fitted(failure, run, monkeypatch):
    error, code, hint = failure
    with monkeypatch.context() as patch:
        fail_at(patch, Release, "sample_table", error)
        check(run(*BASE, "--release", "r.zip"), code, hint, SAVED)
    assert not Path("o.csv").exists()
    assert run("sample", "r.zip", "--out", "o.csv").code == 0
    assert pd.read_csv("o.csv").columns.tolist() == ["job", "age", "day"]


def test_without_a_release_the_message_owns_up(failure, run, monkeypatch):
    error, code, hint = failure
    before = sorted(Path.cwd().iterdir())
    fail_at(monkeypatch, Release, "sample_table", error)
    check(run(*BASE), code, hint, "the budget is spent; no release was kept (--release FILE")
    assert sorted(Path.cwd().iterdir()) == before


def test_a_release_that_cannot_be_saved_is_not_claimed(run, monkeypatch):
    fail_at(monkeypatch, Release, "save", InputError("r.zip: cannot be written"))
    check(run(*BASE, "--release", "r.zip"), 1, "r.zip: cannot be written", "no release was kept")
    assert not Path("r.zip").exists()


def test_failures_between_the_first_charge_and_the_release(failure, run, monkeypatch):
    error, code, hint = failure
    before = sorted(Path.cwd().iterdir())
    fail_at(monkeypatch, loop, "measure_one_way", error)
    check(run(*BASE, "--release", "r.zip"), code, hint, pipeline.SPENT_IN_VAIN)
    assert sorted(Path.cwd().iterdir()) == before


def test_notes_of_other_libraries_are_not_shown(run, monkeypatch):
    error = RuntimeError()
    error.add_note(CANARY)
    fail_at(monkeypatch, Release, "sample_table", error)
    check(run(*BASE), 1, "no release was kept")


def test_the_python_api_notes_it_too(monkeypatch):
    domain = Domain.from_sizes({"a": 2})
    fail_at(monkeypatch, pipeline.Release, "of_run", RuntimeError())
    with pytest.raises(RuntimeError) as caught:
        Synthesizer(rho=1).fit(CodedTable.from_codes(domain, [np.arange(2)]))
    assert caught.value.__notes__ == [pipeline.SPENT_IN_VAIN]
