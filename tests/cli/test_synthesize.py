"""The commands as users call them: what they print where, and what they write."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from adaptive_qs.cli import entry
from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError
from adaptive_qs.loop import loop
from adaptive_qs.release.page import release_page
from adaptive_qs.release.release import Release
from adaptive_qs.release.tables import ReleaseSet
from adaptive_qs.run import tables
from adaptive_qs.run.states import LOST
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.coded import CodedTable

from .conftest import done, refused
from .transcripts import CANARY, SCHEMA, write

BASE = ["synthesize", "t.csv", "--schema", "s.json", "--epsilon", "5"]


def test_a_table_says_what_it_cost_and_can_be_made_again_from_its_manifest(run):
    outcome = done(run(*BASE, "--out", "o.csv", "--release", "r.zip"))
    assert len(outcome.err.splitlines()) == outcome.err.count("independent of all others")
    assert "NOT PRIVATE" not in outcome.out
    sampling = json.loads(Path("o.csv.manifest.json").read_text())["sampling"]
    again = ["--seed", sampling["seed"], "--rows", sampling["rows"], "--out", "../again.csv"]
    done(run("sample", "r.zip", *again))
    assert Path("../again.csv").read_bytes() == Path("o.csv").read_bytes()
    made = pd.read_csv("o.csv")
    assert made.columns.tolist() == ["job", "age", "day"]
    assert made.age.dtype == "int64"
    assert made.age.between(0, 9).all()
    assert set(made.job) <= {"a", "b", "?"}
    assert pd.to_datetime(made.day).between("2020-01-01", "2020-01-09").all()
    assert {path.name for path in Path.cwd().iterdir()} == {
        "t.csv", "s.json", "w.json", "o.csv", "o.csv.manifest.json", "r.zip",
    }  # fmt: skip


def test_nothing_written_or_printed_shows_an_undeclared_cell_or_the_input_path(run):
    """An undeclared value goes to the catch-all; the file lies in a folder with a private name."""
    folder = Path(CANARY)
    folder.mkdir()
    job = {"name": "job", "type": "categorical", "values": ["a", "b"], "catch_all": "other"}
    Path("s.json").write_text(json.dumps({"version": 1, "columns": [job]}))
    (folder / "t.csv").write_text(f"job\n{CANARY}\n" + "a\nb\n" * 30)
    arguments = ["synthesize", folder / "t.csv", "--schema", "s.json", "--epsilon", "1", "--json"]
    outcome = done(run(*arguments, "--out", "o.csv", "--release", "r.zip"))
    with zipfile.ZipFile("r.zip") as archive:
        members = b"".join(archive.read(name) for name in archive.namelist())
    for artefact in (outcome.out, outcome.err, Path("o.csv").read_text(), members.decode("latin1")):
        assert CANARY not in artefact


def test_a_full_disk_under_stdout_is_one_line(run):
    def full(_):
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout.write", full)
        outcome = run("schema", "check", "s.json")
    line = "error: stdout cannot be written (No space left on device): output files are complete\n"
    assert (outcome.code, outcome.err) == (1, line)


ABOUT = {"title": "Jobs and ages", "licence": "CC0", "description": "One row each. Made up."}


def test_the_page_opens_with_what_the_data_are(run):
    Path("s.json").write_text(json.dumps({**SCHEMA, "about": ABOUT}))
    done(run(*BASE, "--release", "r.zip"))
    with zipfile.ZipFile("r.zip") as bundle:
        assert json.loads(bundle.read("schema.json"))["about"] == ABOUT
        page = bundle.read("page.html").decode()
        facts = json.loads(bundle.read("manifest.json"))["facts"]
    assert "<title>Jobs and ages</title>" in page
    (fact,) = (f for f in facts if f["fact"].startswith("the description of the data"))
    assert (fact["basis"], fact["rho"]) == ("declared public", 0)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_insecure_noise_repeats_and_stamps_everything_and_nothing_else(suffix, run):
    out = Path(f"o{suffix}")
    insecure = ["--insecure-seed", "1", "--release"]
    done(run(*BASE, *insecure, "again.zip"))
    for command, stamped in (
        ([*BASE, *insecure, "bad.zip"], True),
        ([*BASE, "--release", "good.zip"], False),
        (["sample", "bad.zip"], True),
        (["sample", "good.zip"], False),
    ):
        done(run(*command, "--out", out, "--force"))
        stated = json.loads(Path(f"{out}.manifest.json").read_text())["stamp"]
        assert ("NOT PRIVATE" in stated) == stamped
        if suffix == ".parquet":
            metadata = pq.read_schema(out).metadata[b"adaptive_qs.stamp"]
            assert (b"NOT PRIVATE" in metadata) == stamped
    assert Path("again.zip").read_bytes() == Path("bad.zip").read_bytes()
    for name, stamped in (("bad.zip", True), ("good.zip", False)):
        with zipfile.ZipFile(name) as archive:
            stated = json.loads(archive.read("manifest.json"))["stamp"]
        assert ("NOT PRIVATE" in stated) == stamped


def test_the_demos_need_nothing(run, monkeypatch):
    shipped = Path("t.csv"), Path("s.json")
    monkeypatch.setattr("adaptive_qs.cli.options.demo_files", lambda: shipped)
    for _ in range(2):  # its own output is replaced
        assert "epsilon 1, delta 1e-09" in done(run("answer", "--demo")).out
        outcome = done(run("synthesize", "--demo"))
        assert "evaluate t.csv adult_synthetic.csv --schema s.json" in outcome.out
    assert len(pd.read_csv("adult_synthetic.csv").columns) == 3
    Path("r.zip").write_text("kept")  # other files are not
    assert "already exists" in refused(run("synthesize", "--demo", "--release", "r.zip"))


@pytest.mark.parametrize("ways", ["1", "2"])
@pytest.mark.parametrize("rho", ["1e-6", "0.01"])
def test_columns_without_a_measured_combination_are_listed_alike_everywhere(run, ways, rho):
    """Columns of one value have none, but are never listed."""
    names = [f"c{i}" for i in range(9)]
    Path("s.json").write_text(json.dumps({name: 1 if name == "c4" else 2 for name in names}))
    cells = (["01"[(i >> k) % 2] if k != 4 else "0" for k in range(9)] for i in range(512))
    write("t.csv", map(",".join, cells), ",".join(names))
    options = ["--rho", rho, "--ways", ways, "--insecure-seed", "1", "--release", "r.zip"]
    said = done(run("synthesize", "t.csv", "--schema", "s.json", *options, "--json"))
    listed, released = json.loads(said.out)["unconnected"], Release.load("r.zip")
    named = released.workload.domain.clique_names
    joined = {name for c in released.estimates if len(c) > 1 for name in named(c)}
    expected = [name for name in names if name not in joined and name != "c4"]
    assert listed == ([] if ways == "1" else expected) == list(released.manifest.unconnected)
    assert ("independent of all others" in said.err) == bool(listed)
    assert ("No combination measured with" in release_page(released)) == bool(listed)


# Failures after the budget is spent: what it bought is kept, and the message says where.

FAILURES = {
    "memory": (MemoryError(CANARY), 1, "out of memory"),
    "interrupt": (entry.Stopped(2), 130, "stopped before the end"),
    "signal": (entry.Stopped(15), 143, "stopped before the end"),
    "bug": (RuntimeError(CANARY), 1, "internal error (RuntimeError"),
    "input": (InputError("o.csv: no space left. Free some."), 1, "space left. Free some; "),
}
PLACES = {
    "drawing": ((Release, "draw"), "the budget is spent; the release is in r.zip: sample a table"),
    "drawing alone": ((Release, "draw"), "the budget is spent; no release was kept (--release"),
    "saving": ((ReleaseSet, "save"), "the budget is spent; no release was kept"),
    "measuring": ((loop, "plan_opening"), LOST),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.one_in(3)
def test_a_run_that_fails_says_what_its_budget_bought(failure, place, run, monkeypatch):
    (error, code, hint), (target, bought) = FAILURES[failure], PLACES[place]
    error.__notes__ = [CANARY]  # of another library

    def fail(*_, **__):
        raise error

    kept = [] if place == "drawing alone" else ["--release", "r.zip"]
    before = sorted(Path.cwd().iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(*target, fail)
        said = refused(run(*BASE, "--out", "o.csv", *kept), code)
    assert hint in said
    assert bought in said
    assert CANARY not in said
    assert "no output was written" not in said
    if place == "drawing":
        done(run("sample", "r.zip", "--out", "o.csv"))
    else:
        assert sorted(Path.cwd().iterdir()) == before


def test_the_python_api_notes_it_too(monkeypatch):
    domain = Domain.from_sizes({"a": 2})
    monkeypatch.setattr(tables.Release, "of_run", lambda *_, **__: [][0])
    with pytest.raises(IndexError) as caught:
        Synthesizer(rho=1).fit(CodedTable.from_codes(domain, [np.arange(2)]))
    assert caught.value.__notes__ == [LOST]
