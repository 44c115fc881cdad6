"""The commands as users call them: what they print where, and what they write."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from adaptive_qs.cli import entry
from adaptive_qs.cli.outputs import Outputs
from adaptive_qs.cli.synthesize import Outcome
from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError
from adaptive_qs.loop import loop
from adaptive_qs.privacy.accounting import compute_epsilon
from adaptive_qs.release.bundle import unconnected_columns
from adaptive_qs.release.page import release_page
from adaptive_qs.release.release import Release
from adaptive_qs.release.tables import ReleaseSet
from adaptive_qs.run import tables
from adaptive_qs.run.states import LOST
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.coded import CodedTable

from .conftest import done, refused

CANARY = "c4n4ry"
BASE = ["synthesize", "t.csv", "--schema", "s.json", "--epsilon", "5"]


def test_a_table_says_what_it_cost_and_can_be_made_again_from_its_manifest(run):
    outcome = done(run(*BASE, "--out", "o.csv", "--release", "r.zip"))
    assert len(outcome.err.splitlines()) == outcome.err.count("independent of all others")
    for text in ("epsilon 5, delta 1e-09", "one row", "add or remove one row", "o.csv", "r.zip"):
        assert text in outcome.out
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


def test_a_table_goes_to_standard_output(run):
    """The same bytes as in a file, and nothing else there; it has no sidecar."""
    sampling = ["--seed", "3", "--rows", "40"]
    done(run(*BASE, *sampling, "--out", "o.csv", "--release", "r.zip"))
    before = {path.name for path in Path.cwd().iterdir()}
    sampled = done(run("sample", "r.zip", *sampling, "--out", "-"))
    assert sampled.out == Path("o.csv").read_text()
    assert "table: standard output (40 rows, 3 columns)" in sampled.err
    piped = done(run(*BASE, "--rows", "25", "--out", "-"))
    assert piped.out.splitlines()[0] == "job,age,day"
    assert len(piped.out.splitlines()) == 26
    assert "privacy: epsilon 5" in piped.err
    assert {path.name for path in Path.cwd().iterdir()} == before


def test_a_table_on_standard_output_that_would_be_misread_is_refused(run):
    out = ["--out", "-"]
    assert "both write to standard output" in refused(run(*BASE, *out, "--json"))
    seeded = ["--insecure-seed", "1"]
    assert "needs its mark next to it. Name a file" in refused(run(*BASE, *out, *seeded))
    done(run(*BASE, "--release", "r.zip", *seeded))
    assert "needs its mark next to it. Name a file" in refused(run("sample", "r.zip", *out))


@pytest.mark.parametrize("form", ["json", "md", "schema"])
def test_the_page_opens_with_what_the_data_are(run, form):
    about = {"title": "Jobs and ages", "licence": "CC0", "description": "One row each. Made up."}
    given = ["--about", f"about.{form}"]
    if form == "json":
        Path("about.json").write_text(json.dumps(about))
    elif form == "md":
        Path("about.md").write_text(
            "# Jobs and ages\n\n*One* row each.\nlicence: CC0\nMade `up`.\n"
        )
    else:
        schema = json.loads(Path("s.json").read_text())
        Path("s.json").write_text(json.dumps({**schema, "about": about}))
        given = []
    done(run(*BASE, *given, "--release", "r.zip"))
    with zipfile.ZipFile("r.zip") as bundle:
        assert json.loads(bundle.read("schema.json"))["about"] == about
        page = bundle.read("page.html").decode()
        facts = json.loads(bundle.read("manifest.json"))["facts"]
    assert "<title>Jobs and ages</title>" in page
    (fact,) = (f for f in facts if f["fact"].startswith("the description of the data"))
    assert (fact["basis"], fact["rho"]) == ("declared public", 0)


@pytest.mark.usefixtures("unspent")
@pytest.mark.parametrize(
    ("text", "said"),
    [('{"titel": "x"}', "about.titel: must be 'title'"), ("[1]", "is no JSON object"),
     ('{"title": ""}', "about.title"), (None, "about.json")],
)  # fmt: skip
def test_a_bad_description_is_refused_before_anything_is_spent(run, text, said):
    if text is not None:
        Path("about.json").write_text(text)
    assert said in refused(run(*BASE, "--about", "about.json", "--release", "r.zip"))


@pytest.mark.usefixtures("unspent")
def test_a_table_is_no_description(run):
    """Its rows would stand on the page of the release."""
    Path("rows.csv").write_text("name,age\nCanary,9\n")
    said = refused(run(*BASE, "--about", "rows.csv", "--release", "r.zip"))
    assert "rows.csv: is a table" in said
    assert "Canary" not in said


def test_synthesize_json(run):
    outcome = done(run(*BASE, "--rows", "40", "--out", "o.parquet", "--json"))
    assert len(outcome.err.splitlines()) == outcome.err.count("independent of all others")
    content = json.loads(outcome.out)
    assert content["rows"] == 40 == pq.read_table("o.parquet").num_rows
    assert 0 < content["rho_spent"] <= content["rho"]
    assert (content["epsilon"], content["delta"]) == (5, 1e-9)
    assert content["rounds"] > 0
    assert content["peak_memory_mb"] > 1
    assert content["seed_insecure"] is False
    assert {"read", "loop", "fit", "draw", "write", "total"} == set(content["seconds"])


def test_rho_reports_the_epsilon_it_implies(run):
    arguments = ["synthesize", "t.csv", "--schema", "s.json", "--rho", "0.016557414"]
    content = json.loads(done(run(*arguments, "--release", "r.zip", "--json")).out)
    assert content["rho"] == 0.016557414
    assert content["epsilon"] == pytest.approx(1, rel=1e-6)
    assert compute_epsilon(0.016557414, 1e-9) > 1.05  # what exact accounting is for


def test_samples_of_a_release_repeat_with_their_seed(run):
    done(run(*BASE, "--workload", "w.json", "--release", "r.zip", "--out", "o.csv", "--seed", 3))
    before = Path("r.zip").read_bytes()
    done(run("sample", "r.zip", "--seed", "3", "--out", "again.csv"))
    assert Path("again.csv").read_bytes() == Path("o.csv").read_bytes()
    outcome = done(run("sample", "r.zip", "--rows", "7", "--out", "few.csv", "--json"))
    assert json.loads(outcome.out)["rows"] == 7 == len(pd.read_csv("few.csv"))
    assert Path("r.zip").read_bytes() == before


def test_insecure_noise_repeats_and_stamps_everything(run):
    outputs = ["--out", "o.csv", "--release", "r.zip", "--insecure-seed", "1"]
    outcome = done(run(*BASE, *outputs))
    assert outcome.err.startswith("warning: ")
    assert "NOT PRIVATE" in outcome.err
    assert "NOT PRIVATE" in outcome.out
    assert "NOT PRIVATE" in Path("o.csv.NOT-PRIVATE.txt").read_text()
    with zipfile.ZipFile("r.zip") as archive:
        assert "NOT PRIVATE" in json.loads(archive.read("manifest.json"))["stamp"]
    first = Path("o.csv").read_bytes(), Path("r.zip").read_bytes()
    assert json.loads(done(run(*BASE, *outputs, "--force", "--json")).out)["seed_insecure"]
    assert (Path("o.csv").read_bytes(), Path("r.zip").read_bytes()) == first
    done(run("sample", "r.zip", "--out", "p.parquet"))
    assert Path("p.parquet.NOT-PRIVATE.txt").exists()
    assert b"NOT PRIVATE" in pq.read_schema("p.parquet").metadata[b"adaptive_qs.stamp"]


def test_the_stamp_of_an_insecure_table_is_an_output_like_any_other(run):
    stamp = Path("o.csv.NOT-PRIVATE.txt")
    stamp.write_text("kept")
    for seed in ([], ["--insecure-seed", "1"]):
        command = [*BASE, "--out", "o.csv", *seed]
        assert f"{stamp} already exists" in refused(run(*command))
        assert stamp.read_text() == "kept"
        said = refused(run(*command, "--release", stamp, "--force"))
        assert f"{stamp}: it is also an input or another output" in said
    assert not Path("o.csv").exists()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_private_table_does_not_keep_the_stamp_of_an_insecure_one(suffix, run):
    """And existing files are replaced only by force."""
    stamp, out = Path(f"o{suffix}.NOT-PRIVATE.txt"), Path(f"o{suffix}")
    out.write_text("old")
    insecure = ["--insecure-seed", "1", "--release", "bad.zip"]
    refused(run(*BASE, "--out", out))
    assert out.read_text() == "old"
    for command, stamped in (
        ([*BASE, *insecure], True),
        ([*BASE, "--release", "good.zip"], False),
        (["sample", "bad.zip"], True),
        (["sample", "good.zip"], False),
    ):
        done(run(*command, "--out", out, "--force"))
        assert stamp.exists() == stamped
        assert out.read_bytes() != b"old"


def test_mbi_domains_work(run):
    Path("m.json").write_text('{"a": 3, "b": 2}')
    Path("m.csv").write_text("a,b\n" + "2,1\n0,0\n" * 20)
    arguments = ["synthesize", "m.csv", "--schema", "m.json", "--epsilon", "1", "--ways", "1,2"]
    done(run(*arguments, "--out", "o.csv", "--rows", "5"))
    assert pd.read_csv("o.csv").shape == (5, 2)


def test_evaluate_prints_the_error_for_the_owner(run):
    table = ["evaluate", "t.csv", "t.csv", "--schema", "s.json"]
    outcome = done(run(*table))
    assert "owner only" in outcome.out
    assert "0.0000" in outcome.out
    content = json.loads(done(run(*table, "--ways", "1", "--json")).out)
    assert content["workload_error"] == {
        "mean_l1": 0, "max_l1": 0, "rmse": 0, "rmse_of": "cells", "queries": 22
    }  # fmt: skip
    assert [entry["attributes"] for entry in content["per_clique"]] == [["job"], ["age"], ["day"]]
    assert "owner only" in content["notice"]


def test_schema_commands(run):
    outcome = done(run("schema", "init", "t.csv", "--out", "new.json"))
    assert "taken from the rows" in outcome.out
    assert "not private" in outcome.err
    outcome = done(run("schema", "check", "new.json", "t.csv"))
    assert "fits the schema" in outcome.out
    assert "taken from the data" in outcome.err
    arguments = ["synthesize", "t.csv", "--schema", "new.json", "--epsilon", "1"]
    assert "Review it" in done(run(*arguments, "--release", "r.zip", "--unreviewed-schema")).err
    assert json.loads(done(run("schema", "init", "t.csv")).out)["version"] == 1
    for kind in ("schema", "workload"):
        content = json.loads(done(run("schema", "json-schema", kind)).out)
        assert content["$id"] == f"urn:adaptive-qs:{kind}:1"


def test_init_says_which_columns_are_left_out(run):
    rows = "".join(f"{i},{i % 7}\n" for i in range(1, 300))
    Path("ids.csv").write_text(f"id,x\n{rows}")
    outcome = done(run("schema", "init", "ids.csv"))
    assert "left out: 'id' (an identifier" in outcome.err
    assert json.loads(outcome.out)["ignore"] == ["id"]


def test_the_demo_needs_nothing(run, monkeypatch):
    shipped = Path("t.csv"), Path("s.json")
    monkeypatch.setattr("adaptive_qs.cli.options.demo_files", lambda: shipped)
    for _ in range(2):  # its own output is replaced
        outcome = done(run("synthesize", "--demo"))
        assert "epsilon 1, delta 1e-09" in outcome.out
        assert "evaluate t.csv adult_synthetic.csv --schema s.json" in outcome.out
    assert len(pd.read_csv("adult_synthetic.csv").columns) == 3
    Path("r.zip").write_text("kept")  # other files are not
    assert run("synthesize", "--demo", "--release", "r.zip").code == 2
    assert Path("r.zip").read_text() == "kept"


@pytest.mark.parametrize("verb", ["", *entry.COMMANDS])
def test_help_and_version(verb, run):
    outcome = done(run(*verb.split(), "--help"))
    assert f"Usage: adaptive-qs {verb}".rstrip() in outcome.out
    assert outcome.err == ""
    none = run()
    assert none.code == 2
    assert "error:" not in none.err
    assert done(run("--version")).out.startswith("adaptive-qs ")


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


def test_one_row_with_a_single_value_and_a_thousand_values(run):
    columns = [
        {"name": "one", "type": "categorical", "values": ["x"]},
        {"name": "many", "type": "integer", "min": 1, "max": 1000},
    ]
    Path("s.json").write_text(json.dumps({"version": 1, "columns": columns}))
    Path("t.csv").write_text("one,many\nx,1000\n")
    done(run(*BASE, "--out", "o.csv", "--rows", "3"))
    assert pd.read_csv("o.csv").one.tolist() == ["x"] * 3


def test_synthesize_says_how_much_of_the_workload_was_measured(run):
    """At a budget this small, at most a pair or two of the three columns can be measured."""
    out = done(run(*BASE[:-1], "0.01", "--out", "o.csv")).out
    assert re.search(r"measured\s+\d of 3 marginals; \d+ rounds?\n", out)
    generous = done(run(*BASE[:-1], "50", "--out", "p.csv")).out
    assert re.search(r"measured\s+3 of 3 marginals; \d+ rounds\n", generous)
    assert "unconnected" not in generous


def test_the_page_counts_what_was_measured_as_the_terminal_does(run):
    """A column of one value adds nothing to a marginal, which is then measured without it."""
    schema = json.loads(Path("s.json").read_text())
    schema["columns"].append({"name": "land", "type": "categorical", "values": ["D"]})
    Path("s.json").write_text(json.dumps(schema))
    header, *rest = Path("t.csv").read_text().splitlines()
    Path("t.csv").write_text("\n".join([f"{header},land", *(f"{row},D" for row in rest)]) + "\n")
    out = done(run(*BASE[:-1], "50", "--release", "r.zip", "--out", "o.csv")).out
    assert re.search(r"measured\s+6 of 6 marginals", out)
    with zipfile.ZipFile("r.zip") as archive:
        page = archive.read("page.html").decode()
    assert "6 of the workload's 6 combinations were measured at full resolution" in page


def test_a_full_stdout_is_said_in_one_line(run, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sys.stdout.write", full)
    outcome = run("schema", "check", "s.json")
    assert outcome.code == 1
    assert outcome.err == (
        "error: stdout cannot be written (No space left on device): output files are complete\n"
    )


def test_a_release_can_be_made_without_a_table_and_will_do_as_schema(run):
    assert "adaptive-qs sample r.zip" in done(run(*BASE, "--release", "r.zip")).out
    assert not Path("o.csv").exists()
    bundle, file = (run("plan", "--schema", name, "--json") for name in ("r.zip", "s.json"))
    assert json.loads(done(bundle).out)["rmse"] == json.loads(done(file).out)["rmse"]
    Path("x.zip").write_bytes(b"PK\x05\x06" + bytes(18))
    assert "no release bundle" in refused(run("plan", "--schema", "x.zip"))


# Columns of which no combination was measured: `synthesize` counts, names and lists them.

NAMES = [f"c{i}" for i in range(9)]


@pytest.fixture
def wide(run):
    """The release of a table of nine columns, as it was measured."""
    Path("s.json").write_text(json.dumps(dict.fromkeys(NAMES, 2)))
    lines = [",".join(NAMES), *[",".join("01"[(i >> k) % 2] for k in range(9)) for i in range(512)]]
    Path("t.csv").write_text("\n".join(lines) + "\n")
    done(run(*BASE, "--release", "r.zip"))
    return Release.load("r.zip")


def outcome(release, *combinations):
    """A run that measured all columns and these combinations."""
    singles = {c: e for c, e in release.estimates.items() if len(c) < 2}
    some = next(iter(singles.values()))
    cliques = [release.workload.domain.clique(names) for names in combinations]
    estimates = {**singles, **dict.fromkeys(cliques, some)}
    unconnected = unconnected_columns(release.workload, estimates)
    manifest = release.manifest.model_copy(update={"unconnected": unconnected})
    changed = replace(release, manifest=manifest, estimates=estimates)
    outputs = Outputs(None, {}, Path("r.zip"))
    saved = ReleaseSet.load("r.zip")
    whole = ReleaseSet.of_run(saved.schema, {saved.schema.root: changed})
    return Outcome(Path("t.csv"), Path("s.json"), outputs, whole, {}, None)


@pytest.mark.parametrize(
    ("measured", "unconnected", "row", "warning"),
    [
        ([], NAMES, "9 of 9 columns (c0, c1, c2, c3, c4, c5 and 3 more)", "9 of 9 columns are"),
        ([("c0", "c1"), ("c2", "c3", "c4")], NAMES[5:], "4 of 9 columns (c5, c6, c7, c8): no", "4"),
        ([tuple(NAMES[:8])], ["c8"], "1 of 9 columns (c8): no combination", "1 of 9 columns is"),
    ],
)
def test_they_are_counted_in_a_warning_and_listed_for_scripts(
    wide, measured, unconnected, row, warning
):
    found = outcome(wide, *measured)
    assert dict(found.lines())["unconnected"].startswith(row)
    *warnings, independent = found.warnings
    assert tuple(warnings) == found.release.warnings
    assert independent.removeprefix("At this budget ").startswith(warning)
    assert "independent of all others. Use coarser bins" in independent
    assert found.json()["unconnected"] == unconnected


def test_nothing_is_said_where_all_are_combined(wide):
    found = outcome(wide, tuple(NAMES))
    assert "unconnected" not in dict(found.lines())
    assert (found.warnings, found.json()["unconnected"]) == (found.release.warnings, [])


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("ways", ["1", "2"])
def test_the_warning_comes_with_the_list_on_either_output(run, ways):
    run_of = ["synthesize", "t.csv", "--schema", "s.json", "--rho", "0.01", "--ways", ways]
    said = run(*run_of, "--insecure-seed", "1", "--release", "one.zip", "--json")
    listed = json.loads(said.out)["unconnected"]
    released = Release.load("one.zip")
    names = released.workload.domain.clique_names
    joined = {name for c in released.estimates if len(c) > 1 for name in names(c)}
    assert listed == ([] if ways == "1" else [name for name in NAMES if name not in joined])
    assert ("independent of all others" in said.err) == bool(listed)
    shown = run(*run_of, "--insecure-seed", "1", "--release", "two.zip")
    assert shown.err == said.err


@pytest.mark.parametrize("ways", ["1", "2"])
def test_a_constant_column_is_never_unconnected_and_the_page_says_the_same(run, ways):
    """At this budget no pair of nine columns is measured; one of them has one code."""
    sizes = {name: 1 if name == "c4" else 2 for name in NAMES}
    Path("s.json").write_text(json.dumps(sizes))
    cells = ["0" if name == "c4" else str(k % 2) for k, name in enumerate(NAMES)]
    Path("t.csv").write_text("\n".join([",".join(NAMES), *[",".join(cells)] * 64]) + "\n")
    options = ["--rho", "1e-6", "--ways", ways, "--insecure-seed", "1", "--release", "r.zip"]
    said = done(run("synthesize", "t.csv", "--schema", "s.json", *options, "--json"))
    found = Release.load("r.zip")
    unconnected = json.loads(said.out)["unconnected"]
    assert unconnected == list(found.manifest.unconnected)
    if ways == "1":
        assert unconnected == []
    else:
        assert unconnected
        assert "c4" not in unconnected
    assert ("No combination measured with" in release_page(found)) == bool(unconnected)


# Failures after the budget is spent: what it bought is kept, and the message says where.

RECEIPT_BASE = [*BASE, "--out", "o.csv"]
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
    vars(error).pop("__notes__", None)
    return error, code, hint


def fail_at(monkeypatch, target, name, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(target, name, fail)


def check(outcome, code, *hints):
    said = refused(outcome, code)
    for word in (CANARY, "no output was written"):
        assert word not in said
    for hint in hints:
        assert hint in said


def test_the_release_is_saved_before_the_table_is_fitted(failure, run, monkeypatch):
    error, code, hint = failure
    with monkeypatch.context() as patch:
        fail_at(patch, Release, "draw", error)
        check(run(*RECEIPT_BASE, "--release", "r.zip"), code, hint, SAVED)
    assert not Path("o.csv").exists()
    assert run("sample", "r.zip", "--out", "o.csv").code == 0
    assert pd.read_csv("o.csv").columns.tolist() == ["job", "age", "day"]


def test_without_a_release_the_message_owns_up(failure, run, monkeypatch):
    error, code, hint = failure
    before = sorted(Path.cwd().iterdir())
    fail_at(monkeypatch, Release, "draw", error)
    lost = "the budget is spent; no release was kept (--release FILE"
    check(run(*RECEIPT_BASE), code, hint, lost)
    assert sorted(Path.cwd().iterdir()) == before


def test_a_release_that_cannot_be_saved_is_not_claimed(run, monkeypatch):
    words = "r.zip: cannot be written"
    fail_at(monkeypatch, ReleaseSet, "save", InputError(words))
    check(run(*RECEIPT_BASE, "--release", "r.zip"), 1, words, "no release was kept")
    assert not Path("r.zip").exists()


def test_failures_between_the_first_charge_and_the_release(failure, run, monkeypatch):
    error, code, hint = failure
    before = sorted(Path.cwd().iterdir())
    fail_at(monkeypatch, loop, "plan_opening", error)
    check(run(*RECEIPT_BASE, "--release", "r.zip"), code, hint, LOST)
    assert sorted(Path.cwd().iterdir()) == before


def test_notes_of_other_libraries_are_not_shown(run, monkeypatch):
    error = RuntimeError()
    error.add_note(CANARY)
    fail_at(monkeypatch, Release, "draw", error)
    check(run(*RECEIPT_BASE), 1, "no release was kept")


def test_the_python_api_notes_it_too(monkeypatch):
    domain = Domain.from_sizes({"a": 2})
    fail_at(monkeypatch, tables.Release, "of_run", RuntimeError())
    with pytest.raises(RuntimeError) as caught:
        Synthesizer(rho=1).fit(CodedTable.from_codes(domain, [np.arange(2)]))
    assert caught.value.__notes__ == [LOST]
