"""A small private table on disk, and the command line called in process."""

from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import pytest

from adaptive_qs.cli.entry import main
from adaptive_qs.generate.rows import SynthesisSettings

from .transcripts import write_inputs


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def done(outcome):
    """A command that did what it was asked for."""
    assert outcome.code == 0, outcome
    return outcome


def refused(outcome, code=2):
    """The one line in which a command says why it did nothing."""
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (code, "", 1), outcome
    assert outcome.err.startswith("error: ")
    return outcome.err


@contextmanager
def working_in(folder):
    """A module's folder with t.csv and s.json as the working directory, where tables are small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(
            "adaptive_qs.release.release.SynthesisSettings",
            partial(SynthesisSettings, fit_rows=500),
        )
        write_inputs()
        yield folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with t.csv, s.json and w.json."""
    monkeypatch.chdir(tmp_path)
    write_inputs()
    return tmp_path


@pytest.fixture
def run(folder, capsys):
    """Call the command line: run("sample", "r.zip", ...) -> Outcome."""

    def call(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture
def unspent(monkeypatch):
    """No mechanism may even be built."""

    def spend(*_):
        raise AssertionError("budget would have been spent")

    monkeypatch.setattr("adaptive_qs.run.states.Mechanisms", spend)


@pytest.fixture(autouse=True)
def _quick(quick_tables):
    """Fit tables with few rows: these tests are not about their quality."""
