"""`evaluate` as its owner calls it: what it measures, prints, writes and refuses."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from adaptive_qs.evaluation.tables import OWNER_ONLY

from .conftest import refused
from .transcripts import write, write_compared

BASE = ["evaluate", "t.csv", "o.csv", "--schema", "s.json"]


@pytest.fixture
def tables(folder):
    """Other rows for t.csv, and a synthetic o.csv and a control table c.csv like them."""
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
def test_a_control_table_adds_the_attack_and_the_promise_its_bound(run):
    synthesized(run, "o.csv", "--release", "r.zip")
    beside = content(run, "--control", "c.csv")["membership"]
    assert beside["promise"]["source"] == "o.csv.manifest.json"
    assert (beside["promise"]["epsilon"], beside["promise"]["delta"]) == (1, 1e-9)
    assert 0 < beside["bound"] < 1
    assert {"attack", "advantage", "lower", "upper", "auc"} == set(beside["scores"][0])
    named = content(run, "--control", "c.csv", "--release", "r.zip")["membership"]
    assert named["promise"]["source"] == "r.zip"
    assert named["bound"] == beside["bound"]
    outcome = run(*BASE, "--control", "c.csv", "--report", "r.html")
    assert "epsilon 1, delta 1e-09 (o.csv.manifest.json)" in outcome.out
    assert Path("r.html").read_text().lstrip().lower().startswith("<!doctype html>")

    for damaged in ("{}", "[1]", "no json", '{"format_version": 99}'):
        Path("o.csv.manifest.json").write_text(damaged)
        found = content(run, "--control", "c.csv")
        assert (found["membership"]["bound"], found["membership"]["promise"]) == (None, None)
        assert said("o.csv.manifest.json is damaged", found)
    Path("o.csv.manifest.json").unlink()
    found = content(run, "--control", "c.csv")
    assert found["membership"]["bound"] is None
    assert said("privacy promise is not known", found)

    synthesized(run, "o.csv", "--insecure-seed", "1")  # predictable noise promises nothing
    found = content(run, "--control", "c.csv")
    assert found["membership"]["bound"] is None
    assert said("NOT PRIVATE", found)


def test_hundreds_of_columns_are_attacked(run):
    Path("m.json").write_text(json.dumps({f"a{i}": 3 for i in range(230)}))
    rng = np.random.default_rng(1)
    for name in "toc":
        lines = [",".join(map(str, row)) for row in rng.integers(0, 3, (40, 230))]
        write(f"{name}.csv", lines, ",".join(f"a{i}" for i in range(230)))
    base = [*BASE[:3], "--schema", "m.json"]
    found = content(run, "--ways", "1", "--control", "c.csv", base=base)
    assert len(found["membership"]["scores"]) == 2


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
    assert "swap them" in refused(run(*swapped))
    assert not said("released", content(run))

    Path("t.csv.manifest.json").write_text(Path("n.csv.manifest.json").read_text())
    for more in ([], ["--release", "r.zip"]):
        found = content(run, *more, base=swapped)
        assert said("n.csv.manifest.json lies next to it, so that errors", found)
        Path("t.csv.manifest.json").unlink(missing_ok=True)


@pytest.mark.usefixtures("tables")
def test_the_warning_is_printed_once(run, monkeypatch):
    for terminal in (False, True):
        monkeypatch.setattr(sys.stdout, "isatty", lambda value=terminal: value)
        outcome = run(*BASE)
        assert outcome.out.startswith(f"{OWNER_ONLY}\n")
        assert (outcome.out + outcome.err).count(OWNER_ONLY) == 1
