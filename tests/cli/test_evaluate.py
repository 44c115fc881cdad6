"""`evaluate` as its owner calls it: what it measures, prints, writes and refuses."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from adaptive_qs.evaluation.tables import OWNER_ONLY

from .conftest import HEADER

CANARY = "c4n4ry"
BASE = ["evaluate", "t.csv", "o.csv", "--schema", "s.json"]
FIELDS = {
    "contradictions",
    "rows_compared", "workload_error", "per_clique", "association",
    "rows", "rules", "unseen", "utility", "membership", "limitations", "notice", "report",
    "seconds", "peak_memory_mb", "verdict", "query_parts",
    "values", "group_means", "impossible", "uses",
}  # fmt: skip


def drawn(rows, seed, jobs=("a", "b", "?")):
    """Rows of the schema in which the job is told by the age, most of the time."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(rows):
        age = rng.integers(10)
        job = jobs[age % len(jobs)] if rng.random() < 0.8 else rng.choice(jobs)
        lines.append(f"{job},{age},2020-01-0{rng.integers(1, 10)}")
    return lines


def write(path, lines, header=HEADER):
    Path(path).write_text("\n".join([header, *lines]) + "\n")


@pytest.fixture
def tables(folder):
    """Other rows for t.csv, and a synthetic o.csv and a control table c.csv like them."""
    write("t.csv", drawn(400, 1))
    write("o.csv", drawn(300, 2))
    write("c.csv", drawn(300, 3))


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


def refused(run, arguments, hint):
    outcome = run(*arguments)
    assert (outcome.code, outcome.out) == (2, ""), outcome
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1, outcome.err
    assert hint in outcome.err
    assert CANARY not in outcome.err
    return outcome.err


@pytest.mark.usefixtures("tables")
def test_every_part_is_printed_and_marked_as_the_owners(run):
    outcome = run(*BASE, "--rule", "job determines age")
    assert outcome.code == 0, outcome
    assert outcome.out.startswith(OWNER_ONLY + "\nVerdict: ")
    assert [line[5:] for line in outcome.out.splitlines()[2:5]] == (
        content(run, "--rule", "job determines age")["verdict"][:3]
    )
    for text in (
        "Marginals of the workload", "job × age", "Single columns", "Cramér's V",
        "exact matches", "unseen pairs", "job determines age", "declared", "Limitations",
        "fewer than 1,000 rows", "publish", "no (computed from private rows without noise)",
        "seconds", "memory",
    ):  # fmt: skip
        assert text in outcome.out, text
    for text in ("gradient boosting", "advantage", "nan"):
        assert text not in outcome.out


@pytest.mark.usefixtures("tables")
def test_the_fields_of_the_json_object_are_fixed(run):
    found = content(run, "--ways", "1,2", "--rule", "job determines age")
    assert set(found) == FIELDS
    assert next(iter(found)) == "notice"
    assert "owner only" in found["notice"]
    assert set(found["workload_error"]) == {"mean_l1", "max_l1", "rmse", "rmse_of", "queries"}
    cliques = found["per_clique"]
    assert len(cliques) == 6
    fields = {"attributes", "l1", "rmse", "cells", "weight"}
    assert all(set(entry) == fields for entry in cliques)
    assert (cliques[3]["attributes"], cliques[3]["cells"]) == (["job", "age"], 30)
    assert np.shape(found["association"]["cramers_v"]["true"]) == (3, 3)
    assert found["rules"][0]["rule"] == "job determines age"
    assert found["rows_compared"] == {"true": 400, "synthetic": 300}
    assert (found["utility"], found["membership"], found["report"]) == (None, None, None)
    assert {"read", "evaluate", "pairs", "verdict", "total"} == set(found["seconds"])


@pytest.mark.usefixtures("tables")
def test_results_do_not_depend_on_the_number_of_threads(run):
    found = [content(run, "--workers", workers) for workers in (1, 3)]
    for part in found:
        del part["seconds"], part["peak_memory_mb"]
    assert found[0] == found[1]


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("lines", "limitation"),
    [(["a,3,2020-01-02"] * 50, "one value only in the synthetic table"),
     (["a,3,2020-01-02"], "one value only in the synthetic table"),
     (["?,3,2020-01-02", "a,4,2020-01-02"], "than twice the rows of the other")],
)  # fmt: skip
def test_constant_and_tiny_tables_are_measured_with_a_limitation(run, lines, limitation):
    write("o.csv", lines)
    assert said(limitation, content(run))
    assert run(*BASE).code == 0
    outcome = run("evaluate", "o.csv", "o.csv", "--schema", "s.json")
    assert (outcome.code, "nan" in outcome.out) == (0, False)


def test_a_table_of_one_column_has_no_pairs(run):
    Path("m.json").write_text('{"only": 4}')
    write("m.csv", ["0", "3", "1"], "only")
    base = ["evaluate", "m.csv", "m.csv", "--schema", "m.json"]
    outcome = run(*base)
    assert outcome.code == 0, outcome
    assert content(run, base=base)["association"]["names"] == ["only"]


