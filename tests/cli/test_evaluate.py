"""`evaluate` as its owner calls it: what it measures, prints, writes and refuses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from adaptive_qs.evaluation.tables import OWNER_ONLY

from .conftest import refused
from .transcripts import write_compared

BASE = ["evaluate", "t.csv", "o.csv", "--schema", "s.json"]


@pytest.fixture
def tables(folder):
    """Other rows for t.csv, and a synthetic o.csv like them."""
    write_compared()


def no_constant(name):
    raise AssertionError(f"JSON has no {name}")


def content(run, *more, base=BASE):
    outcome = run(*base, "--json", *more)
    assert outcome.code == 0, outcome
    return json.loads(outcome.out, parse_constant=no_constant)


def said(words, found):
    return any(words in text for text in found["limitations"])


def synthesized(run, out, *more):
    command = ["synthesize", "t.csv", "--schema", "s.json", "--epsilon", "1", "--out", out]
    made = run(*command, "--force", *more)
    assert made.code == 0, made


@pytest.mark.usefixtures("tables")
def test_results_do_not_depend_on_the_number_of_threads(run):
    found = [content(run, "--workers", workers) for workers in (1, 3)]
    for part in found:
        del part["seconds"], part["peak_memory_mb"]
    assert found[0] == found[1]


@pytest.mark.usefixtures("tables")
def test_the_promise_is_that_of_the_release_if_there_is_one(run):
    synthesized(run, "o.csv", "--release", "r.zip")
    outcome = run(*BASE, "--report", "r.html")
    assert "epsilon 1, delta 1e-09 (o.csv.manifest.json)" in outcome.out
    assert Path("r.html").read_text().lstrip().lower().startswith("<!doctype html>")
    assert "epsilon 1, delta 1e-09 (r.zip)" in run(*BASE, "--release", "r.zip").out
    for damaged in ("{}", "[1]", "no json", '{"format_version": 99}'):
        Path("o.csv.manifest.json").write_text(damaged)
        assert said("o.csv.manifest.json is damaged", content(run))
    Path("o.csv.manifest.json").unlink()
    assert said("privacy promise is not known", content(run))
    synthesized(run, "o.csv", "--insecure-seed", "1")  # predictable noise promises nothing
    assert said("NOT PRIVATE", content(run))


@pytest.mark.usefixtures("tables")
@pytest.mark.slow
def test_the_quick_measures_need_no_learning_library():
    code = (
        "import sys; from adaptive_qs.cli import main; "
        f"assert main({BASE!r}) == 0; assert 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.usefixtures("tables")
def test_swapped_tables_are_refused_where_a_statement_tells_them(run):
    synthesized(run, "n.csv", "--release", "r.zip")
    swapped = ["evaluate", "n.csv", "t.csv", "--schema", "s.json"]
    assert "Swap them" in refused(run(*swapped))
    assert not said("released", content(run))

    Path("t.csv.manifest.json").write_text(Path("n.csv.manifest.json").read_text())
    for more in ([], ["--release", "r.zip"]):
        found = content(run, *more, base=swapped)
        assert said("n.csv.manifest.json is next to it. So all errors", found)
        Path("t.csv.manifest.json").unlink(missing_ok=True)


@pytest.mark.usefixtures("tables")
def test_the_warning_is_printed_once(run, monkeypatch):
    for terminal in (False, True):
        monkeypatch.setattr(sys.stdout, "isatty", lambda value=terminal: value)
        outcome = run(*BASE)
        assert outcome.out.startswith(f"{OWNER_ONLY}\n")
        assert (outcome.out + outcome.err).count(OWNER_ONLY) == 1