BAD_TABLES = {
    "no rows": ([HEADER], "no rows"),
    "nothing": ([], ""),
    "column missing": (["job,age", "a,1"], "day"),
    "column more": ([f"{HEADER},{'more'}", "a,1,2020-01-02,5"], "more"),
    "not declared": ([HEADER, f"{CANARY},1,2020-01-02"], "column 'job' has a value that is not"),
    "outside": ([HEADER, "a,10,2020-01-02"], "column 'age' has a value outside its declared range"),
    "text for a number": ([HEADER, f"a,{CANARY},2020-01-02"], "column 'age' has a cell that"),
    "fraction": ([HEADER, "a,3.71,2020-01-02"], "column 'age' has a cell that cannot be read as"),
    "empty cell": ([HEADER, "a,,2020-01-02"], "column 'age' has empty cells"),
    "no date": ([HEADER, f"a,1,{CANARY}"], "column 'day' has a cell that cannot be read as date"),
}


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("place", ["t.csv", "o.csv", "c.csv"])
@pytest.mark.parametrize("case", BAD_TABLES)
def test_a_table_that_does_not_fit_is_named_in_one_line(case, place, run):
    lines, hint = BAD_TABLES[case]
    Path(place).write_text("\n".join(lines) + "\n" * bool(lines))
    message = refused(run, [*BASE, "--control", "c.csv", "--json"], hint)
    assert f"error: {place}" in message
    assert "3.71" not in message
    told = "round its numbers, and clip them to the declared range" in message
    assert told == (place == "o.csv" and case in ("outside", "text for a number", "fraction"))


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("more", "hint"),
    [
        (["--rule", "age <= wage"], "'wage' is neither a column nor a value of 'age'"),
        (["--rule", "age"], "Cannot parse the rule"),
        (["--rule", "age <= day"], "different kinds of values"),
        (["--target", "wage"], "wage"),
        (["--target", "age", "--repeats", "0"], "repeats is 0"),
        (["--seed", "-1"], "seed is -1"),
        (["--seed", str(2**32 - 4)], "seed is 4294967292: give 0 to 4,294,967,291"),
        (["--seed", str(2**32), "--control", "c.csv"], "seed is 4294967296"),
        (["--control", "./o.csv"], "other rows than SYNTHETIC"),
        (["--control", "t.csv"], "other rows than TRUE"),
        (["--release", "no.zip"], "no.zip"),
        (["--release", "t.csv"], "t.csv"),
        (["--control", "no.csv"], "no.csv"),
        (["--report", "c.html", "--control", "c.html", "--force"], "c.html: it is also an input"),
        (["--report", "t.csv", "--force"], "give a name that ends in .html"),
        (["--report", "r.txt"], "--report is r.txt: a page is HTML"),
        (["--report", "no/r.html"], "no/r.html: cannot be written"),
        (["--report", "old.html"], "old.html already exists"),
        (["--report", "a.html", "--schema", "no.json"], "no.json"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_line(more, hint, run):
    Path("old.html").write_text("kept")
    before = sorted(Path.cwd().iterdir())
    refused(run, [*BASE, *more], hint)
    assert sorted(Path.cwd().iterdir()) == before
    assert Path("old.html").read_text() == "kept"


@pytest.mark.usefixtures("tables")
def test_a_target_adds_models(run):
    found = content(run, "--target", "job", "--repeats", "2")
    assert found["utility"]["target"] == "job"
    assert found["utility"]["real"]["repeats"] == 2
    outcome = run(*BASE, "--target", "job", "--repeats", "2")
    for text in ("Models", "gradient boosting", "AUROC"):
        assert text in outcome.out


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
    outcome = run(*BASE, "--control", "c.csv")
    assert "advantage" in outcome.out
    assert "epsilon 1, delta 1e-09 (o.csv.manifest.json)" in outcome.out

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
def test_the_report_is_one_whole_file_that_force_replaces(run):
    found = content(run, "--report", "r.html", "--target", "job", "--repeats", "1")
    assert found["report"] == "r.html"
    assert found["utility"]["target"] == "job"
    page = Path("r.html").read_text()
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "owner" in page.lower()
    assert run(*BASE, "--report", "r.html").code == 2
    outcome = run(*BASE, "--report", "r.html", "--force")
    assert outcome.code == 0, outcome
    assert "r.html" in outcome.out
    assert "gradient boosting" not in outcome.out
    assert Path("r.html").read_text() != page


@pytest.mark.usefixtures("tables")
@pytest.mark.slow
def test_the_quick_measures_need_no_learning_library():
    code = (
        "import sys; from adaptive_qs.cli import main; "
        f"assert main({BASE!r}) == 0; assert 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.usefixtures("tables")
def test_the_error_is_that_of_the_queries_of_the_workload(run):
    part = {"attributes": [["age", "day"]], "queries": "range", "weight": 2.0}
    Path("q.json").write_text(json.dumps({"version": 1, "parts": [part]}))
    found = content(run, "--workload", "q.json")
    number = 55 * 45  # ranges of ten ages and nine days
    error = found["workload_error"]
    assert (error["rmse_of"], error["queries"]) == ("queries", number)
    assert error["rmse"] > found["per_clique"][0]["rmse"] > 0
    assert [entry["attributes"] for entry in found["per_clique"]] == [["age", "day"]]
    assert {"read", "evaluate", "queries", "pairs", "verdict", "total"} == set(found["seconds"])
    outcome = run(*BASE, "--workload", "q.json")
    assert f"of the rows, over the {number:,} queries of the workload, weighted" in outcome.out
    cells = content(run)["workload_error"]
    assert (cells["rmse_of"], cells["queries"]) == ("cells", 30 + 27 + 90)


@pytest.mark.usefixtures("tables")
def test_swapped_tables_are_refused_where_a_statement_tells_them(run):
    synthesized(run, "n.csv", "--release", "r.zip")
    swapped = ["evaluate", "n.csv", "t.csv", "--schema", "s.json"]
    message = refused(run, swapped, "n.csv: is a released table, n.csv.manifest.json lies next")
    assert "swap them, the private table comes first" in message
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
